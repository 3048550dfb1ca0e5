//! Matrices of a warp: `ldmatrix`, `stmatrix`, `movmatrix` and `mma`.

#![expect(clippy::wildcard_enum_match_arm, reason = "what has any other form is refused")]

use super::operands::SpaceWord;
use super::reader::{Reader, rounding};
use crate::program::action::{Action, MatrixMultiply, WarpOp};
use crate::program::scalar::Rounding;
use crate::program::types::{Kind, Register, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

pub(super) const F16: Type = Type::new(Kind::Float, 16);

/// What `ldmatrix` and `stmatrix` say before their operands: how many matrices, and whether they are transposed.
fn matrices(reader: &mut Reader<'_, '_, '_>) -> Result<(usize, bool, SpaceWord), Refusal> {
    reader.needs("sync")?;
    reader.needs("aligned")?;
    reader.needs("m8n8")?;
    let count = reader.take(|word| match word {
        "x1" => Some(1),
        "x2" => Some(2),
        "x4" => Some(4),
        _ => None,
    });
    let count = count.ok_or_else(|| reader.invalid("the number of matrices is missing"))?;
    let transpose = reader.takes("trans");
    let space = reader.space();
    reader.needs("b16")?;
    match space {
        SpaceWord::Generic | SpaceWord::Shared => Ok((count, transpose, space)),
        _ => Err(reader.invalid("wrong state space")),
    }
}

fn list<'o, 't>(
    reader: &Reader<'_, '_, '_>,
    operand: &'o Operand<'t>,
    count: usize,
) -> Result<&'o [Operand<'t>], Refusal> {
    let Operand::List(list) = operand else { return Err(reader.invalid("a list of registers is missing")) };
    if list.len() == count { Ok(list) } else { Err(reader.invalid("wrong number of registers")) }
}

/// Bits of a register that holds elements of a type.
pub(super) fn register_bits(ty: Type) -> u8 {
    ty.bits.max(32)
}

/// Registers of so many bits that results go to.
pub(super) fn results(
    reader: &Reader<'_, '_, '_>,
    operand: &Operand<'_>,
    bits: u8,
    count: usize,
) -> Result<Vec<Register>, Refusal> {
    list(reader, operand, count)?.iter().map(|operand| reader.to(operand, bits)).collect()
}

/// Values of so many bits.
pub(super) fn values(
    reader: &mut Reader<'_, '_, '_>,
    operand: &Operand<'_>,
    bits: u8,
    count: usize,
) -> Result<Vec<Register>, Refusal> {
    let ty = Type::new(Kind::Bits, bits);
    list(reader, operand, count)?.iter().map(|operand| reader.value(operand, ty)).collect()
}

pub(super) fn ldmatrix(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let (count, transpose, word) = matrices(reader)?;
    let [to, from] = reader.operands()?;
    let to = results(reader, to, 32, count)?;
    let (space, from) = reader.address(from, word)?;
    reader.push(Action::Warp(WarpOp::LoadMatrices { to, transpose, space, from }));
    Ok(())
}

pub(super) fn stmatrix(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let (count, transpose, word) = matrices(reader)?;
    let [to, from] = reader.operands()?;
    let from = values(reader, from, 32, count)?;
    let (space, to) = reader.address(to, word)?;
    reader.push(Action::Warp(WarpOp::StoreMatrices { from, transpose, space, to }));
    Ok(())
}

pub(super) fn movmatrix(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    for word in ["sync", "aligned", "m8n8", "trans", "b16"] {
        reader.needs(word)?;
    }
    let [to, from] = reader.operands()?;
    let (to, from) = (reader.to(to, 32)?, reader.word(from)?);
    reader.push(Action::Warp(WarpOp::TransposeMatrix { to, from }));
    Ok(())
}

/// Shapes by their words.
fn shape(word: &str) -> Option<[u8; 3]> {
    Some(match word {
        "m8n8k4" => [8, 8, 4],
        "m8n8k16" => [8, 8, 16],
        "m8n8k32" => [8, 8, 32],
        "m8n8k128" => [8, 8, 128],
        "m16n8k4" => [16, 8, 4],
        "m16n8k8" => [16, 8, 8],
        "m16n8k16" => [16, 8, 16],
        "m16n8k32" => [16, 8, 32],
        "m16n8k64" => [16, 8, 64],
        "m16n8k128" => [16, 8, 128],
        _ => return None,
    })
}

