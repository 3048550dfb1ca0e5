//! From a definition to its text.
//!
//! What is used more than once, and what stands deep in other expressions, is bound by `let`, so that a text is not much
//! longer than its function.

use std::fmt::{self, Write as _};

use super::parse::{NOT, OPERATORS, POWER, SIGN};
use crate::base::scalar::Scalar;
use crate::expression::definition::{DTYPES, Definition, Function, Id, Node, Number, operands};

/// How deep expressions are written in one another.
const DEEP: usize = 24;

/// How close names, calls and brackets are.
const WHOLE: u8 = 13;

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printer = Printer { definition: self, bound: self.bound() };
        write!(f, "{}(", self.name)?;
        for (at, name) in self.inputs.iter().enumerate() {
            write!(f, "{}{name}", if at == 0 { "" } else { ", " })?;
        }
        for parameter in &self.parameters {
            write!(f, ", {}={}", parameter.name, Written(parameter.default))?;
        }
        f.write_str(") = ")?;
        for (at, name) in printer.bound.iter().enumerate() {
            if let Some(name) = name {
                write!(f, "let {name} = {}; ", printer.whole(at, true))?;
            }
        }
        for (at, &output) in self.outputs.iter().enumerate() {
            let text = printer.whole(usize::from(output), false);
            write!(f, "{}{text}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl Definition {
    /// The names of the nodes that are bound by `let`.
    fn bound(&self) -> Vec<Option<String>> {
        let mut uses = vec![0_usize; self.nodes.len()];
        let used = self.nodes.iter().flat_map(operands).chain(self.outputs.iter().copied());
        used.for_each(|id| uses[usize::from(id)] += 1);
        let mut depths = vec![0_usize; self.nodes.len()];
        let mut bound = vec![None; self.nodes.len()];
        let is_taken = |name: &str| {
            self.inputs.iter().any(|input| input == name) || self.parameters.iter().any(|other| other.name == name)
        };
        let mut names = (1..).map(|number| format!("t{number}")).filter(|name| !is_taken(name));
        for (at, node) in self.nodes.iter().enumerate() {
            if !matches!(node, Node::Apply(..) | Node::Cast(..)) {
                continue;
            }
            depths[at] = 1 + operands(node).map(|id| depths[usize::from(id)]).max().unwrap_or(0);
            if uses[at] > 1 || depths[at] > DEEP {
                depths[at] = 0;
                bound[at] = names.next();
            }
        }
        bound
    }
}

struct Printer<'a> {
    definition: &'a Definition,
    bound: Vec<Option<String>>,
}

impl Printer<'_> {
    /// The text of a node. The one that a `let` binds is written as it is computed.
    fn whole(&self, at: usize, is_binding: bool) -> String {
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = match &self.bound[at] {
            Some(name) if !is_binding => text.write_str(name),
            _ => self.node(&mut text, at, 0),
        };
        text
    }

    /// The text of an operand, in brackets unless it is close enough.
    fn operand(&self, text: &mut String, id: Id, closest: u8) -> fmt::Result {
        match &self.bound[usize::from(id)] {
            Some(name) => text.write_str(name),
            None => self.node(text, usize::from(id), closest),
        }
    }

    fn node(&self, text: &mut String, at: usize, closest: u8) -> fmt::Result {
        let node = &self.definition.nodes[at];
        let is_open = closeness(node) < closest;
        if is_open {
            text.write_char('(')?;
        }
        match node {
            Node::Input(at) => text.write_str(&self.definition.inputs[usize::from(*at)])?,
            Node::Parameter(at) => text.write_str(&self.definition.parameters[usize::from(*at)].name)?,
            Node::Number(number) => write!(text, "{}", Written(*number))?,
            Node::Cast(dtype, operand) => {
                let name = DTYPES.iter().find(|(known, _)| known == dtype).map_or("", |(_, name)| name);
                self.call(text, name, &[*operand])?;
            }
            Node::Apply(function, operands) => self.apply(text, *function, operands)?,
        }
        if is_open {
            text.write_char(')')?;
        }
        Ok(())
    }

    fn apply(&self, text: &mut String, function: Function, operands: &[Id]) -> fmt::Result {
        match (sign(function), operator(function), operands) {
            (Some((sign, closeness)), _, &[operand]) => {
                text.write_str(sign)?;
                // A sign before a number would become part of it.
                let is_number = matches!(self.definition.nodes[usize::from(operand)], Node::Number(_));
                self.operand(text, operand, if is_number && sign == "-" { WHOLE + 1 } else { closeness })
            }
            (_, Some((symbol, closeness)), &[left, right]) => {
                let (of_left, of_right) = match closeness {
                    POWER => (POWER + 1, SIGN),
                    super::parse::COMPARISON => (closeness + 1, closeness + 1),
                    _ => (closeness, closeness + 1),
                };
                self.operand(text, left, of_left)?;
                write!(text, " {symbol} ")?;
                self.operand(text, right, of_right)
            }
            _ => self.call(text, function.name(), operands),
        }
    }

    fn call(&self, text: &mut String, name: &str, arguments: &[Id]) -> fmt::Result {
        write!(text, "{name}(")?;
        for (at, &argument) in arguments.iter().enumerate() {
            if at > 0 {
                text.write_str(", ")?;
            }
            self.operand(text, argument, 0)?;
        }
        text.write_char(')')
    }
}

/// The sign of an operation, and how close its operand is.
fn sign(function: Function) -> Option<(&'static str, u8)> {
    match function.name() {
        "neg" => Some(("-", SIGN)),
        "bitwise_not" => Some(("~", SIGN)),
        "logical_not" => Some(("not ", NOT)),
        _ => None,
    }
}

/// The operator of an operation, and how close it is.
fn operator(function: Function) -> Option<(&'static str, u8)> {
    let name = function.name();
    OPERATORS.iter().find(|(.., operation)| *operation == name).map(|(symbol, closeness, _)| (*symbol, *closeness))
}

/// How close a node's text is.
fn closeness(node: &Node) -> u8 {
    match node {
        Node::Apply(function, _) => {
            let sign = sign(*function).map(|(_, closeness)| closeness);
            sign.or(operator(*function).map(|(_, closeness)| closeness)).unwrap_or(WHOLE)
        }
        Node::Number(number) if Written(*number).to_string().starts_with('-') => SIGN,
        _ => WHOLE,
    }
}

/// A number as text.
struct Written(Number);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.scalar() {
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) => float(f, value),
            Scalar::Complex(value) if value.re.to_bits() == 0 && value.im.is_finite() => {
                float(f, value.im)?;
                f.write_char('j')
            }
            Scalar::Complex(value) => {
                f.write_str("complex(")?;
                float(f, value.re)?;
                f.write_str(", ")?;
                float(f, value.im)?;
                f.write_char(')')
            }
        }
    }
}

fn float(f: &mut fmt::Formatter<'_>, value: f64) -> fmt::Result {
    if value.is_nan() { f.write_str("nan") } else { write!(f, "{value:?}") }
}
