//! Functions that join, cut, view, index and sort: `torch.cat`, `torch.gather`, `torch.sort` and the like.
//!
//! ```
//! use cuda_api::torch;
//!
//! let row = torch::tensor(&[3_i64, 1, 2], &[3])?;
//! let matrix = torch::stack(&[&row, &row], 0)?;
//! assert_eq!(matrix.sizes(), [2, 3]);
//! assert_eq!(torch::cat(&[&matrix, &matrix], 1)?.sizes(), [2, 6]);
//! let (sorted, places) = torch::sort(&row, 0, false)?;
//! assert_eq!(sorted.to_vec::<i64>()?, [1, 2, 3]);
//! assert_eq!(torch::gather(&row, 0, &places)?.to_vec::<i64>()?, [1, 2, 3]);
//! # Ok::<(), torch::Error>(())
//! ```

use aten_cuda::{Operand, Result, Scalar, Tensor};

/// The tensors one after another along `dim`, in their common dtype (`torch.cat`). Other sizes are equal. See
/// [`Tensor::cat`].
///
/// # Errors
/// There are no tensors, their sizes differ elsewhere, or they are on several devices.
pub fn cat(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
    Tensor::cat(tensors, dim)
}

/// The tensors side by side along a new dimension (`torch.stack`). See [`Tensor::stack`].
///
/// # Errors
/// There are no tensors, their sizes differ, or they are on several devices.
pub fn stack(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
    Tensor::stack(tensors, dim)
}

/// Views of `split_size` places each along `dim`, the last one perhaps of fewer (`torch.split`). See [`Tensor::split`].
///
/// # Errors
/// There is no such dimension, or the size is negative or zero.
pub fn split(input: &Tensor, split_size: i64, dim: i64) -> Result<Vec<Tensor>> {
    input.split(split_size, dim)
}

/// Views of the given numbers of places along `dim` (`torch.split` with a list). See [`Tensor::split_with_sizes`].
///
/// # Errors
/// There is no such dimension, or the numbers do not come to all places.
pub fn split_with_sizes(input: &Tensor, split_sizes: &[i64], dim: i64) -> Result<Vec<Tensor>> {
    input.split_with_sizes(split_sizes, dim)
}

/// At most `chunks` views along `dim` (`torch.chunk`). See [`Tensor::chunk`].
///
/// # Errors
/// There is no such dimension, or the number is not positive.
pub fn chunk(input: &Tensor, chunks: i64, dim: i64) -> Result<Vec<Tensor>> {
    input.chunk(chunks, dim)
}

/// A copy with the order along each of `dims` reversed (`torch.flip`). See [`Tensor::flip`].
///
/// # Errors
/// There is no such dimension, one is named twice, there is not enough memory, or the device failed.
pub fn flip(input: &Tensor, dims: &[i64]) -> Result<Tensor> {
    input.flip(dims)
}

/// A copy with the places along each of `dims` moved on (`torch.roll`). See [`Tensor::roll`].
///
/// # Errors
/// There is no such dimension, the lists differ in length, there is not enough memory, or the device failed.
pub fn roll(input: &Tensor, shifts: &[i64], dims: &[i64]) -> Result<Tensor> {
    input.roll(shifts, dims)
}

/// The elements with other sizes, of which one may be -1: a view where that is possible, else a copy
/// (`torch.reshape`). See [`Tensor::reshape`].
///
/// # Errors
/// The sizes are for another number of elements, or there is not enough memory.
pub fn reshape(input: &Tensor, shape: &[i64]) -> Result<Tensor> {
    input.reshape(shape)
}

/// The elements as one row (`torch.flatten`). See [`Tensor::flatten`].
///
/// # Errors
/// There is not enough memory.
pub fn flatten(input: &Tensor) -> Result<Tensor> {
    input.flatten()
}

/// A view with two dimensions exchanged (`torch.transpose`). See [`Tensor::transpose`].
///
/// # Errors
/// There is no such dimension, or the sizes do not fit.
pub fn transpose(input: &Tensor, dim0: i64, dim1: i64) -> Result<Tensor> {
    input.transpose(dim0, dim1)
}

/// A view of a matrix with its dimensions exchanged (`torch.t`). See [`Tensor::t`].
///
/// # Errors
/// There are more than two dimensions.
pub fn t(input: &Tensor) -> Result<Tensor> {
    input.t()
}

