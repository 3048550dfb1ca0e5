//! Copies between two devices are ordered with the current streams of both, whichever stream queues them.

#![allow(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

mod common;

use c10_core::{CUDAGraph, CaptureMode, DeviceBuffer, DeviceIndex, Stream};
use common::{DEVICE, Rig, config};

const PEER: DeviceIndex = DeviceIndex(1);
const LEN: usize = 4096;
const LONG: usize = 64 << 20;

/// Two devices, each with a buffer and a current stream from the pool, and a stream that is not current.
struct Pair {
    from: DeviceBuffer,
    to: DeviceBuffer,
    /// The current streams of the devices of `from` and `to`.
    current: [Stream; 2],
    /// Queues the copies.
    side: Stream,
    rig: Rig,
}

impl Pair {
    /// `side` is a stream of this device.
    fn new(side: DeviceIndex) -> Self {
        let rig = Rig::new(config().devices(2).late_events(true));
        let stream = |device| rig.runtime.streams().pooled(device, 0).unwrap();
        let (current, side) = ([DEVICE, PEER].map(stream), stream(side));
        current.iter().for_each(|stream| rig.runtime.streams().set_current(stream).unwrap());
        let [from, to] = [0, 1].map(|place| rig.runtime.memory().buffer(LEN, &current[place]).unwrap());
        from.copy_from_slice(0, &[1; LEN]).unwrap();
        to.copy_from_slice(0, &[2; LEN]).unwrap();
        Self { from, to, current, side, rig }
    }

    /// Keeps a stream busy for much longer than a copy takes.
    fn keep_busy(&self, stream: &Stream) {
        let work = self.rig.runtime.memory().buffer(LONG, stream).unwrap();
        (0..4).for_each(|value| work.fill(0..LONG, value, stream).unwrap());
    }

    fn copy(&self) {
        self.to.copy_from_buffer(0, &self.from, 0..LEN, &self.side).unwrap();
    }

    /// What `to` holds when everything is done.
    fn result(&self) -> Vec<u8> {
        [DEVICE, PEER].iter().for_each(|device| self.rig.runtime.synchronize(*device).unwrap());
        self.to.to_vec().unwrap()
    }
}

fn sides() -> [Pair; 2] {
    [DEVICE, PEER].map(Pair::new)
}

#[test]
fn a_copy_waits_for_work_on_its_source() {
    for pair in sides() {
        pair.keep_busy(&pair.current[0]);
        pair.from.fill(0..LEN, 7, &pair.current[0]).unwrap();
        pair.copy();
        assert_eq!(pair.result(), [7; LEN]);
    }
}

#[test]
fn a_copy_waits_for_work_on_its_target() {
    for pair in sides() {
        pair.keep_busy(&pair.current[1]);
        pair.to.fill(0..LEN, 7, &pair.current[1]).unwrap();
        pair.copy();
        assert_eq!(pair.result(), [1; LEN]);
    }
}

#[test]
fn later_work_on_the_source_waits_for_the_copy() {
    for pair in sides() {
        pair.keep_busy(&pair.side);
        pair.copy();
        pair.from.fill(0..LEN, 7, &pair.current[0]).unwrap();
        assert_eq!(pair.result(), [1; LEN]);
    }
}

#[test]
fn later_work_on_the_target_waits_for_the_copy() {
    for pair in sides() {
        pair.keep_busy(&pair.side);
        pair.copy();
        pair.to.fill(0..LEN, 7, &pair.current[1]).unwrap();
        assert_eq!(pair.result(), [7; LEN]);
    }
}

#[test]
fn a_copy_on_one_device_is_ordered_on_its_stream_alone() {
    let pair = Pair::new(DEVICE);
    let other = pair.rig.runtime.memory().buffer(LEN, &pair.side).unwrap();
    let events = || -> u64 {
        let calls = pair.rig.machine.calls();
        calls.iter().filter(|(call, ..)| call.starts_with("cuEvent")).map(|(.., count)| count).sum()
    };
    let before = events();
    other.copy_from_buffer(0, &pair.from, 0..LEN, &pair.side).unwrap();
    assert_eq!(events(), before);
}

#[test]
fn a_captured_copy_is_ordered_within_its_capture() {
    let pair = Pair::new(DEVICE);
    let mut graph = CUDAGraph::on(&pair.rig.runtime, false);
    {
        // The current stream of the peer takes no part in the capture, and goes on as before.
        let _current = pair.side.guard();
        graph.capture_begin(None, CaptureMode::ThreadLocal).unwrap();
        pair.copy();
        graph.capture_end().unwrap();
    }
    pair.to.fill(0..LEN, 7, &pair.current[1]).unwrap();
    assert_eq!(pair.result(), [7; LEN]);
    let _current = pair.side.guard();
    graph.replay().unwrap();
    assert_eq!(pair.result(), [1; LEN]);
}

fn count(rig: &Rig, call: &str) -> u64 {
    rig.machine.calls().iter().filter(|(name, ..)| *name == call).map(|(_, _, count)| count).sum()
}

#[test]
fn access_is_enabled_once_in_each_direction() {
    let pair = Pair::new(PEER);
    assert_eq!(count(&pair.rig, "cuCtxEnablePeerAccess"), 0);
    pair.copy();
    pair.copy();
    assert!(pair.from.let_reach(PEER).unwrap() && pair.to.let_reach(DEVICE).unwrap());
    assert_eq!(count(&pair.rig, "cuCtxEnablePeerAccess"), 2);
    assert_eq!(pair.result(), [1; LEN]);
}

#[test]
fn devices_without_access_copy_all_the_same() {
    use cuda_sim::Fault;
    use cuda_sys::CUresult;

    // None of all, and none that is left.
    let left = Fault { call: "cuCtxEnablePeerAccess", occurrence: 1, code: CUresult::CUDA_ERROR_TOO_MANY_PEERS };
    for config in [config().devices(2).peer_access(false), config().devices(2).fault(left)] {
        let rig = Rig::new(config);
        let stream = |device| rig.runtime.streams().pooled(device, 0).unwrap();
        let [from, to] = [DEVICE, PEER].map(|device| rig.runtime.memory().buffer(LEN, &stream(device)).unwrap());
        from.copy_from_slice(0, &[1; LEN]).unwrap();
        to.copy_from_buffer(0, &from, .., None).unwrap();
        assert!(!from.let_reach(PEER).unwrap());
        assert_eq!(to.to_vec().unwrap(), [1; LEN]);
    }
}

#[test]
fn a_copy_on_one_stream_alone_waits_for_no_other() {
    let pair = Pair::new(PEER);
    pair.keep_busy(&pair.current[0]);
    pair.from.fill(.., 3, &pair.current[0]).unwrap();
    pair.to.copy_from_buffer_on(0, &pair.from, .., &pair.side).unwrap();
    pair.side.synchronize().unwrap();
    // The source's current stream had not come to its fill.
    assert_eq!(pair.to.to_vec().unwrap(), [1; LEN]);
    let far = pair.to.copy_from_buffer_on(1, &pair.from, .., &pair.side);
    assert!(far.is_err(), "a byte too far");
}
