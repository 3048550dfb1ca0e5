//! The kernel of a reduction.
//!
//! A kernel's parameters are, in this order: the address of each output, the address of each input, and the block of
//! numbers whose layout [`Meta`] has.
//!
//! **Invariants:** every thread of a block reaches every barrier and every shuffle: threads whose row does not exist
//! work on no elements of the first row and store nothing.

use super::address::Arithmetic;
use super::schedule::{Meta, Order, Schedule};
use super::{Last, Reduction};
use crate::graph::{GraphError, Program};
use crate::ptx::{Class, Reg, Writer, line};
use crate::types::Type;

/// Threads of a long text that is written out on a multiprocessor at once. Compiled by itself a kernel has as many; linked, as
/// code is that a thread has compiled, it would have more registers and fewer threads, and take 3 % longer (H100, layer_norm).
const CROWD: u32 = 1024;

/// Writes the kernel with this name.
///
/// # Errors
/// The schedule does not fit the reduction.
pub fn write(reduction: &Reduction, schedule: &Schedule, name: &str) -> Result<(String, Meta), GraphError> {
    schedule.check(reduction)?;
    let meta = Meta::of(reduction, schedule);
    let mut writer = Writer::new(schedule.target).fused(schedule.fused);
    writer.shared = schedule.shared_bytes(reduction);
    writer.crowd = (schedule.folded > 0).then_some(CROWD);
    let operands = reduction.inputs().len() + reduction.output_types().len();
    let mut parameters: Vec<String> = (0..operands).map(|at| format!(".param .b64 operand{at}")).collect();
    parameters.push(format!(".param .align 8 .b8 meta[{}]", meta.bytes()));
    Body::open(&mut writer, reduction, *schedule, meta).write();
    line!(writer, "ret");
    Ok((writer.finish(name, &parameters, u32::from(schedule.block())), meta))
}

/// An operand: its number, the address that a thread begins at, and the type of its elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) number: usize,
    pub(super) row: Reg,
    pub(super) ty: Type,
}

/// Elements that a thread has loaded: for each input the elements of the vector, or none where nobody reads them.
pub(super) type Loaded = Vec<Vec<Reg>>;

/// Which inputs are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Those that passes read.
    Accumulated,
    /// The others.
    Rest,
    /// All of them.
    All,
}

/// Where a vector begins in its row, in the width of the kernel.
pub(super) type At = Reg;

/// The body of a kernel while it is written, with the registers that all its parts read.
pub(super) struct Body<'a> {
    pub(super) writer: &'a mut Writer,
    pub(super) reduction: &'a Reduction,
    pub(super) schedule: Schedule,
    pub(super) arithmetic: Arithmetic,
    pub(super) outputs: Vec<Operand>,
    pub(super) inputs: Vec<Operand>,
    /// Inputs that have one element for the whole row: it, once loaded.
    pub(super) repeated: Vec<Option<Reg>>,
    pub(super) scalars: Vec<Reg>,
    /// The thread in its block, of 32 bits.
    pub(super) thread: Reg,
    /// The thread among those that share its row, of 32 bits.
    pub(super) lane: Reg,
    /// The row's place in the block, or that of the first of several, counted in vectors; of 32 bits.
    pub(super) slot: Reg,
    /// Whether the row exists.
    valid: Reg,
    /// The first place that the thread takes, and the end of the places that the block takes.
    pub(super) first: At,
    pub(super) end: At,
    /// The values of each pass that is done: for each row of a vector of rows, or once.
    values: Vec<Vec<Reg>>,
    /// What stays in registers over all passes.
    pub(super) kept: Vec<(Reg, At, Loaded)>,
    /// Where the thread's first vector of each input is in shared memory, if it stays there.
    pub(super) staged: Vec<Option<Reg>>,
}

