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

/// A method of one tensor as a function, in place and into an `out`.
type Unary = (
    fn(&Tensor) -> aten_cuda::Result<Tensor>,
    for<'a> fn(&'a Tensor) -> aten_cuda::Result<&'a Tensor>,
    fn(&Tensor, &Tensor) -> aten_cuda::Result<()>,
);

/// A method of a tensor and an operand as a function, in place and into an `out`.
type Binary = (
    fn(&Tensor, Operand<'_>) -> aten_cuda::Result<Tensor>,
    fn(&Tensor, Operand<'_>) -> aten_cuda::Result<()>,
    fn(&Tensor, Operand<'_>, &Tensor) -> aten_cuda::Result<()>,
);

macro_rules! unary_methods {
    ($op:expr; $($name:literal $function:ident $in_place:ident $out:ident,)*) => {
        match $op {
            $($name => Some((Tensor::$function, Tensor::$in_place, Tensor::$out)),)*
            _ => None,
        }
    };
}

macro_rules! binary_methods {
    ($op:expr; $($name:literal $function:ident $in_place:ident $out:ident,)*) => {
        match $op {
            $($name => Some((
                |a, b| a.$function(b),
                |a, b| a.$in_place(b).map(drop),
                |a, b, out| a.$out(b, out),
            )),)*
            _ => None,
        }
    };
}

#[rustfmt::skip]
fn unary_method(op: &str) -> Option<Unary> {
    unary_methods! { op;
        "abs" abs abs_ abs_out,
        "acos" acos acos_ acos_out,
        "acosh" acosh acosh_ acosh_out,
        "asin" asin asin_ asin_out,
        "asinh" asinh asinh_ asinh_out,
        "atan" atan atan_ atan_out,
        "atanh" atanh atanh_ atanh_out,
        "bitwise_not" bitwise_not bitwise_not_ bitwise_not_out,
        "ceil" ceil ceil_ ceil_out,
        "cos" cos cos_ cos_out,
        "cosh" cosh cosh_ cosh_out,
        "digamma" digamma digamma_ digamma_out,
        "erf" erf erf_ erf_out,
        "erfc" erfc erfc_ erfc_out,
        "erfinv" erfinv erfinv_ erfinv_out,
        "exp" exp exp_ exp_out,
        "exp2" exp2 exp2_ exp2_out,
        "expm1" expm1 expm1_ expm1_out,
        "floor" floor floor_ floor_out,
        "frac" frac frac_ frac_out,
        "gelu" gelu gelu_ gelu_out,
        "gelu_tanh" gelu_tanh gelu_tanh_ gelu_tanh_out,
        "isfinite" isfinite isfinite_ isfinite_out,
        "isinf" isinf isinf_ isinf_out,
        "isnan" isnan isnan_ isnan_out,
        "lgamma" lgamma lgamma_ lgamma_out,
        "log" log log_ log_out,
        "log10" log10 log10_ log10_out,
        "log1p" log1p log1p_ log1p_out,
        "log2" log2 log2_ log2_out,
        "logical_not" logical_not logical_not_ logical_not_out,
        "logsigmoid" logsigmoid logsigmoid_ logsigmoid_out,
        "mish" mish mish_ mish_out,
        "neg" neg neg_ neg_out,
        "reciprocal" reciprocal reciprocal_ reciprocal_out,
        "relu" relu relu_ relu_out,
        "round" round round_ round_out,
        "rsqrt" rsqrt rsqrt_ rsqrt_out,
        "sigmoid" sigmoid sigmoid_ sigmoid_out,
        "sign" sign sign_ sign_out,
        "signbit" signbit signbit_ signbit_out,
        "silu" silu silu_ silu_out,
        "sin" sin sin_ sin_out,
        "sinh" sinh sinh_ sinh_out,
        "sqrt" sqrt sqrt_ sqrt_out,
        "square" square square_ square_out,
        "tan" tan tan_ tan_out,
        "tanh" tanh tanh_ tanh_out,
        "trunc" trunc trunc_ trunc_out,
    }
}

#[rustfmt::skip]
fn binary_method(op: &str) -> Option<Binary> {
    binary_methods! { op;
        "add" add add_ add_out,
        "atan2" atan2 atan2_ atan2_out,
        "bitwise_and" bitwise_and bitwise_and_ bitwise_and_out,
        "bitwise_left_shift" bitwise_left_shift bitwise_left_shift_ bitwise_left_shift_out,
        "bitwise_or" bitwise_or bitwise_or_ bitwise_or_out,
        "bitwise_right_shift" bitwise_right_shift bitwise_right_shift_ bitwise_right_shift_out,
        "bitwise_xor" bitwise_xor bitwise_xor_ bitwise_xor_out,
        "copysign" copysign copysign_ copysign_out,
        "eq" eq eq_ eq_out,
        "floor_divide" floor_divide floor_divide_ floor_divide_out,
        "fmax" fmax fmax_ fmax_out,
        "fmin" fmin fmin_ fmin_out,
        "fmod" fmod fmod_ fmod_out,
        "gcd" gcd gcd_ gcd_out,
        "ge" ge ge_ ge_out,
        "gt" gt gt_ gt_out,
        "hypot" hypot hypot_ hypot_out,
        "le" le le_ le_out,
        "logaddexp" logaddexp logaddexp_ logaddexp_out,
        "logical_and" logical_and logical_and_ logical_and_out,
        "logical_or" logical_or logical_or_ logical_or_out,
        "logical_xor" logical_xor logical_xor_ logical_xor_out,
        "lt" lt lt_ lt_out,
        "maximum" maximum maximum_ maximum_out,
        "minimum" minimum minimum_ minimum_out,
        "mul" mul mul_ mul_out,
        "ne" ne ne_ ne_out,
        "nextafter" nextafter nextafter_ nextafter_out,
        "pow" pow pow_ pow_out,
        "remainder" remainder remainder_ remainder_out,
        "sub" sub sub_ sub_out,
        "true_divide" div div_ div_out,
        "xlogy" xlogy xlogy_ xlogy_out,
    }
}

/// Operations of one tensor and nothing else: `op`, `op_` or `op_out`, whose last input is the `out`.
fn unary(op: &str, given: &Given<'_>) -> Answer {
    if op == "positive" {
        return Ok(vec![given.tensor(0)?.positive()?]);
    }
    let (base, form) = split_form(op);
    let (function, in_place, out) = unary_method(base).ok_or(Failure::Absent)?;
    let input = given.tensor(0)?;
    Ok(vec![match form {
        Form::Function => function(input)?,
        Form::InPlace => in_place(input)?.clone(),
        Form::Out => {
            out(input, given.tensor(1)?)?;
            given.tensor(1)?.clone()
        }
    }])
}

/// Operations of two operands and nothing else, in the forms of [`unary`].
fn binary(op: &str, given: &Given<'_>) -> Answer {
    let (base, form) = split_form(op);
    let (function, in_place, out) = binary_method(base).ok_or(Failure::Absent)?;
    let (input, other) = (given.tensor(0)?, given.operand(1)?);
    Ok(vec![match form {
        Form::Function => function(input, other)?,
        Form::InPlace => {
            in_place(input, other)?;
            input.clone()
        }
        Form::Out => {
            out(input, other, given.tensor(2)?)?;
            given.tensor(2)?.clone()
        }
    }])
}

/// Where the result of an operation goes.
enum Form {
    Function,
    InPlace,
    Out,
}

/// Splits the name of an operation from the suffix that says where its result goes.
fn split_form(op: &str) -> (&str, Form) {
    if let Some(base) = op.strip_suffix("_out") {
        return (base, Form::Out);
    }
    op.strip_suffix('_').map_or((op, Form::Function), |base| (base, Form::InPlace))
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
        ("lerp_tensor", _) => given.tensor(0)?.lerp(given.operand(1)?, given.operand(2)?)?,
        ("lerp", _) => given.tensor(0)?.lerp(given.operand(1)?, number("weight", 0.5))?,
        ("masked_fill", _) => given.tensor(0)?.masked_fill(given.tensor(1)?, number("value", 0.0))?,
        ("nan_to_num", _) => given.tensor(0)?.nan_to_num(None, None, None)?,
        ("softplus", _) => given.tensor(0)?.softplus(number("beta", 1.0), number("threshold", 20.0))?,
        ("where", _) => given.tensor(0)?.where_cond(given.operand(1)?, given.operand(2)?)?,
        _ => return Err(Failure::Absent),
    }])
}
