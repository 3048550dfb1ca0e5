//! Operations on one tensor.

use kernel_ir::{Compare, Graph, Math, Type, Unary, Value};

use super::{Operation, Rule, accept, elementwise, elementwise_into, unary_operations};
use crate::base::error::Result;
use crate::tensor::Tensor;

unary_operations! {
    /// The magnitude of each element (`torch.abs`).
    abs, abs_, abs_out: "abs", "abs_cuda", Common, real_but_bool, |g, _, v| g.unary(Unary::Abs, v[0]);
    /// The negative of each element (`torch.neg`).
    neg, neg_, neg_out: "neg", "neg_cuda", Common, real_but_bool, |g, _, v| g.unary(Unary::Neg, v[0]);
    /// The square root of each element (`torch.sqrt`).
    sqrt, sqrt_, sqrt_out: "sqrt", "sqrt_cuda", Float, real, |g, _, v| g.unary(Unary::Sqrt, v[0]);
    /// e to the power of each element (`torch.exp`).
    exp, exp_, exp_out: "exp", "exp_cuda", Float, real, |g, _, v| g.call(Math::Exp, v);
    /// The natural logarithm of each element (`torch.log`).
    log, log_, log_out: "log", "log_cuda", Float, real, |g, _, v| g.call(Math::Log, v);
    /// Each element, or zero where it is negative (`torch.relu`).
    relu, relu_, relu_out: "relu", "clamp_min_scalar_cuda", Common, real_but_bool, relu_of;
}

/// NaNs stay NaNs.
fn relu_of(graph: &mut Graph, ty: Type, values: &[Value]) -> Value {
    let zero = graph.number(ty, 0);
    let below = graph.compare(Compare::Lt, values[0], zero);
    graph.select(below, zero, values[0])
}
