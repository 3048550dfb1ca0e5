//! Tensors joined, cut up, turned round and repeated.

use c10_core::{MemoryError, host_memory};
use smallvec::SmallVec;

use crate::autocast::{self, Policies};
use crate::base::error::{Result, invalid, refuse_float8};
use crate::base::promotion::Participants;
use crate::base::shape::{self, Dims, wrap_dim};
use crate::launch;
use crate::launch::library::index;
use crate::tensor::{Context, Places, Tensor, empty_strided, is_host};

impl Tensor {
    /// The tensors one after another along `dim`, in their common dtype (`torch.cat`). Empty tensors of one dimension
    /// are left out, as in torch. The result lies row by row or, where the channels of all tensors lie last, with its
    /// channels last.
    ///
    /// # Errors
    /// There are no tensors, their sizes differ elsewhere, or they are on several devices.
    pub fn cat(tensors: &[&Self], dim: i64) -> Result<Self> {
        if let Some((_inside, cast)) = autocast::cast_all(const { Policies::of("cat") }, tensors)? {
            return Self::cat(&cast.iter().collect::<Vec<_>>(), dim);
        }
        let Some(&first) = tensors.first() else {
            return Err(invalid("torch.cat(): expected a non-empty list of Tensors"));
        };
        if let Some(at) = tensors.iter().position(|tensor| tensor.dim() == 0) {
            return Err(invalid(format!("zero-dimensional tensor (at position {at}) cannot be concatenated")));
        }
        let mut participants = Participants::default();
        tensors.iter().try_for_each(|tensor| participants.tensor(tensor.dtype(), tensor.dim()))?;
        let dtype = participants.result()?;
        launch::common_device(tensors.iter().copied())?;
        let joined: SmallVec<[(usize, &Self); 8]> =
            tensors.iter().copied().enumerate().filter(|(_, tensor)| tensor.sizes() != [0]).collect();
        let Some(&(_, shaped)) = joined.first() else {
            // torch looks at no dimension of tensors that are all left out.
            return Self::uninitialized(&[0], dtype, first);
        };
        let at = wrap_dim(dim, shaped.dim())?;
        let mut sizes = Dims::from_slice(shaped.sizes());
        sizes[at] = 0;
        for &(number, tensor) in &joined {
            check_joined(shaped, tensor, at, number)?;
            sizes[at] = sizes[at].saturating_add(tensor.sizes()[at]);
        }
        shape::checked_numel(&sizes)?;
        let run = || {
            let strides = joined_strides(tensors, &sizes);
            let out = empty_strided(&sizes, &strides, dtype, first.device())?;
            let mut start = 0;
            for (_, tensor) in joined {
                let length = tensor.sizes()[at];
                out.narrow(dim, start, length)?.copy_(tensor)?;
                start += length;
            }
            Ok(out)
        };
        run().of("cat", tensors)
    }

    /// The tensors side by side along a new dimension (`torch.stack`).
    ///
    /// # Errors
    /// There are no tensors, their sizes differ, or they are on several devices.
    pub fn stack(tensors: &[&Self], dim: i64) -> Result<Self> {
        if let Some((_inside, cast)) = autocast::cast_all(const { Policies::of("stack") }, tensors)? {
            return Self::stack(&cast.iter().collect::<Vec<_>>(), dim);
        }
        let Some(&first) = tensors.first() else { return Err(invalid("stack expects a non-empty TensorList")) };
        let at = wrap_dim(dim, first.dim() + 1)?;
        if let Some(at) = tensors.iter().position(|tensor| tensor.sizes() != first.sizes()) {
            let (wanted, found) = (first.sizes(), tensors[at].sizes());
            return Err(invalid(format!(
                "stack expects each tensor to be equal size, but got {wanted:?} at entry 0 and {found:?} at entry {at}"
            )));
        }
        if at < first.dim() {
            // As in torch, which keeps the layout so.
            let mut sizes = first.sizes().to_vec();
            sizes.insert(at, i64::try_from(tensors.len()).unwrap_or(i64::MAX));
            return Self::cat(tensors, i64::try_from(at).unwrap_or(0))?.view(&sizes);
        }
        let parts: Vec<Self> = tensors.iter().map(|tensor| tensor.unsqueeze(dim)).collect::<Result<_>>()?;
        Self::cat(&parts.iter().collect::<Vec<_>>(), dim)
    }

