//! `cargo xtask differential`: random scripts on our allocator and on PyTorch's own, compared step by step.
//!
//! The test of that name in `c10-core` does the work, since only there the allocator can be reached; its report is
//! passed on as it is.

use crate::driver;
use crate::flags::Flags;
use crate::shell::{self, Result};

/// The test, by the end of its name: the module it is in may move.
const TEST: &str = "differential::random_scripts_agree_with_the_peer";

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
    let test = ["test", "--release", "--quiet", "--package", "c10-core", "--lib", "--"];
    let tests = shell::capture(shell::cargo(test).args(["--ignored", "--list"]))?;
    let name = full_name(&tests).ok_or_else(|| format!("c10-core has no test `{TEST}`"))?;
    let mut command = shell::cargo(test);
    command.args(["--ignored", "--exact", "--nocapture", name]);
    command.env("C10SIM_HARNESS", path);
    command.env("C10SIM_SEQUENCES", sequences.to_string()).env("C10SIM_SEED", seed.to_string());
    shell::run(&mut command)
}

/// The test's full name in the list that a test program prints. A name that fits no test would pass without a run.
fn full_name(tests: &str) -> Option<&str> {
    tests.lines().filter_map(|line| line.strip_suffix(": test")).find(|name| name.ends_with(TEST))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{full_name, run};
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

    #[test]
    fn the_test_is_found_in_the_list() {
        let list = "a::b: test\nx::differential::random_scripts_agree_with_the_peer: test\n\n2 tests, 0 benchmarks\n";
        assert_eq!(full_name(list), Some("x::differential::random_scripts_agree_with_the_peer"));
        assert_eq!(full_name("a::b: test\n"), None);
    }
}
