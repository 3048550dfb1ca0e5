//! Guards of streams: a stream is current until its guard is dropped.
//!
//! **Invariants:** a guard restores what was current when it was made, on the thread it was made on (guards cannot be
//! sent). No guard creates a context: that happens when a device is first used.

use std::fmt;
use std::marker::PhantomData;

use crate::api::stream::Stream;
use crate::base::device::{Device, DeviceIndex};
use crate::base::ids::RuntimeId;
use crate::base::ids::StreamKey;
use crate::thread;

/// Ties a guard to its thread.
type NotSend = PhantomData<*const ()>;

/// Keeps a stream and its device current until it is dropped; torch's `StreamContext`.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Runtime, Stream};
///
/// let (runtime, stream) = (Runtime::current(), Stream::new(None, 0)?);
/// let guard = stream.guard();
/// assert_eq!(runtime.streams().current(0)?, stream);
/// drop(guard);
/// assert!(runtime.streams().current(0)?.is_default());
/// # Ok::<(), c10_core::Error>(())
/// ```
#[must_use = "the stream is current only while the guard lives"]
pub struct StreamGuard {
    runtime: RuntimeId,
    /// The device that was current before, and its stream then.
    source: (DeviceIndex, StreamKey),
    /// The stream's device, and the stream that was current on it before.
    target: (DeviceIndex, StreamKey),
    thread: NotSend,
}

impl StreamGuard {
    #[inline]
    pub(crate) fn new(stream: &Stream) -> Self {
        let (runtime, device) = (stream.runtime().id(), stream.device_index());
        let from = thread::exchange_device(runtime, device);
        let source = (from, thread::stream(runtime, from));
        let target = (device, thread::exchange_stream(runtime, device, stream.key()));
        Self { runtime, source, target, thread: PhantomData }
    }

    /// The device that was current before.
    #[must_use]
    pub fn previous_device(&self) -> DeviceIndex {
        self.source.0
    }
}

impl fmt::Debug for StreamGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, previous) = (Device::cuda(self.target.0), Device::cuda(self.source.0));
        write!(f, "StreamGuard {{ device: {device}, previous device: {previous} }}")
    }
}

impl Drop for StreamGuard {
    #[inline]
    fn drop(&mut self) {
        for (device, stream) in [self.target, self.source] {
            thread::exchange_stream(self.runtime, device, stream);
        }
        thread::exchange_device(self.runtime, self.source.0);
    }
}

/// Keeps streams of several devices current until it is dropped. It does not change the current device.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use c10_core::{Runtime, Stream};
///
/// let (runtime, first, second) = (Runtime::current(), Stream::new(0, 0)?, Stream::new(1, 0)?);
/// let guard = runtime.streams().guard_all([&first, &second])?;
/// assert_eq!((runtime.streams().current(0)?, runtime.streams().current(1)?), (first, second));
/// assert_eq!(runtime.current_device()?, 0);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[must_use = "the streams are current only while the guard lives"]
pub struct MultiStreamGuard {
    runtime: RuntimeId,
    /// The streams that were current before, in the order in which they were replaced.
    previous: Vec<(DeviceIndex, StreamKey)>,
    thread: NotSend,
}

impl MultiStreamGuard {
    pub(crate) fn new(runtime: RuntimeId, streams: &[&Stream]) -> Self {
        let enter = |stream: &&Stream| {
            let device = stream.device_index();
            (device, thread::exchange_stream(runtime, device, stream.key()))
        };
        Self { runtime, previous: streams.iter().map(enter).collect(), thread: PhantomData }
    }
}

impl fmt::Debug for MultiStreamGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices: Vec<DeviceIndex> = self.previous.iter().map(|(device, _)| *device).collect();
        f.debug_struct("MultiStreamGuard").field("devices", &devices).finish()
    }
}

impl Drop for MultiStreamGuard {
    fn drop(&mut self) {
        for (device, stream) in self.previous.drain(..).rev() {
            thread::exchange_stream(self.runtime, device, stream);
        }
    }
}
