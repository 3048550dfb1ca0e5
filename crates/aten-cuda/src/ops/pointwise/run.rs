//! From operands to a launch: dtypes, devices, sizes, the output and the program.

use std::sync::Arc;

use c10_core::Device;
use kernel_ir::{Graph, GraphError, Kind, Program, Type, Value};
use smallvec::SmallVec;

use super::{Build, Layout, Operation, OutputDType, Pair, Participating, Rule, limit, whole};
use crate::autocast;
use crate::base::dtype::{Category, DType};
use crate::base::dtype_key::packed;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::promotion::Participants;
use crate::base::scalar::Scalar;
use crate::base::shape::{self, Dims};
use crate::iterate::{self, OperandLayout};
use crate::launch::{self, ProgramKey, Work};
use crate::ops::copy::preserved_strides;
use crate::tensor::{
    Context, Operand, Tensor, check_overlap, empty_strided, is_host, repeats, resize_output, scalar_bytes, scalar_of,
};

/// What an operand is once the device is known: a tensor there, or a number.
#[derive(Clone, Copy)]
enum Given<'a> {
    Tensor(&'a Tensor),
    Number(Scalar),
}

/// An operation that is ready to run but for its output.
pub(super) struct Prepared<'a> {
    operation: &'static Operation,
    given: SmallVec<[Given<'a>; 3]>,
    /// The operation's own numbers.
    numbers: &'a [Scalar],
    pub(super) common: DType,
    sizes: Dims,
    device: Device,
}

/// An operation with all that it is given: operands and numbers in arrays, or in [`Several`] where it depends on the
/// arguments how many there are.
pub(crate) struct Call<O, N> {
    operation: &'static Operation,
    operands: O,
    numbers: N,
}

/// As many operands or numbers as an operation has.
pub(crate) type Several<T> = SmallVec<[T; 3]>;

impl<'a, O: AsRef<[Operand<'a>]>, N: AsRef<[Scalar]>> Call<O, N> {
    #[inline]
    pub(crate) fn new(operation: &'static Operation, operands: O, numbers: N) -> Self {
        Self { operation, operands, numbers }
    }

    /// The result as a new tensor.
    #[inline]
    pub(crate) fn made(self) -> Result<Tensor> {
        elementwise(self.operation, self.operands.as_ref(), self.numbers.as_ref())
    }

    /// Writes the result into the first operand.
    #[inline]
    pub(crate) fn written_in_place(self, tensor: &Tensor) -> Result<()> {
        if self.operation.rule == Rule::Real && tensor.dtype().is_complex() {
            let name = self.operation.name;
            return Err(invalid(format!("In-place {name} is not supported for complex tensors.")));
        }
        self.written(tensor)
    }

    /// The result in a tensor that is there already.
    #[inline]
    pub(crate) fn written(self, out: &Tensor) -> Result<()> {
        elementwise_into(self.operation, self.operands.as_ref(), self.numbers.as_ref(), out, Output::InPlace)
    }

    /// Writes the result into an output tensor, which is resized to the result.
    #[inline]
    pub(crate) fn written_out(self, out: &Tensor) -> Result<()> {
        elementwise_into(self.operation, self.operands.as_ref(), self.numbers.as_ref(), out, Output::Resized)
    }
}

impl<'a> Call<Several<Operand<'a>>, Several<Scalar>> {
    /// A call whose number of operands depends on the arguments.
    pub(crate) fn of_several(
        operation: &'static Operation,
        operands: impl IntoIterator<Item = Operand<'a>>,
        numbers: impl IntoIterator<Item = Scalar>,
    ) -> Self {
        Self::new(operation, operands.into_iter().collect(), numbers.into_iter().collect())
    }
}

/// The operation's result as a new tensor.
pub(super) fn elementwise(
    operation: &'static Operation,
    operands: &[Operand<'_>],
    numbers: &[Scalar],
) -> Result<Tensor> {
    if autocast::is_active()
        && operation.autocast.is_listed()
        && let Some((_inside, cast)) = autocast::cast_operands(operation.autocast, operands)?
    {
        return elementwise(operation, &cast.each(), numbers);
    }
    match whole::new(operation, operands, numbers) {
        Ok(Some(made)) => Ok(made.into_tensor()),
        Ok(None) => new(operation, operands, numbers).of_operands(operation.name, operands),
        Err(error) => Err(error).of_operands(operation.name, operands),
    }
}

fn new(operation: &'static Operation, operands: &[Operand<'_>], numbers: &[Scalar]) -> Result<Tensor> {
    let prepared = Prepared::new(operation, operands, numbers)?;
    let strides = prepared.strides(operands);
    let out = empty_strided(&prepared.sizes, &strides, operation.rule.result(prepared.common), prepared.device)?;
    prepared.run(&out)?;
    Ok(out)
}

