//! Expression graphs: how a program for one element is built and checked.
//!
//! **Invariants:** a node refers only to nodes before it. Equal nodes exist once. A [`Program`] is well typed: the
//! builder keeps the first error that was made and [`Graph::finish`] returns it.

mod error;
mod negate;
mod node;

use std::collections::HashMap;

pub use error::GraphError;
pub use node::{Binary, Compare, Node, Unary, Value};

use crate::math::Math;
use crate::types::{Kind, Type};

/// A program for one element while it is being built.
///
/// Building never fails at once. The first mistake is kept, and [`Self::finish`] returns it.
///
/// ```
/// use kernel_ir::{Binary, Graph, GraphError, Type};
///
/// let mut graph = Graph::new();
/// let (a, b) = (graph.input(Type::F32), graph.input(Type::I32));
/// let sum = graph.binary(Binary::Add, a, b);
/// graph.output(sum);
/// assert!(matches!(graph.finish(), Err(GraphError::Mismatch { .. })));
/// ```
#[derive(Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    types: Vec<Type>,
    known: HashMap<Node, Value>,
    inputs: Vec<Type>,
    scalars: Vec<Type>,
    outputs: Vec<Value>,
    error: Option<GraphError>,
    keeps_wide: bool,
    notes: Vec<(u32, String)>,
}

/// A finished program for one element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    nodes: Vec<Node>,
    types: Vec<Type>,
    inputs: Vec<Type>,
    scalars: Vec<Type>,
    outputs: Vec<Value>,
    /// What the nodes from a number on are part of.
    notes: Vec<(u32, String)>,
}

impl Graph {
    /// A graph without a node.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same graph, in which programs that become a part of it ([`Self::inline`]) do not round what goes from one to the
    /// next to 8 or 16 bits: what would be rounded and widened again stays as it was.
    ///
    /// ```
    /// use kernel_ir::{Binary, Graph, Type};
    ///
    /// let mut half = Graph::new();
    /// let a = half.input(Type::BF16);
    /// let (wide, factor) = (half.convert(a, Type::F32), half.float(Type::F32, 0.3));
    /// let product = half.binary(Binary::Mul, wide, factor);
    /// let rounded = half.convert(product, Type::BF16);
    /// half.output(rounded);
    /// let half = half.finish()?;
    /// let twice = |mut graph: Graph| {
    ///     let a = graph.input(Type::BF16);
    ///     let first = graph.inline(&half, &[a], &[]);
    ///     let second = graph.inline(&half, &first, &[]);
    ///     graph.output(second[0]);
    ///     graph.finish().map(|program| program.nodes().len())
    /// };
    /// assert_eq!(twice(Graph::new())?, twice(Graph::new().keeping_wide())? + 1);
    /// # Ok::<(), kernel_ir::GraphError>(())
    /// ```
    #[must_use]
    pub fn keeping_wide(self) -> Self {
        Self { keeps_wide: true, ..self }
    }

    /// Says what the nodes that are added from now on are part of. Texts of fused programs have it as a comment.
    ///
    /// ```
    /// use kernel_ir::pointwise::{Schedule, write};
    /// use kernel_ir::{Graph, Type, Unary};
    ///
    /// let mut graph = Graph::new();
    /// let a = graph.input(Type::F32);
    /// graph.note("sqrt");
    /// let root = graph.unary(Unary::Sqrt, a);
    /// graph.output(root);
    /// let program = graph.finish()?;
    /// let schedule = Schedule::contiguous(&program).for_fused(&program);
    /// assert!(write(&program, &schedule, "root")?.text.contains("// sqrt\n"));
    /// # Ok::<(), kernel_ir::GraphError>(())
    /// ```
    pub fn note(&mut self, operation: &str) {
        let from = small(self.nodes.len());
        self.notes.retain(|(at, _)| *at < from);
        self.notes.push((from, operation.chars().filter(|sign| !sign.is_control()).collect()));
    }

