//! The commands of `torch-cuda`: `info`, `doctor`, `top`, `stats`, `replay`, `bench`, `snapshot`, `viz`, `completions`.
//!
//! A command writes its answer to what it is given and nothing else; errors are one sentence. Exit codes: 0 for done, 1
//! for an error or for something that `doctor` found missing, 2 for a command line that makes no sense.
//!
//! # Invariants
//! The crate decides nothing about devices or snapshots: it asks `cuda-api` and `memory-viz` and prints.

#![forbid(unsafe_code)]

/// The example of the README, which is tested with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

mod bench;
mod commands;
mod doctor;
mod error;
mod exports;
mod info;
mod machine;
mod progress;
mod readings;
mod replay;
mod snapshot;
mod stats;
mod table;
mod top;

use std::ffi::OsString;
use std::io::Write;

pub use error::Error;

/// Runs a command line, the program's name first, and gives its exit code.
///
/// # Errors
/// A file cannot be read or written, is no snapshot, or the output is closed.
pub fn run(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write) -> Result<u8, Error> {
    let matches = match commands::all().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            // Help goes to the output, a complaint to the error output.
            error.print()?;
            return Ok(code);
        }
    };
    match matches.subcommand() {
        Some(("info", _)) => info::run(out),
        Some(("doctor", _)) => doctor::run(out),
        Some(("top", given)) => top::run(given, out),
        Some(("stats", given)) => stats::run(given, out),
        Some(("replay", given)) => replay::run(given, out),
        Some(("bench", given)) => bench::run(given, out),
        Some(("snapshot", given)) => snapshot::report(given, out),
        Some(("viz", given)) => snapshot::page(given, out),
        Some(("completions", given)) => commands::completions(given, out),
        _ => Ok(2),
    }
}
