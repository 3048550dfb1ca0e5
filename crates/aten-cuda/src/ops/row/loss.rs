//! Cross entropy.

use kernel_ir::reduce::{Last, Pass, Reduction};
use kernel_ir::{Binary, Compare, Graph, GraphError, Math, Type, Value};
use smallvec::SmallVec;

use super::pass;
use crate::autocast::{self, Policies};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result, TensorError, invalid};
use crate::base::scalar::Scalar;
use crate::base::shape::{Dims, contiguous_strides};
use crate::launch::library::index;
use crate::launch::rows::{self, RowWork};
use crate::launch::{self, ProgramKey};
use crate::ops::pointwise::scalar_bits;
use crate::ops::reduce::Start;
use crate::report::Reporter;
use crate::tensor::{Context, Tensor, empty_strided, is_host};

/// What becomes of the losses of single samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossReduction {
    /// They stay single (`"none"`).
    None,
    /// Their mean, by the weights of their classes (`"mean"`).
    #[default]
    Mean,
    /// Their sum (`"sum"`).
    Sum,
}

/// The options of [`Tensor::cross_entropy`] with torch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a> {
    /// A factor for each class.
    pub weight: Option<&'a Tensor>,
    /// The class of samples that do not count.
    pub ignore_index: i64,
    /// What becomes of the losses of single samples.
    pub reduction: LossReduction,
    /// How much of the target all classes share, from 0 to 1.
    pub label_smoothing: f64,
}

impl Default for CrossEntropy<'_> {
    fn default() -> Self {
        Self { weight: None, ignore_index: -100, reduction: LossReduction::Mean, label_smoothing: 0.0 }
    }
}

impl Tensor {
    /// The cross entropy of these logits and the classes in `target` (`torch.nn.functional.cross_entropy`): the logits
    /// have the sizes `[classes]`, `[samples, classes]` or `[samples, classes, ...]`, and `target` has those sizes
    /// without the classes, as `i64`. A target of the same sizes as the logits, of floats, has the probability of each
    /// class; the mean is then that over the samples, whatever the weights.
    ///
    /// A class that does not exist is an error on the host. A device does not wait for the result: there the loss is a
    /// NaN, and the next call that waits for the device tells which class it was.
    ///
    /// # Errors
    /// The sizes, dtypes or devices do not fit together, a class is to be ignored and there are probabilities, there is not enough memory, or the device failed.
    pub fn cross_entropy(&self, target: &Self, options: &CrossEntropy<'_>) -> Result<Self> {
        // On devices torch has no policy for the whole of it where there are probabilities, but for its parts.
        let policies = match self.sizes() == target.sizes() {
            true => const { Policies::of_both("", "cross_entropy_loss") },
            false => const { Policies::of_both("nll_loss", "cross_entropy_loss") },
        };
        if let Some((_inside, [input, target, weight])) =
            autocast::cast_optional(policies, [Some(self), Some(target), options.weight])?
            && let (Some(input), Some(target)) = (input, target)
        {
            return input.cross_entropy(&target, &CrossEntropy { weight: weight.as_ref(), ..*options });
        }
        let run = || {
            let dim = usize::from(self.dim() > 1);
            if self.sizes() == target.sizes() {
                return of_probabilities(self, target, options, dim);
            }
            check(self, target, options, dim)?;
            let losses = losses(self, target, options, dim)?;
            match options.reduction {
                LossReduction::None => Ok(losses.0),
                LossReduction::Sum => losses.0.sum((), false, None),
                LossReduction::Mean => losses.0.sum((), false, None)?.div(&losses.1.sum((), false, None)?),
            }
        };
        run().of("cross_entropy", &[self, target])
    }
}

