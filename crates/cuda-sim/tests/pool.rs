//! Stream-ordered memory as programs see it: pools, order, reuse, what is given back when, misuse.
//!
//! # Safety
//! Calls C functions of a simulated machine; see the support module.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ptr;

use cuda_sim::{Config, ReportKind};
use cuda_sys::driver::types::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUpointer_attribute, CUstream,
    CUstreamCaptureMode,
};
use cuda_sys::{CUresult, DriverError};
use support::{Rig, code};

const CHUNK: u64 = 32 << 20;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;
const INVALID_DEVICE: CUresult = CUresult::CUDA_ERROR_INVALID_DEVICE;
const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
const CAPTURE_UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_CURRENT: u32 = 5;
const USED_CURRENT: u32 = 7;
const USED_HIGH: u32 = 8;

fn alloc(rig: &Rig, bytes: usize, stream: CUstream) -> u64 {
    let mut pointer = 0;
    call!(rig, cuMemAllocAsync(&mut pointer, bytes, stream)).expect("there is memory");
    pointer
}

fn free(rig: &Rig, pointer: u64, stream: CUstream) {
    call!(rig, cuMemFreeAsync(pointer, stream)).expect("allocated");
}

fn sync(rig: &Rig, stream: CUstream) {
    call!(rig, cuStreamSynchronize(stream)).expect("finishes");
}

fn default_pool(rig: &Rig) -> CUmemoryPool {
    let mut pool = ptr::null_mut();
    call!(rig, cuDeviceGetDefaultMemPool(&mut pool, 0)).expect("every device has one");
    pool
}

fn ask(rig: &Rig, pool: CUmemoryPool, attribute: u32) -> Result<u64, DriverError> {
    let mut value = 0_u64;
    call!(rig, cuMemPoolGetAttribute(pool, CUmemPool_attribute(attribute), (&raw mut value).cast())).map(|()| value)
}

fn tell(rig: &Rig, pool: CUmemoryPool, attribute: u32, mut value: u64) -> Result<(), DriverError> {
    call!(rig, cuMemPoolSetAttribute(pool, CUmemPool_attribute(attribute), (&raw mut value).cast()))
}

fn reserved(rig: &Rig, pool: CUmemoryPool) -> u64 {
    ask(rig, pool, RESERVED_CURRENT).expect("a number")
}

fn used(rig: &Rig, pool: CUmemoryPool) -> u64 {
    ask(rig, pool, USED_CURRENT).expect("a number")
}

fn on_device(id: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id }
}

fn properties(location: CUmemLocation, max_bytes: usize) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CUmemAllocationHandleType(0),
        location,
        win32SecurityAttributes: ptr::null_mut(),
        maxSize: max_bytes,
        usage: 0,
        reserved: [0; 54],
    }
}

fn new_pool(rig: &Rig, max_bytes: usize) -> CUmemoryPool {
    let mut pool = ptr::null_mut();
    call!(rig, cuMemPoolCreate(&mut pool, &properties(on_device(0), max_bytes))).expect("good properties");
    pool
}

fn device_free(rig: &Rig) -> usize {
    let (mut free, mut total) = (0, 0);
    call!(rig, cuMemGetInfo_v2(&mut free, &mut total)).expect("has a context");
    free
}

