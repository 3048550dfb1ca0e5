//! Random number generators in graphs, with a generator whose numbers are bytes: it counts on the device.
#![allow(clippy::unwrap_used, reason = "a failed step of a helper is a failed test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use c10_core::{
    CUDAGraph, CaptureMode, DeviceBuffer, DeviceError, Error, GeneratorState, GraphError, PinnedBuffer, Result,
    StartError, Stream,
};
use common::{DEVICE, Rig, code, rig};
use cuda_sim::{Fault, LiveHandles};
use cuda_sys::CUresult;

/// Draws are copies of the offset on the device. The offset of draw `n` in a graph would be added by a kernel.
struct Counter {
    /// The offset scalar that captured work reads.
    on_device: DeviceBuffer,
    /// Where the host's offset is read from by the copy that a replay queues.
    staging: PinnedBuffer,
    offset: AtomicU64,
    capturing: AtomicBool,
    within: AtomicU64,
    prologues: AtomicUsize,
    epilogues: AtomicUsize,
    refuses: AtomicBool,
}

impl Counter {
    fn new(rig: &Rig, stream: &Stream) -> Arc<Self> {
        Arc::new(Self {
            on_device: rig.runtime.memory().buffer(8, stream).unwrap(),
            staging: rig.runtime.pinned().buffer(8).unwrap(),
            offset: AtomicU64::new(0),
            capturing: AtomicBool::new(false),
            within: AtomicU64::new(0),
            prologues: AtomicUsize::new(0),
            epilogues: AtomicUsize::new(0),
            refuses: AtomicBool::new(false),
        })
    }

    /// Captures a draw: the device's offset is written to `to`.
    fn draw(&self, to: &DeviceBuffer, stream: &Stream) -> Result<()> {
        assert!(self.capturing.load(Ordering::Relaxed), "registered states are told of the capture");
        self.within.fetch_add(4, Ordering::Relaxed);
        to.copy_from_buffer(0, &self.on_device, 0..8, stream)
    }

    fn calls(&self) -> (usize, usize) {
        (self.prologues.load(Ordering::Relaxed), self.epilogues.load(Ordering::Relaxed))
    }
}

impl GeneratorState for Counter {
    fn capture_prologue(&self, stream: &Stream) -> Result<()> {
        assert!(!stream.is_capturing()?, "the prologue comes before the capture");
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Error::Device(DeviceError::InvalidId));
        }
        self.prologues.fetch_add(1, Ordering::Relaxed);
        self.within.store(0, Ordering::Relaxed);
        self.capturing.store(true, Ordering::Relaxed);
        self.on_device.fill(0..8, 0, stream)
    }

    fn capture_epilogue(&self) -> u64 {
        self.epilogues.fetch_add(1, Ordering::Relaxed);
        self.capturing.store(false, Ordering::Relaxed);
        self.within.load(Ordering::Relaxed)
    }

    fn replay_prologue(&self, whole_graph_increment: u64, stream: &Stream) -> Result<()> {
        if whole_graph_increment == 0 {
            return Ok(());
        }
        let offset = self.offset.fetch_add(whole_graph_increment, Ordering::Relaxed);
        stream.synchronize()?;
        self.staging.write(0, &offset.to_le_bytes())?;
        self.on_device.copy_from_pinned(0, &self.staging, 0..8, stream)
    }
}

fn number(buffer: &DeviceBuffer) -> u64 {
    u64::from_le_bytes(buffer.to_vec().unwrap().try_into().unwrap())
}

