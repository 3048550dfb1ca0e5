//! `mov`, with packing and taking apart, and `cvta` and `isspacep`.

#![expect(clippy::wildcard_enum_match_arm, reason = "what has any other form is refused")]

use super::operands::SpaceWord;
use super::reader::{Reader, scalar};
use crate::program::scalar::{Comparison, Logic, Modes, ScalarOp};
use crate::program::types::{Kind, Register, Space, Special, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

pub(super) fn mov(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty =
        reader.ty_of(|ty| !ty.packed && ty.bits != 8 && (!ty.is_float() || ty.bits >= 32 && ty.kind == Kind::Float))?;
    match reader.operands()? {
        [Operand::List(to), from] => take_apart(reader, ty, to, from),
        [to, Operand::List(from)] => pack(reader, ty, to, from),
        [to, from] => {
            let to = reader.to(to, ty.bits)?;
            // A special register may be moved to a register of another size.
            let from = match from {
                Operand::Name(name) if reader.names.register(name).is_none() && name.starts_with('%') => {
                    if ty.is_float() {
                        return Err(reader.invalid("wrong type"));
                    }
                    reader.any(from, ty)?
                }
                from => reader.any_exact(from, ty)?,
            };
            reader.scalar(ScalarOp::Move, ty, Modes::PLAIN, to, &[from]);
            Ok(())
        }
    }
}

/// Bits of each element of a list.
fn element(reader: &Reader<'_, '_, '_>, ty: Type, count: usize) -> Result<u8, Refusal> {
    let bits = match (ty.bits, count) {
        (64, 2) => 32,
        (64, 4) | (32, 2) => 16,
        (32, 4) | (16, 2) => 8,
        _ => return Err(reader.invalid("wrong number of elements")),
    };
    if ty.kind == Kind::Bits { Ok(bits) } else { Err(reader.invalid("wrong type")) }
}

fn pack(reader: &mut Reader<'_, '_, '_>, ty: Type, to: &Operand<'_>, from: &[Operand<'_>]) -> Result<(), Refusal> {
    let bits = element(reader, ty, from.len())?;
    let to = reader.to(to, ty.bits)?;
    let mut parts = Vec::new();
    for part in from {
        parts.push(reader.value(part, Type::new(Kind::Bits, bits))?);
    }
    reader.scalar(ScalarOp::Pack { bits }, ty, Modes::PLAIN, to, &parts);
    Ok(())
}

fn take_apart(
    reader: &mut Reader<'_, '_, '_>,
    ty: Type,
    to: &[Operand<'_>],
    from: &Operand<'_>,
) -> Result<(), Refusal> {
    let bits = element(reader, ty, to.len())?;
    let from = reader.value(from, ty)?;
    let mut scalars = Vec::new();
    for (part, place) in to.iter().zip((0..).step_by(usize::from(bits))) {
        if let Some(to) = reader.to_or_sink(part, bits)? {
            scalars.push(scalar(ScalarOp::Extract { from: place, bits }, ty, Modes::PLAIN, to, &[from]));
        }
    }
    if scalars.is_empty() {
        return Err(reader.invalid("no result is wanted"));
    }
    reader.together(scalars)
}

pub(super) fn cvta(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let is_from = reader.takes("to");
    let word = reader.space();
    if word == SpaceWord::Generic {
        return Err(reader.invalid("the state space is missing"));
    }
    let space = reader.space_of(word);
    let ty = reader.ty_of(|ty| ty.kind == Kind::Unsigned && matches!(ty.bits, 32 | 64))?;
    if ty.bits != 64 {
        return Err(reader.invalid("addresses have 64 bits"));
    }
    let [to, from] = reader.operands()?;
    let (to, from) = (reader.to(to, ty.bits)?, reader.any_exact(from, ty)?);
    let op = match (space, is_from) {
        // The addresses of these are generic ones.
        (Space::Global | Space::Generic, _) => ScalarOp::Move,
        (space, true) => ScalarOp::FromGeneric(space),
        (space, false) => ScalarOp::ToGeneric(space),
    };
    reader.scalar(op, ty, Modes::PLAIN, to, &[from]);
    Ok(())
}

/// `isspacep`. Constant memory is the beginning of the module's variables, and not global memory.
pub(super) fn isspacep(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let word = reader.space();
    let [to, from] = reader.operands()?;
    let to = reader.to(to, 1)?;
    let from = reader.value(from, Type::U64)?;
    match word {
        SpaceWord::Generic => return Err(reader.invalid("the state space is missing")),
        SpaceWord::Const => is_constant(reader, (to, from), Comparison::Less, None)?,
        SpaceWord::Global if reader.names.constant_bytes > 0 => {
            let is_global = reader.names.scratch(1, reader.text.at)?;
            reader.scalar(ScalarOp::IsOf(Space::Global), Type::U64, Modes::PLAIN, is_global, &[from]);
            is_constant(reader, (to, from), Comparison::GreaterOrEqual, Some(is_global))?;
        }
        word => {
            let space = reader.space_of(word);
            reader.scalar(ScalarOp::IsOf(space), Type::U64, Modes::PLAIN, to, &[from]);
        }
    }
    Ok(())
}

/// Compares how far an address is behind the first constant variable with the bytes of all of them, where another truth
/// value holds too.
fn is_constant(
    reader: &mut Reader<'_, '_, '_>,
    (to, from): (Register, Register),
    comparison: Comparison,
    also: Option<Register>,
) -> Result<(), Refusal> {
    let at = reader.text.at;
    let (start, distance) = (reader.names.special(Special::Variable(0), 64, at)?, reader.names.scratch(64, at)?);
    let bytes = reader.names.constant(64, reader.names.constant_bytes, at)?;
    reader.scalar(ScalarOp::Subtract, Type::U64, Modes::PLAIN, distance, &[from, start]);
    let combine = also.map(|_| (Logic::And, false));
    let op = ScalarOp::Compare { comparison, or_unordered: false, combine, invert: false };
    reader.scalar(op, Type::U64, Modes::PLAIN, to, &[distance, bytes, also.unwrap_or(Register::NONE)]);
    Ok(())
}
