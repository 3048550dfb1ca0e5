//! Managed memory: allocation, access from both sides, advice, prefetches, what is said of a range.

use cuda_sys::CUresult;

use super::capture::{GLOBAL, RELAXED};
use super::prelude::*;
use super::ptx::kernel;

cases!("managed", CASES, Needs::CONTEXT;
    alloc_and_free, alloc_is_checked, free_is_checked, freed_in_order_is_refused, both_sides_see_one_memory,
    kernels_reach_it, copies_are_checked, pointer_attributes, is_no_pinned_memory, is_known_to_other_calls,
    nothing_is_said_at_first, advice_is_kept, advice_is_checked, advice_is_for_whole_pages, ranges_are_checked,
    first_interface_of_advice, accessors_are_listed, nodes_of_the_host_are_taken, prefetches_are_known,
    prefetch_is_checked, first_interface_of_prefetches, mixed_prefetches, attributes_together, sizes_are_checked,
    attach, attach_is_checked, captures_forbid_it, device_says_so, takes_no_memory_at_first, prefetched_again_takes_no_more,
);
cases!("managed", NO_CONTEXT_CASES, Needs::NO_CONTEXT;
    context_is_asked_for,
);
cases!("managed", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    too_much, attach_without_a_flag,
);

const GLOBAL_ATTACH: u32 = 1;
const HOST_ATTACH: u32 = 2;
const SINGLE_ATTACH: u32 = 4;

/// What is said of a place that is none.
const NOWHERE: i32 = -2;
const CPU: i32 = -1;
const PAGE: usize = 4096;

/// What is said of a range: read mostly, preferred place as device, type and number, last prefetch likewise.
type Said = [i32; 7];
const NOTHING: Said = [0, NOWHERE, 0, NOWHERE, NOWHERE, 0, NOWHERE];

fn managed(cu: &Cuda<'_>, bytes: usize) -> CaseResult<CUdeviceptr> {
    let mut pointer = 0;
    ok!(cu.cuMemAllocManaged(&mut pointer, bytes, GLOBAL_ATTACH));
    cu.later(Cleanup::Memory(pointer));
    Ok(pointer)
}

/// The memory as the host sees it.
fn seen_by_host(pointer: CUdeviceptr, bytes: usize) -> Pinned {
    Pinned { pointer: ptr::with_exposed_provenance_mut(usize::try_from(pointer).unwrap_or(0)), bytes }
}

fn place(kind: u32, id: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType(kind), id }
}

fn attribute(cu: &Cuda<'_>, number: u32, pointer: CUdeviceptr, bytes: usize) -> CaseResult<i32> {
    let mut value = 77_i32;
    let kind = CUmem_range_attribute(number);
    ok!(cu.cuMemRangeGetAttribute((&raw mut value).cast(), 4, kind, pointer, bytes));
    Ok(value)
}

fn said(cu: &Cuda<'_>, pointer: CUdeviceptr, bytes: usize) -> CaseResult<Said> {
    let mut said = NOTHING;
    for (to, number) in said.iter_mut().zip([1, 2, 5, 6, 4, 7, 8]) {
        *to = attribute(cu, number, pointer, bytes)?;
    }
    Ok(said)
}

fn accessors(cu: &Cuda<'_>, pointer: CUdeviceptr, bytes: usize, room: usize) -> CaseResult<Vec<i32>> {
    let mut devices = vec![77_i32; room];
    let kind = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    ok!(cu.cuMemRangeGetAttribute(devices.as_mut_ptr().cast(), 4 * room, kind, pointer, bytes));
    Ok(devices)
}

fn alloc_and_free(cu: &Cuda<'_>) -> CaseResult {
    for (bytes, flags) in [(1, GLOBAL_ATTACH), (5000, HOST_ATTACH), (4 << 20, GLOBAL_ATTACH)] {
        let mut pointer = 0;
        ok!(cu.cuMemAllocManaged(&mut pointer, bytes, flags));
        that!(cu, pointer != 0 && pointer % 512 == 0);
        let (mut base, mut size) = (0, 0);
        ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut size, pointer + bytes as u64 / 2));
        same!(cu, (base, size), (pointer, bytes));
        ok!(cu.cuMemFree_v2(pointer));
    }
    Ok(())
}

