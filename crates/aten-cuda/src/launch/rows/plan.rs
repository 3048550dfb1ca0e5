//! Which schedule fits rows.
//!
//! **Invariants:** a plan depends on the reduction, the sizes, the strides and whether operands begin at multiples of
//! their vectors, and on nothing of the device: the same call combines in the same order everywhere.

use c10_core::DeviceBuffer;
use kernel_ir::Type;
use kernel_ir::reduce::{Last, Order, Reduction, Schedule};

use super::{Frame, Part};
use crate::iterate::Iteration;

/// Threads of a block, but for long rows that stay in registers.
const THREADS: u16 = 256;

/// Threads in all from which on there is work for every multiprocessor.
const ENOUGH_THREADS: u64 = 1 << 18;

/// Blocks that the parts of split rows are for. More than any device holds at once, so that the last ones to end are a
/// small part of the work.
const PARTS: u64 = 4096;

/// Bytes of elements that a thread keeps in registers at most.
const RESIDENT_BYTES: u64 = 128;

/// How a reduction is launched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) schedule: Schedule,
    /// Elements of a row that a block takes: all of them, or fewer where rows are split up.
    pub(super) part: u64,
    /// Parts of a row.
    pub(super) parts: u64,
}

/// The plan for operands of this reduction, outputs first.
pub(super) fn plan(reduction: &Reduction, frame: &Frame, parts: &[Part<'_>]) -> Plan {
    let view = View::new(reduction, frame, parts);
    let schedule = view.whole();
    if reduction.splits() {
        return view.split(schedule);
    }
    Plan { schedule, part: view.extent.max(1), parts: 1 }
}

/// The plan without splitting rows up.
pub(super) fn plan_whole(reduction: &Reduction, frame: &Frame, parts: &[Part<'_>]) -> Plan {
    let view = View::new(reduction, frame, parts);
    Plan { schedule: view.whole(), part: view.extent.max(1), parts: 1 }
}

/// What the choice depends on.
struct View<'a> {
    reduction: &'a Reduction,
    frame: &'a Frame,
    parts: &'a [Part<'a>],
    outputs: usize,
    rows: u64,
    extent: u64,
    repeated: u32,
}

