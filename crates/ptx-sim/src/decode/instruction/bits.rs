//! Integers bit by bit and byte by byte: logic, shifts, fields, counts, `prmt`, `lop3`, `dp4a` and the like, and the
//! products of 24 bits.

use super::arithmetic::{is_plain_integer, three};
use super::operands::pair;
use super::reader::Reader;
use crate::program::scalar::{Comparison, Half, Logic, Modes, PermuteMode, ScalarOp};
use crate::program::types::{Kind, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

const PLAIN: Modes = Modes::PLAIN;

fn is_bits(ty: Type) -> bool {
    ty.kind == Kind::Bits && ty.bits >= 16
}

fn is_long(ty: Type) -> bool {
    !ty.packed && ty.bits >= 32
}

/// An operation of two values of one type.
fn two(reader: &mut Reader<'_, '_, '_>, op: ScalarOp, ty: Type) -> Result<(), Refusal> {
    let [to, a, b] = reader.operands()?;
    let (to, a, b) = (reader.to(to, ty.bits)?, reader.value(a, ty)?, reader.value(b, ty)?);
    reader.scalar(op, ty, PLAIN, to, &[a, b]);
    Ok(())
}

/// An operation of one value.
fn one(reader: &mut Reader<'_, '_, '_>, op: ScalarOp, ty: Type, bits: u8) -> Result<(), Refusal> {
    let [to, a] = reader.operands()?;
    let (to, a) = (reader.to(to, bits)?, reader.value(a, ty)?);
    reader.scalar(op, ty, PLAIN, to, &[a]);
    Ok(())
}

fn logic(reader: &mut Reader<'_, '_, '_>, op: ScalarOp) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_bits(ty) || ty.kind == Kind::Predicate)?;
    two(reader, op, ty)
}

pub(super) fn and(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    logic(reader, ScalarOp::And)
}

pub(super) fn or(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    logic(reader, ScalarOp::Or)
}

pub(super) fn xor(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    logic(reader, ScalarOp::Xor)
}

pub(super) fn not(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_bits(ty) || ty.kind == Kind::Predicate)?;
    one(reader, ScalarOp::Not, ty, ty.bits)
}

pub(super) fn cnot(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(is_bits)?;
    one(reader, ScalarOp::LogicalNot, ty, ty.bits)
}

pub(super) fn shl(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(is_bits)?;
    shift(reader, ScalarOp::ShiftLeft, ty)
}

pub(super) fn shr(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_bits(ty) || is_plain_integer(ty))?;
    shift(reader, ScalarOp::ShiftRight, ty)
}

fn shift(reader: &mut Reader<'_, '_, '_>, op: ScalarOp, ty: Type) -> Result<(), Refusal> {
    let [to, a, b] = reader.operands()?;
    let (to, a, b) = (reader.to(to, ty.bits)?, reader.value(a, ty)?, reader.word(b)?);
    reader.scalar(op, ty, PLAIN, to, &[a, b]);
    Ok(())
}

pub(super) fn shf(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let left = reader.takes("l");
    if !left {
        reader.needs("r")?;
    }
    let wrap = wraps(reader)?;
    let ty = reader.ty_of(|ty| ty == Type::B32)?;
    three(reader, ScalarOp::FunnelShift { left, wrap }, [ty; 3], 32, PLAIN)
}

/// `.wrap` or `.clamp`.
fn wraps(reader: &mut Reader<'_, '_, '_>) -> Result<bool, Refusal> {
    let wrap = reader.takes("wrap");
    if !wrap {
        reader.needs("clamp")?;
    }
    Ok(wrap)
}

