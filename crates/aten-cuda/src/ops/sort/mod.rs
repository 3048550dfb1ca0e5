//! Sorting: `order` (how elements compare on the host), `unique` (values without repetitions).
//!
//! **Invariants:** every sort is stable, and positive and negative zero are equal. A NaN is greater than every number.
//! One exception, as in torch, whose device sorts rows of more than 32 elements by their bits: there a NaN with a set
//! sign bit is less than every number. `topk` ignores the sign.

mod order;
mod unique;

use crate::base::dtype::DType;
use crate::base::error::{Result, invalid, refuse_float8};
use crate::base::shape::{Dims, contiguous_strides, wrap_dim};
use crate::launch::library::sort::{self, Rows};
use crate::ops::copy::preserved_strides;
use crate::tensor::{Context, Tensor, empty_strided, is_host};

/// How elements are ordered.
#[derive(Clone, Copy)]
struct Order {
    descending: bool,
    /// Whether a device also treats a NaN with a set sign bit as the greatest element.
    nan_greatest: bool,
}

impl Tensor {
    /// Returns the sorted elements along `dim` and their original indices (`sort(stable=True)`). A NaN is greater than
    /// every number; on a device, in rows of more than 32 elements, a NaN with a set sign bit is less, as in torch.
    /// Equal elements keep their order.
    ///
    /// # Errors
    /// There is no such dimension, the dtype is complex, there is not enough memory, or the device failed.
    pub fn sort(&self, dim: i64, descending: bool) -> Result<(Self, Self)> {
        let at = wrap_dim(dim, self.dim())?;
        check_ordered(self, "Sort")?;
        refuse_float8("sortKeyValueInplace", self.dtype())?;
        let strides = preserved_strides(self);
        let order = Order { descending, nan_greatest: is_short_in_torch(self, at) };
        let (values, places) = sorted(self, at, order, None)?;
        Ok((laid_out(values, &strides)?, laid_out(places, &strides)?))
    }

    /// The places that the elements had before [`Self::sort`] (`argsort(stable=True)`).
    ///
    /// # Errors
    /// As for [`Self::sort`].
    pub fn argsort(&self, dim: i64, descending: bool) -> Result<Self> {
        Ok(self.sort(dim, descending)?.1)
    }

    /// The `k` largest or smallest elements along `dim`, in order, and their places (`topk`).
    ///
    /// # Errors
    /// There are fewer elements, or as for [`Self::sort`].
    pub fn topk(&self, k: i64, dim: i64, largest: bool) -> Result<(Self, Self)> {
        let at = wrap_dim(dim, self.dim())?;
        let size = self.sizes().get(at).copied().unwrap_or(1);
        if !(0..=size).contains(&k) {
            return Err(invalid("selected index k out of range"));
        }
        if self.dtype() == DType::Bool {
            return Err(invalid("topk does not support bool dtypes on CPU"));
        }
        check_ordered(self, "topk")?;
        refuse_float8("topk_out_cuda", self.dtype())?;
        let (values, places) = sorted(self, at, Order { descending: largest, nan_greatest: true }, Some(k))?;
        let strides = contiguous_strides(values.sizes());
        Ok((laid_out(values, &strides)?, laid_out(places, &strides)?))
    }
}

/// Refuses complex numbers. torch's text begins with a blank and names the CPU on every device.
fn check_ordered(tensor: &Tensor, name: &str) -> Result<()> {
    match tensor.dtype().is_complex() {
        true => Err(invalid(format!(" {name} does not support complex dtypes on CPU"))),
        false => Ok(()),
    }
}

/// The tensor, copied where it has other strides. Strides of dimensions of one element count too.
fn laid_out(tensor: Tensor, strides: &[i64]) -> Result<Tensor> {
    if tensor.strides() == strides {
        return Ok(tensor);
    }
    if tensor.numel() <= 1 || same_but_for_ones(&tensor, strides) {
        let (sizes, strides) = (Dims::from_slice(tensor.sizes()), Dims::from_slice(strides));
        return tensor.with_layout(sizes, strides, tensor.storage_offset());
    }
    let made = empty_strided(tensor.sizes(), strides, tensor.dtype(), tensor.device())?;
    made.copy_(&tensor)?;
    Ok(made)
}

