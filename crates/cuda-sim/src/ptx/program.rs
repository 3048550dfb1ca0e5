//! What a kernel is once it has been read: parameters, registers and instructions with everything resolved.

use std::sync::Arc;

/// How the bits of a value are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bits,
    Unsigned,
    Signed,
    Float,
    Predicate,
}

/// A type: kind and bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Type {
    pub(crate) kind: Kind,
    pub(crate) bits: u8,
}

impl Type {
    /// Reads `u32`, `f64` and so on, without the dot.
    pub(super) fn of(word: &str) -> Option<Self> {
        let (kind, bits) = match word.split_at_checked(1)? {
            ("p", "red") => return Some(Self { kind: Kind::Predicate, bits: 1 }),
            ("b", bits) => (Kind::Bits, bits),
            ("u", bits) => (Kind::Unsigned, bits),
            ("s", bits) => (Kind::Signed, bits),
            ("f", bits @ ("32" | "64")) => (Kind::Float, bits),
            _ => return None,
        };
        let bits = bits.parse().ok().filter(|bits| matches!(bits, 8 | 16 | 32 | 64))?;
        Some(Self { kind, bits })
    }

    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.bits.div_ceil(8))
    }

    pub(crate) fn mask(self) -> u64 {
        mask(self.bits)
    }

    pub(crate) fn is_float(self) -> bool {
        self.kind == Kind::Float
    }

    pub(crate) fn is_signed(self) -> bool {
        self.kind == Kind::Signed
    }
}

/// The lowest bits set.
pub(crate) fn mask(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// A register: its number in the kernel, and its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) index: usize,
    pub(crate) bits: u8,
}

/// What a thread can ask about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// Its place in the block.
    Thread(usize),
    /// Threads of a block.
    BlockSize(usize),
    /// The block's place in the grid.
    Block(usize),
    /// Blocks of the grid.
    GridSize(usize),
    /// Its place in the warp.
    Lane,
    /// Threads of a warp.
    WarpSize,
    /// The warp's place in the block.
    Warp,
    /// Cycles.
    Clock,
    /// The upper half of the cycles.
    ClockHigh,
    /// Nanoseconds.
    Nanoseconds,
    /// Where the shared memory begins that the launch asked for.
    DynamicShared,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    Register(Register),
    Constant(u64),
    Special(Special),
}

/// A place in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Address {
    pub(crate) base: Source,
    pub(crate) offset: u64,
}

/// Which memory an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Of the device or of the block, as the address says.
    Generic,
    Global,
    Shared,
    Parameters,
}

/// Operations of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply(Half),
    Divide,
    Remainder,
    Least,
    Greatest,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// Operations of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Negate,
    Absolute,
    Not,
    SquareRoot,
    Reciprocal,
    ReciprocalRoot,
    PowerOfTwo,
    LogarithmOfTwo,
    Sine,
    Cosine,
    CountBits,
    LeadingZeros,
    Reverse,
}

/// Which part of a product is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Low,
    High,
    Wide,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Both are numbers.
    Numbers,
    /// One is not a number.
    NotNumbers,
}

/// How a value is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    Zero,
    Down,
    Up,
}

/// What an instruction does with subnormal numbers and with what is out of range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
}

/// What an atomic instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    Binary(Binary),
    Exchange,
    CompareAndSwap,
    Increment,
    Decrement,
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Move {
        to: Register,
        from: Source,
    },
    Unary {
        op: Unary,
        ty: Type,
        modes: Modes,
        to: Register,
        a: Source,
    },
    Binary {
        op: Binary,
        ty: Type,
        modes: Modes,
        to: Register,
        a: Source,
        b: Source,
    },
    /// A product and a sum: of integers by halves, of floating numbers rounded once.
    MultiplyAdd {
        half: Half,
        ty: Type,
        modes: Modes,
        to: Register,
        a: Source,
        b: Source,
        c: Source,
    },
    Compare {
        comparison: Comparison,
        or_unordered: bool,
        ty: Type,
        flush: bool,
        to: Register,
        a: Source,
        b: Source,
        with: Option<(Binary, Source, bool)>,
    },
    Select {
        to: Register,
        a: Source,
        b: Source,
        condition: Source,
    },
    Convert {
        to_type: Type,
        from_type: Type,
        rounding: Rounding,
        to_integer: bool,
        modes: Modes,
        to: Register,
        from: Source,
    },
    Load {
        space: Space,
        ty: Type,
        to: Vec<Register>,
        from: Address,
    },
    Store {
        space: Space,
        ty: Type,
        to: Address,
        from: Vec<Source>,
    },
    Atomic {
        space: Space,
        op: Atomic,
        ty: Type,
        to: Option<Register>,
        at: Address,
        b: Source,
        c: Source,
    },
    /// An address of shared memory as a generic one, or back.
    ConvertAddress {
        to_generic: bool,
        shared: bool,
        to: Register,
        from: Source,
    },
    Branch {
        target: usize,
    },
    /// Sets the condition of a conditional node.
    SetCondition {
        handle: Source,
        value: Source,
    },
    Barrier,
    Exit,
    /// Order that one thread at a time keeps anyway.
    Nothing,
}

/// An instruction, and when it is done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instruction {
    /// Only if this predicate is true (or false, where the second says so).
    pub(crate) guard: Option<(Register, bool)>,
    pub(crate) action: Action,
}

/// A parameter: where it is in the block of parameters, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// A kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    /// Number of registers of a thread.
    pub(crate) registers: usize,
    /// Bytes of shared memory that the kernel names itself.
    pub(crate) shared_bytes: u64,
    /// The most threads that a block may have.
    pub(crate) max_threads: u32,
    pub(crate) code: Arc<[Instruction]>,
}

impl Kernel {
    /// Bytes of all parameters.
    pub(crate) fn parameter_bytes(&self) -> usize {
        self.parameters.last().map_or(0, |last| last.offset + last.size)
    }
}