/// Treatment of an output whose sizes differ from the result's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// It is refused: it is the first operand.
    InPlace,
    /// The output is resized to the result.
    Resized,
}

/// The operation's result in a tensor that is there already.
fn elementwise_into(
    operation: &'static Operation,
    operands: &[Operand<'_>],
    numbers: &[Scalar],
    out: &Tensor,
    kind: Output,
) -> Result<()> {
    let run = || {
        if whole::write(operation, operands, numbers, out)? {
            return Ok(());
        }
        if operation.name == "nan_to_num" && kind == Output::InPlace && out.dtype().category() < Category::Floating {
            return Ok(());
        }
        if operation.name == "masked_fill" && kind == Output::InPlace && repeats(out) {
            return fill_repeated(&Prepared::new(operation, operands, numbers)?, out, numbers);
        }
        let prepared = Prepared::for_output(operation, operands, numbers, Some((out, kind)))?;
        resize_output(out, &prepared.tensors(), &prepared.sizes, || prepared.strides(operands))?;
        prepared.run(out)
    };
    run().of_operands(operation.name, operands)
}

/// Runs `masked_fill_` on a tensor with repeated elements: an element is filled if the mask is true at any of its
/// places.
#[cold]
fn fill_repeated(prepared: &Prepared<'_>, out: &Tensor, numbers: &[Scalar]) -> Result<()> {
    prepared.check_place(out)?;
    let (Some(&mask), Some(&value)) = (prepared.tensors().first(), numbers.first()) else { return Ok(()) };
    c10_core::warn(
        "Use of masked_fill_ on expanded tensors is deprecated. Please clone() the tensor before performing this \
         operation. This also applies to advanced indexing e.g. tensor[mask] = scalar",
    );
    let own = out.without_repeats()?;
    let dims = (0..out.dim()).filter(|&dim| own.sizes()[dim] != out.sizes()[dim]);
    let dims: Vec<i64> = dims.map(|dim| i64::try_from(dim).unwrap_or(0)).collect();
    let named = mask.expand(out.sizes())?.any(dims.as_slice(), true)?;
    own.masked_fill_(&named, value).map(drop)
}

/// Returns the layout of an operand after a conversion to the common dtype. Conditions are not converted.
fn converted_layout(tensor: &Tensor, common: DType, keeps_bools: bool) -> OperandLayout {
    let strides = match tensor.dtype() {
        kept if kept == common || keeps_bools && kept == DType::Bool => Dims::from_slice(tensor.strides()),
        _ => preserved_strides(tensor),
    };
    OperandLayout::of(tensor, Dims::from_slice(tensor.sizes()), strides)
}

impl<'a> Prepared<'a> {
    pub(super) fn new(operation: &'static Operation, operands: &[Operand<'a>], numbers: &'a [Scalar]) -> Result<Self> {
        Self::for_output(operation, operands, numbers, None)
    }

    /// Checks the call in torch's order: what the operation itself refuses, memory that the output shares, sizes, dtypes of
    /// the output, and whether there is a kernel for the dtype.
    pub(super) fn for_output(
        operation: &'static Operation,
        operands: &[Operand<'a>],
        numbers: &'a [Scalar],
        output: Option<(&Tensor, Output)>,
    ) -> Result<Self> {
        if operands.len() != operation.arity || numbers.len() != operation.numbers {
            let (given, wanted) = (operands.len() + numbers.len(), operation.arity + operation.numbers);
            return Err(invalid(format!("{} takes {wanted} arguments, not {given}", operation.name)));
        }
        let (given, device) = place(operands)?;
        let common = common_dtype(operation, operands)?;
        let dtypes: SmallVec<[DType; 3]> = operands.iter().map(Operand::default_dtype).collect();
        let participating = Participating { common, dtypes: &dtypes, numbers, on_host: is_host(device) };
        refuse((operation.check)(&participating))?;
        let mut prepared = Self { operation, given, numbers, common, sizes: Dims::new(), device };
        if let Some((out, _)) = output {
            prepared.check_early(out)?;
            // torch copies real magnitudes of complex numbers to an output that has got their sizes.
            let is_copied = operation.name == "abs" && common.is_complex() && !out.dtype().is_complex();
            if is_copied {
                prepared.check_place(out)?;
            }
            if !is_copied || prepared.tensors().iter().all(|tensor| tensor.sizes() == out.sizes()) {
                check_overlap(out, &prepared.tensors())?;
            }
        }
        for tensor in prepared.tensors() {
            if prepared.sizes.as_slice() != tensor.sizes() {
                prepared.sizes = shape::broadcast(&prepared.sizes, tensor.sizes())?;
            }
        }
        if let Some((out, kind)) = output {
            prepared.check_sizes(out, kind)?;
            prepared.check_place(out)?;
        }
        refuse((operation.late_check)(&participating))?;
        if !operation.accepts(common) {
            return Err(TensorError::NotImplemented { kernel: operation.kernel.to_owned(), dtype: common }.into());
        }
        limit::check(operation, common, operands, numbers, is_host(device))?;
        Ok(prepared)
    }

    fn tensors(&self) -> SmallVec<[&'a Tensor; 3]> {
        self.given
            .iter()
            .filter_map(|given| if let Given::Tensor(tensor) = given { Some(*tensor) } else { None })
            .collect()
    }

    /// Returns the strides of a new result.
    fn strides(&self, operands: &[Operand<'_>]) -> Dims {
        let (operation, tensors) = (self.operation, self.tensors());
        let is_number = |operand: &Operand<'_>| matches!(operand, Operand::Number(_));
        let beside_number = match operation.name {
            // A number as exponent is no operand in torch.
            "pow" | "pow_two" | "pow_half" => operands.first().is_some_and(is_number),
            _ => operation.wraps_numbers && operands.iter().any(is_number),
        };
        let computed = operation.rule.computed(self.common);
        let on_host = is_host(self.device);
        let is_integral = self.common.category() <= Category::Integral;
        match (operation.layout, tensors.first()) {
            (Layout::Rows, _) => shape::contiguous_strides(&self.sizes),
            (Layout::Copied, _) if on_host && operation.name == "logsigmoid" => shape::contiguous_strides(&self.sizes),
            (Layout::Converted, _) => {
                let converted: SmallVec<[OperandLayout; 3]> =
                    tensors.iter().map(|tensor| converted_layout(tensor, self.common, true)).collect();
                let converted: SmallVec<[&OperandLayout; 3]> = converted.iter().collect();
                iterate::result_strides(&self.sizes, &converted, beside_number)
            }
            (Layout::Copied, Some(first)) => preserved_strides(first),
            (Layout::CopiedIntegers, Some(first)) if is_integral => preserved_strides(first),
            // torch's host converts operands before it looks at their layout, its device on the way.
            (Layout::Visited, Some(_)) if on_host && !operation.takes_condition => {
                let converted: SmallVec<[OperandLayout; 3]> =
                    tensors.iter().map(|tensor| converted_layout(tensor, computed, false)).collect();
                let converted: SmallVec<[&OperandLayout; 3]> = converted.iter().collect();
                iterate::result_strides(&self.sizes, &converted, beside_number)
            }
            _ => iterate::result_strides(&self.sizes, &tensors, beside_number),
        }
    }

    /// Checks the dtype of an output where torch does so before all else.
    fn check_early(&self, out: &Tensor) -> Result<()> {
        let (found, expected) = (out.dtype().scalar_type_name(), self.common.scalar_type_name());
        match self.operation.name {
            "signbit" if out.dtype() != DType::Bool => Err(invalid("signbit does not support non-boolean outputs.")),
            "nan_to_num" if out.dtype() != self.common => {
                Err(invalid(format!("nan_to_num: dtype of out: {found} should be same as input: {expected}")))
            }
            // torch's host has the kernel's own text.
            "logsigmoid" if is_host(self.device) && !self.operation.accepts(self.common) => {
                let kernel = "log_sigmoid_cpu".to_owned();
                Err(TensorError::NotImplemented { kernel, dtype: self.common }.into())
            }
            "logsigmoid" if is_host(self.device) && out.dtype() != self.common => {
                Err(invalid(format!("expected scalar type {expected} but found {found}")))
            }
            _ => Ok(()),
        }
    }

    /// Checks the sizes of an output, which stay if it is one of the operands.
    fn check_sizes(&self, out: &Tensor, kind: Output) -> Result<()> {
        let stays = kind == Output::InPlace || self.tensors().iter().any(|operand| std::ptr::eq(*operand, out));
        if stays && out.sizes() != self.sizes.as_slice() {
            let (output, result) = (out.sizes().to_vec(), self.sizes.to_vec());
            return Err(TensorError::OutputShape { output, result }.into());
        }
        Ok(())
    }

    /// Checks that the result can be cast to the dtype of `out`, and that both are on one device.
    fn check_place(&self, out: &Tensor) -> Result<()> {
        let result = self.operation.rule.result(self.common);
        check_output_dtype(self.operation.output, self.common, result, out.dtype())?;
        if result.category() > out.dtype().category() {
            return Err(TensorError::CannotCast { from: result, to: out.dtype() }.into());
        }
        if out.device() != self.device {
            let (first, second) = (self.device.to_string(), out.device().to_string());
            return Err(TensorError::Devices { first, second }.into());
        }
        Ok(())
    }

    /// The program whose result goes into a tensor of this dtype, and its name.
    pub(super) fn program(&self, out: DType) -> Result<(ProgramKey, Arc<Program>)> {
        let key = ProgramKey::new(self.operation.name, self.variant(out));
        let kinds = self.kinds();
        Ok((key, launch::program(key, || program(self.operation, self.common, &kinds, out))?))
    }

    /// Refuses a zero among the integers that the host divides by. A device answers as CUDA's instructions do.
    fn check_divisor(&self) -> Result<()> {
        let is_checked = self.operation.divides && is_host(self.device) && self.common.is_integral();
        if !is_checked || self.sizes.contains(&0) {
            return Ok(());
        }
        let has_zero = match self.given.last() {
            Some(Given::Number(number)) => scalar_bytes(*number, self.common).iter().all(|&byte| byte == 0),
            Some(Given::Tensor(divisor)) => {
                let bytes = divisor.to_dtype(self.common)?.to_bytes()?;
                bytes.chunks_exact(self.common.itemsize()).any(|element| element.iter().all(|&byte| byte == 0))
            }
            None => false,
        };
        match has_zero {
            true => Err(TensorError::ZeroDivision { operation: self.operation.name }.into()),
            false => Ok(()),
        }
    }

    fn run(&self, out: &Tensor) -> Result<()> {
        self.check_divisor()?;
        let computed = self.operation.rule.computed(self.common);
        let (key, program) = self.program(out.dtype())?;
        let own = self.given.iter().enumerate().filter_map(|(at, given)| match given {
            Given::Number(number) => Some((self.operation.read_as(at, computed), self.rounded(*number))),
            Given::Tensor(_) => None,
        });
        let all = own.chain(self.numbers.iter().map(|&number| (computed, self.rounded(number))));
        let scalars: SmallVec<[u64; 4]> =
            all.flat_map(|(dtype, number)| scalar_bits(number, dtype.compute_type(), dtype.parts())).collect();
        let inputs = self.tensors();
        let work = Work { key, program, outputs: &[out], inputs: &inputs, scalars: &scalars };
        launch::run(&work, &self.sizes)
    }

    /// A number as the operation takes it. torch's host rounds those of sums of short floats to the dtype, its device
    /// does not.
    fn rounded(&self, number: Scalar) -> Scalar {
        let is_sum = matches!(self.operation.name, "add" | "sub" | "add_alpha" | "sub_alpha");
        match self.common {
            DType::F16 | DType::BF16 if is_sum && is_host(self.device) => {
                scalar_of(&scalar_bytes(number, self.common), self.common)
            }
            _ => number,
        }
    }

    /// The dtype of each operand that is a tensor.
    fn kinds(&self) -> SmallVec<[Option<DType>; 3]> {
        let kind = |given: &Given<'_>| if let Given::Tensor(tensor) = given { Some(tensor.dtype()) } else { None };
        self.given.iter().map(kind).collect()
    }

    /// Packs the dtypes that the program depends on besides the operation, which takes at most three operands.
    fn variant(&self, out: DType) -> u64 {
        let kinds = self.kinds();
        let kind = |at: usize| kinds.get(at).copied().flatten();
        packed([Some(out), Some(self.common), kind(0), kind(1), kind(2)])
    }
}

impl Operation {
    /// What is computed of real numbers.
    fn real_build(&self, is_by_number: bool) -> Build<Value> {
        self.by_number.filter(|_| is_by_number).unwrap_or(self.build)
    }

    /// What is computed of complex numbers.
    fn complex_build(&self, is_by_number: bool) -> Option<Build<Pair>> {
        self.complex_by_number.filter(|_| is_by_number).or(self.complex)
    }

    /// The dtype that an operand is read as.
    pub(super) fn read_as(&self, at: usize, computed: DType) -> DType {
        if self.takes_condition && at == 0 { DType::Bool } else { computed }
    }
}

/// The program of an operation on tensors of one dtype.
pub(super) fn program_of(operation: &'static Operation, dtype: DType) -> std::result::Result<Program, GraphError> {
    let kinds: Vec<Option<DType>> = (0..operation.arity).map(|at| Some(operation.read_as(at, dtype))).collect();
    program(operation, dtype, &kinds, operation.rule.result(dtype))
}

/// The program of an operation on operands of these dtypes, where there is none for a number.
fn program(
    operation: &'static Operation,
    common: DType,
    kinds: &[Option<DType>],
    out: DType,
) -> std::result::Result<Program, GraphError> {
    let mut graph = Graph::new();
    let computed = operation.rule.computed(common);
    // Inputs are numbered before scalars are asked for, in the order of the operands.
    let loaded: Vec<Option<Pair>> = kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| kind.map(|dtype| load(&mut graph, dtype, operation.read_as(at, computed))))
        .collect();
    let mut values: Vec<Pair> = Vec::new();
    for (at, loaded) in loaded.into_iter().enumerate() {
        let rounds = operation.rounds_numbers;
        values.push(match loaded {
            Some(pair) => pair,
            None => number(&mut graph, operation.read_as(at, computed), rounds),
        });
    }
    for _ in 0..operation.numbers {
        let pair = number(&mut graph, computed, false);
        values.push(pair);
    }
    let is_by_number = kinds.last().is_some_and(Option::is_none);
    let result = match operation.complex_build(is_by_number) {
        Some(build) if computed.is_complex() => {
            let (real, imaginary) = build(&mut graph, computed, &values);
            // Booleans and magnitudes are real, so a complex output gets a zero imaginary part.
            let is_real = !operation.rule.result(common).is_complex();
            (real, if is_real { graph.number(ty_or_float(&graph, real), 0) } else { imaginary })
        }
        _ => {
            let reals: Vec<Value> = values.iter().map(|&(real, _)| real).collect();
            let real = operation.real_build(is_by_number)(&mut graph, computed, &reals);
            (real, graph.number(ty_or_float(&graph, real), 0))
        }
    };
    let own = operation.rule.result(common);
    // The result is rounded to its own dtype before it is stored in a wider output.
    let result = match own {
        own if own == out || own == DType::Bool => result,
        own => (graph.convert(result.0, own.part()), graph.convert(result.1, own.part())),
    };
    store(&mut graph, result, own, out);
    graph.finish()
}

/// Returns the dtype that the operands have in common.
fn common_dtype(operation: &'static Operation, operands: &[Operand<'_>]) -> Result<DType> {
    let mut participants = Participants::default();
    for operand in operands.iter().skip(usize::from(operation.takes_condition)) {
        match operand {
            Operand::Tensor(tensor) => participants.tensor(tensor.dtype(), tensor.dim())?,
            Operand::Number(number) => participants.number(*number),
        }
    }
    participants.result()
}

