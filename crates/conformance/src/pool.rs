//! Stream-ordered allocation and the pools behind it.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use super::prelude::*;
use super::vmm::{access, location};

cases!("pool", CASES, Needs::CONTEXT;
    alloc_and_free, whatever_context_is_current, alloc_zero_bytes, alloc_too_much, alloc_on_default_streams, free_null, free_unknown, free_twice, free_by_the_other_way, plain_memory_freed_in_order, contents_survive,
    free_in_order_of_use, create_and_destroy, create_bad_properties, alloc_from_a_pool, alloc_from_null, destroy_default_pool, destroy_with_memory_out, set_current_pool,
    attributes_of_a_new_pool, threshold_can_be_set, reuse_flags_can_be_set, read_only_attributes, unknown_attribute, used_memory_is_counted, high_water_mark, reserved_falls_at_synchronize,
    threshold_keeps_memory, trim, trim_keeps_what_is_out, same_stream_reuse, access_of_own_device, set_access_of_own_device, access_unknown_location, pointer_attributes, pool_of_a_pointer, address_range, export_needs_a_type, export_of_other_types, exported_twice, pointers_to_export, import_of_what_is_none, import_of_other_types, imported_in_the_same_process, imported_pointer_freed, imported_pool_is_for_imports,
    maximum_size,
);

fn alloc(cu: &Cuda<'_>, bytes: usize, stream: CUstream) -> CaseResult<CUdeviceptr> {
    let mut pointer = 0;
    ok!(cu.cuMemAllocAsync(&mut pointer, bytes, stream));
    Ok(pointer)
}

pub(super) fn props() -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: location(0),
        ..CUmemPoolProps::zeroed()
    }
}

fn pool(cu: &Cuda<'_>) -> CaseResult<CUmemoryPool> {
    let mut pool = ptr::null_mut();
    ok!(cu.cuMemPoolCreate(&mut pool, &props()));
    cu.later(Cleanup::Pool(pool));
    Ok(pool)
}

pub(super) fn default_pool(cu: &Cuda<'_>) -> CaseResult<CUmemoryPool> {
    let mut pool = ptr::null_mut();
    ok!(cu.cuDeviceGetDefaultMemPool(&mut pool, 0));
    Ok(pool)
}

fn alloc_from(cu: &Cuda<'_>, pool: CUmemoryPool, bytes: usize, stream: CUstream) -> CaseResult<CUdeviceptr> {
    let mut pointer = 0;
    ok!(cu.cuMemAllocFromPoolAsync(&mut pointer, bytes, pool, stream));
    Ok(pointer)
}

