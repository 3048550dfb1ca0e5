//! The runner of the conformance suite: arms, child processes, report.
//!
//! A child is this program with `--worker FROM`: it runs the cases from that index on and says on its standard output
//! which one it begins and how each ended. When it dies, the case it had begun has failed, and a new child goes on
//! behind it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use conformance::{Case, Enter, Outcome, all_cases, run_case};
use cuda_sys::Driver;

use crate::table::{self, Calls};

/// A way to reach a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arm {
    /// Simulated machines in this process.
    Table,
    /// The shared object at a path.
    Shared(String),
    /// The system's own driver.
    Real,
}

/// What the suite found.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of cases that passed.
    pub passed: usize,
    /// Names and texts of the cases that failed.
    pub failed: Vec<(String, String)>,
    /// Names and reasons of the cases that were skipped.
    pub skipped: Vec<(String, String)>,
    /// The calls that were answered, on the table arm.
    pub calls: Calls,
}

impl Report {
    /// Takes down how a case ended.
    pub fn add(&mut self, name: String, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Skipped(reason) => self.skipped.push((name, reason)),
            Outcome::Failed(text) => self.failed.push((name, text)),
            Outcome::Hung => self.failed.push((name, "did not come to an end".to_owned())),
        }
    }

    /// Takes down one line of calls: symbol, code, count.
    fn count(&mut self, line: &str) {
        let mut words = line.split(' ');
        if let (Some(symbol), Some(Ok(code)), Some(Ok(count))) =
            (words.next(), words.next().map(str::parse), words.next().map(str::parse::<u64>))
        {
            *self.calls.entry((symbol.to_owned(), code)).or_default() += count;
        }
    }

    /// Writes the cases that did not pass, and the counts.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        for (name, reason) in &self.skipped {
            writeln!(out, "skipped {name}: {reason}")?;
        }
        for (name, text) in &self.failed {
            writeln!(out, "FAILED {name}")?;
            for line in text.lines() {
                writeln!(out, "    {line}")?;
            }
        }
        writeln!(out, "{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped.len())
    }
}

/// `area::name` of a case.
#[must_use]
pub fn name_of(case: &Case) -> String {
    format!("{}::{}", case.area, case.name)
}

/// The cases whose `area::name` contains `filter`.
#[must_use]
pub fn selected(filter: &str) -> Vec<Case> {
    all_cases().into_iter().filter(|case| name_of(case).contains(filter)).collect()
}

/// What the command line asks for.
struct Options {
    arm: Arm,
    filter: String,
    worker: Option<usize>,
}

impl Options {
    fn parse(arguments: Vec<String>) -> Result<Self, String> {
        let mut options = Self { arm: Arm::Table, filter: String::new(), worker: None };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            match argument.as_str() {
                "--arm" => options.arm = parse_arm(&value)?,
                "--filter" => options.filter = value,
                "--worker" => options.worker = Some(value.parse().map_err(|_| "--worker needs a number")?),
                _ => return Err(format!("unknown option {argument}")),
            }
        }
        Ok(options)
    }
}

fn parse_arm(text: &str) -> Result<Arm, String> {
    match text.split_once(':') {
        None if text == "real" => Ok(Arm::Real),
        None if text == "table" => Ok(Arm::Table),
        Some(("shared", path)) => Ok(Arm::Shared(path.to_owned())),
        _ => Err(format!("unknown arm {text}: table, shared:PATH or real")),
    }
}

/// The program's main function.
#[must_use]
pub fn main(arguments: Vec<String>) -> ExitCode {
    let result = Options::parse(arguments).and_then(|options| match options.worker {
        Some(from) => work(&options, from).map(|()| true),
        None => {
            let report = run(&options.arm, &options.filter)?;
            report.write(&mut std::io::stdout()).map_err(|error| error.to_string())?;
            Ok(report.failed.is_empty())
        }
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            let _ = writeln!(std::io::stderr(), "conformance: {text}");
            ExitCode::from(2)
        }
    }
}

