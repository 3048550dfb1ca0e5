//! Files to and from the memory of CUDA devices: `torch.cuda.gds`, and files of the safetensors format.
//!
//! [`gds`] has torch's names: a [`gds::GdsFile`] reads a storage of a device from a file and writes it there. Where cuFile
//! moves bytes between disk and device without the host's memory, it does; everywhere else the same calls go through
//! pinned buffers, with several requests under way, and past the page cache where the file system allows it.
//! [`gds::GdsFile::route`] says truly which way a file is served, and why.
//!
//! With the feature `safetensors`, the module of that name loads files of tensors straight onto a device, and saves them.
//!
//! ```
//! # testkit::make_default(testkit::Config::default()).unwrap();
//! use aten_cuda::Tensor;
//! use cuda_storage::gds::{GdsFile, OpenFlags};
//!
//! # let path = std::env::temp_dir().join(format!("cuda-storage-doc-{}", std::process::id()));
//! let saved = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], &[4])?.cuda(None)?;
//! let file = GdsFile::new(&path, OpenFlags::RDWR | OpenFlags::CREAT)?;
//! file.save_storage(saved.storage(), 0)?;
//!
//! let loaded = Tensor::from_slice(&[0.0_f32; 4], &[4])?.cuda(None)?;
//! file.load_storage(loaded.storage(), 0)?;
//! assert_eq!(loaded.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
//! assert!(!file.route().is_direct, "{}", file.route());
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Files
//! From the lowest up, which is the reading order; each imports only those before it:
//!
//! - `error`: what can go wrong
//! - `route`: which way a file is served
//! - `options`: how a transfer is cut into requests
//! - `residency`: whether a file is in the page cache
//! - `disk`: files with and without the page cache
//! - `plan`: which bytes of a file go where, and in which requests
//! - `slot`: pinned memory with a stream of its own
//! - `uring`: requests by `io_uring`
//! - `transfer`: reading and writing by several threads
//! - `cufile`: the library
//! - `gds`: torch's names
//! - `safetensors`: files of tensors
//!
//! # Invariants
//! - A transfer is done when its function returns; before it begins, it waits for the work of the current stream on the
//!   device, not on the host.
//! - What an error leaves in a device's memory is undefined within the range that was to be read, and nowhere else.
//! - A file that is saved under a name replaces the one of that name when it is whole.
#![deny(unsafe_code)]

/// README examples, run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

mod cufile;
mod disk;
mod error;
pub mod gds;
mod options;
mod plan;
#[cfg(feature = "safetensors")]
mod residency;
mod route;
#[cfg(feature = "safetensors")]
pub mod safetensors;
mod slot;
mod transfer;
#[cfg(feature = "io-uring")]
mod uring;

pub use error::{CufileCause, Error, Result};
pub use options::{Options, PageCache};
pub use route::{Requests, Route};
