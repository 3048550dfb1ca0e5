//! Runs the kernels of `tests/kernels` and compares them with plain Rust:
//! `cuda_kernels --folder FOLDER [--driver sim|real|PATH] [--seeds N] [--filter TEXT]`.
//!
//! FOLDER holds the texts that `cargo xtask kernels` makes. Prints a line for each case that failed, the counts of each folder, and
//! the largest differences; the exit code is 1 when a case failed.

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::kernels::main(std::env::args().skip(1).collect())
}
