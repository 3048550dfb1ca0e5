//! Arithmetic of one tensor: signs, rounding, roots and what kind of number an element is.

use kernel_ir::{Compare, Graph, Math, Type, Unary, Value};

use super::formula::{self, compare_with, is_nan, like, mul, sign_bit};
use super::{
    Call, Layout, Operation, OutputDType, Participating, Rule, Several, accept, complex, count, methods, operations,
};
use crate::base::dtype::DType;
use crate::base::error::{Result, invalid};
use crate::base::scalar::Scalar;
use crate::tensor::{Operand, Tensor};

operations! {
    /// The magnitude of each element; of complex numbers a real one (`torch.abs`).
    abs, abs_, abs_out(): Operation::new("abs", "abs_cuda", Rule::Real, accept::real, abs_of).complex(complex::abs)
        .output(OutputDType::EqualOrReal);
    /// The negative of each element (`torch.neg`).
    neg, neg_, neg_out(): Operation::new("neg", "neg_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| g.unary(Unary::Neg, v[0])).complex(|g, _, v| complex::neg(g, v[0])).check(no_negative_bools)
        .output(OutputDType::Equal);
    /// Minus one, zero or one; a NaN gives zero (`torch.sign`).
    sign, sign_, sign_out(): Operation::new("sign", "sign_cuda", Rule::Common, accept::real, sign_of).check(|p| {
        p.common.is_complex().then(|| "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use \
            torch.sgn instead.".to_owned())
    })
        .output(OutputDType::Equal);
    /// Whether the sign bit of each element is set (`torch.signbit`).
    signbit, signbit_, signbit_out(): Operation::new("signbit", "signbit_cuda", Rule::Bool, accept::real,
        |g, _, v| sign_bit(g, v[0])).check(|p| {
        p.common.is_complex().then(|| "signbit is not implemented for complex tensors.".to_owned())
    });
    /// Each element times itself (`torch.square`).
    square, square_, square_out(): Operation::new("square", "pow_cuda", Rule::Integer, accept::real,
        |g, _, v| mul(g, v[0], v[0])).complex(|g, _, v| complex::mul(g, v[0], v[0]));
    /// One divided by each element (`torch.reciprocal`).
    reciprocal, reciprocal_, reciprocal_out(): Operation::new("reciprocal", "reciprocal_cuda", Rule::Float,
        accept::real, reciprocal_of).complex(|g, _, v| {
        let one = complex::number(g, v[0], 1.0);
        complex::div(g, one, v[0])
    });
    /// The square root of each element (`torch.sqrt`).
    sqrt, sqrt_, sqrt_out(): Operation::new("sqrt", "sqrt_cuda", Rule::Float, accept::real,
        |g, _, v| g.unary(Unary::Sqrt, v[0])).complex(|g, _, v| complex::sqrt(g, v[0]));
    /// One divided by the square root of each element (`torch.rsqrt`).
    rsqrt, rsqrt_, rsqrt_out(): Operation::new("rsqrt", "rsqrt_cuda", Rule::Float, accept::real,
        |g, _, v| g.call(Math::Rsqrt, v)).complex(complex::rsqrt);
    /// The next whole number downwards (`torch.floor`).
    floor, floor_, floor_out(): Operation::new("floor", "floor_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| whole(g, Unary::Floor, v[0])).check(|p| no_complex(p, "floor"))
        .output(OutputDType::Equal);
    /// The next whole number upwards (`torch.ceil`).
    ceil, ceil_, ceil_out(): Operation::new("ceil", "ceil_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| whole(g, Unary::Ceil, v[0])).check(|p| no_complex(p, "ceil"))
        .output(OutputDType::Equal);
    /// The nearest whole number, halves to the even one (`torch.round`).
    round, round_, round_out(): Operation::new("round", "round_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| whole(g, Unary::Round, v[0]))
        .output(OutputDType::Equal);
    /// The next whole number towards zero (`torch.trunc`, `torch.fix`).
    trunc, trunc_, trunc_out(): Operation::new("trunc", "trunc_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| whole(g, Unary::Trunc, v[0])).check(|p| no_complex(p, "trunc"))
        .output(OutputDType::Equal);
    /// What is left of each element without its whole part, with the element's sign (`torch.frac`).
    frac, frac_, frac_out(): Operation::new("frac", "frac_cuda", Rule::Common, accept::float, frac_of)
        .output(OutputDType::Equal);
    /// Whether each element is no number (`torch.isnan`).
    isnan, isnan_, isnan_out(): Operation::new("isnan", "isnan_cuda", Rule::Bool, accept::real,
        |g, _, v| is_nan(g, v[0])).complex(|g, _, v| complex::either(g, v[0], is_nan)).float8();
    /// Whether each element is infinite (`torch.isinf`).
    isinf, isinf_, isinf_out(): Operation::new("isinf", "isinf", Rule::Bool, accept::real,
        |g, _, v| is_infinite(g, v[0])).complex(|g, _, v| complex::either(g, v[0], is_infinite))
        .layout(Layout::CopiedIntegers).check(no_magnitude);
    /// Whether each element is finite (`torch.isfinite`).
    isfinite, isfinite_, isfinite_out(): Operation::new("isfinite", "isfinite", Rule::Bool, accept::real,
        |g, _, v| is_finite(g, v[0])).complex(|g, _, v| {
        let (not_finite, zero) = complex::either(g, v[0], is_not_finite);
        (g.unary(Unary::Not, not_finite), zero)
    }).layout(Layout::CopiedIntegers).check(no_magnitude);
    [rows without methods]
    /// The complex conjugate of each element.
    conj_physical(value): Operation::new("conj_physical", "conj_cuda", Rule::Common, accept::real, |_, _, v| v[0])
        .complex(|g, _, v| complex::conj(g, v[0])).float8()
        .output(OutputDType::Equal);
    /// With a power of ten that they are multiplied by before they are rounded, and divided by after.
    round_finer(value; power): Operation::new("round_finer", "round_cuda", Rule::Common, accept::float,
        |g, d, v| round_at(g, d, [v[0], v[1]], true)).output(OutputDType::Equal);
    /// With a power of ten that they are divided by before they are rounded, and multiplied by after.
    round_coarser(value; power): Operation::new("round_coarser", "round_cuda", Rule::Common, accept::float,
        |g, d, v| round_at(g, d, [v[0], v[1]], false)).output(OutputDType::Equal);
    /// With what NaNs and infinities become.
    nan_to_num(value; nan, positive, negative): Operation::new("nan_to_num", "nan_to_num_cuda", Rule::Common,
        accept::real, nan_to_num_of).complex(|g, d, v| {
        let part = |g: &mut Graph, of: Value| nan_to_num_of(g, d, &[of, v[1].0, v[2].0, v[3].0]);
        (part(g, v[0].0), part(g, v[0].1))
    }).layout(Layout::Copied);
}

methods! {
    /// The nearest number of so many decimals, halves to the even one; with a negative number the nearest multiple of that
    /// power of ten (`torch.round` with `decimals`). As in torch the elements are scaled, rounded and scaled back in their
    /// dtype, so that powers of ten that it does not hold give NaNs.
    round_decimals, round_decimals_, round_decimals_out(decimals: i64,) |this| Ok(round_call(this, decimals));
    /// NaNs as `nan` (zero for `None`), and infinities as these numbers, for `None` the largest and the smallest one of
    /// the dtype (`torch.nan_to_num`).
    nan_to_num, nan_to_num_, nan_to_num_out(nan: Option<f64>, posinf: Option<f64>, neginf: Option<f64>,) |this| {
        let largest = largest(this.dtype());
        let numbers = [nan.unwrap_or(0.0), posinf.unwrap_or(largest), neginf.unwrap_or(-largest)];
        Ok(Call::new(&rows::nan_to_num, [this.into()], numbers.map(Scalar::from)))
    };
}

impl Tensor {
    /// Returns the complex conjugate of each element in new memory; returns a real tensor itself
    /// (`torch.conj_physical`). [`Tensor::conj`] returns a view.
    ///
    /// # Errors
    /// There is not enough memory, or the device failed.
    pub fn conj_physical(&self) -> Result<Self> {
        if !self.dtype().is_complex() {
            return Ok(self.clone());
        }
        Call::new(&rows::conj_physical, [self.into()], []).made()
    }

    /// [`Self::conj_physical`] in place.
    ///
    /// # Errors
    /// Several elements of the tensor share memory, or the device failed.
    pub fn conj_physical_(&self) -> Result<&Self> {
        if self.dtype().is_complex() {
            Call::new(&rows::conj_physical, [self.into()], []).written(self)?;
        }
        Ok(self)
    }

    /// [`Self::conj_physical`] into `out`.
    ///
    /// # Errors
    /// The result does not fit `out`, or the device failed.
    pub fn conj_physical_out(&self, out: &Self) -> Result<()> {
        Call::new(&rows::conj_physical, [self.into()], []).written_out(out)
    }

    /// The tensor itself (`torch.positive`).
    ///
    /// # Errors
    /// The elements are booleans.
    pub fn positive(&self) -> Result<Self> {
        match self.dtype() {
            DType::Bool => Err(invalid("The `+` operator, on a bool tensor is not supported.")),
            _ => Ok(self.clone()),
        }
    }
}

/// Of the format with infinities torch takes the magnitude first, and has no kernel for that.
fn no_magnitude(p: &Participating<'_>) -> Option<String> {
    (p.common == DType::F8E5M2).then(|| "\"abs_cuda\" not implemented for 'Float8_e5m2'".to_owned())
}

fn round_call(elements: &Tensor, decimals: i64) -> Call<[Operand<'_>; 1], Several<Scalar>> {
    let row = match decimals {
        0 => return Call::new(&rows::round, [elements.into()], Several::new()),
        1.. => &rows::round_finer,
        _ => &rows::round_coarser,
    };
    // Beyond these powers every float is infinite.
    let power = 10_f64.powi(i32::try_from(decimals.unsigned_abs()).unwrap_or(i32::MAX));
    let power = match elements.dtype() {
        DType::F16 => half::f16::from_f64(power).to_f64(),
        DType::BF16 => half::bf16::from_f64(power).to_f64(),
        _ => power,
    };
    Call::new(row, [elements.into()], Several::from_iter([Scalar::Float(power)]))
}

/// The element, scaled by a power of ten while it is rounded. Half types round after each operation.
fn round_at(graph: &mut Graph, dtype: DType, [value, power]: [Value; 2], is_finer: bool) -> Value {
    let kept = |graph: &mut Graph, value: Value| match dtype {
        DType::F16 | DType::BF16 => {
            let short = graph.convert(value, dtype.part());
            graph.convert(short, Type::F32)
        }
        _ => value,
    };
    let scale = |graph: &mut Graph, value: Value, up: bool| {
        let scaled = if up { mul(graph, value, power) } else { formula::div(graph, value, power) };
        kept(graph, scaled)
    };
    let scaled = scale(graph, value, is_finer);
    let rounded = graph.unary(Unary::Round, scaled);
    scale(graph, rounded, !is_finer)
}

fn no_complex(p: &Participating<'_>, name: &str) -> Option<String> {
    p.common.is_complex().then(|| format!("{name} is not supported for complex inputs"))
}

fn no_negative_bools(p: &Participating<'_>) -> Option<String> {
    let text = "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the \
                `~` or `logical_not()` operator instead.";
    (p.common == DType::Bool).then(|| text.to_owned())
}

fn abs_of(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    if dtype == DType::Bool { values[0] } else { formula::abs(graph, values[0]) }
}

fn sign_of(graph: &mut Graph, dtype: DType, values: &[Value]) -> Value {
    let value = values[0];
    if dtype == DType::Bool {
        return value;
    }
    let (above, below) = (compare_with(graph, Compare::Gt, value, 0.0), compare_with(graph, Compare::Lt, value, 0.0));
    let (zero, one, minus_one) = (like(graph, value, 0.0), like(graph, value, 1.0), like(graph, value, -1.0));
    let not_above = graph.select(below, minus_one, zero);
    graph.select(above, one, not_above)
}

fn reciprocal_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let one = like(graph, values[0], 1.0);
    formula::div(graph, one, values[0])
}

/// A float rounded to a whole number. Integers are whole.
fn whole(graph: &mut Graph, op: Unary, value: Value) -> Value {
    if graph.type_of(value).is_float() { graph.unary(op, value) } else { value }
}

fn frac_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let whole = graph.unary(Unary::Trunc, values[0]);
    formula::sub(graph, values[0], whole)
}

fn is_infinite(graph: &mut Graph, value: Value) -> Value {
    if !graph.type_of(value).is_float() {
        return graph.int(Type::Bool, 0);
    }
    let magnitude = formula::abs(graph, value);
    compare_with(graph, Compare::Eq, magnitude, f64::INFINITY)
}

fn is_finite(graph: &mut Graph, value: Value) -> Value {
    if !graph.type_of(value).is_float() {
        return graph.int(Type::Bool, 1);
    }
    let magnitude = formula::abs(graph, value);
    compare_with(graph, Compare::Lt, magnitude, f64::INFINITY)
}

fn is_not_finite(graph: &mut Graph, value: Value) -> Value {
    let finite = is_finite(graph, value);
    graph.unary(Unary::Not, finite)
}

fn nan_to_num_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let &[value, nan, positive, negative] = values else { return values[0] };
    if !graph.type_of(value).is_float() {
        return value;
    }
    let is_positive = compare_with(graph, Compare::Eq, value, f64::INFINITY);
    let is_negative = compare_with(graph, Compare::Eq, value, f64::NEG_INFINITY);
    let is_nan = is_nan(graph, value);
    let finite = graph.select(is_negative, negative, value);
    let finite = graph.select(is_positive, positive, finite);
    graph.select(is_nan, nan, finite)
}

/// The largest number of a dtype of floats.
fn largest(dtype: DType) -> f64 {
    match dtype.part() {
        Type::F16 => half::f16::MAX.to_f64(),
        Type::BF16 => half::bf16::MAX.to_f64(),
        Type::F8E4M3 => 448.0,
        Type::F8E5M2 => 57344.0,
        Type::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}
