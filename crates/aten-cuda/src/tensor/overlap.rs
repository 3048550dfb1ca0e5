//! Detects views that share memory, by torch's rule: only a certain overlap is an error.
//!
//! Deciding whether two views with gaps share elements is a hard problem. Such views are accepted: if their elements
//! overlap, the result of the operation is unspecified, as in torch. Accesses stay inside the storage in any case,
//! since every view does.

use crate::base::error::{Result, TensorError};
use crate::base::shape::{self, Dims};
use crate::tensor::Tensor;

/// Relation of the memory of two views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overlap {
    /// The views share no element.
    None,
    /// Each element is at the same address in both views.
    Full,
    /// The views share some memory.
    Partial,
    /// The views have gaps and their memory ranges intersect: an overlap is possible but not certain.
    Unknown,
}

fn between(one: &Tensor, other: &Tensor) -> Overlap {
    if one.is_empty() || other.is_empty() || !one.storage().is_same(other.storage()) {
        return Overlap::None;
    }
    let range = |tensor: &Tensor| tensor.byte_offset()..tensor.byte_offset() + tensor.byte_extent();
    let (own, given) = (range(one), range(other));
    if own.start >= given.end || given.start >= own.end {
        return Overlap::None;
    }
    if own == given && one.dtype() == other.dtype() && one.sizes() == other.sizes() && one.strides() == other.strides()
    {
        return Overlap::Full;
    }
    let is_dense = |tensor: &Tensor| shape::is_non_overlapping_and_dense(tensor.sizes(), tensor.strides());
    if is_dense(one) && is_dense(other) { Overlap::Partial } else { Overlap::Unknown }
}

/// Whether the memory ranges of two views intersect.
pub(crate) fn may_share(one: &Tensor, other: &Tensor) -> bool {
    between(one, other) != Overlap::None
}

/// Whether two views may share memory other than element by element. If so, an operation that reads one and writes the
/// other in arbitrary order needs a copy.
pub(crate) fn may_mix(one: &Tensor, other: &Tensor) -> bool {
    matches!(between(one, other), Overlap::Partial | Overlap::Unknown)
}

/// Whether a dimension with stride zero repeats elements.
pub(crate) fn repeats(tensor: &Tensor) -> bool {
    let is_repeated = |(&size, &stride): (&i64, &i64)| size > 1 && stride == 0;
    !tensor.is_empty() && tensor.sizes().iter().zip(tensor.strides()).any(is_repeated)
}

/// Rejects an output that certainly repeats an element, or that certainly shares memory with an input other than
/// element by element. Notifies the observers of the output's memory that it is about to be written.
pub(crate) fn check_overlap(out: &Tensor, inputs: &[&Tensor]) -> Result<()> {
    out.storage().note_write();
    if repeats(out) {
        return Err(TensorError::InternalOverlap.into());
    }
    if inputs.iter().any(|input| between(out, input) == Overlap::Partial) {
        return Err(TensorError::PartialOverlap.into());
    }
    Ok(())
}

impl Tensor {
    /// Returns a view in which each repeated dimension has size one.
    ///
    /// # Errors
    /// None: the view is inside the storage, as this one is.
    pub(crate) fn without_repeats(&self) -> Result<Self> {
        let is_repeated = |(&size, &stride): (&i64, &i64)| size > 1 && stride == 0;
        if !repeats(self) {
            return Ok(self.clone());
        }
        let one = |pair: (&i64, &i64)| if is_repeated(pair) { 1 } else { *pair.0 };
        let sizes = self.sizes().iter().zip(self.strides()).map(one).collect();
        self.with_layout(sizes, Dims::from_slice(self.strides()), self.storage_offset())
    }
}

/// Rejects two outputs of one operation that certainly share an element.
pub(crate) fn check_apart(one: &Tensor, other: &Tensor) -> Result<()> {
    match between(one, other) {
        Overlap::None | Overlap::Unknown => Ok(()),
        Overlap::Full | Overlap::Partial => Err(TensorError::PartialOverlap.into()),
    }
}
