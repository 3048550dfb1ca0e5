//! Running programs, saying what runs, and where things are.
//!
//! Invariant: nothing printed here holds a control character, terminal or not.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Any failure of a command: people read it, so a text that says what to do is enough.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Prints a line. A reader that went away is not an error worth reporting.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints a line where errors go.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_owned)
}

/// The folder cargo builds into.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |path| root().join(path))
}

/// The triple of this machine, as rustc names it.
pub(crate) fn host_triple() -> Result<String> {
    let text = capture(Command::new("rustc").arg("-vV"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// The cargo that runs this program, in the workspace's folder.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Builds the programs of the package that has this integration test, into the folder `debug` of [`target_dir`].
///
/// They are those that `cargo xtask test` has built. Another selection of packages, or a plain build, would have cargo
/// choose other features of the packages beneath, and build most of the workspace once more.
///
/// # Errors
/// They cannot be built.
pub(crate) fn build_programs_of(test: &str) -> Result<()> {
    run(&mut cargo(["test", "--quiet", "--no-run", "--test", test]))
}

/// Runs a program to its end, its output passed through.
///
/// # Errors
/// It cannot start, or ends with anything but success.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = spelled(command);
    let status = command.status().map_err(|error| format!("cannot run `{name}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{name}` failed: {status}")) }
}

/// Runs a program that says itself what went wrong; whether it ended with success.
///
/// # Errors
/// It cannot start.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("cannot run `{program}`: {error}"))?;
    Ok(status.success())
}

/// Runs a program and returns what it wrote to its standard output; its errors are passed through.
///
/// # Errors
/// As [`run`], and output that is not text.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let name = spelled(command);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run `{name}`: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{name}` failed: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{name}` printed something that is not UTF-8"))
}

/// A command line as a person would type it.
pub(crate) fn spelled(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words: Vec<_> =
        std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ")
}

/// Reads a file of the workspace.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// A sequence of named steps. All run, also after a failure, and the end says which failed and how long each took.
#[derive(Debug, Default)]
pub(crate) struct Phases(Vec<Phase>);

#[derive(Debug)]
struct Phase {
    name: &'static str,
    seconds: f64,
    outcome: Result<String>,
}

impl Phases {
    /// Runs one step.
    pub(crate) fn step(&mut self, name: &'static str, body: impl FnOnce() -> Result<()>) {
        self.noted(name, || body().map(|()| String::new()));
    }

    /// Runs one step that has a remark to make for the summary.
    pub(crate) fn noted(&mut self, name: &'static str, body: impl FnOnce() -> Result<String>) {
        say(&format!("== {name}"));
        let begin = Instant::now();
        let outcome = body();
        let seconds = begin.elapsed().as_secs_f64();
        if let Err(error) = &outcome {
            complain(&format!("{name}: {error}"));
        }
        self.0.push(Phase { name, seconds, outcome });
    }

    /// Prints the summary.
    ///
    /// # Errors
    /// One of the steps failed.
    pub(crate) fn finish(self) -> Result<()> {
        say("");
        let total: f64 = self.0.iter().map(|phase| phase.seconds).sum();
        for Phase { name, seconds, outcome } in &self.0 {
            let (word, note) = match outcome {
                Ok(note) => ("ok", note.as_str()),
                Err(_) => ("FAILED", ""),
            };
            say(format!("{name:<30} {word:<6} {seconds:>7.1} s  {note}").trim_end());
        }
        say(&format!("{:<30} {:<6} {total:>7.1} s", "all", ""));
        let failed: Vec<&str> = self.0.iter().filter(|phase| phase.outcome.is_err()).map(|phase| phase.name).collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
    }
}
