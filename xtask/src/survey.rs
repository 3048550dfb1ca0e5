//! `cargo xtask layers`, `api`, `coverage` and other questions to the sources, which the package `survey` answers.

use crate::flags::Flags;
use crate::shell::{self, Result};

/// Prints who imports whom inside a crate.
pub(crate) fn layers(_flags: &Flags) -> Result<()> {
    shell::run(&mut command(&["layers"]))
}

/// Writes the public API of the crates as text, or compares it with what is committed.
pub(crate) fn api(flags: &Flags) -> Result<()> {
    shell::run(&mut command(if flags.has("--check") { &["api", "--check"] } else { &["api"] }))
}

/// Writes where the names of the coverage page lie, or checks the page.
pub(crate) fn coverage(flags: &Flags) -> Result<()> {
    shell::run(&mut command(if flags.has("--check") { &["coverage", "--check"] } else { &["coverage"] }))
}

/// Asks, and returns the answer.
///
/// # Errors
/// Something is wrong with the sources; what, has been printed.
pub(crate) fn ask(words: &[&str]) -> Result<String> {
    let answer = shell::capture(&mut command(words))?;
    Ok(answer.trim_end().to_owned())
}

fn command(words: &[&str]) -> std::process::Command {
    let mut command = shell::cargo(["run", "--quiet", "--package", "survey", "--"]);
    command.arg(shell::root()).args(words);
    command
}
