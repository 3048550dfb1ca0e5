//! Virtual memory: addresses, physical memory, mappings, access.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use super::prelude::*;

cases!("vmm", CASES, Needs::CONTEXT;
    granularity, granularity_is_not_particular, reserve_and_free, reserve_odd_sizes, reserve_with_alignment, reserve_at_a_taken_address, reserve_with_flags, free_of_unknown_addresses, free_of_a_part, free_while_mapped,
    create_and_release, create_odd_sizes, create_bad_properties, create_with_flags, create_too_much, release_unknown, properties_of_a_handle, map_and_use, map_twice, map_out_of_range,
    map_odd_sizes, map_with_flags_and_offset, map_unreserved, access_before_set, get_access, set_access_unmapped, set_access_unknown_location, set_access_none,
    unmap_unmapped, unmap_part, release_while_mapped, two_mappings_of_one_handle, two_handles_side_by_side, remap_keeps_the_contents, retain_by_address, retain_unknown_address,
    pointer_attributes, address_range, handle_types_of_a_handle, export_needs_a_type, export_of_other_types, exported_twice, imported_in_the_same_process, import_of_what_is_none, import_of_other_types, memory_lives_with_its_descriptor, copy_across_a_boundary, memory_falls_and_rises, host_location, alias_after_unmap,
);

const PAGE: usize = 2 << 20;

/// Pinned memory of device 0.
fn on_device(device: i32) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: location(device),
        ..CUmemAllocationProp::zeroed()
    }
}

