//! Device memory, copies of plain host memory, copies and sets on the device.
//!
//! # Safety
//! Each unsafe block is one call through the function table. Device addresses come from `DeviceBuffer` or the caching
//! allocator and are checked against the buffer's length by `api/buffers.rs`; plain slices go only to calls that are
//! done with them when they return.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::handles::{CaptureMode, CapturePoint, EventHandle, MemInfo, NodeHandle, PageHandle, StreamRef};
use crate::driver::stream::EVENT_DISABLE_TIMING;
use crate::driver::{Api, Driver};
use crate::sync::tracked::assert_none_held;
use crate::trace::{MemoryUse, TraceCopy, TraceEvent, TraceKind, TraceKinds};

/// Refuses ranges that leave a buffer.
pub(crate) fn check_range(offset: usize, bytes: usize, len: usize) -> Result<()> {
    if offset.checked_add(bytes).is_some_and(|end| end <= len) {
        return Ok(());
    }
    Err(Error::Memory(MemoryError::OutOfRange { offset, bytes, len }))
}

/// How many bytes a range has, which must lie inside a buffer of `len` bytes.
pub(crate) fn check_part(range: &Range<usize>, len: usize) -> Result<usize> {
    let (start, end) = (range.start, range.end);
    let bytes = end.checked_sub(start).ok_or_else(|| Error::Memory(MemoryError::ReversedRange { start, end }))?;
    check_range(start, bytes, len).map(|()| bytes)
}

impl Driver for Api {
    fn mem_alloc(&self, device: DeviceIndex, bytes: u64) -> Result<u64> {
        let _span = tracing::debug_span!("segment_alloc", device = device, bytes).entered();
        let _spared = self.spare_others()?;
        self.bind(device)?;
        let size =
            usize::try_from(bytes).map_err(|_| Error::Memory(MemoryError::RequestTooLarge { requested: bytes }))?;
        let mut address = 0;
        // SAFETY: `address` outlives the call.
        unsafe { self.table.cuMemAlloc_v2(&mut address, size) }?;
        Ok(address)
    }

