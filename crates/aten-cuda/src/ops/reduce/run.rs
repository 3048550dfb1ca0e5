//! From a tensor and dimensions to a launch: dtypes, sizes, outputs and the reduction.

use kernel_ir::reduce::{Last, Pass, Reduction};
use kernel_ir::{Graph, GraphError, Type, Value};
use smallvec::SmallVec;

use super::{Element, Ending, Operation, accumulator};
use crate::base::dtype::DType;
use crate::base::dtype_key::packed;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::scalar::Scalar;
use crate::base::shape::{Dims, contiguous_strides, wrap_dim};
use crate::launch::ProgramKey;
use crate::launch::rows::{self, RowWork};
use crate::ops::pointwise::scalar_bits;
use crate::tensor::{Context, Tensor, check_overlap, empty_strided, is_host, resize_output};

/// Which dimensions a reduction goes over: `()` for all, one number, or several; negative ones count from the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dim(SmallVec<[i64; 4]>);

impl From<()> for Dim {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<i32> for Dim {
    fn from(dim: i32) -> Self {
        Self::from(i64::from(dim))
    }
}

impl From<i64> for Dim {
    fn from(dim: i64) -> Self {
        Self(SmallVec::from_elem(dim, 1))
    }
}

impl From<Option<i64>> for Dim {
    fn from(dim: Option<i64>) -> Self {
        dim.map_or_else(Self::default, Self::from)
    }
}

impl From<&[i64]> for Dim {
    fn from(dims: &[i64]) -> Self {
        Self(SmallVec::from_slice(dims))
    }
}

impl<const N: usize> From<[i64; N]> for Dim {
    fn from(dims: [i64; N]) -> Self {
        Self::from(&dims[..])
    }
}

impl Dim {
    /// Returns the dimensions as given; empty for a reduction over all dimensions.
    pub(crate) fn named(&self) -> &[i64] {
        &self.0
    }

    /// Whether all dimensions are meant.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// The dimensions of a tensor that are meant, in rising order. A tensor without dimensions has none.
    pub(crate) fn of(&self, rank: usize) -> Result<Vec<usize>> {
        if self.is_all() {
            return Ok((0..rank).collect());
        }
        let mut dims: Vec<usize> = Vec::with_capacity(self.0.len());
        for &dim in &self.0 {
            let at = wrap_dim(dim, rank)?;
            if dims.contains(&at) {
                return Err(invalid(format!("dim {at} appears multiple times in the list of dims")));
            }
            dims.push(at);
        }
        dims.retain(|&dim| dim < rank);
        dims.sort_unstable();
        Ok(dims)
    }
}

/// A reduction of a tensor.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) operation: &'static Operation,
    pub(crate) input: &'a Tensor,
    pub(crate) dim: Dim,
    pub(crate) keepdim: bool,
    /// The dtype that the caller asks for.
    pub(crate) dtype: Option<DType>,
    pub(crate) numbers: SmallVec<[Scalar; 2]>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(operation: &'static Operation, input: &'a Tensor, dim: impl Into<Dim>, keepdim: bool) -> Self {
        Self { operation, input, dim: dim.into(), keepdim, dtype: None, numbers: SmallVec::new() }
    }

    pub(crate) fn in_dtype(self, dtype: Option<DType>) -> Self {
        Self { dtype, ..self }
    }

    pub(crate) fn with(self, numbers: &[Scalar]) -> Self {
        Self { numbers: SmallVec::from_slice(numbers), ..self }
    }

    /// Elements of a row.
    pub(crate) fn extent(&self) -> Result<i64> {
        Ok(self.dim.of(self.input.dim())?.iter().map(|&dim| self.input.sizes()[dim]).product())
    }

    /// The sizes of the results: with the dimensions that went away, and as the caller wants them.
    fn sizes(&self, dims: &[usize]) -> (Dims, Dims) {
        let all = self.input.sizes().iter().enumerate();
        let full: Dims = all.map(|(dim, &size)| if dims.contains(&dim) { 1 } else { size }).collect();
        let kept =
            full.iter().enumerate().filter(|(dim, _)| self.keepdim || !dims.contains(dim)).map(|(_, &size)| size);
        let kept = kept.collect();
        (full, kept)
    }

