//! Runs the driver conformance suite on one arm: `conformance [--arm table|shared:PATH|real] [--filter TEXT]`.
//!
//! Prints a line for each case that failed or was skipped, and the counts last; the exit code is 1 when one failed.
//! On the arms that call a library, the cases run in a child process, so that one which brings the process down is
//! one failure and not the end of the run.

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::conformance::main(std::env::args().skip(1).collect())
}
