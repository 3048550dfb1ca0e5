//! Instructions that carry values between lanes: what they take, what they give.
//!
//! Values are collected from every fragment that takes part before anything is computed, since the members of an
//! instruction may stand at several places.

use super::rows::{Base, LANES, Long, Rows, Word, lanes};
use crate::arith;
use crate::program::action::{ShuffleMode, VoteMode, WarpOp};
use crate::program::types::Register;

/// What the lanes bring.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    a: Long,
    b: Word,
    c: Word,
    members: Word,
    /// Lanes whose predicate holds.
    holds: u32,
    /// Lanes that take part.
    present: u32,
}

/// What the lanes get.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    value: Long,
    flag: u32,
    /// Lanes that read from a lane which does not take part.
    pub(super) absent: u32,
}

impl WarpOp {
    /// Whether two instructions can be done as one.
    pub(super) fn joins(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sync { .. }, Self::Sync { .. }) | (Self::Elect { .. }, Self::Elect { .. }) => true,
            (Self::Shuffle { mode, .. }, Self::Shuffle { mode: other, .. }) => mode == other,
            (Self::Vote { mode, .. }, Self::Vote { mode: other, .. }) => mode == other,
            (Self::Match { all, .. }, Self::Match { all: other, .. }) => all == other,
            (Self::Reduce { op, ty, .. }, Self::Reduce { op: other, ty: other_type, .. }) => {
                op == other && ty == other_type
            }
            _ => false,
        }
    }
}

impl Inputs {
    /// Takes the operands of some lanes.
    pub(super) fn take(&mut self, op: &WarpOp, rows: &Rows, base: Base, active: u32) {
        let word = |register: Register| rows.word(base, register);
        let (a, b, c, members) = match op {
            WarpOp::Shuffle { a, b, c, members, .. } => (Some(*a), Some(*b), Some(*c), *members),
            WarpOp::Match { a, members, .. } | WarpOp::Reduce { a, members, .. } => (Some(*a), None, None, *members),
            WarpOp::Vote { members, .. } | WarpOp::Elect { members, .. } | WarpOp::Sync { members } => {
                (None, None, None, *members)
            }
            WarpOp::LoadMatrices { .. }
            | WarpOp::StoreMatrices { .. }
            | WarpOp::TransposeMatrix { .. }
            | WarpOp::Multiply(_)
            | WarpOp::LoadMatrix { .. }
            | WarpOp::StoreMatrix { .. } => return,
        };
        let values = a.map_or([0; LANES], |a| rows.row(base, a));
        let (b, c, members) = (b.map_or([0; LANES], word), c.map_or([0; LANES], word), word(members));
        super::rows::put(&mut self.a, values, active);
        super::rows::put(&mut self.b, b, active);
        super::rows::put(&mut self.c, c, active);
        super::rows::put(&mut self.members, members, active);
        if let WarpOp::Vote { predicate, negate, .. } = op {
            let holds = rows.predicate(base, *predicate) ^ if *negate { u32::MAX } else { 0 };
            self.holds |= holds & active;
        }
        self.present |= active;
    }
}

impl Outputs {
    /// Gives the results to some lanes.
    pub(super) fn put(&self, op: &WarpOp, rows: &mut Rows, base: Base, active: u32) {
        match op {
            WarpOp::Shuffle { to, valid, .. } => {
                rows.put(base, *to, active, &self.value);
                valid.iter().for_each(|valid| rows.put_predicate(base, *valid, active, self.flag));
            }
            WarpOp::Match { to, agree, .. } => {
                rows.put(base, *to, active, &self.value);
                agree.iter().for_each(|agree| rows.put_predicate(base, *agree, active, self.flag));
            }
            WarpOp::Vote { to, .. } | WarpOp::Reduce { to, .. } => rows.put(base, *to, active, &self.value),
            WarpOp::Elect { to, elected, .. } => {
                to.iter().for_each(|to| rows.put(base, *to, active, &self.value));
                rows.put_predicate(base, *elected, active, self.flag);
            }
            WarpOp::Sync { .. }
            | WarpOp::LoadMatrices { .. }
            | WarpOp::StoreMatrices { .. }
            | WarpOp::TransposeMatrix { .. }
            | WarpOp::Multiply(_)
            | WarpOp::LoadMatrix { .. }
            | WarpOp::StoreMatrix { .. } => {}
        }
    }
}

