//! Green contexts: how many multiprocessors they have, what is ordered with what, and that nothing of them is left.

mod common;

use std::collections::HashSet;

use c10_core::{
    CUDAGraph, CaptureMode, Device, DeviceBuffer, DeviceIndex, Error, GreenContext, GreenContextError, Result, Stream,
};
use common::{DEVICE, Rig, code, config, fail_each_call, rig};
use cuda_sim::{Fault, LiveHandles};
use cuda_sys::{CUresult, CudaVersion};

const THERE: DeviceIndex = DeviceIndex(1);

fn green(rig: &Rig, num_sms: u32) -> GreenContext {
    rig.runtime.streams().green_context(DEVICE, num_sms).expect("a device with so many multiprocessors")
}

fn current(rig: &Rig) -> Stream {
    rig.runtime.streams().current(DEVICE).expect("the device is there")
}

#[test]
fn sizes_are_whole_groups() {
    let rig = rig();
    for (asked, wanted) in [(1, 8), (8, 8), (9, 16), (66, 72), (129, 132), (132, 132)] {
        assert_eq!(green(&rig, asked).num_sms(), wanted, "{asked}");
    }
    assert_eq!(green(&rig, 8).device(), Device::cuda(0));
    assert_eq!(format!("{:?}", green(&rig, 8)), "GreenContext { num_sms: 8, device: cuda:0 }");
}

#[test]
fn impossible_sizes_are_refused() {
    let rig = rig();
    for asked in [0, 133, u32::MAX] {
        let refused = rig.runtime.streams().green_context(DEVICE, asked).expect_err("no device has so many");
        assert_eq!(refused, Error::GreenContext(GreenContextError::InvalidCount { asked, available: 132 }));
    }
    let refused = rig.runtime.streams().green_context(DeviceIndex(7), 8);
    assert_eq!(code(refused), CUresult::CUDA_ERROR_INVALID_DEVICE.0);
    assert_eq!(rig.left(), LiveHandles::default());
}

#[test]
fn old_drivers_have_none() {
    let rig = Rig::new(config().driver_version(CudaVersion(12040)));
    let refused = rig.runtime.streams().green_context(DEVICE, 8).expect_err("the driver is too old");
    assert_eq!(refused, Error::GreenContext(GreenContextError::DriverTooOld { found: 12040 }));
    assert_eq!(refused.to_string(), "cuda driver too old to use green context!");
}

#[test]
fn streams_go_round() {
    let rig = rig();
    let part = green(&rig, 16);
    let streams: Vec<Stream> = (0..33).map(|_| part.stream().expect("a stream")).collect();
    let distinct: HashSet<_> = streams.iter().map(Stream::cuda_stream).collect();
    assert_eq!((distinct.len(), &streams[32]), (32, &streams[0]));
    assert!(streams.iter().all(|stream| stream.priority() == Ok(0) && stream.device_index() == DEVICE));
}

/// Entering and leaving orders: what was queued before comes first, and what is queued afterwards last.
#[test]
fn work_before_inside_and_after_is_in_order() -> Result<()> {
    const LEN: usize = 1 << 16;
    for seed in 0..16 {
        let rig = Rig::new(config().seed(seed).late_events(true));
        let (parent, part) = (rig.stream(), green(&rig, 16));
        let buffer = rig.runtime.memory().buffer(LEN, &parent)?;
        let outside = parent.guard();
        buffer.fill(0..LEN, 1, &parent)?;
        part.set_context()?;
        let inside = current(&rig);
        assert_ne!(inside, parent);
        buffer.fill(0..LEN / 2, 2, &inside)?;
        part.pop_context()?;
        assert_eq!(current(&rig), parent);
        buffer.fill(0..LEN / 4, 3, &parent)?;
        parent.synchronize()?;
        drop(outside);
        let bytes = buffer.to_vec()?;
        let wanted = [(0, 3), (LEN / 4, 2), (LEN / 2, 1), (LEN - 1, 1)];
        assert!(wanted.iter().all(|&(at, byte)| bytes[at] == byte), "seed {seed}");
    }
    Ok(())
}

/// Streams wait for nothing by themselves: under some seeds the second fill runs first.
#[test]
fn streams_are_ordered_by_nobody() -> Result<()> {
    let mut overtaken = 0;
    for seed in 0..16 {
        let rig = Rig::new(config().seed(seed));
        let (parent, inside) = (rig.stream(), green(&rig, 16).stream()?);
        let buffer = rig.runtime.memory().buffer(4096, &parent)?;
        parent.synchronize()?;
        buffer.fill(0..4096, 1, &parent)?;
        buffer.fill(0..4096, 2, &inside)?;
        rig.runtime.synchronize(DEVICE)?;
        overtaken += usize::from(buffer.to_vec()?[0] == 1);
    }
    assert!((1..16).contains(&overtaken), "{overtaken} of 16");
    Ok(())
}

#[test]
fn contexts_are_left_in_order() -> Result<()> {
    let rig = rig();
    let (outer, inner) = (green(&rig, 16), green(&rig, 32));
    let not_current = Err(Error::GreenContext(GreenContextError::NotCurrent));
    assert_eq!(outer.pop_context(), not_current);
    outer.set_context()?;
    let on_outer = current(&rig);
    inner.set_context()?;
    assert_eq!(outer.pop_context(), not_current);
    std::thread::scope(|scope| scope.spawn(|| assert_eq!(inner.pop_context(), not_current)).join()).expect("no panic");
    inner.pop_context()?;
    assert_eq!(current(&rig), on_outer);
    outer.set_context()?;
    outer.pop_context()?;
    outer.pop_context()?;
    assert!(current(&rig).is_default());
    assert_eq!(outer.pop_context(), not_current);
    Ok(())
}

