//! From operands to a launch: dtypes, devices, sizes, the output and the program.

use c10_core::Device;
use kernel_ir::{Graph, GraphError, Program, Type, Value};
use smallvec::SmallVec;

use super::{Operation, Pair};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};
use crate::base::promotion::Participants;
use crate::base::scalar::Scalar;
use crate::base::shape::{self, Dims};
use crate::iterate;
use crate::launch::{self, ProgramKey, Work};
use crate::tensor::{Operand, Tensor, empty_strided, is_host};

/// What an operand is once the device is known: a tensor there, or a number.
#[derive(Clone, Copy)]
enum Given<'a> {
    Tensor(&'a Tensor),
    Number(Scalar),
}

/// An operation that is ready to run but for its output.
struct Prepared<'a> {
    operation: &'static Operation,
    given: SmallVec<[Given<'a>; 3]>,
    /// The operation's own numbers.
    numbers: &'a [Scalar],
    common: DType,
    sizes: Dims,
    device: Device,
}

/// The operation's result as a new tensor.
pub(crate) fn elementwise(
    operation: &'static Operation,
    operands: &[Operand<'_>],
    numbers: &[Scalar],
) -> Result<Tensor> {
    let prepared = Prepared::new(operation, operands, numbers)?;
    let tensors = prepared.tensors();
    let beside_number = operands.iter().any(|operand| matches!(operand, Operand::Number(_)));
    let strides = iterate::result_strides(&prepared.sizes, &tensors, beside_number);
    let out = empty_strided(&prepared.sizes, &strides, operation.rule.result(prepared.common), prepared.device)?;
    prepared.run(&out)?;
    Ok(out)
}

/// The operation's result in a tensor that is there already.
pub(crate) fn elementwise_into(
    operation: &'static Operation,
    operands: &[Operand<'_>],
    numbers: &[Scalar],
    out: &Tensor,
) -> Result<()> {
    let prepared = Prepared::new(operation, operands, numbers)?;
    prepared.check_output(out)?;
    prepared.run(out)
}

impl<'a> Prepared<'a> {
    fn new(operation: &'static Operation, operands: &[Operand<'a>], numbers: &'a [Scalar]) -> Result<Self> {
        let (given, device) = place(operands)?;
        let mut participants = Participants::default();
        let mut sizes = Dims::new();
        for operand in operands {
            match operand {
                Operand::Tensor(tensor) => {
                    participants.tensor(tensor.dtype(), tensor.dim());
                    if sizes.as_slice() != tensor.sizes() {
                        sizes = shape::broadcast(&sizes, tensor.sizes())?;
                    }
                }
                Operand::Number(number) => participants.number(*number),
            }
        }
        let common = participants.result();
        let computed = operation.rule.computed(common);
        let is_there = if computed.is_complex() { operation.complex.is_some() } else { operation.accepts(common) };
        if !is_there {
            return Err(TensorError::NotImplemented { kernel: operation.kernel.to_owned(), dtype: common }.into());
        }
        Ok(Self { operation, given, numbers, common, sizes, device })
    }

    fn tensors(&self) -> SmallVec<[&'a Tensor; 3]> {
        self.given
            .iter()
            .filter_map(|given| if let Given::Tensor(tensor) = given { Some(*tensor) } else { None })
            .collect()
    }

    /// Checks that the result can go into a tensor.
    fn check_output(&self, out: &Tensor) -> Result<()> {
        let result = self.operation.rule.result(self.common);
        if result.category() > out.dtype().category() {
            return Err(TensorError::CannotCast { from: result, to: out.dtype() }.into());
        }
        if out.device() != self.device {
            let (first, second) = (self.device.to_string(), out.device().to_string());
            return Err(TensorError::Devices { first, second }.into());
        }
        if out.sizes() != self.sizes.as_slice() {
            let (output, result) = (out.sizes().to_vec(), self.sizes.to_vec());
            return Err(TensorError::OutputShape { output, result }.into());
        }
        check_overlap(out, &self.tensors())
    }

    fn run(&self, out: &Tensor) -> Result<()> {
        let computed = self.operation.rule.computed(self.common);
        let key = ProgramKey { operation: self.operation.name, variant: self.variant(out.dtype()) };
        let program = launch::program(key, || self.program(out.dtype(), computed))?;
        let ty = computed.compute_type();
        let own =
            self.given.iter().filter_map(|given| if let Given::Number(number) = given { Some(number) } else { None });
        let scalars: SmallVec<[u64; 4]> =
            own.chain(self.numbers).flat_map(|&number| scalar_bits(number, ty, computed.parts())).collect();
        let inputs = self.tensors();
        let work = Work { key, program, outputs: &[out], inputs: &inputs, scalars: &scalars };
        launch::run(&work, &self.sizes)
    }

    /// What the program depends on besides the operation: four bits for each dtype, 15 for a number.
    fn variant(&self, out: DType) -> u64 {
        let dtypes = self.given.iter().map(|given| match given {
            Given::Tensor(tensor) => tensor.dtype() as u64,
            Given::Number(_) => 15,
        });
        [out as u64, self.common as u64].into_iter().chain(dtypes).fold(1, |packed, part| packed << 4 | part)
    }

    fn program(&self, out: DType, computed: DType) -> std::result::Result<Program, GraphError> {
        let mut graph = Graph::new();
        let ty = computed.compute_type();
        // Inputs are numbered before scalars are asked for, in the order of the operands.
        let loaded: Vec<Option<Pair>> = self.given.iter().map(|given| load(&mut graph, given, computed)).collect();
        let mut values: Vec<Pair> = Vec::new();
        for loaded in loaded {
            let pair = loaded.unwrap_or_else(|| number(&mut graph, ty, computed.is_complex()));
            values.push(pair);
        }
        for _ in self.numbers {
            let pair = number(&mut graph, ty, computed.is_complex());
            values.push(pair);
        }
        let result = match self.operation.complex {
            Some(build) if computed.is_complex() => build(&mut graph, ty, &values),
            _ => {
                let reals: Vec<Value> = values.iter().map(|&(real, _)| real).collect();
                let real = (self.operation.build)(&mut graph, ty, &reals);
                (real, graph.number(ty_or_float(&graph, real), 0))
            }
        };
        store(&mut graph, result, self.operation.rule.result(self.common), out);
        graph.finish()
    }
}

/// The type of a value, or one that constants exist of.
fn ty_or_float(graph: &Graph, value: Value) -> Type {
    match graph.type_of(value) {
        Type::F16 | Type::BF16 => Type::F32,
        other => other,
    }
}

/// A tensor's element in the type that is computed in, rounded to the common dtype on the way.
fn load(graph: &mut Graph, given: &Given<'_>, computed: DType) -> Option<Pair> {
    let Given::Tensor(tensor) = given else { return None };
    let ty = computed.compute_type();
    let parts: SmallVec<[Value; 2]> = (0..tensor.dtype().parts()).map(|_| graph.input(tensor.dtype().part())).collect();
    let mut converted = |value| {
        let rounded = graph.convert(value, computed.part());
        graph.convert(rounded, ty)
    };
    let real = converted(parts[0]);
    let imaginary = match parts.get(1) {
        Some(&imaginary) => converted(imaginary),
        None => graph.number(ty, 0),
    };
    Some((real, imaginary))
}

/// A number that the launch gives.
fn number(graph: &mut Graph, ty: Type, is_complex: bool) -> Pair {
    let real = graph.scalar(ty);
    let imaginary = if is_complex { graph.scalar(ty) } else { graph.number(ty, 0) };
    (real, imaginary)
}

/// Makes the result the program's output in the dtype of the tensor that it goes into.
pub(crate) fn store(graph: &mut Graph, result: Pair, from: DType, to: DType) {
    // What the result would have been rounded to on its own, it is rounded to before it is cast.
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

/// An output may be an input, or share nothing with it; each of its elements has a place of its own.
pub(crate) fn check_overlap(out: &Tensor, inputs: &[&Tensor]) -> Result<()> {
    let repeats = out.sizes().iter().zip(out.strides()).any(|(&size, &stride)| size > 1 && stride == 0);
    if repeats {
        return Err(TensorError::InternalOverlap.into());
    }
    let range = |tensor: &Tensor| tensor.byte_offset()..tensor.byte_offset() + tensor.byte_extent();
    let own = range(out);
    for input in inputs {
        if !input.storage().is_same(out.storage()) {
            continue;
        }
        let same = input.byte_offset() == out.byte_offset()
            && input.sizes() == out.sizes()
            && input.strides() == out.strides()
            && input.dtype() == out.dtype();
        let other = range(input);
        if !same && own.start < other.end && other.start < own.end {
            return Err(TensorError::PartialOverlap.into());
        }
    }
    Ok(())
}
