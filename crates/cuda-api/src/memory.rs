//! Memory management: the caching allocator and its figures. All sizes are bytes.

use std::collections::BTreeMap;

use c10_core::{DeviceArg, DeviceIndex, Error, Result, Runtime, StreamArg, StreamError, TelemetryError};

pub use c10_core::{
    AllocatorConfig, BlockCheckpoint, BlockInfo, BlockState, ConfigError, DeviceStats, DurationStat, HeldMemory,
    HostOutOfMemoryError, HostStats, MemPool, MemPoolGuard, MemPoolOptions, MemPools, Memory, MemoryHolder, NestedStat,
    ObserverId, OutOfMemory, OutOfMemoryError, OutOfMemoryHint, PinnedMemory, PoolCheckpoint, PoolId, ProcessMemory,
    RestoredPool, SegmentCheckpoint, SegmentInfo, SegmentType, StaleMemory, Stat, StatByPool,
};

pub use c10_core::{
    Allocation, AllocatorHook, ArenaResource, CUDAPluggableAllocator, CachingResource, CurrentAllocator,
    DriverResource, FailingResource, HostMemorySource, HostPages, LimitResource, LoggingResource, MemoryResource,
    NotDeallocated, ResourceAction, ResourceCall, ResourceEvent, ResourceStats, StatisticsResource, StreamView,
};
pub use c10_core::{ExportError, ExportedFigures, FigureExport, figure_exports};
pub use c10_core::{
    HistoryContext, HistoryOptions, HistoryScope, HistoryStacks, MemorySnapshot, RequestAnswer, RequestOutlook,
    SubscriptionId, TraceAction, TraceAnnotation, TraceBlock, TraceCopy, TraceEntry, TraceEvent, TraceFrame, TraceKind,
    TraceKinds, TraceSegment, TraceStream,
};
pub use memory_viz;

pub use crate::allocators::{change_current_allocator, get_current_allocator};
pub use crate::figures::{
    explain_memory_request, export_figures, memory_fragmentation, memory_stats_prometheus, memory_tables,
};
pub use crate::history::{
    HostAllocator, LegacyMemoryHistory, MemoryHistory, SnapshotError, dump_snapshot, dump_snapshot_json,
    dump_snapshot_when_out_of_memory, get_memory_metadata, host_allocator, record_memory_history,
    record_memory_history_impl, record_memory_history_legacy, save_memory_usage, save_segment_usage, segments,
    set_memory_metadata, snapshot,
};
pub use crate::hooks::{
    register_callback_for_device_synchronization, register_callback_for_event_creation,
    register_callback_for_event_deletion, register_callback_for_event_record,
    register_callback_for_event_synchronization, register_callback_for_event_wait,
    register_callback_for_memory_allocation, register_callback_for_memory_deallocation,
    register_callback_for_stream_creation, register_callback_for_stream_synchronization,
};
#[expect(deprecated, reason = "torch keeps them, too")]
pub use crate::old::{max_memory_cached, memory_cached, reset_max_memory_allocated, reset_max_memory_cached};
pub use crate::pointer::is_pinned;
pub use crate::pools::{
    begin_allocate_current_stream_to_pool, begin_allocate_current_thread_to_pool, begin_allocate_to_pool,
    end_allocate_to_pool, release_pool,
};
pub use crate::summary::memory_summary;

/// Address of device memory; 0 stands for no memory.
pub type DevicePtr = u64;

/// Memory of `size` bytes for use on a stream, the current one for `None`. For a size of 0 the address is 0.
///
/// # Errors
/// Not enough memory; the stream is on another device than the one that was named; the driver's error.
pub fn caching_allocator_alloc(size: u64, device: impl DeviceArg, stream: impl StreamArg) -> Result<DevicePtr> {
    let device = device.index()?;
    Runtime::with_current(|runtime| {
        stream.with_stream(|stream| match (device, stream) {
            (Some(device), Some(stream)) if device != stream.device_index() => {
                Err(StreamError::Device { device, stream: stream.device_index() }.into())
            }
            (_, Some(stream)) => runtime.memory().alloc(size, stream),
            (Some(device), None) => runtime.memory().alloc_on_current_stream(size, device),
            (None, None) => runtime.memory().alloc_on_current_stream(size, runtime.current_device()?),
        })
    })
}

