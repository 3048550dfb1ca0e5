//! What observing costs: `observe [--json]`. The history of device memory with and without stacks, snapshots and their files,
//! marks and ranges without a tool, the sanitizer, the time line; beside the targets, and what PyTorch 2.11 takes for the
//! same.
//!
//! What is on and what is off runs in short bursts in turn; the lower quartile counts, since a busy machine only adds. A row of the history says what an event takes: a
//! request and its return are three events, of which the first has the stack. How stacks are walked is a matter of how the
//! program is built: `RUSTFLAGS='-C force-frame-pointers=yes'` has frame pointers.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::hint::black_box;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use bench::Failure;
use cuda_api::sanitizer::{Sanitizer, SanitizerOptions};
use cuda_api::timeline::{self, TimelineOptions};
use cuda_api::{DeviceBuffer, MemoryHistory, Runtime, Stream, nvtx};

/// Bursts of a body, of which the lower quartile counts, and calls of a burst.
const BURSTS: usize = 80;
const CALLS: u32 = 250;
/// Events of the history that a request and its return are.
const EVENTS: f64 = 3.0;
/// Entries of a ring.
const RING: usize = 10_000;
/// Calls between the program and a request, besides the dozen that are there anyway.
const FRAMES: usize = 24;
/// Blocks of the snapshot.
const BLOCKS: usize = 100_000;

/// A figure with what it is to be.
struct Row {
    name: &'static str,
    unit: &'static str,
    ours: f64,
    target: Option<f64>,
    /// What PyTorch takes.
    torch: Option<f64>,
}

fn main() -> ExitCode {
    let is_json = std::env::args().nth(1).as_deref() == Some("--json");
    bench::ended(rows().map(|rows| {
        let text = if is_json { json(&rows) } else { table(&rows) };
        let _ = writeln!(std::io::stdout(), "{text}");
        true
    }))
}

fn rows() -> Result<Vec<Row>, Failure> {
    let mut rows = history()?;
    rows.extend(marks()?);
    rows.extend(sanitizer()?);
    rows.extend(time_line()?);
    rows.extend(snapshots()?);
    Ok(rows)
}

/// Nanoseconds of a call of each body, which run in turn after their `before`.
fn in_turn(bodies: &mut [(&mut Body<'_>, &mut Body<'_>)]) -> Result<Vec<f64>, Failure> {
    let mut figures = vec![Vec::new(); bodies.len()];
    for _ in 0..BURSTS {
        for ((before, body), figures) in bodies.iter_mut().zip(&mut figures) {
            before()?;
            body()?;
            let begin = Instant::now();
            for _ in 0..CALLS {
                body()?;
            }
            figures.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
        }
    }
    Ok(figures.into_iter().map(|figures| quantile(figures, 4)).collect())
}

type Body<'a> = dyn FnMut() -> Result<(), Failure> + 'a;

/// The figure that one in `part` is below.
fn quantile(mut figures: Vec<f64>, part: usize) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / part).copied().unwrap_or_default()
}

/// Runs a body some calls deeper.
#[inline(never)]
fn deeper(depth: usize, body: &mut Body<'_>) -> Result<(), Failure> {
    let done = match depth {
        0 => body(),
        depth => deeper(depth - 1, body),
    };
    black_box(depth);
    done
}

/// A request and its return.
fn pair() -> Result<(), Failure> {
    DeviceBuffer::new(4096, None).map(drop).map_err(Failure::from)
}

/// The same with a stack of many calls, which a processor predicts the returns of less well.
fn deep_pair() -> Result<(), Failure> {
    deeper(FRAMES, &mut pair)
}

/// Records into a ring that is full, or into one without bound that has just begun.
fn record(context: Option<&str>, max_entries: Option<usize>) -> Result<(), Failure> {
    let entries = max_entries.unwrap_or(usize::MAX);
    let ring = MemoryHistory { context, max_entries: entries, ..MemoryHistory::default() };
    cuda_api::record_memory_history(&ring)?;
    // Each makes three entries.
    (0..max_entries.unwrap_or(0) / 3 + 1).try_for_each(|_| pair())
}

fn history() -> Result<Vec<Row>, Failure> {
    let off = || Ok(cuda_api::record_memory_history(&MemoryHistory::OFF)?);
    let figures = in_turn(&mut [
        (&mut off.clone(), &mut pair),
        (&mut || record(None, Some(RING)), &mut pair),
        (&mut || record(None, None), &mut pair),
        (&mut || record(None, Some(RING)), &mut deep_pair),
        (&mut || record(Some("alloc"), Some(RING)), &mut deep_pair),
    ])?;
    off()?;
    let [plain, bare, grown, deep, stacks] = figures[..] else { return Err("a body has no figure".into()) };
    let (event, grown) = ((bare - plain) / EVENTS, (grown - plain) / EVENTS);
    let row = |name, ours, target, torch| Row { name, unit: "ns", ours, target, torch };
    Ok(vec![
        row("pair, nobody listens", plain, None, Some(369.0)),
        row("history, an event without a stack", event, Some(60.0), Some(800.0)),
        row("history, the same where nothing goes", grown, Some(60.0), Some(800.0)),
        row("history, an event with a stack of 36 frames", stacks - deep + event, Some(1500.0), Some(2300.0)),
    ])
}

