//! What the lanes of a warp do together, and barriers.
//!
//! An instruction with a member mask waits until the fragment covers all members that have not ended. Where no fragment of
//! the warp can go on, members that wait at several places do the instruction from there together, as PTX allows. Where
//! lanes never come, the instruction is done without them, which is noted.

#![expect(clippy::wildcard_enum_match_arm, reason = "only some instructions wait for other lanes")]

use super::barrier::{Barriers, Votes};
use super::control::put_aside;
use super::core::{Common, Core, FindingKind};
use super::exchange::{Inputs, compute};
use super::fragment::{Fragment, State, Warp};
use super::matrix;
use super::memory::Memory;
use super::reach::Stop;
use super::rows::{Base, lanes};
use super::step::Next;
use super::watch::Scope;
use crate::program::action::{Action, Barrier, BarrierKind, WarpOp};

/// Does an instruction of a warp, or waits for its other lanes.
pub(super) fn execute<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    current: &mut Fragment,
    op: &WarpOp,
    at: u32,
) -> Result<Next, Stop> {
    let pc = std::mem::replace(&mut current.pc, at);
    warp.gather(current);
    current.pc = pc;
    if current.lanes == warp.live {
        // Nobody can be missing.
        perform(core, common, warp, current.base, op, current.lanes, at)?;
        return Ok(Next::Go);
    }
    let covered = lanes(current.lanes).filter(|&lane| {
        let needed = members(op, warp, current.base, lane) & warp.live;
        needed & !current.lanes == 0
    });
    let covered = covered.fold(0, |all, lane| all | 1 << lane);
    if covered == 0 {
        return Ok(put_aside(warp, current, at, State::Together));
    }
    if covered != current.lanes {
        let mut rest = current.part(!covered & current.lanes);
        (rest.pc, rest.state) = (at, State::Together);
        warp.others.push(rest);
    }
    perform(core, common, warp, current.base, op, current.lanes, at)?;
    Ok(Next::Go)
}

/// The lanes that an instruction names.
fn members(op: &WarpOp, warp: &Warp, base: Base, lane: usize) -> u32 {
    match op {
        WarpOp::Sync { members }
        | WarpOp::Shuffle { members, .. }
        | WarpOp::Vote { members, .. }
        | WarpOp::Match { members, .. }
        | WarpOp::Reduce { members, .. }
        | WarpOp::Elect { members, .. } => warp.rows.get_word(base, *members, lane),
        WarpOp::LoadMatrices { .. }
        | WarpOp::StoreMatrices { .. }
        | WarpOp::TransposeMatrix { .. }
        | WarpOp::Multiply(_)
        | WarpOp::LoadMatrix { .. }
        | WarpOp::StoreMatrix { .. } => warp.live,
    }
}

fn perform<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    op: &WarpOp,
    active: u32,
    at: u32,
) -> Result<(), Stop> {
    core.watch.sync(common.block, warp.number, active, Scope::Warp, (true, true));
    match op {
        WarpOp::Sync { .. } => Ok(()),
        WarpOp::LoadMatrices { .. }
        | WarpOp::StoreMatrices { .. }
        | WarpOp::TransposeMatrix { .. }
        | WarpOp::Multiply(_)
        | WarpOp::LoadMatrix { .. }
        | WarpOp::StoreMatrix { .. } => matrix::execute(core, common, warp, base, op, (at, active)),
        WarpOp::Shuffle { .. }
        | WarpOp::Vote { .. }
        | WarpOp::Match { .. }
        | WarpOp::Reduce { .. }
        | WarpOp::Elect { .. } => {
            let mut inputs = Inputs::default();
            inputs.take(op, &warp.rows, base, active);
            let outputs = compute(op, &inputs);
            outputs.put(op, &mut warp.rows, base, active);
            if outputs.absent != 0 {
                let text = format!("lanes {:#x} read from lanes that do not take part", outputs.absent);
                core.find(common, warp, at, FindingKind::AbsentLane, text);
            }
            Ok(())
        }
    }
}

/// Lets lanes that wait at several places for each other do their instruction together; whether any did.
pub(super) fn resolve<'m, M: Memory<'m>>(core: &mut Core<'_, 'm, M>, block: u64, warp: &mut Warp) -> bool {
    let program = core.launch.program;
    let op_at = |fragment: &Fragment| match &program.actions[fragment.pc as usize] {
        Action::Warp(op) if fragment.state == State::Together => Some(op),
        _ => None,
    };
    for first in 0..warp.others.len() {
        let Some(op) = op_at(&warp.others[first]) else { continue };
        let needed = {
            let fragment = &warp.others[first];
            members(op, warp, fragment.base, fragment.lanes.trailing_zeros() as usize) & warp.live
        };
        let joins = |fragment: &Fragment| {
            let same = op_at(fragment).is_some_and(|other| op.joins(other));
            let lane = fragment.lanes.trailing_zeros() as usize;
            same && op_at(fragment).is_some_and(|op| members(op, warp, fragment.base, lane) & warp.live == needed)
        };
        let group: Vec<usize> = (0..warp.others.len()).filter(|&index| joins(&warp.others[index])).collect();
        let covered = group.iter().fold(0, |all, &index| all | warp.others[index].lanes);
        if needed & !covered != 0 || group.len() < 2 {
            continue;
        }
        let mut inputs = Inputs::default();
        for &index in &group {
            let fragment = &warp.others[index];
            op_at(fragment).into_iter().for_each(|op| inputs.take(op, &warp.rows, fragment.base, fragment.lanes));
        }
        let outputs = compute(op, &inputs);
        core.watch.sync(block, warp.number, covered, Scope::Warp, (true, true));
        for &index in &group {
            let (base, lanes) = (warp.others[index].base, warp.others[index].lanes);
            if let Some(op) = op_at(&warp.others[index]) {
                outputs.put(op, &mut warp.rows, base, lanes);
            }
            let fragment = &mut warp.others[index];
            (fragment.pc, fragment.state) = (fragment.pc + 1, State::Ready);
        }
        return true;
    }
    false
}

