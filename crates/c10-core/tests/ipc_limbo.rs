//! Memory that is kept for other processes alone: it serves the next request that finds nothing cached, when they have let
//! go of it. Here nobody comes for it.

mod common;

use c10_core::{
    CUDAGraph, CaptureMode, DeviceBuffer, DeviceIndex, Error, HistoryOptions, Result, Runtime, TraceAction, TraceEntry,
};
use common::{DEVICE, Rig, config, fail_each_call, rig};
use cuda_sim::LiveHandles;

/// Bytes that fill a segment.
const WHOLE: usize = 20 << 20;

/// Shares memory that no receiver opens, and does not wait for one.
fn share_for_nobody(runtime: &Runtime, buffer: DeviceBuffer) -> Result<()> {
    runtime.ipc().release(&buffer.share()?)
}

#[test]
fn memory_in_limbo_serves_whatever_holds_it() {
    for settings in ["", "backend:elastic", "expandable_segments:True", "learn_plans:True", "max_split_size_mb:21"] {
        let rig = rig();
        let runtime = &rig.runtime;
        runtime.memory().set_settings(settings).unwrap();
        let stream = rig.stream();
        let buffer = runtime.memory().buffer(30 << 20, &stream).unwrap();
        let (address, used) = (buffer.address(), buffer.clone());
        share_for_nobody(runtime, buffer).unwrap();
        let reserved = rig.reserved_bytes();
        // Memory that this process still uses is not waited for by a look at its receivers.
        drop(runtime.memory().buffer(1000, &stream).unwrap());
        runtime.memory().empty_cache().unwrap();
        assert_eq!(rig.reserved_bytes(), reserved, "{settings}");
        drop(used);
        assert_eq!(runtime.memory().buffer(30 << 20, &stream).unwrap().address(), address, "{settings}");
        assert_eq!(rig.reserved_bytes(), reserved, "{settings}");
        assert!(runtime.is_valid(), "{settings}");
    }
}

#[test]
fn memory_in_limbo_serves_while_the_history_is_recorded() {
    let rig = Rig::new(config().devices(2));
    let (runtime, far) = (&rig.runtime, DeviceIndex(1));
    runtime.memory().record_history(Some(&HistoryOptions::default())).unwrap();
    let (stream, other) = (rig.stream(), runtime.streams().pooled(far, 0).unwrap());
    let (here, there) =
        (runtime.memory().buffer(WHOLE, &stream).unwrap(), runtime.memory().buffer(WHOLE, &other).unwrap());
    let addresses = [here.address(), there.address()];
    // Sharing looks too, so that both are shared before they are let go of.
    let shared = [&here, &there].map(|buffer| buffer.share().unwrap());
    shared.iter().for_each(|shared| runtime.ipc().release(shared).unwrap());
    drop((here, there));
    // The request of one device gives back what is held of both.
    let again = runtime.memory().buffer(WHOLE, &stream).unwrap();
    assert_eq!(runtime.memory().stats(far).unwrap().allocated_bytes.all.current, 0);
    assert_eq!([again.address(), runtime.memory().buffer(WHOLE, &other).unwrap().address()], addresses);
    let snapshot = runtime.memory().take_snapshot(None, true).unwrap();
    let freed =
        |entries: &[TraceEntry]| entries.iter().filter(|entry| entry.action == TraceAction::FreeCompleted).count();
    assert_eq!(snapshot.device_traces.iter().map(|entries| freed(entries)).collect::<Vec<_>>(), [1, 2]);
    assert!(runtime.is_valid());
}

#[test]
fn memory_in_limbo_serves_a_capture_from_its_own_pool_alone() {
    let rig = rig();
    let (runtime, stream) = (&rig.runtime, rig.stream());
    let buffer = runtime.memory().buffer(WHOLE, &stream).unwrap();
    let address = buffer.address();
    share_for_nobody(runtime, buffer).unwrap();
    let mut graph = CUDAGraph::on(runtime, false);
    let inside = graph.capture(&stream, None, CaptureMode::Global, || {
        let own = runtime.memory().buffer(WHOLE, &stream)?;
        own.fill(0..WHOLE, 1, &stream)?;
        assert_ne!(own.address(), address, "a graph keeps the memory of its pool");
        Ok::<_, Error>(())
    });
    inside.unwrap();
    graph.replay().unwrap();
    assert_eq!(rig.allocated_bytes(), 0, "it was given back all the same");
    assert_eq!(runtime.memory().buffer(WHOLE, &stream).unwrap().address(), address);
    assert!(runtime.is_valid());
}

/// Shares two buffers and asks for as much again. Every call of the driver may fail.
fn goes_through_limbo(rig: &Rig) -> Result<()> {
    let (runtime, stream) = (&rig.runtime, rig.runtime.streams().pooled(DEVICE, 0)?);
    let buffers = [WHOLE, 2 * WHOLE].map(|len| runtime.memory().buffer(len, &stream));
    // Sharing looks too, so that all are shared before they are let go of.
    let shared = buffers.into_iter().map(|buffer| buffer?.share()).collect::<Result<Vec<_>>>()?;
    shared.iter().try_for_each(|shared| runtime.ipc().release(shared))?;
    let again = [2 * WHOLE, WHOLE].map(|len| runtime.memory().buffer(len, &stream));
    again.into_iter().collect::<Result<Vec<_>>>().map(drop)
}

#[test]
fn any_call_may_fail_while_memory_in_limbo_is_given_back() {
    let probe = rig();
    goes_through_limbo(&probe).unwrap();
    let calls = probe.machine.calls();
    let (tried, noticed) = fail_each_call(&calls, |fault| {
        let rig = rig();
        rig.machine.inject(fault);
        let outcome = goes_through_limbo(&rig);
        assert!(rig.runtime.is_valid(), "{fault:?}");
        rig.runtime.ipc().collect().unwrap();
        // Where the memory was not let go of, since that failed, its event is left and goes later.
        assert!(rig.allocated_bytes() <= 3 * i64::try_from(WHOLE).unwrap(), "{fault:?}");
        goes_through_limbo(&rig).unwrap();
        assert_eq!(rig.left(), LiveHandles::default(), "{fault:?}");
        outcome.is_err()
    });
    assert!(tried > 20 && noticed > 10, "{noticed} of {tried} faults were noticed");
}
