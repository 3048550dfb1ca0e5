//! The numbers that a launch passes, and where a kernel finds them.

use super::{Access, Rows, Schedule};
use crate::graph::Program;

/// Where the numbers of a kernel's last parameter are, in bytes.
///
/// In this order: the count, the scalars, for each dimension its size and [`Divider`], for each operand its strides, and
/// for [`Access::Rows`] the steps of the operands and three counts of vectors and elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    scalars: usize,
    operands: usize,
    rank: usize,
    access: Access,
}

impl Meta {
    /// The layout for a program and a schedule.
    #[must_use]
    pub fn of(program: &Program, schedule: &Schedule) -> Self {
        let operands = program.inputs().len() + program.outputs().len();
        let access = schedule.access;
        Self { scalars: program.scalars().len(), operands, rank: access.rank(), access }
    }

    /// Bytes in all, a multiple of eight.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self.access {
            Access::Rows(_) => self.cut() + 8,
            Access::Contiguous { .. } | Access::Strided { .. } => self.step(0),
        }
    }

    /// Where the number of elements is, of 64 bits; that of threads for [`Access::Rows`].
    #[must_use]
    pub const fn count(&self) -> usize {
        0
    }

    /// Where a scalar is: its bits in the low bytes of eight.
    #[must_use]
    pub const fn scalar(&self, at: usize) -> usize {
        8 + 8 * at
    }

    /// Where the size of a dimension is, counted from the fastest one: 64 bits. The eight bytes after it have the
    /// [`Divider`] of narrow kernels.
    #[must_use]
    pub const fn size(&self, dim: usize) -> usize {
        8 + 8 * self.scalars + 16 * dim
    }

    /// Where the stride of an operand (outputs first) in a dimension is, in bytes: 64 bits with a sign.
    #[must_use]
    pub const fn stride(&self, operand: usize, dim: usize) -> usize {
        8 + 8 * self.scalars + 16 * self.rank + 8 * (operand * self.rank + dim)
    }

    /// Where the bytes from a vector of a thread to its next one are, for an operand.
    pub(super) const fn step(&self, operand: usize) -> usize {
        self.stride(self.operands, 0) + 8 * operand
    }

    /// Where the number of vectors along the dimension of a thread's vectors is.
    pub(super) const fn along(&self) -> usize {
        self.step(self.operands)
    }

    /// Where the number of whole vectors in a row is.
    pub(super) const fn whole(&self) -> usize {
        self.along() + 8
    }

    /// Where the number of elements after the whole vectors of a row is.
    pub(super) const fn cut(&self) -> usize {
        self.along() + 16
    }

    /// The block of numbers, all at once: elements, the bits of the scalars, the sizes from the fastest dimension on,
    /// and the strides in bytes of each operand in the same order. Contiguous kernels need no sizes and no strides.
    #[must_use]
    pub fn write(&self, count: u64, scalars: &[u64], sizes: &[u64], strides: &[&[i64]]) -> Vec<u8> {
        let mut numbers = Numbers(Vec::with_capacity(self.bytes()));
        match self.access {
            Access::Rows(rows) => numbers.rows(rows, scalars, sizes, strides),
            Access::Contiguous { .. } => numbers.put(std::iter::once(count).chain(scalars.iter().copied())),
            Access::Strided { wide, .. } => {
                numbers.put(std::iter::once(count).chain(scalars.iter().copied()));
                sizes.iter().for_each(|&size| numbers.size(size, !wide));
                numbers.put(strides.iter().copied().flatten().map(|stride| stride.cast_unsigned()));
            }
        }
        numbers.0
    }
}

/// The block while it is written.
struct Numbers(Vec<u8>);

impl Numbers {
    fn put(&mut self, numbers: impl Iterator<Item = u64>) {
        self.0.extend(numbers.flat_map(u64::to_le_bytes));
    }

    fn size(&mut self, size: u64, divided: bool) {
        self.put([size, if divided { Divider::new(size).bits() } else { 0 }].into_iter());
    }

    /// Sizes and strides count vectors in the fastest dimension, and groups of vectors in that of a thread's vectors.
    fn rows(&mut self, rows: Rows, scalars: &[u64], sizes: &[u64], strides: &[&[i64]]) {
        let (vector, along) = (u64::from(rows.vector), usize::from(rows.along));
        let inner = sizes.first().copied().unwrap_or(0);
        self.put(std::iter::once(rows.threads(sizes)).chain(scalars.iter().copied()));
        for dim in 0..sizes.len() {
            let groups = rows.places(sizes, dim);
            self.size(groups, true);
        }
        let of_vectors = |strides: &[i64], dim: usize| strides[dim] * if dim == 0 { i64::from(rows.vector) } else { 1 };
        for strides in strides {
            self.put((0..sizes.len()).map(|dim| of_vectors(strides, dim).cast_unsigned()));
        }
        let groups = rows.places(sizes, along).cast_signed();
        self.put(strides.iter().map(|strides| (of_vectors(strides, along) * groups).cast_unsigned()));
        self.put([rows.vectors(sizes, along), inner / vector, inner % vector].into_iter());
    }
}

/// A divisor below 2^31 as a multiplication: `n / size` is `(mulhi(n, magic) + n) >> shift` for `n` below 2^31.
///
/// The method is Granlund and Montgomery's ("Division by Invariant Integers using Multiplication", 1994).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divider {
    size: u64,
}

impl Divider {
    /// The divider by a size from one to 2^31 - 1.
    #[must_use]
    pub const fn new(size: u64) -> Self {
        Self { size }
    }

    /// The magic number in the low half, the shift in the low byte of the high half.
    #[must_use]
    pub fn bits(self) -> u64 {
        let size = u128::from(self.size.max(1));
        let shift = u32::from(size > 1).wrapping_mul(128 - (size - 1).leading_zeros());
        let magic = ((1_u128 << 32) * ((1_u128 << shift) - size)) / size + 1;
        u64::try_from(magic & 0xffff_ffff).unwrap_or(0) | u64::from(shift) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divider_divides() {
        let sizes = (1..200).chain([1 << 16, (1 << 16) + 1, 1_000_003, (1 << 30) - 1, 1 << 30, (1 << 31) - 1]);
        for size in sizes {
            let bits = Divider::new(size).bits();
            let (magic, shift) = (bits & 0xffff_ffff, bits >> 32);
            for n in [0, 1, size - 1, size, size + 1, 2 * size - 1, 7 * size, (1 << 31) - 1, 123_456_789] {
                let n = n.min((1 << 31) - 1);
                let quotient = (((n * magic) >> 32) + n) >> shift;
                assert_eq!(quotient, n / size, "{n} by {size}");
            }
        }
    }
}
