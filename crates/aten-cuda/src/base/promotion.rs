//! Which dtype an operation on several dtypes has (`torch.promote_types`, `torch.result_type`).

use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, TensorError};
use crate::base::scalar::Scalar;

/// The smallest dtype that both convert to (`torch.promote_types`).
///
/// ```
/// use aten_cuda::{DType, promote_types};
///
/// assert_eq!(promote_types(DType::F16, DType::BF16)?, DType::F32);
/// assert_eq!(promote_types(DType::U8, DType::I8)?, DType::I16);
/// assert_eq!(promote_types(DType::I64, DType::F16)?, DType::F16);
/// assert!(promote_types(DType::F16, DType::F8E5M2).is_err());
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// One of them is a float of 8 bits, and the other is not the same.
pub fn promote_types(a: DType, b: DType) -> Result<DType> {
    if a == b {
        return Ok(a);
    }
    if a.is_float8() || b.is_float8() {
        return Err(TensorError::Float8Promotion { first: a, second: b }.into());
    }
    Ok(promoted(a, b))
}

/// As [`promote_types`], of two dtypes that are no floats of 8 bits.
fn promoted(a: DType, b: DType) -> DType {
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
    pub(crate) fn tensor(&mut self, dtype: DType, dimensions: usize) -> Result<()> {
        let slot = if dimensions > 0 { &mut self.tensors } else { &mut self.zero_dimensional };
        *slot = Some(slot.map_or(Ok(dtype), |known| promote_types(known, dtype))?);
        Ok(())
    }

    pub(crate) fn number(&mut self, scalar: Scalar) {
        let dtype = scalar.default_dtype();
        self.numbers =
            Some(self.numbers.map_or(dtype, |known| if known == dtype { known } else { promoted(known, dtype) }));
    }

    /// The dtype of the result.
    pub(crate) fn result(self) -> Result<DType> {
        let first = Self::combine(self.tensors, self.zero_dimensional)?;
        Ok(Self::combine(first, self.numbers)?.unwrap_or(DType::F32))
    }

    /// A lower rank counts only where its category is higher. A float beside a complex number of lower rank becomes the
    /// complex dtype of its own width.
    fn combine(higher: Option<DType>, lower: Option<DType>) -> Result<Option<DType>> {
        let (Some(higher), Some(lower)) = (higher, lower) else { return Ok(higher.or(lower)) };
        Ok(Some(match (higher.category(), lower.category()) {
            (Category::Floating, Category::Complex) if higher.is_float8() => {
                return Err(TensorError::Float8Complex { dtype: higher }.into());
            }
            (Category::Floating, Category::Complex) => higher.to_complex(),
            (high, low) if low > high => promote_types(higher, lower)?,
            _ => higher,
        }))
    }
}

/// The dtype of an operation on a tensor of this dtype and number of dimensions, and a number (`torch.result_type`).
///
/// ```
/// use aten_cuda::{DType, result_type};
///
/// assert_eq!(result_type(DType::F16, 1, 2.5.into())?, DType::F16);
/// assert_eq!(result_type(DType::I32, 0, 2.5.into())?, DType::F32);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
///
/// # Errors
/// The number is complex, and the dtype is a float of 8 bits.
pub fn result_type(dtype: DType, dimensions: usize, number: Scalar) -> Result<DType> {
    let mut participants = Participants::default();
    participants.tensor(dtype, dimensions)?;
    participants.number(number);
    participants.result()
}