fn alloc_is_checked(cu: &Cuda<'_>) -> CaseResult {
    for (bytes, flags) in [(0, 1), (1, 0), (1, 3), (1, 4), (1, 8)] {
        let mut pointer = 0x55;
        want!(INVALID_VALUE, cu.cuMemAllocManaged(&mut pointer, bytes, flags));
        same!(cu, pointer, 0);
    }
    Ok(())
}

fn free_is_checked(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 0;
    ok!(cu.cuMemAllocManaged(&mut pointer, 8192, GLOBAL_ATTACH));
    want!(INVALID_VALUE, cu.cuMemFree_v2(pointer + 4096));
    want!(INVALID_VALUE, cu.cuMemFreeHost(seen_by_host(pointer, 1).host()));
    ok!(cu.cuMemFree_v2(pointer));
    want!(INVALID_VALUE, cu.cuMemFree_v2(pointer));
    Ok(())
}

fn freed_in_order_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, stream) = (managed(cu, 4096)?, cu.stream()?);
    want!(NOT_SUPPORTED, cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuMemsetD8_v2(pointer, 1, 4096));
    Ok(())
}

fn both_sides_see_one_memory(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, stream) = (managed(cu, 8192)?, cu.stream()?);
    let host = seen_by_host(pointer, 8192);
    host.fill(7);
    same!(cu, cu.read(pointer, 8192)?, vec![7; 8192]);
    ok!(cu.cuMemsetD8Async(pointer, 9, 4096, stream));
    ok!(cu.cuStreamSynchronize(stream));
    that!(cu, host.read()[..4096].iter().all(|&byte| byte == 9));
    let memory = cu.filled(4096, 3)?;
    ok!(cu.cuMemcpyDtoDAsync_v2(pointer + 4096, memory, 4096, stream));
    ok!(cu.cuStreamSynchronize(stream));
    that!(cu, host.read()[4096..].iter().all(|&byte| byte == 3));
    Ok(())
}

fn kernels_reach_it(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, stream) = (managed(cu, 4096)?, cu.stream()?);
    let host = seen_by_host(pointer, 4096);
    host.fill(1);
    let body = "ld.global.u32 %r0, [%o];\nadd.u32 %r1, %r0, 5;\nst.global.u32 [%o+8], %r1;";
    let function = cu.function(&kernel(body))?;
    cu.launch(function, [[1, 1, 1], [1, 1, 1]], 0, stream, &[pointer, pointer, 0])?;
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, host.read()[8..12].to_vec(), 0x0101_0106_u32.to_le_bytes());
    Ok(())
}

fn copies_are_checked(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, mut host) = (managed(cu, 8192)?, vec![0_u8; 8193]);
    want!(INVALID_VALUE, cu.cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), pointer, 8193));
    want!(INVALID_VALUE, cu.cuMemsetD8_v2(pointer, 1, 8193));
    Ok(())
}

fn pointer_attribute<T: Plain>(cu: &Cuda<'_>, kind: CUpointer_attribute, pointer: CUdeviceptr) -> CaseResult<T> {
    let mut value = T::zeroed();
    ok!(cu.cuPointerGetAttribute((&raw mut value).cast(), kind, pointer));
    Ok(value)
}

