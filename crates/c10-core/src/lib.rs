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
//! let stream = runtime.new_stream(DeviceIndex(0), 0)?;
//! let buffer = runtime.buffer(1 << 20, &stream)?;
//! buffer.fill(0..1 << 20, 7, &stream)?;
//! stream.synchronize()?;
//! # Ok::<(), c10_core::Error>(())
//! ```

mod error;
mod out_of_memory;

mod arg;
mod device;
mod peer;
mod properties;

mod driver;

mod config;

mod cudart;

mod guard;
mod lasting;
mod lazy;
mod process;
mod runtime;
mod thread;

mod event;
mod stream;
mod sync_debug;

#[forbid(unsafe_code)]
mod caching;

mod copy;
mod mem_pool;
mod memory;
mod nested;
#[forbid(unsafe_code)]
mod pinned;
mod remains;

mod graph;
mod graphed;
mod launch;

mod ipc;

mod nvml;
mod visible;

pub use arg::{DeviceArg, DeviceOf, StreamArg};
pub use caching::{
    BlockCheckpoint, BlockInfo, BlockState, DeviceStats, PoolCheckpoint, PoolId, RestoreResult, SegmentCheckpoint,
    SegmentInfo, SegmentType, Stat, StatByPool,
};
pub use config::{AllocatorConfig, Backend, ConfigError, ROUNDUP_ENTRIES};
pub use copy::DeviceBuffer;
pub use cudart::{CudaError, Cudart, check_error, cudaStatus};
pub use device::{Device, DeviceIndex, DeviceType};
pub use driver::{CaptureMode, MemInfo, get_stream_from_external};
pub use error::{AcceleratorError, Error, NoDriver, OutOfMemory, Result, Unavailable};
pub use event::{Event, EventOptions};
pub use graph::{
    CUDAGraph, CaptureOutcome, CaptureScope, Condition, GeneratorState, GraphCapture, GraphNode, GraphNodeKind,
    GraphReport, GraphUpdateError, GraphUpdateFailure,
};
pub use graphed::{GraphFn, GraphedCallable, GraphedError, GraphedOptions};
pub use guard::{DeviceGuard, MultiStreamGuard, RuntimeGuard, StreamGuard};
pub use ipc::SharedBuffer;
pub use launch::{Arg, Kernel, KernelAttributes, LaunchConfig, LaunchError, LaunchErrorKind, Module, ModuleError};
pub use lazy::DeferredCudaCallError;
pub use mem_pool::{MemPool, MemPoolGuard};
pub use nested::NestedStat;
pub use out_of_memory::{ObserverId, OutOfMemoryError, OutOfMemoryHint, ProcessMemory};
pub use pinned::{DurationStat, HostStats, PinnedBuffer};
pub use properties::{DeviceProperties, Uuid};
pub use runtime::Runtime;
pub use stream::{ExternalStream, Stream, StreamId};
pub use sync_debug::SyncDebugMode;
