//! What `math.cu` must leave behind: the functions within the errors that CUDA's programming guide states, for those of
//! double one more unit for the reference, and the roundings exactly.

use std::f64::consts;

use super::Case;
use super::device::{Answer, Device, same};
use super::numbers::{ROUNDINGS, double, doubles, floats, single};

const FILE: &str = "math";
pub(super) const CASES: &[Case] = &[
    Case::new(FILE, "float_functions", float_functions),
    Case::new(FILE, "double_functions", double_functions),
    Case::new(FILE, "fast_functions", fast_functions),
    Case::new(FILE, "float_roundings", float_roundings),
    Case::new(FILE, "double_roundings", double_roundings),
    Case::new(FILE, "whole_parts", whole_parts),
];

/// The complement of the error function of a positive number, by its continued fraction.
fn erfc_fraction(x: f64) -> f64 {
    let fraction = (1..=3000).rev().fold(x, |tail, i| x + f64::from(i) / 2.0 / tail);
    let square = x * x;
    let lack = x.mul_add(x, -square);
    (-square).exp() * (1.0 - lack) / (fraction * consts::PI.sqrt())
}

/// The error function, by its series near zero, least terms first.
pub(super) fn erf(x: f64) -> f64 {
    if x.abs() > 1.0 {
        return (1.0 - erfc_fraction(x.abs())).copysign(x);
    }
    let mut power = x;
    let terms: Vec<f64> = (1..40)
        .map(|n| {
            power *= -x * x / f64::from(n);
            power / f64::from(2 * n + 1)
        })
        .collect();
    (terms.iter().rev().sum::<f64>() + x) * consts::FRAC_2_SQRT_PI
}

fn erfc(x: f64) -> f64 {
    if x > 0.5 { erfc_fraction(x) } else { 1.0 - erf(x) }
}

