//! `torch.cuda` for Rust: its names and meanings.
//!
//! A `with` block of torch is a guard or a closure here ([`stream()`], [`with_stream`]); optional arguments take
//! `None`; exceptions are the variants of [`Error`], with torch's texts. Programs and the closures return
//! [`torch::Result`]; errors of the runtime, of files, of process groups and of timelines convert to its error type by
//! `?`, with their texts and sources. A device is given as a number, a [`Device`], a text such as `"cuda:1"`, or `None`
//! for the current one ([`DeviceArg`]); a stream by value, by reference, or as `None` for the current one
//! ([`StreamArg`]).
//!
//! The driver is loaded when it is first needed, so a program starts on every machine; [`is_available`] and
//! [`device_count`] never fail.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::{DeviceBuffer, Event, EventOptions, Stream};
//!
//! let stream = Stream::new(None, 0)?;
//! let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
//! let buffer = cuda_api::with_stream(&stream, || {
//!     start.record(None)?;
//!     let buffer = DeviceBuffer::new(1 << 20, None)?;
//!     buffer.fill(.., 7, None)?;
//!     end.record(None)?;
//!     Ok(buffer)
//! })?;
//! end.synchronize()?;
//! assert!(start.elapsed_time(&end)? >= 0.0);
//! assert!(buffer.to_vec()?.iter().all(|&byte| byte == 7));
//! assert_eq!(cuda_api::memory_allocated(None)?, 1 << 20);
//! # Ok::<(), cuda_api::torch::Error>(())
//! ```
//!
//! The modules are those of torch, one for each page of its documentation: [`mod@device`], [`streams`], [`memory`],
//! [`graphs`], [`green_contexts`]. Beside them [`buffers`] has untyped memory, and [`kernels`] what launches code. As in
//! torch, what they have is at the root, too. The types are `c10-core`'s own. Names of `torch` itself, tensors above all,
//! are in [`torch`], and those of `torch.cuda.tunable` and `torch.cuda.nvtx`, as there, in modules of those names alone
//! ([`amp`], [`comm`], [`nccl`], [`tunable`], [`nvtx`], [`sanitizer`], [`gds`], [`jiterator`]). Beyond torch, [`timeline`]
//! records what the program and the devices did, [`compiler`] compiles functions of tensors (`torch.compile`),
//! [`symmetric`] has memory that all devices of a process reach at the same offset, [`distributed`] makes groups of
//! processes (`torch.distributed`), [`multiprocessing`] shares tensors between processes, and [`expression`] makes kernels of closures and texts.
//!
//! # Invariants
//! No unsafe code and no state: everything is kept by [`Runtime::current`], which is the process-wide runtime unless
//! the thread is bound to another one.

#![forbid(unsafe_code)]

/// README examples, run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

/// Examples of the pages about compiling and about allocators, run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/compile.md")]
#[doc = include_str!("../../../docs/allocators.md")]
#[derive(Debug)]
pub struct Pages;

mod allocators;
pub mod amp;
mod arch;
pub mod backends;
pub mod buffers;
pub mod comm;
pub mod compiler;
pub mod device;
pub mod distributed;
pub mod expression;
mod figures;
pub mod gds;
pub mod graphs;
pub mod green_contexts;
mod history;
mod hooks;
pub mod jiterator;
pub mod kernels;
pub mod memory;
pub mod multiprocessing;
pub mod nccl;
pub mod nvtx;
mod old;
mod pointer;
mod pools;
pub mod random;
pub mod sanitizer;
mod selection;
pub mod streams;
mod summary;
pub mod symmetric;
pub mod tensors;
pub mod timeline;
pub mod torch;
pub mod tunable;
mod visibility;

pub use aten_cuda::jit_fn;
pub use buffers::*;
pub use device::*;
pub use graphs::*;
pub use green_contexts::*;
pub use kernels::*;
pub use memory::*;
pub use random::*;
pub use streams::*;
pub use tensors::*;

pub use c10_core::{
    AcceleratorError, AllocatorError, BackendError, CudaError, DeferredCudaCallError, DeviceAssertionError,
    DeviceError, DeviceFaultError, Error, EventError, GraphError, IpcError, MemoryError, NoDriver, NvmlMissing,
    PluginLoadError, PoolError, RefusedFraction, Result, StartError, StreamError, SyncDebugError, SystemError,
    TelemetryError, Unavailable,
};
