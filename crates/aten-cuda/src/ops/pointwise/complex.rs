//! Formulas on complex numbers, as pairs of real and imaginary parts.
//!
//! The inverse functions are Kahan's ("Branch Cuts for Complex Elementary Functions", 1987), which keep the signs of
//! zeros on both sides of a cut.

use std::f64::consts::{LN_2, LN_10};

use kernel_ir::{Binary, Compare, Graph, Math, Type, Unary, Value};

use super::Pair;
use super::formula::{self, compare_with, copy_sign, like};
use crate::base::dtype::DType;

/// A constant.
pub(super) fn number(graph: &mut Graph, dtype: DType, real: f64) -> Pair {
    let ty = dtype.compute_type();
    (graph.float(ty, real), graph.float(ty, 0.0))
}

pub(super) fn add(graph: &mut Graph, a: Pair, b: Pair) -> Pair {
    (formula::add(graph, a.0, b.0), formula::add(graph, a.1, b.1))
}

pub(super) fn sub(graph: &mut Graph, a: Pair, b: Pair) -> Pair {
    (formula::sub(graph, a.0, b.0), formula::sub(graph, a.1, b.1))
}

pub(super) fn neg(graph: &mut Graph, a: Pair) -> Pair {
    (formula::neg(graph, a.0), formula::neg(graph, a.1))
}

pub(super) fn conj(graph: &mut Graph, (real, imaginary): Pair) -> Pair {
    (real, graph.unary(Unary::Neg, imaginary))
}

pub(super) fn mul(graph: &mut Graph, a: Pair, b: Pair) -> Pair {
    let (minus, cross) = (formula::mul(graph, a.1, b.1), formula::mul(graph, a.1, b.0));
    let minus = formula::neg(graph, minus);
    (graph.fma(a.0, b.0, minus), graph.fma(a.0, b.1, cross))
}

/// The larger part of the divisor is divided by, so that its square does not overflow. A division by zero divides each
/// part by zero.
pub(super) fn div(graph: &mut Graph, a: Pair, b: Pair) -> Pair {
    let (abs_real, abs_imaginary) = (formula::abs(graph, b.0), formula::abs(graph, b.1));
    let real_is_larger = graph.compare(Compare::Ge, abs_real, abs_imaginary);
    let large = graph.select(real_is_larger, b.0, b.1);
    let small = graph.select(real_is_larger, b.1, b.0);
    let ratio = formula::div(graph, small, large);
    let divisor = graph.fma(small, ratio, large);
    let one = like(graph, divisor, 1.0);
    let scale = formula::div(graph, one, divisor);
    let (minus_real, minus_ratio) = (formula::neg(graph, a.0), formula::neg(graph, ratio));
    let sums = [graph.fma(a.1, ratio, a.0), graph.fma(a.0, ratio, a.1)];
    let differences = [graph.fma(a.0, minus_ratio, a.1), graph.fma(a.1, ratio, minus_real)];
    let part = |graph: &mut Graph, [if_real, if_imaginary]: [Value; 2], numerator: Value, zero: Value| {
        let chosen = graph.select(real_is_larger, if_real, if_imaginary);
        let quotient = formula::mul(graph, chosen, scale);
        let by_zero = formula::div(graph, numerator, zero);
        let is_zero = compare_with(graph, Compare::Eq, large, 0.0);
        graph.select(is_zero, by_zero, quotient)
    };
    (part(graph, sums, a.0, abs_real), part(graph, differences, a.1, abs_imaginary))
}

/// Whether a question is answered with yes by one of the parts.
pub(super) fn either(graph: &mut Graph, a: Pair, question: fn(&mut Graph, Value) -> Value) -> Pair {
    let (real, imaginary) = (question(graph, a.0), question(graph, a.1));
    (graph.binary(Binary::Or, real, imaginary), graph.int(Type::Bool, 0))
}

pub(super) fn abs(graph: &mut Graph, _: DType, values: &[Pair]) -> Pair {
    let zero = like(graph, values[0].0, 0.0);
    (magnitude(graph, values[0]), zero)
}

fn magnitude(graph: &mut Graph, a: Pair) -> Value {
    graph.call(Math::Hypot, &[a.0, a.1])
}

