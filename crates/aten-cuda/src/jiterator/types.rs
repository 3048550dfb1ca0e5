//! How dtypes are called in kernels' texts, and numbers beside tensors.

use c10_core::Arg;
use num_complex::Complex64;

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::jit_error::JitError;
use crate::base::scalar::Scalar;

/// The type of an element in memory.
pub(super) fn stored(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        DType::F16 => "jiterator::Half",
        DType::BF16 => "jiterator::BFloat16",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::C32 => "jiterator::ComplexHalf",
        DType::C64 => "std::complex<float>",
        DType::C128 => "std::complex<double>",
        DType::Bool => "jiterator::Bool",
        DType::F8E4M3FN | DType::F8E5M2 => return Err(JitError::DType { dtype }.into()),
    })
}

/// The number by which a kernel knows a dtype; torch's `ScalarType`.
pub(super) fn code(dtype: DType) -> u32 {
    match dtype {
        DType::U8 => 0,
        DType::I8 => 1,
        DType::I16 => 2,
        DType::I32 => 3,
        DType::I64 => 4,
        DType::F16 => 5,
        DType::F32 => 6,
        DType::F64 => 7,
        DType::C32 => 8,
        DType::C64 => 9,
        DType::C128 => 10,
        DType::Bool => 11,
        DType::BF16 => 15,
        DType::F8E5M2 => 23,
        DType::F8E4M3FN => 24,
    }
}

/// The type of a number beside the tensors: what Python's numbers become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Extra {
    Bool,
    Int,
    Float,
    Complex,
}

impl Extra {
    pub(super) fn of(number: Scalar) -> Self {
        match number {
            Scalar::Bool(_) => Self::Bool,
            Scalar::Int(_) => Self::Int,
            Scalar::Float(_) => Self::Float,
            Scalar::Complex(_) => Self::Complex,
        }
    }

    /// Its name in a kernel.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int64_t",
            Self::Float => "double",
            Self::Complex => "std::complex<double>",
        }
    }
}

/// A number as a launch takes it.
pub(super) fn argument(number: &Scalar) -> Arg<'_> {
    match number {
        Scalar::Bool(value) => Arg::from(*value),
        Scalar::Int(value) => Arg::I64(*value),
        Scalar::Float(value) => Arg::F64(*value),
        Scalar::Complex(value) => Arg::Plain(bytemuck::bytes_of::<Complex64>(value)),
    }
}
