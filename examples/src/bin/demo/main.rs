//! The runtime at work: `demo [--driver auto|sim|real|PATH] [--trace FILE]`.
//!
//! Each part does something a program would do, checks its own result and stops with what was expected and what came
//! instead. The first line says on which device it runs and why.
#![forbid(unsafe_code)]

mod device;
mod graph;
mod memory;
mod network;
mod replay;
mod streams;
mod tensors;
mod train;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use examples::checks::Failure;
use examples::driver;

/// Where the recorded training run lies when nothing else is said.
const TRACE: &str = "tests/data/traces/gpt2_fixed.trace.gz";

const USAGE: &str = "usage: demo [--driver auto|sim|real|PATH] [--trace FILE]";

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "demo: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "demo: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line says.
struct Options {
    driver: String,
    trace: PathBuf,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { driver: "auto".to_owned(), trace: PathBuf::from(TRACE) };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--driver" => options.driver = value()?,
                "--trace" => options.trace = PathBuf::from(value()?),
                _ => return Err(format!("`{word}` means nothing here")),
            }
        }
        Ok(options)
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let reason = driver::settle(&options.driver)?;
    let begin = Instant::now();
    say(format!("device: {} ({reason})", cuda_api::get_device_name(None)?));
    part("The device", device::show)?;
    part("A recorded training run through the caching allocator", || replay::run(&options.trace))?;
    part("Two streams ordered by events", streams::run)?;
    part("A captured graph, replayed", graph::run)?;
    match tensors::refusal()? {
        None => {
            part("A product of matrices on a side stream", tensors::run)?;
            part("A small network, trained call by call and as a graph", train::run)?;
        }
        Some(why) => say(format!("\nThis driver cannot run kernels ({why}): no tensors and no training")),
    }
    part("Memory at the end", memory::is_back_at_zero)?;
    say(format!("\nall parts checked in {:.1} s", begin.elapsed().as_secs_f64()));
    Ok(())
}

/// Runs one part under a heading, and names it if it fails.
fn part(title: &str, body: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    say(format!("\n{title}"));
    body().map_err(|error| format!("{title}: {error}").into())
}

/// Prints a line. A reader that went away is no reason to stop checking.
fn say(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
}
