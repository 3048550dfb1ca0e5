//! Operations on three operands, or on one and its bounds.

use kernel_ir::{Binary, Compare, Graph, Value};

use super::formula::{abs, compare_with, div, extreme_or_nan, like, mul, neg, sub};
use super::{
    Call, Layout, Limit, Operation, Pair, Participating, Rule, Several, accept, complex, count, methods, operations,
};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, TensorError, invalid};
use crate::base::scalar::Scalar;
use crate::base::shape::broadcast;
use crate::tensor::{Operand, Tensor, is_host};

operations! {
    /// The elements plus `value` times the product of the two others' (`torch.addcmul`).
    addcmul, addcmul_, addcmul_out(first, second; value): Operation::new("addcmul", "addcmul_cuda", Rule::Common,
        accept::real_but_bool, addcmul_of).complex(|g, _, v| {
        let product = complex::mul(g, v[1], v[2]);
        let scaled = complex::mul(g, v[3], product);
        complex::add(g, v[0], scaled)
    }).limit(Limit::Computed);
    /// The elements plus `value` times the quotient of the two others' (`torch.addcdiv`).
    addcdiv, addcdiv_, addcdiv_out(first, second; value): Operation::new("addcdiv", "addcdiv_cuda", Rule::Common,
        accept::float, addcdiv_of).complex(|g, _, v| {
        let quotient = complex::div(g, v[1], v[2]);
        let scaled = complex::mul(g, v[3], quotient);
        complex::add(g, v[0], scaled)
    }).check(no_integer_division).limit(Limit::Computed);
    [rows without methods]
    /// A condition, and the elements where it is true and where it is false.
    select(condition, yes, no): Operation { takes_condition: true, ..Operation::new("where", "where_cuda", Rule::Common,
        accept::real, |g, _, v| g.select(v[0], v[1], v[2])) }.complex(|g, _, v| {
        (g.select(v[0].0, v[1].0, v[2].0), g.select(v[0].0, v[1].1, v[2].1))
    }).check(no_condition).float8().limit(Limit::Element).layout(Layout::Converted);
    /// A mask, the elements, and the number that they become where it is true.
    fill(mask, elements; value): Operation { takes_condition: true, layout: Layout::Rows, ..Operation::new(
        "masked_fill", "masked_fill_", Rule::Common, accept::real, |g, _, v| g.select(v[0], v[2], v[1])) }
        .complex(|g, _, v| {
        (g.select(v[0].0, v[2].0, v[1].0), g.select(v[0].0, v[2].1, v[1].1))
    }).check(no_mask).limit(Limit::Common);
    /// The elements and both bounds.
    clamp(elements, low, high): Operation::new("clamp", "clamp_scalar_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| {
            let above = extreme_or_nan(g, Binary::Max, v[0], v[1]);
            extreme_or_nan(g, Binary::Min, above, v[2])
        }).plain_numbers().check(|p| no_order(p, "clamp")).limit(Limit::Device);
    /// The elements and the lower bound.
    clamp_min(elements, low): Operation::new("clamp_min", "clamp_scalar_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| extreme_or_nan(g, Binary::Max, v[0], v[1])).plain_numbers().check(|p| no_order(p, "clamp")).limit(Limit::Device);
    /// The elements and the upper bound.
    clamp_max(elements, high): Operation::new("clamp_max", "clamp_max_scalar_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| extreme_or_nan(g, Binary::Min, v[0], v[1])).plain_numbers().check(|p| no_order(p, "clamp")).limit(Limit::Device);
    /// Both ends and a number as the weight of the second one.
    lerp(start, end; weight): Operation::new("lerp", "lerp_cuda", Rule::Common, accept::float, lerp_of)
        .complex(lerp_complex).check(one_dtype).limit(Limit::Computed);
    /// Both ends and the weights of the second one.
    lerp_weights(start, end, weight): Operation::new("lerp_weights", "lerp_cuda", Rule::Common, accept::float,
        lerp_of).complex(lerp_complex).check(one_dtype);
}

methods! {
    /// Each element held between the bounds that are given; a NaN stays one (`torch.clamp`).
    clamp, clamp_, clamp_out(min: Option<Operand<'a>>, max: Option<Operand<'a>>,) |this| clamp_call(this, min, max);
    /// From each element to that of `end` by the part `weight` of the way (`torch.lerp`).
    lerp, lerp_, lerp_out(end: impl Into<Operand<'a>>, weight: impl Into<Operand<'a>>,) |this| {
        Ok(match weight.into() {
            Operand::Number(weight) => Call::of_several(&rows::lerp, [this.into(), end.into()], [weight]),
            weight => Call::of_several(&rows::lerp_weights, [this.into(), end.into(), weight], []),
        })
    };
}

impl Tensor {
    /// Returns a copy in which the elements where the mask is true have the given value (`torch.masked_fill`). The
    /// value is a scalar or a 0-d tensor. A 0-d tensor on a device is converted there as [`Self::copy_`] does, without
    /// waiting.
    ///
    /// # Errors
    /// The mask is not boolean, the value has dimensions or does not fit into the dtype, the sizes do not broadcast,
    /// the tensors are on several devices, there is not enough memory, or the device failed.
    pub fn masked_fill<'a>(&'a self, mask: &'a Self, value: impl Into<Operand<'a>>) -> Result<Self> {
        broadcast(mask.sizes(), self.sizes())?;
        match Filling::of(self, mask, value.into())? {
            Filling::Number(value) => Call::new(&rows::fill, [mask.into(), self.into()], [value]).made(),
            Filling::Element(value) => {
                let out = Self::uninitialized(&broadcast(self.sizes(), mask.sizes())?, self.dtype(), self)?;
                Call::new(&rows::select, [mask.into(), (&value).into(), self.into()], []).written(&out)?;
                Ok(out)
            }
        }
    }

    /// [`Self::masked_fill`] in place.
    ///
    /// # Errors
    /// Those of [`Self::masked_fill`]; the result does not fit the tensor.
    pub fn masked_fill_<'a>(&'a self, mask: &'a Self, value: impl Into<Operand<'a>>) -> Result<&'a Self> {
        self.masked_fill_out(mask, value, self)?;
        Ok(self)
    }

    /// [`Self::masked_fill`] into `out`.
    ///
    /// # Errors
    /// Those of [`Self::masked_fill`]; the result does not fit `out`.
    pub fn masked_fill_out<'a>(&'a self, mask: &'a Self, value: impl Into<Operand<'a>>, out: &Self) -> Result<()> {
        let filling = Filling::of(self, mask, value.into())?;
        if mask.dtype() == DType::Bool {
            let result = broadcast(self.sizes(), mask.sizes())?.to_vec();
            if std::ptr::eq(self, out) && result != out.sizes() {
                return Err(TensorError::OutputShape { output: out.sizes().to_vec(), result }.into());
            }
        }
        match filling {
            Filling::Number(value) => Call::new(&rows::fill, [mask.into(), self.into()], [value]).written(out),
            Filling::Element(value) => {
                Call::new(&rows::select, [mask.into(), (&value).into(), self.into()], []).written(out)
            }
        }
    }

    /// The elements of `yes` where this tensor of booleans is true, else those of `no` (`torch.where`).
    ///
    /// # Errors
    /// This tensor has no booleans, the sizes do not broadcast, the tensors are on several devices, there is not enough
    /// memory, or the device failed.
    #[doc(alias = "where")]
    pub fn where_cond<'a>(&'a self, yes: impl Into<Operand<'a>>, no: impl Into<Operand<'a>>) -> Result<Self> {
        let bytes = condition_of_bytes(self)?;
        let condition = bytes.as_ref().unwrap_or(self);
        Call::new(&rows::select, [condition.into(), yes.into(), no.into()], []).made()
    }

    /// [`Self::where_cond`] into `out`.
    ///
    /// # Errors
    /// As for the operation, or the result does not fit `out`.
    pub fn where_cond_out<'a>(
        &'a self,
        yes: impl Into<Operand<'a>>,
        no: impl Into<Operand<'a>>,
        out: &Self,
    ) -> Result<()> {
        let bytes = condition_of_bytes(self)?;
        let condition = bytes.as_ref().unwrap_or(self);
        Call::new(&rows::select, [condition.into(), yes.into(), no.into()], []).written_out(out)
    }
}

