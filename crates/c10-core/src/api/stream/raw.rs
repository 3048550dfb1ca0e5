//! Streams that were made elsewhere and are named by their raw handle.
//!
//! # Safety
//! The callers of these functions promise that a handle names a stream, and for how long.
#![expect(unsafe_code, reason = "handles that are somebody else's")]

use crate::api::arg::DeviceArg;
use crate::api::stream::{ExternalStream, Stream};
use crate::base::error::Result;
use crate::base::handles::StreamHandle;
use crate::runtime::Runtime;

/// Wraps a stream that was made elsewhere as a stream of the current runtime; torch's `get_stream_from_external`. It is
/// never destroyed here. The handles 0 and 1 are the device's default stream.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Stream, get_stream_from_external};
///
/// let owner = Stream::new_unpooled(None, 0)?;
/// // SAFETY: the handle is that of `owner`, which outlives the stream.
/// let stream = unsafe { get_stream_from_external(owner.cuda_stream(), 0)? };
/// assert_eq!(stream.cuda_stream(), owner.cuda_stream());
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// The device is no CUDA device or does not exist, no stream can have that handle, or the runtime cannot start.
///
/// # Safety
/// - `handle` must be a `CUstream` of that device's primary context, or 0 or 1; 2 is the default stream of whichever
///   thread uses the stream returned, so that memory used on it must stay on one thread.
/// - It must stay alive as long as the stream returned, its clones, memory that was used on it, and graphs that were
///   replayed on it.
pub unsafe fn get_stream_from_external(handle: usize, device: impl DeviceArg) -> Result<Stream> {
    let runtime = Runtime::current();
    runtime.streams().wrap(device.resolve(&runtime)?, StreamHandle(handle))
}

impl ExternalStream {
    /// A stream that was made elsewhere, as a stream of the current runtime. The pointer 0 asks, as in torch, for a stream
    /// of the pool.
    ///
    /// # Errors
    /// A priority other than 0 with a pointer other than 0: the stream has its own. Else as for
    /// [`get_stream_from_external`].
    ///
    /// # Safety
    /// - The duties of [`get_stream_from_external`], unless the pointer is 0.
    pub unsafe fn new(stream_ptr: usize, device: impl DeviceArg, priority: i32) -> Result<Self> {
        let device = Runtime::with_current(|runtime| device.resolve(runtime))?;
        Self::wrap(stream_ptr, device, priority)
    }
}
