//! Device memory: allocation, freeing, what the driver knows of pointers.

use super::prelude::*;

cases!("memory", CASES, Needs::CONTEXT;
    alloc_and_free, zero_bytes_are_refused, more_than_the_device_is_out_of_memory, absurd_sizes_are_out_of_memory,
    free_of_null_succeeds, free_twice_is_refused, free_inside_is_refused, free_of_host_memory_is_refused,
    free_of_pinned_memory_is_refused, pointers_are_aligned, allocations_do_not_overlap, range_of_the_base,
    range_from_inside, range_of_an_unknown_address, range_after_free, range_with_one_output, info_is_consistent,
    info_follows_large_allocations, pitch_is_aligned, pitch_of_a_wide_row, pitch_refuses_odd_elements,
    pitch_refuses_empty, contents_survive, neighbours_survive, alloc_one_byte, many_small_allocations,
    out_of_memory_is_no_damage, free_with_work_pending,
);

cases!("pointer", POINTER_CASES, Needs::CONTEXT;
    device_memory_type, device_ordinal, device_context, device_pointer_of_device, host_pointer_of_device, range_attributes,
    not_managed, is_mapped, buffer_ids_differ, from_inside, after_free, unknown_address, unknown_attribute,
    zero_attribute, sync_memops, set_read_only_attribute, several_at_once, several_of_an_unknown_address,
    pinned_memory_type, pinned_pointers, registered_memory, ipc_capable, allowed_handle_types, access_flags,
    several_with_unknown_attribute, none_of_several, pool_handle_of_plain_memory, mapping_attributes,
);

fn alloc_and_free(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 0;
    ok!(cu.cuMemAlloc_v2(&mut pointer, 1 << 20));
    that!(cu, pointer != 0);
    ok!(cu.cuMemFree_v2(pointer));
    Ok(())
}

fn zero_bytes_are_refused(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 7;
    want!(INVALID_VALUE, cu.cuMemAlloc_v2(&mut pointer, 0));
    same!(cu, pointer, 0);
    Ok(())
}

fn more_than_the_device_is_out_of_memory(cu: &Cuda<'_>) -> CaseResult {
    let (mut free, mut total) = (0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    let mut pointer = 7;
    want!(OUT_OF_MEMORY, cu.cuMemAlloc_v2(&mut pointer, total + (2 << 20)));
    same!(cu, pointer, 0);
    want!(OUT_OF_MEMORY, cu.cuMemAlloc_v2(&mut pointer, total));
    Ok(())
}

fn absurd_sizes_are_out_of_memory(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 0;
    want!(OUT_OF_MEMORY, cu.cuMemAlloc_v2(&mut pointer, usize::MAX));
    want!(OUT_OF_MEMORY, cu.cuMemAlloc_v2(&mut pointer, usize::MAX - 4095));
    want!(OUT_OF_MEMORY, cu.cuMemAlloc_v2(&mut pointer, 1 << 62));
    want!(OUT_OF_MEMORY, cu.cuMemAlloc_v2(&mut pointer, 1 << 48));
    Ok(())
}

fn free_of_null_succeeds(cu: &Cuda<'_>) -> CaseResult {
    want!(SUCCESS, cu.cuMemFree_v2(0));
    Ok(())
}

fn free_twice_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 0;
    ok!(cu.cuMemAlloc_v2(&mut pointer, 4 << 20));
    ok!(cu.cuMemFree_v2(pointer));
    want!(INVALID_VALUE, cu.cuMemFree_v2(pointer));
    Ok(())
}

fn free_inside_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(4 << 20)?;
    want!(INVALID_VALUE, cu.cuMemFree_v2(pointer + 512));
    want!(INVALID_VALUE, cu.cuMemFree_v2(pointer + 1));
    Ok(())
}

fn free_of_host_memory_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let value = 0_u64;
    want!(INVALID_VALUE, cu.cuMemFree_v2(address(&raw const value)));
    want!(INVALID_VALUE, cu.cuMemFree_v2(0x1000));
    Ok(())
}