impl<'a> Body<'a> {
    fn open(writer: &'a mut Writer, reduction: &'a Reduction, schedule: Schedule, meta: Meta) -> Self {
        let arithmetic = Arithmetic::new(&schedule, meta);
        let (block, thread) = writer.block_and_thread();
        let (lane, slot) = lane_and_slot(writer, &schedule, thread);
        let scalars =
            reduction.scalars().iter().enumerate().map(|(at, &ty)| writer.scalar(ty, meta.scalar(at))).collect();
        let rows = arithmetic.number(writer, Meta::ROWS);
        let slots = schedule.rows_of_block();
        let each = slots / u64::from(schedule.threads / schedule.lanes);
        let (block, wide_slot) = (arithmetic.widen(writer, block), arithmetic.widen(writer, slot));
        let zero = writer.make(arithmetic.class(), arithmetic.class().copying(), format_args!("0"));
        let own = arithmetic.scale(writer, wide_slot, each, zero);
        let row = arithmetic.scale(writer, block, slots, own);
        let name = arithmetic.unsigned();
        let valid = writer.make(Class::Predicate, &format!("setp.lt.{name}"), format_args!("{row}, {rows}"));
        let row = writer.make(arithmetic.class(), &format!("selp.{name}"), format_args!("{row}, 0, {valid}"));
        let places = arithmetic.kept_places(writer, row);
        let types: Vec<Type> = reduction.output_types().into_iter().chain(reduction.inputs().iter().copied()).collect();
        let mut operands = Vec::with_capacity(types.len());
        for (number, ty) in types.into_iter().enumerate() {
            let given = writer.make(Class::Bits64, "ld.param.b64", format_args!("[operand{number}]"));
            let base = writer.make(Class::Bits64, "cvta.to.global.u64", format_args!("{given}"));
            operands.push(Operand { number, row: arithmetic.row(writer, base, number, &places), ty });
        }
        let inputs = operands.split_off(reduction.output_types().len());
        let (first, end) = bounds(writer, arithmetic, &schedule, lane, valid);
        let (outputs, repeated, values) = (operands, vec![None; inputs.len()], Vec::new());
        let (kept, staged) = (Vec::new(), Vec::new());
        Self {
            writer,
            reduction,
            schedule,
            arithmetic,
            outputs,
            inputs,
            repeated,
            scalars,
            thread,
            lane,
            slot,
            valid,
            first,
            end,
            values,
            kept,
            staged,
        }
    }

    fn write(&mut self) {
        for at in 0..self.inputs.len() {
            if self.schedule.repeated >> at & 1 == 1 {
                let Operand { row, ty, .. } = self.inputs[at];
                self.repeated[at] = Some(self.writer.load(ty, row));
            }
        }
        match self.schedule.resident {
            _ if self.schedule.folded > 0 => return self.write_out(),
            0 => {}
            _ if self.schedule.stages(self.reduction) => self.stage_all(),
            _ => self.load_all(),
        }
        for pass in 0..self.reduction.passes().len() {
            if *self.reduction.last() == Last::Running && self.schedule.lanes > 1 {
                return self.scan();
            }
            let sets = self.pass(pass);
            if *self.reduction.last() == Last::Running {
                return;
            }
            self.finish(pass, sets);
        }
        match self.reduction.last() {
            Last::Each(program) => self.store_each(program),
            Last::Row | Last::Running => self.store_row(),
        }
    }

    /// The row values of a pass, from the sets of each thread.
    pub(super) fn finish(&mut self, pass: usize, sets: Vec<Vec<Reg>>) {
        let sets = self.combine(pass, sets);
        let finish = &self.reduction.passes()[pass].finish;
        let found: Vec<Vec<Reg>> =
            sets.iter().map(|set| self.writer.program(finish, set, &self.scalars, None)).collect();
        self.values.push(found.concat());
    }

    /// Sets of accumulators of a thread: one for each element of a vector.
    fn sets(&self) -> usize {
        usize::from(self.schedule.vector)
    }