fn alloc_and_free(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let pointer = alloc(cu, 5000, stream)?;
    that!(cu, pointer != 0 && pointer % 256 == 0);
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

/// A stream with a name says which device it is; the default streams are those of the current context.
fn whatever_context_is_current(cu: &Cuda<'_>) -> CaseResult {
    let (home, stream) = (cu.current()?, cu.stream()?);
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    let pointer = alloc(cu, 5000, stream)?;
    that!(cu, pointer != 0);
    want!(SUCCESS, cu.cuMemFreeAsync(pointer, stream));
    for default in [ptr::null_mut(), LEGACY, PER_THREAD] {
        let mut pointer = 0;
        want!(INVALID_CONTEXT, cu.cuMemAllocAsync(&mut pointer, 5000, default));
        want!(INVALID_CONTEXT, cu.cuMemFreeAsync(0, default));
    }
    ok!(cu.cuCtxSetCurrent(home));
    Ok(())
}

fn alloc_zero_bytes(cu: &Cuda<'_>) -> CaseResult {
    let (stream, mut pointer) = (cu.stream()?, 7);
    want!(SUCCESS, cu.cuMemAllocAsync(&mut pointer, 0, stream));
    same!(cu, pointer, 0);
    Ok(())
}

fn alloc_too_much(cu: &Cuda<'_>) -> CaseResult {
    let (stream, mut pointer) = (cu.stream()?, 0);
    want!(OUT_OF_MEMORY, cu.cuMemAllocAsync(&mut pointer, 1 << 45, stream));
    want!(OUT_OF_MEMORY, cu.cuMemAllocFromPoolAsync(&mut pointer, 1 << 45, pool(cu)?, stream));
    Ok(())
}

fn alloc_on_default_streams(cu: &Cuda<'_>) -> CaseResult {
    for stream in [DEFAULT, LEGACY, PER_THREAD] {
        let pointer = alloc(cu, 4096, stream)?;
        ok!(cu.cuMemsetD8Async(pointer, 3, 4096, stream));
        ok!(cu.cuMemFreeAsync(pointer, stream));
        ok!(cu.cuStreamSynchronize(stream));
    }
    Ok(())
}

fn free_null(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(SUCCESS, cu.cuMemFreeAsync(0, stream));
    Ok(())
}

fn free_unknown(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(INVALID_VALUE, cu.cuMemFreeAsync(0x1000, stream));
    let pointer = alloc(cu, 4096, stream)?;
    want!(INVALID_VALUE, cu.cuMemFreeAsync(pointer + 256, stream));
    ok!(cu.cuMemFreeAsync(pointer, stream));
    Ok(())
}

fn free_twice(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let pointer = alloc(cu, 4096, stream)?;
    ok!(cu.cuMemFreeAsync(pointer, stream));
    want!(INVALID_VALUE, cu.cuMemFreeAsync(pointer, stream));
    want!(INVALID_VALUE, cu.cuMemFree_v2(pointer));
    Ok(())
}

fn free_by_the_other_way(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let pointer = alloc(cu, 4096, stream)?;
    ok!(cu.cuStreamSynchronize(stream));
    want!(SUCCESS, cu.cuMemFree_v2(pointer));
    Ok(())
}

fn plain_memory_freed_in_order(cu: &Cuda<'_>) -> CaseResult {
    let (stream, mut pointer) = (cu.stream()?, 0);
    ok!(cu.cuMemAlloc_v2(&mut pointer, 64 << 20));
    want!(SUCCESS, cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    want!(INVALID_VALUE, cu.cuMemFree_v2(pointer));
    Ok(())
}

fn contents_survive(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (first, second) = (alloc(cu, 5000, stream)?, alloc(cu, 5000, stream)?);
    ok!(cu.cuMemsetD8Async(first, 1, 5000, stream));
    ok!(cu.cuMemsetD8Async(second, 2, 5000, stream));
    same!(cu, cu.read(first, 5000)?, vec![1; 5000]);
    ok!(cu.cuMemFreeAsync(first, stream));
    same!(cu, cu.read(second, 5000)?, vec![2; 5000]);
    ok!(cu.cuMemFreeAsync(second, stream));
    Ok(())
}

fn free_in_order_of_use(cu: &Cuda<'_>) -> CaseResult {
    let (stream, target) = (cu.stream()?, cu.filled(5000, 0)?);
    let pointer = alloc(cu, 5000, stream)?;
    ok!(cu.cuMemsetD8Async(pointer, 8, 5000, stream));
    ok!(cu.cuMemcpyDtoDAsync_v2(target, pointer, 5000, stream));
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(target, 5000)?, vec![8; 5000]);
    Ok(())
}

fn create_and_destroy(cu: &Cuda<'_>) -> CaseResult {
    let mut pool = ptr::null_mut();
    ok!(cu.cuMemPoolCreate(&mut pool, &props()));
    that!(cu, !pool.is_null());
    ok!(cu.cuMemPoolDestroy(pool));
    Ok(())
}

fn create_bad_properties(cu: &Cuda<'_>) -> CaseResult {
    let mut pool = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuMemPoolCreate(&mut pool, &CUmemPoolProps { location: location(1000), ..props() }));
    want!(
        INVALID_VALUE,
        cu.cuMemPoolCreate(&mut pool, &CUmemPoolProps { allocType: CUmemAllocationType(0), ..props() })
    );
    Ok(())
}

fn alloc_from_a_pool(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream) = (pool(cu)?, cu.stream()?);
    let pointer = alloc_from(cu, pool, 5000, stream)?;
    ok!(cu.cuMemsetD8Async(pointer, 6, 5000, stream));
    same!(cu, cu.read(pointer, 5000)?, vec![6; 5000]);
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn alloc_from_null(cu: &Cuda<'_>) -> CaseResult {
    let (stream, mut pointer) = (cu.stream()?, 0);
    want!(INVALID_VALUE, cu.cuMemAllocFromPoolAsync(&mut pointer, 4096, ptr::null_mut(), stream));
    want!(SUCCESS, cu.cuMemAllocFromPoolAsync(&mut pointer, 0, default_pool(cu)?, stream));
    same!(cu, pointer, 0);
    Ok(())
}

