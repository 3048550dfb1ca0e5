//! Virtual memory management: reserved addresses, physical handles, and what is mapped where for whom.
//!
//! None of these functions waits for queued work, as on hardware: work that still uses a range when it is unmapped
//! finds nothing there and loses its context. None is forbidden during a capture.
//!
//! Physical memory is always a device's; hardware can also make handles of host memory, which is answered with
//! `NOT_SUPPORTED` here.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;
use std::ptr;

use cuda_sys::driver::types::{
    CUmemAccessDesc, CUmemAllocationGranularity_flags as GranularityOption, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_DEVICE, INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED};
use crate::model::memory::GRANULE;

/// Handle types of another operating system, `CU_MEM_HANDLE_TYPE_WIN32` and `_WIN32_KMT`.
const FOREIGN_HANDLE_TYPES: u32 = 0x6;

/// `CU_MEM_HANDLE_TYPE_FABRIC`, which needs a service of the fabric.
const FABRIC: u32 = 0x8;

pub(crate) fn reserve(
    call: &mut Call<'_>,
    pointer: Ptr<u64>,
    bytes: usize,
    alignment: usize,
    _hint: u64,
    flags: u64,
) -> Answer {
    pointer.required()?;
    need_virtual_memory(call)?;
    let base = call.reserve_addresses(bytes as u64, alignment as u64, flags)?;
    pointer.write(base)
}

/// `NOT_SUPPORTED`: the devices have no virtual memory management.
fn need_virtual_memory(call: &Call<'_>) -> Answer {
    if call.config.virtual_memory { Ok(()) } else { Err(NOT_SUPPORTED) }
}

pub(crate) fn free_reservation(call: &mut Call<'_>, pointer: u64, bytes: usize) -> Answer {
    call.free_addresses(pointer, bytes as u64)
}

pub(crate) fn create(
    call: &mut Call<'_>,
    handle: Ptr<u64>,
    bytes: usize,
    properties: Ptr<CUmemAllocationProp>,
    flags: u64,
) -> Answer {
    handle.required()?;
    need_virtual_memory(call)?;
    let properties = properties.read()?;
    let handle_types = properties.requestedHandleTypes.0;
    let known = properties.type_ == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    if !known || flags != 0 || handle_types & FOREIGN_HANDLE_TYPES != 0 {
        return Err(INVALID_VALUE);
    }
    if handle_types & FABRIC != 0 {
        return Err(NOT_PERMITTED);
    }
    let device = match properties.location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => call.device(properties.location.id)?,
        CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID => return Err(INVALID_VALUE),
        _ => return Err(NOT_SUPPORTED),
    };
    let made = call.create_physical(device, bytes as u64, handle_types)?;
    handle.write(made)
}

pub(crate) fn release(call: &mut Call<'_>, handle: u64) -> Answer {
    call.release_physical(handle)
}

pub(crate) fn map(call: &mut Call<'_>, pointer: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Answer {
    call.map_physical(pointer, bytes as u64, offset as u64, handle, flags)
}

pub(crate) fn unmap(call: &mut Call<'_>, pointer: u64, bytes: usize) -> Answer {
    call.unmap_range(pointer, bytes as u64)
}

pub(crate) fn set_access(
    call: &mut Call<'_>,
    pointer: u64,
    bytes: usize,
    grants: Ptr<CUmemAccessDesc>,
    count: usize,
) -> Answer {
    grants.required()?;
    // More devices than this no machine has; a wild count must not be believed.
    if count == 0 || count > 1024 {
        return Err(INVALID_VALUE);
    }
    let described = grants.read_array(count)?;
    let grants: Answer<Vec<(u32, u32)>> = described.iter().map(|grant| read_grant(call, grant)).collect();
    call.set_range_access(pointer, bytes as u64, &grants?)
}

/// Which device an access description is about, and what that may do.
fn read_grant(call: &Call<'_>, grant: &CUmemAccessDesc) -> Answer<(u32, u32)> {
    match grant.location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            let device = call.device(grant.location.id).map_err(|_| INVALID_VALUE)?;
            Ok((device, grant.flags.0))
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID => Err(INVALID_VALUE),
        _ => Err(NOT_SUPPORTED),
    }
}

pub(crate) fn access(call: &mut Call<'_>, flags: Ptr<u64>, location: Ptr<CUmemLocation>, pointer: u64) -> Answer {
    flags.required()?;
    let location = location.read()?;
    let device = match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Some(call.device(location.id)?),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID => return Err(INVALID_DEVICE),
        _ => None,
    };
    flags.write(0)?;
    // Memory that was not mapped by the program is known, but nothing was granted on it.
    if call.memory.allocation_at(pointer).is_some() || call.memory.managed_at(pointer).is_some() {
        return Ok(());
    }
    let granted = call.vmm.access(pointer, device)?;
    flags.write(u64::from(granted))
}

pub(crate) fn granularity(
    _call: &mut Call<'_>,
    granularity: Ptr<usize>,
    properties: Ptr<CUmemAllocationProp>,
    option: GranularityOption,
) -> Answer {
    granularity.required()?;
    properties.required()?;
    match option {
        GranularityOption::CU_MEM_ALLOC_GRANULARITY_MINIMUM
        | GranularityOption::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED => {
            granularity.write(usize::try_from(GRANULE).unwrap_or(usize::MAX))
        }
        _ => Err(INVALID_VALUE),
    }
}

pub(crate) fn properties(call: &mut Call<'_>, properties: Ptr<CUmemAllocationProp>, handle: u64) -> Answer {
    properties.required()?;
    let physical = call.vmm.physical(handle)?;
    let made_with = CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType(physical.handle_types),
        location: CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: i32::try_from(physical.device).unwrap_or(i32::MAX),
        },
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    };
    properties.write(made_with)
}

pub(crate) fn retain(call: &mut Call<'_>, handle: Ptr<u64>, address: Ptr<c_void>) -> Answer {
    handle.required()?;
    let retained = call.vmm.retain(address.address())?;
    handle.write(retained)
}

/// The descriptor is the program's, which closes it.
pub(crate) fn export(
    call: &mut Call<'_>,
    exported: Ptr<c_void>,
    handle: u64,
    handle_type: CUmemAllocationHandleType,
    flags: u64,
) -> Answer {
    exported.required()?;
    if flags != 0 || handle_type != CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
        return Err(INVALID_VALUE);
    }
    let descriptor = call.export_physical(handle, handle_type.0)?;
    exported.cast::<i32>().write(descriptor.into_raw_fd())
}

/// The descriptor stays the program's, which may close it at once.
pub(crate) fn import(
    call: &mut Call<'_>,
    handle: Ptr<u64>,
    exported: Ptr<c_void>,
    handle_type: CUmemAllocationHandleType,
) -> Answer {
    handle.required()?;
    let imported = call.import_physical(descriptor_of(exported, handle_type)?)?;
    handle.write(imported)
}

/// The descriptor that was given as a pointer. `INVALID_VALUE`: none was. `NOT_SUPPORTED`: it is said to be no descriptor.
pub(super) fn descriptor_of(exported: Ptr<c_void>, handle_type: CUmemAllocationHandleType) -> Answer<i32> {
    match handle_type {
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE => return Err(INVALID_VALUE),
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => {}
        _ => return Err(NOT_SUPPORTED),
    }
    exported.required()?;
    // No file has a number that does not fit.
    Ok(i32::try_from(exported.address()).unwrap_or(-1))
}
