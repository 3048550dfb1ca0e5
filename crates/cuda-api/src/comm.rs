//! Tensors that go from device to device of one process (`torch.cuda.comm`, `torch.nn.parallel.comm`).
//!
//! Where torch has one function that takes either devices or outputs, there are two here: [`broadcast`] and
//! [`broadcast_out`], [`scatter`] and [`scatter_out`], [`gather`] and [`gather_out`]. What data-parallel programs do around
//! them is here too, for values of Rust: [`scatter_gather`], [`replicate`], [`parallel_apply`]. Everything else, the order of
//! the work above all, stands in [`aten_cuda::comm`].
//!
//! ```
//! # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
//! use cuda_api::{comm, torch};
//!
//! let weight = torch::full(&[2, 2], 3, torch::float32, "cuda:0")?;
//! let weights = comm::broadcast(&weight, &[0, 1])?;
//! let input = torch::ones(&[4, 2], torch::float32, "cuda:0")?;
//! let parts = comm::scatter(&input, &[0, 1], None, 0, &[])?;
//! let outputs = [torch::matmul(&parts[0], &weights[0])?, torch::matmul(&parts[1], &weights[1])?];
//! let output = comm::gather(&[&outputs[0], &outputs[1]], 0, 0)?;
//! assert_eq!((output.sizes(), output.to_vec::<f32>()?), (&[4, 2][..], vec![6.0; 8]));
//! # Ok::<(), torch::Error>(())
//! ```

pub use aten_cuda::CommError;
pub use aten_cuda::comm::{
    BUFFER_SIZE, GatherDestination, Gatherable, LinkClass, Measurement, Movement, Pattern, Replicable, Route,
    Scatterable, Topology, all_reduce_, broadcast, broadcast_coalesced, broadcast_out, forget_measurements, gather,
    gather_out, measure, parallel_apply, reduce_add, reduce_add_coalesced, replicate, route, scatter, scatter_gather,
    scatter_out, set_route,
};
