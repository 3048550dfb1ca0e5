//! `wmma`: loads and stores of matrices, and products of them.
//!
//! **Invariant:** a product becomes one or two products of `mma`, whose matrices are held as the pieces of those of
//! `wmma` (`arith`'s `wmma` says how).

use super::matrix::{F16, element, register_bits, results, values};
use super::operands::SpaceWord;
use super::reader::{Reader, rounding};
use crate::program::action::{Action, MatrixMultiply, Part, WarpMatrix, WarpOp};
use crate::program::scalar::Rounding;
use crate::program::types::{Address, Kind, Register, Space, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

const S4: Type = Type::new(Kind::Signed, 4);
const U4: Type = Type::new(Kind::Unsigned, 4);
const S8: Type = Type::new(Kind::Signed, 8);
const U8: Type = Type::new(Kind::Unsigned, 8);
const BF16: Type = Type::new(Kind::Brain, 16);
const TF32: Type = Type::new(Kind::Tf32, 32);

pub(super) fn wmma(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let is_load = reader.takes("load");
    let is_store = !is_load && reader.takes("store");
    if !is_load && !is_store {
        reader.needs("mma")?;
    }
    if reader.has("popc") {
        return Err(reader.unsupported("of single bits"));
    }
    reader.needs("sync")?;
    reader.needs("aligned")?;
    match (is_load, is_store) {
        (true, _) => load(reader),
        (_, true) => store(reader),
        _ => multiply(reader),
    }
}

fn shape(reader: &mut Reader<'_, '_, '_>) -> Result<[u8; 3], Refusal> {
    let shape = reader.take(|word| {
        Some(match word {
            "m16n16k16" => [16, 16, 16],
            "m32n8k16" => [32, 8, 16],
            "m8n32k16" => [8, 32, 16],
            "m16n16k8" => [16, 16, 8],
            "m8n8k4" => [8, 8, 4],
            "m8n8k32" => [8, 8, 32],
            "m8n8k128" => [8, 8, 128],
            _ => return None,
        })
    });
    shape.ok_or_else(|| reader.invalid("the shape is missing"))
}

/// Whether lines are rows.
fn layout(reader: &mut Reader<'_, '_, '_>) -> Result<bool, Refusal> {
    let by_rows = reader.take(|word| match word {
        "row" => Some(true),
        "col" => Some(false),
        _ => None,
    });
    by_rows.ok_or_else(|| reader.invalid("the layout is missing"))
}

/// Takes a type of elements.
fn ty(reader: &mut Reader<'_, '_, '_>) -> Result<Type, Refusal> {
    if reader.has("b1") {
        return Err(reader.unsupported("of single bits"));
    }
    reader.take(element).ok_or_else(|| reader.invalid("the type is missing"))
}

/// Whether products of a shape have factors of a type.
fn has_factors(shape: [u8; 3], ty: Type) -> bool {
    match shape {
        [_, _, 16] => [F16, BF16, S8, U8].contains(&ty),
        [16, 16, 8] => ty == TF32,
        [8, 8, 4] => ty == Type::F64,
        [8, 8, 32] => [S4, U4].contains(&ty),
        _ => false,
    }
}

/// Whether products of a shape have sums of a type.
fn has_sums(shape: [u8; 3], ty: Type) -> bool {
    match shape {
        [_, _, 16] => [F16, Type::F32, Type::S32].contains(&ty),
        [16, 16, 8] => ty == Type::F32,
        [8, 8, 4] => ty == Type::F64,
        [8, 8, 32 | 128] => ty == Type::S32,
        _ => false,
    }
}

/// What a load or a store says of its matrix, which is checked.
fn matrix(reader: &mut Reader<'_, '_, '_>, part: Part) -> Result<(WarpMatrix, bool, SpaceWord), Refusal> {
    let (by_rows, shape) = (layout(reader)?, shape(reader)?);
    let space = reader.space();
    if !matches!(space, SpaceWord::Generic | SpaceWord::Global | SpaceWord::Shared) {
        return Err(reader.invalid("wrong state space"));
    }
    let ty = ty(reader)?;
    let exists = if part == Part::C { has_sums(shape, ty) } else { has_factors(shape, ty) };
    if !exists || ty.bits == 4 && by_rows != (part == Part::A) {
        return Err(reader.invalid("there is no such matrix"));
    }
    Ok((WarpMatrix { part, shape, ty }, by_rows, space))
}

/// The address, and the distance of lines: without one they follow each other.
fn place(
    reader: &mut Reader<'_, '_, '_>,
    (matrix, by_rows, word): (WarpMatrix, bool, SpaceWord),
    (address, stride): (&Operand<'_>, Option<&Operand<'_>>),
) -> Result<(Space, Address, Register), Refusal> {
    let (space, address) = reader.address(address, word)?;
    let [rows, columns] = matrix.size();
    let stride = match stride {
        Some(stride) => reader.word(stride)?,
        None => reader.names.constant(32, if by_rows { columns } else { rows } as u64, reader.text.at)?,
    };
    Ok((space, address, stride))
}

fn load(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let part = reader.take(|word| match word {
        "a" => Some(Part::A),
        "b" => Some(Part::B),
        "c" => Some(Part::C),
        _ => None,
    });
    let part = part.ok_or_else(|| reader.invalid("the matrix is missing"))?;
    let said = matrix(reader, part)?;
    let (matrix, by_rows, _) = said;
    let [to, from, stride @ ..] = reader.text.operands.as_slice() else {
        return Err(reader.invalid("wrong number of operands"));
    };
    if stride.len() > 1 {
        return Err(reader.invalid("wrong number of operands"));
    }
    let to = results(reader, to, register_bits(matrix.ty), matrix.registers())?;
    let (space, from, stride) = place(reader, said, (from, stride.first()))?;
    reader.push(Action::Warp(WarpOp::LoadMatrix { matrix, by_rows, space, to, from, stride }));
    Ok(())
}

fn store(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("d")?;
    let said = matrix(reader, Part::C)?;
    let (matrix, by_rows, _) = said;
    let [to, from, stride @ ..] = reader.text.operands.as_slice() else {
        return Err(reader.invalid("wrong number of operands"));
    };
    if stride.len() > 1 {
        return Err(reader.invalid("wrong number of operands"));
    }
    let from = values(reader, from, register_bits(matrix.ty), matrix.registers())?;
    let (space, to, stride) = place(reader, said, (to, stride.first()))?;
    reader.push(Action::Warp(WarpOp::StoreMatrix { matrix, by_rows, space, from, to, stride }));
    Ok(())
}

/// The types of `d`, `a`, `b` and `c`. Products of f16 name those of `d` and `c` only.
fn types(reader: &mut Reader<'_, '_, '_>) -> Result<[Type; 4], Refusal> {
    let mut types = Vec::new();
    while let Some(ty) = reader.take(element) {
        types.push(ty);
    }
    match types[..] {
        [d, c] => Ok([d, F16, F16, c]),
        [d, a, b, c] if a != F16 => Ok([d, a, b, c]),
        _ => Err(reader.invalid("wrong types")),
    }
}

fn is_product(shape: [u8; 3], [d, a, b, c]: [Type; 4]) -> bool {
    let has_types = has_factors(shape, a) && a == b && has_sums(shape, c) && has_sums(shape, d);
    let sums_fit = match (a.kind, a.bits) {
        (Kind::Float, 16) => [F16, Type::F32].contains(&c) && [F16, Type::F32].contains(&d),
        (Kind::Signed | Kind::Unsigned, _) => c == Type::S32 && d == c,
        (Kind::Float, _) => c == Type::F64 && d == c,
        _ => c == Type::F32 && d == c,
    };
    has_types && sums_fit
}

fn multiply(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let (a_by_rows, b_by_rows) = (layout(reader)?, layout(reader)?);
    let shape = shape(reader)?;
    if reader.has("b1") {
        return Err(reader.unsupported("of single bits"));
    }
    let (saturate, rounding) = (reader.takes("satfinite"), reader.take(rounding));
    let types = types(reader)?;
    let [d_type, a_type, b_type, c_type] = types;
    let layouts_fit = a_type.bits != 4 || a_by_rows && !b_by_rows;
    let modifiers_fit = (!saturate || a_type.is_integer()) && (rounding.is_none() || a_type == Type::F64);
    if !is_product(shape, types) || !layouts_fit || !modifiers_fit {
        return Err(reader.invalid("there is no such product of matrices"));
    }
    let of = |part, ty| WarpMatrix { part, shape, ty };
    let [to_d, from_a, from_b, from_c] = reader.operands()?;
    let mut factor = |matrix: WarpMatrix, operand| {
        let mut registers = values(reader, operand, register_bits(matrix.ty), matrix.registers())?;
        registers.truncate(matrix.distinct());
        Ok(registers)
    };
    let (a, b) = (factor(of(Part::A, a_type), from_a)?, factor(of(Part::B, b_type), from_b)?);
    let c = factor(of(Part::C, c_type), from_c)?;
    let d = results(reader, to_d, register_bits(d_type), of(Part::C, d_type).registers())?;
    let rounding = rounding.unwrap_or(Rounding::Nearest);
    let product = MatrixMultiply { shape, a_type, b_type, c_type, d_type, saturate, rounding, d, a, b, c };
    reader.push(Action::Warp(WarpOp::Multiply(pieces(product))));
    Ok(())
}

/// The products of `mma` that make one of `wmma`.
fn pieces(mut product: MatrixMultiply) -> Vec<MatrixMultiply> {
    let [m, n, k] = product.shape;
    if n == 32 {
        // The turned product of the turned matrices.
        std::mem::swap(&mut product.a, &mut product.b);
        std::mem::swap(&mut product.a_type, &mut product.b_type);
        return pieces(MatrixMultiply { shape: [n, m, k], ..product });
    }
    let count = if m == 32 || n == 16 { 2 } else { 1 };
    let part = |registers: &[Register], piece: usize, is_split: bool| {
        let each = if is_split { registers.len() / count } else { registers.len() };
        registers[if is_split { piece * each } else { 0 }..][..each].to_vec()
    };
    let piece = |piece| MatrixMultiply {
        shape: [m.min(16), 8, k],
        d: part(&product.d, piece, true),
        a: part(&product.a, piece, m == 32),
        b: part(&product.b, piece, n == 16),
        c: part(&product.c, piece, true),
        ..product.clone()
    };
    (0..count).map(piece).collect()
}
