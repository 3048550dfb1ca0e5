//! Numbers that stand beside tensors.

use num_complex::Complex64;

use crate::base::dtype::DType;

/// A number of no particular width, as Python has them (`c10::Scalar`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A complex number.
    Complex(Complex64),
}

impl Scalar {
    /// The dtype of a tensor made of the number alone.
    #[must_use]
    pub const fn default_dtype(self) -> DType {
        match self {
            Self::Bool(_) => DType::Bool,
            Self::Int(_) => DType::I64,
            Self::Float(_) => DType::F32,
            Self::Complex(_) => DType::C64,
        }
    }

    /// The real part as a float.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the nearest float is meant")]
    pub const fn to_f64(self) -> f64 {
        match self {
            Self::Bool(value) => value as u8 as f64,
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
            Self::Complex(value) => value.re,
        }
    }

    /// The number as an integer, floats towards zero.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "floats lose their fraction")]
    pub const fn to_i64(self) -> i64 {
        match self {
            Self::Bool(value) => value as i64,
            Self::Int(value) => value,
            Self::Float(value) => value as i64,
            Self::Complex(value) => value.re as i64,
        }
    }

    /// The imaginary part.
    #[must_use]
    pub const fn imaginary(self) -> f64 {
        if let Self::Complex(value) = self { value.im } else { 0.0 }
    }

    /// The complex conjugate.
    #[must_use]
    pub fn conj(self) -> Self {
        if let Self::Complex(value) = self { Self::Complex(value.conj()) } else { self }
    }

    /// Whether it is anything but zero.
    #[must_use]
    pub fn is_true(self) -> bool {
        match self {
            Self::Bool(value) => value,
            Self::Int(value) => value != 0,
            Self::Float(value) => value != 0.0,
            Self::Complex(value) => value.re != 0.0 || value.im != 0.0,
        }
    }
}

impl From<bool> for Scalar {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i32> for Scalar {
    fn from(value: i32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<i64> for Scalar {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f32> for Scalar {
    fn from(value: f32) -> Self {
        Self::Float(f64::from(value))
    }
}

impl From<f64> for Scalar {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<Complex64> for Scalar {
    fn from(value: Complex64) -> Self {
        Self::Complex(value)
    }
}