impl<'a> View<'a> {
    fn new(reduction: &'a Reduction, frame: &'a Frame, parts: &'a [Part<'a>]) -> Self {
        let outputs = reduction.output_types().len();
        let (rows, extent) = frame.counts();
        let repeats =
            |part: &Part<'_>| extent > 1 && frame.reduced.strides[part.operand].iter().all(|&stride| stride == 0);
        let bits = parts[outputs..].iter().enumerate().take(32);
        let repeated = bits.fold(0, |bits, (at, part)| bits | u32::from(repeats(part)) << at);
        Self { reduction, frame, parts, outputs, rows, extent, repeated }
    }

    fn whole(&self) -> Schedule {
        match self.reduction.last() {
            Last::Running => self.running(),
            _ if self.lies_inner() => self.inner(),
            _ => self.outer(),
        }
    }

    /// The inputs that are read element by element.
    fn read(&self) -> impl Iterator<Item = &Part<'a>> {
        self.parts[self.outputs..]
            .iter()
            .enumerate()
            .filter(|(at, _)| self.repeated >> at & 1 == 0)
            .map(|(_, part)| part)
    }

    /// Operands whose elements are visited one by one.
    fn visited(&self) -> impl Iterator<Item = &Part<'a>> {
        let each = !matches!(self.reduction.last(), Last::Row);
        self.read().chain(self.parts[..self.outputs].iter().filter(move |_| each))
    }

    /// Whether neighbours in memory are neighbours in a row rather than in neighbouring rows.
    fn lies_inner(&self) -> bool {
        let Some(part) = self.read().next() else { return true };
        let step = |iteration: &Iteration, count: u64| match iteration.strides[part.operand].first() {
            Some(&stride) if count > 1 && stride != 0 => stride.unsigned_abs(),
            _ => u64::MAX,
        };
        step(&self.frame.reduced, self.extent) <= step(&self.frame.kept, self.rows)
    }

    fn schedule(&self, order: Order, lanes: u16) -> Schedule {
        let rank = |iteration: &Iteration| u8::try_from(iteration.sizes.len()).unwrap_or(u8::MAX);
        let limit = u64::from(i32::MAX.unsigned_abs());
        let strides = self.frame.kept.strides.iter().chain(&self.frame.reduced.strides);
        let wide = self.rows > limit - 4096
            || self.extent > limit - (1 << 20)
            || strides.flatten().any(|stride| stride.unsigned_abs() > limit);
        Schedule {
            order,
            threads: THREADS,
            lanes,
            vector: 1,
            unroll: 1,
            resident: 0,
            kept: rank(&self.frame.kept),
            reduced: rank(&self.frame.reduced),
            wide,
            repeated: self.repeated,
            target: 75,
            fused: false,
            folded: 0,
        }
    }

    /// The widest vectors along one iteration that every visited operand allows.
    fn vector(&self, along: &Iteration, across: &Iteration, whole_rows: bool) -> u8 {
        let widest = self.visited().map(|part| part.ty.bytes()).max().unwrap_or(16);
        let mut vector = 16 / widest.min(16) as u64;
        while vector > 1 && !self.visited().all(|part| fits(part, vector, along, across, whole_rows)) {
            vector /= 2;
        }
        u8::try_from(vector).unwrap_or(1)
    }

    /// Threads along rows, tile after tile, or where neighbours lie in neighbouring rows a thread for each row. Few
    /// rows are better taken by many threads each.
    fn running(&self) -> Schedule {
        if self.extent < 4 || (!self.lies_inner() && self.rows.saturating_mul(32) >= self.extent) {
            return self.schedule(Order::Outer, 1);
        }
        let vector = self.vector(&self.frame.reduced, &self.frame.kept, true).min(4);
        let vectors = self.extent.div_ceil(u64::from(vector));
        let most = if self.rows >= ENOUGH_THREADS / 32 && vectors < 1024 { 32 } else { u64::from(THREADS) };
        let lanes = u16::try_from(vectors.next_power_of_two().clamp(2, most)).unwrap_or(32);
        Schedule { vector, ..self.schedule(Order::Inner, lanes) }
    }

    /// Threads along rows.
    fn inner(&self) -> Schedule {
        let whole = self.frame.reduced.sizes.len() > 1;
        let vector = self.vector(&self.frame.reduced, &self.frame.kept, whole);
        let vectors = self.extent.div_ceil(u64::from(vector)).max(1);
        let mut lanes = vectors.next_power_of_two().min(32);
        let long = vectors >= 4 * u64::from(THREADS);
        while lanes < u64::from(THREADS)
            && vectors >= 4 * lanes
            && (long || self.rows.saturating_mul(lanes) < ENOUGH_THREADS)
        {
            lanes *= 2;
        }
        let lanes = u16::try_from(lanes).unwrap_or(32);
        let mut schedule = Schedule { vector, unroll: self.unroll(vector), ..self.schedule(Order::Inner, lanes) };
        if !self.reduction.splits() {
            self.keep(&mut schedule, vectors);
        }
        schedule
    }

    /// Keeps the elements of a row in registers over the passes where they fit.
    fn keep(&self, schedule: &mut Schedule, vectors: u64) {
        if !self.extent.is_multiple_of(u64::from(schedule.vector)) {
            return;
        }
        // What no pass reads is loaded in the end alone.
        let kept = |input: &usize| self.repeated >> input & 1 == 0 && self.reduction.is_accumulated(*input);
        let inputs = (0..self.reduction.inputs().len()).filter(kept);
        let bytes: usize = inputs.map(|input| self.reduction.inputs()[input].bytes().max(4)).sum();
        let bytes = bytes.max(1) as u64 * u64::from(schedule.vector);
        let most = (RESIDENT_BYTES / bytes).clamp(1, 8);
        let mut lanes = u64::from(schedule.lanes);
        while lanes < 1024 && vectors.div_ceil(lanes) > most {
            lanes *= 2;
        }
        let each = vectors.div_ceil(lanes);
        if each > most {
            return;
        }
        schedule.lanes = u16::try_from(lanes).unwrap_or(1024);
        schedule.threads = schedule.threads.max(schedule.lanes);
        schedule.resident = u8::try_from(each).unwrap_or(1).max(1);
    }

    /// Threads along neighbouring rows.
    fn outer(&self) -> Schedule {
        let wide_types = self.reduction.passes().iter().map(|pass| pass.identity.len()).max().unwrap_or(1) > 2;
        let mut vector = if self.repeated == 0 && !wide_types && !matches!(self.reduction.last(), Last::Running) {
            self.vector(&self.frame.kept, &self.frame.reduced, true).min(8)
        } else {
            1
        };
        // Few rows are better shared by many threads than joined into vectors.
        while vector > 1 && self.rows.saturating_mul(self.extent) / u64::from(vector) < ENOUGH_THREADS {
            vector /= 2;
        }
        let accumulators = self.reduction.passes().iter().map(|pass| pass.identity.len()).max().unwrap_or(1);
        while usize::from(THREADS) * usize::from(vector) * accumulators * 8 > 48 << 10 {
            vector /= 2;
        }
        let slots = self.rows.div_ceil(u64::from(vector)).next_power_of_two();
        let wanted = if self.extent >= 16 { 32 } else { u64::from(THREADS) };
        let lanes = (u64::from(THREADS) / slots.min(wanted)).min(self.extent.max(1).next_power_of_two());
        let lanes = u16::try_from(lanes.max(1)).unwrap_or(1);
        Schedule { vector, unroll: self.unroll(vector), ..self.schedule(Order::Outer, lanes) }
    }

    /// Loads under way at once: 64 bytes of a thread, in short programs.
    fn unroll(&self, vector: u8) -> u8 {
        let bytes: usize = self.read().map(|part| part.ty.bytes() * usize::from(vector)).sum::<usize>().max(1);
        let nodes: usize = self.reduction.passes().iter().map(|pass| pass.accumulate.nodes().len()).max().unwrap_or(1);
        match (64 / bytes, nodes * usize::from(vector)) {
            (0 | 1, _) | (_, 129..) => 1,
            (2 | 3, _) | (_, 65..) => 2,
            _ => 4,
        }
    }

    /// Splits rows up where there are too few for all multiprocessors and each is long.
    fn split(&self, schedule: Schedule) -> Plan {
        let whole = Plan { schedule, part: self.extent.max(1), parts: 1 };
        let blocks = self.rows.div_ceil(schedule.rows_of_block()).max(1);
        // What a block takes in one turn, and in the fewest turns that are worth a block.
        let turn = match schedule.order {
            Order::Inner => u64::from(schedule.lanes) * u64::from(schedule.vector),
            Order::Outer => u64::from(schedule.lanes),
        };
        let least = turn * 4 * u64::from(schedule.unroll);
        let wanted = (PARTS / blocks).min(self.extent / least);
        if blocks >= PARTS / 4 || wanted < 2 {
            return whole;
        }
        let part = self.extent.div_ceil(wanted).next_multiple_of(turn);
        Plan { schedule, part, parts: self.extent.div_ceil(part) }
    }
}

/// Whether vectors of a part lie along the first dimension of one iteration, wherever the other one begins.
fn fits(part: &Part<'_>, vector: u64, along: &Iteration, across: &Iteration, whole_rows: bool) -> bool {
    let (strides, ty): (_, Type) = (&along.strides[part.operand], part.ty);
    let bytes = ty.bytes() as u64 * vector;
    // Where a dimension has one element, nobody takes its step.
    let further = along.sizes.iter().zip(strides).skip(1);
    let steps = further.chain(across.sizes.iter().zip(&across.strides[part.operand]));
    let mut steps = steps.filter(|(size, _)| **size != 1);
    let base = part.tensor.storage().buffer().map_or(0, DeviceBuffer::address);
    let size = along.sizes.first().map_or(1, |size| size.unsigned_abs());
    strides.first().is_some_and(|&stride| stride.unsigned_abs() == ty.bytes() as u64)
        && (base + part.offset as u64).is_multiple_of(bytes)
        && steps.all(|(_, stride)| stride.unsigned_abs().is_multiple_of(bytes))
        && (!whole_rows || size.is_multiple_of(vector))
}
