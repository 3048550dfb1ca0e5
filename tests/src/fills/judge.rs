//! How far the first values of a fill may be from the recorded ones where the device computes what a real one
//! approximates.
//!
//! The bounds are those that recorded values were found to keep against ideal functions: 2^-21.7 for a sine, 2^-20.9 for
//! a logarithm of base two, 2^-21.8 of a tangent over its slope. An ideal sine is that of the turns to which a device
//! rounds the angle first, so that the angle's error counts too. To them come a few units in the last place of the dtype
//! for the operations around. The first elements each take the first words of a thread of their own.

#![expect(clippy::wildcard_enum_match_arm, reason = "a few dtypes are treated on their own")]

use aten_cuda::DType;
use aten_cuda::random::philox;

use super::Fill;
use super::call::{Call, Drawn, Kind};

/// Compares the recorded values with ours.
pub(crate) fn head(fill: &Fill, call: &Call, drawn: &Drawn, bytes: &[u8]) -> Result<(), String> {
    let size = fill.dtype.itemsize();
    for (at, (ours, theirs)) in bytes.chunks(size).zip(fill.head.chunks_exact(size)).enumerate() {
        let (ours, theirs) = (value(ours, fill.dtype), value(theirs, fill.dtype));
        let words = philox(drawn.seed, drawn.offset / 4, at as u64);
        let bound = bound(call, words, theirs, fill.dtype) + 2.0 * unit(theirs, fill.dtype);
        let apart = (ours - theirs).abs();
        if apart.is_nan() || apart > bound {
            return Err(format!("element {at} is {ours} instead of {theirs}, more than {bound:e} away"));
        }
    }
    Ok(())
}

/// How far an approximated value may be from the ideal one.
fn bound(call: &Call, words: [u32; 4], value: f64, dtype: DType) -> f64 {
    let number = |at: usize, otherwise: f64| call.numbers.get(at).copied().unwrap_or(otherwise);
    let is_double = dtype == DType::F64;
    // In (0, 1], as the first number of a thread is.
    let r = (f64::from(words[0]) + 0.5) * 2.0_f64.powi(-32);
    let angle = (f64::from(words[1]) + 0.5) * std::f64::consts::TAU * 2.0_f64.powi(-32);
    let radius = (-2.0 * r.ln()).sqrt();
    let sine = if is_double { 0.0 } else { radius * (2.0_f64.powf(-21.7) + angle_error(angle)) };
    // Rounding of what the value is computed from.
    let rounding = if is_double { 2.0_f64.powi(-51) } else { 2.0_f64.powi(-22) };
    match call.kind {
        Kind::Randn | Kind::SecondRandn => sine,
        Kind::Normal => number(1, 1.0) * sine + (value.abs() + number(0, 0.0).abs()) * rounding,
        Kind::LogNormal => value.abs() * (number(1, 1.0) * sine + (1.0 + value.abs().ln().abs()) * 4.0 * rounding),
        Kind::Exponential => (2.0_f64.powf(-20.9) * 2.0_f64.ln() / number(0, 1.0)).min(1.0) * f64::from(!is_double),
        Kind::Cauchy => {
            let angle = std::f64::consts::PI * (r - 0.5);
            let error = 2.0_f64.powf(-21.8) + angle_error(angle);
            number(1, 1.0) * error / angle.cos().powi(2) + value.abs() * rounding
        }
        // The quotient of two logarithms may be on the other side of a whole number.
        Kind::Geometric => {
            let quotient = r.ln() / (1.0 - number(0, 0.5)).ln();
            if (quotient - quotient.round()).abs() < 1e-6 * quotient.max(1.0) { 1.0 } else { 0.0 }
        }
        Kind::Rand | Kind::Uniform | Kind::Randint | Kind::Bernoulli | Kind::Dropout | Kind::Randperm => 0.0,
    }
}

/// How far the turns that a device computes of an angle are from it: it multiplies by a rounded 1 / 2 pi and cuts off.
#[expect(clippy::cast_possible_truncation, reason = "the angle is a float of 32 bits there")]
fn angle_error(angle: f64) -> f64 {
    let single = f64::from(angle as f32);
    let product = single * 0.159_154_936_671_257_02;
    let nearest = product as f32;
    let is_beyond = f64::from(nearest).abs() > product.abs();
    let turns = if is_beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest };
    (single - f64::from(turns) * std::f64::consts::TAU).abs()
}

/// The distance of neighbouring numbers of a dtype.
fn unit(value: f64, dtype: DType) -> f64 {
    let digits = match dtype {
        DType::F16 => 10.0,
        DType::BF16 => 7.0,
        DType::F32 => 23.0,
        DType::F64 => 52.0,
        _ => return 0.0,
    };
    if value == 0.0 { 0.0 } else { 2.0_f64.powf(value.abs().log2().floor() - digits) }
}

fn value(bytes: &[u8], dtype: DType) -> f64 {
    fn each<const N: usize>(bytes: &[u8], number: fn([u8; N]) -> f64) -> f64 {
        bytes.try_into().map_or(f64::NAN, number)
    }
    match dtype {
        DType::F16 => each(bytes, |bytes| half::f16::from_le_bytes(bytes).to_f64()),
        DType::BF16 => each(bytes, |bytes| half::bf16::from_le_bytes(bytes).to_f64()),
        DType::F32 => each(bytes, |bytes| f32::from_le_bytes(bytes).into()),
        DType::F64 => each(bytes, f64::from_le_bytes),
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        DType::I64 => each(bytes, |bytes| i64::from_le_bytes(bytes) as f64),
        DType::I32 => each(bytes, |bytes| i32::from_le_bytes(bytes).into()),
        DType::I16 => each(bytes, |bytes| i16::from_le_bytes(bytes).into()),
        DType::I8 => each(bytes, |bytes| i8::from_le_bytes(bytes).into()),
        _ => bytes.first().map_or(f64::NAN, |byte| f64::from(*byte)),
    }
}
