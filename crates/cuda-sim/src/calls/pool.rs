//! Stream-ordered memory and its pools.
//!
//! Memory is usable as soon as the call returns; freeing is a piece of work on the stream. On a stream that is captured
//! both become nodes of the graph, whose memory is no pool's. Pools are of devices: those of host and managed memory,
//! which hardware has, are `NOT_SUPPORTED`.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;

use cuda_sys::driver::types::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute, CUmemPoolHandle_st, CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool,
    CUstream_st,
};

use super::vmm::descriptor_of;
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED};
use crate::model::graph::NodeKind;
use crate::model::pool::Pool;
use crate::model::pools::Origin;
use crate::model::shared::{HandleKind, SharedHandle};

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

pub(crate) fn alloc(call: &mut Call<'_>, pointer: Ptr<u64>, bytes: usize, stream: Ptr<CUstream_st>) -> Answer {
    call.need_context_of(stream)?;
    pointer.write(0)?;
    let key = ready_stream(call, stream)?;
    let context = call.stream(key)?.context;
    let device = call.usable_context(context)?.device;
    if bytes != 0 && capture_alloc(call, pointer, bytes, device, key)? {
        return Ok(());
    }
    let pool = call.current_pool(device)?;
    alloc_on(call, pointer, bytes, pool, key)
}

pub(crate) fn alloc_from_pool(
    call: &mut Call<'_>,
    pointer: Ptr<u64>,
    bytes: usize,
    pool: Ptr<CUmemPoolHandle_st>,
    stream: Ptr<CUstream_st>,
) -> Answer {
    pointer.write(0)?;
    let device = call.own_pool(pool.address())?.device;
    let key = ready_stream(call, stream)?;
    if bytes != 0 && capture_alloc(call, pointer, bytes, device, key)? {
        return Ok(());
    }
    alloc_on(call, pointer, bytes, pool.address(), key)
}

/// Puts an allocation into the graph that a stream captures. False when it captures none.
fn capture_alloc(call: &mut Call<'_>, pointer: Ptr<u64>, bytes: usize, device: u32, stream: u64) -> Answer<bool> {
    let mut address = 0;
    let captured = call.capture_node(stream, |state| {
        let graph = state.capture_of(stream).ok_or(INVALID_VALUE)?.graph;
        let alloc = state.reserve_for_graph(graph, device, bytes as u64)?;
        address = alloc.address;
        Ok(NodeKind::MemAlloc(alloc))
    })?;
    if captured {
        pointer.write(address)?;
    }
    Ok(captured)
}

/// A stream that memory can be allocated or freed on.
fn ready_stream(call: &mut Call<'_>, stream: Ptr<CUstream_st>) -> Answer<u64> {
    let key = call.named_stream(stream)?;
    call.refuse_implicit(key)?;
    if call.stream(key)?.capturing.is_none() {
        call.refuse_if_unsafe()?;
    }
    Ok(key)
}

fn alloc_on(call: &mut Call<'_>, pointer: Ptr<u64>, bytes: usize, pool: u64, stream: u64) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    let device = call.pool(pool)?.device;
    call.check_room(device, bytes as u64)?;
    let base = call.allocate_pooled(pool, bytes as u64, stream)?;
    pointer.write(base)
}

pub(crate) fn free(call: &mut Call<'_>, pointer: u64, stream: Ptr<CUstream_st>) -> Answer {
    let key = ready_stream(call, stream)?;
    if pointer == 0 {
        return Ok(());
    }
    if call.memory.managed_at(pointer).is_some() {
        return Err(NOT_SUPPORTED);
    }
    let captured = call.capture_node(key, |state| {
        state.check_graph_free(pointer)?;
        Ok(NodeKind::MemFree(pointer))
    })?;
    if captured { Ok(()) } else { call.free_in_order(pointer, key) }
}

