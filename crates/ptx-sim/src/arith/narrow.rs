//! Arithmetic of f32, f16 and bf16.
//!
//! **Why f64 is enough.** A sum, product, quotient or root of such numbers is computed in f64 and rounded to odd there: if
//! it is inexact, its last bit is set. An f64 has at least two bits more than any of these formats, so that rounding it
//! again gives in every direction what rounding the exact value gives. Products of two such numbers are exact.

#![expect(clippy::cast_possible_truncation, reason = "a value of fewer bits is cut to them")]

use super::exact::{Format, narrowed};
use crate::program::scalar::{Modes, NumberClass, Rounding, ScalarOp};
use crate::program::types::{Kind, Type};

/// The format of f32, f16 or bf16.
pub(super) fn format(ty: Type) -> Format {
    match (ty.kind, ty.bits) {
        (Kind::Brain, _) => Format::BF16,
        (Kind::Float, 16) => Format::F16,
        (Kind::Float, 64) => Format::F64,
        _ => Format::F32,
    }
}

/// An f16 as the f32 that it is.
#[inline]
pub(super) fn half_to_single(bits: u32) -> f32 {
    // The exponent is moved to its place by a product, which numbers below the least normal one need too.
    let magnitude = f32::from_bits((bits & 0x7FFF) << 13) * f32::from_bits(0x7780_0000);
    let all_ones = if bits & 0x7C00 == 0x7C00 { 0x7F80_0000 } else { 0 };
    f32::from_bits(magnitude.to_bits() | all_ones | (bits & 0x8000) << 16)
}

/// A value as f64, without flushing.
pub(super) fn plain(bits: u64, ty: Type) -> f64 {
    f64::from(match (ty.kind, ty.bits) {
        (Kind::Brain, _) => f32::from_bits((bits as u32) << 16),
        (Kind::Float, 16) => half_to_single(bits as u32),
        _ => f32::from_bits(bits as u32),
    })
}

/// A value as f64.
pub(super) fn value(bits: u64, ty: Type, modes: Modes) -> f64 {
    plain(if modes.flush { flushed(bits, format(ty)) } else { bits }, ty)
}

/// Zero of the same sign for a number below the least normal one.
pub(super) fn flushed(bits: u64, format: Format) -> u64 {
    let sign = bits & 1 << format.sign;
    if (bits ^ sign) >> format.fraction == 0 { sign } else { bits }
}

/// A result that is exact or rounded to odd, as its type has it.
pub(super) fn result(value: f64, ty: Type, modes: Modes) -> u64 {
    let bounded = bounded(value, modes);
    let bits = narrowed(bounded, format(ty), modes.rounding, modes.finite);
    if modes.flush { flushed(bits, format(ty)) } else { bits }
}

/// `.sat` and `.relu`.
pub(super) fn bounded(value: f64, modes: Modes) -> f64 {
    match (modes.saturate, modes.relu) {
        (true, _) if value.is_nan() => 0.0,
        (true, _) => value.clamp(0.0, 1.0) + 0.0,
        (_, true) if value <= 0.0 => 0.0,
        _ => value,
    }
}

/// A result that is inexact by something of the sign of `rest`, rounded to odd.
fn odd(value: f64, rest: f64) -> f64 {
    let is_even = value.to_bits() & 1 == 0;
    if rest > 0.0 && is_even {
        value.next_up()
    } else if rest < 0.0 && is_even {
        value.next_down()
    } else {
        value
    }
}

fn sum(a: f64, b: f64, rounding: Rounding) -> f64 {
    let sum = a + b;
    if sum == 0.0 {
        // Zeros of one sign keep it; others have that of the rounding.
        let keeps = a == 0.0 && a.is_sign_negative() == b.is_sign_negative();
        return if keeps || rounding != Rounding::Down { sum } else { -0.0 };
    }
    if !sum.is_finite() {
        return sum;
    }
    let other = sum - a;
    odd(sum, (a - (sum - other)) + (b - other))
}

