//! What a function computes: its signature and the graph of its expressions, without any dtype.
//!
//! **Invariants:** a node refers only to nodes before it. Equal nodes exist once. A finished [`Definition`] has the nodes
//! that its results need and no others, in the order of a walk from the results, operands first; so two functions that
//! compute the same in the same way are equal, however they were built.

use std::collections::HashMap;
use std::sync::OnceLock;

use num_complex::Complex64;
use smallvec::SmallVec;

use crate::base::dtype::DType;
use crate::base::expression_error::ExpressionError;
use crate::base::scalar::Scalar;
use crate::ops::{Operation, table};

/// The most tensors that a function takes, and the most results (torch's limits of the jiterator).
pub const MOST_TENSORS: usize = 8;

/// The most parameters of a function.
pub const MOST_PARAMETERS: usize = 32;

/// The most expressions of a function: more would take a driver long to compile.
pub const MOST_NODES: usize = 1024;

/// The most bytes of a name.
pub(super) const MOST_NAME: usize = 64;

/// An expression: the number of its node.
pub(super) type Id = u16;

/// What an expression is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// The element of a tensor.
    Input(u8),
    /// A number that a call gives.
    Parameter(u8),
    /// A number.
    Number(Number),
    /// An operation of other expressions.
    Apply(Function, SmallVec<[Id; 3]>),
    /// An expression in another dtype, rounded to it.
    Cast(DType, Id),
}

/// A number that can be compared bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Number {
    Bool(bool),
    Int(i64),
    Float(u64),
    Complex(u64, u64),
}

impl From<Scalar> for Number {
    fn from(scalar: Scalar) -> Self {
        // A NaN is a NaN: what else its bits hold has no text.
        let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
        match scalar {
            Scalar::Bool(value) => Self::Bool(value),
            Scalar::Int(value) => Self::Int(value),
            Scalar::Float(value) => Self::Float(bits(value)),
            Scalar::Complex(value) => Self::Complex(bits(value.re), bits(value.im)),
        }
    }
}

impl Number {
    pub(super) fn scalar(self) -> Scalar {
        match self {
            Self::Bool(value) => Scalar::Bool(value),
            Self::Int(value) => Scalar::Int(value),
            Self::Float(bits) => Scalar::Float(f64::from_bits(bits)),
            Self::Complex(re, im) => Scalar::Complex(Complex64::new(f64::from_bits(re), f64::from_bits(im))),
        }
    }
}

/// The kind of a number, as errors name it.
pub(super) fn kind(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool(_) => "boolean",
        Scalar::Int(_) => "integer",
        Scalar::Float(_) => "float",
        Scalar::Complex(_) => "complex number",
    }
}

/// An operation of the table, which its name tells from others.
#[derive(Clone, Copy)]
pub(super) struct Function(pub(super) &'static Operation);

impl Function {
    /// The operation of a name; rows that others stand for are none.
    pub(super) fn named(name: &str) -> Option<Self> {
        static NAMES: OnceLock<HashMap<&'static str, &'static Operation>> = OnceLock::new();
        let names = NAMES.get_or_init(|| {
            let rows = table().filter(|row| !HIDDEN.contains(&row.name));
            rows.map(|row| (ALIASES.iter().find(|(_, own)| *own == row.name).map_or(row.name, |(name, _)| name), row))
                .collect()
        });
        names.get(name).copied().map(Self)
    }

    /// Its name in texts.
    pub(super) fn name(self) -> &'static str {
        ALIASES.iter().find(|(_, own)| *own == self.0.name).map_or(self.0.name, |(name, _)| name)
    }

    /// How many expressions it takes.
    pub(super) fn arguments(self) -> usize {
        self.0.arity + self.0.numbers
    }
}

/// Rows that are forms of others.
const HIDDEN: [&str; 4] = ["pow_half", "pow_two", "round_finer", "round_coarser"];

/// Names of texts where the table has others.
const ALIASES: [(&str, &str); 1] = [("div", "true_divide")];

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Function {}

