//! Other sizes and strides over the same storage. None of these functions copies elements, except [`Tensor::reshape`]
//! and [`Tensor::contiguous`] where they must. All views are made by [`Tensor::with_layout`], which checks them.

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::shape::{self, Dims, contiguous_strides, wrap_dim};
use crate::tensor::{Tensor, is_host};

impl Tensor {
    /// Sizes and strides over the storage, from `offset` on or from the tensor's own first element (`as_strided`).
    ///
    /// # Errors
    /// A size or a stride is negative, or the view is not inside the storage.
    pub fn as_strided(&self, sizes: &[i64], strides: &[i64], offset: Option<i64>) -> Result<Self> {
        let offset = offset.unwrap_or(self.storage_offset());
        self.with_layout(Dims::from_slice(sizes), Dims::from_slice(strides), offset)
    }

    /// The same elements with other sizes; one of them may be -1 (`view`).
    ///
    /// # Errors
    /// The sizes are for another number of elements, or a copy would be needed.
    pub fn view(&self, sizes: &[i64]) -> Result<Self> {
        let sizes = infer_size(sizes, self.numel())?;
        match view_strides(self.sizes(), self.strides(), &sizes) {
            Some(strides) => self.with_layout(sizes, strides, self.storage_offset()),
            None => Err(TensorError::ViewNeedsCopy.into()),
        }
    }

    /// The same elements with other sizes, as a view where that is possible; one size may be -1 (`reshape`).
    ///
    /// # Errors
    /// The sizes are for another number of elements, or the copy fails.
    pub fn reshape(&self, sizes: &[i64]) -> Result<Self> {
        let sizes = infer_size(sizes, self.numel())?;
        match view_strides(self.sizes(), self.strides(), &sizes) {
            Some(strides) => self.with_layout(sizes, strides, self.storage_offset()),
            None => self.contiguous()?.view(&sizes),
        }
    }

    /// All elements in one dimension (`flatten`).
    ///
    /// # Errors
    /// A copy is needed and fails.
    pub fn flatten(&self) -> Result<Self> {
        self.reshape(&[-1])
    }

    /// Two dimensions swapped (`transpose`).
    ///
    /// # Errors
    /// There is no such dimension.
    pub fn transpose(&self, first: i64, second: i64) -> Result<Self> {
        let (first, second) = (wrap_dim(first, self.dim())?, wrap_dim(second, self.dim())?);
        let (mut sizes, mut strides) = (Dims::from_slice(self.sizes()), Dims::from_slice(self.strides()));
        if !sizes.is_empty() {
            sizes.swap(first, second);
            strides.swap(first, second);
        }
        self.with_layout(sizes, strides, self.storage_offset())
    }

    /// A matrix with its dimensions swapped; a vector as it is (`t`).
    ///
    /// # Errors
    /// There are more than two dimensions.
    pub fn t(&self) -> Result<Self> {
        match self.dim() {
            0 | 1 => Ok(self.clone()),
            2 => self.transpose(0, 1),
            dim => Err(invalid(format!("t() expects a tensor with <= 2 dimensions, but self is {dim}D"))),
        }
    }

    /// The dimensions in another order (`permute`).
    ///
    /// # Errors
    /// The order does not name every dimension once.
    pub fn permute(&self, dims: &[i64]) -> Result<Self> {
        if dims.len() != self.dim() {
            let (dims, rank) = (dims.len(), self.dim());
            let text = "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the \
                        desired ordering of dimensions i.e. input.dim() = ";
            return Err(invalid(format!("{text}{rank} is not equal to len(dims) = {dims}")));
        }
        let (mut sizes, mut strides, mut seen) = (Dims::new(), Dims::new(), vec![false; self.dim()]);
        for &dim in dims {
            let at = wrap_dim(dim, self.dim())?;
            if std::mem::replace(&mut seen[at], true) {
                return Err(invalid("permute(): duplicate dims are not allowed."));
            }
            sizes.push(self.sizes()[at]);
            strides.push(self.strides()[at]);
        }
        self.with_layout(sizes, strides, self.storage_offset())
    }

