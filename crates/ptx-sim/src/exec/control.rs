//! Instructions that change where a fragment goes on, and the rare ones.
//!
//! An instruction that acts in a part of a fragment's lanes parts the fragment first, so that what follows here speaks of
//! whole fragments.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each function does a few instructions, of which its caller chose one"
)]

use super::core::{Common, Core};
use super::fragment::{Fragment, PendingCopy, Return, State, Warp};
use super::memory::{Failure, Fault, Memory};
use super::reach::Stop;
use super::rows::{Base, lanes};
use super::step::Next;
use super::watch::{self, Accesses, Does, Scope};
use super::{access, print, together};
use crate::program::action::{Action, Builtin, Call, CallTarget, Slot};
use crate::program::types::{Clock, FUNCTION_WINDOW, Register, Space};

/// The most calls that a thread may be in.
const MAX_DEPTH: usize = 512;

/// The most rows that the frames of a warp may have together, of which each has up to 256 bytes.
const MAX_ROWS: u32 = 1 << 18;

/// The most cycles that pass between two readings of a clock.
const CLOCK_LEAP_MAX: u64 = 1 << 20;

/// How many pass at the first.
pub(super) const CLOCK_LEAP: u64 = 64;

/// Cycles of a microsecond.
pub(super) const CYCLES_PER_US: u64 = 1980;

/// Does an instruction in a fragment's active lanes, of which there are some.
pub(super) fn execute<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    current: &mut Fragment,
    at: u32,
    active: u32,
) -> Result<Next, Failure> {
    let action = &core.launch.program.actions[at as usize];
    let parts = matches!(
        action,
        Action::BranchIndexed { .. }
            | Action::Call(_)
            | Action::Return
            | Action::Exit
            | Action::Barrier(_)
            | Action::Warp(_)
    );
    if parts && active != current.lanes {
        let rest = current.part(current.lanes & !active);
        warp.others.push(rest);
    }
    let stopped = |fault| Stop { fault, lane: active.trailing_zeros() as usize, address: 0 };
    let done: Result<Next, Stop> = match action {
        Action::Exit => Ok(end(common, warp, current, core.watch.now())),
        Action::Return => leave(core, common, warp, current),
        Action::Call(call) => enter(core, common, warp, current, call, at),
        Action::BranchIndexed { index, targets } => branch_indexed(warp, current, *index, targets, at),
        Action::Barrier(barrier) => Ok(together::barrier(core, common, warp, current, barrier, at)),
        Action::Warp(op) => together::execute(core, common, warp, current, op, at),
        Action::ReadClock { to, clock } => {
            let value = read_clock(core, warp, *clock);
            warp.rows.put(current.base, *to, active, &[value; 32]);
            Ok(Next::Go)
        }
        Action::ActiveMask { to } => {
            warp.rows.put(current.base, *to, active, &[u64::from(active); 32]);
            Ok(Next::Go)
        }
        Action::Fence => {
            core.watch.sync(common.block, warp.number, active, Scope::Device, (true, true));
            Ok(Next::Go)
        }
        Action::Trap => Err(stopped(Fault::Trap)),
        Action::Sleep { nanoseconds } => {
            let longest = lanes(active).map(|lane| warp.rows.get(current.base, *nanoseconds, lane)).max();
            warp.waited += longest.unwrap_or(0).min(1_000_000) * CYCLES_PER_US / 1000;
            Ok(Next::Go)
        }
        Action::CopyAsync { .. } | Action::CommitCopies | Action::WaitCopies { .. } => {
            copies(core, common, warp, current.base, action, (at, active)).map(|()| Next::Go)
        }
        Action::Allocate { .. } | Action::SaveStack { .. } | Action::RestoreStack { .. } => {
            stack(warp, current, action, active).map(|()| Next::Go)
        }
        _ => Ok(Next::Go),
    };
    core.find_noticed(common, warp, at);
    done.map_err(|stop| core.failure(common, warp, at, stop))
}

