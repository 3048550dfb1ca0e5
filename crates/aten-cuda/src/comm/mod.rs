//! Tensors that go from device to device of one process (`torch.cuda.comm`, `torch.nn.parallel.comm`).
//!
//! Reading order: this file (devices, settings), `transfer` (copies and their order), `topology` (links), `route` (which way a
//! broadcast takes), `choice` (NCCL, where it is quicker), `broadcast`, `reduce`, `scatter`, `gather`, `coalesced` (many small tensors at once), `pattern` and `all_reduce`
//! (sums on all devices, in a ring or a tree), `parallel` (values of Rust on several devices).
//!
//! Nothing here waits, but what copies to memory of the host that is not pinned. Work is queued on the current streams of
//! the devices that take part: it begins after what is queued there, and later work there comes after it. Where kernels of
//! one device reach another's memory, sums are computed by one kernel that reads there.
//!
//! Complex tensors that are broadcast, scattered or gathered are taken as real ones with a last dimension of two, and come
//! back as such, as in torch; sums of complex tensors are complex. Where torch has one function that takes either devices
//! or outputs, there are two here, so that its errors about both have no counterpart.
//!
//! ```
//! # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
//! use aten_cuda::{DType, Tensor, comm};
//!
//! let weight = Tensor::full(&[4, 3], 2, DType::F32, "cuda:0")?;
//! let weights = comm::broadcast(&weight, &[0, 1])?;
//! assert_eq!(weights[0].data_ptr(), weight.data_ptr());
//! let inputs = comm::scatter(&Tensor::arange(0, 6, 1, Some(DType::F32), "cpu")?.view(&[2, 3])?, &[0, 1], None, 0, &[])?;
//! let products = [inputs[0].matmul(&weights[0].t()?)?, inputs[1].matmul(&weights[1].t()?)?];
//! let all = comm::gather(&[&products[0], &products[1]], 0, "cpu")?;
//! assert_eq!(all.to_vec::<f32>()?, [6.0, 6.0, 6.0, 6.0, 24.0, 24.0, 24.0, 24.0]);
//! let sum = comm::reduce_add(&[&products[0], &products[1]], 1)?;
//! assert_eq!(sum.to_vec::<f32>()?, [30.0; 4]);
//! # Ok::<(), aten_cuda::Error>(())
//! ```
//!
//! **Invariants:** an operation that fails leaves nothing behind but what it has written into outputs. A tensor that is
//! where it is wanted is handed on as it is.

mod all_reduce;
mod broadcast;
mod choice;
mod coalesced;
mod gather;
mod parallel;
mod pattern;
mod reduce;
mod route;
mod scatter;
mod topology;
mod transfer;

pub use all_reduce::all_reduce_;
pub use broadcast::{broadcast, broadcast_out};
pub use choice::{Measurement, Movement, forget_measurements, measure};
pub use coalesced::{broadcast_coalesced, reduce_add_coalesced};
pub use gather::{GatherDestination, gather, gather_out};
pub use parallel::{Gatherable, Replicable, Scatterable, parallel_apply, replicate, scatter_gather};
pub use pattern::Pattern;
pub use reduce::reduce_add;
pub use route::{Route, route, set_route};
pub use scatter::{scatter, scatter_out};
pub use topology::{LinkClass, Topology};

use c10_core::{DeviceArg, DeviceIndex, Runtime};

use crate::base::comm_error::CommError;
use crate::base::error::Result;
use crate::tensor::Tensor;

/// Bytes of the buffers in which small tensors are brought together, unless others are asked for (`buffer_size`).
pub const BUFFER_SIZE: usize = 10_485_760;

/// The numbers of devices.
fn resolved<D: DeviceArg + Clone>(devices: &[D]) -> Result<Vec<DeviceIndex>> {
    Runtime::with_current(|runtime| devices.iter().map(|device| Ok(device.clone().resolve(runtime)?)).collect())
}

/// Refuses a number below zero.
fn not_negative(device: DeviceIndex) -> Result<DeviceIndex> {
    if device < 0 { Err(CommError::NegativeDevice { device }.into()) } else { Ok(device) }
}

/// The CUDA device of a tensor.
fn device_of(tensor: &Tensor) -> Option<DeviceIndex> {
    tensor.is_cuda().then(|| tensor.device().index.unwrap_or(0))
}

/// A complex tensor as a real one with a last dimension of two; others as they are.
fn as_real(tensor: &Tensor) -> Result<Tensor> {
    if tensor.dtype().is_complex() { tensor.view_as_real() } else { Ok(tensor.clone()) }
}