impl std::hash::Hash for Function {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.0).addr().hash(state);
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A number that may change from call to call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parameter {
    pub(super) name: String,
    /// What it is where a call does not tell; its kind is that of all calls.
    pub(super) default: Number,
}

/// A function: what it takes and what it computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) inputs: Vec<String>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) nodes: Vec<Node>,
    pub(super) outputs: Vec<Id>,
}

/// A definition while it is built. The first mistake is kept and returned in the end.
#[derive(Debug, Default)]
pub(super) struct Builder {
    nodes: Vec<Node>,
    known: HashMap<Node, Id>,
    parameters: Vec<Parameter>,
    error: Option<ExpressionError>,
}

impl Builder {
    /// The expression of a node.
    pub(super) fn add(&mut self, node: Node) -> Id {
        if let Some(&known) = self.known.get(&node) {
            return known;
        }
        if self.nodes.len() >= MOST_NODES {
            return self.refuse(ExpressionError::TooManyNodes { limit: MOST_NODES });
        }
        let id = Id::try_from(self.nodes.len()).unwrap_or(Id::MAX);
        self.nodes.push(node.clone());
        self.known.insert(node, id);
        id
    }

    /// The element of a tensor.
    pub(super) fn input(&mut self, at: usize) -> Id {
        self.add(Node::Input(u8::try_from(at).unwrap_or(u8::MAX)))
    }

    /// A parameter, which is declared by its first use.
    pub(super) fn parameter(&mut self, name: &str, default: Scalar) -> Id {
        let default = Number::from(default);
        let at = match self.parameters.iter().position(|known| known.name == name) {
            Some(at) if self.parameters[at].default == default => at,
            Some(_) => return self.refuse(ExpressionError::Declared { name: name.to_owned() }),
            None => {
                self.parameters.push(Parameter { name: name.to_owned(), default });
                self.parameters.len() - 1
            }
        };
        self.add(Node::Parameter(u8::try_from(at).unwrap_or(u8::MAX)))
    }

    /// Keeps the first mistake. The expression stands for it, so that building can go on.
    pub(super) fn refuse(&mut self, error: ExpressionError) -> Id {
        self.error.get_or_insert(error);
        0
    }

    /// The first mistake so far.
    pub(super) fn error(&self) -> Option<&ExpressionError> {
        self.error.as_ref()
    }

    /// The names of the parameters so far.
    pub(super) fn declares(&self, name: &str) -> bool {
        self.parameters.iter().any(|parameter| parameter.name == name)
    }

    /// The finished definition.
    pub(super) fn finish(self, name: &str, inputs: Vec<String>, outputs: &[Id]) -> Result<Definition, ExpressionError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        check_name(name)?;
        for name in inputs.iter().chain(self.parameters.iter().map(|parameter| &parameter.name)) {
            check_name(name)?;
        }
        if let Some(name) = inputs.iter().find(|name| self.parameters.iter().any(|other| other.name == **name)) {
            return Err(ExpressionError::Declared { name: name.clone() });
        }
        check_counts(inputs.len(), self.parameters.len(), outputs.len())?;
        let (nodes, outputs) = walked(&self.nodes, outputs);
        Ok(Definition { name: name.to_owned(), inputs, parameters: self.parameters, nodes, outputs })
    }
}

fn check_counts(inputs: usize, parameters: usize, outputs: usize) -> Result<(), ExpressionError> {
    Err(match (inputs, outputs) {
        (0, _) => ExpressionError::NoInput,
        (_, 0) => ExpressionError::NoOutput,
        (found, _) if found > MOST_TENSORS => ExpressionError::TooManyInputs { limit: MOST_TENSORS, found },
        (_, found) if found > MOST_TENSORS => ExpressionError::TooManyOutputs { limit: MOST_TENSORS, found },
        _ if parameters > MOST_PARAMETERS => {
            ExpressionError::TooManyParameters { limit: MOST_PARAMETERS, found: parameters }
        }
        _ => return Ok(()),
    })
}

