//! A grid of threads, run one after another.
//!
//! The threads of a block run up to its next barrier, each in turn, in an order that the seed draws; so do the blocks.
//! An atomic instruction is atomic since nothing runs beside it. A thread that waits for another one without a barrier
//! waits for ever; every thread has a number of steps after which the launch ends as one that took too long.
//!
//! A step takes a fixed number of cycles. A thread that reads a clock again and again sees more and more time pass from
//! one reading to the next, so that waiting for a time takes few steps.

use std::fmt;

use super::arith::{self, Conversion};
use super::program::{Action, Address, Kernel, Register, Source, Space, Special, Type};

/// Where generic addresses of shared memory begin; no device or host has memory there.
const SHARED_WINDOW: u64 = 1 << 56;

/// Cycles of a step.
const STEP_CYCLES: u64 = 4;

/// The most cycles that pass between two readings of a clock.
const CLOCK_LEAP_MAX: u64 = 1 << 20;

/// Cycles of a microsecond.
const CYCLES_PER_US: u64 = 1980;

/// Threads of a warp.
const WARP: u64 = 32;

/// Why a launch ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// There is no memory at an address.
    Address,
    /// An address is no multiple of what is read or written there.
    Misaligned,
    /// A thread, or all of them together, took too many steps.
    Steps,
}

/// What a kernel can reach beside its shared memory.
pub(crate) trait Memory {
    /// Reads a value of 1, 2, 4 or 8 bytes.
    fn load(&mut self, address: u64, bytes: u64) -> Result<u64, Fault>;
    /// Writes one.
    fn store(&mut self, address: u64, bytes: u64, value: u64) -> Result<(), Fault>;
    /// Sets the condition of a conditional node.
    fn set_condition(&mut self, handle: u64, value: u64) -> Result<(), Fault>;
}

/// What is launched.
#[derive(Clone, Copy)]
pub(crate) struct Grid<'k> {
    pub(crate) kernel: &'k Kernel,
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) parameters: &'k [u8],
    /// The most steps of one thread.
    pub(crate) thread_steps: u64,
    /// The most steps of all threads together.
    pub(crate) all_steps: u64,
    /// Nanoseconds at the start.
    pub(crate) start_ns: u64,
    /// Draws the order of blocks and threads.
    pub(crate) seed: u64,
}

impl fmt::Debug for Grid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <<<{:?}, {:?}>>>", self.kernel.name, self.blocks, self.threads)
    }
}

/// Runs all threads; how many nanoseconds the slowest one took.
pub(crate) fn run(grid: Grid<'_>, memory: &mut impl Memory) -> Result<u64, Fault> {
    let blocks: u64 = grid.blocks.iter().map(|&count| u64::from(count)).product();
    let shared_bytes = grid.kernel.shared_bytes.next_multiple_of(16) + u64::from(grid.dynamic_shared);
    let mut runner = Runner {
        grid,
        memory,
        shared: vec![0; usize::try_from(shared_bytes).unwrap_or(usize::MAX)],
        block_threads: grid.threads.iter().map(|&count| u64::from(count)).product::<u64>().max(1),
        steps_left: grid.all_steps,
        random: grid.seed,
        cycles: 0,
    };
    let (first, backwards) = (runner.draw(blocks), runner.draw(2) == 1);
    for index in 0..blocks {
        let place = if backwards { blocks - 1 - index } else { index };
        runner.block((first + place) % blocks)?;
    }
    Ok(runner.cycles * 1000 / CYCLES_PER_US)
}

/// A thread of the block that runs.
struct Thread {
    place: u64,
    at: usize,
    registers: Vec<u64>,
    steps: u64,
    /// Cycles that passed beside those of its steps.
    waited: u64,
    /// How many pass at the next reading of a clock.
    leap: u64,
    done: bool,
}

struct Runner<'k, 'm, M> {
    grid: Grid<'k>,
    memory: &'m mut M,
    shared: Vec<u8>,
    /// Threads of a block.
    block_threads: u64,
    steps_left: u64,
    random: u64,
    /// The most that any thread took.
    cycles: u64,
}