/// Returns a condition of bytes as booleans, with torch's warning; `None` for any other.
fn condition_of_bytes(condition: &Tensor) -> Result<Option<Tensor>> {
    if condition.dtype() != DType::U8 {
        return Ok(None);
    }
    c10_core::warn(
        "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version of \
         PyTorch. Use a boolean condition instead.",
    );
    condition.to_dtype(DType::Bool).map(Some)
}

/// The value of `masked_fill`.
enum Filling {
    Number(Scalar),
    /// A one-element tensor on the device, of the dtype of the elements that it replaces.
    Element(Tensor),
}

impl Filling {
    fn of(elements: &Tensor, mask: &Tensor, value: Operand<'_>) -> Result<Self> {
        let value = match value {
            Operand::Number(value) => return Ok(Self::Number(value)),
            Operand::Tensor(value) => value,
        };
        if value.dim() != 0 {
            let count = value.dim();
            return Err(invalid(format!(
                "masked_fill only supports a 0-dimensional value tensor, but got tensor with {count} dimension(s)."
            )));
        }
        let dtype = elements.dtype();
        if is_host(value.device()) || is_host(elements.device()) || dtype.is_float8() {
            return Ok(Self::Number(value.item()?));
        }
        let given = [mask.dtype()];
        if let Some(text) = no_mask(&Participating { common: dtype, dtypes: &given, numbers: &[], on_host: false }) {
            return Err(invalid(text));
        }
        if value.dtype().is_complex() && !dtype.is_complex() {
            let name = dtype.cpp_name();
            return Err(invalid(format!("value cannot be converted to type {name} without overflow")));
        }
        Ok(Self::Element(value.to_dtype(dtype)?))
    }
}

