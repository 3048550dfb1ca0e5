//! Functions of neural networks (`torch.nn.functional`).
//!
//! ```
//! use cuda_api::torch::{self, functional as F};
//!
//! let logits = torch::tensor(&[2.0_f32, 0.0, 0.0, 2.0], &[2, 2])?;
//! let classes = torch::tensor(&[0_i64, 1], &[2])?;
//! let loss = F::cross_entropy(&logits, &classes, &F::CrossEntropy::default())?;
//! assert!((loss.item()?.to_f64() - 0.126928).abs() < 1e-6);
//! assert_eq!(F::relu(&torch::tensor(&[-1.0_f32, 2.0], &[2])?)?.to_vec::<f32>()?, [0.0, 2.0]);
//! # Ok::<(), torch::Error>(())
//! ```

use aten_cuda::{Result, Scalar, Tensor};

pub use aten_cuda::attention::Attention;
pub use aten_cuda::{CrossEntropy, LossReduction};

pub use super::pointwise::{relu, sigmoid, tanh};
pub use super::reduce::{log_softmax, softmax};

use super::pointwise::unary;

unary! {
    /// The logarithm of [`Tensor::sigmoid`] (`torch.nn.functional.logsigmoid`).
    logsigmoid;
    /// Each element times the part of the normal distribution below it (`torch.nn.functional.gelu`).
    gelu;
    /// [`Tensor::gelu`] by way of a hyperbolic tangent (`torch.nn.functional.gelu` with `approximate="tanh"`).
    gelu_tanh;
    /// Each element times its [`Tensor::sigmoid`] (`torch.nn.functional.silu`).
    silu;
    /// Each element times the hyperbolic tangent of its softplus (`torch.nn.functional.mish`).
    mish;
}

/// `input @ weight.t() + bias` (`torch.nn.functional.linear`); see [`Tensor::linear`].
///
/// # Errors
/// As for the method.
pub fn linear<'a>(input: &Tensor, weight: &Tensor, bias: impl Into<Option<&'a Tensor>>) -> Result<Tensor> {
    input.linear(weight, bias)
}

/// Each element, times `negative_slope` where it is negative (`torch.nn.functional.leaky_relu`). The result has the sizes
/// of `input`; see [`Tensor::leaky_relu`].
///
/// # Errors
/// As for [`relu`].
pub fn leaky_relu(input: &Tensor, negative_slope: impl Into<Scalar>) -> Result<Tensor> {
    input.leaky_relu(negative_slope)
}

/// Each element held between two numbers (`torch.nn.functional.hardtanh`). The result has the sizes of `input`; see
/// [`Tensor::hardtanh`].
///
/// # Errors
/// As for [`relu`].
pub fn hardtanh(input: &Tensor, min_val: impl Into<Scalar>, max_val: impl Into<Scalar>) -> Result<Tensor> {
    input.hardtanh(min_val, max_val)
}

/// The logarithm of one plus e to the power of `beta` times each element, divided by `beta`; the element itself where
/// that product is above `threshold` (`torch.nn.functional.softplus`). See [`Tensor::softplus`].
///
/// # Errors
/// As for [`relu`].
pub fn softplus(input: &Tensor, beta: impl Into<Scalar>, threshold: impl Into<Scalar>) -> Result<Tensor> {
    input.softplus(beta, threshold)
}

/// The rows of `weight` that `input` names, `input`'s sizes and then the length of a row (`torch.nn.functional.embedding`).
/// See [`Tensor::embedding`].
///
/// # Errors
/// `weight` is no matrix, `input` has no indices, one does not exist, there is not enough memory, or the device failed.
pub fn embedding(input: &Tensor, weight: &Tensor) -> Result<Tensor> {
    weight.embedding(input)
}

/// The elements of the last dimensions less their mean, over their deviation (`torch.nn.functional.layer_norm`); see
/// [`Tensor::layer_norm`].
///
/// # Errors
/// As for the method.
pub fn layer_norm(
    input: &Tensor,
    normalized_shape: &[i64],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    input.layer_norm(normalized_shape, weight, bias, eps)
}

/// The cross entropy of logits and targets (`torch.nn.functional.cross_entropy`); see [`Tensor::cross_entropy`].
///
/// # Errors
/// As for the method.
pub fn cross_entropy(input: &Tensor, target: &Tensor, options: &CrossEntropy<'_>) -> Result<Tensor> {
    input.cross_entropy(target, options)
}

/// Elements dropped with the probability `p`, the others times `1 / (1 - p)` (`torch.nn.functional.dropout`), by the
/// default generator of the device; see [`Tensor::dropout`].
///
/// # Errors
/// As for the method.
pub fn dropout(input: &Tensor, p: f64, training: bool) -> Result<Tensor> {
    input.dropout(p, training)
}

/// The values' sums by the weights that softmax makes of the products of queries and keys
/// (`torch.nn.functional.scaled_dot_product_attention`): `query` (..., heads, queries, width), `key` and `value`
/// (..., heads, keys, width), of one floating dtype. The result, (..., heads, queries, width of the values), has that
/// dtype; on a device it is queued on the current stream. See [`Tensor::scaled_dot_product_attention`], and
/// [`crate::backends::cuda`] for the switches.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::torch::{self, functional as F};
///
/// let (q, k) = (torch::ones(&[1, 4, 5, 8], torch::float16, "cuda")?, torch::ones(&[1, 2, 7, 8], torch::float16, "cuda")?);
/// let options = F::Attention { enable_gqa: true, scale: Some(0.125), ..F::Attention::default() };
/// let out = F::scaled_dot_product_attention(&q, &k, &k, &options)?;
/// assert_eq!(out.sizes(), [1, 4, 5, 8]);
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// As for the method.
pub fn scaled_dot_product_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    options: &Attention<'_>,
) -> Result<Tensor> {
    query.scaled_dot_product_attention(key, value, options)
}