    /// The element of the next input, which has elements of this type.
    pub fn input(&mut self, ty: Type) -> Value {
        let index = small(self.inputs.len());
        self.inputs.push(ty);
        self.add(Node::Input(index), ty)
    }

    /// The next number that a launch gives, the same one for every element.
    pub fn scalar(&mut self, ty: Type) -> Value {
        let index = small(self.scalars.len());
        self.scalars.push(ty);
        self.add(Node::Scalar(index), ty)
    }

    /// A float constant, rounded to the type.
    pub fn float(&mut self, ty: Type, value: f64) -> Value {
        let bits = match ty {
            Type::F64 => value.to_bits(),
            #[expect(clippy::cast_possible_truncation, reason = "a constant is rounded to its type")]
            Type::F32 => u64::from((value as f32).to_bits()),
            _ => return self.refuse(GraphError::Constant { ty }),
        };
        self.add(Node::Constant { bits }, ty)
    }

    /// An integer or boolean constant.
    pub fn int(&mut self, ty: Type, value: i64) -> Value {
        if !ty.is_int() && ty != Type::Bool {
            return self.refuse(GraphError::Constant { ty });
        }
        self.add(Node::Constant { bits: value.cast_unsigned() }, ty)
    }

    /// A constant of any type that programs compute with.
    pub fn number(&mut self, ty: Type, value: i32) -> Value {
        if ty.is_float() { self.float(ty, f64::from(value)) } else { self.int(ty, i64::from(value)) }
    }

    /// The place of the element among all elements, in logical order, as [`Type::I64`].
    pub fn index(&mut self) -> Value {
        self.add(Node::Index, Type::I64)
    }

    /// An operation on one value.
    pub fn unary(&mut self, op: Unary, a: Value) -> Value {
        let ty = self.type_of(a);
        if !op.accepts(ty) {
            return self.refuse(GraphError::Unary { op, ty });
        }
        self.add(Node::Unary(op, a), ty)
    }

