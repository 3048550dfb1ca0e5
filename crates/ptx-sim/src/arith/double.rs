//! Arithmetic of f64: to the nearest as the host does it, in other directions exactly and rounded once.

use super::exact::{Format, Number};
use super::narrow;
use crate::program::scalar::{Modes, Rounding, ScalarOp};

/// A result whose NaN does not depend on the host: the first of the arguments that is no number, or the standard one.
fn result(value: f64, arguments: &[f64]) -> u64 {
    if !value.is_nan() {
        return value.to_bits();
    }
    let quiet = 1 << 51;
    arguments.iter().find(|argument| argument.is_nan()).map_or(Format::F64.nan, |nan| nan.to_bits() | quiet)
}

fn exactly(number: Number, rounding: Rounding) -> f64 {
    f64::from_bits(number.round(Format::F64, rounding, false))
}

fn product_sum(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest || !(a.is_finite() && b.is_finite() && c.is_finite()) {
        return a.mul_add(b, c);
    }
    exactly(Number::of(a).times(Number::of(b)).plus(Number::of(c), rounding), rounding)
}

fn sum(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest || !(a.is_finite() && b.is_finite()) {
        return a + b;
    }
    exactly(Number::of(a).plus(Number::of(b), rounding), rounding)
}

fn product(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest || !(a.is_finite() && b.is_finite()) {
        return a * b;
    }
    exactly(Number::of(a).times(Number::of(b)), rounding)
}

fn quotient(a: f64, b: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest || !(a.is_finite() && b.is_finite()) || a == 0.0 || b == 0.0 {
        return a / b;
    }
    exactly(Number::of(a).over(Number::of(b)), rounding)
}

fn root(a: f64, rounding: Rounding) -> f64 {
    if rounding == Rounding::Nearest || !a.is_finite() || a <= 0.0 {
        return a.sqrt();
    }
    exactly(Number::of(a).root(), rounding)
}

/// The upper half of a value, flushed.
fn upper(value: f64) -> f64 {
    f64::from_bits(narrow::flushed(value.to_bits(), Format::F64) >> 32 << 32)
}

/// A result with an upper half only.
fn upper_result(value: f64) -> u64 {
    if value.is_nan() { 0x7FFF_FFFF << 32 } else { upper(value).to_bits() }
}

/// An operation of f64.
#[expect(clippy::wildcard_enum_match_arm, reason = "other operations are none of floating numbers")]
pub(super) fn evaluate(op: ScalarOp, modes: Modes, bits: [u64; 3]) -> u64 {
    let [a, b, c] = bits.map(f64::from_bits);
    let rounding = modes.rounding;
    let sign = 1 << 63;
    match op {
        // Of several that are no numbers hardware hands on the second factor or summand, then the addend, then the first.
        ScalarOp::Add => result(sum(a, b, rounding), &[b, a]),
        ScalarOp::Subtract => result(sum(a, -b, rounding), &[b, a]),
        ScalarOp::Multiply(_) => result(product(a, b, rounding), &[b, a]),
        ScalarOp::MultiplyAdd(_) => result(product_sum(a, b, c, rounding), &[b, c, a]),
        ScalarOp::Divide => result(quotient(a, b, rounding), &[a, b]),
        ScalarOp::Reciprocal => result(quotient(1.0, a, rounding), &[a]),
        ScalarOp::SquareRoot => result(root(a, rounding), &[a]),
        ScalarOp::ReciprocalRoot => result(1.0 / a.sqrt(), &[a]),
        ScalarOp::ReciprocalOfUpper => upper_result(1.0 / upper(a)),
        ScalarOp::ReciprocalRootOfUpper => upper_result(1.0 / upper(a).sqrt()),
        ScalarOp::Negate | ScalarOp::Absolute if a.is_nan() => result(a, &[a]),
        ScalarOp::Negate => bits[0] ^ sign,
        ScalarOp::Absolute => bits[0] & !sign,
        ScalarOp::CopySign => bits[0] & sign | bits[1] & !sign,
        ScalarOp::Minimum | ScalarOp::Maximum => extreme(op == ScalarOp::Minimum, a, b),
        ScalarOp::TestNumber(class) => u64::from(narrow::is_of(class, bits[0], Format::F64)),
        _ => bits[0],
    }
}

/// The least or the greatest; of two zeros the negative one is the less.
fn extreme(least: bool, a: f64, b: f64) -> u64 {
    if a.is_nan() || b.is_nan() {
        return result(if a.is_nan() { b } else { a }, &[b]);
    }
    let a_first = a < b || a == b && a.is_sign_negative();
    (if a_first == least { a } else { b }).to_bits()
}