/// The cross entropy of logits and probabilities, of operations on whole tensors as in torch.
fn of_probabilities(input: &Tensor, target: &Tensor, options: &CrossEntropy<'_>, dim: usize) -> Result<Tensor> {
    if !target.dtype().is_floating_point() {
        let found = target.dtype().scalar_type_name();
        return Err(invalid(format!("Expected floating point type for target with class probabilities, got {found}")));
    }
    if options.ignore_index >= 0 {
        return Err(invalid("ignore_index is not supported for floating point target"));
    }
    let Some(&classes) = input.sizes().get(dim) else {
        return Err(invalid("cross_entropy: the input has no dimension of classes"));
    };
    launch::common_device([Some(input), Some(target), options.weight].into_iter().flatten())?;
    check_weight(options.weight, classes)?;
    check_smoothing(options.label_smoothing)?;
    let at = i64::try_from(dim).unwrap_or(0);
    let target = match options.label_smoothing {
        0.0 => target.clone(),
        #[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
        share => target.mul(1.0 - share)?.add(share / classes as f64)?,
    };
    let mut losses = input.log_softmax(at, None)?.mul(&target)?;
    if let Some(weight) = options.weight {
        let mut sizes = vec![1_i64; input.dim()];
        sizes[dim] = classes;
        losses = losses.mul(&weight.reshape(&sizes)?)?;
    }
    match options.reduction {
        LossReduction::None => losses.sum(at, false, None)?.neg(),
        LossReduction::Sum => losses.sum((), false, None)?.neg(),
        LossReduction::Mean if input.numel() == 0 => losses.sum((), false, None)?.full_like(f64::NAN),
        LossReduction::Mean => losses.sum((), false, None)?.neg()?.div(input.numel() / classes),
    }
}

fn check_weight(weight: Option<&Tensor>, classes: i64) -> Result<()> {
    match weight {
        Some(weight) if weight.sizes() != [classes] => {
            let sizes = weight.sizes();
            Err(invalid(format!(
                "cross_entropy: weight tensor should be defined either for all {classes} classes or no classes but got \
                 weight tensor of shape: {sizes:?}"
            )))
        }
        _ => Ok(()),
    }
}

fn check_smoothing(value: f64) -> Result<()> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(invalid(format!("label_smoothing must be between 0.0 and 1.0. Got: {value}")))
}

fn check(input: &Tensor, target: &Tensor, options: &CrossEntropy<'_>, dim: usize) -> Result<()> {
    if !input.dtype().is_floating_point() || input.dtype().is_float8() {
        let kernel = "host_softmax".to_owned();
        return Err(TensorError::NotImplemented { kernel, dtype: input.dtype() }.into());
    }
    let classes = input.sizes().get(dim).copied();
    let mut sizes = Dims::from_slice(input.sizes());
    if classes.is_none() {
        return Err(invalid("cross_entropy: the input has no dimension of classes"));
    }
    sizes.remove(dim);
    if target.sizes() != sizes.as_slice() {
        return Err(wrong_target(&sizes, target));
    }
    if target.dtype() != DType::I64 {
        let found = target.dtype().scalar_type_name();
        return Err(invalid(format!("expected scalar type Long but found {found}")));
    }
    launch::common_device([Some(input), Some(target), options.weight].into_iter().flatten())?;
    check_weight(options.weight, classes.unwrap_or(0))?;
    if let Some(weight) = options.weight.filter(|weight| weight.dtype() != input.dtype()) {
        let (wanted, found) = (input.dtype().scalar_type_name(), weight.dtype().scalar_type_name());
        return Err(invalid(format!("expected scalar type {wanted} but found {found}")));
    }
    check_smoothing(options.label_smoothing)?;
    if is_host(target.device()) {
        let exists = |&class: &i64| class == options.ignore_index || (0..classes.unwrap_or(0)).contains(&class);
        if let Some((element, &class)) = target.to_vec::<i64>()?.iter().enumerate().find(|(_, class)| !exists(class)) {
            let element = i64::try_from(element).unwrap_or(i64::MAX);
            return Err(TensorError::TargetOutOfRange { element, class, classes: classes.unwrap_or(0) }.into());
        }
        return Ok(());
    }
    index::check_places(target, classes.unwrap_or(0), options.ignore_index, Reporter::CrossEntropy)
}