/// Gives memory back by its address; 0 is ignored. Device and stream are remembered.
///
/// # Errors
/// [`crate::MemoryError::InvalidPointer`] for an address that is not handed out; the driver's error.
pub fn caching_allocator_delete(mem_ptr: DevicePtr) -> Result<()> {
    Runtime::with_current(|runtime| runtime.memory().free(mem_ptr))
}

/// Gives cached memory that is wholly free back to the driver, on every device. Does nothing before [`crate::init`].
///
/// # Errors
/// The driver's error.
pub fn empty_cache() -> Result<()> {
    Runtime::current().memory().empty_cache()
}

/// Gives pinned memory that nobody uses back to the driver. Does nothing before [`crate::init`].
///
/// # Errors
/// The driver's error.
pub fn host_empty_cache() -> Result<()> {
    Runtime::current().pinned().empty_cache()
}

/// Every figure of the allocator of pinned memory; all zero before [`crate::init`]. [`HostStats::flatten`] has torch's
/// names.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// let buffer = cuda_api::PinnedBuffer::new(3000)?;
/// let stats = cuda_api::host_memory_stats();
/// assert_eq!((stats.active_bytes.current, stats.num_host_alloc), (4096, 1));
/// drop(buffer);
/// cuda_api::host_empty_cache()?;
/// assert_eq!(cuda_api::host_memory_stats().allocated_bytes.current, 0);
/// # Ok::<(), cuda_api::Error>(())
/// ```
#[must_use]
pub fn host_memory_stats() -> HostStats {
    Runtime::current().pinned().stats()
}

/// Every figure of the allocator of pinned memory as a tree; empty before [`crate::init`].
#[must_use]
pub fn host_memory_stats_as_nested_dict() -> BTreeMap<String, NestedStat> {
    Runtime::current().pinned().stats_as_nested_dict()
}

/// Sets every peak of the pinned memory's figures to its present value, and the longest and shortest times to 0.
pub fn reset_peak_host_memory_stats() {
    Runtime::current().pinned().reset_peak_stats();
}

/// Sets every sum of increases and decreases of the pinned memory's figures, and every count and total time, to zero.
pub fn reset_accumulated_host_memory_stats() {
    Runtime::current().pinned().reset_accumulated_stats();
}

/// Every figure of a device's allocator; all zero before [`crate::init`].
///
/// # Errors
/// The device does not exist.
pub fn memory_stats(device: impl DeviceArg) -> Result<DeviceStats> {
    let runtime = Runtime::current();
    match device.index()? {
        Some(device) => runtime.memory().stats(device),
        None if runtime.is_initialized() => runtime.memory().stats(runtime.current_device()?),
        None => Ok(DeviceStats::default()),
    }
}

/// Every figure of a device's allocator as a tree; empty before [`crate::init`].
///
/// # Errors
/// The device does not exist.
pub fn memory_stats_as_nested_dict(device: impl DeviceArg) -> Result<BTreeMap<String, NestedStat>> {
    let runtime = Runtime::current();
    match device.index()? {
        Some(device) => runtime.memory().stats_as_nested_dict(device),
        None if runtime.is_initialized() => runtime.memory().stats_as_nested_dict(runtime.current_device()?),
        None => Ok(BTreeMap::new()),
    }
}

/// Calls `observer` whenever device memory runs out, before the error is returned; torch's
/// `torch._C._cuda_attach_out_of_memory_observer`. It is told the device, the bytes asked of the driver, the bytes of
/// the device (or the limit of this process) and those that nobody holds.
pub fn attach_out_of_memory_observer(
    observer: impl Fn(DeviceIndex, u64, u64, u64) + Send + Sync + 'static,
) -> ObserverId {
    Runtime::current().memory().attach_out_of_memory_observer(observer)
}

/// Calls an observer no more; `false` if it was detached already.
pub fn detach_out_of_memory_observer(observer: ObserverId) -> bool {
    Runtime::current().memory().detach_out_of_memory_observer(observer)
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
        Some(device) => runtime.memory().reset_peak_stats(device),
        None if runtime.is_initialized() => runtime.memory().reset_peak_stats(runtime.current_device()?),
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
        Some(device) => runtime.memory().reset_accumulated_stats(device),
        None if runtime.is_initialized() => runtime.memory().reset_accumulated_stats(runtime.current_device()?),
        None => Ok(()),
    }
}

