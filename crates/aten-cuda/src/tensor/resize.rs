//! Resizes outputs to their result (torch's `out=`).
//!
//! Operations take the output by reference, so resizing uses interior mutability: the handle refers to another tensor
//! with the new sizes from then on. Existing clones and views keep their sizes.

use crate::base::error::{Result, TensorError, invalid};
use crate::base::layout::checked_reach;
use crate::base::shape::{Dims, checked_numel};
use crate::storage::Storage;
use crate::tensor::Tensor;

/// Limit of resizes of one handle: each resize keeps the previous tensor alive inside the handle.
const MOST_RESIZES: usize = 1 << 10;

impl Tensor {
    /// Changes the sizes and strides of the handle. It keeps its memory if that is large enough; otherwise it gets new,
    /// uninitialised memory.
    fn resize_to(&self, sizes: &[i64], strides: &[i64]) -> Result<()> {
        checked_numel(sizes)?;
        let (latest, start) = (self.latest(), self.storage_offset());
        let width = self.element_size();
        let bytes = checked_reach(self.dtype(), sizes, strides)?;
        let before = usize::try_from(start).unwrap_or(usize::MAX).saturating_mul(width);
        let has_room = before.checked_add(bytes).is_some_and(|end| end <= self.storage().nbytes());
        let (storage, offset) = if has_room {
            (self.storage().clone(), start)
        } else if self.is_pinned() {
            (Storage::new_pinned(bytes)?, 0)
        } else {
            (Storage::new(bytes, self.device())?, 0)
        };
        let made = Self::view_of(storage, self.dtype(), Dims::from_slice(sizes), Dims::from_slice(strides), offset)?;
        let made = Self { is_parameter: self.is_parameter(), ..made.with_signs(self.signs()) };
        let resizes = std::iter::successors(Some(self), |handle| handle.resized.get().map(Box::as_ref)).count() - 1;
        if resizes >= MOST_RESIZES {
            return Err(invalid(format!("an output was resized {MOST_RESIZES} times; make a new tensor")));
        }
        // Another thread may have resized the handle in the meantime.
        latest.resized.set(Box::new(made)).map_err(|_| invalid("an output was resized by two threads at once"))
    }
}

/// Resizes an output to a result, with torch's warning unless the output is empty. `strides` returns the strides of the
/// resized output.
///
/// # Errors
/// The output is an operand and has other sizes; there is not enough memory; the output was resized too often.
pub(crate) fn resize_output(
    out: &Tensor,
    operands: &[&Tensor],
    sizes: &[i64],
    strides: impl FnOnce() -> Dims,
) -> Result<()> {
    if out.sizes() == sizes {
        return Ok(());
    }
    if operands.iter().any(|operand| std::ptr::eq(*operand, out)) {
        let (output, result) = (out.sizes().to_vec(), sizes.to_vec());
        return Err(TensorError::OutputShape { output, result }.into());
    }
    if out.numel() != 0 {
        c10_core::warn(&format!(
            "An output with one or more elements was resized since it had shape {:?}, which does not match the required \
             output shape {sizes:?}. This behavior is deprecated, and in a future PyTorch release outputs will not be \
             resized unless they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to \
             zero elements with t.resize_(0).",
            out.sizes(),
        ));
    }
    out.resize_to(sizes, &strides())
}