/// What is current inside when the context is left is what later work outside waits for.
#[test]
fn leaving_waits_for_the_current_stream() -> Result<()> {
    for seed in 0..16 {
        let rig = Rig::new(config().seed(seed).late_events(true));
        let (part, buffer) = (green(&rig, 16), rig.runtime.memory().buffer(4096, &current(&rig))?);
        part.set_context()?;
        let other = part.stream()?;
        other.wait_stream(&current(&rig))?;
        rig.runtime.streams().set_current(&other)?;
        buffer.fill(0..4096, 1, &other)?;
        part.pop_context()?;
        buffer.fill(0..4096, 2, current(&rig))?;
        rig.runtime.synchronize(DEVICE)?;
        assert_eq!(buffer.to_vec()?[0], 2, "seed {seed}");
    }
    Ok(())
}

#[test]
fn another_device_becomes_current_and_goes_again() -> Result<()> {
    let rig = Rig::new(config().devices(2));
    let part = rig.runtime.streams().green_context(THERE, 8)?;
    let here = rig.stream();
    rig.runtime.streams().set_current(&here)?;
    part.set_context()?;
    assert_eq!(rig.runtime.current_device()?, THERE);
    assert!(!rig.runtime.streams().current(THERE)?.is_default());
    part.pop_context()?;
    assert_eq!(rig.runtime.current_device()?, DEVICE);
    assert_eq!(current(&rig), here);
    assert!(rig.runtime.streams().current(THERE)?.is_default());
    Ok(())
}

#[test]
fn captures_go_through_it() -> Result<()> {
    let rig = rig();
    let (stream, part) = (rig.stream(), green(&rig, 16));
    let buffer = rig.runtime.memory().buffer(4096, &stream)?;
    let _current = stream.guard();
    let mut graph = CUDAGraph::on(&rig.runtime, false);
    graph.record(&stream, None, CaptureMode::Global, |_| {
        part.set_context()?;
        buffer.fill(0..4096, 5, current(&rig))?;
        part.pop_context()
    })?;
    assert_ne!(buffer.to_vec()?[0], 5);
    graph.replay()?;
    stream.synchronize()?;
    assert_eq!(buffer.to_vec()?[0], 5);
    Ok(())
}

/// One that nobody holds is used again, by its size.
#[test]
fn what_is_given_back_is_used_again() -> Result<()> {
    let rig = rig();
    for _ in 0..10 {
        let part = green(&rig, 16);
        part.stream()?.synchronize()?;
    }
    assert_eq!(rig.machine.live().green_contexts, 1);
    let (first, second) = (green(&rig, 16), green(&rig, 16));
    assert_ne!(first, second);
    assert_eq!(first, first.clone());
    assert_eq!(rig.machine.live().green_contexts, 2);
    green(&rig, 24);
    assert_eq!(rig.machine.live().green_contexts, 3);
    drop((first, second));
    assert_eq!(rig.left(), LiveHandles::default());
    Ok(())
}

/// A buffer may outlive the green context that it was filled on.
#[test]
fn streams_outlive_the_handle() -> Result<()> {
    let rig = rig();
    let part = green(&rig, 16);
    let stream = part.stream()?;
    drop(part);
    let buffer: DeviceBuffer = rig.runtime.memory().buffer(4096, &stream)?;
    buffer.fill(0..4096, 3, &stream)?;
    stream.synchronize()?;
    assert_eq!(buffer.to_vec()?[0], 3);
    drop((buffer, stream));
    assert_eq!(rig.left(), LiveHandles::default());
    Ok(())
}

/// A program that makes green contexts, works on them and leaves them.
fn program(rig: &Rig) -> Result<()> {
    let part = rig.runtime.streams().green_context(DEVICE, 16)?;
    let buffer = rig.runtime.memory().buffer(4096, &part.stream()?)?;
    part.set_context()?;
    let filled = buffer.fill(0..4096, 1, current(rig));
    // What was entered must be left, and leaving that fails can be tried again.
    part.pop_context().or_else(|_| part.pop_context())?;
    filled?;
    rig.runtime.synchronize(DEVICE)
}

fn survives(fault: Fault) -> bool {
    let rig = rig();
    rig.machine.inject(fault);
    let result = program(&rig);
    rig.machine.clear_faults();
    assert!(current(&rig).is_default(), "{fault:?}: {result:?}");
    program(&rig).unwrap_or_else(|error| panic!("{fault:?}, then {error:?}"));
    assert_eq!(rig.left(), LiveHandles::default(), "{fault:?}: {result:?}");
    result.is_err()
}

/// Whatever call fails, its error comes back, the stream is current again that was, and nothing is left on the machine.
#[test]
fn any_call_may_fail() {
    let rig = rig();
    program(&rig).expect("no call fails");
    let calls = rig.machine.calls();
    assert_eq!(rig.left(), LiveHandles::default());
    let (tried, noticed) = fail_each_call(&calls, survives);
    assert!(tried > 30 && noticed * 2 > tried, "{noticed} of {tried}");
}

/// Leaving that fails changes nothing, and can be tried again.
#[test]
fn leaving_may_fail() -> Result<()> {
    let rig = rig();
    let part = green(&rig, 16);
    part.set_context()?;
    let inside = current(&rig);
    rig.machine.inject(Fault { call: "cuStreamWaitEvent", occurrence: 1, code: CUresult::CUDA_ERROR_INVALID_VALUE });
    assert!(part.pop_context().is_err());
    assert_eq!(current(&rig), inside);
    part.pop_context()?;
    assert!(current(&rig).is_default());
    Ok(())
}