/// Checks that a name can stand in a text and in a kernel.
pub(super) fn check_name(name: &str) -> Result<(), ExpressionError> {
    let refuse = |reason| Err(ExpressionError::Name { name: name.chars().take(MOST_NAME).collect(), reason });
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    match name.chars().next() {
        None => refuse("it is empty"),
        Some(_) if name.len() > MOST_NAME => refuse("it has more than 64 bytes"),
        Some(first) if first.is_ascii_digit() || !name.chars().all(is_word) => {
            refuse("it needs letters, digits and underscores, and no digit first")
        }
        Some(_) if is_reserved(name) => refuse("it has a meaning of its own"),
        Some(_) => Ok(()),
    }
}

/// Words of texts that are no names.
const WORDS: [&str; 9] = ["let", "and", "or", "not", "true", "false", "inf", "nan", "complex"];

/// Whether a name means something else already.
fn is_reserved(name: &str) -> bool {
    WORDS.contains(&name) || dtype_named(name).is_some()
}

/// The names of dtypes in texts.
pub(super) const DTYPES: [(DType, &str); 15] = [
    (DType::Bool, "bool"),
    (DType::U8, "u8"),
    (DType::I8, "i8"),
    (DType::I16, "i16"),
    (DType::I32, "i32"),
    (DType::I64, "i64"),
    (DType::F16, "f16"),
    (DType::BF16, "bf16"),
    (DType::F32, "f32"),
    (DType::F64, "f64"),
    (DType::C32, "c32"),
    (DType::C64, "c64"),
    (DType::C128, "c128"),
    (DType::F8E4M3FN, "f8e4m3fn"),
    (DType::F8E5M2, "f8e5m2"),
];

/// The dtype of a name.
pub(super) fn dtype_named(name: &str) -> Option<DType> {
    DTYPES.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype)
}

/// The nodes that outputs need in the order of a walk from them, and the outputs' new numbers.
fn walked(nodes: &[Node], outputs: &[Id]) -> (Vec<Node>, Vec<Id>) {
    let mut made: Vec<Node> = Vec::new();
    let mut new: Vec<Option<Id>> = vec![None; nodes.len()];
    let mut stack: Vec<Id> = outputs.iter().rev().copied().collect();
    while let Some(&id) = stack.last() {
        let at = usize::from(id);
        let missing: SmallVec<[Id; 3]> =
            operands(&nodes[at]).filter(|operand| new[usize::from(*operand)].is_none()).collect();
        if new[at].is_some() || missing.is_empty() {
            stack.pop();
            if new[at].is_none() {
                new[at] = Some(Id::try_from(made.len()).unwrap_or(Id::MAX));
                made.push(renumbered(&nodes[at], &new));
            }
        } else {
            // The first operand is walked first.
            stack.extend(missing.into_iter().rev());
        }
    }
    let outputs = outputs.iter().map(|&output| new[usize::from(output)].unwrap_or(0)).collect();
    (made, outputs)
}

/// The expressions that a node is made of.
pub(super) fn operands(node: &Node) -> impl Iterator<Item = Id> {
    let several: SmallVec<[Id; 3]> = match node {
        Node::Input(_) | Node::Parameter(_) | Node::Number(_) => SmallVec::new(),
        Node::Cast(_, operand) => SmallVec::from_slice(&[*operand]),
        Node::Apply(_, operands) => operands.clone(),
    };
    several.into_iter()
}

fn renumbered(node: &Node, new: &[Option<Id>]) -> Node {
    let of = |id: &Id| new[usize::from(*id)].unwrap_or(0);
    match node {
        Node::Cast(dtype, operand) => Node::Cast(*dtype, of(operand)),
        Node::Apply(function, operands) => Node::Apply(*function, operands.iter().map(of).collect()),
        leaf => leaf.clone(),
    }
}
