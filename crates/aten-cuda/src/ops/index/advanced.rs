//! Indices for several dimensions at once (`x[a, :, b]`).
//!
//! The indices broadcast to one shape. For each place of it they are combined to one place in the tensor, and with that
//! the dimensions that are left are gone through.

use c10_core::host_memory;
use std::ops::Range;

use smallvec::SmallVec;

use super::scatter::check_same_dtype;
use super::{apply, checked, moved_to, values};
use crate::autocast::{self, Policies};
use crate::base::dtype::DType;
use crate::base::error::{IndexKernel, Result, TensorError, invalid};
use crate::base::shape::{self, Dims, contiguous_strides};
use crate::iterate::{OperandLayout, result_strides};
use crate::launch::library::index::{self, Action, Along, Indexed};
use crate::report::Reporter;
use crate::tensor::{Context, Tensor, check_overlap, empty_strided, is_host, view_strides};

/// What indices of several dimensions come to.
struct Combined {
    /// Elements from the tensor's first one on, with the sizes of the result.
    places: Tensor,
    /// The tensor without a step along the indices' dimensions, with the sizes of the result.
    view: Tensor,
    along: Along,
    /// The dimensions of the result that the indices have.
    lists: Range<usize>,
    /// Strides of a new result, in the order in which the tensor's memory is visited, then in that of the indices.
    strides: Dims,
}

impl Tensor {
    /// Returns the elements that the indices select; `None` selects all of a dimension (`x[a, :, b]`, `torch.index`).
    /// Indices are integers, negative ones counting from the end, or masks; those on the host are copied to the
    /// tensor's device.
    ///
    /// The indices broadcast. Their shape stands where the first of them does if they are neighbours, else in front.
    ///
    /// # Errors
    /// There are too many indices, they do not broadcast, are of another dtype or out of range.
    #[doc(alias = "__getitem__")]
    pub fn index(&self, indices: &[Option<&Self>]) -> Result<Self> {
        let run = || {
            let combined = self.combined(indices, Reporter::Index)?;
            let sizes = combined.places.sizes();
            let out = empty_strided(sizes, &combined.strides, self.dtype(), self.device())?;
            apply(&combined.indexed(&out), combined.lists.clone(), Action::Gather)?;
            Ok(out)
        };
        run().of("index", &[self])
    }

    /// Writes values, which are broadcast, to the selected elements, or adds them to these (`index_put_`). The values
    /// are on the tensor's device, or a 0-d tensor on the host.
    ///
    /// # Errors
    /// As for [`Self::index`], or the values do not fit.
    pub fn index_put_(&self, indices: &[Option<&Self>], values: &Self, accumulate: bool) -> Result<&Self> {
        let run = || {
            check_same_dtype(self, values)?;
            note_repeats(self);
            let number;
            let values = if values.dim() == 0 && is_host(values.device()) && !is_host(self.device()) {
                number = Self::full(&[], values.item()?, self.dtype(), self)?;
                &number
            } else {
                values
            };
            let combined = self.combined(indices, Reporter::IndexPut)?;
            let sizes = combined.places.sizes();
            let Ok(given) = values.expand(sizes) else {
                let given = values.sizes();
                return Err(invalid(format!(
                    "shape mismatch: value tensor of shape {given:?} cannot be broadcast to indexing result of shape {sizes:?}"
                )));
            };
            if accumulate && self.dtype().is_float8() {
                // Added in `f32`, and rounded once.
                let sums = self.to_dtype(DType::F32)?;
                sums.index_put_(indices, &values.to_dtype(DType::F32)?, true)?;
                return self.copy_(&sums);
            }
            let action = if accumulate { Action::Add } else { Action::Scatter };
            apply(&combined.indexed(&given.apart_from(self)?), combined.lists.clone(), action)?;
            Ok(self)
        };
        run().of("index_put_", &[self, values])
    }

    /// A copy with values written to the elements that indices name, or added there (`index_put`).
    ///
    /// # Errors
    /// As for [`Self::index_put_`].
    pub fn index_put(&self, indices: &[Option<&Self>], values: &Self, accumulate: bool) -> Result<Self> {
        let policies = const { Policies::of("index_put") };
        if let Some((_inside, [own, values])) = autocast::cast(policies, [self, values])? {
            return own.index_put(indices, &values, accumulate);
        }
        let made = self.copy()?;
        made.index_put_(indices, values, accumulate)?;
        Ok(made)
    }

    fn combined(&self, indices: &[Option<&Self>], operation: Reporter) -> Result<Combined> {
        let mut lists = self.without_masks(indices)?;
        if lists.len() > self.dim() {
            let (dims, given) = (self.dim(), lists.len());
            return Err(invalid(format!("too many indices for tensor of dimension {dims} (got {given})")));
        }
        for list in lists.iter_mut().flatten() {
            *list = moved_to(list, self)?;
        }
        if lists.iter().flatten().any(|list| list.device() != self.device()) {
            let own = self.device();
            let text = "indices should be either on cpu or on the same device as the indexed tensor";
            return Err(invalid(format!("{text} ({own})")));
        }
        let mut shape = Dims::new();
        for list in lists.iter().flatten() {
            shape = shape::broadcast(&shape, list.sizes()).map_err(|_| mismatch(&lists))?;
        }
        let dims: Vec<usize> = (0..lists.len()).filter(|&dim| lists[dim].is_some()).collect();
        let first = match (dims.first(), dims.last()) {
            (Some(first), Some(last)) if last - first + 1 == dims.len() => *first,
            _ => 0,
        };
        let (mut sizes, mut strides) = (Dims::new(), Dims::new());
        for dim in (0..self.dim()).filter(|dim| !dims.contains(dim)) {
            sizes.push(self.sizes()[dim]);
            strides.push(self.strides()[dim]);
        }
        let places = self.places_of(&lists, &shape, operation)?;
        let mut place_strides = Dims::from_elem(0, sizes.len());
        for (at, (&size, &stride)) in shape.iter().zip(places.strides()).enumerate() {
            sizes.insert(first + at, size);
            strides.insert(first + at, 0);
            place_strides.insert(first + at, stride);
        }
        shape::checked_numel(&sizes)?;
        let is_missing = dims.iter().any(|&dim| self.sizes()[dim] == 0);
        if is_missing && places.numel() > 0 {
            return Err(invalid("index is out of bounds for dimension with size 0"));
        }
        // An out-of-range index has been reported already; it is treated as index 0.
        let size = shape::extent(self.sizes(), self.strides()).unwrap_or(i64::MAX);
        let along = Along { size, stride: 1, wraps: false, operation };
        let view = self.with_layout(sizes.clone(), strides, self.storage_offset())?;
        let strides = visited(&view, &lists, &shape, first)?;
        let places = places.with_layout(sizes, place_strides, 0)?;
        Ok(Combined { places, view, along, lists: first..first + shape.len(), strides })
    }

