//! A grid: which blocks run, in which order, and what a launch comes to.
//!
//! A block runs until it has had some turns; then the next begins beside it, up to a number of blocks. Blocks begin by
//! groups of that number, the groups in order and each group's blocks in an order that the seed draws. So a block that
//! waits for one before it always gets it, as on hardware, and a block that relies on more than that is found out.

use std::collections::VecDeque;

use super::block::{Block, Turned};
use super::control::CYCLES_PER_US;
use super::core::{Core, Finding, Launch};
use super::memory::{Failure, Memory, Site};
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

/// How a turn of a grid ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All threads have ended.
    Ended,
    /// All threads that run wait for memory to change, which none of them does.
    Waits(Wait),
}

/// What a grid waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// A reading of one of its threads.
    pub at: Site,
    /// The value that it found.
    pub found: u64,
    /// Whether the grid has written anything in its turn.
    pub wrote: bool,
}

/// A launch that runs by turns: it stops where nothing but other work can let it go on.
///
/// It is given the same launch, with the same memory, in each turn.
#[derive(Debug)]
pub struct Grid {
    running: VecDeque<Block>,
    /// Blocks that have ended, to be used again.
    ended: Vec<Block>,
    /// The block that begins next.
    next: u64,
    order: Order,
    parameters: Vec<u8>,
    steps_done: u64,
    random: u64,
    cycles: u64,
    findings: Vec<Finding>,
    watch: Watch,
}

impl Grid {
    /// A launch none of whose blocks has begun.
    #[must_use]
    pub fn new(launch: Launch<'_>) -> Self {
        Self {
            running: VecDeque::new(),
            ended: Vec::new(),
            next: 0,
            order: Order::default(),
            parameters: launch.parameters.to_vec(),
            steps_done: 0,
            random: launch.seed,
            cycles: 0,
            findings: Vec::new(),
            watch: Watch::new(launch.checks),
        }
    }

    /// Runs the threads until all have ended or all wait for memory to change.
    ///
    /// # Errors
    /// The first thing that ends the launch early.
    pub fn turn<'m, M: Memory<'m>>(&mut self, launch: Launch<'_>, memory: &mut M) -> Result<Progress, Failure> {
        let mut core = Core {
            launch,
            memory,
            windows: Windows::default(),
            parameters: std::mem::take(&mut self.parameters),
            steps_done: self.steps_done,
            random: self.random,
            cycles: self.cycles,
            findings: std::mem::take(&mut self.findings),
            notices: Vec::new(),
            watch: std::mem::take(&mut self.watch),
            wrote: false,
        };
        let ran = self.blocks(&mut core);
        (self.parameters, self.findings, self.watch) = (core.parameters, core.findings, core.watch);
        (self.steps_done, self.random, self.cycles) = (core.steps_done, core.random, core.cycles);
        ran
    }

    /// Lets time pass until so many nanoseconds after the launch began.
    pub fn pass_until(&mut self, time_ns: u64) {
        let passed = (time_ns * CYCLES_PER_US / 1000).saturating_sub(self.cycles);
        self.running.iter_mut().for_each(|block| block.pass(passed));
        self.cycles += passed;
    }

    /// How long the slowest warp took so far.
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.cycles * 1000 / CYCLES_PER_US
    }

    /// What the launch came to so far.
    pub fn outcome(&mut self) -> Outcome {
        let findings = std::mem::take(&mut self.findings);
        Outcome { time_ns: self.time_ns(), steps: self.steps_done, findings }
    }

    fn blocks<'m, M: Memory<'m>>(&mut self, core: &mut Core<'_, 'm, M>) -> Result<Progress, Failure> {
        let count: u64 = core.launch.blocks.iter().map(|&count| u64::from(count)).product();
        let resident = if core.launch.cooperative { count } else { RESIDENT };
        // Blocks that waited, one after the other.
        let mut waited = 0;
        loop {
            let begins = self.next < count && (self.running.len() as u64) < resident;
            let paused = !self.running.is_empty();
            let mut block = match begins && (!paused || core.launch.cooperative || self.order.alternate()) {
                true => self.begin(core, (count, resident))?,
                false => match self.running.pop_front() {
                    Some(block) => block,
                    None => return Ok(Progress::Ended),
                },
            };
            let turned = block.turn(core)?;
            if turned == Turned::Ended {
                core.watch.end(block.number());
                self.ended.push(block);
                waited = 0;
                continue;
            }
            self.running.push_back(block);
            match turned {
                Turned::Polls(at, found) => {
                    waited += 1;
                    let begins = self.next < count && (self.running.len() as u64) < resident;
                    if waited >= self.running.len() && !begins {
                        return Ok(Progress::Waits(Wait { at, found, wrote: core.wrote }));
                    }
                }
                Turned::Ended | Turned::Paused => waited = 0,
            }
        }
    }

    /// Begins the next of `count` blocks, of which so many run beside each other.
    fn begin<'m, M: Memory<'m>>(
        &mut self,
        core: &mut Core<'_, 'm, M>,
        (count, resident): (u64, u64),
    ) -> Result<Block, Failure> {
        let mut block = self.ended.pop().unwrap_or_default();
        let place = self.order.place(core, self.next, count, resident);
        self.next += 1;
        block.start(core, place)?;
        Ok(block)
    }
}

/// Runs all threads of a launch, which nothing else runs beside.
///
/// # Errors
/// The first thing that ends the launch early.
pub fn run<'m, M: Memory<'m>>(launch: Launch<'_>, memory: &mut M) -> (Outcome, Result<(), Failure>) {
    let mut grid = Grid::new(launch);
    // One that waits for what never comes takes too many steps.
    let ran = loop {
        match grid.turn(launch, memory) {
            Ok(Progress::Waits(_)) => {}
            Ok(Progress::Ended) => break Ok(()),
            Err(failure) => break Err(failure),
        }
    };
    (grid.outcome(), ran)
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
