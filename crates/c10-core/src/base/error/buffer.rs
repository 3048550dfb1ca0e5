//! Memory that cannot be looked at as it was asked for.

use crate::base::device::DeviceIndex;

/// Why memory cannot be read or written as elements, or as a slice of the host.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{BufferError, DeviceBuffer};
///
/// let refused = DeviceBuffer::new(7, None)?.elements::<u16>().unwrap_err();
/// assert_eq!(refused, BufferError::ElementSize { bytes: 7, element: 2 }.into());
/// assert_eq!(refused.to_string(), "7 bytes are not a whole number of elements of 2 bytes");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The bytes are not a whole number of elements.
    #[error("{bytes} bytes are not a whole number of elements of {element} bytes")]
    ElementSize {
        /// How many bytes there are.
        bytes: usize,
        /// Bytes of an element.
        element: usize,
    },
    /// The first byte is not where an element of this type may begin.
    #[error("the memory at {address:#x} is not aligned to {align} bytes, as its elements must be")]
    Misaligned {
        /// Where the memory begins.
        address: u64,
        /// What its address must be a multiple of.
        align: usize,
    },
    /// Pinned memory was to be a slice of the host while others can use it: another handle, or a graph that captured it.
    #[error("the pinned memory has other handles; a graph that captured it counts as one, and so does its memory pool")]
    PinnedShared,
    /// Pinned memory was to be a slice of the host while queued work may read or write it.
    #[error("work queued on a stream of device {device} may still use the pinned memory; wait for it first")]
    PinnedInUse {
        /// The device.
        device: DeviceIndex,
    },
}
