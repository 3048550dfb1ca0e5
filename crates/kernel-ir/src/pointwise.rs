//! Pointwise kernels: each output element is the program of the input elements at the same place.
//!
//! A kernel's parameters are, in this order: the address of each output, the address of each input, and one block of
//! numbers whose layout [`Meta`] has: how many elements there are, the scalars, and for strided kernels the sizes of the
//! dimensions and the strides of each operand.

use crate::graph::{GraphError, Program};
use crate::ptx::{Class, Reg, Writer, line};
use crate::types::Type;

/// Threads of a block.
pub const THREADS: u32 = 128;

/// How a kernel goes through its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// How operands lie in memory.
    pub access: Access,
    /// Compute capability that the text is for, as 10 * major + minor.
    pub target: u32,
}

/// How the operands of a kernel lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Every operand has its elements one after another, in one order.
    Contiguous {
        /// Elements that a thread loads at once: a power of two, at most 16 bytes of each operand. Each operand begins
        /// at a multiple of that many elements.
        vector: u8,
        /// Vectors of a thread.
        unroll: u8,
    },
    /// Operands have strides of their own; a stride of zero repeats an element.
    Strided {
        /// Dimensions, at least one.
        rank: u8,
        /// Whether places and byte offsets may pass 2^31 - 1.
        wide: bool,
    },
}

impl Schedule {
    /// The contiguous schedule with the widest vectors that fit the program, for compute capability 7.5 on.
    #[must_use]
    pub fn contiguous(program: &Program) -> Self {
        let vector = widest_vector(program);
        let bytes = largest_element(program) * usize::from(vector);
        // Enough loads under way to keep memory busy, but not with long programs, whose text would grow with it.
        let short = program.nodes().len() <= 16;
        let unroll = if short && vector > 1 && bytes >= 8 { 2 } else { 1 };
        Self { access: Access::Contiguous { vector, unroll }, target: 75 }
    }

    /// The schedule without vectors, for operands that begin anywhere.
    #[must_use]
    pub fn unaligned() -> Self {
        Self { access: Access::Contiguous { vector: 1, unroll: 4 }, target: 75 }
    }

    /// The same schedule for devices of another compute capability.
    #[must_use]
    pub fn for_target(self, target: u32) -> Self {
        Self { target, ..self }
    }

    /// Elements that a block computes.
    #[must_use]
    pub fn elements_of_block(&self) -> u64 {
        u64::from(THREADS)
            * match self.access {
                Access::Contiguous { vector, unroll } => u64::from(vector) * u64::from(unroll),
                Access::Strided { .. } => u64::from(STRIDED_UNROLL),
            }
    }
}

/// Elements of a thread in strided kernels.
const STRIDED_UNROLL: u32 = 4;

/// The widest vectors, in elements, of which no operand's is wider than 16 bytes.
fn widest_vector(program: &Program) -> u8 {
    match largest_element(program) {
        1 => 16,
        2 => 8,
        4 => 4,
        _ => 2,
    }
}

fn largest_element(program: &Program) -> usize {
    let all = program.inputs().iter().copied().chain(program.output_types());
    all.map(Type::bytes).max().unwrap_or(1)
}

/// Where the numbers of a kernel's last parameter are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    scalars: usize,
    operands: usize,
    rank: usize,
    wide: bool,
}

impl Meta {
    /// The layout for a program and a schedule.
    #[must_use]
    pub fn of(program: &Program, schedule: &Schedule) -> Self {
        let (rank, wide) = match schedule.access {
            Access::Contiguous { .. } => (0, true),
            Access::Strided { rank, wide } => (usize::from(rank), wide),
        };
        let operands = program.inputs().len() + program.outputs().len();
        Self { scalars: program.scalars().len(), operands, rank, wide }
    }

    /// Bytes in all, a multiple of eight.
    #[must_use]
    pub fn bytes(&self) -> usize {
        8 + 8 * self.scalars + 16 * self.rank + self.operands * self.rank * 8
    }

    /// Where the number of elements is, of 64 bits.
    #[must_use]
    pub const fn count(&self) -> usize {
        0
    }

    /// Where a scalar is: its bits in the low bytes of eight.
    #[must_use]
    pub const fn scalar(&self, at: usize) -> usize {
        8 + 8 * at
    }

    /// Where the size of a dimension is, counted from the fastest one: 64 bits. The eight bytes after it have the
    /// [`Divider`] of narrow kernels.
    #[must_use]
    pub const fn size(&self, dim: usize) -> usize {
        8 + 8 * self.scalars + 16 * dim
    }