    /// For each place of the indices' shape, how many elements it is from the tensor's first one.
    fn places_of(&self, lists: &[Option<Self>], shape: &[i64], operation: Reporter) -> Result<Self> {
        let out = Self::zeros(shape, DType::I64, self)?;
        let on_host = if is_host(self.device()) { out.numel() } else { 0 };
        let mut sums: Vec<i64> = host_memory::zeroed(usize::try_from(on_host).unwrap_or(0))?;
        let mut first = true;
        for (dim, list) in lists.iter().enumerate() {
            let Some(list) = list else { continue };
            let (size, stride) = (self.sizes()[dim], self.strides()[dim]);
            let along = Along { size, stride, wraps: true, operation };
            let list = list.expand(shape)?;
            if is_host(self.device()) {
                for (sum, (element, index)) in sums.iter_mut().zip(values(&list)?) {
                    *sum += checked(&along, element, index)
                        .map_err(|error| error.in_dimension(dim, IndexKernel::Elements))?
                        * stride;
                }
            } else {
                index::combine(&out, &list, along, first)?;
            }
            first = false;
        }
        if is_host(self.device()) { Self::from_slice(&sums, shape) } else { Ok(out) }
    }

    /// The indices with a list for each dimension of a mask instead of the mask.
    fn without_masks(&self, indices: &[Option<&Self>]) -> Result<Vec<Option<Self>>> {
        let mut lists = Vec::new();
        for index in indices {
            match index {
                None => lists.push(None),
                Some(mask) if matches!(mask.dtype(), DType::Bool | DType::U8) => {
                    for dim in 0..mask.dim() {
                        let own = self.sizes().get(lists.len() + dim).copied();
                        if own != Some(mask.sizes()[dim]) {
                            let (mask, own, at) = (mask.sizes(), self.sizes(), lists.len() + dim);
                            return Err(invalid(format!(
                                "The shape of the mask {mask:?} at index {dim} does not match the shape of the indexed \
                                 tensor {own:?} at index {at}"
                            )));
                        }
                    }
                    let found = mask.nonzero()?;
                    for dim in 0..mask.dim() {
                        lists.push(Some(found.select(1, i64::try_from(dim).unwrap_or(0))?));
                    }
                }
                Some(list) if matches!(list.dtype(), DType::I32 | DType::I64) => lists.push(Some((*list).clone())),
                Some(_) => {
                    return Err(invalid("tensors used as indices must be long, int, byte or bool tensors"));
                }
            }
        }
        Ok(lists)
    }
}

/// Warns, as torch does, of a target with repeated elements: it is not specified which of several values is kept.
fn note_repeats(target: &Tensor) {
    target.storage().note_write();
    if check_overlap(target, &[]).is_err() {
        c10_core::warn(
            "Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor before performing this \
             operation. This also applies to advanced indexing e.g. tensor[indices] = tensor",
        );
    }
}

impl Combined {
    fn indexed<'a>(&'a self, other: &'a Tensor) -> Indexed<'a> {
        Indexed { pointed: &self.view, along: self.along, index: &self.places, other }
    }
}

/// Returns the strides of a new result for a view and indices that broadcast to `shape`. The dimensions of `shape`
/// start at dimension `first` of the view.
fn visited(view: &Tensor, lists: &[Option<Tensor>], shape: &[i64], first: usize) -> Result<Dims> {
    let after = view.dim() - first - shape.len();
    let mut sizes = Dims::from_elem(1, first);
    sizes.extend_from_slice(shape);
    sizes.extend(std::iter::repeat_n(1, after));
    let mut operands: SmallVec<[OperandLayout; 4]> = SmallVec::new();
    operands.push(OperandLayout::of(view, Dims::from_slice(view.sizes()), Dims::from_slice(view.strides())));
    for list in lists.iter().flatten() {
        let list = list.expand(shape)?;
        // A list that cannot be viewed with these sizes is copied, and the copy is contiguous.
        let strides = view_strides(list.sizes(), list.strides(), &sizes).unwrap_or_else(|| contiguous_strides(&sizes));
        operands.push(OperandLayout::of(&list, sizes.clone(), strides));
    }
    Ok(result_strides(view.sizes(), &operands.iter().collect::<SmallVec<[&OperandLayout; 4]>>(), false))
}

fn mismatch(lists: &[Option<Tensor>]) -> TensorError {
    let shapes: Vec<String> = lists.iter().flatten().map(|list| format!("{:?}", list.sizes())).collect();
    TensorError::Invalid(format!(
        "shape mismatch: indexing tensors could not be broadcast together with shapes {}",
        shapes.join(", ")
    ))
}
