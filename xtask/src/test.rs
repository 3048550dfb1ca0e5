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
    phases.step("documentation tests", || tests(&["--doc"]));
    if !matches!(flags.driver(), "auto" | "sim") {
        phases.step("conformance, driver asked for", || conformance(flags.driver()));
    }
    phases.finish()
}

/// Variables that would configure what is tested.
const SETTINGS: [&str; 16] = [
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUDA_SIM_DEVICES",
    "CUDA_SIM_SEED",
    "CUDA_SIM_DRIVER_VERSION",
    "CUDA_SIM_MEMORY",
    "CUDA_SIM_STRICT",
    "CUDA_SIM_LATE_EVENTS",
    "CUDA_SIM_FAULTS",
    "CUDA_SIM_TOPOLOGY",
    "CUDA_SIM_MACHINE",
    "USE_PYTORCH_KERNEL_CACHE",
    "PYTORCH_USE_CUDA_DSA",
    "CUDA_SYS_LIBNVJITLINK",
];

/// Runs tests as on a machine where nobody has set anything.
fn tests(chosen: &[&str]) -> Result<()> {
    let mut command = shell::cargo(["test", "--quiet", "--no-fail-fast"]);
    for name in SETTINGS {
        command.env_remove(name);
    }
    // What tests compile is no business of the user's cache.
    command.env("PYTORCH_KERNEL_CACHE_PATH", kernels::kernel_cache());
    shell::run(command.args(chosen))
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
