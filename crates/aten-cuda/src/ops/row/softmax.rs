//! Softmax and its logarithm.

use kernel_ir::reduce::{Last, Reduction};
use kernel_ir::{Binary, Graph, GraphError, Math, Type};
use smallvec::SmallVec;

use super::pass;
use crate::autocast::{self, Policies};
use crate::base::dtype::DType;
use crate::base::dtype_key::packed;
use crate::base::error::{Result, TensorError};
use crate::base::shape::{contiguous_strides, wrap_dim};
use crate::launch::ProgramKey;
use crate::launch::rows::{self, RowWork};
use crate::ops::reduce::{Start, check_output};
use crate::tensor::{Context, Tensor, empty_strided};

/// Which of the two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Logarithm,
}

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "softmax",
            Self::Logarithm => "log_softmax",
        }
    }
}

impl Tensor {
    /// The elements' exponentials along a dimension, divided by their sum (`torch.softmax`). Elements are converted to
    /// `dtype` first, where one is given.
    ///
    /// # Errors
    /// There is no such dimension, the elements are no real floats, there is not enough memory, or the device failed.
    pub fn softmax(&self, dim: i64, dtype: impl Into<Option<DType>>) -> Result<Self> {
        made(Form::Plain, self, dim, dtype.into())
    }

    /// [`Self::softmax`] into `out`, in whose dtype it is computed.
    ///
    /// # Errors
    /// Those of [`Self::softmax`]; `out` is on another device.
    pub fn softmax_out(&self, dim: i64, out: &Self) -> Result<()> {
        check_output(out, out.dtype(), self.sizes(), self)?;
        run(Form::Plain, self, dim, out)
    }

    /// The logarithm of [`Self::softmax`] (`torch.log_softmax`), computed without leaving the logarithms.
    ///
    /// # Errors
    /// There is no such dimension, the elements are no real floats, there is not enough memory, or the device failed.
    pub fn log_softmax(&self, dim: i64, dtype: impl Into<Option<DType>>) -> Result<Self> {
        made(Form::Logarithm, self, dim, dtype.into())
    }

    /// [`Self::log_softmax`] into `out`, in whose dtype it is computed.
    ///
    /// # Errors
    /// Those of [`Self::log_softmax`]; `out` is on another device.
    pub fn log_softmax_out(&self, dim: i64, out: &Self) -> Result<()> {
        check_output(out, out.dtype(), self.sizes(), self)?;
        run(Form::Logarithm, self, dim, out)
    }
}

fn made(form: Form, input: &Tensor, dim: i64, dtype: Option<DType>) -> Result<Tensor> {
    // Both are listed alike.
    if let Some((_inside, input, dtype)) = autocast::with_dtype(const { Policies::of("softmax") }, input, dtype)? {
        return made(form, &input, dim, dtype);
    }
    let run = || {
        let dtype = dtype.unwrap_or(input.dtype());
        wrap_dim(dim, input.dim())?;
        let out = empty_strided(input.sizes(), &contiguous_strides(input.sizes()), dtype, input.device())?;
        if input.numel() == 0 && !dtype.is_float8() {
            // Without elements torch looks for no kernel.
            return Ok(out);
        }
        run(form, input, dim, &out)?;
        Ok(out)
    };
    run().of(form.name(), &[input])
}

fn check(dtype: DType) -> Result<()> {
    if dtype.is_floating_point() && !dtype.is_float8() {
        return Ok(());
    }
    Err(TensorError::NotImplemented { kernel: "host_softmax".to_owned(), dtype }.into())
}

fn run(form: Form, input: &Tensor, dim: i64, out: &Tensor) -> Result<()> {
    let at = wrap_dim(dim, input.dim())?;
    check(out.dtype())?;
    if input.dtype().is_complex() {
        check(input.dtype())?;
    }
    let key = ProgramKey::new(form.name(), packed([Some(input.dtype()), Some(out.dtype())]));
    let reduction = rows::reduction(key, || build(form, input.dtype(), out.dtype()))?;
    let dims: SmallVec<[usize; 1]> = Some(at).filter(|&at| at < input.dim()).into_iter().collect();
    rows::run(&RowWork { key, reduction, outputs: &[out], inputs: &[input], dims: &dims, scalars: &[] })
}

/// The largest element, then the sum of exponentials below it, then each element.
fn build(form: Form, input: DType, out: DType) -> std::result::Result<Reduction, GraphError> {
    let (given, ty) = (input.part(), out.compute_type());
    let load = |graph: &mut Graph, value| {
        let rounded = graph.convert(value, out.part());
        graph.convert(rounded, ty)
    };
    let largest = pass(
        ty,
        // With a NaN the sum is one, whatever the largest number is.
        (Start::Lowest, Binary::Max),
        &[given],
        &[],
        |graph, taken| load(graph, taken[0]),
        |_, largest, _| vec![largest],
    )?;
    let sum = pass(
        ty,
        (Start::Zero, Binary::Add),
        &[given, ty],
        &[],
        |graph, taken| {
            let value = load(graph, taken[0]);
            let below = graph.binary(Binary::Sub, value, taken[1]);
            graph.call(Math::Exp, &[below])
        },
        |graph, sum, _| {
            let one = graph.number(ty, 1);
            vec![match form {
                Form::Plain => graph.binary(Binary::Div, one, sum),
                Form::Logarithm => graph.call(Math::Log, &[sum]),
            }]
        },
    )?;
    let mut graph = Graph::new();
    let (value, largest_value, row) = (graph.input(given), graph.input(ty), graph.input(ty));
    let value = load(&mut graph, value);
    let below = graph.binary(Binary::Sub, value, largest_value);
    let result = match form {
        Form::Plain => {
            let exponential = graph.call(Math::Exp, &[below]);
            graph.binary(Binary::Mul, exponential, row)
        }
        Form::Logarithm => graph.binary(Binary::Sub, below, row),
    };
    let result = graph.convert(result, out.part());
    graph.output(result);
    let inputs: Vec<Type> = vec![given];
    Reduction::new(inputs, Vec::new(), vec![largest, sum], Last::Each(graph.finish()?))
}
