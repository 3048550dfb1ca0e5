//! Compares the fused kernels of attention with tensor operations: `attention [--driver sim|real|PATH]`.
//!
//! Prints the calls that are wrong, or not the same at every run. The exit code is 1 if there is one.

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::attention::main(std::env::args().skip(1).collect())
}
