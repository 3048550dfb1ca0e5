//! C++'s rules for numbers: promotions, conversions, operators.
//!
//! **Invariants:** a [`Typed`] has the graph's type `ty`. A product of floats is remembered, so that what adds it can be one
//! `fma`, as a compiler contracts it. Conversions of numbers of the text are worked out here.

use kernel_ir::{Binary, Graph, Type, Unary, Value};

use super::tree::{BinaryOp, UnaryOp};

/// A value with its type in C++.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Typed {
    pub(super) value: Value,
    pub(super) ty: Type,
    /// Of which factors it is the product.
    product: Option<(Value, Value)>,
    known: Option<Known>,
}

/// A number that stands in the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Known {
    Int(i64),
    Float(f64),
}

impl Typed {
    pub(super) fn new(value: Value, ty: Type) -> Self {
        Self { value, ty, product: None, known: None }
    }

    /// A value of the graph, by the type that it has there.
    fn of(graph: &Graph, value: Value) -> Self {
        Self::new(value, graph.type_of(value))
    }
}

/// A number of the text.
pub(super) fn number(graph: &mut Graph, known: Known, ty: Type) -> Typed {
    let value = match known {
        Known::Float(value) => graph.float(ty, value),
        Known::Int(value) => graph.int(ty, value),
    };
    Typed { known: Some(known), ..Typed::new(value, ty) }
}

/// A value in another type.
pub(super) fn convert(graph: &mut Graph, from: Typed, ty: Type) -> Typed {
    if from.ty == ty {
        return from;
    }
    if let Some(known) = from.known.and_then(|known| converted(known, from.ty, ty)) {
        return number(graph, known, ty);
    }
    if from.ty.is_float() && ty == Type::U8 {
        // What is below zero has no meaning in C++; a compiler goes by way of a type that ends at zero.
        let whole = graph.convert(from.value, Type::U32);
        return Typed::new(graph.convert(whole, ty), ty);
    }
    Typed::new(graph.convert(from.value, ty), ty)
}

/// A number of the text in another type, where that can hold it.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a number is rounded to its type")]
fn converted(known: Known, from: Type, to: Type) -> Option<Known> {
    Some(match (known, to) {
        (Known::Float(value), Type::F32) => Known::Float(f64::from(value as f32)),
        (Known::Float(value), Type::F64) => Known::Float(value),
        (Known::Float(value), Type::Bool) => Known::Int(i64::from(value != 0.0)),
        (Known::Int(value), Type::Bool) => Known::Int(i64::from(value != 0)),
        (Known::Int(_), Type::F32 | Type::F64) if from == Type::U64 => return None,
        (Known::Int(value), Type::F32) => Known::Float(f64::from(value as f32)),
        (Known::Int(value), Type::F64) => Known::Float(value as f64),
        (Known::Int(value), _) => Known::Int(wrapped(value, to)),
        // Out of range it has no meaning in C++, and the device decides.
        (Known::Float(value), _) => {
            let whole = value as i64;
            let is_held = value.trunc() == whole as f64 && wrapped(whole, to) == whole;
            return is_held.then_some(Known::Int(whole));
        }
    })
}

/// The bits of an integer that a type has.
fn wrapped(value: i64, ty: Type) -> i64 {
    let shift = 64 - ty.bits();
    match ty {
        Type::U8 | Type::U32 => (value << shift).cast_unsigned().wrapping_shr(shift).cast_signed(),
        _ => value << shift >> shift,
    }
}

/// Small integers are promoted to `int`.
fn promoted(ty: Type) -> Type {
    match ty {
        Type::Bool | Type::I8 | Type::U8 | Type::I16 => Type::I32,
        other => other,
    }
}

/// The type that two operands have in common.
pub(super) fn common(a: Type, b: Type) -> Type {
    let (a, b) = (promoted(a), promoted(b));
    let ranks = [Type::F64, Type::F32, Type::U64, Type::I64, Type::U32];
    ranks.into_iter().find(|ty| a == *ty || b == *ty).unwrap_or(Type::I32)
}

