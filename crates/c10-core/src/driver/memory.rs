//! Device memory, pinned host memory, copies and sets.
//!
//! **Invariants:** a [`PinnedBlock`] is the only owner of its host memory, and its bytes are read and written only
//! through raw copies, never through references: the device may be writing them at any time.
//!
//! # Safety
//! Each unsafe block is one call through the function table or one raw copy. Device addresses come from `DeviceBuffer`
//! or the caching allocator and are checked against the buffer's length by `copy.rs`. Host memory given to a call
//! that returns before the copy is done is a [`PinnedBlock`], which the callers in `copy.rs` keep alive until the
//! copy's stream has passed it; plain slices go only to calls that are done with them when they return.
#![expect(unsafe_code, reason = "calls of C functions, and memory they share with the device")]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use crate::device::DeviceIndex;
use crate::driver::stream::EVENT_DISABLE_TIMING;
use crate::driver::{Api, CaptureMode, Driver, EventHandle, MemInfo, StreamRef};
use crate::error::{Error, Result};

/// Address of pinned host memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HostPtr(usize);

impl HostPtr {
    fn at(self, offset: usize) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.0 + offset)
    }
}

/// Pinned host memory with its owner's duty to give it back.
#[derive(Debug)]
pub(crate) struct PinnedBlock {
    address: HostPtr,
    len: usize,
    /// Held during reads and writes by the host, so that threads do not race.
    host_access: Mutex<()>,
}

impl PinnedBlock {
    /// Bytes of the block.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.address.0
    }

    /// Copies `from` into the block at `offset`.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        check_range(offset, from.len(), self.len)?;
        let _access = self.host_access.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the range lies in this block, which is alive and no Rust object; the lock keeps other threads away.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.address.at(offset).cast::<u8>(), from.len()) };
        Ok(())
    }

    /// Copies the block's bytes from `offset` on into `to`.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        check_range(offset, to.len(), self.len)?;
        let _access = self.host_access.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `write`; the memory was initialised when the driver made it.
        unsafe { ptr::copy_nonoverlapping(self.address.at(offset).cast::<u8>(), to.as_mut_ptr(), to.len()) };
        Ok(())
    }
}

/// Refuses ranges that leave a buffer.
pub(crate) fn check_range(offset: usize, bytes: usize, len: usize) -> Result<()> {
    if offset.checked_add(bytes).is_some_and(|end| end <= len) {
        return Ok(());
    }
    Err(Error::OutOfRange { offset, bytes, len })
}

impl Driver for Api {
    fn mem_alloc(&self, device: DeviceIndex, bytes: u64) -> Result<u64> {
        self.bind(device)?;
        let size = usize::try_from(bytes).map_err(|_| Error::RequestTooLarge { requested: bytes })?;
        let mut address = 0;
        // SAFETY: `address` outlives the call.
        unsafe { self.table.cuMemAlloc_v2(&mut address, size) }?;
        Ok(address)
    }

    fn mem_free(&self, device: DeviceIndex, address: u64) -> Result<()> {
        self.bind(device)?;
        // SAFETY: the allocator frees each address it got from `mem_alloc` once.
        Ok(unsafe { self.table.cuMemFree_v2(address) }?)
    }

    fn mem_get_info(&self, device: DeviceIndex) -> Result<MemInfo> {
        self.bind(device)?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both outlive the call.
        unsafe { self.table.cuMemGetInfo_v2(&mut free, &mut total) }?;
        Ok(MemInfo { free: free as u64, total: total as u64 })
    }

    fn total_memory(&self, device: DeviceIndex) -> Result<u64> {
        self.total_memory_of(device)
    }

    fn reserve_range(&self, device: DeviceIndex, bytes: u64) -> Result<u64> {
        self.address_reserve(device, bytes)
    }

    fn release_range(&self, device: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        self.address_free(device, address, bytes)
    }

    fn map_pages(&self, device: DeviceIndex, address: u64, bytes: u64, page: u64) -> Result<()> {
        self.map_new_pages(device, address, bytes, page)
    }

    fn unmap_pages(&self, device: DeviceIndex, address: u64, bytes: u64, page: u64) -> (u64, Result<()>) {
        self.unmap_and_release(device, address, bytes, page)
    }

    fn stream_synchronize(&self, stream: StreamRef) -> Result<()> {
        self.stream_wait_on_host(stream)
    }

    fn event_create(&self, device: DeviceIndex) -> Result<EventHandle> {
        self.event_create_with_flags(device, EVENT_DISABLE_TIMING)
    }

    fn event_destroy(&self, event: EventHandle) -> Result<()> {
        self.event_destroy_handle(event)
    }

    fn event_record(&self, event: EventHandle, stream: StreamRef) -> Result<()> {
        self.event_record_with_flags(event, stream, 0)
    }

