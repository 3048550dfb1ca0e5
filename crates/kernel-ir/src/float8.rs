//! Floats of 8 bits: the codes of [`Type::F8E4M3`](crate::Type::F8E4M3) and [`Type::F8E5M2`](crate::Type::F8E5M2).
//!
//! **Invariants:** a number becomes the nearest code, halves the even one. What is larger than the largest code becomes an
//! infinity, or a NaN in the format that has no infinity. The sign stays, also that of a NaN. PyTorch rounds the same way.

/// A format of 8 bits: one for the sign, the others for the exponent and the fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the fraction.
    pub(crate) fraction: u32,
    /// What is added to an exponent.
    pub(crate) bias: u32,
    /// The bits of the smallest `f32` that is beyond every code, whatever it would be rounded to.
    pub(crate) beyond: u32,
    /// What numbers beyond every code become.
    pub(crate) overflow: u8,
}

/// Four bits of exponent and three of fraction: the largest number is 448, there is no infinity, and one NaN of each sign.
pub const E4M3: Format = Format { fraction: 3, bias: 7, beyond: 0x43f0_0000, overflow: NAN };

/// Five bits of exponent and two of fraction, as the high byte of an IEEE binary16: the largest number is 57344.
pub const E5M2: Format = Format { fraction: 2, bias: 15, beyond: 0x4780_0000, overflow: 0x7c };

/// The code of a NaN.
const NAN: u8 = 0x7f;

/// The bits of the infinity of `f32`; what is above is a NaN.
pub(crate) const INFINITY: u32 = 0x7f80_0000;

impl Format {
    /// The bits of the smallest `f32` whose code has a leading one.
    pub(crate) const fn smallest_normal(self) -> u32 {
        (128 - self.bias) << 23
    }

    /// The bits of an `f32` whose last bit is worth as much as that of a code without a leading one: their sum is rounded
    /// there.
    pub(crate) const fn rounder(self) -> u32 {
        (127 - self.bias + 24 - self.fraction) << 23
    }

    /// Bits of an `f32`'s fraction that a code has no place for.
    pub(crate) const fn dropped(self) -> u32 {
        23 - self.fraction
    }

    /// The code that is nearest to a number.
    #[must_use]
    pub fn round(self, number: f32) -> u8 {
        let bits = number.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let code = if magnitude > INFINITY {
            u32::from(NAN)
        } else if magnitude >= self.beyond {
            u32::from(self.overflow)
        } else if magnitude < self.smallest_normal() {
            (f32::from_bits(magnitude) + f32::from_bits(self.rounder())).to_bits() - self.rounder()
        } else {
            let is_odd = magnitude >> self.dropped() & 1;
            let half = (1 << (self.dropped() - 1)) - 1;
            (magnitude - ((127 - self.bias) << 23) + half + is_odd) >> self.dropped()
        };
        u8::try_from(code | bits >> 24 & 0x80).unwrap_or(NAN)
    }

    /// The code of a number that [`Self::value`] gave. NaNs stay apart, which rounding makes one.
    pub(crate) fn code(self, number: f32) -> u8 {
        let bits = number.to_bits();
        if !number.is_nan() {
            return self.round(number);
        }
        u8::try_from(bits >> self.dropped() & 0x7f | bits >> 24 & 0x80).unwrap_or(NAN)
    }

    /// The number that a code stands for; the fraction of a NaN is the code's.
    #[must_use]
    pub fn value(self, code: u8) -> f32 {
        let (sign, magnitude) = (u32::from(code & 0x80) << 24, code & 0x7f);
        if magnitude >= self.overflow {
            // An infinity has no fraction; that of a NaN stays.
            return f32::from_bits(sign | INFINITY | u32::from(magnitude) << self.dropped());
        }
        // The code as an `f32` is smaller by a power of two, which is exact to give back.
        let scaled = f32::from_bits(u32::from(magnitude) << self.dropped());
        let number = scaled * f32::from_bits((254 - self.bias) << 23);
        f32::from_bits(sign | number.to_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::{E4M3, E5M2, Format};

    /// The code by its definition: of all codes the one that lies nearest, of two that the even one.
    fn nearest(format: Format, number: f32) -> u8 {
        let sign = if number.is_sign_negative() { 0x80 } else { 0 };
        if !number.is_finite() {
            return sign | if number.is_nan() { 0x7f } else { format.overflow };
        }
        // The numbers that codes would stand for if none were an infinity or a NaN.
        let worth = |code: u8| {
            let (exponent, fraction) =
                (i32::from(code >> format.fraction), f64::from(code & ((1 << format.fraction) - 1)));
            let unit = 2_f64.powi(1 - i32::try_from(format.bias).unwrap() - i32::try_from(format.fraction).unwrap());
            let leading = f64::from(1 << format.fraction);
            if exponent == 0 { fraction * unit } else { (leading + fraction) * unit * 2_f64.powi(exponent - 1) }
        };
        // Beyond every code differences would lose their last bits.
        let magnitude = f64::from(number.abs()).min(1e6);
        let codes = 0..=format.overflow;
        let best = codes.min_by(|&a, &b| {
            let (first, second) = ((worth(a) - magnitude).abs(), (worth(b) - magnitude).abs());
            first.total_cmp(&second).then((a & 1).cmp(&(b & 1)))
        });
        sign | best.unwrap()
    }

    #[test]
    fn numbers_become_the_nearest_codes() {
        for format in [E4M3, E5M2] {
            for high in 0..=u16::MAX {
                // Neighbours of every number of 16 bits, so that halves are met from both sides.
                for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                    let number = f32::from_bits(u32::from(high) << 16 | low);
                    assert_eq!(format.round(number), nearest(format, number), "{format:?} of {number:e}");
                }
            }
        }
    }

    #[test]
    fn codes_go_to_numbers_and_back() {
        for format in [E4M3, E5M2] {
            for code in 0..=u8::MAX {
                let number = format.value(code);
                let back = format.round(number);
                let is_nan = number.is_nan() && back == code | 0x7f;
                assert!((back == code || is_nan) && format.code(number) == code, "{format:?} {code:#x}");
            }
        }
        assert_eq!([0x7e, 0x01, 0x38, 0xb8].map(|code| E4M3.value(code)), [448.0, 0.001_953_125, 1.0, -1.0]);
        assert_eq!(
            [0x7b, 0x01, 0x3c, 0xfc].map(|code| E5M2.value(code)),
            [57344.0, 2_f32.powi(-16), 1.0, f32::NEG_INFINITY]
        );
        assert_eq!(
            [447.0, 464.0, 464.1, 480.0, f32::INFINITY].map(|number| E4M3.round(number)),
            [0x7e, 0x7e, 0x7f, 0x7f, 0x7f]
        );
        assert_eq!([61439.0, 61440.0, 65536.0, -1e30].map(|number| E5M2.round(number)), [0x7b, 0x7c, 0x7c, 0xfc]);
    }
}
