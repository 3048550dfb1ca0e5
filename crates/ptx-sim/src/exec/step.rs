//! The steps of a warp: one instruction after the other, until the warp has to wait, ends, or has had its turn.
//!
//! The loop is compiled twice: for the least x86-64 processor, and (in `wide`) for one with vectors of 256 bits.

#![expect(clippy::wildcard_enum_match_arm, reason = "every other instruction is done elsewhere")]

use super::core::{Common, Core};
use super::fragment::{Fragment, State, Warp};
use super::memory::{Failure, Fault, Memory};
use super::op::{Op, UNGUARDED};
use super::reach::Stop;
use super::row;
use super::rows::{ALL, lanes};
use crate::arith;
use crate::program::action::Action;

/// How a warp's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It could go on.
    Paused,
    /// It reads memory again and again until that changes.
    Polls,
    /// All of its fragments wait.
    Waits,
    /// All of its lanes have ended.
    Ended,
}

/// What the fragment that runs does next.
pub(super) enum Next {
    /// The instruction at its program counter.
    Go,
    /// Nothing: it has ended or waits, and another one may run.
    Leave,
}

/// Turns of loops that a fragment makes before others of its warp may run.
const SPINS: u32 = 96;

/// Steps between two looks at what steps are left.
const LEG: u64 = 4096;

/// Gives a warp its turn of so many steps.
#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled once for each set of vector instructions")]
pub(super) fn turn<'m, M: Memory<'m>, const FMA: bool>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    steps: u64,
) -> Result<Turn, Failure> {
    let end = warp.steps + steps;
    warp.polls.begin();
    loop {
        let Some(mut current) = warp.next(|id, round| common.barriers.is_over(id, round)) else {
            if warp.others.is_empty() {
                return Ok(Turn::Ended);
            }
            if super::together::resolve(core, common.block, warp) {
                continue;
            }
            return Ok(Turn::Waits);
        };
        super::together::after_barrier(core, common, warp, &current);
        current.state = State::Ready;
        if core.launch.parts_warps {
            part(core, warp, &mut current);
        }
        loop {
            let leg_end = end.min(warp.steps + LEG);
            let left = leg::<M, FMA>(core, common, warp, &mut current, leg_end)?;
            core.count(common, warp, current.pc)?;
            if left {
                break;
            }
            if warp.steps >= end || (warp.polls.spins() && !warp.has_others_to_run()) {
                warp.others.push(current);
                return Ok(if warp.polls.waits() { Turn::Polls } else { Turn::Paused });
            }
        }
    }
}

/// Parts a fragment for no reason, as hardware may.
fn part<'m, M: Memory<'m>>(core: &mut Core<'_, 'm, M>, warp: &mut Warp, current: &mut Fragment) {
    if core.draw(8) != 0 {
        return;
    }
    let lanes = u32::try_from(core.draw(1 << 31)).unwrap_or(1) << 1 & current.lanes;
    if lanes != 0 && lanes != current.lanes {
        let delay = 1 + core.draw(64);
        let mut kept_back = current.part(lanes);
        kept_back.state = State::Delayed(warp.steps + delay);
        warp.others.push(kept_back);
    }
}