    /// Views of `size` places each along `dim`, the last one perhaps of fewer (`split`).
    ///
    /// # Errors
    /// There is no such dimension, or the size is negative or, with places to split, zero.
    pub fn split(&self, size: i64, dim: i64) -> Result<Vec<Self>> {
        if self.dim() == 0 {
            return Err(invalid("split expects at least a 1-dimensional tensor"));
        }
        if size < 0 {
            return Err(invalid(format!("split expects split_size be non-negative, but got split_size={size}")));
        }
        let length = self.size(dim)?;
        if size == 0 && length != 0 {
            return Err(invalid(format!(
                "split_size can only be 0 if dimension size is 0, but got dimension size of {length}"
            )));
        }
        let count = if size == 0 { 1 } else { pieces(length, size).max(1) };
        views(count, |part| self.narrow(dim, part * size, size.min(length - part * size)))
    }

    /// Views of the given numbers of places along `dim`, which come to all of them (`split_with_sizes`).
    ///
    /// # Errors
    /// There is no such dimension, a number is negative, or they come to something else.
    pub fn split_with_sizes(&self, lengths: &[i64], dim: i64) -> Result<Vec<Self>> {
        let length = self.size(dim)?;
        if lengths.iter().any(|&part| part < 0) {
            return Err(invalid(format!(
                "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={lengths:?}"
            )));
        }
        if lengths.iter().copied().map(i128::from).sum::<i128>() != i128::from(length) {
            let at = wrap_dim(dim, self.dim())?;
            return Err(invalid(format!(
                "split_with_sizes expects split_sizes to sum exactly to {length} (input tensor's size at dimension {at}), \
                 but got split_sizes={lengths:?}"
            )));
        }
        let mut start = 0;
        let part = |&length: &i64| {
            let view = self.narrow(dim, start, length);
            start += length;
            view
        };
        lengths.iter().map(part).collect()
    }

    /// Views along `dim`: `chunks` of them, or fewer where the places do not suffice (`chunk`).
    ///
    /// # Errors
    /// There is no such dimension, or the number is not positive.
    pub fn chunk(&self, chunks: i64, dim: i64) -> Result<Vec<Self>> {
        if self.dim() == 0 {
            return Err(invalid("chunk expects at least a 1-dimensional tensor"));
        }
        if chunks <= 0 {
            return Err(invalid(format!("chunk expects `chunks` to be greater than 0, got: {chunks}")));
        }
        let length = self.size(dim)?;
        let size = pieces(length, chunks);
        if size == 0 {
            return views(chunks, |_| self.narrow(dim, 0, 0));
        }
        self.split(size, dim)
    }

    /// A copy with the order of the places along each of `dims` reversed (`flip`).
    ///
    /// # Errors
    /// There is no such dimension, one is named twice, or there is not enough memory.
    pub fn flip(&self, dims: &[i64]) -> Result<Self> {
        let mut turned: SmallVec<[usize; 6]> = SmallVec::new();
        for &dim in dims {
            let at = wrap_dim(dim, self.dim())?;
            if turned.contains(&at) {
                return Err(invalid(format!("dim {at} appears multiple times in the list of dims")));
            }
            turned.push(at);
        }
        turned.retain(|at| self.dim() > *at);
        let out = self.uninitialized_like()?;
        if self.numel() == 0 {
            return Ok(out);
        }
        if !is_host(self.device()) {
            index::reversed(&out, &self.as_stored(), &turned)?;
            out.turn_signs(self.signs())?;
            return Ok(out);
        }
        let (bytes, width) = (self.to_bytes()?, self.element_size());
        let below: Dims = shape::contiguous_strides(self.sizes());
        let reversed = |place: usize| -> usize {
            let place = i64::try_from(place).unwrap_or(0);
            let moved: i64 = turned
                .iter()
                .map(|&at| (self.sizes()[at] - 1 - 2 * (place / below[at] % self.sizes()[at])) * below[at])
                .sum();
            usize::try_from(place + moved).unwrap_or(0)
        };
        let mut to = out.plain_storage()?.host_mut()?;
        for (place, at) in Places::new(out.sizes(), out.strides()).enumerate() {
            let from = reversed(place) * width;
            to[at * width..(at + 1) * width].copy_from_slice(&bytes[from..from + width]);
        }
        drop(to);
        Ok(out)
    }

    /// A copy with the places along each of `dims` moved on, those at the end to the front; without dimensions over all
    /// elements as one row (`roll`).
    ///
    /// # Errors
    /// There is no such dimension, the lists differ in length, or there is not enough memory.
    pub fn roll(&self, shifts: &[i64], dims: &[i64]) -> Result<Self> {
        match (shifts, dims) {
            ([], _) => Err(invalid("`shifts` required")),
            ([shift], []) => self.flatten()?.roll(&[*shift], &[0])?.view(self.sizes()),
            (shifts, dims) if shifts.len() != dims.len() => {
                let (shifts, dims) = (shifts.len(), dims.len());
                Err(invalid(format!("shifts and dimensions must align. shifts: {shifts}, dims:{dims}")))
            }
            ([shift], [dim]) => self.rolled(*shift, *dim),
            (shifts, dims) => {
                let first = self.rolled(shifts[0], dims[0])?;
                first.roll(&shifts[1..], &dims[1..])
            }
        }
    }