    /// An operation on two values of one type.
    pub fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        let (ty, other) = (self.type_of(a), self.type_of(b));
        if ty != other {
            return self.refuse(GraphError::Mismatch { first: ty, second: other });
        }
        if !op.accepts(ty) {
            return self.refuse(GraphError::Binary { op, ty });
        }
        self.add(Node::Binary(op, a, b), ty)
    }

    /// A comparison of two values of one type. With a NaN everything is false but [`Compare::Ne`].
    pub fn compare(&mut self, op: Compare, a: Value, b: Value) -> Value {
        let (ty, other) = (self.type_of(a), self.type_of(b));
        if ty != other {
            return self.refuse(GraphError::Mismatch { first: ty, second: other });
        }
        if ty.kind() == Kind::Short {
            return self.refuse(GraphError::Compare { ty });
        }
        self.add(Node::Compare(op, a, b), Type::Bool)
    }

    /// `a` where the condition is true, else `b`.
    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        let (ty, other) = (self.type_of(a), self.type_of(b));
        if self.type_of(condition) != Type::Bool {
            let first = self.type_of(condition);
            return self.refuse(GraphError::Mismatch { first, second: Type::Bool });
        }
        if ty != other {
            return self.refuse(GraphError::Mismatch { first: ty, second: other });
        }
        self.add(Node::Select(condition, a, b), ty)
    }

    /// `a * b + c` with one rounding; on integers the low half of the product plus `c`.
    pub fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        let ty = self.type_of(a);
        if let Some(second) = [b, c].map(|value| self.type_of(value)).into_iter().find(|&other| other != ty) {
            return self.refuse(GraphError::Mismatch { first: ty, second });
        }
        if !ty.is_float() {
            let product = self.binary(Binary::Mul, a, b);
            return self.binary(Binary::Add, product, c);
        }
        self.add(Node::Fma(a, b, c), ty)
    }

    /// The value in another type, as a C++ cast makes it: integers wrap around, floats lose their fraction towards
    /// zero, and everything but zero is true. Floats of 8 and 16 bits convert by way of
    /// [`Type::F32`].
    pub fn convert(&mut self, a: Value, to: Type) -> Value {
        let from = self.type_of(a);
        if from == to {
            return a;
        }
        let through = from.kind() == Kind::Short || to.kind() == Kind::Short;
        if through && from != Type::F32 && to != Type::F32 {
            let middle = self.convert(a, Type::F32);
            return self.convert(middle, to);
        }
        if to == Type::Bool {
            let zero = self.number(from, 0);
            return self.compare(Compare::Ne, a, zero);
        }
        if from == Type::Bool {
            let (one, zero) = (self.number(to, 1), self.number(to, 0));
            return self.select(a, one, zero);
        }
        self.add(Node::Convert(a), to)
    }

    /// The bits of the value as another type of the same width.
    pub fn bitcast(&mut self, a: Value, to: Type) -> Value {
        let from = self.type_of(a);
        if from == to {
            return a;
        }
        if from.bytes() != to.bytes() || from == Type::Bool || to == Type::Bool {
            return self.refuse(GraphError::Mismatch { first: from, second: to });
        }
        self.add(Node::Bitcast(a), to)
    }

    /// A function of `math`, on floats or integers of 32 or 64 bits.
    pub fn call(&mut self, function: Math, arguments: &[Value]) -> Value {
        let ty = arguments.first().map_or(Type::Bool, |&first| self.type_of(first));
        if arguments.len() != function.arity() || !function.types().contains(&ty) {
            return self.refuse(GraphError::Call { function, ty, given: arguments.len() });
        }
        if let Some(second) = arguments.iter().map(|&value| self.type_of(value)).find(|&other| other != ty) {
            return self.refuse(GraphError::Mismatch { first: ty, second });
        }
        let second = arguments.get(1).copied();
        self.add(Node::Call(function, arguments[0], second), ty)
    }

    /// A constant of any type by its bits, as a launch gives them to a scalar: in the low bytes.
    ///
    /// ```
    /// use kernel_ir::{Graph, Type};
    ///
    /// let mut graph = Graph::new();
    /// let (one, same) = (graph.number(Type::F32, 1), graph.constant(Type::F32, u64::from(1.0_f32.to_bits())));
    /// assert_eq!(one, same);
    /// assert_eq!(graph.constant(Type::I32, 0xffff_ffff), graph.number(Type::I32, -1));
    /// ```
    pub fn constant(&mut self, ty: Type, bits: u64) -> Value {
        let shift = 64 - 8 * u32::try_from(ty.bytes()).unwrap_or(8);
        match ty.kind() {
            Kind::Bool => self.int(ty, i64::from(bits & 1 != 0)),
            Kind::Int { signed: true, .. } => self.int(ty, (bits << shift).cast_signed() >> shift),
            Kind::Int { .. } => self.int(ty, (bits << shift >> shift).cast_signed()),
            Kind::Float => self.add(Node::Constant { bits: bits << shift >> shift }, ty),
            Kind::Short => self.refuse(GraphError::Constant { ty }),
        }
    }

    /// The outputs of a program over values of this graph, which stand for its inputs and its scalars: the program becomes a
    /// part of this one.
    ///
    /// ```
    /// use kernel_ir::{Binary, Graph, Type};
    ///
    /// let mut square = Graph::new();
    /// let a = square.input(Type::F32);
    /// let product = square.binary(Binary::Mul, a, a);
    /// square.output(product);
    /// let square = square.finish()?;
    ///
    /// let mut graph = Graph::new();
    /// let (a, b) = (graph.input(Type::F32), graph.input(Type::F32));
    /// let squares = [a, b].map(|value| graph.inline(&square, &[value], &[])[0]);
    /// let sum = graph.binary(Binary::Add, squares[0], squares[1]);
    /// graph.output(sum);
    /// assert_eq!(graph.finish()?.inputs(), [Type::F32, Type::F32]);
    /// # Ok::<(), kernel_ir::GraphError>(())
    /// ```
    ///
    /// A value that is missing or of another type is a mistake that [`Self::finish`] returns.
    pub fn inline(&mut self, program: &Program, inputs: &[Value], scalars: &[Value]) -> Vec<Value> {
        let mut made: Vec<Value> = Vec::with_capacity(program.nodes.len());
        for (&node, &ty) in program.nodes.iter().zip(&program.types) {
            let value = match node {
                Node::Input(at) => self.standing_for(inputs.get(at as usize), ty),
                Node::Scalar(at) => self.standing_for(scalars.get(at as usize), ty),
                Node::Convert(a) if let Some(wide) = self.before_rounding(made[a.index()], ty) => wide,
                _ => self.add(node.with_operands(|value| made[value.index()]), ty),
            };
            made.push(value);
        }
        program.outputs.iter().map(|output| made[output.index()]).collect()
    }

    /// What was rounded to a value that is to be widened again, where that is kept.
    fn before_rounding(&self, rounded: Value, ty: Type) -> Option<Value> {
        let Some(Node::Convert(wide)) = self.nodes.get(rounded.index()) else { return None };
        let is_short = self.type_of(rounded).kind() == Kind::Short;
        (self.keeps_wide && is_short && self.type_of(*wide) == ty).then_some(*wide)
    }

    fn standing_for(&mut self, value: Option<&Value>, ty: Type) -> Value {
        match value {
            Some(&value) if self.type_of(value) == ty => value,
            Some(&value) => {
                let first = self.type_of(value);
                self.refuse(GraphError::Mismatch { first, second: ty })
            }
            None => self.refuse(GraphError::Mismatch { first: ty, second: Type::Bool }),
        }
    }

    /// Makes the value the next output.
    pub fn output(&mut self, value: Value) {
        self.outputs.push(value);
    }

    /// The type of a value of this graph.
    #[must_use]
    pub fn type_of(&self, value: Value) -> Type {
        self.types.get(value.index()).copied().unwrap_or(Type::Bool)
    }

    /// The finished program.
    ///
    /// # Errors
    /// The first mistake that was made while building, or there is no output.
    pub fn finish(self) -> Result<Program, GraphError> {
        match self.error {
            Some(error) => Err(error),
            None if self.outputs.is_empty() => Err(GraphError::NoOutput),
            None => Ok(Program {
                nodes: self.nodes,
                types: self.types,
                inputs: self.inputs,
                scalars: self.scalars,
                outputs: self.outputs,
                notes: self.notes,
            }),
        }
    }

    fn add(&mut self, node: Node, ty: Type) -> Value {
        // A constant's type is not in its node: constants are shared only where their types agree.
        if let Some(&known) = self.known.get(&node)
            && self.type_of(known) == ty
        {
            return known;
        }
        let value = Value::new(small(self.nodes.len()));
        self.nodes.push(node);
        self.types.push(ty);
        self.known.insert(node, value);
        value
    }

    fn refuse(&mut self, error: GraphError) -> Value {
        self.error.get_or_insert(error);
        // A value that stands for the mistake, so that building can go on.
        self.add(Node::Constant { bits: 0 }, Type::Bool)
    }
}

