//! Operations whose result at a place is computed of the operands at that place.

use aten_cuda::Tensor;

use super::{Answer, Failure, Given};

/// The answer, if the operation is of the family.
pub(super) fn call(op: &str, given: &Given<'_>) -> Answer {
    match unary(op, given) {
        Err(Failure::Absent) => binary(op, given),
        answer => answer,
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
        "add" | "sub" | "mul" | "true_divide" | "eq" | "ne" | "lt" | "le" | "gt" | "ge" => {
            (given.tensor(0)?, given.operand(1)?)
        }
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
