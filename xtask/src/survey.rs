//! `cargo xtask layers` and other questions to the sources, which the package `survey` answers.

use crate::flags::Flags;
use crate::shell::{self, Result};

/// Prints who imports whom inside a crate.
pub(crate) fn layers(_flags: &Flags) -> Result<()> {
    shell::run(&mut command(&["layers"]))
}

/// Asks and returns the answer, which is printed too; its last line serves as a note.
///
/// # Errors
/// Something is wrong with the sources; what, has been printed.
pub(crate) fn ask(words: &[&str]) -> Result<String> {
    let answer = shell::capture(&mut command(words))?;
    shell::say(answer.trim_end());
    Ok(answer)
}

fn command(words: &[&str]) -> std::process::Command {
    let mut command = shell::cargo(["run", "--quiet", "--package", "survey", "--"]);
    command.arg(shell::root()).args(words);
    command
}
