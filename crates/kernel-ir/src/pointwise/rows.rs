//! Kernels over rows: along the fastest dimension each operand is contiguous or repeats one element.
//!
//! A row is cut into vectors. A thread computes several vectors that lie in equal steps along one dimension, so that the
//! division of its number into places, and what an operand repeats along that dimension, serve all of them.
//!
//! **Invariants:** numbers of threads, vectors and places stay below 2^31, and so does each stride in bytes; only sums of
//! offsets are wider. Every vector of a contiguous operand begins at a multiple of its own size.

use super::{Body, THREADS, largest_element, widest_vector};
use crate::graph::Program;
use crate::ptx::{Class, Reg, line};
use crate::types::Type;

/// Bytes of its largest operand that a thread computes: with fewer there are not enough loads under way.
const OF_THREAD: usize = 16;

/// How a kernel goes through rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// Dimensions, at least one.
    pub rank: u8,
    /// Elements of a vector: a power of two, at most 16 bytes of each operand.
    pub vector: u8,
    /// Vectors of a thread, at least one.
    pub unroll: u8,
    /// The dimension along which the vectors of a thread lie.
    pub along: u8,
    /// A bit for each operand, outputs first: whether it repeats one element along the fastest dimension.
    pub repeated: u32,
    /// A bit for each operand: whether it is the same for all vectors of a thread.
    pub kept: u32,
}

/// How many operands there may be: one for each bit.
const OPERANDS: usize = 32;

/// Numbers of threads and strides are below this.
const LIMIT: u64 = 1 << 31;

impl Rows {
    /// The way through operands of these sizes, strides in bytes (fastest dimension first, outputs before inputs) and
    /// first addresses. None where an operand has other steps along the fastest dimension, where the program asks for
    /// the numbers of elements, and where numbers are too large.
    #[must_use]
    pub fn fitting(program: &Program, sizes: &[u64], strides: &[&[i64]], addresses: &[u64]) -> Option<Self> {
        let small = |stride: &i64| stride.unsigned_abs() < LIMIT;
        let fits = !program.uses_index()
            && strides.len() <= OPERANDS
            && sizes.iter().all(|&size| size > 0)
            && strides.iter().all(|strides| strides.iter().all(small));
        let rank = u8::try_from(sizes.len()).ok().filter(|&rank| rank > 0 && fits)?;
        let outputs = program.outputs().len();
        let types = program.output_types().chain(program.inputs().iter().copied());
        let (mut repeated, mut vector) = (0, widest_vector(program));
        for (at, (ty, strides)) in types.zip(strides).enumerate() {
            if strides[0] == 0 && at >= outputs {
                repeated |= 1 << at;
            } else if i64::try_from(ty.bytes()) == Ok(strides[0]) {
                vector = vector.min(aligned_elements(ty, addresses[at], &strides[1..]));
            } else {
                return None;
            }
        }
        while u64::from(vector) > sizes[0] {
            vector /= 2;
        }
        let unroll = OF_THREAD / (usize::from(vector) * largest_element(program));
        let unroll = u8::try_from(unroll.clamp(1, 8)).unwrap_or(1);
        let mut rows = Self { rank, vector, unroll, along: 0, repeated, kept: 0 };
        rows.choose_along(sizes, strides, outputs);
        let along = usize::from(rows.along);
        let same = (outputs..strides.len()).filter(|&at| strides[at][along] == 0);
        rows.kept = same.fold(0, |kept, at| kept | (1 << at));
        (rows.vectors_in_all(sizes) < u128::from(LIMIT)).then_some(rows)
    }

    /// Prefers a dimension along which an input repeats itself, then the slowest one; with fewer vectors for a thread
    /// where no dimension has as many.
    fn choose_along(&mut self, sizes: &[u64], strides: &[&[i64]], outputs: usize) {
        loop {
            let long = |&dim: &usize| self.vectors(sizes, dim) >= u64::from(self.unroll);
            let repeats = |&dim: &usize| strides[outputs..].iter().any(|strides| strides[dim] == 0);
            let found = (1..sizes.len()).filter(long).find(repeats).or_else(|| (0..sizes.len()).rev().find(long));
            if let Some(dim) = found {
                self.along = u8::try_from(dim).unwrap_or(0);
                return;
            }
            self.unroll /= 2;
        }
    }

