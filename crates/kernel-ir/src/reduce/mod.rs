//! Reductions, row operations and scans: each row of elements goes through one or several passes.
//!
//! A [`Reduction`] says what becomes of a row, whatever dimensions of a tensor the row lies along. Each [`Pass`] brings
//! all elements of the row into a few accumulators and makes row values of them, which later passes read. What comes
//! out is one element of each output for the row, or one for each element of the row ([`Last`]).
//!
//! Reading order: this file (descriptions), `schedule` (how threads share the rows, and the numbers of a launch),
//! `write` (the kernel), `looped` (parts of it in loops), `straight` (none of it), `lanes` (how threads combine what they have), `address` (where elements are), `host` (the same
//! without a GPU).
//!
//! # Order of combination
//! Sums of floats depend on their order, so the order is fixed by the schedule and the sizes alone, never by which block
//! runs first: each thread takes its elements in rising order into one accumulator for each element of its vectors;
//! then those are combined in halves, then the threads of a warp in halves, then the warps in rising order, then, where
//! a row is split up, the parts by a second kernel in the same manner. No atomic operation is used.

mod address;
mod host;
mod lanes;
mod looped;
mod schedule;
mod straight;
mod write;

pub use host::{Place, run};
pub use schedule::{Meta, Numbers, Order, Schedule};
pub use write::write;

use crate::graph::{Graph, GraphError, Program};
use crate::types::Type;

/// One pass over the elements of a row.
///
/// Accumulators have 32 or 64 bits. `combine` must be associative; its first operand is always the one whose elements
/// were taken by a thread of lower number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pass {
    /// The type of each accumulator, and the bits that it begins with: those that change nothing when combined.
    pub identity: Vec<(Type, u64)>,
    /// From accumulators, the inputs' elements, the row values of earlier passes and, where it has one more input, the
    /// place of the element in its row ([`Type::I64`]) to new accumulators.
    pub accumulate: Program,
    /// From two sets of accumulators to one.
    pub combine: Program,
    /// From accumulators to the row values of this pass.
    pub finish: Program,
}

/// What comes out of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Last {
    /// The row values of the last pass, once for the row.
    Row,
    /// For each element what this program makes of the inputs' elements and all row values.
    Each(Program),
    /// For each element the row values of the only pass as they are after that element.
    Running,
}

/// What becomes of a row of elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduction {
    inputs: Vec<Type>,
    scalars: Vec<Type>,
    passes: Vec<Pass>,
    last: Last,
}