    /// Takes the thread's elements into its accumulators.
    fn pass(&mut self, pass: usize) -> Vec<Vec<Reg>> {
        let identity = &self.reduction.passes()[pass].identity;
        let sets: Vec<Vec<Reg>> = (0..self.sets())
            .map(|_| identity.iter().map(|&(ty, bits)| self.writer.constant(ty, bits)).collect())
            .collect();
        let own = sets.clone();
        self.sweep(Load::Accumulated, &mut |body, at, loaded| {
            let count = loaded.iter().map(Vec::len).max().unwrap_or(1);
            for (lane, set) in own.iter().enumerate().take(count) {
                body.accumulate(pass, set, at, lane, loaded);
            }
        });
        sets
    }

    /// Takes an element of a vector into accumulators.
    fn accumulate(&mut self, pass: usize, set: &[Reg], at: At, lane: usize, loaded: &Loaded) {
        let made = self.accumulated(pass, set, at, lane, loaded);
        self.assign(set, &made);
        let (reduction, is_alone) = (self.reduction, self.schedule.lanes == 1);
        if *reduction.last() == Last::Running && is_alone {
            let results = self.writer.program(&reduction.passes()[pass].finish, set, &self.scalars, None);
            self.store_at(at, &[results]);
        }
    }

    /// New accumulators, with an element of a vector.
    pub(super) fn accumulated(&mut self, pass: usize, set: &[Reg], at: At, lane: usize, loaded: &Loaded) -> Vec<Reg> {
        let described = &self.reduction.passes()[pass];
        let mut taken: Vec<Reg> = set.to_vec();
        // What was not loaded the program does not read either.
        taken.extend(loaded.iter().map(|input| input.get(lane).copied().unwrap_or(self.lane)));
        taken.extend(self.values_of(lane));
        if described.accumulate.inputs().len() > taken.len() {
            let place = match self.schedule.order {
                Order::Inner => self.arithmetic.add(self.writer, at, lane as u64),
                Order::Outer => at,
            };
            taken.push(self.arithmetic.to_64(self.writer, place));
        }
        self.writer.program(&described.accumulate, &taken, &self.scalars, None)
    }

    /// Stores elements of each output that begin at a place: for each element of a vector the outputs.
    fn store_at(&mut self, at: At, computed: &[Vec<Reg>]) {
        let places = self.arithmetic.reduced_places(self.writer, at);
        for (number, output) in self.outputs.clone().into_iter().enumerate() {
            let address = self.arithmetic.element(self.writer, output.row, output.number, &places);
            let values: Vec<Reg> = computed.iter().map(|lane| lane[number]).collect();
            self.writer.store_vector(output.ty, address, &values);
        }
    }

    /// A scan by several threads: tile after tile of the row, each with what came before it.
    fn scan(&mut self) {
        let identity = &self.reduction.passes()[0].identity;
        let fresh = |body: &mut Self| -> Vec<Reg> {
            identity.iter().map(|&(ty, bits)| body.writer.constant(ty, bits)).collect()
        };
        let carry = fresh(self);
        let class = self.arithmetic.class();
        let name = self.arithmetic.unsigned();
        // All threads of a block take the same number of turns, so that none misses a barrier.
        let tile = self.writer.make(class, class.copying(), format_args!("0"));
        let at = self.writer.make(class, class.copying(), format_args!("{}", self.first));
        let extent = self.arithmetic.number(self.writer, Meta::EXTENT);
        let (again, out) = (self.writer.label(), self.writer.label());
        self.writer.place(&again);
        let past = self.writer.make(Class::Predicate, &format!("setp.ge.{name}"), format_args!("{tile}, {extent}"));
        line!(self.writer, "@{past} bra {out}");
        let sets: Vec<Vec<Reg>> = (0..self.schedule.vector).map(|_| fresh(self)).collect();
        let exists = self.writer.make(Class::Predicate, &format!("setp.lt.{name}"), format_args!("{at}, {}", self.end));
        let (skip, done) = (self.writer.label(), self.writer.label());
        line!(self.writer, "@!{exists} bra {skip}");
        let loaded = self.load(Load::Accumulated, at, usize::from(self.schedule.vector));
        for lane in 0..sets.len() {
            if lane > 0 {
                let before = sets[lane - 1].clone();
                self.assign(&sets[lane], &before);
            }
            self.accumulate(0, &sets[lane], at, lane, &loaded);
        }
        self.writer.place(&skip);
        // Where there is no element, the last set is the identity: it stands at the row's end and changes nothing.
        let none = fresh(self);
        let (before, all) = self.scan_lanes(&sets[sets.len() - 1], &none);
        let start = self.joined(0, &carry, &before);
        line!(self.writer, "@!{exists} bra {done}");
        let finish = &self.reduction.passes()[0].finish;
        let results: Vec<Vec<Reg>> = sets
            .iter()
            .map(|set| {
                let whole = self.joined(0, &start, set);
                self.writer.program(finish, &whole, &self.scalars, None)
            })
            .collect();
        self.store_at(at, &results);
        self.writer.place(&done);
        self.join(0, &carry, &all);
        let step = self.schedule.step();
        line!(self.writer, "add.{name} {at}, {at}, {step}");
        line!(self.writer, "add.{name} {tile}, {tile}, {step}");
        line!(self.writer, "bra {again}");
        self.writer.place(&out);
    }

