//! Streams: pools of 32 for each device and priority, and which stream is current.
//!
//! **Invariants:** pool streams do not wait for the default stream, are made together when a priority of a device is
//! first asked for, and live as long as the runtime; the 33rd request gets the first stream again. A stream's id and
//! device name it completely.

mod external;
mod host_function;
mod raw;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use external::ExternalStream;
pub use raw::get_stream_from_external;

use crate::api::arg::DeviceArg;
use crate::api::event::{Event, EventFuture, EventOptions};
use crate::api::guard::{MultiStreamGuard, StreamGuard};
use crate::api::launch::queue_sleep;
use crate::base::device::{Device, DeviceIndex, DeviceType};
use crate::base::error::{Error, Result, StreamError};
use crate::base::handles::{StreamHandle, StreamRef};
use crate::base::ids::StreamId;
use crate::base::ids::StreamKey;
use crate::base::ids::priority_of;
use crate::base::process;
use crate::runtime::{Runtime, Started, WeakRuntime};
use crate::thread;
use crate::thread::pending::{self, PuttingOff};
use crate::trace::{TraceEvent, TraceKind};

/// `CU_STREAM_LEGACY`: the default stream by another handle.
const LEGACY: usize = 1;

/// A queue of work of a device, done in order; torch's `Stream`.
///
/// This is a handle: clones refer to the same stream, and dropping one does not affect queued work.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Stream};
///
/// let (first, second) = (Stream::new(None, 0)?, Stream::new(None, -1)?);
/// let buffer = DeviceBuffer::new(4, None)?;
/// buffer.fill(.., 1, &first)?;
/// second.wait_stream(&first)?;
/// buffer.fill(..2, 2, &second)?;
/// second.synchronize()?;
/// assert!(first.query()? && first.priority()? > second.priority()?);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    runtime: Runtime,
    device: DeviceIndex,
    key: StreamKey,
    /// Of a stream outside the pools.
    _lease: Option<Arc<Lease>>,
}

/// A stream outside the pools that is in use; returned when this is dropped.
#[derive(Debug)]
struct Lease {
    home: WeakRuntime,
    device: DeviceIndex,
    handle: StreamHandle,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        // Without the runtime the stream is gone already.
        let runtime = Runtime::upgrade(&self.home);
        if let Some(ready) = runtime.as_ref().and_then(Runtime::started)
            && let Ok(mut streams) = ready.streams.of(self.device)
        {
            streams.give_unpooled(self.handle);
        }
    }
}

impl Stream {
    /// The next stream of the pool for that device and priority, on the current runtime; the current device for `None`
    /// and for negative numbers. 0 is the least urgent priority, negative ones are more so, and priorities out of range
    /// are brought into it. The 33rd request gets the first stream again.
    ///
    /// # Errors
    /// The device does not exist, or the driver cannot make the streams.
    pub fn new(device: impl DeviceArg, priority: i32) -> Result<Self> {
        let runtime = Runtime::current();
        let index = device.resolve(&runtime)?;
        let index = if index < DeviceIndex(0) { runtime.current_device()? } else { index };
        runtime.streams().pooled(index, priority)
    }

    /// A stream outside the pools, which nobody else gets as long as a handle of it lives. Otherwise as [`Self::new`].
    ///
    /// When the last handle is dropped, a later call may reuse the driver's stream once its work is done. It is
    /// destroyed with the runtime and not before, because buffers and the current stream of a thread may still name it.
    /// A handle from [`Streams::current`] does not count.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::Stream;
    ///
    /// let (own, other) = (Stream::new_unpooled(None, 0)?, Stream::new_unpooled(None, 0)?);
    /// assert_ne!(own, other);
    /// assert!((0..32).all(|_| Stream::new(None, 0).is_ok_and(|pooled| pooled != own)));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The device does not exist, or the driver cannot make the stream.
    pub fn new_unpooled(device: impl DeviceArg, priority: i32) -> Result<Self> {
        let runtime = Runtime::current();
        let index = device.resolve(&runtime)?;
        let index = if index < 0 { runtime.current_device()? } else { index };
        runtime.streams().unpooled(index, priority)
    }

