//! `cargo xtask bench`: our costs beside those of the raw driver.

use std::process::Command;

use crate::driver;
use crate::flags::Flags;
use crate::shell::{self, Result};

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    shell::run(&mut shell::cargo(["build", "--release", "--quiet", "--package", "libcuda-sim", "--package", "bench"]))?;
    let mut command = Command::new(shell::target_dir().join("release/bench"));
    driver::apply(&mut command, flags.driver(), "release")?;
    if flags.has("--json") {
        command.arg("--json");
    }
    shell::run(&mut command)
}
