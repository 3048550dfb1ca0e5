//! `replay`: recorded allocations on this machine's driver, under one or several sets of the allocator's options.
//!
//! **Invariant:** each set has a runtime of its own, which begins with an empty cache and gives everything back.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use cuda_api::Runtime;
use memory_viz::analysis::human_bytes;
use serde_json::{Value, json};
use trace_replay::{Pass, Replay, ReplayError, Step, TraceError, steps_of};

use crate::Error;
use crate::machine::one_line;
use crate::progress::Bar;
use crate::table::{Column, Table, number, words};

const COLUMNS: &[Column] = &[
    words("OPTIONS", 0),
    number("REQUESTED", 0),
    number("ALLOCATED", 0),
    number("RESERVED", 0),
    number("USED", 0),
    number("TAKEN", 0),
    number("BACK", 0),
    number("NS/STEP", 0),
    number("AGAIN", 0),
];

/// What came of one set of options: the first pass, from an empty cache, and the one after it.
struct Outcome {
    conf: String,
    passes: Result<(Pass, Pass), String>,
}

/// Replays a trace under every set of options and prints a table; the exit code is 1 if one of them failed.
pub(crate) fn run(given: &ArgMatches, out: &mut dyn Write) -> Result<u8, Error> {
    let Some(path) = given.get_one::<PathBuf>("trace") else { return Ok(2) };
    let steps = read(path, given.get_one::<u32>("of-device").copied())?;
    let device = given.get_one::<i32>("device").copied().unwrap_or(0);
    let confs: Vec<String> =
        given.get_many::<String>("conf").map_or_else(|| vec![String::new()], |all| all.cloned().collect());
    let outcomes: Vec<Outcome> = confs.into_iter().map(|conf| replay(conf, &steps, device)).collect();
    if given.get_flag("json") {
        writeln!(out, "{}", object(&steps, &outcomes))?;
    } else {
        write_table(&steps, &outcomes, out)?;
    }
    Ok(u8::from(outcomes.iter().any(|outcome| outcome.passes.is_err())))
}

/// The steps of a trace, or of the history of a snapshot.
fn read(path: &Path, device: Option<u32>) -> Result<Vec<Step>, Error> {
    let failed = |source| Error::Trace { file: path.to_owned(), source };
    if !is_snapshot(path).map_err(|error| failed(TraceError::Read(error)))? {
        return trace_replay::read(path).map_err(failed);
    }
    let snapshot = memory_viz::file::read(path).map_err(|source| Error::Snapshot { file: path.to_owned(), source })?;
    let fullest = (0_u32..).zip(&snapshot.device_traces).max_by_key(|(device, entries)| (entries.len(), !device));
    Ok(steps_of(&snapshot, device.or(fullest.map(|(device, _)| device)).unwrap_or(0)))
}

/// Whether a file begins as a pickle or as JSON does. A trace begins with a letter, a number sign or as gzip does.
fn is_snapshot(path: &Path) -> io::Result<bool> {
    let mut first = [0];
    let count = regular_files::open(path)?.read(&mut first)?;
    Ok(count == 1 && matches!(first[0], 0x80 | b'{'))
}

fn replay(conf: String, steps: &[Step], device: i32) -> Outcome {
    let passes = passes(&conf, steps, device).map_err(|error| one_line(&error.to_string()));
    Outcome { conf, passes }
}

fn passes(conf: &str, steps: &[Step], device: i32) -> Result<(Pass, Pass), ReplayError> {
    let runtime = Runtime::on_system_driver();
    if !conf.is_empty() {
        runtime.memory().set_settings(conf)?;
    }
    let replay = Replay::new(&runtime, device, steps)?;
    let mut bar = Bar::new(conf, 2 * steps.len());
    let first = replay.pass(|done| bar.tell(done))?;
    Ok((first, replay.pass(|done| bar.tell(steps.len() + done))?))
}

fn write_table(steps: &[Step], outcomes: &[Outcome], out: &mut dyn Write) -> Result<(), Error> {
    let row = |outcome: &Outcome| {
        let conf = if outcome.conf.is_empty() { "(as the environment says)".to_owned() } else { outcome.conf.clone() };
        let Ok((first, again)) = &outcome.passes else { return vec![conf] };
        let bytes = |value: i64| human_bytes(u64::try_from(value).unwrap_or(0));
        vec![
            conf,
            bytes(first.peak_requested_bytes),
            bytes(first.peak_allocated_bytes),
            bytes(first.peak_reserved_bytes),
            format!("{:.1} %", first.utilisation() * 100.0),
            first.segments_taken.to_string(),
            first.segments_given_back.to_string(),
            format!("{:.0}", first.ns_per_step),
            format!("{:.0}", again.ns_per_step),
        ]
    };
    writeln!(out, "{} steps; peaks, and calls to the driver that took memory and gave it back\n", steps.len())?;
    let table = Table { columns: COLUMNS, rows: outcomes.iter().map(row).collect() };
    table.lines(None).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    for outcome in outcomes {
        if let Err(why) = &outcome.passes {
            writeln!(out, "\n{}: {why}", if outcome.conf.is_empty() { "failed" } else { &outcome.conf })?;
        }
    }
    Ok(())
}

fn object(steps: &[Step], outcomes: &[Outcome]) -> Value {
    let pass = |pass: &Pass| {
        json!({
            "peak_requested_bytes": pass.peak_requested_bytes,
            "peak_allocated_bytes": pass.peak_allocated_bytes,
            "peak_reserved_bytes": pass.peak_reserved_bytes,
            "segments_taken": pass.segments_taken,
            "segments_given_back": pass.segments_given_back,
            "ns_per_step": pass.ns_per_step,
        })
    };
    let outcomes = outcomes.iter().map(|outcome| match &outcome.passes {
        Ok((first, again)) => json!({ "conf": outcome.conf, "first": pass(first), "again": pass(again) }),
        Err(why) => json!({ "conf": outcome.conf, "error": why }),
    });
    json!({ "steps": steps.len(), "outcomes": outcomes.collect::<Vec<_>>() })
}
