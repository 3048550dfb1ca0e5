//! The elastic backend on a simulated machine, whose memory has contents: what is live is never overwritten, whichever
//! stream the pages came from and however late its work is.

mod common;

use std::collections::BTreeMap;

use c10_core::{Backend, CUDAGraph, CaptureMode, DeviceBuffer, Error, MemPoolOptions, MemoryHolder, Result, Stream};
use common::{DEVICE, Rig, config};
use testkit::LiveHandles;

const MIB: usize = 1 << 20;

fn elastic(seed: u64, capacity: usize) -> Rig {
    let rig = Rig::new(config().seed(seed).late_events(true).capacity(capacity as u64));
    rig.runtime.memory().set_settings("backend:elastic").expect("the backend can be chosen");
    assert_eq!(rig.runtime.memory().config().backend, Backend::Elastic);
    rig
}

/// The next of a row of numbers that follows from the first.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 40).expect("24 bits")
}

/// A buffer with the byte it was filled with on its stream.
type Filled = (DeviceBuffer, u8);

fn check(filled: &Filled) {
    let (buffer, byte) = filled;
    let found = buffer.to_vec().expect("the memory can be read");
    assert!(found.iter().all(|found| found == byte), "memory of {} bytes was overwritten", buffer.len());
}

/// Random buffers on several streams, each filled without waiting; those that are given back have work queued.
fn play(rig: &Rig, streams: &[Stream], seed: u64) -> Result<BTreeMap<usize, Filled>> {
    let (mut state, mut live) = (seed, BTreeMap::new());
    for step in 0..80 {
        if next(&mut state) % 5 < 3 {
            let stream = &streams[next(&mut state) % streams.len()];
            let len = [3000, 700_000, 3 * MIB, 7 * MIB][next(&mut state) % 4] + next(&mut state) % 5000;
            let byte = u8::try_from(step % 251).expect("below 251");
            let buffer = rig.runtime.memory().buffer(len, stream)?;
            buffer.fill(0..len, byte, stream)?;
            live.insert(step, (buffer, byte));
        } else if let Some(key) = live.keys().nth(next(&mut state) % live.len().max(1)).copied() {
            live.remove(&key);
        }
    }
    Ok(live)
}

#[test]
fn live_memory_keeps_its_contents() {
    let mut moved = 0;
    for seed in 0..12 {
        let rig = elastic(seed, 1 << 30);
        let streams = [rig.stream(), rig.stream(), rig.runtime.streams().default(DEVICE).unwrap()];
        let live = play(&rig, &streams, seed).unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        live.values().for_each(check);
        moved += rig.runtime.memory().stats(DEVICE).unwrap().pages_moved;
        drop((live, streams));
        rig.runtime.memory().empty_cache().unwrap();
        assert_eq!(rig.reserved_bytes(), 0);
        assert_eq!(rig.left(), LiveHandles::default());
    }
    assert!(moved > 100, "only {moved} pages moved");
}

#[test]
fn pages_of_another_stream_are_used_after_its_work() {
    for seed in 0..20 {
        let rig = elastic(seed, 1 << 30);
        let (first, second) = (rig.stream(), rig.stream());
        let (len, runtime) = (24 * MIB, &rig.runtime);
        let old = runtime.memory().buffer(len, &first).unwrap();
        old.fill(0..len, 1, &first).unwrap();
        drop(old);
        let new = runtime.memory().buffer(len, &second).unwrap();
        new.fill(0..len, 2, &second).unwrap();
        runtime.synchronize(DEVICE).unwrap();
        assert_eq!(runtime.memory().stats(DEVICE).unwrap().pages_moved, 12);
        check(&(new, 2));
    }
}