impl<M: Memory> Runner<'_, '_, M> {
    fn draw(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.random >> 33) % end.max(1)
    }

    fn block(&mut self, block: u64) -> Result<(), Fault> {
        self.shared.fill(0xA5);
        let count = self.block_threads;
        let (first, backwards) = (self.draw(count), self.draw(2) == 1);
        let places = (0..count).map(|index| {
            let index = if backwards { count - 1 - index } else { index };
            (first + index) % count
        });
        let waits = self.grid.kernel.code.iter().any(|instruction| instruction.action == Action::Barrier);
        let registers = self.grid.kernel.registers;
        let new =
            |place| Thread { place, at: 0, registers: vec![0; registers], steps: 0, waited: 0, leap: 64, done: false };
        if !waits {
            return places.map(new).try_for_each(|mut thread| self.thread(&mut thread, block));
        }
        let mut threads: Vec<Thread> = places.map(new).collect();
        while threads.iter().any(|thread| !thread.done) {
            for thread in threads.iter_mut().filter(|thread| !thread.done) {
                self.thread(thread, block)?;
            }
        }
        Ok(())
    }

    /// Runs a thread to its next barrier or its end.
    fn thread(&mut self, thread: &mut Thread, block: u64) -> Result<(), Fault> {
        let code = std::sync::Arc::clone(&self.grid.kernel.code);
        while let Some(instruction) = code.get(thread.at) {
            thread.at += 1;
            thread.steps += 1;
            if thread.steps > self.grid.thread_steps || self.steps_left == 0 {
                return Err(Fault::Steps);
            }
            self.steps_left -= 1;
            if let Some((predicate, wanted)) = instruction.guard
                && (thread.registers[predicate.index] != 0) != wanted
            {
                continue;
            }
            match &instruction.action {
                Action::Exit => break,
                Action::Barrier => return Ok(()),
                Action::Branch { target } => thread.at = *target,
                action @ (Action::Move { .. }
                | Action::Unary { .. }
                | Action::Binary { .. }
                | Action::MultiplyAdd { .. }
                | Action::Compare { .. }
                | Action::Select { .. }
                | Action::Convert { .. }
                | Action::ConvertAddress { .. }
                | Action::Load { .. }
                | Action::Store { .. }
                | Action::Atomic { .. }
                | Action::SetCondition { .. }
                | Action::Nothing) => self.act(action, thread, block)?,
            }
        }
        thread.done = true;
        self.cycles = self.cycles.max(thread.steps * STEP_CYCLES + thread.waited);
        Ok(())
    }

    fn act(&mut self, action: &Action, thread: &mut Thread, block: u64) -> Result<(), Fault> {
        let value = |source: Source, thread: &mut Thread| self.value(source, thread, block);
        let (to, result) = match *action {
            Action::Move { to, from } => (to, value(from, thread)),
            Action::Unary { op, ty, modes, to, a } => (to, arith::unary(op, ty, modes, value(a, thread))),
            Action::Binary { op, ty, modes, to, a, b } => {
                (to, arith::binary(op, ty, modes, value(a, thread), value(b, thread)))
            }
            Action::MultiplyAdd { half, ty, modes, to, a, b, c } => {
                let operands = [value(a, thread), value(b, thread), value(c, thread)];
                (to, arith::multiply_add(half, ty, modes, operands))
            }
            Action::Compare { comparison, or_unordered, ty, flush, to, a, b, with } => {
                let holds = arith::compare(comparison, or_unordered, ty, flush, value(a, thread), value(b, thread));
                let combined = with.map_or(u64::from(holds), |(op, other, inverted)| {
                    let other = (value(other, thread) != 0) != inverted;
                    arith::binary(op, BIT, Default::default(), u64::from(holds), u64::from(other))
                });
                (to, combined)
            }
            Action::Select { to, a, b, condition } => {
                let chosen = if value(condition, thread) != 0 { a } else { b };
                (to, value(chosen, thread))
            }
            Action::Convert { to_type, from_type, rounding, to_integer, modes, to, from } => {
                let conversion = Conversion { to: to_type, from: from_type, rounding, to_integer, modes };
                (to, arith::widen(arith::convert(conversion, value(from, thread)), to_type, to.bits))
            }
            Action::ConvertAddress { to_generic, shared, to, from } => {
                let address = value(from, thread);
                let moved = match (shared, to_generic) {
                    (true, true) => address.wrapping_add(SHARED_WINDOW),
                    (true, false) => address.wrapping_sub(SHARED_WINDOW),
                    (false, _) => address,
                };
                (to, moved)
            }
            Action::Load { space, ty, ref to, from } => return self.load(space, ty, to, from, thread, block),
            Action::Store { space, ty, to, ref from } => return self.store(space, ty, to, from, thread, block),
            Action::Atomic { space, op, ty, to, at, b, c } => {
                let at = value(at.base, thread).wrapping_add(at.offset);
                let (b, c) = (value(b, thread) & ty.mask(), value(c, thread) & ty.mask());
                let old = self.read(space, at, ty.bytes(), ty.bytes())?;
                self.write(space, at, ty.bytes(), ty.bytes(), arith::atomic(op, ty, old, b, c))?;
                match to {
                    Some(to) => (to, old),
                    None => return Ok(()),
                }
            }
            Action::SetCondition { handle, value: to } => {
                let (handle, to) = (value(handle, thread), value(to, thread));
                return self.memory.set_condition(handle, to);
            }
            Action::Nothing | Action::Exit | Action::Barrier | Action::Branch { .. } => return Ok(()),
        };
        set(thread, to, result);
        Ok(())
    }

    fn value(&self, source: Source, thread: &mut Thread, block: u64) -> u64 {
        match source {
            Source::Register(register) => thread.registers[register.index],
            Source::Constant(value) => value,
            Source::Special(special) => self.special(special, thread, block),
        }
    }

    fn special(&self, special: Special, thread: &mut Thread, block: u64) -> u64 {
        match special {
            Special::Thread(axis) => coordinate(thread.place, self.grid.threads, axis),
            Special::Block(axis) => coordinate(block, self.grid.blocks, axis),
            Special::BlockSize(axis) => u64::from(self.grid.threads[axis]),
            Special::GridSize(axis) => u64::from(self.grid.blocks[axis]),
            Special::Lane => thread.place % WARP,
            Special::Warp => thread.place / WARP,
            Special::WarpSize => WARP,
            Special::Clock => self.clock(thread),
            Special::ClockHigh => self.clock(thread) >> 32,
            Special::Nanoseconds => self.clock(thread) * 1000 / CYCLES_PER_US,
            Special::DynamicShared => self.grid.kernel.shared_bytes.next_multiple_of(16),
        }
    }

    fn clock(&self, thread: &mut Thread) -> u64 {
        thread.waited += thread.leap;
        thread.leap = (thread.leap * 2).min(CLOCK_LEAP_MAX);
        self.grid.start_ns * CYCLES_PER_US / 1000 + thread.steps * STEP_CYCLES + thread.waited
    }

    fn load(
        &mut self,
        space: Space,
        ty: Type,
        to: &[Register],
        from: Address,
        thread: &mut Thread,
        block: u64,
    ) -> Result<(), Fault> {
        let mut at = self.value(from.base, thread, block).wrapping_add(from.offset);
        let alignment = ty.bytes() * to.len() as u64;
        for (index, &register) in to.iter().enumerate() {
            let aligned = if index == 0 { alignment } else { ty.bytes() };
            let value = self.read(space, at, ty.bytes(), aligned)?;
            set(thread, register, arith::widen(value, ty, register.bits));
            at = at.wrapping_add(ty.bytes());
        }
        Ok(())
    }

    fn store(
        &mut self,
        space: Space,
        ty: Type,
        to: Address,
        from: &[Source],
        thread: &mut Thread,
        block: u64,
    ) -> Result<(), Fault> {
        let mut at = self.value(to.base, thread, block).wrapping_add(to.offset);
        let alignment = ty.bytes() * from.len() as u64;
        for (index, &source) in from.iter().enumerate() {
            let aligned = if index == 0 { alignment } else { ty.bytes() };
            let value = self.value(source, thread, block) & ty.mask();
            self.write(space, at, ty.bytes(), aligned, value)?;
            at = at.wrapping_add(ty.bytes());
        }
        Ok(())
    }

    fn read(&mut self, space: Space, at: u64, bytes: u64, alignment: u64) -> Result<u64, Fault> {
        if !at.is_multiple_of(alignment) {
            return Err(Fault::Misaligned);
        }
        match (space, at.checked_sub(SHARED_WINDOW)) {
            (Space::Parameters, _) => little_endian(self.grid.parameters, at, bytes),
            (Space::Shared, _) => little_endian(&self.shared, at, bytes),
            (Space::Generic, Some(offset)) if offset < SHARED_WINDOW => little_endian(&self.shared, offset, bytes),
            (Space::Global | Space::Generic, _) => self.memory.load(at, bytes),
        }
    }

    fn write(&mut self, space: Space, at: u64, bytes: u64, alignment: u64, value: u64) -> Result<(), Fault> {
        if !at.is_multiple_of(alignment) {
            return Err(Fault::Misaligned);
        }
        let offset = match (space, at.checked_sub(SHARED_WINDOW)) {
            (Space::Shared, _) => at,
            (Space::Generic, Some(offset)) if offset < SHARED_WINDOW => offset,
            (Space::Global | Space::Generic | Space::Parameters, _) => return self.memory.store(at, bytes, value),
        };
        let range = range(self.shared.len(), offset, bytes)?;
        self.shared[range].iter_mut().zip(value.to_le_bytes()).for_each(|(to, byte)| *to = byte);
        Ok(())
    }
}

/// The type of a predicate.
const BIT: Type = Type { kind: super::program::Kind::Predicate, bits: 1 };

fn set(thread: &mut Thread, to: Register, value: u64) {
    thread.registers[to.index] = value & super::program::mask(to.bits);
}

/// A place of a row as that of a box, `x` fastest.
fn coordinate(place: u64, sizes: [u32; 3], axis: usize) -> u64 {
    let below: u64 = sizes[..axis].iter().map(|&size| u64::from(size)).product();
    place / below % u64::from(sizes[axis])
}

fn range(length: usize, at: u64, bytes: u64) -> Result<std::ops::Range<usize>, Fault> {
    let start = usize::try_from(at).map_err(|_| Fault::Address)?;
    let end = start.checked_add(usize::try_from(bytes).unwrap_or(8)).ok_or(Fault::Address)?;
    if end <= length { Ok(start..end) } else { Err(Fault::Address) }
}

fn little_endian(from: &[u8], at: u64, bytes: u64) -> Result<u64, Fault> {
    let range = range(from.len(), at, bytes)?;
    let mut wide = [0; 8];
    wide[..range.len()].copy_from_slice(&from[range]);
    Ok(u64::from_le_bytes(wide))
}
