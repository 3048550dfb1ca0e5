//! The runtime beneath `torch.cuda`'s names on a simulated GPU, for tests.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod default;
mod disk;
mod environment;
mod leftovers;
mod listener;
pub mod process;
mod simulation;

pub use default::{AlreadyChosen, make_default, make_default_exactly};
pub use disk::with_small_disk;
pub use environment::with_environment;
pub use leftovers::leftovers;
pub use listener::Listener;
pub use simulation::{Entered, SimulatedRuntime, Simulation, simulated_runtime};

pub use c10_core;
pub use cuda_sim::{
    Bound, Config, ConfigError, Fault, JournalEntry, KernelChecks, LibraryCall, LinkChange, LinkFault, LinkMoment,
    LiveHandles, Machine, QueuedWork, Report, ReportKind, Topology, WorkKind, cublas, cublas_without, cublaslt,
    cublaslt_without, cufft, cufft_without, cusolver, cusolver_without, nccl, nccl_without,
};
pub use cuda_sys::{CUresult, CudaVersion};
