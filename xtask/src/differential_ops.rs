//! `cargo xtask differential-ops`: random tensor operations on our devices and on PyTorch's CPU wheel.
//!
//! The program `random_ops` of `tests` writes the calls with our answers; `tests/differential/replay.py` compares them with
//! PyTorch's. The wheel is fetched into the target folder unless `--python` names a Python that has it.

use std::path::PathBuf;
use std::process::Command;

use crate::driver;
use crate::flags::Flags;
use crate::shell::{self, Result};
use crate::wheels;

/// Calls of a run without `--count`.
const COUNT: u64 = 100_000;

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    let (count, seed) = (flags.number("--count", COUNT)?, flags.number("--seed", 1)?);
    let every = flags.number("--device-every", 20)?;
    let python = match flags.value("--python") {
        Some(python) => PathBuf::from(python),
        None => wheels::environment(&shell::root().join("tests/differential/requirements.txt"), "differential-ops")?,
    };
    shell::run(&mut shell::cargo(["build", "--release", "--quiet", "--package", "tests", "--bin", "random_ops"]))?;
    let file = shell::target_dir().join(format!("random_ops-{seed}.jsonl"));
    let mut program = Command::new(shell::target_dir().join("release/random_ops"));
    program.arg(&file).args([count, seed, every].map(|number| number.to_string())).arg(flags.driver());
    shell::run(&mut program)?;
    let script = shell::root().join("tests/differential/replay.py");
    // The script lists the classes of differences.
    if shell::succeeds(Command::new(python).arg(script).arg(&file))? {
        Ok(())
    } else {
        Err("differences, listed above".into())
    }
}