/// Computes what the lanes get.
pub(super) fn compute(op: &WarpOp, inputs: &Inputs) -> Outputs {
    match op {
        WarpOp::Shuffle { mode, .. } => shuffle(*mode, inputs),
        WarpOp::Vote { mode, .. } => each_group(inputs, |group, _| vote(*mode, inputs.holds & group, group)),
        WarpOp::Match { all, .. } => each_group(inputs, |group, lane| matches(*all, inputs, group, lane)),
        WarpOp::Reduce { op, ty, .. } => each_group(inputs, |group, _| {
            let values = lanes(group).map(|lane| inputs.a[lane]);
            let reduced = values.reduce(|all, value| arith::atomic(*op, *ty, false, all, value, 0));
            (reduced.unwrap_or(0), false)
        }),
        WarpOp::Elect { .. } => each_group(inputs, |group, lane| {
            let leader = group.trailing_zeros() as usize;
            (leader as u64, lane == leader)
        }),
        WarpOp::Sync { .. }
        | WarpOp::LoadMatrices { .. }
        | WarpOp::StoreMatrices { .. }
        | WarpOp::TransposeMatrix { .. }
        | WarpOp::Multiply(_)
        | WarpOp::LoadMatrix { .. }
        | WarpOp::StoreMatrix { .. } => Outputs::default(),
    }
}

/// Gives each lane what its group makes: the lanes that take part and that its member mask names.
fn each_group(inputs: &Inputs, result: impl Fn(u32, usize) -> (u64, bool)) -> Outputs {
    let mut outputs = Outputs::default();
    for lane in lanes(inputs.present) {
        let (value, flag) = result(inputs.members[lane] & inputs.present, lane);
        outputs.value[lane] = value;
        outputs.flag |= u32::from(flag) << lane;
    }
    outputs
}

fn vote(mode: VoteMode, holds: u32, group: u32) -> (u64, bool) {
    let value = match mode {
        VoteMode::All => u64::from(holds == group),
        VoteMode::Any => u64::from(holds != 0),
        VoteMode::Uniform => u64::from(holds == group || holds == 0),
        VoteMode::Ballot => u64::from(holds),
    };
    (value, false)
}

fn matches(all: bool, inputs: &Inputs, group: u32, lane: usize) -> (u64, bool) {
    let equal =
        lanes(group).filter(|&other| inputs.a[other] == inputs.a[lane]).fold(0, |found, other| found | 1 << other);
    if !all {
        return (u64::from(equal), false);
    }
    let agree = equal == group;
    (if agree { u64::from(group) } else { 0 }, agree)
}

/// Where each lane reads from: `b` says how far or from which lane, `c` holds the limits of the segments.
fn shuffle(mode: ShuffleMode, inputs: &Inputs) -> Outputs {
    let mut outputs = Outputs::default();
    for lane in lanes(inputs.present) {
        let own = u32::try_from(lane).unwrap_or(0);
        let (distance, segment, clamp) = (inputs.b[lane] & 31, inputs.c[lane] >> 8 & 31, inputs.c[lane] & 31);
        let last = own & segment | clamp & !segment;
        let first = own & segment;
        let (from, in_range) = match mode {
            ShuffleMode::Up => {
                (own.wrapping_sub(distance), own.cast_signed() - distance.cast_signed() >= last.cast_signed())
            }
            ShuffleMode::Down => (own + distance, own + distance <= last),
            ShuffleMode::Butterfly => (own ^ distance, (own ^ distance) <= last),
            ShuffleMode::Index => {
                let from = first | distance & !segment;
                (from, from <= last)
            }
        };
        let from = if in_range { from & 31 } else { own };
        if inputs.present & 1 << from == 0 {
            outputs.absent |= 1 << lane;
        }
        outputs.value[lane] = inputs.a[from as usize];
        outputs.flag |= u32::from(in_range) << lane;
    }
    outputs
}
