//! Bits and truth values.

use kernel_ir::{Binary, Graph, Type, Unary, Value};

use super::{Call, Operation, OutputDType, Pair, Rule, accept, complex, count, methods, operations};
use crate::base::error::Result;
use crate::tensor::{Operand, Tensor};

/// A row of an operation on bits, which are also booleans.
macro_rules! bits {
    ($name:literal, $kernel:literal, $op:ident) => {
        Operation::new($name, $kernel, Rule::Common, accept::integral_or_bool, |g, _, v| {
            g.binary(Binary::$op, v[0], v[1])
        })
    };
}

/// A row of an operation on whether elements are anything but zero.
macro_rules! truth {
    ($name:literal, $kernel:literal, $op:ident) => {
        Operation::new($name, $kernel, Rule::Bool, accept::real, |g, _, v| {
            let (a, b) = (is_true(g, v[0]), is_true(g, v[1]));
            g.binary(Binary::$op, a, b)
        })
        .complex(|g, _, v| {
            let (a, b) = (complex::either(g, v[0], is_true), complex::either(g, v[1], is_true));
            (g.binary(Binary::$op, a.0, b.0), a.1)
        })
    };
}

operations! {
    /// All bits inverted; of booleans the opposite (`torch.bitwise_not`).
    bitwise_not, bitwise_not_, bitwise_not_out(): Operation::new("bitwise_not", "bitwise_not_cuda", Rule::Common,
        accept::integral_or_bool, |g, _, v| g.unary(Unary::Not, v[0]))
        .output(OutputDType::Equal);
    /// The bits that both elements have (`torch.bitwise_and`).
    bitwise_and, bitwise_and_, bitwise_and_out(other): bits!("bitwise_and", "bitwise_and_cuda", And);
    /// The bits that one of the elements has (`torch.bitwise_or`).
    bitwise_or, bitwise_or_, bitwise_or_out(other): bits!("bitwise_or", "bitwise_or_cuda", Or);
    /// The bits that only one of the elements has (`torch.bitwise_xor`).
    bitwise_xor, bitwise_xor_, bitwise_xor_out(other): bits!("bitwise_xor", "bitwise_xor_cuda", Xor);
    /// The elements shifted left by `other`; zero past the width and for negative distances
    /// (`torch.bitwise_left_shift`).
    bitwise_left_shift, bitwise_left_shift_, bitwise_left_shift_out(other): Operation::new("bitwise_left_shift",
        "lshift_cuda", Rule::Common, accept::integral, |g, _, v| g.binary(Binary::Shl, v[0], v[1]));
    /// The elements shifted right by `other` with their sign; only the sign is left past the width and for negative
    /// distances (`torch.bitwise_right_shift`).
    bitwise_right_shift, bitwise_right_shift_, bitwise_right_shift_out(other): Operation::new("bitwise_right_shift",
        "rshift_cuda", Rule::Common, accept::integral, |g, _, v| g.binary(Binary::Shr, v[0], v[1]));
    /// Whether the elements are zero (`torch.logical_not`).
    logical_not, logical_not_, logical_not_out(): Operation::new("logical_not", "logical_not_cuda", Rule::Bool,
        accept::real, |g, _, v| { let a = is_true(g, v[0]); g.unary(Unary::Not, a) }).complex(not_complex);
    /// Whether both elements are anything but zero (`torch.logical_and`).
    logical_and, logical_and_, logical_and_out(other): truth!("logical_and", "logical_and_cuda", And);
    /// Whether one of the elements is anything but zero (`torch.logical_or`).
    logical_or, logical_or_, logical_or_out(other): truth!("logical_or", "logical_or_cuda", Or);
    /// Whether just one of the elements is anything but zero (`torch.logical_xor`).
    logical_xor, logical_xor_, logical_xor_out(other): truth!("logical_xor", "logical_xor_cuda", Xor);
}

fn is_true(graph: &mut Graph, value: Value) -> Value {
    graph.convert(value, Type::Bool)
}

fn not_complex(graph: &mut Graph, _: crate::base::dtype::DType, values: &[Pair]) -> Pair {
    let (any, zero) = complex::either(graph, values[0], is_true);
    (graph.unary(Unary::Not, any), zero)
}
