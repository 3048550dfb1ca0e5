//! Every way out of a capture: afterwards the stream is as before, the allocator routes nothing, the next capture works,
//! and in the end nothing is left on the machine.
#![allow(clippy::unwrap_used, reason = "a failed step of a helper is a failed test")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use c10_core::{CUDAGraph, CaptureMode, Error, GraphError, MemPoolOptions, PoolError, PoolId, Result, Stream};
use common::{DEVICE, Rig, code, config, rig};
use cuda_sim::{Fault, LiveHandles};
use cuda_sys::CUresult;

const LEN: usize = 1 << 16;
const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

fn graph(rig: &Rig) -> CUDAGraph {
    CUDAGraph::on(&rig.runtime, false)
}

/// A name, the code expected, and what is done.
type Act<'a> = (&'a str, u32, &'a dyn Fn() -> Result<()>);

/// Calls that give memory back to the driver, made so far.
fn releases(rig: &Rig) -> u64 {
    let names = ["cuMemFree_v2", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree"];
    rig.machine.calls().iter().filter(|(call, ..)| names.contains(call)).map(|(.., count)| count).sum()
}

/// Nothing captures, memory comes from the default pools, and a capture works; then nothing is left.
fn expect_normal<const N: usize>(rig: Rig, streams: [Stream; N]) {
    let stream = &streams[0];
    assert!(!stream.is_capturing().unwrap());
    assert!(rig.runtime.streams().current(DEVICE).unwrap().is_default());
    {
        let before = rig.runtime.memory().snapshot(Some(PoolId(0, 0))).iter().map(|s| s.allocated_size).sum::<u64>();
        let buffer = rig.runtime.memory().buffer(LEN, stream).unwrap();
        let after = rig.runtime.memory().snapshot(Some(PoolId(0, 0))).iter().map(|s| s.allocated_size).sum::<u64>();
        assert_eq!(after - before, LEN as u64, "memory is of the default pools");
        let mut again = graph(&rig);
        again.capture(stream, None, CaptureMode::Global, || buffer.fill(0..LEN, 9, stream)).unwrap();
        again.replay().unwrap();
        stream.synchronize().unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [9; LEN]);
    }
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!((rig.runtime.inconsistency(), rig.reserved_bytes()), (None, 0));
    drop(streams);
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn the_default_stream_captures_nothing() {
    let rig = rig();
    let stream = rig.stream();
    let default = rig.runtime.streams().default(DEVICE).unwrap();
    for mode in MODES {
        let refused = graph(&rig).capture(&default, None, mode, || Ok::<_, Error>(()));
        assert_eq!(refused, Err(Error::Graph(GraphError::OnDefaultStream)));
    }
    expect_normal(rig, [stream, default]);
}

#[test]
fn a_capture_inside_a_capture_is_refused_and_the_outer_one_goes_on() {
    let rig = rig();
    let (stream, other) = (rig.stream(), rig.stream());
    let (buffer, second) =
        (rig.runtime.memory().buffer(LEN, &stream).unwrap(), rig.runtime.memory().buffer(LEN, &other).unwrap());
    let (mut outer, mut inner, mut beside) = (graph(&rig), graph(&rig), graph(&rig));
    outer
        .capture(&stream, None, CaptureMode::ThreadLocal, || {
            let refused = inner.capture(&stream, None, CaptureMode::ThreadLocal, || Ok::<_, Error>(()));
            assert_eq!(code(refused), 401);
            assert!(stream.is_capturing()?);
            // Another stream can be captured at the same time, into a graph and a pool of its own.
            beside.capture(&other, None, CaptureMode::ThreadLocal, || {
                let between = rig.runtime.memory().buffer(LEN, &other)?;
                between.fill(0..LEN, 7, &other)?;
                second.copy_from_buffer(0, &between, 0..LEN, &other)
            })?;
            buffer.fill(0..LEN, 8, &stream)
        })
        .unwrap();
    assert_eq!((outer.node_count(), beside.node_count()), (1, 2));
    outer.replay().unwrap();
    beside.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!((buffer.to_vec().unwrap(), second.to_vec().unwrap()), (vec![8; LEN], vec![7; LEN]));
    let pool = PoolId::handle();
    let twice = graph(&rig).capture(&stream, Some(pool), CaptureMode::Relaxed, || {
        graph(&rig).capture(&other, Some(pool), CaptureMode::Relaxed, || Ok::<_, Error>(()))
    });
    assert_eq!(twice, Err(Error::Pool(PoolError::AlreadyRecording)));
    drop((outer, inner, beside, buffer, second));
    expect_normal(rig, [stream, other]);
}

#[test]
fn a_fork_that_does_not_join_spoils_the_capture() {
    let rig = rig();
    let (stream, side) = (rig.stream(), rig.stream());
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let mut graph = graph(&rig);
    let failed = graph.capture(&stream, None, CaptureMode::Global, || {
        side.wait_stream(&stream)?;
        let inside = rig.runtime.memory().buffer(LEN, &side)?;
        inside.fill(0..LEN, 1, &side)?;
        buffer.fill(0..LEN, 1, &stream)
    });
    assert_eq!(code(failed), 904);
    assert!(!graph.is_capturing() && !side.is_capturing().unwrap());
    drop((graph, buffer));
    expect_normal(rig, [stream, side]);
}

#[test]
fn forbidden_calls_keep_their_own_error_and_end_the_capture() {
    let rig = rig();
    let (stream, side) = (rig.stream(), rig.stream());
    let event = side.record_event().unwrap();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let runtime = &rig.runtime;
    let acts: [Act<'_>; 4] = [
        ("synchronize the stream", 900, &|| stream.synchronize()),
        ("ask the stream", 900, &|| stream.query().map(drop)),
        ("synchronize the device", 900, &|| runtime.synchronize(DEVICE)),
        ("synchronize another stream's event", 900, &|| event.synchronize()),
    ];
    for (name, expected, act) in acts {
        let mut graph = graph(&rig);
        let error = graph.capture(&stream, None, CaptureMode::Global, || {
            let inside = runtime.memory().buffer(LEN, &stream)?;
            inside.fill(0..LEN, 1, &stream)?;
            act()
        });
        assert_eq!(code(error), expected, "{name}");
        assert!(!graph.is_capturing() && !stream.is_capturing().unwrap(), "{name}");
        // The body may have passed the error over: then the end tells.
        let ended = graph.capture(&stream, None, CaptureMode::Global, || {
            let _ = act();
            Ok::<_, Error>(())
        });
        assert_eq!(code(ended), 901, "{name}");
        graph.capture(&stream, None, CaptureMode::Global, || buffer.fill(0..LEN, 2, &stream)).unwrap();
    }
    drop((buffer, event));
    expect_normal(rig, [stream, side]);
}

#[test]
fn another_threads_synchronization_spoils_a_capture_and_nothing_else() {
    for mode in MODES {
        let rig = rig();
        let stream = rig.stream();
        let mut graph = graph(&rig);
        let (runtime, machine) = (&rig.runtime, &rig.machine);
        let ended = graph.capture(&stream, None, mode, || {
            let inside = runtime.memory().buffer(LEN, &stream)?;
            inside.fill(0..LEN, 1, &stream)?;
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let _bound = machine.bind();
                    // What the allocator does for this thread disturbs nobody.
                    drop(runtime.memory().buffer(30 << 20, &runtime.streams().pooled(DEVICE, 0).unwrap()));
                    runtime.memory().empty_cache().unwrap();
                    code(runtime.synchronize(DEVICE))
                });
                assert_eq!(other.join().unwrap(), 900);
            });
            Ok::<_, Error>(())
        });
        assert_eq!(code(ended), 901, "{mode:?}");
        drop(graph);
        expect_normal(rig, [stream]);
    }
}