/// A function of two numbers, its name, and the largest error in units of the last place, of f32 and of f64.
type Function = (&'static str, fn(f64, f64) -> f64, f64, f64);

/// In the order in which the kernels store them. Where an argument is computed first, it is rounded by the caller.
const FUNCTIONS: [Function; 24] = [
    ("sin", |a, _| a.sin(), 2.0, 3.0),
    ("cos", |a, _| a.cos(), 2.0, 3.0),
    ("tan", |a, _| a.tan(), 4.0, 3.0),
    ("exp", |a, _| a.exp(), 2.0, 2.0),
    ("log", |a, _| a.abs().ln(), 1.0, 2.0),
    ("pow", |a, b| a.abs().powf(b), 4.0, 3.0),
    ("erf", |a, _| erf(a), 2.0, 3.0),
    ("tanh", |a, _| a.tanh(), 2.0, 3.0),
    ("sqrt", |a, _| a.abs().sqrt(), 0.0, 0.0),
    ("rsqrt", |a, _| 1.0 / a.abs().sqrt(), 2.0, 2.5),
    ("exp2", |a, _| a.exp2(), 2.0, 2.0),
    ("log2", |a, _| a.abs().log2(), 1.0, 2.0),
    ("expm1", |a, _| a.exp_m1(), 1.0, 2.0),
    ("log1p", |a, _| a.abs().ln_1p(), 1.0, 2.0),
    ("cbrt", |a, _| a.cbrt(), 1.0, 2.0),
    ("atan2", f64::atan2, 3.0, 3.0),
    ("asin", |a, _| a.asin(), 4.0, 3.0),
    ("sinh", |a, _| a.sinh(), 3.0, 3.0),
    ("hypot", f64::hypot, 3.0, 3.0),
    ("atan", |a, _| a.atan(), 2.0, 3.0),
    ("acos", |a, _| a.acos(), 3.0, 3.0),
    ("log10", |a, _| a.abs().log10(), 2.0, 2.0),
    ("erfc", |a, _| erfc(a), 4.0, 6.0),
    ("quotient", |a, b| a / b, 0.0, 0.0),
];

/// Arguments: most of them moderate, some large.
fn arguments(seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut x = doubles(seed, 240, -4.0, 4.0);
    x.extend(doubles(seed + 1, 40, -80.0, 80.0));
    x.extend([
        1e5,
        -1e7,
        3.3e10,
        1e15,
        1e-6,
        -1e-9,
        0.5,
        1.0,
        -1.0,
        2.0,
        consts::FRAC_PI_2,
        consts::PI,
        -consts::TAU,
        12.0,
        1e22,
        1e-3,
    ]);
    let y = doubles(seed + 2, x.len(), -3.0, 3.0);
    (x, y)
}

/// Whether the argument is computed by the kernel: then it is a / (|a| + 1), in the kernel's type.
fn is_of_quotient(name: &str) -> bool {
    matches!(name, "asin" | "acos")
}

#[expect(clippy::cast_possible_truncation, reason = "rounds")]
fn float_functions(device: &Device<'_>) -> Answer {
    let (x, y) = arguments(121);
    let (x, y): (Vec<f32>, Vec<f32>) = (x.iter().map(|x| *x as f32).collect(), y.iter().map(|y| *y as f32).collect());
    let (on_x, on_y, to) = (device.put(&x)?, device.put(&y)?, device.zeros::<f32>(x.len() * FUNCTIONS.len())?);
    let count = u32::try_from(x.len())?;
    device.run("float_functions", 5, 64, &[(&to).into(), (&on_x).into(), (&on_y).into(), count.into()])?;
    let found = to.to_vec()?;
    for (place, (name, function, limit, _)) in FUNCTIONS.into_iter().enumerate() {
        let found: Vec<f32> = found.iter().copied().skip(place).step_by(FUNCTIONS.len()).collect();
        let one = |(&x, &y): (&f32, &f32)| {
            let x = if is_of_quotient(name) { x / (x.abs() + 1.0) } else { x };
            function(f64::from(x), f64::from(y))
        };
        let wanted: Vec<f64> = x.iter().zip(&y).map(one).collect();
        device.near(&format!("{name}f, in last places"), &found, &wanted, limit)?;
    }
    Ok(())
}

fn double_functions(device: &Device<'_>) -> Answer {
    let (x, y) = arguments(124);
    let (on_x, on_y, to) = (device.put(&x)?, device.put(&y)?, device.zeros::<f64>(x.len() * FUNCTIONS.len())?);
    let count = u32::try_from(x.len())?;
    device.run("double_functions", 5, 64, &[(&to).into(), (&on_x).into(), (&on_y).into(), count.into()])?;
    let found = to.to_vec()?;
    for (place, (name, function, _, limit)) in FUNCTIONS.into_iter().enumerate() {
        let found: Vec<f64> = found.iter().copied().skip(place).step_by(FUNCTIONS.len()).collect();
        let one = |(&x, &y): (&f64, &f64)| function(if is_of_quotient(name) { x / (x.abs() + 1.0) } else { x }, y);
        let wanted: Vec<f64> = x.iter().zip(&y).map(one).collect();
        device.near(&format!("{name}, in last places"), &found, &wanted, limit)?;
    }
    Ok(())
}

fn fast_functions(device: &Device<'_>) -> Answer {
    let (x, y) = (floats(127, 300, -3.1, 3.1), floats(128, 300, 0.2, 3.0));
    let (on_x, on_y, to) = (device.put(&x)?, device.put(&y)?, device.zeros::<f32>(2400)?);
    device.run("fast_functions", 5, 64, &[(&to).into(), (&on_x).into(), (&on_y).into(), 300_u32.into()])?;
    type Fast = (&'static str, fn(f64, f64) -> f64, f64);
    let functions: [Fast; 8] = [
        ("__sinf", |a, _| a.sin(), 4e-7),
        ("__cosf", |a, _| a.cos(), 4e-7),
        ("__expf", |a, _| a.exp(), 6e-7),
        ("__logf", |a, _| a.abs().ln(), 4e-7),
        ("__fdividef", |a, b| a / b, 3e-7),
        ("__powf", |a, b| a.abs().powf(b), 2e-6),
        ("__log2f", |a, _| a.abs().log2(), 4e-7),
        ("__exp10f", |a, _| 10_f64.powf(a), 2e-6),
    ];
    let found = to.to_vec()?;
    for (place, (name, function, limit)) in functions.into_iter().enumerate() {
        let found: Vec<f32> = found.iter().copied().skip(place).step_by(8).collect();
        let wanted: Vec<f64> = x.iter().zip(&y).map(|(x, y)| function(f64::from(*x), f64::from(*y))).collect();
        device.within(&format!("{name}, of magnitude"), &found, &wanted, limit)?;
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "rounds")]
fn float_roundings(device: &Device<'_>) -> Answer {
    let [x, y, z] = [131, 132, 133].map(|seed| floats(seed, 250, -900.0, 900.0));
    let (on_x, on_y, on_z, to) = (device.put(&x)?, device.put(&y)?, device.put(&z)?, device.zeros::<f32>(8000)?);
    let arguments = [(&to).into(), (&on_x).into(), (&on_y).into(), (&on_z).into(), 250_u32.into()];
    device.run("float_roundings", 4, 64, &arguments)?;
    let mut wanted = Vec::new();
    for ((&a, &b), &c) in x.iter().zip(&y).zip(&z) {
        for mode in ROUNDINGS {
            use single::{add, div, fma, mul, round, sqrt};
            wanted.extend([add(mode, a, b), add(mode, a, -b), mul(mode, a, b), fma(mode, a, b, c)]);
            let (product, nearest) = (f64::from(a) * f64::from(b), (f64::from(a) * f64::from(b)) as f32);
            let cut = round(mode, nearest, (product - f64::from(nearest)) as f32);
            wanted.extend([div(mode, a, b), sqrt(mode, a.abs()), div(mode, 1.0, a), cut]);
        }
    }
    same("float_roundings", &to.to_vec()?, &wanted)
}

fn double_roundings(device: &Device<'_>) -> Answer {
    let [x, y, z] = [134, 135, 136].map(|seed| doubles(seed, 250, -900.0, 900.0));
    let (on_x, on_y, on_z, to) = (device.put(&x)?, device.put(&y)?, device.put(&z)?, device.zeros::<f64>(6000)?);
    let arguments = [(&to).into(), (&on_x).into(), (&on_y).into(), (&on_z).into(), 250_u32.into()];
    device.run("double_roundings", 4, 64, &arguments)?;
    let mut wanted = Vec::new();
    for ((&a, &b), &c) in x.iter().zip(&y).zip(&z) {
        for mode in ROUNDINGS {
            use double::{add, div, fma, mul, sqrt};
            wanted.extend([add(mode, a, b), add(mode, a, -b), mul(mode, a, b), fma(mode, a, b, c)]);
            wanted.extend([div(mode, a, b), sqrt(mode, a.abs())]);
        }
    }
    same("double_roundings", &to.to_vec()?, &wanted)
}

/// The fraction in [0.5, 1) and the power of two of a number that is not zero.
fn parts(value: f32) -> (f32, i32) {
    let exponent = (value.to_bits() >> 23 & 0xFF).cast_signed() - 126;
    (value / (exponent as f32).exp2(), exponent)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates as the device does")]
fn whole_parts(device: &Device<'_>) -> Answer {
    let mut x = floats(137, 200, -900.0, 900.0);
    x.extend([0.5, -0.5, 1.5, 2.5, -2.5, 3e9, -3e9, 1e20, -1e20, 4.2e9]);
    let y = floats(138, x.len(), -90.0, 90.0);
    let n = x.len();
    let (on_x, on_y, to) = (device.put(&x)?, device.put(&y)?, device.zeros::<f32>(n * 12)?);
    let (whole, large) = (device.zeros::<i32>(n * 6)?, device.zeros::<i64>(n * 2)?);
    let count = u32::try_from(n)?;
    let arguments = [(&to).into(), (&whole).into(), (&large).into(), (&on_x).into(), (&on_y).into(), count.into()];
    device.run("whole_parts", 4, 64, &arguments)?;
    let (mut reals, mut wholes, mut larges) = (Vec::new(), Vec::new(), Vec::new());
    for (&a, &b) in x.iter().zip(&y) {
        let (fraction, exponent) = parts(a);
        let rest = f64::from(a) % f64::from(b);
        // What is left by the nearest multiple, of two the even one.
        let nearest = (f64::from(a) / f64::from(b)).round_ties_even();
        let around = if nearest.abs() < 2e15 { (-nearest).mul_add(f64::from(b), f64::from(a)) } else { f64::NAN };
        reals.push([a.floor(), a.ceil(), a.trunc(), a.round_ties_even(), a.round(), rest as f32]);
        reals.push([a.copysign(b), a.min(b), a.max(b), fraction, b * (exponent as f32).exp2(), around as f32]);
        let signed = [a.round_ties_even(), a.trunc(), a.ceil(), a.floor()].map(|value| value as i32);
        wholes.extend(signed);
        wholes.extend([(a.round_ties_even() as u32).cast_signed(), exponent]);
        larges.extend([a.round_ties_even() as i64, (f64::from(a) * f64::from(b)).floor() as i64]);
    }
    let (found, wanted) = (to.to_vec()?, reals.concat());
    // The last result is compared where the quotient is small enough for one product.
    let keep = |values: &[f32]| -> Vec<f32> {
        values
            .iter()
            .zip(&wanted)
            .enumerate()
            .map(|(i, (v, w))| if i % 12 == 11 && w.is_nan() { 0.0 } else { *v })
            .collect()
    };
    same("whole_parts: f32", &keep(&found), &keep(&wanted))?;
    same("whole_parts: 32 bits", &whole.to_vec()?, &wholes)?;
    same("whole_parts: 64 bits", &large.to_vec()?, &larges)
}
