//! Functions of all elements along dimensions: `torch.sum`, `torch.max`, `torch.cumsum` and the like.
//!
//! Dimensions are one number, an array of several, or `()` for all. With `keepdim` each stays with one element; else the
//! result lacks them.
//!
//! ```
//! use cuda_api::torch;
//!
//! let matrix = torch::tensor(&[1_i64, 5, 3, 2], &[2, 2])?;
//! assert_eq!(torch::sum(&matrix, 0, false, None)?.to_vec::<i64>()?, [4, 7]);
//! assert_eq!(torch::max(&matrix)?.item()?.to_i64(), 5);
//! let (values, places) = torch::min_dim(&matrix, 1, false)?;
//! assert_eq!((values.to_vec::<i64>()?, places.to_vec::<i64>()?), (vec![1, 2], vec![0, 1]));
//! assert_eq!(torch::cumsum(&matrix, 1, None)?.to_vec::<i64>()?, [1, 6, 3, 5]);
//! # Ok::<(), torch::Error>(())
//! ```

use aten_cuda::{DType, Dim, Result, Scalar, Tensor};

/// The sum of the elements along dimensions, all of them with `()` (`torch.sum`).
/// Of integers and booleans in `i64`. See [`Tensor::sum`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn sum(input: &Tensor, dim: impl Into<Dim>, keepdim: bool, dtype: impl Into<Option<DType>>) -> Result<Tensor> {
    input.sum(dim, keepdim, dtype)
}

/// As [`sum`], with NaNs as zeros (`torch.nansum`). See [`Tensor::nansum`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn nansum(input: &Tensor, dim: impl Into<Dim>, keepdim: bool, dtype: impl Into<Option<DType>>) -> Result<Tensor> {
    input.nansum(dim, keepdim, dtype)
}

/// The mean of the elements along dimensions (`torch.mean`). See [`Tensor::mean`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn mean(input: &Tensor, dim: impl Into<Dim>, keepdim: bool, dtype: impl Into<Option<DType>>) -> Result<Tensor> {
    input.mean(dim, keepdim, dtype)
}

/// The product of the elements along dimensions (`torch.prod`). See [`Tensor::prod`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn prod(input: &Tensor, dim: impl Into<Dim>, keepdim: bool, dtype: impl Into<Option<DType>>) -> Result<Tensor> {
    input.prod(dim, keepdim, dtype)
}

/// The largest element along dimensions (`torch.amax`). See [`Tensor::amax`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn amax(input: &Tensor, dim: impl Into<Dim>, keepdim: bool) -> Result<Tensor> {
    input.amax(dim, keepdim)
}

/// The smallest element along dimensions (`torch.amin`). See [`Tensor::amin`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn amin(input: &Tensor, dim: impl Into<Dim>, keepdim: bool) -> Result<Tensor> {
    input.amin(dim, keepdim)
}

/// Whether any element along dimensions is not zero (`torch.any`). See [`Tensor::any`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn any(input: &Tensor, dim: impl Into<Dim>, keepdim: bool) -> Result<Tensor> {
    input.any(dim, keepdim)
}

/// Whether all elements along dimensions are not zero (`torch.all`). See [`Tensor::all`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn all(input: &Tensor, dim: impl Into<Dim>, keepdim: bool) -> Result<Tensor> {
    input.all(dim, keepdim)
}

/// The logarithm of the sum of exponentials along dimensions (`torch.logsumexp`). See [`Tensor::logsumexp`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn logsumexp(input: &Tensor, dim: impl Into<Dim>, keepdim: bool) -> Result<Tensor> {
    input.logsumexp(dim, keepdim)
}

/// The variance along dimensions, with the sum of squares divided by the count less `correction`
/// (`torch.var`). See [`Tensor::var`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn var(input: &Tensor, dim: impl Into<Dim>, correction: impl Into<Scalar>, keepdim: bool) -> Result<Tensor> {
    input.var(dim, correction, keepdim)
}

/// The standard deviation along dimensions (`torch.std`); `correction` as for [`var`]. See [`Tensor::std`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn std(input: &Tensor, dim: impl Into<Dim>, correction: impl Into<Scalar>, keepdim: bool) -> Result<Tensor> {
    input.std(dim, correction, keepdim)
}

/// How many elements along dimensions are not zero (`torch.count_nonzero`). See [`Tensor::count_nonzero`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn count_nonzero(input: &Tensor, dim: impl Into<Dim>) -> Result<Tensor> {
    input.count_nonzero(dim)
}

