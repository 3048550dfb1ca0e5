//! Operations on three operands, or on one and its bounds.

use kernel_ir::{Binary, Compare, Graph, Value};

use super::formula::{abs, compare_with, div, extreme_or_nan, like, mul, neg, sub};
use super::{Call, Layout, Operation, Pair, Participating, Rule, Several, accept, complex, count, methods, operations};
use crate::base::dtype::{Category, DType};
use crate::base::error::{Result, invalid};
use crate::base::scalar::Scalar;
use crate::tensor::{Operand, Tensor};

operations! {
    /// The elements plus `value` times the product of the two others' (`torch.addcmul`).
    addcmul, addcmul_, addcmul_out(first, second; value): Operation::new("addcmul", "addcmul_cuda", Rule::Common,
        accept::real_but_bool, addcmul_of).complex(|g, _, v| {
        let product = complex::mul(g, v[1], v[2]);
        let scaled = complex::mul(g, v[3], product);
        complex::add(g, v[0], scaled)
    });
    /// The elements plus `value` times the quotient of the two others' (`torch.addcdiv`).
    addcdiv, addcdiv_, addcdiv_out(first, second; value): Operation::new("addcdiv", "addcdiv_cuda", Rule::Common,
        accept::float, addcdiv_of).complex(|g, _, v| {
        let quotient = complex::div(g, v[1], v[2]);
        let scaled = complex::mul(g, v[3], quotient);
        complex::add(g, v[0], scaled)
    }).check(no_integer_division);
    [rows without methods]
    /// A condition, and the elements where it is true and where it is false.
    select(condition, yes, no): Operation { takes_condition: true, ..Operation::new("where", "where_cuda", Rule::Common,
        accept::real, |g, _, v| g.select(v[0], v[1], v[2])) }.complex(|g, _, v| {
        (g.select(v[0].0, v[1].0, v[2].0), g.select(v[0].0, v[1].1, v[2].1))
    }).check(no_condition).float8();
    /// A mask, the elements, and the number that they become where it is true.
    fill(mask, elements; value): Operation { takes_condition: true, layout: Layout::Rows, ..Operation::new(
        "masked_fill", "masked_fill_", Rule::Common, accept::real, |g, _, v| g.select(v[0], v[2], v[1])) }
        .complex(|g, _, v| {
        (g.select(v[0].0, v[2].0, v[1].0), g.select(v[0].0, v[2].1, v[1].1))
    }).check(|p| no_mask(p).or_else(|| too_large(p)));
    /// The elements and both bounds.
    clamp(elements, low, high): Operation::new("clamp", "clamp_scalar_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| {
            let above = extreme_or_nan(g, Binary::Max, v[0], v[1]);
            extreme_or_nan(g, Binary::Min, above, v[2])
        }).plain_numbers().check(|p| no_order(p, "clamp"));
    /// The elements and the lower bound.
    clamp_min(elements, low): Operation::new("clamp_min", "clamp_scalar_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| extreme_or_nan(g, Binary::Max, v[0], v[1])).plain_numbers().check(|p| no_order(p, "clamp"));
    /// The elements and the upper bound.
    clamp_max(elements, high): Operation::new("clamp_max", "clamp_max_scalar_cuda", Rule::Common, accept::real_but_bool,
        |g, _, v| extreme_or_nan(g, Binary::Min, v[0], v[1])).plain_numbers().check(|p| no_order(p, "clamp"));
    /// Both ends and a number as the weight of the second one.
    lerp(start, end; weight): Operation::new("lerp", "lerp_cuda", Rule::Common, accept::float, lerp_of)
        .complex(lerp_complex).check(one_dtype);
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
    /// The elements, or the value where the mask is true (`torch.masked_fill`). The value is a number or a tensor
    /// without dimensions.
    masked_fill, masked_fill_, masked_fill_out(mask: &'a Self, value: impl Into<Operand<'a>>,) |this| {
        let value = match value.into() {
            Operand::Number(value) => value,
            Operand::Tensor(value) => single(value)?,
        };
        Ok(Call::new(&rows::fill, [mask.into(), this.into()], [value]))
    };
}

impl Tensor {
    /// The elements of `yes` where this tensor of booleans is true, else those of `no` (`torch.where`).
    ///
    /// # Errors
    /// This tensor has no booleans, the sizes do not broadcast, the tensors are on several devices, there is not enough
    /// memory, or the device failed.
    #[doc(alias = "where")]
    pub fn where_cond<'a>(&'a self, yes: impl Into<Operand<'a>>, no: impl Into<Operand<'a>>) -> Result<Self> {
        Call::new(&rows::select, [self.into(), yes.into(), no.into()], []).made()
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
        Call::new(&rows::select, [self.into(), yes.into(), no.into()], []).written(out)
    }
}

fn clamp_call<'a>(
    elements: &'a Tensor,
    min: Option<Operand<'a>>,
    max: Option<Operand<'a>>,
) -> Result<Call<Several<Operand<'a>>, Several<Scalar>>> {
    Ok(match (min, max) {
        (Some(min), Some(max)) => Call::of_several(&rows::clamp, [elements.into(), min, max], []),
        (Some(min), None) => Call::of_several(&rows::clamp_min, [elements.into(), min], []),
        (None, Some(max)) => Call::of_several(&rows::clamp_max, [elements.into(), max], []),
        (None, None) => return Err(invalid("torch.clamp: At least one of 'min' or 'max' must not be None")),
    })
}

/// The number of a tensor without dimensions.
fn single(value: &Tensor) -> Result<Scalar> {
    if value.dim() != 0 {
        let count = value.dim();
        return Err(invalid(format!(
            "masked_fill only supports a 0-dimensional value tensor, but got tensor with {count} dimension(s)."
        )));
    }
    value.item()
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
    (given != DType::Bool).then(|| format!("masked_fill only supports boolean masks, but got mask with dtype {name}"))
}

/// The text for a number that is past the largest of the dtype. Numbers below zero wrap around in unsigned dtypes.
fn too_large(p: &Participating<'_>) -> Option<String> {
    let (name, largest) = match p.common {
        DType::U8 => ("uint8_t", 255.0),
        DType::I8 => ("int8_t", 127.0),
        DType::I16 => ("int16_t", 32_767.0),
        DType::I32 => ("int", 2_147_483_647.0),
        DType::I64 => ("int64_t", 9_223_372_036_854_775_807.0),
        DType::F16 => ("at::Half", half::f16::MAX.to_f64()),
        DType::BF16 => ("at::BFloat16", half::bf16::MAX.to_f64()),
        DType::F32 => ("float", f64::from(f32::MAX)),
        _ => return None,
    };
    let number = p.numbers.first()?.to_f64();
    let lowest = if p.common.is_integral() && p.common != DType::U8 { -largest - 1.0 } else { -largest };
    let is_past = number > largest || number < lowest;
    let is_infinite_float = p.common.is_floating_point() && number.is_infinite();
    (is_past && !is_infinite_float).then(|| format!("value cannot be converted to type {name} without overflow"))
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
    // Dividend and divisor decide; the first operand may be a float.
    p.dtypes[1..].iter().all(|dtype| dtype.category() < Category::Floating).then(|| text.to_owned())
}

fn one_dtype(p: &Participating<'_>) -> Option<String> {
    let &[first, ref others @ ..] = p.dtypes else { return None };
    let name = |dtype: DType| dtype.torch_name().trim_start_matches("torch.").to_owned();
    let found = *others.iter().find(|&&dtype| dtype != first)?;
    Some(format!("expected dtype {} for `end` but got dtype {}", name(first), name(found)))
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
