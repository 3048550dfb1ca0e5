//! Random numbers: the seeds and states of the devices' default generators (`torch.cuda.random`).
//!
//! A state has torch's 16 bytes, as a host tensor of `uint8`. Seeding before the runtime has started takes effect when it
//! starts. Tensors with random elements are made by [`torch`](crate::torch).
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::torch;
//!
//! cuda_api::manual_seed(0)?;
//! let state = cuda_api::get_rng_state(None)?;
//! let first = torch::rand(&[3], torch::float32, "cuda")?.to_vec::<f32>()?;
//! assert_eq!(first, [0.39904648, 0.51667917, 0.024930386]);
//! cuda_api::set_rng_state(&state, None)?;
//! assert_eq!(torch::rand(&[3], torch::float32, "cuda")?.to_vec::<f32>()?, first);
//! # Ok::<(), torch::Error>(())
//! ```

use aten_cuda::{Generator, Result};
use c10_core::DeviceArg;

pub use aten_cuda::random::{
    default_generators, get_rng_state, get_rng_state_all, get_rng_state_offset, initial_seed, manual_seed,
    manual_seed_all, seed, seed_all, set_rng_state, set_rng_state_all, set_rng_state_offset,
};

/// The default generator of a device, the current one for `None`.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::torch;
///
/// cuda_api::get_generator("cuda:0")?.manual_seed(7)?;
/// assert_eq!(cuda_api::initial_seed()?, 7);
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// The runtime cannot start, or there is no such device.
#[doc(alias = "_get_generator")]
pub fn get_generator(device: impl DeviceArg) -> Result<Generator> {
    aten_cuda::random::default_generator(device)
}
