//! Files of tensors onto the device and back: `storage [--folder FOLDER] [--mib N] [--sweep] [--peer PROGRAM]`.
//!
//! A file of N MiB (8192; 64 with `--small`) is saved in FOLDER, and loaded with a warm page cache and past it; beside that
//! the bus alone, the disk alone, a copy into the host's memory, and PyTorch's loader. The best of three runs counts, since
//! nothing makes a run faster than the machine is; the first run of a process, which has to pin its buffers and to allocate
//! on the device, stands by itself. `--sweep` tries other numbers of threads and sizes of requests.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bench::Failure;
use cuda_api::torch::{self, Tensor};
use cuda_api::{DeviceBuffer, PinnedBuffer, gds};

/// Runs of which the best counts.
const RUNS: usize = 3;
/// `O_DIRECT`, as x86-64 and AArch64 have it.
const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0x1_0000 } else { 0x4000 };
/// Requests of the disk alone.
const REQUEST: usize = 4 << 20;

/// What was asked for.
struct Asked {
    folder: PathBuf,
    mib: usize,
    /// A file that is loaded once, in a process that has pinned nothing yet.
    load: Option<PathBuf>,
    is_sweep: bool,
    peer: Option<String>,
}

fn main() -> ExitCode {
    bench::ended(asked().and_then(|asked| run(&asked)).map(|()| true))
}

fn asked() -> Result<Asked, Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| words.iter().skip_while(|word| *word != name).nth(1).cloned();
    let has = |name: &str| words.iter().any(|word| word == name);
    let mib = value("--mib").map_or(Ok(if has("--small") { 64 } else { 8192 }), |text| text.parse())?;
    let folder = value("--folder").map_or_else(std::env::temp_dir, PathBuf::from);
    Ok(Asked { folder, mib, load: value("--load").map(PathBuf::from), is_sweep: has("--sweep"), peer: value("--peer") })
}

fn run(asked: &Asked) -> Result<(), Failure> {
    if let Some(path) = &asked.load {
        return load_once(path);
    }
    let path = asked.folder.join(format!("bench-storage-{}.safetensors", std::process::id()));
    let outcome = measure(asked, &path);
    fs::remove_file(&path)?;
    outcome
}

fn say(name: &str, rate: f64, note: &str) {
    let _ = writeln!(std::io::stdout(), "{name:44} {rate:8.2} GB/s  {note}");
}