fn clamp_call<'a>(
    elements: &'a Tensor,
    min: Option<Operand<'a>>,
    max: Option<Operand<'a>>,
) -> Result<Call<Several<Operand<'a>>, Several<Scalar>>> {
    // torch looks whether one of two bounds is a NaN, as an `f64`, and converts a single one.
    let limit = if min.is_some() && max.is_some() { DType::F64 } else { elements.dtype() };
    let is_nan =
        |bound: &Option<Operand<'_>>| matches!(bound, Some(Operand::Number(Scalar::Float(number))) if number.is_nan());
    let beside_nan = |bound: Option<Operand<'a>>| match bound {
        // Beside a NaN the other bound is not looked at, and the result is NaN.
        Some(Operand::Number(Scalar::Int(_) | Scalar::Float(_))) => Some(Operand::Number(f64::NAN.into())),
        other => other,
    };
    let (min, max) = match (is_nan(&min), is_nan(&max)) {
        (true, _) => (min, beside_nan(max)),
        (_, true) => (beside_nan(min), max),
        _ => (min, max),
    };
    let min = real_bound(elements, min, limit)?;
    let max = match (&min, max) {
        // Beside a NaN the other bound is not looked at.
        (Some(Operand::Number(Scalar::Float(nan))), Some(Operand::Number(Scalar::Complex(bound))))
            if nan.is_nan() && elements.dtype().is_floating_point() =>
        {
            Some(Operand::Number(Scalar::Float(bound.re)))
        }
        (_, max) => real_bound(elements, max, limit)?,
    };
    Ok(match (min, max) {
        (Some(min), Some(max)) => Call::of_several(&rows::clamp, [elements.into(), min, max], []),
        (Some(min), None) => {
            Call::of_several(&rows::clamp_min, [elements.into(), single_bound(min, f64::NEG_INFINITY)], [])
        }
        (None, Some(max)) => {
            Call::of_several(&rows::clamp_max, [elements.into(), single_bound(max, f64::INFINITY)], [])
        }
        (None, None) => return Err(invalid("torch.clamp: At least one of 'min' or 'max' must not be None")),
    })
}