    /// One place of a dimension, which goes away (`select`).
    ///
    /// # Errors
    /// There is no such dimension or place.
    pub fn select(&self, dim: i64, index: i64) -> Result<Self> {
        if self.dim() == 0 {
            return Err(invalid("select() cannot be applied to a 0-dim tensor."));
        }
        let at = wrap_dim(dim, self.dim())?;
        let size = self.sizes()[at];
        let place = if index < 0 { index + size } else { index };
        if !(0..size).contains(&place) {
            let sizes = self.sizes();
            return Err(invalid(format!(
                "select(): index {index} out of range for tensor of size {sizes:?} at dimension {at}"
            )));
        }
        let (mut sizes, mut strides) = (Dims::from_slice(self.sizes()), Dims::from_slice(self.strides()));
        sizes.remove(at);
        let stride = strides.remove(at);
        self.with_layout(sizes, strides, self.storage_offset().saturating_add(place.saturating_mul(stride)))
    }

    /// Every `step`th place of a dimension from `start` up to `end`; places past the ends are brought to them (`slice`).
    ///
    /// # Errors
    /// There is no such dimension, or the step is not positive.
    pub fn slice(&self, dim: i64, start: Option<i64>, end: Option<i64>, step: i64) -> Result<Self> {
        if self.dim() == 0 {
            return Err(invalid("slice() cannot be applied to a 0-dim tensor."));
        }
        if step <= 0 {
            return Err(invalid("slice step must be positive"));
        }
        let at = wrap_dim(dim, self.dim())?;
        let size = self.sizes()[at];
        let place = |place: i64| if place < 0 { place.saturating_add(size) } else { place }.clamp(0, size);
        let start = place(start.unwrap_or(0));
        let end = place(end.unwrap_or(i64::MAX)).max(start);
        let (mut sizes, mut strides) = (Dims::from_slice(self.sizes()), Dims::from_slice(self.strides()));
        // Rounds up without a sum that could overflow for a large step.
        sizes[at] = if start < end { (end - start - 1) / step + 1 } else { 0 };
        let offset = self.storage_offset().saturating_add(start.saturating_mul(strides[at]));
        strides[at] = strides[at].saturating_mul(step);
        self.with_layout(sizes, strides, offset)
    }

    /// A range of a dimension (`narrow`).
    ///
    /// # Errors
    /// There is no such dimension, or the range is not inside it.
    pub fn narrow(&self, dim: i64, start: i64, length: i64) -> Result<Self> {
        if self.dim() == 0 {
            return Err(invalid("narrow() cannot be applied to a 0-dim tensor."));
        }
        if length < 0 {
            return Err(invalid("narrow(): length must be non-negative."));
        }
        let size = self.size(dim)?;
        let first = if start < 0 { start + size } else { start };
        if !(0..=size).contains(&first) {
            let text = format!("start out of range (expected to be in range of [{}, {size}], but got {start})", -size);
            return Err(invalid(text));
        }
        if length > size - first {
            return Err(invalid(format!("start ({first}) + length ({length}) exceeds dimension size ({size}).")));
        }
        self.slice(dim, Some(first), Some(first + length), 1)
    }

