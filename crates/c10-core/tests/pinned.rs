//! Pinned host memory on the simulated machine: figures, streams, captures, options, failures.

mod common;

use std::time::{Duration, Instant};

use c10_core::{CUDAGraph, CaptureMode, Error, HostStats, MemoryError, NestedStat, PinnedBuffer, PoolId, Result, Stat};
use common::{DEVICE, Rig, config, fail_each_call, rig};
use cuda_sim::{Fault, LiveHandles};
use cuda_sys::CUresult;

const LEN: usize = 1 << 20;

/// What PyTorch 2.11 answered, among other things the names of the figures.
const FACTS: &str = include_str!("../../../tests/data/golden/torch_facts.json");

#[test]
fn figures_have_torchs_names_and_begin_at_nothing() {
    let rig = rig();
    assert_eq!(rig.runtime.pinned().stats(), HostStats::default());
    assert!(rig.runtime.pinned().stats_as_nested_dict().is_empty());
    rig.runtime.pinned().reset_peak_stats();
    rig.runtime.pinned().reset_accumulated_stats();
    rig.runtime.pinned().empty_cache().unwrap();
    assert!(!rig.runtime.is_initialized());
    let _buffer = rig.runtime.pinned().buffer(3000).unwrap();
    let (_, names) = FACTS.split_once("\"host_stats_keys\"").unwrap();
    let (names, _) = names.split_once(']').unwrap();
    let expected: Vec<&str> = names.split('"').skip(1).step_by(2).collect();
    let flat = rig.runtime.pinned().stats().flatten();
    assert_eq!(flat.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), expected);
    let value = |name: &str| flat.iter().find(|(other, _)| other == name).unwrap().1;
    assert_eq!((value("active_bytes.current"), value("num_host_alloc"), value("host_alloc_time.count")), (4096, 1, 1));
    let tree = rig.runtime.pinned().stats_as_nested_dict();
    assert_eq!(tree["allocated_bytes"].get("peak").and_then(NestedStat::value), Some(4096));
    assert_eq!(tree["num_host_free"].value(), Some(0));
}

#[test]
fn memory_is_active_until_its_streams_are_done() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let pinned = rig.runtime.pinned().buffer(LEN).unwrap();
    let address = pinned.address();
    buffer.copy_from_pinned(0, &pinned, 0..LEN, &stream).unwrap();
    drop(pinned.clone());
    drop(pinned);
    assert_eq!(rig.runtime.pinned().stats().active_bytes.current, 1 << 20);
    stream.synchronize().unwrap();
    let stats = rig.runtime.pinned().stats();
    assert_eq!(stats.active_bytes, Stat { current: 0, peak: 1 << 20, allocated: 1 << 20, freed: 1 << 20 });
    assert_eq!(stats.active_requests, Stat { current: 0, peak: 1, allocated: 1, freed: 1 });
    assert_eq!(stats.allocations.current, 1);
    assert_eq!(rig.runtime.pinned().buffer(LEN).unwrap().address(), address);
    assert!(rig.runtime.is_valid());
}

#[test]
fn uses_that_the_runtime_does_not_see_can_be_recorded() {
    let (rig, other) = (rig(), common::runtime());
    let stream = rig.stream();
    let foreign = other.streams().pooled(DEVICE, 0).unwrap();
    let pinned = rig.runtime.pinned().buffer(LEN).unwrap();
    let address = pinned.address();
    assert_eq!(pinned.record_stream(&foreign), Err(Error::OtherRuntime { what: "stream" }));
    assert_eq!(rig.runtime.pinned().record_stream(address, &foreign), Err(Error::OtherRuntime { what: "stream" }));
    assert_eq!(rig.runtime.pinned().record_stream(address + LEN, &stream), Ok(false));
    let work = rig.runtime.memory().buffer(64 << 20, &stream).unwrap();
    work.fill(0..64 << 20, 1, &stream).unwrap();
    assert_eq!(rig.runtime.pinned().record_stream(address + LEN - 1, &stream), Ok(true));
    drop(pinned);
    let second = rig.runtime.pinned().buffer(LEN).unwrap();
    assert_ne!(second.address(), address);
    second.record_stream(&stream).unwrap();
    drop(second);
    assert_eq!(rig.runtime.pinned().stats().active_requests.current, 2);
    stream.synchronize().unwrap();
    assert_eq!(rig.runtime.pinned().stats().active_requests.current, 0);
    rig.runtime.pinned().buffer(0).unwrap().record_stream(&stream).unwrap();
}

