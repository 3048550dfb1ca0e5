//! How threads share rows, and the numbers that a launch gives.

use crate::graph::GraphError;
use crate::pointwise::Divider;
use crate::ptx::is_long;
use crate::reduce::{Last, Reduction};
use crate::types::Type;

/// The most shared memory that a block has without asking for more.
const SHARED_BYTES: usize = 48 << 10;

/// Registers of 32 bits for what stays of a row that is written out.
const KEPT_REGISTERS: u64 = 32;

/// Nodes of programs, over all elements of a thread, of which a text for a row is written out.
const WRITTEN_OUT: u64 = 2048;

/// Lines of a long text of rows that are loaded again in each pass.
const LONG_SWEEP: usize = 600;

/// Which way the threads of a block lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Neighbouring threads have neighbouring elements of a row; vectors lie along the row.
    Inner,
    /// Neighbouring threads have neighbouring rows; vectors go over several rows.
    Outer,
}

/// How a kernel goes through rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// Which way the threads of a block lie.
    pub order: Order,
    /// Threads of a block: a multiple of 32, at most 1024.
    pub threads: u16,
    /// Threads that share a row: a power of two, at most `threads`.
    pub lanes: u16,
    /// Elements that a thread loads at once: a power of two, at most 16 bytes of each operand.
    pub vector: u8,
    /// Vectors of a thread that are under way together.
    pub unroll: u8,
    /// Vectors of a thread that stay in registers or shared memory over all passes; the row has no more for each thread. Zero where the
    /// elements are loaded again in each pass.
    pub resident: u8,
    /// Dimensions that tell the row, at least one.
    pub kept: u8,
    /// Dimensions that tell the element of a row, at least one.
    pub reduced: u8,
    /// Whether row numbers, places or strides may pass 2^31 - 1.
    pub wide: bool,
    /// Inputs that have one element for a whole row, as bits from the first input on.
    pub repeated: u32,
    /// Compute capability that the text is for, as 10 * major + minor.
    pub target: u32,
    /// Whether the programs were fused of several: roundings between them are cheaper, and long texts are shorter, since
    /// vectors that stay over all passes are gone through in a loop.
    pub fused: bool,
    /// Lanes of a row that each thread stands for, where the text has every element of a thread in registers and no loop
    /// ([`Self::for_fused`]): the block has so many times fewer threads, and the order of combination stays. Zero elsewhere.
    pub folded: u8,
}

impl Schedule {
    /// The same schedule for devices of another compute capability.
    #[must_use]
    pub fn for_target(self, target: u32) -> Self {
        Self { target, ..self }
    }

    /// The same schedule for programs that were fused of several. Where a row fills more lanes than a warp has, and the
    /// text is not too long for it, the row is written out, and each block has one.
    ///
    /// A lane adds up few elements and then does what all do: combining, addresses, the values of the row. A thread that
    /// stands for two lanes does that once, and what several passes make of an element stays in a register.
    #[must_use]
    pub fn for_fused(self, reduction: &Reduction, extent: u64) -> Self {
        let filled = u64::from(self.lanes) * u64::from(self.vector) * u64::from(self.resident);
        let fused = Self { fused: true, ..self };
        let alone = Self { threads: self.lanes, ..fused };
        if !alone.has_row_of_vectors(reduction) || extent != filled {
            return fused;
        }
        let elements = u64::from(self.vector) * u64::from(self.resident);
        let kept = (0..reduction.inputs().len()).filter(|&input| self.staged_vector(reduction, input) > 0);
        let registers = kept.map(|input| reduction.inputs()[input].bytes().div_ceil(4) as u64).sum::<u64>();
        let is_short = |lanes: u64| {
            elements * lanes * registers <= KEPT_REGISTERS && elements * lanes * reduction.nodes() <= WRITTEN_OUT
        };
        let folded = [2, 1].into_iter().find(|&lanes| is_short(lanes.into()));
        folded.map_or(fused, |folded| Self { folded, ..alone })
    }

    /// The same schedule for a text that is shorter, and whose kernel is slower: loops where this one's is written out.
    /// Results are the same to the bit. A block has [`Self::block`] threads, which may be more.
    #[must_use]
    pub fn shortened(self) -> Self {
        Self { folded: 0, unroll: 1, ..self }
    }

