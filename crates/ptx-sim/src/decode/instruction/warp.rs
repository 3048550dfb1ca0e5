//! What the lanes of a warp do together, except for matrices.

use super::atomic::operation;
use super::operands::pair;
use super::reader::Reader;
use crate::program::action::{Action, AtomicOp, ShuffleMode, VoteMode, WarpOp};
use crate::program::types::{Kind, Register, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

/// A result, and a predicate where `|` says so.
fn results(
    reader: &mut Reader<'_, '_, '_>,
    operand: &Operand<'_>,
    bits: u8,
) -> Result<(Register, Option<Register>), Refusal> {
    let (to, truth) = pair(operand);
    let to = reader.to(to, bits)?;
    let truth = match truth {
        Some(truth) => reader.to_or_sink(truth, 1)?,
        None => None,
    };
    Ok((to, truth))
}

pub(super) fn shfl(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("sync")?;
    let mode = reader.take(|word| match word {
        "up" => Some(ShuffleMode::Up),
        "down" => Some(ShuffleMode::Down),
        "bfly" => Some(ShuffleMode::Butterfly),
        "idx" => Some(ShuffleMode::Index),
        _ => None,
    });
    let mode = mode.ok_or_else(|| reader.invalid("the mode is missing"))?;
    reader.ty_of(|ty| ty == Type::B32)?;
    let [to, a, b, c, members] = reader.operands()?;
    let (to, valid) = results(reader, to, 32)?;
    let (a, b, c, members) = (reader.word(a)?, reader.word(b)?, reader.word(c)?, reader.word(members)?);
    reader.push(Action::Warp(WarpOp::Shuffle { mode, to, valid, a, b, c, members }));
    Ok(())
}

pub(super) fn vote(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("sync")?;
    let mode = reader.take(|word| match word {
        "all" => Some(VoteMode::All),
        "any" => Some(VoteMode::Any),
        "uni" => Some(VoteMode::Uniform),
        "ballot" => Some(VoteMode::Ballot),
        _ => None,
    });
    let mode = mode.ok_or_else(|| reader.invalid("the mode is missing"))?;
    let wanted = if mode == VoteMode::Ballot { Type::B32 } else { Type::PREDICATE };
    let ty = reader.ty_of(|ty| ty == wanted)?;
    let [to, truth, members] = reader.operands()?;
    let to = reader.to(to, ty.bits)?;
    let (predicate, negate) = reader.predicate(truth)?;
    let members = reader.word(members)?;
    reader.push(Action::Warp(WarpOp::Vote { mode, to, predicate, negate, members }));
    Ok(())
}

/// `match`, whose lanes compare bits.
pub(super) fn agree(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("sync")?;
    let all = reader.takes("all");
    if !all {
        reader.needs("any")?;
    }
    let ty = reader.ty_of(|ty| matches!(ty, Type::B32 | Type::B64))?;
    let [to, a, members] = reader.operands()?;
    if !all && matches!(to, Operand::Pair(..)) {
        return Err(reader.invalid("a predicate is only of '.all'"));
    }
    let (to, agree) = match pair(to) {
        // Of these only the predicate may be wanted.
        (Operand::Sink, Some(agree)) => (reader.names.scratch(32, reader.text.at)?, Some(reader.to(agree, 1)?)),
        _ => results(reader, to, 32)?,
    };
    let (a, members) = (reader.value(a, ty)?, reader.word(members)?);
    reader.push(Action::Warp(WarpOp::Match { all, to, agree, a, members }));
    Ok(())
}

pub(super) fn activemask(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.ty_of(|ty| ty == Type::B32)?;
    let [to] = reader.operands()?;
    let to = reader.to(to, 32)?;
    reader.push(Action::ActiveMask { to });
    Ok(())
}

pub(super) fn redux(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("sync")?;
    let op = reader.take(operation).ok_or_else(|| reader.invalid("the operation is missing"))?;
    if reader.has("f32") {
        return Err(reader.unsupported("of floating numbers"));
    }
    let ty = reader.ty()?;
    let fits = match op {
        AtomicOp::Add | AtomicOp::Minimum | AtomicOp::Maximum => matches!(ty, Type::U32 | Type::S32),
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => ty == Type::new(Kind::Bits, 32),
        AtomicOp::Exchange | AtomicOp::CompareAndSwap | AtomicOp::Increment | AtomicOp::Decrement => false,
    };
    if !fits {
        return Err(reader.invalid("wrong type"));
    }
    let [to, a, members] = reader.operands()?;
    let (to, a, members) = (reader.to(to, 32)?, reader.value(a, ty)?, reader.word(members)?);
    reader.push(Action::Warp(WarpOp::Reduce { op, ty, to, a, members }));
    Ok(())
}

pub(super) fn elect(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.needs("sync")?;
    let [results, members] = reader.operands()?;
    let (to, Some(elected)) = pair(results) else { return Err(reader.invalid("the predicate is missing")) };
    let (to, elected) = (reader.to_or_sink(to, 32)?, reader.to(elected, 1)?);
    let members = reader.word(members)?;
    reader.push(Action::Warp(WarpOp::Elect { to, elected, members }));
    Ok(())
}
