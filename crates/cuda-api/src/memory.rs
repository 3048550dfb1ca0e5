//! Memory management: the caching allocator and its figures. All sizes are bytes.

use c10_core::{DeviceArg, DeviceStats, Error, MemPool, MemPoolGuard, PoolId, Result, Runtime, SegmentInfo, StreamArg};

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

/// Sets every sum of increases and decreases, and every count, to zero.
///
/// # Errors
/// The device does not exist.
pub fn reset_accumulated_memory_stats(device: impl DeviceArg) -> Result<()> {
    let runtime = Runtime::current();
    match device.index()? {
        Some(device) => runtime.reset_accumulated_memory_stats(device),
        None if runtime.is_initialized() => runtime.reset_accumulated_memory_stats(runtime.current_device()?),
        None => Ok(()),
    }
}

/// All memory held from the driver, by device and address, or only that of one pool. Empty before [`crate::init`].
#[must_use]
pub fn memory_snapshot(mempool_id: Option<PoolId>) -> Vec<SegmentInfo> {
    Runtime::current().memory_snapshot(mempool_id)
}

/// Limits what is held of a device to a fraction of its memory, from 0 to 1. More that is held already stays.
///
/// # Errors
/// [`Error::InvalidFraction`]; the device does not exist; the runtime cannot start.
pub fn set_per_process_memory_fraction(fraction: f64, device: impl DeviceArg) -> Result<()> {
    let runtime = Runtime::current();
    runtime.set_per_process_memory_fraction(fraction, device.resolve(&runtime)?)
}

/// The fraction of a device's memory that may be held; 1 for all of it.
///
/// # Errors
/// The device does not exist; the runtime cannot start.
pub fn get_per_process_memory_fraction(device: impl DeviceArg) -> Result<f64> {
    let runtime = Runtime::current();
    runtime.get_per_process_memory_fraction(device.resolve(&runtime)?)
}

/// Switches caching on or off for memory asked for from now on. While it is off every request goes to the driver and
/// is counted nowhere.
pub fn caching_allocator_enable(value: bool) {
    Runtime::current().caching_allocator_enable(value);
}

/// Who decides about device memory: `native`.
#[must_use]
pub fn get_allocator_backend() -> &'static str {
    Runtime::current().get_allocator_backend()
}

/// Changes the allocator's options by a text such as `max_split_size_mb:128`; torch's
/// `torch.cuda.memory._set_allocator_settings`.
///
/// # Errors
/// The first setting that is refused; nothing is changed then.
pub fn set_allocator_settings(settings: &str) -> Result<()> {
    Runtime::current().set_allocator_settings(settings)
}

/// Makes a memory pool on the current device; torch's `MemPool`. With `use_on_oom` its free memory serves other
/// requests before those fail for want of memory; with `no_split` its blocks are handed out whole.
///
/// # Errors
/// The runtime cannot start.
pub fn mem_pool(use_on_oom: bool, no_split: bool) -> Result<MemPool> {
    Runtime::current().mem_pool(use_on_oom, no_split)
}

/// Memory that this thread asks for on a device comes from the pool until the guard is dropped.
///
/// # Errors
/// Such a guard of the same pool is held already, the pool belongs to another runtime, or the device does not exist.
pub fn use_mem_pool(pool: &MemPool, device: impl DeviceArg) -> Result<MemPoolGuard> {
    let runtime = Runtime::current();
    runtime.use_mem_pool(pool, device.resolve(&runtime)?)
}

/// Runs `body` while memory that this thread asks for on a device comes from the pool.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// let pool = cuda_api::mem_pool(false, false)?;
/// let buffer = cuda_api::with_mem_pool(&pool, None, || cuda_api::empty(1 << 20, None))?;
/// assert_eq!(pool.snapshot().len(), 1);
/// drop(buffer);
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// What `body` returned, else as for [`use_mem_pool`].
pub fn with_mem_pool<T, E: From<Error>>(
    pool: &MemPool,
    device: impl DeviceArg,
    body: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let _guard = use_mem_pool(pool, device)?;
    body()
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