    fn mem_free(&self, device: DeviceIndex, address: u64) -> Result<()> {
        let _span = tracing::debug_span!("segment_free", device = device, address).entered();
        let _spared = self.spare_others()?;
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

    fn create_page(&self, device: DeviceIndex, bytes: u64) -> Result<PageHandle> {
        self.bind(device)?;
        self.create_memory(device, bytes)
    }

    fn release_page(&self, device: DeviceIndex, page: PageHandle) -> Result<()> {
        self.bind(device)?;
        self.release_memory(page)
    }

    fn map_page(&self, device: DeviceIndex, address: u64, bytes: u64, page: PageHandle) -> Result<()> {
        self.bind(device)?;
        self.map_memory(address, bytes, page)
    }

    fn allow_access(&self, device: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        self.bind(device)?;
        self.allow_access_to(device, address, bytes)
    }

    fn unmap_page(&self, device: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        self.bind(device)?;
        self.unmap_memory(address, bytes)
    }

    fn stream_wait(&self, stream: StreamRef, event: EventHandle) -> Result<()> {
        self.stream_wait_event(stream, event, 0)
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

    fn takes_events(&self, stream: StreamRef) -> Result<bool> {
        self.stream_takes_events(stream)
    }

    fn capture_point(&self, stream: StreamRef) -> Result<Option<CapturePoint>> {
        self.stream_capture_point(stream)
    }

    fn node_dependencies(&self, node: NodeHandle) -> Result<Vec<NodeHandle>> {
        self.graph_node_dependencies(node)
    }

    fn tell_handed_out(&self, address: u64, bytes: u64, stream: StreamRef) {
        self.tell_block_handed_out(address, bytes, stream);
    }

    fn tell_given_back(&self, address: u64) {
        self.tell_block_given_back(address);
    }

    #[inline]
    fn others_capture(&self) -> bool {
        self.captures().have_others()
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.thread_exchange_capture_mode(mode)
    }
}

impl Api {
    /// Copies plain host memory to the device; the slice is not read after the call, and later work of any stream
    /// sees the bytes.
    pub(crate) fn copy_from_slice(&self, to: u64, from: &[u8], stream: StreamRef) -> Result<()> {
        let _spared = self.spare_others()?;
        assert_none_held("cuMemcpyHtoD");
        self.stream_wait_on_host(stream)?;
        self.trace.begin(TraceKind::Copy, stream);
        // SAFETY: `from` is readable for its length and unregistered memory is staged before the call returns;
        // the target range was checked by the caller.
        unsafe { self.table.cuMemcpyHtoD_v2(to, from.as_ptr().cast::<c_void>(), from.len()) }?;
        // The last part may still be in transfer on the default stream, which pool streams do not wait for.
        self.stream_wait_on_host(StreamRef { device: stream.device, handle: Default::default() })?;
        self.report_blocking_copy(TraceCopy::ToDevice, to, from.as_ptr().addr() as u64, from.len(), stream)?;
        self.trace.report_now(TraceKind::Synchronize, || TraceEvent::StreamSynchronized(stream.into()));
        Ok(())
    }

    /// Copies device memory to plain host memory, after the work of `stream`; done when it returns.
    pub(crate) fn copy_to_slice(&self, to: &mut [u8], from: u64, stream: StreamRef) -> Result<()> {
        let _spared = self.spare_others()?;
        assert_none_held("cuMemcpyDtoH");
        self.stream_wait_on_host(stream)?;
        self.trace.begin(TraceKind::Copy, stream);
        // SAFETY: `to` is writable for its length; the call returns after the last byte is written.
        unsafe { self.table.cuMemcpyDtoH_v2(to.as_mut_ptr().cast::<c_void>(), from, to.len()) }?;
        self.report_blocking_copy(TraceCopy::ToHost, to.as_ptr().addr() as u64, from, to.len(), stream)?;
        self.trace.report_now(TraceKind::Synchronize, || TraceEvent::StreamSynchronized(stream.into()));
        Ok(())
    }

    /// Reports that a copy was queued, and returns what a subscriber refuses of it.
    #[inline]
    pub(super) fn report_copy(
        &self,
        kind: TraceCopy,
        to: u64,
        from: u64,
        bytes: usize,
        stream: StreamRef,
    ) -> Result<()> {
        if self.trace.wants_any(TraceKinds::COPIES) { self.tell_copy(kind, to, from, bytes, stream) } else { Ok(()) }
    }

    #[cold]
    fn tell_copy(&self, kind: TraceCopy, to: u64, from: u64, bytes: usize, stream: StreamRef) -> Result<()> {
        let size = bytes as u64;
        let event = || TraceEvent::Copied { kind, to, from, size, stream: stream.into() };
        self.trace.report_now(TraceKind::Copy, event);
        let written = MemoryUse::of_copy(to, size, true, kind == TraceCopy::ToHost);
        let read = MemoryUse::of_copy(from, size, false, kind == TraceCopy::ToDevice);
        self.trace.report_accesses(Some(stream), "copy_", || [written, read])
    }

    /// Reports a copy between a device and memory of the host that the driver does not know. It runs on the default stream,
    /// after the work of `stream`, and the host has waited for both.
    fn report_blocking_copy(&self, kind: TraceCopy, to: u64, from: u64, bytes: usize, stream: StreamRef) -> Result<()> {
        if !self.trace.wants_any(TraceKinds::COPIES.and(TraceKind::Order)) {
            return Ok(());
        }
        let default = StreamRef { device: stream.device, handle: Default::default() };
        let follows = || TraceEvent::StreamFollowed { earlier: default.into(), stream: stream.into() };
        self.trace.report(TraceKind::Order, follows);
        let event = || TraceEvent::Copied { kind, to, from, size: bytes as u64, stream: stream.into() };
        self.trace.report_now(TraceKind::Copy, event);
        // The host's memory is the program's own, and nobody else's until the call returns.
        let is_write = kind == TraceCopy::ToDevice;
        let used = MemoryUse::of_copy(if is_write { to } else { from }, bytes as u64, is_write, false);
        let told = self.trace.report_accesses(Some(stream), "copy_", || [used]);
        self.trace.report(TraceKind::Order, || TraceEvent::StreamSeen(default.into()));
        self.trace.report_now(TraceKind::Order, || TraceEvent::StreamSeen(stream.into()));
        told
    }

    /// Reports that a fill was queued, and returns what a subscriber refuses of it.
    #[inline]
    fn report_fill(&self, to: u64, bytes: usize, stream: StreamRef) -> Result<()> {
        if self.trace.wants_any(TraceKinds::COPIES) { self.tell_fill(to, bytes, stream) } else { Ok(()) }
    }

    #[cold]
    fn tell_fill(&self, to: u64, bytes: usize, stream: StreamRef) -> Result<()> {
        let size = bytes as u64;
        let event = || TraceEvent::Filled { to, size, stream: stream.into() };
        self.trace.report_now(TraceKind::Copy, event);
        self.trace.report_accesses(Some(stream), "fill", || [MemoryUse::of_copy(to, size, true, false)])
    }

    /// Queues a copy between two places of device memory, on one device or two.
    pub(crate) fn copy_on_device(&self, to: u64, from: u64, bytes: usize, stream: StreamRef) -> Result<()> {
        self.bind(stream.device)?;
        self.trace.begin(TraceKind::Copy, stream);
        // SAFETY: both ranges were checked by the caller; addresses of all devices are distinct.
        unsafe { self.table.cuMemcpyAsync(to, from, bytes, raw(stream)) }?;
        self.report_copy(TraceCopy::OnDevice, to, from, bytes, stream)
    }

    /// Queues a fill with a number of 2 bytes, at an address that is a multiple of 2.
    pub(crate) fn set_halves(&self, to: u64, value: u16, count: usize, stream: StreamRef) -> Result<()> {
        self.bind(stream.device)?;
        self.trace.begin(TraceKind::Copy, stream);
        // SAFETY: the range was checked by the caller.
        unsafe { self.table.cuMemsetD16Async(to, value, count, raw(stream)) }?;
        self.report_fill(to, 2 * count, stream)
    }

    /// Queues a fill with a number of 4 bytes, at an address that is a multiple of 4.
    pub(crate) fn set_words(&self, to: u64, value: u32, count: usize, stream: StreamRef) -> Result<()> {
        self.bind(stream.device)?;
        self.trace.begin(TraceKind::Copy, stream);
        // SAFETY: the range was checked by the caller.
        unsafe { self.table.cuMemsetD32Async(to, value, count, raw(stream)) }?;
        self.report_fill(to, 4 * count, stream)
    }

    /// Queues a fill with a byte.
    pub(crate) fn set_bytes(&self, to: u64, value: u8, bytes: usize, stream: StreamRef) -> Result<()> {
        self.bind(stream.device)?;
        self.trace.begin(TraceKind::Copy, stream);
        // SAFETY: the range was checked by the caller.
        unsafe { self.table.cuMemsetD8Async(to, value, bytes, raw(stream)) }?;
        self.report_fill(to, bytes, stream)
    }
}

pub(super) fn raw(stream: StreamRef) -> cuda_sys::driver::types::CUstream {
    ptr::with_exposed_provenance_mut(stream.handle.0)
}
