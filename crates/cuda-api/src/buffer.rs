//! Plain memory: device buffers and pinned host buffers, for programs that have no tensors.

use c10_core::{DeviceArg, DeviceBuffer, PinnedBuffer, Result, Runtime, SharedBuffer};

/// Device memory of `len` bytes for use on the device's current stream. Its contents are what was there before.
///
/// # Errors
/// Not enough memory, or the driver's error.
pub fn empty(len: usize, device: impl DeviceArg) -> Result<DeviceBuffer> {
    let runtime = Runtime::current();
    let stream = runtime.streams().current(device.resolve(&runtime)?)?;
    runtime.memory().buffer(len, &stream)
}

/// Pinned host memory of `len` bytes, which asynchronous copies can read and write.
///
/// # Errors
/// The driver's error.
#[inline]
pub fn pinned(len: usize) -> Result<PinnedBuffer> {
    Runtime::with_current(|runtime| runtime.pinned().buffer(len))
}

/// Opens memory that another process has shared ([`DeviceBuffer::share`]). What that process had queued comes before
/// later work of the device's current stream here.
///
/// # Errors
/// The device does not exist, the memory was let go, the current stream captures, or the driver's error.
#[doc(alias = "_new_shared_cuda")]
pub fn open_shared(shared: &SharedBuffer) -> Result<DeviceBuffer> {
    Runtime::current().ipc().open(shared)
}
