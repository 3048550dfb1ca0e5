//! A program with marks and ranges, for the test that reads what a tool was told of it. It prints what calls answer.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that reports")]

use c10_core::nvtx::{self, Attributes, Domain, Payload, RangeId};
use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, Result, Runtime, Stream};

fn main() -> Result<()> {
    testkit::make_default(testkit::Config::default()).expect("no runtime was chosen before");
    match nvtx::tool() {
        Ok(tool) => println!("tool {}", if tool.is_some() { "attached" } else { "none" }),
        Err(error) => println!("error {error}"),
    }
    if std::env::args().nth(1).as_deref() == Some("emit") {
        return what_a_runtime_does();
    }
    ranges_of_a_thread();
    ranges_of_threads();
    names();
    domains();
    on_a_stream()
}

/// The runtime shows what it does as ranges, until it is told not to.
fn what_a_runtime_does() -> Result<()> {
    println!("shown {}", nvtx::emit_ranges(true));
    let stream = Stream::new(None, 0)?;
    let buffer = DeviceBuffer::new(1 << 20, None)?;
    buffer.fill(.., 1, &stream)?;
    let event = stream.record_event()?;
    event.wait(None)?;
    event.synchronize()?;
    stream.synchronize()?;
    let mut graph = CUDAGraph::new();
    graph.capture(&stream, None, CaptureMode::Global, || buffer.fill(.., 2, &stream))?;
    graph.replay()?;
    drop(graph);
    Runtime::current().synchronize(0)?;
    drop(buffer);
    println!("shown {}", nvtx::emit_ranges(false));
    drop(DeviceBuffer::new(1 << 20, None)?);
    Ok(())
}

fn ranges_of_a_thread() {
    nvtx::mark("a mark");
    nvtx::mark("cut\0off");
    println!("push {} {}", nvtx::range_push("outer"), nvtx::range_push(String::from("inner")));
    println!("pop {} {}", nvtx::range_pop(), nvtx::range_pop());
    let _ = std::panic::catch_unwind(|| {
        nvtx::in_range(format_args!("step {}", 7), || std::panic::resume_unwind(Box::new(())))
    });
    println!("push {}", nvtx::range_push(c"after a panic"));
    println!("pop {}", nvtx::range_pop());
    let look = Attributes::default().color(0xff00_aa00).category(4).payload(Payload::F32(1.5));
    nvtx::mark_with("green", look);
}

fn ranges_of_threads() {
    let id: RangeId = nvtx::range_start("begun here");
    println!("id {}", id.0);
    std::thread::scope(|scope| scope.spawn(move || nvtx::range_end(id)).join().expect("the thread ends"));
}

fn names() {
    nvtx::name_category(4, "loading");
    nvtx::name_thread("main");
    nvtx::name_device(0, "the first");
}

fn domains() {
    let domain = Domain::new("loader");
    let other = Domain::new("other");
    domain.name_category(1, "read");
    let epoch = domain.register("epoch");
    drop(domain.range(&epoch, Attributes::default().payload(Payload::I64(-1))));
    other.mark(&epoch, Attributes::default());
    let id = other.range_start("wide", Attributes::default().category(2));
    other.range_end(id);
    drop(domain);
    nvtx::mark("the text keeps its domain");
    drop(epoch);
}

/// A tool names the range of a stream when the device comes to it, and once more at each replay of a graph.
fn on_a_stream() -> Result<()> {
    let stream = Stream::new(None, 0)?;
    nvtx::name_stream(&stream, "work");
    let range = nvtx::device_range_start("on the device", &stream)?;
    stream.synchronize()?;
    nvtx::mark("between");
    nvtx::device_range_end(range, &stream)?;
    stream.synchronize()?;
    let mut graph = CUDAGraph::new();
    graph.capture(&stream, None, CaptureMode::Global, || {
        stream.sleep(1)?;
        let range = nvtx::device_range_start("in a graph", &stream)?;
        nvtx::device_range_end(range, &stream)
    })?;
    nvtx::mark("captured");
    for _ in 0..2 {
        graph.replay()?;
    }
    Runtime::current().streams().current(0)?.synchronize()
}