    /// Dimensions of one element repeated, and new ones in front; -1 leaves a size as it is (`expand`).
    ///
    /// # Errors
    /// A size of more than one element would change.
    pub fn expand(&self, target: &[i64]) -> Result<Self> {
        let Some(new) = target.len().checked_sub(self.dim()) else {
            let (sizes, rank) = (target, self.dim());
            return Err(invalid(format!(
                "expand({}{{{:?}}}, size={sizes:?}): the number of sizes provided ({}) must be greater or equal to the \
                 number of dimensions in the tensor ({rank})",
                type_name(self),
                self.sizes(),
                sizes.len(),
            )));
        };
        let (mut sizes, mut strides) = (Dims::from_elem(0, target.len()), Dims::from_elem(0, target.len()));
        // From the last dimension on, as torch finds faults.
        for (dim, &wanted) in target.iter().enumerate().rev() {
            let existing = dim.checked_sub(new).map(|at| (self.sizes()[at], self.strides()[at]));
            let (size, stride) = match (existing, wanted) {
                (Some((size, stride)), -1) => (size, stride),
                (Some((size, stride)), wanted) if size == wanted => (size, stride),
                // Other negative sizes are found when the elements are counted.
                (Some((1, _)), wanted) => (wanted, 0),
                (None, 1) if self.dim() > 0 => {
                    let next = sizes.get(dim + 1).zip(strides.get(dim + 1));
                    (1, next.map_or(1, |(size, stride)| size.saturating_mul(*stride)))
                }
                (None, wanted) if wanted >= 0 => (wanted, 0),
                (None, _) if self.dim() == 0 => (wanted, 0),
                (Some((existing, _)), expanded) => {
                    let (target, sizes) = (target.to_vec(), self.sizes().to_vec());
                    return Err(TensorError::Expand { expanded, existing, dim, target, sizes }.into());
                }
                (None, _) => {
                    return Err(invalid(format!(
                        "The expanded size of the tensor ({wanted}) isn't allowed in a leading, non-existing dimension {dim}"
                    )));
                }
            };
            (sizes[dim], strides[dim]) = (size, stride);
        }
        if sizes.iter().any(|&size| size < 0) {
            return Err(invalid("numel: integer multiplication overflow"));
        }
        shape::checked_numel(&sizes)?;
        self.with_layout(sizes, strides, self.storage_offset())
    }

    /// Without dimensions of one element: all of them, or the one that is named if it has one (`squeeze`).
    ///
    /// # Errors
    /// There is no such dimension.
    pub fn squeeze(&self, dim: Option<i64>) -> Result<Self> {
        let only = dim.map(|dim| wrap_dim(dim, self.dim())).transpose()?;
        let kept = |at: &usize| self.sizes()[*at] != 1 || only.is_some_and(|only| only != *at);
        let dims: Vec<usize> = (0..self.dim()).filter(kept).collect();
        let sizes = dims.iter().map(|&at| self.sizes()[at]).collect();
        let strides = dims.iter().map(|&at| self.strides()[at]).collect();
        self.with_layout(sizes, strides, self.storage_offset())
    }

    /// A new dimension of one element before the named place (`unsqueeze`).
    ///
    /// # Errors
    /// There is no such place.
    pub fn unsqueeze(&self, dim: i64) -> Result<Self> {
        let at = wrap_dim(dim, self.dim() + 1)?;
        let (mut sizes, mut strides) = (Dims::from_slice(self.sizes()), Dims::from_slice(self.strides()));
        let stride = if at < self.dim() { sizes[at].saturating_mul(strides[at]) } else { 1 };
        sizes.insert(at, 1);
        strides.insert(at, stride);
        self.with_layout(sizes, strides, self.storage_offset())
    }

