//! Finite numbers with more bits than any format has, and the one rounding of a result.
//!
//! **Invariant:** a number is exact, or its lowest bit stands for itself and for what was lost below it ("jammed"). The
//! bits of the results here are always so many above that bit that rounding them once gives what rounding the exact
//! number gives.

use std::cmp::Ordering;

use crate::program::scalar::Rounding;

/// The size of a floating format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Bits of the fraction that are stored.
    pub(super) fraction: u32,
    /// The power of two that the least positive number is.
    pub(super) least: i32,
    /// The bits of what follows the greatest finite number.
    pub(super) infinity: u64,
    /// The place of the sign.
    pub(super) sign: u32,
    /// What all that is no number becomes.
    pub(super) nan: u64,
}

impl Format {
    pub(super) const F16: Self = Self { fraction: 10, least: -24, infinity: 0x7C00, sign: 15, nan: 0x7FFF };
    pub(super) const BF16: Self = Self { fraction: 7, least: -133, infinity: 0x7F80, sign: 15, nan: 0x7FFF };
    pub(super) const F32: Self = Self { fraction: 23, least: -149, infinity: 0x7F80_0000, sign: 31, nan: 0x7FFF_FFFF };
    /// The upper 19 bits of an f32.
    pub(super) const TF32: Self = Self { fraction: 10, least: -136, infinity: 0x3_FC00, sign: 18, nan: 0x3_FFFF };
    pub(super) const F64: Self =
        Self { fraction: 52, least: -1074, infinity: 0x7FF0 << 48, sign: 63, nan: 0xFFF8 << 48 };
    /// Eight bits without infinity.
    pub(super) const E4M3: Self = Self { fraction: 3, least: -9, infinity: 0x7F, sign: 7, nan: 0x7F };
    pub(super) const E5M2: Self = Self { fraction: 2, least: -16, infinity: 0x7C, sign: 7, nan: 0x7F };
}

/// `significand * 2^exponent`, negative or not. A significand of 0 is a zero of that sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) negative: bool,
    pub(super) significand: u128,
    pub(super) exponent: i32,
}

/// Shifts right, and jams what is lost.
fn jammed(value: u128, by: u32) -> u128 {
    match by {
        0 => value,
        1..128 => value >> by | u128::from(value & ((1 << by) - 1) != 0),
        _ => u128::from(value != 0),
    }
}

impl Number {
    /// A finite f64.
    pub(super) fn of(value: f64) -> Self {
        let bits = value.to_bits();
        let (field, fraction) = (((bits >> 52) & 0x7FF) as i32, bits & ((1 << 52) - 1));
        let significand = if field == 0 { fraction } else { fraction | 1 << 52 };
        Self { negative: bits >> 63 == 1, significand: significand.into(), exponent: field.max(1) - 1075 }
    }

    pub(super) fn of_integer(value: i128) -> Self {
        Self { negative: value < 0, significand: value.unsigned_abs(), exponent: 0 }
    }

    fn length(self) -> i32 {
        (128 - self.significand.leading_zeros()).cast_signed()
    }

    /// The same with its highest bit at this place, which is above where it is.
    fn raised(self, place: i32) -> Self {
        let by = place + 1 - self.length();
        Self { significand: self.significand << by, exponent: self.exponent - by, ..self }
    }

    /// Of two numbers of at most 64 bits.
    pub(super) fn times(self, other: Self) -> Self {
        Self {
            negative: self.negative != other.negative,
            significand: self.significand * other.significand,
            exponent: self.exponent + other.exponent,
        }
    }

    /// Of two numbers of at most 106 bits. Zero has the sign of both, or that which the rounding gives it.
    pub(super) fn plus(self, other: Self, rounding: Rounding) -> Self {
        if self.significand == 0 && other.significand == 0 {
            let negative = if self.negative == other.negative { self.negative } else { rounding == Rounding::Down };
            return Self { negative, significand: 0, exponent: 0 };
        }
        if other.significand == 0 {
            return self;
        }
        if self.significand == 0 {
            return other;
        }
        let is_greater = self.exponent + self.length() >= other.exponent + other.length();
        let (high, low) = if is_greater { (self, other) } else { (other, self) };
        // Two bits stay free for the carry.
        let high = high.raised(125);
        let below = high.exponent - low.exponent;
        let low_bits =
            if below > 0 { jammed(low.significand, below.unsigned_abs()) } else { low.significand << -below };
        if high.negative == low.negative {
            return Self { significand: high.significand + low_bits, ..high };
        }
        match high.significand.cmp(&low_bits) {
            Ordering::Equal => Self { negative: rounding == Rounding::Down, significand: 0, exponent: 0 },
            Ordering::Greater => Self { significand: high.significand - low_bits, ..high },
            Ordering::Less => Self { significand: low_bits - high.significand, negative: low.negative, ..high },
        }
    }