#[test]
fn requests_that_nothing_can_serve_are_refused() {
    let rig = rig();
    let held = rig.runtime.pinned().buffer(5 << 20).unwrap();
    let refused = |bytes| {
        let error = rig.runtime.pinned().buffer(bytes).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        let Error::Memory(MemoryError::HostOutOfMemory(failed)) = &error else { panic!("{error:?}") };
        let text = error.to_string();
        assert!(text.starts_with("Out of host memory. Tried to pin ") && !text.contains("CUDA"), "{text}");
        assert!(text.contains("while 8.00 MiB of host memory are pinned"), "{text}");
        (failed.requested, failed.allocation, error.error_code(), text)
    };
    let (requested, allocation, code, _) = refused(usize::MAX);
    assert_eq!((requested, allocation, code), (usize::MAX as u64, None, None));
    let driver_refuses = Fault { call: "cuMemHostAlloc", occurrence: 1, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY };
    rig.machine.inject(driver_refuses);
    let (requested, allocation, code, text) = refused(60_000_000);
    assert_eq!((requested, allocation, code), (60_000_000, Some(64 << 20), Some(2)));
    assert!(text.contains("Tried to pin 64.00 MiB for a request of 57.22 MiB"), "{text}");
    rig.runtime.memory().set_settings("pinned_use_cuda_host_register:True").unwrap();
    let (requested, allocation, code, _) = refused((1 << 60) - 1);
    assert_eq!((requested, allocation, code), ((1 << 60) - 1, Some(1 << 60), None));
    drop(held);
    assert_eq!(rig.runtime.pinned().stats().allocations.allocated, 1);
    assert!(rig.runtime.is_valid());
}

/// Gives pinned memory back before and during a capture, and asks for some.
#[test]
fn captures_of_every_mode_go_on() {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let rig = rig();
        let (stream, side) = (rig.stream(), rig.stream());
        let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
        let used = |on| {
            let pinned = rig.runtime.pinned().buffer(LEN).unwrap();
            buffer.copy_from_pinned(0, &pinned, 0..LEN, on).unwrap();
            pinned
        };
        let (before, during, aside) = (used(&stream), used(&stream), used(&side));
        drop(before);
        let mut graph = CUDAGraph::on(&rig.runtime, false);
        let captured = graph.capture(&stream, None, mode, || {
            drop((during, aside));
            let (first, second) = (rig.runtime.pinned().buffer(LEN)?, rig.runtime.pinned().buffer(5 << 20)?);
            buffer.copy_to_pinned(0..LEN, &first, 0, &stream)?;
            second.write(0, &[1; 100])?;
            drop(second);
            rig.runtime.pinned().empty_cache()?;
            Ok::<usize, Error>(first.address())
        });
        let captured = captured.unwrap_or_else(|error| panic!("{mode:?}: {error:?}"));
        buffer.fill(0..LEN, 7, &stream).unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        let others: Vec<PinnedBuffer> = (0..8).map(|_| rig.runtime.pinned().buffer(LEN).unwrap()).collect();
        assert!(others.iter().all(|other| other.address() != captured), "the graph writes there");
        graph.replay().unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        drop((graph, others));
        rig.runtime.synchronize(DEVICE).unwrap();
        assert_eq!(rig.runtime.pinned().stats().active_requests.current, 0, "{mode:?}");
        assert_eq!(rig.runtime.inconsistency(), None);
        assert!(rig.machine.take_reports().is_empty(), "{mode:?}");
        drop((buffer, stream, side));
        assert_eq!(rig.left(), LiveHandles::default());
    }
}

