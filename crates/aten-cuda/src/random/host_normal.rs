//! Pairs of normal numbers of pairs of uniform ones (Box and Muller), rounded as torch rounds them.
//!
//! Of singles torch takes logarithm, sine and cosine from polynomials, those of the Cephes library, which its code for
//! vectors evaluates with fused multiplications and additions. The results differ from exact ones by some 1e-7. Where a
//! processor has no such vectors, torch calls the C library instead; the numbers here are those of the vectors.

#![expect(clippy::unreadable_literal, clippy::excessive_precision, reason = "coefficients as they are known")]

use std::f32::consts::FRAC_1_SQRT_2;
use std::f64::consts::PI;

use half::{bf16, f16};

/// The logarithm of `1 + x`, as powers of `x` from the ninth down, over the third.
const LOG: [f32; 9] = [
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
];

/// The logarithm of two in two parts; the larger one has few digits.
const LN_2_PARTS: [f32; 2] = [0.693359375, -2.12194440e-4];

/// A quarter of the circle's half in three parts, of which the larger ones have few digits.
const QUARTER_PARTS: [f32; 3] = [0.78515625, 2.418756484985351e-4, 3.774894977445941e-8];

const SIN: [f32; 3] = [-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1];

const COS: [f32; 3] = [2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2];

/// Of doubles.
pub(super) fn pair_of_doubles([length, angle]: [f64; 2], mean: f64, std: f64) -> [f64; 2] {
    let radius = (-2.0 * (1.0 - length).ln()).sqrt();
    let angle = 2.0 * PI * angle;
    [angle.cos(), angle.sin()].map(|part| (radius * part).mul_add(std, mean))
}

/// Of singles.
#[expect(clippy::cast_possible_truncation, reason = "singles")]
pub(super) fn pair_of_singles([length, angle]: [f64; 2], mean: f64, std: f64) -> [f64; 2] {
    let radius = (-2.0 * logarithm(1.0 - length as f32)).sqrt();
    let (sine, cosine) = sine_and_cosine((2.0 * PI) as f32 * angle as f32);
    [cosine, sine].map(|part| (radius * part).mul_add(std as f32, mean as f32).into())
}

/// Of half types, which round after each operation; each is one of singles, but the angle's one of doubles.
#[expect(clippy::cast_possible_truncation, reason = "singles")]
pub(super) fn pair_of_halves<const IS_F16: bool>([length, angle]: [f64; 2], mean: f64, std: f64) -> [f64; 2] {
    let rounded = |value: f32| if IS_F16 { f16::from_f32(value).to_f32() } else { bf16::from_f32(value).to_f32() };
    let rest = rounded(1.0 - length as f32);
    let radius = rounded(rounded(-2.0 * rounded(rest.ln())).sqrt());
    let angle = rounded((2.0 * PI * angle) as f32);
    [angle.cos(), angle.sin()].map(|part| {
        let scaled = rounded(rounded(radius * rounded(part)) * std as f32);
        rounded(scaled + mean as f32).into()
    })
}

/// The logarithm of a number above zero and not above one.
#[expect(clippy::cast_precision_loss, reason = "exponents are small")]
fn logarithm(number: f32) -> f32 {
    let bits = number.to_bits();
    // The number is a fraction from one half up to one, times a power of two.
    let fraction = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    let power = ((bits >> 23).cast_signed() - 126) as f32;
    let is_small = fraction < FRAC_1_SQRT_2;
    let power = if is_small { power - 1.0 } else { power };
    let x = if is_small { fraction - 1.0 + fraction } else { fraction - 1.0 };
    let square = x * x;
    let sum = LOG.into_iter().reduce(|sum, factor| sum.mul_add(x, factor)).unwrap_or_default();
    let [large, small] = LN_2_PARTS;
    let rest = (sum * x).mul_add(square, power * small);
    let rest = (-square).mul_add(0.5, rest);
    power.mul_add(large, x + rest)
}

/// Sine and cosine of an angle from zero up to two pi.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small, and not below zero"
)]
fn sine_and_cosine(angle: f32) -> (f32, f32) {
    // Eighths of the circle, rounded to the next even number of them.
    let eighths = ((angle * std::f32::consts::FRAC_2_PI * 2.0) as u32 + 1) & !1;
    let x = QUARTER_PARTS.into_iter().fold(angle, |rest, part| (eighths as f32).mul_add(-part, rest));
    let square = x * x;
    let polynomial =
        |factors: [f32; 3]| factors.into_iter().reduce(|sum, factor| sum.mul_add(square, factor)).unwrap_or_default();
    let sine = (polynomial(SIN) * square).mul_add(x, x);
    let cosine = (polynomial(COS) * square).mul_add(square, -(square * 0.5)) + 1.0;
    let (first, second) = if eighths & 2 == 0 { (sine, cosine) } else { (cosine, sine) };
    let signed = |value: f32, is_negative: bool| if is_negative { -value } else { value };
    (signed(first, eighths & 4 != 0), signed(second, eighths.wrapping_sub(2) & 4 == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polynomials_are_near_the_functions() {
        assert!((LN_2_PARTS[0] + LN_2_PARTS[1] - std::f32::consts::LN_2).abs() < 1e-7);
        for step in 1..=1000_u16 {
            let number = f32::from(step) / 1000.0;
            assert!((logarithm(number) - number.ln()).abs() < 1e-6, "{number}");
            let angle = number * 6.25;
            let (sine, cosine) = sine_and_cosine(angle);
            assert!((sine - angle.sin()).abs() < 1e-6 && (cosine - angle.cos()).abs() < 1e-6, "{angle}");
        }
        assert_eq!((logarithm(1.0), sine_and_cosine(0.0)), (0.0, (0.0, 1.0)));
    }
}
