//! Operations whose result at a place is made of the elements up to it, along one dimension.
//!
//! They are rows of the same kind as reductions. Where elements of a row are neighbours, a device goes over the row in
//! tiles, which the threads of a warp or a block share; else one thread takes a row. The host takes a row in rising
//! order.
//!
//! Running sums and products of long rows have a kernel of their own, in which many blocks share a row. Where rows are
//! too few for a thread each and their elements no neighbours, they are copied to rows of neighbours first.

use kernel_ir::reduce::Last;
use kernel_ir::{Binary, Compare, Graph, Value};
use smallvec::SmallVec;

use super::reduce::exponentials::{LOG_SUM_EXP, LOG_SUM_EXP_SO_FAR};
use super::reduce::extremes::with_place;
use super::reduce::sums::{PROD, SUM};
use super::reduce::{
    Call, Operation, Recipe, Start, as_computed, as_they_are, check_output, launch, made_real, reduce, widened,
};
use crate::autocast::{self, Policies};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, TensorError, invalid, refuse_float8};
use crate::base::shape::{contiguous_strides, wrap_dim};
use crate::launch::library::scan::{self as library, Running};
use crate::tensor::{Context, Signs, Tensor, empty_strided, is_host};

static CUMSUM: Operation = Operation {
    name: "cumsum",
    computed: |dtype, asked| widened("cumsum_cuda", dtype, asked),
    results: as_computed,
    of_nothing: true,
    complex: None,
    recipe: Recipe { ..SUM.recipe },
};

static CUMPROD: Operation = Operation {
    name: "cumprod",
    computed: |dtype, asked| widened("cumprod_cuda", dtype, asked),
    results: as_computed,
    of_nothing: true,
    complex: None,
    recipe: Recipe { ..PROD.recipe },
};

static CUMMAX: Operation = Operation {
    name: "cummax",
    computed: |dtype, _| real("cummax_cuda", dtype),
    results: |_, computed| vec![computed, DType::I64],
    of_nothing: true,
    complex: None,
    recipe: Recipe {
        start: |ty, _| vec![(ty, Start::Lowest), (kernel_ir::Type::I64, Start::Highest)],
        element: with_place,
        combine: |graph, a, b| last_extreme(graph, Compare::Ge, a, b),
        take: None,
        finish: as_they_are,
        numbers: 0,
        placed: true,
        pivots: false,
    },
};

static CUMMIN: Operation = Operation {
    name: "cummin",
    computed: |dtype, _| real("cummin_cuda", dtype),
    results: |_, computed| vec![computed, DType::I64],
    of_nothing: true,
    complex: None,
    recipe: Recipe {
        start: |ty, _| vec![(ty, Start::Highest), (kernel_ir::Type::I64, Start::Highest)],
        element: with_place,
        combine: |graph, a, b| last_extreme(graph, Compare::Le, a, b),
        take: None,
        finish: as_they_are,
        numbers: 0,
        placed: true,
        pivots: false,
    },
};

static LOGCUMSUMEXP: Operation = Operation {
    name: "logcumsumexp",
    computed: |dtype, _| match dtype.category() {
        Category::Floating if !dtype.is_float8() => Ok(dtype),
        Category::Complex if dtype != DType::C32 => Ok(dtype),
        _ => Err(TensorError::NotImplemented { kernel: "logcumsumexp_cuda".to_owned(), dtype }.into()),
    },
    results: as_computed,
    of_nothing: true,
    complex: Some(&LOG_SUM_EXP_SO_FAR),
    recipe: LOG_SUM_EXP,
};

static TABLE: &[&Operation] = &[&CUMSUM, &CUMPROD, &CUMMAX, &CUMMIN, &LOGCUMSUMEXP];

/// Every scan.
pub fn table() -> impl Iterator<Item = &'static Operation> {
    TABLE.iter().copied()
}

fn real(kernel: &str, dtype: DType) -> Result<DType> {
    match dtype.category() {
        Category::Complex => Err(TensorError::NotImplemented { kernel: kernel.to_owned(), dtype }.into()),
        _ => refuse_float8(kernel, dtype).map(|()| dtype),
    }
}

