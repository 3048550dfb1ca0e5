//! Device memory as elements of one plain type.
//!
//! **Invariants:** a slice lies inside its buffer and begins at a multiple of the elements' alignment. Offsets, ranges and
//! lengths are in elements; each becomes bytes in one place, [`DeviceSlice::bytes`].

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};

use bytemuck::{NoUninit, Pod};

use crate::api::arg::{DeviceArg, StreamArg};
use crate::api::buffers::{DeviceBuffer, within};
use crate::api::pinned::PinnedBuffer;
use crate::base::device::{Device, DeviceIndex};
use crate::base::error::{BufferError, Error, Result};
use crate::base::handles::StreamRef;
use crate::base::host_memory;
use crate::driver::check_part;
use crate::runtime::Started;

/// Elements of a plain type in device memory.
///
/// This is a handle of a part of a [`DeviceBuffer`]: clones and parts refer to the same memory. Plain types are those
/// that [`bytemuck::Pod`] names: numbers, arrays of them, and structs of one's own that derive it.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::DeviceSlice;
///
/// let numbers = DeviceSlice::from_slice(&[1.0_f32, 2.0, 3.0, 4.0])?;
/// let sum = DeviceSlice::<f32>::zeros(4, None)?;
/// sum.copy_from(0, &numbers, 1.., None)?;
/// sum.fill(3.., 7.5, None)?;
/// assert_eq!(sum.to_vec()?, [2.0, 3.0, 4.0, 7.5]);
/// assert_eq!(numbers.slice(2..)?.to_vec()?, [3.0, 4.0]);
/// # Ok::<(), c10_core::Error>(())
/// ```
pub struct DeviceSlice<T> {
    buffer: DeviceBuffer,
    /// First byte inside the buffer.
    start: usize,
    /// How many elements.
    len: usize,
    element: PhantomData<fn(T) -> T>,
}

impl DeviceBuffer {
    /// Copies plain values into new device memory, on the current runtime and the current device. The copy is done when
    /// the call returns, and every stream sees it.
    ///
    /// # Errors
    /// As for [`Self::new`] and [`Self::copy_from_slice`].
    pub fn from_slice<T: NoUninit>(values: &[T]) -> Result<Self> {
        let bytes = bytemuck::cast_slice(values);
        let buffer = Self::new(bytes.len(), None)?;
        buffer.copy_from_slice(0, bytes)?;
        Ok(buffer)
    }

    /// The memory as elements of a plain type. No copy is made.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::DeviceBuffer;
    ///
    /// let buffer = DeviceBuffer::from_slice(&[1_u16, 2, 3, 4])?;
    /// buffer.elements::<u16>()?.fill(..2, 9, None)?;
    /// assert_eq!(buffer.to_vec_of::<u16>()?, [9, 9, 3, 4]);
    /// assert!(DeviceBuffer::new(7, None)?.elements::<u16>().is_err());
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`BufferError::ElementSize`], [`BufferError::Misaligned`].
    pub fn elements<T: Pod>(&self) -> Result<DeviceSlice<T>> {
        let (bytes, element, align) = (self.len(), DeviceSlice::<T>::SIZE, align_of::<T>());
        if !bytes.is_multiple_of(element) {
            return Err(BufferError::ElementSize { bytes, element }.into());
        }
        let address = self.address();
        if !address.is_multiple_of(align as u64) {
            return Err(BufferError::Misaligned { address, align }.into());
        }
        Ok(DeviceSlice { buffer: self.clone(), start: 0, len: bytes / element, element: PhantomData })
    }

    /// All bytes as elements of a plain type; see [`Self::copy_to_slice`].
    ///
    /// # Errors
    /// As for [`Self::elements`] and [`Self::copy_to_slice`].
    pub fn to_vec_of<T: Pod>(&self) -> Result<Vec<T>> {
        self.elements::<T>()?.to_vec()
    }
}

impl<T: Pod> DeviceSlice<T> {
    /// Bytes of an element; a type without bytes does not compile.
    const SIZE: usize = {
        assert!(size_of::<T>() > 0, "an element has to have bytes");
        size_of::<T>()
    };

