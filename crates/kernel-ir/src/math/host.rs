//! The functions on the host: each result is within one unit in the last place of the exact one, those of `f32` nearly
//! always the nearest number, because they are computed in `f64`.

use std::f64::consts::PI;

use super::Math;

/// The function of `f64` arguments. The second one is ignored by functions of one argument.
pub(crate) fn of_f64(function: Math, a: f64, b: f64) -> f64 {
    match function {
        Math::Exp => a.exp(),
        Math::Exp2 => a.exp2(),
        Math::Expm1 => a.exp_m1(),
        Math::Log => a.ln(),
        Math::Log2 => a.log2(),
        Math::Log10 => a.log10(),
        Math::Log1p => a.ln_1p(),
        Math::Rsqrt => 1.0 / a.sqrt(),
        Math::Sin => a.sin(),
        Math::Cos => a.cos(),
        Math::Tan => a.tan(),
        Math::Asin => a.asin(),
        Math::Acos => a.acos(),
        Math::Atan => a.atan(),
        Math::Sinh => a.sinh(),
        Math::Cosh => a.cosh(),
        Math::Tanh => a.tanh(),
        Math::Asinh => libm::asinh(a),
        Math::Acosh if a < 1.0 => f64::NAN,
        Math::Acosh => libm::acosh(a),
        Math::Atanh => libm::atanh(a),
        Math::Erf => libm::erf(a),
        Math::Erfc => libm::erfc(a),
        Math::Erfinv => erfinv(a),
        Math::Lgamma => lgamma(a),
        Math::Digamma => digamma(a),
        Math::Pow => a.powf(b),
        Math::Atan2 => a.atan2(b),
        Math::Hypot => a.hypot(b),
        Math::Fmod => a % b,
        Math::Exp2Near => normal(a.exp2()),
        Math::RecipNear => normal(1.0 / normal(a)),
        Math::Log2Near => normal(a).log2(),
        // A program has these on integers only.
        Math::Gcd | Math::Powi => f64::NAN,
    }
}

/// The function of integers, computed in 64 bits; the caller cuts the result to its type.
pub(crate) fn of_int(function: Math, a: i64, b: i64) -> i64 {
    if function == Math::Gcd { gcd(a, b) } else { powi(a, b) }
}

fn gcd(mut a: i64, mut b: i64) -> i64 {
    while a != 0 {
        (a, b) = (b.wrapping_rem(a), a);
    }
    b
}

fn powi(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => 1 - 2 * (exponent & 1),
            _ => 0,
        };
    }
    let (mut result, mut square, mut left) = (1_i64, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left >>= 1;
    }
    result
}

/// The function of `f32` arguments.
#[expect(clippy::cast_possible_truncation, reason = "the result is rounded to its type")]
pub(crate) fn of_f32(function: Math, a: f32, b: f32) -> f32 {
    of_f64(function, f64::from(a), f64::from(b)) as f32
}

/// The number, or zero with its sign where `f32` has no normal number as small.
fn normal(a: f64) -> f64 {
    if a.abs() < f64::from(f32::MIN_POSITIVE) { 0.0_f64.copysign(a) } else { a }
}

/// The logarithm of the gamma function's magnitude, infinite at its poles.
fn lgamma(a: f64) -> f64 {
    if a.is_infinite() { f64::INFINITY } else { libm::lgamma(a) }
}

/// The inverse of the error function: a rational first guess and two steps of Halley's method.
fn erfinv(a: f64) -> f64 {
    if !(-1.0..=1.0).contains(&a) {
        return f64::NAN;
    }
    if a.abs() == 1.0 {
        return a * f64::INFINITY;
    }
    if a == 0.0 {
        return a;
    }
    // Winitzki's closed form is right to about three digits.
    let constant = 0.147;
    let log = (-a * a).ln_1p();
    let half = 2.0 / (PI * constant) + log / 2.0;
    let mut x = ((half * half - log / constant).sqrt() - half).max(0.0).sqrt();
    let target = a.abs();
    for _ in 0..4 {
        // Near one, erf loses what erfc keeps.
        let error = if target > 0.5 { (1.0 - target) - libm::erfc(x) } else { libm::erf(x) - target };
        let step = error / (2.0 / PI.sqrt() * (-x * x).exp());
        x -= step / (1.0 + x * step);
    }
    x.copysign(a)
}

/// The derivative of [`lgamma`]: reflection for negative numbers, recurrence up to 10, then the asymptotic series.
fn digamma(a: f64) -> f64 {
    if a == 0.0 {
        return f64::INFINITY.copysign(-a);
    }
    if a < 0.0 {
        if a.trunc() == a {
            return f64::NAN;
        }
        return digamma(1.0 - a) - PI / (PI * a.fract()).tan();
    }
    if a == f64::INFINITY {
        return a;
    }
    let (mut x, mut sum) = (a, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    if x == 10.0 {
        return sum + 2.251_752_589_066_721;
    }
    let z = 1.0 / (x * x);
    let coefficients = [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32760.0, 1.0 / 12.0];
    let series = coefficients.iter().rev().fold(0.0, |total, coefficient| total * z + coefficient) * z;
    sum + x.ln() - 0.5 / x - series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverse_of_the_error_function() {
        for (x, expected) in
            [(0.5, 0.476_936_276_204_469_9), (-0.9, -1.163_087_153_676_674), (1e-8, 8.862_269_254_527_58e-9)]
        {
            assert!((erfinv(x) / expected - 1.0).abs() < 4e-16, "{x}: {}", erfinv(x));
        }
        assert!((libm::erfc(erfinv(1.0 - 1e-12)) / 1e-12 - 1.0).abs() < 1e-3);
        assert_eq!(erfinv(1.0), f64::INFINITY);
        assert!(erfinv(1.5).is_nan());
    }

    #[test]
    fn functions_of_integers() {
        assert_eq!([gcd(0, 0), gcd(12, 18), gcd(7, 0), gcd(i64::MIN, -1)], [0, 6, 7, -1]);
        assert_eq!([powi(3, 4), powi(-2, 3), powi(0, 0), powi(2, 64)], [81, -8, 1, 0]);
        assert_eq!([powi(2, -1), powi(1, -5), powi(-1, -5), powi(-1, -4)], [0, 1, -1, 1]);
    }

    #[test]
    fn digamma_at_known_places() {
        let euler = 0.577_215_664_901_532_9;
        for (x, expected) in [(1.0, -euler), (0.5, -euler - 2.0 * 2.0_f64.ln()), (2.0, 1.0 - euler)] {
            assert!((digamma(x) - expected).abs() < 4e-16 * 4.0, "{x}: {}", digamma(x));
        }
        assert_eq!(digamma(0.0), f64::NEG_INFINITY);
        assert!(digamma(-3.0).is_nan());
    }
}
