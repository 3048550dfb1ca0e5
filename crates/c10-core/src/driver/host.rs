//! Pinned host memory: taken from the driver or registered with it, its bytes, and copies between it and the device.
//!
//! **Invariants:** the bytes of pinned memory are read and written through raw copies, since the device may be writing
//! them at any time; they are read through references only where the one owner has made sure that no device writes
//! them. All of it is set to zero before anybody else knows its address.
//!
//! # Safety
//! Each unsafe block is one call through the function table, one call of the system or one raw copy. Addresses of
//! pinned memory come from the functions here and are given back once, by the pinned allocator, which holds a block as
//! long as anybody owns it and until the streams that it was recorded on have passed the work queued until then;
//! captured copies own what they use. [`HostMemory`] is made for an owner of a block only, with that block's lock.
#![expect(unsafe_code, reason = "calls of C functions, and memory they share with the device")]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cuda_sys::Driver as Table;

use crate::base::device::DeviceIndex;
use crate::base::error::MemoryError;
use crate::base::error::{Error, HostOutOfMemoryError, Result};
use crate::base::handles::{CaptureMode, EventHandle, StreamRef};
use crate::driver::memory::{check_range, raw};
use crate::driver::stream::{EVENT_DISABLE_TIMING, mode_from_raw, mode_to_raw, raw_event, ready};
use crate::driver::{Api, EventQuery, HostDriver};
use crate::trace::{TraceCopy, TraceKind};

/// The pages that are touched; the system's are as large or larger.
const PAGE: usize = 4096;

/// Pinned memory, as an owner of its block sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostMemory<'a> {
    address: usize,
    len: usize,
    /// Held during reads and writes by the host, so that threads do not race.
    access: &'a Mutex<()>,
}

impl<'a> HostMemory<'a> {
    /// The first `len` bytes of a block that the caller owns for `'a`.
    pub(crate) fn new(address: usize, len: usize, access: &'a Mutex<()>) -> Self {
        Self { address, len, access }
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> usize {
        self.address
    }

    fn at(&self, offset: usize) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.address + offset)
    }

    /// The bytes, for reading and writing in place.
    ///
    /// # Safety
    /// - As long as the slice lives nobody else reads or writes the memory: no other owner of the block, and no work of a
    ///   device.
    pub(crate) unsafe fn exclusive(self) -> &'a mut [u8] {
        // SAFETY: the range lies in the block, which is alive and was initialised when it was made; nobody else uses it,
        // as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.at(0).cast::<u8>(), self.len) }
    }

    /// Copies `from` into the memory at `offset`.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        check_range(offset, from.len(), self.len)?;
        let _access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the range lies in the block, which is alive and no Rust object; the lock keeps other threads away.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.at(offset).cast::<u8>(), from.len()) };
        Ok(())
    }

    /// Copies the bytes from `offset` on into `to`.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        check_range(offset, to.len(), self.len)?;
        let _access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as in `write`; the memory was initialised when it was made.
        unsafe { ptr::copy_nonoverlapping(self.at(offset).cast::<u8>(), to.as_mut_ptr(), to.len()) };
        Ok(())
    }
}

impl EventQuery for Api {
    fn query(&self, event: EventHandle) -> Result<bool> {
        self.event_is_done(event)
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.thread_exchange_capture_mode(mode)
    }
}

