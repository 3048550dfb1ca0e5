//! Operations in place and into a given result. The last input of a call with a result is that tensor.

use aten_cuda::{Operand, Scalar, Tensor};

use super::{Answer, Failure, Given};

type Unary = (&'static str, fn(&Tensor) -> aten_cuda::Result<()>, fn(&Tensor, &Tensor) -> aten_cuda::Result<()>);
type Binary = (
    &'static str,
    fn(&Tensor, Operand<'_>) -> aten_cuda::Result<()>,
    fn(&Tensor, Operand<'_>, &Tensor) -> aten_cuda::Result<()>,
);

/// Functions of one tensor: in place, and into a result.
const UNARY: &[Unary] = &[
    ("abs", |a| a.abs_().map(drop), |a, out| a.abs_out(out)),
    ("acos", |a| a.acos_().map(drop), |a, out| a.acos_out(out)),
    ("acosh", |a| a.acosh_().map(drop), |a, out| a.acosh_out(out)),
    ("asin", |a| a.asin_().map(drop), |a, out| a.asin_out(out)),
    ("asinh", |a| a.asinh_().map(drop), |a, out| a.asinh_out(out)),
    ("atan", |a| a.atan_().map(drop), |a, out| a.atan_out(out)),
    ("atanh", |a| a.atanh_().map(drop), |a, out| a.atanh_out(out)),
    ("bitwise_not", |a| a.bitwise_not_().map(drop), |a, out| a.bitwise_not_out(out)),
    ("ceil", |a| a.ceil_().map(drop), |a, out| a.ceil_out(out)),
    ("conj_physical", |a| a.conj_physical_().map(drop), |a, out| a.conj_physical_out(out)),
    ("cos", |a| a.cos_().map(drop), |a, out| a.cos_out(out)),
    ("cosh", |a| a.cosh_().map(drop), |a, out| a.cosh_out(out)),
    ("digamma", |a| a.digamma_().map(drop), |a, out| a.digamma_out(out)),
    ("erf", |a| a.erf_().map(drop), |a, out| a.erf_out(out)),
    ("erfc", |a| a.erfc_().map(drop), |a, out| a.erfc_out(out)),
    ("erfinv", |a| a.erfinv_().map(drop), |a, out| a.erfinv_out(out)),
    ("exp", |a| a.exp_().map(drop), |a, out| a.exp_out(out)),
    ("exp2", |a| a.exp2_().map(drop), |a, out| a.exp2_out(out)),
    ("expm1", |a| a.expm1_().map(drop), |a, out| a.expm1_out(out)),
    ("floor", |a| a.floor_().map(drop), |a, out| a.floor_out(out)),
    ("frac", |a| a.frac_().map(drop), |a, out| a.frac_out(out)),
    ("gelu", |a| a.gelu_().map(drop), |a, out| a.gelu_out(out)),
    ("isfinite", |a| a.isfinite_().map(drop), |a, out| a.isfinite_out(out)),
    ("isinf", |a| a.isinf_().map(drop), |a, out| a.isinf_out(out)),
    ("isnan", |a| a.isnan_().map(drop), |a, out| a.isnan_out(out)),
    ("lgamma", |a| a.lgamma_().map(drop), |a, out| a.lgamma_out(out)),
    ("log", |a| a.log_().map(drop), |a, out| a.log_out(out)),
    ("log10", |a| a.log10_().map(drop), |a, out| a.log10_out(out)),
    ("log1p", |a| a.log1p_().map(drop), |a, out| a.log1p_out(out)),
    ("log2", |a| a.log2_().map(drop), |a, out| a.log2_out(out)),
    ("logical_not", |a| a.logical_not_().map(drop), |a, out| a.logical_not_out(out)),
    ("logsigmoid", |a| a.logsigmoid_().map(drop), |a, out| a.logsigmoid_out(out)),
    ("mish", |a| a.mish_().map(drop), |a, out| a.mish_out(out)),
    ("nan_to_num", |a| a.nan_to_num_(None, None, None).map(drop), |a, out| a.nan_to_num_out(None, None, None, out)),
    ("neg", |a| a.neg_().map(drop), |a, out| a.neg_out(out)),
    ("reciprocal", |a| a.reciprocal_().map(drop), |a, out| a.reciprocal_out(out)),
    ("relu", |a| a.relu_().map(drop), |a, out| a.relu_out(out)),
    ("round", |a| a.round_().map(drop), |a, out| a.round_out(out)),
    ("rsqrt", |a| a.rsqrt_().map(drop), |a, out| a.rsqrt_out(out)),
    ("sigmoid", |a| a.sigmoid_().map(drop), |a, out| a.sigmoid_out(out)),
    ("sign", |a| a.sign_().map(drop), |a, out| a.sign_out(out)),
    ("signbit", |a| a.signbit_().map(drop), |a, out| a.signbit_out(out)),
    ("silu", |a| a.silu_().map(drop), |a, out| a.silu_out(out)),
    ("sin", |a| a.sin_().map(drop), |a, out| a.sin_out(out)),
    ("sinh", |a| a.sinh_().map(drop), |a, out| a.sinh_out(out)),
    ("sqrt", |a| a.sqrt_().map(drop), |a, out| a.sqrt_out(out)),
    ("square", |a| a.square_().map(drop), |a, out| a.square_out(out)),
    ("tan", |a| a.tan_().map(drop), |a, out| a.tan_out(out)),
    ("tanh", |a| a.tanh_().map(drop), |a, out| a.tanh_out(out)),
    ("trunc", |a| a.trunc_().map(drop), |a, out| a.trunc_out(out)),
];

/// Functions of two operands: in place, and into a result.
const BINARY: &[Binary] = &[
    ("add", |a, b| a.add_(b).map(drop), |a, b, out| a.add_out(b, out)),
    ("atan2", |a, b| a.atan2_(b).map(drop), |a, b, out| a.atan2_out(b, out)),
    ("bitwise_and", |a, b| a.bitwise_and_(b).map(drop), |a, b, out| a.bitwise_and_out(b, out)),
    ("bitwise_left_shift", |a, b| a.bitwise_left_shift_(b).map(drop), |a, b, out| a.bitwise_left_shift_out(b, out)),
    ("bitwise_or", |a, b| a.bitwise_or_(b).map(drop), |a, b, out| a.bitwise_or_out(b, out)),
    ("bitwise_right_shift", |a, b| a.bitwise_right_shift_(b).map(drop), |a, b, out| a.bitwise_right_shift_out(b, out)),
    ("bitwise_xor", |a, b| a.bitwise_xor_(b).map(drop), |a, b, out| a.bitwise_xor_out(b, out)),
    ("copysign", |a, b| a.copysign_(b).map(drop), |a, b, out| a.copysign_out(b, out)),
    ("div_trunc", |a, b| a.div_trunc_(b).map(drop), |a, b, out| a.div_trunc_out(b, out)),
    ("eq", |a, b| a.eq_(b).map(drop), |a, b, out| a.eq_out(b, out)),
    ("floor_divide", |a, b| a.floor_divide_(b).map(drop), |a, b, out| a.floor_divide_out(b, out)),
    ("fmax", |a, b| a.fmax_(b).map(drop), |a, b, out| a.fmax_out(b, out)),
    ("fmin", |a, b| a.fmin_(b).map(drop), |a, b, out| a.fmin_out(b, out)),
    ("fmod", |a, b| a.fmod_(b).map(drop), |a, b, out| a.fmod_out(b, out)),
    ("gcd", |a, b| a.gcd_(b).map(drop), |a, b, out| a.gcd_out(b, out)),
    ("ge", |a, b| a.ge_(b).map(drop), |a, b, out| a.ge_out(b, out)),
    ("gt", |a, b| a.gt_(b).map(drop), |a, b, out| a.gt_out(b, out)),
    ("hypot", |a, b| a.hypot_(b).map(drop), |a, b, out| a.hypot_out(b, out)),
    ("le", |a, b| a.le_(b).map(drop), |a, b, out| a.le_out(b, out)),
    ("logaddexp", |a, b| a.logaddexp_(b).map(drop), |a, b, out| a.logaddexp_out(b, out)),
    ("logical_and", |a, b| a.logical_and_(b).map(drop), |a, b, out| a.logical_and_out(b, out)),
    ("logical_or", |a, b| a.logical_or_(b).map(drop), |a, b, out| a.logical_or_out(b, out)),
    ("logical_xor", |a, b| a.logical_xor_(b).map(drop), |a, b, out| a.logical_xor_out(b, out)),
    ("lt", |a, b| a.lt_(b).map(drop), |a, b, out| a.lt_out(b, out)),
    ("maximum", |a, b| a.maximum_(b).map(drop), |a, b, out| a.maximum_out(b, out)),
    ("minimum", |a, b| a.minimum_(b).map(drop), |a, b, out| a.minimum_out(b, out)),
    ("mul", |a, b| a.mul_(b).map(drop), |a, b, out| a.mul_out(b, out)),
    ("ne", |a, b| a.ne_(b).map(drop), |a, b, out| a.ne_out(b, out)),
    ("nextafter", |a, b| a.nextafter_(b).map(drop), |a, b, out| a.nextafter_out(b, out)),
    ("pow", |a, b| a.pow_(b).map(drop), |a, b, out| a.pow_out(b, out)),
    ("remainder", |a, b| a.remainder_(b).map(drop), |a, b, out| a.remainder_out(b, out)),
    ("sub", |a, b| a.sub_(b).map(drop), |a, b, out| a.sub_out(b, out)),
    ("xlogy", |a, b| a.xlogy_(b).map(drop), |a, b, out| a.xlogy_out(b, out)),
    ("true_divide", |a, b| a.div_(b).map(drop), |a, b, out| a.div_out(b, out)),
];

/// The answer in place or into a result: the tensor that was written.
pub(super) fn call(op: &str, form: &str, given: &Given<'_>) -> Answer {
    match form {
        "inplace" => in_place(op, given),
        _ => into_result(op, given),
    }
}

fn in_place(op: &str, given: &Given<'_>) -> Answer {
    let tensor = given.tensor(0)?;
    let number = |name: &str, otherwise: i64| given.number(name).unwrap_or(Scalar::Int(otherwise));
    let dim = given.integer("dim").unwrap_or(0);
    if let Some((_, function, _)) = UNARY.iter().find(|(name, ..)| *name == op) {
        function(tensor)?;
    } else if let Some((_, function, _)) = BINARY.iter().find(|(name, ..)| *name == op) {
        function(tensor, given.operand(1)?)?;
    } else {
        match op {
            "addcmul" => tensor.addcmul_(given.operand(1)?, given.operand(2)?, number("value", 1))?,
            "addcdiv" => tensor.addcdiv_(given.operand(1)?, given.operand(2)?, number("value", 1))?,
            "masked_fill" => tensor.masked_fill_(given.tensor(1)?, number("value", 0))?,
            "copy" => tensor.copy_(given.tensor(1)?)?,
            "fill" => tensor.fill_(number("value", 0))?,
            "scatter" => tensor.scatter_(dim, given.tensor(1)?, given.operand(2)?)?,
            "scatter_add" => tensor.scatter_add_(dim, given.tensor(1)?, given.tensor(2)?)?,
            "index_add" => tensor.index_add_(dim, given.tensor(1)?, given.tensor(2)?, number("alpha", 1))?,
            "index_copy" => tensor.index_copy_(dim, given.tensor(1)?, given.tensor(2)?)?,
            "addmm" => tensor.addmm_(given.tensor(1)?, given.tensor(2)?, number("beta", 1), number("alpha", 1))?,
            "addmv" => tensor.addmv_(given.tensor(1)?, given.tensor(2)?, number("beta", 1), number("alpha", 1))?,
            "baddbmm" => tensor.baddbmm_(given.tensor(1)?, given.tensor(2)?, number("beta", 1), number("alpha", 1))?,
            _ => return Err(Failure::Absent),
        };
    }
    Ok(vec![tensor.clone()])
}

fn into_result(op: &str, given: &Given<'_>) -> Answer {
    let (tensor, out) = (given.tensor(0)?, given.last()?);
    let (dim, keepdim) = (super::reduce::dim(given), given.flag("keepdim"));
    let number = |name: &str| given.number(name).unwrap_or(1.into());
    if let Some((_, _, function)) = UNARY.iter().find(|(name, ..)| *name == op) {
        function(tensor, out)?;
    } else if let Some((_, _, function)) = BINARY.iter().find(|(name, ..)| *name == op) {
        function(tensor, given.operand(1)?, out)?;
    } else {
        match op {
            "sum" => tensor.sum_out(dim, keepdim, out)?,
            "mean" => tensor.mean_out(dim, keepdim, out)?,
            "amax" => tensor.amax_out(dim, keepdim, out)?,
            "amin" => tensor.amin_out(dim, keepdim, out)?,
            "any" => tensor.any_out(dim, keepdim, out)?,
            "all" => tensor.all_out(dim, keepdim, out)?,
            "logsumexp" => tensor.logsumexp_out(dim, keepdim, out)?,
            "mm" => tensor.mm_out(given.tensor(1)?, out)?,
            "bmm" => tensor.bmm_out(given.tensor(1)?, out)?,
            "mv" => tensor.mv_out(given.tensor(1)?, out)?,
            "addmm" => tensor.addmm_out(given.tensor(1)?, given.tensor(2)?, number("beta"), number("alpha"), out)?,
            "addmv" => tensor.addmv_out(given.tensor(1)?, given.tensor(2)?, number("beta"), number("alpha"), out)?,
            "baddbmm" => {
                tensor.baddbmm_out(given.tensor(1)?, given.tensor(2)?, number("beta"), number("alpha"), out)?
            }
            _ => return Err(Failure::Absent),
        }
    }
    Ok(vec![out.clone()])
}
