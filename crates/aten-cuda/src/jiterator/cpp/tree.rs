//! What a text is made of: functions, their statements, and expressions.

use kernel_ir::{Compare, Type};

/// A type's name: the template's parameter, or a number's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypeName {
    Parameter,
    Known(Type),
}

/// A function.
#[derive(Clone, Debug)]
pub(in crate::jiterator) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) is_template: bool,
    /// The type of what it returns; none for `void`.
    pub(super) returns: Option<TypeName>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Vec<Statement>,
}

#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) ty: TypeName,
    pub(super) is_const: bool,
    /// A reference that results are written to.
    pub(super) is_output: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) line: usize,
    pub(super) kind: StatementKind,
}

#[derive(Clone, Debug)]
pub(super) enum StatementKind {
    /// A variable. Without a type it is `auto`, and has a value then.
    Declare {
        ty: Option<TypeName>,
        is_const: bool,
        name: String,
        value: Option<Expr>,
    },
    /// `name = value`, or with an operator before the sign.
    Assign {
        name: String,
        op: Option<BinaryOp>,
        value: Expr,
    },
    If {
        condition: Expr,
        then: Vec<Statement>,
        other: Vec<Statement>,
    },
    Block(Vec<Statement>),
    Return(Option<Expr>),
}

#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) line: usize,
    pub(super) kind: ExprKind,
}

#[derive(Clone, Debug)]
pub(super) enum ExprKind {
    Literal(Literal),
    Name(String),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `condition ? then : other`
    Choice(Box<[Expr; 3]>),
    Cast(TypeName, Box<Expr>),
    /// A call, with what stands in angle brackets after the name.
    Call(String, Option<TypeName>, Vec<Expr>),
}

/// A number in the text, with its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Literal {
    /// The bits of 64, for types without a sign too.
    Int(i64, Type),
    Float(f64, Type),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnaryOp {
    Plus,
    Minus,
    /// `!`
    Not,
    /// `~`
    Flip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Shl,
    Shr,
    BitAnd,
    BitOr,
    BitXor,
    Compare(Compare),
    And,
    Or,
}
