//! Virtual memory management as programs see it: reservations, handles, mappings, access, accounting.
//!
//! # Safety
//! Calls C functions of a simulated machine; see the support module.
#![expect(unsafe_code, reason = "calls C functions")]

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr;

use cuda_sim::{Config, LiveHandles, ReportKind};
use cuda_sys::CUresult;
use cuda_sys::driver::types::{
    CUdevice_attribute, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUpointer_attribute, CUstreamCaptureMode,
};
use support::{Rig, code};

const GRANULE: usize = 2 << 20;
const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;
const INVALID_DEVICE: CUresult = CUresult::CUDA_ERROR_INVALID_DEVICE;
const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;

fn on_device(id: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id }
}

fn pinned(location: CUmemLocation) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType(0),
        location,
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn reserve(rig: &Rig, bytes: usize) -> u64 {
    let mut base = 0;
    call!(rig, cuMemAddressReserve(&mut base, bytes, 0, 0, 0)).expect("there are addresses");
    base
}

fn create(rig: &Rig, bytes: usize) -> u64 {
    let mut handle = 0;
    call!(rig, cuMemCreate(&mut handle, bytes, &pinned(on_device(0)), 0)).expect("there is memory");
    handle
}

fn grant(rig: &Rig, base: u64, bytes: usize, flags: u32) -> Result<(), cuda_sys::DriverError> {
    let grant = CUmemAccessDesc { location: on_device(0), flags: CUmemAccess_flags(flags) };
    call!(rig, cuMemSetAccess(base, bytes, &grant, 1))
}

/// Reserves, maps a new handle at the beginning, and lets the device use it.
fn mapped(rig: &Rig, bytes: usize) -> (u64, u64) {
    let (base, handle) = (reserve(rig, bytes), create(rig, bytes));
    call!(rig, cuMemMap(base, bytes, 0, handle, 0)).expect("nothing is there yet");
    grant(rig, base, bytes, 3).expect("a whole mapping");
    (base, handle)
}

/// Bytes that the device has left.
fn free(rig: &Rig) -> usize {
    let (mut free, mut total) = (0, 0);
    call!(rig, cuMemGetInfo_v2(&mut free, &mut total)).expect("has a context");
    free
}

#[test]
fn granularity_is_two_mebibytes() {
    let rig = Rig::without_context(Config::default());
    let ask = |granularity: *mut usize, option| {
        call!(rig, cuMemGetAllocationGranularity(granularity, &pinned(on_device(0)), option))
    };
    for option in [0, 1] {
        let mut granularity = 0;
        ask(&mut granularity, CUmemAllocationGranularity_flags(option)).expect("known");
        assert_eq!(granularity, GRANULE);
    }
    assert_eq!(code(ask(&mut 0, CUmemAllocationGranularity_flags(9))), INVALID_VALUE);
    assert_eq!(code(ask(ptr::null_mut(), CUmemAllocationGranularity_flags(0))), INVALID_VALUE);
}

#[test]
fn reservations_are_aligned_and_checked() {
    let rig = Rig::without_context(Config::default());
    let mut base = 0;
    call!(rig, cuMemAddressReserve(&mut base, GRANULE, 8 << 20, 0, 0)).expect("there are addresses");
    assert_eq!(base % (8 << 20), 0);
    for (bytes, alignment, flags) in [(1000, 0, 0), (0, 0, 0), (GRANULE, 3, 0), (GRANULE, 0, 1)] {
        assert_eq!(code(call!(rig, cuMemAddressReserve(&mut 0, bytes, alignment, 0, flags))), INVALID_VALUE);
    }
    assert_eq!(code(call!(rig, cuMemAddressReserve(ptr::null_mut(), GRANULE, 0, 0, 0))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemAddressReserve(&mut 0, 1 << 50, 0, 0, 0))), OUT_OF_MEMORY);
    assert_eq!(rig.machine.live().reservations, 1);
    assert_eq!(code(call!(rig, cuMemAddressFree(base, 2 * GRANULE))), INVALID_VALUE);
    call!(rig, cuMemAddressFree(base, GRANULE)).expect("reserved");
    assert_eq!(code(call!(rig, cuMemAddressFree(base, GRANULE))), INVALID_VALUE);
}