/// The rate of a body that moves bytes, the best of several runs.
fn best(bytes: u64, runs: usize, mut body: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut rate = 0.0_f64;
    for _ in 0..runs {
        let start = Instant::now();
        body()?;
        rate = rate.max(bytes as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    Ok(rate)
}

fn measure(asked: &Asked, path: &Path) -> Result<(), Failure> {
    let bytes = (asked.mib as u64) << 20;
    say("bus, pinned memory to the device", bus(asked.mib)?, "");
    say("save_file, on the disk when it returns", best(bytes, 1, || save(asked.mib, path))?, "");
    first(path)?;
    let load = |name: &str, options: gds::Options, runs: usize| -> Result<(), Failure> {
        let mut by = None;
        let rate = best(bytes, runs, || {
            by = Some(gds::safetensors::load_file_with(path, "cuda", &options)?.route);
            Ok(())
        })?;
        let by = by.map_or_else(String::new, |by| format!("{:?}, page cache: {}", by.requests, by.page_cache));
        say(name, rate, &by);
        Ok(())
    };
    let warm = |name: &str, options| load(name, options, RUNS);
    let once = |name: &str, options| load(name, options, 1);
    let cached = gds::Options::default().page_cache(gds::PageCache::Use);
    warm("load_file, warm page cache", cached)?;
    peer(asked, path, "warm")?;
    warm("load_file, warm page cache, again", cached)?;
    say("copy to /dev/shm", best(bytes, 1, || copy(path))?, "");
    if asked.is_sweep {
        for threads in [1, 4, 8, 12, 16] {
            for chunk in [1 << 20, 2 << 20, 4 << 20, 8 << 20] {
                let name = format!("  warm, {threads} threads, {} KiB", chunk >> 10);
                warm(&name, cached.threads(threads).chunk_bytes(chunk))?;
            }
        }
    }
    let bypass = gds::Options::default().page_cache(gds::PageCache::Bypass);
    for _ in 0..2 {
        say("disk, O_DIRECT into the host's memory", best(bytes, 1, || disk(path, bytes))?, "");
        once("load_file, O_DIRECT, threads", bypass.requests(gds::Requests::Threads))?;
        once("load_file, O_DIRECT", bypass)?;
        peer(asked, path, "cold")?;
    }
    Ok(())
}

/// Has a process of its own load the file: it has pinned no memory yet.
fn first(path: &Path) -> Result<(), Failure> {
    let status = Command::new(std::env::current_exe()?).arg("--load").arg(path).status()?;
    if status.success() { Ok(()) } else { Err("the process that loads once failed".into()) }
}

/// Loads a file once, with a device that is started and has nothing pinned or cached, and compares it with the file.
fn load_once(path: &Path) -> Result<(), Failure> {
    cuda_api::synchronize(None)?;
    let (bytes, start) = (fs::metadata(path)?.len(), Instant::now());
    let loaded = gds::safetensors::load_file_with(path, "cuda", &gds::Options::default())?;
    let rate = bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
    say("load_file, first of a process", rate, &loaded.route.to_string());
    let on_host = gds::safetensors::load_file(path, "cpu")?;
    for (name, tensor) in &loaded.tensors {
        if tensor.to_bytes()? != on_host[name].to_bytes()? {
            return Err(format!("{name} is another on the device than in the file").into());
        }
    }
    Ok(())
}

/// A model of matrices of 64 MiB, and vectors of 8 KiB beside each.
fn save(mib: usize, path: &Path) -> Result<(), Failure> {
    let mut tensors: BTreeMap<String, Tensor> = BTreeMap::new();
    for layer in 0..mib / 64 {
        tensors.insert(format!("layer.{layer}.weight"), torch::randn(&[8192, 4096], torch::bfloat16, "cuda")?);
        tensors.insert(format!("layer.{layer}.norm"), torch::randn(&[4096], torch::bfloat16, "cuda")?);
    }
    gds::safetensors::save_file(tensors.iter().map(|(name, one)| (name.as_str(), one)), path, &BTreeMap::new())?;
    Ok(())
}

/// What pinned memory gives the device.
fn bus(mib: usize) -> Result<f64, Failure> {
    let bytes = mib.min(256) << 20;
    let (host, device) = (PinnedBuffer::new(bytes)?, DeviceBuffer::new(bytes, None)?);
    best(bytes as u64 * 8, RUNS, || {
        for _ in 0..8 {
            device.copy_from_pinned(0, &host, .., None)?;
        }
        Ok(cuda_api::synchronize(None)?)
    })
}

fn copy(path: &Path) -> Result<(), Failure> {
    let to = Path::new("/dev/shm").join(format!("bench-storage-{}", std::process::id()));
    let copied = fs::copy(path, &to);
    fs::remove_file(&to)?;
    copied?;
    Ok(())
}

/// What the disk gives the host by requests of several threads past the page cache.
fn disk(path: &Path, bytes: u64) -> Result<(), Failure> {
    let file = File::options().read(true).custom_flags(O_DIRECT).open(path)?;
    let next = AtomicU64::new(0);
    let work = || -> Result<(), String> {
        let mut room = vec![0_u8; REQUEST + 4096];
        let first = room.as_ptr().align_offset(4096);
        loop {
            let at = next.fetch_add(REQUEST as u64, Ordering::Relaxed);
            if at >= bytes {
                return Ok(());
            }
            file.read_at(&mut room[first..first + REQUEST], at).map_err(|error| error.to_string())?;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
    })?;
    Ok(())
}

/// Lets PyTorch load the file, which is in the page cache (`warm`) or not (`cold`).
fn peer(asked: &Asked, path: &Path, cache: &str) -> Result<(), Failure> {
    let Some(program) = &asked.peer else { return Ok(()) };
    let mut words = program.split_whitespace();
    let output = Command::new(words.next().unwrap_or_default()).args(words).arg(path).arg(cache).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("the peer failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let rates = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    say(&format!("PyTorch's load_file, {cache} page cache"), rates.into_iter().fold(0.0, f64::max), "");
    Ok(())
}