/// A view with the dimensions in another order (`torch.permute`). See [`Tensor::permute`].
///
/// # Errors
/// The list does not name each dimension once.
pub fn permute(input: &Tensor, dims: &[i64]) -> Result<Tensor> {
    input.permute(dims)
}

/// A view without the dimensions of size 1, or without that one (`torch.squeeze`). See [`Tensor::squeeze`].
///
/// # Errors
/// There is no such dimension, or the sizes do not fit.
pub fn squeeze(input: &Tensor, dim: Option<i64>) -> Result<Tensor> {
    input.squeeze(dim)
}

/// A view with a new dimension of size 1 (`torch.unsqueeze`). See [`Tensor::unsqueeze`].
///
/// # Errors
/// There is no such dimension, or the sizes do not fit.
pub fn unsqueeze(input: &Tensor, dim: i64) -> Result<Tensor> {
    input.unsqueeze(dim)
}

/// A view of one place along `dim`, without it (`torch.select`). See [`Tensor::select`].
///
/// # Errors
/// There is no such dimension or place.
pub fn select(input: &Tensor, dim: i64, index: i64) -> Result<Tensor> {
    input.select(dim, index)
}

/// A view of `length` places along `dim` from `start` on (`torch.narrow`). See [`Tensor::narrow`].
///
/// # Errors
/// There is no such dimension, or there are no such places.
pub fn narrow(input: &Tensor, dim: i64, start: i64, length: i64) -> Result<Tensor> {
    input.narrow(dim, start, length)
}

/// A view of a diagonal of two dimensions, as the last one (`torch.diagonal`). See [`Tensor::diagonal`].
///
/// # Errors
/// There is no such dimension, or the sizes do not fit.
pub fn diagonal(input: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
    input.diagonal(offset, dim1, dim2)
}

/// A view of the storage with these sizes and strides (`torch.as_strided`). See [`Tensor::as_strided`].
///
/// # Errors
/// The view is not inside the storage.
pub fn as_strided(input: &Tensor, size: &[i64], stride: &[i64], storage_offset: Option<i64>) -> Result<Tensor> {
    input.as_strided(size, stride, storage_offset)
}

/// The matrices in the last two dimensions with zeros above a diagonal (`torch.tril`). See [`Tensor::tril`].
///
/// # Errors
/// There are fewer than two dimensions, there is not enough memory, or the device failed.
pub fn tril(input: &Tensor, diagonal: i64) -> Result<Tensor> {
    input.tril(diagonal)
}

/// The matrices in the last two dimensions with zeros below a diagonal (`torch.triu`). See [`Tensor::triu`].
///
/// # Errors
/// As for [`tril`].
pub fn triu(input: &Tensor, diagonal: i64) -> Result<Tensor> {
    input.triu(diagonal)
}

/// The elements at the places that `index` names along `dim`; the result has its sizes (`torch.gather`). See
/// [`Tensor::gather`].
///
/// # Errors
/// There is no such dimension, sizes or dtypes do not fit, an index does not exist, there is not enough memory, or the device
/// failed.
pub fn gather(input: &Tensor, dim: i64, index: &Tensor) -> Result<Tensor> {
    input.gather(dim, index)
}

/// As [`gather`] with sizes that broadcast, or of all elements as one row (`torch.take_along_dim`). See
/// [`Tensor::take_along_dim`].
///
/// # Errors
/// There is no such dimension, sizes or dtypes do not fit, an index does not exist, there is not enough memory, or the device
/// failed.
pub fn take_along_dim(input: &Tensor, indices: &Tensor, dim: Option<i64>) -> Result<Tensor> {
    input.take_along_dim(indices, dim)
}

/// The places along `dim` that `index`, a row, names (`torch.index_select`). See [`Tensor::index_select`].
///
/// # Errors
/// There is no such dimension, sizes or dtypes do not fit, an index does not exist, there is not enough memory, or the device
/// failed.
pub fn index_select(input: &Tensor, dim: i64, index: &Tensor) -> Result<Tensor> {
    input.index_select(dim, index)
}

