//! `torch.cuda` for Rust: its names and meanings.
//!
//! What is a `with` block there is a guard or a closure here ([`stream()`], [`with_stream`]); optional arguments take
//! `None`; exceptions are the variants of [`Error`], with torch's texts. A device is given as a number, a [`Device`],
//! a text such as `"cuda:1"`, or `None` for the current one ([`DeviceArg`]).
//!
//! The driver is loaded when it is first needed, so a program starts on every machine; [`is_available`] and
//! [`device_count`] never fail.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::{Event, EventOptions, Stream};
//!
//! let stream = Stream::new(None, 0)?;
//! let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
//! let buffer = cuda_api::with_stream(&stream, || {
//!     start.record(None)?;
//!     let buffer = cuda_api::empty(1 << 20, None)?;
//!     buffer.fill(0..1 << 20, 7, &stream)?;
//!     end.record(None)?;
//!     Ok::<_, cuda_api::Error>(buffer)
//! })?;
//! end.synchronize()?;
//! assert!(start.elapsed_time(&end)? >= 0.0);
//! assert!(buffer.to_vec()?.iter().all(|&byte| byte == 7));
//! assert_eq!(cuda_api::memory_allocated(None)?, 1 << 20);
//! # Ok::<(), cuda_api::Error>(())
//! ```
//!
//! One file for each page of torch's documentation: `device`, `stream`, `memory`, `graphs`; beside them
//! `buffer` with the memory that tensors would have. The types are `c10-core`'s own.
//!
//! # Invariants
//! No unsafe code and no state: everything is kept by [`Runtime::current`], which is the process-wide runtime unless
//! the thread is bound to another one.

#![forbid(unsafe_code)]

mod arch;
mod buffer;
mod device;
mod graphs;
mod memory;
mod old;
mod pointer;
mod pools;
mod selection;
mod stream;
mod summary;
mod visibility;

pub use arch::{
    check_capability, check_cubins, code_compatible_with_device, extract_arch_version, get_arch_list,
    get_gencode_flags, is_bf16_supported, is_compiled, is_tf32_supported, module_loading, warn_unsupported_code,
};
pub use buffer::{empty, open_shared, pinned};
pub use device::{
    can_device_access_peer, clock_rate, cudart, current_device, device, device_count, device_of, exchange_device,
    get_device_capability, get_device_name, get_device_properties, get_sync_debug_mode, init, init_with, ipc_collect,
    is_available, is_in_bad_fork, is_initialized, lazy_call, maybe_exchange_device, memory_usage, power_draw,
    set_device, set_sync_debug_mode, synchronize, temperature, utilization, with_device,
};
pub use graphs::{
    GraphOptions, capture_or_run, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables,
    record_graph, with_graph,
};
pub use memory::{
    DevicePtr, attach_out_of_memory_observer, caching_allocator_alloc, caching_allocator_delete,
    caching_allocator_enable, check_pool_live_allocations, checkpoint_pool_state, detach_out_of_memory_observer,
    device_memory_used, empty_cache, get_allocator_backend, get_per_process_memory_fraction, host_empty_cache,
    host_memory_stats, host_memory_stats_as_nested_dict, list_gpu_processes, max_memory_allocated, max_memory_reserved,
    mem_get_info, mem_pool, memory_allocated, memory_reserved, memory_snapshot, memory_stats,
    memory_stats_as_nested_dict, reset_accumulated_host_memory_stats, reset_accumulated_memory_stats,
    reset_peak_host_memory_stats, reset_peak_memory_stats, set_allocator_settings, set_checkpoint_pool_state,
    set_per_process_memory_fraction, use_mem_pool, with_mem_pool,
};
#[expect(deprecated, reason = "torch keeps them, too")]
pub use old::{max_memory_cached, memory_cached, reset_max_memory_allocated, reset_max_memory_cached};
pub use pointer::{get_device_from_ptr, is_pinned};
pub use pools::{
    begin_allocate_current_stream_to_pool, begin_allocate_current_thread_to_pool, begin_allocate_to_pool,
    end_allocate_to_pool, release_pool,
};
pub use selection::{CudaDeviceProperties, get_device, get_device_index, lazy_init};
pub use stream::{current_stream, default_stream, set_stream, set_stream_by_id, sleep, stream, with_stream};

pub use summary::memory_summary;
pub use visibility::{
    device_count_nvml, get_nvml_device_index, nvml_based_avail, parse_visible_devices, raw_device_count_nvml,
    raw_device_uuid_nvml, transform_uuid_to_ordinals,
};

pub use c10_core::{
    AcceleratorError, AllocatorConfig, Arg, BlockCheckpoint, BlockInfo, BlockState, CUDAGraph, CaptureMode,
    CaptureOutcome, CaptureScope, Condition, ConfigError, CudaError, Cudart, DeferredCudaCallError, Device, DeviceArg,
    DeviceBuffer, DeviceError, DeviceGuard, DeviceIndex, DeviceOf, DeviceProperties, DeviceStats, DeviceType, Devices,
    DurationStat, Error, Event, EventError, EventOptions, ExternalStream, GeneratorState, GraphCapture, GraphError,
    GraphFn, GraphNode, GraphNodeKind, GraphReport, GraphUpdateError, GraphUpdateFailure, GraphedCallable,
    GraphedError, GraphedOptions, HostOutOfMemoryError, HostStats, Ipc, IpcError, Kernel, KernelAttributes,
    LaunchConfig, LaunchError, LaunchErrorKind, MemPool, MemPoolGuard, MemPools, Memory, MemoryError, Module,
    ModuleError, MultiStreamGuard, NestedStat, NoDriver, NvmlMissing, ObserverId, OutOfMemory, OutOfMemoryError,
    OutOfMemoryHint, PinnedBuffer, PinnedMemory, PoolCheckpoint, PoolError, PoolId, ProcessMemory, RefusedFraction,
    Result, Runtime, RuntimeGuard, SegmentCheckpoint, SegmentInfo, SegmentType, SharedBuffer, StartError, Stat,
    StatByPool, Stream, StreamArg, StreamError, StreamGuard, StreamId, Streams, SyncDebug, SyncDebugError,
    SyncDebugMode, SystemError, Telemetry, TelemetryError, Unavailable, Uuid, check_error, cudaStatus,
    get_stream_from_external,
};
pub use c10_core::{
    AnyEvent, CheckedDevice, Compat, CompatInterval, CompatSet, CompatTable, ModuleLoading, PointerInfo, PointerKind,
    PtrArg, RestoredPool, StaleMemory, UnsupportedCode, UnsupportedCubins, VisibleDevices,
    construct_storage_from_data_pointer,
};
