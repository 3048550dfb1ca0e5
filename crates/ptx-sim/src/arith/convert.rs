//! Conversions between all types.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the arithmetic of a processor: values are cut and extended as it does"
)]

use super::exact::{Format, Number, narrowed};
use super::integer::{clamp, integer};
use super::narrow;
use crate::program::scalar::{Modes, Rounding, SmallFloat};
use crate::program::types::{Kind, Type, mask};

/// A value of one type as one of another. Signed results are extended to 64 bits.
pub(super) fn convert(from: Type, to: Type, to_integer: bool, modes: Modes, bits: u64) -> u64 {
    match (from.is_float(), to.is_float()) {
        (false, false) => {
            let number = integer(bits, from);
            extended(if modes.saturate { clamp(number, to) } else { number } as u64, to)
        }
        (false, true) => from_integer(integer(bits, from), to, modes),
        (true, false) => to_whole(float(bits, from, modes), from, to, modes.rounding),
        (true, true) => {
            let value = float(bits, from, modes);
            to_float(if to_integer { whole(value, modes.rounding) } else { value }, to, modes)
        }
    }
}

/// A value as it stands in a register that may be wider.
fn extended(value: u64, to: Type) -> u64 {
    if to.is_signed() { super::integer::signed(value, to.bits) as u64 } else { value & mask(to.bits) }
}

/// A floating value as f64. Only f32 is flushed.
fn float(bits: u64, from: Type, modes: Modes) -> f64 {
    match from.bits {
        64 => f64::from_bits(bits),
        32 => narrow::value(bits, from, modes),
        _ => narrow::plain(bits, from),
    }
}

fn from_integer(number: i128, to: Type, modes: Modes) -> u64 {
    let bits = Number::of_integer(number).round(narrow::format(to), modes.rounding, false);
    match (modes.saturate, to.bits) {
        (false, _) => bits,
        (true, 64) => narrow::bounded(f64::from_bits(bits), modes).to_bits(),
        (true, _) => narrow::result(narrow::plain(bits, to), to, modes),
    }
}

fn to_float(value: f64, to: Type, modes: Modes) -> u64 {
    if to.kind == Kind::Tf32 {
        let bits = narrowed(narrow::bounded(value, modes), Format::TF32, modes.rounding, modes.finite) << 13;
        return if value.is_nan() { Format::F32.nan } else { bits };
    }
    if to.bits == 64 {
        return narrow::bounded(value, modes).to_bits();
    }
    // Only f32 is flushed.
    narrow::result(value, to, Modes { flush: modes.flush && to.bits == 32, ..modes })
}

fn whole(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::NearestAway => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// An integer from a float: the nearest that the type has, and for what is no number 0 or the upper bit alone.
fn to_whole(value: f64, from: Type, to: Type, rounding: Rounding) -> u64 {
    if value.is_nan() {
        let is_zero = from.bits != 64 && to.bits < 64;
        return extended(if is_zero { 0 } else { 1 << (to.bits - 1) }, to);
    }
    extended(clamp(whole(value, rounding) as i128, to) as u64, to)
}

/// Two f32 as a packed pair, the first in the upper half.
pub(super) fn pair(to: Type, modes: Modes, a: u64, b: u64) -> u64 {
    let one = Type { packed: false, ..to };
    let half = |bits| narrow::result(narrow::plain(bits, Type::F32), one, modes);
    half(a) << 16 | half(b)
}

/// Two s32 saturated and put below what `c` holds, the second in the lowest bits.
pub(super) fn pack(to: Type, [a, b, c]: [u64; 3]) -> u64 {
    let part = |value| clamp(integer(value, Type::S32), to) as u64 & mask(to.bits);
    let rest = if to.bits < 16 { c << (2 * to.bits) } else { 0 };
    (rest | part(a) << to.bits | part(b)) & mask(32)
}

fn small_format(small: SmallFloat) -> Format {
    match small {
        SmallFloat::E4M3 => Format::E4M3,
        SmallFloat::E5M2 => Format::E5M2,
    }
}

/// Two numbers as bytes: two f32, the first in the upper byte, or the halves of a packed pair.
pub(super) fn to_small(small: SmallFloat, from: Type, modes: Modes, a: u64, b: u64) -> u64 {
    let one = Type { packed: false, ..from };
    let [upper, lower] = if from.packed { [a >> 16, a & 0xFFFF] } else { [a, b] };
    let byte = |bits| {
        narrowed(narrow::bounded(narrow::plain(bits, one), modes), small_format(small), Rounding::Nearest, modes.finite)
    };
    byte(upper) << 8 | byte(lower)
}

/// Two bytes as a pair of f16.
pub(super) fn from_small(small: SmallFloat, modes: Modes, a: u64) -> u64 {
    let half = Type::new(Kind::Float, 16);
    let one = |byte: u64| {
        let (sign, magnitude) = (byte >> 7 << 15, byte & 0x7F);
        let bits = match small {
            // Both formats have the exponents of f16, or fewer of them.
            SmallFloat::E5M2 => sign | magnitude << 8,
            SmallFloat::E4M3 if magnitude == 0x7F => Format::F16.nan,
            SmallFloat::E4M3 => {
                // The exponents differ by 8.
                let value = narrow::plain(magnitude << 7, half) * 256.0;
                sign | narrowed(value, Format::F16, Rounding::Nearest, false)
            }
        };
        narrow::result(narrow::plain(bits, half), half, modes)
    };
    one(a >> 8 & 0xFF) << 16 | one(a & 0xFF)
}
