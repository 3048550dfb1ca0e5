//! Attention: weights from the products of queries and keys, and the values' sum by these weights
//! (`torch.nn.functional.scaled_dot_product_attention`).
//!
//! There are two ways: one fused kernel for 16-bit floats on devices, which torch's names call flash attention and which
//! never has the weights in memory (`fused`), and tensor operations for everything else (`math`). The switches of
//! `settings` allow and forbid them; `params` answers which calls the kernel takes.
//!
//! ```
//! # testkit::make_default(testkit::Config::default()).unwrap();
//! use aten_cuda::attention::Attention;
//! use aten_cuda::{DType, Tensor};
//!
//! let ones = Tensor::ones(&[1, 2, 3, 8], DType::BF16, "cuda")?;
//! let causal = Attention { is_causal: true, ..Attention::default() };
//! let sum = ones.scaled_dot_product_attention(&ones, &ones, &causal)?;
//! assert_eq!(sum.to_dtype(DType::F32)?.to_vec::<f32>()?, [1.0; 48]);
//! # Ok::<(), aten_cuda::Error>(())
//! ```

mod fused;
mod math;
mod params;
mod settings;

pub use params::{
    SDPAParams, SDPBackend, can_use_cudnn_attention, can_use_efficient_attention, can_use_flash_attention,
    is_flash_attention_available,
};
pub(crate) use settings::AttentionSettings;
pub use settings::{
    SdpKernelGuard, SdpKernels, allow_fp16_bf16_reduction_math_sdp, cudnn_sdp_enabled, enable_cudnn_sdp,
    enable_flash_sdp, enable_math_sdp, enable_mem_efficient_sdp, flash_sdp_enabled,
    fp16_bf16_reduction_math_sdp_allowed, math_sdp_enabled, mem_efficient_sdp_enabled, sdp_kernel, with_sdp_kernel,
};

use crate::autocast::{self, Policies};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result, TensorError, invalid, refuse_float8};
use crate::tensor::{Context, Tensor, is_host};

/// The options of [`Tensor::scaled_dot_product_attention`], with torch's defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attention<'a> {
    /// Of booleans, which keys a query sees; of floats, what is added to the products. Broadcasts to
    /// (..., queries, keys).
    pub attn_mask: Option<&'a Tensor>,
    /// The probability that a weight is dropped; the others grow by `1 / (1 - dropout_p)`. Draws from the default
    /// generator of the device.
    pub dropout_p: f64,
    /// Whether a query sees only the keys up to its own number, counted from the first one. Not beside a mask.
    pub is_causal: bool,
    /// What the products are multiplied by; the inverse of the square root of the width without one.
    pub scale: Option<f64>,
    /// Whether each head of the keys and values serves as many heads of the queries, one after another, as divide evenly.
    pub enable_gqa: bool,
}

impl Tensor {
    /// Attention of these queries, (..., heads, queries, width): `softmax(scale * query @ key^T + mask) @ value` for
    /// `key` (..., heads, keys, width) and `value` (..., heads, keys, any width), of one floating dtype
    /// (`torch.nn.functional.scaled_dot_product_attention`). The result, (..., heads, queries, width of the values), has
    /// their dtype. A query that sees no key gives zeros.
    ///
    /// The fused kernel computes what [`can_use_flash_attention`] accepts, and gives the same bits at every run; else
    /// tensor operations do, 16-bit floats in `f32` ([`allow_fp16_bf16_reduction_math_sdp`]). On a device it is queued on
    /// the current stream.
    ///
    /// # Errors
    /// The sizes, dtypes or devices do not fit together, there is a mask and `is_causal`, the probability is not in
    /// [0, 1], the switches forbid every way that could compute the call, there is not enough memory, or the device
    /// failed.
    pub fn scaled_dot_product_attention(&self, key: &Self, value: &Self, options: &Attention<'_>) -> Result<Self> {
        let policies = const { Policies::of("scaled_dot_product_attention") };
        let operands = [Some(self), Some(key), Some(value), options.attn_mask];
        if let Some((_inside, [query, key, value, attn_mask])) = autocast::cast_optional(policies, operands)?
            && let (Some(query), Some(key), Some(value)) = (query, key, value)
        {
            let options = Attention { attn_mask: attn_mask.as_ref(), ..*options };
            return query.scaled_dot_product_attention(&key, &value, &options);
        }
        let run = || {
            check(self, key, value, options)?;
            let Attention { attn_mask, dropout_p, is_causal, enable_gqa, .. } = *options;
            let params = SDPAParams::new(self, key, value, attn_mask, dropout_p, is_causal, enable_gqa);
            match fused_sdp_choice(&params) {
                SDPBackend::FlashAttention => fused::attend(self, key, value, options),
                SDPBackend::Math => math::attend(self, key, value, options),
                _ => Err(none_allowed(&params)),
            }
        };
        run().of("scaled_dot_product_attention", &[self, key, value])
    }
}