    /// Where the stride of an operand (outputs first) in a dimension is, in bytes: 64 bits with a sign.
    #[must_use]
    pub const fn stride(&self, operand: usize, dim: usize) -> usize {
        8 + 8 * self.scalars + 16 * self.rank + 8 * (operand * self.rank + dim)
    }

    /// The block of numbers, all at once: elements, the bits of the scalars, the sizes from the fastest dimension on,
    /// and the strides in bytes of each operand in the same order.
    #[must_use]
    pub fn write(&self, count: u64, scalars: &[u64], sizes: &[u64], strides: &[&[i64]]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend(scalars.iter().flat_map(|bits| bits.to_le_bytes()));
        for &size in sizes {
            bytes.extend(size.to_le_bytes());
            let divider = if self.wide { 0 } else { Divider::new(size).bits() };
            bytes.extend(divider.to_le_bytes());
        }
        bytes.extend(strides.iter().copied().flatten().flat_map(|stride| stride.to_le_bytes()));
        bytes
    }
}

/// A divisor below 2^31 as a multiplication: `n / size` is `(mulhi(n, magic) + n) >> shift` for `n` below 2^31.
///
/// The method is Granlund and Montgomery's ("Division by Invariant Integers using Multiplication", 1994).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divider {
    size: u64,
}

impl Divider {
    /// The divider by a size from one to 2^31 - 1.
    #[must_use]
    pub const fn new(size: u64) -> Self {
        Self { size }
    }

    /// The magic number in the low half, the shift in the low byte of the high half.
    #[must_use]
    pub fn bits(self) -> u64 {
        let size = u128::from(self.size.max(1));
        let shift = u32::from(size > 1).wrapping_mul(128 - (size - 1).leading_zeros());
        let magic = ((1_u128 << 32) * ((1_u128 << shift) - size)) / size + 1;
        u64::try_from(magic & 0xffff_ffff).unwrap_or(0) | u64::from(shift) << 32
    }
}

/// A written kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The module's text.
    pub text: String,
    /// Where the numbers of the last parameter are.
    pub meta: Meta,
}

/// Writes the kernel with this name.
///
/// # Errors
/// The schedule does not fit the program.
pub fn write(program: &Program, schedule: &Schedule, name: &str) -> Result<Kernel, GraphError> {
    check(program, schedule)?;
    let meta = Meta::of(program, schedule);
    let mut writer = Writer::new(schedule.target);
    let operands = program.inputs().len() + program.outputs().len();
    let mut parameters: Vec<String> = (0..operands).map(|at| format!(".param .b64 operand{at}")).collect();
    parameters.push(format!(".param .align 8 .b8 meta[{}]", meta.bytes()));
    let mut body = Body::open(&mut writer, program, meta);
    match schedule.access {
        Access::Contiguous { vector, unroll } => body.contiguous(usize::from(vector), usize::from(unroll)),
        Access::Strided { rank, wide } => body.strided(usize::from(rank), wide),
    }
    line!(writer, "ret");
    Ok(Kernel { text: writer.finish(name, &parameters, THREADS), meta })
}

fn check(program: &Program, schedule: &Schedule) -> Result<(), GraphError> {
    let refuse = |reason| Err(GraphError::Schedule { reason });
    match schedule.access {
        Access::Contiguous { vector, .. } if !vector.is_power_of_two() || vector > widest_vector(program) => {
            refuse("the vectors are wider than 16 bytes, or no power of two")
        }
        Access::Contiguous { unroll: 0, .. } => refuse("a thread has no element"),
        Access::Strided { rank: 0, .. } => refuse("there is no dimension"),
        Access::Contiguous { .. } | Access::Strided { .. } => Ok(()),
    }
}

/// The body of a kernel while it is written, with the registers that all its parts read.
struct Body<'a> {
    writer: &'a mut Writer,
    program: &'a Program,
    meta: Meta,
    /// The address of each operand, outputs first, and the type of its elements.
    operands: Vec<(Reg, Type)>,
    scalars: Vec<Reg>,
    /// Elements in all.
    count: Reg,
}

impl<'a> Body<'a> {
    fn open(writer: &'a mut Writer, program: &'a Program, meta: Meta) -> Self {
        let types: Vec<Type> = program.output_types().chain(program.inputs().iter().copied()).collect();
        let mut operands = Vec::with_capacity(types.len());
        for (at, ty) in types.into_iter().enumerate() {
            let given = writer.make(Class::Bits64, "ld.param.b64", format_args!("[operand{at}]"));
            operands.push((writer.make(Class::Bits64, "cvta.to.global.u64", format_args!("{given}")), ty));
        }
        let count = writer.make(Class::Bits64, "ld.param.u64", format_args!("[meta+{}]", meta.count()));
        let mut scalars = Vec::with_capacity(program.scalars().len());
        for (at, &ty) in program.scalars().iter().enumerate() {
            scalars.push(writer.scalar(ty, meta.scalar(at)));
        }
        Self { writer, program, meta, operands, scalars, count }
    }