#[test]
fn each_replay_draws_new_numbers() {
    let rig = rig();
    let stream = rig.stream();
    let (counter, idle) = (Counter::new(&rig, &stream), Counter::new(&rig, &stream));
    let out = rig.runtime.memory().buffer(8, &stream).unwrap();
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.register_generator_state(counter.clone()).unwrap();
    graph.register_generator_state(counter.clone()).unwrap();
    graph.register_generator_state(idle.clone()).unwrap();
    graph
        .capture(&stream, None, CaptureMode::Global, || {
            counter.draw(&out, &stream)?;
            counter.draw(&out, &stream)
        })
        .unwrap();
    assert_eq!((counter.calls(), idle.calls()), ((1, 1), (1, 1)), "registered once each");
    for replay in 0..5 {
        graph.replay().unwrap();
        rig.runtime.synchronize(DEVICE).unwrap();
        assert_eq!(number(&out), 8 * replay, "each replay begins where the one before ended");
    }
    assert_eq!((counter.offset.load(Ordering::Relaxed), idle.offset.load(Ordering::Relaxed)), (40, 0));
    // A second graph continues the same sequence, on whatever stream it is replayed.
    let mut second = CUDAGraph::on(&rig.runtime, false);
    second.register_generator_state(counter.clone()).unwrap();
    second.capture(&stream, None, CaptureMode::Global, || counter.draw(&out, &stream)).unwrap();
    let _current = rig.runtime.streams().guard(&rig.stream()).unwrap();
    second.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!((number(&out), counter.offset.load(Ordering::Relaxed)), (40, 44));
    graph.reset().unwrap();
    graph.capture(&stream, None, CaptureMode::Global, || counter.draw(&out, &stream)).unwrap();
    graph.replay().unwrap();
    rig.runtime.synchronize(DEVICE).unwrap();
    assert_eq!((number(&out), counter.calls()), (44, (3, 3)), "still registered after the reset");
}

#[test]
fn states_are_registered_before_the_capture() {
    let rig = rig();
    let stream = rig.stream();
    let counter = Counter::new(&rig, &stream);
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let guard = rig.runtime.streams().guard(&stream).unwrap();
    graph.capture_begin(None, CaptureMode::Global).unwrap();
    assert_eq!(graph.register_generator_state(counter.clone()), Err(Error::Graph(GraphError::GeneratorDuringCapture)));
    graph.capture_end().unwrap();
    assert_eq!(graph.register_generator_state(counter.clone()), Err(Error::Graph(GraphError::AlreadyCaptured)));
    drop(guard);
    graph.replay().unwrap();
    assert_eq!(counter.calls(), (0, 0));
}

#[test]
fn every_prologue_has_its_epilogue_whatever_fails() {
    let rig = rig();
    let stream = rig.stream();
    let (first, last) = (Counter::new(&rig, &stream), Counter::new(&rig, &stream));
    let out = rig.runtime.memory().buffer(8, &stream).unwrap();
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.register_generator_state(first.clone()).unwrap();
    graph.register_generator_state(last.clone()).unwrap();
    let mut capture = |body: &dyn Fn() -> Result<()>| graph.capture(&stream, None, CaptureMode::Global, body);
    // A generator refuses.
    last.refuses.store(true, Ordering::Relaxed);
    assert_eq!(capture(&|| Ok(())), Err(Error::Device(DeviceError::InvalidId)));
    last.refuses.store(false, Ordering::Relaxed);
    assert_eq!((first.calls(), last.calls()), ((1, 1), (0, 0)));
    // The driver does not begin, or does not end.
    for (call, calls) in [("cuStreamBeginCapture_v2", 1), ("cuGraphInstantiateWithFlags", 2)] {
        let fault = Fault { call, occurrence: 1, code: CUresult::CUDA_ERROR_NOT_PERMITTED };
        rig.machine.inject(fault);
        assert_eq!(code(capture(&|| first.draw(&out, &stream))), 800, "{call}");
        rig.machine.clear_faults();
        assert_eq!((first.calls(), last.calls()), ((calls + 1, calls + 1), (calls, calls)), "{call}");
    }
    // The body fails or spoils the capture.
    assert_eq!(capture(&|| Err(Error::Start(StartError::NoDevices))), Err(Error::Start(StartError::NoDevices)));
    assert_eq!(code(capture(&|| stream.synchronize())), 900);
    assert_eq!((first.calls(), last.calls()), ((5, 5), (4, 4)));
    assert!(!first.capturing.load(Ordering::Relaxed) && !last.capturing.load(Ordering::Relaxed));
    capture(&|| first.draw(&out, &stream)).unwrap();
    assert_eq!(first.calls(), (6, 6));
    drop((graph, first, last, out, stream));
    rig.runtime.pinned().empty_cache().unwrap();
    assert_eq!(rig.left(), LiveHandles::default());
}
