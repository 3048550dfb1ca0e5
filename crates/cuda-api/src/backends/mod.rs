//! `torch.backends`: how operations are computed, as settings of the process.

pub mod cuda;

pub use aten_cuda::blas::{Fp32Precision, fp32_precision, set_fp32_precision};
