//! Variance and standard deviation: accumulators of several numbers.
//!
//! The variance of complex numbers is that of their real parts and that of their imaginary ones, added. It is rounded
//! before and after that as in torch, which computes one after the other.

use kernel_ir::{Binary, Compare, Graph, Type, Unary, Value};

use super::sums::one;
use super::{Call, Element, Ending, Finish, Operation, Recipe, Start, reduce_into};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, TensorError, invalid, refuse_float8};
use crate::base::scalar::Scalar;
use crate::ops::reduce::run::Dim;
use crate::tensor::Tensor;

static VAR: Operation = Operation {
    name: "var",
    computed: moments_of,
    results: |_, computed| vec![computed.to_real()],
    of_nothing: true,
    complex: None,
    recipe: moments(|graph, set, ending| vec![variance(graph, set, ending)]),
};

static STD: Operation = Operation {
    name: "std",
    computed: moments_of,
    results: |_, computed| vec![computed.to_real()],
    of_nothing: true,
    complex: None,
    recipe: moments(|graph, set, ending| {
        let variance = variance(graph, set, ending);
        vec![graph.unary(Unary::Sqrt, variance)]
    }),
};

/// Accumulators of elements that are computed in `f64` are the mean, the sum of squared distances from it and the count.
/// Of others they are sums in `f64`, of the distances from the first element of the row and of their squares: exact
/// enough, without a division for each element, and zero where all elements are equal.
const fn moments(finish: Finish) -> Recipe {
    Recipe {
        start: |ty, parts| vec![(Type::F64, Start::Zero); parts * if ty == Type::F64 { WELFORD } else { SUMS }],
        element: |graph, element| of_parts(element, |part, pivot| one_element(graph, part, pivot)),
        combine: |graph, a, b| of_sets(a).zip(of_sets(b)).flat_map(|(a, b)| join(graph, a, b)).collect(),
        take: Some(|graph, sets, element| {
            let mut sets = of_sets(sets);
            of_parts(element, |part, pivot| take(graph, sets.next().unwrap_or_default(), part, pivot))
        }),
        finish,
        numbers: 2,
        placed: false,
        pivots: true,
    }
}

/// The rows of the family.
pub(super) static TABLE: &[&Operation] = &[&VAR, &STD];

/// Elements are rounded to the dtype of the result that is asked for, which is a real one.
fn moments_of(dtype: DType, result: Option<DType>) -> Result<DType> {
    if dtype.category() < Category::Floating {
        return Err(invalid("std and var only support floating point and complex dtypes"));
    }
    refuse_float8("std_cuda", result.unwrap_or(dtype))?;
    match result {
        None => Ok(dtype),
        Some(real) if real.is_floating_point() => Ok(if dtype.is_complex() { real.to_complex() } else { real }),
        Some(other) => Err(TensorError::NotImplemented { kernel: "std_cuda".to_owned(), dtype: other }.into()),
    }
}

/// Accumulators of a part that are sums.
const SUMS: usize = 2;
/// Accumulators of a part that are mean, sum of squares and count.
const WELFORD: usize = 3;

/// The accumulators of each part.
fn of_sets(all: &[Value]) -> std::slice::ChunksExact<'_, Value> {
    all.chunks_exact(if all.len().is_multiple_of(WELFORD) { WELFORD } else { SUMS })
}

/// What becomes of each part of an element and of the first one of its row.
fn of_parts(element: &Element, mut each: impl FnMut(Value, Option<Value>) -> Vec<Value>) -> Vec<Value> {
    let pivot = |at: usize| element.pivot.as_ref().map(|pivot| pivot[at]);
    element.parts.iter().enumerate().flat_map(|(at, &part)| each(part, pivot(at))).collect()
}

/// The distance of a part from that of the row's first element.
fn distance(graph: &mut Graph, part: Value, pivot: Value) -> Value {
    let (part, pivot) = (graph.convert(part, Type::F64), graph.convert(pivot, Type::F64));
    graph.binary(Binary::Sub, part, pivot)
}