/// The second value where it is as good as the first one; from a NaN on NaNs, of which the last one counts.
fn last_extreme(graph: &mut Graph, as_good: Compare, a: &[Value], b: &[Value]) -> Vec<Value> {
    let wins = graph.compare(as_good, b[0], a[0]);
    let wins = if graph.type_of(a[0]).is_float() {
        let is_nan = graph.compare(Compare::Ne, b[0], b[0]);
        graph.binary(Binary::Or, wins, is_nan)
    } else {
        wins
    };
    vec![graph.select(wins, b[0], a[0]), graph.select(wins, b[1], a[1])]
}

impl Operation {
    /// The results of a row of [`reductions`](crate::reductions) for each row of elements along a dimension, or of
    /// [`scans`](crate::scans) for each element, with ones for the numbers that it takes.
    ///
    /// # Errors
    /// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or the device
    /// failed.
    pub fn apply(&'static self, input: &Tensor, dim: i64) -> Result<Vec<Tensor>> {
        let is_scan = table().any(|row| std::ptr::eq(row, self));
        if is_scan {
            return Ok(scan(self, input, dim, None)?.into_vec());
        }
        let numbers = vec![1.into(); self.recipe_for(input.dtype()).numbers];
        Ok(reduce(&Call::new(self, input, dim, false).with(&numbers))?.into_vec())
    }
}

/// The results as new tensors.
fn scan(
    operation: &'static Operation,
    input: &Tensor,
    dim: i64,
    dtype: Option<DType>,
) -> Result<SmallVec<[Tensor; 2]>> {
    let is_extreme = matches!(operation.name, "cummax" | "cummin");
    if is_extreme && (input.dim() == 0 || input.numel() == 0) && !input.dtype().is_float8() {
        return extremes_of_few(operation.name, input, dim);
    }
    wrap_dim(dim, input.dim())?;
    let computed = checked(operation, input, dtype)?;
    if let Some(input) = made_real(input, dtype, computed)? {
        return scan(operation, &input, dim, dtype);
    }
    let strides = contiguous_strides(input.sizes());
    let made: SmallVec<[Tensor; 2]> = (operation.results)(input.dtype(), computed)
        .into_iter()
        .map(|dtype| empty_strided(input.sizes(), &strides, dtype, input.device()))
        .collect::<Result<_>>()
        .of(operation.name, &[input])?;
    run(operation, input, dim, computed, &made.iter().collect::<SmallVec<[&Tensor; 2]>>())?;
    Ok(made)
}

/// Returns the dtype that is computed in. Sums and products up to each element have no booleans.
fn checked(operation: &'static Operation, input: &Tensor, dtype: Option<DType>) -> Result<DType> {
    let computed = (operation.computed)(input.dtype(), dtype)?;
    if computed == DType::Bool && matches!(operation.name, "cumsum" | "cumprod") && input.dim() > 0 && input.numel() > 0
    {
        let kernel = format!("{}_cuda", operation.name);
        return Err(TensorError::NotImplemented { kernel, dtype: computed }.into());
    }
    Ok(computed)
}

/// The results of a tensor without dimensions or elements, which torch has for every dtype: the elements themselves.
fn extremes_of_few(name: &str, input: &Tensor, dim: i64) -> Result<SmallVec<[Tensor; 2]>> {
    if input.dim() == 0 && !(-1..=0).contains(&dim) {
        return Err(invalid(format!("{name}(): Expected reduction dim -1 or 0 for scalar but got {dim}")));
    }
    Ok(SmallVec::from_vec(vec![input.contiguous_copy()?, Tensor::zeros(input.sizes(), DType::I64, input)?]))
}

/// The results in tensors that are there already.
fn scan_into(
    operation: &'static Operation,
    input: &Tensor,
    dim: i64,
    dtype: Option<DType>,
    outputs: &[&Tensor],
) -> Result<()> {
    let computed = checked(operation, input, dtype)?;
    if let Some(input) = made_real(input, dtype, computed)? {
        return scan_into(operation, &input, dim, dtype, outputs);
    }
    for (&output, dtype) in outputs.iter().zip((operation.results)(input.dtype(), computed)) {
        check_output(output, dtype, input.sizes(), input)?;
    }
    run(operation, input, dim, computed, outputs)
}

