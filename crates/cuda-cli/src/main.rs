//! `torch-cuda`: the program. What it does is in the library, so that tests can watch it.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cuda_cli::run(std::env::args_os(), &mut std::io::stdout().lock()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Whoever reads the output has gone: there is nobody to tell.
            if !error.is_closed_pipe() {
                let _ = writeln!(std::io::stderr(), "torch-cuda: {error}");
            }
            ExitCode::FAILURE
        }
    }
}