/// Refuses a call with a text, if there is one.
fn refuse(text: Option<String>) -> Result<()> {
    text.map_or(Ok(()), |text| Err(invalid(text)))
}

/// Rejects an output whose dtype differs from the result's, for the operations for which torch does so.
fn check_output_dtype(rule: OutputDType, common: DType, result: DType, out: DType) -> Result<()> {
    let fits = match rule {
        OutputDType::Cast => true,
        OutputDType::Equal => out == result,
        OutputDType::EqualOrReal => out == result || common.is_complex() && (!out.is_complex() || out == common),
    };
    if fits {
        return Ok(());
    }
    let (found, expected) = (out.scalar_type_name(), common.scalar_type_name());
    Err(invalid(format!("Found dtype {found} but expected {expected}")))
}

/// The type of a value, or one that constants exist of.
fn ty_or_float(graph: &Graph, value: Value) -> Type {
    let ty = graph.type_of(value);
    if ty.kind() == Kind::Short { Type::F32 } else { ty }
}

/// A tensor's element in the type that is computed in, rounded to the common dtype on the way.
fn load(graph: &mut Graph, dtype: DType, computed: DType) -> Pair {
    let ty = computed.compute_type();
    let parts: SmallVec<[Value; 2]> = (0..dtype.parts()).map(|_| graph.input(dtype.part())).collect();
    let mut converted = |value| {
        let rounded = graph.convert(value, computed.part());
        graph.convert(rounded, ty)
    };
    let real = converted(parts[0]);
    let imaginary = match parts.get(1) {
        Some(&imaginary) => converted(imaginary),
        None => graph.number(ty, 0),
    };
    (real, imaginary)
}

