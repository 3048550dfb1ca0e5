//! The types of values in a graph, which are also the types of elements in memory.

use std::fmt;

/// The type of a value.
///
/// Arithmetic on floats of 8 and 16 bits does not exist: a program converts them to [`Type::F32`] first, as PyTorch's
/// kernels do. Integers wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// A boolean; one byte in memory, where every byte but zero is true.
    Bool,
    /// An unsigned integer of 8 bits.
    U8,
    /// A signed integer of 8 bits.
    I8,
    /// A signed integer of 16 bits.
    I16,
    /// A signed integer of 32 bits.
    I32,
    /// An unsigned integer of 32 bits.
    U32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 64 bits.
    U64,
    /// A float of 8 bits with 4 bits of exponent, which has no infinity (`e4m3fn`).
    F8E4M3,
    /// A float of 8 bits with 5 bits of exponent (`e5m2`).
    F8E5M2,
    /// A float of 16 bits with 5 bits of exponent (IEEE binary16).
    F16,
    /// A float of 16 bits with 8 bits of exponent.
    BF16,
    /// A float of 32 bits.
    F32,
    /// A float of 64 bits.
    F64,
}

/// What a type is, its width aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Type::Bool`].
    Bool,
    /// An integer.
    Int {
        /// Whether it has a sign.
        signed: bool,
    },
    /// A float of 8 or 16 bits, which is only converted.
    Short,
    /// A float of 32 or 64 bits.
    Float,
}

impl Type {
    /// Every type.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::U8,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
    ];

    /// Bytes of an element in memory.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 | Self::F8E4M3 | Self::F8E5M2 => 1,
            Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Bits of an element in memory.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self.bytes() {
            1 => 8,
            2 => 16,
            4 => 32,
            _ => 64,
        }
    }

    /// What the type is, its width aside.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Bool => Kind::Bool,
            Self::U8 | Self::U32 | Self::U64 => Kind::Int { signed: false },
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => Kind::Int { signed: true },
            Self::F8E4M3 | Self::F8E5M2 | Self::F16 | Self::BF16 => Kind::Short,
            Self::F32 | Self::F64 => Kind::Float,
        }
    }

    /// Whether the type is an integer; booleans are not.
    #[must_use]
    pub const fn is_int(self) -> bool {
        matches!(self.kind(), Kind::Int { .. })
    }

    /// Whether a program computes with the type as a float.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), Kind::Float)
    }

    /// The name of the type, as Rust writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E5M2 => "f8e5m2",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
