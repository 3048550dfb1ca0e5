//! Operations whose result at a place is computed of the operands at that place.

use aten_cuda::{Operand, Scalar, Tensor};

use super::{Answer, Failure, Given};

/// The answer, if the operation is of the family.
pub(super) fn call(op: &str, given: &Given<'_>) -> Answer {
    for kind in [with_numbers, unary, binary] {
        match kind(op, given) {
            Err(Failure::Absent) => {}
            answer => return answer,
        }
    }
    Err(Failure::Absent)
}

/// Operations of one tensor and nothing else.
fn unary(op: &str, given: &Given<'_>) -> Answer {
    let function = match op {
        "abs" => Tensor::abs,
        "acos" => Tensor::acos,
        "acosh" => Tensor::acosh,
        "asin" => Tensor::asin,
        "asinh" => Tensor::asinh,
        "atan" => Tensor::atan,
        "atanh" => Tensor::atanh,
        "bitwise_not" => Tensor::bitwise_not,
        "ceil" => Tensor::ceil,
        "conj_physical" => Tensor::conj_physical,
        "cos" => Tensor::cos,
        "cosh" => Tensor::cosh,
        "digamma" => Tensor::digamma,
        "erf" => Tensor::erf,
        "erfc" => Tensor::erfc,
        "erfinv" => Tensor::erfinv,
        "exp" => Tensor::exp,
        "exp2" => Tensor::exp2,
        "expm1" => Tensor::expm1,
        "floor" => Tensor::floor,
        "frac" => Tensor::frac,
        "gelu" => Tensor::gelu,
        "gelu_tanh" => Tensor::gelu_tanh,
        "isfinite" => Tensor::isfinite,
        "isinf" => Tensor::isinf,
        "isnan" => Tensor::isnan,
        "lgamma" => Tensor::lgamma,
        "log" => Tensor::log,
        "log10" => Tensor::log10,
        "log1p" => Tensor::log1p,
        "log2" => Tensor::log2,
        "logical_not" => Tensor::logical_not,
        "logsigmoid" => Tensor::logsigmoid,
        "mish" => Tensor::mish,
        "neg" => Tensor::neg,
        "positive" => Tensor::positive,
        "reciprocal" => Tensor::reciprocal,
        "relu" => Tensor::relu,
        "round" => Tensor::round,
        "rsqrt" => Tensor::rsqrt,
        "sigmoid" => Tensor::sigmoid,
        "sign" => Tensor::sign,
        "signbit" => Tensor::signbit,
        "silu" => Tensor::silu,
        "sin" => Tensor::sin,
        "sinh" => Tensor::sinh,
        "sqrt" => Tensor::sqrt,
        "square" => Tensor::square,
        "tan" => Tensor::tan,
        "tanh" => Tensor::tanh,
        "trunc" => Tensor::trunc,
        _ => return Err(Failure::Absent),
    };
    Ok(vec![function(given.tensor(0)?)?])
}

/// Operations of two operands and nothing else.
fn binary(op: &str, given: &Given<'_>) -> Answer {
    let function: fn(&Tensor, Operand<'_>) -> aten_cuda::Result<Tensor> = match op {
        "add" => |a, b| a.add(b),
        "atan2" => |a, b| a.atan2(b),
        "bitwise_and" => |a, b| a.bitwise_and(b),
        "bitwise_left_shift" => |a, b| a.bitwise_left_shift(b),
        "bitwise_or" => |a, b| a.bitwise_or(b),
        "bitwise_right_shift" => |a, b| a.bitwise_right_shift(b),
        "bitwise_xor" => |a, b| a.bitwise_xor(b),
        "copysign" => |a, b| a.copysign(b),
        "div_trunc" => |a, b| a.div_trunc(b),
        "eq" => |a, b| a.eq(b),
        "floor_divide" => |a, b| a.floor_divide(b),
        "fmax" => |a, b| a.fmax(b),
        "fmin" => |a, b| a.fmin(b),
        "fmod" => |a, b| a.fmod(b),
        "gcd" => |a, b| a.gcd(b),
        "ge" => |a, b| a.ge(b),
        "gt" => |a, b| a.gt(b),
        "hypot" => |a, b| a.hypot(b),
        "le" => |a, b| a.le(b),
        "logaddexp" => |a, b| a.logaddexp(b),
        "logical_and" => |a, b| a.logical_and(b),
        "logical_or" => |a, b| a.logical_or(b),
        "logical_xor" => |a, b| a.logical_xor(b),
        "lt" => |a, b| a.lt(b),
        "maximum" => |a, b| a.maximum(b),
        "minimum" => |a, b| a.minimum(b),
        "mul" => |a, b| a.mul(b),
        "ne" => |a, b| a.ne(b),
        "nextafter" => |a, b| a.nextafter(b),
        "pow" => |a, b| a.pow(b),
        "remainder" => |a, b| a.remainder(b),
        "sub" => |a, b| a.sub(b),
        "true_divide" => |a, b| a.div(b),
        "xlogy" => |a, b| a.xlogy(b),
        _ => return Err(Failure::Absent),
    };
    Ok(vec![function(given.tensor(0)?, given.operand(1)?)?])
}

/// Operations with numbers of their own, or with three operands.
fn with_numbers(op: &str, given: &Given<'_>) -> Answer {
    let number = |name: &str, otherwise: f64| given.number(name).unwrap_or(Scalar::Float(otherwise));
    let bound = |name: &str| given.number(name).map(Operand::from);
    Ok(vec![match (op, given.has("alpha")) {
        ("add", true) => given.tensor(0)?.add_alpha(given.operand(1)?, number("alpha", 1.0))?,
        ("sub", true) => given.tensor(0)?.sub_alpha(given.operand(1)?, number("alpha", 1.0))?,
        ("addcmul", _) => given.tensor(0)?.addcmul(given.operand(1)?, given.operand(2)?, number("value", 1.0))?,
        ("addcdiv", _) => given.tensor(0)?.addcdiv(given.operand(1)?, given.operand(2)?, number("value", 1.0))?,
        ("clamp", _) => given.tensor(0)?.clamp(bound("min"), bound("max"))?,
        ("hardtanh", _) => given.tensor(0)?.hardtanh(number("min_val", -1.0), number("max_val", 1.0))?,
        ("leaky_relu", _) => given.tensor(0)?.leaky_relu(number("negative_slope", 0.01))?,
        ("lerp", _) => given.tensor(0)?.lerp(given.operand(1)?, number("weight", 0.5))?,
        ("masked_fill", _) => given.tensor(0)?.masked_fill(given.tensor(1)?, number("value", 0.0))?,
        ("nan_to_num", _) => given.tensor(0)?.nan_to_num(None, None, None)?,
        ("softplus", _) => given.tensor(0)?.softplus(number("beta", 1.0), number("threshold", 20.0))?,
        ("where", _) => given.tensor(0)?.where_cond(given.operand(1)?, given.operand(2)?)?,
        _ => return Err(Failure::Absent),
    }])
}
