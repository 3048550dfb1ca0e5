//! The part of `cudart()` that calls the driver, or is told addresses and handles of the program's.
//!
//! # Safety
//! Every unsafe block is one call through the function table, or of a function here by its caller's promise. What the
//! addresses and handles name is the promise of the callers of the unsafe functions.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ptr;

use cuda_sys::driver::types::CUstream;

use crate::cudart::{Cudart, status};
use crate::device::DeviceIndex;
use crate::driver::{Api, StreamHandle, StreamRef};
use crate::error::Result;

impl Api {
    /// Starts a profiler's collection.
    pub(crate) fn profiler_start(&self, device: DeviceIndex) -> Result<()> {
        self.bind(device)?;
        // SAFETY: no pointers; a context is current.
        Ok(unsafe { self.table.cuProfilerStart() }?)
    }

    /// Ends a profiler's collection.
    pub(crate) fn profiler_stop(&self, device: DeviceIndex) -> Result<()> {
        self.bind(device)?;
        // SAFETY: no pointers; a context is current.
        Ok(unsafe { self.table.cuProfilerStop() }?)
    }

    /// Makes a stream that waits for the default stream.
    pub(crate) fn stream_create_blocking(&self, device: DeviceIndex) -> Result<StreamHandle> {
        self.bind(device)?;
        let mut stream: CUstream = ptr::null_mut();
        // SAFETY: `stream` outlives the call.
        unsafe { self.table.cuStreamCreate(&mut stream, 0) }?;
        Ok(StreamHandle(stream.expose_provenance()))
    }

    /// Pins memory of the program's.
    ///
    /// # Safety
    /// - `size` bytes at `address` are the program's until they are unregistered.
    unsafe fn register(&self, device: DeviceIndex, address: usize, size: usize, flags: u32) -> Result<()> {
        self.bind(device)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.table.cuMemHostRegister_v2(ptr::with_exposed_provenance_mut(address), size, flags) }?)
    }

    /// Lets pinned memory of the program's go.
    ///
    /// # Safety
    /// - No work that uses the memory is queued.
    unsafe fn unregister(&self, device: DeviceIndex, address: usize) -> Result<()> {
        self.bind(device)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.table.cuMemHostUnregister(ptr::with_exposed_provenance_mut(address)) }?)
    }
}

#[expect(non_snake_case, reason = "the names of C")]
impl Cudart {
    /// Pins `size` bytes of the program's memory at `ptr`, so that devices can reach them; the runtime's code. `flags`
    /// are those of C: 1 portable, 2 mapped, 4 of an I/O device, 8 read-only.
    ///
    /// # Safety
    /// - The memory stays where it is, and the program's, until `cudaHostUnregister`.
    #[must_use = "the answer is a code"]
    pub unsafe fn cudaHostRegister(&self, ptr: usize, size: usize, flags: u32) -> i32 {
        status(self.on_current_device(|ready, device| {
            // SAFETY: the caller's promise.
            unsafe { ready.api.register(device, ptr, size, flags) }
        }))
    }

    /// Ends what [`Self::cudaHostRegister`] did; the runtime's code.
    ///
    /// # Safety
    /// - No queued work uses the memory.
    #[must_use = "the answer is a code"]
    pub unsafe fn cudaHostUnregister(&self, ptr: usize) -> i32 {
        status(self.on_current_device(|ready, device| {
            // SAFETY: the caller's promise.
            unsafe { ready.api.unregister(device, ptr) }
        }))
    }

    /// Destroys a stream; the runtime's code. Its queued work still runs.
    ///
    /// # Safety
    /// - `stream` is from [`Self::cudaStreamCreate`], and nobody uses it any more.
    #[must_use = "the answer is a code"]
    pub unsafe fn cudaStreamDestroy(&self, stream: usize) -> i32 {
        status(self.on_current_device(|ready, device| {
            ready.api.stream_destroy(StreamRef { device, handle: StreamHandle(stream) })
        }))
    }
}
