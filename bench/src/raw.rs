//! The raw driver: what the runtime is measured against.
//!
//! # Safety
//! Every pointer given to the driver points to a local variable that outlives the call. Handles are used while the
//! struct that holds them lives, and are destroyed with it.
#![expect(unsafe_code, reason = "calls the driver's C interface")]

use std::ptr;

use cuda_sys::driver::types::{CUcontext, CUdeviceptr, CUevent, CUstream};
use cuda_sys::{Driver, DriverError};

/// Why the raw side cannot be measured.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// A word of pinned host memory that the device writes to and the host reads.
#[derive(Debug)]
pub(crate) struct HostWord {
    host: *mut u64,
    device: CUdeviceptr,
}

impl HostWord {
    /// Looks at the word, as a program that waits for it does.
    pub(crate) fn poll(&self) -> u64 {
        // SAFETY: `host` is a pinned word that is kept for the rest of the process; the device may write to it at any
        // time, hence volatile.
        unsafe { self.host.read_volatile() }
    }
}

/// A driver with a current primary context, a stream and an event without timing.
#[derive(Debug)]
pub(crate) struct Raw {
    driver: Driver,
    stream: CUstream,
    event: CUevent,
}

impl Raw {
    /// Loads and initialises the driver.
    ///
    /// # Errors
    /// There is none, or one of its calls fails.
    pub(crate) fn new() -> Result<Self, Failure> {
        let driver = Driver::load()?;
        let (mut context, mut stream, mut event): (CUcontext, CUstream, CUevent) = Default::default();
        // SAFETY: takes no pointer.
        unsafe { driver.cuInit(0) }?;
        // SAFETY: `context` outlives the call; device 0 exists or the call says so.
        unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, 0) }?;
        // SAFETY: the context was just retained.
        unsafe { driver.cuCtxSetCurrent(context) }?;
        // SAFETY: `stream` outlives the call; 1 is a stream that does not wait for the default one.
        unsafe { driver.cuStreamCreate(&mut stream, 1) }?;
        // SAFETY: `event` outlives the call; 2 is an event without timing.
        unsafe { driver.cuEventCreate(&mut event, 2) }?;
        Ok(Self { driver, stream, event })
    }

    /// Takes memory from the driver for the rest of the process.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mem_alloc(&self, bytes: usize) -> Result<(), DriverError> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: `address` outlives the call.
        unsafe { self.driver.cuMemAlloc_v2(&mut address, bytes) }
    }

    /// Takes memory from the driver and gives it back at once.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mem_alloc_and_free(&self, bytes: usize) -> Result<(), DriverError> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: `address` outlives the call.
        unsafe { self.driver.cuMemAlloc_v2(&mut address, bytes) }?;
        // SAFETY: allocated in the line before.
        unsafe { self.driver.cuMemFree_v2(address) }
    }

    /// The same in the order of a stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mem_alloc_and_free_async(&self, bytes: usize) -> Result<(), DriverError> {
        let mut address: CUdeviceptr = 0;
        // SAFETY: `address` outlives the call.
        unsafe { self.driver.cuMemAllocAsync(&mut address, bytes, self.stream) }?;
        // SAFETY: allocated in the line before, on the same stream.
        unsafe { self.driver.cuMemFreeAsync(address, self.stream) }
    }

    /// Records the event on the stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn event_record(&self) -> Result<(), DriverError> {
        // SAFETY: both live as long as this value.
        unsafe { self.driver.cuEventRecord(self.event, self.stream) }
    }

    /// Lets the stream wait for the event.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn stream_wait_event(&self) -> Result<(), DriverError> {
        // SAFETY: both live as long as this value.
        unsafe { self.driver.cuStreamWaitEvent(self.stream, self.event, 0) }
    }

    /// Asks whether the event has happened, which it has after [`Raw::synchronize`].
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn event_query(&self) -> Result<(), DriverError> {
        // SAFETY: the event lives as long as this value.
        unsafe { self.driver.cuEventQuery(self.event) }
    }

    /// Asks whether the stream is idle, which it is after [`Raw::synchronize`].
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn stream_query(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives as long as this value.
        unsafe { self.driver.cuStreamQuery(self.stream) }
    }

    /// Creates an event without timing, records it and destroys it.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn event_create_and_destroy(&self) -> Result<(), DriverError> {
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: `event` outlives the call.
        unsafe { self.driver.cuEventCreate(&mut event, 2) }?;
        // SAFETY: created in the line before.
        unsafe { self.driver.cuEventRecord(event, self.stream) }?;
        // SAFETY: created above and used nowhere else.
        unsafe { self.driver.cuEventDestroy_v2(event) }
    }

    /// Takes a pinned word for the rest of the process.
    ///
    /// # Errors
    /// The driver's, also that it lacks the function.
    pub(crate) fn host_word(&self) -> Result<HostWord, DriverError> {
        let (mut host, mut device) = (ptr::null_mut(), 0);
        // SAFETY: `host` outlives the call; 2 makes the word visible to the device.
        unsafe { self.driver.cuMemHostAlloc(&mut host, size_of::<u64>(), 2) }?;
        // SAFETY: `device` outlives the call, `host` was allocated in the line before.
        unsafe { self.driver.cuMemHostGetDevicePointer_v2(&mut device, host, 0) }?;
        Ok(HostWord { host: host.cast(), device })
    }

    /// Lets the stream write a number to the word.
    ///
    /// # Errors
    /// The driver's, also that it lacks the function.
    pub(crate) fn stream_write_value(&self, word: &HostWord, number: u64) -> Result<(), DriverError> {
        // SAFETY: the word is never given back, the stream lives as long as this value.
        unsafe { self.driver.cuStreamWriteValue64_v2(self.stream, word.device, number, 0) }
    }

    /// Waits until nothing is queued.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: takes nothing.
        unsafe { self.driver.cuCtxSynchronize() }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and the process is about to end.
        // SAFETY: created in `new` and used nowhere else.
        let _ = unsafe { self.driver.cuEventDestroy_v2(self.event) };
        // SAFETY: as the event.
        let _ = unsafe { self.driver.cuStreamDestroy_v2(self.stream) };
    }
}
