//! Functions between the layers of neural networks (`torch.nn.functional`).

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, LOG2_E};

use kernel_ir::{Binary, Compare, Graph, Math, Value};

use super::formula::{abs, add, compare_with, div, extreme, extreme_or_nan, like, mul, neg, sub};
use super::{
    Call, Layout, Limit, Operation, OutputDType, Participating, Rule, accept, complex, count, methods, operations,
};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::scalar::Scalar;
use crate::tensor::Tensor;

operations! {
    /// Each element, or zero where it is negative (`torch.relu`).
    relu, relu_, relu_out(): Operation::new("relu", "clamp_scalar_cuda", Rule::Common, accept::real_but_bool,
        relu_of).check(no_relu);
    /// Each element, times `slope` where it is negative (`torch.nn.functional.leaky_relu`).
    leaky_relu, leaky_relu_, leaky_relu_out(; slope): Operation::new("leaky_relu", "leaky_relu_cuda", Rule::Common,
        accept::float, leaky_relu_of).limit(Limit::Computed)
        .output(OutputDType::Equal);
    /// Each element held between two numbers (`torch.nn.functional.hardtanh`).
    hardtanh, hardtanh_, hardtanh_out(; low, high): Operation::new("hardtanh", "clamp_scalar_cuda", Rule::Common,
        accept::real_but_bool, hardtanh_of).check(wrong_hardtanh).limit(Limit::Bound)
        .output(OutputDType::Equal);
    /// One divided by one plus e to the power of the negative (`torch.sigmoid`).
    sigmoid, sigmoid_, sigmoid_out(): Operation::new("sigmoid", "sigmoid_cuda", Rule::Float, accept::real,
        |g, d, v| sigmoid_of(g, d, v[0])).complex(complex::sigmoid);
    /// The logarithm of [`Self::sigmoid`] (`torch.nn.functional.logsigmoid`).
    logsigmoid, logsigmoid_, logsigmoid_out(): Operation::new("logsigmoid", "log_sigmoid_forward_cuda", Rule::Common,
        accept::float, logsigmoid_of).layout(Layout::Copied)
        .output(OutputDType::Equal);
    /// Each element times the part of the normal distribution below it (`torch.nn.functional.gelu`).
    gelu, gelu_, gelu_out(): Operation::new("gelu", "GeluCUDAKernelImpl", Rule::Common, accept::float, gelu_of)
        .output(OutputDType::Equal);
    /// [`Self::gelu`] by way of a hyperbolic tangent (`torch.nn.functional.gelu` with `approximate="tanh"`).
    gelu_tanh, gelu_tanh_, gelu_tanh_out(): Operation::new("gelu_tanh", "GeluCUDAKernelImpl", Rule::Common,
        accept::float, gelu_tanh_of)
        .output(OutputDType::Equal);
    /// Each element times its [`Self::sigmoid`] (`torch.nn.functional.silu`).
    silu, silu_, silu_out(): Operation::new("silu", "silu_cuda", Rule::Common, accept::float,
        |g, d, v| times_sigmoid(g, d, v[0], v[0])).complex(|g, d, v| {
        let part = complex::sigmoid(g, d, v);
        complex::mul(g, v[0], part)
    })
        .output(OutputDType::Equal);
    /// Each element times the hyperbolic tangent of its softplus (`torch.nn.functional.mish`).
    mish, mish_, mish_out(): Operation::new("mish", "mish_cuda", Rule::Common, accept::float, mish_of)
        .output(OutputDType::Equal);
    /// The logarithm of one plus e to the power of `beta` times each element, divided by `beta`; the element itself
    /// where that product is above `threshold` (`torch.nn.functional.softplus`).
    softplus, softplus_, softplus_out(; beta, threshold): Operation::new("softplus", "softplus_cuda", Rule::Common,
        accept::float, softplus_of).limit(Limit::Computed)
        .output(OutputDType::Equal);
}

fn relu_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let zero = like(graph, values[0], 0.0);
    extreme_or_nan(graph, Binary::Max, values[0], zero)
}

fn no_relu(p: &Participating<'_>) -> Option<String> {
    let text = match p.common {
        DType::Bool => "Boolean inputs not supported for relu",
        common if common.is_complex() => "clamp is not supported for complex types",
        _ => return None,
    };
    Some(text.to_owned())
}

fn wrong_hardtanh(p: &Participating<'_>) -> Option<String> {
    let text = match p.numbers {
        _ if p.common == DType::Bool => "Bool inputs not supported for hardtanh",
        numbers if p.common == DType::U8 && numbers.iter().any(|number| number.to_f64() < 0.0) => {
            "cannot do hardtanh on an unsigned type with negative limits"
        }
        [low, high] if low.to_f64() > high.to_f64() => "min_val cannot be greater than max_val",
        _ => return None,
    };
    Some(text.to_owned())
}

fn leaky_relu_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let positive = compare_with(graph, Compare::Gt, values[0], 0.0);
    let scaled = mul(graph, values[0], values[1]);
    graph.select(positive, values[0], scaled)
}