    /// Gives accumulators new values, all at once.
    pub(super) fn assign(&mut self, set: &[Reg], made: &[Reg]) {
        let moved: Vec<Reg> = set
            .iter()
            .zip(made)
            .map(|(own, &new)| {
                // A value that is another accumulator's old one is saved before that one changes.
                let is_old = *own != new && set.contains(&new);
                if is_old { self.writer.make(new.class(), new.class().copying(), format_args!("{new}")) } else { new }
            })
            .collect();
        for (&own, &new) in set.iter().zip(&moved) {
            if own != new {
                line!(self.writer, "{} {own}, {new}", own.class().copying());
            }
        }
    }

    /// Whether each element of a vector sees row values of its own.
    pub(super) fn are_values_of_lanes(&self) -> bool {
        let passes = self.reduction.passes();
        self.values.iter().zip(passes).any(|(values, pass)| values.len() > pass.finish.outputs().len())
    }

    /// The row values so far that an element of a vector sees.
    pub(super) fn values_of(&self, lane: usize) -> Vec<Reg> {
        self.values
            .iter()
            .zip(self.reduction.passes())
            .flat_map(|(values, pass)| {
                let each = pass.finish.outputs().len();
                let set = if values.len() > each { lane } else { 0 };
                values[set * each..(set + 1) * each].to_vec()
            })
            .collect()
    }

    /// Writes what is done with each vector of the thread, in rising order: with where it begins and its elements.
    fn sweep(&mut self, load: Load, each: &mut dyn FnMut(&mut Self, At, &Loaded)) {
        if !self.staged.is_empty() {
            return self.sweep_staged(load, each);
        }
        if self.schedule.resident > 0 {
            for (exists, at, loaded) in self.kept.clone() {
                let skip = self.writer.label();
                line!(self.writer, "@!{exists} bra {skip}");
                let loaded = if load == Load::All { self.with_rest(at, &loaded) } else { loaded };
                each(self, at, &loaded);
                self.writer.place(&skip);
            }
            return;
        }
        let class = self.arithmetic.class();
        let at = self.writer.make(class, class.copying(), format_args!("{}", self.first));
        let vector = usize::from(self.schedule.vector);
        let along = if self.schedule.order == Order::Inner { self.schedule.vector } else { 1 };
        if self.schedule.unroll > 1 {
            self.sweep_loop((at, load), usize::from(self.schedule.unroll), u64::from(along), vector, each);
        }
        self.sweep_loop((at, load), 1, u64::from(along), vector, each);
        if along > 1 {
            self.sweep_rest((at, load), each);
        }
    }