/// The lanes of a fragment end.
fn end(common: &mut Common, warp: &mut Warp, current: &mut Fragment, now: u64) -> Next {
    warp.live &= !current.lanes;
    common.live -= current.lanes.count_ones();
    common.barriers.end(common.live, now);
    current.lanes = 0;
    Next::Leave
}

/// Returns from a function, or ends where none was called.
fn leave<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    current: &mut Fragment,
) -> Result<Next, Stop> {
    let Some(back) = current.returns.pop() else { return Ok(end(common, warp, current, core.watch.now())) };
    let program = core.launch.program;
    let callee = function_at(core, current.pc - 1);
    if let Action::Call(call) = &program.actions[back.pc as usize - 1] {
        let from = &program.module.functions[callee].results;
        move_slots(warp, current.lanes, (current.base.local, from), (back.base.local, &call.results));
    }
    (current.pc, current.base, current.top) = (back.pc, back.base, back.top);
    Ok(Next::Go)
}

/// The function that an instruction is of.
fn function_at<M>(core: &Core<'_, '_, M>, pc: u32) -> usize {
    core.launch.program.starts.partition_point(|&start| start <= pc) - 1
}

fn move_slots(warp: &mut Warp, active: u32, (from, sources): (u32, &[Slot]), (to, targets): (u32, &[Slot])) {
    for (source, target) in sources.iter().zip(targets) {
        let bytes = source.size.min(target.size) as usize;
        for lane in lanes(active) {
            let start = lane * warp.local.stride;
            let source = start + (from + source.offset) as usize;
            warp.local.bytes.copy_within(source..source + bytes, start + (to + target.offset) as usize);
        }
    }
}

fn enter<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    current: &mut Fragment,
    call: &Call,
    at: u32,
) -> Result<Next, Stop> {
    let first = current.lanes.trailing_zeros() as usize;
    let stop = |fault, address| Stop { fault, lane: first, address };
    let index = match call.target {
        CallTarget::Builtin(builtin) => return builtin_call(core, common, warp, current, call, builtin),
        CallTarget::Function(index) => index as usize,
        CallTarget::Address(register) => {
            let address = warp.rows.get(current.base, register, first);
            let others = lanes(current.lanes).filter(|&lane| warp.rows.get(current.base, register, lane) != address);
            let others = others.fold(0, |all, lane| all | 1 << lane);
            if others != 0 {
                let mut rest = current.part(others);
                rest.pc = at;
                warp.others.push(rest);
            }
            usize::try_from(address.wrapping_sub(FUNCTION_WINDOW)).unwrap_or(usize::MAX)
        }
    };
    let program = core.launch.program;
    let found =
        program.module.functions.get(index).filter(|function| !function.is_entry && function.refusals.is_empty());
    let callee = found.ok_or_else(|| stop(Fault::Call, index as u64))?;
    let caller = &program.module.functions[function_at(core, at)];
    let local = current.top.next_multiple_of(16);
    let base = current.base.behind(&caller.frame, local);
    let top = local.saturating_add(callee.frame.local_bytes);
    let rows = base.words + base.longs + u32::from(callee.frame.words) + u32::from(callee.frame.longs);
    if current.returns.len() >= MAX_DEPTH || rows > MAX_ROWS || !warp.local.reserve(top as usize) {
        return Err(stop(Fault::Stack, 0));
    }
    core.fill_frame(callee, common, warp, base, current.lanes);
    move_slots(warp, current.lanes, (current.base.local, &call.arguments), (local, &callee.parameters));
    current.returns.push(Return { pc: current.pc, base: current.base, top: current.top });
    (current.pc, current.base, current.top) = (program.starts[index], base, top);
    Ok(Next::Go)
}

