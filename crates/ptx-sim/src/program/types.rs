//! Types, registers and addresses.

/// How the bits of a value are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Bits,
    Unsigned,
    Signed,
    /// IEEE 754 of 16, 32 or 64 bits.
    Float,
    /// bfloat16.
    Brain,
    /// An f32 with ten bits of fraction.
    Tf32,
    /// Eight bits, of which four or five are the exponent; factors of products alone have these.
    E4M3,
    E5M2,
    Predicate,
}

/// A type: kind, bits of an element, and whether two of them share a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Type {
    pub(crate) kind: Kind,
    pub(crate) bits: u8,
    pub(crate) packed: bool,
}

impl Type {
    pub(crate) const B32: Self = Self::new(Kind::Bits, 32);
    pub(crate) const B64: Self = Self::new(Kind::Bits, 64);
    pub(crate) const U32: Self = Self::new(Kind::Unsigned, 32);
    pub(crate) const S32: Self = Self::new(Kind::Signed, 32);
    pub(crate) const U64: Self = Self::new(Kind::Unsigned, 64);
    pub(crate) const S64: Self = Self::new(Kind::Signed, 64);
    pub(crate) const F32: Self = Self::new(Kind::Float, 32);
    pub(crate) const F64: Self = Self::new(Kind::Float, 64);
    pub(crate) const PREDICATE: Self = Self::new(Kind::Predicate, 1);

    pub(crate) const fn new(kind: Kind, bits: u8) -> Self {
        Self { kind, bits, packed: false }
    }

    /// Reads `u32`, `f16x2`, `pred` and so on, without the dot.
    pub(crate) fn of(word: &str) -> Option<Self> {
        let (kind, bits, packed) = match word {
            "pred" => (Kind::Predicate, 1, false),
            "f16" => (Kind::Float, 16, false),
            "f16x2" => (Kind::Float, 16, true),
            "f32" => (Kind::Float, 32, false),
            "f64" => (Kind::Float, 64, false),
            "bf16" => (Kind::Brain, 16, false),
            "bf16x2" => (Kind::Brain, 16, true),
            "tf32" => (Kind::Tf32, 32, false),
            "u16x2" => (Kind::Unsigned, 16, true),
            "s16x2" => (Kind::Signed, 16, true),
            _ => {
                let (kind, bits) = match word.split_at_checked(1)? {
                    ("b", bits) => (Kind::Bits, bits),
                    ("u", bits) => (Kind::Unsigned, bits),
                    ("s", bits) => (Kind::Signed, bits),
                    _ => return None,
                };
                (kind, bits.parse().ok().filter(|bits| matches!(bits, 8 | 16 | 32 | 64))?, false)
            }
        };
        Some(Self { kind, bits, packed })
    }

    /// Bits of a register that holds a value.
    pub(crate) const fn register_bits(self) -> u8 {
        if self.packed { self.bits * 2 } else { self.bits }
    }

    /// Bytes in memory.
    pub(crate) const fn bytes(self) -> u64 {
        self.register_bits().div_ceil(8) as u64
    }

    /// Whether it is a floating type of any size.
    pub(crate) const fn is_float(self) -> bool {
        matches!(self.kind, Kind::Float | Kind::Brain | Kind::Tf32)
    }

    pub(crate) const fn is_signed(self) -> bool {
        matches!(self.kind, Kind::Signed)
    }

    /// Whether it is a signed or unsigned number.
    pub(crate) const fn is_integer(self) -> bool {
        matches!(self.kind, Kind::Signed | Kind::Unsigned)
    }
}

/// The lowest bits set.
pub(crate) const fn mask(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// A row of a frame: one value for each lane of a warp. Registers, constants and special registers are rows alike.
///
/// Predicates, rows of up to 32 bits and rows of 64 bits are numbered apart: `bits` tells which numbers `index` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Register {
    pub(crate) index: u16,
    /// 1, 8, 16, 32 or 64.
    pub(crate) bits: u8,
}

impl Register {
    /// What stands in for an argument that an operation does not have: the predicate 0, which every frame keeps false.
    pub(crate) const NONE: Self = Self { index: 0, bits: 1 };
    /// The predicate 1, which every frame keeps true.
    pub(crate) const TRUE: Self = Self { index: 1, bits: 1 };

    pub(crate) const fn is_predicate(self) -> bool {
        self.bits == 1
    }

    pub(crate) const fn is_long(self) -> bool {
        self.bits == 64
    }
}

/// An address: a row of 32 or 64 bits and a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Register,
    pub(crate) offset: i64,
}

/// State spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// Whatever the address says.
    Generic,
    /// Global and constant memory: their addresses are generic ones.
    Global,
    Shared,
    /// A thread's own memory: addresses count from the beginning of its stack.
    Local,
    /// The parameters of a launch: addresses count from their beginning.
    Parameters,
}

/// Where generic addresses of shared memory begin; no device or host has memory there.
pub(crate) const SHARED_WINDOW: u64 = 1 << 56;
/// Where generic addresses of local memory begin.
pub(crate) const LOCAL_WINDOW: u64 = 2 << 56;
/// Where generic addresses of a launch's parameters begin.
pub(crate) const PARAMETER_WINDOW: u64 = 3 << 56;
/// Where addresses of functions begin: each is one further.
pub(crate) const FUNCTION_WINDOW: u64 = 4 << 56;
/// Bytes of a window.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;

/// What a row holds that is filled when a frame is made, rather than by an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Special {
    /// Place in the block, by axis.
    Thread(u8),
    /// Threads of a block.
    BlockSize(u8),
    /// The block's place in the grid.
    Block(u8),
    /// Blocks of the grid.
    GridSize(u8),
    Lane,
    Warp,
    WarpCount,
    WarpSize,
    /// Lanes that are equal, less, less or equal, greater, greater or equal.
    LaneMask(LaneMask),
    /// The multiprocessor that the block runs on.
    Multiprocessor,
    MultiprocessorCount,
    /// Number of the launch.
    GridId,
    /// Bytes of shared memory: all that the block has, and what the launch asked for.
    SharedBytes,
    DynamicSharedBytes,
    /// Where the shared memory begins that the launch asked for.
    DynamicShared,
    /// Address of the module's variables, plus this.
    Variable(u64),
    /// Offset of local memory in the frame, as an address of local memory.
    Local(u32),
    /// Always 0: environment registers, performance counters and what else nothing sets.
    Zero,
}

/// Masks of lanes beside a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LaneMask {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What is read from a clock, at the moment of the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Cycles,
    CyclesHigh,
    Nanoseconds,
    NanosecondsHigh,
}