    /// Vectors along a dimension.
    pub(super) fn vectors(&self, sizes: &[u64], dim: usize) -> u64 {
        if dim == 0 { sizes[0].div_ceil(u64::from(self.vector)) } else { sizes[dim] }
    }

    /// Places that threads have along a dimension.
    pub(super) fn places(&self, sizes: &[u64], dim: usize) -> u64 {
        let vectors = self.vectors(sizes, dim);
        if dim == usize::from(self.along) { vectors.div_ceil(u64::from(self.unroll)) } else { vectors }
    }

    fn vectors_in_all(&self, sizes: &[u64]) -> u128 {
        (0..sizes.len()).map(|dim| u128::from(self.vectors(sizes, dim))).product()
    }

    /// Threads that a launch over these sizes needs.
    pub(super) fn threads(&self, sizes: &[u64]) -> u64 {
        (0..sizes.len()).map(|dim| self.places(sizes, dim)).product()
    }

    const fn is_repeated(&self, operand: usize) -> bool {
        (self.repeated >> operand) & 1 == 1
    }

    const fn is_kept(&self, operand: usize) -> bool {
        (self.kept >> operand) & 1 == 1
    }
}

/// The largest power of two, at most 16, of elements at a multiple of which every row begins.
fn aligned_elements(ty: Type, address: u64, steps: &[i64]) -> u8 {
    let together = steps.iter().fold(address, |all, step| all | step.unsigned_abs());
    let bytes = 1_u64 << together.trailing_zeros().min(7);
    u8::try_from((bytes / ty.bytes() as u64).clamp(1, 16)).unwrap_or(1)
}

/// Where a thread's vectors are.
struct Start {
    /// The place of the first vector along the dimension of the vectors, and in its row.
    first: Reg,
    inner: Reg,
    /// Places from one vector to the next.
    groups: Reg,
    /// Vectors along the dimension, and whole ones in a row.
    vectors: Reg,
    whole: Reg,
}

