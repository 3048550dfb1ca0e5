//! Running a recorded call.

use aten_cuda::{Operand, Scalar, Storage, Tensor};

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
    let families = [unary, binary, others];
    for family in families {
        match family(&case.op, &given) {
            Err(Failure::Absent) => {}
            answer => return answer,
        }
    }
    Err(Failure::Absent)
}

/// A tensor of a file on a device.
pub(crate) fn tensor(stored: &Stored, device: &str) -> Result<Tensor, Failure> {
    let bytes = i64::try_from(stored.bytes.len()).unwrap_or(i64::MAX);
    let whole = Tensor::from_bytes(&stored.bytes, &[bytes], aten_cuda::DType::U8)?.to_device(device)?;
    let storage: Storage = whole.storage().clone();
    Ok(Tensor::from_storage(storage, stored.dtype, &stored.sizes, &stored.strides, stored.offset)?)
}

/// What a call is given.
pub(crate) struct Given<'a> {
    inputs: Vec<Made>,
    args: &'a serde_json::Value,
    #[expect(dead_code, reason = "factories will need it")]
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

    fn text(&self, name: &str) -> &str {
        self.args[name].as_str().unwrap_or_default()
    }
}

/// Operations of one tensor and nothing else.
fn unary(op: &str, given: &Given<'_>) -> Answer {
    let function = match op {
        "abs" => Tensor::abs,
        "exp" => Tensor::exp,
        "log" => Tensor::log,
        "neg" => Tensor::neg,
        "relu" => Tensor::relu,
        "sqrt" => Tensor::sqrt,
        _ => return Err(Failure::Absent),
    };
    Ok(vec![function(given.tensor(0)?)?])
}

/// Operations of two operands and nothing else.
fn binary(op: &str, given: &Given<'_>) -> Answer {
    if given.has("alpha") {
        return Err(Failure::Absent);
    }
    let (a, b) = match op {
        "add" | "sub" | "mul" | "true_divide" | "eq" | "ne" | "lt" | "le" | "gt" | "ge" => (given.tensor(0)?, given.operand(1)?),
        _ => return Err(Failure::Absent),
    };
    Ok(vec![match op {
        "add" => a.add(b)?,
        "sub" => a.sub(b)?,
        "mul" => a.mul(b)?,
        "true_divide" => a.div(b)?,
        "eq" => a.eq(b)?,
        "ne" => a.ne(b)?,
        "lt" => a.lt(b)?,
        "le" => a.le(b)?,
        "gt" => a.gt(b)?,
        _ => a.ge(b)?,
    }])
}

/// Operations with arguments of their own.
fn others(op: &str, given: &Given<'_>) -> Answer {
    Ok(vec![match op {
        "to" => given.tensor(0)?.to_dtype(file::dtype(given.text("dtype")).map_err(Failure::Refused)?)?,
        "expand" => given.tensor(0)?.expand(&given.integers("size"))?,
        "view" => given.tensor(0)?.view(&given.integers("shape"))?,
        "reshape" => given.tensor(0)?.reshape(&given.integers("shape"))?,
        _ => return Err(Failure::Absent),
    }])
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
    let families = [unary, binary, others];
    let answers = families.into_iter().find_map(|family| match family(&case.op, &given) {
        Err(Failure::Absent) => None,
        answer => Some(answer),
    });
    answers.unwrap_or(Err(Failure::Absent))?.into_iter().next().ok_or(Failure::Absent)
}

/// Absolute values as f64; of a complex number the sum of both halves' magnitudes.
fn magnitude(tensor: &Tensor) -> Result<Tensor, Failure> {
    use aten_cuda::DType;
    let real_dtype = if tensor.dtype().is_complex() { DType::C128 } else { DType::F64 };
    let wide = tensor.to_dtype(real_dtype)?;
    let parts: Vec<f64> = wide.to_bytes()?.chunks_exact(8).map(|part| f64::from_le_bytes(part.try_into().unwrap_or([0; 8]))).collect();
    let each = if tensor.dtype().is_complex() { 2 } else { 1 };
    let sums: Vec<f64> = parts.chunks(each).map(|parts| parts.iter().map(|part| part.abs()).sum()).collect();
    Ok(Tensor::from_slice(&sums, tensor.sizes())?)
}
