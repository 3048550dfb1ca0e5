//! What operations ask before they run: their operands as the region wants them.
//!
//! An operation that is listed asks here first. Where it has something to cast it is called again with the casts, inside of
//! which nothing is cast any more ([`Inside`]): the casts are conversions like those that a program asks for, before an
//! operation like any other.

use c10_core::DeviceType;
use smallvec::SmallVec;

use super::cache;
use super::lists::{Policies, Policy};
use super::state::{self, Inside};
use crate::base::amp_error::AmpError;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::scalar::Scalar;
use crate::tensor::{Operand, Tensor, is_host};

/// Operands that may be left out.
type Cast = SmallVec<[Option<Tensor>; 4]>;

/// The operands of an operation, cast, and what keeps the operation from being asked again; `None` where the region, if
/// there is one, has nothing to do with it.
#[inline]
pub(crate) fn cast<const N: usize>(
    policies: Policies,
    operands: [&Tensor; N],
) -> Result<Option<(Inside, [Tensor; N])>> {
    if !state::is_active() {
        return Ok(None);
    }
    let Some((inside, cast)) = cast_all(policies, &operands)? else { return Ok(None) };
    // There are as many as were given.
    Ok(<[Tensor; N]>::try_from(cast).ok().map(|cast| (inside, cast)))
}

/// As [`cast`], for operands that may be left out.
#[inline]
pub(crate) fn cast_optional<const N: usize>(
    policies: Policies,
    operands: [Option<&Tensor>; N],
) -> Result<Option<(Inside, [Option<Tensor>; N])>> {
    if !state::is_active() {
        return Ok(None);
    }
    let Some((inside, cast)) = with(policies, &operands)? else { return Ok(None) };
    Ok(<[Option<Tensor>; N]>::try_from(cast.into_vec()).ok().map(|cast| (inside, cast)))
}

/// As [`cast`], for any number of operands.
pub(crate) fn cast_all(policies: Policies, operands: &[&Tensor]) -> Result<Option<(Inside, Vec<Tensor>)>> {
    if !state::is_active() {
        return Ok(None);
    }
    let given: SmallVec<[Option<&Tensor>; 4]> = operands.iter().map(|&operand| Some(operand)).collect();
    Ok(with(policies, &given)?.map(|(inside, cast)| (inside, cast.into_iter().flatten().collect())))
}

