//! Functions that make tensors: `torch.empty`, `torch.arange` and the like.
//!
//! ```
//! use cuda_api::torch;
//!
//! assert_eq!(torch::arange(0, 7, 3, None, "cpu")?.to_vec::<i64>()?, [0, 3, 6]);
//! assert_eq!(torch::linspace(0, 1, 3, None, "cpu")?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
//! assert_eq!(torch::eye(2, 2, torch::int32, "cpu")?.to_vec::<i32>()?, [1, 0, 0, 1]);
//! let matrix = torch::full(&[2, 3], 7, torch::float64, "cpu")?;
//! assert_eq!(torch::zeros_like(&matrix)?.sizes(), [2, 3]);
//! # Ok::<(), torch::Error>(())
//! ```

use aten_cuda::{DType, Element, Result, Scalar, Tensor, ToDevice};

/// A tensor whose elements are not set (`torch.empty`); see [`Tensor::empty`].
///
/// # Errors
/// A size is negative, the device does not exist, or there is not enough memory.
pub fn empty(sizes: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::empty(sizes, dtype, device)
}

/// A tensor with these strides whose elements are not set (`torch.empty_strided`); see [`Tensor::empty_strided`].
///
/// # Errors
/// A size or a stride is negative, there are not as many strides as sizes, the device does not exist, or there is not
/// enough memory.
pub fn empty_strided(sizes: &[i64], strides: &[i64], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::empty_strided(sizes, strides, dtype, device)
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

/// A host tensor with a copy of these booleans (`torch.tensor`).
///
/// # Errors
/// The sizes are for another number of elements.
pub fn tensor_of_bools(elements: &[bool], sizes: &[i64]) -> Result<Tensor> {
    Tensor::from_bools(elements, sizes)
}

/// A host tensor of any dtype with a copy of the elements' bytes (`torch.frombuffer`).
///
/// # Errors
/// The sizes are for another number of bytes.
pub fn frombuffer(bytes: &[u8], sizes: &[i64], dtype: DType) -> Result<Tensor> {
    Tensor::from_bytes(bytes, sizes, dtype)
}

/// A number without dimensions (`torch.scalar_tensor`).
///
/// # Errors
/// The device does not exist, there is not enough memory, or the device failed.
pub fn scalar_tensor(value: impl Into<Scalar>, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::full(&[], value, dtype, device)
}

/// Numbers from `start` up to `end`, which is left out, by `step` (`torch.arange`): a row of `i64` if all three are
/// integers, else of `f32`, or of the dtype that is named. See [`Tensor::arange`].
///
/// # Errors
/// The step is zero or leads away from the end, a number is not finite, the dtype is complex or a boolean, there is not
/// enough memory, or the device failed.
pub fn arange(
    start: impl Into<Scalar>,
    end: impl Into<Scalar>,
    step: impl Into<Scalar>,
    dtype: impl Into<Option<DType>>,
    device: impl ToDevice,
) -> Result<Tensor> {
    Tensor::arange(start, end, step, dtype.into(), device)
}

/// `steps` numbers from `start` to `end` in equal steps (`torch.linspace`): a row of `f32`, or of the dtype that is named.
/// See [`Tensor::linspace`].
///
/// # Errors
/// The number of steps is negative, the dtype is complex or a boolean, there is not enough memory, or the device failed.
pub fn linspace(
    start: impl Into<Scalar>,
    end: impl Into<Scalar>,
    steps: i64,
    dtype: impl Into<Option<DType>>,
    device: impl ToDevice,
) -> Result<Tensor> {
    Tensor::linspace(start, end, steps, dtype.into(), device)
}

/// A matrix with ones on its diagonal and zeros elsewhere (`torch.eye`).
///
/// # Errors
/// A size is negative, there is not enough memory, or the device failed.
pub fn eye(n: i64, m: i64, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    Tensor::eye(n, m, dtype, device)
}

/// A tensor like another one, with elements that are not set (`torch.empty_like`).
///
/// # Errors
/// There is not enough memory.
pub fn empty_like(input: &Tensor) -> Result<Tensor> {
    input.empty_like()
}

/// Zeros with another tensor's sizes, dtype, device and layout (`torch.zeros_like`).
///
/// # Errors
/// There is not enough memory, or the device failed.
pub fn zeros_like(input: &Tensor) -> Result<Tensor> {
    input.zeros_like()
}

/// Ones with another tensor's sizes, dtype, device and layout (`torch.ones_like`).
///
/// # Errors
/// There is not enough memory, or the device failed.
pub fn ones_like(input: &Tensor) -> Result<Tensor> {
    input.ones_like()
}

/// Elements of one value with another tensor's sizes, dtype, device and layout (`torch.full_like`).
///
/// # Errors
/// There is not enough memory, or the device failed.
pub fn full_like(input: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
    input.full_like(value)
}

/// A copy in memory of its own, laid out in the same way (`torch.clone`).
///
/// # Errors
/// There is not enough memory, or the device failed.
pub fn clone(input: &Tensor) -> Result<Tensor> {
    input.copy()
}