/// A number that the launch gives.
fn number(graph: &mut Graph, computed: DType, rounds: bool) -> Pair {
    let ty = computed.compute_type();
    let mut part = || {
        let given = graph.scalar(ty);
        let rounded = if rounds { graph.convert(given, computed.part()) } else { given };
        graph.convert(rounded, ty)
    };
    let real = part();
    if computed.is_complex() {
        return (real, part());
    }
    (real, graph.number(ty, 0))
}

/// Makes the result the program's output in the dtype of the tensor that it goes into.
pub(crate) fn store(graph: &mut Graph, result: Pair, from: DType, to: DType) {
    // A result of another category is rounded to its own dtype before it is cast.
    let mut rounded = |value| {
        if from.category() == to.category() || from == DType::Bool { value } else { graph.convert(value, from.part()) }
    };
    let (real, imaginary) = (rounded(result.0), rounded(result.1));
    if to == DType::Bool && from.is_complex() {
        let (real, imaginary) = (graph.convert(real, Type::Bool), graph.convert(imaginary, Type::Bool));
        let any = graph.binary(kernel_ir::Binary::Or, real, imaginary);
        return graph.output(any);
    }
    for half in [real, imaginary].into_iter().take(to.parts()) {
        let converted = graph.convert(half, to.part());
        graph.output(converted);
    }
}