impl HostDriver for Api {
    fn host_alloc(&self, device: DeviceIndex, bytes: usize) -> Result<usize> {
        let _span = tracing::debug_span!("pinned_alloc", bytes).entered();
        self.bind(device)?;
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: `address` outlives the call.
        unsafe { self.table.cuMemHostAlloc(&mut address, bytes, 0) }?;
        // SAFETY: the driver just made `bytes` bytes there, which nobody else knows of.
        unsafe { ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Ok(address.expose_provenance())
    }

    fn host_free(&self, device: DeviceIndex, address: usize) -> Result<()> {
        self.bind(device)?;
        // SAFETY: the memory came from `host_alloc` and nobody uses it any more.
        Ok(unsafe { self.table.cuMemFreeHost(ptr::with_exposed_provenance_mut(address)) }?)
    }

    fn host_register(&self, device: DeviceIndex, bytes: usize, threads: u32) -> Result<usize> {
        self.bind(device)?;
        let address = map(bytes)?;
        touch(address, bytes, threads);
        // SAFETY: the memory was just mapped and lies there until it is unregistered.
        let registered = unsafe { self.table.cuMemHostRegister_v2(address, bytes, 0) };
        if let Err(error) = registered {
            unmap(address, bytes);
            return Err(error.into());
        }
        Ok(address.expose_provenance())
    }

    fn host_unregister(&self, device: DeviceIndex, address: usize, bytes: usize) -> Result<()> {
        self.bind(device)?;
        let address = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the memory came from `host_register` and nobody uses it any more.
        unsafe { self.table.cuMemHostUnregister(address) }?;
        unmap(address, bytes);
        Ok(())
    }

    fn host_pin(&self, device: DeviceIndex, address: usize, bytes: usize) -> Result<()> {
        let _span = tracing::debug_span!("pinned_alloc", bytes).entered();
        self.bind(device)?;
        // SAFETY: the pinned allocator has the memory's owner and keeps it until the memory is given up.
        Ok(unsafe { self.table.cuMemHostRegister_v2(ptr::with_exposed_provenance_mut(address), bytes, 0) }?)
    }

    fn host_unpin(&self, device: DeviceIndex, address: usize) -> Result<()> {
        self.bind(device)?;
        // SAFETY: the memory was registered by `host_pin` and nobody uses it any more.
        Ok(unsafe { self.table.cuMemHostUnregister(ptr::with_exposed_provenance_mut(address)) }?)
    }

    fn create_event(&self, device: DeviceIndex) -> Result<EventHandle> {
        self.event_create_with_flags(device, EVENT_DISABLE_TIMING)
    }

    fn destroy_event(&self, event: EventHandle) -> Result<()> {
        self.event_destroy_handle(event)
    }

    fn record_event(&self, event: EventHandle, stream: StreamRef) -> Result<()> {
        self.event_record_with_flags(event, stream, 0)
    }

    fn wait_for_event(&self, event: EventHandle) -> Result<()> {
        crate::driver::Driver::event_synchronize(self, event)
    }

    fn is_capturing(&self, stream: StreamRef) -> Result<bool> {
        self.stream_is_capturing(stream)
    }
}

impl Api {
    /// The functions for a thread that queries events.
    pub(crate) fn event_queries(&self) -> EventQueries {
        EventQueries(Arc::clone(&self.table))
    }

    /// Queues a copy from pinned memory, which must stay alive until `stream` has passed it.
    pub(crate) fn copy_from_pinned(
        &self,
        to: u64,
        from: HostMemory<'_>,
        offset: usize,
        bytes: usize,
        stream: StreamRef,
    ) -> Result<()> {
        check_range(offset, bytes, from.len)?;
        self.bind(stream.device)?;
        self.trace.begin(TraceKind::Copy, stream);
        // SAFETY: both ranges are checked; the callers keep the block alive until the stream has passed the copy.
        unsafe { self.table.cuMemcpyHtoDAsync_v2(to, from.at(offset), bytes, raw(stream)) }?;
        self.report_copy(TraceCopy::ToDevice, to, (from.address() + offset) as u64, bytes, stream)
    }

