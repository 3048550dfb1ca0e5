//! Operations on two operands.

use kernel_ir::{Binary, Graph, Type, Value};

use super::{Operation, Rule, accept, binary_operations, elementwise, elementwise_into};
use crate::base::error::Result;
use crate::tensor::{Operand, Tensor};

binary_operations! {
    /// The sum of the elements (`torch.add` with `alpha` 1).
    add, add_, add_out: "add", "add_cuda", Common, real, sum_of;
    /// The difference of the elements (`torch.sub` with `alpha` 1).
    sub, sub_, sub_out: "sub", "sub_cuda", Common, real_but_bool, |g, _, v| g.binary(Binary::Sub, v[0], v[1]);
    /// The product of the elements (`torch.mul`).
    mul, mul_, mul_out: "mul", "mul_cuda", Common, real, product_of;
    /// The quotient of the elements, always as floats (`torch.true_divide`, `torch.div`).
    div, div_, div_out: "true_divide", "div_true_cuda", Float, real, |g, _, v| g.binary(Binary::Div, v[0], v[1]);
}

/// Of booleans, whether one of them is true.
fn sum_of(graph: &mut Graph, ty: Type, values: &[Value]) -> Value {
    let op = if ty == Type::Bool { Binary::Or } else { Binary::Add };
    graph.binary(op, values[0], values[1])
}

/// Of booleans, whether both are true.
fn product_of(graph: &mut Graph, ty: Type, values: &[Value]) -> Value {
    let op = if ty == Type::Bool { Binary::And } else { Binary::Mul };
    graph.binary(op, values[0], values[1])
}