pub(crate) fn create(call: &mut Call<'_>, pool: Ptr<CUmemoryPool>, properties: Ptr<CUmemPoolProps>) -> Answer {
    call.refuse_if_unsafe()?;
    pool.required()?;
    let wanted = properties.read()?;
    if wanted.handleTypes.0 > 1 {
        return Err(INVALID_VALUE);
    }
    let device = match (wanted.allocType, wanted.location.type_) {
        (CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_INVALID, _)
        | (_, CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID) => return Err(INVALID_VALUE),
        (CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE) => {
            call.device(wanted.location.id).map_err(|_| INVALID_VALUE)?
        }
        _ => return Err(NOT_SUPPORTED),
    };
    let max_bytes = wanted.maxSize as u64;
    let key = if wanted.handleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
        call.new_shareable_pool(device, max_bytes)?
    } else {
        call.new_pool(device, max_bytes, Origin::Made, None)?
    };
    pool.write(handle(key))
}

pub(crate) fn destroy(call: &mut Call<'_>, pool: Ptr<CUmemPoolHandle_st>) -> Answer {
    call.refuse_if_unsafe()?;
    call.destroy_pool(pool.address())
}

pub(crate) fn default_pool(call: &mut Call<'_>, pool: Ptr<CUmemoryPool>, device: i32) -> Answer {
    pool.required()?;
    let index = call.device(device)?;
    let key = call.default_pool(index)?;
    pool.write(handle(key))
}

pub(crate) fn device_pool(call: &mut Call<'_>, pool: Ptr<CUmemoryPool>, device: i32) -> Answer {
    pool.required()?;
    let index = call.device(device).map_err(|_| INVALID_VALUE)?;
    let key = call.current_pool(index)?;
    pool.write(handle(key))
}

pub(crate) fn set_device_pool(call: &mut Call<'_>, device: i32, pool: Ptr<CUmemPoolHandle_st>) -> Answer {
    call.refuse_if_unsafe()?;
    let key = pool.address();
    let owner = call.own_pool(key)?.device;
    let index = call.device(device).map_err(|_| INVALID_VALUE)?;
    if owner != index {
        return Err(INVALID_VALUE);
    }
    call.current_pools.insert(index, key);
    Ok(())
}

pub(crate) fn trim(call: &mut Call<'_>, pool: Ptr<CUmemPoolHandle_st>, keep_bytes: usize) -> Answer {
    call.refuse_if_unsafe()?;
    call.own_pool(pool.address())?;
    call.trim_pool(pool.address(), keep_bytes as u64, &|_| false);
    Ok(())
}

/// Attributes 1 to 3 are flags of 4 bytes, the others numbers of 8.
fn reuse_index(attribute: CUmemPool_attribute) -> Option<usize> {
    usize::try_from(attribute.0).ok()?.checked_sub(1).filter(|&index| index < 3)
}

pub(crate) fn attribute(
    call: &mut Call<'_>,
    pool: Ptr<CUmemPoolHandle_st>,
    attribute: CUmemPool_attribute,
    value: Ptr<c_void>,
) -> Answer {
    call.refuse_if_unsafe()?;
    value.required()?;
    let found = call.own_pool(pool.address())?;
    if let Some(index) = reuse_index(attribute) {
        return value.cast::<i32>().write(found.reuse[index]);
    }
    let number = number_of(&found.books, attribute).ok_or(INVALID_VALUE)?;
    value.cast::<u64>().write(number)
}

fn number_of(books: &Pool, attribute: CUmemPool_attribute) -> Option<u64> {
    match attribute {
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => Some(books.release_threshold),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => Some(books.reserved().current),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => Some(books.reserved().high),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => Some(books.used().current),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => Some(books.used().high),
        _ => None,
    }
}

