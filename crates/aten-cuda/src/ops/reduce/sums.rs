//! Sums, products and counts.

use kernel_ir::{Binary, Compare, Graph, Type, Value};

use super::{
    Call, Element, Operation, Recipe, Start, as_computed, as_they_are, check_target, reduce, reduce_into, widened,
};
use crate::autocast::{self, Policies};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, TensorError, invalid, refuse_float8};
use crate::base::promotion::promote_types;
use crate::base::scalar::Scalar;
use crate::ops::reduce::run::Dim;
use crate::tensor::{Tensor, check_overlap, is_host};

pub(crate) static SUM: Operation = Operation {
    name: "sum",
    computed: |dtype, asked| widened("sum_cuda", dtype, asked),
    results: as_computed,
    of_nothing: true,
    complex: None,
    recipe: Recipe {
        start: zeros,
        element: |_, element| element.parts.clone(),
        combine: add_all,
        take: None,
        finish: as_they_are,
        numbers: 0,
        placed: false,
        pivots: false,
    },
};

static NANSUM: Operation = Operation {
    name: "nansum",
    computed: |dtype, asked| match widened("nansum_cuda", dtype, asked)? {
        whole if whole.category() < Category::Floating && dtype.category() >= Category::Floating => {
            Err(TensorError::NotImplemented { kernel: "nansum_cuda".to_owned(), dtype: whole }.into())
        }
        computed => Ok(computed),
    },
    results: as_computed,
    of_nothing: true,
    complex: None,
    recipe: Recipe {
        start: zeros,
        element: zero_for_nan,
        combine: add_all,
        take: None,
        finish: as_they_are,
        numbers: 0,
        placed: false,
        pivots: false,
    },
};

static MEAN: Operation = Operation {
    name: "mean",
    computed: |dtype, asked| {
        let found = asked.unwrap_or(dtype);
        if found.category() >= Category::Floating {
            refuse_float8("mean_cuda", found)?;
            return Ok(found);
        }
        let which = if asked.is_some() { "Optional" } else { "Input" };
        Err(invalid(format!(
            "mean(): could not infer output dtype. {which} dtype must be either a floating point or complex dtype. Got: {}",
            found.scalar_type_name()
        )))
    },
    results: as_computed,
    of_nothing: true,
    complex: None,
    recipe: Recipe {
        start: zeros,
        element: |_, element| element.parts.clone(),
        combine: add_all,
        take: None,
        finish: |graph, sums, ending| sums.iter().map(|&sum| divide(graph, sum, ending.numbers[0])).collect(),
        numbers: 1,
        placed: false,
        pivots: false,
    },
};

pub(crate) static PROD: Operation = Operation {
    name: "prod",
    computed: |dtype, asked| widened("prod_cuda", dtype, asked),
    results: as_computed,
    of_nothing: true,
    complex: None,
    recipe: Recipe {
        start: |ty, parts| [(ty, Start::One), (ty, Start::Zero)][..parts].to_vec(),
        element: |_, element| element.parts.clone(),
        combine: multiply,
        take: None,
        finish: as_they_are,
        numbers: 0,
        placed: false,
        pivots: false,
    },
};

static COUNT_NONZERO: Operation = Operation {
    name: "count_nonzero",
    computed: |dtype, _| Ok(dtype),
    results: |_, _| vec![DType::I64],
    of_nothing: true,
    complex: None,
    recipe: Recipe {
        start: |_, _| vec![(Type::I64, Start::Zero)],
        element: |graph, element| {
            let counts = is_true(graph, element);
            vec![graph.convert(counts, Type::I64)]
        },
        combine: add_all,
        take: None,
        finish: as_they_are,
        numbers: 0,
        placed: false,
        pivots: false,
    },
};

static ANY: Operation = Operation {
    name: "any",
    computed: |dtype, _| refuse_float8("or_cuda", dtype).map(|()| dtype),
    results: truth,
    of_nothing: true,
    complex: None,
    recipe: Recipe {
        start: |_, _| vec![(Type::I32, Start::Zero)],
        element: as_one_or_zero,
        combine: |graph, a, b| vec![graph.binary(Binary::Or, a[0], b[0])],
        take: None,
        finish: as_they_are,
        numbers: 0,
        placed: false,
        pivots: false,
    },
};

static ALL: Operation = Operation {
    name: "all",
    computed: |dtype, _| refuse_float8("and_cuda", dtype).map(|()| dtype),
    results: truth,
    of_nothing: true,
    complex: None,
    recipe: Recipe {
        start: |_, _| vec![(Type::I32, Start::One)],
        element: as_one_or_zero,
        combine: |graph, a, b| vec![graph.binary(Binary::And, a[0], b[0])],
        take: None,
        finish: as_they_are,
        numbers: 0,
        placed: false,
        pivots: false,
    },
};