fn pointer_attributes(cu: &Cuda<'_>) -> CaseResult {
    let pointer = managed(cu, 8192)?;
    let at = pointer + 100;
    let number = |kind| pointer_attribute::<u32>(cu, kind, at);
    let wide = |kind| pointer_attribute::<u64>(cu, kind, at);
    let flag = |kind| pointer_attribute::<u8>(cu, kind, at);
    same!(cu, number(CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE)?, CUmemorytype::CU_MEMORYTYPE_DEVICE.0);
    same!(cu, flag(CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED)?, 1);
    same!(cu, wide(CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER)?, at);
    same!(cu, wide(CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER)?, at);
    same!(cu, number(CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?, 0);
    same!(cu, flag(CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)?, 1);
    same!(cu, flag(CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)?, 0);
    same!(cu, flag(CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE)?, 0);
    same!(cu, number(CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS)?, 3);
    same!(cu, wide(CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)?, pointer);
    same!(cu, wide(CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE)?, 8192);
    same!(cu, wide(CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT)?, cu.current()?.addr() as u64);
    let value = 0_u32;
    let kind = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    want!(SUCCESS, cu.cuPointerSetAttribute((&raw const value).cast(), kind, pointer));
    Ok(())
}

fn is_no_pinned_memory(cu: &Cuda<'_>) -> CaseResult {
    let pointer = managed(cu, 8192)?;
    let host = seen_by_host(pointer, 8192).host();
    want!(INVALID_VALUE, cu.cuMemHostGetDevicePointer_v2(&mut 0, host, 0));
    want!(INVALID_VALUE, cu.cuMemHostRegister_v2(host, 4096, 0));
    want!(INVALID_VALUE, cu.cuMemHostUnregister(host));
    let mut flags = 0;
    ok!(cu.cuMemHostGetFlags(&mut flags, host));
    same!(cu, flags, 2);
    Ok(())
}

fn is_known_to_other_calls(cu: &Cuda<'_>) -> CaseResult {
    let pointer = managed(cu, 8192)?;
    want!(INVALID_VALUE, cu.cuIpcGetMemHandle(&mut CUipcMemHandle::zeroed(), pointer));
    want!(INVALID_VALUE, cu.cuMemRetainAllocationHandle(&mut 0, seen_by_host(pointer, 1).host()));
    let mut granted = 77;
    ok!(cu.cuMemGetAccess(&mut granted, &place(1, 0), pointer));
    same!(cu, granted, 0);
    Ok(())
}

fn nothing_is_said_at_first(cu: &Cuda<'_>) -> CaseResult {
    let pointer = managed(cu, 4 * PAGE)?;
    same!(cu, said(cu, pointer, 4 * PAGE)?, NOTHING);
    same!(cu, accessors(cu, pointer, 4 * PAGE, 3)?, vec![NOWHERE; 3]);
    Ok(())
}

fn advice_is_kept(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, all) = (managed(cu, 4 * PAGE)?, 4 * PAGE);
    ok!(cu.cuMemAdvise_v2(pointer, all, CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY, place(1, 0)));
    ok!(cu.cuMemAdvise_v2(pointer, all, CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place(1, 0)));
    same!(cu, said(cu, pointer, all)?, [1, 0, 1, 0, NOWHERE, 0, NOWHERE]);
    ok!(cu.cuMemAdvise_v2(pointer, all, CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place(2, 5)));
    same!(cu, said(cu, pointer, all)?, [1, CPU, 2, CPU, NOWHERE, 0, NOWHERE]);
    ok!(cu.cuMemAdvise_v2(pointer, all, CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, place(1, 99)));
    ok!(cu.cuMemAdvise_v2(pointer, all, CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY, place(1, 99)));
    same!(cu, said(cu, pointer, all)?, NOTHING);
    Ok(())
}