/// Lets the first fragment that waits for lanes go on without them; whether there was one.
pub(super) fn force<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
) -> Result<bool, (u32, Stop)> {
    let waiting = warp.others.iter().position(|fragment| fragment.state == State::Together);
    let Some(mut fragment) = waiting.map(|index| warp.others.swap_remove(index)) else { return Ok(false) };
    let at = fragment.pc;
    let missing = warp.live & !fragment.lanes;
    fragment.pc = at + 1;
    match &core.launch.program.actions[at as usize] {
        Action::Warp(op) => {
            let text = format!("lanes {missing:#x} are named and do not come");
            core.find(common, warp, at, FindingKind::AbsentLane, text);
            fragment.state = State::Ready;
            perform(core, common, warp, fragment.base, op, fragment.lanes, at).map_err(|stop| (at, stop))?;
            warp.others.push(fragment);
        }
        Action::Barrier(barrier) => {
            let text = format!("lanes {missing:#x} of the warp do not come to the barrier");
            core.find(common, warp, at, FindingKind::BarrierDivergence, text);
            if let Next::Go = arrive(core, common, warp, &mut fragment, barrier) {
                fragment.state = State::Ready;
                warp.others.push(fragment);
            }
        }
        _ => {}
    }
    Ok(true)
}

/// Comes to a barrier of the block.
pub(super) fn barrier<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    current: &mut Fragment,
    barrier: &Barrier,
    at: u32,
) -> Next {
    if barrier.aligned {
        let pc = std::mem::replace(&mut current.pc, at);
        warp.gather(current);
        current.pc = pc;
        if current.lanes != warp.live {
            return put_aside(warp, current, at, State::Together);
        }
    }
    arrive(core, common, warp, current, barrier)
}

fn arrive<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    current: &mut Fragment,
    barrier: &Barrier,
) -> Next {
    core.watch.sync(common.block, warp.number, current.lanes, Scope::Block, (true, false));
    let first = current.lanes.trailing_zeros() as usize;
    // Hardware reads the lowest bits of the number.
    let number = warp.rows.get(current.base, barrier.id, first) % Barriers::COUNT;
    let id = usize::try_from(number).unwrap_or(0);
    let expected = barrier.threads.map(|threads| warp.rows.get_word(current.base, threads, first));
    // A number of threads is one of whole warps.
    let whole = current.lanes == warp.live && expected.is_some();
    let threads = if whole { 32 } else { current.lanes.count_ones() };
    let votes = match barrier.kind {
        BarrierKind::Wait | BarrierKind::Arrive => Votes::default(),
        BarrierKind::Count { predicate, negate, .. }
        | BarrierKind::All { predicate, negate, .. }
        | BarrierKind::Any { predicate, negate, .. } => {
            let holds = warp.rows.predicate(current.base, predicate) ^ if negate { u32::MAX } else { 0 };
            let yes = (holds & current.lanes).count_ones();
            Votes { yes, no: current.lanes.count_ones() - yes }
        }
    };
    let round = common.barriers.arrive(id, (threads, votes), expected, common.live, core.watch.now());
    if barrier.kind == BarrierKind::Arrive {
        return Next::Go;
    }
    let pc = current.pc;
    put_aside(warp, current, pc, State::Barrier { id, round })
}

/// A fragment goes on behind a barrier: what the barrier brought is put into its row.
pub(super) fn after_barrier<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &Common,
    warp: &mut Warp,
    current: &Fragment,
) {
    let State::Barrier { id, .. } = current.state else { return };
    // What came before the end of the round is ordered, not what others did since.
    core.watch.acquire_at(common.block, warp.number, current.lanes, common.barriers.ended_at(id));
    let Action::Barrier(barrier) = &core.launch.program.actions[current.pc as usize - 1] else { return };
    let votes = common.barriers.result(id);
    let (to, value) = match barrier.kind {
        BarrierKind::Wait | BarrierKind::Arrive => return,
        BarrierKind::Count { to, .. } => (to, votes.yes),
        BarrierKind::All { to, .. } => (to, u32::from(votes.no == 0)),
        BarrierKind::Any { to, .. } => (to, u32::from(votes.yes > 0)),
    };
    warp.rows.put(current.base, to, current.lanes, &[u64::from(value); 32]);
}
