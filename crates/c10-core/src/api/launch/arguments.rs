//! What a launch takes: its shape and its arguments.

use std::fmt;
use std::ops::{Range, RangeBounds};

use bytemuck::NoUninit;

use crate::api::buffers::{DeviceBuffer, DeviceSlice, within};
use crate::api::launch::Dim3;
use crate::base::error::Result;
use crate::driver::{Value, check_part};
use crate::trace::MemoryUse;

/// The shape of a launch: its grid, its blocks and their shared memory. The default is a single thread.
///
/// ```
/// use c10_core::LaunchConfig;
///
/// let config = LaunchConfig::linear(1000, 256).shared(512);
/// assert_eq!((config.grid, config.block), ([4, 1, 1], [256, 1, 1]));
/// assert_eq!(config.to_string(), "<<<(4, 1, 1), (256, 1, 1), 512>>>");
/// ```
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
    /// A row of blocks of `threads` threads each, with at least one thread for each of `elements`; at least one block.
    #[must_use]
    pub fn linear(elements: u32, threads: u32) -> Self {
        let blocks = elements.div_ceil(threads.max(1)).max(1);
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }

    /// The same shape with this many bytes of shared memory.
    #[must_use]
    pub fn shared(self, bytes: u32) -> Self {
        Self { shared_bytes: bytes, ..self }
    }
}

impl fmt::Display for LaunchConfig {
    /// As CUDA C++ writes a launch: `<<<(2, 1, 1), (256, 1, 1), 0>>>`, with the grid, the block and the shared bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<<<{}, {}, {}>>>", Dim3(self.grid), Dim3(self.block), self.shared_bytes)
    }
}

/// An argument of a kernel. Numbers, buffers, slices and references to plain values turn into it by `into()`.
///
/// ```
/// use c10_core::Arg;
///
/// #[derive(Clone, Copy, bytemuck::NoUninit)]
/// #[repr(C)]
/// struct Box3 {
///     low: [f32; 3],
///     high: [f32; 3],
/// }
///
/// let bounds = Box3 { low: [0.0; 3], high: [1.0; 3] };
/// let arguments: [Arg<'_>; 4] = [7_u8.into(), 2.5_f64.into(), (&[1_i16, 2]).into(), (&bounds).into()];
/// assert_eq!(arguments.map(|argument| argument.size()), [1, 8, 4, 24]);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Arg<'a> {
    /// An unsigned number of 8 bits; booleans are such numbers.
    U8(u8),
    /// A signed number of 8 bits.
    I8(i8),
    /// An unsigned number of 16 bits.
    U16(u16),
    /// A signed number of 16 bits.
    I16(i16),
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
    /// The bytes of a plain value: of a struct, an array or a number of another type.
    Plain(&'a [u8]),
    /// The address of the first byte of a range of a buffer.
    Buffer {
        /// The buffer.
        buffer: &'a DeviceBuffer,
        /// The bytes that the kernel may use.
        range: Range<usize>,
        /// What the kernel does to them.
        access: MemoryAccess,
    },
}

/// What a kernel does to memory that it is given, as whoever launches it declares; [`Runtime::enable_sanitizer`] compares
/// that with what other work does.
///
/// ```
/// use c10_core::MemoryAccess;
///
/// assert_eq!(MemoryAccess::default(), MemoryAccess::Undeclared);
/// assert!(!MemoryAccess::Reads("self").writes() && MemoryAccess::Output.writes());
/// ```
///
/// [`Runtime::enable_sanitizer`]: crate::Runtime::enable_sanitizer
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryAccess {
    /// Nobody says.
    #[default]
    Undeclared,
    /// It reads what this argument names; the name may be empty.
    Reads(&'static str),
    /// It writes what this argument names, and may read it.
    Writes(&'static str),
    /// It writes a result that is no argument of the operation.
    Output,
}

impl MemoryAccess {
    /// Whether it writes.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Writes(_) | Self::Output)
    }

    /// How it is reported, if it is declared.
    pub(crate) fn of_range(self, address: u64, range: &Range<usize>) -> Option<MemoryUse> {
        let argument = match self {
            Self::Undeclared => return None,
            Self::Reads(name) | Self::Writes(name) => name,
            Self::Output => "",
        };
        Some(MemoryUse {
            address: address + range.start as u64,
            size: range.len() as u64,
            argument,
            is_write: self.writes(),
            is_output: self == Self::Output,
            is_on_host: false,
        })
    }
}

impl<'a> Arg<'a> {
    /// A part of a buffer.
    #[must_use]
    pub fn range(buffer: &'a DeviceBuffer, range: impl RangeBounds<usize>) -> Self {
        Self::Buffer { buffer, range: within(&range, buffer.len()), access: MemoryAccess::Undeclared }
    }

    /// The same argument with what the kernel does to its memory; numbers and plain values have none.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{Arg, DeviceBuffer, MemoryAccess};
    ///
    /// let buffer = DeviceBuffer::new(8, None)?;
    /// assert_eq!(Arg::range(&buffer, 4..).accessed(MemoryAccess::Reads("self")).access(), MemoryAccess::Reads("self"));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    #[must_use]
    pub fn accessed(mut self, access: MemoryAccess) -> Self {
        if let Self::Buffer { access: declared, .. } = &mut self {
            *declared = access;
        }
        self
    }

    /// What the kernel does to the argument's memory, as far as that is declared.
    #[must_use]
    pub fn access(&self) -> MemoryAccess {
        if let Self::Buffer { access, .. } = self { *access } else { MemoryAccess::Undeclared }
    }

    /// What of memory is declared to be used.
    pub(crate) fn memory_use(&self) -> Option<MemoryUse> {
        let Self::Buffer { buffer, range, access } = self else { return None };
        access.of_range(buffer.address(), range)
    }

    /// Bytes of the parameter.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::U8(_) | Self::I8(_) => 1,
            Self::U16(_) | Self::I16(_) => 2,
            Self::U32(_) | Self::I32(_) | Self::F32(_) => 4,
            Self::U64(_) | Self::I64(_) | Self::F64(_) | Self::Buffer { .. } => 8,
            Self::Plain(bytes) => bytes.len(),
        }
    }

    pub(crate) fn buffer(&self) -> Option<&'a DeviceBuffer> {
        if let Self::Buffer { buffer, .. } = self { Some(buffer) } else { None }
    }

    /// The parameter's bytes.
    pub(crate) fn value(&self) -> Result<Value<'a>> {
        let word = match *self {
            Self::U8(value) => first(&value.to_ne_bytes()),
            Self::I8(value) => first(&value.to_ne_bytes()),
            Self::U16(value) => first(&value.to_ne_bytes()),
            Self::I16(value) => first(&value.to_ne_bytes()),
            Self::U32(value) => first(&value.to_ne_bytes()),
            Self::I32(value) => first(&value.to_ne_bytes()),
            Self::F32(value) => first(&value.to_ne_bytes()),
            Self::U64(value) => value,
            Self::I64(value) => value.cast_unsigned(),
            Self::F64(value) => value.to_bits(),
            Self::Plain(bytes) => return Ok(Value::Bytes(bytes)),
            Self::Buffer { buffer, ref range, .. } => {
                check_part(range, buffer.len())?;
                buffer.address() + range.start as u64
            }
        };
        Ok(Value::Word(word))
    }
}

