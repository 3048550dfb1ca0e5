//! Running a recorded call: a file for each family of operations.

mod forms;
mod index;
mod linalg;
mod pointwise;
mod reduce;
mod shape;

use aten_cuda::{DType, Operand, Scalar, Storage, Tensor};

use super::file::{self, Case, Input, Stored};

/// Why there is no answer.
pub(crate) enum Failure {
    /// The library has no such operation.
    Absent,
    /// The operation gave an error.
    Refused(String),
}

impl From<aten_cuda::Error> for Failure {
    fn from(error: aten_cuda::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

type Answer = Result<Vec<Tensor>, Failure>;

/// The answer of the library on a device.
pub(crate) fn run(case: &Case, device: &str) -> Answer {
    let given = Given::new(case, device)?;
    match case.form.as_str() {
        "" => by_name(&case.op, &given),
        form => forms::call(&case.op, form, &given),
    }
}

/// The answer of the first family that knows the operation.
fn by_name(op: &str, given: &Given<'_>) -> Answer {
    for family in [pointwise::call, reduce::call, index::call, linalg::call, shape::call] {
        match family(op, given) {
            Err(Failure::Absent) => {}
            answer => return answer,
        }
    }
    Err(Failure::Absent)
}

/// A tensor of a file on a device.
pub(crate) fn tensor(stored: &Stored, device: &str) -> Result<Tensor, Failure> {
    let bytes = i64::try_from(stored.bytes.len()).unwrap_or(i64::MAX);
    let whole = Tensor::from_bytes(&stored.bytes, &[bytes], DType::U8)?.to_device(device)?;
    let storage: Storage = whole.storage().clone();
    Ok(Tensor::from_storage(storage, stored.dtype, &stored.sizes, &stored.strides, stored.offset)?)
}

/// What a call is given.
pub(crate) struct Given<'a> {
    inputs: Vec<Made>,
    args: &'a serde_json::Value,
    /// Where results of operations without tensors go.
    device: &'a str,
}

enum Made {
    Tensor(Tensor),
    Number(Scalar),
}

impl<'a> Given<'a> {
    fn new(case: &'a Case, device: &'a str) -> Result<Self, Failure> {
        let make = |input: &Input| {
            Ok(match input {
                Input::Tensor(stored) => Made::Tensor(tensor(stored, device)?),
                Input::Number(number) => Made::Number(*number),
            })
        };
        let inputs: Result<Vec<Made>, Failure> = case.inputs.iter().map(make).collect();
        Ok(Self { inputs: inputs?, args: &case.args, device })
    }

    fn tensor(&self, at: usize) -> Result<&Tensor, Failure> {
        match self.inputs.get(at) {
            Some(Made::Tensor(tensor)) => Ok(tensor),
            _ => Err(Failure::Refused(format!("input {at} is no tensor"))),
        }
    }

    /// The last input, into which the result goes.
    fn last(&self) -> Result<&Tensor, Failure> {
        self.tensor(self.inputs.len().saturating_sub(1))
    }

    fn tensors(&self) -> Result<Vec<&Tensor>, Failure> {
        (0..self.inputs.len()).map(|at| self.tensor(at)).collect()
    }

    fn operand(&self, at: usize) -> Result<Operand<'_>, Failure> {
        match self.inputs.get(at) {
            Some(Made::Tensor(tensor)) => Ok(tensor.into()),
            Some(Made::Number(number)) => Ok((*number).into()),
            None => Err(Failure::Refused(format!("there is no input {at}"))),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.args.get(name).is_some()
    }

    fn integers(&self, name: &str) -> Vec<i64> {
        file::integers(&self.args[name])
    }

    fn integer(&self, name: &str) -> Option<i64> {
        self.args[name].as_i64()
    }

    fn flag(&self, name: &str) -> bool {
        self.args[name].as_bool().unwrap_or(false)
    }

    /// A number, where there is one of the name.
    fn number(&self, name: &str) -> Option<Scalar> {
        self.args.get(name).filter(|value| !value.is_null()).map(file::scalar)
    }

    fn text(&self, name: &str) -> &str {
        self.args[name].as_str().unwrap_or_default()
    }

    fn dtype(&self, name: &str) -> Result<DType, Failure> {
        file::dtype(self.text(name)).map_err(Failure::Refused)
    }

    fn device(&self) -> &str {
        self.device
    }
}

/// The call on the absolute values of its inputs, computed in f64 on the host.
pub(crate) fn run_on_magnitudes(case: &Case) -> Result<Tensor, Failure> {
    let mut given = Given::new(case, "cpu")?;
    for made in &mut given.inputs {
        match made {
            Made::Tensor(tensor) => *tensor = magnitude(tensor)?,
            Made::Number(number) => *number = Scalar::Float(number.to_f64().abs()),
        }
    }
    by_name(&case.op, &given)?.into_iter().next().ok_or(Failure::Absent)
}

/// Absolute values as f64; of a complex number the sum of both halves' magnitudes.
fn magnitude(tensor: &Tensor) -> Result<Tensor, Failure> {
    let real_dtype = if tensor.dtype().is_complex() { DType::C128 } else { DType::F64 };
    let wide = tensor.to_dtype(real_dtype)?;
    let parts: Vec<f64> =
        wide.to_bytes()?.chunks_exact(8).map(|part| f64::from_le_bytes(part.try_into().unwrap_or([0; 8]))).collect();
    let each = if tensor.dtype().is_complex() { 2 } else { 1 };
    let sums: Vec<f64> = parts.chunks(each).map(|parts| parts.iter().map(|part| part.abs()).sum()).collect();
    Ok(Tensor::from_slice(&sums, tensor.sizes())?)
}
