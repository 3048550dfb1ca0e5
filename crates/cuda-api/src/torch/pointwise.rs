//! Functions of elements at the same place: `torch.abs`, `torch.add` and the like.

use aten_cuda::{Operand, Result, Scalar, Tensor, TensorError};

/// Declares functions of one tensor, whose results have its sizes.
macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            #[doc = concat!("The result has the sizes of `input`; see [`Tensor::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The operation is not there for the dtype, there is not enough memory, or the device failed.
            pub fn $name(input: &Tensor) -> Result<Tensor> {
                input.$name()
            }
        )*
    };
}
pub(super) use unary;

/// Declares functions of a tensor and a second one or a number, whose sizes broadcast.
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            #[doc = concat!("The sizes broadcast; `other` is a tensor or a number. See [`Tensor::", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The operation is not there for the dtypes, the sizes do not broadcast, the tensors are on several
            /// devices, there is not enough memory, or the device failed.
            pub fn $name<'a>(input: &'a Tensor, other: impl Into<Operand<'a>>) -> Result<Tensor> {
                input.$name(other)
            }
        )*
    };
}

unary! {
    /// The magnitude of each element; of complex numbers a real one (`torch.abs`).
    abs;
    /// The negative of each element (`torch.neg`).
    neg;
    /// Minus one, zero or one; a NaN gives zero (`torch.sign`).
    sign;
    /// Whether the sign bit of each element is set (`torch.signbit`).
    signbit;
    /// Each element times itself (`torch.square`).
    square;
    /// One divided by each element (`torch.reciprocal`).
    reciprocal;
    /// The square root of each element (`torch.sqrt`).
    sqrt;
    /// One divided by the square root of each element (`torch.rsqrt`).
    rsqrt;
    /// The next whole number downwards (`torch.floor`).
    floor;
    /// The next whole number upwards (`torch.ceil`).
    ceil;
    /// The nearest whole number, halves to the even one (`torch.round`).
    round;
    /// The next whole number towards zero (`torch.trunc`, `torch.fix`).
    trunc;
    /// What is left of each element without its whole part, with the element's sign (`torch.frac`).
    frac;
    /// Whether each element is no number (`torch.isnan`).
    isnan;
    /// Whether each element is infinite (`torch.isinf`).
    isinf;
    /// Whether each element is finite (`torch.isfinite`).
    isfinite;
    /// e to the power of each element (`torch.exp`).
    exp;
    /// Two to the power of each element (`torch.exp2`).
    exp2;
    /// e to the power of each element less one, right near zero too (`torch.expm1`).
    expm1;
    /// The natural logarithm of each element (`torch.log`).
    log;
    /// The logarithm to base 2 of each element (`torch.log2`).
    log2;
    /// The logarithm to base 10 of each element (`torch.log10`).
    log10;
    /// The natural logarithm of each element plus one, right near zero too (`torch.log1p`).
    log1p;
    /// The sine of each element (`torch.sin`).
    sin;
    /// The cosine of each element (`torch.cos`).
    cos;
    /// The tangent of each element (`torch.tan`).
    tan;
    /// The angle whose sine each element is (`torch.asin`).
    asin;
    /// The angle whose cosine each element is (`torch.acos`).
    acos;
    /// The angle whose tangent each element is (`torch.atan`).
    atan;
    /// The hyperbolic sine of each element (`torch.sinh`).
    sinh;
    /// The hyperbolic cosine of each element (`torch.cosh`).
    cosh;
    /// The hyperbolic tangent of each element (`torch.tanh`).
    tanh;
    /// The number whose hyperbolic sine each element is (`torch.asinh`).
    asinh;
    /// The number whose hyperbolic cosine each element is (`torch.acosh`).
    acosh;
    /// The number whose hyperbolic tangent each element is (`torch.atanh`).
    atanh;
    /// The error function of each element (`torch.erf`).
    erf;
    /// One less the error function of each element (`torch.erfc`).
    erfc;
    /// The number whose error function each element is (`torch.erfinv`).
    erfinv;
    /// The logarithm of the gamma function's magnitude (`torch.lgamma`).
    lgamma;
    /// The derivative of [`Tensor::lgamma`] (`torch.digamma`).
    digamma;
    /// Each element, or zero where it is negative (`torch.relu`).
    relu;
    /// One divided by one plus e to the power of the negative (`torch.sigmoid`).
    sigmoid;
    /// All bits inverted; of booleans the opposite (`torch.bitwise_not`).
    bitwise_not;
    /// Whether the elements are zero (`torch.logical_not`).
    logical_not;
}