fn destroy_default_pool(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuMemPoolDestroy(default_pool(cu)?));
    Ok(())
}

fn destroy_with_memory_out(cu: &Cuda<'_>) -> CaseResult {
    let (stream, mut pool) = (cu.stream()?, ptr::null_mut());
    ok!(cu.cuMemPoolCreate(&mut pool, &props()));
    let pointer = alloc_from(cu, pool, 5000, stream)?;
    ok!(cu.cuMemPoolDestroy(pool));
    ok!(cu.cuMemsetD8Async(pointer, 4, 5000, stream));
    same!(cu, cu.read(pointer, 5000)?, vec![4; 5000]);
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn set_current_pool(cu: &Cuda<'_>) -> CaseResult {
    let (mine, default, mut found) = (pool(cu)?, default_pool(cu)?, ptr::null_mut());
    ok!(cu.cuDeviceSetMemPool(0, mine));
    ok!(cu.cuDeviceGetMemPool(&mut found, 0));
    same!(cu, found, mine);
    ok!(cu.cuDeviceSetMemPool(0, default));
    ok!(cu.cuDeviceGetMemPool(&mut found, 0));
    same!(cu, found, default);
    want!(INVALID_VALUE, cu.cuDeviceSetMemPool(1000, default));
    want!(INVALID_VALUE, cu.cuDeviceSetMemPool(0, ptr::null_mut()));
    Ok(())
}

/// Value of an attribute; the first three are 32 bits wide, the others 64.
fn attribute(cu: &Cuda<'_>, pool: CUmemoryPool, attribute: CUmemPool_attribute) -> CaseResult<u64> {
    let mut value = 0_u64;
    ok!(cu.cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    Ok(value)
}

fn set_attribute(
    cu: &Cuda<'_>,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    mut value: u64,
) -> CaseResult<CUresult> {
    Ok(status!(cu.cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast())))
}

const THRESHOLD: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
const RESERVED: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
const RESERVED_HIGH: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
const USED: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
const USED_HIGH: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
const OK: CUresult = CUresult::CUDA_SUCCESS;

fn attributes_of_a_new_pool(cu: &Cuda<'_>) -> CaseResult {
    let pool = pool(cu)?;
    for name in 1..=3 {
        same!(cu, attribute(cu, pool, CUmemPool_attribute(name))?, 1);
    }
    for name in [THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH] {
        same!(cu, attribute(cu, pool, name)?, 0);
    }
    Ok(())
}

fn threshold_can_be_set(cu: &Cuda<'_>) -> CaseResult {
    let pool = pool(cu)?;
    same!(cu, set_attribute(cu, pool, THRESHOLD, u64::MAX)?, OK);
    same!(cu, attribute(cu, pool, THRESHOLD)?, u64::MAX);
    Ok(())
}

fn reuse_flags_can_be_set(cu: &Cuda<'_>) -> CaseResult {
    let pool = pool(cu)?;
    for name in 1..=3 {
        same!(cu, set_attribute(cu, pool, CUmemPool_attribute(name), 0)?, OK);
        same!(cu, attribute(cu, pool, CUmemPool_attribute(name))?, 0);
    }
    Ok(())
}

fn read_only_attributes(cu: &Cuda<'_>) -> CaseResult {
    let pool = pool(cu)?;
    for name in [RESERVED, USED] {
        same!(cu, set_attribute(cu, pool, name, 0)?, CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    for name in [RESERVED_HIGH, USED_HIGH] {
        same!(cu, set_attribute(cu, pool, name, 0)?, OK);
        same!(cu, set_attribute(cu, pool, name, 5)?, CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

fn unknown_attribute(cu: &Cuda<'_>) -> CaseResult {
    let (pool, mut value) = (pool(cu)?, 0_u64);
    want!(INVALID_VALUE, cu.cuMemPoolGetAttribute(pool, CUmemPool_attribute(99), (&raw mut value).cast()));
    want!(INVALID_VALUE, cu.cuMemPoolSetAttribute(pool, CUmemPool_attribute(99), (&raw mut value).cast()));
    Ok(())
}

fn used_memory_is_counted(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream) = (pool(cu)?, cu.stream()?);
    let pointer = alloc_from(cu, pool, 1 << 20, stream)?;
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, attribute(cu, pool, USED)?, 1 << 20);
    that!(cu, attribute(cu, pool, RESERVED)? >= 1 << 20);
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, attribute(cu, pool, USED)?, 0);
    Ok(())
}

fn high_water_mark(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream) = (pool(cu)?, cu.stream()?);
    for _ in 0..2 {
        let pointer = alloc_from(cu, pool, 3 << 20, stream)?;
        ok!(cu.cuMemFreeAsync(pointer, stream));
        ok!(cu.cuStreamSynchronize(stream));
    }
    same!(cu, attribute(cu, pool, USED_HIGH)?, 3 << 20);
    same!(cu, set_attribute(cu, pool, USED_HIGH, 0)?, OK);
    same!(cu, attribute(cu, pool, USED_HIGH)?, 0);
    that!(cu, attribute(cu, pool, RESERVED_HIGH)? >= 3 << 20);
    Ok(())
}

fn reserved_falls_at_synchronize(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream) = (pool(cu)?, cu.stream()?);
    let pointer = alloc_from(cu, pool, 64 << 20, stream)?;
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, attribute(cu, pool, RESERVED)?, 0);
    Ok(())
}