    /// Queues a copy to pinned memory, which must stay alive until `stream` has passed it.
    pub(crate) fn copy_to_pinned(
        &self,
        to: HostMemory<'_>,
        offset: usize,
        from: u64,
        bytes: usize,
        stream: StreamRef,
    ) -> Result<()> {
        check_range(offset, bytes, to.len)?;
        self.bind(stream.device)?;
        self.trace.begin(TraceKind::Copy, stream);
        // SAFETY: as in `copy_from_pinned`.
        unsafe { self.table.cuMemcpyDtoHAsync_v2(to.at(offset), from, bytes, raw(stream)) }?;
        self.report_copy(TraceCopy::ToHost, (to.address() + offset) as u64, from, bytes, stream)
    }
}

/// The driver's functions for events, without its contexts.
pub(crate) struct EventQueries(Arc<Table>);

impl EventQuery for EventQueries {
    fn query(&self, event: EventHandle) -> Result<bool> {
        // SAFETY: the pinned allocator destroys its events after the thread that asks for them has ended.
        ready(unsafe { self.0.cuEventQuery(raw_event(event)) })
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let mut mode = mode_to_raw(mode);
        // SAFETY: `mode` outlives the call.
        unsafe { self.0.cuThreadExchangeStreamCaptureMode(&mut mode) }?;
        Ok(mode_from_raw(mode))
    }
}

/// Maps memory of the system, which reads as zero.
fn map(bytes: usize) -> Result<*mut c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a mapping of its own at an address that the system chooses.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED { Err(out_of_memory(bytes)) } else { Ok(address) }
}

/// The system has no memory for a mapping. The caller adds the other figures.
fn out_of_memory(bytes: usize) -> Error {
    let bytes = bytes as u64;
    let failed = HostOutOfMemoryError { requested: bytes, allocation: Some(bytes), held: 0, driver: None };
    Error::Memory(MemoryError::HostOutOfMemory(Box::new(failed)))
}

/// Gives a mapping back.
fn unmap(address: *mut c_void, bytes: usize) {
    // SAFETY: the mapping was made by `map` with this length, and nobody uses it any more.
    let answer = unsafe { libc::munmap(address, bytes) };
    debug_assert_eq!(answer, 0, "a whole mapping can be given back");
}

/// Writes to each page of a mapping, so that the system puts memory behind it: with as many threads as were asked for
/// where each has a page at least, else with this one.
fn touch(address: *mut c_void, bytes: usize, threads: u32) {
    let (address, threads) = (address.expose_provenance(), threads.max(1) as usize);
    let share = bytes.div_ceil(threads).next_multiple_of(PAGE);
    if threads == 1 || bytes / PAGE < threads {
        return touch_pages(address, bytes);
    }
    std::thread::scope(|scope| {
        for begin in (0..bytes).step_by(share) {
            let work = move || touch_pages(address + begin, share.min(bytes - begin));
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                work();
            }
        }
    });
}

fn touch_pages(address: usize, bytes: usize) {
    for offset in (0..bytes).step_by(PAGE) {
        // SAFETY: the byte lies in the mapping, which nobody else knows of yet, and in this thread's part of it.
        unsafe { ptr::write_volatile(ptr::with_exposed_provenance_mut::<u8>(address + offset), 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_touched_by_any_number_of_threads() {
        for (bytes, threads) in [(1, 1), (1, 8), (PAGE * 8, 8), (PAGE * 100 + 5, 8), (PAGE * 129, 128), (3 << 20, 4)] {
            let address = map(bytes).unwrap();
            touch(address, bytes, threads);
            assert_eq!(resident(address, bytes), bytes.div_ceil(PAGE), "{bytes} bytes, {threads} threads");
            unmap(address, bytes);
        }
    }

    /// Pages of a mapping that have memory behind them.
    fn resident(address: *mut c_void, bytes: usize) -> usize {
        let mut pages = vec![0_u8; bytes.div_ceil(PAGE)];
        // SAFETY: the mapping is alive, and `pages` has a byte for each of its pages.
        let answer = unsafe { libc::mincore(address, bytes, pages.as_mut_ptr()) };
        assert_eq!(answer, 0);
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn memory_that_the_system_does_not_have_is_a_typed_error() {
        assert_eq!(map(1 << 60), Err(out_of_memory(1 << 60)));
    }
}