/// The norm of order `p` of the elements along dimensions (`torch.norm`). See [`Tensor::norm`].
///
/// # Errors
/// There is no such dimension, it is named twice, the operation is not there for the dtype, there is not enough memory, or
/// the device failed.
pub fn norm(
    input: &Tensor,
    p: impl Into<Scalar>,
    dim: impl Into<Dim>,
    keepdim: bool,
    dtype: impl Into<Option<DType>>,
) -> Result<Tensor> {
    input.norm(p, dim, keepdim, dtype)
}

/// The largest element of all, without dimensions (`torch.max`). See [`Tensor::max`].
///
/// # Errors
/// There are no elements, they are complex, there is not enough memory, or the device failed.
pub fn max(input: &Tensor) -> Result<Tensor> {
    input.max()
}

/// The largest elements along a dimension and their places (`torch.max` with `dim`). See [`Tensor::max_dim`].
///
/// # Errors
/// There is no such dimension, it has no elements, they are complex, there is not enough memory, or the device failed.
pub fn max_dim(input: &Tensor, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
    input.max_dim(dim, keepdim)
}

/// The place of the largest element along a dimension, among all for `None` (`torch.argmax`). See
/// [`Tensor::argmax`].
///
/// # Errors
/// As for [`max_dim`], or the elements are booleans.
pub fn argmax(input: &Tensor, dim: impl Into<Option<i64>>, keepdim: bool) -> Result<Tensor> {
    input.argmax(dim, keepdim)
}

/// The smallest element of all, without dimensions (`torch.min`). See [`Tensor::min`].
///
/// # Errors
/// There are no elements, they are complex, there is not enough memory, or the device failed.
pub fn min(input: &Tensor) -> Result<Tensor> {
    input.min()
}

/// The smallest elements along a dimension and their places (`torch.min` with `dim`). See [`Tensor::min_dim`].
///
/// # Errors
/// There is no such dimension, it has no elements, they are complex, there is not enough memory, or the device failed.
pub fn min_dim(input: &Tensor, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
    input.min_dim(dim, keepdim)
}

/// The place of the smallest element along a dimension, among all for `None` (`torch.argmin`). See
/// [`Tensor::argmin`].
///
/// # Errors
/// As for [`min_dim`], or the elements are booleans.
pub fn argmin(input: &Tensor, dim: impl Into<Option<i64>>, keepdim: bool) -> Result<Tensor> {
    input.argmin(dim, keepdim)
}

/// The sums of the elements up to each along a dimension (`torch.cumsum`). See [`Tensor::cumsum`].
///
/// # Errors
/// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device failed.
pub fn cumsum(input: &Tensor, dim: i64, dtype: impl Into<Option<DType>>) -> Result<Tensor> {
    input.cumsum(dim, dtype)
}

/// The products of the elements up to each along a dimension (`torch.cumprod`). See [`Tensor::cumprod`].
///
/// # Errors
/// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device failed.
pub fn cumprod(input: &Tensor, dim: i64, dtype: impl Into<Option<DType>>) -> Result<Tensor> {
    input.cumprod(dim, dtype)
}

/// The largest of the elements up to each along a dimension, and their places (`torch.cummax`). See
/// [`Tensor::cummax`].
///
/// # Errors
/// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device failed.
pub fn cummax(input: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
    input.cummax(dim)
}

/// The smallest of the elements up to each along a dimension, and their places (`torch.cummin`). See
/// [`Tensor::cummin`].
///
/// # Errors
/// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device failed.
pub fn cummin(input: &Tensor, dim: i64) -> Result<(Tensor, Tensor)> {
    input.cummin(dim)
}

/// The logarithms of the sums of exponentials up to each element along a dimension (`torch.logcumsumexp`). See
/// [`Tensor::logcumsumexp`].
///
/// # Errors
/// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device failed.
pub fn logcumsumexp(input: &Tensor, dim: i64) -> Result<Tensor> {
    input.logcumsumexp(dim)
}

/// The exponentials along a dimension, divided by their sum (`torch.softmax`). See [`Tensor::softmax`].
///
/// # Errors
/// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device failed.
pub fn softmax(input: &Tensor, dim: i64, dtype: impl Into<Option<DType>>) -> Result<Tensor> {
    input.softmax(dim, dtype)
}

/// The logarithm of [`softmax`] (`torch.log_softmax`). See [`Tensor::log_softmax`].
///
/// # Errors
/// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device failed.
pub fn log_softmax(input: &Tensor, dim: i64, dtype: impl Into<Option<DType>>) -> Result<Tensor> {
    input.log_softmax(dim, dtype)
}