    /// Finds the stream of the current runtime that [`Self::stream_id`], [`Self::device_index`] and
    /// [`Self::device_type`] name. A stream made elsewhere is wrapped anew by [`crate::get_stream_from_external`].
    ///
    /// # Errors
    /// The device is no CUDA device or does not exist, or there is no such stream.
    pub fn from_id(stream_id: StreamId, device_index: DeviceIndex, device_type: DeviceType) -> Result<Self> {
        let index = Device { kind: device_type, index: Some(device_index) }.cuda_index()?;
        Runtime::with_current(|runtime| runtime.streams().by_id(index.unwrap_or(device_index), stream_id))
    }

    /// Least and greatest priority of the current device's streams; a lower number is more urgent.
    ///
    /// # Errors
    /// The driver's error.
    pub fn priority_range() -> Result<(i32, i32)> {
        let runtime = Runtime::current();
        runtime.streams().priority_range(runtime.current_device()?)
    }

    /// The stream's CUDA handle (`CUstream`) as a number, 0 for the default stream. An escape hatch: whoever passes it
    /// to the driver is responsible for what happens. A capture that was begun through this crate must be ended through
    /// it.
    #[must_use]
    pub fn cuda_stream(&self) -> usize {
        self.runtime.started().into_iter().for_each(|ready| ready.captures.open_door());
        self.key.handle.0
    }

    /// The same number under the name that torch has for every kind of device.
    #[must_use]
    pub fn native_handle(&self) -> usize {
        self.cuda_stream()
    }

    /// The stream in the protocol of libraries that take streams of any origin: the version of the protocol, and the
    /// CUDA handle.
    #[must_use]
    pub fn __cuda_stream__(&self) -> (u32, usize) {
        (0, self.cuda_stream())
    }

    /// The stream's device.
    #[must_use]
    pub fn device(&self) -> Device {
        Device::cuda(self.device)
    }

    /// Number of the stream's device.
    #[must_use]
    pub fn device_index(&self) -> DeviceIndex {
        self.device
    }

    /// Kind of the stream's device.
    #[must_use]
    pub fn device_type(&self) -> DeviceType {
        DeviceType::Cuda
    }

    /// The stream's number on its device.
    #[must_use]
    pub fn stream_id(&self) -> StreamId {
        self.key.id
    }

