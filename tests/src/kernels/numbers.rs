//! Numbers to compute with: pseudo-random ones, the half types, and directed roundings.

use std::iter;

/// Pseudo-random words (splitmix64).
pub(super) fn words(seed: u64, count: usize) -> Vec<u64> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    };
    iter::repeat_with(next).take(count).collect()
}

/// Pseudo-random words of 32 bits.
pub(super) fn short_words(seed: u64, count: usize) -> Vec<u32> {
    words(seed, count).into_iter().map(low).collect()
}

/// The lower half of a word.
#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
pub(super) fn low(word: u64) -> u32 {
    word as u32
}

/// Numbers evenly spread between two.
pub(super) fn doubles(seed: u64, count: usize, from: f64, to: f64) -> Vec<f64> {
    let unit = |word: u64| (word >> 11) as f64 / (1_u64 << 53) as f64;
    words(seed, count).into_iter().map(|word| from + (to - from) * unit(word)).collect()
}

/// The same as f32.
#[expect(clippy::cast_possible_truncation, reason = "rounds")]
pub(super) fn floats(seed: u64, count: usize, from: f64, to: f64) -> Vec<f32> {
    doubles(seed, count, from, to).into_iter().map(|value| value as f32).collect()
}

/// A floating type of 16 bits: how many bits of the fraction are stored, and of the exponent.
#[derive(Clone, Copy)]
pub(super) struct Small {
    fraction: u32,
    exponent: u32,
}

pub(super) const HALF: Small = Small { fraction: 10, exponent: 5 };
pub(super) const BRAIN: Small = Small { fraction: 7, exponent: 8 };

impl Small {
    /// The value of bits.
    pub(super) fn wide(self, bits: u16) -> f64 {
        let bits = u32::from(bits);
        let (fraction, exponent) =
            (bits & ((1 << self.fraction) - 1), (bits >> self.fraction) & ((1 << self.exponent) - 1));
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (bias, scale) = ((1 << (self.exponent - 1)) - 1, f64::from(1_u32 << self.fraction));
        if exponent == (1 << self.exponent) - 1 {
            return if fraction == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        let power = f64::from(exponent.max(1)) - f64::from(bias);
        let leading = if exponent == 0 { 0.0 } else { 1.0 };
        sign * (leading + f64::from(fraction) / scale) * power.exp2()
    }

    /// The bits of the nearest number, the even one of two.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is whole and small enough")]
    pub(super) fn bits(self, value: f64) -> u16 {
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        let infinite = (((1_u32 << self.exponent) - 1) << self.fraction) as u16;
        if value.is_nan() {
            return 0x7FFF;
        }
        let bias = f64::from((1_u32 << (self.exponent - 1)) - 1);
        let size = value.abs();
        if size == 0.0 || size.is_infinite() {
            return sign | if size == 0.0 { 0 } else { infinite };
        }
        // Scaled so that the last place counts ones: powers of two, so nothing is rounded here.
        let power = f64::from(((size.to_bits() >> 52) as u32).max(1)) - 1023.0;
        let power = power.max(1.0 - bias);
        let units = (size / (power - f64::from(self.fraction)).exp2()).round_ties_even();
        // A leading one adds itself to the exponent, and so does one that rounding made.
        let bits = units as u32 + (((power + bias - 1.0) as u32) << self.fraction);
        sign | (bits.min(u32::from(infinite)) as u16)
    }

    /// Bits of each.
    pub(super) fn all(self, values: &[f64]) -> Vec<u16> {
        values.iter().map(|&value| self.bits(value)).collect()
    }

    /// Values of each.
    pub(super) fn all_wide(self, bits: &[u16]) -> Vec<f64> {
        bits.iter().map(|&bits| self.wide(bits)).collect()
    }
}

/// How a result is rounded that is not exact.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Nearest,
    Zero,
    Up,
    Down,
}

/// In the order in which the kernels store them.
pub(super) const ROUNDINGS: [Rounding; 4] = [Rounding::Nearest, Rounding::Zero, Rounding::Up, Rounding::Down];

/// Arithmetic in every rounding, from the nearest result and the sign of what it lacks. Nothing may be very small or large.
macro_rules! directed {
    ($module:ident, $ty:ty) => {
        pub(super) mod $module {
            use super::Rounding;

            /// The neighbour of the nearest result that a rounding asks for; `lack` is right minus nearest.
            pub(in super::super) fn round(rounding: Rounding, nearest: $ty, lack: $ty) -> $ty {
                let up = rounding == Rounding::Up || rounding == Rounding::Zero && nearest < 0.0;
                let down = rounding == Rounding::Down || rounding == Rounding::Zero && nearest > 0.0;
                if lack > 0.0 && up {
                    nearest.next_up()
                } else if lack < 0.0 && down {
                    nearest.next_down()
                } else {
                    nearest
                }
            }

            fn two_sum(a: $ty, b: $ty) -> ($ty, $ty) {
                let sum = a + b;
                let of_b = sum - a;
                (sum, (a - (sum - of_b)) + (b - of_b))
            }

            pub(in super::super) fn add(rounding: Rounding, a: $ty, b: $ty) -> $ty {
                let (sum, lack) = two_sum(a, b);
                round(rounding, sum, lack)
            }

            pub(in super::super) fn mul(rounding: Rounding, a: $ty, b: $ty) -> $ty {
                round(rounding, a * b, a.mul_add(b, -(a * b)))
            }

            pub(in super::super) fn fma(rounding: Rounding, a: $ty, b: $ty, c: $ty) -> $ty {
                let nearest = a.mul_add(b, c);
                let product = a * b;
                let (low, lowest) = two_sum(c, a.mul_add(b, -product));
                let (high, middle) = two_sum(product, low);
                round(rounding, nearest, ((high - nearest) + middle) + lowest)
            }

            pub(in super::super) fn div(rounding: Rounding, a: $ty, b: $ty) -> $ty {
                let quotient = a / b;
                round(rounding, quotient, (-quotient).mul_add(b, a) * b.signum())
            }

            pub(in super::super) fn sqrt(rounding: Rounding, a: $ty) -> $ty {
                let root = a.sqrt();
                round(rounding, root, (-root).mul_add(root, a))
            }
        }
    };
}
directed!(single, f32);
directed!(double, f64);
