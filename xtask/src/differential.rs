//! `cargo xtask differential`: random scripts on our allocator and on PyTorch's own, compared step by step.
//!
//! The test of that name in `c10-core` does the work, since only there the allocator can be reached; its report is
//! passed on as it is.

use crate::driver;
use crate::flags::Flags;
use crate::shell::{self, Result};

/// The test, by its full name.
const TEST: &str = "caching::differential::random_scripts_agree_with_the_peer";

/// Sequences to run when nobody says how many.
const SEQUENCES: u64 = 1000;

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    if !matches!(flags.driver(), "auto" | "sim") {
        return Err("both allocators run on a simulated driver only".into());
    }
    let harness = flags.value("--peer").ok_or("--peer names the program that runs PyTorch's allocator")?;
    let path = driver::absolute(harness)?;
    if !path.is_file() {
        return Err(format!("--peer takes the path of a program; there is no file `{harness}`"));
    }
    let (sequences, seed) = (flags.number("--sequences", SEQUENCES)?, flags.number("--seed", 1)?);
    let mut command = shell::cargo(["test", "--release", "--quiet", "--package", "c10-core", "--lib", "--"]);
    command.args(["--ignored", "--exact", "--nocapture", TEST]);
    command.env("C10SIM_HARNESS", path);
    command.env("C10SIM_SEQUENCES", sequences.to_string()).env("C10SIM_SEED", seed.to_string());
    shell::run(&mut command)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::run;
    use crate::flags::{self, Request};

    fn refusal(line: &str) -> String {
        match flags::parse(line.split_whitespace().map(OsString::from)).unwrap() {
            Request::Run(_, flags) => run(&flags).unwrap_err(),
            Request::Help(text) => panic!("expected a command, got {text}"),
        }
    }

    #[test]
    fn what_cannot_run_is_refused_before_anything_is_built() {
        for (line, reason) in [
            ("differential", "--peer names"),
            ("differential --peer /there/is/no/program", "no file `/there/is/no/program`"),
            ("differential --peer /bin/sh --sequences many", "whole number"),
            ("differential --peer /bin/sh --driver real", "simulated driver only"),
        ] {
            assert!(refusal(line).contains(reason), "{line}");
        }
    }
}