#[test]
fn memory_is_taken_by_chunks_and_given_back_when_waited_for() {
    let rig = Rig::new(Config::default());
    let (pool, stream, other, done) = (default_pool(&rig), rig.stream(1), rig.stream(1), rig.event(2));
    let before = device_free(&rig);
    let first = alloc(&rig, 100, stream);
    let second = alloc(&rig, 3 << 20, stream);
    assert_eq!(second, first + 512);
    assert_eq!((reserved(&rig, pool), used(&rig, pool)), (CHUNK, (3 << 20) + 100));
    assert_eq!(before - device_free(&rig), 32 << 20);
    rig.write(second, &[1, 2, 3]);
    assert_eq!(rig.read(second, 3), [1, 2, 3]);
    free(&rig, first, stream);
    free(&rig, second, stream);
    assert_eq!((reserved(&rig, pool), used(&rig, pool)), (CHUNK, 0));
    rig.machine.settle();
    call!(rig, cuStreamQuery(stream)).expect("everything is done");
    sync(&rig, other);
    call!(rig, cuMemPoolTrimTo(pool, 0)).expect("a pool");
    assert_eq!(reserved(&rig, pool), CHUNK, "nobody has waited for the freeing");
    sync(&rig, stream);
    assert_eq!((reserved(&rig, pool), device_free(&rig)), (0, before));
    for wait_by_event in [true, false] {
        let block = alloc(&rig, 100, stream);
        call!(rig, cuEventRecord(done, stream)).expect("queued");
        free(&rig, block, stream);
        call!(rig, cuEventSynchronize(done)).expect("finishes");
        assert_eq!(reserved(&rig, pool), CHUNK, "the event is before the freeing");
        if wait_by_event {
            call!(rig, cuEventRecord(done, stream)).expect("queued");
            call!(rig, cuEventSynchronize(done)).expect("finishes");
        } else {
            call!(rig, cuCtxSynchronize()).expect("finishes");
        }
        assert_eq!(reserved(&rig, pool), 0);
    }
    assert_eq!(ask(&rig, pool, USED_HIGH).ok(), Some((3 << 20) + 100));
}

#[test]
fn a_threshold_keeps_memory_until_it_is_trimmed() {
    let rig = Rig::new(Config::default());
    let (pool, stream) = (default_pool(&rig), rig.stream(1));
    tell(&rig, pool, RELEASE_THRESHOLD, 1 << 30).expect("may be set");
    free(&rig, alloc(&rig, 40 << 20, stream), stream);
    sync(&rig, stream);
    assert_eq!(reserved(&rig, pool), 2 * CHUNK);
    call!(rig, cuMemPoolTrimTo(pool, 1)).expect("a pool");
    assert_eq!(reserved(&rig, pool), CHUNK);
    call!(rig, cuMemPoolTrimTo(pool, 0)).expect("a pool");
    assert_eq!(reserved(&rig, pool), 0);
    assert_eq!(code(call!(rig, cuMemPoolTrimTo(ptr::null_mut(), 0))), INVALID_VALUE);
}

#[test]
fn attributes() {
    let rig = Rig::new(Config::default());
    let pool = default_pool(&rig);
    for reuse in [1, 2, 3] {
        assert_eq!(ask(&rig, pool, reuse).ok(), Some(1));
        tell(&rig, pool, reuse, 0).expect("may be set");
        assert_eq!(ask(&rig, pool, reuse).ok(), Some(0));
    }
    for unknown in [0, 9, 99] {
        assert_eq!(code(ask(&rig, pool, unknown).map(drop)), INVALID_VALUE);
        assert_eq!(code(tell(&rig, pool, unknown, 0)), INVALID_VALUE);
    }
    for current in [RESERVED_CURRENT, USED_CURRENT] {
        assert_eq!(code(tell(&rig, pool, current, 0)), INVALID_VALUE);
    }
    assert_eq!(code(tell(&rig, pool, USED_HIGH, 5)), INVALID_VALUE);
    free(&rig, alloc(&rig, 100, ptr::null_mut()), ptr::null_mut());
    assert_eq!(ask(&rig, pool, USED_HIGH).ok(), Some(100));
    tell(&rig, pool, USED_HIGH, 0).expect("may be reset");
    assert_eq!(ask(&rig, pool, USED_HIGH).ok(), Some(0));
    let to_nowhere = call!(rig, cuMemPoolGetAttribute(pool, CUmemPool_attribute(4), ptr::null_mut()));
    assert_eq!(code(to_nowhere), INVALID_VALUE);
}