fn threshold_keeps_memory(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream) = (pool(cu)?, cu.stream()?);
    same!(cu, set_attribute(cu, pool, THRESHOLD, u64::MAX)?, OK);
    let pointer = alloc_from(cu, pool, 64 << 20, stream)?;
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, attribute(cu, pool, RESERVED)?, 64 << 20);
    Ok(())
}

fn trim(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream) = (pool(cu)?, cu.stream()?);
    same!(cu, set_attribute(cu, pool, THRESHOLD, u64::MAX)?, OK);
    let pointer = alloc_from(cu, pool, 64 << 20, stream)?;
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuMemPoolTrimTo(pool, 0));
    same!(cu, attribute(cu, pool, RESERVED)?, 0);
    Ok(())
}

fn trim_keeps_what_is_out(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream) = (pool(cu)?, cu.stream()?);
    let pointer = alloc_from(cu, pool, 64 << 20, stream)?;
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuMemPoolTrimTo(pool, 0));
    same!(cu, attribute(cu, pool, RESERVED)?, 64 << 20);
    ok!(cu.cuMemFreeAsync(pointer, stream));
    Ok(())
}

fn same_stream_reuse(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream) = (pool(cu)?, cu.stream()?);
    let first = alloc_from(cu, pool, 4 << 20, stream)?;
    ok!(cu.cuMemFreeAsync(first, stream));
    let second = alloc_from(cu, pool, 4 << 20, stream)?;
    same!(cu, second, first);
    ok!(cu.cuMemFreeAsync(second, stream));
    Ok(())
}

fn access_of_own_device(cu: &Cuda<'_>) -> CaseResult {
    let (pool, mut flags, mut place) = (pool(cu)?, CUmemAccess_flags(77), location(0));
    ok!(cu.cuMemPoolGetAccess(&mut flags, pool, &mut place));
    same!(cu, flags.0, 3);
    Ok(())
}

fn set_access_of_own_device(cu: &Cuda<'_>) -> CaseResult {
    let pool = pool(cu)?;
    want!(SUCCESS, cu.cuMemPoolSetAccess(pool, &access(0, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE), 1));
    want!(INVALID_DEVICE, cu.cuMemPoolSetAccess(pool, &access(0, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE), 1));
    Ok(())
}

fn access_unknown_location(cu: &Cuda<'_>) -> CaseResult {
    let (pool, mut flags, mut place) = (pool(cu)?, CUmemAccess_flags(77), location(1000));
    want!(INVALID_VALUE, cu.cuMemPoolGetAccess(&mut flags, pool, &mut place));
    let everything = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    want!(INVALID_DEVICE, cu.cuMemPoolSetAccess(pool, &access(1000, everything), 1));
    Ok(())
}

fn pointer_attributes(cu: &Cuda<'_>) -> CaseResult {
    let (stream, mut kind) = (cu.stream()?, 0_u32);
    let pointer = alloc(cu, 4096, stream)?;
    let name = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    ok!(cu.cuPointerGetAttribute((&raw mut kind).cast(), name, pointer + 8));
    same!(cu, kind, 2);
    ok!(cu.cuMemFreeAsync(pointer, stream));
    Ok(())
}

