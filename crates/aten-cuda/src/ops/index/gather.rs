//! Reading elements at places that another tensor tells.

use super::{along_dim, check_integers, spread, values, with_dimension};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::shape::{self, Dims, wrap_dim};
use crate::launch::library::index::Action;
use crate::report::Reporter;
use crate::tensor::{Context, Tensor, is_host};

impl Tensor {
    /// For each element of `index`, the element that it names along `dim` (`gather`).
    ///
    /// Indices are `i32` or `i64` and as many dimensions as the tensor has; the result has their sizes.
    ///
    /// # Errors
    /// The sizes do not fit, the indices are of another dtype, or one is negative or too large.
    pub fn gather(&self, dim: i64, index: &Self) -> Result<Self> {
        self.gather_for(dim, index, Reporter::Gather)
    }

    fn gather_for(&self, dim: i64, index: &Self, operation: Reporter) -> Result<Self> {
        let run = || {
            let at = wrap_dim(dim, self.dim())?;
            let (source, indices) = (with_dimension(self)?, with_dimension(index)?);
            if indices.numel() > 0 {
                check_integers(index, "gather(): Expected dtype int32/int64 for index")?;
                check_inside(&source, &indices, at)?;
            }
            let out = Self::uninitialized(indices.sizes(), self.dtype(), self)?;
            if indices.numel() > 0 {
                along_dim(&source, at, &indices, &out, Action::Gather, operation)?;
            }
            out.view(index.sizes())
        };
        run().of(operation.name(), &[self, index])
    }

    /// [`Self::gather`] with sizes that broadcast besides along `dim`; over all elements without a dimension
    /// (`take_along_dim`). As in torch, indices wrap around a dimension that is given: -1 is the last place of it, and its
    /// size the first one.
    ///
    /// # Errors
    /// Those of [`Self::gather`]; with a dimension, the indices are not `i64`.
    pub fn take_along_dim(&self, index: &Self, dim: Option<i64>) -> Result<Self> {
        let Some(dim) = dim else {
            return self.flatten()?.gather_for(0, &index.flatten()?, Reporter::TakeAlongDim);
        };
        if self.dim() != index.dim() {
            let (own, given) = (self.dim(), index.dim());
            return Err(invalid(format!(
                "torch.take_along_dim(): input and indices should have the same number of dimensions, but got {own} \
                 dimensions for input, and {given} dimensions for indices"
            )));
        }
        if index.dtype() != DType::I64 {
            let found = index.dtype().scalar_type_name();
            return Err(invalid(format!("torch.take_along_dim(): dtype of indices should be Long but got {found}")));
        }
        let at = wrap_dim(dim, self.dim())?;
        let (mut own, mut given) = (Dims::from_slice(self.sizes()), Dims::from_slice(index.sizes()));
        if own.is_empty() {
            return Err(invalid("Dimension specified as 0 but tensor has no dimensions"));
        }
        let (length, picked) = (own[at], given[at]);
        (own[at], given[at]) = (1, 1);
        let mut sizes = shape::broadcast(&own, &given)?;
        sizes[at] = length;
        let source = self.expand(&sizes)?;
        sizes[at] = picked;
        // torch wraps indices around the dimension here, and nowhere else.
        let wrapped = if length > 0 { index.remainder(length)? } else { index.clone() };
        source.gather_for(dim, &wrapped.expand(&sizes)?, Reporter::TakeAlongDim)
    }

    /// The slices along `dim` that a list of indices names (`index_select`).
    ///
    /// # Errors
    /// The indices are no list of `i32` or `i64`, or one is negative or too large.
    pub fn index_select(&self, dim: i64, index: &Self) -> Result<Self> {
        self.select_for(dim, index, Reporter::IndexSelect)
    }

    fn select_for(&self, dim: i64, index: &Self, operation: Reporter) -> Result<Self> {
        let run = || {
            let at = wrap_dim(dim, self.dim())?;
            check_selected(self, index, at)?;
            let source = with_dimension(self)?;
            let mut sizes = Dims::from_slice(source.sizes());
            sizes[at] = index.numel();
            let out = Self::uninitialized(&sizes, self.dtype(), self)?;
            along_dim(&source, at, &spread(index, &sizes, at)?, &out, Action::Gather, operation)?;
            if self.dim() == 0 { out.view(&[]) } else { Ok(out) }
        };
        run().of(operation.name(), &[self, index])
    }

    /// The rows of this matrix that `indices` of any sizes name (`torch.nn.functional.embedding`).
    ///
    /// # Errors
    /// The tensor is no matrix, the indices are no integers of 32 or 64 bits, or one is negative or too large.
    pub fn embedding(&self, indices: &Self) -> Result<Self> {
        if self.dim() != 2 {
            return Err(invalid("'weight' must be 2-D"));
        }
        if !matches!(indices.dtype(), DType::I32 | DType::I64) {
            let given = indices.dtype().scalar_type_name();
            return Err(invalid(format!(
                "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got \
                 torch.cuda.{given}Tensor instead (while checking arguments for embedding)"
            )));
        }
        let mut sizes = Dims::from_slice(indices.sizes());
        sizes.push(self.sizes()[1]);
        self.select_for(0, &indices.flatten()?, Reporter::Embedding)?.view(&sizes)
    }
}

/// Checks the arguments of `index_select` in torch's order.
fn check_selected(own: &Tensor, index: &Tensor, at: usize) -> Result<()> {
    let on_host = is_host(own.device());
    if index.dim() > 1 {
        return Err(invalid(match on_host {
            true => "index_select(): Index is supposed to be a vector",
            false => "Index is supposed to be an empty tensor or a vector",
        }));
    }
    let count = index.numel();
    if own.dim() == 0 && count != 1 {
        return Err(invalid(format!("index_select(): Index to scalar can have only 1 value, got {count} value(s)")));
    }
    if !matches!(index.dtype(), DType::I32 | DType::I64) {
        if on_host {
            return Err(invalid("index_select(): Expected dtype int32 or int64 for index"));
        }
        let kernel = "index_select_out_cuda_impl".to_owned();
        return Err(TensorError::NotImplemented { kernel, dtype: index.dtype() }.into());
    }
    if on_host && count > 0 && own.sizes().get(at) == Some(&0) {
        return Err(invalid(match own.dim() {
            1 => "index out of range in self",
            _ => "index_select(): self indexing axis dim should be positive",
        }));
    }
    if on_host && own.dim() > 1 && own.numel() == 0 {
        let size = own.sizes()[at];
        if let Some((_, wrong)) = values(index)?.into_iter().find(|(_, index)| !(0..size).contains(index)) {
            return Err(invalid(format!("INDICES element is out of DATA bounds, id={wrong} axis_dim={size}")));
        }
    }
    Ok(())
}

/// Checks that indices are not larger than the tensor besides along `dim`.
fn check_inside(tensor: &Tensor, index: &Tensor, dim: usize) -> Result<()> {
    if tensor.dim() != index.dim() {
        return Err(invalid("Index tensor must have the same number of dimensions as input tensor"));
    }
    for at in 0..tensor.dim() {
        if at != dim && index.sizes()[at] > tensor.sizes()[at] {
            let (index, own) = (index.sizes(), tensor.sizes());
            return Err(invalid(format!(
                "Size does not match at dimension {at} expected index {index:?} to be no larger than self {own:?} apart \
                 from dimension {dim}"
            )));
        }
    }
    Ok(())
}