fn hardtanh_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let above = extreme_or_nan(graph, Binary::Max, values[0], values[1]);
    extreme_or_nan(graph, Binary::Min, above, values[2])
}

/// e to the power of the negative, plus one.
fn inverse_sigmoid(graph: &mut Graph, value: Value) -> Value {
    let negative = neg(graph, value);
    let power = graph.call(Math::Exp, &[negative]);
    let one = like(graph, value, 1.0);
    add(graph, one, power)
}

fn sigmoid_of(graph: &mut Graph, dtype: DType, value: Value) -> Value {
    if is_half(dtype) {
        return sigmoid_near(graph, value);
    }
    let one = like(graph, value, 1.0);
    times_sigmoid(graph, dtype, one, value)
}

/// Whether results are rounded to 16 bits, so that the instructions that are near the exact result are near enough.
const fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// How many times larger powers of e are kept for results of 16 bits, so that small ones do not vanish.
const RAISED: f64 = 64.0;

/// e to the power of a value times a sign, 2^64 times and as it is.
fn power_near(graph: &mut Graph, sign: f64, value: Value) -> [Value; 2] {
    let (scale, raised) = (like(graph, value, sign * LOG2_E), like(graph, value, RAISED));
    let exponent = graph.fma(scale, value, raised);
    let raised = graph.call(Math::Exp2Near, &[exponent]);
    [raised, lowered(graph, raised)]
}

/// A number without the factor of 2^64.
fn lowered(graph: &mut Graph, raised: Value) -> Value {
    let small = like(graph, raised, (-RAISED).exp2());
    mul(graph, raised, small)
}

/// The sigmoid for results of 16 bits, with a relative error below 2^-18. The power of e is below one, so that nothing
/// overflows.
fn sigmoid_near(graph: &mut Graph, value: Value) -> Value {
    let one = like(graph, value, 1.0);
    let magnitude = abs(graph, value);
    let [_, power] = power_near(graph, -1.0, magnitude);
    let divisor = add(graph, power, one);
    let part = graph.call(Math::RecipNear, &[divisor]);
    let negative = compare_with(graph, Compare::Lt, value, 0.0);
    let factor = graph.select(negative, power, one);
    mul(graph, part, factor)
}

/// The logarithm of one plus a power of e, for results of 16 bits. Near one the logarithm loses what a series keeps.
fn log1p_near(graph: &mut Graph, [raised, power]: [Value; 2]) -> Value {
    let (one, ln_2) = (like(graph, power, 1.0), like(graph, power, LN_2));
    let sum = add(graph, power, one);
    let log = graph.call(Math::Log2Near, &[sum]);
    let log = mul(graph, log, ln_2);
    let (third, half) = (like(graph, power, 1.0 / 3.0), like(graph, power, -0.5));
    let series = graph.fma(power, third, half);
    let series = graph.fma(power, series, one);
    let series = mul(graph, raised, series);
    let series = lowered(graph, series);
    let is_small = compare_with(graph, Compare::Lt, power, 1.0 / 64.0);
    graph.select(is_small, series, log)
}

/// A factor times the sigmoid of a value.
fn times_sigmoid(graph: &mut Graph, dtype: DType, factor: Value, value: Value) -> Value {
    if is_half(dtype) {
        let part = sigmoid_near(graph, value);
        return mul(graph, factor, part);
    }
    let divisor = inverse_sigmoid(graph, value);
    div(graph, factor, divisor)
}

fn logsigmoid_of(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    let zero = like(graph, values[0], 0.0);
    let low = extreme(graph, Binary::Min, zero, values[0]);
    let magnitude = abs(graph, values[0]);
    if is_half(dtype) {
        let powers = power_near(graph, -1.0, magnitude);
        let rest = log1p_near(graph, powers);
        return sub(graph, low, rest);
    }
    let negative = neg(graph, magnitude);
    let power = graph.call(Math::Exp, &[negative]);
    let rest = graph.call(Math::Log1p, &[power]);
    sub(graph, low, rest)
}

/// The complement of the error function keeps the digits that one plus the error function loses. Where the latter is
/// zero even in `f64`, the result is zero as well; in `f64` itself it is torch's formula.
fn gelu_of(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    let value = values[0];
    if is_half(dtype) {
        return gelu_near(graph, value);
    }
    let (half, scale) = (like(graph, value, 0.5), like(graph, value, FRAC_1_SQRT_2));
    let (scaled, halved) = (mul(graph, value, scale), mul(graph, value, half));
    if dtype == DType::F64 {
        let part = graph.call(Math::Erf, &[scaled]);
        return times_one_plus(graph, halved, part);
    }
    let turned = neg(graph, scaled);
    let tail = graph.call(Math::Erfc, &[turned]);
    let product = mul(graph, halved, tail);
    zero_below(graph, value, -8.2924, product)
}

