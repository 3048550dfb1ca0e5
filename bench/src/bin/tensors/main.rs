//! Tensor operations on a GPU, beside the same of another library in turn:
//! `tensors [--peer PROGRAM] [--filter TEXT] [--small]`.
//!
//! Each row is measured in bursts between two events, ours and the peer's in turn, and the medians are compared. The
//! peer is a program that reads the names of rows from its standard input and answers each with its figure; `peer.py`
//! beside this file is PyTorch's. `--small` takes small tensors, for a look on the simulated device.

mod peer;
mod products;
mod raw;
mod rows;

use std::process::ExitCode;

use cuda_api::{Event, EventOptions};

use crate::peer::Peer;
use crate::rows::{Row, Unit};

type Failure = Box<dyn std::error::Error>;

/// Bursts of a row, of which the median counts.
pub(crate) const BURSTS: usize = 9;

/// Clock cycles that the device waits before a burst.
const SLEEP: i64 = 2_000_000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the output of a program")]
            {
                eprintln!("error: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

/// What the command line asks for.
#[derive(Default)]
struct Options {
    peer: Option<String>,
    filter: Option<String>,
    small: bool,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--peer" => options.peer = Some(value()?),
            "--filter" => options.filter = Some(value()?),
            "--small" => options.small = true,
            _ => return Err(format!("there is no option {word}").into()),
        }
    }
    Ok(options)
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn run() -> Result<(), Failure> {
    let options = options()?;
    let mut peer = options.peer.as_deref().map(|program| Peer::start(program, options.small)).transpose()?;
    println!("{:<28} {:>12} {:>12} {:>7}  unit", "row", "ours", "peer", "ratio");
    for row in rows::ROWS.iter().chain(products::ROWS) {
        if options.filter.as_ref().is_some_and(|filter| !row.name.contains(filter.as_str())) {
            continue;
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut work = (row.prepare)(options.small)?;
        (work.call)()?;
        cuda_api::synchronize(None)?;
        for _ in 0..BURSTS {
            ours.push(measure(row, &mut work)?);
            if let Some(peer) = &mut peer {
                theirs.push(peer.figure(row.name)?);
            }
        }
        drop(work);
        cuda_api::empty_cache()?;
        let (ours, theirs) = (median(ours), median(theirs));
        let ratio = match row.unit {
            Unit::Nanoseconds => theirs / ours,
            Unit::GigabytesPerSecond | Unit::GigaPerSecond | Unit::TeraflopPerSecond => ours / theirs,
        };
        println!("{:<28} {ours:>12.1} {theirs:>12.1} {ratio:>7.3}  {}", row.name, row.unit.name());
    }
    Ok(())
}

/// One burst: the row's figure.
fn measure(row: &Row, work: &mut rows::Work) -> Result<f64, Failure> {
    if row.unit == Unit::Nanoseconds {
        let call = &mut work.call;
        let own = on_host(row.calls, || call().map(drop).map_err(Failure::from))?;
        let beneath = match &work.beneath {
            Some(beneath) => on_host(row.calls, beneath)?,
            None => 0.0,
        };
        return Ok(own - beneath);
    }
    let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
    // The host is ahead of the device by then, so that what it needs for a call does not count.
    cuda_api::current_stream(None)?.sleep(SLEEP)?;
    start.record(None)?;
    for _ in 0..row.calls {
        (work.call)()?;
    }
    end.record(None)?;
    end.synchronize()?;
    let seconds = f64::from(start.elapsed_time(&end)?) * 1e-3 / f64::from(row.calls);
    Ok(match row.unit {
        Unit::TeraflopPerSecond => work.amount / seconds * 1e-12,
        Unit::Nanoseconds | Unit::GigabytesPerSecond | Unit::GigaPerSecond => work.amount / seconds * 1e-9,
    })
}

/// What the host needs for a call, in nanoseconds, while the device keeps up.
fn on_host(calls: u32, mut call: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    cuda_api::synchronize(None)?;
    let start = std::time::Instant::now();
    for _ in 0..calls {
        call()?;
    }
    let elapsed = start.elapsed();
    cuda_api::synchronize(None)?;
    Ok(elapsed.as_secs_f64() * 1e9 / f64::from(calls))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
