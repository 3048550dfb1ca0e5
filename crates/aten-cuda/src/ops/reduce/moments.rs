//! Variance, standard deviation and the logarithm of a sum of exponentials: accumulators of several numbers.

use kernel_ir::{Binary, Compare, Graph, Math, Type, Unary, Value};

use super::sums::{one, over_dimensions};
use super::{Call, Element, Operation, Recipe, Start, as_computed, reduce_into};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, TensorError, invalid};
use crate::base::scalar::Scalar;
use crate::ops::reduce::run::Dim;
use crate::tensor::Tensor;

static VAR: Operation = Operation {
    name: "var",
    computed: moments_of,
    results: as_computed,
    of_nothing: true,
    recipe: moments(|graph, set, numbers| vec![variance(graph, set, numbers)]),
};

static STD: Operation = Operation {
    name: "std",
    computed: moments_of,
    results: as_computed,
    of_nothing: true,
    recipe: moments(|graph, set, numbers| {
        let variance = variance(graph, set, numbers);
        vec![graph.unary(Unary::Sqrt, variance)]
    }),
};

/// Accumulators of elements that are computed in `f64` are the mean, the sum of squared distances from it and the count.
/// Of others they are sums in `f64`, of the distances from the first element of the row and of their squares: exact
/// enough, without a division for each element, and zero where all elements are equal.
const fn moments(finish: fn(&mut Graph, &[Value], &[Value]) -> Vec<Value>) -> Recipe {
    Recipe {
        start: |ty, _| vec![(Type::F64, Start::Zero); if ty == Type::F64 { 3 } else { 2 }],
        element: one_element,
        combine: join,
        take: Some(take),
        finish,
        numbers: 2,
        placed: false,
        pivots: true,
    }
}

static LOGSUMEXP: Operation = Operation {
    name: "logsumexp",
    computed: |dtype, _| match dtype.category() {
        Category::Complex => Err(TensorError::NotImplemented { kernel: "logsumexp".to_owned(), dtype }.into()),
        Category::Floating => Ok(dtype),
        _ => Ok(DType::F32),
    },
    results: as_computed,
    of_nothing: true,
    recipe: LOG_SUM_EXP,
};

/// Accumulators are the largest element and the sum of exponentials of what each is below it.
pub(crate) const LOG_SUM_EXP: Recipe = Recipe {
    start: |ty, _| vec![(ty, Start::Lowest), (ty, Start::Zero)],
    element: |graph, element| vec![element.value(), graph.number(element.ty, 1)],
    combine: join_exponentials,
    take: Some(take_exponential),
    finish: |graph, set, _| {
        let logarithm = graph.call(Math::Log, &[set[1]]);
        vec![graph.binary(Binary::Add, logarithm, set[0])]
    },
    numbers: 0,
    placed: false,
    pivots: false,
};

/// The rows of the family.
pub(super) static TABLE: &[&Operation] = &[&VAR, &STD, &LOGSUMEXP];

fn moments_of(dtype: DType, _: Option<DType>) -> Result<DType> {
    match dtype.category() {
        Category::Floating => Ok(dtype),
        Category::Complex => Err(TensorError::NotImplemented { kernel: "std_cuda".to_owned(), dtype }.into()),
        _ => Err(invalid("std and var only support floating point and complex dtypes")),
    }
}

/// The distance of an element from the first one of its row.
fn distance(graph: &mut Graph, element: &Element) -> Option<Value> {
    let pivot = element.pivot?;
    let (value, pivot) = (graph.convert(element.value(), Type::F64), graph.convert(pivot, Type::F64));
    Some(graph.binary(Binary::Sub, value, pivot))
}

fn one_element(graph: &mut Graph, element: &Element) -> Vec<Value> {
    match distance(graph, element) {
        Some(distance) => vec![distance, graph.binary(Binary::Mul, distance, distance)],
        None => vec![element.value(), graph.number(element.ty, 0), graph.number(element.ty, 1)],
    }
}

/// One element more: by Welford's method where there is no first element to measure from ("Note on a method for
/// calculating corrected sums of squares and products", 1962).
fn take(graph: &mut Graph, set: &[Value], element: &Element) -> Vec<Value> {
    if let Some(distance) = distance(graph, element) {
        return vec![graph.binary(Binary::Add, set[0], distance), graph.fma(distance, distance, set[1])];
    }
    let (mean, squares, count) = (set[0], set[1], set[2]);
    let one = graph.number(element.ty, 1);
    let count = graph.binary(Binary::Add, count, one);
    let distance = graph.binary(Binary::Sub, element.value(), mean);
    let step = graph.binary(Binary::Div, distance, count);
    let mean = graph.binary(Binary::Add, mean, step);
    let left = graph.binary(Binary::Sub, element.value(), mean);
    vec![mean, graph.fma(distance, left, squares), count]
}

