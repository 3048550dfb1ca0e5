//! Memory used on two streams of a capture and given back in it: when the capture may use it again.

mod common;

use c10_core::{CUDAGraph, CaptureMode, Error, Result, Stream};
use common::{DEVICE, Rig, config, rig};

const LEN: usize = 4 << 20;

/// Captures work that uses a buffer on two streams, gives it back, and asks for as much again before the streams join
/// or after; whether the second buffer was where the first one was.
fn is_used_again(rig: &Rig, graph: &mut CUDAGraph, [stream, side]: [&Stream; 2], joined: bool) -> Result<bool> {
    let out = rig.runtime.memory().buffer(LEN, stream)?;
    let mut same = false;
    graph.capture::<_, Error>(stream, None, CaptureMode::Global, || {
        let first = rig.runtime.memory().buffer(LEN, stream)?;
        let address = first.address();
        first.fill(0..LEN, 3, stream)?;
        side.wait_stream(stream)?;
        out.copy_from_buffer(0, &first, 0..LEN, side)?;
        drop(first);
        if joined {
            stream.wait_stream(side)?;
        }
        let second = rig.runtime.memory().buffer(LEN, stream)?;
        second.fill(0..LEN, 9, stream)?;
        same = second.address() == address;
        stream.wait_stream(side)
    })?;
    for _ in 0..20 {
        out.copy_from_slice(0, &[0; LEN])?;
        graph.replay()?;
        rig.runtime.synchronize(DEVICE)?;
        assert!(out.to_vec()?.iter().all(|byte| *byte == 3), "the memory was used too early");
    }
    Ok(same)
}

#[test]
fn memory_is_used_again_once_its_streams_have_joined() {
    for (settings, joined, expected) in [
        ("graph_capture_record_stream_reuse:True", true, true),
        ("graph_capture_record_stream_reuse:True", false, false),
        ("graph_capture_record_stream_reuse:False", true, false),
    ] {
        let rig = rig();
        rig.runtime.memory().set_settings(settings).unwrap();
        let (stream, side) = (rig.stream(), rig.stream());
        let mut graph = CUDAGraph::on(&rig.runtime, false);
        let again = is_used_again(&rig, &mut graph, [&stream, &side], joined).unwrap();
        assert_eq!(again, expected, "{settings}, {joined}");
        let reserved = rig.reserved_bytes();
        drop(graph);
        rig.runtime.memory().empty_cache().unwrap();
        assert!(rig.reserved_bytes() < reserved && rig.runtime.is_valid());
        assert!(rig.machine.take_reports().is_empty());
    }
}

/// A driver before CUDA 12.3 has the older functions only.
#[test]
fn older_drivers_are_asked_in_their_way() {
    let rig = Rig::new(config().driver_version(cuda_sys::CudaVersion(12000)));
    rig.runtime.memory().set_settings("graph_capture_record_stream_reuse:True").unwrap();
    let (stream, side) = (rig.stream(), rig.stream());
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    assert!(is_used_again(&rig, &mut graph, [&stream, &side], true).unwrap());
}

/// Memory that a stream outside of the capture used waits for the end, and that stream's event.
#[test]
fn a_stream_outside_of_the_capture_is_waited_for() {
    let rig = rig();
    rig.runtime.memory().set_settings("graph_capture_record_stream_reuse:True").unwrap();
    let (stream, outside) = (rig.stream(), rig.stream());
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    let captured: Result<[u64; 2], Error> = graph.capture(&stream, None, CaptureMode::ThreadLocal, || {
        let first = rig.runtime.memory().buffer(LEN, &stream)?;
        first.fill(0..LEN, 1, &stream)?;
        first.record_stream(&outside)?;
        let address = first.address();
        drop(first);
        let second = rig.runtime.memory().buffer(LEN, &stream)?;
        second.fill(0..LEN, 1, &stream)?;
        Ok([address, second.address()])
    });
    let [first, second] = captured.unwrap();
    assert_ne!(first, second);
    rig.runtime.memory().buffer(1, &outside).unwrap();
    drop(graph);
    rig.runtime.memory().empty_cache().unwrap();
    assert!(rig.runtime.is_valid());
}