pub(super) fn location(device: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

pub(super) fn access(device: i32, flags: CUmemAccess_flags) -> CUmemAccessDesc {
    CUmemAccessDesc { location: location(device), flags }
}

const READ_WRITE: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

fn reserve(cu: &Cuda<'_>, bytes: usize) -> CaseResult<CUdeviceptr> {
    let mut pointer = 0;
    ok!(cu.cuMemAddressReserve(&mut pointer, bytes, 0, 0, 0));
    Ok(pointer)
}

fn create(cu: &Cuda<'_>, bytes: usize) -> CaseResult<u64> {
    let mut handle = 0;
    ok!(cu.cuMemCreate(&mut handle, bytes, &on_device(0), 0));
    Ok(handle)
}

/// An address range of so many pages with one handle mapped to all of it, readable and writable.
pub(super) fn mapped(cu: &Cuda<'_>, pages: usize) -> CaseResult<(CUdeviceptr, u64)> {
    let (pointer, handle) = (reserve(cu, pages * PAGE)?, create(cu, pages * PAGE)?);
    ok!(cu.cuMemMap(pointer, pages * PAGE, 0, handle, 0));
    ok!(cu.cuMemSetAccess(pointer, pages * PAGE, &access(0, READ_WRITE), 1));
    Ok((pointer, handle))
}

pub(super) fn unmapped(cu: &Cuda<'_>, pages: usize, (pointer, handle): (CUdeviceptr, u64)) -> CaseResult {
    ok!(cu.cuMemUnmap(pointer, pages * PAGE));
    ok!(cu.cuMemAddressFree(pointer, pages * PAGE));
    ok!(cu.cuMemRelease(handle));
    Ok(())
}

fn granularity(cu: &Cuda<'_>) -> CaseResult {
    for option in [0, 1] {
        let mut bytes = 0;
        ok!(cu.cuMemGetAllocationGranularity(&mut bytes, &on_device(0), CUmemAllocationGranularity_flags(option)));
        same!(cu, bytes, PAGE);
    }
    Ok(())
}

fn granularity_is_not_particular(cu: &Cuda<'_>) -> CaseResult {
    let (mut bytes, option) = (0, CUmemAllocationGranularity_flags(0));
    want!(SUCCESS, cu.cuMemGetAllocationGranularity(&mut bytes, &on_device(1000), option));
    let untyped = CUmemAllocationProp { type_: CUmemAllocationType(0), ..on_device(0) };
    want!(SUCCESS, cu.cuMemGetAllocationGranularity(&mut bytes, &untyped, option));
    want!(
        INVALID_VALUE,
        cu.cuMemGetAllocationGranularity(&mut bytes, &on_device(0), CUmemAllocationGranularity_flags(9))
    );
    Ok(())
}

fn reserve_and_free(cu: &Cuda<'_>) -> CaseResult {
    let pointer = reserve(cu, 4 * PAGE)?;
    that!(cu, pointer != 0);
    same!(cu, usize::try_from(pointer).unwrap_or(1) % PAGE, 0);
    ok!(cu.cuMemAddressFree(pointer, 4 * PAGE));
    Ok(())
}

fn reserve_odd_sizes(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 0;
    want!(INVALID_VALUE, cu.cuMemAddressReserve(&mut pointer, PAGE + 1, 0, 0, 0));
    want!(INVALID_VALUE, cu.cuMemAddressReserve(&mut pointer, 4096, 0, 0, 0));
    want!(INVALID_VALUE, cu.cuMemAddressReserve(&mut pointer, 0, 0, 0, 0));
    want!(OUT_OF_MEMORY, cu.cuMemAddressReserve(&mut pointer, 1 << 60, 0, 0, 0));
    Ok(())
}

fn reserve_with_alignment(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 0;
    ok!(cu.cuMemAddressReserve(&mut pointer, PAGE, 64 * PAGE, 0, 0));
    same!(cu, usize::try_from(pointer).unwrap_or(1) % (64 * PAGE), 0);
    ok!(cu.cuMemAddressFree(pointer, PAGE));
    want!(INVALID_VALUE, cu.cuMemAddressReserve(&mut pointer, PAGE, 3 * PAGE, 0, 0));
    Ok(())
}

fn reserve_at_a_taken_address(cu: &Cuda<'_>) -> CaseResult {
    // The address is a wish, and one that cannot be granted is no error.
    let first = reserve(cu, 4 * PAGE)?;
    let mut other = 0;
    ok!(cu.cuMemAddressReserve(&mut other, PAGE, 0, first, 0));
    that!(cu, other != first && other != 0);
    ok!(cu.cuMemAddressFree(other, PAGE));
    ok!(cu.cuMemAddressFree(first, 4 * PAGE));
    Ok(())
}

fn reserve_with_flags(cu: &Cuda<'_>) -> CaseResult {
    let mut pointer = 0;
    want!(INVALID_VALUE, cu.cuMemAddressReserve(&mut pointer, PAGE, 0, 0, 1));
    Ok(())
}

fn free_of_unknown_addresses(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuMemAddressFree(0x1_0000_0000_0000, PAGE));
    let pointer = reserve(cu, 4 * PAGE)?;
    ok!(cu.cuMemAddressFree(pointer, 4 * PAGE));
    want!(INVALID_VALUE, cu.cuMemAddressFree(pointer, 4 * PAGE));
    Ok(())
}

fn free_of_a_part(cu: &Cuda<'_>) -> CaseResult {
    let pointer = reserve(cu, 4 * PAGE)?;
    want!(INVALID_VALUE, cu.cuMemAddressFree(pointer, PAGE));
    want!(INVALID_VALUE, cu.cuMemAddressFree(pointer + 2 * (2 << 20), 2 * PAGE));
    ok!(cu.cuMemAddressFree(pointer, 4 * PAGE));
    Ok(())
}

fn free_while_mapped(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    want!(INVALID_VALUE, cu.cuMemAddressFree(range.0, PAGE));
    unmapped(cu, 1, range)
}

fn create_and_release(cu: &Cuda<'_>) -> CaseResult {
    let handle = create(cu, PAGE)?;
    that!(cu, handle != 0);
    ok!(cu.cuMemRelease(handle));
    Ok(())
}

fn create_odd_sizes(cu: &Cuda<'_>) -> CaseResult {
    let mut handle = 0;
    want!(INVALID_VALUE, cu.cuMemCreate(&mut handle, PAGE + 1, &on_device(0), 0));
    want!(INVALID_VALUE, cu.cuMemCreate(&mut handle, 4096, &on_device(0), 0));
    want!(INVALID_VALUE, cu.cuMemCreate(&mut handle, 0, &on_device(0), 0));
    Ok(())
}

