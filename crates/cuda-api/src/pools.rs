//! Memory pools by calls that a program pairs itself; [`crate::use_mem_pool`] and [`crate::with_mem_pool`] cannot be
//! left open.

use c10_core::{DeviceArg, PoolId, Result, Runtime};

/// Memory that any thread asks for on a device, for any stream, comes from a pool from now on, which is made if need be.
/// See [`c10_core::MemPools::begin_allocate`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// let pool = cuda_api::graph_pool_handle();
/// cuda_api::begin_allocate_to_pool(None, pool)?;
/// let buffer = cuda_api::DeviceBuffer::new(1 << 20, None)?;
/// cuda_api::end_allocate_to_pool(None, pool)?;
/// assert_eq!(cuda_api::memory_snapshot(Some(pool))?.len(), 1);
/// drop(buffer);
/// cuda_api::release_pool(None, pool)?;
/// cuda_api::empty_cache()?;
/// assert_eq!(cuda_api::memory_snapshot(Some(pool))?.len(), 0);
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// Requests are routed to the pool already; all its users gave it up; the device does not exist.
#[doc(alias = "_cuda_beginAllocateToPool")]
pub fn begin_allocate_to_pool(device: impl DeviceArg, mempool_id: PoolId) -> Result<()> {
    let runtime = Runtime::current();
    runtime.mem_pools().begin_allocate(device.resolve(&runtime)?, mempool_id)
}

/// The same for memory that this thread asks for.
///
/// # Errors
/// As for [`begin_allocate_to_pool`].
#[doc(alias = "_cuda_beginAllocateCurrentThreadToPool")]
pub fn begin_allocate_current_thread_to_pool(device: impl DeviceArg, mempool_id: PoolId) -> Result<()> {
    let runtime = Runtime::current();
    runtime.mem_pools().begin_allocate_on_thread(device.resolve(&runtime)?, mempool_id)
}

/// The same for memory that any thread asks for, for what is this thread's current stream of the device now.
///
/// # Errors
/// As for [`begin_allocate_to_pool`].
#[doc(alias = "_cuda_beginAllocateCurrentStreamToPool")]
pub fn begin_allocate_current_stream_to_pool(device: impl DeviceArg, mempool_id: PoolId) -> Result<()> {
    let runtime = Runtime::current();
    runtime.mem_pools().begin_allocate_on_stream(device.resolve(&runtime)?, mempool_id)
}

/// Ends what one of the functions above began; the pool is still used.
///
/// # Errors
/// None of them routes requests to the pool; the device does not exist.
#[doc(alias = "_cuda_endAllocateToPool")]
pub fn end_allocate_to_pool(device: impl DeviceArg, mempool_id: PoolId) -> Result<()> {
    let runtime = Runtime::current();
    runtime.mem_pools().end_allocate(device.resolve(&runtime)?, mempool_id)
}

/// Gives up one use of a pool that one of the functions above took. When nobody uses it any more its free memory goes
/// back to the driver with the next [`crate::empty_cache`].
///
/// # Errors
/// No use is left that was taken so; it is the last one while requests still come from the pool; the device does not exist.
#[doc(alias = "_cuda_releasePool")]
pub fn release_pool(device: impl DeviceArg, mempool_id: PoolId) -> Result<()> {
    let runtime = Runtime::current();
    runtime.mem_pools().release(device.resolve(&runtime)?, mempool_id)
}