pub(super) fn lop3(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let combine = reader.take(|word| match word {
        "and" => Some(Logic::And),
        "or" => Some(Logic::Or),
        _ => None,
    });
    let ty = reader.ty_of(|ty| ty == Type::B32)?;
    let operands = &reader.text.operands;
    let (results, a, b, c, table, truth) = match (operands.as_slice(), combine) {
        ([to, a, b, c, table], None) => (to, a, b, c, table, None),
        ([to, a, b, c, table, truth], Some(logic)) => (to, a, b, c, table, Some((logic, truth))),
        _ => return Err(reader.invalid("wrong number of operands")),
    };
    let &Operand::Integer(table) = table else { return Err(reader.invalid("the table is no constant")) };
    let table = table.to_le_bytes()[0];
    let (a, b, c) = (reader.value(a, ty)?, reader.value(b, ty)?, reader.value(c, ty)?);
    let op = ScalarOp::Lookup3(table);
    let Some((logic, truth)) = truth else {
        let to = reader.to(results, 32)?;
        reader.scalar(op, ty, PLAIN, to, &[a, b, c]);
        return Ok(());
    };
    let (to, Some(predicate)) = pair(results) else { return Err(reader.invalid("the predicate is missing")) };
    let to = match reader.to_or_sink(to, 32)? {
        Some(to) => to,
        None => reader.names.scratch(32, reader.text.at)?,
    };
    let predicate = reader.to(predicate, 1)?;
    let (truth, negate) = reader.predicate(truth)?;
    let zero = reader.names.constant(32, 0, reader.text.at)?;
    reader.scalar(op, ty, PLAIN, to, &[a, b, c]);
    let combine = Some((logic, negate));
    let compare = ScalarOp::Compare { comparison: Comparison::NotEqual, or_unordered: false, combine, invert: false };
    reader.scalar(compare, ty, PLAIN, predicate, &[to, zero, truth]);
    Ok(())
}

pub(super) fn bfe(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_plain_integer(ty) && is_long(ty))?;
    three(reader, ScalarOp::ExtractBits, [ty, Type::U32, Type::U32], ty.bits, PLAIN)
}

pub(super) fn bfi(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_bits(ty) && is_long(ty))?;
    let [to, a, b, c, d] = reader.operands()?;
    let to = reader.to(to, ty.bits)?;
    let (a, b, c, d) = (reader.value(a, ty)?, reader.value(b, ty)?, reader.word(c)?, reader.word(d)?);
    reader.scalar(ScalarOp::InsertBits, ty, PLAIN, to, &[a, b, c, d]);
    Ok(())
}

pub(super) fn bfind(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let as_shift = reader.takes("shiftamt");
    let ty = reader.ty_of(|ty| is_plain_integer(ty) && is_long(ty))?;
    one(reader, ScalarOp::FindHighest { as_shift }, ty, 32)
}

pub(super) fn bmsk(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let wrap = wraps(reader)?;
    let ty = reader.ty_of(|ty| ty == Type::B32)?;
    two(reader, ScalarOp::BitMask { wrap }, ty)
}

pub(super) fn szext(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let wrap = wraps(reader)?;
    let ty = reader.ty_of(|ty| matches!(ty, Type::U32 | Type::S32))?;
    two(reader, ScalarOp::ExtendFrom { wrap }, ty)
}

pub(super) fn fns(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| ty == Type::B32)?;
    three(reader, ScalarOp::FindNth, [ty; 3], 32, PLAIN)
}

pub(super) fn popc(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_bits(ty) && is_long(ty))?;
    one(reader, ScalarOp::CountBits, ty, 32)
}

pub(super) fn clz(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_bits(ty) && is_long(ty))?;
    one(reader, ScalarOp::LeadingZeros, ty, 32)
}

pub(super) fn brev(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| is_bits(ty) && is_long(ty))?;
    one(reader, ScalarOp::ReverseBits, ty, ty.bits)
}

pub(super) fn prmt(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let mode = reader.take(|word| {
        Some(match word {
            "f4e" => PermuteMode::Forward4,
            "b4e" => PermuteMode::Backward4,
            "rc8" => PermuteMode::Replicate8,
            "ecl" => PermuteMode::EdgeLeft,
            "ecr" => PermuteMode::EdgeRight,
            "rc16" => PermuteMode::Replicate16,
            _ => return None,
        })
    });
    let ty = reader.ty_of(|ty| ty == Type::B32)?;
    three(reader, ScalarOp::Permute(mode.unwrap_or(PermuteMode::Index)), [ty; 3], 32, PLAIN)
}

