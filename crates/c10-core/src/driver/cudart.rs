//! Driver calls that only `cudart()` needs.
//!
//! # Safety
//! Every unsafe block is one call through the function table. What addresses of the program name is the promise of the
//! callers of the unsafe functions.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ptr;

use cuda_sys::driver::types::CUstream;

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::StreamHandle;
use crate::driver::Api;

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
    pub(crate) unsafe fn register(&self, device: DeviceIndex, address: usize, size: usize, flags: u32) -> Result<()> {
        self.bind(device)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.table.cuMemHostRegister_v2(ptr::with_exposed_provenance_mut(address), size, flags) }?)
    }

    /// Lets pinned memory of the program's go.
    ///
    /// # Safety
    /// - No work that uses the memory is queued.
    pub(crate) unsafe fn unregister(&self, device: DeviceIndex, address: usize) -> Result<()> {
        self.bind(device)?;
        // SAFETY: the caller's promise.
        Ok(unsafe { self.table.cuMemHostUnregister(ptr::with_exposed_provenance_mut(address)) }?)
    }
}
