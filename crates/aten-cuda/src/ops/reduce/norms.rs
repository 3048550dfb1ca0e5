//! Norms of vectors.

use kernel_ir::{Binary, Compare, Graph, Math, Type, Unary, Value};

use super::sums::one;
use super::{Call, Element, Finish, Operation, Recipe, Start, as_they_are, reduce_into};
use crate::autocast::{self, Policies};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, invalid, refuse_float8};
use crate::base::promotion::promote_types;
use crate::base::scalar::Scalar;
use crate::ops::reduce::run::Dim;
use crate::tensor::Tensor;

const fn norm(name: &'static str, of_nothing: bool, recipe: Recipe) -> Operation {
    Operation {
        name,
        computed: float,
        results: |_, computed| vec![computed.to_real()],
        of_nothing,
        complex: None,
        recipe,
    }
}

/// A recipe whose accumulator is a sum.
const fn summed(element: fn(&mut Graph, &Element) -> Vec<Value>, finish: Finish, numbers: usize) -> Recipe {
    let combine = |graph: &mut Graph, a: &[Value], b: &[Value]| vec![graph.binary(Binary::Add, a[0], b[0])];
    let start = |ty: Type, _: usize| vec![(ty, Start::Zero)];
    Recipe { start, element, combine, take: None, finish, numbers, placed: false, pivots: false }
}

static NONZERO: Operation = norm(
    "norm_0",
    true,
    summed(
        |graph, element| {
            let (size, zero) = (magnitude(graph, element), graph.number(element.ty, 0));
            let counts = graph.compare(Compare::Ne, size, zero);
            vec![graph.convert(counts, element.ty)]
        },
        as_they_are,
        0,
    ),
);

static SUM: Operation = norm("norm_1", true, summed(|graph, element| vec![magnitude(graph, element)], as_they_are, 0));

static EUCLID: Operation = norm(
    "norm_2",
    true,
    Recipe {
        take: Some(|graph, sums, element| {
            vec![element.parts.iter().fold(sums[0], |sum, &part| graph.fma(part, part, sum))]
        }),
        ..summed(
            |graph, element| vec![squares(graph, element)],
            |graph, sums, _| vec![graph.unary(Unary::Sqrt, sums[0])],
            0,
        )
    },
);

static ANY_POWER: Operation = norm(
    "norm_p",
    true,
    summed(
        |graph, element| {
            let size = magnitude(graph, element);
            vec![power(graph, size, element.numbers[0])]
        },
        |graph, sums, ending| vec![power(graph, sums[0], ending.numbers[1])],
        2,
    ),
);

static LARGEST: Operation = norm(
    "norm_inf",
    false,
    Recipe {
        start: |ty, _| vec![(ty, Start::Zero)],
        element: |graph, element| vec![magnitude(graph, element)],
        combine: |graph, a, b| vec![extreme(graph, Compare::Gt, a[0], b[0])],
        take: None,
        finish: as_they_are,
        numbers: 0,
        placed: false,
        pivots: false,
    },
);

static SMALLEST: Operation = norm(
    "norm_minus_inf",
    false,
    Recipe {
        start: |ty, _| vec![(ty, Start::Highest)],
        element: |graph, element| vec![magnitude(graph, element)],
        combine: |graph, a, b| vec![extreme(graph, Compare::Lt, a[0], b[0])],
        take: None,
        finish: as_they_are,
        numbers: 0,
        placed: false,
        pivots: false,
    },
);

/// The rows of the family.
pub(super) static TABLE: &[&Operation] = &[&NONZERO, &SUM, &EUCLID, &ANY_POWER, &LARGEST, &SMALLEST];

fn float(dtype: DType, asked: Option<DType>) -> Result<DType> {
    if dtype.category() < Category::Floating {
        let name = dtype.scalar_type_name();
        let text = "linalg.vector_norm: Expected a floating point or complex tensor as input. Got ";
        return Err(invalid(format!("{text}{name}")));
    }
    if let Some(asked) = asked
        && dtype.is_float8()
    {
        return promote_types(dtype, asked);
    }
    refuse_float8("norm_cuda", dtype)?;
    Ok(asked.unwrap_or(dtype))
}

fn extreme(graph: &mut Graph, better: Compare, a: Value, b: Value) -> Value {
    let (wins, is_nan) = (graph.compare(better, a, b), graph.compare(Compare::Ne, a, a));
    let wins = graph.binary(Binary::Or, wins, is_nan);
    graph.select(wins, a, b)
}

/// The distance of an element from zero.
fn magnitude(graph: &mut Graph, element: &Element) -> Value {
    match *element.parts {
        [real, imaginary] => graph.call(Math::Hypot, &[real, imaginary]),
        _ => graph.unary(Unary::Abs, element.value()),
    }
}