#[test]
fn requests_are_checked() {
    let rig = Rig::new(Config::default());
    let stream = rig.stream(1);
    let mut pointer = 7;
    call!(rig, cuMemAllocAsync(&mut pointer, 0, stream)).expect("nothing is fine");
    assert_eq!(pointer, 0);
    pointer = 7;
    assert_eq!(code(call!(rig, cuMemAllocAsync(&mut pointer, 1 << 50, stream))), OUT_OF_MEMORY);
    assert_eq!(pointer, 0);
    assert_eq!(code(call!(rig, cuMemAllocAsync(ptr::null_mut(), 100, stream))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemAllocFromPoolAsync(&mut pointer, 100, ptr::null_mut(), stream))), INVALID_VALUE);
    call!(rig, cuMemFreeAsync(0, stream)).expect("nothing is fine");
    let block = alloc(&rig, 100, stream);
    for wrong in [0x1234, block + 4] {
        assert_eq!(code(call!(rig, cuMemFreeAsync(wrong, stream))), INVALID_VALUE);
        assert_eq!(code(call!(rig, cuMemFree_v2(wrong))), INVALID_VALUE);
    }
    free(&rig, block, stream);
    assert_eq!(code(call!(rig, cuMemFreeAsync(block, stream))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemFree_v2(block))), INVALID_VALUE);
}

#[test]
fn freed_memory_is_reused_by_what_comes_after() {
    let rig = Rig::new(Config::default());
    let (stream, other) = (rig.stream(1), rig.stream(1));
    let keep = alloc(&rig, 100, stream);
    let first = alloc(&rig, 1 << 20, stream);
    call!(rig, cuMemsetD8Async(first, 1, 1 << 20, stream)).expect("queued");
    free(&rig, first, stream);
    assert_eq!(alloc(&rig, 1 << 20, stream), first, "the same stream comes after");
    free(&rig, first, stream);
    let elsewhere = alloc(&rig, 1 << 20, other);
    assert_ne!(elsewhere, first, "another stream does not");
    sync(&rig, stream);
    assert_eq!(alloc(&rig, 1 << 20, other), first);
    tell(&rig, default_pool(&rig), 2, 0).expect("may be set");
    free(&rig, keep, stream);
    rig.machine.settle();
    assert_ne!(alloc(&rig, 100, other), keep, "reuse by chance was switched off");
    assert_eq!(alloc(&rig, 100, stream), keep);
}

#[test]
fn work_before_the_freeing_is_fine_and_later_work_is_refused() {
    for seed in 0..50 {
        let rig = Rig::new(Config::default().seed(seed));
        let (stream, to) = (rig.stream(1), rig.alloc(1 << 20));
        let block = alloc(&rig, 1 << 20, stream);
        call!(rig, cuMemsetD8Async(block, 6, 1 << 20, stream)).expect("queued");
        call!(rig, cuMemcpyDtoDAsync_v2(to, block, 1 << 20, stream)).expect("queued");
        free(&rig, block, stream);
        assert_eq!(code(call!(rig, cuMemsetD8Async(block, 1, 4, stream))), INVALID_VALUE);
        let again = alloc(&rig, 100, stream);
        assert_eq!(again, block);
        call!(rig, cuMemsetD8Async(again, 2, 100, stream)).expect("queued");
        sync(&rig, stream);
        assert_eq!((rig.read(to, 1 << 20), rig.read(again, 100)), (vec![6; 1 << 20], vec![2; 100]));
        assert_eq!(rig.machine.reports(), []);
    }
}

