//! Costs of the runtime beside those of the raw driver: `bench [--json]`; those of its allocator: `bench alloc`; those of
//! streams, events and graphs: `bench streams graphs`.
//!
//! Both run in one process on one device, alternately, and the medians and their ratio are printed. The first use of a
//! device happens once in the life of a process, so that row starts processes of its own (`bench --first ours|raw`).
//! On the simulated driver the figures say what the runtime adds to it, and nothing about hardware.
#![deny(unsafe_code)]

mod figures;
mod heap;
mod measure;
mod random;
mod raw;

mod alloc;
mod backends;
mod flow;
mod ours;

use std::io::Write as _;
use std::process::{Command, ExitCode};
use std::time::Instant;

use bench::median;
use measure::{Row, beside};
use ours::Ours;
use raw::{Failure, Raw};

/// How the program is used.
const USAGE: &str = "usage: bench [--json] | bench alloc [--peer HARNESS | --figures FILE] [--json] | \
                     bench streams|graphs [--cold] [--figures FILE] [--json]";

/// How often the first use is measured on each side.
const FIRST_USES: usize = 7;

/// What the first use allocates, in bytes.
const FIRST_BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] => rows().map(|(rows, planned)| table(&rows, planned)),
        ["--json"] => rows().map(|(rows, planned)| json(&rows, planned)),
        ["--first", "ours"] => first(Ours::first_use),
        ["--first", "raw"] => first(|| Ok(Raw::new()?.mem_alloc(FIRST_BYTES)?)),
        ["alloc", words @ ..] => alloc::main(words),
        words if flow::is_meant(words) => flow::main(words),
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(text) => {
            if !text.is_empty() {
                let _ = writeln!(std::io::stdout(), "{text}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Nanoseconds of a first use, as text.
fn first(body: impl FnOnce() -> Result<(), Failure>) -> Result<String, Failure> {
    let begin = Instant::now();
    body()?;
    Ok(begin.elapsed().as_nanos().to_string())
}

/// The rows, and what a planned loop reserves over what it has live.
fn rows() -> Result<(Vec<Row>, f64), Failure> {
    let mut rows = vec![first_use()?];
    let raw = Raw::new()?;
    let ours = Ours::new()?;
    let settle = || Ok::<(), Failure>(raw.synchronize()?);
    for (name, bytes) in [("alloc+free 512 B", 512), ("alloc+free 4 MiB", 4 << 20)] {
        let names = (name, "cuMemAlloc+cuMemFree");
        rows.push(beside(names, settle, || ours.alloc_and_free(bytes), || Ok(raw.mem_alloc_and_free(bytes)?))?);
        let names = (name, "cuMemAllocAsync+FreeAsync");
        rows.push(beside(names, settle, || ours.alloc_and_free(bytes), || Ok(raw.mem_alloc_and_free_async(bytes)?))?);
    }
    let names = ("event record", "cuEventRecord");
    rows.push(beside(names, settle, || ours.event_record(), || Ok(raw.event_record()?))?);
    let names = ("event query", "cuEventQuery");
    rows.push(beside(names, settle, || ours.event_query(), || Ok(raw.event_query()?))?);
    let names = ("wait for event", "cuStreamWaitEvent");
    rows.push(beside(names, settle, || ours.wait_event(), || Ok(raw.stream_wait_event()?))?);
    let names = ("stream query", "cuStreamQuery");
    rows.push(beside(names, settle, || ours.stream_query(), || Ok(raw.stream_query()?))?);
    let names = ("event new+record+drop", "cuEvent create+record+destroy");
    rows.push(beside(names, settle, || ours.event_new_and_drop(), || Ok(raw.event_create_and_destroy()?))?);
    let (more, planned) = backends::rows(&raw)?;
    rows.extend(more);
    Ok((rows, planned))
}

/// First use to first allocation, each time in a process of its own.
fn first_use() -> Result<Row, Failure> {
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..FIRST_USES {
        ours.push(first_in_a_process("ours")?);
        raw.push(first_in_a_process("raw")?);
    }
    let (ours_ns, raw_ns) = (median(&mut ours), median(&mut raw));
    Ok(Row { name: "first use to allocation", ours_ns, raw_name: "cuInit, context, cuMemAlloc", raw_ns })
}

fn first_in_a_process(side: &str) -> Result<f64, Failure> {
    let output = Command::new(std::env::current_exe()?).args(["--first", side]).output()?;
    let text = String::from_utf8(output.stdout)?;
    text.trim().parse().map_err(|_| format!("--first {side}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

fn table(rows: &[Row], planned: f64) -> String {
    let mut text = format!("{:<26} {:>12}  {:<30} {:>12} {:>7}", "ours", "ns", "raw driver", "ns", "ratio");
    for row in rows {
        let Row { name, ours_ns, raw_name, raw_ns } = row;
        text += &format!("\n{name:<26} {ours_ns:>12.1}  {raw_name:<30} {raw_ns:>12.1} {:>7.3}", row.ratio());
    }
    text + &format!("\na planned loop holds {planned:.4} times the most that it has live")
}

fn json(rows: &[Row], planned: f64) -> String {
    let rows = rows.iter().map(|row| {
        let Row { name, ours_ns, raw_name, raw_ns } = row;
        let ratio = row.ratio();
        format!(
            r#"{{"ours":"{name}","ours_ns":{ours_ns:.1},"raw":"{raw_name}","raw_ns":{raw_ns:.1},"ratio":{ratio:.4}}}"#
        )
    });
    let rows = rows.collect::<Vec<_>>().join(",");
    format!("{{\"rows\":[{rows}],\"planned_reserved_over_live\":{planned:.4}}}")
}