fn free_of_pinned_memory_is_refused(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(4096)?;
    want!(INVALID_VALUE, cu.cuMemFree_v2(pinned.device()));
    Ok(())
}

fn pointers_are_aligned(cu: &Cuda<'_>) -> CaseResult {
    for bytes in [1, 3, 100, 511, 513, 5000, 1 << 20, (2 << 20) + 1] {
        let pointer = cu.alloc(bytes)?;
        same!(cu, pointer % 512, 0);
    }
    Ok(())
}

fn allocations_do_not_overlap(cu: &Cuda<'_>) -> CaseResult {
    let mut ranges = Vec::new();
    for bytes in [1, 512, 513, 4096, 1 << 20, 3 << 20] {
        let start = cu.alloc(bytes)?;
        ranges.push((start, start + CUdeviceptr::try_from(bytes).unwrap_or(0)));
    }
    ranges.sort_unstable();
    that!(cu, ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    Ok(())
}

fn range_of_the_base(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(5000)?;
    let (mut base, mut size) = (0, 0);
    ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut size, pointer));
    same!(cu, (base, size), (pointer, 5000));
    Ok(())
}

fn range_from_inside(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(5000)?;
    let (mut base, mut size) = (0, 0);
    ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut size, pointer + 4999));
    same!(cu, (base, size), (pointer, 5000));
    Ok(())
}

fn range_of_an_unknown_address(cu: &Cuda<'_>) -> CaseResult {
    let (mut base, mut size) = (0, 0);
    want!(NOT_FOUND, cu.cuMemGetAddressRange_v2(&mut base, &mut size, 0x1000));
    let value = 0_u64;
    want!(NOT_FOUND, cu.cuMemGetAddressRange_v2(&mut base, &mut size, address(&raw const value)));
    Ok(())
}

fn range_after_free(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 0;
    ok!(cu.cuMemAlloc_v2(&mut pointer, 64 << 20));
    ok!(cu.cuMemFree_v2(pointer));
    let (mut base, mut size) = (0, 0);
    want!(NOT_FOUND, cu.cuMemGetAddressRange_v2(&mut base, &mut size, pointer));
    Ok(())
}

fn range_with_one_output(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(5000)?;
    let (mut base, mut size) = (0, 0);
    want!(SUCCESS, cu.cuMemGetAddressRange_v2(&mut base, ptr::null_mut(), pointer));
    want!(SUCCESS, cu.cuMemGetAddressRange_v2(ptr::null_mut(), &mut size, pointer));
    same!(cu, (base, size), (pointer, 5000));
    Ok(())
}

fn info_is_consistent(cu: &Cuda<'_>) -> CaseResult {
    let (mut free, mut total, mut device_total) = (0, 0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cu.cuDeviceTotalMem_v2(&mut device_total, 0));
    same!(cu, total, device_total);
    that!(cu, free > 0 && free < total);
    let (mut only_free, mut only_total) = (0, 0);
    want!(SUCCESS, cu.cuMemGetInfo_v2(&mut only_free, ptr::null_mut()));
    want!(SUCCESS, cu.cuMemGetInfo_v2(ptr::null_mut(), &mut only_total));
    same!(cu, only_total, total);
    Ok(())
}

fn info_follows_large_allocations(cu: &Cuda<'_>) -> CaseResult {
    let (mut before, mut during, mut after, mut total) = (0, 0, 0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut before, &mut total));
    let mut pointer = 0;
    ok!(cu.cuMemAlloc_v2(&mut pointer, 64 << 20));
    ok!(cu.cuMemGetInfo_v2(&mut during, &mut total));
    ok!(cu.cuMemFree_v2(pointer));
    ok!(cu.cuMemGetInfo_v2(&mut after, &mut total));
    same!(cu, (before - during, after), (64 << 20, before));
    Ok(())
}

