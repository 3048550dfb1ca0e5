//! The names of `torch` itself: tensors, dtypes and the functions that make and combine them.
//!
//! What is a method in torch is a method of [`Tensor`]; functions that torch has besides are here. Where torch has keyword
//! arguments with defaults, the functions take `impl Into<Option<…>>`, so that `None` and a plain value both work.
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

pub use aten_cuda::{
    Complex32, Complex64, DType, Device, Element, Error, Generator, Operand, Result, Scalar, Storage, Tensor,
    TensorError, ToDevice, bf16, f16, promote_types, result_type,
};

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

/// A tensor whose elements are not set (`torch.empty`); see [`Tensor::empty`].
///
/// # Errors
/// A size is negative, the device does not exist, or there is not enough memory.
pub fn empty(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::empty(sizes, dtype, device)
}

/// Zeros (`torch.zeros`).
///
/// # Errors
/// As for [`empty`], or the device failed.
pub fn zeros(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::zeros(sizes, dtype, device)
}

/// Ones (`torch.ones`).
///
/// # Errors
/// As for [`empty`], or the device failed.
pub fn ones(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::ones(sizes, dtype, device)
}

/// Elements of one value (`torch.full`).
///
/// # Errors
/// As for [`empty`], or the device failed.
pub fn full(sizes: &[i64], value: impl Into<Scalar>, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::full(sizes, value, dtype, device)
}

/// A tensor on the host with a copy of these elements (`torch.tensor`).
///
/// # Errors
/// The sizes are for another number of elements.
pub fn tensor<T: Element>(elements: &[T], sizes: &[i64]) -> Result<Tensor> {
    Tensor::from_slice(elements, sizes)
}

/// The product of two tensors (`torch.matmul`); see [`Tensor::matmul`].
///
/// # Errors
/// As for the method.
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.matmul(b)
}

/// The product of two matrices (`torch.mm`); see [`Tensor::mm`].
///
/// # Errors
/// As for the method.
pub fn mm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.mm(b)
}

/// The products of two batches of matrices (`torch.bmm`); see [`Tensor::bmm`].
///
/// # Errors
/// As for the method.
pub fn bmm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.bmm(b)
}

/// `beta * input + alpha * mat1 @ mat2` (`torch.addmm`); see [`Tensor::addmm`].
///
/// # Errors
/// As for the method.
pub fn addmm(
    input: &Tensor,
    mat1: &Tensor,
    mat2: &Tensor,
    beta: impl Into<Scalar>,
    alpha: impl Into<Scalar>,
) -> Result<Tensor> {
    input.addmm(mat1, mat2, beta, alpha)
}

/// `beta * input + alpha * batch1 @ batch2` for batches (`torch.baddbmm`); see [`Tensor::baddbmm`].
///
/// # Errors
/// As for the method.
pub fn baddbmm(
    input: &Tensor,
    batch1: &Tensor,
    batch2: &Tensor,
    beta: impl Into<Scalar>,
    alpha: impl Into<Scalar>,
) -> Result<Tensor> {
    input.baddbmm(batch1, batch2, beta, alpha)
}

/// Numbers from 0 up to 1, by the default generator of the device (`torch.rand`).
///
/// # Errors
/// As for [`empty`], the dtype is no float, or the device failed.
pub fn rand(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::rand(sizes, dtype, device, None)
}

/// Numbers of the normal distribution with mean 0 and deviation 1, by the default generator of the device
/// (`torch.randn`).
///
/// # Errors
/// As for [`rand`].
pub fn randn(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::randn(sizes, dtype, device, None)
}

/// Integers from `low` up to `high`, which is not among them, by the default generator of the device (`torch.randint`).
///
/// # Errors
/// As for [`empty`], the range has no integer, or the device failed.
pub fn randint(low: i64, high: i64, sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::randint(low, high, sizes, dtype, device, None)
}
