//! Arithmetic that several kinds of types share: `add`, `sub`, `mul`, `mad`, `fma`, `div`, `rem`, `min`, `max`, `abs`,
//! `neg`.

use super::carry;
use super::reader::Reader;
use crate::program::scalar::{Half, Modes, ScalarOp};
use crate::program::types::{Kind, Type};
use crate::refusal::Refusal;

/// Whether it is an integer of 16, 32 or 64 bits.
pub(super) fn is_plain_integer(ty: Type) -> bool {
    ty.is_integer() && !ty.packed && ty.bits >= 16
}

/// Whether it is a floating type that is computed with.
fn is_number(ty: Type) -> bool {
    ty.is_float() && ty.kind != Kind::Tf32
}

fn is_half(ty: Type) -> bool {
    is_number(ty) && ty.bits == 16
}

pub(super) fn add(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    sum(reader, ScalarOp::Add)
}

pub(super) fn sub(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    sum(reader, ScalarOp::Subtract)
}

fn sum(reader: &mut Reader<'_, '_, '_>, op: ScalarOp) -> Result<(), Refusal> {
    if reader.has("cc") {
        return carry::sum(reader, op == ScalarOp::Subtract, false);
    }
    let is_sum = op == ScalarOp::Add;
    let ty = reader.ty_of(|ty| is_plain_integer(ty) || is_number(ty) || is_sum && ty.is_integer() && ty.packed)?;
    let modes = if ty.is_integer() { integer_modes(reader, ty)? } else { reader.float_modes(ty)?.0 };
    mixed(reader, ty)?;
    two(reader, op, ty, modes)
}

/// `.sat`, which only s32 has.
fn integer_modes(reader: &mut Reader<'_, '_, '_>, ty: Type) -> Result<Modes, Refusal> {
    let saturate = reader.takes("sat");
    if saturate && ty != Type::S32 {
        return Err(reader.invalid("'.sat' is only of .s32"));
    }
    Ok(Modes { saturate, ..Modes::PLAIN })
}

/// Refuses `add.f32.f16` and the like.
fn mixed(reader: &Reader<'_, '_, '_>, ty: Type) -> Result<(), Refusal> {
    if ty == Type::F32 && (reader.has("f16") || reader.has("bf16")) {
        return Err(reader.unsupported("of mixed types"));
    }
    Ok(())
}

fn two(reader: &mut Reader<'_, '_, '_>, op: ScalarOp, ty: Type, modes: Modes) -> Result<(), Refusal> {
    let [to, a, b] = reader.operands()?;
    let (to, a, b) = (reader.to(to, ty.register_bits())?, reader.value(a, ty)?, reader.value(b, ty)?);
    reader.scalar(op, ty, modes, to, &[a, b]);
    Ok(())
}

fn one(reader: &mut Reader<'_, '_, '_>, op: ScalarOp, ty: Type, modes: Modes) -> Result<(), Refusal> {
    let [to, a] = reader.operands()?;
    let (to, a) = (reader.to(to, ty.register_bits())?, reader.value(a, ty)?);
    reader.scalar(op, ty, modes, to, &[a]);
    Ok(())
}

fn half(reader: &mut Reader<'_, '_, '_>) -> Option<Half> {
    reader.take(|word| match word {
        "lo" => Some(Half::Low),
        "hi" => Some(Half::High),
        "wide" => Some(Half::Wide),
        _ => None,
    })
}

/// Half and type of a product of integers, and the type of its result.
fn product(reader: &mut Reader<'_, '_, '_>, ty: Type) -> Result<(Half, Type), Refusal> {
    match half(reader) {
        Some(Half::Wide) if ty.bits <= 32 => Ok((Half::Wide, Type { bits: ty.bits * 2, ..ty })),
        Some(part @ (Half::Low | Half::High)) => Ok((part, ty)),
        _ => Err(reader.invalid("'.lo', '.hi' or '.wide' is missing")),
    }
}

pub(super) fn mul(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_plain_integer(ty) || is_number(ty))?;
    if ty.is_float() {
        let (modes, _) = reader.float_modes(ty)?;
        mixed(reader, ty)?;
        return two(reader, ScalarOp::Multiply(Half::Low), ty, modes);
    }
    let (part, result) = product(reader, ty)?;
    let [to, a, b] = reader.operands()?;
    let (to, a, b) = (reader.to(to, result.bits)?, reader.value(a, ty)?, reader.value(b, ty)?);
    reader.scalar(ScalarOp::Multiply(part), ty, Modes::PLAIN, to, &[a, b]);
    Ok(())
}