    fn check_not_empty(&self, dims: &[usize]) -> Result<()> {
        if self.operation.of_nothing || self.input.numel() > 0 {
            return Ok(());
        }
        let name = self.operation.name;
        if self.dim.is_all() {
            let arg = matches!(name, "argmax" | "argmin");
            let more = if arg { "" } else { " Specify the reduction dim with the 'dim' argument." };
            return Err(invalid(format!(
                "{name}(): Expected reduction dim to be specified for input.numel() == 0.{more}"
            )));
        }
        let found = if matches!(name, "amax" | "amin") {
            // Named as the caller names it.
            let is_empty = |dim: &&i64| self.input.size(**dim).is_ok_and(|size| size == 0);
            self.dim.named().iter().find(is_empty).copied()
        } else {
            dims.iter().find(|&&dim| self.input.sizes()[dim] == 0).and_then(|&dim| i64::try_from(dim).ok())
        };
        match found {
            Some(dim) => Err(invalid(format!("{name}(): Expected reduction dim {dim} to have non-zero size."))),
            None => Ok(()),
        }
    }

    /// Returns the dtype that is computed in.
    pub(crate) fn computed(&self) -> Result<DType> {
        (self.operation.computed)(self.input.dtype(), self.dtype)
    }

    /// Checks the call in torch's order; returns the dtype that is computed in, and the dimensions.
    fn checked(&self, outputs: &[&Tensor]) -> Result<(DType, Vec<usize>)> {
        let (name, given) = (self.operation.name, self.input.dtype());
        let is_extreme = matches!(name, "amax" | "amin");
        if let Some(out) = outputs.first().map(|out| out.dtype()) {
            let (input, out_name) = (given.scalar_type_name(), out.scalar_type_name());
            if is_extreme && out != given {
                return Err(invalid(format!(
                    "Expected the dtype for input and out to match, but got {input} for input's dtype and {out_name} for out's \
                     dtype."
                )));
            }
            if matches!(name, "any" | "all") && !matches!(out, DType::Bool | DType::U8) {
                return Err(invalid(format!("{name} only supports bool tensor for result, got: {out_name}")));
            }
        }
        // Where the dtype does not depend on a kernel, it is looked at first.
        if matches!(name, "argmax" | "argmin" | "mean" | "var" | "std") || name.starts_with("norm") {
            self.computed()?;
        }
        let dims = self.dim.of(self.input.dim())?;
        self.check_not_empty(&dims)?;
        let computed = match self.computed() {
            // Without elements there is no kernel that could lack the dtype.
            Err(_) if is_extreme && self.input.numel() == 0 && given.is_complex() => given,
            Err(_) if name == "nansum" && self.input.numel() == 0 && given.is_floating_point() => {
                self.dtype.unwrap_or(given)
            }
            found => found?,
        };
        Ok((computed, dims))
    }
}

/// Converts complex input to the real dtype that the caller asks for, which drops the imaginary part before anything is
/// computed, as in torch. Returns `None` if no conversion is needed.
pub(crate) fn made_real(input: &Tensor, asked: Option<DType>, computed: DType) -> Result<Option<Tensor>> {
    let loses = asked.is_some() && input.dtype().is_complex() && !computed.is_complex();
    loses.then(|| input.to_dtype(computed)).transpose()
}

/// The results as new tensors.
pub(crate) fn reduce(call: &Call<'_>) -> Result<SmallVec<[Tensor; 2]>> {
    let (computed, dims) = call.checked(&[])?;
    if let Some(input) = made_real(call.input, call.dtype, computed)? {
        return reduce(&Call { input: &input, ..call.clone() });
    }
    let (_, sizes) = call.sizes(&dims);
    let made: SmallVec<[Tensor; 2]> = (call.operation.results)(call.input.dtype(), computed)
        .into_iter()
        .map(|dtype| empty_strided(&sizes, &contiguous_strides(&sizes), dtype, call.input.device()))
        .collect::<Result<_>>()
        .of(call.operation.name, &[call.input])?;
    if made.iter().any(|result| result.numel() > 0) {
        run(call, &dims, computed, &made.iter().collect::<SmallVec<[&Tensor; 2]>>())
            .of(call.operation.name, &[call.input])?;
    }
    Ok(made)
}