/// A target of other sizes than the logits have without their classes.
fn wrong_target(wanted: &[i64], target: &Tensor) -> Error {
    match (wanted.first(), target.sizes().first()) {
        (Some(samples), Some(found)) if samples != found => {
            invalid(format!("Expected input batch_size ({samples}) to match target batch_size ({found})."))
        }
        _ => invalid(format!("Expected target size {wanted:?}, got {:?}", target.sizes())),
    }
}

/// The loss of each sample, and the weight of its class.
fn losses(input: &Tensor, target: &Tensor, options: &CrossEntropy<'_>, dim: usize) -> Result<(Tensor, Tensor)> {
    let make = || empty_strided(target.sizes(), &contiguous_strides(target.sizes()), input.dtype(), input.device());
    let (loss, weight) = (make()?, make()?);
    let at = i64::try_from(dim).unwrap_or(0);
    let (whole_loss, whole_weight) = (loss.unsqueeze(at)?, weight.unsqueeze(at)?);
    let target = target.unsqueeze(at)?.expand(input.sizes())?;
    let mut inputs: SmallVec<[Tensor; 3]> = SmallVec::new();
    inputs.extend([input.clone(), target]);
    if let Some(weight) = options.weight {
        let mut sizes = vec![1_i64; input.dim()];
        sizes[dim] = weight.numel();
        inputs.push(weight.reshape(&sizes)?.expand(input.sizes())?);
    }
    let inputs: SmallVec<[&Tensor; 3]> = inputs.iter().collect();
    let variant = (input.dtype() as u64) << 1 | u64::from(options.weight.is_some());
    let key = ProgramKey::new("cross_entropy", variant);
    let reduction = rows::reduction(key, || build(input.dtype(), options.weight.is_some()))?;
    let ty = input.dtype().compute_type();
    let classes = input.sizes()[dim].max(1);
    #[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
    let shared = options.label_smoothing / classes as f64;
    let scalar = |value: f64| scalar_bits(Scalar::Float(value), ty, 1)[0];
    let scalars = [scalar(1.0 - options.label_smoothing), scalar(shared), options.ignore_index.cast_unsigned()];
    let outputs = [&whole_loss, &whole_weight];
    rows::run(&RowWork { key, reduction, outputs: &outputs, inputs: &inputs, dims: &[dim], scalars: &scalars })?;
    Ok((loss, weight))
}

/// The largest logit, then what the loss is made of. The scalars are how much of the target its class has, how much
/// each class has, and the class that does not count.
fn build(dtype: DType, has_weight: bool) -> std::result::Result<Reduction, GraphError> {
    let (given, ty) = (dtype.part(), dtype.compute_type());
    let mut inputs = vec![given, Type::I64];
    inputs.extend(has_weight.then_some(given));
    let scalars = vec![ty, ty, Type::I64];
    let largest = pass(
        ty,
        (Start::Lowest, Binary::Max),
        &inputs,
        &scalars,
        |graph, taken| graph.convert(taken[0], ty),
        |_, largest, _| vec![largest],
    )?;
    // The sum of exponentials, the logit and the weight of the target's class, the sums of weights and of weighted
    // logits, how often the class was found, and the largest logit and the class again.
    let identity: Vec<(Type, u64)> = [ty, ty, ty, ty, ty]
        .into_iter()
        .map(|ty| (ty, 0))
        .chain([(Type::I32, 0), (ty, Start::Lowest.bits(ty)), (Type::I64, Start::Lowest.bits(Type::I64))])
        .collect();
    let accumulate = accumulate(&identity, &inputs, ty, has_weight)?;
    let mut graph = Graph::new();
    let first: Vec<Value> = identity.iter().map(|&(ty, _)| graph.input(ty)).collect();
    let second: Vec<Value> = identity.iter().map(|&(ty, _)| graph.input(ty)).collect();
    for value in join(&mut graph, &first, &second) {
        graph.output(value);
    }
    let combine = graph.finish()?;
    let finish = finish(&identity, &scalars, ty, given)?;
    Reduction::new(inputs, scalars, vec![largest, Pass { identity, accumulate, combine, finish }], Last::Row)
}

