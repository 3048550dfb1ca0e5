//! What operations make of the values of one lane.
//!
//! Reading order: `exact` (finite numbers and their one rounding), `narrow` (f32 and halves), `double`, `integer`, `bits`,
//! `compare`, `convert`, `atomic`, `matrix`, `wmma`.
//!
//! **Invariants:** arguments are the bits of registers, zero-extended, and predicates 0 or 1; a result has the bits that
//! its type says, and the caller cuts it to its register. A floating result is rounded once, as its instruction says;
//! what PTX calls approximate is computed with 53 bits and rounded once to the nearest. Nothing depends on the host's
//! instructions or on how it handles what is not a number.

#![forbid(unsafe_code)]

mod atomic;
mod bits;
mod compare;
mod convert;
mod double;
mod exact;
mod integer;
pub(crate) mod matrix;
mod narrow;
mod wmma;

#[cfg(test)]
mod tests;

pub(crate) use atomic::atomic;

use crate::program::scalar::{Scalar, ScalarOp};
use crate::program::types::{
    FUNCTION_WINDOW, Kind, LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, Space, Type, WINDOW_BYTES, mask,
};

/// What an operation makes of its arguments.
#[expect(clippy::wildcard_enum_match_arm, reason = "all other operations depend on the type alone")]
pub(crate) fn evaluate(scalar: &Scalar, arguments: [u64; 4]) -> u64 {
    let Scalar { op, ty, modes, .. } = *scalar;
    let [a, b, c, d] = arguments;
    match op {
        ScalarOp::Move => a,
        ScalarOp::Select => [b, a][usize::from(c != 0)],
        ScalarOp::Pack { bits } => pack(bits, arguments),
        ScalarOp::Extract { from, bits } => (a >> from) & mask(bits),
        ScalarOp::ToGeneric(space) => a.wrapping_add(window(space)),
        ScalarOp::FromGeneric(space) => a.wrapping_sub(window(space)),
        ScalarOp::IsOf(space) => u64::from(is_of(space, a)),
        ScalarOp::SelectBySign(sign) => [b, a][usize::from(compare::is_not_negative(sign, modes, c))],
        ScalarOp::Compare { comparison, or_unordered, combine, invert } => {
            let found = compare::compare(comparison, or_unordered, ty, modes, [a, b]) != invert;
            u64::from(compare::combine(combine, found, c))
        }
        ScalarOp::CompareHalf { comparison, or_unordered, combine, upper } => {
            let [a, b] = [a, b].map(|value| (value >> (16 * u8::from(upper))) & 0xFFFF);
            let one = Type { packed: false, ..ty };
            u64::from(compare::combine(combine, compare::compare(comparison, or_unordered, one, modes, [a, b]), c))
        }
        ScalarOp::Set { .. } => compare::set(op, ty, modes, [a, b, c]),
        ScalarOp::Convert { to, to_integer } => convert::convert(ty, to, to_integer, modes, a),
        ScalarOp::ConvertPair { to } => convert::pair(to, modes, a, b),
        ScalarOp::ConvertPack { to } => convert::pack(to, [a, b, c]),
        ScalarOp::ConvertToSmall(small) => convert::to_small(small, ty, modes, a, b),
        ScalarOp::ConvertFromSmall(small) => convert::from_small(small, modes, a),
        _ if ty.packed => {
            let one = Scalar { ty: Type { packed: false, ..ty }, ..*scalar };
            let half = |shift: u8| evaluate(&one, [a, b, c, d].map(|value| (value >> shift) & 0xFFFF)) & 0xFFFF;
            half(16) << 16 | half(0)
        }
        _ => match (ty.kind, ty.bits) {
            (Kind::Float, 64) => double::evaluate(op, modes, [a, b, c]),
            (Kind::Float | Kind::Brain, _) => narrow::evaluate(op, ty, modes, [a, b, c]),
            _ => integer::evaluate(op, ty, modes, arguments),
        },
    }
}

/// Values side by side, the first in the lowest bits.
fn pack(bits: u8, values: [u64; 4]) -> u64 {
    let mut packed = 0;
    for (value, shift) in values.iter().zip((0..64).step_by(usize::from(bits))) {
        packed |= (value & mask(bits)) << shift;
    }
    packed
}

/// Where the generic addresses of a space begin.
fn window(space: Space) -> u64 {
    match space {
        Space::Generic | Space::Global => 0,
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Parameters => PARAMETER_WINDOW,
    }
}

fn is_of(space: Space, address: u64) -> bool {
    match space {
        Space::Generic => true,
        Space::Global => !(SHARED_WINDOW..FUNCTION_WINDOW).contains(&address),
        Space::Shared | Space::Local | Space::Parameters => {
            (window(space)..window(space) + WINDOW_BYTES).contains(&address)
        }
    }
}
