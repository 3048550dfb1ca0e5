//! Operations on whole rows: each element of the result depends on all elements of the row that it lies in.
//!
//! A kernel reads a row once where the row fits into the registers of a block, goes over it in several passes, and
//! writes the result ([`kernel_ir::reduce`]).
//!
//! Reading order: this file (what the families share), `softmax`, `norm` (layer normalisation), `loss` (cross entropy).

mod loss;
mod norm;
mod softmax;

use kernel_ir::reduce::Pass;
use kernel_ir::{Binary, Graph, GraphError, Type, Value};

pub use loss::{CrossEntropy, LossReduction};

use crate::ops::reduce::Start;

/// A pass with one accumulator: `element` gets all inputs and the row values so far, in the type that is computed in.
fn pass(
    ty: Type,
    (start, combine): (Start, Binary),
    taken: &[Type],
    scalars: &[Type],
    element: impl FnOnce(&mut Graph, &[Value]) -> Value,
    finish: impl FnOnce(&mut Graph, Value, &[Value]) -> Vec<Value>,
) -> Result<Pass, GraphError> {
    let mut graph = Graph::new();
    let own = graph.input(ty);
    let given: Vec<Value> = taken.iter().map(|&ty| graph.input(ty)).collect();
    let element = element(&mut graph, &given);
    let joined = graph.binary(combine, own, element);
    graph.output(joined);
    let accumulate = graph.finish()?;

    let mut graph = Graph::new();
    let (first, second) = (graph.input(ty), graph.input(ty));
    let joined = graph.binary(combine, first, second);
    graph.output(joined);
    let combine = graph.finish()?;

    let mut graph = Graph::new();
    let own = graph.input(ty);
    let numbers: Vec<Value> = scalars.iter().map(|&ty| graph.scalar(ty)).collect();
    let found = finish(&mut graph, own, &numbers);
    found.into_iter().for_each(|value| graph.output(value));
    Ok(Pass { identity: vec![(ty, start.bits(ty))], accumulate, combine, finish: graph.finish()? })
}
