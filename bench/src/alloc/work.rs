//! What is measured: loops over the runtime's public functions, alone or on several threads at once.
//!
//! **Invariant:** everything a loop needs is drawn beforehand and no clock is read inside, except where single calls
//! are timed; so the loop itself costs next to nothing ([`null`] measures it).

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use c10_core::{DeviceIndex, Error, Runtime, Stream};

use crate::alloc::case::{BYTES, THREADS_MAX};
use crate::random::{INDEXES, Random, SIZES};
use bench::median;

/// The device that is measured.
pub(crate) const DEVICE: DeviceIndex = DeviceIndex(0);

/// How far apart consecutive requests lie in the drawn sizes.
const STRIDE: usize = 7;

/// The seed of the first thread; each other thread has the next one.
const SEED: u64 = 7;

/// Slots between a thread that takes memory and its partner.
const RING: usize = 1024;

/// In a slot of the ring: no more will come.
const NO_MORE: u64 = u64::MAX;

/// A started runtime with a stream for each thread and one beside them.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The runtime.
    pub(crate) runtime: Runtime,
    streams: Vec<Stream>,
    other: Stream,
}

impl Ground {
    /// Starts the process-wide runtime.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn new() -> Result<Self, Error> {
        let runtime = Runtime::default_runtime();
        let streams = (0..THREADS_MAX).map(|_| runtime.streams().pooled(DEVICE, 0)).collect::<Result<Vec<_>, _>>()?;
        let other = runtime.streams().pooled(DEVICE, 0)?;
        Ok(Self { runtime, streams, other })
    }

    /// The stream of the first thread.
    pub(crate) fn stream(&self) -> &Stream {
        &self.streams[0]
    }

    /// Nanoseconds of taking and giving back, on each of some threads.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn pair(&self, bytes: u64, threads: usize, ops: usize) -> Result<f64, Error> {
        on_threads(threads, ops, |index| {
            let (runtime, stream) = (&self.runtime, &self.streams[index % self.streams.len()]);
            Ok(Loop(move |_| {
                let address = runtime.memory().alloc(bytes, stream)?;
                runtime.memory().free(black_box(address))
            }))
        })
    }

    /// Nanoseconds of giving one of `live` blocks back and taking another.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn replace(&self, live: usize, ops: usize) -> Result<f64, Error> {
        on_threads(1, ops, |_| Replace::new(&self.runtime, self.stream(), live))
    }

    /// Nanoseconds of taking, noting another stream's use, and giving back.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn record_stream(&self, bytes: u64) -> Result<(), Error> {
        let address = self.runtime.memory().alloc(bytes, self.stream())?;
        self.runtime.memory().record_stream(address, &self.other)?;
        self.runtime.memory().free(address)
    }

    /// Nanoseconds of reading all statistics.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn stats(&self, ops: usize) -> Result<f64, Error> {
        on_threads(1, ops, |_| {
            Ok(Loop(|_| {
                black_box(self.runtime.memory().stats(DEVICE)?);
                Ok(())
            }))
        })
    }

    /// Nanoseconds of reading all statistics where `streams` streams have allocated once. They belong to a runtime of
    /// their own, which ends with the round, so that the rows after this one have no more streams than those before.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn stats_of_streams(streams: usize, ops: usize) -> Result<f64, Error> {
        on_threads(1, ops, |_| ManyStreams::new(streams))
    }

    /// Nanoseconds of reading all statistics under their names.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn flattened(&self, ops: usize) -> Result<f64, Error> {
        on_threads(1, ops, |_| {
            Ok(Loop(|_| {
                black_box(self.runtime.memory().stats(DEVICE)?.flatten());
                Ok(())
            }))
        })
    }

    /// Nanoseconds of a block that one thread takes and its partner gives back. Both wait without a pause, as harnesses
    /// do: the pause of some processors takes longer than the call that is measured.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn remote(&self, bytes: u64, ops: usize) -> Result<f64, Error> {
        let ring: Vec<AtomicU64> = (0..RING).map(|_| AtomicU64::new(0)).collect();
        let (gate, partner_left) = (Gate::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            let partner = scope.spawn(|| {
                let _left = OnDrop(|| partner_left.store(true, Ordering::SeqCst));
                drop(gate.arrival());
                gate.wait();
                self.give_back_all(&ring)
            });
            drop(gate.arrival());
            gate.wait();
            let begin = Instant::now();
            let taken = self.take_all(&ring, bytes, ops, &partner_left);
            let ended = partner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let ns = per_call(begin, ops);
            ended.and(taken).map(|()| ns)
        })
    }

    fn take_all(&self, ring: &[AtomicU64], bytes: u64, ops: usize, partner_left: &AtomicBool) -> Result<(), Error> {
        let put = |slot: &AtomicU64, value| {
            while slot.load(Ordering::SeqCst) != 0 {
                if partner_left.load(Ordering::Relaxed) {
                    return false;
                }
            }
            slot.store(value, Ordering::SeqCst);
            true
        };
        for index in 0..ops {
            let address = self.runtime.memory().alloc(bytes, self.stream());
            let is_taken_over = put(&ring[index % RING], *address.as_ref().unwrap_or(&NO_MORE));
            address?;
            if !is_taken_over {
                // The partner says why.
                return Ok(());
            }
        }
        put(&ring[ops % RING], NO_MORE);
        Ok(())
    }

    fn give_back_all(&self, ring: &[AtomicU64]) -> Result<(), Error> {
        for slot in ring.iter().cycle() {
            let address = loop {
                match slot.swap(0, Ordering::SeqCst) {
                    0 => {}
                    address => break address,
                }
            };
            if address == NO_MORE {
                break;
            }
            self.runtime.memory().free(address)?;
        }
        Ok(())
    }

    /// The time of each of `ops` requests, sorted; one reading of the clock is in each.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn latencies(&self, bytes: u64, ops: usize) -> Result<Vec<f64>, Error> {
        let mut figures = vec![0.0; ops];
        for figure in &mut figures {
            let begin = Instant::now();
            let address = self.runtime.memory().alloc(bytes, self.stream())?;
            *figure = begin.elapsed().as_secs_f64() * 1e9;
            self.runtime.memory().free(address)?;
        }
        figures.sort_by(f64::total_cmp);
        Ok(figures)
    }
}