/// The elements where the mask is true, as one row (`torch.masked_select`). The sizes broadcast; waits for the device. See
/// [`Tensor::masked_select`].
///
/// # Errors
/// There is no such dimension, sizes or dtypes do not fit, an index does not exist, there is not enough memory, or the device
/// failed.
pub fn masked_select(input: &Tensor, mask: &Tensor) -> Result<Tensor> {
    input.masked_select(mask)
}

/// The places of the elements that are not zero, a row for each (`torch.nonzero`). Waits for the device. See
/// [`Tensor::nonzero`].
///
/// # Errors
/// There is not enough memory, or the device failed.
pub fn nonzero(input: &Tensor) -> Result<Tensor> {
    input.nonzero()
}

/// A copy with the elements of `src` at the places that `index` names along `dim` (`torch.scatter`). See
/// [`Tensor::scatter`].
///
/// # Errors
/// There is no such dimension, sizes or dtypes do not fit, an index does not exist, there is not enough memory, or the device
/// failed.
pub fn scatter<'a>(input: &Tensor, dim: i64, index: &Tensor, src: impl Into<Operand<'a>>) -> Result<Tensor> {
    input.scatter(dim, index, src)
}

/// A copy with the elements of `src` added at the places that `index` names along `dim` (`torch.scatter_add`). See
/// [`Tensor::scatter_add`].
///
/// # Errors
/// There is no such dimension, sizes or dtypes do not fit, an index does not exist, there is not enough memory, or the device
/// failed.
pub fn scatter_add(input: &Tensor, dim: i64, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    input.scatter_add(dim, index, src)
}

/// A copy with `alpha` times the places of `source` added to those that `index` names (`torch.index_add`). See
/// [`Tensor::index_add`].
///
/// # Errors
/// There is no such dimension, sizes or dtypes do not fit, an index does not exist, there is not enough memory, or the device
/// failed.
pub fn index_add(
    input: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    alpha: impl Into<Scalar>,
) -> Result<Tensor> {
    input.index_add(dim, index, source, alpha)
}

/// A copy with the places that `index` names taken from `source` (`torch.index_copy`). See [`Tensor::index_copy`].
///
/// # Errors
/// There is no such dimension, sizes or dtypes do not fit, an index does not exist, there is not enough memory, or the device
/// failed.
pub fn index_copy(input: &Tensor, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
    input.index_copy(dim, index, source)
}

/// A copy with values at the places that several tensors of indices name (`torch.index_put`). See
/// [`Tensor::index_put`].
///
/// # Errors
/// There is no such dimension, sizes or dtypes do not fit, an index does not exist, there is not enough memory, or the device
/// failed.
pub fn index_put(input: &Tensor, indices: &[Option<&Tensor>], values: &Tensor, accumulate: bool) -> Result<Tensor> {
    input.index_put(indices, values, accumulate)
}

/// A copy with the elements of `source`, in order, where the mask is true (`torch.masked_scatter`). See
/// [`Tensor::masked_scatter`].
///
/// # Errors
/// There is no such dimension, sizes or dtypes do not fit, an index does not exist, there is not enough memory, or the device
/// failed.
pub fn masked_scatter(input: &Tensor, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
    input.masked_scatter(mask, source)
}

/// The elements in order along `dim`, and the places that they had (`torch.sort`, stable). See [`Tensor::sort`].
///
/// # Errors
/// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device failed.
pub fn sort(input: &Tensor, dim: i64, descending: bool) -> Result<(Tensor, Tensor)> {
    input.sort(dim, descending)
}

/// The places that the elements had before [`sort`] (`torch.argsort`). See [`Tensor::argsort`].
///
/// # Errors
/// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device failed.
pub fn argsort(input: &Tensor, dim: i64, descending: bool) -> Result<Tensor> {
    input.argsort(dim, descending)
}

/// The `k` largest or smallest elements along `dim`, in order, and their places (`torch.topk`). See [`Tensor::topk`].
///
/// # Errors
/// There are fewer elements, or as for [`sort`].
pub fn topk(input: &Tensor, k: i64, dim: i64, largest: bool) -> Result<(Tensor, Tensor)> {
    input.topk(k, dim, largest)
}

/// The values in order, for each element the place of its value, and how often each occurs (`torch.unique`). Waits for
/// the device. See [`Tensor::unique`].
///
/// # Errors
/// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device failed.
pub fn unique(input: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    input.unique()
}
