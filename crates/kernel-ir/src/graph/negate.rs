//! A program over elements that lie in memory with the opposite sign.

use super::{Graph, Node, Program, Unary, Value};
use crate::types::Kind;

impl Program {
    /// The same program for inputs, and with outputs, that lie in memory with the opposite sign: those by number for which
    /// the functions say so. A sign is turned where an element is read or written, which changes nothing else.
    ///
    /// ```
    /// use kernel_ir::{Binary, Graph, Type, eval};
    ///
    /// let mut graph = Graph::new();
    /// let (a, b) = (graph.input(Type::F32), graph.input(Type::F32));
    /// let sum = graph.binary(Binary::Add, a, b);
    /// graph.output(sum);
    /// let program = graph.finish()?.negating(|input| input == 1, |_| false);
    /// let rows = [3.0_f32, 1.0].map(|number| eval::Row::gather(Type::F32, [&number.to_le_bytes()[..]].into_iter()));
    /// let made = eval::run(&program, &rows, &[], 0, 1);
    /// assert_eq!(made[0].bits(Type::F32, 0), u64::from(2.0_f32.to_bits()));
    /// # Ok::<(), kernel_ir::GraphError>(())
    /// ```
    #[must_use]
    pub fn negating(&self, input: impl Fn(usize) -> bool, output: impl Fn(usize) -> bool) -> Self {
        let mut graph = Graph { inputs: self.inputs.clone(), scalars: self.scalars.clone(), ..Graph::new() };
        let mut made: Vec<Value> = Vec::with_capacity(self.nodes.len());
        for (at, node, ty) in self.nodes() {
            if let Some(operation) = self.note_at(at) {
                graph.note(operation);
            }
            let value = graph.add(node.with_operands(|value| made[value.index()]), ty);
            made.push(match node {
                Node::Input(at) if input(at as usize) => graph.negative(value),
                _ => value,
            });
        }
        for (at, value) in self.outputs.iter().enumerate() {
            let value = made[value.index()];
            let stored = if output(at) { graph.negative(value) } else { value };
            graph.output(stored);
        }
        let Graph { nodes, types, inputs, scalars, outputs, notes, .. } = graph;
        Self { nodes, types, inputs, scalars, outputs, notes }
    }
}

impl Graph {
    /// The value with the opposite sign; booleans, which have none, as they are.
    fn negative(&mut self, value: Value) -> Value {
        let ty = self.type_of(value);
        match ty.kind() {
            Kind::Bool => value,
            Kind::Short => {
                let wide = self.convert(value, crate::types::Type::F32);
                let negative = self.unary(Unary::Neg, wide);
                self.convert(negative, ty)
            }
            Kind::Int { .. } | Kind::Float => self.unary(Unary::Neg, value),
        }
    }
}
