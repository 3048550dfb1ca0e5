//! The runtime beneath `torch.cuda`'s names: devices, streams, events, device and pinned memory, CUDA graphs.
//!
//! Knows nothing of tensors, of BLAS or of Python. The driver is loaded when it is first needed; a program built with
//! this crate starts on a machine without a GPU and is told so by a typed [`Error`].
//!
//! # Layers
//! Each folder imports only folders above it in this list; its README says which, and what is in it.
//! - `base`: what every layer speaks of: devices, errors, options, the process.
//! - `sync`: locks and owning handles that know nothing of devices.
//! - `thread`: what is current on a thread.
//! - `trace`: what a runtime reports: one type of events, subscribers, the history of device memory.
//! - `sanitizer`: finds accesses to memory that nothing puts in order.
//! - `driver`: the only place that calls the driver, and the narrow traits that the allocators are written against.
//! - `events`: queues of recorded events with what waits for them, and stocks of spare events.
//! - `resource`: memory resources: one small trait, and types that are put together over it.
//! - `caching/block`: blocks: how requests are rounded, what a block is, and which streams use it.
//! - `caching/stats`: the figures of the allocator.
//! - `caching/freeset`: the free blocks of a shard: exact best fit by size and address.
//! - `caching/remote`: from an address to its block without a lock, and blocks that other threads give back.
//! - `caching/plan`: plans of the steps that a stream repeats: learned, computed, followed.
//! - `caching/shard`: the memory of one stream and pool behind one lock.
//! - `caching/pools`: pools, where their segments come from, and blocks that wait for streams.
//! - `caching/device`: one device: serving a request from the cache and taking a block back.
//! - `caching/slow`: what is rare: growing, giving back, checkpoints, snapshots, checking the books.
//! - `caching`: the caching allocator of device memory.
//! - `backend`: where device memory comes from: the caching allocator, or another backend.
//! - `plugin`: allocators that a program brings.
//! - `pinned`: the caching allocator of pinned host memory.
//! - `state`: what else a runtime keeps: streams, captures, modules, what waits to be destroyed.
//! - `runtime`: [`Runtime`], a value: its handle, its start and its end.
//! - `api`: what users hold and call: streams, events, buffers, graphs, kernels, and the parts of a runtime.
//! - `timeline`: what the host and the devices did, on one time line, as a file for Perfetto.
//!
//! # Invariants
//! - A device's primary context is retained once when the device is first used, and never for a device that is not.
//! - Dropping a buffer, event, stream or graph never blocks and never panics; in a forked child it calls nothing.
//! - Nothing is called at process exit: the default runtime lives as long as the process.
//! - Any driver call may fail at any moment: the operation returns its own error and the books still balance
//!   ([`Runtime::is_valid`]).
//!
//! ```no_run
//! use c10_core::{DeviceIndex, Runtime};
//! let runtime = Runtime::default_runtime();
//! let stream = runtime.streams().pooled(DeviceIndex(0), 0)?;
//! let buffer = runtime.memory().buffer(1 << 20, &stream)?;
//! buffer.fill(0..1 << 20, 7, &stream)?;
//! stream.synchronize()?;
//! # Ok::<(), c10_core::Error>(())
//! ```

/// README examples, run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

mod api;
#[forbid(unsafe_code)]
mod backend;
mod base;
#[forbid(unsafe_code)]
mod caching;
mod driver;
#[forbid(unsafe_code)]
mod events;
#[forbid(unsafe_code)]
mod pinned;
mod plugin;
mod resource;
mod runtime;
#[forbid(unsafe_code)]
mod sanitizer;
mod state;
mod sync;
mod thread;
mod timeline;
mod trace;