/// All memory held from the driver, by device and address, or only that of one pool. Empty before [`crate::init`].
///
/// # Errors
/// The backend does not know blocks ([`crate::BackendError::NoSnapshot`]).
pub fn memory_snapshot(mempool_id: Option<PoolId>) -> Result<Vec<SegmentInfo>> {
    Runtime::current().memory().try_snapshot(mempool_id)
}

/// Limits what is held of a device to a fraction of its memory, from 0 to 1. More that is held already stays.
///
/// # Errors
/// [`crate::MemoryError::InvalidFraction`]; the device does not exist; the runtime cannot start.
pub fn set_per_process_memory_fraction(fraction: f64, device: impl DeviceArg) -> Result<()> {
    let runtime = Runtime::current();
    runtime.memory().set_fraction(fraction, device.resolve(&runtime)?)
}

/// The fraction of a device's memory that may be held; 1 for all of it.
///
/// # Errors
/// The device does not exist; the runtime cannot start.
pub fn get_per_process_memory_fraction(device: impl DeviceArg) -> Result<f64> {
    let runtime = Runtime::current();
    runtime.memory().fraction(device.resolve(&runtime)?)
}

/// Switches caching on or off for memory asked for from now on. While it is off every request goes to the driver and
/// is counted nowhere.
pub fn caching_allocator_enable(value: bool) {
    Runtime::current().memory().enable_caching(value);
}

/// Who decides about device memory: `native`, `elastic` or `cudaMallocAsync`, as the option `backend` says.
#[must_use]
pub fn get_allocator_backend() -> &'static str {
    Runtime::current().memory().backend()
}

/// Changes the allocator's options by a text such as `max_split_size_mb:128`; torch's
/// `torch.cuda.memory._set_allocator_settings`.
///
/// # Errors
/// The first setting that is refused; nothing is changed then.
pub fn set_allocator_settings(settings: &str) -> Result<()> {
    Runtime::current().memory().set_settings(settings)
}

/// Memory that this thread asks for on a device comes from the pool until the guard is dropped.
///
/// # Errors
/// Such a guard of the same pool is held already, the pool belongs to another runtime, or the device does not exist.
pub fn use_mem_pool(pool: &MemPool, device: impl DeviceArg) -> Result<MemPoolGuard> {
    let runtime = Runtime::current();
    runtime.mem_pools().enter(pool, device.resolve(&runtime)?)
}

/// Runs `body` while memory that this thread asks for on a device comes from the pool.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::{DeviceBuffer, MemPool, MemPoolOptions, with_mem_pool};
///
/// let pool = MemPool::new(MemPoolOptions::default())?;
/// let buffer = with_mem_pool(&pool, None, || Ok(DeviceBuffer::new(1 << 20, None)?))?;
/// assert_eq!(pool.snapshot().len(), 1);
/// drop(buffer);
/// # Ok::<(), cuda_api::torch::Error>(())
/// ```
///
/// # Errors
/// What `body` returned, else as for [`use_mem_pool`].
pub fn with_mem_pool<T>(
    pool: &MemPool,
    device: impl DeviceArg,
    body: impl FnOnce() -> aten_cuda::Result<T>,
) -> aten_cuda::Result<T> {
    let _guard = use_mem_pool(pool, device)?;
    body()
}

/// Notes what a memory pool, one of a program or of graphs, has handed out of which segments, for
/// [`set_checkpoint_pool_state`]; torch's `torch._C._cuda_getCheckpointState`.
///
/// # Errors
/// The pool does not exist or nobody uses it any more; other streams may still use memory of it that was given back; the
/// device does not exist.
#[doc(alias = "_cuda_getCheckpointState")]
pub fn checkpoint_pool_state(device: impl DeviceArg, pool: PoolId) -> Result<PoolCheckpoint> {
    let runtime = Runtime::current();
    runtime.mem_pools().checkpoint(device.resolve(&runtime)?, pool)
}