pub(super) fn unary(graph: &mut Graph, op: UnaryOp, operand: Typed) -> Option<Typed> {
    if op == UnaryOp::Not {
        let truth = convert(graph, operand, Type::Bool);
        let value = graph.unary(Unary::Not, truth.value);
        return Some(Typed::new(value, Type::Bool));
    }
    let operand = convert(graph, operand, promoted(operand.ty));
    match (op, operand.known) {
        (UnaryOp::Flip, _) if operand.ty.is_float() => None,
        (UnaryOp::Flip, _) => Some(Typed::new(graph.unary(Unary::Not, operand.value), operand.ty)),
        (UnaryOp::Minus, Some(Known::Float(value))) => Some(number(graph, Known::Float(-value), operand.ty)),
        (UnaryOp::Minus, Some(Known::Int(value))) => {
            Some(number(graph, Known::Int(wrapped(value.wrapping_neg(), operand.ty)), operand.ty))
        }
        (UnaryOp::Minus, None) => Some(Typed::new(graph.unary(Unary::Neg, operand.value), operand.ty)),
        (UnaryOp::Plus | UnaryOp::Not, _) => Some(operand),
    }
}

/// An operator on two operands; none where there is none for their types.
pub(super) fn binary(graph: &mut Graph, op: BinaryOp, a: Typed, b: Typed) -> Option<Typed> {
    match op {
        BinaryOp::And | BinaryOp::Or => {
            let (a, b) = (convert(graph, a, Type::Bool), convert(graph, b, Type::Bool));
            let op = if op == BinaryOp::And { Binary::And } else { Binary::Or };
            Some(Typed::new(graph.binary(op, a.value, b.value), Type::Bool))
        }
        BinaryOp::Shl | BinaryOp::Shr => shift(graph, op, a, b),
        _ => {
            let ty = common(a.ty, b.ty);
            let (a, b) = (convert(graph, a, ty), convert(graph, b, ty));
            match op {
                BinaryOp::Compare(compare) => Some(Typed::new(graph.compare(compare, a.value, b.value), Type::Bool)),
                _ => arithmetic(graph, op, a, b),
            }
        }
    }
}

/// The result of a shift has the type of its left operand.
fn shift(graph: &mut Graph, op: BinaryOp, a: Typed, b: Typed) -> Option<Typed> {
    let ty = promoted(a.ty);
    if ty.is_float() || b.ty.is_float() {
        return None;
    }
    let (a, b) = (convert(graph, a, ty), convert(graph, b, ty));
    let op = if op == BinaryOp::Shl { Binary::Shl } else { Binary::Shr };
    Some(Typed::new(graph.binary(op, a.value, b.value), ty))
}

/// Of operands of one promoted type.
fn arithmetic(graph: &mut Graph, op: BinaryOp, a: Typed, b: Typed) -> Option<Typed> {
    let ty = a.ty;
    let operator = match op {
        BinaryOp::Add => Binary::Add,
        BinaryOp::Sub => Binary::Sub,
        BinaryOp::Mul => Binary::Mul,
        BinaryOp::Div => Binary::Div,
        BinaryOp::Rem if ty.is_int() => Binary::Rem,
        BinaryOp::BitAnd if ty.is_int() => Binary::And,
        BinaryOp::BitOr if ty.is_int() => Binary::Or,
        BinaryOp::BitXor if ty.is_int() => Binary::Xor,
        _ => return None,
    };
    if let Some(value) = contracted(graph, op, a, b) {
        return Some(Typed::new(value, ty));
    }
    let value = graph.binary(operator, a.value, b.value);
    let product = (op == BinaryOp::Mul && ty.is_float()).then_some((a.value, b.value));
    Some(Typed { product, ..Typed::new(value, ty) })
}

/// A sum or a difference with a product, as one `fma`.
fn contracted(graph: &mut Graph, op: BinaryOp, a: Typed, b: Typed) -> Option<Value> {
    match (op, a.product, b.product) {
        (BinaryOp::Add, Some((x, y)), _) => Some(graph.fma(x, y, b.value)),
        (BinaryOp::Add, None, Some((x, y))) => Some(graph.fma(x, y, a.value)),
        (BinaryOp::Sub, Some((x, y)), _) => {
            let negative = graph.unary(Unary::Neg, b.value);
            Some(graph.fma(x, y, negative))
        }
        (BinaryOp::Sub, None, Some((x, y))) => {
            let negative = graph.unary(Unary::Neg, x);
            Some(graph.fma(negative, y, a.value))
        }
        _ => None,
    }
}

/// One of two values of one type.
pub(super) fn select(graph: &mut Graph, condition: Typed, then: Typed, other: Typed) -> Typed {
    if then == other {
        return then;
    }
    let value = graph.select(condition.value, then.value, other.value);
    Typed::of(graph, value)
}
