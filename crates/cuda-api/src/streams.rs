//! Streams and events: order on a device, and which stream is current; torch's `torch.cuda.streams`.

use c10_core::{DeviceArg, DeviceIndex, DeviceType, Result, Runtime};

pub use c10_core::{
    AnyEvent, Event, EventFuture, EventOptions, ExternalStream, MultiStreamGuard, Stream, StreamArg, StreamGuard,
    StreamId, Streams, get_stream_from_external,
};

/// This thread's current stream of a device.
///
/// # Errors
/// The device does not exist or is no CUDA device.
#[inline]
pub fn current_stream(device: impl DeviceArg) -> Result<Stream> {
    Runtime::with_current(|runtime| runtime.streams().current(device.resolve(runtime)?))
}

/// The default stream of a device.
///
/// # Errors
/// The device does not exist or is no CUDA device.
#[inline]
pub fn default_stream(device: impl DeviceArg) -> Result<Stream> {
    Runtime::with_current(|runtime| runtime.streams().default(device.resolve(runtime)?))
}

/// Makes a stream the current one of its device, and that device the current one; does nothing for `None`.
///
/// # Errors
/// The stream belongs to another runtime.
#[inline]
pub fn set_stream(stream: impl StreamArg) -> Result<()> {
    let set = |stream: &Stream| Runtime::with_current(|runtime| runtime.streams().set_current(stream));
    stream.with_stream(|stream| stream.map_or(Ok(()), set))
}

/// Makes the stream that an id and a device name the current one; see [`Stream::from_id`] and [`set_stream`].
///
/// # Errors
/// The device is no CUDA device or does not exist, or there is no such stream.
#[doc(alias = "_set_stream_by_id")]
pub fn set_stream_by_id(stream_id: StreamId, device_index: DeviceIndex, device_type: DeviceType) -> Result<()> {
    set_stream(&Stream::from_id(stream_id, device_index, device_type)?)
}

/// A stream, and its device, are current until the guard is dropped; does nothing for `None`.
///
/// # Errors
/// The stream belongs to another runtime.
#[doc(alias = "StreamContext")]
#[inline]
pub fn stream(stream: impl StreamArg) -> Result<Option<StreamGuard>> {
    stream.with_stream(|stream| match stream {
        Some(stream) => Runtime::with_current(|runtime| Ok(Some(runtime.streams().guard(stream)?))),
        None => Ok(None),
    })
}

/// Keeps the current stream busy for at least so many clock cycles of its device. Returns at once.
///
/// # Errors
/// The driver's error.
#[doc(alias = "_sleep")]
pub fn sleep(cycles: i64) -> Result<()> {
    let runtime = Runtime::current();
    runtime.streams().current(runtime.current_device()?)?.sleep(cycles)
}

/// Calls `body` with a stream and its device current. If `body` has another error type, use the guard of [`stream()`]
/// instead.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::{DeviceBuffer, Stream, torch, with_stream};
///
/// let (stream, buffer) = (Stream::new(None, 0)?, DeviceBuffer::new(64, None)?);
/// let ones = with_stream(&stream, || {
///     buffer.fill(.., 1, None)?;
///     torch::ones(&[2], torch::float32, "cuda")
/// })?;
/// # drop(ones);
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// As for [`stream()`], else what `body` returned.
pub fn with_stream<T>(stream: impl StreamArg, body: impl FnOnce() -> aten_cuda::Result<T>) -> aten_cuda::Result<T> {
    let _current = self::stream(stream)?;
    body()
}