fn pitch_is_aligned(cu: &Cuda<'_>) -> CaseResult {
    let (mut pointer, mut pitch) = (0, 0);
    for element in [4, 8, 16] {
        ok!(cu.cuMemAllocPitch_v2(&mut pointer, &mut pitch, 100, 4, element));
        cu.later(Cleanup::Memory(pointer));
        same!(cu, pitch, 512);
    }
    Ok(())
}

fn pitch_of_a_wide_row(cu: &Cuda<'_>) -> CaseResult {
    let (mut pointer, mut pitch) = (0, 0);
    ok!(cu.cuMemAllocPitch_v2(&mut pointer, &mut pitch, 5000, 3, 4));
    cu.later(Cleanup::Memory(pointer));
    same!(cu, pitch, 5120);
    let (mut base, mut size) = (0, 0);
    ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut size, pointer));
    same!(cu, (base, size), (pointer, 3 * 5120));
    Ok(())
}

fn pitch_refuses_odd_elements(cu: &Cuda<'_>) -> CaseResult {
    let (mut pointer, mut pitch) = (0, 0);
    for element in [0, 1, 2, 3, 32] {
        want!(INVALID_VALUE, cu.cuMemAllocPitch_v2(&mut pointer, &mut pitch, 100, 4, element));
    }
    Ok(())
}

fn pitch_refuses_empty(cu: &Cuda<'_>) -> CaseResult {
    let (mut pointer, mut pitch) = (0, 0);
    want!(INVALID_VALUE, cu.cuMemAllocPitch_v2(&mut pointer, &mut pitch, 0, 4, 4));
    want!(INVALID_VALUE, cu.cuMemAllocPitch_v2(&mut pointer, &mut pitch, 100, 0, 4));
    want!(OUT_OF_MEMORY, cu.cuMemAllocPitch_v2(&mut pointer, &mut pitch, 1 << 30, 1 << 20, 4));
    Ok(())
}

fn contents_survive(cu: &Cuda<'_>) -> CaseResult {
    let bytes = (1 << 20) + 77;
    let pointer = cu.counted(bytes)?;
    let other = cu.filled(bytes, 0x5A)?;
    that!(cu, cu.read(pointer, bytes)? == count_up(bytes));
    that!(cu, cu.read(other, bytes)?.iter().all(|&byte| byte == 0x5A));
    Ok(())
}

fn neighbours_survive(cu: &Cuda<'_>) -> CaseResult {
    let first = cu.filled(700, 1)?;
    let second = cu.filled(700, 2)?;
    ok!(cu.cuMemsetD8_v2(first, 9, 700));
    same!(cu, cu.read(second, 700)?, vec![2; 700]);
    same!(cu, cu.read(first, 700)?, vec![9; 700]);
    Ok(())
}

fn alloc_one_byte(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.filled(1, 0x77)?;
    same!(cu, cu.read(pointer, 1)?, vec![0x77]);
    let (mut base, mut size) = (0, 0);
    ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut size, pointer));
    same!(cu, size, 1);
    Ok(())
}

fn many_small_allocations(cu: &Cuda<'_>) -> CaseResult {
    let pointers = (0..300).map(|_| cu.alloc(1000)).collect::<CaseResult<Vec<_>>>()?;
    let mut sorted = pointers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    same!(cu, sorted.len(), 300);
    Ok(())
}

fn out_of_memory_is_no_damage(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 0;
    want!(OUT_OF_MEMORY, cu.cuMemAlloc_v2(&mut pointer, 1 << 48));
    let small = cu.filled(100, 3)?;
    same!(cu, cu.read(small, 100)?, vec![3; 100]);
    Ok(())
}

