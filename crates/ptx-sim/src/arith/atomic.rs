//! What atomic instructions leave in memory.

use super::{integer, narrow};
use crate::program::action::AtomicOp;
use crate::program::scalar::{Modes, ScalarOp};
use crate::program::types::{Kind, Type};

/// What an atomic operation leaves where `old` was. Sums of f32 in global memory take subnormal numbers as zeros and give
/// zeros for them; otherwise they are kept.
pub(crate) fn atomic(op: AtomicOp, ty: Type, in_global: bool, old: u64, value: u64, swap: u64) -> u64 {
    let modes = Modes { flush: in_global && op == AtomicOp::Add && ty == Type::F32, ..Modes::PLAIN };
    match op {
        AtomicOp::Add => arithmetic(ScalarOp::Add, ty, modes, old, value),
        AtomicOp::Minimum => arithmetic(ScalarOp::Minimum, ty, modes, old, value),
        AtomicOp::Maximum => arithmetic(ScalarOp::Maximum, ty, modes, old, value),
        AtomicOp::And => old & value,
        AtomicOp::Or => old | value,
        AtomicOp::Xor => old ^ value,
        AtomicOp::Exchange => value,
        AtomicOp::CompareAndSwap if old == value => swap,
        AtomicOp::CompareAndSwap => old,
        AtomicOp::Increment if old >= value => 0,
        AtomicOp::Increment => old + 1,
        AtomicOp::Decrement if old == 0 || old > value => value,
        AtomicOp::Decrement => old - 1,
    }
}

fn arithmetic(op: ScalarOp, ty: Type, modes: Modes, old: u64, value: u64) -> u64 {
    if ty.packed {
        let one = Type { packed: false, ..ty };
        let half = |shift: u8| arithmetic(op, one, modes, old >> shift & 0xFFFF, value >> shift & 0xFFFF);
        return half(16) << 16 | half(0);
    }
    match (ty.kind, ty.bits) {
        (Kind::Float, 64) => super::double::evaluate(op, modes, [old, value, 0]),
        (Kind::Float | Kind::Brain, _) => narrow::evaluate(op, ty, modes, [old, value, 0]),
        _ => integer::evaluate(op, ty, modes, [old, value, 0, 0]),
    }
}
