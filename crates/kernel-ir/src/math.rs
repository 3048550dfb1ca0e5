//! Functions that need more than one instruction.
//!
//! On a GPU they are functions in PTX, written in `kernels/math.cu` and kept compiled in `kernels/math.ptx`; without one
//! they are computed in [`eval`](crate::eval) by the host's libraries.

mod host;
mod text;

pub(crate) use host::{of_f32, of_f64, of_int};
pub(crate) use text::{symbol, write_functions};

use crate::types::Type;

/// A function of one or two floats, or of two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the functions have the names of C's library")]
pub enum Math {
    Exp,
    Exp2,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Rsqrt,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    Erfc,
    Erfinv,
    Lgamma,
    Digamma,
    Pow,
    Atan2,
    Hypot,
    Fmod,
    /// A power of two by the GPU's instruction, with a relative error below 2^-22; zero where the power is below 2^-126.
    /// For results that are rounded to 16 bits.
    Exp2Near,
    /// One over a number by the GPU's instruction, with a relative error below 2^-23; zero where it is below 2^-126.
    RecipNear,
    /// The logarithm to the base of two by the GPU's instruction: with an error below 2^-22, which is relative outside of
    /// 0.5 to 2. For results that are rounded to 16 bits.
    Log2Near,
    /// The greatest common divisor of two integers, by the remainders of their magnitudes as they are given.
    Gcd,
    /// An integer to the power of another one; one over it, cut to an integer, for exponents below zero.
    Powi,
}

impl Math {
    /// Every function.
    pub const ALL: [Self; 34] = [
        Self::Exp,
        Self::Exp2,
        Self::Expm1,
        Self::Log,
        Self::Log2,
        Self::Log10,
        Self::Log1p,
        Self::Rsqrt,
        Self::Sin,
        Self::Cos,
        Self::Tan,
        Self::Asin,
        Self::Acos,
        Self::Atan,
        Self::Sinh,
        Self::Cosh,
        Self::Tanh,
        Self::Asinh,
        Self::Acosh,
        Self::Atanh,
        Self::Erf,
        Self::Erfc,
        Self::Erfinv,
        Self::Lgamma,
        Self::Digamma,
        Self::Pow,
        Self::Atan2,
        Self::Hypot,
        Self::Fmod,
        Self::Exp2Near,
        Self::RecipNear,
        Self::Log2Near,
        Self::Gcd,
        Self::Powi,
    ];

    /// The name, as C's library has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exp => "exp",
            Self::Exp2 => "exp2",
            Self::Expm1 => "expm1",
            Self::Log => "log",
            Self::Log2 => "log2",
            Self::Log10 => "log10",
            Self::Log1p => "log1p",
            Self::Rsqrt => "rsqrt",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Tan => "tan",
            Self::Asin => "asin",
            Self::Acos => "acos",
            Self::Atan => "atan",
            Self::Sinh => "sinh",
            Self::Cosh => "cosh",
            Self::Tanh => "tanh",
            Self::Asinh => "asinh",
            Self::Acosh => "acosh",
            Self::Atanh => "atanh",
            Self::Erf => "erf",
            Self::Erfc => "erfc",
            Self::Erfinv => "erfinv",
            Self::Lgamma => "lgamma",
            Self::Digamma => "digamma",
            Self::Pow => "pow",
            Self::Atan2 => "atan2",
            Self::Hypot => "hypot",
            Self::Fmod => "fmod",
            Self::Exp2Near => "exp2_near",
            Self::RecipNear => "recip_near",
            Self::Log2Near => "log2_near",
            Self::Gcd => "gcd",
            Self::Powi => "powi",
        }
    }

    /// How many arguments it takes: one or two.
    #[must_use]
    pub const fn arity(self) -> usize {
        match self {
            Self::Pow | Self::Atan2 | Self::Hypot | Self::Fmod | Self::Gcd | Self::Powi => 2,
            _ => 1,
        }
    }

    /// The types that it is there for.
    #[must_use]
    pub const fn types(self) -> [Type; 2] {
        match self {
            Self::Gcd | Self::Powi => [Type::I32, Type::I64],
            Self::Exp2Near | Self::RecipNear | Self::Log2Near => [Type::F32, Type::F32],
            _ => [Type::F32, Type::F64],
        }
    }

    /// Whether it is one instruction of a GPU.
    #[must_use]
    pub const fn is_instruction(self) -> bool {
        matches!(self, Self::Exp2Near | Self::RecipNear | Self::Log2Near)
    }

    /// Whether the result is the exact one, rounded: the host and a GPU then have the same.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        matches!(self, Self::Fmod | Self::Gcd | Self::Powi)
    }
}