#[test]
fn prescribed_addresses_are_reserved() {
    let rig = Rig::without_context(Config::default());
    let wanted = 0x7A00_0000_0000;
    rig.machine.next_addresses([wanted, wanted, wanted + 4096]);
    assert_eq!(reserve(&rig, GRANULE), wanted);
    assert_eq!(code(call!(rig, cuMemAddressReserve(&mut 0, GRANULE, 0, 0, 0))), OUT_OF_MEMORY, "it is taken");
    assert_eq!(code(call!(rig, cuMemAddressReserve(&mut 0, GRANULE, 0, 0, 0))), OUT_OF_MEMORY, "it is not aligned");
    assert_eq!(rig.machine.live().reservations, 1);
}

#[test]
fn handles_are_checked() {
    let rig = Rig::without_context(Config::default().capacity(64 << 20));
    let make = |bytes, properties: &CUmemAllocationProp, flags| {
        code(call!(rig, cuMemCreate(&mut 0, bytes, properties, flags)))
    };
    let good = pinned(on_device(0));
    for bytes in [0, 1000, 65536] {
        assert_eq!(make(bytes, &good, 0), INVALID_VALUE);
    }
    assert_eq!(make(GRANULE, &good, 1), INVALID_VALUE);
    assert_eq!(make(GRANULE, &CUmemAllocationProp { type_: CUmemAllocationType(0), ..good }, 0), INVALID_VALUE);
    assert_eq!(make(GRANULE, &pinned(on_device(9)), 0), INVALID_DEVICE);
    assert_eq!(make(GRANULE, &pinned(CUmemLocation { type_: CUmemLocationType(0), id: 0 }), 0), INVALID_VALUE);
    assert_eq!(make(GRANULE, &pinned(CUmemLocation { type_: CUmemLocationType(2), id: 0 }), 0), NOT_SUPPORTED);
    assert_eq!(make(66 << 20, &good, 0), OUT_OF_MEMORY);
    assert_eq!(code(call!(rig, cuMemRelease(0))), INVALID_VALUE);
    assert_eq!(rig.machine.live(), LiveHandles::default());
}

#[test]
fn bytes_are_the_handles() {
    let rig = Rig::new(Config::default());
    let base = reserve(&rig, 8 * GRANULE);
    let (first, second) = (create(&rig, 2 * GRANULE), create(&rig, 2 * GRANULE));
    let at = |granules: usize| base + (granules * GRANULE) as u64;
    for (place, handle) in [(0, first), (2, second), (4, first)] {
        call!(rig, cuMemMap(at(place), 2 * GRANULE, 0, handle, 0)).expect("nothing is there yet");
    }
    assert_eq!(code(call!(rig, cuMemsetD8_v2(base, 1, 16))), INVALID_VALUE, "access was not set");
    grant(&rig, base, 6 * GRANULE, 3).expect("whole mappings");
    call!(rig, cuMemsetD8_v2(base, 7, 4 * GRANULE)).expect("across two mappings");
    rig.write(at(2) - 2, &[1, 2, 3, 4]);
    assert_eq!(rig.read(at(2) - 3, 6), [7, 1, 2, 3, 4, 7]);
    assert_eq!(rig.read(at(6) - 2, 2), [1, 2], "the first handle is there twice");
    let mut bytes = [0_u8; 4];
    let refused = call!(rig, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), at(6) - 2, 4));
    assert_eq!(code(refused), INVALID_VALUE, "past the last mapping");
    call!(rig, cuMemUnmap(at(0), 4 * GRANULE)).expect("mapped");
    call!(rig, cuMemMap(at(6), 2 * GRANULE, 0, second, 0)).expect("nothing is there yet");
    grant(&rig, at(6), 2 * GRANULE, 3).expect("a whole mapping");
    assert_eq!(rig.read(at(6), 3), [3, 4, 7], "unmapping keeps what a held handle contains");
}

#[test]
fn maps_only_whole_handles_into_reservations() {
    let rig = Rig::new(Config::default());
    let base = reserve(&rig, 8 * GRANULE);
    let (handle, plain) = (create(&rig, 2 * GRANULE), rig.alloc(2 * GRANULE));
    let map = |at: u64, bytes, offset, handle, flags| call!(rig, cuMemMap(at, bytes, offset, handle, flags));
    for (at, bytes, offset) in [(base, GRANULE, 0), (base, GRANULE, GRANULE), (base, 4 * GRANULE, 0)] {
        assert_eq!(code(map(at, bytes, offset, handle, 0)), NOT_SUPPORTED);
    }
    for (at, bytes, handle, flags) in [
        (base + 512, 2 * GRANULE, handle, 0),
        (plain, 2 * GRANULE, handle, 0),
        (base, 0, handle, 0),
        (base, 2 * GRANULE, 0, 0),
        (base, 2 * GRANULE, handle, 1),
    ] {
        assert_eq!(code(map(at, bytes, 0, handle, flags)), INVALID_VALUE);
    }
    map(base, 2 * GRANULE, 0, handle, 0).expect("nothing is there yet");
    assert_eq!(code(map(base, 2 * GRANULE, 0, handle, 0)), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemUnmap(base, GRANULE))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemUnmap(plain, 2 * GRANULE))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemAddressFree(base, 8 * GRANULE))), INVALID_VALUE, "something is mapped");
    assert_eq!(code(call!(rig, cuMemFree_v2(base))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemFreeAsync(base, ptr::null_mut()))), INVALID_VALUE);
    call!(rig, cuMemUnmap(base, 8 * GRANULE)).expect("gaps are fine");
    call!(rig, cuMemUnmap(base, 2 * GRANULE)).expect("nothing mapped is fine");
    call!(rig, cuMemAddressFree(base, 8 * GRANULE)).expect("nothing is mapped");
}

