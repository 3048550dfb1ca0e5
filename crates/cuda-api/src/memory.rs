//! Memory management: the caching allocator and its figures. All sizes are bytes.

use c10_core::{DeviceArg, DeviceStats, Error, Result, Runtime, StreamArg};

/// Address of device memory; 0 stands for no memory.
pub type DevicePtr = u64;

/// Memory of `size` bytes for use on a stream, the current one for `None`. For a size of 0 the address is 0.
///
/// # Errors
/// Not enough memory; the stream is on another device than the one that was named; the driver's error.
pub fn caching_allocator_alloc(size: u64, device: impl DeviceArg, stream: impl StreamArg) -> Result<DevicePtr> {
    let runtime = Runtime::current();
    let (device, stream) = (device.index()?, stream.stream());
    let stream = match (device, stream) {
        (Some(device), Some(stream)) if device != stream.device_index() => {
            return Err(Error::StreamDevice { device, stream: stream.device_index() });
        }
        (_, Some(stream)) => stream,
        (Some(device), None) => runtime.current_stream(device)?,
        (None, None) => runtime.current_stream(runtime.current_device()?)?,
    };
    runtime.caching_allocator_alloc(size, &stream)
}

/// Gives memory back by its address; 0 is ignored. Device and stream are remembered.
///
/// # Errors
/// [`Error::InvalidDevicePointer`] for an address that is not handed out; the driver's error.
pub fn caching_allocator_delete(mem_ptr: DevicePtr) -> Result<()> {
    Runtime::current().caching_allocator_delete(mem_ptr)
}

/// Gives cached memory that is wholly free back to the driver, on every device. Does nothing before [`crate::init`].
///
/// # Errors
/// The driver's error.
pub fn empty_cache() -> Result<()> {
    Runtime::current().empty_cache()
}

/// Gives pinned memory that nobody uses back to the driver. Does nothing before [`crate::init`].
///
/// # Errors
/// The driver's error.
pub fn host_empty_cache() -> Result<()> {
    Runtime::current().host_empty_cache()
}

/// Every figure of a device's allocator; all zero before [`crate::init`].
///
/// # Errors
/// The device does not exist.
pub fn memory_stats(device: impl DeviceArg) -> Result<DeviceStats> {
    let runtime = Runtime::current();
    match device.index()? {
        Some(device) => runtime.memory_stats(device),
        None if runtime.is_initialized() => runtime.memory_stats(runtime.current_device()?),
        None => Ok(DeviceStats::default()),
    }
}

/// Bytes handed out now.
///
/// # Errors
/// The device does not exist.
pub fn memory_allocated(device: impl DeviceArg) -> Result<u64> {
    Ok(unsigned(memory_stats(device)?.allocated_bytes.all.current))
}

/// Most bytes handed out at a time since the peaks were last reset.
///
/// # Errors
/// The device does not exist.
pub fn max_memory_allocated(device: impl DeviceArg) -> Result<u64> {
    Ok(unsigned(memory_stats(device)?.allocated_bytes.all.peak))
}

/// Bytes held from the driver now.
///
/// # Errors
/// The device does not exist.
pub fn memory_reserved(device: impl DeviceArg) -> Result<u64> {
    Ok(unsigned(memory_stats(device)?.reserved_bytes.all.current))
}

/// Most bytes held from the driver at a time since the peaks were last reset.
///
/// # Errors
/// The device does not exist.
pub fn max_memory_reserved(device: impl DeviceArg) -> Result<u64> {
    Ok(unsigned(memory_stats(device)?.reserved_bytes.all.peak))
}

/// Sets every peak to its present value.
///
/// # Errors
/// The device does not exist.
pub fn reset_peak_memory_stats(device: impl DeviceArg) -> Result<()> {
    let runtime = Runtime::current();
    match device.index()? {
        Some(device) => runtime.reset_peak_memory_stats(device),
        None if runtime.is_initialized() => runtime.reset_peak_memory_stats(runtime.current_device()?),
        None => Ok(()),
    }
}

/// Free and total memory of a device.
///
/// # Errors
/// The device does not exist, or the driver's error.
pub fn mem_get_info(device: impl DeviceArg) -> Result<(u64, u64)> {
    let runtime = Runtime::current();
    let info = runtime.mem_get_info(device.resolve(&runtime)?)?;
    Ok((info.free, info.total))
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}
