//! A deterministic simulated GPU behind the CUDA driver's C interface.
//!
//! A [`Machine`] has devices, memory with real contents, streams, events and a clock of its own. Programs reach it as
//! they reach the real driver: through a table of C functions ([`driver`]), or through the shared object that
//! `libcuda-sim` makes of the same functions. NVML shows the same machine ([`nvml()`], `libnvml-sim`); cuBLAS, cuBLASLt,
//! cuSOLVER and cuFFT work on it ([`cublas()`], [`cublaslt()`], [`cusolver()`], [`cufft()`], `libcublas-sim`), and NCCL
//! between its devices ([`nccl()`], `libnccl-sim`).
//!
//! ```
//! use cuda_sim::{Config, Machine};
//!
//! let machine = Machine::new(Config::default().seed(7));
//! let _bound = machine.bind();
//! let driver = cuda_sim::driver()?;
//! // Sound because these calls take no pointers that could be wrong.
//! unsafe { driver.cuInit(0) }?;
//! let mut count = 0;
//! unsafe { driver.cuDeviceGetCount(&mut count) }?;
//! assert_eq!(count, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is simulated
//! Work that a program queues runs in simulated time: every operation waits for what it depends on, then for a latency
//! that the seed draws. Work that nothing orders really runs in different orders under different seeds, an
//! asynchronous copy reads its source when it runs, and events can be late. Same configuration and same calls give the
//! same history.
//!
//! The driver answers as hardware does. What hardware would not notice is written down ([`Machine::reports`]), and is
//! an error in strict mode ([`Config::strict`]). Any call can be made to fail ([`Machine::inject`]).
//!
//! # What is not simulated
//! - Of cuBLAS, cuBLASLt, cuSOLVER, cuFFT and NCCL what `docs/simulator.md` lists: it answers that it is not supported, or the
//!   function is not there.
//! - Machine code, and the instructions that `docs/ptx.md` lists as not supported: asking for such a kernel answers an error.
//!   Registers that functions and occupancy tell are an estimate.
//! - Clusters of blocks, and cooperative launches on several devices.
//! - Textures, arrays, graphics: their functions are not there.
//! - Which multiprocessors a green context has, and work queues of such contexts: only their number is known.
//! - Pages of managed memory that move because they are touched, and the memory of a device that they would take.
//! - User objects of graphs, and nodes for memory, values and semaphores made by `cuGraphAddNode`.
//! - Memory that allocations of graphs share because their lifetimes are apart, pools and handles of host memory, and
//!   handles of mapped and pooled memory for other processes.
//! - Bandwidth of links where no [`Topology`] is given, and copies that are seen half done: an operation takes effect at one
//!   moment.
//! - A copy from pageable memory is done when its call returns; the driver promises only that the source was read.
//!
//! # Safety
//! Unsafe code is in few places: `abi`, `blas`, `solver`, `fft`, `nccl` and `nvml` (the C functions), `claim` (the caller's pointers), `host_work` (the
//! program's functions) and `model::memory::bytes` (the bytes of simulated memory). Each says what it relies on.

/// README examples, run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

mod abi;
mod blas;
mod call;
mod calls;
mod claim;
mod codes;
mod config;
mod door;
mod export;
mod exports;
mod fft;
mod host_threads;
mod host_work;
mod journal;
mod machine;
mod model;
mod nccl;
mod nvml;
mod panics;
mod report;
mod solver;
mod standstill;
mod toolkit;
mod topology;
mod unpack;

pub use abi::{EXPORTS, driver, functions};
pub use blas::{CUBLAS_EXPORTS, CUBLAS_VERSION, CUBLASLT_EXPORTS, cublas, cublas_without, cublaslt, cublaslt_without};
pub use config::{Config, ConfigError, Fault, KernelChecks};
pub use export::{Export, Needs};
pub use fft::{CUFFT_EXPORTS, CUFFT_VERSION, cufft, cufft_without};
pub use journal::{JournalEntry, QueuedWork, WorkKind};
pub use machine::{Bound, Machine};
pub use model::memory::MachineFileError;
pub use nccl::{NCCL_EXPORTS, NCCL_VERSION, nccl, nccl_without};
pub use nvml::{NVML_EXPORTS, nvml, nvml_functions, nvml_without};
pub use report::{LiveHandles, Report, ReportKind};
pub use solver::{CUSOLVER_EXPORTS, CUSOLVER_VERSION, cusolver, cusolver_without};
pub use toolkit::LibraryCall;
pub use topology::{LinkChange, LinkFault, LinkMoment, Topology};

/// The C functions one by one, for a shared object that exports them under their own names.
#[doc(hidden)]
pub mod c {
    pub use crate::abi::functions::*;
    pub use crate::blas::functions::*;
    pub use crate::fft::functions::*;
    pub use crate::nccl::functions::*;
    pub use crate::nvml::functions::*;
    pub use crate::solver::functions::*;
}
