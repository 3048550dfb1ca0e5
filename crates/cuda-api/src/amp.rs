//! Automatic mixed precision (`torch.amp`, `torch.cuda.amp`): regions in which operations choose their dtypes, and a scaler
//! for gradients in 16 bits.
//!
//! What is a context manager in torch is a guard ([`autocast()`]) and a closure ([`with_autocast`]) here. `torch.cuda.amp` has
//! the same names for CUDA devices alone: its `autocast(...)` is `autocast("cuda", ...)`, its `GradScaler(...)`
//! `GradScaler::new("cuda", ...)`. Which operation does what is [`policy`] and [`operations`]; which casts are kept stands in
//! [`aten_cuda::autocast`].
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::amp::{self, GradScaler};
//! use cuda_api::torch;
//!
//! let mut scaler = GradScaler::new("cuda", ())?;
//! let weight = torch::ones(&[2, 2], torch::float32, "cuda")?.as_parameter();
//! let input = torch::full(&[4, 2], 0.5, torch::float32, "cuda")?;
//! for _ in 0..3 {
//!     // The mean of the product's elements; its gradient for the product is an eighth everywhere.
//!     let gradient = {
//!         let _region = amp::autocast("cuda", torch::float16)?;
//!         let product = torch::matmul(&input, &weight)?;
//!         assert_eq!(product.dtype(), torch::float16);
//!         let loss = torch::full(&[4, 2], 0.125, torch::float32, "cuda")?;
//!         torch::matmul(&input.t()?, &scaler.scale(&loss)?)?.to_dtype(torch::float32)?
//!     };
//!     scaler.step((), &[&gradient], || weight.sub_(&gradient).map(drop))?;
//!     scaler.update()?;
//! }
//! assert_eq!(weight.to_vec::<f32>()?, [0.25; 4]);
//! # Ok::<(), torch::Error>(())
//! ```

pub use aten_cuda::autocast::{
    Autocast, AutocastGuard, AutocastState, FwdContext, Policy, ToDeviceType, autocast, cached_casts, custom_bwd,
    custom_fwd, is_autocast_available, operations, policy, with_autocast,
};
pub use aten_cuda::{
    AmpError, GradScaler, GradScalerOptions, GradScalerState, OptimizerKey, amp_foreach_non_finite_check_and_unscale_,
    amp_update_scale_,
};

/// Whether regions and scalers for CUDA devices are disabled: there are no such devices
/// (`torch.cuda.amp.common.amp_definitely_not_available`).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// assert!(!cuda_api::amp::amp_definitely_not_available());
/// # Ok::<(), cuda_api::Error>(())
/// ```
#[must_use]
pub fn amp_definitely_not_available() -> bool {
    !crate::is_available()
}
