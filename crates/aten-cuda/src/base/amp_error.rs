//! What can go wrong with automatic mixed precision. The texts are torch's, where it has one.

use crate::base::dtype::DType;

/// Why a loss or gradients cannot be scaled yet, in torch's words.
const FIX: &str = "This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration.";

/// A region of autocast that cannot be entered, an operation that is refused in one, or a gradient scaler that is called
/// out of turn.
///
/// ```
/// use aten_cuda::{AmpError, Error, autocast};
///
/// let refused = autocast::autocast("xpu", ()).unwrap_err();
/// assert!(matches!(refused, Error::Amp(AmpError::DeviceType { .. })));
/// assert_eq!(refused.to_string(), "User specified an unsupported autocast device_type 'xpu'");
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AmpError {
    /// There is no autocast for devices of this kind.
    #[error("User specified an unsupported autocast device_type '{name}'")]
    DeviceType {
        /// The kind as it was given.
        name: String,
    },
    /// Operations cannot run in this dtype: it is no float of 16 bits or more.
    #[error("autocast: expected a floating point dtype of 16 bits or more, but got {dtype}")]
    Dtype {
        /// The dtype.
        dtype: DType,
    },
    /// `binary_cross_entropy` in a region of autocast.
    #[error(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n\
         Many models use a sigmoid layer right before the binary cross entropy layer.\n\
         In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n\
         or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n\
         safe to autocast."
    )]
    BinaryCrossEntropy,
    /// An operation whose operands are brought to one dtype has floats of another kind than those of the region.
    #[error("Unexpected floating ScalarType in at::autocast::prioritize")]
    Promotion {
        /// The dtype that is neither `f32`, `f64` nor that of the region.
        dtype: DType,
    },
    /// An operation whose operands are brought to one dtype, in a region of `f64`.
    #[error("promote type is double in at::autocast::prioritize")]
    DoublePromotion,
    /// Graphed callables are made in a region that keeps casts.
    #[error("make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`.")]
    GraphedWithCache,
    /// The growth factor of a scaler is not above 1.
    #[error("The growth factor must be > 1.0.")]
    GrowthFactor {
        /// The factor.
        factor: f64,
    },
    /// The backoff factor of a scaler is not below 1.
    #[error("The backoff factor must be < 1.0.")]
    BackoffFactor {
        /// The factor.
        factor: f64,
    },
    /// Nothing was scaled yet.
    #[error("Attempted {call} but _scale is None.  {FIX}")]
    NoScale {
        /// What was called.
        call: &'static str,
    },
    /// The gradients of an optimizer are unscaled a second time.
    #[error("unscale_() has already been called on this optimizer since the last update().")]
    UnscaledTwice,
    /// The gradients of an optimizer are unscaled after its step.
    #[error("unscale_() is being called after step().")]
    UnscaledAfterStep,
    /// An optimizer steps a second time.
    #[error("step() has already been called since the last update().")]
    SteppedTwice,
    /// Gradients are of `f16`: what is too small for it was lost before they could be unscaled.
    #[error("Attempting to unscale FP16 gradients.")]
    HalfGradients,
    /// An optimizer steps that has no gradients.
    #[error("No inf checks were recorded for this optimizer.")]
    NoChecks,
    /// The scale is updated when no gradients were unscaled.
    #[error("No inf checks were recorded prior to update.")]
    NoChecksBeforeUpdate,
    /// A new scale is no tensor of one float on a device of the scaler's kind.
    #[error(
        "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with requires_grad=False."
    )]
    NewScale,
    /// A state is empty.
    #[error("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")]
    EmptyState,
    /// Gradients of several dtypes or devices, or of one that is no float, are unscaled in one call.
    #[error("Tensors of the same index must be on the same device and the same dtype")]
    Gradients,
    /// A scale, its inverse or a flag is no tensor of one `f32`, or no one of its kind on the right device.
    #[error("{what} must be {wanted}")]
    Flag {
        /// Which tensor.
        what: &'static str,
        /// What it has to be.
        wanted: &'static str,
    },
}
