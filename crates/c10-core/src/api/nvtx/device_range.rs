//! Ranges on a stream: they begin and end when the device comes to them.
//!
//! **Invariant:** without a tool nothing is queued.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::nvtx::message::Message;
use crate::api::stream::Stream;
use crate::base::error::Result;
use crate::driver::nvtx::tool;

/// A range that a stream began. It goes on until [`device_range_end`] is queued.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Stream, nvtx};
///
/// let stream = Stream::new(None, 0)?;
/// let range: nvtx::DeviceRange = nvtx::device_range_start("work", &stream)?;
/// stream.sleep(100)?;
/// nvtx::device_range_end(range, &stream)?;
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the range goes on until it is ended"]
pub struct DeviceRange(Option<Arc<Begun>>);

#[derive(Debug)]
struct Begun {
    message: CString,
    /// The tool's number of the range, once the stream has come to its beginning.
    id: AtomicU64,
}

/// Begins a range when the device comes to this place of the stream; torch's `_device_range_start`. A function on the
/// host begins it: the stream waits for that, a few microseconds.
///
/// A graph that captures it begins the range at each replay.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Stream, nvtx};
///
/// let stream = Stream::new(None, 0)?;
/// let range = nvtx::device_range_start("on the device", &stream)?;
/// nvtx::device_range_end(range, &stream)?;
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// The driver's error.
#[doc(alias("_device_range_start", "deviceRangeStart"))]
pub fn device_range_start(message: impl Message, stream: &Stream) -> Result<DeviceRange> {
    let Some(tool) = tool() else { return Ok(DeviceRange(None)) };
    let message = message.with(|text| text.to_owned());
    let begun = Arc::new(Begun { message, id: AtomicU64::new(0) });
    let of_stream = Arc::clone(&begun);
    stream.queue_on_host(move || of_stream.id.store(tool.range_start(&of_stream.message), Ordering::Relaxed))?;
    Ok(DeviceRange(Some(begun)))
}

/// Ends a range when the device comes to this place of the stream; torch's `_device_range_end`. The stream may be another
/// than the one that began it; which of the two comes first is for the program to order.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Stream, nvtx};
///
/// let stream = Stream::new(None, 0)?;
/// let range: nvtx::DeviceRange = nvtx::device_range_start("work", &stream)?;
/// stream.sleep(100)?;
/// nvtx::device_range_end(range, &stream)?;
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Errors
/// The driver's error. The range then goes on.
#[doc(alias("_device_range_end", "deviceRangeEnd"))]
pub fn device_range_end(range: DeviceRange, stream: &Stream) -> Result<()> {
    let (Some(begun), Some(tool)) = (range.0, tool()) else { return Ok(()) };
    stream.queue_on_host(move || tool.range_end(begun.id.load(Ordering::Relaxed)))
}