/// The results in tensors that are there already. The dtype of the first one is that which is computed in where the
/// operation takes one and the caller asks for none.
pub(crate) fn reduce_into(call: &Call<'_>, outputs: &[&Tensor]) -> Result<()> {
    let (computed, dims) = call.checked(outputs)?;
    if let Some(input) = made_real(call.input, call.dtype, computed)? {
        return reduce_into(&Call { input: &input, ..call.clone() }, outputs);
    }
    let (_, sizes) = call.sizes(&dims);
    let is_truth = matches!(call.operation.name, "any" | "all");
    let is_truth_of_many = is_truth && call.input.numel() > 1 && is_host(call.input.device());
    if is_truth_of_many && outputs[0].dtype() == DType::U8 && computed != DType::U8 {
        // torch's host converts several elements to the dtype of the output first, so that fractions are lost.
        let input = &call.input.to_dtype(DType::U8)?;
        return reduce_into(&Call { input, ..call.clone() }, outputs);
    }
    for (&output, dtype) in outputs.iter().zip((call.operation.results)(call.input.dtype(), computed)) {
        check_target(output, if is_truth { output.dtype() } else { dtype }, &sizes, call.input)?;
    }
    if call.operation.name == "mean" && is_host(call.input.device()) {
        // torch's host divides the sum in place.
        check_overlap(outputs[0], &[])?;
    }
    if let [output] = outputs
        && check_overlap(output, &[call.input]).is_err()
    {
        // torch accepts an overlap of a single result with its input; the input is copied so that all rows are read
        // before any result is written.
        let input = &call.input.contiguous_copy()?;
        return run(&Call { input, ..call.clone() }, &dims, computed, outputs).of(call.operation.name, &[call.input]);
    }
    outputs.iter().try_for_each(|output| check_overlap(output, &[call.input]))?;
    run(call, &dims, computed, outputs).of(call.operation.name, &[call.input])
}

/// Checks that a result of this dtype can be written to `output`, and resizes it to the result. An overlap with the
/// input is allowed if it is not certain, or if it is element by element.
pub(crate) fn check_output(output: &Tensor, dtype: DType, sizes: &[i64], input: &Tensor) -> Result<()> {
    check_overlap(output, &[])?;
    check_target(output, dtype, sizes, input)?;
    check_overlap(output, &[input])
}

/// Checks an output as [`check_output`] does, whatever memory it shares with the input.
pub(crate) fn check_target(output: &Tensor, dtype: DType, sizes: &[i64], input: &Tensor) -> Result<()> {
    if output.device() != input.device() {
        let (first, second) = (input.device().to_string(), output.device().to_string());
        return Err(TensorError::Devices { first, second }.into());
    }
    if output.dtype() != dtype {
        return Err(dtype_error(dtype, output.dtype()));
    }
    resize_output(output, &[input], sizes, || contiguous_strides(sizes))
}

/// The output has another dtype than the result.
pub(crate) fn dtype_error(wanted: DType, found: DType) -> crate::base::error::Error {
    invalid(format!("Expected out tensor to have dtype {}, but got {} instead", wanted.meta_name(), found.meta_name()))
}

fn run(call: &Call<'_>, dims: &[usize], computed: DType, outputs: &[&Tensor]) -> Result<()> {
    let input = call.input;
    let (full, _) = call.sizes(dims);
    let whole: SmallVec<[Tensor; 2]> =
        outputs.iter().map(|output| with_dims(output, &full, dims)).collect::<Result<_>>()?;
    let whole: SmallVec<[&Tensor; 2]> = whole.iter().collect();
    let results: Vec<DType> = outputs.iter().map(|output| output.dtype()).collect();
    launch(call, computed, &results, Last::Row, dims, &whole, input)
}

/// Launches an operation over rows along these dimensions. The outputs have all dimensions.
pub(crate) fn launch(
    call: &Call<'_>,
    computed: DType,
    results: &[DType],
    last: Last,
    dims: &[usize],
    outputs: &[&Tensor],
    input: &Tensor,
) -> Result<()> {
    let result = |at: usize| results.get(at).copied();
    let dtypes = packed([Some(input.dtype()), Some(computed), result(0), result(1)]);
    let key = ProgramKey::new(call.operation.name, dtypes);
    let reduction = rows::reduction(key, || build(call.operation, input.dtype(), computed, results, last))?;
    let scalars: SmallVec<[u64; 2]> =
        call.numbers.iter().flat_map(|&number| scalar_bits(number, Type::F64, 1)).collect();
    let inputs = [input, &first_of_rows(input, dims)?];
    let inputs = &inputs[..if has_pivot(call.operation, computed) { 2 } else { 1 }];
    rows::run(&RowWork { key, reduction, outputs, inputs, dims, scalars: &scalars })
}