fn create_bad_properties(cu: &Cuda<'_>) -> CaseResult {
    let mut handle = 0;
    want!(INVALID_DEVICE, cu.cuMemCreate(&mut handle, PAGE, &on_device(1000), 0));
    let untyped = CUmemAllocationProp { type_: CUmemAllocationType(0), ..on_device(0) };
    want!(INVALID_VALUE, cu.cuMemCreate(&mut handle, PAGE, &untyped, 0));
    let nowhere =
        CUmemAllocationProp { location: CUmemLocation { type_: CUmemLocationType(0), id: 0 }, ..on_device(0) };
    want!(INVALID_VALUE, cu.cuMemCreate(&mut handle, PAGE, &nowhere, 0));
    Ok(())
}

fn create_with_flags(cu: &Cuda<'_>) -> CaseResult {
    let mut handle = 0;
    want!(INVALID_VALUE, cu.cuMemCreate(&mut handle, PAGE, &on_device(0), 1));
    Ok(())
}

fn create_too_much(cu: &Cuda<'_>) -> CaseResult {
    let mut handle = 0;
    want!(OUT_OF_MEMORY, cu.cuMemCreate(&mut handle, 1 << 45, &on_device(0), 0));
    Ok(())
}

fn release_unknown(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuMemRelease(0));
    Ok(())
}

fn properties_of_a_handle(cu: &Cuda<'_>) -> CaseResult {
    let handle = create(cu, PAGE)?;
    let mut prop = CUmemAllocationProp::zeroed();
    ok!(cu.cuMemGetAllocationPropertiesFromHandle(&mut prop, handle));
    same!(cu, (prop.type_.0, prop.location.type_.0, prop.location.id), (1, 1, 0));
    ok!(cu.cuMemRelease(handle));
    Ok(())
}

fn map_and_use(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 2)?;
    ok!(cu.cuMemsetD8_v2(range.0, 0x5A, 2 * PAGE));
    that!(cu, cu.read(range.0, 2 * PAGE)?.iter().all(|&byte| byte == 0x5A));
    unmapped(cu, 2, range)
}

fn map_twice(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    let other = create(cu, PAGE)?;
    want!(INVALID_VALUE, cu.cuMemMap(range.0, PAGE, 0, other, 0));
    ok!(cu.cuMemRelease(other));
    unmapped(cu, 1, range)
}

fn map_out_of_range(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, handle) = (reserve(cu, 2 * PAGE)?, create(cu, PAGE)?);
    want!(NOT_SUPPORTED, cu.cuMemMap(pointer, 2 * PAGE, 0, handle, 0));
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemAddressFree(pointer, 2 * PAGE));
    Ok(())
}

fn map_odd_sizes(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, handle) = (reserve(cu, 2 * PAGE)?, create(cu, PAGE)?);
    want!(NOT_SUPPORTED, cu.cuMemMap(pointer, 4096, 0, handle, 0));
    want!(INVALID_VALUE, cu.cuMemMap(pointer + 4096, PAGE, 0, handle, 0));
    want!(INVALID_VALUE, cu.cuMemMap(pointer, 0, 0, handle, 0));
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemAddressFree(pointer, 2 * PAGE));
    Ok(())
}

fn map_with_flags_and_offset(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, handle) = (reserve(cu, 2 * PAGE)?, create(cu, 2 * PAGE)?);
    want!(INVALID_VALUE, cu.cuMemMap(pointer, PAGE, 0, handle, 1));
    want!(NOT_SUPPORTED, cu.cuMemMap(pointer, PAGE, PAGE, handle, 0));
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemAddressFree(pointer, 2 * PAGE));
    Ok(())
}

fn map_unreserved(cu: &Cuda<'_>) -> CaseResult {
    let handle = create(cu, PAGE)?;
    want!(INVALID_VALUE, cu.cuMemMap(0x1_0000_0000_0000, PAGE, 0, handle, 0));
    ok!(cu.cuMemRelease(handle));
    Ok(())
}

