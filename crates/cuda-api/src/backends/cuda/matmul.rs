//! `torch.backends.cuda.matmul`: how precisely products of matrices are computed on CUDA devices.
//!
//! What is an attribute in torch is two functions here: one that answers and one that sets.
//!
//! ```
//! use cuda_api::backends::cuda::matmul;
//!
//! matmul::set_allow_tf32(true);
//! assert_eq!(matmul::fp32_precision().to_string(), "tf32");
//! matmul::set_fp32_precision("ieee")?;
//! assert!(matmul::allow_tf32().is_err(), "the older setting says otherwise");
//! matmul::set_allow_tf32(false);
//! matmul::set_allow_bf16_reduced_precision_reduction((false, false))?;
//! assert!(!matmul::allow_bf16_reduced_precision_reduction_split_k());
//! # matmul::set_allow_bf16_reduced_precision_reduction(true)?;
//! # Ok::<(), cuda_api::torch::Error>(())
//! ```

pub use aten_cuda::blas::{
    ReducedPrecision, allow_fp16_accumulation, allow_tf32, matmul_fp32_precision as fp32_precision,
    set_allow_fp16_accumulation, set_allow_tf32, set_matmul_fp32_precision as set_fp32_precision,
};

use aten_cuda::{Result, blas};

/// Whether sums of products of `f16` that are made of parts may add the parts in `f16`
/// (`torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction`). At first they may.
#[must_use]
pub fn allow_fp16_reduced_precision_reduction() -> bool {
    blas::fp16_reduction().is_reduced
}

/// Whether sums of products of `f16` may be made of parts at all
/// (`torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction_split_k`).
#[must_use]
pub fn allow_fp16_reduced_precision_reduction_split_k() -> bool {
    blas::fp16_reduction().may_split
}

/// Sets [`allow_fp16_reduced_precision_reduction`], or with a pair that and whether there may be parts.
///
/// # Errors
/// Reduced precision without parts.
pub fn set_allow_fp16_reduced_precision_reduction(value: impl Into<ReducedPrecision>) -> Result<()> {
    blas::set_fp16_reduction(value)
}

/// [`allow_fp16_reduced_precision_reduction`] of `bf16`.
#[must_use]
pub fn allow_bf16_reduced_precision_reduction() -> bool {
    blas::bf16_reduction().is_reduced
}

/// [`allow_fp16_reduced_precision_reduction_split_k`] of `bf16`.
#[must_use]
pub fn allow_bf16_reduced_precision_reduction_split_k() -> bool {
    blas::bf16_reduction().may_split
}

/// [`set_allow_fp16_reduced_precision_reduction`] of `bf16`.
///
/// # Errors
/// Reduced precision without parts.
pub fn set_allow_bf16_reduced_precision_reduction(value: impl Into<ReducedPrecision>) -> Result<()> {
    blas::set_bf16_reduction(value)
}
