//! Capture and replay.

#![allow(clippy::unwrap_used, reason = "a failed step of a helper is a failed test")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, DeviceError, Error, GraphError, PoolId, Result, Stream};
use common::{DEVICE, Rig, code, config, rig};

const LEN: usize = 1 << 16;

fn graph(rig: &Rig) -> CUDAGraph {
    CUDAGraph::on(&rig.runtime, false)
}

/// Captures a copy of `from` to `to` by way of memory that is allocated and dropped inside the capture.
fn capture_copy(
    rig: &Rig,
    graph: &mut CUDAGraph,
    stream: &Stream,
    from: &DeviceBuffer,
    to: &DeviceBuffer,
) -> Result<()> {
    graph.capture(stream, None, CaptureMode::Global, || {
        let between = rig.runtime.memory().buffer(LEN, stream)?;
        between.copy_from_buffer(0, from, 0..LEN, stream)?;
        to.copy_from_buffer(0, &between, 0..LEN, stream)
    })
}

#[test]
fn a_replay_does_the_captured_work_on_what_is_there_then() {
    let rig = rig();
    let stream = rig.stream();
    let (from, to) =
        (rig.runtime.memory().buffer(LEN, &stream).unwrap(), rig.runtime.memory().buffer(LEN, &stream).unwrap());
    to.copy_from_slice(0, &[1; LEN]).unwrap();
    let mut graph = graph(&rig);
    capture_copy(&rig, &mut graph, &stream, &from, &to).unwrap();
    assert_eq!(graph.node_count(), 2);
    assert_eq!(to.to_vec().unwrap(), [1; LEN], "capturing does nothing");
    for value in [5, 6, 7] {
        from.copy_from_slice(0, &[value; LEN]).unwrap();
        graph.replay().unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        assert_eq!(to.to_vec().unwrap(), [value; LEN]);
    }
    assert!(rig.machine.take_reports().is_empty());
}

#[test]
fn work_on_streams_that_join_the_capture_is_captured_too() {
    let rig = rig();
    let (stream, side) = (rig.stream(), rig.stream());
    let buffer = rig.runtime.memory().buffer(2 * LEN, &stream).unwrap();
    let mut graph = graph(&rig);
    graph
        .capture(&stream, None, CaptureMode::ThreadLocal, || {
            side.wait_stream(&stream)?;
            buffer.fill(0..LEN, 1, &side)?;
            buffer.fill(LEN..2 * LEN, 2, &stream)?;
            stream.wait_stream(&side)
        })
        .unwrap();
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [[1; LEN], [2; LEN]].concat());
}

#[test]
fn a_graph_keeps_its_memory_until_it_is_reset() {
    let rig = rig();
    let stream = rig.stream();
    let (from, to) =
        (rig.runtime.memory().buffer(LEN, &stream).unwrap(), rig.runtime.memory().buffer(LEN, &stream).unwrap());
    let reserved = rig.reserved_bytes();
    let mut graph = graph(&rig);
    capture_copy(&rig, &mut graph, &stream, &from, &to).unwrap();
    assert_eq!(rig.reserved_bytes(), reserved + (2 << 20));
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.reserved_bytes(), reserved + (2 << 20), "a replay still needs it");
    let pool = graph.pool().unwrap();
    assert_eq!((pool.0 > 0, pool.1), (true, 0));
    graph.replay().unwrap();
    graph.reset().unwrap();
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.reserved_bytes(), reserved);
    assert!(rig.runtime.is_valid());
    capture_copy(&rig, &mut graph, &stream, &from, &to).unwrap();
    drop(graph);
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.reserved_bytes(), reserved);
    let live = rig.machine.live();
    assert_eq!((live.graphs, live.graph_execs), (0, 0));
}

#[test]
fn buffers_and_pinned_memory_that_a_graph_uses_outlive_their_handles() {
    let rig = rig();
    let stream = rig.stream();
    let result = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let mut graph = graph(&rig);
    {
        let input = rig.runtime.pinned().buffer(LEN).unwrap();
        input.write(0, &[8; LEN]).unwrap();
        let staging = rig.runtime.memory().buffer(LEN, &stream).unwrap();
        graph
            .capture(&stream, None, CaptureMode::Relaxed, || {
                staging.copy_from_pinned(0, &input, 0..LEN, &stream)?;
                result.copy_from_buffer(0, &staging, 0..LEN, &stream)
            })
            .unwrap();
    }
    rig.runtime.memory().empty_cache().unwrap();
    rig.runtime.pinned().empty_cache().unwrap();
    let other = rig.runtime.pinned().buffer(LEN).unwrap();
    other.write(0, &[9; LEN]).unwrap();
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(result.to_vec().unwrap(), [8; LEN]);
    graph.replay().unwrap();
    drop(graph);
    rig.runtime.synchronize(DEVICE).unwrap();
    rig.machine.settle();
    rig.runtime.synchronize(DEVICE).unwrap();
    drop((result, other));
    rig.runtime.pinned().empty_cache().unwrap();
    rig.runtime.memory().empty_cache().unwrap();
    let live = rig.machine.live();
    assert_eq!((live.pinned, live.allocations, rig.allocated_bytes()), (0, 0, 0));
    assert!(rig.machine.take_reports().is_empty());
}