fn run(operation: &'static Operation, input: &Tensor, dim: i64, computed: DType, outputs: &[&Tensor]) -> Result<()> {
    let at = wrap_dim(dim, input.dim())?;
    match Plan::of(operation, input, at, computed) {
        Plan::AsTheyAre => rows(operation, input, dim, computed, outputs),
        Plan::Turned => {
            let (input, turned) = (turn(input, at)?.contiguous()?, Turned::of(outputs, at)?);
            rows(operation, &input, -1, computed, &turned.made.iter().collect::<SmallVec<[&Tensor; 2]>>())?;
            turned.finish(outputs, at)
        }
        Plan::Shared(running) => {
            let (input, turned) = (turn(input, at)?.to_dtype(computed)?.packed()?, Turned::of(outputs, at)?);
            if !library::scan(running, &turned.made[0], &input).of(operation.name, &[&input])? {
                rows(operation, &input, -1, computed, &[&turned.made[0]])?;
            }
            turned.finish(outputs, at)
        }
    }
}

/// How a device goes over rows.
enum Plan {
    /// By rows as they lie in memory.
    AsTheyAre,
    /// By rows of neighbours, which are copies.
    Turned,
    /// By rows of neighbours that many blocks share.
    Shared(Running),
}

impl Plan {
    /// Rows from which on a thread for each makes a device busy.
    const MANY_ROWS: i64 = 1 << 15;
    /// Elements of a row from which on copies cost less than what they save.
    const WORTH_TURNING: i64 = 1 << 8;

    fn of(operation: &'static Operation, input: &Tensor, at: usize, computed: DType) -> Self {
        let Some(&n) = input.sizes().get(at) else { return Self::AsTheyAre };
        if is_host(input.device()) || input.numel() == 0 {
            return Self::AsTheyAre;
        }
        let lies_apart = input.strides()[at] != 1;
        let many_threads = lies_apart && input.numel() / n >= Self::MANY_ROWS;
        let running = match operation.name {
            "cumsum" => Some(Running::Sum),
            "cumprod" => Some(Running::Product),
            _ => None,
        };
        match running {
            Some(running) if !many_threads && library::is_long(n, computed) => Self::Shared(running),
            _ if !many_threads && lies_apart && n >= Self::WORTH_TURNING => Self::Turned,
            _ => Self::AsTheyAre,
        }
    }
}

/// Outputs with their rows along the last dimension, one after another: the outputs themselves where they lie so.
struct Turned {
    made: SmallVec<[Tensor; 2]>,
}

impl Turned {
    fn of(outputs: &[&Tensor], at: usize) -> Result<Self> {
        let made = outputs.iter().map(|output| {
            let view = turn(output, at)?;
            let strides = contiguous_strides(view.sizes());
            if view.is_contiguous() && view.signs() == Signs::PLAIN {
                Ok(view)
            } else {
                empty_strided(view.sizes(), &strides, view.dtype(), view.device())
            }
        });
        Ok(Self { made: made.collect::<Result<_>>()? })
    }

    /// Copies what was made elsewhere to the outputs.
    fn finish(&self, outputs: &[&Tensor], at: usize) -> Result<()> {
        for (output, made) in outputs.iter().zip(&self.made) {
            if !made.storage().is_same(output.storage()) {
                turn(output, at)?.copy_(made)?;
            }
        }
        Ok(())
    }
}

/// A view with a dimension as the last one.
fn turn(tensor: &Tensor, at: usize) -> Result<Tensor> {
    tensor.transpose(i64::try_from(at).unwrap_or(0), -1)
}

/// By rows as they lie in memory, each of which one thread, warp or block takes.
fn rows(operation: &'static Operation, input: &Tensor, dim: i64, computed: DType, outputs: &[&Tensor]) -> Result<()> {
    let at = wrap_dim(dim, input.dim())?;
    let dims: SmallVec<[usize; 1]> = Some(at).filter(|&at| at < input.dim()).into_iter().collect();
    let call = Call::new(operation, input, dim, true);
    let results: Vec<DType> = outputs.iter().map(|output| output.dtype()).collect();
    launch(&call, computed, &results, Last::Running, &dims, outputs, input).of(operation.name, &[input])
}

