//! Reads the sources of the crates: `survey ROOT layers`.
//!
//! - `layers`: the order of the folders inside a crate, and who imports whom.
//!
//! `cargo xtask lint` runs it. A package of its own because it needs a parser of Rust, for which the first `cargo xtask`
//! shall not wait.
#![forbid(unsafe_code)]
#![expect(clippy::wildcard_enum_match_arm, reason = "the enums of a syntax tree have dozens of variants, and grow")]

mod layers;
mod modules;

use std::path::Path;
use std::process::ExitCode;

/// Any failure: people read it, so a text that says what to do is enough.
pub(crate) type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [root, "layers"] => layers::run(Path::new(root)),

        _ => Err("usage: survey ROOT layers; run it as `cargo xtask layers`".to_owned()),
    };
    match outcome {
        Ok(text) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stdout, reason = "the output of a command line tool")]
fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "the error output of a command line tool")]
fn fail(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::FAILURE
}

/// `note` if nothing is wrong, else the list of what is.
///
/// # Errors
/// There are faults.
pub(crate) fn verdict(faults: &[String], note: String) -> Result<String> {
    if faults.is_empty() { Ok(note) } else { Err(format!("{} faults\n{}", faults.len(), faults.join("\n"))) }
}
