//! Measures how far the results of float functions are from the exact ones: `accuracy [--driver cpu|sim|real|PATH]`.
//!
//! Prints a row for each function with its largest error for each dtype, in units in the last place, and the bound. The
//! exit code is 1 when a bound is passed.

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::ops::accuracy(std::env::args().skip(1).collect())
}