    /// A loop over `unroll` vectors at a time, as long as all of them exist.
    fn sweep_loop(
        &mut self,
        (at, load): (At, Load),
        unroll: usize,
        along: u64,
        vector: usize,
        each: &mut dyn FnMut(&mut Self, At, &Loaded),
    ) {
        let (again, out) = (self.writer.label(), self.writer.label());
        let step = self.schedule.step();
        let name = self.arithmetic.unsigned();
        self.writer.place(&again);
        let reach = self.arithmetic.add(self.writer, at, step * (unroll as u64 - 1) + along);
        let past =
            self.writer.make(Class::Predicate, &format!("setp.gt.{name}"), format_args!("{reach}, {}", self.end));
        line!(self.writer, "@{past} bra {out}");
        // All loads stand before the first use, so that they are under way together.
        let mut loaded = Vec::with_capacity(unroll);
        for turn in 0..unroll {
            let own = self.arithmetic.add(self.writer, at, step * turn as u64);
            loaded.push((own, self.load(load, own, vector)));
        }
        for (own, loaded) in &loaded {
            each(self, *own, loaded);
        }
        line!(self.writer, "add.{name} {at}, {at}, {}", step * unroll as u64);
        line!(self.writer, "bra {again}");
        self.writer.place(&out);
    }

    /// The elements after the last whole vector, one by one. They fall to one thread.
    fn sweep_rest(&mut self, (at, load): (At, Load), each: &mut dyn FnMut(&mut Self, At, &Loaded)) {
        let (again, out) = (self.writer.label(), self.writer.label());
        let name = self.arithmetic.unsigned();
        self.writer.place(&again);
        let past = self.writer.make(Class::Predicate, &format!("setp.ge.{name}"), format_args!("{at}, {}", self.end));
        line!(self.writer, "@{past} bra {out}");
        let loaded = self.load(load, at, 1);
        each(self, at, &loaded);
        line!(self.writer, "add.{name} {at}, {at}, 1");
        line!(self.writer, "bra {again}");
        self.writer.place(&out);
    }

    /// What is in registers, and the inputs that no pass reads.
    pub(super) fn with_rest(&mut self, at: At, loaded: &Loaded) -> Loaded {
        let rest = self.load(Load::Rest, at, usize::from(self.schedule.vector));
        loaded.iter().zip(rest).map(|(known, rest)| if known.is_empty() { rest } else { known.clone() }).collect()
    }

    /// Loads the vectors of inputs that begin at a place.
    fn load(&mut self, load: Load, at: At, vector: usize) -> Loaded {
        let places = self.arithmetic.reduced_places(self.writer, at);
        let mut loaded = Vec::with_capacity(self.inputs.len());
        for (input, Operand { number, row, ty }) in self.inputs.clone().into_iter().enumerate() {
            let wanted = match load {
                Load::All => true,
                Load::Accumulated => self.reduction.is_accumulated(input),
                Load::Rest => !self.reduction.is_accumulated(input),
            };
            loaded.push(match self.repeated[input] {
                _ if !wanted => Vec::new(),
                Some(element) => vec![element; vector],
                None => {
                    let address = self.arithmetic.element(self.writer, row, number, &places);
                    self.writer.load_vector(ty, address, vector)
                }
            });
        }
        loaded
    }

    /// Loads everything that the thread has of the row.
    fn load_all(&mut self) {
        let vector = usize::from(self.schedule.vector);
        for turn in 0..self.schedule.resident {
            let (at, exists, skip) = self.open_turn(turn);
            let loaded = self.load(Load::Accumulated, at, vector);
            self.writer.place(&skip);
            self.kept.push((exists, at, loaded));
        }
    }

    /// Where the thread's vector of this number begins, whether it exists, and a label to be placed behind what is done
    /// if it does.
    pub(super) fn open_turn(&mut self, turn: u8) -> (At, Reg, String) {
        let at = self.arithmetic.add(self.writer, self.first, self.schedule.step() * u64::from(turn));
        let test = format!("setp.lt.{}", self.arithmetic.unsigned());
        let exists = self.writer.make(Class::Predicate, &test, format_args!("{at}, {}", self.end));
        let skip = self.writer.label();
        line!(self.writer, "@!{exists} bra {skip}");
        (at, exists, skip)
    }

