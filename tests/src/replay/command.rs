//! The arguments of the program `replay`, and what it prints.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::program::say;
use crate::script;

use super::run::replay;
use super::trace::{Pass, TraceReport, measure};

const USAGE: &str = "usage: replay SCRIPT...\n       replay --trace FILE [--conf TEXT] [--json]";

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Scripts(Vec<PathBuf>),
    Trace { file: PathBuf, conf: String, json: bool },
}

/// Runs the program; the exit code is 1 when a script failed or something could not be read.
#[must_use]
pub fn main(args: Vec<String>) -> ExitCode {
    let done = parse(args).and_then(|request| match request {
        Request::Scripts(paths) => Ok(scripts(&paths)),
        Request::Trace { file, conf, json } => run_trace(&file, &conf, json).map(|()| true),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "replay: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: Vec<String>) -> Result<Request, String> {
    let (mut file, mut conf, mut json, mut paths) = (None, None, false, Vec::new());
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--trace" => file = Some(PathBuf::from(value()?)),
            "--conf" => conf = Some(value()?),
            "--json" => json = true,
            option if option.starts_with('-') => return Err(format!("there is no option {option}\n{USAGE}")),
            path => paths.push(PathBuf::from(path)),
        }
    }
    match file {
        Some(file) if paths.is_empty() => Ok(Request::Trace { file, conf: conf.unwrap_or_default(), json }),
        None if !paths.is_empty() && conf.is_none() && !json => Ok(Request::Scripts(paths)),
        Some(_) | None => Err(USAGE.to_owned()),
    }
}

/// Replays scripts and says how each ended, those that failed once more at the end; whether all passed.
fn scripts(paths: &[PathBuf]) -> bool {
    let mut failed = Vec::new();
    for path in paths {
        let (is_passed, line) = match script::read(path) {
            Ok(script) => {
                let outcome = replay(&script);
                (outcome.is_passed(), outcome.report(&name(path)))
            }
            Err(error) => (false, format!("FAIL {}: {error}", name(path))),
        };
        say(&line);
        if !is_passed {
            failed.push(name(path));
        }
    }
    say(&count(paths.len(), &failed));
    failed.is_empty()
}

/// How many passed, and the names of those that failed.
fn count(all: usize, failed: &[String]) -> String {
    let text = format!("{} passed, {} failed", all - failed.len(), failed.len());
    if failed.is_empty() { text } else { format!("{text}: {}", failed.join(", ")) }
}

/// The file's name without what says that it is a script.
fn name(path: &Path) -> String {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let bare = name.strip_suffix(".gz").unwrap_or(&name);
    bare.strip_suffix(".script").unwrap_or(bare).to_owned()
}

fn run_trace(file: &Path, conf: &str, json: bool) -> Result<(), String> {
    let steps = trace_replay::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let report = measure(&steps, conf).map_err(|error| error.to_string())?;
    say(&format!("{}: {} operations, configuration `{conf}`", file.display(), steps.len()));
    say(&table("first pass", &report.first));
    say(&table("second pass", &report.second));
    if json {
        say(&object(&report));
    }
    Ok(())
}

fn table(title: &str, pass: &Pass) -> String {
    let mut text = format!("{title}:");
    let mut row = |name: &str, value: String| {
        let _ = write!(text, "\n  {name:<22} {value}");
    };
    row("peak requested bytes", pass.figures.peak_requested_bytes.to_string());
    row("peak allocated bytes", pass.figures.peak_allocated_bytes.to_string());
    row("peak reserved bytes", pass.figures.peak_reserved_bytes.to_string());
    row("utilisation", format!("{:.4}", pass.figures.utilisation()));
    row("ns per operation", format!("{:.1}", pass.figures.ns_per_step));
    for (call, count) in &pass.driver_calls {
        row(call, count.to_string());
    }
    text
}

/// The report as one JSON object: peaks and calls of the first pass, times of both.
fn object(report: &TraceReport) -> String {
    let TraceReport { first, second } = report;
    let calls = |pass: &Pass| {
        let pairs: Vec<String> = pass.driver_calls.iter().map(|(call, count)| format!("\"{call}\":{count}")).collect();
        format!("{{{}}}", pairs.join(","))
    };
    format!(
        "{{\"peak_requested_bytes\":{},\"peak_allocated_bytes\":{},\"peak_reserved_bytes\":{},\"utilisation\":{:.6},\
         \"driver_calls\":{},\"driver_calls_second\":{},\"ns_per_op\":[{:.1},{:.1}]}}",
        first.figures.peak_requested_bytes,
        first.figures.peak_allocated_bytes,
        first.figures.peak_reserved_bytes,
        first.figures.utilisation(),
        calls(first),
        calls(second),
        first.figures.ns_per_step,
        second.figures.ns_per_step,
    )
}

#[cfg(test)]
mod tests {
    use super::super::run::{Difference, Outcome};
    use super::*;

    fn request(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn scripts_or_a_trace_are_asked_for() {
        assert_eq!(request("a b"), Ok(Request::Scripts(vec!["a".into(), "b".into()])));
        let trace = Request::Trace { file: "t".into(), conf: "x:1".to_owned(), json: true };
        assert_eq!(request("--trace t --conf x:1 --json"), Ok(trace));
        for bad in ["", "--trace", "--trace t a", "--conf x", "--json", "--loud a", "--json a"] {
            assert!(request(bad).unwrap_err().contains("usage: replay"), "{bad}");
        }
    }

    #[test]
    fn outcomes_are_one_line_each() {
        let name = name(Path::new("/x/default.plain.00.script.gz"));
        assert_eq!(Outcome::Passed.report(&name), "PASS default.plain.00");
        let difference = Difference { key: "segment.all.peak".into(), expected: "1".into(), got: "2".into() };
        let failed = Outcome::Failed { line: 7, difference }.report(&name);
        assert_eq!(failed, "FAIL default.plain.00: line 7, segment.all.peak, expected 1, got 2");
    }

    #[test]
    fn those_that_failed_are_named_at_the_end() {
        assert_eq!(count(2, &[]), "2 passed, 0 failed");
        assert_eq!(count(3, &["a".to_owned(), "c".to_owned()]), "1 passed, 2 failed: a, c");
    }

    #[test]
    fn a_report_is_one_object() {
        let calls = std::collections::BTreeMap::from([("cuMemAlloc_v2", 2)]);
        let figures = trace_replay::Pass {
            peak_requested_bytes: 1,
            peak_allocated_bytes: 2,
            peak_reserved_bytes: 4,
            segments_taken: 2,
            segments_given_back: 0,
            ns_per_step: 1.5,
        };
        let pass = Pass { figures, driver_calls: calls };
        let text = object(&TraceReport { first: pass.clone(), second: pass });
        assert!(
            text.starts_with("{\"peak_requested_bytes\":1,") && text.ends_with("\"ns_per_op\":[1.5,1.5]}"),
            "{text}"
        );
        assert!(text.contains("\"utilisation\":0.500000,\"driver_calls\":{\"cuMemAlloc_v2\":2}"), "{text}");
    }
}