    /// The runtime that made the stream.
    #[must_use]
    #[inline]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Whether this is the device's default stream.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.key == StreamKey::DEFAULT
    }

    #[inline]
    pub(crate) fn reference(&self) -> StreamRef {
        StreamRef { device: self.device, handle: self.key.handle }
    }

    #[inline]
    pub(crate) fn ready(&self) -> Result<&Started> {
        self.runtime.ready()
    }

    /// Priority of the stream: 0 or, more urgent, below.
    ///
    /// # Errors
    /// The driver's error, which is possible only for a stream made elsewhere.
    pub fn priority(&self) -> Result<i32> {
        match (self.is_default(), self.key.id.pool()) {
            (true, _) => Ok(0),
            (_, Some((level, _))) => Ok(priority_of(level)),
            (_, None) => self.ready()?.api.stream_priority(self.reference()),
        }
    }

    /// Whether all work queued on the stream is done. Does not block.
    ///
    /// # Errors
    /// The driver's error; work that is not done is not one.
    pub fn query(&self) -> Result<bool> {
        PuttingOff::settle("a stream is asked whether it is done");
        let ready = self.ready()?;
        let answer = ready.api.stream_query(self.reference());
        ready.api.trace.deliver_order();
        answer.map_err(|error| ready.launches.explain(self.device, error))
    }

    /// Blocks until all work queued on the stream is done.
    ///
    /// # Errors
    /// Queued work failed ([`Error::DeviceFault`]), a kernel of the device has refused a value
    /// ([`Error::DeviceAssertion`]), or the stream is capturing; [`crate::SyncDebugError::SynchronizingOperation`].
    pub fn synchronize(&self) -> Result<()> {
        PuttingOff::settle("a stream is waited for");
        let ready = self.ready()?;
        self.runtime.sync_debug_state().police()?;
        ready.api.trace.begin(TraceKind::Synchronize, self.reference());
        let waited = ready.api.stream_wait_on_host(self.reference());
        if waited.is_ok() {
            let event = || TraceEvent::StreamSynchronized(self.reference().into());
            ready.api.trace.report_now(TraceKind::Synchronize, event);
            ready.sweep();
        }
        self.runtime.waited(ready, self.device, waited)
    }

    /// Makes later work of this stream wait for an event; does nothing if the event was never recorded.
    ///
    /// # Errors
    /// The driver's error.
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        event.wait(self)
    }

    /// Makes later work of this stream wait for the work that is queued on the other stream now.
    ///
    /// # Errors
    /// The driver's error.
    pub fn wait_stream(&self, other: &Self) -> Result<()> {
        let (own, of) = (self, other);
        if pending::put_off("wait_stream", [own.key.handle.0 as u64, of.key.handle.0 as u64], None, || {
            let (own, of) = (own.clone(), of.clone());
            Box::new(move || own.wait_stream(&of))
        }) {
            return Ok(());
        }
        self.wait_event(&other.record_event()?)
    }

    /// Records a new event after the work queued so far. [`Event::record`] records an existing one.
    ///
    /// # Errors
    /// The driver's error.
    pub fn record_event(&self) -> Result<Event> {
        let event = Event::on(&self.runtime, EventOptions::default());
        event.record(self)?;
        Ok(event)
    }

    /// A future that is ready when the work queued so far is done; see [`EventFuture`].
    ///
    /// # Errors
    /// The driver's error. While the stream captures, the future returns the driver's error.
    pub fn done(&self) -> Result<EventFuture> {
        self.record_event().map(EventFuture::new)
    }

    /// Whether the stream takes part in a capture.
    ///
    /// # Errors
    /// The driver's error.
    pub fn is_capturing(&self) -> Result<bool> {
        self.ready()?.api.stream_is_capturing(self.reference())
    }

    /// Keeps the stream busy for at least this many clock cycles of its device; torch's `_sleep`. Returns at once.
    ///
    /// # Errors
    /// The driver's error.
    #[doc(alias = "_sleep")]
    pub fn sleep(&self, cycles: i64) -> Result<()> {
        let own = self;
        if pending::put_off("sleep", [own.key.handle.0 as u64, cycles.cast_unsigned()], None, || {
            let own = own.clone();
            Box::new(move || own.sleep(cycles))
        }) {
            return Ok(());
        }
        queue_sleep(self, cycles)
    }

    /// Makes this the current stream of its device, and that device the current one, until the guard is dropped; what
    /// `with stream:` does in Python.
    #[inline]
    pub fn guard(&self) -> StreamGuard {
        StreamGuard::new(self)
    }

    #[inline]
    pub(crate) fn key(&self) -> StreamKey {
        self.key
    }

    #[inline]
    fn make_current(&self) {
        thread::exchange_stream(self.runtime.id(), self.device, self.key);
        thread::exchange_device(self.runtime.id(), self.device);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream {{ id: {}, device: {} }}", self.key.id, self.device())
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<torch.cuda.Stream device={} cuda_stream={:#x}>", self.device(), self.cuda_stream())
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        (self.runtime.id(), self.device, self.key.id) == (other.runtime.id(), other.device, other.key.id)
    }
}

impl Eq for Stream {}

impl Hash for Stream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.runtime.id(), self.device, self.key.id).hash(state);
    }
}

/// The streams of a runtime; made by [`Runtime::streams`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::Runtime;
///
/// let runtime = Runtime::current();
/// let stream = runtime.streams().pooled(0, 0)?;
/// assert!(runtime.streams().current(0)?.is_default());
/// runtime.streams().set_current(&stream)?;
/// assert_eq!(runtime.streams().current(0)?, stream);
/// assert_eq!(format!("{stream:?}"), "Stream { id: 3, device: cuda:0 }");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a>(&'a Runtime);

impl Runtime {
    /// The streams: those of the pools, the current ones, the default ones.
    #[must_use]
    #[inline]
    pub fn streams(&self) -> Streams<'_> {
        Streams(self)
    }
}