fn access_before_set(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, handle) = (reserve(cu, PAGE)?, create(cu, PAGE)?);
    ok!(cu.cuMemMap(pointer, PAGE, 0, handle, 0));
    let mut flags = 77;
    ok!(cu.cuMemGetAccess(&mut flags, &location(0), pointer));
    same!(cu, flags, 0);
    want!(INVALID_VALUE, cu.cuMemsetD8_v2(pointer, 1, 64));
    unmapped(cu, 1, (pointer, handle))
}

fn get_access(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    let mut flags = 77;
    ok!(cu.cuMemGetAccess(&mut flags, &location(0), range.0));
    same!(cu, flags, 3);
    want!(INVALID_DEVICE, cu.cuMemGetAccess(&mut flags, &location(1000), range.0));
    unmapped(cu, 1, range)
}

fn set_access_unmapped(cu: &Cuda<'_>) -> CaseResult {
    let pointer = reserve(cu, PAGE)?;
    want!(INVALID_VALUE, cu.cuMemSetAccess(pointer, PAGE, &access(0, READ_WRITE), 1));
    let mut flags = 77;
    want!(INVALID_VALUE, cu.cuMemGetAccess(&mut flags, &location(0), pointer));
    ok!(cu.cuMemAddressFree(pointer, PAGE));
    Ok(())
}

fn set_access_unknown_location(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    want!(INVALID_VALUE, cu.cuMemSetAccess(range.0, PAGE, &access(1000, READ_WRITE), 1));
    want!(INVALID_VALUE, cu.cuMemSetAccess(range.0, PAGE, &access(0, CUmemAccess_flags(7)), 1));
    want!(INVALID_VALUE, cu.cuMemSetAccess(range.0, 4096, &access(0, READ_WRITE), 1));
    unmapped(cu, 1, range)
}

fn set_access_none(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    ok!(cu.cuMemSetAccess(range.0, PAGE, &access(0, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE), 1));
    let mut flags = 77;
    ok!(cu.cuMemGetAccess(&mut flags, &location(0), range.0));
    same!(cu, flags, 0);
    unmapped(cu, 1, range)
}

fn unmap_unmapped(cu: &Cuda<'_>) -> CaseResult {
    let pointer = reserve(cu, PAGE)?;
    want!(SUCCESS, cu.cuMemUnmap(pointer, PAGE));
    want!(INVALID_VALUE, cu.cuMemUnmap(0x1_0000_0000_0000, PAGE));
    ok!(cu.cuMemAddressFree(pointer, PAGE));
    Ok(())
}

fn unmap_part(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 2)?;
    want!(INVALID_VALUE, cu.cuMemUnmap(range.0, PAGE));
    unmapped(cu, 2, range)
}

fn release_while_mapped(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, handle) = mapped(cu, 1)?;
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemsetD8_v2(pointer, 3, 64));
    same!(cu, cu.read(pointer, 64)?, vec![3; 64]);
    ok!(cu.cuMemUnmap(pointer, PAGE));
    ok!(cu.cuMemAddressFree(pointer, PAGE));
    Ok(())
}

fn two_mappings_of_one_handle(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    let second = reserve(cu, PAGE)?;
    ok!(cu.cuMemMap(second, PAGE, 0, range.1, 0));
    ok!(cu.cuMemSetAccess(second, PAGE, &access(0, READ_WRITE), 1));
    ok!(cu.cuMemsetD8_v2(range.0, 0x4D, 64));
    same!(cu, cu.read(second, 64)?, vec![0x4D; 64]);
    ok!(cu.cuMemUnmap(second, PAGE));
    ok!(cu.cuMemAddressFree(second, PAGE));
    unmapped(cu, 1, range)
}

fn two_handles_side_by_side(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, first, second) = (reserve(cu, 2 * PAGE)?, create(cu, PAGE)?, create(cu, PAGE)?);
    let middle = pointer + (2 << 20);
    ok!(cu.cuMemMap(pointer, PAGE, 0, first, 0));
    ok!(cu.cuMemMap(middle, PAGE, 0, second, 0));
    ok!(cu.cuMemSetAccess(pointer, 2 * PAGE, &access(0, READ_WRITE), 1));
    ok!(cu.cuMemsetD8_v2(middle - 32, 0x2E, 64));
    same!(cu, cu.read(middle - 32, 64)?, vec![0x2E; 64]);
    ok!(cu.cuMemRelease(first));
    unmapped(cu, 2, (pointer, second))
}

