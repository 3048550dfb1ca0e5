//! Operations on tensors with more than 2^31 elements: `large_tensors [--driver sim|real|PATH] [--elements N]`.
//!
//! Prints a line for each case; the exit code is 1 where an answer is wrong. A device with 40 GiB of free memory has room
//! for the usual number of elements; the simulated one takes few (`--elements 6000`).

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::large::main(std::env::args().skip(1))
}
