//! What all blocks of a launch share, and what the warps of a block share.

use super::barrier::Barriers;
use super::fragment::Warp;
use super::memory::{Failure, Memory, Notice, Site};
use super::op::Program;
use super::reach::{Reach, Stop, Windows};
use super::watch::{Checks, Watch};
use crate::program::Function;
use crate::program::types::{LaneMask, Register, Special, WINDOW_BYTES};

/// What is launched.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'k> {
    /// The module.
    pub program: &'k Program,
    /// The kernel, by its place among the module's functions.
    pub entry: usize,
    /// Blocks of the grid.
    pub blocks: [u32; 3],
    /// Threads of a block.
    pub threads: [u32; 3],
    /// Bytes of shared memory that the launch asks for.
    pub dynamic_shared: u32,
    /// The bytes of the parameters.
    pub parameters: &'k [u8],
    /// Address of the module's variables.
    pub variables: u64,
    /// Whether all blocks must run at once.
    pub cooperative: bool,
    /// The most steps of one warp.
    pub warp_steps: u64,
    /// The most steps of all threads together.
    pub all_steps: u64,
    /// Nanoseconds at the start.
    pub start_ns: u64,
    /// Number of the launch.
    pub grid_id: u64,
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
    /// Draws the order of blocks and warps, and where warps part.
    pub seed: u64,
    /// Whether warps part without a reason now and then, as they may on hardware.
    pub parts_warps: bool,
    /// What is looked for beside what the kernel computes.
    pub checks: Checks,
    /// Whether instructions of 256 bits may be used where the processor has them.
    pub wide: bool,
}

impl<'k> Launch<'k> {
    /// A launch with these sizes and parameters; everything else as it is where nobody says otherwise.
    pub fn new(program: &'k Program, entry: usize, blocks: [u32; 3], threads: [u32; 3], parameters: &'k [u8]) -> Self {
        Self {
            program,
            entry,
            blocks,
            threads,
            dynamic_shared: 0,
            parameters,
            variables: 0,
            cooperative: false,
            warp_steps: 1 << 24,
            all_steps: 1 << 38,
            start_ns: 0,
            grid_id: 1,
            multiprocessors: 132,
            seed: 0,
            parts_warps: true,
            checks: Checks::default(),
            wide: true,
        }
    }
}

/// What was noticed in a kernel that hardware lets pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// Where it was noticed.
    pub at: Site,
    /// What it is, in words.
    pub text: String,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Lanes of a warp come to a barrier apart.
    BarrierDivergence,
    /// A member mask names a lane that has ended or is elsewhere.
    AbsentLane,
    /// Accesses of two threads to shared memory that nothing orders.
    SharedRace,
    /// The same to global memory.
    GlobalRace,
    /// A read of memory that nobody wrote.
    UninitializedRead,
    /// An access beside what was allocated, to memory that is there.
    OutOfBounds,
    /// An access to memory that was given back and is still there.
    UseAfterFree,
    /// An access to memory that is to be allocated by work which has not run yet.
    UseBeforeAllocation,
}

/// The most findings of a launch that are told; the others would say the same.
const FINDINGS_MAX: usize = 16;

/// What all blocks of a launch share.
pub(crate) struct Core<'k, 'm, M> {
    pub(crate) launch: Launch<'k>,
    pub(crate) memory: &'k mut M,
    pub(crate) windows: Windows<'m>,
    pub(crate) parameters: Vec<u8>,
    /// Steps that all threads together did.
    pub(crate) steps_done: u64,
    pub(crate) random: u64,
    /// The most cycles that any warp took.
    pub(crate) cycles: u64,
    pub(crate) findings: Vec<Finding>,
    /// What the memory noticed in the instruction under way, with its lane and address.
    pub(crate) notices: Vec<(usize, u64, Notice)>,
    pub(crate) watch: Watch,
    /// Whether memory that others see was written.
    pub(crate) wrote: bool,
}

/// What the warps of a block share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// Number of the block in the grid.
    pub(crate) block: u64,
    pub(crate) shared: Vec<u8>,
    pub(crate) barriers: Barriers,
    /// Threads that have not ended.
    pub(crate) live: u32,
}

