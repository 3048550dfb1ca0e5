//! `cargo xtask lint`: everything that can be said about the sources without running them.

use std::io::IsTerminal as _;
use std::process::Command;

use crate::flags::Flags;
use crate::shell::{self, Phases, Result};
use crate::{codegen, dependencies, docs, driver, survey, tidy};

/// Runs the command.
pub(crate) fn run(flags: &Flags) -> Result<()> {
    driver::validate(flags.driver())?;
    let mut phases = Phases::default();
    phases.step("formatting", formatting);
    phases.step("house rules", tidy::check);
    phases.noted("dependencies", dependencies::check);
    phases.noted("licences and sources", deny);
    phases.noted("documents", docs::check);
    phases.step("reader of sources", survey_itself);
    phases.noted("layers", layers);
    phases.noted("public API", || survey::ask(&["api", "--check"]));
    phases.noted("coverage", || survey::ask(&["coverage", "--check"]));
    phases.noted("examples", || survey::ask(&["examples"]));
    phases.noted("life of an allocation", || survey::ask(&["story"]));
    phases.step("clippy", clippy);
    phases.step("documentation", documentation);
    phases.step("bindings", bindings);
    phases.finish()
}

/// rustfmt colours its output even where no terminal reads it.
fn formatting() -> Result<()> {
    let color = if std::io::stdout().is_terminal() { "auto" } else { "never" };
    shell::run(&mut shell::cargo(["fmt", "--all", "--check", "--", "--color", color]))
}

/// What `deny.toml` says of the packages beneath the crates. Advisories are left out: they need the network.
fn deny() -> Result<String> {
    let version = Command::new("cargo-deny").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        return Ok("skipped: there is no cargo-deny; `cargo install --locked cargo-deny` brings it".to_owned());
    }
    shell::run(&mut shell::cargo(["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]))?;
    Ok(String::new())
}

fn clippy() -> Result<()> {
    shell::run(&mut shell::cargo(["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"]))
}

fn documentation() -> Result<()> {
    shell::run(shell::cargo(["doc", "--quiet", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// The generator is built here only, so its own lints belong here too.
fn bindings() -> Result<()> {
    lints("codegen")?;
    codegen::generate(true)
}

/// The import order of folders; the graph is printed.
fn layers() -> Result<String> {
    let graph = survey::ask(&["layers"])?;
    shell::say(&graph);
    Ok(format!("{} layers, no upward arrow", graph.lines().count()))
}

fn lints(package: &str) -> Result<()> {
    shell::run(&mut shell::cargo(["clippy", "--quiet", "--package", package, "--all-targets", "--", "-D", "warnings"]))
}

/// The reader of sources is built here only, so its own lints and tests belong here too.
fn survey_itself() -> Result<()> {
    lints("survey")?;
    // The same build as that which runs: the profile for tests would build all of its libraries again.
    shell::run(&mut shell::cargo(["test", "--quiet", "--profile", "dev", "--package", "survey"]))
}