pub use api::allocator::CurrentAllocator;
pub use api::any_event::AnyEvent;
pub use api::arg::{DeviceArg, DeviceOf, StreamArg};
pub use api::buffers::{DetachedBuffer, DeviceBuffer, DeviceSlice, construct_storage_from_data_pointer};
pub use api::code_check::{warn_unknown_code, warn_unsupported_code};
pub use api::cudart::Cudart;
pub use api::event::{Event, EventFuture, EventOptions};
pub use api::graph::{
    CUDAGraph, CaptureOutcome, CaptureScope, Condition, GeneratorState, GraphCapture, GraphReport, graph_replays,
};
pub use api::graphed::{GraphFn, GraphedCallable, GraphedOptions};
pub use api::green_context::GreenContext;
pub use api::guard::{MultiStreamGuard, StreamGuard};
pub use api::ipc::{Ipc, SharedBuffer};
pub use api::launch::{
    Arg, DetachedKernel, Dim3, Kernel, KernelAttributes, LaunchBuilder, LaunchConfig, MemoryAccess, Module,
    PreparedLaunch, TensorMap, TextSteps,
};
pub use api::library::{LibraryFunction, LibrarySource, LibraryStream};
pub use api::mem_pool::{EnteredPool, MemPool, MemPoolGuard, MemPoolOptions, MemPools};
pub use api::memory::Memory;
pub use api::nvml::Telemetry;
pub use api::nvtx;
pub use api::outlook::{RequestAnswer, RequestOutlook};
pub use api::pinned::{PinnedBuffer, PinnedCursor, PinnedMemory};
pub use api::pointer::PtrArg;
pub use api::properties::{DeviceProperties, Devices};
pub use api::resources::{CachingResource, DriverResource};
pub use api::restore::{RestoredPool, StaleMemory};
pub use api::sanitizer::{HandOver, Sanitizer};
pub use api::stream::{ExternalStream, Stream, Streams, get_stream_from_external};
pub use api::symmetric::SymmetricMemory;
pub use api::sync_debug::SyncDebug;
pub use api::trace::{HistoryScope, MemorySnapshot};
pub use base::arch::{
    ARCH_LIST, CheckedDevice, Compat, CompatInterval, CompatSet, CompatTable, UnsupportedCode, UnsupportedCubins,
    extract_arch_version, gencode_flags,
};
pub use base::config::{AllocatorConfig, Backend, ConfigError, EnvironmentError, ROUNDUP_ENTRIES};
pub use base::device::{Device, DeviceIndex, DeviceType};
pub use base::error::{
    AcceleratorError, AccessType, AllocatorError, BackendError, BufferError, CUDASanitizerErrors, CudaError,
    DeferredCudaCallError, DeviceAssertionError, DeviceError, DeviceFaultError, Error, EventError, ExportError,
    GraphError, GraphNode, GraphNodeKind, GraphUpdateError, GraphUpdateFailure, GraphedError, GreenContextError,
    HeldMemory, HostOutOfMemoryError, IpcError, LaunchError, LaunchErrorKind, LaunchRecord, MemoryError, MemoryHolder,
    ModuleError, NoDriver, NvmlMissing, OutOfMemory, OutOfMemoryError, OutOfMemoryHint, PluginLoadError, PoolError,
    ProcessMemory, RefusedFraction, Result, RuntimeCause, SanitizedAccess, StartError, StreamError, SyncDebugError,
    SystemError, TelemetryError, Unavailable, UnsynchronizedAccessError, check_error, cudaStatus,
};
pub use base::handles::{CaptureMode, MemInfo};
pub use base::host_memory;
pub use base::ids::{PoolId, StreamId};
pub use base::linking::{LinkInput, LinkKind};
pub use base::links::{CommonAncestor, PeerLink, PeerPath};
pub use base::loading::ModuleLoading;
pub use base::panics;
pub use base::pointer::{PointerInfo, PointerKind};
pub use base::readings::{
    ClockLimits, ClockReadings, ComputeMode, DeviceReadings, EccReadings, LoadReadings, MemoryReadings, NoReading,
    NvLinkReadings, OfMax, PcieReadings, PcieThroughput, PowerReadings, Reading, RemappedRows, TemperatureReadings,
};
pub use base::stat::{NestedStat, Stat};
pub use base::tensor_map::{TensorMapDim, TensorMapElement, TensorMapLayout};
pub use base::uuid::Uuid;
pub use base::visible::{VisibleDevices, transform_uuid_to_ordinals};
pub use base::warning::warn;
pub use caching::{
    BlockCheckpoint, BlockInfo, BlockState, DeviceStats, PlanStats, PoolCheckpoint, RestoreResult, SegmentCheckpoint,
    SegmentInfo, SegmentType, StatByPool,
};
pub use pinned::{DurationStat, HostMemorySource, HostPages, HostStats};
pub use plugin::{AllocatorHook, CUDAPluggableAllocator};
pub use resource::{
    Allocation, ArenaResource, FailingResource, LimitResource, LoggingResource, MemoryResource, NotDeallocated,
    ResourceAction, ResourceCall, ResourceEvent, ResourceStats, StatisticsResource, StreamView,
};
pub use runtime::{DeviceGuard, ExportedFigures, FigureExport, Runtime, RuntimeGuard, figure_exports};
pub use sanitizer::{SanitizerAction, SanitizerMode, SanitizerOptions};
pub use state::observers::ObserverId;
pub use state::sync_debug::SyncDebugMode;
pub use sync::tracked as locks;
pub use thread::pending::{Made, PutOff, PuttingOff};
pub use timeline::{Timeline, TimelineOptions, TimelineRecorder};
pub use trace::{
    HistoryContext, HistoryOptions, HistoryStacks, SubscriptionId, TraceAccess, TraceAction, TraceAnnotation,
    TraceBlock, TraceCopy, TraceEntry, TraceEvent, TraceFrame, TraceKind, TraceKinds, TraceSegment, TraceStream,
};