fn pool_of_a_pointer(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream, mut found) = (pool(cu)?, cu.stream()?, ptr::null_mut::<CUmemPoolHandle_st>());
    let pointer = alloc_from(cu, pool, 4096, stream)?;
    let name = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    ok!(cu.cuPointerGetAttribute((&raw mut found).cast(), name, pointer));
    same!(cu, found, pool);
    ok!(cu.cuMemFreeAsync(pointer, stream));
    Ok(())
}

fn address_range(cu: &Cuda<'_>) -> CaseResult {
    let (stream, mut base, mut size) = (cu.stream()?, 0, 0);
    let pointer = alloc(cu, 5000, stream)?;
    ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut size, pointer + 9));
    same!(cu, (base, size), (pointer, 5000));
    ok!(cu.cuMemFreeAsync(pointer, stream));
    Ok(())
}

fn export_needs_a_type(cu: &Cuda<'_>) -> CaseResult {
    let (pool, mut file) = (pool(cu)?, -1_i32);
    let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    want!(INVALID_VALUE, cu.cuMemPoolExportToShareableHandle((&raw mut file).cast(), pool, kind, 0));
    Ok(())
}

const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// A pool that can be exported as a descriptor.
fn exportable(cu: &Cuda<'_>) -> CaseResult<CUmemoryPool> {
    let mut pool = ptr::null_mut();
    ok!(cu.cuMemPoolCreate(&mut pool, &CUmemPoolProps { handleTypes: FILE, ..props() }));
    cu.later(Cleanup::Pool(pool));
    Ok(pool)
}

fn export(cu: &Cuda<'_>, pool: CUmemoryPool) -> CaseResult<OwnedFd> {
    let mut file = -1_i32;
    ok!(cu.cuMemPoolExportToShareableHandle((&raw mut file).cast(), pool, FILE, 0));
    Ok(owned(file))
}

/// A pool that is the same as another one; no case may destroy it before what is imported from it is freed.
fn import(cu: &Cuda<'_>, pool: CUmemoryPool) -> CaseResult<CUmemoryPool> {
    let (file, mut imported) = (export(cu, pool)?, ptr::null_mut());
    ok!(cu.cuMemPoolImportFromShareableHandle(&mut imported, as_pointer(&file), FILE, 0));
    Ok(imported)
}

fn nothing() -> CUmemPoolPtrExportData {
    CUmemPoolPtrExportData { reserved: [0; 64] }
}

fn export_of_other_types(cu: &Cuda<'_>) -> CaseResult {
    let (pool, mut bytes) = (exportable(cu)?, [0_u8; 128]);
    for types in [0, 2, 4, 8] {
        let kind = CUmemAllocationHandleType(types);
        want!(INVALID_VALUE, cu.cuMemPoolExportToShareableHandle((&raw mut bytes).cast(), pool, kind, 0));
    }
    want!(INVALID_VALUE, cu.cuMemPoolExportToShareableHandle((&raw mut bytes).cast(), pool, FILE, 1));
    want!(INVALID_VALUE, cu.cuMemPoolExportToShareableHandle(ptr::null_mut(), pool, FILE, 0));
    let default = default_pool(cu)?;
    want!(INVALID_VALUE, cu.cuMemPoolExportToShareableHandle((&raw mut bytes).cast(), default, FILE, 0));
    for types in [2, 4, 16, 32] {
        let wanted = CUmemPoolProps { handleTypes: CUmemAllocationHandleType(types), ..props() };
        want!(INVALID_VALUE, cu.cuMemPoolCreate(&mut ptr::null_mut(), &wanted));
    }
    Ok(())
}

fn exported_twice(cu: &Cuda<'_>) -> CaseResult {
    let pool = exportable(cu)?;
    let (first, second) = (export(cu, pool)?, export(cu, pool)?);
    that!(cu, first.as_raw_fd() != second.as_raw_fd());
    Ok(())
}

