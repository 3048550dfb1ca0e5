//! What a launch takes: its shape, and arguments of the types that kernels have.

use std::ops::Range;

use crate::api::buffers::DeviceBuffer;
use crate::base::error::Result;
use crate::driver::check_part;

/// The shape of a launch: one thread unless more are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks, by axis.
    pub grid: [u32; 3],
    /// Threads of a block, by axis.
    pub block: [u32; 3],
    /// Bytes of shared memory of each block, besides those that the kernel declares.
    pub shared_bytes: u32,
}

impl Default for LaunchConfig {
    fn default() -> Self {
        Self { grid: [1; 3], block: [1; 3], shared_bytes: 0 }
    }
}

impl LaunchConfig {
    /// As many blocks of `threads` threads in a row as `elements` take; at least one.
    #[must_use]
    pub fn linear(elements: u32, threads: u32) -> Self {
        let blocks = elements.div_ceil(threads.max(1)).max(1);
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }

    /// The same with so many bytes of shared memory.
    #[must_use]
    pub fn shared(self, bytes: u32) -> Self {
        Self { shared_bytes: bytes, ..self }
    }
}

/// An argument of a kernel. Numbers and buffers turn into it by `into()`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Arg<'a> {
    /// An unsigned number of 32 bits.
    U32(u32),
    /// A signed number of 32 bits.
    I32(i32),
    /// An unsigned number of 64 bits.
    U64(u64),
    /// A signed number of 64 bits.
    I64(i64),
    /// A floating number of 32 bits.
    F32(f32),
    /// A floating number of 64 bits.
    F64(f64),
    /// The address of the first byte of a range of a buffer.
    Buffer {
        /// The buffer.
        buffer: &'a DeviceBuffer,
        /// The bytes that the kernel may use.
        range: Range<usize>,
    },
}

impl<'a> Arg<'a> {
    /// A part of a buffer.
    #[must_use]
    pub fn range(buffer: &'a DeviceBuffer, range: Range<usize>) -> Self {
        Self::Buffer { buffer, range }
    }

    /// Bytes of the parameter.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::U32(_) | Self::I32(_) | Self::F32(_) => 4,
            Self::U64(_) | Self::I64(_) | Self::F64(_) | Self::Buffer { .. } => 8,
        }
    }

    pub(crate) fn buffer(&self) -> Option<&'a DeviceBuffer> {
        match self {
            Self::Buffer { buffer, .. } => Some(buffer),
            Self::U32(_) | Self::I32(_) | Self::U64(_) | Self::I64(_) | Self::F32(_) | Self::F64(_) => None,
        }
    }

    /// The parameter's bytes, the lowest first.
    pub(crate) fn value(&self) -> Result<u64> {
        Ok(match *self {
            Self::U32(value) => low(value.to_ne_bytes()),
            Self::I32(value) => low(value.to_ne_bytes()),
            Self::F32(value) => low(value.to_ne_bytes()),
            Self::U64(value) => value,
            Self::I64(value) => value.cast_unsigned(),
            Self::F64(value) => value.to_bits(),
            Self::Buffer { buffer, ref range } => {
                check_part(range, buffer.len())?;
                buffer.address() + range.start as u64
            }
        })
    }
}

/// Four bytes as the first ones of a value in memory.
fn low([a, b, c, d]: [u8; 4]) -> u64 {
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

macro_rules! from_numbers {
    ($($number:ty => $variant:ident),* $(,)?) => {
        $(impl From<$number> for Arg<'_> {
            fn from(value: $number) -> Self {
                Self::$variant(value)
            }
        })*
    };
}
from_numbers!(u32 => U32, i32 => I32, u64 => U64, i64 => I64, f32 => F32, f64 => F64);

impl<'a> From<&'a DeviceBuffer> for Arg<'a> {
    fn from(buffer: &'a DeviceBuffer) -> Self {
        Self::Buffer { buffer, range: 0..buffer.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_as_kernels_read_them() {
        assert_eq!(Arg::from(-1_i32).value().map(|value| value.to_ne_bytes()[..4] == [0xFF; 4]), Ok(true));
        assert_eq!(Arg::from(-1_i64).value(), Ok(u64::MAX));
        assert_eq!(Arg::from(1.5_f64).value(), Ok(1.5_f64.to_bits()));
        assert_eq!([Arg::from(1_u32).size(), Arg::from(1_u64).size(), Arg::from(1_f32).size()], [4, 8, 4]);
    }

    #[test]
    fn rows_of_blocks_cover_all_elements() {
        assert_eq!(LaunchConfig::linear(257, 256).grid, [2, 1, 1]);
        assert_eq!(LaunchConfig::linear(0, 0), LaunchConfig { block: [0, 1, 1], ..LaunchConfig::default() });
    }
}