fn power(graph: &mut Graph, base: Value, exponent: Value) -> Value {
    let exponent = graph.convert(exponent, graph.type_of(base));
    graph.call(Math::Pow, &[base, exponent])
}

fn squares(graph: &mut Graph, element: &Element) -> Value {
    let first = graph.binary(Binary::Mul, element.value(), element.value());
    element.parts.iter().skip(1).fold(first, |sum, &part| graph.fma(part, part, sum))
}

impl Tensor {
    /// The norm of the elements along dimensions (`torch.norm`, `torch.linalg.vector_norm`): the `p`th root of the sum
    /// of `p`th powers of magnitudes; for infinity the largest magnitude, for negative infinity the smallest one, for
    /// zero how many are not zero.
    ///
    /// The dimensions are one, several or with `()` all. Elements are converted to `dtype` first, where one is given.
    ///
    /// # Errors
    /// There is no such dimension, it is named twice, the elements are no floats, there are none and the norm is an
    /// infinite one, there is not enough memory, or the device failed.
    pub fn norm(
        &self,
        p: impl Into<Scalar>,
        dim: impl Into<Dim>,
        keepdim: bool,
        dtype: impl Into<Option<DType>>,
    ) -> Result<Self> {
        let (p, dim, dtype) = (p.into(), dim.into(), dtype.into());
        if let Some((_inside, input, dtype)) = autocast::with_dtype(const { Policies::of("norm") }, self, dtype)? {
            return input.norm(p, dim, keepdim, dtype);
        }
        one(&norm_call(self, p, dim, keepdim, dtype)?.in_dtype(dtype))
    }

    /// [`Self::norm`] into `out`.
    ///
    /// # Errors
    /// Those of [`Self::norm`]; `out` has another dtype or is on another device.
    pub fn norm_out(&self, p: impl Into<Scalar>, dim: impl Into<Dim>, keepdim: bool, out: &Self) -> Result<()> {
        reduce_into(&norm_call(self, p.into(), dim.into(), keepdim, None)?, &[out])
    }
}

/// Refuses a dtype that elements cannot be converted to without loss.
fn check_dtype(given: DType, asked: DType) -> Result<()> {
    if given.category() < Category::Floating || given.is_float8() {
        return Ok(());
    }
    let kind = if given.is_complex() { "complex" } else { "real" };
    let (name, own) = (asked.scalar_type_name(), given.scalar_type_name());
    let text = if asked.category() < Category::Floating {
        format!("dtype should be floating point or complex, but got {name}")
    } else if asked.is_complex() != given.is_complex() {
        format!("dtype should be {kind} for {kind} inputs, but got {name}")
    } else if promote_types(given, asked)? != asked {
        format!(
            "the dtype of the input ({own}) should be convertible without narrowing to the specified dtype ({name})"
        )
    } else {
        return Ok(());
    };
    Err(invalid(format!("linalg.vector_norm: {text}")))
}

fn norm_call(input: &Tensor, p: Scalar, dim: Dim, keepdim: bool, dtype: Option<DType>) -> Result<Call<'_>> {
    let order = p.to_f64();
    let (row, numbers): (&'static Operation, Vec<Scalar>) = match order {
        0.0 => (&NONZERO, Vec::new()),
        1.0 => (&SUM, Vec::new()),
        2.0 => (&EUCLID, Vec::new()),
        f64::INFINITY => (&LARGEST, Vec::new()),
        f64::NEG_INFINITY => (&SMALLEST, Vec::new()),
        order => (&ANY_POWER, vec![Scalar::Float(order), Scalar::Float(1.0 / order)]),
    };
    let named: Vec<i64> = dim.named().to_vec();
    let call = Call::new(row, input, dim, keepdim).with(&numbers);
    call.computed()?;
    let has_identity = row.of_nothing && order >= 0.0;
    let is_bare = !has_identity && input.numel() == 0 && input.dtype().category() >= Category::Floating;
    for at in named.iter().filter(|_| is_bare) {
        if input.dim() > 0 && input.size(*at)? == 0 {
            return Err(invalid(format!(
                "linalg.vector_norm cannot compute the {order} norm on the dimension {at}because this dimension is empty and \
                 the operation does not have an identity"
            )));
        }
    }
    if is_bare && call.extent()? == 0 {
        return Err(invalid(format!(
            "linalg.vector_norm cannot compute the {order} norm on an empty tensor because the operation does not have an \
             identity"
        )));
    }
    if let Some(dtype) = dtype {
        check_dtype(input.dtype(), dtype)?;
    }
    Ok(call)
}