    /// Vectors at `(block * unroll + step) * threads + thread`. A block whose elements are all there needs no further
    /// check; the last one goes element by element.
    fn contiguous(&mut self, vector: usize, unroll: usize) {
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

    /// Loads, computes and stores one element at these addresses.
    fn one_element(&mut self, addresses: &[Reg], index: Option<Reg>) {
        let outputs = self.program.outputs().len();
        let mut inputs = Vec::new();
        for (&(_, ty), &address) in self.operands[outputs..].iter().zip(&addresses[outputs..]) {
            inputs.push(self.writer.load(ty, address));
        }
        let results = self.writer.program(self.program, &inputs, &self.scalars, index);
        for (at, value) in results.into_iter().enumerate() {
            self.writer.store(self.operands[at].1, addresses[at], value);
        }
    }

    /// Elements at `block * (threads * unroll) + thread + step * threads`, each found by dividing its place by the sizes.
    fn strided(&mut self, rank: usize, wide: bool) {
        let (block, thread) = self.writer.block_and_thread();
        let of_block = THREADS * STRIDED_UNROLL;
        let first = self.writer.make(Class::Bits64, "mul.wide.u32", format_args!("{block}, {of_block}"));
        let own = self.writer.make(Class::Bits64, "cvt.u64.u32", format_args!("{thread}"));
        let start = self.writer.make(Class::Bits64, "add.u64", format_args!("{first}, {own}"));
        let out = self.writer.label();
        for step in 0..STRIDED_UNROLL {
            let at = self.writer.make(Class::Bits64, "add.u64", format_args!("{start}, {}", step * THREADS));
            let past = self.writer.make(Class::Predicate, "setp.ge.u64", format_args!("{at}, {}", self.count));
            line!(self.writer, "@{past} bra {out}");
            let places = if wide { self.wide_places(at, rank) } else { self.narrow_places(at, rank) };
            let addresses = self.strided_addresses(&places, wide);
            self.one_element(&addresses, Some(at));
        }
        self.writer.place(&out);
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

    /// The place of the element in each dimension, by multiplication in 32 bits.
    fn narrow_places(&mut self, at: Reg, rank: usize) -> Vec<Reg> {
        let mut rest = self.writer.make(Class::Bits32, "cvt.u32.u64", format_args!("{at}"));
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

    /// The address of each operand's element at a place.
    fn strided_addresses(&mut self, places: &[Reg], wide: bool) -> Vec<Reg> {
        let (class, name) = if wide { (Class::Bits64, "s64") } else { (Class::Bits32, "s32") };
        let mut addresses = Vec::with_capacity(self.operands.len());
        for operand in 0..self.operands.len() {
            let mut offset = None;
            for (dim, &place) in places.iter().enumerate() {
                let at = self.meta.stride(operand, dim);
                let stride = self.writer.make(class, &format!("ld.param.{name}"), format_args!("[meta+{at}]"));
                offset = Some(match offset {
                    None => self.writer.make(class, &format!("mul.lo.{name}"), format_args!("{place}, {stride}")),
                    Some(sum) => {
                        self.writer.make(class, &format!("mad.lo.{name}"), format_args!("{place}, {stride}, {sum}"))
                    }
                });
            }
            let (base, offset) = (self.operands[operand].0, offset.unwrap_or(self.count));
            let bytes = match wide {
                true => offset,
                false => self.writer.make(Class::Bits64, "cvt.s64.s32", format_args!("{offset}")),
            };
            addresses.push(self.writer.make(Class::Bits64, "add.s64", format_args!("{base}, {bytes}")));
        }
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divider_divides() {
        let sizes = (1..200).chain([1 << 16, (1 << 16) + 1, 1_000_003, (1 << 30) - 1, 1 << 30, (1 << 31) - 1]);
        for size in sizes {
            let bits = Divider::new(size).bits();
            let (magic, shift) = (bits & 0xffff_ffff, bits >> 32);
            for n in [0, 1, size - 1, size, size + 1, 2 * size - 1, 7 * size, (1 << 31) - 1, 123_456_789] {
                let n = n.min((1 << 31) - 1);
                let quotient = (((n * magic) >> 32) + n) >> shift;
                assert_eq!(quotient, n / size, "{n} by {size}");
            }
        }
    }
}
