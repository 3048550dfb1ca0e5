//! Numbers that stand beside tensors.

use num_complex::Complex64;

use crate::base::dtype::DType;
use crate::base::error::{Result, TensorError};

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

    /// Returns the number as an integer; floats are truncated. Floats out of range and NaN become the lowest integer,
    /// as on x86.
    #[must_use]
    pub const fn to_i64(self) -> i64 {
        match self {
            Self::Bool(value) => value as i64,
            Self::Int(value) => value,
            Self::Float(value) => truncated(value),
            Self::Complex(value) => truncated(value.re),
        }
    }

    /// Checks that a dtype can represent the number, by the rule of `c10::Scalar::to`: integers must be in range, where
    /// `u8` accepts negative ones down to -255; floats must be infinite or within the largest finite value; a real
    /// dtype accepts no imaginary part. Rounding and a lost fraction are allowed, and every number converts to a
    /// boolean.
    ///
    /// # Errors
    /// The dtype does not hold the number.
    pub(crate) fn check_fits(self, dtype: DType) -> Result<()> {
        if self.fits(dtype) { Ok(()) } else { Err(TensorError::Overflow { dtype }.into()) }
    }

    #[expect(clippy::cast_precision_loss, reason = "limits of floats are compared as floats")]
    fn fits(self, dtype: DType) -> bool {
        let real = dtype.to_real();
        match self {
            _ if dtype == DType::Bool => true,
            Self::Bool(_) => true,
            Self::Int(value) => match integer_range(real) {
                // A negative number wraps around if its magnitude fits.
                Some((_, high)) if real == DType::U8 => (-high..=high).contains(&value),
                Some((low, high)) => (low..=high).contains(&value),
                None => float_fits(value as f64, real),
            },
            Self::Float(value) => float_fits(value, real),
            Self::Complex(value) => {
                (dtype.is_complex() || value.im == 0.0) && float_fits(value.re, real) && float_fits(value.im, real)
            }
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

/// Truncates a float to an integer; returns the lowest integer if the value is out of range.
#[expect(clippy::cast_possible_truncation, reason = "floats lose their fraction")]
const fn truncated(value: f64) -> i64 {
    /// Smallest float above the `i64` range, 2^63.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if value < BEYOND && value >= -BEYOND { value as i64 } else { i64::MIN }
}

/// Returns the lowest and the highest value of an integer dtype.
const fn integer_range(dtype: DType) -> Option<(i64, i64)> {
    match dtype {
        DType::U8 => Some((0, u8::MAX as i64)),
        DType::I8 => Some((i8::MIN as i64, i8::MAX as i64)),
        DType::I16 => Some((i16::MIN as i64, i16::MAX as i64)),
        DType::I32 => Some((i32::MIN as i64, i32::MAX as i64)),
        DType::I64 => Some((i64::MIN, i64::MAX)),
        _ => None,
    }
}

/// Whether a real dtype can represent a float, apart from rounding.
#[expect(clippy::cast_precision_loss, reason = "limits are compared as floats, as torch does")]
fn float_fits(value: f64, dtype: DType) -> bool {
    if let Some((low, high)) = integer_range(dtype) {
        return value >= low as f64 && value <= high as f64;
    }
    let (largest, has_infinity) = match dtype {
        DType::F8E4M3FN => (448.0, false),
        DType::F8E5M2 => (57344.0, true),
        DType::F16 => (half::f16::MAX.to_f64(), true),
        DType::BF16 => (half::bf16::MAX.to_f64(), true),
        DType::F32 => (f64::from(f32::MAX), true),
        _ => (f64::MAX, true),
    };
    value.is_nan() || value.abs() <= largest || (value.is_infinite() && has_infinity)
}
