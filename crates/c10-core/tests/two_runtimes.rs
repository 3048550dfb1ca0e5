//! Two runtimes in one process on one machine: what one does leaves the captures of the other alone.

mod common;

use c10_core::{CUDAGraph, CaptureMode, Event, EventOptions, Result, Runtime};
use common::{DEVICE, Rig, code, rig, runtime};

const MIB: usize = 1 << 20;

type Action = fn(&Runtime) -> Result<()>;

/// What a program does with a runtime; most of it is forbidden while any stream captures in the usual mode.
const ACTIONS: &[(&str, Action)] = &[
    ("new memory and back", |runtime| {
        let stream = runtime.streams().default(DEVICE)?;
        drop(runtime.memory().buffer(50 * MIB, &stream)?);
        runtime.memory().empty_cache()
    }),
    ("memory without the cache", |runtime| {
        let stream = runtime.streams().default(DEVICE)?;
        runtime.memory().enable_caching(false);
        let freed = runtime.memory().alloc(4096, &stream).and_then(|address| runtime.memory().free(address));
        runtime.memory().enable_caching(true);
        freed
    }),
    ("memory that several streams used", |runtime| {
        let (first, second) = (runtime.streams().pooled(DEVICE, 0)?, runtime.streams().pooled(DEVICE, 0)?);
        let buffer = runtime.memory().buffer(4096, &first)?;
        buffer.fill(0..4096, 1, &second)?;
        drop(buffer);
        (0..3).try_for_each(|_| runtime.memory().buffer(4096, &first).map(drop))?;
        runtime.memory().empty_cache()
    }),
    ("pinned memory", |runtime| {
        let stream = runtime.streams().pooled(DEVICE, 0)?;
        let (pinned, buffer) = (runtime.pinned().buffer(4096)?, runtime.memory().buffer(4096, &stream)?);
        buffer.copy_from_pinned(0, &pinned, 0..4096, &stream)?;
        drop(pinned);
        drop(runtime.pinned().buffer(4096)?);
        runtime.pinned().empty_cache()
    }),
    ("streams", |runtime| {
        let stream = runtime.streams().pooled(DEVICE, -1)?;
        stream.query()?;
        stream.synchronize()
    }),
    ("events", |runtime| {
        let stream = runtime.streams().pooled(DEVICE, 0)?;
        let event = Event::on(runtime, EventOptions::TIMING);
        event.record(&stream)?;
        event.query()?;
        event.synchronize()
    }),
    ("copies of plain memory", |runtime| {
        let stream = runtime.streams().pooled(DEVICE, 0)?;
        let buffer = runtime.memory().buffer(64, &stream)?;
        buffer.copy_from_slice(0, &[7; 64])?;
        buffer.to_vec().map(|bytes| assert_eq!(bytes, [7; 64]))
    }),
    ("a kernel", |runtime| runtime.streams().pooled(DEVICE, 0)?.sleep(1000)),
    ("a graph", |runtime| {
        let stream = runtime.streams().pooled(DEVICE, 0)?;
        let buffer = runtime.memory().buffer(64, &stream)?;
        let mut graph = CUDAGraph::on(runtime, false);
        graph.capture(&stream, None, CaptureMode::Global, || buffer.fill(0..64, 3, &stream))?;
        let _current = stream.guard();
        graph.replay()?;
        stream.synchronize()
    }),
    ("the end of a runtime", |_| {
        let ending = runtime();
        let stream = ending.streams().pooled(DEVICE, 0)?;
        let buffer = ending.memory().buffer(4096, &stream)?;
        buffer.fill(0..4096, 1, &stream)?;
        drop(ending.pinned().buffer(4096)?);
        Ok(())
    }),
];

/// Captures something with the runtime of the rig while `other` runs, and replays it; what `other` answers, unless the
/// capture was spoilt.
fn during_a_capture<T>(rig: &Rig, other: impl FnOnce() -> T) -> Result<T> {
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(64, &stream)?;
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let answer = graph.capture(&stream, None, CaptureMode::Global, || {
        buffer.fill(0..64, 9, &stream)?;
        let answer = other();
        buffer.fill(0..32, 8, &stream).map(|()| answer)
    })?;
    assert_eq!(graph.node_count(), 2);
    let _current = stream.guard();
    graph.replay()?;
    stream.synchronize()?;
    assert_eq!(buffer.to_vec()?[31..33], [8, 9]);
    Ok(answer)
}

#[test]
fn one_runtime_spoils_no_capture_of_the_other() {
    for (name, action) in ACTIONS {
        let (rig, other) = (rig(), runtime());
        other.init().unwrap();
        let here = during_a_capture(&rig, || action(&other));
        assert_eq!(here, Ok(Ok(())), "{name}, on the thread that captures");
        let there = during_a_capture(&rig, || {
            std::thread::scope(|scope| {
                let act = || {
                    let _bound = rig.machine.bind();
                    action(&other)
                };
                scope.spawn(act).join().expect("no panic")
            })
        });
        assert_eq!(there, Ok(Ok(())), "{name}, on another thread");
        assert!(rig.runtime.is_valid() && other.is_valid(), "{name}");
    }
}

#[test]
fn waiting_for_the_device_is_refused_and_spoils_nothing() {
    let (rig, other) = (rig(), runtime());
    drop(other.memory().buffer(64, &other.streams().default(DEVICE).unwrap()).unwrap());
    assert_eq!(code(during_a_capture(&rig, || other.synchronize(DEVICE)).unwrap()), 900);
    other.synchronize(DEVICE).unwrap();
}

#[test]
fn no_call_is_added_while_nobody_else_captures() {
    for (name, action) in ACTIONS {
        let calls_beside = |others: usize| {
            let rig = rig();
            let beside: Vec<Runtime> = (0..others).map(|_| runtime()).collect();
            beside.iter().for_each(|other| other.init().unwrap());
            let before = rig.machine.calls().iter().map(|(.., count)| count).sum::<u64>();
            action(&rig.runtime).unwrap();
            rig.machine.calls().iter().map(|(.., count)| count).sum::<u64>() - before
        };
        assert_eq!(calls_beside(0), calls_beside(2), "{name}");
    }
}
