//! Allocates by cudarc as any program of its does, and knows nothing of this project: contents stay what they were, on
//! streams and threads, and times are printed. `cudarc-program list` prints the names of what it checks, `cudarc-program
//! NAME` runs one, and without a word it prints times in nanoseconds.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DeviceRepr};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const CHECKS: [(&str, fn() -> Result); 4] =
    [("contents", contents), ("streams", streams), ("threads", threads), ("devices", devices)];

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

/// Memory that nothing was written to yet.
fn allocate<T: DeviceRepr>(stream: &Arc<CudaStream>, length: usize) -> Result<CudaSlice<T>> {
    // SAFETY: Nobody here reads it before it is written.
    Ok(unsafe { stream.alloc::<T>(length) }?)
}

/// Blocks of many sizes, each with a number of its own throughout; one of them is replaced in each turn.
fn churn(stream: &Arc<CudaStream>, turns: usize) -> Result {
    let mut numbers = Numbers(7);
    let mut held: Vec<(u32, CudaSlice<u32>)> = Vec::new();
    for turn in 0..turns as u32 {
        if held.len() >= 20 {
            let (number, block) = held.swap_remove(numbers.below(20));
            let found = stream.clone_dtoh(&block)?;
            assert!(found.iter().all(|&word| word == number), "a block of {} words is not what it was", found.len());
        }
        let bits = 4 + numbers.below(15);
        let length = 1 + numbers.below(1 << bits);
        held.push((turn, stream.clone_htod(&vec![turn; length])?));
    }
    Ok(())
}

fn contents() -> Result {
    churn(&CudaContext::new(0)?.default_stream(), 300)
}

/// Blocks of one stream are used and dropped on another.
fn streams() -> Result {
    let context = CudaContext::new(0)?;
    for turn in 0..50_u32 {
        let (one, two) = (context.new_stream()?, context.new_stream()?);
        let given = one.clone_htod(&vec![turn; 100_000])?;
        let mut copied = allocate::<u32>(&two, 100_000)?;
        two.memcpy_dtod(&given, &mut copied)?;
        drop(given);
        let _next = one.clone_htod(&vec![u32::MAX; 100_000])?;
        assert!(two.clone_dtoh(&copied)?.iter().all(|&word| word == turn));
    }
    Ok(())
}

fn threads() -> Result {
    let context = CudaContext::new(0)?;
    let work = |context: Arc<CudaContext>| churn(&context.new_stream()?, 100);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn({
                let context = context.clone();
                move || work(context)
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
}

fn devices() -> Result {
    (0..CudaContext::device_count()?)
        .try_for_each(|device| churn(&CudaContext::new(device as usize)?.new_stream()?, 50))
}

/// Nanoseconds for memory that is allocated and dropped.
fn pair(stream: &Arc<CudaStream>, size: usize) -> Result<f64> {
    const COUNT: u32 = 20_000;
    let once = || -> Result {
        drop(allocate::<u8>(stream, size)?);
        Ok(())
    };
    (0..100).try_for_each(|_| once())?;
    stream.synchronize()?;
    let begin = Instant::now();
    (0..COUNT).try_for_each(|_| once())?;
    let time = begin.elapsed().as_nanos() as f64;
    stream.synchronize()?;
    Ok(time / f64::from(COUNT))
}

/// The same where 200 blocks of up to 32 MiB live, one of which is replaced at a time.
fn replaced(stream: &Arc<CudaStream>) -> Result<f64> {
    const COUNT: usize = 20_000;
    let mut numbers = Numbers(3);
    let mut size = || 1 + (1_usize << 25 >> numbers.below(16));
    let mut held: Vec<_> = (0..200).map(|_| allocate::<u8>(stream, size())).collect::<Result<_>>()?;
    let mut places = Numbers(5);
    let mut once = |_| -> Result {
        held[places.below(200)] = allocate::<u8>(stream, size())?;
        Ok(())
    };
    (0..2000).try_for_each(&mut once)?;
    stream.synchronize()?;
    let begin = Instant::now();
    (0..COUNT).try_for_each(&mut once)?;
    let time = begin.elapsed().as_nanos() as f64;
    stream.synchronize()?;
    Ok(time / COUNT as f64)
}

fn times() -> Result {
    let context = CudaContext::new(0)?;
    // As candle does: two events for each block would take longer than the block.
    // SAFETY: One stream alone is used here.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream()?;
    for _ in 0..3 {
        let [small, large] = [1000, 1 << 20].map(|size| pair(&stream, size));
        println!("ns a pair: 1000 bytes {:.0}, 1 MiB {:.0}, replaced {:.0}", small?, large?, replaced(&stream)?);
    }
    Ok(())
}

fn main() -> Result {
    match std::env::args().nth(1).as_deref() {
        None => times(),
        Some("list") => {
            CHECKS.iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
        Some(asked) => {
            let found = CHECKS.iter().find(|(name, _)| *name == asked);
            found.map_or_else(|| Err(format!("there is no check `{asked}`").into()), |(_, check)| check())
        }
    }
}