/// Types of elements by their words, those that only matrices have too.
pub(super) fn element(word: &str) -> Option<Type> {
    match word {
        "s4" => Some(Type::new(Kind::Signed, 4)),
        "u4" => Some(Type::new(Kind::Unsigned, 4)),
        "e4m3" => Some(Type::new(Kind::E4M3, 8)),
        "e5m2" => Some(Type::new(Kind::E5M2, 8)),
        word => Type::of(word),
    }
}

/// Whether there is such a product; an error where there is, but not here.
fn check(reader: &Reader<'_, '_, '_>, multiply: &MatrixMultiply) -> Result<(), Refusal> {
    let &MatrixMultiply { shape: [m, n, k], a_type, b_type, c_type, d_type, .. } = multiply;
    if [m, n, k] == [8, 8, 4] && a_type == F16 {
        return Err(reader.unsupported("this shape and type of matrices"));
    }
    let is_wide = m == 16;
    let fits = match (a_type.kind, a_type.bits) {
        _ if a_type.bits != b_type.bits || a_type.packed => false,
        (Kind::E4M3 | Kind::E5M2, _) => {
            let is_small = matches!(b_type.kind, Kind::E4M3 | Kind::E5M2);
            let sums = matches!(c_type, Type::F32 | F16) && d_type == c_type;
            is_wide && matches!(k, 16 | 32) && is_small && sums
        }
        _ if a_type.kind != b_type.kind && !a_type.is_integer() => false,
        (Kind::Float, 16) => is_wide && matches!(k, 8 | 16) && matches!(c_type, Type::F32 | F16) && d_type == c_type,
        (Kind::Float, 64) => (k == 4 || matches!(k, 8 | 16) && is_wide) && c_type == Type::F64 && d_type == c_type,
        (Kind::Brain, 16) => is_wide && matches!(k, 8 | 16) && c_type == Type::F32 && d_type == c_type,
        (Kind::Tf32, _) => is_wide && matches!(k, 4 | 8) && c_type == Type::F32 && d_type == c_type,
        (Kind::Signed | Kind::Unsigned, 8) => (k == 16 || k == 32 && is_wide) && c_type == Type::S32,
        (Kind::Signed | Kind::Unsigned, 4) => (k == 32 || k == 64 && is_wide) && c_type == Type::S32,
        _ => false,
    };
    let integers = a_type.is_integer();
    if !fits || integers && (!b_type.is_integer() || d_type != c_type) || multiply.saturate && !integers {
        return Err(reader.invalid("there is no such product of matrices"));
    }
    Ok(())
}

pub(super) fn mma(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("sync")?;
    reader.needs("aligned")?;
    let shape = reader.take(shape).ok_or_else(|| reader.invalid("the shape is missing"))?;
    reader.needs("row")?;
    reader.needs("col")?;
    let (saturate, rounding) = (reader.takes("satfinite"), reader.take(rounding));
    let mut types = Vec::new();
    while let Some(ty) = reader.take(element) {
        types.push(ty);
    }
    let &[d_type, a_type, b_type, c_type] = types.as_slice() else { return Err(reader.invalid("wrong types")) };
    let none = Vec::new;
    let [d, a, b, c] = [none(), none(), none(), none()];
    let direction = rounding.unwrap_or(Rounding::Nearest);
    let mut multiply =
        MatrixMultiply { shape, a_type, b_type, c_type, d_type, saturate, rounding: direction, d, a, b, c };
    check(reader, &multiply)?;
    if rounding.is_some() && a_type != Type::F64 {
        return Err(reader.invalid("a rounding does not fit"));
    }
    let [d, a, b, c] = reader.operands()?;
    // A warp holds each matrix once, in registers of 32 bits, or of 64 where an element needs them.
    let registers = |rows: u8, columns: u8, ty: Type| {
        let bits = usize::from(rows) * usize::from(columns) * usize::from(ty.bits);
        bits / usize::from(register_bits(ty)) / 32
    };
    let [m, n, k] = shape;
    multiply.d = results(reader, d, register_bits(d_type), registers(m, n, d_type))?;
    multiply.a = values(reader, a, register_bits(a_type), registers(m, k, a_type))?;
    multiply.b = values(reader, b, register_bits(b_type), registers(k, n, b_type))?;
    multiply.c = values(reader, c, register_bits(c_type), registers(m, n, c_type))?;
    reader.push(Action::Warp(WarpOp::Multiply(vec![multiply])));
    Ok(())
}
