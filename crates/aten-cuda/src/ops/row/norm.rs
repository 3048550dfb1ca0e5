//! Layer normalisation.

use kernel_ir::reduce::{Last, Reduction};
use kernel_ir::{Binary, Graph, GraphError, Type, Unary};
use smallvec::SmallVec;

use super::pass;
use crate::autocast::{self, Policies};
use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError, invalid};
use crate::base::scalar::Scalar;
use crate::base::shape::contiguous_strides;
use crate::launch::ProgramKey;
use crate::launch::rows::{self, RowWork};
use crate::ops::pointwise::scalar_bits;
use crate::ops::reduce::Start;
use crate::tensor::{Context, Tensor, empty_strided};

impl Tensor {
    /// The elements of the last dimensions less their mean, divided by the root of their variance and `eps`, then scaled
    /// by `weight` and moved by `bias`, which have the sizes of those dimensions (`torch.nn.functional.layer_norm`).
    ///
    /// # Errors
    /// The last dimensions do not have these sizes, `weight` or `bias` does not have them or another dtype, the elements
    /// are no real floats, there is not enough memory, or the device failed.
    pub fn layer_norm(
        &self,
        normalized_shape: &[i64],
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f64,
    ) -> Result<Self> {
        let policies = const { Policies::of("layer_norm") };
        if let Some((_inside, [input, weight, bias])) = autocast::cast_optional(policies, [Some(self), weight, bias])? {
            return input.as_ref().unwrap_or(self).layer_norm(normalized_shape, weight.as_ref(), bias.as_ref(), eps);
        }
        let run = || {
            check(self, normalized_shape, weight, bias)?;
            let out = empty_strided(self.sizes(), &contiguous_strides(self.sizes()), self.dtype(), self.device())?;
            let flags = u64::from(weight.is_some()) << 1 | u64::from(bias.is_some());
            let key = ProgramKey::new("layer_norm", (self.dtype() as u64) << 2 | flags);
            let reduction = rows::reduction(key, || build(self.dtype(), weight.is_some(), bias.is_some()))?;
            let extras = [weight, bias].into_iter().flatten().map(|extra| extra.expand(self.sizes()));
            let extras: SmallVec<[Self; 2]> = extras.collect::<Result<_>>()?;
            let inputs: SmallVec<[&Self; 3]> = std::iter::once(self).chain(&extras).collect();
            let dims: Vec<usize> = (self.dim() - normalized_shape.len()..self.dim()).collect();
            let ty = self.dtype().compute_type();
            let count = Scalar::Int(normalized_shape.iter().product());
            let scalars = [scalar_bits(count, ty, 1)[0], scalar_bits(Scalar::Float(eps), ty, 1)[0]];
            rows::run(&RowWork { key, reduction, outputs: &[&out], inputs: &inputs, dims: &dims, scalars: &scalars })?;
            Ok(out)
        };
        run().of("layer_norm", &[self])
    }
}

fn check(input: &Tensor, shape: &[i64], weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<()> {
    if shape.is_empty() {
        let text = "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got \
                    normalized_shape = []";
        return Err(invalid(text));
    }
    for (name, extra) in [("weight", weight), ("bias", bias)] {
        let Some(extra) = extra else { continue };
        if extra.sizes() != shape {
            let sizes = extra.sizes();
            return Err(invalid(format!(
                "Expected {name} to be of same shape as normalized_shape, but got {name} of shape {sizes:?} and \
                 normalized_shape = {shape:?}"
            )));
        }
        if extra.dtype() != input.dtype() {
            let (wanted, found) = (input.dtype().scalar_type_name(), extra.dtype().scalar_type_name());
            return Err(invalid(format!("expected scalar type {wanted} but found {found}")));
        }
        if extra.device() != input.device() {
            let (first, second) = (input.device().to_string(), extra.device().to_string());
            return Err(TensorError::Devices { first, second }.into());
        }
    }
    if !input.sizes().ends_with(shape) {
        let wanted: String = shape.iter().map(|size| format!(", {size}")).collect();
        let (sizes, given) = (input.sizes(), shape);
        return Err(invalid(format!(
            "Given normalized_shape={given:?}, expected input with shape [*{wanted}], but got input of size{sizes:?}"
        )));
    }
    if !input.dtype().is_floating_point() || input.dtype().is_float8() {
        let kernel = "LayerNormKernelImpl".to_owned();
        return Err(TensorError::NotImplemented { kernel, dtype: input.dtype() }.into());
    }
    Ok(())
}

/// The mean, then the mean of squared distances from it, then each element. The scalars are the count and `eps`.
fn build(dtype: DType, has_weight: bool, has_bias: bool) -> std::result::Result<Reduction, GraphError> {
    let (given, ty) = (dtype.part(), dtype.compute_type());
    let inputs: Vec<Type> = vec![given; 1 + usize::from(has_weight) + usize::from(has_bias)];
    let scalars = [ty, ty];
    let mean = pass(
        ty,
        (Start::Zero, Binary::Add),
        &inputs,
        &scalars,
        |graph, taken| graph.convert(taken[0], ty),
        |graph, sum, numbers| vec![graph.binary(Binary::Div, sum, numbers[0])],
    )?;
    let with_mean: Vec<Type> = inputs.iter().copied().chain([ty]).collect();
    let deviation = pass(
        ty,
        (Start::Zero, Binary::Add),
        &with_mean,
        &scalars,
        |graph, taken| {
            let value = graph.convert(taken[0], ty);
            let distance = graph.binary(Binary::Sub, value, taken[inputs.len()]);
            graph.binary(Binary::Mul, distance, distance)
        },
        |graph, sum, numbers| {
            let variance = graph.binary(Binary::Div, sum, numbers[0]);
            let moved = graph.binary(Binary::Add, variance, numbers[1]);
            let (root, one) = (graph.unary(Unary::Sqrt, moved), graph.number(ty, 1));
            vec![graph.binary(Binary::Div, one, root)]
        },
    )?;
    let mut graph = Graph::new();
    let elements: Vec<_> = inputs.iter().map(|&ty| graph.input(ty)).collect();
    let (mean_value, factor) = (graph.input(ty), graph.input(ty));
    let converted: Vec<_> = elements.into_iter().map(|value| graph.convert(value, ty)).collect();
    let distance = graph.binary(Binary::Sub, converted[0], mean_value);
    let mut result = graph.binary(Binary::Mul, distance, factor);
    match (has_weight, has_bias) {
        (true, true) => result = graph.fma(result, converted[1], converted[2]),
        (true, false) => result = graph.binary(Binary::Mul, result, converted[1]),
        (false, true) => result = graph.binary(Binary::Add, result, converted[1]),
        (false, false) => {}
    }
    let result = graph.convert(result, given);
    graph.output(result);
    Reduction::new(inputs, scalars.to_vec(), vec![mean, deviation], Last::Each(graph.finish()?))
}