#[test]
fn another_threads_allocations_leave_a_capture_alone() {
    for mode in MODES {
        let rig = rig();
        let (stream, side) = (rig.stream(), rig.stream());
        let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
        let mut graph = graph(&rig);
        let (runtime, machine) = (&rig.runtime, &rig.machine);
        graph
            .capture(&stream, None, mode, || {
                buffer.fill(0..LEN, 3, &stream)?;
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let _bound = machine.bind();
                        let large = runtime.memory().buffer(50 << 20, &side).unwrap();
                        large.fill(0..LEN, 1, &side).unwrap();
                        large.record_stream(&runtime.streams().pooled(DEVICE, 0).unwrap()).unwrap();
                        drop(large);
                        drop(runtime.pinned().buffer(LEN).unwrap());
                        runtime.memory().empty_cache().unwrap();
                    });
                });
                Ok::<_, Error>(())
            })
            .unwrap();
        graph.replay().unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [3; LEN]);
        drop((graph, buffer));
        rig.runtime.pinned().empty_cache().unwrap();
        expect_normal(rig, [stream, side]);
    }
}

#[test]
fn guards_end_the_capture_on_every_path() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let mut dropped = graph(&rig);
    drop(dropped.capture_guard(&stream, None, CaptureMode::Global).unwrap());
    dropped.replay().unwrap();
    let mut panicked = graph(&rig);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _capture = panicked.capture_guard(&stream, None, CaptureMode::Global).unwrap();
        buffer.fill(0..LEN, 1, &stream).unwrap();
        panic!("inside a capture");
    }));
    assert!(caught.is_err());
    assert_eq!(panicked.replay(), Err(Error::Graph(GraphError::ReplayWithoutCapture)));
    assert!(!stream.is_capturing().unwrap());
    let guard = rig.runtime.streams().guard(&stream).unwrap();
    for mode in MODES {
        let mut forgotten = graph(&rig);
        forgotten.capture_begin(None, mode).unwrap();
        buffer.fill(0..LEN, 1, &stream).unwrap();
        drop(forgotten);
        assert!(!stream.is_capturing().unwrap(), "{mode:?}");
        let mut elsewhere = graph(&rig);
        elsewhere.capture_begin(None, mode).unwrap();
        let machine = &rig.machine;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _bound = machine.bind();
                drop(elsewhere);
            });
        });
        assert!(!stream.is_capturing().unwrap(), "{mode:?}, dropped by another thread");
    }
    drop((guard, dropped, panicked, buffer));
    expect_normal(rig, [stream]);
}