impl Program {
    /// The nodes, each after those that it uses, with their types.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (Value, Node, Type)> {
        let typed = self.nodes.iter().zip(&self.types).enumerate();
        typed.map(|(at, (&node, &ty))| (Value::new(small(at)), node, ty))
    }

    /// The program without nodes that no output needs. Inputs and scalars keep their numbers.
    ///
    /// ```
    /// use kernel_ir::{Binary, Graph, Type};
    ///
    /// let mut graph = Graph::new();
    /// let (a, b) = (graph.input(Type::F32), graph.input(Type::F32));
    /// let product = graph.binary(Binary::Mul, a, b);
    /// let sum = graph.fma(a, b, b);
    /// graph.output(sum);
    /// let program = graph.finish()?;
    /// assert_eq!((program.nodes().len(), program.clone().without_unused().nodes().len()), (4, 3));
    /// # let _ = product;
    /// # Ok::<(), kernel_ir::GraphError>(())
    /// ```
    #[must_use]
    pub fn without_unused(self) -> Self {
        let mut is_needed = vec![false; self.nodes.len()];
        self.outputs.iter().for_each(|output| is_needed[output.index()] = true);
        // Operands stand before what reads them.
        for at in (0..self.nodes.len()).rev() {
            if is_needed[at] {
                self.nodes[at].operands().for_each(|operand| is_needed[operand.index()] = true);
            }
        }
        let mut count = 0;
        let mut place = |is_needed: &bool| {
            let place = count;
            count += u32::from(*is_needed);
            place
        };
        let new: Vec<u32> = is_needed.iter().map(&mut place).collect();
        let of = |value: Value| Value::new(new[value.index()]);
        let kept = || (0..self.nodes.len()).filter(|at| is_needed[*at]);
        let last = small(kept().count().saturating_sub(1));
        let at = |old: u32| new.get(old as usize).copied().unwrap_or(last);
        Self {
            nodes: kept().map(|at| self.nodes[at].with_operands(of)).collect(),
            types: kept().map(|at| self.types[at]).collect(),
            outputs: self.outputs.iter().copied().map(of).collect(),
            notes: self.notes.iter().map(|(old, note)| (at(*old), note.clone())).collect(),
            inputs: self.inputs,
            scalars: self.scalars,
        }
    }

    /// What the nodes from this one on are part of, where that was said.
    pub(crate) fn note_at(&self, node: Value) -> Option<&str> {
        let at = |(from, _): &(u32, String)| (*from as usize).cmp(&node.index());
        self.notes.binary_search_by(at).ok().map(|found| self.notes[found].1.as_str())
    }

    /// The types of the inputs' elements.
    #[must_use]
    pub fn inputs(&self) -> &[Type] {
        &self.inputs
    }

    /// The types of the scalars.
    #[must_use]
    pub fn scalars(&self) -> &[Type] {
        &self.scalars
    }

    /// The outputs.
    #[must_use]
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// The type of a value.
    #[must_use]
    pub fn type_of(&self, value: Value) -> Type {
        self.types.get(value.index()).copied().unwrap_or(Type::Bool)
    }

    /// The types of the outputs' elements.
    pub fn output_types(&self) -> impl Iterator<Item = Type> {
        self.outputs.iter().map(|&value| self.type_of(value))
    }

    /// Whether any output depends on the element of an input, or is it.
    #[must_use]
    pub fn uses_input(&self, at: usize) -> bool {
        let is_input = |value: Value| self.nodes[value.index()] == Node::Input(small(at));
        self.nodes.iter().flat_map(|node| node.operands()).chain(self.outputs.iter().copied()).any(is_input)
    }

    /// Whether all that reads a value converts it to [`Type::F32`], and something does.
    pub(crate) fn is_only_widened(&self, value: Value) -> bool {
        let mut readers =
            self.nodes.iter().zip(&self.types).filter(|(node, _)| node.operands().any(|read| read == value));
        let is_widening = |(node, ty): (&Node, &Type)| matches!(node, Node::Convert(_)) && *ty == Type::F32;
        let is_read = readers.clone().next().is_some();
        is_read && readers.all(is_widening) && !self.outputs.contains(&value)
    }

    /// Whether any node is the element's index.
    #[must_use]
    pub fn uses_index(&self) -> bool {
        self.nodes.contains(&Node::Index)
    }
}

/// The number of a node, an input or a scalar. A graph with 2^32 of them does not fit into memory.
fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