impl Reduction {
    /// A reduction of rows of these inputs. The scalars are those that a launch gives; each program has the first few
    /// of them or all.
    ///
    /// # Errors
    /// A program has other inputs, scalars or outputs than its place asks for, or an accumulator has less than 32 bits.
    pub fn new(inputs: Vec<Type>, scalars: Vec<Type>, passes: Vec<Pass>, last: Last) -> Result<Self, GraphError> {
        let made = Self { inputs, scalars, passes, last };
        if made.is_sound() { Ok(made) } else { Err(GraphError::Reduction) }
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

    /// The passes, at least one.
    #[must_use]
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// What comes out.
    #[must_use]
    pub fn last(&self) -> &Last {
        &self.last
    }

    /// The types of the outputs' elements.
    #[must_use]
    pub fn output_types(&self) -> Vec<Type> {
        match &self.last {
            Last::Each(program) => program.output_types().collect(),
            Last::Row | Last::Running => {
                self.passes.last().map(|pass| pass.finish.output_types().collect()).unwrap_or_default()
            }
        }
    }

    /// Whether a pass reads the places of elements, so that they must be visited in logical order of places.
    #[must_use]
    pub fn is_indexed(&self) -> bool {
        let mut values = 0;
        self.passes.iter().any(|pass| {
            let indexed = pass.accumulate.inputs().len() > pass.identity.len() + self.inputs.len() + values;
            values += pass.finish.outputs().len();
            indexed
        })
    }

    /// Whether a pass reads an input. The others are for what comes out for each element alone.
    #[must_use]
    pub fn is_accumulated(&self, input: usize) -> bool {
        self.passes.iter().any(|pass| pass.accumulate.uses_input(pass.identity.len() + input))
    }

    /// Whether rows can be split up: there is one pass, and one result for each row.
    #[must_use]
    pub fn splits(&self) -> bool {
        self.passes.len() == 1 && self.last == Last::Row
    }

    /// The first step of a reduction whose rows are split up: the outputs are the accumulators.
    ///
    /// # Errors
    /// The reduction cannot be split up.
    pub fn partial(&self) -> Result<Self, GraphError> {
        let pass = self.only_pass()?;
        let mut graph = Graph::new();
        for &(ty, _) in &pass.identity {
            let accumulator = graph.input(ty);
            graph.output(accumulator);
        }
        let pass = Pass { finish: graph.finish()?, ..pass.clone() };
        Self::new(self.inputs.clone(), self.scalars.clone(), vec![pass], Last::Row)
    }

    /// The second step: the inputs are the accumulators that the first one stored.
    ///
    /// # Errors
    /// The reduction cannot be split up.
    pub fn merge(&self) -> Result<Self, GraphError> {
        let pass = self.only_pass()?;
        let inputs = pass.identity.iter().map(|&(ty, _)| ty).collect();
        let pass = Pass { accumulate: pass.combine.clone(), ..pass.clone() };
        Self::new(inputs, self.scalars.clone(), vec![pass], Last::Row)
    }

    /// The same reduction for inputs, and with outputs, that lie in memory with the opposite sign: those by number for
    /// which the functions say so.
    #[must_use]
    pub fn negating(&self, input: impl Fn(usize) -> bool, output: impl Fn(usize) -> bool) -> Self {
        let mut made = self.clone();
        for pass in &mut made.passes {
            let before = pass.identity.len();
            let is_input = |at: usize| at.checked_sub(before).is_some_and(|at| at < self.inputs.len() && input(at));
            pass.accumulate = pass.accumulate.negating(is_input, |_| false);
        }
        match (&mut made.last, made.passes.last_mut()) {
            (Last::Each(program), _) => {
                *program = program.negating(|at| at < self.inputs.len() && input(at), output);
            }
            (Last::Row | Last::Running, Some(pass)) => pass.finish = pass.finish.negating(|_| false, output),
            (Last::Row | Last::Running, None) => {}
        }
        made
    }

    /// Nodes of all programs that are for elements.
    fn nodes(&self) -> u64 {
        let each = if let Last::Each(program) = &self.last { program.nodes().len() } else { 0 };
        let passes = self.passes.iter().map(|pass| pass.accumulate.nodes().len());
        passes.chain([each]).map(|nodes| nodes as u64).sum()
    }

    fn only_pass(&self) -> Result<&Pass, GraphError> {
        match self.passes.as_slice() {
            [pass] if self.last == Last::Row => Ok(pass),
            _ => Err(GraphError::Schedule { reason: "rows are split up only with one pass and one result" }),
        }
    }

    fn is_sound(&self) -> bool {
        let mut values = Vec::new();
        for pass in &self.passes {
            if !self.is_pass_sound(pass, &values) {
                return false;
            }
            values.extend(pass.finish.output_types());
        }
        let elements_and_values = self.inputs.iter().chain(&values).copied();
        !self.passes.is_empty()
            && match &self.last {
                Last::Row => true,
                Last::Running => self.passes.len() == 1,
                Last::Each(program) => {
                    self.has_scalars(program) && elements_and_values.eq(program.inputs().iter().copied())
                }
            }
    }

    fn is_pass_sound(&self, pass: &Pass, values: &[Type]) -> bool {
        let types: Vec<Type> = pass.identity.iter().map(|&(ty, _)| ty).collect();
        let wide = types.iter().all(|ty| ty.bytes() >= 4);
        let mut taken: Vec<Type> = types.iter().chain(&self.inputs).chain(values).copied().collect();
        if pass.accumulate.inputs().len() > taken.len() {
            taken.push(Type::I64);
        }
        let programs = [&pass.accumulate, &pass.combine, &pass.finish];
        wide && pass.accumulate.inputs() == taken
            && pass.combine.inputs() == [types.as_slice(), types.as_slice()].concat()
            && pass.finish.inputs() == types
            && pass.accumulate.output_types().eq(types.iter().copied())
            && pass.combine.output_types().eq(types.iter().copied())
            && programs.into_iter().all(|program| self.has_scalars(program) && !program.uses_index())
    }

    fn has_scalars(&self, program: &Program) -> bool {
        self.scalars.starts_with(program.scalars())
    }
}