binary! {
    /// The sum of the elements; of booleans, whether one of them is true (`torch.add`).
    add;
    /// The difference of the elements (`torch.sub`).
    sub;
    /// The product of the elements; of booleans, whether both are true (`torch.mul`).
    mul;
    /// The quotient of the elements, always as floats (`torch.true_divide`, `torch.div`).
    div;
    /// The quotient rounded towards zero (`torch.div` with `rounding_mode="trunc"`).
    div_trunc;
    /// The quotient rounded downwards (`torch.floor_divide`, `torch.div` with `rounding_mode="floor"`).
    floor_divide;
    /// What is left of the elements after whole parts of `other`, with the sign of `other` (`torch.remainder`).
    remainder;
    /// What is left of the elements after whole parts of `other`, with the sign of the element (`torch.fmod`).
    fmod;
    /// The larger one of the elements; a NaN where one is (`torch.maximum`).
    maximum;
    /// The smaller one of the elements; a NaN where one is (`torch.minimum`).
    minimum;
    /// The larger one of the elements, the number beside a NaN (`torch.fmax`).
    fmax;
    /// The smaller one of the elements, the number beside a NaN (`torch.fmin`).
    fmin;
    /// The angle of the point with the elements as height and those of `other` as width (`torch.atan2`).
    atan2;
    /// The length of the hypotenuse over the elements (`torch.hypot`).
    hypot;
    /// The elements' magnitudes with the signs of `other` (`torch.copysign`).
    copysign;
    /// The number of the dtype next to each element towards that of `other` (`torch.nextafter`).
    nextafter;
    /// The logarithm of the sum of e to the power of both elements (`torch.logaddexp`).
    logaddexp;
    /// Each element times the logarithm of `other`; zero times any number is zero (`torch.xlogy`).
    xlogy;
    /// The greatest common divisor of the elements (`torch.gcd`).
    gcd;
    /// The bits that both elements have (`torch.bitwise_and`).
    bitwise_and;
    /// The bits that one of the elements has (`torch.bitwise_or`).
    bitwise_or;
    /// The bits that only one of the elements has (`torch.bitwise_xor`).
    bitwise_xor;
    /// The elements shifted left by `other`; zero past the width and for negative distances
    /// (`torch.bitwise_left_shift`).
    bitwise_left_shift;
    /// The elements shifted right by `other` with their sign; only the sign is left past the width and for negative
    /// distances (`torch.bitwise_right_shift`).
    bitwise_right_shift;
    /// Whether both elements are anything but zero (`torch.logical_and`).
    logical_and;
    /// Whether one of the elements is anything but zero (`torch.logical_or`).
    logical_or;
    /// Whether just one of the elements is anything but zero (`torch.logical_xor`).
    logical_xor;
    /// Where the elements are equal (`torch.eq`).
    eq;
    /// Where the elements differ (`torch.ne`).
    ne;
    /// Where the first is less (`torch.lt`).
    lt;
    /// Where the first is less or equal (`torch.le`).
    le;
    /// Where the first is greater (`torch.gt`).
    gt;
    /// Where the first is greater or equal (`torch.ge`).
    ge;
}

/// The elements plus `alpha` times those of `other` (`torch.add` with `alpha`); see [`Tensor::add_alpha`].
///
/// # Errors
/// As for [`add`], or `alpha` does not fit the dtype.
pub fn add_alpha<'a>(input: &'a Tensor, other: impl Into<Operand<'a>>, alpha: impl Into<Scalar>) -> Result<Tensor> {
    input.add_alpha(other, alpha)
}

/// The elements less `alpha` times those of `other` (`torch.sub` with `alpha`); see [`Tensor::sub_alpha`].
///
/// # Errors
/// As for [`sub`], or `alpha` does not fit the dtype.
pub fn sub_alpha<'a>(input: &'a Tensor, other: impl Into<Operand<'a>>, alpha: impl Into<Scalar>) -> Result<Tensor> {
    input.sub_alpha(other, alpha)
}

/// The elements plus `value` times the product of the two others' (`torch.addcmul`). All sizes broadcast; see
/// [`Tensor::addcmul`].
///
/// # Errors
/// As for [`add`].
pub fn addcmul(input: &Tensor, tensor1: &Tensor, tensor2: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
    input.addcmul(tensor1, tensor2, value)
}