fn quotient(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    if !quotient.is_finite() || quotient == 0.0 || !b.is_finite() {
        return quotient;
    }
    // What is left of `a` is exact.
    let rest = (-quotient).mul_add(b, a);
    odd(quotient, if b < 0.0 { -rest } else { rest })
}

fn root(a: f64) -> f64 {
    let root = a.sqrt();
    if !root.is_finite() || root == 0.0 {
        return root;
    }
    odd(root, (-root).mul_add(root, a))
}

/// The least or the greatest. One that is no number counts only where `.NaN` says so, or where both are none.
fn extreme(a: f64, b: f64, least: bool, modes: Modes) -> f64 {
    let negative = a.is_sign_negative() != b.is_sign_negative();
    let (x, y) = if modes.xor_sign { (a.abs(), b.abs()) } else { (a, b) };
    let found = if x.is_nan() || y.is_nan() {
        match (modes.propagate_nan, x.is_nan()) {
            (true, _) => f64::NAN,
            (false, true) => y,
            (false, false) => x,
        }
    } else {
        // Of two zeros the negative one is the less.
        let x_first = x < y || x == y && x.is_sign_negative();
        if x_first == least { x } else { y }
    };
    if modes.xor_sign { found.copysign(if negative { -1.0 } else { 1.0 }) } else { found }
}

/// An operation of f32, f16 or bf16.
#[expect(clippy::wildcard_enum_match_arm, reason = "other operations are none of floating numbers")]
pub(super) fn evaluate(op: ScalarOp, ty: Type, modes: Modes, bits: [u64; 3]) -> u64 {
    let [a, b, c] = bits.map(|bits| value(bits, ty, modes));
    let found = match op {
        ScalarOp::Add => sum(a, b, modes.rounding),
        ScalarOp::Subtract => sum(a, -b, modes.rounding),
        ScalarOp::Multiply(_) => a * b,
        ScalarOp::MultiplyAdd(_) => sum(a * b, c, modes.rounding),
        // The reciprocal of so great a divisor is flushed there.
        ScalarOp::DivideApproximately if b.abs() > 2_f64.powi(126) => a * 0.0_f64.copysign(b),
        ScalarOp::Divide | ScalarOp::DivideApproximately => quotient(a, b),
        ScalarOp::Reciprocal => quotient(1.0, a),
        ScalarOp::SquareRoot => root(a),
        ScalarOp::ReciprocalRoot => 1.0 / a.sqrt(),
        ScalarOp::PowerOfTwo => a.exp2(),
        ScalarOp::LogarithmOfTwo => a.log2(),
        ScalarOp::Sine => a.sin(),
        ScalarOp::Cosine => a.cos(),
        ScalarOp::HyperbolicTangent => a.tanh(),
        ScalarOp::Negate => -a,
        ScalarOp::Absolute => a.abs(),
        ScalarOp::Minimum => extreme(a, b, true, modes),
        ScalarOp::Maximum => extreme(a, b, false, modes),
        ScalarOp::CopySign => {
            let sign = 1 << format(ty).sign;
            return bits[0] & sign | bits[1] & !sign;
        }
        ScalarOp::TestNumber(class) => return u64::from(is_of(class, bits[0], format(ty))),
        _ => a,
    };
    result(found, ty, modes)
}

/// Whether bits are of a class of numbers.
pub(super) fn is_of(class: NumberClass, bits: u64, format: Format) -> bool {
    let magnitude = bits & !(1 << format.sign);
    let (is_infinite, is_nan) = (magnitude == format.infinity, magnitude > format.infinity);
    let has_no_exponent = magnitude >> format.fraction == 0;
    match class {
        NumberClass::Finite => !is_infinite && !is_nan,
        NumberClass::Infinite => is_infinite,
        NumberClass::Number => !is_nan,
        NumberClass::NotANumber => is_nan,
        // Zeros count as normal.
        NumberClass::Normal => !is_infinite && !is_nan && (!has_no_exponent || magnitude == 0),
        NumberClass::Subnormal => has_no_exponent && magnitude != 0,
    }
}
