//! The largest and the smallest element, and where they are.
//!
//! A NaN counts as larger and as smaller than every number. Of equal elements the first one is meant.

use kernel_ir::{Binary, Compare, Graph, Type, Value};

use super::sums::{one, over_dimensions};
use super::{Call, Element, Operation, Recipe, Start, as_computed, as_they_are, reduce, reduce_into, same};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::shape::wrap_dim;
use crate::tensor::Tensor;

macro_rules! extreme {
    ($value:ident $name:literal, $all:ident $all_name:literal, $with:ident $with_name:literal, $place:ident $place_name:literal:
        $start:ident, $better:ident, $kernel:literal) => {
        static $value: Operation = Operation {
            name: $name,
            computed: |dtype, asked| real(concat!($all_name, "_values_cuda"), dtype, asked),
            results: as_computed,
            of_nothing: false,
            complex: None,
            recipe: Recipe {
                start: |ty, _| vec![(ty, Start::$start)],
                element: |_, element| element.parts.clone(),
                combine: |graph, a, b| vec![extreme(graph, Compare::$better, a[0], b[0])],
                take: None,
                finish: as_they_are,
                numbers: 0,
                placed: false,
                pivots: false,
            },
        };

        static $all: Operation = Operation {
            name: $all_name,
            computed: |dtype, asked| real(concat!($all_name, "_all_cuda"), dtype, asked),
            results: as_computed,
            of_nothing: false,
            complex: None,
            recipe: Recipe {
                start: |ty, _| vec![(ty, Start::$start)],
                element: |_, element| element.parts.clone(),
                combine: |graph, a, b| vec![extreme(graph, Compare::$better, a[0], b[0])],
                take: None,
                finish: as_they_are,
                numbers: 0,
                placed: false,
                pivots: false,
            },
        };

        static $with: Operation = Operation {
            name: $with_name,
            computed: |dtype, asked| match dtype.is_complex() {
                true => Err(invalid(concat!($all_name, "(): does not support complex input"))),
                false => real($kernel, dtype, asked),
            },
            results: |_, computed| vec![computed, DType::I64],
            of_nothing: false,
            complex: None,
            recipe: Recipe {
                start: |ty, _| vec![(ty, Start::$start), (Type::I64, Start::Highest)],
                element: with_place,
                combine: |graph, a, b| extreme_with_place(graph, Compare::$better, a, b),
                take: None,
                finish: as_they_are,
                numbers: 0,
                placed: true,
                pivots: false,
            },
        };

        static $place: Operation = Operation {
            name: $place_name,
            computed: |dtype, asked| match dtype {
                DType::Bool => Err(invalid(concat!($place_name, "(): does not support bool input"))),
                complex if complex.is_complex() => {
                    Err(invalid(concat!($place_name, "(): does not support complex input")))
                }
                _ => real(concat!($place_name, "_cuda"), dtype, asked),
            },
            results: |_, _| vec![DType::I64],
            of_nothing: false,
            complex: None,
            recipe: Recipe {
                start: |ty, _| vec![(ty, Start::$start), (Type::I64, Start::Highest)],
                element: with_place,
                combine: |graph, a, b| extreme_with_place(graph, Compare::$better, a, b),
                take: None,
                finish: |_, accumulators, _| vec![accumulators[1]],
                numbers: 0,
                placed: true,
                pivots: false,
            },
        };
    };
}

extreme! { AMAX "amax", MAX_ALL "max", MAX "max_dim", ARGMAX "argmax": Lowest, Gt, "max_cuda" }
extreme! { AMIN "amin", MIN_ALL "min", MIN "min_dim", ARGMIN "argmin": Highest, Lt, "min_cuda" }

/// The rows of the family.
pub(super) static TABLE: &[&Operation] = &[&AMAX, &AMIN, &MAX_ALL, &MIN_ALL, &MAX, &MIN, &ARGMAX, &ARGMIN];

fn real(kernel: &str, dtype: DType, asked: Option<DType>) -> Result<DType> {
    if dtype.is_complex() || dtype.is_float8() {
        return Err(TensorError::NotImplemented { kernel: kernel.to_owned(), dtype }.into());
    }
    same(dtype, asked)
}

/// The better one of two values; a NaN, if there is one.
fn extreme(graph: &mut Graph, better: Compare, a: Value, b: Value) -> Value {
    let wins = graph.compare(better, a, b);
    let wins = if graph.type_of(a).is_float() {
        let is_nan = graph.compare(Compare::Ne, a, a);
        graph.binary(Binary::Or, wins, is_nan)
    } else {
        wins
    };
    graph.select(wins, a, b)
}

/// An element and its place.
pub(crate) fn with_place(_: &mut Graph, element: &Element) -> Vec<Value> {
    element.parts.iter().copied().chain(element.place).collect()
}

