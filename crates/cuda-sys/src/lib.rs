//! Raw bindings of NVIDIA's libraries, loaded at run time.
//!
//! Nothing is linked: a program built with this crate starts on a machine without a GPU, and finds out what the
//! installed driver can do when it asks. Building needs no CUDA toolkit, no headers, no clang and no GPU.
//!
//! For each library there is one module with the same parts: `types` and `functions` (generated), a status type with
//! names and texts from built-in tables, and one struct that holds the library's functions. [`Nvml`] is
//! libnvidia-ml, [`Cublas`], [`CublasLt`], [`Cusolver`], [`Cufft`], [`Cufile`],
//! [`Nvrtc`] and [`NvJitLink`] are libraries of the toolkit, [`Nccl`] is libnccl, [`Driver`] is libcuda:
//!
//! ```no_run
//! let driver = cuda_sys::Driver::load()?;
//! let mut count = 0;
//! // Sound because `count` outlives the call.
//! unsafe { driver.cuDeviceGetCount(&mut count) }?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is raw and what is checked
//! - Every function of the header is an `unsafe fn` of the same name on the struct; its duties are those of the C
//!   function. No call is retried, cached, traced or reordered here.
//! - A status other than success becomes an error that names the call ([`CallError`]).
//! - A function the installed library lacks is an error that names the symbol, the version that has it and the
//!   version found. Nothing panics.
//! - Status codes and all other C enums are open newtypes: a newer library may answer with a code this crate has no
//!   name for, and it is passed on as it is.
//!
//! # Loading
//! `load()` searches, `load_from(path)` opens one file, `from_functions(table)` takes functions from anywhere. A
//! simulated driver enters through the second or third door like any other.
//!
//! # Safety
//! Unsafe code is this crate's purpose: foreign functions, and pointers to them found by name.
#![expect(unsafe_code, reason = "foreign functions and symbols found at run time")]

/// README examples, run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

mod error;
mod loader;
mod places;
mod plugin;
mod table;
mod toolkit;
mod unversioned;
mod version;

pub mod cublas;
pub mod cublaslt;
pub mod cufft;
pub mod cufile;
pub mod cusolver;
pub mod driver;
pub mod nccl;
pub mod nvjitlink;
pub mod nvml;
pub mod nvrtc;
pub mod nvtx;

pub use cublas::{Cublas, CublasError, cublasStatus_t};
pub use cublaslt::CublasLt;
pub use cufft::{Cufft, CufftError, cufftResult};
pub use cufile::{CUfileError_t, CUfileOpError, Cufile, CufileError};
pub use cusolver::{Cusolver, CusolverError, cusolverStatus_t};
pub use driver::{CUresult, Driver, DriverError};
pub use error::{CallError, MissingFunction, Status};
pub use loader::{Attempt, LoadError, Outcome};
pub use nccl::{Nccl, NcclError, ncclResult_t};
pub use nvjitlink::{NvJitLink, NvJitLinkError, nvJitLinkResult};
pub use nvml::{Nvml, NvmlError, nvmlReturn_t};
pub use nvrtc::{Nvrtc, NvrtcError, nvrtcResult};
pub use plugin::PluginLibrary;
pub use table::FunctionInfo;
pub use version::{CudaVersion, LibraryVersion};