/// The way that a call is computed, of those that are allowed (`torch._fused_sdp_choice`).
#[must_use]
pub fn fused_sdp_choice(params: &SDPAParams) -> SDPBackend {
    // On the host both ways are tensor operations.
    let is_allowed = math_sdp_enabled() || is_host(params.query.device()) && flash_sdp_enabled();
    if can_use_flash_attention(params, false) {
        SDPBackend::FlashAttention
    } else if is_allowed {
        SDPBackend::Math
    } else {
        SDPBackend::Error
    }
}

/// The error of a call that no allowed way computes. As in torch, warnings say why.
fn none_allowed(params: &SDPAParams) -> Error {
    let SdpKernels { enable_flash, enable_math, enable_mem_efficient, enable_cudnn } = SdpKernels::current();
    if !(enable_flash || enable_math || enable_mem_efficient || enable_cudnn) {
        return invalid(
            "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the \
             math kernel and the fused kernels.",
        );
    }
    for can_use in [can_use_efficient_attention, can_use_flash_attention, can_use_cudnn_attention] {
        let _ = can_use(params, true);
    }
    invalid("No available kernel. Aborting execution.")
}

/// What torch checks before it looks for a way.
fn check(query: &Tensor, key: &Tensor, value: &Tensor, options: &Attention<'_>) -> Result<()> {
    let tensors = [query, key, value];
    let [first, second, third] = tensors.map(Tensor::dtype);
    if second != first || third != first {
        let [first, second, third] = [first, second, third].map(DType::cpp_name);
        return Err(invalid(format!(
            "Expected query, key, and value to have the same dtype, but got query.dtype: {first} key.dtype: {second} and \
             value.dtype: {third} instead."
        )));
    }
    let [first, second, third] = tensors.map(Tensor::device);
    if second != first || third != first {
        return Err(invalid(format!(
            "Expected query, key, and value to have the same device type, but got query.device: {first} key.device: \
             {second} and value.device: {third} instead."
        )));
    }
    let [first, second, third] = tensors.map(Tensor::dim);
    if first < 2 || second < 2 || third < 2 {
        return Err(invalid(format!(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: {first} key.dim: \
             {second} and value.dim: {third} instead."
        )));
    }
    if let Some(mask) = options.attn_mask {
        check_mask(query, mask, options)?;
    }
    if !(0.0..=1.0).contains(&options.dropout_p) {
        let p = options.dropout_p;
        return Err(invalid(format!("dropout probability has to be between 0 and 1, but got {p}")));
    }
    check_dtype(query)?;
    if options.enable_gqa { check_groups(query, key, value) } else { Ok(()) }
}

fn check_dtype(query: &Tensor) -> Result<()> {
    let dtype = query.dtype();
    if dtype.is_complex() {
        let kernel = if is_host(query.device()) { "softmax_lastdim_kernel_impl" } else { "host_softmax" };
        return Err(TensorError::NotImplemented { kernel: kernel.to_owned(), dtype }.into());
    }
    refuse_float8("mul_cuda", dtype)?;
    if dtype.is_floating_point() {
        return Ok(());
    }
    Err(invalid(format!("expected scalar type Float but found {}", dtype.scalar_type_name())))
}

fn check_mask(query: &Tensor, mask: &Tensor, options: &Attention<'_>) -> Result<()> {
    let (dtype, own) = (mask.dtype(), query.dtype());
    if dtype != DType::Bool && dtype != DType::F32 && dtype != own {
        let (dtype, own) = (dtype.cpp_name(), own.cpp_name());
        return Err(invalid(format!(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {dtype} and  \
             query.dtype: {own} instead."
        )));
    }
    if options.is_causal {
        return Err(invalid("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"));
    }
    Ok(())
}

fn check_groups(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<()> {
    if query.dim() < 3 || key.dim() < 3 || value.dim() < 3 {
        return Err(TensorError::DimOutOfRange { dim: -3, low: -2, high: 1 }.into());
    }
    let [first, second, third] = [query, key, value].map(|tensor| tensor.sizes()[tensor.dim() - 3]);
    let divides = |own: i64| own > 0 && first % own == 0;
    if !divides(second) || !divides(third) {
        return Err(invalid("Number of heads in key and value must divide the number of heads in query"));
    }
    Ok(())
}