/// The variance of accumulators; the numbers are what the sum of squares is divided by, and the count.
fn variance(graph: &mut Graph, set: &[Value], numbers: &[Value]) -> Value {
    let squares = match *set {
        [sum, squares] => {
            let mean = graph.binary(Binary::Div, sum, numbers[1]);
            let (product, zero) = (graph.binary(Binary::Mul, mean, sum), graph.number(Type::F64, 0));
            let left = graph.binary(Binary::Sub, squares, product);
            let below = graph.compare(Compare::Lt, left, zero);
            graph.select(below, zero, left)
        }
        _ => set[1],
    };
    graph.binary(Binary::Div, squares, numbers[0])
}

/// Two sets as one, by Chan's method ("Updating formulae and a pairwise algorithm for computing sample variances",
/// 1979). A set without elements changes nothing.
fn join(graph: &mut Graph, a: &[Value], b: &[Value]) -> Vec<Value> {
    if a.len() == 2 {
        return a.iter().zip(b).map(|(&a, &b)| graph.binary(Binary::Add, a, b)).collect();
    }
    let zero = graph.number(Type::F64, 0);
    let count = graph.binary(Binary::Add, a[2], b[2]);
    let distance = graph.binary(Binary::Sub, b[0], a[0]);
    let weight = graph.binary(Binary::Div, b[2], count);
    let mean = graph.fma(distance, weight, a[0]);
    let squares = graph.binary(Binary::Add, a[1], b[1]);
    let product = graph.binary(Binary::Mul, distance, distance);
    let cross = graph.binary(Binary::Mul, a[2], weight);
    let squares = graph.fma(product, cross, squares);
    let first_is_none = graph.compare(Compare::Eq, a[2], zero);
    let second_is_none = graph.compare(Compare::Eq, b[2], zero);
    let choose = |graph: &mut Graph, joined: Value, at: usize| {
        let other = graph.select(second_is_none, a[at], joined);
        graph.select(first_is_none, b[at], other)
    };
    vec![choose(graph, mean, 0), choose(graph, squares, 1), count]
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

fn join_exponentials(graph: &mut Graph, a: &[Value], b: &[Value]) -> Vec<Value> {
    let largest = larger(graph, a[0], b[0]);
    let (first, second) = (below(graph, a[0], largest), below(graph, b[0], largest));
    let sum = graph.binary(Binary::Mul, b[1], second);
    vec![largest, graph.fma(a[1], first, sum)]
}

/// One element more: whichever of the largest and the element is lower is brought below the other, with one
/// exponential.
fn take_exponential(graph: &mut Graph, set: &[Value], element: &Element) -> Vec<Value> {
    let (value, one) = (element.value(), graph.number(element.ty, 1));
    let grows = graph.compare(Compare::Gt, value, set[0]);
    let largest = larger(graph, set[0], value);
    let lower = graph.select(grows, set[0], value);
    let factor = below(graph, lower, largest);
    let (grown, added) = (graph.fma(set[1], factor, one), graph.binary(Binary::Add, set[1], factor));
    vec![largest, graph.select(grows, grown, added)]
}

over_dimensions! {
    /// The logarithm of the sum of the elements' exponentials along dimensions (`torch.logsumexp`), without overflow:
    /// of integers in `f32`.
    logsumexp, logsumexp_out: &LOGSUMEXP;
}

macro_rules! moments {
    ($($(#[$doc:meta])* $name:ident, $out:ident: $row:ident;)*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// The sum of squared distances is divided by the count less `correction`: 1 for a sample (torch's
                /// default), 0 for everything there is. The dimensions are one, several or with `()` all.
                ///
                /// # Errors
                /// There is no such dimension, it is named twice, the elements are no real floats, there is not enough
                /// memory, or the device failed.
                pub fn $name(&self, dim: impl Into<Dim>, correction: impl Into<Scalar>, keepdim: bool) -> Result<Self> {
                    one(&corrected(Call::new(&$row, self, dim, keepdim), correction.into())?)
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] into `out`.")]
                ///
                /// # Errors
                /// As for the operation, or `out` has another dtype, other sizes than the result or another device.
                pub fn $out(&self, dim: impl Into<Dim>, correction: impl Into<Scalar>, keepdim: bool, out: &Self) -> Result<()> {
                    reduce_into(&corrected(Call::new(&$row, self, dim, keepdim), correction.into())?, &[out])
                }
            )*
        }
    };
}

moments! {
    /// The variance of the elements along dimensions (`torch.var`).
    var, var_out: VAR;
    /// The standard deviation of the elements along dimensions (`torch.std`).
    std, std_out: STD;
}

/// The call with the number that the sum of squares is divided by: not below zero.
fn corrected(call: Call<'_>, correction: Scalar) -> Result<Call<'_>> {
    #[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
    let count = call.extent()? as f64;
    let divisor = (count - correction.to_f64()).max(0.0);
    Ok(call.with(&[Scalar::Float(divisor), Scalar::Float(count)]))
}