/// The elements plus `value` times the quotient of the two others' (`torch.addcdiv`). All sizes broadcast; see
/// [`Tensor::addcdiv`].
///
/// # Errors
/// As for [`add`].
pub fn addcdiv(input: &Tensor, tensor1: &Tensor, tensor2: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
    input.addcdiv(tensor1, tensor2, value)
}

/// From each element to that of `end` by the part `weight` of the way (`torch.lerp`). All sizes broadcast; see
/// [`Tensor::lerp`].
///
/// # Errors
/// As for [`add`].
pub fn lerp<'a>(input: &'a Tensor, end: impl Into<Operand<'a>>, weight: impl Into<Operand<'a>>) -> Result<Tensor> {
    input.lerp(end, weight)
}

/// Each element held between the bounds that are given; a NaN stays one (`torch.clamp`). All sizes broadcast; see
/// [`Tensor::clamp`].
///
/// # Errors
/// No bound is given, else as for [`add`].
pub fn clamp<'a>(input: &'a Tensor, min: Option<Operand<'a>>, max: Option<Operand<'a>>) -> Result<Tensor> {
    input.clamp(min, max)
}

/// NaNs and infinities replaced by numbers, by zero and the dtype's extremes for `None` (`torch.nan_to_num`); see
/// [`Tensor::nan_to_num`].
///
/// # Errors
/// As for [`abs`].
pub fn nan_to_num(input: &Tensor, nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
    input.nan_to_num(nan, posinf, neginf)
}

/// The elements of `input` where `condition` is true, else those of `other` (`torch.where`). All sizes broadcast; see
/// [`Tensor::where_cond`].
///
/// ```
/// use cuda_api::torch;
///
/// let numbers = torch::tensor(&[-1.0_f32, 2.0], &[2])?;
/// let positive = torch::gt(&numbers, 0)?;
/// assert_eq!(torch::where_cond(&positive, &numbers, 0)?.to_vec::<f32>()?, [0.0, 2.0]);
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// `condition` has no booleans, else as for [`add`].
#[doc(alias = "where")]
pub fn where_cond<'a>(
    condition: &'a Tensor,
    input: impl Into<Operand<'a>>,
    other: impl Into<Operand<'a>>,
) -> Result<Tensor> {
    condition.where_cond(input, other)
}

/// The elements, or the value where the mask is true (`torch.masked_fill`). The mask broadcasts; see
/// [`Tensor::masked_fill`].
///
/// # Errors
/// The mask has no booleans, the value is a tensor with dimensions, else as for [`add`].
pub fn masked_fill<'a>(input: &'a Tensor, mask: &'a Tensor, value: impl Into<Operand<'a>>) -> Result<Tensor> {
    input.masked_fill(mask, value)
}

/// The elements of `input` to the power of `exponent` (`torch.pow`). The sizes broadcast; either may be a number, but not
/// both. See [`Tensor::pow`] and [`Tensor::pow_of`].
///
/// ```
/// use cuda_api::torch;
///
/// let numbers = torch::tensor(&[1.0_f32, 2.0, 3.0], &[3])?;
/// assert_eq!(torch::pow(&numbers, 2)?.to_vec::<f32>()?, [1.0, 4.0, 9.0]);
/// assert_eq!(torch::pow(2, &numbers)?.to_vec::<f32>()?, [2.0, 4.0, 8.0]);
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// Both are numbers, integers have a negative number as exponent, else as for [`add`].
pub fn pow<'a>(input: impl Into<Operand<'a>>, exponent: impl Into<Operand<'a>>) -> Result<Tensor> {
    match (input.into(), exponent.into()) {
        (Operand::Tensor(input), exponent) => input.pow(exponent),
        (Operand::Number(base), Operand::Tensor(exponent)) => Tensor::pow_of(base, exponent),
        (Operand::Number(_), Operand::Number(_)) => {
            Err(TensorError::Invalid("pow(): one of the arguments must be a tensor".to_owned()).into())
        }
    }
}

/// The nearest number of so many decimals, halves to the even one (`torch.round` with `decimals`). The result has the sizes
/// of `input`; see [`Tensor::round_decimals`].
///
/// # Errors
/// As for [`abs`].
pub fn round_decimals(input: &Tensor, decimals: i64) -> Result<Tensor> {
    input.round_decimals(decimals)
}