    /// Of two numbers of at most 53 bits, neither of them zero.
    pub(super) fn over(self, other: Self) -> Self {
        let (above, below) = (self.raised(126), other.raised(52));
        let (quotient, rest) = (above.significand / below.significand, above.significand % below.significand);
        Self {
            negative: self.negative != other.negative,
            significand: quotient | u128::from(rest != 0),
            exponent: above.exponent - below.exponent,
        }
    }

    /// Of a number of at most 53 bits that is not negative or zero.
    pub(super) fn root(self) -> Self {
        let mut wide = self.raised(126);
        if wide.exponent % 2 != 0 {
            wide = Self { significand: wide.significand >> 1, exponent: wide.exponent + 1, ..wide };
        }
        let root = wide.significand.isqrt();
        let exact = root * root == wide.significand;
        Self { significand: root | u128::from(!exact), exponent: wide.exponent / 2, ..wide }
    }

    /// The bits of the number in a format; `finite` keeps it from becoming infinite.
    #[expect(clippy::cast_possible_truncation, reason = "a rounded number has the bits of its format")]
    pub(super) fn round(self, format: Format, rounding: Rounding, finite: bool) -> u64 {
        let sign = u64::from(self.negative) << format.sign;
        if self.significand == 0 {
            return sign;
        }
        let highest = self.exponent + self.length() - 1;
        let lowest = (highest - format.fraction.cast_signed()).max(format.least);
        let lost = lowest - self.exponent;
        let kept = if lost <= 0 {
            (self.significand << -lost) as u64
        } else {
            let lost = lost.unsigned_abs();
            // What is lost, with the half at the place of the highest bit but one.
            let kept = if lost < 128 { (self.significand >> lost) as u64 } else { 0 };
            let rest = if lost < 128 { self.significand & ((1 << lost) - 1) } else { self.significand };
            let half = if lost <= 128 { rest.cmp(&(1 << (lost - 1))) } else { Ordering::Less };
            kept + u64::from(is_up(rounding, self.negative, kept & 1 == 1, rest != 0, half))
        };
        // A carry out of the fraction adds one to the exponent, as it must.
        let magnitude = (u64::from((lowest - format.least).unsigned_abs()) << format.fraction) + kept;
        if magnitude < format.infinity {
            return sign | magnitude;
        }
        let stays = match rounding {
            Rounding::Nearest | Rounding::NearestAway => false,
            Rounding::Zero => true,
            Rounding::Down => !self.negative,
            Rounding::Up => self.negative,
        };
        sign | if stays || finite { format.infinity - 1 } else { format.infinity }
    }
}

/// Whether a number is rounded away from zero: its last bit, whether something is lost, and how that compares with half.
fn is_up(rounding: Rounding, negative: bool, odd: bool, inexact: bool, half: Ordering) -> bool {
    match rounding {
        Rounding::Nearest => half.is_gt() || half.is_eq() && odd,
        Rounding::NearestAway => half.is_ge(),
        Rounding::Zero => false,
        Rounding::Down => negative && inexact,
        Rounding::Up => !negative && inexact,
    }
}

/// An f64, which may be jammed itself, in a smaller format.
pub(super) fn narrowed(value: f64, format: Format, rounding: Rounding, finite: bool) -> u64 {
    if value.is_nan() {
        return format.nan;
    }
    if value.is_infinite() {
        let magnitude = if finite { format.infinity - 1 } else { format.infinity };
        return u64::from(value.is_sign_negative()) << format.sign | magnitude;
    }
    Number::of(value).round(format, rounding, finite)
}
