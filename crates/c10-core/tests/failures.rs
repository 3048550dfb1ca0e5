//! Every driver call of a long program fails, at every place where the program makes it.
//!
//! Whatever fails: the operation returns that error (or, where nobody can be told, goes on), the books balance, the
//! same program works right afterwards, and when the runtime is dropped nothing is left on the machine.

mod common;

use c10_core::{CUDAGraph, CaptureMode, DeviceIndex, Event, EventOptions, MemPoolOptions, Result};
use common::{DEVICE, Rig, config, fail_each_call};
use cuda_sim::{Fault, LiveHandles};
use cuda_sys::CUresult;

const LEN: usize = 3 << 20;

/// A bit of everything.
fn program(rig: &Rig) -> Result<()> {
    let runtime = &rig.runtime;
    runtime.init()?;
    let _device = runtime.device_guard(DeviceIndex(1))?;
    let device = runtime.current_device()?;
    runtime.devices().capability(device)?;
    let (stream, side) = (runtime.streams().pooled(device, 0)?, runtime.streams().pooled(device, -1)?);
    let (start, end) = (Event::on(runtime, EventOptions::TIMING), Event::on(runtime, EventOptions::TIMING));
    let pinned = runtime.pinned().buffer(LEN)?;
    pinned.write(0, &[1; 100])?;
    let first = runtime.memory().buffer(LEN, &stream)?;
    start.record(&stream)?;
    first.copy_from_pinned(0, &pinned, 0..LEN, &stream)?;
    end.record(&stream)?;
    side.wait_event(&end)?;
    let second = runtime.memory().buffer(LEN, &side)?;
    second.copy_from_buffer(0, &first, 0..LEN, &side)?;
    drop(first);
    let third = runtime.memory().buffer(600, &stream)?;
    third.copy_from_slice(0, &[2; 600])?;
    end.synchronize()?;
    start.elapsed_time(&end)?;

    let mut graph = CUDAGraph::on(runtime, false);
    graph.capture(&stream, None, CaptureMode::Global, || {
        let inside = runtime.memory().buffer(LEN, &stream)?;
        inside.fill(0..LEN, 3, &stream)?;
        third.copy_from_buffer(0, &inside, 0..600, &stream)?;
        third.copy_to_pinned(0..600, &pinned, 0, &stream)
    })?;
    drop(runtime.streams().guard(&stream)?);
    graph.replay()?;
    stream.synchronize()?;
    assert_eq!(third.to_vec()?, [3; 600]);
    graph.reset()?;
    drop((second, pinned));
    side.query()?;
    runtime.memory().info(device)?;
    let again = runtime.memory().buffer(LEN, &side)?;
    let default = runtime.streams().default(DEVICE)?;
    runtime.memory().buffer(100, &default)?.fill(0..100, 1, &default)?;
    runtime.synchronize(device)?;
    drop(again);
    runtime.memory().empty_cache()?;
    runtime.pinned().empty_cache()
}

/// Memory in expandable segments and in a pool, with gaps, growth and shrinking.
fn expanding_program(rig: &Rig) -> Result<()> {
    growing_program(rig, "expandable_segments:True")
}

/// The same in pages that move, from one stream to another and within one.
fn elastic_program(rig: &Rig) -> Result<()> {
    growing_program(rig, "backend:elastic")?;
    let memory = rig.runtime.memory();
    let (stream, side) = (rig.runtime.streams().pooled(DEVICE, 0)?, rig.runtime.streams().pooled(DEVICE, 0)?);
    let (first, second) = (memory.buffer(6 << 20, &stream)?, memory.buffer(6 << 20, &stream)?);
    drop(first);
    let third = memory.buffer(8 << 20, &stream)?;
    drop(second);
    drop((memory.buffer(6 << 20, &side)?, third));
    memory.empty_cache()
}