fn advice_is_checked(cu: &Cuda<'_>) -> CaseResult {
    let pointer = managed(cu, PAGE)?;
    for advice in [0, 7, 8] {
        want!(INVALID_VALUE, cu.cuMemAdvise_v2(pointer, PAGE, CUmem_advise(advice), place(1, 0)));
        want!(INVALID_VALUE, cu.cuMemAdvise(pointer, PAGE, CUmem_advise(advice), 0));
    }
    for (advice, location) in [(3, (1, 99)), (5, (1, -1)), (6, (1, 99)), (5, (3, 0)), (6, (4, 0)), (3, (3, 99))] {
        want!(INVALID_VALUE, cu.cuMemAdvise_v2(pointer, PAGE, CUmem_advise(advice), place(location.0, location.1)));
    }
    for kind in [0, 5] {
        for advice in 1..=6 {
            want!(INVALID_VALUE, cu.cuMemAdvise_v2(pointer, PAGE, CUmem_advise(advice), place(kind, 0)));
        }
    }
    Ok(())
}

fn advice_is_for_whole_pages(cu: &Cuda<'_>) -> CaseResult {
    let pointer = managed(cu, 2 << 20)?;
    // Small allocations may share a page with others; this one is large enough to begin with one of its own.
    ok!(cu.cuMemAdvise_v2(pointer + 5000, 1, CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY, place(1, 0)));
    for (from, bytes, read_mostly) in
        [(PAGE, PAGE, 1), (5000, 1, 1), (0, PAGE, 0), (2 * PAGE, PAGE, 0), (0, 2 * PAGE, 0), (PAGE, 2 * PAGE, 0)]
    {
        same!(cu, attribute(cu, 1, pointer + from as u64, bytes)?, read_mostly);
    }
    Ok(())
}

fn ranges_are_checked(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, memory, pinned, stream) = (managed(cu, 4 << 20)?, cu.alloc(4096)?, cu.pinned(4096)?, cu.stream()?);
    let ordinary = vec![0_u8; 2 * PAGE];
    let advice = CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY;
    let kind = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    let ranges = [
        (pointer, 0),
        (pointer, (4 << 20) + 1),
        (pointer + (4 << 20), 1),
        (memory, 4096),
        (pinned.device(), 4096),
        (address(ordinary.as_ptr()), PAGE),
        (0, 4096),
        (0x1000, 4096),
    ];
    for (at, bytes) in ranges {
        let mut value = 77_i32;
        want!(INVALID_VALUE, cu.cuMemAdvise(at, bytes, advice, 0));
        want!(INVALID_VALUE, cu.cuMemPrefetchAsync(at, bytes, 0, stream));
        want!(INVALID_VALUE, cu.cuMemRangeGetAttribute((&raw mut value).cast(), 4, kind, at, bytes));
        same!(cu, value, 77);
    }
    Ok(())
}

fn first_interface_of_advice(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, all) = (managed(cu, 4 * PAGE)?, 4 * PAGE);
    ok!(cu.cuMemAdvise(pointer, all, CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CPU));
    same!(cu, attribute(cu, 2, pointer, all)?, CPU);
    ok!(cu.cuMemAdvise(pointer, all, CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY, 99));
    ok!(cu.cuMemAdvise(pointer, all, CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 99));
    same!(cu, (attribute(cu, 1, pointer, all)?, attribute(cu, 2, pointer, all)?), (1, NOWHERE));
    for advice in [3, 5, 6] {
        want!(INVALID_DEVICE, cu.cuMemAdvise(pointer, all, CUmem_advise(advice), 99));
        want!(INVALID_DEVICE, cu.cuMemAdvise(pointer, all, CUmem_advise(advice), -2));
    }
    Ok(())
}