    /// Allocates memory for `len` elements on the current runtime, for use on the current stream of `device`. The
    /// memory is not cleared.
    ///
    /// # Errors
    /// [`crate::MemoryError::RequestTooLarge`], else as for [`DeviceBuffer::new`].
    pub fn new(len: usize, device: impl DeviceArg) -> Result<Self> {
        let too_large = || Error::Memory(crate::base::error::MemoryError::RequestTooLarge { requested: u64::MAX });
        let bytes = len.checked_mul(Self::SIZE).ok_or_else(too_large)?;
        DeviceBuffer::new(bytes, device)?.elements()
    }

    /// As [`Self::new`], and sets all bytes to 0 on the current stream of `device`.
    ///
    /// # Errors
    /// As for [`Self::new`], or the driver's error.
    pub fn zeros(len: usize, device: impl DeviceArg) -> Result<Self> {
        let zeros = Self::new(len, device)?;
        zeros.buffer.fill(.., 0, None)?;
        Ok(zeros)
    }

    /// Copies these elements into new device memory, on the current runtime and the current device. The copy is done
    /// when the call returns, and every stream sees it.
    ///
    /// # Errors
    /// As for [`DeviceBuffer::from_slice`].
    pub fn from_slice(values: &[T]) -> Result<Self> {
        Self::from_slice_on(values, None)
    }

    /// As [`Self::from_slice`], on another device.
    ///
    /// # Errors
    /// As for [`Self::from_slice`]; the device does not exist.
    pub fn from_slice_on(values: &[T], device: impl DeviceArg) -> Result<Self> {
        let slice = Self::new(values.len(), device)?;
        slice.copy_from_slice(0, values)?;
        Ok(slice)
    }

    /// A part of the slice. It refers to the same memory.
    ///
    /// # Errors
    /// The range leaves the slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let range = within(&range, self.len);
        let len = check_part(&range, self.len)?;
        let start = self.start + range.start * Self::SIZE;
        Ok(Self { buffer: self.buffer.clone(), start, len, element: PhantomData })
    }

    /// Copies `from` into the slice, beginning at element `offset`; see [`DeviceBuffer::copy_from_slice`].
    ///
    /// # Errors
    /// The elements do not fit, else as there.
    pub fn copy_from_slice(&self, offset: usize, from: &[T]) -> Result<()> {
        let bytes = self.bytes(&(offset..offset.saturating_add(from.len())))?;
        self.buffer.copy_from_slice(bytes.start, bytemuck::cast_slice(from))
    }

    /// Copies the elements from `offset` on into `to`; see [`DeviceBuffer::copy_to_slice`].
    ///
    /// # Errors
    /// The slice ends before `to` is full, else as there.
    pub fn copy_to_slice(&self, offset: usize, to: &mut [T]) -> Result<()> {
        let bytes = self.bytes(&(offset..offset.saturating_add(to.len())))?;
        self.buffer.copy_to_slice(bytes.start, bytemuck::cast_slice_mut(to))
    }

    /// All elements; see [`DeviceBuffer::copy_to_slice`].
    ///
    /// # Errors
    /// As there.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = host_memory::zeroed(self.len)?;
        self.copy_to_slice(0, &mut elements)?;
        Ok(elements)
    }

    /// Queues a copy of another slice's elements into this one, beginning at element `offset`; see
    /// [`DeviceBuffer::copy_from_buffer`].
    ///
    /// # Errors
    /// The range leaves a slice, or the driver's error.
    pub fn copy_from(
        &self,
        offset: usize,
        from: &Self,
        range: impl RangeBounds<usize>,
        stream: impl StreamArg,
    ) -> Result<()> {
        let range = within(&range, from.len);
        let source = from.bytes(&range)?;
        let target = self.bytes(&(offset..offset.saturating_add(range.len())))?;
        self.buffer.copy_from_buffer(target.start, &from.buffer, source, stream)
    }

    /// Queues a copy of elements in pinned memory into this slice, beginning at element `offset`; see
    /// [`DeviceBuffer::copy_from_pinned`].
    ///
    /// # Errors
    /// [`BufferError::ElementSize`] for pinned bytes that are not whole elements; the range leaves a buffer; the driver's
    /// error.
    pub fn copy_from_pinned(
        &self,
        offset: usize,
        from: &PinnedBuffer,
        range: impl RangeBounds<usize>,
        stream: impl StreamArg,
    ) -> Result<()> {
        let (range, source) = pinned_bytes::<T>(from, &range)?;
        let target = self.bytes(&(offset..offset.saturating_add(range.len())))?;
        self.buffer.copy_from_pinned(target.start, from, source, stream)
    }

    /// Queues a copy of elements into pinned memory, beginning at its element `offset`; see
    /// [`DeviceBuffer::copy_to_pinned`].
    ///
    /// # Errors
    /// As for [`Self::copy_from_pinned`].
    pub fn copy_to_pinned(
        &self,
        range: impl RangeBounds<usize>,
        to: &PinnedBuffer,
        offset: usize,
        stream: impl StreamArg,
    ) -> Result<()> {
        let range = within(&range, self.len);
        let source = self.bytes(&range)?;
        let (_, target) = pinned_bytes::<T>(to, &(offset..offset.saturating_add(range.len())))?;
        self.buffer.copy_to_pinned(source, to, target.start, stream)
    }

    /// Queues a fill: sets elements to `value`. Elements have 1, 2 or 4 bytes; others do not compile. Returns before
    /// the fill is done. The fill is ordered on `stream`, or on the current stream of the memory's device for `None`.
    ///
    /// ```compile_fail
    /// c10_core::DeviceSlice::from_slice(&[1_u64])?.fill(.., 2, None)?;
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The range leaves the slice, or the driver's error.
    pub fn fill(&self, range: impl RangeBounds<usize>, value: T, stream: impl StreamArg) -> Result<()> {
        const { assert!(matches!(size_of::<T>(), 1 | 2 | 4), "the driver sets elements of 1, 2 or 4 bytes") };
        let range = within(&range, self.len);
        let (bytes, count) = (self.bytes(&range)?, range.len());
        if count == 0 {
            return Ok(());
        }
        let to = self.buffer.at(bytes.start);
        let set = |ready: &Started, stream: StreamRef| match *bytemuck::bytes_of(&value) {
            [byte] => ready.api.set_bytes(to, byte, count, stream),
            [a, b] => ready.api.set_halves(to, u16::from_ne_bytes([a, b]), count, stream),
            [a, b, c, d] => ready.api.set_words(to, u32::from_ne_bytes([a, b, c, d]), count, stream),
            _ => Ok(()),
        };
        stream.with_stream(|stream| self.buffer.queue_set(stream, set))
    }

    /// The bytes of a range of elements inside the buffer.
    fn bytes(&self, range: &Range<usize>) -> Result<Range<usize>> {
        check_part(range, self.len)?;
        Ok(self.start + range.start * Self::SIZE..self.start + range.end * Self::SIZE)
    }
}

