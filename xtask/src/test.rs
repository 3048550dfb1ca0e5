//! `cargo xtask test`: everything that can be tested without a GPU.
//!
//! The package `tests` holds what crosses crates: the conformance suite, on the simulated machine and through the shared
//! object, and comparisons with golden data. With `--driver real` or a path the suite runs on that driver too.

use std::process::Command;

use crate::driver;
use crate::flags::Flags;
use crate::kernels;
use crate::shell::{self, Phases, Result};

/// The recorded training run that the demo replays.
pub(crate) const DEMO_TRACE: &str = "tests/data/traces/gpt2_fixed.trace.gz";

/// The features of `aten-cuda` that no other package asks for, and what tests them.
const OPTIONAL: [&str; 6] =
    ["--features", "aten-cuda/ndarray,aten-cuda/rayon", "--test", "interop", "--test", "host_threads"];

/// Runs the command. All steps are of the default members, so that cargo chooses features once and builds nothing twice.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    let mut phases = Phases::default();
    phases.step("build", || shell::run(&mut shell::cargo(["test", "--quiet", "--no-run"])));
    phases.step("unit, golden and conformance tests", || tests(&["--lib", "--bins", "--tests"]));
    phases.step("optional features", || tests(&OPTIONAL));
    phases.step("documentation tests", examples);
    if !matches!(flags.driver(), "auto" | "sim") {
        phases.step("conformance, driver asked for", || conformance(flags.driver()));
    }
    phases.finish()
}

/// What the names of variables begin with that would configure what is tested, or tools that it asks.
const SETTINGS: [&str; 16] = [
    "CHROMIUM",
    "CUBLAS",
    "CUDA_",
    "CUFILE_",
    "DISABLE_ADDMM_CUDA_LT",
    "LD_PRELOAD",
    "NCCL_",
    "NVIDIA_",
    "NVTX_",
    "PYTHON",
    "PYTORCH_",
    "TESTKIT_",
    "TORCH",
    "USE_PYTORCH_KERNEL_CACHE",
    "XDG_",
    "RUST_LOG",
];

/// Variables of launchers, which say that a process is one of several.
const LAUNCHERS: [&str; 12] = [
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_",
    "OMPI_",
    "PMI_",
    "PMIX_",
];

/// What the tests themselves are asked by: bless what they compare with, or run more programs.
const ASKED: [&str; 2] = ["TORCH_CUDA_BLESS", "NCCL_PROGRAMS"];

/// Whether a variable would configure what is tested.
fn is_setting(name: &str) -> bool {
    let begins = |list: &[&str]| list.iter().any(|begin| name.starts_with(begin));
    (begins(&SETTINGS) || begins(&LAUNCHERS)) && !ASKED.contains(&name)
}

/// Tests, as on a machine where no variable is set and no cache was filled.
fn tests_of(chosen: &[&str]) -> Command {
    let mut command = shell::cargo(["test", "--quiet", "--no-fail-fast"]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_setting(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    // What tests compile is no business of the user's cache.
    command.env("PYTORCH_KERNEL_CACHE_PATH", kernels::kernel_cache());
    command.args(chosen);
    command
}

/// Runs tests.
fn tests(chosen: &[&str]) -> Result<()> {
    shell::run(&mut tests_of(chosen))
}

/// Runs the examples of the documentation, and those that need a machine again: under two more seeds, where every race
/// between streams is an error. The first argument is the program that rustdoc has made of the examples; each of them
/// runs in a process of its own.
const EXAMPLES: &str = "#!/bin/sh\n\
    export RUSTDOC_DOCTEST_BIN_PATH=\"$1\"\n\
    \"$@\" || exit\n\
    for seed in 1 2; do TESTKIT_SEED=$seed TESTKIT_SANITIZER=1 \"$@\" || exit; done\n";

/// Runs the tests of the documentation. They are built once, and run by [`EXAMPLES`].
fn examples() -> Result<()> {
    let path = shell::target_dir().join("run-examples.sh");
    std::fs::write(&path, EXAMPLES).map_err(|error| format!("{}: {error}", path.display()))?;
    shell::run(Command::new("chmod").arg("+x").arg(&path))?;
    let runner = format!("target.'cfg(all())'.runner = ['{}']", path.display());
    let mut command = tests_of(&["--doc"]);
    shell::run(command.args(["--config", &runner]))
}

/// Runs the conformance suite alone on the real driver or on that of a path.
fn conformance(driver: &str) -> Result<()> {
    shell::run(&mut shell::cargo(["build", "--quiet", "--release", "--package", "tests", "--bin", "conformance"]))?;
    let mut command = Command::new(shell::target_dir().join("release/conformance"));
    let arm = match driver {
        "real" => "real".to_owned(),
        path => format!("shared:{}", driver::absolute(path)?.display()),
    };
    shell::run(command.args(["--arm", &arm]))
}

#[cfg(test)]
mod tests {
    use super::is_setting;

    #[test]
    fn settings_of_the_user_do_not_reach_the_tests() {
        for name in [
            "CUDA_VISIBLE_DEVICES",
            "CUDA_SYS_LIBNVRTC",
            "PYTORCH_CUDA_ALLOC_CONF",
            "TORCH_CUDA_SANITIZER",
            "NCCL_DEBUG",
            "XDG_CACHE_HOME",
            "WORLD_SIZE",
            "PYTHONPATH",
            "CHROMIUM",
        ] {
            assert!(is_setting(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_TARGET_DIR", "RUSTFLAGS", "TORCH_CUDA_BLESS", "LD_LIBRARY_PATH", "TMPDIR"] {
            assert!(!is_setting(name), "{name}");
        }
    }
}