fn one_element(graph: &mut Graph, part: Value, pivot: Option<Value>) -> Vec<Value> {
    let Some(pivot) = pivot else {
        return vec![part, graph.number(Type::F64, 0), graph.number(Type::F64, 1)];
    };
    let distance = distance(graph, part, pivot);
    vec![distance, graph.binary(Binary::Mul, distance, distance)]
}

/// One element more: by Welford's method where there is no first element to measure from ("Note on a method for
/// calculating corrected sums of squares and products", 1962).
fn take(graph: &mut Graph, set: &[Value], part: Value, pivot: Option<Value>) -> Vec<Value> {
    if let Some(pivot) = pivot {
        let distance = distance(graph, part, pivot);
        return vec![graph.binary(Binary::Add, set[0], distance), graph.fma(distance, distance, set[1])];
    }
    let (mean, squares, count) = (set[0], set[1], set[2]);
    let one = graph.number(Type::F64, 1);
    let count = graph.binary(Binary::Add, count, one);
    let distance = graph.binary(Binary::Sub, part, mean);
    let step = graph.binary(Binary::Div, distance, count);
    let mean = graph.binary(Binary::Add, mean, step);
    let left = graph.binary(Binary::Sub, part, mean);
    vec![mean, graph.fma(distance, left, squares), count]
}

/// The variance of the accumulators of all parts.
fn variance(graph: &mut Graph, all: &[Value], ending: &Ending) -> Value {
    let mut parts: Vec<Value> = of_sets(all).map(|set| variance_of_part(graph, set, &ending.numbers)).collect();
    let first = parts.remove(0);
    parts.into_iter().fold(first, |sum, part| {
        let (sum, part) = (rounded(graph, sum, ending), rounded(graph, part, ending));
        let sum = graph.binary(Binary::Add, sum, part);
        rounded(graph, sum, ending)
    })
}

/// A number of `f64` as the result's type has it.
fn rounded(graph: &mut Graph, value: Value, ending: &Ending) -> Value {
    let result = graph.convert(value, ending.part);
    graph.convert(result, Type::F64)
}

/// The variance of one part; the numbers are what the sum of squares is divided by, and the count.
fn variance_of_part(graph: &mut Graph, set: &[Value], numbers: &[Value]) -> Value {
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
    if a.len() == SUMS {
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
                /// There is no such dimension, it is named twice, the elements are no floats, there is not enough
                /// memory, or the device failed.
                pub fn $name(&self, dim: impl Into<Dim>, correction: impl Into<Scalar>, keepdim: bool) -> Result<Self> {
                    one(&corrected(Call::new(&$row, self, dim, keepdim), correction.into())?)
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] into `out`, to whose dtype elements are rounded first.")]
                ///
                /// # Errors
                /// The operation's own errors; `out` is not a tensor of real floats, or is on another device.
                pub fn $out(&self, dim: impl Into<Dim>, correction: impl Into<Scalar>, keepdim: bool, out: &Self) -> Result<()> {
                    let call = Call::new(&$row, self, dim, keepdim).in_dtype(Some(out.dtype()));
                    reduce_into(&corrected(call, correction.into())?, &[out])
                }
            )*
        }
    };
}

moments! {
    /// The variance of the elements along dimensions (`torch.var`). Of complex elements it is real.
    var, var_out: VAR;
    /// The standard deviation of the elements along dimensions (`torch.std`). Of complex elements it is real.
    std, std_out: STD;
}

/// The call with the number that the sum of squares is divided by: not below zero.
fn corrected(call: Call<'_>, correction: Scalar) -> Result<Call<'_>> {
    call.computed()?;
    #[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
    let count = call.extent()? as f64;
    correction.check_fits(DType::F64)?;
    // The variance of no elements is NaN for every correction.
    let divisor = if count == 0.0 { 0.0 } else { (count - correction.to_f64()).max(0.0) };
    Ok(call.with(&[Scalar::Float(divisor), Scalar::Float(count)]))
}