/// A capture may know pinned memory only by an address inside it, as a library does that receives pointers.
#[test]
fn pinned_memory_named_by_an_address_stays_with_the_pool_of_the_graphs() {
    let rig = rig();
    let (stream, pool, pinned) = (rig.stream(), PoolId::handle(), rig.runtime.pinned());
    let (mut first, mut second) = (graph(&rig), graph(&rig));
    let result = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let used = pinned.buffer(LEN).unwrap();
    let address = used.address();
    let body = || -> Result<()> {
        assert!(pinned.record_stream(address + 1, &stream)?);
        result.fill(0..LEN, 1, &stream)
    };
    first.capture(&stream, Some(pool), CaptureMode::Relaxed, body).unwrap();
    second.capture(&stream, Some(pool), CaptureMode::Relaxed, || result.fill(0..LEN, 2, &stream)).unwrap();
    drop(used);
    let settle = || {
        rig.runtime.synchronize(DEVICE).unwrap();
        rig.machine.settle();
        rig.runtime.synchronize(DEVICE).unwrap();
    };
    first.replay().unwrap();
    settle();
    assert_ne!(pinned.buffer(LEN).unwrap().address(), address, "the graph reads it");
    first.reset().unwrap();
    settle();
    assert_ne!(pinned.buffer(LEN).unwrap().address(), address, "another graph uses the pool");
    second.reset().unwrap();
    settle();
    let others = [(), ()].map(|()| pinned.buffer(LEN).unwrap());
    assert!(others.iter().any(|other| other.address() == address), "nobody uses it any more");
    assert!(!pinned.record_stream(0x10, &stream).unwrap());
    assert!(rig.runtime.is_valid());
}

#[test]
fn graphs_can_share_a_pool() {
    let rig = rig();
    let stream = rig.stream();
    let pool = PoolId::handle();
    let (mut first, mut second) = (graph(&rig), graph(&rig));
    let body = || -> Result<()> { rig.runtime.memory().buffer(LEN, &stream)?.fill(0..LEN, 1, &stream) };
    first.capture(&stream, Some(pool), CaptureMode::Global, body).unwrap();
    let reserved = rig.reserved_bytes();
    second.capture(&stream, Some(pool), CaptureMode::Global, body).unwrap();
    assert_eq!((first.pool().unwrap(), second.pool().unwrap()), (pool, pool));
    assert_eq!(rig.reserved_bytes(), reserved);
    first.reset().unwrap();
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.reserved_bytes(), reserved, "the other graph uses it");
    second.reset().unwrap();
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.reserved_bytes(), 0);
}

#[test]
fn no_pool_is_a_pool_of_ones_own() {
    let rig = rig();
    let stream = rig.stream();
    let mut graph = graph(&rig);
    graph.capture(&stream, Some(PoolId(0, 0)), CaptureMode::Global, || -> Result<()> { Ok(()) }).unwrap();
    let pool = graph.pool().unwrap();
    assert!(pool.0 > 0 && pool.1 == 0, "{pool:?}");
}

/// Two graphs use the same memory of a shared pool one after the other. Whether both got their own results.
fn replay_both(seed: u64, at_the_same_time: bool) -> bool {
    let rig = Rig::new(config().seed(seed));
    let (stream, side) = (rig.stream(), rig.stream());
    let results =
        [rig.runtime.memory().buffer(LEN, &stream).unwrap(), rig.runtime.memory().buffer(LEN, &stream).unwrap()];
    let pool = PoolId::handle();
    let capture = |value: u8, result: &DeviceBuffer| {
        let mut graph = graph(&rig);
        let body = || -> Result<()> {
            let between = rig.runtime.memory().buffer(LEN, &stream)?;
            between.fill(0..LEN, value, &stream)?;
            result.copy_from_buffer(0, &between, 0..LEN, &stream)
        };
        graph.capture(&stream, Some(pool), CaptureMode::Global, body).map(|()| graph)
    };
    let (mut first, mut second) = (capture(1, &results[0]).unwrap(), capture(2, &results[1]).unwrap());
    let current = rig.runtime.streams().guard(&stream).unwrap();
    first.replay().unwrap();
    let elsewhere = at_the_same_time.then(|| rig.runtime.streams().guard(&side).unwrap());
    second.replay().unwrap();
    drop((elsewhere, current));
    rig.runtime.synchronize(DEVICE).unwrap();
    results.iter().zip([1, 2]).all(|(result, value)| result.to_vec().unwrap() == [value; LEN])
}