fn free_with_work_pending(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let target = cu.filled(1 << 20, 0)?;
    let mut source = 0;
    ok!(cu.cuMemAlloc_v2(&mut source, 1 << 20));
    ok!(cu.cuMemsetD8Async(source, 6, 1 << 20, stream));
    ok!(cu.cuMemcpyDtoDAsync_v2(target, source, 1 << 20, stream));
    ok!(cu.cuMemFree_v2(source));
    that!(cu, cu.read(target, 1 << 20)?.iter().all(|&byte| byte == 6));
    Ok(())
}

/// Asks for one attribute, whose type the caller knows.
fn attribute<T>(cu: &Cuda<'_>, attribute: CUpointer_attribute, pointer: CUdeviceptr, mut value: T) -> CaseResult<T> {
    ok!(cu.cuPointerGetAttribute((&raw mut value).cast(), attribute, pointer));
    Ok(value)
}

fn device_memory_type(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer, 0_u32)?, 2);
    Ok(())
}

fn device_ordinal(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer, 9_i32)?, 0);
    Ok(())
}

fn device_context(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    let context =
        attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT, pointer, ptr::null_mut::<CUctx_st>())?;
    same!(cu, context, cu.current()?);
    Ok(())
}

fn device_pointer_of_device(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    same!(
        cu,
        attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer + 5, 0_u64)?,
        pointer + 5
    );
    Ok(())
}

fn host_pointer_of_device(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    let mut value = 1_u64;
    want!(
        INVALID_VALUE,
        cu.cuPointerGetAttribute(
            (&raw mut value).cast(),
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER,
            pointer
        )
    );
    Ok(())
}

fn range_attributes(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(5000)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer + 9, 0_u64)?, pointer);
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer + 9, 0_usize)?, 5000);
    Ok(())
}

fn not_managed(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer, 7_u32)? & 0xFF, 0);
    Ok(())
}

fn is_mapped(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED, pointer, 0_u32)? & 0xFF, 1);
    Ok(())
}

fn buffer_ids_differ(cu: &Cuda<'_>) -> CaseResult {
    let (first, second) = (cu.alloc(100)?, cu.alloc(100)?);
    let id = CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID;
    that!(cu, attribute(cu, id, first, 0_u64)? != attribute(cu, id, second, 0_u64)?);
    same!(cu, attribute(cu, id, first, 0_u64)?, attribute(cu, id, first + 50, 0_u64)?);
    Ok(())
}

fn from_inside(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(4 << 20)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer + (4 << 20) - 1, 0_u32)?, 2);
    let mut value = 0_u32;
    let kind = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    want!(INVALID_VALUE, cu.cuPointerGetAttribute((&raw mut value).cast(), kind, pointer + (1 << 40)));
    Ok(())
}

fn after_free(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 0;
    ok!(cu.cuMemAlloc_v2(&mut pointer, 64 << 20));
    ok!(cu.cuMemFree_v2(pointer));
    let mut value = 0_u32;
    let kind = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    want!(INVALID_VALUE, cu.cuPointerGetAttribute((&raw mut value).cast(), kind, pointer));
    Ok(())
}

fn unknown_address(cu: &Cuda<'_>) -> CaseResult {
    let mut value = 0_u64;
    let place = address(&raw const value);
    for kind in [
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    ] {
        want!(INVALID_VALUE, cu.cuPointerGetAttribute((&raw mut value).cast(), kind, place));
    }
    Ok(())
}

fn unknown_attribute(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    let mut value = [0_u64; 4];
    want!(INVALID_VALUE, cu.cuPointerGetAttribute(value.as_mut_ptr().cast(), CUpointer_attribute(999), pointer));
    Ok(())
}

fn zero_attribute(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    let mut value = [0_u64; 4];
    want!(INVALID_VALUE, cu.cuPointerGetAttribute(value.as_mut_ptr().cast(), CUpointer_attribute(0), pointer));
    Ok(())
}

