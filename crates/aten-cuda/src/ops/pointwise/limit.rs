//! Range checks of scalar operands.
//!
//! torch rejects out-of-range scalars in some operations and truncates them in others, and the dtype that is checked
//! differs between the host and a device. Each row of the operation table names its rule; by default scalars are
//! truncated.

use super::Operation;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::scalar::Scalar;
use crate::tensor::Operand;

/// Rule by which the scalars of an operation are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Scalars are truncated to the dtype (arithmetic, comparisons, bitwise operations).
    Cut,
    /// Scalars must fit into the common dtype.
    Common,
    /// Scalars must fit into the common dtype on the host, and into the compute dtype on a device.
    Device,
    /// Like [`Limit::Device`], but only scalar parameters such as `alpha` are checked, not scalar operands.
    Factor,
    /// Like [`Limit::Factor`], but the negated scalars are checked.
    Negated,
    /// Scalars must fit into the compute dtype: `f32` for floats of 16 bits, and on a device `i64` for integers.
    Computed,
    /// Scalars are elements of a 0-d tensor. On the host, one of a short float dtype accepts every real number.
    Element,
    /// Scalars are exponents: they must fit into integer and 16-bit float dtypes, and on a device into all dtypes. A
    /// base is truncated.
    Exponent,
    /// Scalars are bounds. Bounds of integers are converted to `i64` first; others are checked like [`Limit::Device`].
    Bound,
}

impl Limit {
    /// Returns the dtype that the scalars must fit into, given the common dtype of the operands; `None` if they are
    /// truncated.
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

/// Returns the dtype that a fill value must fit into. On the host, torch converts a single element of a short float
/// dtype via `f64`, which holds every real number, and several elements of `c32` via `c64`.
pub(crate) fn element_limit(dtype: DType, numel: i64, on_host: bool) -> DType {
    match dtype {
        DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E5M2 if on_host && numel == 1 => DType::F64,
        DType::C32 if on_host && numel != 1 => DType::C64,
        other => other,
    }
}

/// Rejects scalars that do not fit, among the operands and among the operation's own numbers.
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