#[test]
fn use_after_the_freeing_is_reported_under_some_seed() {
    let reported = |with_event: bool| {
        let is_reported = |seed: u64| {
            let rig = Rig::new(Config::default().seed(seed));
            let (stream, other, done) = (rig.stream(1), rig.stream(1), rig.event(2));
            let (_keep, block) = (alloc(&rig, 100, stream), alloc(&rig, 1 << 20, stream));
            call!(rig, cuMemsetD8Async(block, 1, 1 << 20, other)).expect("queued");
            call!(rig, cuEventRecord(done, other)).expect("queued");
            if with_event {
                call!(rig, cuStreamWaitEvent(stream, done, 0)).expect("queued");
            }
            free(&rig, block, stream);
            call!(rig, cuCtxSynchronize()).expect("hardware does not notice");
            rig.machine.reports().iter().any(|report| report.kind == ReportKind::UseAfterFree)
        };
        (0..50).filter(|&seed| is_reported(seed)).count()
    };
    assert!(reported(false) > 0, "no seed of 50 shows the missing wait");
    assert_eq!(reported(true), 0);
}

#[test]
fn freed_small_memory_is_poisoned() {
    let rig = Rig::new(Config::default());
    let stream = rig.stream(1);
    let _keep = alloc(&rig, 100, stream);
    let block = alloc(&rig, 64, stream);
    assert_eq!(rig.read(block, 64), [0xA5; 64]);
    rig.write(block, &[0; 64]);
    free(&rig, block, stream);
    let again = alloc(&rig, 64, stream);
    sync(&rig, stream);
    assert_eq!((again, rig.read(again, 64)), (block, vec![0xA5; 64]));
}

#[test]
fn every_function_frees_every_kind() {
    let rig = Rig::new(Config::default());
    let (pool, stream) = (default_pool(&rig), rig.stream(1));
    let before = device_free(&rig);
    let plain = rig.alloc(64 << 20);
    call!(rig, cuMemsetD8Async(plain, 1, 16, stream)).expect("queued");
    free(&rig, plain, stream);
    assert_eq!(code(call!(rig, cuMemFreeAsync(plain, stream))), INVALID_VALUE);
    assert_eq!(before - device_free(&rig), 64 << 20, "the work before it is not done");
    sync(&rig, stream);
    assert_eq!(device_free(&rig), before);
    let pooled = alloc(&rig, 100, stream);
    call!(rig, cuMemFree_v2(pooled)).expect("allocated");
    assert_eq!((reserved(&rig, pool), used(&rig, pool)), (0, 100), "it stays counted, as on hardware");
    assert_eq!(device_free(&rig), before);
    assert_eq!(rig.machine.live().allocations, 0);
    let mut host = ptr::null_mut();
    call!(rig, cuMemAllocHost_v2(&mut host, 16)).expect("there is memory");
    assert_eq!(code(call!(rig, cuMemFreeAsync(host.addr() as u64, stream))), INVALID_VALUE);
}

#[test]
fn pools_of_the_program() {
    let rig = Rig::new(Config::default());
    let (default, stream) = (default_pool(&rig), rig.stream(1));
    let own = new_pool(&rig, 0);
    let current = || {
        let mut pool = ptr::null_mut();
        call!(rig, cuDeviceGetMemPool(&mut pool, 0)).expect("there is one");
        pool
    };
    assert_eq!(current(), default);
    call!(rig, cuDeviceSetMemPool(0, own)).expect("a pool of the device");
    assert_eq!(current(), own);
    let before = device_free(&rig);
    let block = alloc(&rig, 100, stream);
    assert_eq!((used(&rig, own), used(&rig, default)), (100, 0));
    assert_eq!(rig.machine.live().pools, 1);
    call!(rig, cuMemPoolDestroy(own)).expect("memory in use does not matter");
    assert_eq!(current(), default);
    assert_eq!(rig.machine.live().pools, 0);
    assert_eq!(code(call!(rig, cuMemAllocFromPoolAsync(&mut 0, 100, own, stream))), INVALID_VALUE);
    rig.write(block, &[1; 100]);
    free(&rig, block, stream);
    sync(&rig, stream);
    assert_eq!((device_free(&rig), rig.machine.live().allocations), (before, 0));
    assert_eq!(code(call!(rig, cuMemPoolDestroy(default))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemPoolDestroy(own))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuDeviceSetMemPool(0, ptr::null_mut()))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuDeviceSetMemPool(9, default))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuDeviceGetMemPool(&mut ptr::null_mut(), 9))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuDeviceGetDefaultMemPool(&mut ptr::null_mut(), 9))), INVALID_DEVICE);
}

