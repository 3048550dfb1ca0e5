//! The nodes of a graph and their operations.

use crate::math::Math;
use crate::types::{Kind, Type};

/// A value of a graph: the number of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(u32);

impl Value {
    pub(crate) fn new(index: u32) -> Self {
        Self(index)
    }

    /// The place of the node.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a value is made of. Its type stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The element of an input.
    Input(u32),
    /// A number that the launch gives.
    Scalar(u32),
    /// A constant: the bits of a float, or the two's complement of an integer.
    Constant {
        /// The bits.
        bits: u64,
    },
    /// The place of the element in logical order.
    Index,
    /// An operation on one value.
    Unary(Unary, Value),
    /// An operation on two values.
    Binary(Binary, Value, Value),
    /// A comparison, which gives a boolean.
    Compare(Compare, Value, Value),
    /// The second value where the first one is true, else the third.
    Select(Value, Value, Value),
    /// The product of the first two and the third in one rounding.
    Fma(Value, Value, Value),
    /// The value in the node's type.
    Convert(Value),
    /// The bits of the value as the node's type.
    Bitcast(Value),
    /// A function of one or two arguments.
    Call(Math, Value, Option<Value>),
}

impl Node {
    /// The values that it is made of.
    pub(crate) fn operands(self) -> impl Iterator<Item = Value> {
        let of = match self {
            Self::Input(_) | Self::Scalar(_) | Self::Constant { .. } | Self::Index => [None; 3],
            Self::Unary(_, a) | Self::Convert(a) | Self::Bitcast(a) => [Some(a), None, None],
            Self::Binary(_, a, b) | Self::Compare(_, a, b) => [Some(a), Some(b), None],
            Self::Select(a, b, c) | Self::Fma(a, b, c) => [Some(a), Some(b), Some(c)],
            Self::Call(_, a, b) => [Some(a), b, None],
        };
        of.into_iter().flatten()
    }

    /// The node with other values in their place.
    pub(crate) fn with_operands(self, other: impl Fn(Value) -> Value) -> Self {
        match self {
            Self::Input(_) | Self::Scalar(_) | Self::Constant { .. } | Self::Index => self,
            Self::Unary(op, a) => Self::Unary(op, other(a)),
            Self::Convert(a) => Self::Convert(other(a)),
            Self::Bitcast(a) => Self::Bitcast(other(a)),
            Self::Binary(op, a, b) => Self::Binary(op, other(a), other(b)),
            Self::Compare(op, a, b) => Self::Compare(op, other(a), other(b)),
            Self::Select(a, b, c) => Self::Select(other(a), other(b), other(c)),
            Self::Fma(a, b, c) => Self::Fma(other(a), other(b), other(c)),
            Self::Call(function, a, b) => Self::Call(function, other(a), b.map(other)),
        }
    }
}

/// An operation on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// The negative; integers wrap around.
    Neg,
    /// The magnitude; the smallest signed integer stays as it is.
    Abs,
    /// All bits inverted; on booleans the opposite.
    Not,
    /// The square root, correctly rounded.
    Sqrt,
    /// The next whole number downwards.
    Floor,
    /// The next whole number upwards.
    Ceil,
    /// The next whole number towards zero.
    Trunc,
    /// The nearest whole number, halves to the even one.
    Round,
}

impl Unary {
    pub(crate) fn accepts(self, ty: Type) -> bool {
        match self {
            Self::Neg | Self::Abs => ty.is_int() || ty.is_float(),
            Self::Not => ty.is_int() || ty == Type::Bool,
            Self::Sqrt | Self::Floor | Self::Ceil | Self::Trunc | Self::Round => ty.is_float(),
        }
    }
}

/// An operation on two values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// The sum.
    Add,
    /// The difference.
    Sub,
    /// The product.
    Mul,
    /// The quotient: correctly rounded, on integers towards zero. An integer divided by zero is all ones.
    Div,
    /// The rest of the integer division towards zero; of a division by zero all ones.
    Rem,
    /// The smaller one; of a number and a NaN the number.
    Min,
    /// The larger one; of a number and a NaN the number.
    Max,
    /// The bits that both have.
    And,
    /// The bits that one of them has.
    Or,
    /// The bits that only one of them has.
    Xor,
    /// The first shifted left by the second. Shifting by the width or more gives zero.
    Shl,
    /// The first shifted right by the second, signed integers with their sign. Shifting by the width or more leaves
    /// the sign.
    Shr,
}

impl Binary {
    pub(crate) fn accepts(self, ty: Type) -> bool {
        match self {
            Self::Add | Self::Sub | Self::Mul | Self::Div | Self::Min | Self::Max => ty.is_int() || ty.is_float(),
            Self::Rem | Self::Shl | Self::Shr => ty.is_int(),
            Self::And | Self::Or | Self::Xor => matches!(ty.kind(), Kind::Int { .. } | Kind::Bool),
        }
    }
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// Equal.
    Eq,
    /// Not equal; true with a NaN.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}
