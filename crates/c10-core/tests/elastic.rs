//! The elastic backend on a simulated machine, whose memory has contents: what is live is never overwritten, whichever
//! stream the pages came from and however late its work is.

mod common;

use std::collections::BTreeMap;

use c10_core::{Backend, DeviceBuffer, Result, Stream};
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
