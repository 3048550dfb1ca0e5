//! Stream-ordered memory, and the pools that the driver keeps for it.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Out pointers and structures are locals that outlive the
//! call, and have the width that the driver documents for the attribute. Pools are the devices' default pools, which live
//! as long as the driver; each address is freed once, by the backend that got it here.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::c_int;
use std::ptr;

use cuda_sys::driver::types::{
    CUdevice_attribute, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType, CUmemPool_attribute,
    CUmemoryPool,
};

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::handles::{MemoryPoolHandle, StreamRef};
use crate::driver::Api;
use crate::driver::memory::raw;

/// A number that a pool tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PoolNumber {
    /// Bytes that the pool keeps when a stream, an event or a context has been waited for.
    ReleaseThreshold,
    /// Bytes that the pool holds, now and at most since the last reset.
    Reserved,
    ReservedHigh,
    /// Bytes of it that are handed out.
    Used,
    UsedHigh,
}

/// The switches of how a pool uses memory again: after events, when it is seen to be free, by waiting on the device.
const REUSES: [CUmemPool_attribute; 3] = [
    CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
    CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
    CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
];

impl PoolNumber {
    fn attribute(self) -> CUmemPool_attribute {
        match self {
            Self::ReleaseThreshold => CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            Self::Reserved => CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            Self::ReservedHigh => CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
            Self::Used => CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
            Self::UsedHigh => CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        }
    }
}

impl Api {
    /// Whether a device has pools of stream-ordered memory.
    pub(crate) fn has_memory_pools(&self, device: DeviceIndex) -> Result<bool> {
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        self.attribute(device, attribute).map(|supported| supported != 0)
    }

    /// The default pool of a device.
    pub(crate) fn default_pool(&self, device: DeviceIndex) -> Result<MemoryPoolHandle> {
        let number = self.device(device)?;
        let mut pool: CUmemoryPool = ptr::null_mut();
        // SAFETY: `pool` outlives the call.
        unsafe { self.table.cuDeviceGetDefaultMemPool(&mut pool, number) }?;
        Ok(MemoryPoolHandle(pool.expose_provenance()))
    }

    /// A number of a pool.
    pub(crate) fn pool_number(&self, pool: MemoryPoolHandle, number: PoolNumber) -> Result<u64> {
        let mut value = 0u64;
        let place = ptr::from_mut(&mut value).cast();
        // SAFETY: these attributes have 8 bytes; `value` outlives the call.
        unsafe { self.table.cuMemPoolGetAttribute(raw_pool(pool), number.attribute(), place) }?;
        Ok(value)
    }

    /// Sets a number of a pool; a highest value can only be set to 0, which makes it the present one.
    pub(crate) fn set_pool_number(&self, pool: MemoryPoolHandle, number: PoolNumber, mut value: u64) -> Result<()> {
        let place = ptr::from_mut(&mut value).cast();
        // SAFETY: these attributes have 8 bytes; `value` outlives the call.
        Ok(unsafe { self.table.cuMemPoolSetAttribute(raw_pool(pool), number.attribute(), place) }?)
    }

    /// Lets a pool use memory again in each of the ways that the driver has.
    pub(crate) fn allow_pool_reuses(&self, pool: MemoryPoolHandle) -> Result<()> {
        for reuse in REUSES {
            let mut enabled: c_int = 1;
            let place = ptr::from_mut(&mut enabled).cast();
            // SAFETY: these attributes have 4 bytes; `enabled` outlives the call.
            unsafe { self.table.cuMemPoolSetAttribute(raw_pool(pool), reuse, place) }?;
        }
        Ok(())
    }

    /// Gives back what a pool holds and nobody uses, down to `keep` bytes.
    pub(crate) fn trim_pool(&self, pool: MemoryPoolHandle, keep: usize) -> Result<()> {
        // SAFETY: no pointers besides the pool.
        Ok(unsafe { self.table.cuMemPoolTrimTo(raw_pool(pool), keep) }?)
    }

    /// Lets work of another device read and write the memory of a pool.
    pub(crate) fn let_reach_pool(&self, pool: MemoryPoolHandle, device: DeviceIndex) -> Result<()> {
        let location =
            CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.device(device)? };
        let grant = CUmemAccessDesc { location, flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the one description outlives the call.
        Ok(unsafe { self.table.cuMemPoolSetAccess(raw_pool(pool), &grant, 1) }?)
    }

    /// Memory of the default pool of the stream's device, for work that is queued on the stream from now on.
    #[inline]
    pub(crate) fn alloc_in_order(&self, stream: StreamRef, bytes: u64) -> Result<u64> {
        let size =
            usize::try_from(bytes).map_err(|_| Error::Memory(MemoryError::RequestTooLarge { requested: bytes }))?;
        self.bind_unless_named(stream)?;
        let mut address = 0;
        // SAFETY: the stream is alive; `address` outlives the call.
        unsafe { self.table.cuMemAllocAsync(&mut address, size, raw(stream)) }?;
        Ok(address)
    }

    /// Gives memory back behind the work that is queued on a stream so far.
    #[inline]
    pub(crate) fn free_in_order(&self, address: u64, stream: StreamRef) -> Result<()> {
        self.bind_unless_named(stream)?;
        // SAFETY: the stream is alive; nobody uses the memory after the work that the stream has.
        Ok(unsafe { self.table.cuMemFreeAsync(address, raw(stream)) }?)
    }
}

fn raw_pool(pool: MemoryPoolHandle) -> CUmemoryPool {
    ptr::with_exposed_provenance_mut(pool.0)
}