fn remap_keeps_the_contents(cu: &Cuda<'_>) -> CaseResult {
    let (pointer, handle) = mapped(cu, 1)?;
    ok!(cu.cuMemsetD8_v2(pointer, 0x6F, PAGE));
    ok!(cu.cuCtxSynchronize());
    ok!(cu.cuMemUnmap(pointer, PAGE));
    let other = reserve(cu, PAGE)?;
    ok!(cu.cuMemMap(other, PAGE, 0, handle, 0));
    ok!(cu.cuMemSetAccess(other, PAGE, &access(0, READ_WRITE), 1));
    same!(cu, cu.read(other, 64)?, vec![0x6F; 64]);
    ok!(cu.cuMemAddressFree(pointer, PAGE));
    unmapped(cu, 1, (other, handle))
}

fn retain_by_address(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    let mut handle = 0;
    let place = ptr::without_provenance_mut(usize::try_from(range.0).unwrap_or(0) + 100);
    ok!(cu.cuMemRetainAllocationHandle(&mut handle, place));
    same!(cu, handle, range.1);
    ok!(cu.cuMemRelease(handle));
    unmapped(cu, 1, range)
}

fn retain_unknown_address(cu: &Cuda<'_>) -> CaseResult {
    let plain = cu.alloc(4 << 20)?;
    let mut handle = 0;
    let place = ptr::without_provenance_mut(usize::try_from(plain).unwrap_or(0));
    want!(INVALID_VALUE, cu.cuMemRetainAllocationHandle(&mut handle, place));
    want!(INVALID_VALUE, cu.cuMemRetainAllocationHandle(&mut handle, ptr::without_provenance_mut(0x1000)));
    Ok(())
}

fn pointer_attributes(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    let mut kind = 0_u32;
    let name = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    ok!(cu.cuPointerGetAttribute((&raw mut kind).cast(), name, range.0));
    same!(cu, kind, 2);
    want!(INVALID_VALUE, cu.cuMemFree_v2(range.0));
    unmapped(cu, 1, range)
}

fn address_range(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    let (mut base, mut size) = (0, 0);
    ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut size, range.0 + 50));
    same!(cu, (base, size), (range.0, PAGE));
    unmapped(cu, 1, range)
}

fn export_needs_a_type(cu: &Cuda<'_>) -> CaseResult {
    let (handle, mut file) = (create(cu, PAGE)?, -1_i32);
    let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    want!(INVALID_VALUE, cu.cuMemExportToShareableHandle((&raw mut file).cast(), handle, kind, 0));
    same!(cu, file, -1);
    ok!(cu.cuMemRelease(handle));
    Ok(())
}

const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn of_type(types: u32) -> CUmemAllocationProp {
    CUmemAllocationProp { requestedHandleTypes: CUmemAllocationHandleType(types), ..on_device(0) }
}

/// A handle that can be exported as a descriptor.
fn exportable(cu: &Cuda<'_>, pages: usize) -> CaseResult<u64> {
    let mut handle = 0;
    ok!(cu.cuMemCreate(&mut handle, pages * PAGE, &of_type(FILE.0), 0));
    Ok(handle)
}

fn export(cu: &Cuda<'_>, handle: u64) -> CaseResult<OwnedFd> {
    let mut file = -1_i32;
    ok!(cu.cuMemExportToShareableHandle((&raw mut file).cast(), handle, FILE, 0));
    Ok(owned(file))
}

fn import(cu: &Cuda<'_>, file: &OwnedFd) -> CaseResult<u64> {
    let mut handle = 0;
    ok!(cu.cuMemImportFromShareableHandle(&mut handle, as_pointer(file), FILE));
    Ok(handle)
}

fn handle_types_of_a_handle(cu: &Cuda<'_>) -> CaseResult {
    let mut handle = 0;
    for types in [2, 4] {
        want!(INVALID_VALUE, cu.cuMemCreate(&mut handle, PAGE, &of_type(types), 0));
    }
    for types in [8, 9] {
        want!(NOT_PERMITTED, cu.cuMemCreate(&mut handle, PAGE, &of_type(types), 0));
    }
    for types in [16, 32] {
        ok!(cu.cuMemCreate(&mut handle, PAGE, &of_type(types), 0));
        ok!(cu.cuMemRelease(handle));
    }
    Ok(())
}