/// The rows of the family.
pub(super) static TABLE: &[&Operation] = &[&SUM, &NANSUM, &MEAN, &PROD, &COUNT_NONZERO, &ANY, &ALL];

fn zeros(ty: Type, parts: usize) -> Vec<(Type, Start)> {
    vec![(ty, Start::Zero); parts]
}

fn add_all(graph: &mut Graph, a: &[Value], b: &[Value]) -> Vec<Value> {
    a.iter().zip(b).map(|(&a, &b)| graph.binary(Binary::Add, a, b)).collect()
}

fn multiply(graph: &mut Graph, a: &[Value], b: &[Value]) -> Vec<Value> {
    let (&[real, imaginary], &[other, other_imaginary]) = (a, b) else {
        return vec![graph.binary(Binary::Mul, a[0], b[0])];
    };
    let squares = graph.binary(Binary::Mul, imaginary, other_imaginary);
    let product = graph.binary(Binary::Mul, real, other);
    let mixed = graph.binary(Binary::Mul, imaginary, other);
    let crossed = graph.binary(Binary::Mul, real, other_imaginary);
    vec![graph.binary(Binary::Sub, product, squares), graph.binary(Binary::Add, crossed, mixed)]
}

/// The quotient of a float and a number, in `f64`.
fn divide(graph: &mut Graph, float: Value, number: Value) -> Value {
    let float = graph.convert(float, Type::F64);
    graph.binary(Binary::Div, float, number)
}

/// The element, or zero where one of its parts is a NaN.
fn zero_for_nan(graph: &mut Graph, element: &Element) -> Vec<Value> {
    if !element.ty.is_float() {
        return element.parts.clone();
    }
    let is_nan = element.any_part(graph, |graph, part| graph.compare(Compare::Ne, part, part));
    let zero = graph.number(element.ty, 0);
    element.parts.iter().map(|&part| graph.select(is_nan, zero, part)).collect()
}

/// Whether an element is anything but zero.
fn is_true(graph: &mut Graph, element: &Element) -> Value {
    let zero = graph.number(element.ty, 0);
    element.any_part(graph, |graph, part| graph.compare(Compare::Ne, part, zero))
}

fn as_one_or_zero(graph: &mut Graph, element: &Element) -> Vec<Value> {
    let is_true = is_true(graph, element);
    vec![graph.convert(is_true, Type::I32)]
}

/// Bytes have truth as a byte, as torch keeps it for them.
fn truth(dtype: DType, _: DType) -> Vec<DType> {
    vec![if dtype == DType::U8 { DType::U8 } else { DType::Bool }]
}

/// Methods of operations that take a dtype.
macro_rules! sums {
    ($($(#[$doc:meta])* $name:ident, $out:ident: $row:ident, $numbers:expr;)*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// The dimensions are one, several or with `()` all; with `keepdim` each stays with one element.
                /// Elements are converted to `dtype` first, where one is given.
                ///
                /// # Errors
                /// There is no such dimension, it is named twice, the operation is not there for the dtype, there is
                /// not enough memory, or the device failed.
                pub fn $name(&self, dim: impl Into<Dim>, keepdim: bool, dtype: impl Into<Option<DType>>) -> Result<Self> {
                    let policies = const { Policies::of(stringify!($name)) };
                    let (dim, dtype) = (dim.into(), dtype.into());
                    if let Some((_inside, input, dtype)) = autocast::with_dtype(policies, self, dtype)? {
                        return input.$name(dim, keepdim, dtype);
                    }
                    let call = Call::new(&$row, self, dim, keepdim).in_dtype(dtype);
                    if $row.name == "mean" {
                        call.computed()?;
                        if let Some(made) = mean_of_wide(&call)? {
                            return Ok(made);
                        }
                    }
                    let numbers: Vec<Scalar> = $numbers(call.extent()?);
                    one(&call.with(&numbers))
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] into `out`, in whose dtype it is computed.")]
                ///
                /// # Errors
                /// The operation's own errors; `out` is on another device.
                pub fn $out(&self, dim: impl Into<Dim>, keepdim: bool, out: &Self) -> Result<()> {
                    let call = Call::new(&$row, self, dim, keepdim);
                    if $row.name == "mean" {
                        call.computed()?;
                        let has_fractions = out.dtype().category() >= Category::Floating;
                        if self.dtype() != out.dtype() && (!has_fractions || self.dtype().is_floating_point()) {
                            return mean_converted(&call, out);
                        }
                    }
                    let call = call.in_dtype(Some(out.dtype()));
                    let numbers: Vec<Scalar> = $numbers(call.extent()?);
                    reduce_into(&call.with(&numbers), &[out])
                }
            )*
        }
    };
}

