//! The runtime beneath `torch.cuda`'s names: devices, streams, events, device and pinned memory, CUDA graphs.
//!
//! Knows nothing of tensors, of BLAS or of Python. The driver is loaded when it is first needed; a program built with
//! this crate starts on a machine without a GPU and is told so by a typed [`Error`].
//!
//! # Map, in reading order
//! - `error`: every way to fail, with torch's texts. `out_of_memory`: the most frequent one, and who is told of it.
//! - `device`: device numbers and names. `properties`: what a device can do. `peer`: which reach each other.
//!   `arg`: what may be given for a device or a stream.
//! - `driver/`: the only place that calls the driver; the trait the allocator needs.
//! - `runtime`: [`Runtime`], a value; lazy start, primary contexts. `lasting`: how it is held. `lazy`: calls that wait for
//!   the start. `process`: forks. `thread`: what is current on a thread. `guard`: making something current for a while.
//! - `stream`, `event`: order. `event/pool`: the driver's events that serve again. `sync_debug`: whether the host may wait.
//! - `config/`: the allocator's options. `caching/`: the caching allocator (its README has the details). `memory`,
//!   `mem_pool`, `nested`: what the runtime shows of it.
//! - `pinned/`: pinned host memory and its caching allocator. `copy`: buffers of the device, copies. `remains`: what could
//!   not be destroyed yet.
//! - `graph/`: capture and replay. `graphed`: functions that are replayed. `launch/`: modules, kernels and their launches.
//!   `ipc/`: memory that several processes use.
//! - `cudart`: the part of the runtime API that torch shows.
//! - `nvml`: what is seen of devices from outside. `visible`: which of them are ours.
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

mod api;
mod base;
#[forbid(unsafe_code)]
mod caching;
mod driver;
mod events;
#[forbid(unsafe_code)]
mod pinned;
mod runtime;
mod state;
mod sync;
mod thread;

pub use api::any_event::AnyEvent;
pub use api::arg::{DeviceArg, DeviceOf, StreamArg};
pub use api::buffers::{DeviceBuffer, construct_storage_from_data_pointer};
pub use api::code_check::{warn_unknown_code, warn_unsupported_code};
pub use api::cudart::Cudart;
pub use api::event::{Event, EventOptions};
pub use api::graph::{CUDAGraph, CaptureOutcome, CaptureScope, Condition, GeneratorState, GraphCapture, GraphReport};
pub use api::graphed::{GraphFn, GraphedCallable, GraphedOptions};
pub use api::guard::{DeviceGuard, MultiStreamGuard, RuntimeGuard, StreamGuard};
pub use api::ipc::{Ipc, SharedBuffer};
pub use api::launch::{Arg, Kernel, KernelAttributes, LaunchConfig, Module};
pub use api::mem_pool::{MemPool, MemPoolGuard, MemPoolOptions, MemPools};
pub use api::memory::Memory;
pub use api::nvml::Telemetry;
pub use api::pinned::{PinnedBuffer, PinnedMemory};
pub use api::pointer::PtrArg;
pub use api::properties::{DeviceProperties, Devices};
pub use api::restore::{RestoredPool, StaleMemory};
pub use api::stream::{ExternalStream, Stream, Streams, get_stream_from_external};
pub use api::sync_debug::{SyncDebug, SyncDebugMode};
pub use base::arch::{
    ARCH_LIST, CheckedDevice, Compat, CompatInterval, CompatSet, CompatTable, UnsupportedCode, UnsupportedCubins,
    extract_arch_version, gencode_flags,
};
pub use base::config::{AllocatorConfig, Backend, ConfigError, ROUNDUP_ENTRIES};
pub use base::device::{Device, DeviceIndex, DeviceType};
pub use base::error::{
    AcceleratorError, CudaError, DeferredCudaCallError, Error, GraphNode, GraphNodeKind, GraphUpdateError,
    GraphUpdateFailure, GraphedError, LaunchError, LaunchErrorKind, ModuleError, NoDriver, OutOfMemory,
    OutOfMemoryError, OutOfMemoryHint, ProcessMemory, Result, Unavailable, check_error, cudaStatus,
};
pub use base::handles::{CaptureMode, MemInfo};
pub use base::ids::{PoolId, StreamId};
pub use base::pointer::{PointerInfo, PointerKind};
pub use base::stat::{NestedStat, Stat};
pub use base::uuid::Uuid;
pub use base::visible::{VisibleDevices, transform_uuid_to_ordinals};
pub use caching::{
    BlockCheckpoint, BlockInfo, BlockState, DeviceStats, PoolCheckpoint, RestoreResult, SegmentCheckpoint, SegmentInfo,
    SegmentType, StatByPool,
};
pub use pinned::{DurationStat, HostStats};
pub use runtime::handle::Runtime;
pub use state::observers::ObserverId;