/// Sums, and of what all elements have in common the larger one.
fn join(graph: &mut Graph, a: &[Value], b: &[Value]) -> Vec<Value> {
    let pairs = a.iter().zip(b).enumerate();
    pairs.map(|(at, (&a, &b))| graph.binary(if at < 6 { Binary::Add } else { Binary::Max }, a, b)).collect()
}

fn accumulate(
    identity: &[(Type, u64)],
    inputs: &[Type],
    ty: Type,
    has_weight: bool,
) -> std::result::Result<kernel_ir::Program, GraphError> {
    let mut graph = Graph::new();
    let own: Vec<Value> = identity.iter().map(|&(ty, _)| graph.input(ty)).collect();
    let elements: Vec<Value> = inputs.iter().map(|&ty| graph.input(ty)).collect();
    let (largest, place) = (graph.input(ty), graph.input(Type::I64));
    let (logit, zero) = (graph.convert(elements[0], ty), graph.number(ty, 0));
    let weight = if has_weight { graph.convert(elements[2], ty) } else { graph.number(ty, 1) };
    let below = graph.binary(Binary::Sub, logit, largest);
    let exponential = graph.call(Math::Exp, &[below]);
    let is_target = graph.compare(Compare::Eq, place, elements[1]);
    let weighted = graph.binary(Binary::Mul, weight, logit);
    let found = graph.convert(is_target, Type::I32);
    let (its_logit, its_weight) = (graph.select(is_target, logit, zero), graph.select(is_target, weight, zero));
    let one = [exponential, its_logit, its_weight, weight, weighted, found, largest, elements[1]];
    for value in join(&mut graph, &own, &one) {
        graph.output(value);
    }
    graph.finish()
}

/// The loss and the weight: zero for the class that does not count, a NaN for a class that does not exist.
fn finish(
    identity: &[(Type, u64)],
    scalars: &[Type],
    ty: Type,
    given: Type,
) -> std::result::Result<kernel_ir::Program, GraphError> {
    let mut graph = Graph::new();
    let own: Vec<Value> = identity.iter().map(|&(ty, _)| graph.input(ty)).collect();
    let numbers: Vec<Value> = scalars.iter().map(|&ty| graph.scalar(ty)).collect();
    let [sum, its_logit, its_weight, weights, weighted, found, largest, class] = own[..] else {
        return Err(GraphError::Reduction);
    };
    let (zero, nan) = (graph.number(ty, 0), graph.float(ty, f64::NAN));
    let logarithm = graph.call(Math::Log, &[sum]);
    let total = graph.binary(Binary::Add, logarithm, largest);
    let distance = graph.binary(Binary::Sub, total, its_logit);
    let of_class = graph.binary(Binary::Mul, its_weight, distance);
    let of_class = graph.binary(Binary::Mul, of_class, numbers[0]);
    // Without smoothing, weights and logits of other classes do not matter, even infinite ones.
    let smooths = graph.compare(Compare::Ne, numbers[1], zero);
    let of_all = graph.binary(Binary::Mul, weights, total);
    let of_all = graph.binary(Binary::Sub, of_all, weighted);
    let of_all = graph.binary(Binary::Mul, of_all, numbers[1]);
    let of_all = graph.select(smooths, of_all, zero);
    let loss = graph.binary(Binary::Add, of_class, of_all);
    let none = graph.int(Type::I32, 0);
    let missing = graph.compare(Compare::Eq, found, none);
    let ignored = graph.compare(Compare::Eq, class, numbers[2]);
    for value in [loss, its_weight] {
        let value = graph.select(missing, nan, value);
        let value = graph.select(ignored, zero, value);
        let value = graph.convert(value, given);
        graph.output(value);
    }
    graph.finish()
}