/// A range of elements of pinned memory, and its bytes.
fn pinned_bytes<T: Pod>(
    buffer: &PinnedBuffer,
    range: &impl RangeBounds<usize>,
) -> Result<(Range<usize>, Range<usize>)> {
    let (bytes, element) = (buffer.len(), DeviceSlice::<T>::SIZE);
    if !bytes.is_multiple_of(element) {
        return Err(BufferError::ElementSize { bytes, element }.into());
    }
    let range = within(range, bytes / element);
    check_part(&range, bytes / element)?;
    let inside = range.start * element..range.end * element;
    Ok((range, inside))
}

impl<T> DeviceSlice<T> {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first element on the device (`CUdeviceptr`), as a number.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.buffer.at(self.start)
    }

    /// The device of the memory.
    #[must_use]
    pub fn device(&self) -> Device {
        self.buffer.device()
    }

    /// Number of the memory's device.
    #[must_use]
    pub fn device_index(&self) -> DeviceIndex {
        self.buffer.device_index()
    }

    /// The buffer that the elements lie in.
    #[must_use]
    pub fn buffer(&self) -> &DeviceBuffer {
        &self.buffer
    }

    /// Where in the buffer the elements are, in bytes.
    #[must_use]
    pub fn byte_range(&self) -> Range<usize> {
        self.start..self.start + self.len * size_of::<T>()
    }
}

impl<T> Clone for DeviceSlice<T> {
    fn clone(&self) -> Self {
        Self { buffer: self.buffer.clone(), ..*self }
    }
}

impl<T> fmt::Debug for DeviceSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (element, device) = (std::any::type_name::<T>(), self.device());
        write!(f, "DeviceSlice {{ [{element}; {}] at {:#x} on {device} }}", self.len, self.address())
    }
}