fn pointers_to_export(cu: &Cuda<'_>) -> CaseResult {
    let (shared, own, stream, mut data) = (exportable(cu)?, pool(cu)?, cu.stream()?, nothing());
    let (pointer, other) = (alloc_from(cu, shared, 4096, stream)?, alloc_from(cu, own, 4096, stream)?);
    for wrong in [0, pointer + 16, other, cu.alloc(4096)?] {
        want!(INVALID_VALUE, cu.cuMemPoolExportPointer(&mut data, wrong));
    }
    // Nothing in a pool can be exported before the pool itself.
    want!(INVALID_VALUE, cu.cuMemPoolExportPointer(&mut data, pointer));
    export(cu, shared)?;
    want!(INVALID_VALUE, cu.cuMemPoolExportPointer(ptr::null_mut(), pointer));
    ok!(cu.cuMemPoolExportPointer(&mut data, pointer));
    that!(cu, data.reserved != [0; 64]);
    for (place, types) in [(pointer, 1), (other, 0)] {
        let mut allowed = 77_u64;
        let name = CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES;
        ok!(cu.cuPointerGetAttribute((&raw mut allowed).cast(), name, place));
        same!(cu, allowed, types);
        ok!(cu.cuMemFreeAsync(place, stream));
    }
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn import_of_what_is_none(cu: &Cuda<'_>) -> CaseResult {
    let mut pool = ptr::null_mut();
    let nowhere = ptr::without_provenance_mut(10_000);
    want!(UNKNOWN, cu.cuMemPoolImportFromShareableHandle(&mut pool, nowhere, FILE, 0));
    let other = File::options().read(true).write(true).open("/dev/null").map_err(|error| failed(&error))?;
    want!(UNKNOWN, cu.cuMemPoolImportFromShareableHandle(&mut pool, as_pointer(&other.into()), FILE, 0));
    Ok(())
}

fn import_of_other_types(cu: &Cuda<'_>) -> CaseResult {
    let (mut pool, file) = (ptr::null_mut(), export(cu, exportable(cu)?)?);
    let (none, foreign) = (CUmemAllocationHandleType(0), CUmemAllocationHandleType(2));
    want!(INVALID_VALUE, cu.cuMemPoolImportFromShareableHandle(&mut pool, as_pointer(&file), none, 0));
    want!(NOT_SUPPORTED, cu.cuMemPoolImportFromShareableHandle(&mut pool, as_pointer(&file), foreign, 0));
    want!(INVALID_VALUE, cu.cuMemPoolImportFromShareableHandle(&mut pool, as_pointer(&file), FILE, 1));
    want!(INVALID_VALUE, cu.cuMemPoolImportFromShareableHandle(ptr::null_mut(), as_pointer(&file), FILE, 0));
    let (mut handle, mut wanted) = (0, CUmemAllocationProp::zeroed());
    (wanted.type_, wanted.location) = (CUmemAllocationType(1), location(0));
    wanted.requestedHandleTypes = FILE;
    ok!(cu.cuMemCreate(&mut handle, 2 << 20, &wanted, 0));
    let mut number = -1_i32;
    ok!(cu.cuMemExportToShareableHandle((&raw mut number).cast(), handle, FILE, 0));
    let physical = owned(number);
    want!(NOT_SUPPORTED, cu.cuMemPoolImportFromShareableHandle(&mut pool, as_pointer(&physical), FILE, 0));
    ok!(cu.cuMemRelease(handle));
    Ok(())
}

/// The importer has the same bytes at another address.
fn imported_in_the_same_process(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream, mut data) = (exportable(cu)?, cu.stream()?, nothing());
    let pointer = alloc_from(cu, pool, 4096, stream)?;
    ok!(cu.cuMemsetD8Async(pointer, 9, 4096, stream));
    let (imported, mut there) = (import(cu, pool)?, 0);
    ok!(cu.cuMemPoolExportPointer(&mut data, pointer));
    that!(cu, imported != pool);
    want!(INVALID_VALUE, cu.cuMemPoolImportPointer(&mut there, pool, &mut data));
    want!(INVALID_VALUE, cu.cuMemPoolImportPointer(&mut there, imported, &mut nothing()));
    want!(INVALID_VALUE, cu.cuMemPoolImportPointer(&mut there, imported, ptr::null_mut()));
    want!(INVALID_VALUE, cu.cuMemPoolImportPointer(ptr::null_mut(), imported, &mut data));
    ok!(cu.cuMemPoolImportPointer(&mut there, imported, &mut data));
    that!(cu, there != pointer);
    same!(cu, cu.read(there, 4096)?, vec![9; 4096]);
    ok!(cu.cuMemsetD8_v2(there, 3, 16));
    same!(cu, cu.read(pointer, 17)?, [vec![3; 16], vec![9]].concat());
    let (mut base, mut size) = (0, 0);
    ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut size, there + 9));
    same!(cu, (base, size), (there, 4096));
    ok!(cu.cuMemFreeAsync(there, stream));
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

