//! The logarithm of a sum of exponentials, of all elements and of those up to each.
//!
//! Accumulators are the largest element (of complex ones the largest real part) and the sum of exponentials of what each
//! element is below it.

use kernel_ir::{Binary, Compare, Graph, Math, Unary, Value};

use super::sums::over_dimensions;
use super::{Element, Operation, Recipe, Start, as_computed, as_they_are};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, refuse_float8};
use crate::ops::pointwise::complex;
use crate::tensor::Tensor;

static LOGSUMEXP: Operation = Operation {
    name: "logsumexp",
    computed: |dtype, _| {
        refuse_float8("max_values_cuda", dtype)?;
        Ok(if dtype.category() >= Category::Floating { dtype } else { DType::F32 })
    },
    results: as_computed,
    of_nothing: true,
    recipe: LOG_SUM_EXP,
    complex: Some(&Recipe {
        start: |ty, _| vec![(ty, Start::Lowest), (ty, Start::Zero), (ty, Start::Zero)],
        element: |graph, element| {
            let largest = element.value();
            let finite = finite(graph, largest);
            let below = graph.binary(Binary::Sub, largest, finite);
            let (real, imaginary) = complex::exp(graph, (below, element.parts[1]));
            vec![largest, real, imaginary]
        },
        combine: join_complex,
        take: None,
        finish: |graph, set, _| {
            let (real, angle) = complex::log(graph, (set[1], set[2]));
            let largest = finite(graph, set[0]);
            vec![graph.binary(Binary::Add, real, largest), angle]
        },
        ..LOG_SUM_EXP
    }),
};

/// The logarithm of the sum of real elements' exponentials.
pub(crate) const LOG_SUM_EXP: Recipe = Recipe {
    start: |ty, _| vec![(ty, Start::Lowest), (ty, Start::Zero)],
    element: |graph, element| vec![element.value(), graph.number(element.ty, 1)],
    combine: join,
    take: Some(take),
    finish: |graph, set, _| {
        let logarithm = graph.call(Math::Log, &[set[1]]);
        vec![graph.binary(Binary::Add, logarithm, set[0])]
    },
    numbers: 0,
    placed: false,
    pivots: false,
};

/// The same of complex elements for each place of a row. The accumulators are the logarithm itself, as in torch: its angle
/// is that of the largest element and what the others turn it by, so that it may go beyond half a turn.
pub(crate) const LOG_SUM_EXP_SO_FAR: Recipe = Recipe {
    start: |ty, _| vec![(ty, Start::Lowest), (ty, Start::Zero)],
    element: |_, element| element.parts.clone(),
    combine: |graph, a, b| {
        let (real, imaginary) = complex::log_add_exp_before(graph, (b[0], b[1]), (a[0], a[1]));
        vec![real, imaginary]
    },
    take: None,
    finish: as_they_are,
    ..LOG_SUM_EXP
};

/// The rows of the family.
pub(super) static TABLE: &[&Operation] = &[&LOGSUMEXP];

over_dimensions! {
    /// The logarithm of the sum of the elements' exponentials along dimensions (`torch.logsumexp`), without overflow:
    /// of integers in `f32`. The angle of a complex result lies within half a turn.
    logsumexp, logsumexp_out: &LOGSUMEXP;
}

/// What a sum of exponentials below one largest element is below a larger one.
fn below(graph: &mut Graph, from: Value, to: Value) -> Value {
    let ty = graph.type_of(from);
    let distance = graph.binary(Binary::Sub, from, to);
    let factor = graph.call(Math::Exp, &[distance]);
    let (same, one) = (graph.compare(Compare::Eq, from, to), graph.number(ty, 1));
    // The distance of infinities would be a NaN.
    graph.select(same, one, factor)
}

fn larger(graph: &mut Graph, a: Value, b: Value) -> Value {
    let (wins, is_nan) = (graph.compare(Compare::Gt, a, b), graph.compare(Compare::Ne, a, a));
    let wins = graph.binary(Binary::Or, wins, is_nan);
    graph.select(wins, a, b)
}

fn join(graph: &mut Graph, a: &[Value], b: &[Value]) -> Vec<Value> {
    let largest = larger(graph, a[0], b[0]);
    let (first, second) = (below(graph, a[0], largest), below(graph, b[0], largest));
    let sum = graph.binary(Binary::Mul, b[1], second);
    vec![largest, graph.fma(a[1], first, sum)]
}

/// A number, or zero for an infinity.
fn finite(graph: &mut Graph, value: Value) -> Value {
    let ty = graph.type_of(value);
    let magnitude = graph.unary(Unary::Abs, value);
    let (infinity, zero) = (graph.float(ty, f64::INFINITY), graph.number(ty, 0));
    let is_infinite = graph.compare(Compare::Eq, magnitude, infinity);
    graph.select(is_infinite, zero, value)
}

fn join_complex(graph: &mut Graph, a: &[Value], b: &[Value]) -> Vec<Value> {
    let largest = larger(graph, a[0], b[0]);
    let (first, second) = (below(graph, a[0], largest), below(graph, b[0], largest));
    let sums = [1, 2].map(|part| {
        let sum = graph.binary(Binary::Mul, b[part], second);
        graph.fma(a[part], first, sum)
    });
    vec![largest, sums[0], sums[1]]
}

/// One element more: whichever of the largest and the element is lower is brought below the other, with one
/// exponential.
fn take(graph: &mut Graph, set: &[Value], element: &Element) -> Vec<Value> {
    let (value, one) = (element.value(), graph.number(element.ty, 1));
    let grows = graph.compare(Compare::Gt, value, set[0]);
    let largest = larger(graph, set[0], value);
    let lower = graph.select(grows, set[0], value);
    let factor = below(graph, lower, largest);
    let (grown, added) = (graph.fma(set[1], factor, one), graph.binary(Binary::Add, set[1], factor));
    vec![largest, graph.select(grows, grown, added)]
}
