//! A grid: which blocks run, in which order, and what a launch comes to.
//!
//! A block runs until it has had some turns; then the next begins beside it, up to a number of blocks. Blocks begin by
//! groups of that number, the groups in order and each group's blocks in an order that the seed draws. So a block that
//! waits for one before it always gets it, as on hardware, and a block that relies on more than that is found out.

use std::collections::VecDeque;

use super::block::Block;
use super::control::CYCLES_PER_US;
use super::core::{Core, Finding, Launch};
use super::memory::{Failure, Memory};
use super::reach::Windows;
use super::watch::Watch;

/// Blocks that run beside each other where the launch does not ask for all.
const RESIDENT: u64 = 8;

/// What a launch that ended came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How long the slowest warp took.
    pub time_ns: u64,
    /// Steps of all threads together.
    pub steps: u64,
    /// What was noticed that hardware lets pass.
    pub findings: Vec<Finding>,
}

/// Runs all threads of a launch.
///
/// # Errors
/// The first thing that ends the launch early.
pub fn run<'m, M: Memory<'m>>(launch: Launch<'_>, memory: &mut M) -> (Outcome, Result<(), Failure>) {
    let mut core = Core {
        launch,
        memory,
        windows: Windows::default(),
        parameters: launch.parameters.to_vec(),
        steps_done: 0,
        random: launch.seed,
        cycles: 0,
        findings: Vec::new(),
        notices: Vec::new(),
        watch: Watch::new(launch.checks),
    };
    let ran = blocks(&mut core);
    let outcome =
        Outcome { time_ns: core.cycles * 1000 / CYCLES_PER_US, steps: core.steps_done, findings: core.findings };
    (outcome, ran)
}

fn blocks<'m, M: Memory<'m>>(core: &mut Core<'_, 'm, M>) -> Result<(), Failure> {
    let count: u64 = core.launch.blocks.iter().map(|&count| u64::from(count)).product();
    let resident = if core.launch.cooperative { count } else { RESIDENT };
    let mut running: VecDeque<Block> = VecDeque::new();
    let mut ended: Vec<Block> = Vec::new();
    let (mut next, mut order) = (0, Order::default());
    loop {
        let begins = next < count && (running.len() as u64) < resident;
        let paused = running.front().is_some();
        let mut block = match begins && (!paused || core.launch.cooperative || order.alternate()) {
            true => {
                let mut block = ended.pop().unwrap_or_default();
                let place = order.place(core, next, count, resident);
                next += 1;
                block.start(core, place)?;
                block
            }
            false => match running.pop_front() {
                Some(block) => block,
                None => return Ok(()),
            },
        };
        if block.turn(core)? {
            core.watch.end(block.number());
            ended.push(block);
        } else {
            running.push_back(block);
        }
    }
}

/// In which order the blocks of a group begin.
#[derive(Debug, Default)]
struct Order {
    first: u64,
    backwards: bool,
    /// Whether the last block that ran was one that went on.
    went_on: bool,
}

impl Order {
    /// Every other time a new block begins though others wait for their turn.
    fn alternate(&mut self) -> bool {
        self.went_on = !self.went_on;
        !self.went_on
    }

    /// The block that begins as the `index`-th.
    fn place<'m, M: Memory<'m>>(&mut self, core: &mut Core<'_, 'm, M>, index: u64, count: u64, group: u64) -> u64 {
        let (start, inside) = (index / group * group, index % group);
        let size = group.min(count - start);
        if inside == 0 {
            (self.first, self.backwards) = (core.draw(size), core.draw(2) == 1);
        }
        let inside = if self.backwards { size - 1 - inside } else { inside };
        start + (self.first + inside) % size
    }
}
