//! Formulas on complex numbers, as pairs of real and imaginary parts.
//!
//! The inverse functions are Kahan's ("Branch Cuts for Complex Elementary Functions", 1987), which keep the signs of
//! zeros on both sides of a cut.

use std::f64::consts::{FRAC_PI_2, LN_2, LN_10};

use kernel_ir::{Binary, Compare, Graph, Math, Type, Unary, Value};

use super::Pair;
use super::formula::{self, compare_with, copy_sign, extreme, is_nan, like};
use crate::base::dtype::DType;

/// A real constant of a number's type.
pub(super) fn number(graph: &mut Graph, a: Pair, real: f64) -> Pair {
    (like(graph, a.0, real), like(graph, a.0, 0.0))
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

/// An infinite exponent without a finite angle gives zero, or infinity and an unknown imaginary part.
pub(crate) fn exp(graph: &mut Graph, a: Pair) -> Pair {
    let magnitude = graph.call(Math::Exp, &[a.0]);
    let (real, imaginary) = polar(graph, magnitude, a.1);
    let has_angle = is_finite(graph, a.1);
    let (kept_real, kept_imaginary) =
        (graph.select(has_angle, real, magnitude), graph.select(has_angle, imaginary, magnitude));
    let width = formula::abs(graph, a.0);
    let (infinite, none) = (
        compare_with(graph, Compare::Eq, width, f64::INFINITY),
        compare_with(graph, Compare::Eq, a.0, f64::NEG_INFINITY),
    );
    (graph.select(infinite, kept_real, real), graph.select(none, kept_imaginary, imaginary))
}

/// Whether a float is a number and no infinity.
fn is_finite(graph: &mut Graph, a: Value) -> Value {
    let width = formula::abs(graph, a);
    compare_with(graph, Compare::Lt, width, f64::INFINITY)
}

pub(super) fn exp2(graph: &mut Graph, a: Pair) -> Pair {
    let a = scaled(graph, a, LN_2);
    exp(graph, a)
}

/// The real part is `expm1(x) cos y - 2 sin(y / 2)^2`, which keeps the digits near zero.
pub(super) fn expm1(graph: &mut Graph, a: Pair) -> Pair {
    let (power, less_one) = (graph.call(Math::Exp, &[a.0]), graph.call(Math::Expm1, &[a.0]));
    let (half, minus_two) = (like(graph, a.1, 0.5), like(graph, a.1, -2.0));
    let half_angle = formula::mul(graph, a.1, half);
    let half_sine = graph.call(Math::Sin, &[half_angle]);
    let square = formula::mul(graph, half_sine, half_sine);
    let versine = formula::mul(graph, square, minus_two);
    let (cos, sin) = (graph.call(Math::Cos, &[a.1]), graph.call(Math::Sin, &[a.1]));
    (graph.fma(less_one, cos, versine), formula::mul(graph, power, sin))
}

pub(crate) fn log(graph: &mut Graph, a: Pair) -> Pair {
    let magnitude = magnitude(graph, a);
    let far = graph.call(Math::Log, &[magnitude]);
    // Near one the square of the magnitude less one keeps the digits that the magnitude loses.
    let (first, second) = (formula::abs(graph, a.0), formula::abs(graph, a.1));
    let (large, small) = (graph.binary(Binary::Max, first, second), graph.binary(Binary::Min, first, second));
    let (one, half) = (like(graph, a.0, 1.0), like(graph, a.0, 0.5));
    let (less, more) = (formula::sub(graph, large, one), formula::add(graph, large, one));
    let product = formula::mul(graph, less, more);
    let square = graph.fma(small, small, product);
    let doubled = graph.call(Math::Log1p, &[square]);
    let near = formula::mul(graph, doubled, half);
    let distance = formula::sub(graph, magnitude, one);
    let distance = formula::abs(graph, distance);
    let is_near = compare_with(graph, Compare::Lt, distance, 0.25);
    (graph.select(is_near, near, far), graph.call(Math::Atan2, &[a.1, a.0]))
}

pub(super) fn log2(graph: &mut Graph, a: Pair) -> Pair {
    let natural = log(graph, a);
    scaled(graph, natural, 1.0 / LN_2)
}

pub(super) fn log10(graph: &mut Graph, a: Pair) -> Pair {
    let natural = log(graph, a);
    scaled(graph, natural, 1.0 / LN_10)
}

/// The logarithm of the sum of both exponentials.
pub(super) fn log_add_exp(graph: &mut Graph, a: Pair, b: Pair) -> Pair {
    log_of_sum(graph, a, b, |graph, distance| {
        let (zero, power) = (number(graph, distance, 0.0), polar_exp(graph, distance));
        // Nothing is left of e to the power of negative infinity, whatever the angle.
        let is_nothing = compare_with(graph, Compare::Eq, distance.0, f64::NEG_INFINITY);
        choose(graph, is_nothing, zero, power)
    })
}

/// The logarithm of the sum of an exponential and those before it, of which the logarithm is given. As in torch an infinite
/// angle makes it a NaN, with nothing before it too.
pub(crate) fn log_add_exp_before(graph: &mut Graph, a: Pair, before: Pair) -> Pair {
    log_of_sum(graph, a, before, polar_exp)
}

/// The number with the larger real part and the logarithm of one plus what the other one's exponential is below it.
fn log_of_sum(graph: &mut Graph, a: Pair, b: Pair, power: fn(&mut Graph, Pair) -> Pair) -> Pair {
    let a_is_lower = graph.compare(Compare::Lt, a.0, b.0);
    let (lower, upper) = (choose(graph, a_is_lower, a, b), choose(graph, a_is_lower, b, a));
    let distance = sub(graph, lower, upper);
    let power = power(graph, distance);
    let rest = log1p(graph, power);
    let sum = add(graph, upper, rest);

    let same = graph.compare(Compare::Eq, a.0, b.0);
    let are = |graph: &mut Graph, infinity: f64| {
        let first = compare_with(graph, Compare::Eq, a.0, infinity);
        graph.binary(Binary::And, same, first)
    };
    let (both_infinite, both_nothing) = (are(graph, f64::INFINITY), are(graph, f64::NEG_INFINITY));
    let of_infinite = log_of_infinite(graph, a, b);
    let sum = choose(graph, both_infinite, of_infinite, sum);
    let sum = choose(graph, both_nothing, b, sum);

    let (a_nan, b_nan) = (either(graph, a, is_nan).0, either(graph, b, is_nan).0);
    let any_nan = graph.binary(Binary::Or, a_nan, b_nan);
    let nan = like(graph, a.0, f64::NAN);
    choose(graph, any_nan, (nan, nan), sum)
}

/// The logarithm of the sum of the exponentials of infinite numbers. Of two zeros the angle is the positive one.
fn log_of_infinite(graph: &mut Graph, a: Pair, b: Pair) -> Pair {
    let (first, second) = (exp(graph, a), exp(graph, b));
    let (sum, zero) = (add(graph, first, second), number(graph, a, 0.0));
    let sum = add(graph, sum, zero);
    log(graph, sum)
}

/// e to the power of a number with a finite angle.
fn polar_exp(graph: &mut Graph, a: Pair) -> Pair {
    let magnitude = graph.call(Math::Exp, &[a.0]);
    polar(graph, magnitude, a.1)
}

fn choose(graph: &mut Graph, condition: Value, a: Pair, b: Pair) -> Pair {
    (graph.select(condition, a.0, b.0), graph.select(condition, a.1, b.1))
}

/// Near zero the real part is half the logarithm of `1 + (x (x + 2) + y^2)`.
pub(super) fn log1p(graph: &mut Graph, a: Pair) -> Pair {
    let one = like(graph, a.0, 1.0);
    // The imaginary part stays as it is: its sign counts where it is zero.
    let moved = (formula::add(graph, a.0, one), a.1);
    let far = log(graph, moved);
    let (two, half) = (like(graph, a.0, 2.0), like(graph, a.0, 0.5));
    let (sum, square) = (formula::add(graph, a.0, two), formula::mul(graph, a.1, a.1));
    let small = graph.fma(a.0, sum, square);
    let doubled = graph.call(Math::Log1p, &[small]);
    let near = formula::mul(graph, doubled, half);
    let magnitude = magnitude(graph, a);
    // A real part whose square is nothing is its own logarithm, with its sign.
    let is_tiny = compare_with(graph, Compare::Eq, small, 0.0);
    let near = graph.select(is_tiny, a.0, near);
    let is_near = compare_with(graph, Compare::Lt, magnitude, 0.5);
    (graph.select(is_near, near, far.0), far.1)
}

/// The larger part is computed as a root, the other one by dividing by it.
pub(super) fn sqrt(graph: &mut Graph, a: Pair) -> Pair {
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
    // Of zero, and of an infinite imaginary part whatever the real one is, that part is its own root.
    let height = formula::abs(graph, a.1);
    let is_infinite = compare_with(graph, Compare::Eq, height, f64::INFINITY);
    let is_zero = compare_with(graph, Compare::Eq, length, 0.0);
    let is_own = graph.binary(Binary::Or, is_zero, is_infinite);
    (graph.select(is_own, length, real), graph.select(is_own, a.1, imaginary))
}

pub(super) fn rsqrt(graph: &mut Graph, _: DType, values: &[Pair]) -> Pair {
    let (one, root) = (number(graph, values[0], 1.0), sqrt(graph, values[0]));
    div(graph, one, root)
}

pub(super) fn sinh(graph: &mut Graph, a: Pair) -> Pair {
    let (sinh, cosh) = (graph.call(Math::Sinh, &[a.0]), graph.call(Math::Cosh, &[a.0]));
    let (sin, cos) = (graph.call(Math::Sin, &[a.1]), graph.call(Math::Cos, &[a.1]));
    (formula::mul(graph, sinh, cos), formula::mul(graph, cosh, sin))
}

pub(super) fn cosh(graph: &mut Graph, a: Pair) -> Pair {
    let (sinh, cosh) = (graph.call(Math::Sinh, &[a.0]), graph.call(Math::Cosh, &[a.0]));
    let (sin, cos) = (graph.call(Math::Sin, &[a.1]), graph.call(Math::Cos, &[a.1]));
    (formula::mul(graph, cosh, cos), formula::mul(graph, sinh, sin))
}

/// Kahan's formula; where the hyperbolic sine is large, the result is a sign and a number that falls with e^-2x.
pub(super) fn tanh(graph: &mut Graph, a: Pair) -> Pair {
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

pub(super) fn sin(graph: &mut Graph, a: Pair) -> Pair {
    through_hyperbolic(graph, a, sinh)
}

pub(super) fn cos(graph: &mut Graph, a: Pair) -> Pair {
    let turned = turned(graph, a);
    cosh(graph, turned)
}

pub(super) fn tan(graph: &mut Graph, a: Pair) -> Pair {
    through_hyperbolic(graph, a, tanh)
}

/// `f(z) = h(iz) / i`, which holds for an odd function and its hyperbolic one, and for their inverses.
fn through_hyperbolic(graph: &mut Graph, a: Pair, function: fn(&mut Graph, Pair) -> Pair) -> Pair {
    let turned = turned(graph, a);
    let result = function(graph, turned);
    turned_back(graph, result)
}

/// The roots of `1 - z` and `1 + z`.
fn roots(graph: &mut Graph, a: Pair) -> (Pair, Pair) {
    let one = number(graph, a, 1.0);
    let (below, above) = (sub(graph, one, a), add(graph, one, a));
    // What is subtracted of zero keeps its sign the other way round.
    let below = (below.0, formula::neg(graph, a.1));
    let above = (above.0, a.1);
    (sqrt(graph, below), sqrt(graph, above))
}

/// The imaginary part of the conjugate of one number times another one.
fn conjugate_cross(graph: &mut Graph, a: Pair, b: Pair) -> Value {
    let cross = formula::mul(graph, a.1, b.0);
    let cross = formula::neg(graph, cross);
    graph.fma(a.0, b.1, cross)
}

pub(super) fn asin(graph: &mut Graph, a: Pair) -> Pair {
    let (below, above) = roots(graph, a);
    let product = mul(graph, below, above);
    let cross = conjugate_cross(graph, below, above);
    (graph.call(Math::Atan2, &[a.0, product.0]), graph.call(Math::Asinh, &[cross]))
}

pub(super) fn acos(graph: &mut Graph, a: Pair) -> Pair {
    let (below, above) = roots(graph, a);
    let half = graph.call(Math::Atan2, &[below.0, above.0]);
    let cross = conjugate_cross(graph, above, below);
    (formula::add(graph, half, half), graph.call(Math::Asinh, &[cross]))
}

pub(super) fn acosh(graph: &mut Graph, a: Pair) -> Pair {
    let one = number(graph, a, 1.0);
    let (below, above) = (sub(graph, a, one), add(graph, a, one));
    let (below, above) = (sqrt(graph, (below.0, a.1)), sqrt(graph, (above.0, a.1)));
    let parts = formula::mul(graph, below.1, above.1);
    let real = graph.fma(below.0, above.0, parts);
    let half = graph.call(Math::Atan2, &[below.1, above.0]);
    (graph.call(Math::Asinh, &[real]), formula::add(graph, half, half))
}

pub(super) fn asinh(graph: &mut Graph, a: Pair) -> Pair {
    through_hyperbolic(graph, a, asin)
}

pub(super) fn atanh(graph: &mut Graph, a: Pair) -> Pair {
    let (one, two, four) = (like(graph, a.0, 1.0), like(graph, a.0, 2.0), like(graph, a.0, 4.0));
    let (below, above) = (formula::sub(graph, one, a.0), formula::add(graph, one, a.0));
    let square = formula::mul(graph, a.1, a.1);
    // Of the magnitude, since the ratio of a number near minus one would lose its digits.
    let magnitude = formula::abs(graph, a.0);
    let rest = formula::sub(graph, one, magnitude);
    let (distance, scaled) = (graph.fma(rest, rest, square), formula::mul(graph, magnitude, four));
    let ratio = formula::div(graph, scaled, distance);
    let log = graph.call(Math::Log1p, &[ratio]);
    let log = copy_sign(graph, log, a.0);
    let minus_square = formula::neg(graph, square);
    let (width, doubled) = (graph.fma(below, above, minus_square), formula::mul(graph, a.1, two));
    let angle = graph.call(Math::Atan2, &[doubled, width]);
    let near = (formula::div(graph, log, four), formula::div(graph, angle, two));
    atanh_far(graph, a, near)
}

/// Computes `atanh` of a number with a large part: the real part of the reciprocal, which cannot overflow, and a
/// quarter turn. The real part is zero at infinity, and a part of the result is NaN only if that part of the argument
/// is.
fn atanh_far(graph: &mut Graph, a: Pair, near: Pair) -> Pair {
    let ty = graph.type_of(a.0);
    // Above this threshold, the reciprocal of the type's precision, adding one does not change the number.
    let beyond = if ty == Type::F64 { 2.0_f64.powi(54) } else { 2.0_f64.powi(25) };
    let (width, height) = (formula::abs(graph, a.0), formula::abs(graph, a.1));
    let largest = extreme(graph, Binary::Max, width, height);
    let is_far = compare_with(graph, Compare::Gt, largest, beyond);
    let is_infinite = compare_with(graph, Compare::Eq, largest, f64::INFINITY);
    let size = graph.call(Math::Hypot, &[a.0, a.1]);
    let scaled = formula::div(graph, a.0, size);
    let reciprocal = formula::div(graph, scaled, size);
    let (nothing, quarter) = (like(graph, a.0, 0.0), like(graph, a.0, FRAC_PI_2));
    let nothing = copy_sign(graph, nothing, a.0);
    let real = graph.select(is_infinite, nothing, reciprocal);
    let (turned, height_is_nan) = (copy_sign(graph, quarter, a.1), is_nan(graph, a.1));
    let angle = graph.select(height_is_nan, a.1, turned);
    let is_flat = compare_with(graph, Compare::Eq, a.0, 0.0);
    let real = graph.select(is_far, real, near.0);
    let real = graph.select(is_flat, a.0, real);
    (real, graph.select(is_far, angle, near.1))
}

pub(super) fn atan(graph: &mut Graph, a: Pair) -> Pair {
    through_hyperbolic(graph, a, atanh)
}

pub(super) fn sigmoid(graph: &mut Graph, _: DType, values: &[Pair]) -> Pair {
    let one = number(graph, values[0], 1.0);
    let negative = neg(graph, values[0]);
    let power = exp(graph, negative);
    let divisor = add(graph, one, power);
    div(graph, one, divisor)
}

/// e to the power of the exponent times the logarithm, so that the zeroth power of zero is NaN. Zero to the power of a
/// number with a positive real part is zero.
pub(super) fn pow(graph: &mut Graph, _: DType, values: &[Pair]) -> Pair {
    let (base, exponent) = (values[0], values[1]);
    let logarithm = log(graph, base);
    let product = mul(graph, exponent, logarithm);
    let power = exp(graph, product);
    // To other powers, zero gives infinities and NaNs by the formula.
    let (no_base, is_positive) = (is_zero(graph, base), compare_with(graph, Compare::Gt, exponent.0, 0.0));
    let is_zero = graph.binary(Binary::And, no_base, is_positive);
    let zero = like(graph, base.0, 0.0);
    (graph.select(is_zero, zero, power.0), graph.select(is_zero, zero, power.1))
}

/// The power by a number. The zeroth one is one.
pub(super) fn pow_by_number(graph: &mut Graph, dtype: DType, values: &[Pair]) -> Pair {
    let (base, power) = (values[0], pow(graph, dtype, values));
    let no_exponent = is_zero(graph, values[1]);
    let (one, zero) = (like(graph, base.0, 1.0), like(graph, base.0, 0.0));
    (graph.select(no_exponent, one, power.0), graph.select(no_exponent, zero, power.1))
}

fn is_zero(graph: &mut Graph, a: Pair) -> Value {
    let (real, imaginary) = (compare_with(graph, Compare::Eq, a.0, 0.0), compare_with(graph, Compare::Eq, a.1, 0.0));
    graph.binary(Binary::And, real, imaginary)
}