/// [`gelu_of`] for results of 16 bits. The part of the normal distribution below -z is e^(-z^2 / 2) t p(t), with
/// t = 1 / (1 + 0.365 z) and a polynomial p whose relative error is largest 1.5e-5 for z up to 8.3 (found by linear
/// programming). The power is lowered, and p raised, by so much that the power vanishes below -8.2924, where torch's
/// formula is zero even in `f64`.
fn gelu_near(graph: &mut Graph, value: Value) -> Value {
    const BOUND: f64 = 8.2924;
    const SERIES: [f64; 5] = [
        -0.094_310_655_052_009_22,
        0.230_264_702_668_588_64,
        0.059_338_894_138_504_98,
        0.160_330_330_780_719_82,
        0.144_374_096_024_945_5,
    ];
    let lowered = BOUND * BOUND * (LOG2_E / 2.0) - 126.0;
    let (one, slope) = (like(graph, value, 1.0), like(graph, value, 0.365));
    let (root, lower) = (like(graph, value, (LOG2_E / 2.0).sqrt()), like(graph, value, lowered));
    let magnitude = abs(graph, value);
    let divisor = graph.fma(slope, magnitude, one);
    let t = graph.call(Math::RecipNear, &[divisor]);
    let scaled = mul(graph, value, root);
    let negative = neg(graph, scaled);
    let exponent = graph.fma(negative, scaled, lower);
    let power = graph.call(Math::Exp2Near, &[exponent]);
    let mut series = like(graph, value, SERIES[0] * (-lowered).exp2());
    for coefficient in &SERIES[1..] {
        let coefficient = like(graph, value, coefficient * (-lowered).exp2());
        series = graph.fma(series, t, coefficient);
    }
    let series = mul(graph, series, t);
    let tail = mul(graph, series, power);
    let rest = sub(graph, one, tail);
    let is_below = compare_with(graph, Compare::Lt, value, 0.0);
    let part = graph.select(is_below, tail, rest);
    mul(graph, value, part)
}

/// One plus a hyperbolic tangent is twice the sigmoid of twice the argument, which keeps the digits of small results.
/// Where the former is zero even in `f64`, the result is zero as well; in `f64` itself it is torch's formula.
fn gelu_tanh_of(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    let value = values[0];
    let cubic = like(graph, value, 0.044715);
    let square = mul(graph, value, value);
    let cube = mul(graph, square, value);
    let sum = graph.fma(cubic, cube, value);
    let scale = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    if dtype == DType::F64 {
        let (scale, half) = (like(graph, value, scale), like(graph, value, 0.5));
        let argument = mul(graph, scale, sum);
        let (tangent, halved) = (graph.call(Math::Tanh, &[argument]), mul(graph, value, half));
        return times_one_plus(graph, halved, tangent);
    }
    let doubled = like(graph, value, 2.0 * scale);
    let argument = mul(graph, doubled, sum);
    let product = times_sigmoid(graph, dtype, value, argument);
    zero_below(graph, argument, -38.12, product)
}

/// A factor times one plus another number.
fn times_one_plus(graph: &mut Graph, factor: Value, value: Value) -> Value {
    let one = like(graph, value, 1.0);
    let sum = add(graph, one, value);
    mul(graph, factor, sum)
}

/// The result, or zero with its sign where finite arguments are below a bound.
fn zero_below(graph: &mut Graph, argument: Value, bound: f64, result: Value) -> Value {
    let (below, zero) = (compare_with(graph, Compare::Lt, argument, bound), like(graph, result, 0.0));
    let zeroed = mul(graph, result, zero);
    graph.select(below, zeroed, result)
}

fn mish_of(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    if is_half(dtype) {
        return mish_near(graph, values[0]);
    }
    let power = graph.call(Math::Exp, values);
    let soft = graph.call(Math::Log1p, &[power]);
    let tangent = graph.call(Math::Tanh, &[soft]);
    mul(graph, values[0], tangent)
}

/// [`mish_of`] for results of 16 bits. The tangent is n / (n + 2) with n = p (p + 2) for the power p of e; from 20 on it
/// is one.
fn mish_near(graph: &mut Graph, value: Value) -> Value {
    let (two, bound) = (like(graph, value, 2.0), like(graph, value, 20.0));
    let low = extreme(graph, Binary::Min, value, bound);
    let [raised, power] = power_near(graph, 1.0, low);
    let sum = add(graph, power, two);
    let raised = mul(graph, raised, sum);
    let n = lowered(graph, raised);
    let divisor = add(graph, n, two);
    let part = graph.call(Math::RecipNear, &[divisor]);
    let raised = mul(graph, raised, part);
    let tangent = lowered(graph, raised);
    mul(graph, value, tangent)
}

fn softplus_of(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    let &[value, beta, threshold] = values else { return values[0] };
    let scaled = mul(graph, value, beta);
    let linear = graph.compare(Compare::Gt, scaled, threshold);
    if is_half(dtype) {
        // From 20 on, 16 bits do not tell the result from the argument.
        let large = compare_with(graph, Compare::Gt, scaled, 20.0);
        let powers = power_near(graph, 1.0, scaled);
        let log = log1p_near(graph, powers);
        let soft = graph.select(large, scaled, log);
        let soft = div(graph, soft, beta);
        return graph.select(linear, value, soft);
    }
    let power = graph.call(Math::Exp, &[scaled]);
    let log = graph.call(Math::Log1p, &[power]);
    let soft = div(graph, log, beta);
    graph.select(linear, value, soft)
}