fn export_of_other_types(cu: &Cuda<'_>) -> CaseResult {
    let (handle, mut bytes) = (exportable(cu, 1)?, [0_u8; 128]);
    for types in [0, 2, 4, 8, 9, 16] {
        let kind = CUmemAllocationHandleType(types);
        want!(INVALID_VALUE, cu.cuMemExportToShareableHandle((&raw mut bytes).cast(), handle, kind, 0));
    }
    want!(INVALID_VALUE, cu.cuMemExportToShareableHandle((&raw mut bytes).cast(), handle, FILE, 1));
    want!(INVALID_VALUE, cu.cuMemExportToShareableHandle(ptr::null_mut(), handle, FILE, 0));
    want!(INVALID_VALUE, cu.cuMemExportToShareableHandle((&raw mut bytes).cast(), 0, FILE, 0));
    same!(cu, bytes, [0; 128]);
    ok!(cu.cuMemRelease(handle));
    Ok(())
}

fn exported_twice(cu: &Cuda<'_>) -> CaseResult {
    let handle = exportable(cu, 1)?;
    let (first, second) = (export(cu, handle)?, export(cu, handle)?);
    that!(cu, first.as_raw_fd() != second.as_raw_fd());
    ok!(cu.cuMemRelease(handle));
    Ok(())
}

fn imported_in_the_same_process(cu: &Cuda<'_>) -> CaseResult {
    let (handle, base) = (exportable(cu, 2)?, reserve(cu, 4 * PAGE)?);
    let (mut before, mut after, mut total) = (0, 0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut before, &mut total));
    let file = export(cu, handle)?;
    let (other, third) = (import(cu, &file)?, import(cu, &file)?);
    ok!(cu.cuMemGetInfo_v2(&mut after, &mut total));
    same!(cu, after, before);
    that!(cu, other != handle && third != handle && third != other);
    let mut made_with = CUmemAllocationProp::zeroed();
    ok!(cu.cuMemGetAllocationPropertiesFromHandle(&mut made_with, other));
    same!(cu, (made_with.type_.0, made_with.requestedHandleTypes.0), (1, 0));
    same!(cu, (made_with.location.type_.0, made_with.location.id), (1, 0));
    want!(INVALID_VALUE, cu.cuMemExportToShareableHandle((&raw mut total).cast(), other, FILE, 0));
    want!(NOT_SUPPORTED, cu.cuMemMap(base, PAGE, 0, other, 0));
    ok!(cu.cuMemMap(base, 2 * PAGE, 0, other, 0));
    let second = base + 2 * (2 << 20);
    ok!(cu.cuMemMap(second, 2 * PAGE, 0, handle, 0));
    ok!(cu.cuMemSetAccess(base, 4 * PAGE, &access(0, READ_WRITE), 1));
    ok!(cu.cuMemsetD8_v2(base, 5, 100));
    same!(cu, cu.read(second, 100)?, vec![5; 100]);
    for (pointer, types) in [(base, 0), (second, 1)] {
        let mut allowed = 77_u64;
        let name = CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES;
        ok!(cu.cuPointerGetAttribute((&raw mut allowed).cast(), name, pointer));
        same!(cu, allowed, types);
    }
    ok!(cu.cuMemRelease(handle));
    // It is still mapped.
    drop(export(cu, handle)?);
    ok!(cu.cuMemRelease(other));
    ok!(cu.cuMemRelease(third));
    want!(INVALID_VALUE, cu.cuMemRelease(third));
    ok!(cu.cuMemUnmap(base, 4 * PAGE));
    ok!(cu.cuMemAddressFree(base, 4 * PAGE));
    Ok(())
}