/// The better one of two values with its place; the first of equal ones, and of NaNs.
fn extreme_with_place(graph: &mut Graph, better: Compare, a: &[Value], b: &[Value]) -> Vec<Value> {
    let before = graph.compare(Compare::Lt, a[1], b[1]);
    let better = graph.compare(better, a[0], b[0]);
    let equal = graph.compare(Compare::Eq, a[0], b[0]);
    let (better, equal) = if graph.type_of(a[0]).is_float() {
        let (first, second) = (graph.compare(Compare::Ne, a[0], a[0]), graph.compare(Compare::Ne, b[0], b[0]));
        let both = graph.binary(Binary::And, first, second);
        let second_is_number = graph.unary(kernel_ir::Unary::Not, second);
        let only_first = graph.binary(Binary::And, first, second_is_number);
        (graph.binary(Binary::Or, better, only_first), graph.binary(Binary::Or, equal, both))
    } else {
        (better, equal)
    };
    let tie = graph.binary(Binary::And, equal, before);
    let wins = graph.binary(Binary::Or, better, tie);
    vec![graph.select(wins, a[0], b[0]), graph.select(wins, a[1], b[1])]
}

over_dimensions! {
    /// The largest element along dimensions (`torch.amax`); a NaN, if there is one.
    amax, amax_out: &AMAX;
    /// The smallest element along dimensions (`torch.amin`); a NaN, if there is one.
    amin, amin_out: &AMIN;
}

macro_rules! extreme_methods {
    ($word:literal: $all:ident $all_row:ident, $with:ident $with_out:ident $with_row:ident, $place:ident $place_out:ident $place_row:ident) => {
        impl Tensor {
            #[doc = concat!("The ", $word, " element of all (`torch.", stringify!($all), "`); a NaN, if there is one.")]
            ///
            /// # Errors
            /// There are no elements, they are complex, there is not enough memory, or the device failed.
            pub fn $all(&self) -> Result<Self> {
                one(&Call::new(&$all_row, self, (), false))
            }

            #[doc = concat!("The ", $word, " elements along a dimension, and their places there as `i64` (`torch.", stringify!($all), "`):")]
            /// of equal elements the first one; a NaN, if there is one.
            ///
            /// # Errors
            /// There is no such dimension, it has no elements, they are complex, there is not enough memory, or the
            /// device failed.
            pub fn $with(&self, dim: i64, keepdim: bool) -> Result<(Self, Self)> {
                let mut results = reduce(&checked(&$with_row, self, dim, keepdim)?)?;
                match (results.pop(), results.pop()) {
                    (Some(places), Some(values)) => Ok((values, places)),
                    _ => Err(invalid("there is no result")),
                }
            }

            #[doc = concat!("[`Self::", stringify!($with), "`] into tensors for values and places.")]
            ///
            /// # Errors
            /// The operation's own errors; an output has another dtype or is on another device.
            pub fn $with_out(&self, dim: i64, keepdim: bool, values: &Self, indices: &Self) -> Result<()> {
                reduce_into(&checked(&$with_row, self, dim, keepdim)?, &[values, indices])
            }

            #[doc = concat!("The place of the ", $word, " element along a dimension, or for `None` among all elements in row-major")]
            #[doc = concat!("order (`torch.", stringify!($place), "`), as `i64`: of equal elements the first one; a NaN, if there is one.")]
            ///
            /// # Errors
            /// There is no such dimension, it has no elements, they are booleans or complex, there is not enough
            /// memory, or the device failed.
            pub fn $place(&self, dim: impl Into<Option<i64>>, keepdim: bool) -> Result<Self> {
                one(&Call::new(&$place_row, self, dim.into(), keepdim))
            }

            #[doc = concat!("[`Self::", stringify!($place), "`] into `out`.")]
            ///
            /// # Errors
            /// The operation's own errors; `out` has another dtype or is on another device.
            pub fn $place_out(&self, dim: impl Into<Option<i64>>, keepdim: bool, out: &Self) -> Result<()> {
                reduce_into(&Call::new(&$place_row, self, dim.into(), keepdim), &[out])
            }
        }
    };
}

extreme_methods! { "largest": max MAX_ALL, max_dim max_dim_out MAX, argmax argmax_out ARGMAX }
extreme_methods! { "smallest": min MIN_ALL, min_dim min_dim_out MIN, argmin argmin_out ARGMIN }

/// The call, where the dimension is there and has elements: torch's texts name the operation without `dim`.
fn checked<'a>(operation: &'static Operation, input: &'a Tensor, dim: i64, keepdim: bool) -> Result<Call<'a>> {
    let at = wrap_dim(dim, input.dim())?;
    if input.sizes().get(at) == Some(&0) {
        let name = operation.name.trim_end_matches("_dim");
        return Err(invalid(format!("{name}(): Expected reduction dim {at} to have non-zero size.")));
    }
    Ok(Call::new(operation, input, dim, keepdim))
}
