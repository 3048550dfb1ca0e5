//! Tensors on CUDA devices that several processes use (`torch.multiprocessing`, its part about CUDA).
//!
//! There is no queue and no pickling here: [`reductions::reduce_tensor`], or [`Tensor::share`], gives a description whose
//! bytes the program passes on by whatever it has, and [`reductions::rebuild_cuda_tensor`], or [`Tensor::from_shared`], makes
//! the tensor in the other process. Nothing is copied, and both use the same memory. What torch asks of its users holds here
//! where it must:
//!
//! - The sender keeps the memory until the receiver has dropped the tensor or has ended, however it ends.
//!   [`ipc_collect`](crate::ipc_collect) looks for what can be freed; so does sharing, a request for memory
//!   that finds nothing cached, and running out of memory.
//! - A description that nobody opens keeps the memory: [`release_ipc_counter`] takes it back.
//! - When the sender ends, its memory stays with those who have opened it, and nobody else can open it.
//! - A forked child can use no CUDA: start processes anew (torch's `spawn`).
//!
//! Beyond torch, a received tensor may be shared on and back, and memory in pages (expandable segments, the elastic backend)
//! is shared in containers too.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::multiprocessing::{SharedTensor, reductions, release_ipc_counter};
//! use cuda_api::torch;
//!
//! let tensor = torch::ones(&[4], torch::float32, "cuda")?;
//! let shared = reductions::reduce_tensor(&tensor)?;
//! let bytes = shared.to_bytes(); // For a pipe to the other process, which says:
//! let there = reductions::rebuild_cuda_tensor(&SharedTensor::from_bytes(&bytes)?)?;
//! assert_eq!(there.data_ptr(), tensor.data_ptr(), "the sender itself gets its own memory");
//! release_ipc_counter(reductions::reduce_tensor(&tensor)?.memory())?; // Nobody will open this one.
//! # Ok::<(), torch::Error>(())
//! ```
//!
//! [`Tensor::share`]: crate::torch::Tensor::share
//! [`Tensor::from_shared`]: crate::torch::Tensor::from_shared

use aten_cuda::Result;
use c10_core::Runtime;

pub use aten_cuda::SharedTensor;
pub use c10_core::SharedBuffer;

/// Tensors as what other processes make them of (`torch.multiprocessing.reductions`).
pub mod reductions {
    use aten_cuda::{Result, SharedTensor, Tensor};

    /// Describes a tensor for another process; see [`Tensor::share`].
    ///
    /// # Errors
    /// As there.
    pub fn reduce_tensor(tensor: &Tensor) -> Result<SharedTensor> {
        tensor.share()
    }

    /// The tensor that another process has described; see [`Tensor::from_shared`].
    ///
    /// # Errors
    /// As there.
    pub fn rebuild_cuda_tensor(shared: &SharedTensor) -> Result<Tensor> {
        Tensor::from_shared(shared)
    }
}

/// Says that shared memory will not be opened, in the sender or in the process that was to receive it
/// (`torch.UntypedStorage._release_ipc_counter`); see [`c10_core::Ipc::release`].
///
/// # Errors
/// As there.
pub fn release_ipc_counter(shared: &SharedBuffer) -> Result<()> {
    Ok(Runtime::with_current(|runtime| runtime.ipc().release(shared))?)
}
