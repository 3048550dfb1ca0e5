//! Functions between the layers of neural networks (`torch.nn.functional`).

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use kernel_ir::{Binary, Compare, Graph, Math, Value};

use super::formula::{abs, add, compare_with, div, extreme, extreme_or_nan, like, mul, neg, sub};
use super::{Call, Layout, Operation, Participating, Rule, accept, complex, count, methods, operations};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::scalar::Scalar;
use crate::tensor::Tensor;

operations! {
    /// Each element, or zero where it is negative (`torch.relu`).
    relu, relu_, relu_out(): Operation::new("relu", "clamp_min_scalar_cuda", Rule::Common, accept::real_but_bool,
        relu_of).check(|p| (p.common == DType::Bool).then(|| "Boolean inputs not supported for relu".to_owned()));
    /// Each element, times `slope` where it is negative (`torch.nn.functional.leaky_relu`).
    leaky_relu, leaky_relu_, leaky_relu_out(; slope): Operation::new("leaky_relu", "leaky_relu_cuda", Rule::Common,
        accept::float, leaky_relu_of);
    /// Each element held between two numbers (`torch.nn.functional.hardtanh`).
    hardtanh, hardtanh_, hardtanh_out(; low, high): Operation::new("hardtanh", "clamp_scalar_cuda", Rule::Common,
        accept::real_but_bool, hardtanh_of).check(wrong_hardtanh);
    /// One divided by one plus e to the power of the negative (`torch.sigmoid`).
    sigmoid, sigmoid_, sigmoid_out(): Operation::new("sigmoid", "sigmoid_cuda", Rule::Float, accept::real,
        |g, _, v| sigmoid_of(g, v[0])).complex(complex::sigmoid);
    /// The logarithm of [`Self::sigmoid`] (`torch.nn.functional.logsigmoid`).
    logsigmoid, logsigmoid_, logsigmoid_out(): Operation::new("logsigmoid", "log_sigmoid_forward_cuda", Rule::Common,
        accept::float, logsigmoid_of).layout(Layout::Copied);
    /// Each element times the part of the normal distribution below it (`torch.nn.functional.gelu`).
    gelu, gelu_, gelu_out(): Operation::new("gelu", "GeluCUDAKernelImpl", Rule::Common, accept::float, gelu_of);
    /// [`Self::gelu`] by way of a hyperbolic tangent (`torch.nn.functional.gelu` with `approximate="tanh"`).
    gelu_tanh, gelu_tanh_, gelu_tanh_out(): Operation::new("gelu_tanh", "GeluCUDAKernelImpl", Rule::Common,
        accept::float, gelu_tanh_of);
    /// Each element times its [`Self::sigmoid`] (`torch.nn.functional.silu`).
    silu, silu_, silu_out(): Operation::new("silu", "silu_cuda", Rule::Common, accept::float,
        |g, _, v| times_sigmoid(g, v[0], v[0])).complex(|g, d, v| {
        let part = complex::sigmoid(g, d, v);
        complex::mul(g, v[0], part)
    });
    /// Each element times the hyperbolic tangent of its softplus (`torch.nn.functional.mish`).
    mish, mish_, mish_out(): Operation::new("mish", "mish_cuda", Rule::Common, accept::float, mish_of);
    /// The logarithm of one plus e to the power of `beta` times each element, divided by `beta`; the element itself where
    /// that product is above `threshold` (`torch.nn.functional.softplus`).
    softplus, softplus_, softplus_out(; beta, threshold): Operation::new("softplus", "softplus_cuda", Rule::Common,
        accept::float, softplus_of);
}

fn relu_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let zero = like(graph, values[0], 0.0);
    extreme_or_nan(graph, Binary::Max, values[0], zero)
}

fn wrong_hardtanh(p: &Participating<'_>) -> Option<String> {
    let text = match p.numbers {
        _ if p.common == DType::Bool => "Bool inputs not supported for hardtanh",
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

fn sigmoid_of(graph: &mut Graph, value: Value) -> Value {
    let one = like(graph, value, 1.0);
    times_sigmoid(graph, one, value)
}

/// A factor times the sigmoid of a value.
fn times_sigmoid(graph: &mut Graph, factor: Value, value: Value) -> Value {
    let divisor = inverse_sigmoid(graph, value);
    div(graph, factor, divisor)
}

fn logsigmoid_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let zero = like(graph, values[0], 0.0);
    let low = extreme(graph, Binary::Min, zero, values[0]);
    let magnitude = abs(graph, values[0]);
    let negative = neg(graph, magnitude);
    let power = graph.call(Math::Exp, &[negative]);
    let rest = graph.call(Math::Log1p, &[power]);
    sub(graph, low, rest)
}

/// The complement of the error function keeps the digits that one plus the error function loses. Where the latter is
/// zero even in `f64`, the result is zero as well; in `f64` itself it is torch's formula.
fn gelu_of(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    let value = values[0];
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
    let product = times_sigmoid(graph, value, argument);
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

fn mish_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let power = graph.call(Math::Exp, values);
    let soft = graph.call(Math::Log1p, &[power]);
    let tangent = graph.call(Math::Tanh, &[soft]);
    mul(graph, values[0], tangent)
}

fn softplus_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let &[value, beta, threshold] = values else { return values[0] };
    let scaled = mul(graph, value, beta);
    let linear = graph.compare(Compare::Gt, scaled, threshold);
    let power = graph.call(Math::Exp, &[scaled]);
    let log = graph.call(Math::Log1p, &[power]);
    let soft = div(graph, log, beta);
    graph.select(linear, value, soft)
}