/// Runs the fragment, and those it makes way for, up to a number of steps of the warp; whether the last one cannot go on.
#[inline(always)]
#[expect(clippy::inline_always, reason = "compiled once for each set of vector instructions")]
fn leg<'m, M: Memory<'m>, const FMA: bool>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    current: &mut Fragment,
    end: u64,
) -> Result<bool, Failure> {
    let program = core.launch.program;
    let code = &program.code[..];
    let quick = !core.watch.is_on();
    let mut limit = warp.choose(current);
    let mut counted = warp.steps;
    let mut spins = 0;
    while warp.steps < end {
        if current.pc >= limit {
            core.add_steps(warp, &mut counted, current.lanes);
            limit = warp.choose(current);
        }
        let at = current.pc;
        let instruction = code[at as usize];
        current.pc = at + 1;
        warp.steps += 1;
        let active = match instruction.guard {
            UNGUARDED => current.lanes,
            guard => {
                let holds = warp.rows.predicates[current.base.predicates as usize + usize::from(guard)];
                current.lanes & if instruction.negated { !holds } else { holds }
            }
        };
        if active == 0 || row::execute::<FMA>(&mut warp.rows, current.base, instruction.op, active) {
            continue;
        }
        match instruction.op {
            Op::LoadParameter { to, long, offset }
                if super::quick::parameter(
                    &core.parameters,
                    &mut warp.rows,
                    current.base,
                    (to, long, offset),
                    active,
                ) => {}
            Op::LoadWord(what)
                if active == ALL
                    && (quick || super::quick::watch_load(core, common, warp, current.base, (what, at)))
                    && super::quick::load(core, common, warp, current.base, what) => {}
            Op::StoreWord(what)
                if quick && active == ALL && super::quick::store(core, common, warp, current.base, what) =>
            {
                if !what.shared {
                    core.note_write(warp);
                }
            }
            Op::LoadParameter { .. } | Op::LoadWord(_) | Op::StoreWord(_) | Op::Load | Op::Store | Op::Atomic => {
                let done = super::access::access(core, common, warp, current.base, (at, active));
                done.map_err(|stop| core.failure(common, warp, at, stop))?;
                if warp.polls.spins() && !warp.has_others_to_run() {
                    core.add_steps(warp, &mut counted, current.lanes);
                    return Ok(false);
                }
            }
            Op::Lane => lane_by_lane(program, warp, current.base, at, active),
            Op::Branch(target) => {
                if active != current.lanes {
                    core.add_steps(warp, &mut counted, current.lanes);
                    let mut taken = current.part(active);
                    taken.pc = target;
                    warp.others.push(taken);
                    limit = warp.choose(current);
                } else {
                    current.pc = target;
                }
                if target <= at {
                    spins += 1;
                    if spins >= SPINS && !warp.others.is_empty() {
                        spins = 0;
                        core.add_steps(warp, &mut counted, current.lanes);
                        warp.make_way(current);
                        limit = warp.choose(current);
                    }
                }
            }
            _ => {
                core.add_steps(warp, &mut counted, current.lanes);
                match super::control::execute(core, common, warp, current, at, active)? {
                    Next::Go => limit = warp.choose(current),
                    Next::Leave => return Ok(true),
                }
            }
        }
    }
    core.add_steps(warp, &mut counted, current.lanes);
    Ok(false)
}

fn lane_by_lane(program: &super::op::Program, warp: &mut Warp, base: super::rows::Base, at: u32, active: u32) {
    let Action::Scalar(scalar) = &program.actions[at as usize] else { return };
    for lane in lanes(active) {
        let values = scalar.arguments.map(|argument| warp.rows.get(base, argument, lane));
        warp.rows.set(base, scalar.to, lane, arith::evaluate(scalar, values));
    }
}

impl<'m, M: Memory<'m>> Core<'_, 'm, M> {
    /// Adds what a warp did since it was counted last, with so many lanes.
    #[inline]
    fn add_steps(&mut self, warp: &Warp, counted: &mut u64, lanes: u32) {
        let done = (warp.steps - *counted) * u64::from(lanes.count_ones());
        *counted = warp.steps;
        self.steps_done += done;
    }

    /// Whether more steps may be done.
    fn count(&mut self, common: &Common, warp: &Warp, pc: u32) -> Result<(), Failure> {
        let cycles = warp.cycles();
        self.cycles = self.cycles.max(cycles);
        if self.steps_done <= self.launch.all_steps && warp.steps <= self.launch.warp_steps {
            return Ok(());
        }
        Err(self.failure(common, warp, pc, Stop { fault: Fault::Steps, lane: 0, address: 0 }))
    }
}
