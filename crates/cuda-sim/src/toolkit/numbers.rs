//! Numbers of matrices: from bytes to what is computed with, and back.
//!
//! Every type is read exactly, as a pair of `f64`. What is written is rounded to the nearest, halves to even; 8-bit floats
//! stay at their largest finite value where cuBLAS lets them, which is always. Sums are made in the precision that was
//! asked for, one product after the other.

use cuda_sys::cublas::types::cudaDataType_t;

use cudaDataType_t as Type;

/// Bytes of a number; none for types that are not simulated.
pub(crate) fn bytes_of(ty: Type) -> Option<u64> {
    Some(match ty {
        Type::CUDA_R_8I | Type::CUDA_R_8F_E4M3 | Type::CUDA_R_8F_E5M2 => 1,
        Type::CUDA_R_16F | Type::CUDA_R_16BF => 2,
        Type::CUDA_R_32F | Type::CUDA_R_32I => 4,
        Type::CUDA_R_64F | Type::CUDA_C_32F => 8,
        Type::CUDA_C_64F => 16,
        _ => return None,
    })
}

/// Whether numbers have an imaginary part.
pub(crate) fn is_complex(ty: Type) -> bool {
    matches!(ty, Type::CUDA_C_32F | Type::CUDA_C_64F)
}

/// What numbers of a matrix are rounded to before they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To nothing.
    Exact,
    /// To 10 bits behind the point, halves away from zero.
    Tf32,
    /// To half precision.
    F16,
    /// To bfloat16.
    Bf16,
}

impl Rounding {
    #[expect(clippy::cast_possible_truncation, reason = "rounds on purpose")]
    pub(crate) fn round(self, value: f64) -> f64 {
        match self {
            Self::Exact => value,
            Self::Tf32 => {
                let bits = (value as f32).to_bits();
                let finite = bits & 0x7f80_0000 != 0x7f80_0000;
                f64::from(f32::from_bits(if finite { bits.wrapping_add(0x1000) & !0x1fff } else { bits }))
            }
            Self::F16 => of_small(to_small(value, HALF), HALF),
            Self::Bf16 => of_small(to_small(value, BFLOAT), BFLOAT),
        }
    }
}

/// Reads numbers.
pub(crate) fn decode(ty: Type, bytes: &[u8]) -> Vec<[f64; 2]> {
    let real =
        |size: usize, read: &dyn Fn(&[u8]) -> f64| bytes.chunks_exact(size).map(|one| [read(one), 0.0]).collect();
    match ty {
        Type::CUDA_R_8I => real(1, &|one| f64::from(one[0].cast_signed())),
        Type::CUDA_R_8F_E4M3 => real(1, &|one| of_small(u32::from(one[0]), E4M3)),
        Type::CUDA_R_8F_E5M2 => real(1, &|one| of_small(u32::from(one[0]), E5M2)),
        Type::CUDA_R_16F => real(2, &|one| of_small(u32::from(u16::from_le_bytes(array(one))), HALF)),
        Type::CUDA_R_16BF => real(2, &|one| of_small(u32::from(u16::from_le_bytes(array(one))), BFLOAT)),
        Type::CUDA_R_32F => real(4, &single),
        Type::CUDA_R_32I => real(4, &|one| f64::from(i32::from_le_bytes(array(one)))),
        Type::CUDA_C_32F => bytes.chunks_exact(8).map(|one| [single(&one[..4]), single(&one[4..])]).collect(),
        Type::CUDA_C_64F => bytes.chunks_exact(16).map(|one| [double(&one[..8]), double(&one[8..])]).collect(),
        _ => real(8, &double),
    }
}

/// Writes numbers.
#[expect(clippy::cast_possible_truncation, reason = "rounds on purpose, and small floats have few bits")]
pub(crate) fn encode(ty: Type, values: &[[f64; 2]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &[real, imaginary] in values {
        match ty {
            Type::CUDA_R_8I => bytes.push((real.round_ties_even() as i8).cast_unsigned()),
            Type::CUDA_R_8F_E4M3 => bytes.push(to_small(real, E4M3) as u8),
            Type::CUDA_R_8F_E5M2 => bytes.push(to_small(real, E5M2) as u8),
            Type::CUDA_R_16F => bytes.extend((to_small(real, HALF) as u16).to_le_bytes()),
            Type::CUDA_R_16BF => bytes.extend((to_small(real, BFLOAT) as u16).to_le_bytes()),
            Type::CUDA_R_32F => bytes.extend((real as f32).to_le_bytes()),
            Type::CUDA_R_32I => bytes.extend((real.round_ties_even() as i32).to_le_bytes()),
            Type::CUDA_C_32F => {
                bytes.extend((real as f32).to_le_bytes());
                bytes.extend((imaginary as f32).to_le_bytes());
            }
            Type::CUDA_C_64F => {
                bytes.extend(real.to_le_bytes());
                bytes.extend(imaginary.to_le_bytes());
            }
            _ => bytes.extend(real.to_le_bytes()),
        }
    }
    bytes
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|index| bytes[index])
}