pub(crate) fn set_attribute(
    call: &mut Call<'_>,
    pool: Ptr<CUmemPoolHandle_st>,
    attribute: CUmemPool_attribute,
    value: Ptr<c_void>,
) -> Answer {
    call.refuse_if_unsafe()?;
    value.required()?;
    let found = call.own_pool(pool.address())?;
    if let Some(index) = reuse_index(attribute) {
        found.reuse[index] = value.cast::<i32>().read()?;
        return Ok(());
    }
    let number = value.cast::<u64>().read()?;
    match attribute {
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => found.books.release_threshold = number,
        CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if number == 0 => found.books.reset_reserved_high(),
        CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH if number == 0 => found.books.reset_used_high(),
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

pub(crate) fn access(
    call: &mut Call<'_>,
    flags: Ptr<CUmemAccess_flags>,
    pool: Ptr<CUmemPoolHandle_st>,
    location: Ptr<CUmemLocation>,
) -> Answer {
    call.refuse_if_unsafe()?;
    flags.required()?;
    let location = location.read()?;
    let device = match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID => return Err(INVALID_VALUE),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Some(call.device(location.id).map_err(|_| INVALID_VALUE)?),
        _ => None,
    };
    let found = call.pool(pool.address())?;
    let granted = device.and_then(|device| found.access.get(&device)).copied().unwrap_or(0);
    flags.write(CUmemAccess_flags(if device == Some(found.device) { READ_WRITE } else { granted }))
}

pub(crate) fn set_access(
    call: &mut Call<'_>,
    pool: Ptr<CUmemPoolHandle_st>,
    grants: Ptr<CUmemAccessDesc>,
    count: usize,
) -> Answer {
    call.refuse_if_unsafe()?;
    let owner = call.pool(pool.address())?.device;
    // More devices than this no machine has; a wild count must not be believed.
    if count > 1024 {
        return Err(INVALID_VALUE);
    }
    let described = grants.required()?.read_array(count)?;
    let grants: Answer<Vec<(u32, u32)>> = described.iter().map(|grant| read_grant(call, grant, owner)).collect();
    call.pool(pool.address())?.access.extend(grants?);
    Ok(())
}

/// Which device an access description is about, and what that may do: everything or nothing.
fn read_grant(call: &Call<'_>, grant: &CUmemAccessDesc, owner: u32) -> Answer<(u32, u32)> {
    match grant.flags.0 {
        0 | READ_WRITE => {}
        1 => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID_VALUE),
    }
    if grant.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(NOT_SUPPORTED);
    }
    let device = call.device(grant.location.id)?;
    if device == owner && grant.flags.0 == 0 { Err(INVALID_DEVICE) } else { Ok((device, grant.flags.0)) }
}

/// The descriptor is the program's, which closes it.
pub(crate) fn export(
    call: &mut Call<'_>,
    exported: Ptr<c_void>,
    pool: Ptr<CUmemPoolHandle_st>,
    handle_type: CUmemAllocationHandleType,
    flags: u64,
) -> Answer {
    exported.required()?;
    if flags != 0 || handle_type != CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
        return Err(INVALID_VALUE);
    }
    let descriptor = call.export_pool(pool.address())?;
    exported.cast::<i32>().write(descriptor.into_raw_fd())
}

/// The descriptor stays the program's, which may close it at once.
pub(crate) fn import(
    call: &mut Call<'_>,
    pool: Ptr<CUmemoryPool>,
    exported: Ptr<c_void>,
    handle_type: CUmemAllocationHandleType,
    flags: u64,
) -> Answer {
    pool.required()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let key = call.import_pool(descriptor_of(exported, handle_type)?)?;
    pool.write(handle(key))
}

pub(crate) fn export_pointer(call: &mut Call<'_>, data: Ptr<CUmemPoolPtrExportData>, pointer: u64) -> Answer {
    data.required()?;
    let exported = call.export_pooled(pointer)?;
    data.write(CUmemPoolPtrExportData { reserved: exported.encode(HandleKind::PoolPointer) })
}

pub(crate) fn import_pointer(
    call: &mut Call<'_>,
    pointer: Ptr<u64>,
    pool: Ptr<CUmemPoolHandle_st>,
    data: Ptr<CUmemPoolPtrExportData>,
) -> Answer {
    pointer.required()?;
    let exported = SharedHandle::decode(data.read()?.reserved, HandleKind::PoolPointer).ok_or(INVALID_VALUE)?;
    let address = call.import_pooled(pool.address(), &exported)?;
    pointer.write(address)
}