    /// The diagonal of two dimensions as a new last dimension (`diagonal`).
    ///
    /// # Errors
    /// There are no such two dimensions.
    pub fn diagonal(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Self> {
        let (first, second) = (wrap_dim(dim1, self.dim())?, wrap_dim(dim2, self.dim())?);
        if first == second {
            return Err(invalid(format!("diagonal dimensions cannot be identical {dim1}, {dim2}")));
        }
        let (mut sizes, mut strides) = (Dims::from_slice(self.sizes()), Dims::from_slice(self.strides()));
        let (rows, columns) = (sizes[first], sizes[second]);
        let length = match offset {
            0.. => rows.min(columns.saturating_sub(offset)),
            _ => rows.saturating_add(offset).min(columns),
        }
        .max(0);
        let stride = strides[first].saturating_add(strides[second]);
        let start = match (length, offset) {
            (0, _) => 0,
            (_, 0..) => offset.saturating_mul(strides[second]),
            _ => offset.saturating_neg().saturating_mul(strides[first]),
        };
        for dim in [first.max(second), first.min(second)] {
            sizes.remove(dim);
            strides.remove(dim);
        }
        sizes.push(length);
        strides.push(stride);
        self.with_layout(sizes, strides, self.storage_offset().saturating_add(start))
    }
}

/// The name of the tensor's type as C++ writes it in some texts.
fn type_name(tensor: &Tensor) -> String {
    let (dtype, name) = (tensor.dtype(), tensor.dtype().scalar_type_name());
    let is_old = !matches!(dtype, DType::Bool | DType::BF16) && !dtype.is_complex() && !dtype.is_float8();
    match (is_old, is_host(tensor.device())) {
        (true, true) => format!("torch.{name}Tensor"),
        (true, false) => format!("torch.cuda.{name}Tensor"),
        (false, true) => format!("CPU{name}Type"),
        (false, false) => format!("CUDA{name}Type"),
    }
}

/// The sizes with -1 replaced.
fn infer_size(sizes: &[i64], numel: i64) -> Result<Dims> {
    let wrong = || TensorError::InvalidShape { shape: sizes.to_vec(), numel };
    let mut inferred = None;
    let mut known = 1_i64;
    for (dim, &size) in sizes.iter().enumerate() {
        match size {
            -1 if inferred.is_some() => return Err(invalid("only one dimension can be inferred")),
            -1 => inferred = Some(dim),
            0.. => known = known.checked_mul(size).ok_or_else(wrong)?,
            _ => return Err(invalid(format!("invalid shape dimension {size}"))),
        }
    }
    let mut sizes_found = Dims::from_slice(sizes);
    match inferred {
        Some(dim) if known != 0 && numel % known == 0 => sizes_found[dim] = numel / known,
        Some(_) if known == 0 && numel == 0 => {
            return Err(invalid(format!(
                "cannot reshape tensor of 0 elements into shape {sizes:?} because the unspecified dimension size -1 can \
                 be any value and is ambiguous"
            )));
        }
        None if known == numel => {}
        _ => return Err(wrong().into()),
    }
    Ok(sizes_found)
}

/// The strides with which other sizes go through the same elements, where there are such strides.
///
/// Each run of dimensions that lie one after another in memory is split up or joined on its own.
pub(crate) fn view_strides(sizes: &[i64], strides: &[i64], target: &[i64]) -> Option<Dims> {
    if shape::numel(sizes) == 0 {
        return Some(if sizes == target { Dims::from_slice(strides) } else { contiguous_strides(target) });
    }
    let mut found = Dims::from_elem(0, target.len());
    let mut next = target.len();
    // The innermost stride of the run that ends at `dim`, and how many elements the run has.
    let (mut base, mut run, mut filled) = (strides.last().copied().unwrap_or(1), 1, 1);
    for dim in (0..sizes.len()).rev() {
        run *= sizes[dim];
        let ends = dim == 0 || (sizes[dim - 1] != 1 && strides[dim - 1] != run * base);
        if !ends {
            continue;
        }
        while next > 0 && (filled < run || target[next - 1] == 1) {
            next -= 1;
            found[next] = filled * base;
            filled *= target[next];
        }
        if filled != run {
            return None;
        }
        if dim > 0 {
            (base, run, filled) = (strides[dim - 1], 1, 1);
        }
    }
    // What is left are dimensions of one element before a tensor without dimensions.
    for dim in (0..next).rev() {
        found[dim] = filled * base;
        filled *= target[dim];
    }
    (filled == run).then_some(found)
}