/// Imported twice, a pointer is freed once, and the exporter's stays.
fn imported_pointer_freed(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream, mut data) = (exportable(cu)?, cu.stream()?, nothing());
    let pointer = alloc_from(cu, pool, 4096, stream)?;
    ok!(cu.cuMemsetD8Async(pointer, 9, 4096, stream));
    let (imported, mut there, mut again) = (import(cu, pool)?, 0, 0);
    ok!(cu.cuMemPoolExportPointer(&mut data, pointer));
    ok!(cu.cuMemPoolImportPointer(&mut there, imported, &mut data));
    ok!(cu.cuMemPoolImportPointer(&mut again, imported, &mut data));
    same!(cu, again, there);
    ok!(cu.cuMemFreeAsync(there, stream));
    ok!(cu.cuStreamSynchronize(stream));
    want!(INVALID_VALUE, cu.cuMemFreeAsync(there, stream));
    let mut kind = 0_u32;
    let name = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    want!(INVALID_VALUE, cu.cuPointerGetAttribute((&raw mut kind).cast(), name, there));
    same!(cu, cu.read(pointer, 4096)?, vec![9; 4096]);
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    // An address can be imported although nothing is there any more.
    ok!(cu.cuMemPoolImportPointer(&mut there, imported, &mut data));
    want!(INVALID_VALUE, cu.cuMemPoolDestroy(imported));
    ok!(cu.cuMemFreeAsync(there, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn imported_pool_is_for_imports(cu: &Cuda<'_>) -> CaseResult {
    let (pool, stream, mut data) = (exportable(cu)?, cu.stream()?, nothing());
    let pointer = alloc_from(cu, pool, 4096, stream)?;
    let (imported, mut there, mut file) = (import(cu, pool)?, 0, -1_i32);
    ok!(cu.cuMemPoolExportPointer(&mut data, pointer));
    ok!(cu.cuMemPoolImportPointer(&mut there, imported, &mut data));
    want!(INVALID_VALUE, cu.cuMemAllocFromPoolAsync(&mut 0, 4096, imported, stream));
    want!(INVALID_VALUE, cu.cuMemPoolExportToShareableHandle((&raw mut file).cast(), imported, FILE, 0));
    want!(INVALID_VALUE, cu.cuMemPoolExportPointer(&mut nothing(), there));
    for name in [THRESHOLD, RESERVED, USED] {
        let mut value = 5_u64;
        want!(INVALID_VALUE, cu.cuMemPoolGetAttribute(imported, name, (&raw mut value).cast()));
        same!(cu, value, 5);
    }
    same!(cu, set_attribute(cu, imported, THRESHOLD, 5)?, CUresult::CUDA_ERROR_INVALID_VALUE);
    want!(INVALID_VALUE, cu.cuMemPoolTrimTo(imported, 0));
    want!(INVALID_VALUE, cu.cuDeviceSetMemPool(0, imported));
    let (mut flags, mut place) = (CUmemAccess_flags(77), location(0));
    ok!(cu.cuMemPoolGetAccess(&mut flags, imported, &mut place));
    same!(cu, flags.0, 3);
    ok!(cu.cuMemPoolSetAccess(imported, &access(0, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE), 1));
    ok!(cu.cuMemFreeAsync(there, stream));
    ok!(cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn maximum_size(cu: &Cuda<'_>) -> CaseResult {
    let (stream, mut pool, mut pointer) = (cu.stream()?, ptr::null_mut(), 0);
    ok!(cu.cuMemPoolCreate(&mut pool, &CUmemPoolProps { maxSize: 64 << 20, ..props() }));
    cu.later(Cleanup::Pool(pool));
    want!(OUT_OF_MEMORY, cu.cuMemAllocFromPoolAsync(&mut pointer, 128 << 20, pool, stream));
    Ok(())
}
