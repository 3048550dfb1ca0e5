//! What the driver knows of a pointer.

use std::ffi::c_void;

use cuda_sys::driver::types::{CUcontext, CUmemorytype, CUpointer_attribute as Attribute};

use crate::call::Call;
use crate::claim::{Ptr, handle, host_pointer};
use crate::codes::{Answer, INVALID_VALUE};
use crate::model::pools::DevicePool;

/// Device ordinal of a pointer that the driver does not know.
const NO_DEVICE_ORDINAL: i32 = -2;

/// A pointer the driver knows.
struct Known {
    base: u64,
    length: u64,
    context: u64,
    device: u32,
    id: u64,
    is_host: bool,
    is_managed: bool,
    pool: Option<u64>,
    synchronous: bool,
    /// The stretch of physical memory it is in: where that begins, and its length.
    mapping: (u64, u64),
    /// For mapped handles of the virtual memory functions: what the device may do.
    virtual_access: Option<u32>,
    /// What it can be exported as.
    handle_types: u32,
}

impl Known {
    /// Whether it came from the plain allocation functions.
    fn is_plain_device(&self) -> bool {
        !self.is_host && !self.is_managed && self.pool.is_none() && self.virtual_access.is_none()
    }

    /// What the device may do with it.
    fn access(&self) -> u32 {
        self.virtual_access.unwrap_or(3)
    }
}

fn look_up(call: &Call<'_>, pointer: u64) -> Option<Known> {
    if let Some(found) = call.memory.allocation_at(pointer) {
        let chunk = call.memory.region_at(pointer).filter(|_| found.pool.is_some());
        let is_shareable = found.pool.and_then(|key| call.pools.get(&key)).is_some_and(DevicePool::is_shareable);
        let mapping = chunk.map_or((found.base, found.length), |(base, region)| (base, region.length));
        return Some(Known {
            base: found.base,
            length: found.length,
            context: found.context,
            device: found.device,
            id: found.id,
            is_host: false,
            is_managed: false,
            pool: found.pool,
            synchronous: found.synchronous,
            mapping,
            virtual_access: None,
            handle_types: u32::from(is_shareable),
        });
    }
    if let Some((base, region)) = call.memory.region_at(pointer).filter(|(_, region)| region.is_mapping()) {
        let (length, device) = (region.length, region.device);
        let handle_types = call.vmm.mapped_handle(pointer)?.handle_types;
        let access = call.vmm.access(pointer, Some(device)).unwrap_or(0);
        return Some(Known {
            base,
            length,
            context: 0,
            device,
            id: base,
            is_host: false,
            is_managed: false,
            pool: None,
            synchronous: false,
            mapping: (base, length),
            virtual_access: Some(access),
            handle_types,
        });
    }
    let (base, pinned) = call.memory.pinned_at(pointer)?;
    let device = call.contexts.get(&pinned.context).map_or(0, |context| context.device);
    let (length, context, id) = (pinned.length, pinned.context, pinned.id);
    Some(Known {
        base,
        length,
        context,
        device,
        id,
        is_host: !pinned.is_managed(),
        is_managed: pinned.is_managed(),
        pool: None,
        synchronous: pinned.is_managed(),
        mapping: (base, length),
        virtual_access: None,
        handle_types: 0,
    })
}

pub(crate) fn attribute(call: &mut Call<'_>, data: Ptr<c_void>, attribute: Attribute, pointer: u64) -> Answer {
    data.required()?;
    let known = look_up(call, pointer).ok_or(INVALID_VALUE)?;
    write_known(data, attribute, pointer, &known)
}

pub(crate) fn attributes(
    call: &mut Call<'_>,
    count: u32,
    attributes: Ptr<Attribute>,
    data: Ptr<*mut c_void>,
    pointer: u64,
) -> Answer {
    let count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or(INVALID_VALUE)?;
    let wanted = attributes.read_array(count)?;
    let known = look_up(call, pointer);
    for (index, attribute) in wanted.into_iter().enumerate() {
        let target = data.pointer_at(index)?;
        let written = known.as_ref().map(|known| write_known(target, attribute, pointer, known));
        if written.is_none_or(|written| written.is_err()) {
            write_unknown(target, attribute)?;
        }
    }
    Ok(())
}

/// Only whether operations on the memory are synchronous can be set; it changes nothing here.
pub(crate) fn set_attribute(call: &mut Call<'_>, value: Ptr<c_void>, attribute: Attribute, pointer: u64) -> Answer {
    let wanted = value.cast::<u32>().read()?;
    let known = attribute == Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    // Operations on managed memory are synchronous in any case.
    if known && call.memory.managed_at(pointer).is_some() {
        return Ok(());
    }
    let base = call.memory.allocation_at(pointer).filter(|_| known).map(|found| found.base).ok_or(INVALID_VALUE)?;
    call.memory.set_synchronous(base, wanted != 0);
    Ok(())
}

fn write_known(to: Ptr<c_void>, attribute: Attribute, pointer: u64, known: &Known) -> Answer {
    match attribute {
        Attribute::CU_POINTER_ATTRIBUTE_CONTEXT => to.cast::<CUcontext>().write(handle(known.context)),
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => to.cast::<u32>().write(if known.is_host {
            CUmemorytype::CU_MEMORYTYPE_HOST.0
        } else {
            CUmemorytype::CU_MEMORYTYPE_DEVICE.0
        }),
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER if known.access() != 0 => to.cast::<u64>().write(pointer),
        Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER if known.is_host || known.is_managed => {
            to.cast::<*mut c_void>().write(host_pointer(pointer))
        }
        Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID => to.cast::<u64>().write(known.id),
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED => to.cast::<u8>().write(u8::from(known.is_managed)),
        Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => to.cast::<u8>().write(0),
        Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => to.cast::<u8>().write(u8::from(known.synchronous)),
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
            to.cast::<i32>().write(i32::try_from(known.device).unwrap_or(i32::MAX))
        }
        Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
            to.cast::<u8>().write(u8::from(known.is_plain_device()))
        }
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => to.cast::<u64>().write(known.base),
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => to.cast::<u64>().write(known.length),
        Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => to.cast::<u64>().write(known.mapping.0),
        Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => to.cast::<u64>().write(known.mapping.1),
        Attribute::CU_POINTER_ATTRIBUTE_MAPPED => to.cast::<u8>().write(1),
        Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => to.cast::<u64>().write(u64::from(known.handle_types)),
        Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => {
            to.cast::<u8>().write(u8::from(known.is_plain_device()))
        }
        Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => to.cast::<u32>().write(known.access()),
        Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => {
            to.cast::<*mut c_void>().write(handle(known.pool.unwrap_or(0)))
        }
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => to.cast::<u64>().write(known.id),
        _ => Err(INVALID_VALUE),
    }
}

/// What an attribute is for a pointer that has none.
fn write_unknown(to: Ptr<c_void>, attribute: Attribute) -> Answer {
    match attribute {
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => to.cast::<i32>().write(NO_DEVICE_ORDINAL),
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE | Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => {
            to.cast::<u32>().write(0)
        }
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED
        | Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | Attribute::CU_POINTER_ATTRIBUTE_MAPPED
        | Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE
        | Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => to.cast::<u8>().write(0),
        Attribute::CU_POINTER_ATTRIBUTE_P2P_TOKENS => Err(INVALID_VALUE),
        known if known.0 <= Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE.0 && known.0 > 0 => {
            to.cast::<u64>().write(0)
        }
        _ => Err(INVALID_VALUE),
    }
}
