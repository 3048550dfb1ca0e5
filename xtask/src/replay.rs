//! `cargo xtask replay`: golden allocator scripts, or a recorded trace, on the simulated driver.
//!
//! The program `replay` of the package `tests` does the work; its replies are passed on as they are.

use std::process::Command;

use crate::flags::Flags;
use crate::shell::{self, Result};

/// Options that are handed on with their values.
const VALUES: [&str; 2] = ["--trace", "--conf"];

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    if !matches!(flags.driver(), "auto" | "sim") {
        return Err("the recorded addresses can be replayed on the simulated driver only".into());
    }
    shell::run(&mut shell::cargo(["build", "--release", "--quiet", "--package", "tests", "--bin", "replay"]))?;
    let mut command = Command::new(shell::target_dir().join("release/replay"));
    // The command line may name a hundred scripts; the program says which of them failed.
    if shell::succeeds(command.args(arguments(flags)))? { Ok(()) } else { Err("failed, as said above".to_owned()) }
}

fn arguments(flags: &Flags) -> Vec<String> {
    let mut arguments = flags.words().to_vec();
    for name in VALUES {
        if let Some(value) = flags.value(name) {
            arguments.extend([name.to_owned(), value.to_owned()]);
        }
    }
    if flags.has("--json") {
        arguments.push("--json".to_owned());
    }
    arguments
}