fn builtin_call<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    current: &Fragment,
    call: &Call,
    builtin: Builtin,
) -> Result<Next, Stop> {
    for lane in lanes(current.lanes) {
        let argument = |warp: &Warp, index: usize| {
            let Some(slot) = call.arguments.get(index) else { return 0 };
            let start = lane * warp.local.stride + (current.base.local + slot.offset) as usize;
            let mut value = [0; 8];
            let bytes = slot.size.min(8) as usize;
            value[..bytes].copy_from_slice(&warp.local.bytes[start..start + bytes]);
            u64::from_le_bytes(value)
        };
        let values: [u64; 4] = std::array::from_fn(|index| argument(warp, index));
        let stop = |fault| Stop { fault, lane, address: values[0] };
        let result = match builtin {
            Builtin::Printf => print::printf(core, common, warp, lane, values)?,
            Builtin::AssertFail => {
                let thread = u64::from(warp.number) * 32 + lane as u64;
                print::assertion(core, common, warp, (lane, thread), values)?;
                return Err(stop(Fault::Assert));
            }
            Builtin::Malloc => {
                let given = core.memory.allocate(values[0]);
                core.watch.forget(given, values[0]);
                given
            }
            Builtin::Free => core.memory.free(values[0]).map(|()| 0).map_err(stop)?,
            Builtin::SetConditional => core.memory.set_condition(values[0], values[1]).map(|()| 0).map_err(stop)?,
        };
        if let Some(slot) = call.results.first() {
            let start = lane * warp.local.stride + (current.base.local + slot.offset) as usize;
            let bytes = slot.size.min(8) as usize;
            warp.local.bytes[start..start + bytes].copy_from_slice(&result.to_le_bytes()[..bytes]);
        }
    }
    Ok(Next::Go)
}

/// Each lane goes to the target that its index says; lanes with equal targets go together.
fn branch_indexed(
    warp: &mut Warp,
    current: &mut Fragment,
    index: Register,
    targets: &[u32],
    at: u32,
) -> Result<Next, Stop> {
    let target = |warp: &Warp, base: Base, lane: usize| {
        let index = warp.rows.get(base, index, lane);
        let target = usize::try_from(index).ok().and_then(|index| targets.get(index));
        target.copied().ok_or(Stop { fault: Fault::Call, lane, address: index })
    };
    let first = target(warp, current.base, current.lanes.trailing_zeros() as usize)?;
    let mut others = 0;
    for lane in lanes(current.lanes) {
        if target(warp, current.base, lane)? != first {
            others |= 1 << lane;
        }
    }
    if others != 0 {
        let mut rest = current.part(others);
        rest.pc = at;
        warp.others.push(rest);
    }
    current.pc = first;
    Ok(Next::Go)
}

fn read_clock<M>(core: &Core<'_, '_, M>, warp: &mut Warp, clock: Clock) -> u64 {
    warp.waited += warp.leap;
    warp.leap = (warp.leap * 2).min(CLOCK_LEAP_MAX);
    let cycles = core.launch.start_ns * CYCLES_PER_US / 1000 + warp.cycles();
    match clock {
        Clock::Cycles => cycles,
        Clock::CyclesHigh => cycles >> 32,
        Clock::Nanoseconds => cycles * 1000 / CYCLES_PER_US,
        Clock::NanosecondsHigh => (cycles * 1000 / CYCLES_PER_US) >> 32,
    }
}

