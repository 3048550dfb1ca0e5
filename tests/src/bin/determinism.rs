//! Whether operations give the same bits at every run and in every process:
//! `determinism [--driver sim|real|PATH] [--runs N] [--only TEXT] [--off] [--one]`.
//!
//! Prints a digest of each result and starts itself three times, twice with `CUBLAS_WORKSPACE_CONFIG=:4096:8`. The exit
//! code is 1 where a result differs. With `--only` there are the cases with such names, with `--one` there is one process, with `--off` deterministic algorithms are not asked
//! for, to see what they change.

use std::process::ExitCode;

fn main() -> ExitCode {
    tests::determinism::main(std::env::args().skip(1).collect())
}