/// Nanoseconds of one pass of a loop that does nothing.
///
/// # Errors
/// None; the signature is that of the other loops.
pub(crate) fn null(ops: usize) -> Result<f64, Error> {
    on_threads(1, ops, |_| {
        Ok(Loop(|index| {
            black_box(index);
            Ok(())
        }))
    })
}

/// Nanoseconds of so many steps of arithmetic on data of the thread's own, on each of some threads: what threads cost
/// each other that share nothing but the machine.
///
/// # Errors
/// None; the signature is that of the other loops.
pub(crate) fn control(steps: usize, threads: usize, ops: usize) -> Result<f64, Error> {
    on_threads(threads, ops, |index| {
        let (mut table, mut state) = (Box::new([0_u64; 64]), index as u64);
        Ok(Loop(move |_| {
            for _ in 0..steps {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                table[(state >> 58) as usize] ^= state;
            }
            black_box(&mut table);
            Ok(())
        }))
    })
}

/// What a thread does over and over.
trait Work {
    fn run(&mut self, ops: usize) -> Result<(), Error>;

    /// Gives back what is still held; not measured.
    fn finish(self) -> Result<(), Error>;
}

struct Loop<Body>(Body);

impl<Body: FnMut(usize) -> Result<(), Error>> Work for Loop<Body> {
    #[inline]
    fn run(&mut self, ops: usize) -> Result<(), Error> {
        (0..ops).try_for_each(&mut self.0)
    }

    fn finish(self) -> Result<(), Error> {
        Ok(())
    }
}

struct Replace<'ground> {
    runtime: &'ground Runtime,
    stream: &'ground Stream,
    sizes: Vec<u64>,
    indexes: Vec<usize>,
    blocks: Vec<u64>,
}

impl<'ground> Replace<'ground> {
    fn new(runtime: &'ground Runtime, stream: &'ground Stream, live: usize) -> Result<Self, Error> {
        let mut random = Random::new(SEED);
        let sizes = random.sizes();
        let first = (0..live).map(|index| runtime.memory().alloc(sizes[index % SIZES], stream));
        let blocks = first.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { runtime, stream, indexes: random.indexes(live), sizes, blocks })
    }
}