#[test]
fn a_request_takes_what_other_streams_keep_when_the_device_has_no_more() {
    let rig = elastic(1, 256 * MIB);
    let streams: Vec<Stream> = (0..4).map(|_| rig.stream()).collect();
    let hold = |stream| rig.runtime.memory().buffer(40 * MIB, stream).unwrap();
    drop(streams.iter().map(hold).collect::<Vec<_>>());
    let free = rig.runtime.memory().info(DEVICE).unwrap().free;
    let all = usize::try_from(free).unwrap() / (2 * MIB) * (2 * MIB) + 4 * 40 * MIB;
    let whole = rig.runtime.memory().buffer(all, &streams[0]).unwrap();
    whole.fill(0..all, 7, &streams[0]).unwrap();
    check(&(whole, 7));
    assert_eq!(rig.runtime.memory().stats(DEVICE).unwrap().num_alloc_retries, 0, "nothing was given back for it");
}

#[test]
fn the_backend_is_chosen_before_the_runtime_starts() {
    let rig = Rig::new(config());
    rig.runtime.memory().set_settings("backend:elastic").unwrap();
    rig.runtime.memory().set_settings("backend:native").unwrap();
    rig.runtime.memory().set_settings("backend:elastic").unwrap();
    rig.runtime.init().unwrap();
    rig.runtime.memory().set_settings("backend:elastic,expandable_segments:True").unwrap();
    let refused = rig.runtime.memory().set_settings("backend:native").unwrap_err();
    assert!(refused.to_string().contains("parsed at runtime != allocator backend parsed at load time"), "{refused}");
    assert_eq!(rig.runtime.memory().config().to_string(), "backend:elastic,expandable_segments:True");
}

#[test]
fn a_memory_pool_may_have_pages_that_move_in_a_native_runtime() {
    let rig = Rig::new(config());
    let (first, second, runtime) = (rig.stream(), rig.stream(), &rig.runtime);
    let pool = runtime.mem_pools().create(MemPoolOptions { elastic: Some(true), ..MemPoolOptions::default() }).unwrap();
    let (len, guard) = (24 * MIB, runtime.mem_pools().enter(&pool, DEVICE).unwrap());
    let old = runtime.memory().buffer(len, &first).unwrap();
    old.fill(0..len, 1, &first).unwrap();
    drop(old);
    let new = runtime.memory().buffer(len, &second).unwrap();
    new.fill(0..len, 2, &second).unwrap();
    let stats = runtime.memory().stats(DEVICE).unwrap();
    assert_eq!((stats["num_pages_made"], stats["num_pages_moved"]), (12, 12));
    assert_eq!((stats["num_page_bytes_made"], stats["num_page_bytes_moved"]), (len as i64, len as i64));
    // Made and mapped, access for each of two runs; mapped again, the old mappings are still there.
    assert_eq!(stats["num_page_calls"], 12 + 12 + 1 + 12 + 1);
    let line = stats.to_string();
    assert!(line.ends_with(", 12 pages made (24.00 MiB), 12 moved (24.00 MiB), 38 driver calls for pages"), "{line}");
    let text = runtime.figures_text().unwrap();
    assert!(text.contains("\n# TYPE torch_cuda_num_page_bytes_moved_total counter\n"), "{text}");
    assert!(text.contains("\ntorch_cuda_num_pages_moved_total{device=\"0\"} 12\n"), "{text}");
    assert!(pool.snapshot().iter().all(|segment| segment.is_expandable && segment.pool == pool.id()));
    drop(guard);
    let outside = runtime.memory().buffer(len, &second).unwrap();
    let segments = runtime.memory().snapshot(None);
    let of = |address| segments.iter().find(|segment| segment.address <= address && segment.pool != pool.id());
    assert!(!of(outside.address()).unwrap().is_expandable, "the default pools are native");
    check(&(new, 2));
    drop((outside, pool));
    runtime.memory().empty_cache().unwrap();
    assert_eq!(rig.reserved_bytes(), 0);
}

#[test]
fn native_memory_has_torchs_figures_alone() {
    let rig = Rig::new(config());
    let _buffer = rig.runtime.memory().buffer(MIB, &rig.stream()).unwrap();
    let stats = rig.runtime.memory().stats(DEVICE).unwrap();
    assert!(!stats.has_pages && stats.flatten().iter().all(|(name, _)| !name.contains("page")));
    assert!(!rig.runtime.figures_text().unwrap().contains("page"));
}