#[test]
fn pool_properties_are_checked_and_limits_kept() {
    let rig = Rig::new(Config::default());
    let stream = rig.stream(1);
    let make = |properties: &CUmemPoolProps| code(call!(rig, cuMemPoolCreate(&mut ptr::null_mut(), properties)));
    let (good, host) = (properties(on_device(0), 0), CUmemLocation { type_: CUmemLocationType(2), id: 0 });
    assert_eq!(make(&properties(on_device(9), 0)), INVALID_VALUE);
    assert_eq!(make(&properties(CUmemLocation { type_: CUmemLocationType(0), id: 0 }, 0)), INVALID_VALUE);
    assert_eq!(make(&CUmemPoolProps { allocType: CUmemAllocationType(0), ..good }), INVALID_VALUE);
    assert_eq!(make(&CUmemPoolProps { handleTypes: CUmemAllocationHandleType(64), ..good }), INVALID_VALUE);
    assert_eq!(make(&properties(host, 0)), NOT_SUPPORTED);
    assert_eq!(code(call!(rig, cuMemPoolCreate(&mut ptr::null_mut(), ptr::null()))), INVALID_VALUE);
    let limited = new_pool(&rig, 100);
    let mut block = 0;
    call!(rig, cuMemAllocFromPoolAsync(&mut block, 1 << 20, limited, stream)).expect("limits count in chunks");
    let too_much = call!(rig, cuMemAllocFromPoolAsync(&mut block, 40 << 20, limited, stream));
    assert_eq!(code(too_much), OUT_OF_MEMORY);
}

#[test]
fn access_to_pools() {
    let rig = Rig::new(Config::default().devices(2));
    let own = new_pool(&rig, 0);
    let ask = |mut location: CUmemLocation| {
        let mut flags = CUmemAccess_flags(7);
        call!(rig, cuMemPoolGetAccess(&mut flags, own, &mut location)).map(|()| flags.0)
    };
    let grant = |location, flags, count| {
        let grant = CUmemAccessDesc { location, flags: CUmemAccess_flags(flags) };
        call!(rig, cuMemPoolSetAccess(own, &grant, count))
    };
    let host = CUmemLocation { type_: CUmemLocationType(2), id: 0 };
    assert_eq!((ask(on_device(0)).ok(), ask(on_device(1)).ok(), ask(host).ok()), (Some(3), Some(0), Some(0)));
    assert_eq!(code(ask(on_device(9)).map(drop)), INVALID_VALUE);
    grant(on_device(1), 3, 1).expect("both are devices");
    assert_eq!(ask(on_device(1)).ok(), Some(3));
    grant(on_device(1), 0, 1).expect("may be taken back");
    assert_eq!(ask(on_device(1)).ok(), Some(0));
    grant(on_device(9), 3, 0).expect("none are fine");
    for (location, flags, expected) in [
        (on_device(9), 3, INVALID_DEVICE),
        (on_device(0), 0, INVALID_DEVICE),
        (on_device(0), 1, NOT_SUPPORTED),
        (host, 3, NOT_SUPPORTED),
        (on_device(0), 2, INVALID_VALUE),
    ] {
        assert_eq!(code(grant(location, flags, 1)), expected);
    }
}

