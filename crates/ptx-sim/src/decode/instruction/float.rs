//! Functions of floating numbers: roots, reciprocals, exponentials and the like, and `copysign` and `testp`.

#![expect(clippy::wildcard_enum_match_arm, reason = "what has any other form is refused")]

use super::reader::Reader;
use crate::program::scalar::{Modes, NumberClass, ScalarOp};
use crate::program::types::{Kind, Type};
use crate::refusal::Refusal;

fn is_plain(ty: Type) -> bool {
    matches!(ty, Type::F32 | Type::F64)
}

fn one(reader: &mut Reader<'_, '_, '_>, op: ScalarOp, ty: Type, modes: Modes) -> Result<(), Refusal> {
    let [to, a] = reader.operands()?;
    let (to, a) = (reader.to(to, ty.register_bits())?, reader.value(a, ty)?);
    reader.scalar(op, ty, modes, to, &[a]);
    Ok(())
}

/// A function that is rounded, or approximate for f32.
fn rounded(reader: &mut Reader<'_, '_, '_>, op: ScalarOp) -> Result<(), Refusal> {
    let ty = reader.ty_of(is_plain)?;
    let approximate = reader.takes("approx");
    if ty == Type::F64 && approximate {
        // Only the upper halves of the numbers count.
        reader.needs("ftz")?;
        return match op {
            ScalarOp::Reciprocal => one(reader, ScalarOp::ReciprocalOfUpper, ty, Modes { flush: true, ..Modes::PLAIN }),
            _ => Err(reader.invalid("wrong type")),
        };
    }
    let (modes, is_rounded) = reader.float_modes(ty)?;
    if modes.saturate || is_rounded == approximate {
        return Err(reader.invalid("the rounding is missing or does not fit"));
    }
    one(reader, op, ty, modes)
}

pub(super) fn rcp(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    rounded(reader, ScalarOp::Reciprocal)
}

pub(super) fn sqrt(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    rounded(reader, ScalarOp::SquareRoot)
}

pub(super) fn rsqrt(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("approx")?;
    let ty = reader.ty_of(is_plain)?;
    let flush = reader.takes("ftz");
    let op = if flush && ty == Type::F64 { ScalarOp::ReciprocalRootOfUpper } else { ScalarOp::ReciprocalRoot };
    one(reader, op, ty, Modes { flush, ..Modes::PLAIN })
}

/// An approximate function of f32.
fn approximate(reader: &mut Reader<'_, '_, '_>, op: ScalarOp) -> Result<(), Refusal> {
    reader.needs("approx")?;
    let ty = reader.ty_of(|ty| ty == Type::F32)?;
    let flush = reader.takes("ftz");
    one(reader, op, ty, Modes { flush, ..Modes::PLAIN })
}

pub(super) fn sin(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    approximate(reader, ScalarOp::Sine)
}

pub(super) fn cos(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    approximate(reader, ScalarOp::Cosine)
}

pub(super) fn lg2(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    approximate(reader, ScalarOp::LogarithmOfTwo)
}

/// `ex2`, of which bfloat16 always flushes, and IEEE halves never do.
pub(super) fn ex2(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("approx")?;
    let ty = reader.ty_of(|ty| ty == Type::F32 || ty.is_float() && ty.bits == 16)?;
    let flush = reader.takes("ftz");
    if flush != (ty.kind == Kind::Brain) && ty != Type::F32 {
        return Err(reader.invalid("'.ftz' does not fit the type"));
    }
    one(reader, ScalarOp::PowerOfTwo, ty, Modes { flush, ..Modes::PLAIN })
}

pub(super) fn tanh(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("approx")?;
    let ty = reader.ty_of(|ty| ty == Type::F32 || ty.is_float() && ty.bits == 16)?;
    one(reader, ScalarOp::HyperbolicTangent, ty, Modes::PLAIN)
}

pub(super) fn copysign(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(is_plain)?;
    let [to, a, b] = reader.operands()?;
    let (to, a, b) = (reader.to(to, ty.bits)?, reader.value(a, ty)?, reader.value(b, ty)?);
    reader.scalar(ScalarOp::CopySign, ty, Modes::PLAIN, to, &[a, b]);
    Ok(())
}

pub(super) fn testp(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let class = reader.take(|word| {
        Some(match word {
            "finite" => NumberClass::Finite,
            "infinite" => NumberClass::Infinite,
            "number" => NumberClass::Number,
            "notanumber" => NumberClass::NotANumber,
            "normal" => NumberClass::Normal,
            "subnormal" => NumberClass::Subnormal,
            _ => return None,
        })
    });
    let class = class.ok_or_else(|| reader.invalid("the class is missing"))?;
    let ty = reader.ty_of(is_plain)?;
    let [to, a] = reader.operands()?;
    let (to, a) = (reader.to(to, 1)?, reader.value(a, ty)?);
    reader.scalar(ScalarOp::TestNumber(class), ty, Modes::PLAIN, to, &[a]);
    Ok(())
}
