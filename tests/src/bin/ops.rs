//! Runs recorded tensor operations and compares the answers with the recorded ones:
//! `ops FILE... [--driver cpu|sim|real|PATH] [--filter NAME] [--all]`.
//!
//! Each file has the format of `ops.json.gz`. Prints the first failure of each operation (`--all`: every one), and ends
//! with `N passed, M failed`; the exit code is 1 when one failed.

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::ops::main(std::env::args().skip(1).collect())
}