fn single(bytes: &[u8]) -> f64 {
    f64::from(f32::from_le_bytes(array(bytes)))
}

fn double(bytes: &[u8]) -> f64 {
    f64::from_le_bytes(array(bytes))
}

/// A float of at most 16 bits.
#[derive(Clone, Copy)]
struct Small {
    exponent_bits: u32,
    fraction_bits: u32,
    /// Whether the largest exponent means infinity and NaN; else only all bits set is a NaN.
    has_infinity: bool,
    /// Whether what is too large becomes the largest finite number.
    saturates: bool,
}

const HALF: Small = Small { exponent_bits: 5, fraction_bits: 10, has_infinity: true, saturates: false };
const BFLOAT: Small = Small { exponent_bits: 8, fraction_bits: 7, has_infinity: true, saturates: false };
const E4M3: Small = Small { exponent_bits: 4, fraction_bits: 3, has_infinity: false, saturates: true };
const E5M2: Small = Small { exponent_bits: 5, fraction_bits: 2, has_infinity: true, saturates: true };

impl Small {
    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Bits of the largest finite number.
    fn largest(self) -> u32 {
        let all = (1 << (self.exponent_bits + self.fraction_bits)) - 1;
        if self.has_infinity { all - (1 << self.fraction_bits) } else { all - 1 }
    }
}