/// Runs the cases that `filter` selects on an arm.
///
/// # Errors
/// The driver cannot be loaded, or no child process can be started.
pub fn run(arm: &Arm, filter: &str) -> Result<Report, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    run_in_children(&program, arm, filter)
}

/// The driver of an arm; none for the table arm, which has one for each case.
fn load(arm: &Arm) -> Result<Option<Driver>, String> {
    match arm {
        Arm::Shared(path) => Driver::load_from(path).map(Some),
        Arm::Real => Driver::load().map(Some),
        Arm::Table => Ok(None),
    }
    .map_err(|error| error.to_string())
}

/// The child: runs cases and reports each on standard output.
fn work(options: &Options, from: usize) -> Result<(), String> {
    let driver = load(&options.arm)?.map(Arc::new);
    let enter: Arc<Enter> = Arc::new(|| Box::new(()));
    let say = |text: String| {
        let mut out = std::io::stdout();
        writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| error.to_string())
    };
    for (index, case) in selected(&options.filter).iter().enumerate().skip(from) {
        say(format!("begin {index}"))?;
        let outcome = match &driver {
            Some(driver) => run_case(case, driver, options.arm != Arm::Real, &enter),
            None => {
                let (outcome, calls) = table::run(case)?;
                for ((symbol, code), count) in calls {
                    say(format!("call {symbol} {code} {count}"))?;
                }
                outcome
            }
        };
        match &outcome {
            Outcome::Passed => say("passed".to_owned())?,
            Outcome::Skipped(reason) => say(format!("skipped {}", reason.replace('\n', "\\n")))?,
            Outcome::Failed(text) => say(format!("failed {}", text.replace('\n', "\\n")))?,
            Outcome::Hung => {
                say("hung".to_owned())?;
                std::process::exit(3);
            }
        }
        if matches!(&outcome, Outcome::Failed(text) if text.contains("afterwards:")) {
            // The context may be lost: go on in a fresh process.
            std::process::exit(3);
        }
    }
    say("done".to_owned())
}

/// Runs the cases that `filter` selects on a library, in child processes of `program`, which is the runner.
///
/// # Errors
/// The driver cannot be loaded, or no child process can be started.
pub fn run_in_children(program: &Path, arm: &Arm, filter: &str) -> Result<Report, String> {
    let cases = selected(filter);
    let mut report = Report::default();
    let mut next = 0;
    while next < cases.len() {
        let mut command = Command::new(program);
        let arm = match arm {
            Arm::Shared(path) => format!("shared:{path}"),
            Arm::Real => "real".to_owned(),
            Arm::Table => "table".to_owned(),
        };
        command.args(["--arm", &arm, "--filter", filter, "--worker", &next.to_string()]);
        // Peers need two devices; a real driver does not look at this.
        command.env("CUDA_SIM_DEVICES", "2");
        next = follow(command, &cases, next, &mut report)?;
    }
    Ok(report)
}

/// Starts one child and takes down what it says; returns the index to go on with.
fn follow(mut command: Command, cases: &[Case], from: usize, report: &mut Report) -> Result<usize, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().map_err(text)?;
    let output = child.stdout.take().ok_or("no output of the child")?;
    let mut begun = None;
    let mut next = from;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(text)?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let rest = rest.replace("\\n", "\n");
        let outcome = match word {
            "begin" => {
                begun = rest.parse::<usize>().ok();
                continue;
            }
            "call" => {
                report.count(&rest);
                continue;
            }
            "passed" => Outcome::Passed,
            "skipped" => Outcome::Skipped(rest),
            "failed" => Outcome::Failed(rest),
            "hung" => Outcome::Hung,
            _ => continue,
        };
        if let Some(index) = begun.take() {
            report.add(name_of(&cases[index]), outcome);
            next = index + 1;
        }
    }
    let status = child.wait().map_err(text)?;
    if let Some(index) = begun {
        report.add(name_of(&cases[index]), Outcome::Failed(format!("the process died: {status}")));
        next = index + 1;
    } else if next == from {
        return Err(format!("a child process ran no case: {status}"));
    }
    Ok(if status.success() { cases.len() } else { next })
}
