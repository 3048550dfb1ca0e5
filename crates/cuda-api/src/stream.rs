//! Streams: which one is current.

use c10_core::{DeviceArg, Error, Result, Runtime, Stream, StreamArg, StreamGuard};

/// This thread's current stream of a device.
///
/// # Errors
/// The device does not exist or is no CUDA device.
pub fn current_stream(device: impl DeviceArg) -> Result<Stream> {
    let runtime = Runtime::current();
    runtime.current_stream(device.resolve(&runtime)?)
}

/// The default stream of a device.
///
/// # Errors
/// The device does not exist or is no CUDA device.
pub fn default_stream(device: impl DeviceArg) -> Result<Stream> {
    let runtime = Runtime::current();
    runtime.default_stream(device.resolve(&runtime)?)
}

/// Makes a stream the current one of its device, and that device the current one; does nothing for `None`.
///
/// # Errors
/// The stream belongs to another runtime.
pub fn set_stream(stream: impl StreamArg) -> Result<()> {
    stream.stream().map_or(Ok(()), |stream| Runtime::current().set_stream(&stream))
}

/// A stream, and its device, are current until the guard is dropped; does nothing for `None`.
///
/// # Errors
/// The stream belongs to another runtime.
#[doc(alias = "StreamContext")]
pub fn stream(stream: impl StreamArg) -> Result<Option<StreamGuard>> {
    stream.stream().map(|stream| Runtime::current().stream_guard(&stream)).transpose()
}

/// Keeps the current stream busy for at least so many clock cycles of its device. Returns at once.
///
/// # Errors
/// The driver's error.
#[doc(alias = "_sleep")]
pub fn sleep(cycles: i64) -> Result<()> {
    let runtime = Runtime::current();
    runtime.sleep(cycles, &runtime.current_stream(runtime.current_device()?)?)
}

/// Calls `body` while a stream and its device are current.
///
/// # Errors
/// As for [`stream()`], else what `body` returned.
pub fn with_stream<T, E: From<Error>>(stream: impl StreamArg, body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let _current = self::stream(stream)?;
    body()
}
