//! Comparisons, and what is made of them.

use std::cmp::Ordering;

use super::integer::integer;
use super::narrow;
use crate::program::scalar::{Comparison, Logic, Modes, ScalarOp};
use crate::program::types::{Kind, Type, mask};

/// How two values compare; none if one is no number.
fn order(ty: Type, modes: Modes, [a, b]: [u64; 2]) -> Option<Ordering> {
    match (ty.kind, ty.bits) {
        (Kind::Float, 64) => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        (Kind::Float | Kind::Brain, _) => narrow::value(a, ty, modes).partial_cmp(&narrow::value(b, ty, modes)),
        _ => Some(integer(a, ty).cmp(&integer(b, ty))),
    }
}

pub(super) fn compare(comparison: Comparison, or_unordered: bool, ty: Type, modes: Modes, values: [u64; 2]) -> bool {
    let Some(order) = order(ty, modes, values) else {
        return or_unordered || comparison == Comparison::NotNumbers;
    };
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
        Comparison::Numbers => true,
        Comparison::NotNumbers => false,
    }
}

/// A truth value with another one, which may be negated first.
pub(super) fn combine(combine: Option<(Logic, bool)>, found: bool, other: u64) -> bool {
    let Some((logic, negate)) = combine else { return found };
    let other = (other != 0) != negate;
    match logic {
        Logic::And => found && other,
        Logic::Or => found || other,
        Logic::Xor => found != other,
    }
}

/// `set`: all ones or 1.0 for what holds.
pub(super) fn set(op: ScalarOp, ty: Type, modes: Modes, [a, b, c]: [u64; 3]) -> u64 {
    let ScalarOp::Set { comparison, or_unordered, combine, to } = op else { return 0 };
    let holds = |values| {
        self::combine(combine, compare(comparison, or_unordered, Type { packed: false, ..ty }, modes, values), c)
    };
    let truth = match (to.kind, to.bits) {
        (Kind::Float, 16) => 0x3C00,
        (Kind::Brain, _) => 0x3F80,
        (Kind::Float, _) => 0x3F80_0000,
        // Of a packed pair each half has its own.
        _ => mask(if ty.packed { 16 } else { to.bits }),
    };
    if !ty.packed {
        return if holds([a, b]) { truth } else { 0 };
    }
    let half = |shift: u8| if holds([a >> shift & 0xFFFF, b >> shift & 0xFFFF]) { truth } else { 0 };
    half(16) << 16 | half(0)
}

/// Whether a value is zero or above, which one that is no number is not.
pub(super) fn is_not_negative(ty: Type, modes: Modes, value: u64) -> bool {
    if ty.is_float() { narrow::value(value, ty, modes) >= 0.0 } else { integer(value, ty) >= 0 }
}