#[test]
fn a_capture_that_the_driver_does_not_end_is_ended_later() {
    let rig = rig();
    let stream = rig.stream();
    let guard = rig.runtime.streams().guard(&stream).unwrap();
    let mut graph = graph(&rig);
    graph.capture_begin(None, CaptureMode::Global).unwrap();
    for occurrence in 1..=3 {
        let code = CUresult::CUDA_ERROR_NOT_PERMITTED;
        rig.machine.inject(Fault { call: "cuStreamEndCapture", occurrence, code });
    }
    assert_eq!(code(graph.capture_end()), 800);
    assert!(graph.is_capturing() && stream.is_capturing().unwrap());
    drop(graph);
    assert!(stream.is_capturing().unwrap(), "it could not be ended");
    rig.machine.clear_faults();
    let mut next = CUDAGraph::on(&rig.runtime, false);
    next.capture_begin(None, CaptureMode::Global).unwrap();
    next.capture_end().unwrap();
    drop((guard, next));
    expect_normal(rig, [stream]);
}

#[test]
fn running_out_of_memory_leaves_the_capture_valid() {
    let rig = Rig::new(config().capacity(1 << 30));
    let stream = rig.stream();
    let result = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let cached = rig.runtime.memory().buffer(600 << 20, &stream).unwrap();
    drop(cached);
    let mut graph = graph(&rig);
    let before = releases(&rig);
    graph
        .capture(&stream, None, CaptureMode::Global, || {
            let error = rig.runtime.memory().buffer(700 << 20, &stream).unwrap_err();
            assert!(error.is_out_of_memory(), "{error}");
            let smaller = rig.runtime.memory().buffer(LEN, &stream)?;
            smaller.fill(0..LEN, 5, &stream)?;
            result.copy_from_buffer(0, &smaller, 0..LEN, &stream)
        })
        .unwrap();
    assert_eq!(releases(&rig), before, "what is cached was not given back for it");
    let after = rig.runtime.memory().buffer(700 << 20, &stream).unwrap();
    assert!(releases(&rig) > before, "and is now");
    graph.replay().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(result.to_vec().unwrap(), [5; LEN]);
    drop((graph, after, result));
    expect_normal(rig, [stream]);
}

