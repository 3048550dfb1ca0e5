//! Numbers beside tensors that a dtype does not hold.
//!
//! torch refuses them in some operations and cuts them in others, and the dtype that decides differs between the host and
//! a device. A row names its rule; rows without one cut their numbers.

use super::Operation;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::scalar::Scalar;
use crate::tensor::Operand;

/// Rule for the numbers of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Numbers are cut to the dtype (arithmetic, comparisons, operations on bits).
    Cut,
    /// The common dtype has to hold them.
    Common,
    /// The common dtype has to hold them on the host; on a device the dtype that is computed in.
    Device,
    /// As [`Limit::Device`], for the operation's own numbers alone.
    Factor,
    /// As [`Limit::Factor`], for the negatives of the numbers.
    Negated,
    /// The dtype that is computed in has to hold them: `f32` for floats of 16 bits, and on a device `i64` for integers.
    Computed,
    /// As elements of a tensor without dimensions, which holds any real number of a short float on the host.
    Element,
    /// As exponents: integers and floats of 16 bits have to hold them, on a device other dtypes too. A base is cut.
    Exponent,
    /// As bounds of integers, which become `i64` first, or of floats, as [`Limit::Device`].
    Bound,
}

impl Limit {
    /// The dtype that has to hold the numbers of an operation on operands with this common dtype.
    fn dtype(self, common: DType, on_host: bool) -> Option<DType> {
        match self {
            Self::Cut => None,
            Self::Common => Some(common),
            Self::Device | Self::Factor | Self::Negated | Self::Bound => {
                Some(if on_host { common } else { common.computed() })
            }
            Self::Computed => Some(match common {
                DType::C32 => DType::C32,
                whole if whole.is_integral() && !on_host => DType::I64,
                other => other.computed(),
            }),
            Self::Element => Some(element_limit(common, 1, on_host)),
            Self::Exponent => {
                let is_checked = !on_host || common.is_integral() || matches!(common, DType::F16 | DType::BF16);
                is_checked.then_some(common)
            }
        }
    }
}

/// The dtype that has to hold a number that becomes the elements of a tensor. torch converts single elements of short
/// floats on the host by `f64`, which holds every real number, and more than one of `c32` there by `c64`.
pub(crate) fn element_limit(dtype: DType, numel: i64, on_host: bool) -> DType {
    match dtype {
        DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2 if on_host && numel == 1 => DType::F64,
        DType::C32 if on_host && numel != 1 => DType::C64,
        other => other,
    }
}

/// Refuses numbers that do not fit: those among the operands, and the operation's own ones.
pub(super) fn check(
    operation: &Operation,
    common: DType,
    operands: &[Operand<'_>],
    numbers: &[Scalar],
    on_host: bool,
) -> Result<()> {
    let limit = operation.limit;
    let Some(dtype) = limit.dtype(common, on_host) else { return Ok(()) };
    let skipped = match limit {
        Limit::Exponent => 1,
        // Numbers among the operands are cut.
        Limit::Negated | Limit::Factor => operands.len(),
        _ => 0,
    };
    let among = operands.iter().skip(skipped).filter_map(|operand| match operand {
        Operand::Number(number) => Some(*number),
        Operand::Tensor(_) => None,
    });
    among.chain(numbers.iter().copied()).try_for_each(|number| match (limit, number) {
        (Limit::Negated, Scalar::Int(number)) => Scalar::Int(number.wrapping_neg()).check_fits(dtype),
        (Limit::Bound, number) if common.is_integral() => {
            number.check_fits(DType::I64)?;
            Scalar::Int(number.to_i64()).check_fits(dtype)
        }
        _ => number.check_fits(dtype),
    })
}
