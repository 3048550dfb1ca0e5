//! What rows are built of: small formulas on values of a graph.
//!
//! All values are of the type that a dtype is computed in.

use kernel_ir::{Binary, Compare, Graph, Type, Unary, Value};

use crate::base::dtype::DType;

/// A constant of the value's type.
pub(super) fn like(graph: &mut Graph, value: Value, constant: f64) -> Value {
    let ty = graph.type_of(value);
    #[expect(clippy::cast_possible_truncation, reason = "constants of integer types are whole numbers")]
    if ty.is_float() { graph.float(ty, constant) } else { graph.int(ty, constant as i64) }
}

pub(super) fn add(graph: &mut Graph, a: Value, b: Value) -> Value {
    graph.binary(Binary::Add, a, b)
}

pub(super) fn sub(graph: &mut Graph, a: Value, b: Value) -> Value {
    graph.binary(Binary::Sub, a, b)
}

pub(super) fn mul(graph: &mut Graph, a: Value, b: Value) -> Value {
    graph.binary(Binary::Mul, a, b)
}

pub(super) fn div(graph: &mut Graph, a: Value, b: Value) -> Value {
    graph.binary(Binary::Div, a, b)
}

pub(super) fn neg(graph: &mut Graph, a: Value) -> Value {
    graph.unary(Unary::Neg, a)
}

pub(super) fn abs(graph: &mut Graph, a: Value) -> Value {
    graph.unary(Unary::Abs, a)
}

/// Whether a float is no number; other types always are.
pub(super) fn is_nan(graph: &mut Graph, a: Value) -> Value {
    if graph.type_of(a).is_float() { graph.compare(Compare::Ne, a, a) } else { graph.int(Type::Bool, 0) }
}

/// Whether a value compares so with a constant.
pub(super) fn compare_with(graph: &mut Graph, op: Compare, a: Value, constant: f64) -> Value {
    let constant = like(graph, a, constant);
    graph.compare(op, a, constant)
}

/// The integer type with the bits of a float.
const fn bits_of(float: Type) -> Type {
    match float {
        Type::F64 => Type::I64,
        Type::F32 => Type::I32,
        _ => Type::I16,
    }
}

/// Whether the sign bit is set.
pub(super) fn sign_bit(graph: &mut Graph, a: Value) -> Value {
    let ty = graph.type_of(a);
    match ty {
        Type::Bool => graph.int(Type::Bool, 0),
        _ if ty.is_float() => {
            let bits = graph.bitcast(a, bits_of(ty));
            compare_with(graph, Compare::Lt, bits, 0.0)
        }
        _ => compare_with(graph, Compare::Lt, a, 0.0),
    }
}

/// The magnitude of the first float with the sign bit of the second.
pub(super) fn copy_sign(graph: &mut Graph, magnitude: Value, sign: Value) -> Value {
    let negative = sign_bit(graph, sign);
    let positive_value = abs(graph, magnitude);
    let negative_value = neg(graph, positive_value);
    graph.select(negative, negative_value, positive_value)
}

/// The smaller or larger one of two values; of floats the number where one is a NaN. Of booleans, whether both or one is
/// true.
pub(super) fn extreme(graph: &mut Graph, op: Binary, a: Value, b: Value) -> Value {
    let op = match (graph.type_of(a), op) {
        (Type::Bool, Binary::Max) => Binary::Or,
        (Type::Bool, _) => Binary::And,
        _ => op,
    };
    graph.binary(op, a, b)
}

/// As [`extreme`], but a NaN where one of the two is.
pub(super) fn extreme_or_nan(graph: &mut Graph, op: Binary, a: Value, b: Value) -> Value {
    let found = extreme(graph, op, a, b);
    if !graph.type_of(a).is_float() {
        return found;
    }
    let (a_nan, b_nan) = (is_nan(graph, a), is_nan(graph, b));
    let second = graph.select(b_nan, b, found);
    graph.select(a_nan, a, second)
}

/// The value next to the first towards the second, in the dtype that the values are computed for.
pub(super) fn next_after(graph: &mut Graph, dtype: DType, from: Value, to: Value) -> Value {
    let (part, ty) = (dtype.part(), dtype.compute_type());
    let bits = bits_of(part);
    let bits_in = |graph: &mut Graph, value: Value| {
        let narrow = graph.convert(value, part);
        graph.bitcast(narrow, bits)
    };
    let (from_bits, to_bits) = (bits_in(graph, from), bits_in(graph, to));
    // Away from zero the bits grow, whatever the sign.
    let upwards = graph.compare(Compare::Gt, to, from);
    let positive = compare_with(graph, Compare::Gt, from, 0.0);
    let shrinks = graph.binary(Binary::Xor, upwards, positive);
    let (less, more) = (graph.int(bits, -1), graph.int(bits, 1));
    let step = graph.select(shrinks, less, more);
    let moved = add(graph, from_bits, step);
    // Next to zero is the smallest number with the other's sign.
    let lowest = graph.int(bits, i64::MIN >> (64 - bits.bits()));
    let sign = graph.binary(Binary::And, to_bits, lowest);
    let smallest = graph.binary(Binary::Or, sign, more);
    let is_zero = compare_with(graph, Compare::Eq, from, 0.0);
    let moved = graph.select(is_zero, smallest, moved);
    let narrow = graph.bitcast(moved, part);
    let next = graph.convert(narrow, ty);
    let same = graph.compare(Compare::Eq, from, to);
    let next = graph.select(same, to, next);
    let (from_nan, to_nan) = (is_nan(graph, from), is_nan(graph, to));
    let next = graph.select(to_nan, to, next);
    graph.select(from_nan, from, next)
}