impl<'k, 'm, M: Memory<'m>> Core<'k, 'm, M> {
    pub(crate) fn entry(&self) -> &'k Function {
        &self.launch.program.module.functions[self.launch.entry]
    }

    /// A number below `end`.
    pub(crate) fn draw(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.random >> 33) % end.max(1)
    }

    /// Everything an access of a warp can touch.
    pub(crate) fn reach<'a>(
        &'a mut self,
        common: &'a mut Common,
        local: &'a mut super::reach::Local,
    ) -> Reach<'a, 'm, M> {
        Reach {
            memory: self.memory,
            windows: &mut self.windows,
            shared: &mut common.shared,
            local,
            parameters: &mut self.parameters,
            notices: &mut self.notices,
        }
    }

    /// Notes that a warp writes to memory that others see.
    #[inline]
    pub(crate) fn note_write(&mut self, warp: &mut Warp) {
        warp.polls.write();
        self.wrote = true;
    }

    /// What stopped a lane, with its place.
    pub(crate) fn failure(&self, common: &Common, warp: &Warp, pc: u32, stop: Stop) -> Failure {
        Failure { fault: stop.fault, at: self.site(common, warp, pc, (stop.lane, stop.address)) }
    }

    /// The place of a lane that accesses an address.
    pub(crate) fn site(&self, common: &Common, warp: &Warp, pc: u32, (lane, address): (usize, u64)) -> Site {
        Site {
            source: self.launch.program.sources[pc as usize],
            block: common.block,
            thread: warp.number * 32 + u32::try_from(lane).unwrap_or(0),
            address,
        }
    }

    /// Notes what hardware lets pass.
    pub(crate) fn find(&mut self, common: &Common, warp: &Warp, pc: u32, kind: FindingKind, text: String) {
        self.find_of_lane(common, warp, pc, (0, 0), kind, text);
    }

    /// The same of one lane, at an address.
    pub(crate) fn find_of_lane(
        &mut self,
        common: &Common,
        warp: &Warp,
        pc: u32,
        lane: (usize, u64),
        kind: FindingKind,
        text: String,
    ) {
        let at = self.site(common, warp, pc, lane);
        let known = self.findings.iter().any(|finding| finding.kind == kind && finding.at.source == at.source);
        if !known && self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { kind, at, text });
        }
    }

    /// Notes what the memory noticed in the instruction at a program counter.
    #[inline]
    pub(crate) fn find_noticed(&mut self, common: &Common, warp: &Warp, pc: u32) {
        if !self.notices.is_empty() {
            for (lane, address, Notice { kind, text }) in std::mem::take(&mut self.notices) {
                self.find_of_lane(common, warp, pc, (lane, address), kind, text);
            }
        }
    }

    /// Fills the constants and special rows of a frame, in some lanes.
    pub(crate) fn fill_frame(
        &self,
        function: &Function,
        common: &Common,
        warp: &mut Warp,
        base: super::rows::Base,
        lanes: u32,
    ) {
        warp.rows.reserve(base, &function.frame);
        warp.rows.put_predicate(base, Register::NONE, lanes, 0);
        warp.rows.put_predicate(base, Register::TRUE, lanes, u32::MAX);
        for &(register, value) in &function.frame.constants {
            warp.rows.put(base, register, lanes, &[value; 32]);
        }
        for &(register, special) in &function.frame.specials {
            let row = std::array::from_fn(|lane| self.special(special, common, warp.number, base, lane));
            warp.rows.put(base, register, lanes, &row);
        }
    }

    /// Fills the special rows that a new block changes.
    pub(crate) fn refill_frame(&self, function: &Function, common: &Common, warp: &mut Warp) {
        for &(register, special) in &function.frame.specials {
            if matches!(special, Special::Block(_) | Special::Multiprocessor) {
                let value = self.special(special, common, warp.number, Default::default(), 0);
                warp.rows.fill(Default::default(), register, value);
            }
        }
    }

    fn special(&self, special: Special, common: &Common, warp: u32, base: super::rows::Base, lane: usize) -> u64 {
        let lane_number = lane as u64;
        let thread = u64::from(warp) * 32 + lane_number;
        let named = self.entry().shared_bytes.next_multiple_of(16);
        let threads: u64 = self.launch.threads.iter().map(|&count| u64::from(count)).product();
        match special {
            Special::Thread(axis) => coordinate(thread, self.launch.threads, axis),
            Special::BlockSize(axis) => u64::from(self.launch.threads[usize::from(axis)]),
            Special::Block(axis) => coordinate(common.block, self.launch.blocks, axis),
            Special::GridSize(axis) => u64::from(self.launch.blocks[usize::from(axis)]),
            Special::Lane => lane_number,
            Special::Warp => u64::from(warp),
            Special::WarpCount => threads.div_ceil(32),
            Special::WarpSize => 32,
            Special::LaneMask(which) => u64::from(lane_mask(which, lane)),
            Special::Multiprocessor => common.block % u64::from(self.launch.multiprocessors.max(1)),
            Special::MultiprocessorCount => u64::from(self.launch.multiprocessors),
            Special::GridId => self.launch.grid_id,
            Special::SharedBytes => named + u64::from(self.launch.dynamic_shared),
            Special::DynamicSharedBytes => u64::from(self.launch.dynamic_shared),
            Special::DynamicShared => named,
            Special::Variable(offset) => self.launch.variables.wrapping_add(offset),
            Special::Local(offset) => (u64::from(base.local) + u64::from(offset)) & (WINDOW_BYTES - 1),
            Special::Zero => 0,
        }
    }
}

/// A place of a row as that of a box, `x` fastest.
fn coordinate(place: u64, sizes: [u32; 3], axis: u8) -> u64 {
    let axis = usize::from(axis);
    let below: u64 = sizes[..axis].iter().map(|&size| u64::from(size)).product();
    place / below.max(1) % u64::from(sizes[axis].max(1))
}

fn lane_mask(which: LaneMask, lane: usize) -> u32 {
    let equal = 1_u32 << lane;
    match which {
        LaneMask::Equal => equal,
        LaneMask::Less => equal - 1,
        LaneMask::LessOrEqual => (equal - 1) | equal,
        LaneMask::Greater => !((equal - 1) | equal),
        LaneMask::GreaterOrEqual => !(equal - 1),
    }
}