fn import_of_what_is_none(cu: &Cuda<'_>) -> CaseResult {
    let mut handle = 0;
    for number in [10_000, usize::MAX] {
        let nothing = ptr::without_provenance_mut(number);
        want!(UNKNOWN, cu.cuMemImportFromShareableHandle(&mut handle, nothing, FILE));
    }
    let other = File::options().read(true).write(true).open("/dev/null").map_err(|error| failed(&error))?;
    want!(UNKNOWN, cu.cuMemImportFromShareableHandle(&mut handle, as_pointer(&other.into()), FILE));
    want!(INVALID_VALUE, cu.cuMemImportFromShareableHandle(&mut handle, ptr::null_mut(), FILE));
    Ok(())
}

fn import_of_other_types(cu: &Cuda<'_>) -> CaseResult {
    let (exported, mut handle, mut bytes) = (exportable(cu, 1)?, 0, [0_u8; 64]);
    let file = export(cu, exported)?;
    want!(INVALID_VALUE, cu.cuMemImportFromShareableHandle(ptr::null_mut(), as_pointer(&file), FILE));
    for (types, place) in [(2, as_pointer(&file)), (4, as_pointer(&file)), (8, (&raw mut bytes).cast())] {
        let kind = CUmemAllocationHandleType(types);
        want!(NOT_SUPPORTED, cu.cuMemImportFromShareableHandle(&mut handle, place, kind));
    }
    let none = CUmemAllocationHandleType(0);
    want!(INVALID_VALUE, cu.cuMemImportFromShareableHandle(&mut handle, as_pointer(&file), none));
    ok!(cu.cuMemRelease(exported));
    Ok(())
}

/// A descriptor keeps the memory, and captures do not mind.
fn memory_lives_with_its_descriptor(cu: &Cuda<'_>) -> CaseResult {
    let (handle, base, stream) = (exportable(cu, 1)?, reserve(cu, PAGE)?, cu.stream()?);
    ok!(cu.cuMemMap(base, PAGE, 0, handle, 0));
    ok!(cu.cuMemSetAccess(base, PAGE, &access(0, READ_WRITE), 1));
    ok!(cu.cuMemsetD8_v2(base, 6, PAGE));
    ok!(cu.cuCtxSynchronize());
    cu.begin(stream, CUstreamCaptureMode(0))?;
    let file = export(cu, handle)?;
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemUnmap(base, PAGE));
    let again = import(cu, &file)?;
    cu.end(stream)?;
    drop(file);
    ok!(cu.cuMemMap(base, PAGE, 0, again, 0));
    ok!(cu.cuMemSetAccess(base, PAGE, &access(0, READ_WRITE), 1));
    same!(cu, cu.read(base, PAGE)?, vec![6; PAGE]);
    unmapped(cu, 1, (base, again))
}

fn copy_across_a_boundary(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 2)?;
    let plain = cu.counted(1000)?;
    ok!(cu.cuMemcpyDtoD_v2(range.0 + (2 << 20) - 500, plain, 1000));
    that!(cu, cu.read(range.0 + (2 << 20) - 500, 1000)? == count_up(1000));
    unmapped(cu, 2, range)
}

fn memory_falls_and_rises(cu: &Cuda<'_>) -> CaseResult {
    let (mut before, mut during, mut after, mut total) = (0, 0, 0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut before, &mut total));
    let handle = create(cu, 32 * PAGE)?;
    ok!(cu.cuMemGetInfo_v2(&mut during, &mut total));
    ok!(cu.cuMemRelease(handle));
    ok!(cu.cuMemGetInfo_v2(&mut after, &mut total));
    same!(cu, (before - during, after), (32 * PAGE, before));
    Ok(())
}

fn host_location(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    let host = CUmemAccessDesc {
        location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, id: 0 },
        flags: READ_WRITE,
    };
    want!(NOT_SUPPORTED, cu.cuMemSetAccess(range.0, PAGE, &host, 1));
    unmapped(cu, 1, range)
}

fn alias_after_unmap(cu: &Cuda<'_>) -> CaseResult {
    let range = mapped(cu, 1)?;
    ok!(cu.cuMemUnmap(range.0, PAGE));
    want!(INVALID_VALUE, cu.cuMemsetD8_v2(range.0, 1, 64));
    ok!(cu.cuMemAddressFree(range.0, PAGE));
    ok!(cu.cuMemRelease(range.1));
    Ok(())
}