#[test]
fn graphs_that_share_a_pool_must_not_run_at_the_same_time() {
    assert!((0..30).all(|seed| replay_both(seed, false)), "one after the other each has its own result");
    assert!(!(0..30).all(|seed| replay_both(seed, true)), "nothing orders them: some orders mix them up");
}

#[test]
fn misuse_is_told_in_torchs_words() {
    let rig = rig();
    let stream = rig.stream();
    let mut graph = graph(&rig);
    let text = |result: Result<()>| result.unwrap_err().to_string();
    assert_eq!(text(graph.replay()), "Called CUDAGraph::replay without a preceding successful capture.");
    assert_eq!(text(graph.pool().map(drop)), "Called CUDAGraph::pool() without a preceding successful capture.");
    assert_eq!(text(graph.instantiate()), "capture_end() must have been called before calling instantiate");
    assert_eq!(graph.capture_end(), Err(Error::Graph(GraphError::NotCapturing)));
    assert_eq!(
        text(graph.capture_begin(None, CaptureMode::Global)),
        "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the \
         default stream.)"
    );
    let guard = rig.runtime.streams().guard(&stream).unwrap();
    graph.capture_begin(None, CaptureMode::Global).unwrap();
    assert!(rig.runtime.streams().is_current_capturing().unwrap());
    assert_eq!(graph.capture_begin(None, CaptureMode::Global), Err(Error::Graph(GraphError::IsCapturing)));
    {
        let _elsewhere = rig.runtime.streams().guard(&rig.runtime.streams().default(DEVICE).unwrap()).unwrap();
        assert_eq!(text(graph.capture_end()), "Capture must end on the same stream it began on.");
    }
    graph.capture_end().unwrap();
    assert_eq!(graph.node_count(), 0, "nothing was captured, which the caller can see");
    assert_eq!(
        text(graph.capture_begin(None, CaptureMode::Global)),
        "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
    );
    assert_eq!(
        text(graph.instantiate()),
        "instantiate() is intended to be called by the user only when keep_graph=true"
    );
    drop(guard);
    graph.replay().unwrap();
    assert_eq!(
        text("globe".parse::<CaptureMode>().map(drop)),
        "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got globe"
    );
    assert_eq!("thread_local".parse(), Ok(CaptureMode::ThreadLocal));
}

#[test]
fn a_kept_graph_is_instantiated_by_hand_or_by_its_first_replay() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let mut graph = CUDAGraph::on(&rig.runtime, true);
    graph.capture(&stream, None, CaptureMode::Global, || buffer.fill(0..LEN, 4, &stream)).unwrap();
    assert_eq!((rig.machine.live().graphs, rig.machine.live().graph_execs), (1, 0));
    graph.replay().unwrap();
    graph.instantiate().unwrap();
    graph.instantiate().unwrap();
    assert_eq!((rig.machine.live().graphs, rig.machine.live().graph_execs), (1, 1));
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [4; LEN]);
}

#[test]
fn a_forbidden_call_spoils_the_capture_and_nothing_else() {
    let rig = rig();
    let stream = rig.stream();
    let mut graph = graph(&rig);
    let guard = rig.runtime.streams().guard(&stream).unwrap();
    graph.capture_begin(None, CaptureMode::Global).unwrap();
    let inside = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert_eq!(error.error_code(), Some(900));
    assert!(error.to_string().starts_with("CUDA error: operation not permitted when stream is capturing"));
    assert_eq!(code(graph.capture_end()), 901);
    assert!(!graph.is_capturing() && !stream.is_capturing().unwrap());
    assert_eq!(graph.replay(), Err(Error::Graph(GraphError::ReplayWithoutCapture)));
    drop((guard, inside));
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.reserved_bytes(), 0, "the pool of a spoilt capture is given up");
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    graph.capture(&stream, None, CaptureMode::Global, || buffer.fill(0..LEN, 1, &stream)).unwrap();
    graph.replay().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [1; LEN]);
}

