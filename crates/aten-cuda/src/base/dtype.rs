//! Types of a tensor's elements.

use std::fmt;

use half::{bf16, f16};
use kernel_ir::{Kind, Type};
use num_complex::{Complex32, Complex64};

/// The type of a tensor's elements (`torch.dtype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// Unsigned integers of 8 bits (`torch.uint8`).
    U8,
    /// Signed integers of 8 bits (`torch.int8`).
    I8,
    /// Signed integers of 16 bits (`torch.int16`).
    I16,
    /// Signed integers of 32 bits (`torch.int32`).
    I32,
    /// Signed integers of 64 bits (`torch.int64`).
    I64,
    /// IEEE floats of 16 bits (`torch.float16`).
    F16,
    /// Floats of 16 bits with the exponent of `f32` (`torch.bfloat16`).
    BF16,
    /// Floats of 32 bits (`torch.float32`).
    F32,
    /// Floats of 64 bits (`torch.float64`).
    F64,
    /// Pairs of 16-bit floats (`torch.complex32`).
    C32,
    /// Pairs of 32-bit floats (`torch.complex64`).
    C64,
    /// Pairs of 64-bit floats (`torch.complex128`).
    C128,
    /// Booleans of one byte (`torch.bool`).
    Bool,
    /// Floats of 8 bits with 4 bits of exponent and no infinity (`torch.float8_e4m3fn`).
    F8E4M3FN,
    /// Floats of 8 bits with 5 bits of exponent (`torch.float8_e5m2`).
    F8E5M2,
}

/// How dtypes rank in promotion: a higher category wins, whatever the widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Category {
    Bool,
    Integral,
    Floating,
    Complex,
}

impl DType {
    /// Every dtype.
    pub const ALL: [Self; 15] = [
        Self::U8,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::C32,
        Self::C64,
        Self::C128,
        Self::Bool,
        Self::F8E4M3FN,
        Self::F8E5M2,
    ];

    /// Bytes of an element (`torch.dtype.itemsize`).
    #[must_use]
    pub const fn itemsize(self) -> usize {
        self.part().bytes() * self.parts()
    }

    /// Whether it is a float (`torch.dtype.is_floating_point`); complex numbers are not.
    #[must_use]
    pub const fn is_floating_point(self) -> bool {
        matches!(self.category(), Category::Floating)
    }

    /// Whether it is a float of 8 bits. Of these there are copies, fills and scaled products, and no arithmetic.
    #[must_use]
    pub const fn is_float8(self) -> bool {
        matches!(self, Self::F8E4M3FN | Self::F8E5M2)
    }