/// As [`cast`], for tensors and numbers.
pub(crate) fn cast_operands(policies: Policies, operands: &[Operand<'_>]) -> Result<Option<(Inside, Operands)>> {
    let tensors = operands.iter().map(|operand| match operand {
        Operand::Tensor(tensor) => Some(*tensor),
        Operand::Number(_) => None,
    });
    let tensors: SmallVec<[Option<&Tensor>; 4]> = tensors.collect();
    let Some((inside, cast)) = with(policies, &tensors)? else { return Ok(None) };
    let one = |(operand, cast): (&Operand<'_>, Option<Tensor>)| match (operand, cast) {
        (_, Some(cast)) => Known::Tensor(cast),
        (Operand::Number(number), None) => Known::Number(*number),
        (Operand::Tensor(tensor), None) => Known::Tensor((*tensor).clone()),
    };
    Ok(Some((inside, Operands(operands.iter().zip(cast).map(one).collect()))))
}

/// Operands after the casts.
pub(crate) struct Operands(SmallVec<[Known; 4]>);

enum Known {
    Tensor(Tensor),
    Number(Scalar),
}

impl Operands {
    /// The operands, to be given to an operation.
    pub(crate) fn each(&self) -> SmallVec<[Operand<'_>; 4]> {
        let each = self.0.iter().map(|known| match known {
            Known::Tensor(tensor) => Operand::Tensor(tensor),
            Known::Number(number) => Operand::Number(*number),
        });
        each.collect()
    }
}

/// The operand of an operation that can be asked for a dtype, and what it is to be asked for.
#[inline]
pub(crate) fn with_dtype(
    policies: Policies,
    operand: &Tensor,
    asked: Option<DType>,
) -> Result<Option<(Inside, Tensor, Option<DType>)>> {
    if !state::is_active() {
        return Ok(None);
    }
    let Some((kind, policy)) = policy_for(policies, &[Some(operand)]) else { return Ok(None) };
    match policy {
        Policy::Fp32SetOptDtype | Policy::Fp32AppendDtype => {
            let chosen = asked.or_else(|| is_eligible(operand, kind).then_some(DType::F32));
            Ok(Some((Inside::new(), operand.clone(), chosen)))
        }
        _ => {
            let cast = cast(policies, [operand])?;
            Ok(cast.map(|(inside, [operand])| (inside, operand, asked)))
        }
    }
}

/// The operands as the policy wants them.
#[cold]
fn with(policies: Policies, operands: &[Option<&Tensor>]) -> Result<Option<(Inside, Cast)>> {
    let Some((kind, policy)) = policy_for(policies, operands) else { return Ok(None) };
    let own = state::dtype(kind);
    let to = match policy {
        Policy::LowerPrecision => own,
        Policy::Promote => widest(own, operands, kind)?,
        Policy::Fp32 | Policy::Fp32SetOptDtype | Policy::Fp32AppendDtype => DType::F32,
        Policy::Banned => return Err(AmpError::BinaryCrossEntropy.into()),
    };
    let keeps_casts = state::keeps_casts() && to == own;
    let inside = Inside::new();
    let one = |operand: &Option<&Tensor>| operand.map(|tensor| converted(tensor, to, kind, keeps_casts)).transpose();
    Ok(Some((inside, operands.iter().map(one).collect::<Result<_>>()?)))
}

/// The kind of devices whose list the operation is in, and its policy. As in torch the list for CUDA devices comes first.
fn policy_for(policies: Policies, operands: &[Option<&Tensor>]) -> Option<(DeviceType, Policy)> {
    [DeviceType::Cuda, DeviceType::Cpu].into_iter().find_map(|kind| {
        let is_there = operands.iter().flatten().any(|tensor| kind_of(tensor) == kind);
        let policy = policies.of_kind(kind).filter(|_| state::is_enabled(kind) && is_there)?;
        Some((kind, policy))
    })
}

fn kind_of(tensor: &Tensor) -> DeviceType {
    if is_host(tensor.device()) { DeviceType::Cpu } else { DeviceType::Cuda }
}

/// Whether a tensor may be cast.
fn is_eligible(tensor: &Tensor, kind: DeviceType) -> bool {
    kind_of(tensor) == kind && tensor.dtype().is_floating_point() && tensor.dtype() != DType::F64
}

fn converted(tensor: &Tensor, to: DType, kind: DeviceType, keeps_casts: bool) -> Result<Tensor> {
    if !is_eligible(tensor, kind) || tensor.dtype() == to {
        return Ok(tensor.clone());
    }
    if keeps_casts && tensor.is_parameter() && tensor.dtype() == DType::F32 {
        return cache::cast(tensor, to);
    }
    tensor.to_dtype(to)
}

/// The dtype that operands are brought to: `f32` where one of them is that, else that of the region.
fn widest(own: DType, operands: &[Option<&Tensor>], kind: DeviceType) -> Result<DType> {
    if own == DType::F64 {
        return Err(AmpError::DoublePromotion.into());
    }
    let mut found = own;
    for tensor in operands.iter().flatten().filter(|tensor| is_eligible(tensor, kind)) {
        found = match tensor.dtype() {
            DType::F32 => DType::F32,
            _ if found == DType::F32 => DType::F32,
            dtype if dtype == own => found,
            dtype => return Err(AmpError::Promotion { dtype }.into()),
        };
    }
    Ok(found)
}

/// A tensor as `custom_fwd` casts it.
pub(super) fn forced(tensor: &Tensor, to: DType, kind: DeviceType) -> Result<Tensor> {
    converted(tensor, to, kind, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autocast::with_autocast;

    /// The operation itself is not there yet; whoever adds it is refused for devices, as in torch, and cast on the host.
    #[test]
    fn what_is_banned_is_refused() -> Result<()> {
        let _simulated = testkit::simulated_runtime();
        let policies = Policies::of("binary_cross_entropy");
        for device in ["cuda", "cpu"] {
            let half = Tensor::ones(&[2], DType::BF16, device)?;
            assert!(cast(policies, [&half, &half])?.is_none(), "outside of a region");
            let found = with_autocast(device, (), || cast(policies, [&half, &half]))?;
            match found {
                Ok(Some((_, [first, second]))) => {
                    assert_eq!((device, first.dtype(), second.dtype()), ("cpu", DType::F32, DType::F32));
                }
                Ok(None) => panic!("it is listed"),
                Err(error) => {
                    assert_eq!(device, "cuda");
                    let text = error.to_string();
                    assert!(
                        text.starts_with("torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe")
                    );
                    assert!(text.ends_with("are\nsafe to autocast."), "{text}");
                }
            }
        }
        Ok(())
    }
}