/// A range of a thread, while no tool is attached.
fn marks() -> Result<Vec<Row>, Failure> {
    let figures = in_turn(&mut [(&mut || Ok(()), &mut || {
        for _ in 0..100 {
            black_box((nvtx::range_push("step"), nvtx::range_pop()));
        }
        Ok(())
    })])?;
    let ours = figures[0] / 100.0;
    Ok(vec![Row { name: "NVTX push and pop without a tool", unit: "ns", ours, target: Some(5.0), torch: None }])
}

/// What the sanitizer adds to the call that queues a copy on the device: one piece of work with two accesses.
fn sanitizer() -> Result<Vec<Row>, Failure> {
    let stream = Stream::new(None, 0)?;
    let (from, to) = (DeviceBuffer::new(512, None)?, DeviceBuffer::new(512, None)?);
    stream.wait_stream(&cuda_api::current_stream(None)?)?;
    let on: RefCell<Option<Sanitizer>> = RefCell::new(None);
    let switch = |options: Option<SanitizerOptions>| {
        if let Some(before) = on.take() {
            before.disable();
        }
        on.replace(options.map(|options| Runtime::current().enable_sanitizer(options)));
        Ok(stream.synchronize()?)
    };
    let copy = || deeper(FRAMES, &mut || Ok(to.copy_from_buffer(0, &from, .., &stream)?));
    let (torch, ranges) = (SanitizerOptions::default(), SanitizerOptions::ranges());
    let figures = in_turn(&mut [
        (&mut || switch(None), &mut copy.clone()),
        (&mut || switch(Some(torch)), &mut copy.clone()),
        (&mut || switch(Some(ranges)), &mut copy.clone()),
        (&mut || switch(Some(SanitizerOptions { stacks: false, ..ranges })), &mut copy.clone()),
    ])?;
    switch(None)?;
    let row = |name, figure: f64, target, torch| Row { name, unit: "ns", ours: figure - figures[0], target, torch };
    Ok(vec![
        row("sanitizer, work with torch's rules", figures[1], Some(1000.0), Some(170_000.0)),
        row("sanitizer, work by ranges of bytes", figures[2], Some(1000.0), None),
        row("sanitizer, the same without stacks", figures[3], None, None),
    ])
}

/// What recording adds to the call that queues a fill.
fn time_line() -> Result<Vec<Row>, Failure> {
    let stream = Stream::new(None, 0)?;
    let buffer = DeviceBuffer::new(512, None)?;
    let fill = || Ok(buffer.fill(.., 1, &stream)?);
    let settle = || Ok(stream.synchronize()?);
    let plain = in_turn(&mut [(&mut settle.clone(), &mut fill.clone())])?[0];
    let recorded = |device_times| -> Result<f64, Failure> {
        let recorder = timeline::record(&TimelineOptions { device_times, ..TimelineOptions::default() })?;
        let recorded = in_turn(&mut [(&mut settle.clone(), &mut fill.clone())])?[0];
        drop(recorder.finish());
        Ok(recorded - plain)
    };
    let row = |name, ours| Row { name, unit: "ns", ours, target: None, torch: None };
    Ok(vec![row("time line, a call", recorded(false)?), row("time line, a call with device times", recorded(true)?)])
}

/// A snapshot of many blocks, every other of which is free, and its file.
fn snapshots() -> Result<Vec<Row>, Failure> {
    let blocks: Result<Vec<_>, _> = (0..BLOCKS).map(|_| DeviceBuffer::new(512, None)).collect();
    let kept: Vec<_> = blocks?.into_iter().step_by(2).collect();
    let path = std::env::temp_dir().join(format!("observe-{}.pickle", std::process::id()));
    let (mut taken, mut written) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let begin = Instant::now();
        black_box(Runtime::current().memory().take_snapshot(None, true)?);
        taken.push(begin.elapsed().as_secs_f64() * 1e3);
        let begin = Instant::now();
        cuda_api::dump_snapshot(&path)?;
        written.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    std::fs::remove_file(&path)?;
    drop(kept);
    let row = |name, figures, target, torch| Row { name, unit: "ms", ours: quantile(figures, 2), target, torch };
    Ok(vec![
        row("snapshot of 100,000 blocks", taken, Some(10.0), Some(50.0)),
        row("snapshot and its pickle file", written, Some(100.0), None),
    ])
}

fn table(rows: &[Row]) -> String {
    let mut text = format!("{:<44} {:>12} {:>12} {:>12} {:>8}", "row", "ours", "target", "torch", "torch/ours");
    let shown = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.1}"));
    for Row { name, unit, ours, target, torch } in rows {
        let ratio = torch.map_or_else(|| "-".to_owned(), |torch| format!("{:.1}x", torch / ours));
        let ours = format!("{ours:.1} {unit}");
        text += &format!("\n{name:<44} {ours:>12} {:>12} {:>12} {ratio:>8}", shown(*target), shown(*torch));
    }
    text
}

fn json(rows: &[Row]) -> String {
    let row = |Row { name, unit, ours, .. }: &Row| format!(r#""{name} ({unit})":{ours:.3}"#);
    format!("{{{}}}", rows.iter().map(row).collect::<Vec<_>>().join(","))
}