    /// Stores the values of the last pass: by the first of the threads that share the row.
    fn store_row(&mut self) {
        let values = self.values.pop().unwrap_or_default();
        let first = self.writer.make(Class::Predicate, "setp.eq.u32", format_args!("{}, 0", self.lane));
        let stores = self.writer.make(Class::Predicate, "and.pred", format_args!("{first}, {}", self.valid));
        let out = self.writer.label();
        line!(self.writer, "@!{stores} bra {out}");
        let part = self.writer.make(Class::Bits32, "mov.u32", format_args!("%ctaid.y"));
        let part = self.writer.make(Class::Bits64, "cvt.u64.u32", format_args!("{part}"));
        for (at, output) in self.outputs.clone().into_iter().enumerate() {
            let mut address = self.arithmetic.part(self.writer, output.row, output.number, part);
            let one = self.arithmetic.class();
            let one = self.writer.make(one, one.copying(), format_args!("1"));
            for (row, set) in values.chunks(self.outputs.len()).enumerate() {
                if row > 0 {
                    address = self.arithmetic.advance(self.writer, address, output.number, 0, one);
                }
                self.writer.store(output.ty, address, set[at]);
            }
        }
        self.writer.place(&out);
    }

    /// Stores an element of each output for each element of the row.
    fn store_each(&mut self, program: &Program) {
        self.sweep(Load::All, &mut |body, at, loaded| {
            let count = loaded.iter().map(Vec::len).max().unwrap_or(1);
            if body.takes_turns(program, count) {
                let computed = body.each_in_turns(program, loaded);
                return body.store_at(at, &computed);
            }
            let computed: Vec<Vec<Reg>> = (0..count).map(|lane| body.each(program, loaded, lane)).collect();
            body.store_at(at, &computed);
        });
    }
}

impl Body<'_> {
    /// What comes out for an element of a vector.
    pub(super) fn each(&mut self, program: &Program, loaded: &Loaded, lane: usize) -> Vec<Reg> {
        let mut taken: Vec<Reg> = loaded.iter().map(|input| input[lane]).collect();
        taken.extend(self.values_of(lane));
        self.writer.program(program, &taken, &self.scalars, None)
    }
}

/// The thread among those that share its row, and the row's place in the block.
fn lane_and_slot(writer: &mut Writer, schedule: &Schedule, thread: Reg) -> (Reg, Reg) {
    let (lanes, slots) = (u32::from(schedule.lanes), u32::from(schedule.threads / schedule.lanes));
    match schedule.order {
        Order::Inner => {
            let lane = writer.make(Class::Bits32, "and.b32", format_args!("{thread}, {}", lanes - 1));
            (lane, writer.make(Class::Bits32, "shr.u32", format_args!("{thread}, {}", lanes.trailing_zeros())))
        }
        Order::Outer => {
            let lane = writer.make(Class::Bits32, "div.u32", format_args!("{thread}, {slots}"));
            (lane, writer.make(Class::Bits32, "rem.u32", format_args!("{thread}, {slots}")))
        }
    }
}

/// The first place that a thread takes, and the end of those that its block takes; both the same without a row.
fn bounds(writer: &mut Writer, arithmetic: Arithmetic, schedule: &Schedule, lane: Reg, valid: Reg) -> (At, At) {
    let name = arithmetic.unsigned();
    let (extent, part) = (arithmetic.number(writer, Meta::EXTENT), arithmetic.number(writer, Meta::PART));
    let number = writer.make(Class::Bits32, "mov.u32", format_args!("%ctaid.y"));
    let number = arithmetic.widen(writer, number);
    let begin = writer.make(arithmetic.class(), &format!("mul.lo.{name}"), format_args!("{number}, {part}"));
    let end = writer.make(arithmetic.class(), &format!("add.{name}"), format_args!("{begin}, {part}"));
    let end = writer.make(arithmetic.class(), &format!("min.{name}"), format_args!("{end}, {extent}"));
    let end = writer.make(arithmetic.class(), &format!("selp.{name}"), format_args!("{end}, 0, {valid}"));
    let lane = arithmetic.widen(writer, lane);
    let along = if schedule.order == Order::Inner { u64::from(schedule.vector) } else { 1 };
    (arithmetic.scale(writer, lane, along, begin), end)
}
