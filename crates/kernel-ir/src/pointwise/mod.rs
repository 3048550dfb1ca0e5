//! Pointwise kernels: each output element is the program of the input elements at the same place.
//!
//! A kernel's parameters are, in this order: the address of each output, the address of each input, and one block of
//! numbers whose layout [`Meta`] has: how many elements there are, the scalars, and for operands with strides the sizes of
//! the dimensions and the strides of each operand.
//!
//! Reading order: this file ([`Schedule`], [`write()`]), `meta` (the block of numbers), `contiguous`, `rows` and `strided`
//! (the three ways through the elements), `looped` (the first of them for long programs), `parts` (several programs, each over
//! elements of its own number).

mod contiguous;
mod looped;
mod meta;
mod parts;
mod rows;
mod strided;

pub(crate) use looped::{Turns, advance};
pub use meta::{Divider, Meta};
pub use parts::Parts;
pub use rows::Rows;

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
    /// Whether the program was fused of several: roundings between them are cheaper, and long texts are shorter.
    pub fused: bool,
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
    /// Operands have strides of their own, but along the fastest dimension each is contiguous or repeats one element.
    Rows(Rows),
    /// Operands have strides of their own; a stride of zero repeats an element.
    Strided {
        /// Dimensions, at least one.
        rank: u8,
        /// Whether the number of elements or a stride in bytes may pass 2^31 - 1.
        wide: bool,
    },
}

impl Access {
    /// Dimensions whose sizes a launch passes.
    fn rank(self) -> usize {
        match self {
            Self::Contiguous { .. } => 0,
            Self::Rows(rows) => usize::from(rows.rank),
            Self::Strided { rank, .. } => usize::from(rank),
        }
    }
}

impl Schedule {
    /// The contiguous schedule with the widest vectors that fit the program, for compute capability 7.5 on.
    #[must_use]
    pub fn contiguous(program: &Program) -> Self {
        let vector = widest_vector(program);
        let bytes = largest_element(program) * usize::from(vector);
        // Enough loads under way to keep memory busy, but not with long programs, whose text would grow with it.
        let short = program.nodes().len() <= SHORT;
        let unroll = if short && vector > 1 && bytes >= 8 { 2 } else { 1 };
        Self { access: Access::Contiguous { vector, unroll }, target: 75, fused: false }
    }

    /// The schedule without vectors, for operands that begin anywhere.
    #[must_use]
    pub fn unaligned() -> Self {
        Self { access: Access::Contiguous { vector: 1, unroll: 4 }, target: 75, fused: false }
    }

    /// The same schedule for devices of another compute capability.
    #[must_use]
    pub fn for_target(self, target: u32) -> Self {
        Self { target, ..self }
    }

    /// The same schedule for a program that was fused of several. Text that is loaded once is read by the driver's compiler
    /// once, so that its length counts there, while others are made ahead of time.
    ///
    /// ```
    /// use kernel_ir::pointwise::{Schedule, write};
    /// use kernel_ir::{Graph, Math, Type};
    ///
    /// let mut graph = Graph::new();
    /// let mut value = graph.input(Type::F32);
    /// for _ in 0..20 {
    ///     value = graph.call(Math::Exp2Near, &[value]);
    /// }
    /// graph.output(value);
    /// let program = graph.finish()?;
    /// let length = |schedule: Schedule| write(&program, &schedule, "powers").map(|kernel| kernel.text.len());
    /// let plain = Schedule::contiguous(&program);
    /// assert!(length(plain.for_fused(&program))? < length(plain)? * 3 / 4);
    /// # Ok::<(), kernel_ir::GraphError>(())
    /// ```
    #[must_use]
    pub fn for_fused(self, program: &Program) -> Self {
        let access = match self.access {
            Access::Contiguous { vector, .. } if program.nodes().len() > SHORT => {
                Access::Contiguous { vector: vector.min(held_vector(program)), unroll: 1 }
            }
            access => access,
        };
        Self { access, fused: true, ..self }
    }