impl Body<'_> {
    /// Threads whose vectors are all there and whole load them before they store one; others go element by element.
    pub(super) fn rows(&mut self, rows: Rows) {
        let out = self.writer.label();
        let (block, thread) = self.writer.block_and_thread();
        let id = self.writer.make(Class::Bits32, "mad.lo.u32", format_args!("{block}, {THREADS}, {thread}"));
        let count = self.number(self.meta.count());
        let past = self.writer.make(Class::Predicate, "setp.ge.u32", format_args!("{id}, {count}"));
        line!(self.writer, "@{past} bra {out}");
        let places = self.narrow_places(id, usize::from(rows.rank));
        let addresses = self.narrow_addresses(&places);
        let along = usize::from(rows.along);
        let start = Start {
            first: places[along],
            inner: places[0],
            groups: self.number(self.meta.size(along)),
            vectors: self.number(self.meta.along()),
            whole: self.number(self.meta.whole()),
        };
        let edge = self.writer.label();
        let others = rows.unroll - 1;
        let (first, groups) = (start.first, start.groups);
        let last = self.writer.make(Class::Bits32, "mad.lo.u32", format_args!("{groups}, {others}, {first}"));
        let inner = if along == 0 { last } else { start.inner };
        let there = self.writer.make(Class::Predicate, "setp.lt.u32", format_args!("{last}, {}", start.vectors));
        let whole = self.writer.make(Class::Predicate, "setp.lt.u32", format_args!("{inner}, {}", start.whole));
        let all = self.writer.make(Class::Predicate, "and.pred", format_args!("{there}, {whole}"));
        line!(self.writer, "@!{all} bra {edge}");
        self.whole_vectors(rows, &addresses);
        line!(self.writer, "bra {out}");
        self.writer.place(&edge);
        self.edge_vectors(rows, &addresses, &start, &out);
        self.writer.place(&out);
    }

    /// A number of 32 bits that the launch gives.
    fn number(&mut self, at: usize) -> Reg {
        self.writer.make(Class::Bits32, "ld.param.u32", format_args!("[meta+{at}]"))
    }

    fn whole_vectors(&mut self, rows: Rows, first: &[Reg]) {
        let (outputs, vector) = (self.program.outputs().len(), usize::from(rows.vector));
        let (mut addresses, mut loaded): (Vec<Vec<Reg>>, Vec<Vec<Vec<Reg>>>) = (vec![first.to_vec()], Vec::new());
        for step in 0..usize::from(rows.unroll) {
            if step > 0 {
                let next = self.next_addresses(rows, &addresses[step - 1]);
                addresses.push(next);
            }
            let mut inputs = Vec::new();
            for operand in outputs..self.operands.len() {
                let known = (step > 0 && rows.is_kept(operand)).then(|| loaded[0][operand - outputs].clone());
                let values = known.unwrap_or_else(|| self.load_lanes(rows, operand, addresses[step][operand]));
                inputs.push(values);
            }
            loaded.push(inputs);
        }
        for (addresses, inputs) in addresses.iter().zip(loaded) {
            let mut computed = Vec::with_capacity(vector);
            for lane in 0..vector {
                let element: Vec<Reg> = inputs.iter().map(|input| input[lane]).collect();
                computed.push(self.writer.program(self.program, &element, &self.scalars, None));
            }
            for operand in 0..outputs {
                let values: Vec<Reg> = computed.iter().map(|lane| lane[operand]).collect();
                self.writer.store_vector(self.operands[operand].1, addresses[operand], &values);
            }
        }
    }

    /// A vector of an input, or its one element for every lane.
    fn load_lanes(&mut self, rows: Rows, operand: usize, address: Reg) -> Vec<Reg> {
        let (ty, vector) = (self.operands[operand].1, usize::from(rows.vector));
        if rows.is_repeated(operand) {
            return vec![self.writer.load(ty, address); vector];
        }
        self.writer.load_vector(ty, address, vector)
    }

    /// The addresses of a thread's next vector.
    fn next_addresses(&mut self, rows: Rows, addresses: &[Reg]) -> Vec<Reg> {
        let mut next = Vec::with_capacity(addresses.len());
        for (operand, &address) in addresses.iter().enumerate() {
            next.push(if rows.is_kept(operand) {
                address
            } else {
                let step = self.meta.step(operand);
                let step = self.writer.make(Class::Bits64, "ld.param.s64", format_args!("[meta+{step}]"));
                self.writer.make(Class::Bits64, "add.s64", format_args!("{address}, {step}"))
            });
        }
        next
    }

    /// Goes over the vectors that are there, and over the elements that each has.
    fn edge_vectors(&mut self, rows: Rows, addresses: &[Reg], start: &Start, out: &str) {
        let (again, element, next) = (self.writer.label(), self.writer.label(), self.writer.label());
        let now = self.writer.make(Class::Bits32, "mov.b32", format_args!("{}", start.first));
        let cut = self.number(self.meta.cut());
        let at: Vec<Reg> =
            addresses.iter().map(|from| self.writer.make(Class::Bits64, "mov.b64", format_args!("{from}"))).collect();
        self.writer.place(&again);
        let past = self.writer.make(Class::Predicate, "setp.ge.u32", format_args!("{now}, {}", start.vectors));
        line!(self.writer, "@{past} bra {out}");
        let inner = if rows.along == 0 { now } else { start.inner };
        let whole = self.writer.make(Class::Predicate, "setp.lt.u32", format_args!("{inner}, {}", start.whole));
        let left = self.writer.make(Class::Bits32, "selp.b32", format_args!("{}, {cut}, {whole}", rows.vector));
        let lanes: Vec<Reg> =
            at.iter().map(|from| self.writer.make(Class::Bits64, "mov.b64", format_args!("{from}"))).collect();
        self.writer.place(&element);
        let done = self.writer.make(Class::Predicate, "setp.eq.u32", format_args!("{left}, 0"));
        line!(self.writer, "@{done} bra {next}");
        self.one_element(&lanes, None);
        for (operand, &address) in lanes.iter().enumerate().filter(|(operand, _)| !rows.is_repeated(*operand)) {
            line!(self.writer, "add.s64 {address}, {address}, {}", self.operands[operand].1.bytes());
        }
        line!(self.writer, "sub.u32 {left}, {left}, 1");
        line!(self.writer, "bra {element}");
        self.writer.place(&next);
        for (from, to) in at.iter().zip(self.next_addresses(rows, &at)).filter(|(from, to)| *from != to) {
            line!(self.writer, "mov.b64 {from}, {to}");
        }
        line!(self.writer, "add.u32 {now}, {now}, {}", start.groups);
        line!(self.writer, "bra {again}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Binary, Graph};

    fn sum(ty: Type) -> Program {
        let mut graph = Graph::new();
        let (a, b) = (graph.input(ty), graph.input(ty));
        let sum = graph.binary(Binary::Add, a, b);
        graph.output(sum);
        graph.finish().expect("it is well typed")
    }

    const ALIGNED: [u64; 3] = [256, 512, 1024];

    fn fitting(ty: Type, sizes: &[u64], strides: [&[i64]; 3], addresses: [u64; 3]) -> Option<Rows> {
        Rows::fitting(&sum(ty), sizes, &strides, &addresses)
    }

    #[test]
    fn vectors_are_as_wide_as_every_row_allows() {
        let vector = |strides, addresses| fitting(Type::F32, &[64, 9], strides, addresses).map(|rows| rows.vector);
        let row: &[i64] = &[4, 0];
        assert_eq!(vector([&[4, 256], &[4, 256], row], ALIGNED), Some(4));
        assert_eq!(vector([&[4, 264], &[4, 256], row], ALIGNED), Some(2), "a step");
        assert_eq!(vector([&[4, 256], &[4, 260], row], ALIGNED), Some(1), "a step");
        assert_eq!(vector([&[4, 256], &[4, 256], row], [256, 512, 1032]), Some(2), "an address");
        assert_eq!(vector([&[4, 256], &[4, 256], &[0, 4]], [256, 512, 1028]), Some(4), "of what is repeated");
        assert_eq!(vector([&[4, 256], &[4, -256], row], ALIGNED), Some(4), "backwards");
        assert_eq!(fitting(Type::F32, &[3, 9], [&[4, 16], &[4, 16], row], ALIGNED).map(|rows| rows.vector), Some(2));
        assert_eq!(fitting(Type::U8, &[64], [&[1], &[1], &[0]], ALIGNED).map(|rows| rows.vector), Some(16));
    }

    #[test]
    fn other_steps_and_large_numbers_are_refused() {
        let row: &[i64] = &[4, 0];
        assert_eq!(fitting(Type::F32, &[64, 9], [&[4, 256], &[8, 512], row], ALIGNED), None);
        assert_eq!(fitting(Type::F32, &[64, 9], [&[4, 256], &[-4, 256], row], ALIGNED), None);
        assert_eq!(fitting(Type::F32, &[64, 9], [&[0, 256], &[4, 256], row], ALIGNED), None, "an output");
        assert_eq!(fitting(Type::F32, &[64, 9], [&[4, 1 << 31], &[4, 256], row], ALIGNED), None);
        assert_eq!(fitting(Type::F32, &[1 << 33, 9], [&[4, 256], &[4, 256], row], ALIGNED), None);
        let many = fitting(Type::F32, &[1 << 32], [&[4], &[4], &[0]], ALIGNED).expect("2^30 vectors are few enough");
        assert_eq!((many.vector, many.threads(&[1 << 32])), (4, 1 << 30));
    }

    #[test]
    fn a_thread_keeps_what_its_vectors_share() {
        let rows = fitting(Type::F32, &[63, 2, 9], [&[4, 252, 504], &[4, 252, 504], &[4, 252, 0]], ALIGNED);
        let rows = rows.expect("it fits");
        assert_eq!((rows.vector, rows.unroll, rows.along, rows.kept, rows.repeated), (1, 4, 2, 4, 0));
        assert_eq!(rows.threads(&[63, 2, 9]), 63 * 2 * 3);
        let flat = fitting(Type::F32, &[63, 2], [&[4, 252], &[4, 252], &[0, 4]], ALIGNED).expect("it fits");
        assert_eq!((flat.unroll, flat.along, flat.kept, flat.repeated), (4, 0, 4, 4));
        let tiny = fitting(Type::F32, &[1, 3], [&[4, 4], &[4, 4], &[4, 0]], ALIGNED).expect("it fits");
        assert_eq!((tiny.unroll, tiny.along), (2, 1));
    }
}
