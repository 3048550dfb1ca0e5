//! Streams that were made elsewhere, under torch's name for them.
//!
//! **Invariant:** whoever made the stream owns it: nothing here destroys it.

use std::fmt;
use std::ops::Deref;

use crate::api::stream::Stream;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result, StreamError};
use crate::base::handles::StreamHandle;
use crate::runtime::Runtime;

/// A stream that was made elsewhere, and is never destroyed here; torch's `ExternalStream`.
///
/// It behaves as a [`Stream`]; the caller of `ExternalStream::new` promises that the handle is valid.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, ExternalStream, Stream};
///
/// let owner = Stream::new_unpooled(None, 0)?;
/// // SAFETY: the handle is that of `owner`, which outlives everything here.
/// let stream = unsafe { ExternalStream::new(owner.cuda_stream(), 0, 0)? };
/// DeviceBuffer::new(4, None)?.fill(.., 7, &stream)?;
/// stream.synchronize()?;
/// assert_eq!(stream.cuda_stream(), owner.cuda_stream());
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ExternalStream(Stream);

impl ExternalStream {
    /// As [`Stream::priority_range`].
    ///
    /// # Errors
    /// The driver's error.
    pub fn priority_range() -> Result<(i32, i32)> {
        Stream::priority_range()
    }

    /// Takes pointer and priority as torch does. The caller promises that the pointer names a stream.
    pub(crate) fn wrap(pointer: usize, device: DeviceIndex, priority: i32) -> Result<Self> {
        let runtime = Runtime::current();
        match (pointer, priority) {
            (0, _) => runtime.streams().pooled(device, priority),
            (_, 0) => runtime.streams().wrap(device, StreamHandle(pointer)),
            _ => Err(Error::Stream(StreamError::ExternalPriority)),
        }
        .map(Self)
    }
}

impl Deref for ExternalStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.0
    }
}

impl From<ExternalStream> for Stream {
    fn from(stream: ExternalStream) -> Self {
        stream.0
    }
}

impl fmt::Display for ExternalStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