    fn event_query(&self, event: EventHandle) -> Result<bool> {
        self.event_is_done(event)
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<()> {
        self.event_wait_on_host(event)
    }

    fn capture_id(&self, stream: StreamRef) -> Result<Option<u64>> {
        self.stream_capture_id(stream)
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.thread_exchange_capture_mode(mode)
    }
}

impl Api {
    /// Takes pinned host memory, set to zero.
    pub(crate) fn host_alloc(&self, device: DeviceIndex, len: usize) -> Result<PinnedBlock> {
        self.bind(device)?;
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: `address` outlives the call.
        unsafe { self.table.cuMemHostAlloc(&mut address, len, 0) }?;
        // SAFETY: the driver just made `len` bytes there, which nobody else knows of.
        unsafe { ptr::write_bytes(address.cast::<u8>(), 0, len) };
        Ok(PinnedBlock { address: HostPtr(address.expose_provenance()), len, host_access: Mutex::default() })
    }

    /// Gives pinned memory back. May wait for the device.
    pub(crate) fn host_free(&self, device: DeviceIndex, block: &PinnedBlock) -> Result<()> {
        self.bind(device)?;
        // SAFETY: the caller owns the block, drops it now, and no copy that uses it is under way.
        Ok(unsafe { self.table.cuMemFreeHost(block.address.at(0)) }?)
    }

    /// Copies plain host memory to the device; the slice is not read after the call, and later work of any stream
    /// sees the bytes.
    pub(crate) fn copy_from_slice(&self, to: u64, from: &[u8], stream: StreamRef) -> Result<()> {
        self.stream_wait_on_host(stream)?;
        // SAFETY: `from` is readable for its length and unregistered memory is staged before the call returns;
        // the target range was checked by the caller.
        unsafe { self.table.cuMemcpyHtoD_v2(to, from.as_ptr().cast::<c_void>(), from.len()) }?;
        // The last stretch may still be on its way on the default stream, which pool streams do not wait for.
        self.stream_wait_on_host(StreamRef { device: stream.device, handle: Default::default() })
    }

    /// Copies device memory to plain host memory, after the work of `stream`; done when it returns.
    pub(crate) fn copy_to_slice(&self, to: &mut [u8], from: u64, stream: StreamRef) -> Result<()> {
        self.stream_wait_on_host(stream)?;
        // SAFETY: `to` is writable for its length; the call returns after the last byte is written.
        Ok(unsafe { self.table.cuMemcpyDtoH_v2(to.as_mut_ptr().cast::<c_void>(), from, to.len()) }?)
    }

    /// Queues a copy from pinned memory, which must stay alive until `stream` has passed it.
    pub(crate) fn copy_from_pinned(
        &self,
        to: u64,
        from: &PinnedBlock,
        offset: usize,
        bytes: usize,
        stream: StreamRef,
    ) -> Result<()> {
        check_range(offset, bytes, from.len)?;
        self.bind(stream.device)?;
        // SAFETY: both ranges are checked; the callers keep the block alive until the stream has passed the copy.
        Ok(unsafe { self.table.cuMemcpyHtoDAsync_v2(to, from.address.at(offset), bytes, raw(stream)) }?)
    }

    /// Queues a copy to pinned memory, which must stay alive until `stream` has passed it.
    pub(crate) fn copy_to_pinned(
        &self,
        to: &PinnedBlock,
        offset: usize,
        from: u64,
        bytes: usize,
        stream: StreamRef,
    ) -> Result<()> {
        check_range(offset, bytes, to.len)?;
        self.bind(stream.device)?;
        // SAFETY: as in `copy_from_pinned`.
        Ok(unsafe { self.table.cuMemcpyDtoHAsync_v2(to.address.at(offset), from, bytes, raw(stream)) }?)
    }

    /// Queues a copy between two places of device memory, on one device or two.
    pub(crate) fn copy_on_device(&self, to: u64, from: u64, bytes: usize, stream: StreamRef) -> Result<()> {
        self.bind(stream.device)?;
        // SAFETY: both ranges were checked by the caller; addresses of all devices are distinct.
        Ok(unsafe { self.table.cuMemcpyAsync(to, from, bytes, raw(stream)) }?)
    }

    /// Queues setting bytes of device memory.
    pub(crate) fn set_bytes(&self, to: u64, value: u8, bytes: usize, stream: StreamRef) -> Result<()> {
        self.bind(stream.device)?;
        // SAFETY: the range was checked by the caller.
        Ok(unsafe { self.table.cuMemsetD8Async(to, value, bytes, raw(stream)) }?)
    }
}

fn raw(stream: StreamRef) -> cuda_sys::driver::types::CUstream {
    ptr::with_exposed_provenance_mut(stream.handle.0)
}