/// Brings a memory pool back to a checkpoint of it; torch's `torch._C._cuda_setCheckpointPoolState`. Memory that is handed
/// out now and was not then is taken back: its holders give it up in `stale`, which is empty afterwards. Memory that was
/// handed out then is so again, at the same addresses: with who holds it now, or as a buffer of the result. See
/// [`c10_core::MemPools::restore`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::{DeviceBuffer, MemPool, MemPoolOptions, StaleMemory};
/// let pool = MemPool::new(MemPoolOptions::default())?;
/// let new = |len| cuda_api::with_mem_pool(&pool, None, || Ok(DeviceBuffer::new(len, None)?));
/// let (first, kept) = (new(5000)?, new(5000)?);
/// let address = first.address();
/// let checkpoint = cuda_api::checkpoint_pool_state(None, pool.id())?;
/// drop(first);
/// let other = new(1 << 20)?;
///
/// let mut stale = StaleMemory { buffers: vec![other], ..StaleMemory::default() };
/// let restored = cuda_api::set_checkpoint_pool_state(None, &checkpoint, &mut stale)?;
/// assert_eq!(restored.buffers[0].address(), address);
/// assert!(cuda_api::check_pool_live_allocations(None, pool.id(), &[address, kept.address()])?);
/// # Ok::<(), cuda_api::torch::Error>(())
/// ```
///
/// # Errors
/// As for [`checkpoint_pool_state`]; memory is handed out that was not given up; a buffer in `stale` has other handles; the
/// checkpoint is of another runtime or device, or segments of it went back to the driver. The pool and `stale` are then as
/// they were.
#[doc(alias = "_cuda_setCheckpointPoolState")]
pub fn set_checkpoint_pool_state(
    device: impl DeviceArg,
    checkpoint: &PoolCheckpoint,
    stale: &mut StaleMemory,
) -> Result<RestoredPool> {
    let runtime = Runtime::current();
    runtime.mem_pools().restore(device.resolve(&runtime)?, checkpoint, stale)
}

/// Whether the memory of a pool that is handed out is exactly that at these addresses; torch's
/// `torch._C._cuda_checkPoolLiveAllocations`.
///
/// # Errors
/// The pool or the device does not exist.
#[doc(alias = "_cuda_checkPoolLiveAllocations")]
pub fn check_pool_live_allocations(device: impl DeviceArg, pool: PoolId, expected: &[DevicePtr]) -> Result<bool> {
    let runtime = Runtime::current();
    runtime.mem_pools().check_live_allocations(device.resolve(&runtime)?, pool, expected)
}

/// Free and total memory of a device.
///
/// # Errors
/// The device does not exist, or the driver's error.
pub fn mem_get_info(device: impl DeviceArg) -> Result<(u64, u64)> {
    let runtime = Runtime::current();
    let info = runtime.memory().info(device.resolve(&runtime)?)?;
    Ok((info.free, info.total))
}

/// Bytes of a device that are in use, by all processes, as NVML shows it.
///
/// # Errors
/// As for [`crate::utilization`].
pub fn device_memory_used(device: impl DeviceArg) -> Result<u64> {
    let runtime = Runtime::current();
    runtime.telemetry().memory_used(device.resolve(&runtime)?)
}

/// A text that lists the processes that compute on a device, with the memory each holds. Where NVML cannot be loaded or
/// finds no driver, the text says so.
///
/// # Errors
/// `CUDA_VISIBLE_DEVICES` does not name the device; NVML's error; the runtime cannot start, for `None`.
pub fn list_gpu_processes(device: impl DeviceArg) -> Result<String> {
    let runtime = Runtime::current();
    let device = device.resolve(&runtime)?;
    let processes = match runtime.telemetry().processes(device) {
        Err(Error::Telemetry(TelemetryError::Missing { .. })) => {
            return Ok("NVML cannot be loaded; it comes with the NVIDIA driver".to_owned());
        }
        Err(error @ Error::Telemetry(TelemetryError::DriverNotLoaded)) => return Ok(error.to_string()),
        answered => answered?,
    };
    let mut lines = vec![format!("GPU:{}", runtime.telemetry().device_index(device)?)];
    if processes.is_empty() {
        lines.push("no processes are running".to_owned());
    }
    lines.extend(processes.iter().map(line));
    Ok(lines.join("\n"))
}

#[expect(clippy::cast_precision_loss, reason = "three decimals of a number of MB are printed")]
fn line(process: &ProcessMemory) -> String {
    let used =
        process.used_bytes.map_or_else(|| "unknown".to_owned(), |bytes| format!("{:.3}", bytes as f64 / 1_048_576.0));
    format!("process {:>10} uses {used:>12} MB GPU memory", process.pid)
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}