#[test]
fn memory_can_be_the_systems_own() {
    let rig = rig();
    rig.runtime.memory().set_settings("pinned_use_cuda_host_register:True,pinned_num_register_threads:4").unwrap();
    let stream = rig.stream();
    let bytes: Vec<u8> = (0..=250).cycle().take(100_000).collect();
    let (from, to) = (rig.runtime.pinned().buffer(100_000).unwrap(), rig.runtime.pinned().buffer(100_000).unwrap());
    assert_eq!(from.to_vec().unwrap(), vec![0; 100_000]);
    from.write(0, &bytes).unwrap();
    let buffer = rig.runtime.memory().buffer(100_000, &stream).unwrap();
    buffer.copy_from_pinned(0, &from, 0..100_000, &stream).unwrap();
    buffer.copy_to_pinned(0..100_000, &to, 0, &stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(to.to_vec().unwrap(), bytes);
    let registered = |rig: &Rig| {
        let called =
            |name| rig.machine.calls().iter().filter(|(call, ..)| *call == name).map(|(.., count)| count).sum();
        let counts: [u64; 3] = ["cuMemHostAlloc", "cuMemHostRegister_v2", "cuMemHostUnregister"].map(called);
        counts
    };
    assert_eq!((registered(&rig), rig.machine.live().pinned), ([0, 2, 0], 2));
    drop((from, to));
    rig.runtime.pinned().empty_cache().unwrap();
    assert_eq!((registered(&rig), rig.machine.live().pinned), ([0, 2, 2], 0));
    let stats = rig.runtime.pinned().stats();
    assert_eq!((stats.num_host_alloc, stats.num_host_free, stats.host_free_time.count), (2, 2, 2));
}

#[test]
fn a_reserved_segment_serves_until_it_is_used_up() {
    let rig = rig();
    rig.runtime.memory().set_settings("pinned_reserve_segment_size_mb:2").unwrap();
    let buffers: Vec<PinnedBuffer> = (0..5).map(|_| rig.runtime.pinned().buffer(500_000).unwrap()).collect();
    let base = buffers[0].address();
    let offsets: Vec<usize> = buffers[..4].iter().map(|buffer| buffer.address() - base).collect();
    assert_eq!((offsets, rig.machine.live().pinned), (vec![0, 1 << 19, 2 << 19, 3 << 19], 2));
    drop(buffers);
    rig.runtime.pinned().empty_cache().unwrap();
    assert_eq!(rig.machine.live().pinned, 1, "the segment stays");
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn a_thread_of_its_own_looks_at_events() {
    let rig = rig();
    rig.machine.make_default();
    rig.runtime.memory().set_settings("pinned_use_background_threads:True").unwrap();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let pinned = rig.runtime.pinned().buffer(LEN).unwrap();
    buffer.copy_from_pinned(0, &pinned, 0..LEN, &stream).unwrap();
    drop(pinned);
    let begin = Instant::now();
    while rig.runtime.pinned().stats().active_requests.current > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody looks at the events");
        // The simulated machine works when somebody calls it.
        stream.query().unwrap();
    }
    drop((buffer, stream));
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn buffers_outlive_every_handle_of_their_runtime() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let (plain, used) = (rig.runtime.pinned().buffer(LEN).unwrap(), rig.runtime.pinned().buffer(LEN).unwrap());
    used.write(0, &[3; LEN]).unwrap();
    buffer.copy_from_pinned(0, &used, 0..LEN, &stream).unwrap();
    buffer.copy_to_pinned(0..LEN, &plain, 0, &stream).unwrap();
    drop((buffer, stream));
    let Rig { runtime, machine, .. } = &rig;
    assert!(runtime.is_valid());
    let live = machine.live();
    assert_eq!((live.contexts, live.pinned), (1, 2));
    let second = common::runtime();
    let machine = machine.clone();
    let _bound = machine.bind();
    drop(rig);
    assert_eq!((machine.live().contexts, machine.live().pinned), (1, 2));
    let copy = plain.clone();
    drop((plain, used));
    assert_eq!(copy.to_vec().unwrap(), vec![3; LEN], "the copy was waited for");
    assert_eq!(second.pinned().buffer(5).unwrap().len(), 5);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _bound = machine.bind();
            drop(copy);
        });
    });
    drop(second);
    assert_eq!(machine.live(), LiveHandles::default());
}

