//! Collectives by NCCL (`torch.cuda.nccl`): over the devices of one process, and over ranks in several threads or processes.
//!
//! Torch's functions take one tensor for each device. What torch passes as `streams` and `comms` is in [`Using`]; `init_rank` is
//! [`Communicator::init_rank`], whose methods are the collectives of one rank. Everything else, the order of the work and
//! what becomes of failures above all, stands in [`aten_cuda::nccl`].
//!
//! ```
//! # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
//! # cuda_api::nccl::set_library(Some(testkit::nccl()));
//! use cuda_api::{nccl, torch};
//!
//! let (one, two) = (torch::ones(&[3], torch::float32, "cuda:0")?, torch::ones(&[3], torch::float32, "cuda:1")?);
//! assert!(nccl::is_available(&[&one, &two]));
//! nccl::all_reduce(&[&one, &two], None, nccl::SUM, &nccl::Using::default())?;
//! assert_eq!(two.to_vec::<f32>()?, [2.0; 3]);
//! # Ok::<(), torch::Error>(())
//! ```

pub use aten_cuda::NcclError;
pub use aten_cuda::nccl::{
    Calls, Communicator, CtaPolicy, Factor, Memory, Options, ReduceOp, Registration, SUM, UniqueId, Using, all_gather,
    all_reduce, broadcast, group, is_available, loaded_library, reduce, reduce_scatter, set_library, unique_id,
    version,
};