/// A complex number times a real one.
fn scaled(graph: &mut Graph, a: Pair, factor: f64) -> Pair {
    let factor = like(graph, a.0, factor);
    (formula::mul(graph, a.0, factor), formula::mul(graph, a.1, factor))
}

/// The number times i.
fn turned(graph: &mut Graph, a: Pair) -> Pair {
    (formula::neg(graph, a.1), a.0)
}

/// The number divided by i.
fn turned_back(graph: &mut Graph, a: Pair) -> Pair {
    (a.1, formula::neg(graph, a.0))
}

/// A magnitude and an angle. An angle of zero is a real number, even if the magnitude is infinite.
fn polar(graph: &mut Graph, magnitude: Value, angle: Value) -> Pair {
    let (cos, sin) = (graph.call(Math::Cos, &[angle]), graph.call(Math::Sin, &[angle]));
    let is_real = compare_with(graph, Compare::Eq, angle, 0.0);
    let imaginary = formula::mul(graph, magnitude, sin);
    (formula::mul(graph, magnitude, cos), graph.select(is_real, angle, imaginary))
}

pub(super) fn exp(graph: &mut Graph, _: DType, a: Pair) -> Pair {
    let magnitude = graph.call(Math::Exp, &[a.0]);
    polar(graph, magnitude, a.1)
}

pub(super) fn exp2(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    let a = scaled(graph, a, LN_2);
    exp(graph, dtype, a)
}

/// The real part is `expm1(x) cos y - 2 sin(y / 2)^2`, which keeps the digits near zero.
pub(super) fn expm1(graph: &mut Graph, _: DType, a: Pair) -> Pair {
    let (power, less_one) = (graph.call(Math::Exp, &[a.0]), graph.call(Math::Expm1, &[a.0]));
    let (half, minus_two) = (like(graph, a.1, 0.5), like(graph, a.1, -2.0));
    let half_angle = formula::mul(graph, a.1, half);
    let half_sine = graph.call(Math::Sin, &[half_angle]);
    let square = formula::mul(graph, half_sine, half_sine);
    let versine = formula::mul(graph, square, minus_two);
    let (cos, sin) = (graph.call(Math::Cos, &[a.1]), graph.call(Math::Sin, &[a.1]));
    (graph.fma(less_one, cos, versine), formula::mul(graph, power, sin))
}

pub(super) fn log(graph: &mut Graph, _: DType, a: Pair) -> Pair {
    let magnitude = magnitude(graph, a);
    (graph.call(Math::Log, &[magnitude]), graph.call(Math::Atan2, &[a.1, a.0]))
}

pub(super) fn log2(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    let natural = log(graph, dtype, a);
    scaled(graph, natural, 1.0 / LN_2)
}

pub(super) fn log10(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    let natural = log(graph, dtype, a);
    scaled(graph, natural, 1.0 / LN_10)
}

/// Near zero the real part is half the logarithm of `1 + (x (x + 2) + y^2)`.
pub(super) fn log1p(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    let one = number(graph, dtype, 1.0);
    let moved = add(graph, a, one);
    let far = log(graph, dtype, moved);
    let (two, half) = (like(graph, a.0, 2.0), like(graph, a.0, 0.5));
    let (sum, square) = (formula::add(graph, a.0, two), formula::mul(graph, a.1, a.1));
    let small = graph.fma(a.0, sum, square);
    let doubled = graph.call(Math::Log1p, &[small]);
    let near = formula::mul(graph, doubled, half);
    let magnitude = magnitude(graph, a);
    let is_near = compare_with(graph, Compare::Lt, magnitude, 0.5);
    (graph.select(is_near, near, far.0), far.1)
}

/// The larger part is computed as a root, the other one by dividing by it.
pub(super) fn sqrt(graph: &mut Graph, _: DType, a: Pair) -> Pair {
    // The parts are halved before they are added, so that the sum does not overflow.
    let (half, two) = (like(graph, a.0, 0.5), like(graph, a.0, 2.0));
    let (length, width) = (magnitude(graph, a), formula::abs(graph, a.0));
    let (half_length, half_width) = (formula::mul(graph, length, half), formula::mul(graph, width, half));
    let sum = formula::add(graph, half_length, half_width);
    let root = graph.unary(Unary::Sqrt, sum);
    let doubled = formula::mul(graph, root, two);
    let rest = formula::div(graph, a.1, doubled);
    let abs_rest = formula::abs(graph, rest);
    let signed_root = copy_sign(graph, root, a.1);
    let is_right = compare_with(graph, Compare::Ge, a.0, 0.0);
    let (real, imaginary) = (graph.select(is_right, root, abs_rest), graph.select(is_right, rest, signed_root));
    let is_zero = compare_with(graph, Compare::Eq, length, 0.0);
    (graph.select(is_zero, length, real), graph.select(is_zero, a.1, imaginary))
}