macro_rules! sums {
    ($($(#[$doc:meta])* $name:ident, $in_place:ident, $out:ident: $row:ident;)*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// Elements are converted to `dtype` first, where one is given.
                ///
                /// # Errors
                /// There is no such dimension, the operation is not there for the dtype, there is not enough memory, or
                /// the device failed.
                pub fn $name(&self, dim: i64, dtype: impl Into<Option<DType>>) -> Result<Self> {
                    let (policies, dtype) = (const { Policies::of(stringify!($name)) }, dtype.into());
                    if let Some((_inside, input, dtype)) = autocast::with_dtype(policies, self, dtype)? {
                        return input.$name(dim, dtype);
                    }
                    scan(&$row, self, dim, dtype)?.pop().ok_or_else(|| invalid("there is no result"))
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] in place, in the tensor's dtype.")]
                ///
                /// # Errors
                /// As for the operation, or several elements lie at one place.
                pub fn $in_place(&self, dim: i64) -> Result<&Self> {
                    scan_into(&$row, self, dim, Some(self.dtype()), &[self])?;
                    Ok(self)
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] into `out`, in whose dtype it is computed.")]
                ///
                /// # Errors
                /// The operation's own errors; `out` is on another device.
                pub fn $out(&self, dim: i64, out: &Self) -> Result<()> {
                    scan_into(&$row, self, dim, Some(out.dtype()), &[out])
                }
            )*
        }
    };
}

sums! {
    /// The sums of the elements up to each along a dimension (`torch.cumsum`): of integers and booleans in `i64`.
    cumsum, cumsum_, cumsum_out: CUMSUM;
    /// The products of the elements up to each along a dimension (`torch.cumprod`): of integers and booleans in `i64`.
    cumprod, cumprod_, cumprod_out: CUMPROD;
}

macro_rules! extremes {
    ($($word:literal $name:ident, $out:ident: $row:ident;)*) => {
        impl Tensor {
            $(
                #[doc = concat!("The ", $word, " of the elements up to each along a dimension, and their places there as `i64`")]
                #[doc = concat!("(`torch.", stringify!($name), "`): of equal elements the last one. From a NaN on there are NaNs.")]
                ///
                /// # Errors
                /// There is no such dimension, the elements are complex, there is not enough memory, or the device
                /// failed.
                pub fn $name(&self, dim: i64) -> Result<(Self, Self)> {
                    let mut results = scan(&$row, self, dim, None)?;
                    match (results.pop(), results.pop()) {
                        (Some(places), Some(values)) => Ok((values, places)),
                        _ => Err(invalid("there is no result")),
                    }
                }

                #[doc = concat!("[`Self::", stringify!($name), "`] into tensors for values and places.")]
                ///
                /// # Errors
                /// As for the operation, or an output has another dtype, other sizes or another device.
                pub fn $out(&self, dim: i64, values: &Self, indices: &Self) -> Result<()> {
                    scan_into(&$row, self, dim, None, &[values, indices])
                }
            )*
        }
    };
}

extremes! {
    "largest" cummax, cummax_out: CUMMAX;
    "smallest" cummin, cummin_out: CUMMIN;
}

impl Tensor {
    /// The logarithms of the sums of exponentials of the elements up to each along a dimension
    /// (`torch.logcumsumexp`). The angle of a complex result is that of the element with the largest real part and what the
    /// others turn it by: it may go beyond half a turn, and several such angles differ by whole turns, of which one is taken
    /// that depends on the order of addition on a device (as on an H200 in torch).
    ///
    /// # Errors
    /// There is no such dimension, the elements are no floats or `c32`, there is not enough memory, or the device failed.
    pub fn logcumsumexp(&self, dim: i64) -> Result<Self> {
        scan(&LOGCUMSUMEXP, self, dim, None)?.pop().ok_or_else(|| invalid("there is no result"))
    }

    /// [`Self::logcumsumexp`] into `out`.
    ///
    /// # Errors
    /// As for the operation, or `out` has another dtype, other sizes or another device.
    pub fn logcumsumexp_out(&self, dim: i64, out: &Self) -> Result<()> {
        scan_into(&LOGCUMSUMEXP, self, dim, None, &[out])
    }
}
