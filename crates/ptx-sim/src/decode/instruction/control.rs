//! Ends, traps, barriers of a block, sleeping and the stack.

use super::reader::Reader;
use crate::program::action::{Action, Barrier, BarrierKind, WarpOp};
use crate::program::types::{Kind, Register, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

pub(super) fn ret(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.takes("uni");
    plain(reader, Action::Return)
}

pub(super) fn exit(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    plain(reader, Action::Exit)
}

/// `trap`, and `brkpt`, which nobody waits for.
pub(super) fn trap(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    plain(reader, Action::Trap)
}

fn plain(reader: &mut Reader<'_, '_, '_>, action: Action) -> Result<(), Refusal> {
    let [] = reader.operands()?;
    reader.push(action);
    Ok(())
}

pub(super) fn pmevent(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    reader.takes("mask");
    let [Operand::Integer(_)] = reader.operands()? else { return Err(reader.invalid("no constant as an operand")) };
    reader.push(Action::Nothing);
    Ok(())
}

/// `griddepcontrol`: launches do not overlap here.
pub(super) fn griddepcontrol(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    if !reader.takes("launch_dependents") {
        reader.needs("wait")?;
    }
    plain(reader, Action::Nothing)
}

pub(super) fn nanosleep(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = reader.ty_of(|ty| ty == Type::U32)?;
    let [time] = reader.operands()?;
    let nanoseconds = reader.value(time, ty)?;
    reader.push(Action::Sleep { nanoseconds });
    Ok(())
}

/// `bar`, whose barriers are aligned, and `bar.warp.sync`.
pub(super) fn bar(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    if reader.takes("warp") {
        reader.needs("sync")?;
        let [members] = reader.operands()?;
        let members = reader.word(members)?;
        reader.push(Action::Warp(WarpOp::Sync { members }));
        return Ok(());
    }
    block(reader, true)
}

pub(super) fn barrier(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    if reader.has("cluster") {
        return Err(reader.unsupported("clusters of blocks"));
    }
    let aligned = reader.takes("aligned");
    block(reader, aligned)
}

fn block(reader: &mut Reader<'_, '_, '_>, aligned: bool) -> Result<(), Refusal> {
    reader.takes("cta");
    if reader.takes("red") {
        return reduce(reader, aligned);
    }
    let arrives = reader.takes("arrive");
    if !arrives {
        reader.needs("sync")?;
    }
    let (id, threads) = match reader.text.operands.as_slice() {
        [id] if !arrives => (id, None),
        [id, threads] => (id, Some(threads)),
        _ => return Err(reader.invalid("wrong number of operands")),
    };
    let kind = if arrives { BarrierKind::Arrive } else { BarrierKind::Wait };
    push(reader, kind, id, threads, aligned)
}

fn push(
    reader: &mut Reader<'_, '_, '_>,
    kind: BarrierKind,
    id: &Operand<'_>,
    threads: Option<&Operand<'_>>,
    aligned: bool,
) -> Result<(), Refusal> {
    if matches!(id, Operand::Integer(number) if *number > 15) {
        return Err(reader.invalid("there are 16 barriers"));
    }
    if matches!(threads, Some(Operand::Integer(count)) if count % 32 != 0) {
        return Err(reader.invalid("the threads are not of whole warps"));
    }
    let id = reader.word(id)?;
    let threads: Option<Register> = threads.map(|threads| reader.word(threads)).transpose()?;
    reader.push(Action::Barrier(Barrier { kind, id, threads, aligned }));
    Ok(())
}

fn reduce(reader: &mut Reader<'_, '_, '_>, aligned: bool) -> Result<(), Refusal> {
    let counts = reader.takes("popc");
    let all = !counts && reader.takes("and");
    if !counts && !all {
        reader.needs("or")?;
    }
    let ty = reader.ty_of(|ty| if counts { ty == Type::U32 } else { ty.kind == Kind::Predicate })?;
    let (to, id, threads, truth) = match reader.text.operands.as_slice() {
        [to, id, truth] => (to, id, None, truth),
        [to, id, threads, truth] => (to, id, Some(threads), truth),
        _ => return Err(reader.invalid("wrong number of operands")),
    };
    let to = reader.to(to, ty.bits)?;
    let (predicate, negate) = reader.predicate(truth)?;
    let kind = match (counts, all) {
        (true, _) => BarrierKind::Count { to, predicate, negate },
        (false, true) => BarrierKind::All { to, predicate, negate },
        (false, false) => BarrierKind::Any { to, predicate, negate },
    };
    push(reader, kind, id, threads, aligned)
}

fn stack_type(reader: &mut Reader<'_, '_, '_>) -> Result<Type, Refusal> {
    reader.ty_of(|ty| matches!(ty, Type::U32 | Type::U64))
}

pub(super) fn alloca(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = stack_type(reader)?;
    let (to, bytes, align) = match reader.text.operands.as_slice() {
        [to, bytes] => (to, bytes, 8),
        [to, bytes, Operand::Integer(align)] if align.is_power_of_two() && *align <= 1 << 20 => (to, bytes, *align),
        _ => return Err(reader.invalid("wrong operands")),
    };
    let (to, bytes) = (reader.to(to, ty.bits)?, reader.value(bytes, ty)?);
    let align = u32::try_from(align).map_err(|_| reader.invalid("wrong alignment"))?;
    reader.push(Action::Allocate { to, bytes, align });
    Ok(())
}

pub(super) fn stacksave(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = stack_type(reader)?;
    let [to] = reader.operands()?;
    let to = reader.to(to, ty.bits)?;
    reader.push(Action::SaveStack { to });
    Ok(())
}

pub(super) fn stackrestore(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    let ty = stack_type(reader)?;
    let [from] = reader.operands()?;
    let from = reader.value(from, ty)?;
    reader.push(Action::RestoreStack { from });
    Ok(())
}