#[test]
fn what_the_driver_knows_of_pooled_memory() {
    let rig = Rig::new(Config::default());
    let (pool, stream) = (default_pool(&rig), rig.stream(1));
    let (first, block) = (alloc(&rig, 100, stream), alloc(&rig, 200, stream));
    let (mut start, mut bytes) = (0, 0);
    call!(rig, cuMemGetAddressRange_v2(&mut start, &mut bytes, block + 9)).expect("allocated");
    assert_eq!((start, bytes), (block, 200));
    let ask = |attribute: u32| {
        let mut value = 0_u64;
        call!(rig, cuPointerGetAttribute((&raw mut value).cast(), CUpointer_attribute(attribute), block + 9))
            .map(|()| value)
    };
    let handle = pool.addr() as u64;
    for (attribute, expected) in [
        (1, 0),
        (2, 2),
        (3, block + 9),
        (9, 0),
        (10, 0),
        (11, block),
        (12, 200),
        (15, 0),
        (16, 3),
        (17, handle),
        (19, first),
    ] {
        assert_eq!(ask(attribute).ok(), Some(expected), "attribute {attribute}");
    }
    free(&rig, block, stream);
    assert_eq!(code(ask(2).map(drop)), INVALID_VALUE);
    let unknown = call!(rig, cuMemGetAddressRange_v2(&mut start, &mut bytes, block));
    assert_eq!(code(unknown), CUresult::CUDA_ERROR_NOT_FOUND);
}

/// Runs a call on a machine that captures a stream; what it answers, and whether the capture survives.
fn while_capturing(call: impl FnOnce(&Rig, CUstream) -> Result<(), DriverError>) -> (Result<(), DriverError>, bool) {
    let rig = Rig::new(Config::default());
    let stream = rig.stream(1);
    let global = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    call!(rig, cuStreamBeginCapture_v2(stream, global)).expect("captures nothing yet");
    let answer = call(&rig, stream);
    let mut graph = ptr::null_mut();
    (answer, call!(rig, cuStreamEndCapture(stream, &mut graph)).is_ok())
}

/// A call that a capture refuses.
type Refused = fn(&Rig, CUstream) -> Result<(), DriverError>;

#[test]
fn captures_forbid_pools_and_take_no_memory() {
    let refused: [Refused; 5] = [
        |rig, _| call!(rig, cuMemAllocAsync(&mut 0, 100, rig.stream(1))),
        |rig, _| call!(rig, cuMemFreeAsync(0, rig.stream(1))),
        |rig, _| call!(rig, cuMemPoolTrimTo(default_pool(rig), 0)),
        |rig, _| ask(rig, default_pool(rig), RESERVED_CURRENT).map(drop),
        |rig, _| call!(rig, cuMemPoolCreate(&mut ptr::null_mut(), &properties(on_device(0), 0))),
    ];
    for (index, call) in refused.into_iter().enumerate() {
        let (answer, survives) = while_capturing(call);
        assert_eq!((code(answer), survives), (CAPTURE_UNSUPPORTED, false), "call {index}");
    }
    let (answer, survives) = while_capturing(|rig, stream| {
        let answer = call!(rig, cuMemAllocAsync(&mut 0, 100, stream));
        assert_eq!(rig.machine.live().allocations, 0, "only a launch allocates");
        answer
    });
    assert!(answer.is_ok() && survives);
    let (answer, survives) = while_capturing(|rig, stream| call!(rig, cuMemFreeAsync(0, stream)));
    assert!(answer.is_ok() && survives);
}

#[test]
fn pools_outlive_contexts() {
    let rig = Rig::new(Config::default());
    let (pool, stream) = (default_pool(&rig), rig.stream(1));
    let (kept, freed) = (alloc(&rig, 100, stream), alloc(&rig, 100, stream));
    rig.write(kept, &[4; 100]);
    free(&rig, freed, stream);
    call!(rig, cuDevicePrimaryCtxReset_v2(0)).expect("there is a context");
    let mut context = ptr::null_mut();
    call!(rig, cuDevicePrimaryCtxRetain(&mut context, 0)).expect("the device is fine");
    call!(rig, cuCtxSetCurrent(context)).expect("retained");
    assert_eq!(rig.read(kept, 100), [4; 100]);
    free(&rig, kept, rig.stream(1));
    call!(rig, cuCtxSynchronize()).expect("finishes");
    assert_eq!((reserved(&rig, pool), rig.machine.live().allocations), (0, 0));
}
