//! Chains of sums that hand a carry on: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`.
//!
//! **Invariants:** the carry is a predicate of the frame; an instruction reads it before it writes it, and computes the
//! new one before its result may overwrite an operand.

use super::reader::Reader;
use crate::program::scalar::{Half, Modes, ScalarOp};
use crate::program::types::{Register, Type};
use crate::refusal::Refusal;

pub(super) fn addc(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    sum(reader, false, true)
}

pub(super) fn subc(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    sum(reader, true, true)
}

pub(super) fn madc(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    multiply_add(reader, true)
}

fn ty(reader: &mut Reader<'_, '_, '_>) -> Result<Type, Refusal> {
    reader.ty_of(|ty| matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64))
}

/// A sum or difference that makes a carry, uses the one before, or both.
pub(super) fn sum(reader: &mut Reader<'_, '_, '_>, subtract: bool, uses: bool) -> Result<(), Refusal> {
    let (makes, ty) = (reader.takes("cc"), ty(reader)?);
    let [to, a, b] = reader.operands()?;
    let (to, a, b) = (reader.to(to, ty.bits)?, reader.value(a, ty)?, reader.value(b, ty)?);
    let (carry, result) = if subtract {
        (ScalarOp::BorrowOfSubtract, ScalarOp::SubtractWithBorrow)
    } else {
        (ScalarOp::CarryOfAdd, ScalarOp::AddWithCarry)
    };
    let flag = reader.names.carry(reader.text.at)?;
    let before = if uses { flag } else { Register::NONE };
    link(reader, ty, makes, uses, [carry, result], to, &[a, b, before])
}

/// Part of a product and a sum, likewise.
pub(super) fn multiply_add(reader: &mut Reader<'_, '_, '_>, uses: bool) -> Result<(), Refusal> {
    let makes = reader.takes("cc");
    let part = reader.take(|word| match word {
        "lo" => Some(Half::Low),
        "hi" => Some(Half::High),
        _ => None,
    });
    let part = part.ok_or_else(|| reader.invalid("'.lo' or '.hi' is missing"))?;
    let ty = ty(reader)?;
    let [to, a, b, c] = reader.operands()?;
    let (to, a, b, c) = (reader.to(to, ty.bits)?, reader.value(a, ty)?, reader.value(b, ty)?, reader.value(c, ty)?);
    let flag = reader.names.carry(reader.text.at)?;
    let before = if uses { flag } else { Register::NONE };
    let ops = [ScalarOp::CarryOfMultiplyAdd(part), ScalarOp::MultiplyAddWithCarry(part)];
    link(reader, ty, makes, uses, ops, to, &[a, b, c, before])
}

/// The new carry, the result, and the carry to its place where the result still needed the one before.
fn link(
    reader: &mut Reader<'_, '_, '_>,
    ty: Type,
    makes: bool,
    uses: bool,
    [carry, result]: [ScalarOp; 2],
    to: Register,
    from: &[Register],
) -> Result<(), Refusal> {
    let at = reader.text.at;
    let flag = reader.names.carry(at)?;
    let next = if uses { reader.names.spare_predicate(at)? } else { flag };
    if makes {
        reader.scalar(carry, ty, Modes::PLAIN, next, from);
    }
    reader.scalar(result, ty, Modes::PLAIN, to, from);
    if makes && uses {
        reader.scalar(ScalarOp::Move, Type::PREDICATE, Modes::PLAIN, flag, &[next]);
    }
    Ok(())
}
