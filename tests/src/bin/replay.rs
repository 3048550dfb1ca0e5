//! Checks golden allocator scripts, or measures a recorded trace, on the simulated driver:
//! `replay SCRIPT...` or `replay --trace FILE [--conf TEXT] [--json]`.
//!
//! Prints `PASS name` or `FAIL name: line N, key, expected, got` for each script and the counts last; the exit code is 1
//! when one failed.

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::replay::main(std::env::args().skip(1).collect())
}