#[test]
fn access_is_asked_for_and_kept() {
    let rig = Rig::new(Config::default().devices(2));
    let (base, _) = mapped(&rig, 2 * GRANULE);
    let mut flags = 7;
    let mut ask =
        |location: CUmemLocation, at: u64| call!(rig, cuMemGetAccess(&mut flags, &location, at)).map(|()| flags);
    assert_eq!(ask(on_device(0), base + 5).ok(), Some(3));
    assert_eq!(ask(on_device(1), base).ok(), Some(0));
    assert_eq!(ask(CUmemLocation { type_: CUmemLocationType(2), id: 0 }, base).ok(), Some(0));
    assert_eq!(code(ask(on_device(9), base).map(drop)), INVALID_DEVICE);
    assert_eq!(code(ask(on_device(0), base + 2 * GRANULE as u64).map(drop)), INVALID_VALUE);
    for (bytes, flags) in [(GRANULE, 3), (4 * GRANULE, 3), (100, 3), (2 * GRANULE, 2), (2 * GRANULE, 7)] {
        assert_eq!(code(grant(&rig, base, bytes, flags)), INVALID_VALUE);
    }
    let grants = |location, count| {
        let grant = CUmemAccessDesc { location, flags: CUmemAccess_flags(3) };
        code(call!(rig, cuMemSetAccess(base, 2 * GRANULE, &grant, count)))
    };
    assert_eq!(grants(on_device(9), 1), INVALID_VALUE);
    assert_eq!(grants(CUmemLocation { type_: CUmemLocationType(2), id: 0 }, 1), NOT_SUPPORTED);
    assert_eq!(grants(on_device(0), 0), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemSetAccess(base, 2 * GRANULE, ptr::null(), 1))), INVALID_VALUE);
}

#[test]
fn memory_for_reading_cannot_be_written() {
    let rig = Rig::new(Config::default());
    let (base, _) = mapped(&rig, GRANULE);
    rig.write(base, &[5; 8]);
    grant(&rig, base, GRANULE, 1).expect("a whole mapping");
    assert_eq!(rig.read(base, 8), [5; 8]);
    assert_eq!(code(call!(rig, cuMemsetD8_v2(base, 1, 16))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemcpyHtoD_v2(base, [1_u8; 4].as_ptr().cast(), 4))), INVALID_VALUE);
    grant(&rig, base, GRANULE, 0).expect("a whole mapping");
    let mut bytes = [0_u8; 4];
    assert_eq!(code(call!(rig, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), base, 4))), INVALID_VALUE);
}

#[test]
fn physical_memory_is_counted_by_handles() {
    let rig = Rig::new(Config::default());
    let before = free(&rig);
    let used = || before - free(&rig);
    let (base, handle) = mapped(&rig, 4 * GRANULE);
    assert_eq!(used(), 4 * GRANULE);
    call!(rig, cuMemRelease(handle)).expect("held");
    assert_eq!(code(call!(rig, cuMemRelease(handle))), INVALID_VALUE);
    assert_eq!(used(), 4 * GRANULE, "a mapping keeps the memory");
    let mut retained = 0;
    call!(rig, cuMemRetainAllocationHandle(&mut retained, ptr::without_provenance_mut(address(base + 5))))
        .expect("mapped");
    assert_eq!(retained, handle);
    call!(rig, cuMemUnmap(base, 4 * GRANULE)).expect("mapped");
    assert_eq!(used(), 4 * GRANULE, "a reference keeps the memory");
    let mut properties = pinned(on_device(7));
    call!(rig, cuMemGetAllocationPropertiesFromHandle(&mut properties, handle)).expect("held");
    assert_eq!((properties.location.id, properties.type_.0, properties.requestedHandleTypes.0), (0, 1, 0));
    call!(rig, cuMemRelease(handle)).expect("held");
    assert_eq!(used(), 0);
    let nothing: *mut c_void = ptr::without_provenance_mut(address(base));
    assert_eq!(code(call!(rig, cuMemRetainAllocationHandle(&mut retained, nothing))), INVALID_VALUE);
    assert_eq!(code(call!(rig, cuMemGetAllocationPropertiesFromHandle(&mut properties, handle))), INVALID_VALUE);
    call!(rig, cuMemAddressFree(base, 4 * GRANULE)).expect("nothing is mapped");
    assert_eq!((rig.machine.live().memory_handles, rig.machine.live().reservations), (0, 0));
}