impl<'a> Streams<'a> {
    /// The runtime.
    pub(crate) fn runtime(self) -> &'a Runtime {
        self.0
    }

    /// The stream of a key that this runtime made.
    pub(crate) fn of_key(self, device: DeviceIndex, key: StreamKey) -> Stream {
        Stream { runtime: self.0.clone(), device, key, _lease: None }
    }
}

impl Streams<'_> {
    /// The next stream of the pool for that device and priority. Priorities out of range are brought into it: 0 and
    /// above is the least urgent.
    ///
    /// # Errors
    /// The driver knows no such device, or cannot make the streams.
    pub fn pooled(self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let ready = self.0.check_device(device)?;
        let _relaxed = ready.relaxed()?;
        let key = ready.streams.of(device)?.next(&ready.api, device, priority)?;
        ready.api.trace.deliver();
        Ok(Stream { runtime: self.0.clone(), device, key, _lease: None })
    }

    /// A stream outside the pools; see [`Stream::new_unpooled`].
    ///
    /// # Errors
    /// The driver knows no such device, or cannot make the stream.
    pub fn unpooled(self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let ready = self.0.check_device(device)?;
        let _relaxed = ready.relaxed()?;
        let key = ready.streams.of(device)?.take_unpooled(&ready.api, device, priority)?;
        ready.api.trace.deliver();
        let lease = Lease { home: self.0.downgrade(), device, handle: key.handle };
        Ok(Stream { runtime: self.0.clone(), device, key, _lease: Some(Arc::new(lease)) })
    }

    /// The default stream of a device.
    ///
    /// # Errors
    /// The driver knows no such device.
    pub fn default(self, device: DeviceIndex) -> Result<Stream> {
        self.0.check_device(device)?;
        Ok(Stream { runtime: self.0.clone(), device, key: StreamKey::DEFAULT, _lease: None })
    }

    /// This thread's current stream of a device; the default stream, unless another was made current.
    ///
    /// # Errors
    /// The driver knows no such device.
    #[inline]
    pub fn current(self, device: DeviceIndex) -> Result<Stream> {
        self.0.check_device(device)?;
        let key = thread::stream(self.0.id(), device);
        Ok(Stream { runtime: self.0.clone(), device, key, _lease: None })
    }

    /// The name of this thread's current stream of a device, for who compares it and needs no handle.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// let runtime = c10_core::Runtime::current();
    /// let side = c10_core::Stream::new(None, 0)?;
    /// let _on = side.guard();
    /// assert_eq!(runtime.streams().current_id(0.into())?, side.stream_id());
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The driver knows no such device.
    #[inline]
    pub fn current_id(self, device: DeviceIndex) -> Result<StreamId> {
        self.0.check_device(device)?;
        Ok(thread::stream(self.0.id(), device).id)
    }

    /// Makes a stream the current one of its device, and that device the current one.
    ///
    /// # Errors
    /// The stream belongs to another runtime.
    #[inline]
    pub fn set_current(self, stream: &Stream) -> Result<()> {
        self.0.check_same(&stream.runtime, "stream")?;
        stream.make_current();
        Ok(())
    }

    /// Makes a stream and its device current until the guard is dropped.
    ///
    /// # Errors
    /// The stream belongs to another runtime.
    #[inline]
    pub fn guard(self, stream: &Stream) -> Result<StreamGuard> {
        self.0.check_same(&stream.runtime, "stream")?;
        Ok(stream.guard())
    }

    /// Makes streams the current ones of their devices until the guard is dropped; of two streams of one device the
    /// later one counts. The current device does not change.
    ///
    /// # Errors
    /// A stream belongs to another runtime; then no stream has become current.
    pub fn guard_all<'a>(self, streams: impl IntoIterator<Item = &'a Stream>) -> Result<MultiStreamGuard> {
        let streams: Vec<&Stream> = streams.into_iter().collect();
        streams.iter().try_for_each(|stream| self.0.check_same(&stream.runtime, "stream"))?;
        Ok(MultiStreamGuard::new(self.0.id(), &streams))
    }

    /// The driver's name of a stream of this runtime, of the current one for `None`.
    #[inline]
    pub(crate) fn or_current(self, stream: Option<&Stream>) -> Result<StreamRef> {
        match stream {
            Some(stream) if stream.runtime == *self.0 => Ok(stream.reference()),
            Some(_) => Err(Error::OtherRuntime { what: "stream" }),
            None => {
                let device = thread::device(self.0.id());
                Ok(thread::stream(self.0.id(), device).on(device))
            }
        }
    }

    /// The driver's name of this thread's current stream of a device that there is.
    #[inline]
    pub(crate) fn current_ref(self, device: DeviceIndex) -> StreamRef {
        thread::stream(self.0.id(), device).on(device)
    }

    /// Finds the stream that [`Stream::stream_id`] names. Only the default stream and streams of pools can be found.
    ///
    /// # Errors
    /// The driver knows no such device, or there is no such stream.
    pub fn by_id(self, device: DeviceIndex, id: StreamId) -> Result<Stream> {
        let ready = self.0.check_device(device)?;
        if id == StreamId(0) {
            return self.default(device);
        }
        let (level, index) = id.pool().ok_or(Error::Stream(StreamError::Unknown { id: id.0 }))?;
        let key = ready.streams.of(device)?.find(&ready.api, device, level, index)?;
        ready.api.trace.deliver();
        Ok(Stream {
            runtime: self.0.clone(),
            device,
            key: key.ok_or(Error::Stream(StreamError::Unknown { id: id.0 }))?,
            _lease: None,
        })
    }

    /// Least and greatest priority of streams; a lower number is more urgent.
    ///
    /// # Errors
    /// The driver knows no such device, or its error.
    pub fn priority_range(self, device: DeviceIndex) -> Result<(i32, i32)> {
        let ready = self.0.check_device(device)?;
        let levels = ready.streams.of(device)?.level_count(&ready.api, device)?;
        Ok((0, priority_of(levels - 1)))
    }

    /// Whether this thread's current stream of the current device takes part in a capture. Creates no context.
    ///
    /// # Errors
    /// The driver's error.
    pub fn is_current_capturing(self) -> Result<bool> {
        let device = thread::device(self.0.id());
        if !self.0.is_initialized() || !self.0.devices().is_used(device) {
            return Ok(false);
        }
        let ready = self.0.ready()?;
        Ok(ready.captures.of(&ready.api, self.current_ref(device))?.is_some())
    }

    /// Wraps a stream that was made elsewhere; it is never destroyed here. Its id is its handle, which is even: odd ids
    /// belong to pools.
    pub(crate) fn wrap(self, device: DeviceIndex, handle: StreamHandle) -> Result<Stream> {
        if matches!(handle.0, 0 | LEGACY) {
            return self.default(device);
        }
        let ready = self.0.check_device(device)?;
        let id = i64::try_from(handle.0).unwrap_or(i64::MAX);
        if id & 1 == 1 {
            return Err(Error::Stream(StreamError::Unknown { id }));
        }
        ready.captures.open_door();
        Ok(Stream { runtime: self.0.clone(), device, key: StreamKey { id: StreamId(id), handle }, _lease: None })
    }

    /// The stream of a device that torch's `graph` captures on where none is named: always the same one, so that graphs
    /// can share a memory pool, whose free memory belongs to the stream it was allocated on.
    ///
    /// # Errors
    /// The device does not exist, or the driver's error.
    pub fn for_captures(self, device: DeviceIndex) -> Result<Stream> {
        let ready = self.0.check_device(device)?;
        let id = ready.captures.stream(device, || Ok(self.pooled(device, 0)?.stream_id()))?;
        self.by_id(device, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{MAX_LEVELS, STREAMS_PER_POOL};

    #[test]
    fn ids_pack_level_and_index() {
        assert_eq!(StreamId::of_pool(0, 0), StreamId(3));
        assert_eq!(StreamId::of_pool(3, 31), StreamId(31 * 32 + 9));
        for level in 0..MAX_LEVELS {
            for index in 0..STREAMS_PER_POOL {
                assert_eq!(StreamId::of_pool(level, index).pool(), Some((level, index)));
            }
        }
        for not_of_a_pool in [0, 1, 2, 0x7f00_1000, 11, -3] {
            assert_eq!(StreamId(not_of_a_pool).pool(), None, "{not_of_a_pool}");
        }
    }
}
