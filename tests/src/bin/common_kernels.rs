//! Writes the texts of the kernels that machine code is brought along for: `common_kernels FOLDER`.
//!
//! Each text is a file named after its fingerprint. They are those of the crate's own sources and of common calls, as
//! they are compiled for devices of compute capability 8.0 and later.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else { return failed("common_kernels FOLDER") };
    match tests::common::write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

#[expect(clippy::print_stderr, reason = "the output of a program")]
fn failed(text: &str) -> ExitCode {
    eprintln!("error: {text}");
    ExitCode::FAILURE
}