/// The mean for another dtype of 16 bits, to which torch's host converts the result and not the elements.
fn mean_of_wide(call: &Call<'_>) -> Result<Option<Tensor>> {
    let own = call.input.dtype();
    let is_short = matches!(call.dtype, Some(DType::F16 | DType::BF16)) && call.dtype != Some(own);
    let Some(asked) = call.dtype.filter(|_| is_short && own.is_floating_point() && !own.is_float8()) else {
        return Ok(None);
    };
    if !is_host(call.input.device()) {
        return Ok(None);
    }
    let wide = call.clone().in_dtype(Some(DType::F32)).with(&the_count(call.extent()?));
    one(&wide)?.to_dtype(asked).map(Some)
}

/// The mean in the dtype that elements and output have in common, converted to the output's.
fn mean_converted(call: &Call<'_>, out: &Tensor) -> Result<()> {
    let dtype = if out.dtype().category() < Category::Floating {
        call.input.dtype()
    } else {
        promote_types(call.input.dtype(), out.dtype())?
    };
    let made = one(&call.clone().in_dtype(Some(dtype)).with(&the_count(call.extent()?)))?;
    check_target(out, out.dtype(), made.sizes(), call.input)?;
    if is_host(out.device()) {
        // torch's host divides the sum in place.
        check_overlap(out, &[])?;
    }
    if out.dtype().category() < Category::Floating {
        return Err(TensorError::CannotCast { from: DType::F32, to: out.dtype() }.into());
    }
    out.copy_(&made).map(drop)
}

fn no_numbers(_: i64) -> Vec<Scalar> {
    Vec::new()
}

fn the_count(extent: i64) -> Vec<Scalar> {
    vec![Scalar::Int(extent)]
}

sums! {
    /// The sum of the elements along dimensions (`torch.sum`): of integers and booleans in `i64`.
    sum, sum_out: SUM, no_numbers;
    /// The sum of the elements that are numbers (`torch.nansum`): NaNs count as zero.
    nansum, nansum_out: NANSUM, no_numbers;
    /// The mean of the elements along dimensions (`torch.mean`); of no elements NaN.
    mean, mean_out: MEAN, the_count;
    /// The product of the elements along dimensions (`torch.prod`): of integers and booleans in `i64`. torch takes one
    /// dimension or all.
    prod, prod_out: PROD, no_numbers;
}

/// Methods of operations that take dimensions alone.
macro_rules! over_dimensions {
    ($($(#[$doc:meta])* $name:ident, $out:ident: $row:expr;)*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// The dimensions are one, several or with `()` all; with `keepdim` each stays with one element.
                ///
                /// # Errors
                /// There is no such dimension, it is named twice, the operation is not there for the dtype or for no
                /// elements, there is not enough memory, or the device failed.
                pub fn $name(&self, dim: impl Into<crate::ops::reduce::Dim>, keepdim: bool) -> Result<Self> {
                    let policies = const { crate::autocast::Policies::of(stringify!($name)) };
                    if let Some((_inside, [input])) = crate::autocast::cast(policies, [self])? {
                        return input.$name(dim, keepdim);
                    }
                    crate::ops::reduce::sums::one(&crate::ops::reduce::Call::new($row, self, dim, keepdim))
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] into `out`.")]
                ///
                /// # Errors
                /// The operation's own errors; `out` has another dtype or is on another device.
                pub fn $out(&self, dim: impl Into<crate::ops::reduce::Dim>, keepdim: bool, out: &Self) -> Result<()> {
                    crate::ops::reduce::reduce_into(&crate::ops::reduce::Call::new($row, self, dim, keepdim), &[out])
                }
            )*
        }
    };
}
pub(super) use over_dimensions;

over_dimensions! {
    /// Whether any element along dimensions is not zero (`torch.any`): a boolean, for `u8` a `u8`. NaN is not zero.
    any, any_out: &ANY;
    /// Whether all elements along dimensions are not zero (`torch.all`): a boolean, for `u8` a `u8`. Of none it is true.
    all, all_out: &ALL;
}

impl Tensor {
    /// How many elements along dimensions are not zero (`torch.count_nonzero`), as `i64`.
    ///
    /// # Errors
    /// There is no such dimension, it is named twice, there is not enough memory, or the device failed.
    pub fn count_nonzero(&self, dim: impl Into<Dim>) -> Result<Self> {
        one(&Call::new(&COUNT_NONZERO, self, dim, false))
    }
}

/// The result of an operation that has one.
pub(crate) fn one(call: &Call<'_>) -> Result<Tensor> {
    reduce(call)?.pop().ok_or_else(|| TensorError::Invalid("there is no result".into()).into())
}
