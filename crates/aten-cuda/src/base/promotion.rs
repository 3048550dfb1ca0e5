//! Which dtype an operation on several dtypes has (`torch.promote_types`, `torch.result_type`).

use crate::base::dtype::{Category, DType};
use crate::base::scalar::Scalar;

/// The smallest dtype that both convert to (`torch.promote_types`).
///
/// ```
/// use aten_cuda::{DType, promote_types};
///
/// assert_eq!(promote_types(DType::F16, DType::BF16), DType::F32);
/// assert_eq!(promote_types(DType::U8, DType::I8), DType::I16);
/// assert_eq!(promote_types(DType::I64, DType::F16), DType::F16);
/// ```
#[must_use]
pub fn promote_types(a: DType, b: DType) -> DType {
    if a == b {
        return a;
    }
    let (low, high) = if a.category() <= b.category() { (a, b) } else { (b, a) };
    match (low.category(), high.category()) {
        (Category::Integral, Category::Integral) => integers(low, high),
        (Category::Floating, Category::Floating) => floats(low, high),
        (Category::Complex, Category::Complex) => complex(low, high),
        (Category::Floating, Category::Complex) => complex(low.to_complex(), high),
        _ => high,
    }
}

fn integers(a: DType, b: DType) -> DType {
    let (narrow, wide) = if a.itemsize() <= b.itemsize() { (a, b) } else { (b, a) };
    // Neither of the two types of one byte holds the other's numbers.
    if narrow != wide && wide.itemsize() == 1 { DType::I16 } else { wide }
}

fn floats(a: DType, b: DType) -> DType {
    match (a.itemsize(), b.itemsize()) {
        (2, 2) if a != b => DType::F32,
        (x, y) if x >= y => a,
        _ => b,
    }
}

fn complex(a: DType, b: DType) -> DType {
    if a.itemsize() >= b.itemsize() { a } else { b }
}

/// The dtypes that take part in an operation, by how much they count: those of tensors with dimensions before those of
/// tensors without, before those of numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Participants {
    tensors: Option<DType>,
    zero_dimensional: Option<DType>,
    numbers: Option<DType>,
}

impl Participants {
    pub(crate) fn tensor(&mut self, dtype: DType, dimensions: usize) {
        let slot = if dimensions > 0 { &mut self.tensors } else { &mut self.zero_dimensional };
        *slot = Some(slot.map_or(dtype, |known| promote_types(known, dtype)));
    }

    pub(crate) fn number(&mut self, scalar: Scalar) {
        let dtype = scalar.default_dtype();
        self.numbers = Some(self.numbers.map_or(dtype, |known| promote_types(known, dtype)));
    }

    /// The dtype of the result.
    pub(crate) fn result(self) -> DType {
        let first = Self::combine(self.tensors, self.zero_dimensional);
        Self::combine(first, self.numbers).unwrap_or(DType::F32)
    }

    /// A lower rank counts only where its category is higher. A float beside a complex number of lower rank becomes the
    /// complex dtype of its own width.
    fn combine(higher: Option<DType>, lower: Option<DType>) -> Option<DType> {
        let (Some(higher), Some(lower)) = (higher, lower) else { return higher.or(lower) };
        Some(match (higher.category(), lower.category()) {
            (Category::Floating, Category::Complex) => higher.to_complex(),
            (high, low) if low > high => promote_types(higher, lower),
            _ => higher,
        })
    }
}

/// The dtype of an operation on a tensor of this dtype and number of dimensions, and a number (`torch.result_type`).
///
/// ```
/// use aten_cuda::{DType, result_type};
///
/// assert_eq!(result_type(DType::F16, 1, 2.5.into()), DType::F16);
/// assert_eq!(result_type(DType::I32, 0, 2.5.into()), DType::F32);
/// ```
#[must_use]
pub fn result_type(dtype: DType, dimensions: usize, number: Scalar) -> DType {
    let mut participants = Participants::default();
    participants.tensor(dtype, dimensions);
    participants.number(number);
    participants.result()
}
