//! `atom` and `red`.

use super::memory::{elements, scope};
use super::operands::SpaceWord;
use super::reader::Reader;
use crate::program::action::{Action, Atomic, AtomicOp, Order};
use crate::program::types::{Kind, Type};
use crate::refusal::Refusal;
use crate::text::syntax::Operand;

pub(super) fn atom(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    read(reader, true)
}

pub(super) fn red(reader: &mut Reader<'_, '_, '_>) -> Result<(), Refusal> {
    read(reader, false)
}

pub(super) fn operation(word: &str) -> Option<AtomicOp> {
    Some(match word {
        "add" => AtomicOp::Add,
        "min" => AtomicOp::Minimum,
        "max" => AtomicOp::Maximum,
        "and" => AtomicOp::And,
        "or" => AtomicOp::Or,
        "xor" => AtomicOp::Xor,
        "exch" => AtomicOp::Exchange,
        "cas" => AtomicOp::CompareAndSwap,
        "inc" => AtomicOp::Increment,
        "dec" => AtomicOp::Decrement,
        _ => return None,
    })
}

fn order(reader: &mut Reader<'_, '_, '_>, gives_old: bool) -> Order {
    let found = reader.take(|word| match word {
        "relaxed" => Some(Order::Relaxed),
        "release" => Some(Order::Release),
        "acquire" if gives_old => Some(Order::Acquire),
        "acq_rel" if gives_old => Some(Order::AcquireRelease),
        _ => None,
    });
    scope(reader);
    found.unwrap_or(Order::Relaxed)
}

/// Whether there is such an operation on one value of a type.
fn fits(op: AtomicOp, ty: Type) -> bool {
    let is_half = ty.is_float() && ty.bits == 16;
    match op {
        AtomicOp::Add => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::F32 | Type::F64) || is_half,
        AtomicOp::Minimum | AtomicOp::Maximum => ty.is_integer() && !ty.packed && ty.bits >= 32,
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor | AtomicOp::Exchange => matches!(ty, Type::B32 | Type::B64),
        AtomicOp::CompareAndSwap => ty.kind == Kind::Bits && ty.bits >= 16,
        AtomicOp::Increment | AtomicOp::Decrement => ty == Type::U32,
    }
}

/// Whether there is such an operation on so many values of a type.
fn fits_vector(op: AtomicOp, ty: Type, count: usize) -> bool {
    let is_extreme = matches!(op, AtomicOp::Minimum | AtomicOp::Maximum);
    match (ty.kind, ty.bits, ty.packed) {
        (Kind::Float, 32, false) => op == AtomicOp::Add && count <= 4,
        (Kind::Float | Kind::Brain, 16, packed) => (op == AtomicOp::Add || is_extreme) && (count <= 4 || !packed),
        _ => false,
    }
}

fn read(reader: &mut Reader<'_, '_, '_>, gives_old: bool) -> Result<(), Refusal> {
    let order = order(reader, gives_old);
    let word = reader.space();
    let op = reader.take(operation).ok_or_else(|| reader.invalid("the operation is missing"))?;
    let flushes_not = reader.takes("noftz");
    let policy = reader.takes("L2::cache_hint");
    let count = reader.take(|word| match word {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    });
    let ty = reader.ty()?;
    let count_fits = match count {
        None => fits(op, ty),
        Some(count) => fits_vector(op, ty, count) && matches!(word, SpaceWord::Generic | SpaceWord::Global),
    };
    let is_half = ty.is_float() && ty.bits == 16;
    let only_old = matches!(op, AtomicOp::Exchange | AtomicOp::CompareAndSwap);
    if !count_fits || flushes_not != is_half || only_old && !gives_old {
        return Err(reader.invalid("wrong type"));
    }
    if !matches!(word, SpaceWord::Generic | SpaceWord::Global | SpaceWord::Shared)
        || policy && word == SpaceWord::Shared
    {
        return Err(reader.invalid("wrong state space"));
    }
    finish(reader, Head { gives_old, policy, word, op, ty, order, count: count.unwrap_or(1) })
}

/// What stands before the operands.
struct Head {
    gives_old: bool,
    policy: bool,
    word: SpaceWord,
    op: AtomicOp,
    ty: Type,
    order: Order,
    count: usize,
}

fn finish(reader: &mut Reader<'_, '_, '_>, head: Head) -> Result<(), Refusal> {
    let Head { gives_old, policy, word, op, ty, order, count } = head;
    let mut operands = reader.text.operands.as_slice();
    let mut results = Vec::new();
    if gives_old {
        let Some((to, rest)) = operands.split_first() else { return Err(reader.invalid("wrong number of operands")) };
        operands = rest;
        for element in elements(reader, to, if matches!(to, Operand::Sink) { 1 } else { count })? {
            results.push(reader.to_or_sink(element, ty.register_bits())?);
        }
        results.resize(count, None);
    }
    if policy {
        let Some((last, rest)) = operands.split_last() else { return Err(reader.invalid("wrong number of operands")) };
        operands = rest;
        reader.value(last, Type::B64)?;
    }
    let (at, value, swap) = match operands {
        [at, value, swap] if op == AtomicOp::CompareAndSwap => (at, value, Some(reader.value(swap, ty)?)),
        [at, value] if op != AtomicOp::CompareAndSwap => (at, value, None),
        _ => return Err(reader.invalid("wrong number of operands")),
    };
    let mut values = Vec::new();
    for element in elements(reader, value, count)? {
        values.push(reader.value(element, ty)?);
    }
    let (space, at) = reader.address(at, word)?;
    reader.push(Action::Atomic(Atomic { space, op, ty, order, to: results, at, values, swap }));
    Ok(())
}