pub(super) fn mad(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    if reader.has("cc") {
        return carry::multiply_add(reader, false);
    }
    let ty = reader.ty_of(|ty| is_plain_integer(ty) || matches!(ty, Type::F32 | Type::F64))?;
    if ty.is_float() {
        return fused(reader, ty);
    }
    let modes = integer_modes(reader, ty)?;
    let (part, result) = product(reader, ty)?;
    if modes.saturate && part != Half::High {
        return Err(reader.invalid("'.sat' is only of '.hi'"));
    }
    three(reader, ScalarOp::MultiplyAdd(part), [ty, ty, result], result.bits, modes)
}

/// `fma`, and `mad` of floating numbers.
pub(super) fn fma(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(is_number)?;
    fused(reader, ty)
}

fn fused(reader: &mut Reader<'_, '_, '_>, ty: Type) -> Result<(), Refusal> {
    let (modes, rounded) = reader.float_modes(ty)?;
    mixed(reader, ty)?;
    let relu = is_half(ty) && reader.takes("relu");
    if !rounded || relu && modes.saturate {
        return Err(reader.invalid("the rounding is missing or does not fit"));
    }
    let bits = ty.register_bits();
    three(reader, ScalarOp::MultiplyAdd(Half::Low), [ty; 3], bits, Modes { relu, ..modes })
}

/// An operation of three values of these types. The first type is that of the operation.
pub(super) fn three(
    reader: &mut Reader<'_, '_, '_>,
    op: ScalarOp,
    types: [Type; 3],
    bits: u8,
    modes: Modes,
) -> Result<(), Refusal> {
    let [to, a, b, c] = reader.operands()?;
    let to = reader.to(to, bits)?;
    let (a, b, c) = (reader.value(a, types[0])?, reader.value(b, types[1])?, reader.value(c, types[2])?);
    reader.scalar(op, types[0], modes, to, &[a, b, c]);
    Ok(())
}

pub(super) fn div(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_plain_integer(ty) || matches!(ty, Type::F32 | Type::F64))?;
    if ty.is_integer() {
        return two(reader, ScalarOp::Divide, ty, Modes::PLAIN);
    }
    let (modes, rounded) = reader.float_modes(ty)?;
    let is_single = !rounded && ty == Type::F32;
    let is_approximate = is_single && reader.takes("approx");
    let is_full = is_single && !is_approximate && reader.takes("full");
    if modes.saturate || rounded == (is_approximate || is_full) {
        return Err(reader.invalid("the rounding is missing or does not fit"));
    }
    two(reader, if is_approximate { ScalarOp::DivideApproximately } else { ScalarOp::Divide }, ty, modes)
}

pub(super) fn rem(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(is_plain_integer)?;
    two(reader, ScalarOp::Remainder, ty, Modes::PLAIN)
}

pub(super) fn min(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    extreme(reader, ScalarOp::Minimum)
}

pub(super) fn max(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    extreme(reader, ScalarOp::Maximum)
}

fn extreme(reader: &mut Reader<'_, '_, '_>, op: ScalarOp) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| ty.is_integer() && ty.bits >= 16 || is_number(ty))?;
    let mut modes = Modes::PLAIN;
    if ty.is_integer() {
        modes.relu = ty.is_signed() && (ty.packed || ty.bits == 32) && reader.takes("relu");
    } else if ty != Type::F64 {
        modes.flush = ty.kind == Kind::Float && reader.takes("ftz");
        modes.propagate_nan = reader.takes("NaN");
        if reader.takes("xorsign") {
            reader.needs("abs")?;
            modes.xor_sign = true;
        } else if ty == Type::F32 && reader.has("abs") {
            return Err(reader.unsupported("'.abs'"));
        }
    }
    if ty == Type::F32 && reader.text.operands.len() == 4 {
        return Err(reader.unsupported("of three values"));
    }
    two(reader, op, ty, modes)
}

pub(super) fn abs(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    sign(reader, ScalarOp::Absolute)
}

pub(super) fn neg(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    sign(reader, ScalarOp::Negate)
}

fn sign(reader: &mut Reader<'_, '_, '_>, op: ScalarOp) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_plain_integer(ty) && ty.is_signed() || is_number(ty))?;
    let flush = ty != Type::F64 && ty.kind == Kind::Float && reader.takes("ftz");
    one(reader, op, ty, Modes { flush, ..Modes::PLAIN })
}
