//! Rows of fused programs that fill their lanes, written out: no loop, no test whether an element is there, and all that
//! passes read of the row in registers. What one pass has made of an element, later ones find there.
//!
//! **Invariant:** no register of a value is written twice, but copies in which accumulators are combined.

use super::write::{At, Body, Load, Loaded};
use crate::graph::{Node, Program};
use crate::ptx::{Class, Recall, Reg};
use crate::reduce::Last;

/// A vector of a thread.
#[derive(Clone, Copy, Debug)]
struct Vector {
    /// Which of the thread's lanes it is of.
    lane: usize,
    /// Elements from the thread's first one to it.
    further: u64,
}

impl Body<'_> {
    /// The whole kernel for a row.
    pub(super) fn write_out(&mut self) {
        let Last::Each(program) = self.reduction.last() else { return };
        self.begin();
        self.writer.share(true);
        let vectors = self.vectors();
        let loaded: Vec<Loaded> = vectors.iter().map(|&vector| self.load_at(Load::Accumulated, vector)).collect();
        let recalled = self.recalled();
        for pass in 0..self.reduction.passes().len() {
            self.writer.recall(recalled);
            let sets = self.accumulate_all(pass, &vectors, &loaded);
            self.writer.recall(Recall::Nothing);
            self.finish(pass, sets);
        }
        self.writer.recall(recalled);
        self.make_all(program, &vectors, &loaded);
        self.writer.recall(Recall::Nothing);
        self.writer.share(false);
    }

    /// What later passes take from earlier ones: everything where a pass calls a function, as softmax does. A difference
    /// or a product is sooner made again than kept.
    fn recalled(&self) -> Recall {
        let calls = |(_, node, _)| matches!(node, Node::Call(..));
        match self.reduction.passes().iter().any(|pass| pass.accumulate.nodes().any(calls)) {
            true => Recall::Everything,
            false => Recall::Conversions,
        }
    }

    /// Moves the thread's place and all addresses to its first vector: threads of a group take neighbouring vectors.
    fn begin(&mut self) {
        let group = self.schedule.group();
        let warp =
            self.writer.make(Class::Bits32, "shr.u32", format_args!("{}, {}", self.thread, group.trailing_zeros()));
        let in_group = self.writer.make(Class::Bits32, "and.b32", format_args!("{}, {}", self.thread, group - 1));
        let lane = self.writer.make(Class::Bits32, "mad.lo.u32", format_args!("{warp}, 32, {in_group}"));
        let first = self.writer.make(Class::Bits32, "mul.lo.u32", format_args!("{lane}, {}", self.schedule.vector));
        self.first = self.arithmetic.widen(self.writer, first);
        for operand in self.inputs.iter_mut().chain(&mut self.outputs) {
            operand.row = self.arithmetic.element(self.writer, operand.row, operand.number, &[self.first]);
        }
    }

    /// The vectors of a thread, those of each lane in rising order.
    fn vectors(&self) -> Vec<Vector> {
        let (schedule, group) = (&self.schedule, u64::from(self.schedule.group()));
        let along = group * u64::from(schedule.vector);
        let turns = move |lane: u8| {
            (0..u64::from(schedule.resident)).map(move |turn| Vector {
                lane: usize::from(lane),
                further: u64::from(lane) * along + turn * schedule.step(),
            })
        };
        (0..schedule.folded).flat_map(turns).collect()
    }

    /// Loads a vector of the inputs that passes read, or of the others.
    fn load_at(&mut self, load: Load, Vector { further, .. }: Vector) -> Loaded {
        let vector = usize::from(self.schedule.vector);
        let mut loaded = Vec::with_capacity(self.inputs.len());
        for (input, operand) in self.inputs.clone().into_iter().enumerate() {
            let is_wanted = self.reduction.is_accumulated(input) == (load == Load::Accumulated);
            loaded.push(match self.repeated[input] {
                _ if !is_wanted => Vec::new(),
                Some(element) => vec![element; vector],
                None => {
                    let address = self.further(operand.row, further * operand.ty.bytes() as u64);
                    self.writer.load_vector(operand.ty, address, vector)
                }
            });
        }
        loaded
    }

    /// Takes all elements of the thread into accumulators: a set for each element of a vector, for one lane after another.
    fn accumulate_all(&mut self, pass: usize, vectors: &[Vector], loaded: &[Loaded]) -> Vec<Vec<Reg>> {
        let identity = &self.reduction.passes()[pass].identity;
        let identity: Vec<Reg> = identity.iter().map(|&(ty, bits)| self.writer.constant(ty, bits)).collect();
        let each = usize::from(self.schedule.vector);
        let mut sets = vec![identity; each * usize::from(self.schedule.folded)];
        for (vector, loaded) in vectors.iter().zip(loaded) {
            let at: At = self.arithmetic.add(self.writer, self.first, vector.further);
            for element in 0..each {
                let set = &mut sets[vector.lane * each + element];
                *set = self.accumulated(pass, set, at, element, loaded);
            }
        }
        sets.iter().map(|set| set.iter().map(|&register| self.copied(register)).collect()).collect()
    }

    /// Makes and stores what comes out for all elements of the thread.
    fn make_all(&mut self, program: &Program, vectors: &[Vector], loaded: &[Loaded]) {
        let mut ahead = vectors.iter().copied();
        let mut rest = ahead.next().map(|vector| self.load_at(Load::Rest, vector));
        for (vector, loaded) in vectors.iter().zip(loaded) {
            let Some(own) = rest else { return };
            // A load does not move before a store, so those of the next vector stand before this one's.
            rest = ahead.next().map(|vector| self.load_at(Load::Rest, vector));
            let taken: Loaded =
                loaded.iter().zip(own).map(|(known, own)| if known.is_empty() { own } else { known.clone() }).collect();
            let made: Vec<Vec<Reg>> =
                (0..usize::from(self.schedule.vector)).map(|element| self.each(program, &taken, element)).collect();
            for (number, output) in self.outputs.clone().into_iter().enumerate() {
                let address = self.further(output.row, vector.further * output.ty.bytes() as u64);
                let values: Vec<Reg> = made.iter().map(|element| element[number]).collect();
                self.writer.store_vector(output.ty, address, &values);
            }
        }
    }

    /// An address so many bytes further.
    fn further(&mut self, address: Reg, bytes: u64) -> Reg {
        match bytes {
            0 => address,
            _ => self.writer.make(Class::Bits64, "add.s64", format_args!("{address}, {bytes}")),
        }
    }

    /// A register of its own with the same value.
    fn copied(&mut self, register: Reg) -> Reg {
        let own = self.writer.register(register.class());
        self.writer.copy(own, register);
        own
    }
}
