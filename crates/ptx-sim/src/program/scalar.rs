//! Operations of one lane: values in, one value out, nothing else touched.
//!
//! A value is 64 bits, of which the register's size says how many count. `arith` says what each operation makes of values;
//! `exec` does the frequent ones for all lanes at once.

use super::types::{Register, Space, Type};

/// An operation with its operands. Arguments that an operation does not have are [`Register::NONE`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scalar {
    pub(crate) op: ScalarOp,
    /// The type of the operands, and of the result where the operation says nothing else.
    pub(crate) ty: Type,
    pub(crate) modes: Modes,
    pub(crate) to: Register,
    pub(crate) arguments: [Register; 4],
}

/// How floating results are rounded, and what is done with subnormal numbers and with what is out of range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Modes {
    pub(crate) rounding: Rounding,
    /// `.ftz`
    pub(crate) flush: bool,
    /// `.sat`
    pub(crate) saturate: bool,
    /// `.relu`
    pub(crate) relu: bool,
    /// `.NaN` of `min` and `max`.
    pub(crate) propagate_nan: bool,
    /// `.xorsign` of `min` and `max`.
    pub(crate) xor_sign: bool,
    /// `.satfinite` of `cvt`: what is out of range becomes the greatest finite number.
    pub(crate) finite: bool,
}

impl Modes {
    /// To the nearest, and nothing else.
    pub(crate) const PLAIN: Self = Self {
        rounding: Rounding::Nearest,
        flush: false,
        saturate: false,
        relu: false,
        propagate_nan: false,
        xor_sign: false,
        finite: false,
    };
}

/// How a value is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Rounding {
    /// `.rn`, to the nearest, ties to even.
    #[default]
    Nearest,
    /// `.rna`, to the nearest, ties away from zero.
    NearestAway,
    /// `.rz`
    Zero,
    /// `.rm`
    Down,
    /// `.rp`
    Up,
}

/// Which part of a product is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    Low,
    High,
    /// All of it, in twice the bits.
    Wide,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// How two truth values are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// What is done with the values `a`, `b`, `c`, `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ScalarOp {
    Move,
    Add,
    Subtract,
    /// A product: of integers a part, of floating numbers (with `Half::Low`) the rounded one.
    Multiply(Half),
    /// `a * b + c`: of integers by parts, of floating numbers rounded once.
    MultiplyAdd(Half),
    /// Of 24 bits: `mul24` and `mad24`, the lower or the upper 32 of 48 bits.
    Multiply24(Half),
    MultiplyAdd24(Half),
    Divide,
    /// `div.approx`, which gives zero for divisors above 2^126.
    DivideApproximately,
    Remainder,
    Minimum,
    Maximum,
    And,
    Or,
    Xor,
    Not,
    /// 1 for zero, 0 for others.
    LogicalNot,
    ShiftLeft,
    ShiftRight,
    Negate,
    Absolute,
    SquareRoot,
    Reciprocal,
    ReciprocalRoot,
    /// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: of the upper 32 bits, the lower ones of the result are 0.
    ReciprocalOfUpper,
    ReciprocalRootOfUpper,
    PowerOfTwo,
    LogarithmOfTwo,
    Sine,
    Cosine,
    HyperbolicTangent,
    /// The sign of `a` on `b`.
    CopySign,
    CountBits,
    LeadingZeros,
    ReverseBits,
    /// The highest bit that is not the sign; as a distance from bit 31 or 63 where asked for.
    FindHighest {
        as_shift: bool,
    },
    /// The n-th set bit (`fns`): mask, base, offset.
    FindNth,
    /// Bits of `a` from `b`, as many as `c`.
    ExtractBits,
    /// `a` put into `b` from `c`, as many bits as `d`.
    InsertBits,
    /// `b` ones from bit `a`.
    BitMask {
        wrap: bool,
    },
    /// Sign or zero extension of `a` from bit `b`.
    ExtendFrom {
        wrap: bool,
    },
    Permute(PermuteMode),
    /// The table of a function of three bits.
    Lookup3(u8),
    /// Of `b` and `a` side by side, by `c`.
    FunnelShift {
        left: bool,
        wrap: bool,
    },
    /// `|a - b| + c`
    AbsoluteDifference,
    /// `vabsdiff4`: the distance of each two bytes, or their sum plus `c`. `a` and `b` signed or not.
    DistanceBytes {
        a_signed: bool,
        b_signed: bool,
        sum: bool,
    },
    /// `dp4a`: sums of products of bytes, plus `c`. `a` and `b` signed or not.
    DotBytes {
        a_signed: bool,
        b_signed: bool,
    },
    /// `dp2a`: halves of `a` with the lower or upper bytes of `b`.
    DotHalves {
        a_signed: bool,
        b_signed: bool,
        high: bool,
    },
    /// `setp`: a truth value. `c` is combined with it, negated where `negate` says so; without `combine` it is not there.
    /// `invert` gives the second result of `p|q`, the comparison negated before it is combined.
    Compare {
        comparison: Comparison,
        or_unordered: bool,
        combine: Option<(Logic, bool)>,
        invert: bool,
    },
    /// `set`: as `Compare`, and the result is all ones or 1.0 of a type.
    Set {
        comparison: Comparison,
        or_unordered: bool,
        combine: Option<(Logic, bool)>,
        to: Type,
    },
    /// Whether each half compares (`setp` of packed types): the lower, or the upper.
    CompareHalf {
        comparison: Comparison,
        or_unordered: bool,
        combine: Option<(Logic, bool)>,
        upper: bool,
    },
    /// `a` if `c` else `b`.
    Select,
    /// `a` if `c` is not negative else `b`; `c` of this type.
    SelectBySign(Type),
    /// `ty` is the type of the source.
    Convert {
        to: Type,
        to_integer: bool,
    },
    /// Two f32 become a packed pair of this type; `a` the upper one.
    ConvertPair {
        to: Type,
    },
    /// `cvt.pack`: `a` and `b` saturated, before `c`.
    ConvertPack {
        to: Type,
    },
    /// Two numbers become a pair of bytes: of f32 `a` the upper one and `b`, or the halves of `a`.
    ConvertToSmall(SmallFloat),
    /// A pair of bytes becomes a pair of f16.
    ConvertFromSmall(SmallFloat),
    TestNumber(NumberClass),
    /// The carry of `a + b + c`, `c` a truth value.
    CarryOfAdd,
    AddWithCarry,
    /// The borrow of `a - b - c`.
    BorrowOfSubtract,
    SubtractWithBorrow,
    /// The carry of part of `a * b`, plus `c`, plus `d`.
    CarryOfMultiplyAdd(Half),
    MultiplyAddWithCarry(Half),
    /// `a` in the lowest bits, then `b`, `c`, `d`, each of so many bits.
    Pack {
        bits: u8,
    },
    /// So many bits of `a` from this one on.
    Extract {
        from: u8,
        bits: u8,
    },
    /// An address of a space as a generic one, and back.
    ToGeneric(Space),
    FromGeneric(Space),
    /// Whether a generic address is of a space.
    IsOf(Space),
}

/// Modes of `prmt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PermuteMode {
    Index,
    Forward4,
    Backward4,
    Replicate8,
    EdgeLeft,
    EdgeRight,
    Replicate16,
}

/// Classes of `testp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NumberClass {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

/// Floating numbers of eight bits, by the bits of their exponents and fractions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SmallFloat {
    E4M3,
    E5M2,
}