    /// Whether a text of this schedule is so long that its kernel is better begun with that of [`Self::shortened`]. Code that
    /// is made later has more registers in rows that stay, so those gain by it where they are longer still.
    #[must_use]
    pub fn is_long(&self, text: &str) -> bool {
        if self.resident > 0 { is_long(text) } else { text.lines().nth(LONG_SWEEP).is_some() }
    }

    /// Whether a block has one row, of vectors that stay.
    fn has_row_of_vectors(&self, reduction: &Reduction) -> bool {
        let is_row = matches!(reduction.last(), Last::Each(_)) && self.order == Order::Inner && self.reduced == 1;
        let has_block = self.lanes == self.threads && self.lanes > 32;
        self.fused && is_row && has_block && self.vector > 1 && self.resident > 0
    }

    /// Threads of a block as it is launched.
    #[must_use]
    pub fn block(&self) -> u16 {
        self.threads / u16::from(self.folded.max(1))
    }

    /// Neighbouring threads that stand for the lanes of a warp, or for all lanes of a shorter row.
    pub(super) fn group(&self) -> u32 {
        u32::from(self.lanes.min(32)) / u32::from(self.folded.max(1))
    }

    /// Rows that a block works on.
    #[must_use]
    pub fn rows_of_block(&self) -> u64 {
        let slots = u64::from(self.threads / self.lanes.max(1));
        match self.order {
            Order::Inner => slots,
            Order::Outer => slots * u64::from(self.vector),
        }
    }

    /// Elements of a row between two that one thread takes after each other, vectors counted whole.
    pub(super) fn step(&self) -> u64 {
        match self.order {
            Order::Inner => u64::from(self.lanes) * u64::from(self.vector),
            Order::Outer => u64::from(self.lanes),
        }
    }

    pub(super) fn check(&self, reduction: &Reduction) -> Result<(), GraphError> {
        let refuse = |reason| Err(GraphError::Schedule { reason });
        // What repeats along a row is read once, and not by vectors.
        let read = reduction.inputs().iter().enumerate().filter(|(at, _)| self.repeated >> at & 1 == 0);
        let read = read.map(|(_, &ty)| ty);
        let widest = match reduction.last() {
            Last::Each(_) | Last::Running => read.chain(reduction.output_types()).map(Type::bytes).max(),
            Last::Row => read.map(Type::bytes).max(),
        };
        let running = *reduction.last() == Last::Running;
        match self {
            _ if !self.lanes.is_power_of_two() || self.lanes > self.threads => refuse("the lanes are no power of two"),
            _ if !self.threads.is_multiple_of(32) || self.threads > 1024 || self.threads == 0 => {
                refuse("the block is no warps")
            }
            _ if !self.threads.is_multiple_of(self.lanes) => refuse("the lanes do not fill the block"),
            _ if self.unroll == 0 || self.kept == 0 || self.reduced == 0 => refuse("there is no dimension or element"),
            _ if !self.vector.is_power_of_two() || widest.unwrap_or(1) * usize::from(self.vector) > 16 => {
                refuse("the vectors are wider than 16 bytes, or no power of two")
            }
            _ if running && self.resident > 0 => refuse("a scan keeps nothing in registers"),
            _ if running && self.order == Order::Outer && (self.lanes, self.vector) != (1, 1) => {
                refuse("a scan over neighbouring rows has one lane")
            }
            _ if running && self.order == Order::Inner && self.lanes == 1 => {
                refuse("a scan along rows has several lanes")
            }
            _ if self.repeated != 0 && self.order == Order::Outer && self.vector > 1 => {
                refuse("vectors over rows have no repeated inputs")
            }
            _ if self.folded > 0 && !self.has_row_of_vectors(reduction) => {
                refuse("only rows of vectors, one for each block, are written out")
            }
            _ if self.folded > 2 => refuse("a thread stands for two lanes at most"),
            _ if self.combined_bytes(reduction) > SHARED_BYTES => refuse("the accumulators pass the shared memory"),
            _ => Ok(()),
        }
    }

    /// Shared memory of a block.
    pub(super) fn shared_bytes(&self, reduction: &Reduction) -> usize {
        match self.stages(reduction) {
            true => self.staged_from(reduction) + self.staged_bytes(reduction),
            false => self.combined_bytes(reduction),
        }
    }

    /// Whether what stays over all passes is in shared memory rather than in registers: in fused programs, where there
    /// is room. A loop can go through it, as it cannot through registers, so that the text is short.
    pub(super) fn stages(&self, reduction: &Reduction) -> bool {
        let in_loops = self.fused && self.folded == 0 && self.resident > 0;
        in_loops && self.staged_from(reduction) + self.staged_bytes(reduction) <= SHARED_BYTES
    }