/// Every way to take pinned memory and to give it back.
fn program(rig: &Rig) -> Result<()> {
    let runtime = &rig.runtime;
    runtime.memory().set_settings("pinned_use_cuda_host_register:True,pinned_num_register_threads:2")?;
    let (stream, side) = (runtime.streams().pooled(DEVICE, 0)?, runtime.streams().pooled(DEVICE, 0)?);
    let buffer = runtime.memory().buffer(LEN, &stream)?;
    let registered = runtime.pinned().buffer(LEN)?;
    buffer.copy_from_pinned(0, &registered, 0..LEN, &stream)?;
    registered.record_stream(&side)?;
    drop(registered);
    runtime.memory().set_settings("pinned_use_cuda_host_register:False")?;
    let plain = runtime.pinned().buffer(LEN / 2)?;
    let mut graph = CUDAGraph::on(runtime, false);
    graph.capture(&stream, None, CaptureMode::Global, || buffer.copy_to_pinned(0..100, &plain, 0, &stream))?;
    graph.replay()?;
    drop((graph, plain));
    stream.synchronize()?;
    side.synchronize()?;
    runtime.pinned().empty_cache()
}

/// Runs the program with one failing call. Tells whether the failure was noticed.
fn run_with(fault: Fault) -> bool {
    let context = format!("{fault:?}");
    let rig = Rig::new(config());
    rig.machine.inject(fault);
    let result = program(&rig);
    rig.machine.clear_faults();
    assert_eq!(rig.runtime.inconsistency(), None, "{context}");
    rig.machine.settle();
    for _ in 0..2 {
        // What could not get its event gets it here, and is let go of the second time.
        rig.runtime.synchronize(DEVICE).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        rig.machine.settle();
    }
    rig.runtime.pinned().empty_cache().unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let stats = rig.runtime.pinned().stats();
    assert_eq!((stats.active_requests.current, stats.allocations.current), (0, 0), "{context}");
    assert_eq!((stats.num_host_alloc, rig.machine.live().pinned), (stats.num_host_free, 0), "{context}");
    program(&rig).unwrap_or_else(|error| panic!("{context}, then {result:?}; the second run: {error:?}"));
    assert_eq!(rig.runtime.inconsistency(), None, "{context}");
    assert_eq!(rig.left(), LiveHandles::default(), "{context}: {result:?}");
    result.is_err()
}

#[test]
fn any_driver_call_may_fail() {
    let rig = Rig::new(config());
    program(&rig).unwrap();
    let calls = rig.machine.calls();
    assert_eq!(rig.left(), LiveHandles::default());
    let (tried, noticed) = fail_each_call(&calls, run_with);
    println!("{noticed} of {tried} failures were noticed");
    let pinned = ["cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister_v2", "cuMemHostUnregister", "cuEventQuery"];
    assert!(pinned.iter().all(|name| calls.iter().any(|(call, ..)| call == name)), "{calls:?}");
    assert!(tried > 100 && noticed * 10 > tried * 6, "{noticed} of {tried} failures were noticed");
}

/// Empties the cache on this thread or another one.
fn empty_cache(rig: &Rig, elsewhere: bool) -> Result<()> {
    if !elsewhere {
        return rig.runtime.pinned().empty_cache();
    }
    let (machine, runtime) = (&rig.machine, &rig.runtime);
    let empty = || {
        let _bound = machine.bind();
        runtime.pinned().empty_cache()
    };
    std::thread::scope(|scope| scope.spawn(empty).join().expect("no panic"))
}

