//! What the driver knows of an address.
//!
//! # Safety
//! The one call gets arrays of as many elements as it is told, and places of the types that CUDA defines for the
//! attributes; all of them are locals that outlive it. The address is only looked up, never followed.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::{c_int, c_uint};

use cuda_sys::driver::types::{CUmemorytype, CUpointer_attribute as Attribute};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::pointer::{PointerInfo, PointerKind};
use crate::driver::Api;

impl Api {
    /// What the driver knows of an address; `None` for memory that is neither its own nor registered. Needs no context.
    pub(crate) fn pointer(&self, address: u64) -> Result<Option<PointerInfo>> {
        let (mut memory, mut device, mut managed): (c_uint, c_int, c_uint) = (0, 0, 0);
        let mut attributes = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
        ];
        let mut places = [(&raw mut memory).cast(), (&raw mut device).cast(), (&raw mut managed).cast()];
        // SAFETY: three attributes, each with a place of its type; of an unknown address 0 is answered, and no error.
        unsafe { self.table.cuPointerGetAttributes(3, attributes.as_mut_ptr(), places.as_mut_ptr(), address) }?;
        // A bool is written, of one byte.
        let kind = match CUmemorytype(memory) {
            CUmemorytype(0) => return Ok(None),
            _ if managed & 0xFF != 0 => PointerKind::Managed,
            CUmemorytype::CU_MEMORYTYPE_HOST => PointerKind::Pinned,
            _ => PointerKind::Device,
        };
        Ok(Some(PointerInfo { device: DeviceIndex(device), kind }))
    }
}