/// Begins, groups or ends copies from global to shared memory. A copy is done when it is waited for, so that a kernel
/// which does not wait reads what was there before.
fn copies<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    base: Base,
    action: &Action,
    (pc, active): (u32, u32),
) -> Result<(), Stop> {
    match action {
        Action::CopyAsync { to, from, bytes, read, unless } => {
            let targets = access::addresses(&warp.rows, base, *to, active);
            let sources = access::addresses(&warp.rows, base, *from, active);
            access::check_alignment(&targets, u64::from(*bytes), active)?;
            access::check_alignment(&sources, u64::from(*bytes), active)?;
            for lane in lanes(active) {
                let ignored = unless.is_some_and(|unless| warp.rows.get(base, unless, lane) != 0);
                let wanted = read.map_or(u64::from(*bytes), |read| warp.rows.get(base, read, lane));
                let read = if ignored { 0 } else { u8::try_from(wanted).unwrap_or(*bytes).min(*bytes) };
                let copy =
                    PendingCopy { lane, later: None, to: targets[lane], from: sources[lane], bytes: *bytes, read };
                warp.copies.push(copy);
            }
            Ok(())
        }
        Action::CommitCopies => {
            let is_active = |copy: &&mut PendingCopy| active & 1 << copy.lane != 0;
            for copy in warp.copies.iter_mut().filter(is_active) {
                copy.later = Some(copy.later.map_or(0, |later| later + 1));
            }
            Ok(())
        }
        Action::WaitCopies { outstanding, all } => {
            let (mut due, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut warp.copies).into_iter().partition(|copy| {
                let over = copy.later.is_some_and(|later| later >= *outstanding);
                active & 1 << copy.lane != 0 && (*all || over)
            });
            warp.copies = kept;
            due.iter_mut().try_for_each(|copy| finish_copy(core, common, warp, *copy, pc))
        }
        _ => Ok(()),
    }
}

fn finish_copy<'m, M: Memory<'m>>(
    core: &mut Core<'_, 'm, M>,
    common: &mut Common,
    warp: &mut Warp,
    copy: PendingCopy,
    pc: u32,
) -> Result<(), Stop> {
    if core.watch.is_on() {
        let (addresses, bytes) = ([copy.from; 32], u64::from(copy.read));
        let (active, does) = (1 << copy.lane, Does::Read);
        if bytes > 0 {
            let read = Accesses { space: Space::Global, addresses: &addresses, bytes, does, weak: true, active, pc };
            watch::look(core, common, warp, &read);
        }
        let (active, does) = (1 << copy.lane, Does::Write);
        let (addresses, bytes) = ([copy.to; 32], u64::from(copy.bytes));
        let written = Accesses { space: Space::Shared, addresses: &addresses, bytes, does, weak: true, active, pc };
        watch::look(core, common, warp, &written);
    }
    let mut reach = core.reach(common, &mut warp.local);
    for skip in 0..u64::from(copy.bytes) {
        let value = match skip < u64::from(copy.read) {
            true => reach.load_lane(Space::Global, copy.from + skip, 1, copy.lane)?,
            false => 0,
        };
        reach.store_lane(Space::Shared, copy.to + skip, 1, copy.lane, value)?;
    }
    Ok(())
}

/// `alloca` and its kin. All lanes of a fragment take the same place, large enough for the one that wants most.
fn stack(warp: &mut Warp, current: &mut Fragment, action: &Action, active: u32) -> Result<(), Stop> {
    let too_deep = Stop { fault: Fault::Stack, lane: active.trailing_zeros() as usize, address: 0 };
    match action {
        Action::Allocate { to, bytes, align } => {
            let most = lanes(active).map(|lane| warp.rows.get(current.base, *bytes, lane)).max().unwrap_or(0);
            let start = current.top.next_multiple_of((*align).max(1));
            let end = u32::try_from(most).ok().and_then(|most| start.checked_add(most)).ok_or(too_deep)?;
            if !warp.local.reserve(end as usize) {
                return Err(too_deep);
            }
            current.top = end;
            warp.rows.put(current.base, *to, active, &[u64::from(start); 32]);
        }
        Action::SaveStack { to } => warp.rows.put(current.base, *to, active, &[u64::from(current.top); 32]),
        Action::RestoreStack { from } => {
            let top = warp.rows.get(current.base, *from, active.trailing_zeros() as usize);
            current.top = u32::try_from(top).ok().filter(|top| *top <= current.top).unwrap_or(current.top);
        }
        _ => {}
    }
    Ok(())
}

/// Puts a fragment aside until what it waits for has come.
pub(super) fn put_aside(warp: &mut Warp, current: &mut Fragment, pc: u32, state: State) -> Next {
    let mut waiting = current.clone();
    (waiting.pc, waiting.state) = (pc, state);
    warp.others.push(waiting);
    current.lanes = 0;
    Next::Leave
}
