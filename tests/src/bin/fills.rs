//! Draws recorded random fills again and compares them: `fills FILE... [--driver sim|real|PATH] [--filter NAME] [--all]`.
//!
//! Each file has the format of `rng.json`. Prints the first failure of each call (`--all`: every one), how many of the
//! fills have values that the device approximates, and ends with `N passed, M failed`; the exit code is 1 when one
//! failed.

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::fills::main(std::env::args().skip(1).collect())
}