#[test]
fn nothing_goes_back_to_the_driver_while_a_graph_is_captured() {
    let settings = ["", "expandable_segments:True", "max_split_size_mb:32", "garbage_collection_threshold:0.1"];
    for setting in settings {
        let rig = Rig::new(config().devices(2).capacity(1 << 30));
        rig.runtime.memory().set_settings(setting).unwrap();
        rig.runtime.memory().set_fraction(0.9, DEVICE).unwrap();
        let (stream, side) = (rig.stream(), rig.stream());
        let elsewhere = rig.runtime.streams().pooled(c10_core::DeviceIndex(1), 0).unwrap();
        let given_up = rig.runtime.mem_pools().create(MemPoolOptions::default()).unwrap();
        let inside = rig.runtime.mem_pools().with(&given_up, DEVICE, || rig.runtime.memory().buffer(40 << 20, &stream));
        // All of this is cached, in a pool, on another device, in sizes that are never split.
        drop((inside, rig.runtime.memory().buffer(100 << 20, &elsewhere)));
        drop((
            rig.runtime.memory().buffer(300 << 20, &stream).unwrap(),
            rig.runtime.memory().buffer(200 << 20, &side).unwrap(),
        ));
        let before = releases(&rig);
        let mut graph = graph(&rig);
        graph
            .capture(&stream, None, CaptureMode::Global, || {
                rig.runtime.memory().empty_cache()?;
                drop(given_up);
                rig.runtime.memory().empty_cache()?;
                // No room is made for these: they fit or they fail.
                for (stream, size) in [(&stream, 500 << 20), (&side, 600 << 20), (&elsewhere, 950 << 20)] {
                    let made = rig.runtime.memory().buffer(size, stream);
                    assert!(made.as_ref().err().is_none_or(Error::is_out_of_memory), "{setting}: {made:?}");
                }
                assert_eq!(releases(&rig), before, "{setting}");
                Ok::<_, Error>(())
            })
            .unwrap();
        rig.runtime.memory().empty_cache().unwrap();
        assert!(releases(&rig) > before, "{setting}");
        drop(graph);
        expect_normal(rig, [stream, side, elsewhere]);
    }
}

#[test]
fn memory_that_is_not_cached_is_given_back_after_the_capture() {
    let rig = rig();
    let (stream, mut graph) = (rig.stream(), graph(&rig));
    rig.runtime.memory().enable_caching(false);
    let (plain, result) =
        (rig.runtime.memory().buffer(LEN, &stream).unwrap(), rig.runtime.memory().buffer(LEN, &stream).unwrap());
    let before = releases(&rig);
    graph
        .capture(&stream, None, CaptureMode::Global, || {
            drop(plain);
            let inside = rig.runtime.memory().buffer(LEN, &stream)?;
            inside.fill(0..LEN, 6, &stream)?;
            result.copy_from_buffer(0, &inside, 0..LEN, &stream)
        })
        .unwrap();
    assert_eq!(releases(&rig), before);
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(releases(&rig), before + 1, "what the graph uses stays");
    graph.replay().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(result.to_vec().unwrap(), [6; LEN]);
    rig.runtime.memory().enable_caching(true);
    drop((graph, result));
    expect_normal(rig, [stream]);
}

#[test]
fn a_pool_that_all_its_graphs_gave_up_serves_again() {
    let rig = rig();
    let stream = rig.stream();
    let pool = PoolId::handle();
    let body = || rig.runtime.memory().buffer(LEN, &stream);
    let mut graph = graph(&rig);
    let held = graph.capture(&stream, Some(pool), CaptureMode::Global, body).unwrap();
    graph.reset().unwrap();
    let reserved = rig.reserved_bytes();
    // The pool has no users and, since `held` is of it, still memory.
    let again = graph.capture(&stream, Some(pool), CaptureMode::Global, body).unwrap();
    assert_eq!((graph.pool(), rig.reserved_bytes()), (Ok(pool), reserved), "what it holds serves again");
    assert_ne!(held.address(), again.address());
    drop((held, again));
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.reserved_bytes(), reserved, "the graph uses it");
    graph.reset().unwrap();
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.reserved_bytes(), 0);
    let once_more = graph.capture(&stream, Some(pool), CaptureMode::Global, body).unwrap();
    drop((graph, once_more));
    expect_normal(rig, [stream]);
}

#[test]
fn a_graph_dropped_while_it_replays_leaves_what_it_reads_alone() {
    for seed in 0..10 {
        let rig = Rig::new(config().seed(seed));
        let (stream, side) = (rig.stream(), rig.stream());
        let result = rig.runtime.memory().buffer(2 * LEN, &stream).unwrap();
        let mut graph = graph(&rig);
        {
            let (host, input) =
                (rig.runtime.pinned().buffer(LEN).unwrap(), rig.runtime.memory().buffer(LEN, &stream).unwrap());
            host.write(0, &[8; LEN]).unwrap();
            input.copy_from_slice(0, &[7; LEN]).unwrap();
            graph
                .capture(&stream, None, CaptureMode::Global, || {
                    result.copy_from_pinned(0, &host, 0..LEN, &stream)?;
                    result.copy_from_buffer(LEN, &input, 0..LEN, &stream)
                })
                .unwrap();
        }
        let current = rig.runtime.streams().guard(&side).unwrap();
        graph.replay().unwrap();
        drop((graph, current));
        // These would take the place of what the replay still has to read.
        let (host, other) =
            (rig.runtime.pinned().buffer(LEN).unwrap(), rig.runtime.memory().buffer(LEN, &stream).unwrap());
        host.write(0, &[9; LEN]).unwrap();
        other.fill(0..LEN, 9, &stream).unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        assert_eq!(result.to_vec().unwrap(), [[8; LEN], [7; LEN]].concat(), "seed {seed}");
        drop((result, host, other));
        rig.runtime.pinned().empty_cache().unwrap();
        expect_normal(rig, [stream, side]);
    }
}