/// The operands on the device that they are on. Host tensors without dimensions stand for their number beside tensors
/// of a device.
fn place<'a>(operands: &[Operand<'a>]) -> Result<(SmallVec<[Given<'a>; 3]>, Device)> {
    let tensors = || {
        operands.iter().filter_map(|operand| if let Operand::Tensor(tensor) = operand { Some(*tensor) } else { None })
    };
    let on_device = tensors().any(|tensor| !is_host(tensor.device()));
    let as_number = |tensor: &Tensor| on_device && tensor.dim() == 0 && is_host(tensor.device());
    let device = launch::common_device(tensors().filter(|tensor| !as_number(tensor)))?;
    let given = operands.iter().map(|operand| {
        Ok(match operand {
            Operand::Tensor(tensor) if as_number(tensor) => Given::Number(tensor.item()?),
            Operand::Tensor(tensor) => Given::Tensor(tensor),
            Operand::Number(number) => Given::Number(*number),
        })
    });
    let host = Device { kind: c10_core::DeviceType::Cpu, index: None };
    Ok((given.collect::<Result<_>>()?, device.unwrap_or(host)))
}

/// The bits of a number in the type that is computed in, one word for each part.
#[expect(clippy::cast_possible_truncation, reason = "a number is rounded to the type")]
pub(crate) fn scalar_bits(number: Scalar, ty: Type, parts: usize) -> SmallVec<[u64; 2]> {
    let word = |value: f64| match ty {
        Type::F32 => u64::from((value as f32).to_bits()),
        _ => value.to_bits(),
    };
    match ty {
        Type::F32 | Type::F64 => [number.to_f64(), number.imaginary()].into_iter().take(parts).map(word).collect(),
        Type::Bool => SmallVec::from_elem(u64::from(number.is_true()), 1),
        _ => SmallVec::from_elem(number.to_i64().cast_unsigned(), 1),
    }
}