fn accessors_are_listed(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, all) = (managed(cu, 4 * PAGE)?, 4 * PAGE);
    ok!(cu.cuMemAdvise(pointer, all, CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY, CPU));
    same!(cu, accessors(cu, pointer, all, 2)?, [CPU, NOWHERE]);
    ok!(cu.cuMemAdvise(pointer, all, CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
    for (room, listed) in [(1, vec![0]), (2, vec![0, CPU]), (4, vec![0, CPU, NOWHERE, NOWHERE])] {
        same!(cu, accessors(cu, pointer, all, room)?, listed);
    }
    ok!(cu.cuMemAdvise(pointer, all, CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY, CPU));
    same!(cu, accessors(cu, pointer, all, 2)?, [0, NOWHERE]);
    Ok(())
}

/// Advice for the one node of a host is taken, and nothing of it is said afterwards.
fn nodes_of_the_host_are_taken(cu: &Cuda<'_>) -> CaseResult {
    let pointer = managed(cu, PAGE)?;
    for location in [place(3, 0), place(4, 0)] {
        for advice in 1..=4 {
            want!(SUCCESS, cu.cuMemAdvise_v2(pointer, PAGE, CUmem_advise(advice), location));
            same!(cu, said(cu, pointer, PAGE)?, NOTHING);
        }
    }
    Ok(())
}

fn prefetches_are_known(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, all, stream) = (managed(cu, 4 << 20)?, 4 << 20, cu.stream()?);
    seen_by_host(pointer, all).fill(8);
    let places = [((1, 0), [0, 1, 0]), ((2, 7), [CPU, 2, CPU]), ((3, 0), [CPU, 3, 0]), ((4, 0), [CPU, 4, 0])];
    for ((kind, id), [device, told_kind, told_id]) in places {
        ok!(cu.cuMemPrefetchAsync_v2(pointer, all, place(kind, id), 0, stream));
        same!(cu, said(cu, pointer, all)?, [0, NOWHERE, 0, NOWHERE, device, told_kind, told_id]);
        ok!(cu.cuStreamSynchronize(stream));
    }
    same!(cu, cu.read(pointer, 64)?, vec![8; 64]);
    Ok(())
}

fn prefetch_is_checked(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, stream) = (managed(cu, PAGE)?, cu.stream()?);
    for device in [99, -1] {
        want!(INVALID_DEVICE, cu.cuMemPrefetchAsync_v2(pointer, PAGE, place(1, device), 0, stream));
    }
    for (kind, id) in [(0, 0), (5, 0), (3, 99)] {
        want!(INVALID_VALUE, cu.cuMemPrefetchAsync_v2(pointer, PAGE, place(kind, id), 0, stream));
    }
    want!(INVALID_VALUE, cu.cuMemPrefetchAsync_v2(pointer, PAGE, place(1, 0), 1, stream));
    same!(cu, said(cu, pointer, PAGE)?, NOTHING);
    Ok(())
}

fn first_interface_of_prefetches(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, stream) = (managed(cu, PAGE)?, cu.stream()?);
    for device in [0, CPU] {
        for stream in [stream, DEFAULT, LEGACY, PER_THREAD] {
            ok!(cu.cuMemPrefetchAsync(pointer, PAGE, device, stream));
            same!(cu, attribute(cu, 4, pointer, PAGE)?, device);
        }
    }
    for device in [99, -2] {
        want!(INVALID_DEVICE, cu.cuMemPrefetchAsync(pointer, PAGE, device, stream));
    }
    ok!(cu.cuCtxSynchronize());
    Ok(())
}

fn mixed_prefetches(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, all, stream) = (managed(cu, 4 << 20)?, 4 << 20, cu.stream()?);
    ok!(cu.cuMemPrefetchAsync(pointer, all, 0, stream));
    ok!(cu.cuMemPrefetchAsync(pointer, PAGE, CPU, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, attribute(cu, 4, pointer, PAGE)?, CPU);
    same!(cu, attribute(cu, 4, pointer + PAGE as u64, PAGE)?, 0);
    same!(cu, said(cu, pointer, all)?, NOTHING);
    Ok(())
}