    /// Elements that a block computes; of rows, the most that one does.
    #[must_use]
    pub fn elements_of_block(&self) -> u64 {
        u64::from(THREADS)
            * match self.access {
                Access::Contiguous { vector, unroll } | Access::Rows(Rows { vector, unroll, .. }) => {
                    u64::from(vector) * u64::from(unroll)
                }
                Access::Strided { .. } => u64::from(STRIDED_UNROLL),
            }
    }

    /// Blocks of the launch over this many elements, in these sizes with the fastest dimension first. Contiguous kernels
    /// need no sizes.
    #[must_use]
    pub fn blocks(&self, count: u64, sizes: &[u64]) -> u64 {
        match self.access {
            Access::Rows(rows) => rows.threads(sizes).div_ceil(u64::from(THREADS)),
            Access::Contiguous { .. } | Access::Strided { .. } => count.div_ceil(self.elements_of_block()),
        }
    }
}

/// Nodes of a program from which on it is long.
const SHORT: usize = 16;

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

/// Registers for the words of all operands, of the 255 that a thread has.
const HELD_WORDS: usize = 128;

/// The widest vectors of which a thread can hold one of each operand.
fn held_vector(program: &Program) -> u8 {
    let all = || program.inputs().iter().copied().chain(program.output_types());
    let words = |vector: u8| all().map(|ty| (ty.bytes() * usize::from(vector)).div_ceil(4)).sum::<usize>();
    [16, 8, 4, 2].into_iter().find(|&vector| words(vector) <= HELD_WORDS).unwrap_or(1)
}

fn largest_element(program: &Program) -> usize {
    let all = program.inputs().iter().copied().chain(program.output_types());
    all.map(Type::bytes).max().unwrap_or(1)
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
    let mut writer = Writer::new(schedule.target).fused(schedule.fused);
    let operands = program.inputs().len() + program.outputs().len();
    let mut parameters: Vec<String> = (0..operands).map(|at| format!(".param .b64 operand{at}")).collect();
    parameters.push(format!(".param .align 8 .b8 meta[{}]", meta.bytes()));
    let mut body = Body::open(&mut writer, program, meta);
    let is_long = program.nodes().len() > SHORT;
    match schedule.access {
        Access::Contiguous { vector, unroll: 1 } if schedule.fused && is_long => body.looped(usize::from(vector)),
        Access::Contiguous { vector, unroll } => body.contiguous(usize::from(vector), usize::from(unroll)),
        Access::Rows(rows) => body.rows(rows),
        Access::Strided { rank, wide } => body.strided(usize::from(rank), wide),
    }
    line!(writer, "ret");
    Ok(Kernel { text: writer.finish(name, &parameters, THREADS), meta })
}

fn check(program: &Program, schedule: &Schedule) -> Result<(), GraphError> {
    let refuse = |reason| Err(GraphError::Schedule { reason });
    let outputs = (1_u32 << program.outputs().len().min(31)) - 1;
    match schedule.access {
        Access::Contiguous { vector, .. } | Access::Rows(Rows { vector, .. })
            if !vector.is_power_of_two() || vector > widest_vector(program) =>
        {
            refuse("the vectors are wider than 16 bytes, or no power of two")
        }
        Access::Contiguous { unroll: 0, .. } | Access::Rows(Rows { unroll: 0, .. }) => {
            refuse("a thread has no element")
        }
        Access::Strided { rank: 0, .. } => refuse("there is no dimension"),
        Access::Rows(Rows { along, rank, .. }) if along >= rank => refuse("the vectors lie along no dimension"),
        Access::Rows(_) if program.uses_index() => refuse("the program asks for the numbers of elements"),
        Access::Rows(rows) if (rows.repeated | rows.kept) & outputs != 0 => refuse("an output repeats an element"),
        Access::Contiguous { .. } | Access::Rows(_) | Access::Strided { .. } => Ok(()),
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
}
