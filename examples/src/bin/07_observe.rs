//! Everything that shows what a program does to its GPU, written to a folder (the first argument, else a temporary one):
//! the table of device memory, two snapshots with the history and call stacks between them, and a time line for Perfetto.
//! What is timed by events of its own is printed, to be compared with the time line.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that shows something")]

use std::fs;
use std::path::{Path, PathBuf};

use cuda_api::timeline::{self, TimelineOptions};
use cuda_api::{
    CUDAGraph, CaptureMode, DeviceBuffer, DeviceIndex, Event, EventOptions, MemoryHistory, Stream, dump_snapshot,
    memory_summary, record_memory_history,
};
use examples::checks::{Failure, holds};
use examples::kernels::Axpy;

const MIB: usize = 1 << 20;

/// Some requests of all sorts of sizes; every third is given back. What they lead to can be had from PyTorch by
/// `torch.empty` of as many bytes.
fn allocate() -> Result<Vec<DeviceBuffer>, Failure> {
    let sizes = [1000, 3 * MIB, 30 * MIB, 513, 12 * MIB, 700_000, 2 * MIB, 100, 64 * MIB];
    let all: Result<Vec<_>, _> = sizes.into_iter().map(|size| DeviceBuffer::new(size, None)).collect();
    let kept = all?.into_iter().enumerate().filter(|(number, _)| number % 3 != 2);
    Ok(kept.map(|(_, buffer)| buffer).collect())
}

/// Memory of two streams, ordered by an event; some of it is used on the stream that it was not made for.
fn two_streams(first: &Stream, second: &Stream) -> Result<Vec<DeviceBuffer>, Failure> {
    let buffer = cuda_api::with_stream(first, || Ok(DeviceBuffer::new(8 * MIB, None)?))?;
    buffer.fill(.., 1, first)?;
    let event = Event::new(EventOptions::default());
    event.record(first)?;
    event.wait(second)?;
    let copy = cuda_api::with_stream(second, || Ok(DeviceBuffer::new(8 * MIB, None)?))?;
    copy.copy_from_buffer(0, &buffer, .., second)?;
    Ok(vec![buffer, copy])
}

/// A kernel between two events, and a graph of two fills; the milliseconds between the events.
fn work(kernel: &Axpy, stream: &Stream) -> Result<f32, Failure> {
    let (x, y) = cuda_api::with_stream(stream, || {
        Ok((DeviceBuffer::new(256 * MIB, None)?, DeviceBuffer::new(256 * MIB, None)?))
    })?;
    x.fill(.., 0, stream)?;
    y.fill(.., 0, stream)?;
    let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
    start.record(stream)?;
    kernel.launch(&y, &x, 2.0, stream)?;
    end.record(stream)?;
    let mut graph = CUDAGraph::new();
    graph.capture(stream, None, CaptureMode::Global, || -> cuda_api::Result<()> {
        x.fill(..MIB, 1, stream)?;
        y.fill(..MIB, 2, stream)
    })?;
    for _ in 0..3 {
        cuda_api::with_stream(stream, || Ok(graph.replay()?))?;
    }
    stream.synchronize()?;
    Ok(start.elapsed_time(&end)?)
}

fn folder() -> Result<PathBuf, Failure> {
    let folder = std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("observe"), PathBuf::from);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn observe(folder: &Path) -> Result<(), Failure> {
    let kept = allocate()?;
    fs::write(folder.join("summary.txt"), memory_summary(None, false)?)?;
    fs::write(folder.join("summary_abbreviated.txt"), memory_summary(None, true)?)?;
    record_memory_history(&MemoryHistory::default())?;
    dump_snapshot(folder.join("before.pickle"))?;
    let (first, second) = (Stream::new(None, 0)?, Stream::new(None, 0)?);
    let kernel = Axpy::new(DeviceIndex(0))?;
    let recorder = timeline::record(&TimelineOptions::default())?;
    let pair = two_streams(&first, &second)?;
    let milliseconds = work(&kernel, &second)?;
    let timeline = recorder.finish();
    dump_snapshot(folder.join("after.pickle"))?;
    timeline::export_chrome_trace(&timeline, folder.join("timeline.json"))?;
    holds("the time line has everything", timeline.len() > 20 && timeline.dropped() == 0)?;
    println!("kernel between events: {milliseconds} ms");
    println!("files in {}", folder.display());
    drop((kept, pair));
    Ok(())
}

fn main() -> Result<(), Failure> {
    observe(&folder()?)
}