fn attributes_together(cu: &Cuda<'_>) -> CaseResult {
    let pointer = managed(cu, PAGE)?;
    let mut values = [77_i32; 3];
    let mut places = values.each_mut().map(|value| ptr::from_mut(value).cast::<c_void>());
    let (mut sizes, mut kinds) = ([4_usize; 3], [1, 2, 3].map(CUmem_range_attribute));
    let (data, size, kind) = (places.as_mut_ptr(), sizes.as_mut_ptr(), kinds.as_mut_ptr());
    ok!(cu.cuMemRangeGetAttributes(data, size, kind, 3, pointer, PAGE));
    same!(cu, values, [0, NOWHERE, NOWHERE]);
    want!(INVALID_VALUE, cu.cuMemRangeGetAttributes(data, size, kind, 0, pointer, PAGE));
    want!(INVALID_VALUE, cu.cuMemRangeGetAttributes(ptr::null_mut(), size, kind, 3, pointer, PAGE));
    want!(INVALID_VALUE, cu.cuMemRangeGetAttributes(data, ptr::null_mut(), kind, 3, pointer, PAGE));
    want!(INVALID_VALUE, cu.cuMemRangeGetAttributes(data, size, ptr::null_mut(), 3, pointer, PAGE));
    let mut unknown = [1, 99, 3].map(CUmem_range_attribute);
    want!(INVALID_VALUE, cu.cuMemRangeGetAttributes(data, size, unknown.as_mut_ptr(), 3, pointer, PAGE));
    let mut short = [4_usize, 2, 4];
    want!(INVALID_VALUE, cu.cuMemRangeGetAttributes(data, short.as_mut_ptr(), kind, 3, pointer, PAGE));
    Ok(())
}

fn sizes_are_checked(cu: &Cuda<'_>) -> CaseResult {
    let pointer = managed(cu, PAGE)?;
    let mut room = [0_i32; 4];
    for number in 0..10 {
        for bytes in [0, 1, 2, 4, 8, 12, 16] {
            let good = match number {
                0 | 9 => false,
                3 => bytes >= 4,
                _ => bytes == 4,
            };
            let kind = CUmem_range_attribute(number);
            let told = status!(cu.cuMemRangeGetAttribute(room.as_mut_ptr().cast(), bytes, kind, pointer, PAGE));
            let code = if good { CUresult::CUDA_SUCCESS } else { CUresult::CUDA_ERROR_INVALID_VALUE };
            same!(cu, (number, bytes, told), (number, bytes, code));
        }
    }
    let kind = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    want!(INVALID_VALUE, cu.cuMemRangeGetAttribute(ptr::null_mut(), 4, kind, pointer, PAGE));
    Ok(())
}

fn attach(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, stream) = (managed(cu, 8192)?, cu.stream()?);
    for stream in [stream, LEGACY, PER_THREAD] {
        for flags in [GLOBAL_ATTACH, HOST_ATTACH, SINGLE_ATTACH] {
            want!(SUCCESS, cu.cuStreamAttachMemAsync(stream, pointer, 0, flags));
        }
    }
    want!(SUCCESS, cu.cuStreamAttachMemAsync(DEFAULT, pointer, 0, GLOBAL_ATTACH));
    want!(SUCCESS, cu.cuStreamAttachMemAsync(stream, pointer, 8192, SINGLE_ATTACH));
    ok!(cu.cuCtxSynchronize());
    Ok(())
}

fn attach_is_checked(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, memory, stream) = (managed(cu, 8192)?, cu.alloc(4096)?, cu.stream()?);
    for flags in [3, 5, 8] {
        want!(INVALID_VALUE, cu.cuStreamAttachMemAsync(stream, pointer, 0, flags));
    }
    for bytes in [1, 4096, 8191, 8193, 16384] {
        want!(INVALID_VALUE, cu.cuStreamAttachMemAsync(stream, pointer, bytes, SINGLE_ATTACH));
    }
    want!(INVALID_VALUE, cu.cuStreamAttachMemAsync(DEFAULT, pointer, 0, SINGLE_ATTACH));
    let ordinary = [0_u8; 64];
    for other in [memory, pointer + 4096, address(&raw const ordinary), 0] {
        want!(INVALID_VALUE, cu.cuStreamAttachMemAsync(stream, other, 0, GLOBAL_ATTACH));
    }
    Ok(())
}