pub(super) fn rsqrt(graph: &mut Graph, dtype: DType, values: &[Pair]) -> Pair {
    let (one, root) = (number(graph, dtype, 1.0), sqrt(graph, dtype, values[0]));
    div(graph, one, root)
}

pub(super) fn sinh(graph: &mut Graph, _: DType, a: Pair) -> Pair {
    let (sinh, cosh) = (graph.call(Math::Sinh, &[a.0]), graph.call(Math::Cosh, &[a.0]));
    let (sin, cos) = (graph.call(Math::Sin, &[a.1]), graph.call(Math::Cos, &[a.1]));
    (formula::mul(graph, sinh, cos), formula::mul(graph, cosh, sin))
}

pub(super) fn cosh(graph: &mut Graph, _: DType, a: Pair) -> Pair {
    let (sinh, cosh) = (graph.call(Math::Sinh, &[a.0]), graph.call(Math::Cosh, &[a.0]));
    let (sin, cos) = (graph.call(Math::Sin, &[a.1]), graph.call(Math::Cos, &[a.1]));
    (formula::mul(graph, cosh, cos), formula::mul(graph, sinh, sin))
}

/// Kahan's formula; where the hyperbolic sine is large, the result is a sign and a number that falls with e^-2x.
pub(super) fn tanh(graph: &mut Graph, _: DType, a: Pair) -> Pair {
    let one = like(graph, a.0, 1.0);
    let (tan, sinh) = (graph.call(Math::Tan, &[a.1]), graph.call(Math::Sinh, &[a.0]));
    let (beta, square) = (graph.fma(tan, tan, one), formula::mul(graph, sinh, sinh));
    let (under_root, divisor) = (formula::add(graph, square, one), graph.fma(beta, square, one));
    let root = graph.unary(Unary::Sqrt, under_root);
    let both = formula::mul(graph, beta, root);
    let numerator = formula::mul(graph, both, sinh);
    let (real, imaginary) = (formula::div(graph, numerator, divisor), formula::div(graph, tan, divisor));
    let (width, minus_two, four) = (formula::abs(graph, a.0), like(graph, a.0, -2.0), like(graph, a.0, 4.0));
    let exponent = formula::mul(graph, width, minus_two);
    let fall = graph.call(Math::Exp, &[exponent]);
    let (sin, cos) = (graph.call(Math::Sin, &[a.1]), graph.call(Math::Cos, &[a.1]));
    let product = formula::mul(graph, sin, cos);
    let scaled = formula::mul(graph, product, four);
    let (far_real, far_imaginary) = (copy_sign(graph, one, a.0), formula::mul(graph, scaled, fall));
    let is_far = compare_with(graph, Compare::Gt, width, 20.0);
    (graph.select(is_far, far_real, real), graph.select(is_far, far_imaginary, imaginary))
}

pub(super) fn sin(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    through_hyperbolic(graph, dtype, a, sinh)
}

pub(super) fn cos(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    let turned = turned(graph, a);
    cosh(graph, dtype, turned)
}

pub(super) fn tan(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    through_hyperbolic(graph, dtype, a, tanh)
}

/// `f(z) = h(iz) / i`, which holds for an odd function and its hyperbolic one, and for their inverses.
fn through_hyperbolic(graph: &mut Graph, dtype: DType, a: Pair, function: fn(&mut Graph, DType, Pair) -> Pair) -> Pair {
    let turned = turned(graph, a);
    let result = function(graph, dtype, turned);
    turned_back(graph, result)
}

/// The roots of `1 - z` and `1 + z`.
fn roots(graph: &mut Graph, dtype: DType, a: Pair) -> (Pair, Pair) {
    let one = number(graph, dtype, 1.0);
    let (below, above) = (sub(graph, one, a), add(graph, one, a));
    // What is subtracted of zero keeps its sign the other way round.
    let below = (below.0, formula::neg(graph, a.1));
    let above = (above.0, a.1);
    (sqrt(graph, dtype, below), sqrt(graph, dtype, above))
}

