//! A warp: its rows, and the fragments into which its lanes have parted.
//!
//! A fragment is a set of lanes with one program counter. Where lanes of a fragment branch apart it becomes two. The
//! fragment with the least program counter runs next, the deepest call first, so that fragments meet again where their
//! ways join. A fragment that spins makes way for the others after some turns of its loop.
//!
//! **Invariants:** every lane that has not ended is in exactly one fragment. Fragments of equal program counter and calls
//! become one when the one that runs reaches the other.

use super::poll::Polls;
use super::reach::Local;
use super::rows::{Base, Rows};

/// Where a call goes on, and the frame of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Return {
    pub(crate) pc: u32,
    pub(crate) base: Base,
    /// Bytes of local memory that the caller's frame had taken.
    pub(crate) top: u32,
}

/// What a fragment waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// Kept back until the warp has done so many steps, unless nothing else can run.
    Delayed(u64),
    /// At an instruction that needs other lanes.
    Together,
    /// At a barrier of the block, in its round.
    Barrier {
        id: usize,
        round: u64,
    },
}

/// Lanes with one program counter.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) pc: u32,
    pub(crate) lanes: u32,
    pub(crate) base: Base,
    /// Where the frame's local memory ends.
    pub(crate) top: u32,
    /// The calls it is in, the outermost first.
    pub(crate) returns: Vec<Return>,
    pub(crate) state: State,
}

impl Fragment {
    /// The same place with other lanes.
    pub(crate) fn part(&mut self, lanes: u32) -> Self {
        self.lanes &= !lanes;
        Self { lanes, ..self.clone() }
    }

    /// Whether it stands where another does.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.pc == other.pc && self.returns == other.returns
    }

    /// What runs first has the smaller one: deeper calls, then smaller program counters.
    fn rank(&self) -> (std::cmp::Reverse<usize>, u32) {
        (std::cmp::Reverse(self.returns.len()), self.pc)
    }
}

/// A warp.
#[derive(Debug, Default)]
pub(crate) struct Warp {
    /// Its place in the block.
    pub(crate) number: u32,
    pub(crate) rows: Rows,
    pub(crate) local: Local,
    /// All fragments but the one that runs.
    pub(crate) others: Vec<Fragment>,
    /// Lanes that have not ended.
    pub(crate) live: u32,
    pub(crate) steps: u64,
    /// Cycles that passed beside those of its steps.
    pub(crate) waited: u64,
    /// How many pass at the next reading of a clock.
    pub(crate) leap: u64,
    /// Until so many steps the fragment that runs does not make way for one with a smaller program counter.
    pub(crate) fair_until: u64,
    /// Copies that were begun and not waited for.
    pub(crate) copies: Vec<PendingCopy>,
    /// Whether it waits for memory to change.
    pub(crate) polls: Polls,
}

/// A copy from global to shared memory that one lane has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCopy {
    pub(crate) lane: usize,
    /// How many groups were committed behind its own; none while its own is open.
    pub(crate) later: Option<u32>,
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) bytes: u8,
    pub(crate) read: u8,
}

/// Cycles of a step.
const STEP_CYCLES: u64 = 4;

/// Steps that a fragment may do for itself after others have spun.
const FAIR_STEPS: u64 = 2048;

impl Warp {
    /// Lets the fragment that stands first run; the program counter at which the next one waits for it.
    pub(crate) fn choose(&mut self, current: &mut Fragment) -> u32 {
        self.wake();
        if self.steps < self.fair_until {
            return u32::MAX;
        }
        loop {
            self.merge(current);
            let ready = self.others.iter_mut().filter(|other| other.state == State::Ready);
            match ready.min_by_key(|other| other.rank()) {
                Some(first) if first.rank() < current.rank() => std::mem::swap(first, current),
                Some(first) if first.returns.len() == current.returns.len() => return first.pc,
                Some(_) | None => return u32::MAX,
            }
        }
    }

    /// Cycles that have passed.
    pub(crate) fn cycles(&self) -> u64 {
        self.steps * STEP_CYCLES + self.waited
    }

    /// Takes in every fragment that stands where this one does and could run.
    pub(crate) fn merge(&mut self, current: &mut Fragment) {
        let mut index = 0;
        while index < self.others.len() {
            let other = &self.others[index];
            if other.state == State::Ready && other.meets(current) {
                current.lanes |= other.lanes;
                self.others.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Takes in every fragment that waits at the same instruction.
    pub(crate) fn gather(&mut self, current: &mut Fragment) {
        self.others.retain(|other| {
            let same = other.state == State::Together && other.meets(current);
            if same {
                current.lanes |= other.lanes;
            }
            !same
        });
    }

    /// Whether a fragment beside the one that runs could run, now or after a delay.
    pub(crate) fn has_others_to_run(&self) -> bool {
        self.others.iter().any(|other| matches!(other.state, State::Ready | State::Delayed(_)))
    }

    /// Fragments whose delay is over can run.
    fn wake(&mut self) {
        let steps = self.steps;
        for other in &mut self.others {
            if matches!(other.state, State::Delayed(until) if until <= steps) {
                other.state = State::Ready;
            }
        }
    }

    /// Lets another fragment that can run go on for a while, since this one spins.
    pub(crate) fn make_way(&mut self, current: &mut Fragment) {
        self.wake();
        let Some(next) = self.others.iter().position(|other| other.state == State::Ready) else { return };
        // The one that has waited longest stands first.
        let next = self.others.remove(next);
        self.others.push(std::mem::replace(current, next));
        self.fair_until = self.steps + FAIR_STEPS;
    }

    /// A fragment that can run; a delayed one if there is no other.
    pub(crate) fn next(&mut self, is_over: impl Fn(usize, u64) -> bool) -> Option<Fragment> {
        self.wake();
        let can_run = |state: State| match state {
            State::Ready => true,
            State::Barrier { id, round } => is_over(id, round),
            State::Delayed(_) | State::Together => false,
        };
        let runnable = self.others.iter().enumerate().filter(|(_, other)| can_run(other.state));
        let first = runnable.min_by_key(|(_, other)| other.rank()).map(|(index, _)| index);
        let delayed = || self.others.iter().position(|other| matches!(other.state, State::Delayed(_)));
        let index = first.or_else(delayed)?;
        Some(self.others.swap_remove(index))
    }
}
