//! Arithmetic of two operands.

use kernel_ir::{Binary, Compare, Graph, Math, Type, Unary, Value};

use super::formula::{self, compare_with, copy_sign, extreme, extreme_or_nan, is_nan, like, next_after};
use super::{Call, Limit, Operation, Pair, Participating, Rule, Several, accept, complex, count, methods, operations};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, invalid};
use crate::base::promotion::result_type;
use crate::base::scalar::Scalar;
use crate::tensor::{Operand, Tensor, is_host, scalar_bytes, scalar_of};

operations! {
    /// The sum of the elements; of booleans, whether one of them is true (`torch.add`).
    add, add_, add_out(other): Operation::new("add", "ufunc_add_CUDA", Rule::Common, accept::real,
        |g, _, v| sum_of(g, v[0], v[1])).complex(|g, _, v| complex_sum_of(g, v, complex::add));
    /// The elements plus `alpha` times those of `other` (`torch.add` with `alpha`).
    add_alpha, add_alpha_, add_alpha_out(other; alpha): Operation::new("add_alpha", "ufunc_add_CUDA", Rule::Common,
        accept::real, add_scaled).complex(|g, _, v| {
        let scaled = complex::mul(g, v[2], v[1]);
        complex::add(g, v[0], scaled)
    }).late_check(wrong_alpha).limit(Limit::Factor);
    /// The difference of the elements (`torch.sub`).
    sub, sub_, sub_out(other): Operation::new("sub", "ufunc_add_CUDA", Rule::Common, accept::real_but_bool,
        |g, _, v| formula::sub(g, v[0], v[1])).complex(|g, _, v| complex_sum_of(g, v, complex::sub)).check(no_bools);
    /// The elements less `alpha` times those of `other` (`torch.sub` with `alpha`).
    sub_alpha, sub_alpha_, sub_alpha_out(other; alpha): Operation::new("sub_alpha", "ufunc_add_CUDA", Rule::Common,
        accept::real_but_bool, sub_scaled).complex(|g, _, v| {
        let scaled = complex::mul(g, v[2], v[1]);
        complex::sub(g, v[0], scaled)
    }).check(no_bools).late_check(wrong_alpha).limit(Limit::Negated);
    /// The product of the elements; of booleans, whether both are true (`torch.mul`).
    mul, mul_, mul_out(other): Operation::new("mul", "mul_cuda", Rule::Common, accept::real,
        |g, _, v| product_of(g, v[0], v[1])).complex(|g, _, v| complex::mul(g, v[0], v[1]));
    /// The quotient of the elements, always as floats (`torch.true_divide`, `torch.div`).
    div, div_, div_out(other): Operation::new("true_divide", "div_true_cuda", Rule::Float, accept::real,
        |g, _, v| formula::div(g, v[0], v[1])).complex(|g, _, v| complex::div(g, v[0], v[1]));
    /// The quotient rounded towards zero (`torch.div` with `rounding_mode="trunc"`).
    div_trunc, div_trunc_, div_trunc_out(other): Operation::new("div_trunc", "div_trunc_cuda", Rule::Common,
        accept::real_but_bool, div_trunc_of).by_number(div_trunc_by_number).divides();
    /// The quotient rounded downwards (`torch.floor_divide`, `torch.div` with `rounding_mode="floor"`).
    floor_divide, floor_divide_, floor_divide_out(other): Operation::new("floor_divide", "div_floor_cuda",
        Rule::Common, accept::real_but_bool, floor_divide_of).divides();
    /// What is left of the elements after whole parts of `other`, with the sign of `other` (`torch.remainder`).
    remainder, remainder_, remainder_out(other): Operation::new("remainder", "remainder_cuda", Rule::Common,
        accept::real_but_bool, remainder_of).rounded_numbers().divides();
    /// What is left of the elements after whole parts of `other`, with the sign of the element (`torch.fmod`).
    fmod, fmod_, fmod_out(other): Operation::new("fmod", "fmod_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| rest(g, v[0], v[1])).rounded_numbers().divides();
    /// The larger one of the elements; a NaN where one is (`torch.maximum`).
    maximum, maximum_, maximum_out(other): Operation::new("maximum", "max_elementwise_cuda", Rule::Common, accept::real,
        |g, _, v| extreme_or_nan(g, Binary::Max, v[0], v[1])).check(|p| no_order(p, "maximum"));
    /// The smaller one of the elements; a NaN where one is (`torch.minimum`).
    minimum, minimum_, minimum_out(other): Operation::new("minimum", "min_elementwise_cuda", Rule::Common, accept::real,
        |g, _, v| extreme_or_nan(g, Binary::Min, v[0], v[1])).check(|p| no_order(p, "minimum"));
    /// The larger one of the elements, the number beside a NaN (`torch.fmax`).
    fmax, fmax_, fmax_out(other): Operation::new("fmax", "fmax_cuda", Rule::Common, accept::real,
        |g, _, v| extreme(g, Binary::Max, v[0], v[1])).check(|p| no_order(p, "fmax"));
    /// The smaller one of the elements, the number beside a NaN (`torch.fmin`).
    fmin, fmin_, fmin_out(other): Operation::new("fmin", "fmin_cuda", Rule::Common, accept::real,
        |g, _, v| extreme(g, Binary::Min, v[0], v[1])).check(|p| no_order(p, "fmin"));
    /// The angle of the point with the elements as height and those of `other` as width (`torch.atan2`).
    atan2, atan2_, atan2_out(other): Operation::new("atan2", "atan2_cuda", Rule::Float, accept::real,
        |g, _, v| g.call(Math::Atan2, v)).rounded_numbers();
    /// The length of the hypotenuse over the elements (`torch.hypot`).
    hypot, hypot_, hypot_out(other): Operation::new("hypot", "hypot_cuda", Rule::Common, accept::float,
        |g, _, v| g.call(Math::Hypot, v)).rounded_numbers();
    /// The elements' magnitudes with the signs of `other` (`torch.copysign`).
    copysign, copysign_, copysign_out(other): Operation::new("copysign", "copysign_cuda", Rule::Float, accept::real,
        |g, _, v| copy_sign(g, v[0], v[1])).rounded_numbers();
    /// The number of the dtype next to each element towards that of `other` (`torch.nextafter`).
    nextafter, nextafter_, nextafter_out(other): Operation::new("nextafter", "nextafter_cuda", Rule::Common,
        accept::float, |g, d, v| next_after(g, d, v[0], v[1])).rounded_numbers();
    /// The logarithm of the sum of e to the power of both elements (`torch.logaddexp`).
    logaddexp, logaddexp_, logaddexp_out(other): Operation::new("logaddexp", "logaddexp_cuda", Rule::Common,
        accept::float, logaddexp_of).complex(|g, _, v| complex::log_add_exp(g, v[0], v[1])).rounded_numbers();
    /// Each element times the logarithm of `other`; zero times any number is zero (`torch.xlogy`).
    xlogy, xlogy_, xlogy_out(other): Operation::new("xlogy", "xlogy_cuda", Rule::Float, accept::real,
        xlogy_of).rounded_numbers();
    /// The greatest common divisor of the elements (`torch.gcd`).
    gcd, gcd_, gcd_out(other): Operation::new("gcd", "gcd_cuda", Rule::Common, accept::integral, gcd_of);
    [rows without methods]
    /// A base and an exponent.
    pow(base, exponent): Operation::new("pow", "pow_cuda", Rule::Common, accept::real_but_bool, pow_of)
        .complex(complex::pow).complex_by_number(complex::pow_by_number).rounded_numbers().limit(Limit::Exponent);
    /// A real base, which is squared, and the number two, which only promotes.
    pow_two(base, two): Operation::new("pow_two", "pow_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| g.binary(Binary::Mul, v[0], v[0]));
    /// A base, whose root is taken, and the number one half, which only promotes.
    pow_half(base, half): Operation::new("pow_half", "pow_cuda", Rule::Float, accept::real,
        |g, _, v| g.unary(Unary::Sqrt, v[0])).complex(|g, _, v| complex::sqrt(g, v[0]));
}

methods! {
    /// The elements to the power of `exponent` (`torch.pow`). As in torch, the exponent two means the product with
    /// itself, one half the square root and minus one half its reciprocal, so that negative infinity gives a NaN; integers have no negative number as exponent.
    pow, pow_, pow_out(exponent: impl Into<Operand<'a>>,) |this| pow_call(this, exponent.into());
}

impl Tensor {
    /// A number to the power of each element (`torch.pow` with a number as base). The number has its part in promotion, as
    /// numbers beside tensors have.
    ///
    /// ```
    /// use aten_cuda::Tensor;
    ///
    /// let exponents = Tensor::from_slice(&[0_i64, 1, 10], &[3])?;
    /// assert_eq!(Tensor::pow_of(2, &exponents)?.to_vec::<i64>()?, [1, 2, 1024]);
    /// assert_eq!(Tensor::pow_of(0.5, &exponents)?.to_vec::<f32>()?, [1.0, 0.5, 0.0009765625]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// Both are booleans, there is not enough memory, or the device failed.
    pub fn pow_of(base: impl Into<Scalar>, exponent: &Self) -> Result<Self> {
        Call::new(&rows::pow, [Operand::Number(base.into()), exponent.into()], []).made()
    }
}

fn pow_call<'a>(base: &'a Tensor, exponent: Operand<'a>) -> Result<Call<Several<Operand<'a>>, Several<Scalar>>> {
    let row = |name: &str| super::table().find(|row| row.name == name).unwrap_or(&rows::pow);
    if let (DType::Bool, Operand::Number(Scalar::Bool(exponent))) = (base.dtype(), &exponent) {
        // torch has no kernel for booleans, and needs none: the first power is the base, the zeroth one is true.
        let row = if *exponent { &rows::maximum } else { row("eq") };
        return Ok(Call::of_several(row, [base.into(), base.into()], []));
    }
    let exponent = rounded_exponent(base, exponent)?;
    let is_complex = base.dtype().is_complex();
    let row = match exponent {
        Operand::Number(Scalar::Int(number)) if number < 0 && base.dtype().category() <= Category::Integral => {
            return Err(invalid("Integers to negative integer powers are not allowed."));
        }
        Operand::Number(Scalar::Float(0.5)) => &rows::pow_half,
        Operand::Number(Scalar::Float(-0.5))
            if !is_complex && (base.dtype() != DType::F16 || !is_host(base.device())) =>
        {
            return Ok(Call::of_several(row("rsqrt"), [base.into()], []));
        }
        Operand::Number(Scalar::Int(2) | Scalar::Float(2.0)) if !is_complex => &rows::pow_two,
        _ => &rows::pow,
    };
    Ok(Call::of_several(row, [base.into(), exponent], []))
}

/// Rounds a scalar exponent to 16 bits on a device, as torch does before it compares the exponent with 0.5 and 2.
fn rounded_exponent<'a>(base: &Tensor, exponent: Operand<'a>) -> Result<Operand<'a>> {
    let Operand::Number(number @ Scalar::Float(_)) = exponent else { return Ok(exponent) };
    if is_host(base.device()) {
        return Ok(exponent);
    }
    let common = result_type(base.dtype(), base.dim(), number)?;
    if !matches!(common, DType::F16 | DType::BF16) {
        return Ok(exponent);
    }
    number.check_fits(common)?;
    Ok(Operand::Number(scalar_of(&scalar_bytes(number, common), common)))
}

fn wrong_alpha(p: &Participating<'_>) -> Option<String> {
    let alpha = p.numbers.first()?;
    let text = match alpha {
        Scalar::Bool(_) if p.common != DType::Bool => "Boolean alpha only supported for Boolean results.",
        Scalar::Float(_) | Scalar::Complex(_) if !p.common.is_floating_point() && !p.common.is_complex() => {
            "For integral input tensors, argument alpha must not be a floating point number."
        }
        Scalar::Complex(_) if !p.common.is_complex() => {
            "For non-complex input tensors, argument alpha must not be a complex number."
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn no_bools(p: &Participating<'_>) -> Option<String> {
    let bools = p.dtypes.iter().filter(|&&dtype| dtype == DType::Bool).count();
    let text = match bools {
        0 => return None,
        1 => {
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use \
              the `~` or `logical_not()` operator instead."
        }
        _ => {
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` \
              operator instead."
        }
    };
    Some(text.to_owned())
}

fn no_order(p: &Participating<'_>, name: &str) -> Option<String> {
    p.common.is_complex().then(|| format!("{name} not implemented for complex tensors."))
}

fn sum_of(graph: &mut Graph, a: Value, b: Value) -> Value {
    let op = if graph.type_of(a) == Type::Bool { Binary::Or } else { Binary::Add };
    graph.binary(op, a, b)
}

/// The second operand is multiplied by a complex one, torch's default of `alpha`: if either of its parts is infinite or
/// NaN, the other part of the product is NaN.
fn complex_sum_of(graph: &mut Graph, values: &[Pair], combine: fn(&mut Graph, Pair, Pair) -> Pair) -> Pair {
    let one = complex::number(graph, values[1], 1.0);
    let scaled = complex::mul(graph, one, values[1]);
    combine(graph, values[0], scaled)
}

fn product_of(graph: &mut Graph, a: Value, b: Value) -> Value {
    let op = if graph.type_of(a) == Type::Bool { Binary::And } else { Binary::Mul };
    graph.binary(op, a, b)
}

fn add_scaled(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    if dtype == DType::Bool {
        let scaled = product_of(graph, values[2], values[1]);
        return sum_of(graph, values[0], scaled);
    }
    graph.fma(values[2], values[1], values[0])
}

fn sub_scaled(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    let alpha = formula::neg(graph, values[2]);
    add_scaled(graph, dtype, &[values[0], values[1], alpha])
}

/// The quotient of two tensors is rounded to the dtype before it is truncated: 65504 / 127 is 515.78, 516 in 16 bits.
fn div_trunc_of(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    let ty = graph.type_of(values[0]);
    if !ty.is_float() {
        return by_integers(graph, Binary::Div, values[0], values[1]);
    }
    let quotient = formula::div(graph, values[0], values[1]);
    let rounded = graph.convert(quotient, dtype.part());
    let rounded = graph.convert(rounded, ty);
    graph.unary(Unary::Trunc, rounded)
}

/// The quotient by a number is truncated before it is rounded to the dtype.
fn div_trunc_by_number(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    if !graph.type_of(values[0]).is_float() {
        return by_integers(graph, Binary::Div, values[0], values[1]);
    }
    let quotient = formula::div(graph, values[0], values[1]);
    graph.unary(Unary::Trunc, quotient)
}

/// The rest of a division towards zero.
fn rest(graph: &mut Graph, a: Value, b: Value) -> Value {
    if graph.type_of(a).is_float() { graph.call(Math::Fmod, &[a, b]) } else { by_integers(graph, Binary::Rem, a, b) }
}

/// The quotient or the rest of integers. Divided by zero both are all ones; in 64 bits only the lower half of them is
/// where the dividend has 32 bits without a sign, since torch's kernels divide 32 bits there.
fn by_integers(graph: &mut Graph, op: Binary, a: Value, b: Value) -> Value {
    let result = graph.binary(op, a, b);
    if graph.type_of(a) != Type::I64 {
        return result;
    }
    let half = graph.int(Type::I64, 0xffff_ffff);
    let low = graph.binary(Binary::And, a, half);
    let (is_low, by_zero) = (graph.compare(Compare::Eq, a, low), compare_with(graph, Compare::Eq, b, 0.0));
    let both = graph.binary(Binary::And, is_low, by_zero);
    graph.select(both, half, result)
}

/// Whether a rest is not zero and has another sign than the divisor.
fn is_other_side(graph: &mut Graph, rest: Value, divisor: Value) -> Value {
    let some = compare_with(graph, Compare::Ne, rest, 0.0);
    let (rest_below, below) =
        (compare_with(graph, Compare::Lt, rest, 0.0), compare_with(graph, Compare::Lt, divisor, 0.0));
    let differ = graph.binary(Binary::Xor, rest_below, below);
    graph.binary(Binary::And, some, differ)
}

fn remainder_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let rest = rest(graph, values[0], values[1]);
    let other_side = is_other_side(graph, rest, values[1]);
    let moved = formula::add(graph, rest, values[1]);
    graph.select(other_side, moved, rest)
}

fn floor_divide_of(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    if dtype.is_integral() { floor_divide_integers(graph, values) } else { floor_divide_floats(graph, values) }
}

fn floor_divide_integers(graph: &mut Graph, values: &[Value]) -> Value {
    let &[a, b] = values else { return values[0] };
    let (quotient, rest) = (by_integers(graph, Binary::Div, a, b), by_integers(graph, Binary::Rem, a, b));
    let (a_below, b_below) = (compare_with(graph, Compare::Lt, a, 0.0), compare_with(graph, Compare::Lt, b, 0.0));
    let (differ, some) = (graph.binary(Binary::Xor, a_below, b_below), compare_with(graph, Compare::Ne, rest, 0.0));
    let down = graph.binary(Binary::And, differ, some);
    let one = like(graph, quotient, 1.0);
    let lower = formula::sub(graph, quotient, one);
    graph.select(down, lower, quotient)
}

/// The quotient without the rest is nearly whole already; what rounding left of it is corrected.
fn floor_divide_floats(graph: &mut Graph, values: &[Value]) -> Value {
    let &[a, b] = values else { return values[0] };
    let (quotient, rest) = (formula::div(graph, a, b), graph.call(Math::Fmod, &[a, b]));
    let without_rest = formula::sub(graph, a, rest);
    let near = formula::div(graph, without_rest, b);
    let (one, half, zero) = (like(graph, a, 1.0), like(graph, a, 0.5), like(graph, a, 0.0));
    let lower = formula::sub(graph, near, one);
    let other_side = is_other_side(graph, rest, b);
    let near = graph.select(other_side, lower, near);
    let floor = graph.unary(Unary::Floor, near);
    let (fraction, next) = (formula::sub(graph, near, floor), formula::add(graph, floor, one));
    let rounds_up = graph.compare(Compare::Gt, fraction, half);
    let floor = graph.select(rounds_up, next, floor);
    let signed_zero = copy_sign(graph, zero, quotient);
    let has_whole = compare_with(graph, Compare::Ne, near, 0.0);
    let result = graph.select(has_whole, floor, signed_zero);
    let by_zero = compare_with(graph, Compare::Eq, b, 0.0);
    graph.select(by_zero, quotient, result)
}

fn logaddexp_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let &[a, b] = values else { return values[0] };
    let largest = extreme(graph, Binary::Max, a, b);
    let difference = formula::sub(graph, a, b);
    let distance = formula::abs(graph, difference);
    let negative = formula::neg(graph, distance);
    let power = graph.call(Math::Exp, &[negative]);
    let log = graph.call(Math::Log1p, &[power]);
    let sum = formula::add(graph, largest, log);
    let magnitude = formula::abs(graph, a);
    let (infinite, same) =
        (compare_with(graph, Compare::Eq, magnitude, f64::INFINITY), graph.compare(Compare::Eq, a, b));
    let is_same_infinity = graph.binary(Binary::And, infinite, same);
    graph.select(is_same_infinity, a, sum)
}

fn xlogy_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let &[a, b] = values else { return values[0] };
    let log = graph.call(Math::Log, &[b]);
    let product = formula::mul(graph, a, log);
    let (is_zero, is_nan, zero) = (compare_with(graph, Compare::Eq, a, 0.0), is_nan(graph, b), like(graph, a, 0.0));
    let result = graph.select(is_zero, zero, product);
    graph.select(is_nan, b, result)
}

/// Magnitudes are those of the dtype, whose smallest number stays negative.
fn gcd_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let (a, b) = (formula::abs(graph, values[0]), formula::abs(graph, values[1]));
    on_words(graph, Math::Gcd, a, b)
}

fn pow_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    match graph.type_of(values[0]).is_float() {
        true => graph.call(Math::Pow, values),
        false => on_words(graph, Math::Powi, values[0], values[1]),
    }
}

/// A function of integers of 32 or 64 bits on narrower ones.
fn on_words(graph: &mut Graph, function: Math, a: Value, b: Value) -> Value {
    let ty = graph.type_of(a);
    let word = if ty == Type::I64 { Type::I64 } else { Type::I32 };
    let (a, b) = (graph.convert(a, word), graph.convert(b, word));
    let result = graph.call(function, &[a, b]);
    graph.convert(result, ty)
}