fn same_but_for_ones(tensor: &Tensor, strides: &[i64]) -> bool {
    (0..tensor.dim()).all(|dim| tensor.sizes()[dim] == 1 || tensor.strides()[dim] == strides[dim])
}

/// Whether torch's device sorts rows of this length by comparisons, which treat every NaN as the greatest, rather than
/// by bits.
fn is_short_in_torch(tensor: &Tensor, dim: usize) -> bool {
    tensor.sizes().get(dim).is_none_or(|&n| n <= 32)
}

/// Sorted values and their places along a dimension: all of them, or the first `keep`. Of no particular layout.
fn sorted(tensor: &Tensor, dim: usize, order: Order, keep: Option<i64>) -> Result<(Tensor, Tensor)> {
    let run = || {
        if tensor.dim() == 0 {
            // The only element, also where none is asked for.
            let count = keep.unwrap_or(1).max(1);
            let values = tensor.reshape(&[1])?.copy()?.narrow(0, 0, count)?;
            let places = Tensor::zeros(&[count], DType::I64, tensor)?;
            return if count == 1 { Ok((values.view(&[])?, places.view(&[])?)) } else { Ok((values, places)) };
        }
        let (at, last) = (i64::try_from(dim).unwrap_or(0), i64::try_from(tensor.dim() - 1).unwrap_or(0));
        let rows = tensor.transpose(at, last)?.packed()?;
        let n = tensor.sizes()[dim];
        let wanted = keep.unwrap_or(n);
        let mut sizes = Dims::from_slice(rows.sizes());
        sizes[tensor.dim() - 1] = wanted;
        let (values, places) = if is_host(tensor.device()) {
            order::sort(&rows, n, order, wanted, &sizes)?
        } else {
            on_device(&rows, n, order, wanted, &sizes)?
        };
        Ok((values.transpose(at, last)?, places.transpose(at, last)?))
    };
    run().of(if keep.is_some() { "topk" } else { "sort" }, &[tensor])
}

/// Sorts contiguous rows of integers from 0 to `greatest`, which have elements, on a device: the values, and the places that
/// they had in their rows.
pub(crate) fn sorted_rows(rows: &Tensor, greatest: i64) -> Result<(Tensor, Tensor)> {
    let n = rows.sizes().last().copied().unwrap_or(1);
    let order = Order { descending: false, nan_greatest: false };
    sorted_up_to(rows, n, order, n, rows.sizes(), Some(greatest))
}

fn on_device(rows: &Tensor, n: i64, order: Order, keep: i64, sizes: &[i64]) -> Result<(Tensor, Tensor)> {
    sorted_up_to(rows, n, order, keep, sizes, None)
}

fn sorted_up_to(
    rows: &Tensor,
    n: i64,
    order: Order,
    keep: i64,
    sizes: &[i64],
    greatest: Option<i64>,
) -> Result<(Tensor, Tensor)> {
    let empty = |sizes: &[i64], dtype: DType| Tensor::uninitialized(sizes, dtype, rows);
    if rows.numel() == 0 || keep == 0 {
        return Ok((empty(sizes, rows.dtype())?, empty(sizes, DType::I64)?));
    }
    let work = Rows {
        elements: rows,
        rows: rows.numel() / n,
        n,
        descending: order.descending,
        nan_greatest: order.nan_greatest,
        greatest,
    };
    if sort::is_short(n) {
        let (values, places) = (empty(sizes, rows.dtype())?, empty(sizes, DType::I64)?);
        sort::short(&work, &values, &places, keep)?;
        return Ok((values, places));
    }
    let (values, places) = (empty(rows.sizes(), rows.dtype())?, empty(rows.sizes(), DType::I64)?);
    sort::long(&work, &values, &places)?;
    Ok((values.narrow(-1, 0, keep)?, places.narrow(-1, 0, keep)?))
}
