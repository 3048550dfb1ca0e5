//! `cargo xtask fills` and `cargo xtask ops`: recorded random fills, and recorded operations on tensors, done again and
//! compared.
//!
//! The programs of these names of the package `tests` do the work; their replies are passed on as they are.

use std::process::Command;

use crate::flags::Flags;
use crate::shell::{self, Result};

/// Draws recorded fills again.
pub(crate) fn fills(flags: &Flags) -> Result<()> {
    run("fills", flags)
}

/// Computes recorded operations again.
pub(crate) fn ops(flags: &Flags) -> Result<()> {
    run("ops", flags)
}

fn run(program: &str, flags: &Flags) -> Result<()> {
    shell::run(&mut shell::cargo(["build", "--release", "--quiet", "--package", "tests", "--bin", program]))?;
    let mut command = Command::new(shell::target_dir().join("release").join(program));
    command.args(flags.words()).args(["--driver", flags.driver()]);
    if let Some(filter) = flags.value("--filter") {
        command.args(["--filter", filter]);
    }
    if let Some(sums) = flags.value("--sums") {
        command.args(["--sums", sums]);
    }
    if flags.has("--all") {
        command.arg("--all");
    }
    // The program says which failed.
    if shell::succeeds(&mut command)? { Ok(()) } else { Err("failed, as said above".to_owned()) }
}
