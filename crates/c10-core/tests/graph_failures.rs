//! Every driver call fails, at every place, in the whole life of graphs: capture, instantiation, upload, replay, update,
//! child graphs, files, reports, reset.
//!
//! Whatever fails: that error is returned (or, where nobody can be told, the program goes on), nothing captures
//! afterwards, memory comes from the default pools, the same program works, and in the end nothing is left.

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use c10_core::{
    CUDAGraph, CaptureMode, CaptureOutcome, DeviceBuffer, Error, Event, EventOptions, GeneratorState, PoolId, Result,
    StartError, Stream,
};
use common::{DEVICE, Rig, config, fail_each_call};
use cuda_sim::{Fault, LiveHandles};

const LEN: usize = 1 << 16;

/// Writes to the device at each step, and counts captures that have begun and not ended.
struct Generator {
    scalar: DeviceBuffer,
    open: Arc<AtomicI64>,
}

impl GeneratorState for Generator {
    fn capture_prologue(&self, stream: &Stream) -> Result<()> {
        self.scalar.fill(0..8, 0, stream)?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn capture_epilogue(&self) -> u64 {
        self.open.fetch_sub(1, Ordering::Relaxed);
        4
    }

    fn replay_prologue(&self, whole_graph_increment: u64, stream: &Stream) -> Result<()> {
        assert_eq!(whole_graph_increment, 4);
        self.scalar.fill(0..8, 1, stream)
    }
}

fn dot_file() -> PathBuf {
    std::env::temp_dir().join(format!("c10-core-graph-failures-{}.dot", std::process::id()))
}

/// The life of a few graphs.
fn program(rig: &Rig, open: &Arc<AtomicI64>) -> Result<()> {
    let runtime = &rig.runtime;
    let (stream, side) = (runtime.streams().pooled(DEVICE, 0)?, runtime.streams().pooled(DEVICE, 0)?);
    let (buffer, host) = (runtime.memory().buffer(LEN, &stream)?, runtime.pinned().buffer(LEN)?);
    let scalar = runtime.memory().buffer(8, &stream)?;
    let mark = Event::on(runtime, EventOptions { external: true, ..EventOptions::default() });
    let pool = PoolId::handle();

    let mut child = CUDAGraph::on(runtime, true);
    child.capture(&stream, Some(pool), CaptureMode::ThreadLocal, || {
        let inside = runtime.memory().buffer(LEN, &stream)?;
        inside.fill(0..LEN, 3, &stream)?;
        buffer.copy_from_buffer(0, &inside, 0..LEN, &stream)
    })?;
    let mut graph = CUDAGraph::on(runtime, true);
    graph.register_generator_state(Arc::new(Generator { scalar, open: Arc::clone(open) }))?;
    graph.record(&stream, None, CaptureMode::Global, |scope| {
        scope.add_child(&child)?;
        let inside = scope.buffer(3 << 20)?;
        scope.fork(&side, |scope| {
            scope.copy(&inside, 0, &buffer, 0..LEN)?;
            scope.copy_to_pinned(&inside, 0..LEN, &host, 0)
        })?;
        scope.record_event(&mark)
    })?;
    graph.debug_dump(dot_file())?;
    graph.report()?;
    graph.instantiate()?;
    graph.upload(&side)?;
    graph.replay()?;
    {
        let _current = runtime.streams().guard(&side)?;
        graph.replay()?;
        side.synchronize()?;
        stream.synchronize()?;
    }
    runtime.synchronize(DEVICE)?;
    assert_eq!(host.to_vec()?, [3; LEN]);
    child.reset()?;
    let mut newer = CUDAGraph::on(runtime, true);
    newer.capture(&stream, Some(pool), CaptureMode::Relaxed, || buffer.fill(0..LEN, 5, &stream))?;
    let mut plain = CUDAGraph::on(runtime, false);
    plain.capture(&stream, None, CaptureMode::Global, || buffer.fill(0..LEN, 4, &stream))?;
    plain.update(&mut newer)?;
    plain.replay()?;
    runtime.synchronize(DEVICE)?;
    assert_eq!(buffer.to_vec()?, [5; LEN]);
    let outcome = newer.capture_or_run(&stream, None, CaptureMode::Global, || buffer.fill(0..LEN, 6, &stream))?;
    if outcome == CaptureOutcome::Captured(()) {
        newer.replay()?;
    }
    runtime.synchronize(DEVICE)?;
    assert_eq!(buffer.to_vec()?, [6; LEN]);
    graph.reset()?;
    runtime.memory().empty_cache()?;
    runtime.pinned().empty_cache()
}

/// Runs the program with one failing call. Tells whether the failure was noticed.
fn run_with(fault: Fault) -> bool {
    let context = format!("{fault:?}");
    let rig = Rig::new(config());
    let open = Arc::new(AtomicI64::new(0));
    rig.machine.inject(fault);
    let result = program(&rig, &open);
    rig.machine.clear_faults();
    if let Err(error) = &result {
        let told =
            error.error_code().is_some() || error.is_out_of_memory() || *error == Error::Start(StartError::NoDevices);
        assert!(told, "{context}: {error:?}");
    }
    assert_eq!(open.load(Ordering::Relaxed), 0, "{context}: a generator waits for the end of a capture");
    assert_eq!(rig.runtime.inconsistency(), None, "{context}");
    rig.runtime.synchronize(DEVICE).unwrap_or_else(|error| panic!("{context}, then {result:?}: {error:?}"));
    assert_eq!(rig.allocated_bytes(), 0, "{context}: {result:?}");
    let live = rig.machine.live();
    assert_eq!((live.graphs, live.graph_execs), (0, 0), "{context}: {result:?}");
    program(&rig, &open).unwrap_or_else(|error| panic!("{context}, then {result:?}; the second run: {error:?}"));
    rig.runtime.memory().empty_cache().expect("no fault is left");
    assert_eq!((rig.runtime.inconsistency(), rig.reserved_bytes()), (None, 0), "{context}");
    assert_eq!(rig.left(), LiveHandles::default(), "{context}: {result:?}");
    result.is_err()
}

#[test]
fn any_call_in_the_life_of_a_graph_may_fail() {
    let rig = Rig::new(config());
    program(&rig, &Arc::default()).unwrap();
    let calls = rig.machine.calls();
    assert_eq!(rig.left(), LiveHandles::default());
    for needed in [
        "cuGraphAddChildGraphNode",
        "cuStreamUpdateCaptureDependencies_v2",
        "cuGraphDebugDotPrint",
        "cuGraphNodeGetType",
        "cuGraphUpload",
        "cuGraphExecUpdate_v2",
        "cuGraphInstantiateWithFlags",
        "cuGraphLaunch",
        "cuGraphDestroy",
        "cuGraphExecDestroy",
    ] {
        assert!(calls.iter().any(|(call, ..)| *call == needed), "{needed} is not called");
    }
    let (tried, noticed) = fail_each_call(&calls, run_with);
    std::fs::remove_file(dot_file()).unwrap();
    println!("{noticed} of {tried} failures were noticed");
    assert!(tried > 300, "only {tried} places");
    assert!(noticed * 10 > tried * 7, "{noticed} of {tried} failures were noticed");
}