/// The two types of a dot product, and whether each is signed.
fn dot_types(reader: &mut Reader<'_, '_, '_>) -> Result<[bool; 2], Refusal> {
    let fits = |ty: Type| matches!(ty, Type::U32 | Type::S32);
    Ok([reader.ty_of(fits)?.is_signed(), reader.ty_of(fits)?.is_signed()])
}

/// `vabsdiff4`, without selected bytes. Unless summed, all bytes are new, so that the third value is not looked at.
pub(super) fn vabsdiff4(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let sum = reader.takes("add");
    reader.ty_of(|ty| matches!(ty, Type::U32 | Type::S32))?;
    let [a_signed, b_signed] = dot_types(reader)?;
    three(reader, ScalarOp::DistanceBytes { a_signed, b_signed, sum }, [Type::U32; 3], 32, PLAIN)
}

pub(super) fn dp4a(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let [a_signed, b_signed] = dot_types(reader)?;
    three(reader, ScalarOp::DotBytes { a_signed, b_signed }, [Type::U32; 3], 32, PLAIN)
}

pub(super) fn dp2a(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let high = reader.takes("hi");
    if !high {
        reader.needs("lo")?;
    }
    let [a_signed, b_signed] = dot_types(reader)?;
    three(reader, ScalarOp::DotHalves { a_signed, b_signed, high }, [Type::U32; 3], 32, PLAIN)
}

pub(super) fn sad(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(is_plain_integer)?;
    three(reader, ScalarOp::AbsoluteDifference, [ty; 3], ty.bits, PLAIN)
}

fn half_of_24(reader: &mut Reader<'_, '_, '_>) -> Result<Half, Refusal> {
    if reader.takes("hi") {
        return Ok(Half::High);
    }
    reader.needs("lo")?;
    Ok(Half::Low)
}

pub(super) fn mul24(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let part = half_of_24(reader)?;
    let ty = reader.ty_of(|ty| matches!(ty, Type::U32 | Type::S32))?;
    two(reader, ScalarOp::Multiply24(part), ty)
}

pub(super) fn mad24(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let part = half_of_24(reader)?;
    let saturate = reader.takes("sat");
    let ty = reader.ty_of(|ty| matches!(ty, Type::U32 | Type::S32))?;
    if saturate && (part, ty) != (Half::High, Type::S32) {
        return Err(reader.invalid("'.sat' is only of '.hi.s32'"));
    }
    three(reader, ScalarOp::MultiplyAdd24(part), [ty; 3], 32, Modes { saturate, ..PLAIN })
}

/// `selp`: `a` if the predicate is true, else `b`.
pub(super) fn selp(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty =
        reader.ty_of(|ty| !ty.packed && (ty.bits >= 32 && ty.kind != Kind::Tf32 || ty.bits == 16 && !ty.is_float()))?;
    let [to, a, b, truth] = reader.operands()?;
    let (to, a, b) = (reader.to(to, ty.bits)?, reader.value(a, ty)?, reader.value(b, ty)?);
    let (truth, negated) = reader.predicate(truth)?;
    let [a, b] = if negated { [b, a] } else { [a, b] };
    reader.scalar(ScalarOp::Select, ty, PLAIN, to, &[a, b, truth]);
    Ok(())
}

/// `slct`: `a` if the third value is not negative, else `b`.
pub(super) fn slct(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let flush = reader.takes("ftz");
    let ty =
        reader.ty_of(|ty| !ty.packed && (ty.bits >= 32 && ty.kind != Kind::Tf32 || ty.bits == 16 && !ty.is_float()))?;
    let sign = reader.ty_of(|ty| matches!(ty, Type::S32 | Type::F32))?;
    if flush && sign != Type::F32 {
        return Err(reader.invalid("'.ftz' does not fit the type"));
    }
    three(reader, ScalarOp::SelectBySign(sign), [ty, ty, sign], ty.bits, Modes { flush, ..PLAIN })
}
