//! A call of an elementwise function: its operands are checked, its results are made, and it is run by the program that it
//! is translated to or by the kernel that NVRTC compiles.

use c10_core::Device;
use smallvec::SmallVec;

use super::Function;
use super::compiled;
use super::cpp::Untranslated;
use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};
use crate::base::jit_error::JitError;
use crate::base::promotion::Participants;
use crate::base::scalar::Scalar;
use crate::base::shape::{self, Dims};
use crate::expression::Made;
use crate::iterate;
use crate::tensor::{Operand, Tensor, check_apart, check_overlap, empty_strided, is_host};

/// The most tensors of a call.
const MOST_INPUTS: usize = 8;

/// Calls a function; returns its results, which are the given outputs where there are some.
pub(super) fn call(
    function: &Function,
    operands: &[Operand<'_>],
    given: &[(&str, Scalar)],
    outputs: Option<&[&Tensor]>,
) -> Result<Made> {
    if !function.has_device {
        return Err(JitError::NoDevice.into());
    }
    if operands.len() > MOST_INPUTS {
        return Err(JitError::Inputs.into());
    }
    let numbers = numbers(function, given)?;
    if outputs.is_none()
        && let Some(made) = function.translation.run_whole(function, operands, &numbers)?
    {
        return Ok(made);
    }
    let (tensors, device) = tensors(operands)?;
    let inputs: SmallVec<[&Tensor; 4]> = tensors.iter().collect();
    let common = common(inputs.iter().map(|input| (input.dtype(), input.dim())))?;
    let mut sizes = Dims::new();
    for input in &inputs {
        sizes = shape::broadcast(&sizes, input.sizes())?;
    }
    let made = match outputs {
        None => {
            let strides = iterate::result_strides(&sizes, &inputs, false);
            let make = |_| empty_strided(&sizes, &strides, common, device);
            (0..function.outputs).map(make).collect::<Result<Made>>()?
        }
        Some(outputs) => {
            check_outputs(function, outputs, &inputs, (&sizes, common, device))?;
            outputs.iter().copied().cloned().collect()
        }
    };
    if shape::numel(&sizes) == 0 {
        return Ok(made);
    }
    let dtypes: SmallVec<[DType; 8]> = inputs.iter().map(|input| input.dtype()).collect();
    match function.translation.program(function, &dtypes, common, &numbers) {
        Ok(program) => {
            let outputs: SmallVec<[&Tensor; 8]> = made.iter().collect();
            program.launch(&outputs, &inputs, &numbers, &sizes)?;
        }
        Err(_) => {
            let inputs = &inputs;
            compiled::Call { function, inputs, outputs: &made, numbers: &numbers, common, sizes: &sizes }
                .run(device)?;
        }
    }
    Ok(made)
}

/// Why NVRTC compiles a function for tensors of these dtypes.
pub(super) fn untranslated(
    function: &Function,
    dtypes: &[DType],
    given: &[(&str, Scalar)],
) -> Result<Option<Untranslated>> {
    let numbers = numbers(function, given)?;
    let common = common(dtypes.iter().map(|dtype| (*dtype, 1)))?;
    Ok(function.translation.program(function, dtypes, common, &numbers).err())
}

/// The numbers in the order of their declaration.
fn numbers(function: &Function, given: &[(&str, Scalar)]) -> Result<SmallVec<[Scalar; 4]>> {
    let is_declared = |name: &str| function.numbers.iter().any(|(declared, _)| declared == name);
    if let Some((name, _)) = given.iter().find(|(name, _)| !is_declared(name)) {
        return Err(JitError::NotDeclared { name: (*name).to_owned() }.into());
    }
    let value = |(name, usual): &(String, Scalar)| {
        let said = given.iter().rev().find(|(given, _)| given == name);
        said.map_or(*usual, |(_, number)| *number)
    };
    Ok(function.numbers.iter().map(value).collect())
}

/// The tensors, with elements as they lie in memory, and the device that they are on.
fn tensors(operands: &[Operand<'_>]) -> Result<(SmallVec<[Tensor; 4]>, Device)> {
    let mut tensors = SmallVec::new();
    for (index, operand) in operands.iter().enumerate() {
        match operand {
            Operand::Tensor(tensor) => tensors.push(tensor.resolved()?),
            Operand::Number(_) => return Err(JitError::NotATensor { index }.into()),
        }
    }
    let devices = tensors.iter().map(Tensor::device);
    let Some(device) = devices.clone().find(|device| !is_host(*device)) else {
        return Err(match tensors.first() {
            Some(tensor) => JitError::OnHost { device: tensor.device() }.into(),
            None => JitError::NoInput.into(),
        });
    };
    match devices.clone().find(|other| *other != device) {
        Some(other) => Err(JitError::Devices { device, other }.into()),
        None => Ok((tensors, device)),
    }
}

/// The dtype that tensors have in common, by their dtypes and numbers of dimensions.
pub(super) fn common(tensors: impl Iterator<Item = (DType, usize)>) -> Result<DType> {
    let mut participants = Participants::default();
    for (dtype, dims) in tensors {
        if dtype.is_float8() {
            return Err(JitError::DType { dtype }.into());
        }
        participants.tensor(dtype, dims)?;
    }
    participants.result()
}

/// Outputs are what the results would be, and share memory with nothing but whole inputs.
fn check_outputs(
    function: &Function,
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    (sizes, common, device): (&Dims, DType, Device),
) -> Result<()> {
    if outputs.len() != function.outputs {
        return Err(invalid(format!("the function has {} outputs, but {} are given", function.outputs, outputs.len())));
    }
    for (at, output) in outputs.iter().enumerate() {
        output.plain_storage()?;
        if output.device() != device {
            return Err(JitError::Devices { device, other: output.device() }.into());
        }
        if output.dtype() != common || output.sizes() != sizes.as_slice() {
            let (dtype, found) = (output.dtype(), output.sizes());
            let text = format!("the result is {common} {sizes:?}, but output {at} is {dtype} {found:?}");
            return Err(invalid(text));
        }
        check_overlap(output, inputs)?;
        // Two outputs are never the same elements.
        outputs[..at].iter().try_for_each(|other| check_apart(output, other))?;
    }
    Ok(())
}