    fn rolled(&self, shift: i64, dim: i64) -> Result<Self> {
        refuse_float8("roll_cuda", self.dtype())?;
        if self.dim() == 0 {
            return Err(invalid(format!("Dimension specified as {dim} but tensor has no dimensions")));
        }
        if self.numel() == 0 {
            return self.copy();
        }
        let length = self.size(dim)?;
        let start = (length - shift.rem_euclid(length)) % length;
        if start == 0 {
            return self.contiguous_copy();
        }
        Self::cat(&[&self.narrow(dim, start, length - start)?, &self.narrow(dim, 0, start)?], dim)
    }

    /// A copy with all elements repeated along each dimension; more numbers than dimensions make new ones in front
    /// (`repeat`).
    ///
    /// # Errors
    /// There are fewer numbers than dimensions, one is negative, or there is not enough memory.
    pub fn repeat(&self, repeats: &[i64]) -> Result<Self> {
        let Some(new) = repeats.len().checked_sub(self.dim()) else {
            return Err(invalid(
                "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
            ));
        };
        let (mut target, mut single, mut double) = (Dims::new(), Dims::new(), Dims::new());
        for (dim, &count) in repeats.iter().enumerate() {
            let size = dim.checked_sub(new).map_or(1, |at| self.sizes()[at]);
            target.push(size.saturating_mul(count));
            single.extend([1, size]);
            double.extend([count, size]);
        }
        let out = Self::uninitialized(&target, self.dtype(), self)?;
        if out.numel() > 0 {
            // Each dimension as a dimension of repetitions over one of its own places.
            out.view(&double)?.copy_(&self.as_repeated(&single, new)?.expand(&double)?)?;
        }
        Ok(out)
    }

    /// The elements with a dimension of one element before each.
    fn as_repeated(&self, sizes: &[i64], new: usize) -> Result<Self> {
        let strides: Dims = (0..sizes.len())
            .map(|at| if at % 2 == 1 { (at / 2).checked_sub(new).map_or(0, |dim| self.strides()[dim]) } else { 0 })
            .collect();
        self.with_layout(Dims::from_slice(sizes), strides, self.storage_offset())
    }
}

/// Largest number of views that one call makes. Chunks of an empty dimension or parts of an expanded one need no memory
/// for elements, so nothing else limits their number.
const MOST_VIEWS: usize = 1 << 24;

/// Makes `count` views; `count` is derived from the caller's arguments.
fn views(count: i64, mut view: impl FnMut(i64) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let room = usize::try_from(count).unwrap_or(usize::MAX);
    if room > MOST_VIEWS {
        let bytes = room.saturating_mul(size_of::<Tensor>());
        return Err(c10_core::Error::from(MemoryError::HostAllocation { bytes }).into());
    }
    let mut made = host_memory::with_capacity(room)?;
    for part in 0..count {
        made.push(view(part)?);
    }
    Ok(made)
}

/// Returns the number of pieces of a positive size that cover a length.
fn pieces(length: i64, size: i64) -> i64 {
    if length > 0 { (length - 1) / size + 1 } else { 0 }
}

/// How a joined tensor lies: with the channels last where they do so in all tensors, also those that are left out.
fn joined_strides(tensors: &[&Tensor], sizes: &[i64]) -> Dims {
    let is_last = |tensor: &&Tensor| shape::has_channels_last(tensor.sizes(), tensor.strides());
    if tensors.iter().all(is_last) { shape::channels_last_strides(sizes) } else { shape::contiguous_strides(sizes) }
}

/// Checks that a tensor has the sizes of another but along one dimension.
fn check_joined(first: &Tensor, tensor: &Tensor, dim: usize, number: usize) -> Result<()> {
    if first.dim() != tensor.dim() {
        let (wanted, found) = (first.dim(), tensor.dim());
        return Err(invalid(format!("Tensors must have same number of dimensions: got {wanted} and {found}")));
    }
    let differs = |&at: &usize| at != dim && first.sizes()[at] != tensor.sizes()[at];
    match (0..first.dim()).find(differs) {
        None => Ok(()),
        Some(at) => Err(invalid(format!(
            "Sizes of tensors must match except in dimension {dim}. Expected size {} but got size {} for tensor number \
             {number} in the list.",
            first.sizes()[at],
            tensor.sizes()[at]
        ))),
    }
}
