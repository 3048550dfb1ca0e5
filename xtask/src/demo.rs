//! `cargo xtask demo`: builds the simulated driver and the demo, and runs it.
//!
//! The demo itself decides between the real and the simulated driver, since only the runtime can tell whether a GPU is
//! usable; it finds the simulated one beside itself.

use std::process::Command;

use crate::flags::Flags;
use crate::shell::{self, Result};
use crate::{driver, test};

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    let mut build =
        shell::cargo(["build", "--release", "--quiet", "--package", "libcuda-sim", "--package", "examples"]);
    shell::run(build.args(["--lib", "--bin", "demo"]))?;
    shell::run(&mut demo(flags.driver())?)
}

fn demo(driver: &str) -> Result<Command> {
    let mut command = Command::new(shell::target_dir().join("release/demo"));
    let driver = match driver {
        word @ ("auto" | "sim" | "real") => word.into(),
        path => driver::absolute(path)?.into_os_string(),
    };
    command.arg("--driver").arg(driver).arg("--trace").arg(shell::root().join(test::DEMO_TRACE));
    command.current_dir(shell::root());
    Ok(command)
}
