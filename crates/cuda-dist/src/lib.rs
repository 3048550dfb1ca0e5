//! Groups of processes with CUDA devices: what `torch.distributed` is above NCCL.
//!
//! Ranks meet at a [`Store`] ([`Rendezvous`]; `torchrun`, `mpirun` and Slurm say who they are), and form a [`ProcessGroup`],
//! whose collectives, by NCCL or by the store, give [`Work`] to wait for. A watch-dog ends what does not end by itself, and says who is missing.
//!
//! ```
//! # testkit::make_default(testkit::Config::default()).unwrap();
//! use std::sync::Arc;
//!
//! use aten_cuda::Tensor;
//! use cuda_dist::{HashStore, InitOptions, ProcessGroup, ReduceOp};
//!
//! // Two ranks in one process; in two processes each calls `ProcessGroup::init("env://", ...)`.
//! let store = HashStore::new();
//! let rank = |rank: usize, store: HashStore| {
//!     let group = ProcessGroup::with_store(Arc::new(store), rank, 2, &InitOptions::default())?;
//!     let tensor = Tensor::from_slice(&[rank as f32 + 1.0; 2], &[2])?;
//!     group.all_reduce(&tensor, ReduceOp::Sum)?.wait()?;
//!     Ok::<_, cuda_dist::Error>(tensor.to_vec::<f32>()?)
//! };
//! let other = std::thread::spawn({ let store = store.clone(); move || rank(1, store) });
//! assert_eq!(rank(0, store)?, [3.0, 3.0]);
//! assert_eq!(other.join().unwrap()?, [3.0, 3.0]);
//! # Ok::<(), cuda_dist::Error>(())
//! ```
//!
//! # Files
//! And folders, from the lowest up, which is the reading order; each imports only those before it:
//!
//! - `reduce`: how values become one
//! - `call`: what a rank called
//! - `report`: what is said of a collective that did not end
//! - `error`: what can go wrong (it carries calls and reports)
//! - `settings`: torch's variables
//! - `store`: values that all ranks see
//! - `rendezvous`: where ranks meet
//! - `backend`: what moves values between ranks
//! - `group`: groups, works, the watch-dog
//!
//! # Invariants
//! - Nothing waits for another process without a time-out, and each error says which ranks it is about.
//! - What other processes send costs bounded memory and time, and is checked before it is used.
//! - Ranks are never started here: `torchrun`, `mpirun`, Slurm or Kubernetes do that.
#![forbid(unsafe_code)]

/// README examples, run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[derive(Debug)]
pub struct Readme;

mod backend;
mod call;
mod error;
mod group;
mod reduce;
mod rendezvous;
mod report;
mod settings;
mod store;

pub use call::{Call, Operation};
pub use error::{Error, Result};
pub use group::{BackendKind, GroupOptions, InitOptions, P2POp, ProcessGroup, Work};
pub use reduce::ReduceOp;
pub use rendezvous::{Launch, Rendezvous, RendezvousOptions};
pub use report::{Life, RankState, Report};
pub use settings::{ErrorHandling, Settings};
#[doc(hidden)]
pub use store::tcp::serve_bytes;
pub use store::tcp::{Limits, TcpServerOptions, TcpStore, TcpStoreOptions, TcpStoreServer};
pub use store::{FileStore, HashStore, PrefixStore, Store};