/// Ends a capture that was spoiled.
fn spoiled(cu: &Cuda<'_>, stream: CUstream) -> CaseResult {
    want!(STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &mut ptr::null_mut()));
    Ok(())
}

fn captures_forbid_it(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, stream, other) = (managed(cu, PAGE)?, cu.stream()?, cu.stream()?);
    let advice = CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY;
    cu.begin(stream, GLOBAL)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuMemAllocManaged(&mut 0, PAGE, GLOBAL_ATTACH));
    spoiled(cu, stream)?;
    cu.begin(stream, GLOBAL)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuMemAdvise(pointer, PAGE, advice, 0));
    spoiled(cu, stream)?;
    cu.begin(stream, GLOBAL)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuMemAdvise_v2(pointer, PAGE, advice, place(1, 0)));
    spoiled(cu, stream)?;
    cu.begin(stream, RELAXED)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuMemPrefetchAsync(pointer, PAGE, 0, stream));
    spoiled(cu, stream)?;
    cu.begin(stream, RELAXED)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuMemPrefetchAsync_v2(pointer, PAGE, place(1, 0), 0, stream));
    spoiled(cu, stream)?;
    cu.begin(stream, RELAXED)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamAttachMemAsync(stream, pointer, 0, SINGLE_ATTACH));
    spoiled(cu, stream)?;
    cu.begin(stream, GLOBAL)?;
    want!(SUCCESS, cu.cuMemPrefetchAsync(pointer, PAGE, 0, other));
    same!(cu, attribute(cu, 1, pointer, PAGE)?, 0);
    cu.end(stream)?;
    ok!(cu.cuStreamSynchronize(other));
    Ok(())
}

fn device_says_so(cu: &Cuda<'_>) -> CaseResult {
    managed(cu, PAGE)?;
    for kind in [
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    ] {
        let mut value = 0;
        ok!(cu.cuDeviceGetAttribute(&mut value, kind, 0));
        same!(cu, value, 1);
    }
    Ok(())
}

fn context_is_asked_for(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuMemAllocManaged(&mut 0, 0, 0));
    want!(INVALID_CONTEXT, cu.cuMemAllocManaged(&mut 0, 16, GLOBAL_ATTACH));
    let advice = CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY;
    want!(INVALID_CONTEXT, cu.cuMemAdvise_v2(0x1000, 16, advice, place(1, 0)));
    Ok(())
}

fn too_much(cu: &Cuda<'_>) -> CaseResult {
    want!(OUT_OF_MEMORY, cu.cuMemAllocManaged(&mut 0, 1 << 62, GLOBAL_ATTACH));
    Ok(())
}

/// Driver 580 does not survive this.
fn attach_without_a_flag(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, stream) = (managed(cu, 4096)?, cu.stream()?);
    want!(INVALID_VALUE, cu.cuStreamAttachMemAsync(stream, pointer, 0, 0));
    Ok(())
}

fn free(cu: &Cuda<'_>) -> CaseResult<usize> {
    let (mut free, mut total) = (0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    Ok(free)
}

/// A device takes memory for it when it is used there, not when it is allocated or when the host writes.
fn takes_no_memory_at_first(cu: &Cuda<'_>) -> CaseResult {
    let before = free(cu)?;
    let pointer = managed(cu, 4 << 20)?;
    seen_by_host(pointer, 4 << 20).fill(7);
    same!(cu, free(cu)?, before);
    Ok(())
}

/// The device keeps the place of pages that have moved to the host.
fn prefetched_again_takes_no_more(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, stream) = (managed(cu, 4 << 20)?, cu.stream()?);
    let move_to = |place: i32| -> CaseResult<usize> {
        ok!(cu.cuMemPrefetchAsync(pointer, 4 << 20, place, stream));
        ok!(cu.cuStreamSynchronize(stream));
        free(cu)
    };
    move_to(0)?;
    let at_host = move_to(CPU)?;
    same!(cu, move_to(0)?, at_host);
    Ok(())
}
