//! `cargo xtask check`: the slow checks that find what tests do not look for.
//!
//! - Model checkers run the parts that threads share under every schedule they can think of (package `checks`).
//! - AddressSanitizer watches the tests of the crates that hold unsafe code.
//! - Fuzz bodies run over their corpus and then on inputs made from it (package `fuzz`).

use std::num::NonZero;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::driver;
use crate::flags::Flags;
use crate::shell::{self, Phases, Result};

/// The crates that hold unsafe code, apart from those that only pass calls on.
const WITH_UNSAFE: &[&str] = &["cuda-sys", "cuda-sim", "c10-core"];

/// The names of the fuzz bodies, as `fuzz --list` prints them.
fn bodies() -> Result<Vec<String>> {
    let text = shell::capture(&mut fuzz(&["--list"]))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    let seconds = flags.number("--seconds", 60)?;
    let seed = flags.number("--seed", 1)?;
    let mut phases = Phases::default();
    phases.step("model checkers", models);
    phases.step("AddressSanitizer", address_sanitizer);
    phases.step("fuzz bodies", || fuzz_all(seconds, seed));
    phases.finish()
}

fn models() -> Result<()> {
    shell::run(&mut shell::cargo([
        "clippy",
        "--quiet",
        "--package",
        "checks",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    shell::run(&mut shell::cargo(["test", "--quiet", "--package", "checks"]))
}

/// The sanitizer is a flag that the stable compiler knows but hides. Everything built with it has its own folder, since
/// some packages look at the variable that unhides it and would be built anew each time.
fn address_sanitizer() -> Result<()> {
    let mut command = shell::cargo(["test", "--quiet", "--no-fail-fast", "--lib", "--tests"]);
    for package in WITH_UNSAFE {
        command.args(["--package", package]);
    }
    command.args(["--target", &shell::host_triple()?]).arg("--target-dir").arg(shell::target_dir().join("asan"));
    // This test reads whatever words of its own stack a guessed frame leads to, which the sanitizer guards between variables.
    shell::say("skipped: kept_sizes_lead_where_the_unwinder_goes, which reads its stack between variables");
    command.args(["--", "--skip", "kept_sizes_lead_where_the_unwinder_goes"]);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    shell::run(&mut command)
}

fn fuzz_all(seconds: u64, seed: u64) -> Result<()> {
    shell::build_programs_of("corpus")?;
    let bodies = bodies()?;
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (seconds, seed) = (seconds.to_string(), seed.to_string());
    // A body keeps one core busy, so as many run at once as there are cores.
    let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
        let work = || -> Result<()> {
            while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                let said = shell::capture(&mut fuzz(&[body, "--seconds", &seconds, "--seed", &seed]))?;
                shell::say(said.trim_end());
            }
            Ok(())
        };
        let started: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        started
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("a fuzz thread panicked".into())))
            .collect()
    });
    outcomes.into_iter().collect()
}

fn fuzz(args: &[&str]) -> Command {
    let mut command = Command::new(shell::target_dir().join("debug/fuzz"));
    command.args(args).current_dir(shell::root());
    command
}
