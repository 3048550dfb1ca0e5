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

/// Tests that AddressSanitizer does not watch, by parts of their names, with the reason. `cargo xtask test` runs them all.
const UNWATCHED: &[(&[&str], &str)] = &[
    // It reads whatever words of its own stack a guessed frame leads to; the sanitizer guards those between variables.
    (&["kept_sizes_lead_where_the_unwinder_goes"], "it reads its stack between variables"),
    (&["caching::remote::", "caching::plan::", "caching::freeset::"], "they reach no unsafe code"),
    (
        &[
            "caching::tests::elastic",
            "caching::tests::failures::",
            "caching::tests::golden::",
            "caching::tests::naive::",
            "caching::tests::plans::",
            "caching::tests::unseen::",
        ],
        "of unsafe code they reach only the lock of a shard, which others take too; watched programs run the same allocator \
         on the simulated driver",
    ),
    (&["nor_in_the_", "reports_equal_it_for_"], "one quarter of these random programs is watched"),
];

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
    command.arg("--");
    for (names, reason) in UNWATCHED {
        shell::say(&format!("skipped: {}: {reason}", names.join(", ")));
        command.args(names.iter().flat_map(|name| ["--skip", name]));
    }
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    // A report says in which lines memory was taken, freed and touched.
    command.env("CARGO_PROFILE_TEST_DEBUG", "line-tables-only");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    /// A name that leads nowhere would leave nothing out, and the reason beside it would be about nothing.
    #[test]
    fn what_is_not_watched_is_there() {
        let sources = tidy::sources().expect("the sources can be read");
        let is_there = |name: &str| {
            let (path, test) = (name.trim_end_matches("::").replace("::", "/"), format!("fn {name}"));
            let has =
                |source: &tidy::Source| source.path.contains(&format!("src/{path}")) || source.text.contains(&test);
            sources.iter().filter(|source| source.path.starts_with("crates/c10-core/")).any(has)
        };
        let lost: Vec<_> = UNWATCHED.iter().flat_map(|(names, _)| *names).filter(|name| !is_there(name)).collect();
        assert!(lost.is_empty(), "{lost:?}");
        assert!(!is_there("caching::tests::gone::") && !is_there("gone_in_the_"));
    }
}
