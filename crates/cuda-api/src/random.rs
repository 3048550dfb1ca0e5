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

pub use aten_cuda::random::{
    get_rng_state, get_rng_state_all, get_rng_state_offset, initial_seed, manual_seed, manual_seed_all, seed, seed_all,
    set_rng_state, set_rng_state_all, set_rng_state_offset,
};
