//! Kernels over operands that have their elements one after another.

use super::{Body, THREADS};
use crate::ptx::{Class, Reg, Writer, line};
use crate::types::Type;

impl Body<'_> {
    /// Vectors at `(block * unroll + step) * threads + thread`. A block whose elements are all there needs no further
    /// check; the last one goes element by element.
    pub(super) fn contiguous(&mut self, vector: usize, unroll: usize) {
        let (block, thread) = self.writer.block_and_thread();
        let of_block = THREADS as usize * vector * unroll;
        let first = self.writer.make(Class::Bits64, "mul.wide.u32", format_args!("{block}, {of_block}"));
        let end = self.writer.make(Class::Bits64, "add.u64", format_args!("{first}, {of_block}"));
        let past = self.writer.make(Class::Predicate, "setp.gt.u64", format_args!("{end}, {}", self.count));
        let (tail, done) = (self.writer.label(), self.writer.label());
        line!(self.writer, "@{past} bra {tail}");
        self.full_block(first, thread, vector, unroll);
        line!(self.writer, "bra {done}");
        self.writer.place(&tail);
        self.partial_block(first, thread);
        self.writer.place(&done);
    }

    fn full_block(&mut self, first: Reg, thread: Reg, vector: usize, unroll: usize) {
        let own = self.writer.make(Class::Bits64, "mul.wide.u32", format_args!("{thread}, {vector}"));
        let start = self.writer.make(Class::Bits64, "add.u64", format_args!("{first}, {own}"));
        let outputs = self.program.outputs().len();
        let addresses: Vec<Reg> =
            self.operands.clone().into_iter().map(|(base, ty)| self.writer.element(base, start, ty)).collect();
        let step_elements = THREADS as usize * vector;
        let at_step = |writer: &mut Writer, address: Reg, ty: Type, step: usize| match step * step_elements * ty.bytes()
        {
            0 => address,
            bytes => writer.make(Class::Bits64, "add.u64", format_args!("{address}, {bytes}")),
        };
        // All loads stand before the first use, so that they are under way together.
        let mut loaded = Vec::with_capacity(unroll);
        for step in 0..unroll {
            let mut inputs = Vec::new();
            for (&(_, ty), &address) in self.operands[outputs..].iter().zip(&addresses[outputs..]) {
                let address = at_step(self.writer, address, ty, step);
                inputs.push(self.writer.load_vector(ty, address, vector));
            }
            loaded.push(inputs);
        }
        for (step, inputs) in loaded.into_iter().enumerate() {
            let computed: Vec<Vec<Reg>> = (0..vector)
                .map(|lane| {
                    let element: Vec<Reg> = inputs.iter().map(|input| input[lane]).collect();
                    let index = self.index_at(start, step * step_elements + lane);
                    self.writer.program(self.program, &element, &self.scalars, index)
                })
                .collect();
            for (at, &(_, ty)) in self.operands[..outputs].iter().enumerate() {
                let address = at_step(self.writer, addresses[at], ty, step);
                let values: Vec<Reg> = computed.iter().map(|lane| lane[at]).collect();
                self.writer.store_vector(ty, address, &values);
            }
        }
    }

    /// The index of an element as a register, where the program uses it.
    fn index_at(&mut self, start: Reg, offset: usize) -> Option<Reg> {
        let used = self.program.uses_index();
        used.then(|| self.writer.make(Class::Bits64, "add.u64", format_args!("{start}, {offset}")))
    }

    fn partial_block(&mut self, first: Reg, thread: Reg) {
        let own = self.writer.make(Class::Bits64, "cvt.u64.u32", format_args!("{thread}"));
        let at = self.writer.make(Class::Bits64, "add.u64", format_args!("{first}, {own}"));
        let (again, out) = (self.writer.label(), self.writer.label());
        self.writer.place(&again);
        let past = self.writer.make(Class::Predicate, "setp.ge.u64", format_args!("{at}, {}", self.count));
        line!(self.writer, "@{past} bra {out}");
        let addresses: Vec<Reg> =
            self.operands.clone().into_iter().map(|(base, ty)| self.writer.element(base, at, ty)).collect();
        self.one_element(&addresses, Some(at));
        line!(self.writer, "add.u64 {at}, {at}, {THREADS}");
        line!(self.writer, "bra {again}");
        self.writer.place(&out);
    }
}