/// The imaginary part of the conjugate of one number times another one.
fn conjugate_cross(graph: &mut Graph, a: Pair, b: Pair) -> Value {
    let cross = formula::mul(graph, a.1, b.0);
    let cross = formula::neg(graph, cross);
    graph.fma(a.0, b.1, cross)
}

pub(super) fn asin(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    let (below, above) = roots(graph, dtype, a);
    let product = mul(graph, below, above);
    let cross = conjugate_cross(graph, below, above);
    (graph.call(Math::Atan2, &[a.0, product.0]), graph.call(Math::Asinh, &[cross]))
}

pub(super) fn acos(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    let (below, above) = roots(graph, dtype, a);
    let half = graph.call(Math::Atan2, &[below.0, above.0]);
    let cross = conjugate_cross(graph, above, below);
    (formula::add(graph, half, half), graph.call(Math::Asinh, &[cross]))
}

pub(super) fn acosh(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    let one = number(graph, dtype, 1.0);
    let (below, above) = (sub(graph, a, one), add(graph, a, one));
    let (below, above) = (sqrt(graph, dtype, (below.0, a.1)), sqrt(graph, dtype, (above.0, a.1)));
    let parts = formula::mul(graph, below.1, above.1);
    let real = graph.fma(below.0, above.0, parts);
    let half = graph.call(Math::Atan2, &[below.1, above.0]);
    (graph.call(Math::Asinh, &[real]), formula::add(graph, half, half))
}

pub(super) fn asinh(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    through_hyperbolic(graph, dtype, a, asin)
}

pub(super) fn atanh(graph: &mut Graph, _: DType, a: Pair) -> Pair {
    let (one, two, four) = (like(graph, a.0, 1.0), like(graph, a.0, 2.0), like(graph, a.0, 4.0));
    let (below, above) = (formula::sub(graph, one, a.0), formula::add(graph, one, a.0));
    let square = formula::mul(graph, a.1, a.1);
    let (distance, scaled) = (graph.fma(below, below, square), formula::mul(graph, a.0, four));
    let ratio = formula::div(graph, scaled, distance);
    let log = graph.call(Math::Log1p, &[ratio]);
    let minus_square = formula::neg(graph, square);
    let (width, doubled) = (graph.fma(below, above, minus_square), formula::mul(graph, a.1, two));
    let angle = graph.call(Math::Atan2, &[doubled, width]);
    (formula::div(graph, log, four), formula::div(graph, angle, two))
}

pub(super) fn atan(graph: &mut Graph, dtype: DType, a: Pair) -> Pair {
    through_hyperbolic(graph, dtype, a, atanh)
}

pub(super) fn sigmoid(graph: &mut Graph, dtype: DType, values: &[Pair]) -> Pair {
    let one = number(graph, dtype, 1.0);
    let negative = neg(graph, values[0]);
    let power = exp(graph, dtype, negative);
    let divisor = add(graph, one, power);
    div(graph, one, divisor)
}

/// e to the power of the exponent times the logarithm. Zero to the power of zero is one, to that of another number it
/// is zero.
pub(super) fn pow(graph: &mut Graph, dtype: DType, values: &[Pair]) -> Pair {
    let (base, exponent) = (values[0], values[1]);
    let logarithm = log(graph, dtype, base);
    let product = mul(graph, exponent, logarithm);
    let power = exp(graph, dtype, product);
    let (one, zero) = (like(graph, base.0, 1.0), like(graph, base.0, 0.0));
    let is_zero = |graph: &mut Graph, a: Pair| {
        let (real, imaginary) =
            (compare_with(graph, Compare::Eq, a.0, 0.0), compare_with(graph, Compare::Eq, a.1, 0.0));
        graph.binary(Binary::And, real, imaginary)
    };
    let (no_base, no_exponent) = (is_zero(graph, base), is_zero(graph, exponent));
    let of_zero = |graph: &mut Graph, part| graph.select(no_base, zero, part);
    let (real, imaginary) = (of_zero(graph, power.0), of_zero(graph, power.1));
    (graph.select(no_exponent, one, real), graph.select(no_exponent, zero, imaginary))
}