fn of_small(bits: u32, kind: Small) -> f64 {
    let sign = if bits >> (kind.exponent_bits + kind.fraction_bits) & 1 == 1 { -1.0 } else { 1.0 };
    let magnitude = bits & ((1 << (kind.exponent_bits + kind.fraction_bits)) - 1);
    let (exponent, fraction) = (magnitude >> kind.fraction_bits, magnitude & ((1 << kind.fraction_bits) - 1));
    if magnitude > kind.largest() {
        return if kind.has_infinity && fraction == 0 { sign * f64::INFINITY } else { f64::NAN };
    }
    let unit = 1.0 / f64::from(1_u32 << kind.fraction_bits);
    let power = |exponent: i32| 2.0_f64.powi(exponent);
    let exponent = exponent.cast_signed();
    let part = f64::from(fraction) * unit;
    sign * if exponent == 0 { part * power(1 - kind.bias()) } else { (1.0 + part) * power(exponent - kind.bias()) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of units, which fits")]
fn to_small(value: f64, kind: Small) -> u32 {
    let sign = u32::from(value.is_sign_negative()) << (kind.exponent_bits + kind.fraction_bits);
    // Behind the largest number comes infinity, or the only NaN.
    let infinity = kind.largest() + 1;
    if value.is_nan() {
        let quiet = if kind.has_infinity { infinity | 1 << (kind.fraction_bits - 1) } else { infinity };
        return sign | quiet;
    }
    let size = value.abs();
    // The exponent of the number, or that of the smallest normal one.
    let exponent = (((size.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(1 - kind.bias());
    let unit = 2.0_f64.powi(exponent - kind.fraction_bits.cast_signed());
    let units = (size / unit).round_ties_even();
    if !units.is_finite() || units > 4.0 * f64::from(1_u32 << kind.fraction_bits) {
        return sign | if kind.saturates { kind.largest() } else { infinity };
    }
    // A carry out of the fraction goes into the exponent by itself; below the normal numbers the exponent is 0.
    let units = units as u32;
    let base = ((exponent + kind.bias() - 1).cast_unsigned()) << kind.fraction_bits;
    let bits = base + units;
    let most = kind.largest();
    sign | if bits > most { if kind.saturates { most } else { infinity } } else { bits }
}

/// What sums are made in.
pub(crate) trait Number: Copy + Send + Sync {
    /// The number of a pair.
    fn of(parts: [f64; 2]) -> Self;
    /// The pair of a number.
    fn parts(self) -> [f64; 2];
    /// A sum with a product.
    fn plus(self, left: Self, right: Self) -> Self;
}

impl Number for f64 {
    fn of([real, _]: [f64; 2]) -> Self {
        real
    }
    fn parts(self) -> [f64; 2] {
        [self, 0.0]
    }
    #[inline]
    fn plus(self, left: Self, right: Self) -> Self {
        self + left * right
    }
}

impl Number for f32 {
    #[expect(clippy::cast_possible_truncation, reason = "rounds on purpose")]
    fn of([real, _]: [f64; 2]) -> Self {
        real as Self
    }
    fn parts(self) -> [f64; 2] {
        [f64::from(self), 0.0]
    }
    #[inline]
    fn plus(self, left: Self, right: Self) -> Self {
        self + left * right
    }
}

impl Number for i32 {
    #[expect(clippy::cast_possible_truncation, reason = "the number is a whole one of 32 bits")]
    fn of([real, _]: [f64; 2]) -> Self {
        real as Self
    }
    fn parts(self) -> [f64; 2] {
        [f64::from(self), 0.0]
    }
    #[inline]
    fn plus(self, left: Self, right: Self) -> Self {
        self.wrapping_add(left.wrapping_mul(right))
    }
}

/// A number of half precision: every sum is rounded.
#[derive(Clone, Copy)]
pub(crate) struct Half(f64);

impl Number for Half {
    fn of([real, _]: [f64; 2]) -> Self {
        Self(Rounding::F16.round(real))
    }
    fn parts(self) -> [f64; 2] {
        [self.0, 0.0]
    }
    fn plus(self, left: Self, right: Self) -> Self {
        Self(Rounding::F16.round(self.0 + left.0 * right.0))
    }
}

/// A complex number.
#[derive(Clone, Copy)]
pub(crate) struct Complex<T>(T, T);

impl<T: Number + std::ops::Neg<Output = T>> Number for Complex<T> {
    fn of([real, imaginary]: [f64; 2]) -> Self {
        Self(T::of([real, 0.0]), T::of([imaginary, 0.0]))
    }
    fn parts(self) -> [f64; 2] {
        [self.0.parts()[0], self.1.parts()[0]]
    }
    #[inline]
    fn plus(self, left: Self, right: Self) -> Self {
        let real = self.0.plus(left.0, right.0).plus(-left.1, right.1);
        let imaginary = self.1.plus(left.0, right.1).plus(left.1, right.0);
        Self(real, imaginary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_floats_go_there_and_back() {
        for kind in [HALF, BFLOAT, E4M3, E5M2] {
            for bits in 0..=kind.largest() {
                assert_eq!(to_small(of_small(bits, kind), kind), bits);
            }
        }
        assert_eq!(of_small(0x3c00, HALF).to_bits(), 1.0_f64.to_bits());
        assert_eq!(of_small(0x7e, E4M3).to_bits(), 448.0_f64.to_bits());
        assert_eq!(of_small(0x7b, E5M2).to_bits(), 57344.0_f64.to_bits());
        assert!(of_small(0x7f, E4M3).is_nan() && of_small(0x7c01, HALF).is_nan());
    }

    #[test]
    fn rounding_is_to_the_nearest_even_and_ends_as_it_should() {
        assert_eq!(to_small(65519.0, HALF), 0x7bff);
        assert_eq!(to_small(65520.0, HALF), 0x7c00);
        assert_eq!(to_small(1.0e300, HALF), 0x7c00);
        assert_eq!(to_small(1.0e9, E4M3), 0x7e);
        assert_eq!(to_small(f64::NEG_INFINITY, E5M2), 0xfb);
        assert_eq!(to_small(2049.0, HALF), to_small(2048.0, HALF));
        assert_eq!(to_small(2051.0, HALF), to_small(2052.0, HALF));
        assert_eq!(to_small(3.0e-8, HALF), 1);
        assert_eq!(to_small(2.0e-8, HALF), 0);
        assert_eq!(to_small(f64::NAN, E4M3) & 0x7f, 0x7f);
    }

    #[test]
    fn tf32_keeps_ten_bits() {
        assert_eq!(Rounding::Tf32.round(1.0 + 1.0 / 2048.0).to_bits(), (1.0_f64 + 1.0 / 1024.0).to_bits());
        assert_eq!(Rounding::Tf32.round(1.0 + 1.0 / 4096.0).to_bits(), 1.0_f64.to_bits());
        assert!(Rounding::Tf32.round(f64::INFINITY).is_infinite());
    }
}