/// A graph that fills `len` bytes of the usual pool; the buffer's handle is gone.
fn graph_of_dropped_buffer(rig: &Rig, stream: &Stream, len: usize) -> CUDAGraph {
    let buffer = rig.runtime.memory().buffer(len, stream).unwrap();
    let mut graph = graph(rig);
    graph.capture(stream, None, CaptureMode::Global, || buffer.fill(0..len, 1, stream)).unwrap();
    graph
}

#[test]
fn a_graph_dropped_while_its_stream_captures_leaves_the_capture_alone() {
    let rig = rig();
    let stream = rig.stream();
    let result = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let before = rig.allocated_bytes();
    let mut replayed = graph_of_dropped_buffer(&rig, &stream, LEN);
    let current = stream.guard();
    replayed.replay().unwrap();
    drop(current);
    let mut next = graph(&rig);
    let body = || {
        drop(replayed);
        result.fill(0..LEN, 2, &stream)
    };
    next.capture(&stream, None, CaptureMode::Global, body).unwrap();
    assert_eq!(next.node_count(), 1);
    // What the dropped graph used is let go of once its replay is over.
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!(rig.allocated_bytes(), before);
    drop((next, result));
    expect_normal(rig, [stream]);
}

#[test]
fn memory_that_a_dropped_graph_still_replays_on_is_waited_for_before_memory_runs_out() {
    const MOST: usize = 40 << 20;
    for late in [false, true] {
        let rig = Rig::new(config().capacity(64 << 20).late_events(late));
        let (stream, side) = (rig.stream(), rig.stream());
        for empties in [false, true] {
            let mut replayed = graph_of_dropped_buffer(&rig, &stream, MOST);
            side.sleep(1 << 20).unwrap();
            let current = side.guard();
            replayed.replay().unwrap();
            drop((replayed, current));
            assert!(rig.allocated_bytes() > 0, "the replay is not over");
            if empties {
                rig.runtime.memory().empty_cache().unwrap();
                assert_eq!(rig.reserved_bytes(), 0);
            }
            drop(rig.runtime.memory().buffer(MOST, &stream).unwrap());
            rig.runtime.memory().empty_cache().unwrap();
        }
        expect_normal(rig, [stream, side]);
    }
}

#[test]
fn a_failed_wait_for_a_dropped_graph_is_told_and_loses_nothing() {
    let rig = rig();
    let (stream, side) = (rig.stream(), rig.stream());
    let mut replayed = graph_of_dropped_buffer(&rig, &stream, LEN);
    side.sleep(1 << 20).unwrap();
    let current = side.guard();
    replayed.replay().unwrap();
    drop((replayed, current));
    let refused = CUresult::CUDA_ERROR_NOT_PERMITTED;
    rig.machine.inject(Fault { call: "cuEventSynchronize", occurrence: 1, code: refused });
    assert_eq!(code(rig.runtime.memory().empty_cache()), refused.0);
    assert!(rig.allocated_bytes() > 0);
    rig.runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.reserved_bytes(), 0);
    expect_normal(rig, [stream, side]);
}

#[test]
fn a_graph_keeps_memory_of_other_pools() {
    let rig = rig();
    let stream = rig.stream();
    let result = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let pool = rig.runtime.mem_pools().create(MemPoolOptions::default()).unwrap();
    let input = rig.runtime.mem_pools().with(&pool, DEVICE, || rig.runtime.memory().buffer(LEN, &stream)).unwrap();
    input.copy_from_slice(0, &[4; LEN]).unwrap();
    let mut graph = graph(&rig);
    graph.capture(&stream, None, CaptureMode::Global, || result.copy_from_buffer(0, &input, 0..LEN, &stream)).unwrap();
    drop((input, pool));
    rig.runtime.memory().empty_cache().unwrap();
    graph.replay().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(result.to_vec().unwrap(), [4; LEN]);
    assert!(rig.machine.take_reports().is_empty());
    drop((graph, result));
    expect_normal(rig, [stream]);
}
