//! Kernels over operands with strides of their own, element by element; places and addresses from numbers of a launch.

use super::{Body, STRIDED_UNROLL, THREADS};
use crate::ptx::{Class, Reg, line};

impl Body<'_> {
    /// Elements at `block * (threads * unroll) + thread + step * threads`, each found by dividing its number by the sizes.
    /// A block whose elements are all there loads them before it stores one; the last one goes element by element.
    pub(super) fn strided(&mut self, rank: usize, wide: bool) {
        let (block, thread) = self.writer.block_and_thread();
        let of_block = THREADS * STRIDED_UNROLL;
        let first = self.writer.make(Class::Bits64, "mul.wide.u32", format_args!("{block}, {of_block}"));
        let end = self.writer.make(Class::Bits64, "add.u64", format_args!("{first}, {of_block}"));
        let past = self.writer.make(Class::Predicate, "setp.gt.u64", format_args!("{end}, {}", self.count));
        let own = self.writer.make(Class::Bits64, "cvt.u64.u32", format_args!("{thread}"));
        let start = self.writer.make(Class::Bits64, "add.u64", format_args!("{first}, {own}"));
        let (again, out) = (self.writer.label(), self.writer.label());
        line!(self.writer, "@{past} bra {again}");
        self.strided_block(start, rank, wide);
        line!(self.writer, "bra {out}");
        self.writer.place(&again);
        let past = self.writer.make(Class::Predicate, "setp.ge.u64", format_args!("{start}, {}", self.count));
        line!(self.writer, "@{past} bra {out}");
        let addresses = self.strided_addresses(start, rank, wide);
        self.one_element(&addresses, Some(start));
        line!(self.writer, "add.u64 {start}, {start}, {THREADS}");
        line!(self.writer, "bra {again}");
        self.writer.place(&out);
    }

    fn strided_block(&mut self, start: Reg, rank: usize, wide: bool) {
        let outputs = self.program.outputs().len();
        let mut loaded = Vec::new();
        for step in 0..STRIDED_UNROLL {
            let at = self.writer.make(Class::Bits64, "add.u64", format_args!("{start}, {}", step * THREADS));
            let addresses = self.strided_addresses(at, rank, wide);
            let mut inputs = Vec::new();
            for (&(_, ty), &address) in self.operands[outputs..].iter().zip(&addresses[outputs..]) {
                inputs.push(self.writer.load(ty, address));
            }
            loaded.push((at, addresses, inputs));
        }
        for (at, addresses, inputs) in loaded {
            let results = self.writer.program(self.program, &inputs, &self.scalars, Some(at));
            for (operand, value) in results.into_iter().enumerate() {
                self.writer.store(self.operands[operand].1, addresses[operand], value);
            }
        }
    }

    /// The address of each operand's element with this number.
    fn strided_addresses(&mut self, at: Reg, rank: usize, wide: bool) -> Vec<Reg> {
        if wide {
            let places = self.wide_places(at, rank);
            return self.wide_addresses(&places);
        }
        let at = self.writer.make(Class::Bits32, "cvt.u32.u64", format_args!("{at}"));
        let places = self.narrow_places(at, rank);
        self.narrow_addresses(&places)
    }

    /// The place of the element in each dimension, by division in 64 bits.
    fn wide_places(&mut self, at: Reg, rank: usize) -> Vec<Reg> {
        let mut rest = at;
        (0..rank)
            .map(|dim| {
                if dim + 1 == rank {
                    return rest;
                }
                let size =
                    self.writer.make(Class::Bits64, "ld.param.u64", format_args!("[meta+{}]", self.meta.size(dim)));
                let quotient = self.writer.make(Class::Bits64, "div.u64", format_args!("{rest}, {size}"));
                let back = self.writer.make(Class::Bits64, "mul.lo.u64", format_args!("{quotient}, {size}"));
                let place = self.writer.make(Class::Bits64, "sub.u64", format_args!("{rest}, {back}"));
                rest = quotient;
                place
            })
            .collect()
    }

    /// The place in each dimension of what has this number, of 32 bits, by multiplication.
    pub(super) fn narrow_places(&mut self, at: Reg, rank: usize) -> Vec<Reg> {
        let mut rest = at;
        (0..rank)
            .map(|dim| {
                if dim + 1 == rank {
                    return rest;
                }
                let (quotient, size) = self.divide(rest, dim);
                let back = self.writer.make(Class::Bits32, "mul.lo.u32", format_args!("{quotient}, {size}"));
                let place = self.writer.make(Class::Bits32, "sub.u32", format_args!("{rest}, {back}"));
                rest = quotient;
                place
            })
            .collect()
    }

    /// The quotient of a place by the size of a dimension, and that size.
    fn divide(&mut self, place: Reg, dim: usize) -> (Reg, Reg) {
        let at = self.meta.size(dim);
        let size = self.writer.make(Class::Bits32, "ld.param.u32", format_args!("[meta+{at}]"));
        let magic = self.writer.make(Class::Bits32, "ld.param.u32", format_args!("[meta+{}]", at + 8));
        let shift = self.writer.make(Class::Bits32, "ld.param.u32", format_args!("[meta+{}]", at + 12));
        let high = self.writer.make(Class::Bits32, "mul.hi.u32", format_args!("{place}, {magic}"));
        let sum = self.writer.make(Class::Bits32, "add.u32", format_args!("{high}, {place}"));
        (self.writer.make(Class::Bits32, "shr.u32", format_args!("{sum}, {shift}")), size)
    }

    fn wide_addresses(&mut self, places: &[Reg]) -> Vec<Reg> {
        self.addresses(places, |body, place, at, sum| {
            let stride = body.writer.make(Class::Bits64, "ld.param.s64", format_args!("[meta+{at}]"));
            body.writer.make(Class::Bits64, "mad.lo.s64", format_args!("{place}, {stride}, {sum}"))
        })
    }

    /// The address of each operand's element at places of 32 bits, with strides of 32 bits; offsets may be wider.
    pub(super) fn narrow_addresses(&mut self, places: &[Reg]) -> Vec<Reg> {
        self.addresses(places, |body, place, at, sum| {
            let stride = body.writer.make(Class::Bits32, "ld.param.s32", format_args!("[meta+{at}]"));
            body.writer.make(Class::Bits64, "mad.wide.s32", format_args!("{place}, {stride}, {sum}"))
        })
    }

    /// For each operand its first address, to which a step for each dimension adds.
    fn addresses(&mut self, places: &[Reg], add: impl Fn(&mut Self, Reg, usize, Reg) -> Reg) -> Vec<Reg> {
        let mut addresses = Vec::with_capacity(self.operands.len());
        for operand in 0..self.operands.len() {
            let mut sum = self.operands[operand].0;
            for (dim, &place) in places.iter().enumerate() {
                sum = add(self, place, self.meta.stride(operand, dim), sum);
            }
            addresses.push(sum);
        }
        addresses
    }
}