    /// Whether it is complex (`torch.dtype.is_complex`).
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(self.category(), Category::Complex)
    }

    /// Whether it is an integer; booleans are not.
    #[must_use]
    pub const fn is_integral(self) -> bool {
        matches!(self.category(), Category::Integral)
    }

    /// Whether it is an integer with a sign, a float or complex (`torch.dtype.is_signed`).
    #[must_use]
    pub const fn is_signed(self) -> bool {
        !matches!(self, Self::Bool | Self::U8)
    }

    /// The name that torch has: `torch.float32`.
    #[must_use]
    pub const fn torch_name(self) -> &'static str {
        match self {
            Self::U8 => "torch.uint8",
            Self::I8 => "torch.int8",
            Self::I16 => "torch.int16",
            Self::I32 => "torch.int32",
            Self::I64 => "torch.int64",
            Self::F16 => "torch.float16",
            Self::BF16 => "torch.bfloat16",
            Self::F32 => "torch.float32",
            Self::F64 => "torch.float64",
            Self::C32 => "torch.complex32",
            Self::C64 => "torch.complex64",
            Self::C128 => "torch.complex128",
            Self::Bool => "torch.bool",
            Self::F8E4M3FN => "torch.float8_e4m3fn",
            Self::F8E5M2 => "torch.float8_e5m2",
        }
    }

    /// The name in torch's error messages: `Float`, `Long`, `c10::Half` where a message writes the C++ type.
    #[must_use]
    pub(crate) const fn scalar_type_name(self) -> &'static str {
        match self {
            Self::U8 => "Byte",
            Self::I8 => "Char",
            Self::I16 => "Short",
            Self::I32 => "Int",
            Self::I64 => "Long",
            Self::F16 => "Half",
            Self::BF16 => "BFloat16",
            Self::F32 => "Float",
            Self::F64 => "Double",
            Self::C32 => "ComplexHalf",
            Self::C64 => "ComplexFloat",
            Self::C128 => "ComplexDouble",
            Self::Bool => "Bool",
            Self::F8E4M3FN => "Float8_e4m3fn",
            Self::F8E5M2 => "Float8_e5m2",
        }
    }

    /// The C++ type that some of torch's messages write.
    #[must_use]
    pub(crate) const fn cpp_name(self) -> &'static str {
        match self {
            Self::U8 => "unsigned char",
            Self::I8 => "signed char",
            Self::I16 => "short",
            Self::I32 => "int",
            Self::I64 => "long",
            Self::F16 => "c10::Half",
            Self::BF16 => "c10::BFloat16",
            Self::F32 => "float",
            Self::F64 => "double",
            Self::C32 => "c10::complex<c10::Half>",
            Self::C64 => "c10::complex<float>",
            Self::C128 => "c10::complex<double>",
            Self::Bool => "bool",
            Self::F8E4M3FN => "c10::Float8_e4m3fn",
            Self::F8E5M2 => "c10::Float8_e5m2",
        }
    }

    /// The C++ type of an element in messages of torch that print a `TypeMeta`.
    #[must_use]
    pub(crate) const fn meta_name(self) -> &'static str {
        match self {
            Self::I16 => "short int",
            Self::I64 => "long int",
            other => other.cpp_name(),
        }
    }

    /// The C++ type that torch's messages about conversions of numbers write.
    #[must_use]
    pub(crate) const fn conversion_name(self) -> &'static str {
        match self {
            Self::U8 => "uint8_t",
            Self::I8 => "int8_t",
            Self::I16 => "int16_t",
            Self::I64 => "int64_t",
            other => other.cpp_name(),
        }
    }

    /// The type of an element, or of one half of a complex one, in kernels.
    #[must_use]
    pub(crate) const fn part(self) -> Type {
        match self {
            Self::U8 => Type::U8,
            Self::I8 => Type::I8,
            Self::I16 => Type::I16,
            Self::I32 => Type::I32,
            Self::I64 => Type::I64,
            Self::F16 | Self::C32 => Type::F16,
            Self::BF16 => Type::BF16,
            Self::F32 | Self::C64 => Type::F32,
            Self::F64 | Self::C128 => Type::F64,
            Self::Bool => Type::Bool,
            Self::F8E4M3FN => Type::F8E4M3,
            Self::F8E5M2 => Type::F8E5M2,
        }
    }

    /// How many [`Self::part`]s an element has: two for complex numbers.
    #[must_use]
    pub(crate) const fn parts(self) -> usize {
        if self.is_complex() { 2 } else { 1 }
    }

    pub(crate) const fn category(self) -> Category {
        match self {
            Self::Bool => Category::Bool,
            Self::U8 | Self::I8 | Self::I16 | Self::I32 | Self::I64 => Category::Integral,
            Self::F8E4M3FN | Self::F8E5M2 | Self::F16 | Self::BF16 | Self::F32 | Self::F64 => Category::Floating,
            Self::C32 | Self::C64 | Self::C128 => Category::Complex,
        }
    }

    /// The dtype of one half of a complex number; others stay as they are (`c10::toRealValueType`).
    #[must_use]
    pub const fn to_real(self) -> Self {
        match self {
            Self::C32 => Self::F16,
            Self::C64 => Self::F32,
            Self::C128 => Self::F64,
            other => other,
        }
    }

    /// The complex dtype of pairs of this one; pairs of `bf16` are kept as pairs of `f32` (`c10::toComplexType`).
    #[must_use]
    pub const fn to_complex(self) -> Self {
        match self {
            Self::F16 | Self::C32 => Self::C32,
            Self::F64 | Self::C128 => Self::C128,
            _ => Self::C64,
        }
    }

    /// The type that a kernel computes in: `f32` for floats of 8 and 16 bits (`at::opmath_type`).
    #[must_use]
    pub(crate) const fn compute_type(self) -> Type {
        match self.part().kind() {
            Kind::Short => Type::F32,
            _ => self.part(),
        }
    }
}

impl DType {
    /// Returns the dtype that kernels compute in (`at::opmath_type`): `f32` for floats of 8 and 16 bits, complex `f32`
    /// for complex `f16`.
    #[must_use]
    pub(crate) const fn computed(self) -> Self {
        match self {
            Self::F16 | Self::BF16 | Self::F8E4M3FN | Self::F8E5M2 => Self::F32,
            Self::C32 => Self::C64,
            other => other,
        }
    }
}

impl fmt::Display for DType {
    /// As torch writes it: `torch.float32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.torch_name())
    }
}

/// A Rust type whose values are a tensor's elements.
pub trait Element: bytemuck::Pod + sealed::Sealed {
    /// The dtype.
    const DTYPE: DType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident,)*) => {
        $(
            impl sealed::Sealed for $rust {}
            impl Element for $rust {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}

elements! {
    u8 => U8,
    i8 => I8,
    i16 => I16,
    i32 => I32,
    i64 => I64,
    f16 => F16,
    bf16 => BF16,
    f32 => F32,
    f64 => F64,
    Complex32 => C64,
    Complex64 => C128,
}