impl Work for Replace<'_> {
    fn run(&mut self, ops: usize) -> Result<(), Error> {
        for index in 0..ops {
            let block = &mut self.blocks[self.indexes[index % INDEXES]];
            self.runtime.memory().free(*block)?;
            *block = self.runtime.memory().alloc(self.sizes[(index * STRIDE) % SIZES], self.stream)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Error> {
        self.blocks.iter().try_for_each(|block| self.runtime.memory().free(*block))
    }
}

/// A runtime on which many streams each hold one block.
struct ManyStreams {
    runtime: Runtime,
    blocks: Vec<u64>,
}

impl ManyStreams {
    fn new(streams: usize) -> Result<Self, Error> {
        let runtime = Runtime::on_system_driver();
        // Kept until all have allocated: a stream that nobody has any more would be handed out again.
        let streams = (0..streams).map(|_| runtime.streams().unpooled(DEVICE, 0)).collect::<Result<Vec<_>, _>>()?;
        let blocks = streams.iter().map(|stream| runtime.memory().alloc(BYTES, stream));
        let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { runtime, blocks })
    }
}

impl Work for ManyStreams {
    fn run(&mut self, ops: usize) -> Result<(), Error> {
        for _ in 0..ops {
            black_box(self.runtime.memory().stats(DEVICE)?);
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Error> {
        self.blocks.iter().try_for_each(|block| self.runtime.memory().free(*block))
    }
}

/// Runs the same on some threads, which begin together when all are warm; the median thread's nanoseconds of a call.
fn on_threads<W: Work>(
    threads: usize,
    ops: usize,
    make: impl Fn(usize) -> Result<W, Error> + Sync,
) -> Result<f64, Error> {
    let (gate, make) = (Gate::new(threads), &make);
    let figures = thread::scope(|scope| {
        let gate = &gate;
        let start = |index| scope.spawn(move || timed(gate, ops, || make(index)));
        let threads: Vec<_> = (0..threads).map(start).collect();
        let figures =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        figures.collect::<Result<Vec<_>, _>>()
    });
    Ok(median(&mut figures?))
}

fn timed<W: Work>(gate: &Gate, ops: usize, make: impl FnOnce() -> Result<W, Error>) -> Result<f64, Error> {
    let arrival = gate.arrival();
    let mut work = make()?;
    work.run(ops / 4 + 1)?;
    drop(arrival);
    gate.wait();
    let begin = Instant::now();
    work.run(ops)?;
    let ns = per_call(begin, ops);
    work.finish()?;
    Ok(ns)
}

fn per_call(begin: Instant, ops: usize) -> f64 {
    begin.elapsed().as_secs_f64() * 1e9 / ops as f64
}

/// Where threads wait for each other without sleeping, so that all begin at once.
struct Gate {
    arrived: AtomicUsize,
    expected: usize,
}

impl Gate {
    fn new(expected: usize) -> Self {
        Self { arrived: AtomicUsize::new(0), expected }
    }

    /// The thread has arrived when this is dropped, also when it fails before; otherwise the others would wait forever.
    fn arrival(&self) -> OnDrop<impl FnMut()> {
        OnDrop(|| {
            self.arrived.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn wait(&self) {
        while self.arrived.load(Ordering::SeqCst) < self.expected {
            spin_loop();
        }
    }
}

struct OnDrop<Action: FnMut()>(Action);

impl<Action: FnMut()> Drop for OnDrop<Action> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use c10_core::DeviceError;

    use super::*;

    #[test]
    fn a_thread_that_fails_does_not_keep_the_others_waiting() {
        let outcome = on_threads(4, 10, |index| {
            if index == 2 { Err(Error::Device(DeviceError::InvalidId)) } else { Ok(Loop(|_| Ok(()))) }
        });
        assert!(matches!(outcome, Err(Error::Device(DeviceError::InvalidId))), "{outcome:?}");
    }

    #[test]
    fn a_loop_runs_as_often_as_asked_and_first_a_quarter_to_warm_up() {
        let calls = AtomicUsize::new(0);
        let body = |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        assert!(on_threads(3, 100, |_| Ok(Loop(body))).is_ok_and(|ns| ns > 0.0));
        assert_eq!(calls.load(Ordering::SeqCst), 3 * (100 + 26));
    }
}