    /// Where in the shared memory the vectors that stay begin.
    pub(super) fn staged_from(&self, reduction: &Reduction) -> usize {
        self.combined_bytes(reduction).next_multiple_of(16)
    }

    /// Bytes of a vector of an input that stays, or none where it does not.
    pub(super) fn staged_vector(&self, reduction: &Reduction, input: usize) -> usize {
        match self.repeated >> input & 1 == 0 && reduction.is_accumulated(input) {
            true => reduction.inputs()[input].bytes() * usize::from(self.vector),
            false => 0,
        }
    }

    fn staged_bytes(&self, reduction: &Reduction) -> usize {
        let vectors: usize = (0..reduction.inputs().len()).map(|input| self.staged_vector(reduction, input)).sum();
        vectors * usize::from(self.resident) * usize::from(self.threads)
    }

    /// Shared memory in which threads combine their accumulators.
    fn combined_bytes(&self, reduction: &Reduction) -> usize {
        let accumulators = reduction.passes().iter().map(|pass| pass.identity.len()).max().unwrap_or(0);
        let each = match self.order {
            Order::Inner if self.lanes <= 32 => 0,
            Order::Inner => usize::from(self.threads) / 32,
            Order::Outer if self.lanes == 1 => 0,
            Order::Outer => usize::from(self.threads) * usize::from(self.vector),
        };
        accumulators * each * 8
    }
}

/// Where the numbers of a kernel's last parameter are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    scalars: usize,
    outputs: usize,
    inputs: usize,
    kept: usize,
    reduced: usize,
    wide: bool,
}

/// The numbers of a launch.
#[derive(Clone, Debug)]
pub struct Numbers<'a> {
    /// How many rows there are.
    pub rows: u64,
    /// How many elements a row has.
    pub extent: u64,
    /// How many of them a block takes, where rows are split up over the second dimension of the grid.
    pub part: u64,
    /// The bits of the scalars.
    pub scalars: &'a [u64],
    /// Sizes of the dimensions that tell the row, the fastest one first.
    pub kept: &'a [u64],
    /// Sizes of the dimensions that tell the element, the fastest one first.
    pub reduced: &'a [u64],
    /// Of each operand, outputs first: the strides in bytes over the first dimensions, then over the second ones, then
    /// over the parts of a row.
    pub strides: &'a [Vec<i64>],
}

impl Meta {
    /// The layout for a reduction and a schedule.
    #[must_use]
    pub fn of(reduction: &Reduction, schedule: &Schedule) -> Self {
        Self {
            scalars: reduction.scalars().len(),
            outputs: reduction.output_types().len(),
            inputs: reduction.inputs().len(),
            kept: usize::from(schedule.kept),
            reduced: usize::from(schedule.reduced),
            wide: schedule.wide,
        }
    }

    /// Bytes in all, a multiple of eight.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.stride(self.outputs + self.inputs, 0)
    }

    pub(super) const ROWS: usize = 0;
    pub(super) const EXTENT: usize = 8;
    pub(super) const PART: usize = 16;

    pub(super) const fn scalar(&self, at: usize) -> usize {
        24 + 8 * at
    }

    /// Where the size of a dimension is: first those that tell the row, then those that tell the element. The eight
    /// bytes after it have its divider.
    pub(super) const fn size(&self, dim: usize) -> usize {
        24 + 8 * self.scalars + 16 * dim
    }

    /// Where the stride of an operand over a dimension is, or, past the last dimension, over the parts.
    pub(super) const fn stride(&self, operand: usize, dim: usize) -> usize {
        self.size(self.kept + self.reduced) + 8 * (operand * (self.kept + self.reduced + 1) + dim)
    }

    /// The block of numbers.
    #[must_use]
    pub fn write(&self, numbers: &Numbers<'_>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes());
        for number in [numbers.rows, numbers.extent, numbers.part].iter().chain(numbers.scalars) {
            bytes.extend(number.to_le_bytes());
        }
        for &size in numbers.kept.iter().chain(numbers.reduced) {
            let divider = if self.wide { 0 } else { Divider::new(size).bits() };
            bytes.extend(size.to_le_bytes());
            bytes.extend(divider.to_le_bytes());
        }
        bytes.extend(numbers.strides.iter().flatten().flat_map(|stride| stride.to_le_bytes()));
        bytes
    }
}