impl fmt::Debug for Arg<'_> {
    /// A number with its type (`7_u8`), a plain value by its size, a buffer with its range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(value) => write!(f, "{value}_u8"),
            Self::I8(value) => write!(f, "{value}_i8"),
            Self::U16(value) => write!(f, "{value}_u16"),
            Self::I16(value) => write!(f, "{value}_i16"),
            Self::U32(value) => write!(f, "{value}_u32"),
            Self::I32(value) => write!(f, "{value}_i32"),
            Self::U64(value) => write!(f, "{value}_u64"),
            Self::I64(value) => write!(f, "{value}_i64"),
            Self::F32(value) => write!(f, "{value}_f32"),
            Self::F64(value) => write!(f, "{value}_f64"),
            Self::Plain(bytes) => write!(f, "a value of {} bytes", bytes.len()),
            Self::Buffer { buffer, range, .. } => write!(f, "{range:?} of {buffer:?}"),
        }
    }
}

/// At most 8 bytes as the first ones of a value in memory.
fn first(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
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
from_numbers!(
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64, f32 => F32, f64 => F64,
);

/// A number of 8 bits, 0 or 1, as `bool` of a kernel is.
impl From<bool> for Arg<'_> {
    fn from(value: bool) -> Self {
        Self::U8(value.into())
    }
}

/// 64 bits, as `size_t` of a kernel has.
impl From<usize> for Arg<'_> {
    fn from(value: usize) -> Self {
        Self::U64(value as u64)
    }
}

/// 64 bits, as `ptrdiff_t` of a kernel has.
impl From<isize> for Arg<'_> {
    fn from(value: isize) -> Self {
        Self::I64(value as i64)
    }
}

/// The bytes of a plain value.
impl<'a, T: NoUninit> From<&'a T> for Arg<'a> {
    fn from(value: &'a T) -> Self {
        Self::Plain(bytemuck::bytes_of(value))
    }
}

/// The address of the first element.
impl<'a, T> From<&'a DeviceSlice<T>> for Arg<'a> {
    fn from(slice: &'a DeviceSlice<T>) -> Self {
        Self::range(slice.buffer(), slice.byte_range())
    }
}

impl<'a> From<&'a DeviceBuffer> for Arg<'a> {
    fn from(buffer: &'a DeviceBuffer) -> Self {
        Self::Buffer { buffer, range: 0..buffer.len(), access: MemoryAccess::Undeclared }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_as_kernels_read_them() {
        let word = |argument: Arg<'_>| match argument.value() {
            Ok(Value::Word(word)) => word.to_ne_bytes(),
            other => panic!("{other:?}"),
        };
        assert_eq!(word((-1_i32).into()), [255, 255, 255, 255, 0, 0, 0, 0]);
        assert_eq!(word((-2_i8).into()), [254, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((word((-1_i64).into()), word(true.into())[0]), ([255; 8], 1));
        assert_eq!(word(1.5_f64.into()), 1.5_f64.to_ne_bytes());
        let pair = [1_u16, 2];
        assert!(matches!(Arg::from(&pair).value(), Ok(Value::Bytes(bytes)) if bytes == bytemuck::bytes_of(&pair)));
        assert_eq!([Arg::from(1_u32).size(), Arg::from(1_u64).size(), Arg::from(1_f32).size()], [4, 8, 4]);
    }

    #[test]
    fn rows_of_blocks_cover_all_elements() {
        assert_eq!(LaunchConfig::linear(257, 256).grid, [2, 1, 1]);
        assert_eq!(LaunchConfig::linear(0, 0), LaunchConfig { block: [0, 1, 1], ..LaunchConfig::default() });
    }
}