fn sync_memops(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(4 << 20)?;
    let kind = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    same!(cu, attribute(cu, kind, pointer, 7_u32)? & 0xFF, 0);
    let on = 1_u32;
    want!(SUCCESS, cu.cuPointerSetAttribute((&raw const on).cast(), kind, pointer));
    same!(cu, attribute(cu, kind, pointer, 7_u32)? & 0xFF, 1);
    Ok(())
}

fn set_read_only_attribute(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    let value = 1_u32;
    let kind = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    want!(INVALID_VALUE, cu.cuPointerSetAttribute((&raw const value).cast(), kind, pointer));
    Ok(())
}

fn several_at_once(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(5000)?;
    let (mut kind, mut ordinal, mut size) = (0_u32, 7_i32, 0_usize);
    let mut names = [
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let mut places = [(&raw mut kind).cast(), (&raw mut ordinal).cast(), (&raw mut size).cast()];
    ok!(cu.cuPointerGetAttributes(3, names.as_mut_ptr(), places.as_mut_ptr(), pointer));
    same!(cu, (kind, ordinal, size), (2, 0, 5000));
    Ok(())
}

fn several_of_an_unknown_address(cu: &Cuda<'_>) -> CaseResult {
    let (mut kind, mut ordinal) = (7_u32, 7_i32);
    let mut names = [
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ];
    let mut places = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
    let value = 0_u64;
    ok!(cu.cuPointerGetAttributes(2, names.as_mut_ptr(), places.as_mut_ptr(), address(&raw const value)));
    same!(cu, (kind, ordinal), (0, -2));
    Ok(())
}

fn several_with_unknown_attribute(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    let mut value = [0_u64; 4];
    let mut names = [CUpointer_attribute(999)];
    let mut places = [value.as_mut_ptr().cast()];
    want!(INVALID_VALUE, cu.cuPointerGetAttributes(1, names.as_mut_ptr(), places.as_mut_ptr(), pointer));
    Ok(())
}

fn none_of_several(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(100)?;
    let mut names = [CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE];
    let mut places = [ptr::null_mut()];
    want!(INVALID_VALUE, cu.cuPointerGetAttributes(0, names.as_mut_ptr(), places.as_mut_ptr(), pointer));
    Ok(())
}

fn pinned_memory_type(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(4096)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned.device(), 0_u32)?, 1);
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, pinned.device(), 0_usize)?, 4096);
    Ok(())
}

fn pinned_pointers(cu: &Cuda<'_>) -> CaseResult {
    let pinned = cu.pinned(4096)?;
    let inside = pinned.device() + 16;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER, inside, 0_u64)?, inside);
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside, 0_u64)?, inside);
    Ok(())
}

fn registered_memory(cu: &Cuda<'_>) -> CaseResult {
    let mut host = vec![0_u8; 3 * 4096];
    ok!(cu.cuMemHostRegister_v2(host.as_mut_ptr().cast(), host.len(), 0));
    let place = address(host.as_ptr()) + 100;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, place, 0_u32)?, 1);
    ok!(cu.cuMemHostUnregister(host.as_mut_ptr().cast()));
    let mut value = 0_u32;
    let kind = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    want!(INVALID_VALUE, cu.cuPointerGetAttribute((&raw mut value).cast(), kind, place));
    Ok(())
}

fn ipc_capable(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(4 << 20)?;
    let kind = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
    same!(cu, attribute(cu, kind, pointer, 0_u32)? & 0xFF, 1);
    Ok(())
}

fn allowed_handle_types(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(4 << 20)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, pointer, 7_u64)?, 0);
    Ok(())
}

fn access_flags(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(4 << 20)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, pointer, 0_u32)?, 3);
    Ok(())
}

fn pool_handle_of_plain_memory(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(4 << 20)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer, 7_u64)?, 0);
    Ok(())
}

fn mapping_attributes(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.alloc(4 << 20)?;
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE, pointer, 7_usize)?, 4 << 20);
    same!(cu, attribute(cu, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, pointer + 5, 7_u64)?, pointer);
    Ok(())
}