#[test]
fn emptying_the_cache_leaves_captures_and_graphs_what_they_use() {
    let modes = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
    for (mode, elsewhere) in modes.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let rig = rig();
        let (stream, side) = (rig.stream(), rig.stream());
        let target = rig.runtime.memory().buffer(LEN, &stream).unwrap();
        let [copied, forked, noted, free] = [1_u8, 2, 3, 4].map(|value| {
            let pinned = rig.runtime.pinned().buffer(LEN).unwrap();
            pinned.write(0, &[value; LEN]).unwrap();
            pinned
        });
        let mut graph = CUDAGraph::on(&rig.runtime, false);
        let captured = graph.record::<_, Error>(&stream, None, mode, |scope| {
            scope.copy_from_pinned(&target, 0, &copied, 0..LEN)?;
            scope.fork(&side, |scope| {
                scope.copy_from_pinned(&target, 0, &forked, 0..1)?;
                // Some other code uses this one.
                noted.record_stream(&side)
            })?;
            drop((copied, forked, noted, free));
            empty_cache(&rig, elsewhere)?;
            Ok((rig.machine.live().pinned, rig.runtime.pinned().stats().active_requests.current))
        });
        assert_eq!(captured, Ok((3, 3)), "{mode:?}, {elsewhere}: only what is free goes");
        rig.runtime.synchronize(DEVICE).unwrap();
        rig.runtime.pinned().empty_cache().unwrap();
        let others: Vec<PinnedBuffer> = (0..4).map(|_| rig.runtime.pinned().buffer(LEN).unwrap()).collect();
        others.iter().for_each(|other| other.write(0, &[9; LEN]).unwrap());
        assert_eq!(rig.machine.live().pinned, 7, "{mode:?}: the graph keeps its three");
        graph.replay().unwrap();
        let bytes = target.to_vec().unwrap();
        assert_eq!((bytes[0], bytes[1]), (2, 1));
        drop((graph, others));
        rig.runtime.synchronize(DEVICE).unwrap();
        rig.runtime.pinned().empty_cache().unwrap();
        assert_eq!(rig.machine.live().pinned, 0, "{mode:?}, {elsewhere}: nobody keeps them any more");
        assert!(rig.runtime.is_valid() && rig.machine.take_reports().is_empty());
    }
}

#[test]
fn a_graph_keeps_a_block_once_however_often_it_is_used() {
    let rig = rig();
    let stream = rig.stream();
    let (buffer, pinned) =
        (rig.runtime.memory().buffer(LEN, &stream).unwrap(), rig.runtime.pinned().buffer(LEN).unwrap());
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let body = || {
        (0..100).try_for_each(|_| {
            buffer.copy_from_pinned(0, &pinned, 0..10, &stream)?;
            buffer.copy_to_pinned(0..10, &pinned.clone(), 0, &stream)
        })
    };
    graph.capture::<_, Error>(&stream, None, CaptureMode::Global, body).unwrap();
    let report = graph.report().unwrap();
    assert_eq!((report.kept_host_blocks, report.kept_buffers, report.node_count), (1, 1, 200));
    drop((pinned, graph));
    assert_eq!(rig.runtime.pinned().stats().active_requests.current, 0);
}

#[test]
fn what_a_capture_used_stays_with_its_pool() {
    let rig = rig();
    let stream = rig.stream();
    let buffer = rig.runtime.memory().buffer(LEN, &stream).unwrap();
    let capture = |pool| {
        let mut graph = CUDAGraph::on(&rig.runtime, false);
        let used = graph.capture(&stream, Some(pool), CaptureMode::Global, || {
            let pinned = rig.runtime.pinned().buffer(LEN)?;
            buffer.copy_to_pinned(0..LEN, &pinned, 0, &stream)?;
            Ok::<usize, Error>(pinned.address())
        });
        (graph, used.unwrap())
    };
    let serves = |address| {
        rig.runtime.synchronize(DEVICE).unwrap();
        let all: Vec<PinnedBuffer> = (0..4).map(|_| rig.runtime.pinned().buffer(LEN).unwrap()).collect();
        all.iter().any(|pinned| pinned.address() == address)
    };
    // Another graph of the pool is left.
    let pool = PoolId::handle();
    let ((first, used), (second, _)) = (capture(pool), capture(pool));
    drop(first);
    assert!(!serves(used), "a graph of the pool is left");
    drop(second);
    assert!(serves(used), "nobody uses the pool any more");
    // Only a handle of the pool is left, between two captures into it.
    let pool = rig.runtime.mem_pools().create(Default::default()).unwrap();
    let (first, used) = capture(pool.id());
    drop(first);
    assert!(!serves(used), "a handle of the pool is left");
    let (second, newer) = capture(pool.id());
    assert_ne!(newer, used, "the pool's next capture gets another block");
    drop((pool, second));
    assert!(serves(used), "nobody uses the pool any more");
    assert_eq!(rig.runtime.inconsistency(), None);
    drop((buffer, stream));
    assert_eq!(rig.left(), LiveHandles::default());
}
