//! Which registers an instruction reads and writes.

use super::action::{Action, Atomic, BarrierKind, CallTarget, Instruction, MatrixMultiply, WarpOp};
use super::types::Register;

/// Who is told each register that an instruction mentions, and whether it is written. Some are told twice.
type Each<'e> = &'e mut dyn FnMut(Register, bool);

impl Instruction {
    /// Tells every register that the instruction mentions.
    pub(crate) fn each_register(&self, each: Each<'_>) {
        if let Some((guard, _)) = self.guard {
            each(guard, false);
        }
        self.action.each_register(each);
    }
}

impl Action {
    fn each_register(&self, each: Each<'_>) {
        match self {
            Self::Scalar(scalar) => {
                reads(scalar.arguments, each);
                each(scalar.to, true);
            }
            Self::Load(load) => {
                each(load.from.base, false);
                writes(load.to.iter().flatten().copied(), each);
            }
            Self::Store(store) => {
                each(store.to.base, false);
                reads(store.from.iter().copied(), each);
            }
            Self::Atomic(atomic) => each_of_atomic(atomic, each),
            Self::CopyAsync { to, from, bytes: _, read, unless } => {
                reads([to.base, from.base].into_iter().chain(*read).chain(*unless), each);
            }
            Self::ReadClock { to, .. } | Self::ActiveMask { to } | Self::SaveStack { to } => each(*to, true),
            Self::BranchIndexed { index, .. } => each(*index, false),
            Self::Call(call) => {
                if let CallTarget::Address(register) = call.target {
                    each(register, false);
                }
            }
            Self::Sleep { nanoseconds: from } | Self::RestoreStack { from } => each(*from, false),
            Self::Barrier(barrier) => {
                reads([barrier.id].into_iter().chain(barrier.threads), each);
                each_of_barrier(barrier.kind, each);
            }
            Self::Warp(op) => each_of_warp(op, each),
            Self::Allocate { to, bytes, .. } => {
                each(*bytes, false);
                each(*to, true);
            }
            Self::CommitCopies
            | Self::WaitCopies { .. }
            | Self::Branch { .. }
            | Self::Return
            | Self::Exit
            | Self::Trap
            | Self::Fence
            | Self::Nothing => {}
        }
    }
}

fn reads(registers: impl IntoIterator<Item = Register>, each: Each<'_>) {
    registers.into_iter().for_each(|register| each(register, false));
}

fn writes(registers: impl IntoIterator<Item = Register>, each: Each<'_>) {
    registers.into_iter().for_each(|register| each(register, true));
}

fn each_of_atomic(atomic: &Atomic, each: Each<'_>) {
    each(atomic.at.base, false);
    reads(atomic.values.iter().copied().chain(atomic.swap), each);
    writes(atomic.to.iter().flatten().copied(), each);
}

fn each_of_barrier(kind: BarrierKind, each: Each<'_>) {
    match kind {
        BarrierKind::Wait | BarrierKind::Arrive => {}
        BarrierKind::Count { to, predicate, .. }
        | BarrierKind::All { to, predicate, .. }
        | BarrierKind::Any { to, predicate, .. } => {
            each(predicate, false);
            each(to, true);
        }
    }
}

fn each_of_warp(op: &WarpOp, each: Each<'_>) {
    match op {
        WarpOp::Sync { members } => each(*members, false),
        WarpOp::Shuffle { to, valid, a, b, c, members, mode: _ } => {
            reads([*a, *b, *c, *members], each);
            writes([*to].into_iter().chain(*valid), each);
        }
        WarpOp::Vote { to, predicate, members, .. } => {
            reads([*predicate, *members], each);
            each(*to, true);
        }
        WarpOp::Match { to, agree, a, members, .. } => {
            reads([*a, *members], each);
            writes([*to].into_iter().chain(*agree), each);
        }
        WarpOp::Reduce { to, a, members, .. } => {
            reads([*a, *members], each);
            each(*to, true);
        }
        WarpOp::Elect { to, elected, members } => {
            each(*members, false);
            writes(to.iter().copied().chain([*elected]), each);
        }
        WarpOp::LoadMatrices { to, from, .. } => {
            each(from.base, false);
            writes(to.iter().copied(), each);
        }
        WarpOp::StoreMatrices { from, to, .. } => {
            reads(from.iter().copied().chain([to.base]), each);
        }
        WarpOp::TransposeMatrix { to, from } => {
            each(*from, false);
            each(*to, true);
        }
        WarpOp::Multiply(products) => products.iter().for_each(|product| each_of_product(product, each)),
        WarpOp::LoadMatrix { to, from, stride, .. } => {
            reads([from.base, *stride], each);
            writes(to.iter().copied(), each);
        }
        WarpOp::StoreMatrix { from, to, stride, .. } => {
            reads(from.iter().copied().chain([to.base, *stride]), each);
        }
    }
}

fn each_of_product(product: &MatrixMultiply, each: Each<'_>) {
    reads([&product.a, &product.b, &product.c].into_iter().flatten().copied(), each);
    writes(product.d.iter().copied(), each);
}