fn address(number: u64) -> usize {
    usize::try_from(number).expect("64 bits")
}

#[test]
fn what_the_driver_knows_of_a_mapping() {
    let rig = Rig::new(Config::default());
    let (base, _) = mapped(&rig, 2 * GRANULE);
    let (mut start, mut bytes) = (0, 0);
    call!(rig, cuMemGetAddressRange_v2(&mut start, &mut bytes, base + 100)).expect("mapped");
    assert_eq!((start, bytes), (base, 2 * GRANULE));
    let ask = |attribute: u32, at: u64| {
        let mut value = 0_u64;
        call!(rig, cuPointerGetAttribute((&raw mut value).cast(), CUpointer_attribute(attribute), at)).map(|()| value)
    };
    for (attribute, expected) in [(1, 0), (2, 2), (3, base + 9), (9, 0), (10, 0), (11, base), (13, 1), (16, 3), (17, 0)]
    {
        assert_eq!(ask(attribute, base + 9).ok(), Some(expected), "attribute {attribute}");
    }
    grant(&rig, base, 2 * GRANULE, 0).expect("a whole mapping");
    assert_eq!(ask(16, base).ok(), Some(0));
    assert_eq!(code(ask(3, base).map(drop)), INVALID_VALUE, "the device cannot reach it");
    call!(rig, cuMemUnmap(base, 2 * GRANULE)).expect("mapped");
    assert_eq!(code(ask(2, base).map(drop)), INVALID_VALUE);
    let unknown = call!(rig, cuMemGetAddressRange_v2(&mut start, &mut bytes, base));
    assert_eq!(code(unknown), CUresult::CUDA_ERROR_NOT_FOUND);
}

