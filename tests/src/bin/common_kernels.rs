//! Writes the texts of the kernels that machine code is brought along for: `common_kernels FOLDER`; or those of a kernel of
//! every kind: `common_kernels FOLDER --every`.
//!
//! Each text is a file named after its fingerprint. They are those of the crate's own sources and of common calls, as
//! they are compiled for devices of compute capability 8.0 and later.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else { return failed("common_kernels FOLDER [--every]") };
    let write = match arguments.next().as_deref() {
        None => tests::common::write,
        Some("--every") => tests::every::write,
        Some(other) => return failed(&format!("'{other}' is no option of common_kernels")),
    };
    match write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

#[expect(clippy::print_stderr, reason = "the output of a program")]
fn failed(text: &str) -> ExitCode {
    eprintln!("error: {text}");
    ExitCode::FAILURE
}