fn growing_program(rig: &Rig, settings: &str) -> Result<()> {
    let runtime = &rig.runtime;
    runtime.memory().set_settings(settings)?;
    runtime.init()?;
    let (stream, side) = (runtime.streams().pooled(DEVICE, 0)?, runtime.streams().pooled(DEVICE, 0)?);
    let first = runtime.memory().buffer(50 << 20, &stream)?;
    let second = runtime.memory().buffer(30 << 20, &stream)?;
    let small = runtime.memory().buffer(5000, &side)?;
    second.record_stream(&side)?;
    drop(first);
    runtime.memory().empty_cache()?;
    let third = runtime.memory().buffer(70 << 20, &stream)?;
    let pool = runtime.mem_pools().create(MemPoolOptions::default())?;
    let inside = runtime.mem_pools().with(&pool, DEVICE, || runtime.memory().buffer(3 << 20, &stream))?;
    drop((second, third, small, inside));
    runtime.synchronize(DEVICE)?;
    drop(pool);
    runtime.memory().empty_cache()
}

/// Runs the program with one failing call. Tells whether the failure was noticed.
fn run_with(program: fn(&Rig) -> Result<()>, fault: Fault) -> bool {
    let context = format!("{fault:?}");
    let rig = Rig::new(config().devices(2));
    rig.machine.inject(fault);
    let result = program(&rig);
    rig.machine.clear_faults();
    if let Err(error) = &result {
        let told = error.error_code().is_some()
            || error.is_out_of_memory()
            || *error == c10_core::Error::Start(c10_core::StartError::NoDevices);
        assert!(told, "{context}: {error:?}");
    }
    assert_eq!(rig.runtime.inconsistency(), None, "{context}");
    for device in [DEVICE, DeviceIndex(1)] {
        // What could not get its event is let go of here.
        rig.runtime.synchronize(device).unwrap_or_else(|error| panic!("{context}, then {result:?}: {error:?}"));
    }
    for device in [DEVICE, DeviceIndex(1)] {
        let allocated = rig.runtime.memory().stats(device).map(|stats| stats.allocated_bytes.all.current);
        assert_eq!(allocated, Ok(0), "{context}: {result:?}");
    }
    program(&rig).unwrap_or_else(|error| panic!("{context}, then {result:?}; the second run: {error:?}"));
    assert_eq!(rig.runtime.inconsistency(), None, "{context}");
    assert_eq!(rig.left(), LiveHandles::default(), "{context}: {result:?}");
    result.is_err()
}

#[test]
fn any_driver_call_may_fail() {
    let rig = Rig::new(config().devices(2));
    program(&rig).unwrap();
    let calls = rig.machine.calls();
    assert_eq!(rig.left(), LiveHandles::default());
    let (tried, noticed) = fail_each_call(&calls, |fault| run_with(program, fault));
    assert!(tried > 150, "only {tried} places");
    assert!(noticed * 10 > tried * 7, "{noticed} of {tried} failures were noticed");
}

#[test]
fn any_call_for_virtual_memory_may_fail() {
    for program in [expanding_program, elastic_program] {
        let tried = fail_virtual_memory(program).unwrap();
        println!("failed {tried} calls for virtual memory");
    }
}

/// How many calls have failed.
fn fail_virtual_memory(program: fn(&Rig) -> Result<()>) -> Result<usize> {
    let rig = Rig::new(config().devices(2));
    program(&rig)?;
    let calls = rig.machine.calls();
    assert_eq!(rig.left(), LiveHandles::default());
    let (mut tried, mut failed) = (0, std::collections::BTreeSet::new());
    for code in [CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_NOT_PERMITTED] {
        for (call, _, count) in calls.iter().filter(|(call, ..)| VIRTUAL_MEMORY.contains(call)) {
            for occurrence in 1..=*count {
                run_with(program, Fault { call, occurrence, code });
                tried += 1;
                failed.insert(*call);
            }
        }
    }
    assert_eq!(failed.len(), VIRTUAL_MEMORY.len(), "{failed:?}");
    Ok(tried)
}

const VIRTUAL_MEMORY: [&str; 8] = [
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuStreamSynchronize",
];
