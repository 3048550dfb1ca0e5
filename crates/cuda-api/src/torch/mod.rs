//! The names of `torch` itself: tensors, dtypes and the functions that make and combine them.
//!
//! What is a method in torch is a method of [`Tensor`]; functions that torch has besides are here. Where torch has keyword
//! arguments with defaults, the functions take `impl Into<Option<…>>`, so that `None` and a plain value both work.
//!
//! The functions stand in files by what they do: tensors from values (`make`), elements at the same place
//! (`pointwise`), conjugates (`conjugate`), all elements along dimensions (`reduce`), joining, views, indices and order
//! (`join`), products of matrices (`matrix`), random numbers (`random`), what is asked of all operations (`settings`, `autocast`).
//! Those of `torch.nn.functional` are in [`functional`].
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
//! use cuda_api::torch;
//!
//! let a = torch::ones(&[2, 3], torch::float32, "cuda")?;
//! let b = torch::full(&[3, 2], 0.5, torch::float32, "cuda")?;
//! let product = torch::matmul(&a, &b)?;
//! assert_eq!(product.to_vec::<f32>()?, [1.5; 4]);
//! # Ok::<(), torch::Error>(())
//! ```

#![expect(non_upper_case_globals, reason = "the names are torch's")]

mod autocast;
mod conjugate;
/// Fourier transforms (`torch.fft`).
pub mod fft {
    pub use aten_cuda::fft::{Norm, fft, ifft, irfft, rfft};
}
pub mod functional;
/// Factorisations of matrices (`torch.linalg`).
pub mod linalg {
    pub use aten_cuda::LinalgError;
    pub use aten_cuda::linalg::{cholesky, qr, solve, svd, svdvals};
}
mod join;
mod make;
mod matrix;
mod pointwise;
mod random;
mod reduce;
mod settings;

pub use autocast::*;
pub use conjugate::*;
pub use join::*;
pub use make::*;
pub use matrix::*;
pub use pointwise::*;
pub use random::*;
pub use reduce::*;
pub use settings::*;

/// `torch.amp`.
pub use crate::amp;
/// `torch.compile`; the types are in [`compiler`](crate::compiler).
pub use crate::compiler::{compile, compile_with};
/// Files of tensors, as Python's `safetensors.torch` reads and writes them.
#[cfg(feature = "safetensors")]
pub use crate::gds::safetensors;
pub use aten_cuda::{
    Complex32, Complex64, DType, Destination, Device, Dim, Element, Error, Generator, Operand, Result, Scalar, Storage,
    Tensor, TensorError, ToDevice, bf16, f16, promote_types, result_type,
};
pub use aten_cuda::{ExternalError, OperationError};

/// `torch.utils`.
pub mod utils {
    pub use aten_cuda::dlpack;

    /// `torch.utils.deterministic`.
    pub mod deterministic {
        pub use aten_cuda::deterministic::{fill_uninitialized_memory, set_fill_uninitialized_memory};
    }
}

/// A tensor of the memory that another library lends (`torch.from_dlpack`); see [`Tensor::from_dlpack`].
///
/// # Errors
/// As there.
pub fn from_dlpack(lent: utils::dlpack::DLPack) -> Result<Tensor> {
    Tensor::from_dlpack(lent)
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = $dtype:ident;)*) => {
        $($(#[$doc])* pub const $name: DType = DType::$dtype;)*
    };
}

dtypes! {
    /// `torch.bool`.
    bool = Bool;
    /// `torch.uint8`.
    uint8 = U8;
    /// `torch.int8`.
    int8 = I8;
    /// `torch.int16`.
    int16 = I16;
    /// `torch.int32`.
    int32 = I32;
    /// `torch.int64`.
    int64 = I64;
    /// `torch.float16`.
    float16 = F16;
    /// `torch.bfloat16`.
    bfloat16 = BF16;
    /// `torch.float32`.
    float32 = F32;
    /// `torch.float64`.
    float64 = F64;
    /// `torch.complex32`.
    complex32 = C32;
    /// `torch.complex64`.
    complex64 = C64;
    /// `torch.complex128`.
    complex128 = C128;
    /// `torch.float8_e4m3fn`.
    float8_e4m3fn = F8E4M3FN;
    /// `torch.float8_e5m2`.
    float8_e5m2 = F8E5M2;
    /// `torch.half`.
    half = F16;
    /// `torch.float`.
    float = F32;
    /// `torch.double`.
    double = F64;
    /// `torch.short`.
    short = I16;
    /// `torch.int`.
    int = I32;
    /// `torch.long`.
    long = I64;
    /// `torch.cfloat`.
    cfloat = C64;
    /// `torch.cdouble`.
    cdouble = C128;
}