/// A graph that fills memory of its own and copies it to a buffer; and that buffer.
fn graph(rig: &Rig, len: usize) -> Result<(CUDAGraph, DeviceBuffer)> {
    let (mut graph, stream) = (CUDAGraph::on(&rig.runtime, false), rig.stream());
    let out = rig.runtime.memory().buffer(len, &stream)?;
    graph.capture(&stream, None, CaptureMode::Global, || {
        let own = rig.runtime.memory().buffer(len, &stream)?;
        own.fill(0..len, 1, &stream)?;
        out.copy_from_buffer(0, &own, 0..len, &stream)
    })?;
    Ok((graph, out))
}

#[test]
fn pages_of_a_dropped_graph_are_used_after_its_replays() {
    for seed in 0..20 {
        let rig = elastic(seed, 1 << 30);
        let len = 24 * MIB;
        let (mut graph, out) = graph(&rig, len).unwrap();
        let (replaying, taking) = (rig.stream(), rig.stream());
        rig.runtime.streams().set_current(&replaying).unwrap();
        graph.replay().unwrap();
        let stats = || rig.runtime.memory().stats(DEVICE).unwrap();
        assert_eq!((stats().pages_made, stats().pages_moved), (24, 0));
        drop(graph);
        let new = rig.runtime.memory().buffer(len, &taking).unwrap();
        new.fill(0..len, 2, &taking).unwrap();
        assert_eq!((stats().pages_made, stats().pages_moved), (24, 12), "the graph's pages");
        rig.runtime.synchronize(DEVICE).unwrap();
        check(&(new, 2));
        check(&(out, 1));
    }
}

#[test]
fn memory_of_a_dropped_graph_goes_back_after_its_replays() {
    for options in ["backend:elastic", "expandable_segments:True"] {
        for seed in 0..10 {
            let rig = Rig::new(config().seed(seed).late_events(true));
            rig.runtime.memory().set_settings(options).unwrap();
            let (mut graph, out) = graph(&rig, 24 * MIB).unwrap();
            let replaying = rig.stream();
            rig.runtime.streams().set_current(&replaying).unwrap();
            graph.replay().unwrap();
            drop(graph);
            rig.runtime.memory().empty_cache().unwrap();
            rig.runtime.synchronize(DEVICE).unwrap();
            check(&(out, 1));
        }
    }
}

#[test]
fn a_capture_takes_free_pages_when_their_work_is_done() {
    let rig = Rig::new(config());
    rig.runtime.memory().set_settings("backend:elastic").unwrap();
    let stream = rig.stream();
    drop(rig.runtime.memory().buffer(48 * MIB, &stream).unwrap());
    rig.runtime.synchronize(DEVICE).unwrap();
    let (mut graph, out) = graph(&rig, 24 * MIB).unwrap();
    let stats = rig.runtime.memory().stats(DEVICE).unwrap();
    assert_eq!((stats.pages_made, stats.pages_moved), (24, 24), "for the buffer, and for the capture");
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    check(&(out, 1));
}

#[test]
fn an_error_names_the_graph_that_holds_the_memory() {
    let rig = elastic(1, 64 << 20);
    let (graph, out) = graph(&rig, 20 * MIB).unwrap();
    let Err(Error::OutOfMemory(error)) = rig.runtime.memory().buffer(40 * MIB, &rig.stream()) else {
        panic!("the graph and the buffer have 40 of 64 MiB")
    };
    let pool = graph.pool().unwrap();
    let held = error.held.iter().find(|held| held.holder == MemoryHolder::Graphs { pool }).unwrap();
    assert_eq!((held.reserved, held.in_use, held.free, held.largest_free_run), (20 << 20, 0, 20 << 20, 20 << 20));
    let line =
        format!("Graphs of pool {pool} keep 20.00 MiB, of which 0 bytes are in use; 20.00 MiB are free, at most");
    assert!(error.to_string().contains(&format!("\n{line}")), "{error}");
    drop((graph, out));
    rig.runtime.memory().buffer(40 * MIB, &rig.stream()).unwrap();
}