#[test]
fn unmapping_under_queued_work_loses_the_context() {
    let rig = Rig::new(Config::default());
    let (base, _) = mapped(&rig, GRANULE);
    let (stream, to) = (rig.stream(1), rig.alloc(16));
    call!(rig, cuMemcpyDtoDAsync_v2(to, base, 16, stream)).expect("queued");
    call!(rig, cuMemUnmap(base, GRANULE)).expect("does not wait");
    assert_eq!(code(call!(rig, cuStreamSynchronize(stream))), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_capture_does_not_forbid_any_of_it() {
    let rig = Rig::new(Config::default());
    let stream = rig.stream(1);
    let global = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    call!(rig, cuStreamBeginCapture_v2(stream, global)).expect("captures nothing yet");
    let (base, handle) = mapped(&rig, GRANULE);
    call!(rig, cuMemUnmap(base, GRANULE)).expect("mapped");
    call!(rig, cuMemRelease(handle)).expect("held");
    call!(rig, cuMemAddressFree(base, GRANULE)).expect("nothing is mapped");
    let mut graph = ptr::null_mut();
    call!(rig, cuStreamEndCapture(stream, &mut graph)).expect("nothing was forbidden");
}

#[test]
fn mappings_outlive_contexts() {
    let rig = Rig::new(Config::default());
    let (base, _) = mapped(&rig, GRANULE);
    rig.write(base, &[3; 4]);
    call!(rig, cuDevicePrimaryCtxReset_v2(0)).expect("there is a context");
    let mut context = ptr::null_mut();
    call!(rig, cuDevicePrimaryCtxRetain(&mut context, 0)).expect("the device is fine");
    call!(rig, cuCtxSetCurrent(context)).expect("retained");
    assert_eq!(rig.read(base, 4), [3; 4]);
}

#[test]
fn the_size_of_a_set_decides_how_the_context_is_lost() {
    for (bytes, lost) in [(4096, CUresult::CUDA_ERROR_LAUNCH_FAILED), (65536, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)] {
        let rig = Rig::new(Config::default());
        let (base, _) = mapped(&rig, GRANULE);
        let stream = rig.stream(1);
        call!(rig, cuMemsetD8Async(base, 1, bytes, stream)).expect("queued");
        call!(rig, cuMemUnmap(base, GRANULE)).expect("does not wait");
        assert_eq!(code(call!(rig, cuStreamSynchronize(stream))), lost);
    }
}

/// Two ranges with one handle behind both.
fn mapped_twice(rig: &Rig) -> (u64, u64) {
    let (first, handle) = mapped(rig, GRANULE);
    let second = reserve(rig, GRANULE);
    call!(rig, cuMemMap(second, GRANULE, 0, handle, 0)).expect("a handle may be mapped twice");
    grant(rig, second, GRANULE, 3).expect("a whole mapping");
    (first, second)
}

#[test]
fn unordered_work_on_memory_that_is_mapped_twice_is_reported() {
    let rig = Rig::new(Config::default());
    let (first, second) = mapped_twice(&rig);
    let (one, two, event) = (rig.stream(1), rig.stream(1), rig.event(2));
    let kinds = || rig.machine.take_reports().iter().map(|report| report.kind).collect::<Vec<_>>();
    let set = |address, bytes, stream| call!(rig, cuMemsetD8Async(address, 1, bytes, stream)).expect("it is mapped");
    set(first, 100, one);
    set(second + 100, 100, two);
    assert_eq!(kinds(), [], "other bytes");
    set(second + 50, 10, two);
    assert_eq!(kinds(), [ReportKind::UnorderedMappings]);
    call!(rig, cuEventRecord(event, two)).expect("both live");
    call!(rig, cuStreamWaitEvent(one, event, 0)).expect("both live");
    set(first, 200, one);
    assert_eq!(kinds(), [], "the event orders them");
    call!(rig, cuCtxSynchronize()).expect("all work ends");
    set(second, 200, two);
    assert_eq!(kinds(), [], "the work before is done");
    let mut bytes = [0_u8; 8];
    call!(rig, cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), first, 8, one)).expect("it is mapped");
    assert_eq!(kinds(), [ReportKind::UnorderedMappings], "one reads what the other writes");
    call!(rig, cuCtxSynchronize()).expect("all work ends");
    call!(rig, cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), first, 8, one)).expect("it is mapped");
    let mut others = [0_u8; 8];
    call!(rig, cuMemcpyDtoHAsync_v2(others.as_mut_ptr().cast(), second, 8, two)).expect("it is mapped");
    assert_eq!(kinds(), [], "both only read");
    call!(rig, cuCtxSynchronize()).expect("all work ends");
}

#[test]
fn memory_that_is_unmapped_too_early_is_reported() {
    let rig = Rig::new(Config::default());
    let (base, _) = mapped(&rig, GRANULE);
    call!(rig, cuMemsetD8Async(base, 1, 100, rig.stream(1))).expect("it is mapped");
    call!(rig, cuMemUnmap(base, GRANULE)).expect("as on hardware");
    let reports = rig.machine.take_reports();
    assert_eq!(reports.iter().map(|report| report.kind).collect::<Vec<_>>(), [ReportKind::UnmappedWhilePending]);
}

#[test]
fn misuse_of_mappings_is_an_error_in_strict_mode() {
    let rig = Rig::new(Config::default().strict(true));
    let (first, second) = mapped_twice(&rig);
    let (one, two) = (rig.stream(1), rig.stream(1));
    call!(rig, cuMemsetD8Async(first, 1, 100, one)).expect("it is mapped");
    assert_eq!(code(call!(rig, cuMemUnmap(first, GRANULE))), INVALID_VALUE);
    call!(rig, cuCtxSynchronize()).expect("all work ends");
    call!(rig, cuMemsetD8Async(first, 1, 100, one)).expect("it is mapped");
    call!(rig, cuMemsetD8Async(second, 1, 100, two)).expect("the fault comes later");
    assert_eq!(code(call!(rig, cuCtxSynchronize())), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_device_may_be_without_virtual_memory() {
    let rig = Rig::new(Config::default().virtual_memory(false));
    let mut has = 7;
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    call!(rig, cuDeviceGetAttribute(&mut has, attribute, 0)).expect("it is known");
    assert_eq!(has, 0);
    assert_eq!(code(call!(rig, cuMemAddressReserve(&mut 0, GRANULE, 0, 0, 0))), NOT_SUPPORTED);
    assert_eq!(code(call!(rig, cuMemCreate(&mut 0, GRANULE, &pinned(on_device(0)), 0))), NOT_SUPPORTED);
}