#[test]
fn plain_host_memory_has_no_place_in_a_graph() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let mut graph = graph(&rig);
    graph
        .capture(&stream, None, CaptureMode::Global, || {
            let refused = Err(Error::Graph(GraphError::UnpinnedCopy));
            assert_eq!(buffer.copy_from_slice(0, &[1; LEN]), refused);
            assert_eq!(buffer.copy_to_slice(0, &mut [1; LEN]), refused);
            buffer.fill(0..LEN, 2, &stream)
        })
        .unwrap();
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [2; LEN]);
}

#[test]
fn allocations_that_need_the_driver_do_not_spoil_a_capture() {
    let rig = rig();
    let (stream, other) = (rig.stream(), rig.stream());
    let mut graph = graph(&rig);
    graph
        .capture(&stream, None, CaptureMode::Global, || {
            let large = rig.runtime.memory().buffer(30 << 20, &stream)?;
            let elsewhere = rig.runtime.memory().buffer(40 << 20, &other)?;
            drop(elsewhere);
            rig.runtime.memory().empty_cache()?;
            rig.runtime.pinned().buffer(100)?;
            large.fill(0..100, 1, &stream)
        })
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _bound = rig.machine.bind();
            graph.reset().unwrap();
        });
    });
    assert!(rig.runtime.is_valid());
}

#[test]
fn errors_and_panics_end_the_capture() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let mut graph = graph(&rig);
    let failed: Result<()> = graph.capture(&stream, None, CaptureMode::Global, || {
        buffer.fill(0..LEN, 1, &stream)?;
        Err(Error::Device(DeviceError::InvalidId))
    });
    assert_eq!(failed, Err(Error::Device(DeviceError::InvalidId)));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        graph.capture::<(), Error>(&stream, None, CaptureMode::Global, || {
            let _dropped_by_the_panic = rig.runtime.memory().buffer(LEN, &stream)?;
            panic!("inside a capture")
        })
    }));
    assert!(panicked.is_err());
    assert!(!graph.is_capturing() && !stream.is_capturing().unwrap());
    assert!(rig.runtime.streams().current(DEVICE).unwrap().is_default());
    assert_eq!(graph.replay(), Err(Error::Graph(GraphError::ReplayWithoutCapture)));
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!((rig.reserved_bytes(), rig.machine.live().graphs), (2 << 20, 0));
    capture_copy(&rig, &mut graph, &stream, &buffer, &buffer).unwrap();
    {
        let mut abandoned = CUDAGraph::on(&rig.runtime, false);
        let capture = abandoned.capture_guard(&stream, None, CaptureMode::Global).unwrap();
        drop(capture);
        abandoned.replay().unwrap();
    }
    {
        let _current = rig.runtime.streams().guard(&stream).unwrap();
        let mut forgotten = CUDAGraph::on(&rig.runtime, false);
        forgotten.capture_begin(None, CaptureMode::Global).unwrap();
    }
    assert!(!stream.is_capturing().unwrap());
    assert!(rig.runtime.is_valid());
}

#[test]
fn another_thread_cannot_end_a_capture_and_breaks_nothing_else() {
    let rig = rig();
    let stream = rig.stream();
    let mut graph = graph(&rig);
    let guard = rig.runtime.streams().guard(&stream).unwrap();
    graph.capture_begin(None, CaptureMode::ThreadLocal).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _bound = rig.machine.bind();
            let _current = rig.runtime.streams().guard(&stream).unwrap();
            code(graph.capture_end())
        });
        assert_eq!(other.join().unwrap(), 908);
    });
    // Whether the capture goes on is the driver's decision; graph and stream agree on it, and both can be used again.
    assert_eq!(graph.is_capturing(), stream.is_capturing().unwrap());
    graph.reset().unwrap();
    assert!(!graph.is_capturing() && !stream.is_capturing().unwrap());
    graph.capture_begin(None, CaptureMode::ThreadLocal).unwrap();
    graph.capture_end().unwrap();
    drop(guard);
    graph.replay().unwrap();
    assert!(rig.runtime.is_valid());
}

#[test]
fn capture_and_replay_under_old_and_new_drivers() {
    for version in [11080, 12020, 13000] {
        let rig = Rig::new(config().driver_version(cuda_sys::CudaVersion(version)));
        let stream = rig.stream();
        let (from, to) =
            (rig.runtime.memory().buffer(LEN, &stream).unwrap(), rig.runtime.memory().buffer(LEN, &stream).unwrap());
        from.copy_from_slice(0, &[3; LEN]).unwrap();
        let mut graph = graph(&rig);
        capture_copy(&rig, &mut graph, &stream, &from, &to).unwrap();
        graph.replay().unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        assert_eq!(to.to_vec().unwrap(), [3; LEN], "driver {version}");
    }
}
