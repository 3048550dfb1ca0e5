//! A block: its warps take turns until all have ended.

use super::control::CLOCK_LEAP;
use super::core::{Common, Core};
use super::fragment::{Fragment, State, Warp};
use super::memory::{Failure, Fault, Memory, Site};
use super::poll::Polls;
use super::reach::Stop;
use super::rows::Base;
use super::step::Turn;
use super::{together, wide};

/// Steps of a warp's turn: enough for its rows to stay in the processor's cache, few enough that waiting costs little.
const TURN_STEPS: u64 = 2048;

/// Rounds in which every warp has a turn, before another block may run.
const ROUNDS: u32 = 16;

/// What a block's shared memory contains before it is written: noticed when it is used, unlike zero.
const POISON: u8 = 0xA5;

/// How a block's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// All warps have ended.
    Ended,
    /// It could go on.
    Paused,
    /// Each warp reads memory until that changes, or waits for one that does: one reading, and its place.
    Polls(Site, u64),
}

/// A block with its warps. When it has ended it is used for another block of the same launch.
#[derive(Debug, Default)]
pub(super) struct Block {
    common: Common,
    warps: Vec<Warp>,
    /// In which order the warps take turns.
    order: Vec<usize>,
}

impl Block {
    /// Begins a block.
    pub(super) fn start<'m, M: Memory<'m>>(&mut self, core: &mut Core<'_, 'm, M>, block: u64) -> Result<(), Failure> {
        let launch = core.launch;
        let threads: u32 = launch.threads.iter().product();
        let function = core.entry();
        self.common.block = block;
        self.common.barriers.clear();
        self.common.live = threads;
        let shared = function.shared_bytes.next_multiple_of(16) + u64::from(launch.dynamic_shared);
        self.common.shared.resize(usize::try_from(shared).unwrap_or(usize::MAX), POISON);
        self.common.shared.fill(POISON);
        core.watch.begin(block, threads, self.common.shared.len());
        let new = self.warps.is_empty();
        if new {
            let numbers = 0..threads.div_ceil(32);
            self.warps.extend(numbers.map(|number| Warp { number, ..Warp::default() }));
        }
        for warp in &mut self.warps {
            if new {
                core.fill_frame(function, &self.common, warp, Base::default(), u32::MAX);
            } else {
                core.refill_frame(function, &self.common, warp);
            }
            let present = (threads - warp.number * 32).min(32);
            let lanes = u32::MAX >> (32 - present);
            let top = function.frame.local_bytes;
            if !warp.local.reserve(top as usize) {
                let stop = Stop { fault: Fault::Stack, lane: 0, address: 0 };
                return Err(core.failure(&self.common, warp, launch.program.starts[launch.entry], stop));
            }
            let pc = launch.program.starts[launch.entry];
            warp.others.clear();
            warp.others.push(Fragment {
                pc,
                lanes,
                base: Base::default(),
                top,
                returns: Vec::new(),
                state: State::Ready,
            });
            (warp.live, warp.steps, warp.waited, warp.leap, warp.fair_until) = (lanes, 0, 0, CLOCK_LEAP, 0);
            warp.copies.clear();
            warp.polls = Polls::default();
        }
        let count = self.warps.len();
        let (first, backwards) = (core.draw(count as u64), core.draw(2) == 1);
        let first = usize::try_from(first).unwrap_or(0);
        self.order.clear();
        self.order.extend((0..count).map(|index| (first + if backwards { count - 1 - index } else { index }) % count));
        Ok(())
    }

    /// Its place in the grid.
    pub(super) fn number(&self) -> u64 {
        self.common.block
    }

    /// Lets time pass for all warps.
    pub(super) fn pass(&mut self, cycles: u64) {
        self.warps.iter_mut().for_each(|warp| warp.waited += cycles);
    }

    /// Gives every warp some turns.
    pub(super) fn turn<'m, M: Memory<'m>>(&mut self, core: &mut Core<'_, 'm, M>) -> Result<Turned, Failure> {
        for _ in 0..ROUNDS {
            let (mut waits, mut moves, mut polls) = (true, false, None);
            let mut index = 0;
            while index < self.order.len() {
                let warp = &mut self.warps[self.order[index]];
                let before = warp.steps;
                let turn = wide::turn(core, &mut self.common, warp, TURN_STEPS)?;
                waits &= warp.steps == before;
                index += 1;
                match turn {
                    Turn::Ended => {
                        index -= 1;
                        self.order.remove(index);
                        (waits, moves) = (false, true);
                    }
                    Turn::Paused => moves = true,
                    Turn::Polls => polls = polls.or(Some((warp.number, warp.polls.last))),
                    // It may have come to a barrier just now, which others wait at.
                    Turn::Waits => moves |= warp.steps != before,
                }
            }
            if self.order.is_empty() {
                return Ok(Turned::Ended);
            }
            if waits {
                self.force(core)?;
            }
            if let Some((warp, last)) = polls.filter(|_| !moves) {
                let site = core.site(&self.common, &self.warps[warp as usize], last.pc, (last.lane, last.address));
                return Ok(Turned::Polls(site, last.value));
            }
        }
        Ok(Turned::Paused)
    }

    /// All warps wait: one of them goes on without the lanes it waits for, or the block hangs.
    fn force<'m, M: Memory<'m>>(&mut self, core: &mut Core<'_, 'm, M>) -> Result<(), Failure> {
        for &index in &self.order {
            let warp = &mut self.warps[index];
            let forced = together::force(core, &mut self.common, warp);
            if forced.map_err(|(at, stop)| core.failure(&self.common, &self.warps[index], at, stop))? {
                return Ok(());
            }
        }
        let warp = &self.warps[self.order[0]];
        let pc = warp.others.first().map_or(0, |fragment| fragment.pc.saturating_sub(1));
        Err(core.failure(&self.common, warp, pc, Stop { fault: Fault::Hang, lane: 0, address: 0 }))
    }
}