/// A bound without its imaginary part, which has to be zero. Only complex bounds of integers promote, and are refused so.
fn real_bound<'a>(elements: &Tensor, bound: Option<Operand<'a>>, limit: DType) -> Result<Option<Operand<'a>>> {
    match bound {
        Some(Operand::Number(Scalar::Complex(value))) if elements.dtype().is_floating_point() => {
            Scalar::Complex(value).check_fits(limit)?;
            Ok(Some(Operand::Number(Scalar::Float(value.re))))
        }
        other => Ok(other),
    }
}

/// The only bound of a call. A number that is a NaN bounds nothing, though beside another bound it makes all elements a
/// NaN.
fn single_bound(bound: Operand<'_>, nothing: f64) -> Operand<'_> {
    match bound {
        Operand::Number(Scalar::Float(number)) if number.is_nan() => Operand::Number(nothing.into()),
        other => other,
    }
}

fn no_condition(p: &Participating<'_>) -> Option<String> {
    let given = *p.dtypes.first()?;
    let name = given.scalar_type_name();
    (given != DType::Bool)
        .then(|| format!("where expected condition to be a boolean tensor, but got a tensor with dtype {name}"))
}

fn no_mask(p: &Participating<'_>) -> Option<String> {
    let given = *p.dtypes.first()?;
    let name = given.scalar_type_name();
    let text =
        |kernel: &str, name: &str| format!("{kernel} only supports boolean masks, but got mask with dtype {name}");
    (given != DType::Bool)
        .then(|| if p.on_host { text("masked_fill_", given.meta_name()) } else { text("masked_fill", name) })
}

fn no_order(p: &Participating<'_>, name: &str) -> Option<String> {
    p.common.is_complex().then(|| format!("{name} is not supported for complex types"))
}

fn no_integer_division(p: &Participating<'_>) -> Option<String> {
    let text = "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a \
                true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * \
                torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / \
                tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: (input + value * \
                tensor1 / tensor2), for all dtypes.";
    // Only dividend and divisor decide; the first operand may be a float.
    p.dtypes[1..].iter().all(|dtype| dtype.category() < Category::Floating).then(|| text.to_owned())
}

fn one_dtype(p: &Participating<'_>) -> Option<String> {
    let &[first, ref others @ ..] = p.dtypes else { return None };
    let (at, found) = others.iter().enumerate().find(|&(_, &dtype)| dtype != first)?;
    let (name, first, found) = (if at == 0 { "end" } else { "weight" }, first.meta_name(), found.meta_name());
    Some(format!("expected dtype {first} for `{name}` but got dtype {found}"))
}

fn addcmul_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let product = mul(graph, values[1], values[2]);
    graph.fma(values[3], product, values[0])
}

fn addcdiv_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let quotient = div(graph, values[1], values[2]);
    graph.fma(values[3], quotient, values[0])
}

/// From the nearer end, so that a weight of one gives the second end itself.
fn lerp_of(graph: &mut Graph, _: DType, values: &[Value]) -> Value {
    let &[start, end, weight] = values else { return values[0] };
    let way = sub(graph, end, start);
    let from_start = graph.fma(weight, way, start);
    let one = like(graph, weight, 1.0);
    let (rest, back) = (sub(graph, one, weight), neg(graph, way));
    let from_end = graph.fma(back, rest, end);
    let distance = abs(graph, weight);
    let is_small = compare_with(graph, Compare::Lt, distance, 0.5);
    graph.select(is_small, from_start, from_end)
}

fn lerp_complex(graph: &mut Graph, dtype: DType, values: &[Pair]) -> Pair {
    let (start, end, weight) = (values[0], values[1], values[2]);
    let way = complex::sub(graph, end, start);
    let forth = complex::mul(graph, weight, way);
    let from_start = complex::add(graph, start, forth);
    let one = complex::number(graph, weight, 1.0);
    let rest = complex::sub(graph, one, weight);
    let back = complex::mul(graph, way, rest);
    let from_end = complex::sub(graph, end, back);
    let (distance, _) = complex::abs(graph, dtype, &[weight]);
    let is_small = compare_with(graph, Compare::Lt, distance, 0.5);
    (graph.select(is_small, from_start.0, from_end.0), graph.select(is_small, from_start.1, from_end.1))
}
