//! Reads the sources of the crates: `survey ROOT layers|api|coverage|examples|story`, the second and third also with `--check`.
//!
//! - `layers`: the order of the folders inside a crate, and who imports whom.
//! - `api`: the public API of the crates, written to `docs/api` or compared with it.
//! - `coverage`: whether `docs/coverage.md` says the truth about the public items; without `--check` it writes where the
//!   items lie.
//! - `examples`: whether every public type of `c10-core` has an example that runs.
//! - `story`: whether the functions that `docs/life-of-an-allocation.md` names exist.
//!
//! `cargo xtask lint` runs them. A package of its own because it needs a parser of Rust and a reader of rustdoc's output,
//! for which the first `cargo xtask` shall not wait.
#![forbid(unsafe_code)]
#![expect(clippy::wildcard_enum_match_arm, reason = "the enums of a syntax tree have dozens of variants, and grow")]

mod api;
mod coverage;
mod examples;
mod layers;
mod modules;
mod rustdoc;
mod story;

use std::path::Path;
use std::process::ExitCode;

/// Any failure: people read it, so a text that says what to do is enough.
pub(crate) type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome =
        match words.as_slice() {
            [root, "layers"] => layers::run(Path::new(root)),
            [root, "api"] => api::write(Path::new(root)),
            [root, "api", "--check"] => api::check(Path::new(root)),
            [root, "coverage"] => coverage::write(Path::new(root)),
            [root, "coverage", "--check"] => coverage::check(Path::new(root)),
            [root, "examples"] => examples::check(Path::new(root)),
            [root, "story"] => story::run(Path::new(root)),
            _ => Err("usage: survey ROOT layers|api|coverage|examples|story [--check]; `cargo xtask lint` runs it"
                .to_owned()),
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

/// Reads a file.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// `note` if nothing is wrong, else the list of what is.
///
/// # Errors
/// There are faults.
pub(crate) fn verdict(faults: &[String], note: String) -> Result<String> {
    if faults.is_empty() { Ok(note) } else { Err(format!("{} faults\n{}", faults.len(), faults.join("\n"))) }
}
