//! Functions of one tensor that need more than an instruction: powers, logarithms, angles, and those of probability.
//!
//! Integers and booleans are computed as `f32`.

use kernel_ir::Math;

use super::{Call, Operation, Rule, accept, complex, count, methods, operations};
use crate::base::error::Result;
use crate::tensor::Tensor;

/// A row of a function of `kernel_ir`.
macro_rules! function {
    ($name:literal, $kernel:literal, $math:ident) => {
        Operation::new($name, $kernel, Rule::Float, accept::real, |g, _, v| g.call(Math::$math, v))
    };
    ($name:literal, $kernel:literal, $math:ident, $complex:path) => {
        function!($name, $kernel, $math).complex(|g, _, v| $complex(g, v[0]))
    };
}

operations! {
    /// e to the power of each element (`torch.exp`).
    exp, exp_, exp_out(): function!("exp", "exp_cuda", Exp, complex::exp);
    /// Two to the power of each element (`torch.exp2`).
    exp2, exp2_, exp2_out(): function!("exp2", "exp2_cuda", Exp2, complex::exp2);
    /// e to the power of each element less one, right near zero too (`torch.expm1`).
    expm1, expm1_, expm1_out(): function!("expm1", "expm1_cuda", Expm1, complex::expm1);
    /// The natural logarithm of each element (`torch.log`).
    log, log_, log_out(): function!("log", "log_cuda", Log, complex::log);
    /// The logarithm to base 2 of each element (`torch.log2`).
    log2, log2_, log2_out(): function!("log2", "log2_cuda", Log2, complex::log2);
    /// The logarithm to base 10 of each element (`torch.log10`).
    log10, log10_, log10_out(): function!("log10", "log10_cuda", Log10, complex::log10);
    /// The natural logarithm of each element plus one, right near zero too (`torch.log1p`).
    log1p, log1p_, log1p_out(): function!("log1p", "log1p_cuda", Log1p, complex::log1p);
    /// The sine of each element (`torch.sin`).
    sin, sin_, sin_out(): function!("sin", "sin_cuda", Sin, complex::sin);
    /// The cosine of each element (`torch.cos`).
    cos, cos_, cos_out(): function!("cos", "cos_cuda", Cos, complex::cos);
    /// The tangent of each element (`torch.tan`).
    tan, tan_, tan_out(): function!("tan", "tan_cuda", Tan, complex::tan);
    /// The angle whose sine each element is (`torch.asin`).
    asin, asin_, asin_out(): function!("asin", "asin_cuda", Asin, complex::asin);
    /// The angle whose cosine each element is (`torch.acos`).
    acos, acos_, acos_out(): function!("acos", "acos_cuda", Acos, complex::acos);
    /// The angle whose tangent each element is (`torch.atan`).
    atan, atan_, atan_out(): function!("atan", "atan_cuda", Atan, complex::atan);
    /// The hyperbolic sine of each element (`torch.sinh`).
    sinh, sinh_, sinh_out(): function!("sinh", "sinh_cuda", Sinh, complex::sinh);
    /// The hyperbolic cosine of each element (`torch.cosh`).
    cosh, cosh_, cosh_out(): function!("cosh", "cosh_cuda", Cosh, complex::cosh);
    /// The hyperbolic tangent of each element (`torch.tanh`).
    tanh, tanh_, tanh_out(): function!("tanh", "tanh_cuda", Tanh, complex::tanh);
    /// The number whose hyperbolic sine each element is (`torch.asinh`).
    asinh, asinh_, asinh_out(): function!("asinh", "asinh_cuda", Asinh, complex::asinh);
    /// The number whose hyperbolic cosine each element is (`torch.acosh`).
    acosh, acosh_, acosh_out(): function!("acosh", "acosh_cuda", Acosh, complex::acosh);
    /// The number whose hyperbolic tangent each element is (`torch.atanh`).
    atanh, atanh_, atanh_out(): function!("atanh", "atanh_cuda", Atanh, complex::atanh);
    /// The error function of each element (`torch.erf`).
    erf, erf_, erf_out(): function!("erf", "erf_cuda", Erf);
    /// One less the error function of each element (`torch.erfc`).
    erfc, erfc_, erfc_out(): function!("erfc", "erfc_cuda", Erfc);
    /// The number whose error function each element is (`torch.erfinv`).
    erfinv, erfinv_, erfinv_out(): function!("erfinv", "erfinv_cuda", Erfinv);
    /// The logarithm of the gamma function's magnitude (`torch.lgamma`).
    lgamma, lgamma_, lgamma_out(): function!("lgamma", "lgamma_cuda", Lgamma);
    /// The derivative of [`Self::lgamma`] (`torch.digamma`).
    digamma, digamma_, digamma_out(): function!("digamma", "digamma_cuda", Digamma);
}