/// Whether the recipe gets the first element of each row.
fn has_pivot(operation: &Operation, computed: DType) -> bool {
    operation.recipe_for(computed).pivots && computed.to_real() != DType::F64
}

/// The first element of each row at all places of the row.
fn first_of_rows(input: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let mut strides = Dims::from_slice(input.strides());
    for &dim in dims {
        strides[dim] = 0;
    }
    input.with_layout(Dims::from_slice(input.sizes()), strides, input.storage_offset())
}

/// A result with a dimension of one element in place of each that went away.
fn with_dims(output: &Tensor, full: &[i64], dims: &[usize]) -> Result<Tensor> {
    let mut strides = Dims::from_slice(output.strides());
    if strides.len() < full.len() {
        for &dim in dims {
            strides.insert(dim, 0);
        }
    }
    output.with_layout(Dims::from_slice(full), strides, output.storage_offset())
}

/// The reduction of a row of the table, for these dtypes.
fn build(
    operation: &Operation,
    input: DType,
    computed: DType,
    results: &[DType],
    last: Last,
) -> std::result::Result<Reduction, GraphError> {
    let ty = accumulator(computed);
    let recipe = operation.recipe_for(computed);
    let identity: Vec<(Type, u64)> = (recipe.start)(ty, input.parts().max(computed.parts()))
        .into_iter()
        .map(|(ty, start)| (ty, start.bits(ty)))
        .collect();
    let scalars = vec![Type::F64; recipe.numbers];
    let pivot = has_pivot(operation, computed);
    let accumulators = |graph: &mut Graph| -> Vec<Value> { identity.iter().map(|&(ty, _)| graph.input(ty)).collect() };

    let mut graph = Graph::new();
    let own = accumulators(&mut graph);
    let element = element(&mut graph, (recipe.placed, pivot), &scalars, input, computed);
    let taken = match recipe.take {
        Some(take) => take(&mut graph, &own, &element),
        None => {
            let other = (recipe.element)(&mut graph, &element);
            (recipe.combine)(&mut graph, &own, &other)
        }
    };
    taken.into_iter().for_each(|value| graph.output(value));
    let accumulate = graph.finish()?;

    let mut graph = Graph::new();
    let (first, second) = (accumulators(&mut graph), accumulators(&mut graph));
    let joined = (recipe.combine)(&mut graph, &first, &second);
    joined.into_iter().for_each(|value| graph.output(value));
    let combine = graph.finish()?;

    let mut graph = Graph::new();
    let own = accumulators(&mut graph);
    let numbers: Vec<Value> = scalars.iter().map(|&ty| graph.scalar(ty)).collect();
    let found = (recipe.finish)(&mut graph, &own, &Ending { numbers, part: results[0].part() });
    let parts = results.iter().flat_map(|dtype| std::iter::repeat_n(dtype.part(), dtype.parts()));
    for (value, part) in found.into_iter().zip(parts) {
        let converted = graph.convert(value, part);
        graph.output(converted);
    }
    let finish = graph.finish()?;
    let inputs = vec![input.part(); input.parts() * if pivot { 2 } else { 1 }];
    Reduction::new(inputs, scalars, vec![Pass { identity, accumulate, combine, finish }], last)
}

/// The element of the input, rounded to the dtype that is computed in.
fn element(
    graph: &mut Graph,
    (placed, pivots): (bool, bool),
    scalars: &[Type],
    input: DType,
    computed: DType,
) -> Element {
    let ty = accumulator(computed);
    let given: Vec<Value> = (0..input.parts()).map(|_| graph.input(input.part())).collect();
    let pivot = pivots.then(|| (0..input.parts()).map(|_| graph.input(input.part())).collect());
    let place = placed.then(|| graph.input(Type::I64));
    let mut parts: Vec<Value> = given
        .into_iter()
        .map(|part| {
            let rounded = graph.convert(part, computed.part());
            graph.convert(rounded, ty)
        })
        .collect();
    if computed.is_complex() && !input.is_complex() {
        parts.push(graph.number(ty, 0));
    }
    let numbers = scalars.iter().map(|&ty| graph.scalar(ty)).collect();
    Element { ty, parts, place, pivot, numbers }
}
