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

use bench::{Failure, device_seconds, host_seconds, median};

use crate::peer::Peer;
use crate::rows::{Row, Unit};

/// Bursts of a row, of which the median counts.
pub(crate) const BURSTS: usize = 9;

fn main() -> ExitCode {
    bench::ended(run().map(|()| true))
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
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
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
        let own = host_seconds(row.calls, || call().map(drop))?;
        let beneath = match &work.beneath {
            Some(beneath) => host_seconds(row.calls, beneath)?,
            None => 0.0,
        };
        return Ok((own - beneath) * 1e9);
    }
    let seconds = device_seconds(row.calls, || (work.call)().map(drop))?;
    Ok(match row.unit {
        Unit::TeraflopPerSecond => work.amount / seconds * 1e-12,
        Unit::Nanoseconds | Unit::GigabytesPerSecond | Unit::GigaPerSecond => work.amount / seconds * 1e-9,
    })
}
