//! Events: marks in a stream that the host and other streams can wait for.
//!
//! **Invariants:** an event takes a driver event when it is first recorded, on the device of the recording stream, and
//! keeps that one. It gives the driver event up once: when the event is dropped, the driver event goes back to the
//! spare ones, or is destroyed where no other event may use it. If graphs record it or wait for it, this happens when
//! the last of those graphs is gone too, and likewise for calls that were put off. Before the first record an event counts
//! as done, and waiting for it does nothing.

mod future;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use future::EventFuture;

use crate::api::arg::{DeviceArg, StreamArg};
use crate::api::stream::Stream;
use crate::base::device::{Device, DeviceIndex};
use crate::base::error::{Error, EventError, IpcError, Result};
use crate::base::handles::{EventHandle, StreamRef};
use crate::base::process;
use crate::driver::{Driver, EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_EXTERNAL, EVENT_INTERPROCESS};
use crate::runtime::{Runtime, Started, WeakRuntime};
use crate::state::captures::KeptId;
use crate::state::deferred_destroy::DriverObject;
use crate::thread::pending::{self, Made, PuttingOff};
use crate::trace::{TraceEvent, TraceKind};

/// Which abilities an event has.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Event, EventOptions};
///
/// let event = Event::new(EventOptions { blocking: true, ..EventOptions::TIMING });
/// assert!(event.options().enable_timing && !event.options().interprocess);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventOptions {
    /// Can measure time.
    pub enable_timing: bool,
    /// Waiting for it yields the processor instead of spinning.
    pub blocking: bool,
    /// Can be handed to other processes; not together with timing.
    pub interprocess: bool,
    /// During a capture it is recorded and waited for by nodes of the graph, which act at each replay.
    pub external: bool,
}

impl EventOptions {
    /// Can measure time, and nothing else.
    pub const TIMING: Self = Self { enable_timing: true, blocking: false, interprocess: false, external: false };

    fn flags(self) -> u32 {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        flag(!self.enable_timing, EVENT_DISABLE_TIMING)
            | flag(self.blocking, EVENT_BLOCKING_SYNC)
            | flag(self.interprocess, EVENT_INTERPROCESS)
    }
}

/// A marker in a stream, which the host and other streams can wait for; torch's `Event`.
///
/// It can be shared between threads, and none of its functions waits for another thread.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Event, Stream};
///
/// let (event, first, second) = (Event::default(), Stream::new(None, 0)?, Stream::new(None, 0)?);
/// let buffer = DeviceBuffer::new(4, None)?;
/// buffer.fill(.., 1, &first)?;
/// event.record(&first)?;
/// event.wait(&second)?; // The next line cannot overtake the fill.
/// buffer.fill(..2, 2, &second)?;
/// second.synchronize()?;
/// assert!(event.query()?);
/// # Ok::<(), c10_core::Error>(())
/// ```
pub struct Event {
    inner: Arc<Inner>,
    /// Of an event that was made while its thread put work off.
    made: Option<Made>,
}

/// An event as calls that were put off share it.
struct Inner {
    runtime: Runtime,
    options: EventOptions,
    native: OnceLock<Native>,
    /// Whether a record has succeeded.
    recorded: AtomicBool,
    /// Whether the driver's event must not be reused for another event.
    spent: AtomicBool,
    /// What graphs that use the driver's event keep.
    of_graphs: OnceLock<Arc<OfGraphs>>,
}

/// The driver's event.
#[derive(Clone, Copy, Debug)]
struct Native {
    handle: EventHandle,
    device: DeviceIndex,
}

impl Event {
    /// An event of the current runtime that was not recorded yet. Makes no driver call.
    #[must_use]
    pub fn new(options: EventOptions) -> Self {
        Self::of(Runtime::current(), options)
    }

    /// An event of a runtime that was not recorded yet. Makes no driver call.
    #[must_use]
    pub fn on(runtime: &Runtime, options: EventOptions) -> Self {
        Self::of(runtime.clone(), options)
    }

    fn of(runtime: Runtime, options: EventOptions) -> Self {
        let inner = Inner {
            runtime,
            options,
            native: OnceLock::new(),
            recorded: AtomicBool::new(false),
            spent: AtomicBool::new(false),
            of_graphs: OnceLock::new(),
        };
        Self { inner: Arc::new(inner), made: Made::now() }
    }

    /// The device of the event, known from the first record on.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        self.inner.native.get().map(|native| Device::cuda(native.device))
    }

    /// The event's CUDA handle (`CUevent`) as a number, 0 before the first record. An escape hatch: whoever passes it
    /// to the driver is responsible for what happens. The handle may be reused for another event once this one is
    /// dropped.
    #[must_use]
    pub fn cuda_event(&self) -> usize {
        // If other code records it during a capture of its own, the streams that wait for it join that capture.
        self.inner.runtime.started().into_iter().for_each(|ready| ready.captures.open_door());
        self.inner.native.get().map_or(0, |native| native.handle.0)
    }

    /// The same number under the name that torch has for every kind of device.
    #[must_use]
    pub fn event_id(&self) -> usize {
        self.cuda_event()
    }

    /// The options that the event was made with.
    #[must_use]
    pub fn options(&self) -> EventOptions {
        self.inner.options
    }

    /// The event's handle for other processes, 64 bytes. Takes a driver event on the current device if there is none
    /// yet. Keep the event as long as the other process uses what it opens with this ([`Self::from_ipc_handle`]).
    ///
    /// # Errors
    /// The driver's error: "invalid resource handle" for an event that was not made with
    /// [`EventOptions::interprocess`].
    pub fn ipc_handle(&self) -> Result<[u8; 64]> {
        let ready = self.inner.runtime.ready()?;
        let native = match self.inner.native.get() {
            Some(native) => *native,
            None => self.inner.first_native_on(ready, self.inner.runtime.current_device()?)?,
        };
        let name = ready.api.ipc_event_handle(native.device, native.handle)?;
        // From now on the other process may record it: the driver is asked each time.
        self.inner.recorded.store(true, Ordering::Release);
        Ok(name)
    }

    /// Opens an event of another process, for use with a device here, on the current runtime. The bytes come from
    /// [`Self::ipc_handle`] in that process.
    ///
    /// # Errors
    /// [`crate::IpcError::EventHandleSize`] unless there are 64 bytes; the device does not exist; the driver's error, "invalid
    /// device context" for an event of this process.
    pub fn from_ipc_handle(device: impl DeviceArg, handle: &[u8]) -> Result<Self> {
        let runtime = Runtime::current();
        let device = device.resolve(&runtime)?;
        Event::from_ipc_handle_on(&runtime, device, handle)
    }

    /// As [`Self::from_ipc_handle`], on a runtime.
    ///
    /// # Errors
    /// As there.
    pub fn from_ipc_handle_on(runtime: &Runtime, device: DeviceIndex, handle: &[u8]) -> Result<Self> {
        let name = handle.try_into().map_err(|_| Error::Ipc(IpcError::EventHandleSize { got: handle.len() }))?;
        let handle = runtime.check_device(device)?.api.ipc_open_event(device, &name)?;
        let event = Self::on(runtime, EventOptions { interprocess: true, ..EventOptions::default() });
        let _ = event.inner.native.set(Native { handle, device });
        // Whether it was recorded, only the other process knows: the driver is asked each time.
        event.inner.recorded.store(true, Ordering::Release);
        Ok(event)
    }

    /// Records the event after the work queued on the stream (the current one for `None`) so far; from then on the
    /// event marks that work alone.
    ///
    /// # Errors
    /// The stream is on another device than the event was first recorded on, or the driver's error.
    pub fn record(&self, stream: impl StreamArg) -> Result<()> {
        self.record_as("record_event", stream, Inner::record)
    }

    /// Makes a call of [`Inner`] on a stream that records the event, or puts it off.
    #[inline]
    fn record_as(
        &self,
        name: &'static str,
        stream: impl StreamArg,
        record: fn(&Inner, &Started, StreamRef) -> Result<()>,
    ) -> Result<()> {
        let own = &*self.inner;
        let ready = own.runtime.ready()?;
        stream.with_stream(|stream| {
            let on = own.runtime.streams().or_current(stream)?;
            if PuttingOff::is_on() {
                // The driver's event is there at once, so that it has a number, and another device is refused here.
                own.native_for(ready, on)?;
            }
            if self.put_off(name, (on, stream), record) { Ok(()) } else { record(own, ready, on) }
        })
    }

    /// Puts a call of [`Inner`] on a stream off, where this thread does so.
    #[inline]
    fn put_off(
        &self,
        name: &'static str,
        (on, stream): (StreamRef, Option<&Stream>),
        call: fn(&Inner, &Started, StreamRef) -> Result<()>,
    ) -> bool {
        let event = Arc::as_ptr(&self.inner) as usize as u64;
        pending::put_off(name, [event, on.handle.0 as u64], self.made.as_ref(), || {
            let (own, stream) = (Arc::clone(&self.inner), stream.cloned());
            Box::new(move || {
                // The stream lives as long as calls may use it.
                let _stream = &stream;
                call(&own, own.runtime.ready()?, on)
            })
        })
    }

    /// Orders later work of `stream` after the current work of `earlier`.
    pub(crate) fn order(runtime: &Runtime, earlier: StreamRef, stream: StreamRef) -> Result<()> {
        let (event, ready) = (Self::on(runtime, EventOptions::default()), runtime.ready()?);
        event.inner.record(ready, earlier)?;
        event.inner.wait(ready, stream)
    }

    /// Records the event as [`Self::record`] does, unless it was recorded before; torch's `recordOnce`. Of threads that do
    /// so at the same time more than one may record it.
    ///
    /// # Errors
    /// As for [`Self::record`].
    #[doc(alias = "recordOnce")]
    pub fn record_once(&self, stream: impl StreamArg) -> Result<()> {
        self.record_as("record_event_once", stream, |own, ready, stream| match own.recorded() {
            Some(_) => Ok(()),
            None => own.record(ready, stream),
        })
    }

    /// Whether the event was recorded, here or by a process that it was opened from; torch's
    /// `was_marked_for_recording`.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        PuttingOff::settle("an event is asked whether it is done");
        self.recorded().is_some()
    }

    /// Makes later work of the stream (the current one for `None`), which may be on another device, wait for the event.
    /// Does nothing if it was never recorded.
    ///
    /// # Errors
    /// The driver's error.
    pub fn wait(&self, stream: impl StreamArg) -> Result<()> {
        let own = &*self.inner;
        let ready = own.runtime.ready()?;
        stream.with_stream(|stream| {
            let on = own.runtime.streams().or_current(stream)?;
            if self.put_off("wait_event", (on, stream), Inner::wait) { Ok(()) } else { own.wait(ready, on) }
        })
    }

    /// Whether the work before the event is done. Does not block.
    ///
    /// # Errors
    /// The driver's error.
    pub fn query(&self) -> Result<bool> {
        PuttingOff::settle("an event is asked whether it is done");
        let Some(native) = self.recorded() else { return Ok(true) };
        let ready = self.inner.runtime.ready()?;
        let answer = ready.api.event_is_done(native.handle);
        ready.api.trace.deliver_order();
        answer.map_err(|error| ready.launches.explain(native.device, error))
    }

    /// Blocks until the work before the event is done.
    ///
    /// # Errors
    /// The driver's error, with the last launches where the device is lost ([`Error::DeviceFault`]); a kernel of the
    /// device has refused a value ([`Error::DeviceAssertion`]).
    pub fn synchronize(&self) -> Result<()> {
        PuttingOff::settle("an event is waited for");
        let Some(native) = self.recorded() else { return Ok(()) };
        let ready = self.inner.runtime.ready()?;
        ready.api.trace.begin(TraceKind::Synchronize, StreamRef { device: native.device, handle: Default::default() });
        let waited = ready.api.event_wait_on_host(native.handle);
        if waited.is_ok() {
            let Native { handle, device } = native;
            let event = || TraceEvent::EventSynchronized { event: handle.0 as u64, device };
            ready.api.trace.report_now(TraceKind::Synchronize, event);
            ready.sweep();
        }
        self.inner.runtime.waited(ready, native.device, waited)
    }

    /// Milliseconds from this event to `end`, to about half a microsecond.
    ///
    /// # Errors
    /// One of them has no timing, was not recorded or is not done; the driver's error, for example for events of two
    /// devices.
    pub fn elapsed_time(&self, end: &Self) -> Result<f32> {
        self.inner.runtime.check_same(&end.inner.runtime, "event")?;
        if !(self.inner.options.enable_timing && end.inner.options.enable_timing) {
            return Err(Error::Event(EventError::WithoutTiming));
        }
        PuttingOff::settle("an event is asked whether it is done");
        let (Some(first), Some(last)) = (self.recorded(), end.recorded()) else {
            return Err(Error::Event(EventError::NotRecorded));
        };
        if !(self.query()? && end.query()?) {
            return Err(Error::Event(EventError::NotCompleted));
        }
        self.inner.runtime.ready()?.api.event_elapsed_ms(first.handle, last.handle)
    }

    /// Time from this event to `end`, to about half a microsecond; [`Self::elapsed_time`] has torch's milliseconds.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceBuffer, Event, EventOptions};
    ///
    /// let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
    /// let buffer = DeviceBuffer::new(1 << 20, None)?;
    /// start.record(None)?;
    /// buffer.fill(.., 1, None)?;
    /// end.record(None)?;
    /// end.synchronize()?;
    /// assert!(start.elapsed(&end)? > std::time::Duration::ZERO);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::elapsed_time`]; [`crate::EventError::Reversed`] where this event was recorded after `end`.
    pub fn elapsed(&self, end: &Self) -> Result<Duration> {
        let milliseconds = f64::from(self.elapsed_time(end)?);
        Duration::try_from_secs_f64(milliseconds / 1e3).map_err(|_| Error::Event(EventError::Reversed))
    }

    #[inline]
    fn recorded(&self) -> Option<Native> {
        self.inner.recorded()
    }
}

impl Inner {
    fn record(&self, ready: &Started, stream: StreamRef) -> Result<()> {
        let native = self.native_for(ready, stream)?;
        let flags = self.use_on(ready, native, stream)?;
        // A driver event that may be recorded in a capture is not reused, nor is one whose record the driver refuses
        // below.
        if ready.allocator.is_scoped() {
            self.spent.store(true, Ordering::Relaxed);
        }
        match ready.api.event_record_with_flags(native.handle, stream, flags) {
            Ok(()) => {
                self.recorded.store(true, Ordering::Release);
                let event = || TraceEvent::EventRecorded { event: native.handle.0 as u64, stream: stream.into() };
                ready.api.trace.report_now(TraceKind::Event, event);
                Ok(())
            }
            Err(error) => {
                self.spent.store(true, Ordering::Relaxed);
                Err(ready.launches.explain(stream.device, error))
            }
        }
    }

    fn wait(&self, ready: &Started, stream: StreamRef) -> Result<()> {
        let Some(native) = self.recorded() else { return Ok(()) };
        let flags = self.use_on(ready, native, stream)?;
        ready.api.trace.begin(TraceKind::Event, stream);
        let queued = ready.api.stream_wait_event(stream, native.handle, flags);
        queued.map_err(|error| ready.launches.explain(stream.device, error))?;
        let event = || TraceEvent::EventWaited { event: native.handle.0 as u64, stream: stream.into() };
        ready.api.trace.report_now(TraceKind::Event, event);
        Ok(())
    }

    /// The driver's event for a record on a stream.
    #[inline]
    fn native_for(&self, ready: &Started, stream: StreamRef) -> Result<Native> {
        let native =
            self.native_on(ready, stream.device).map_err(|error| ready.launches.explain(stream.device, error))?;
        if native.device != stream.device {
            return Err(Error::Event(EventError::Device { event: native.device, stream: stream.device }));
        }
        Ok(native)
    }

    /// The driver's event; takes one if the event has none yet.
    #[inline]
    fn native_on(&self, ready: &Started, device: DeviceIndex) -> Result<Native> {
        match self.native.get() {
            Some(native) => Ok(*native),
            None => self.first_native_on(ready, device),
        }
    }

    #[inline(never)]
    fn first_native_on(&self, ready: &Started, device: DeviceIndex) -> Result<Native> {
        let flags = self.options.flags();
        let spare = ready.spare_events.take(device, flags);
        let handle = spare.map_or_else(|| ready.api.event_create_with_flags(device, flags), Ok)?;
        let native = Native { handle, device };
        let first = *self.native.get_or_init(|| native);
        if first.handle != handle {
            // Another thread was first, and this driver event was never used.
            give_up(ready, native, flags);
        } else {
            let event = || TraceEvent::EventCreated { event: handle.0 as u64, device };
            ready.api.trace.report_now(TraceKind::Event, event);
        }
        Ok(first)
    }

    /// The flag for using the event on a stream: one of its own for external events and streams that capture. Then the
    /// graph, which names the driver's event, keeps it.
    #[inline]
    fn use_on(&self, ready: &Started, native: Native, stream: StreamRef) -> Result<u32> {
        if self.options.external { self.use_by_graph(ready, native, stream) } else { Ok(0) }
    }

    #[cold]
    fn use_by_graph(&self, ready: &Started, native: Native, stream: StreamRef) -> Result<u32> {
        let Some(capture) = ready.api.capture_id(stream)? else { return Ok(0) };
        let shared = self.of_graphs.get_or_init(|| {
            ready.graph_events.add(native.handle);
            Arc::new(OfGraphs { handle: native.handle, home: self.runtime.downgrade() })
        });
        ready.captures.keep(capture, KeptId::of(shared), || Arc::<OfGraphs>::clone(shared));
        Ok(EVENT_EXTERNAL)
    }

    #[inline]
    fn recorded(&self) -> Option<Native> {
        if self.recorded.load(Ordering::Acquire) { self.native.get().copied() } else { None }
    }
}

/// Keeps a driver's event for other events, or destroys it.
fn give_up(ready: &Started, native: Native, flags: u32) {
    if let Err(handle) = ready.spare_events.keep(native.device, flags, native.handle) {
        // There is nobody to tell; what cannot be destroyed now is tried again later.
        let _ = ready.destroy(DriverObject::Event(handle));
    }
}

/// A driver's event that graphs use; destroyed with the last of them and the event's owner.
#[derive(Debug)]
struct OfGraphs {
    handle: EventHandle,
    home: WeakRuntime,
}

impl Drop for OfGraphs {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        // Without the runtime the driver event was destroyed with it.
        let Some(runtime) = Runtime::upgrade(&self.home) else { return };
        if let Some(ready) = runtime.started().filter(|ready| ready.graph_events.remove(self.handle)) {
            let _ = ready.destroy(DriverObject::Event(self.handle));
        }
    }
}

impl Default for Event {
    fn default() -> Self {
        Self::new(EventOptions::default())
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device().map_or_else(|| "none yet".to_owned(), |device| device.to_string());
        write!(f, "Event {{ device: {device}, recorded: {} }}", self.is_recorded())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cuda_event() {
            0 => f.write_str("<torch.cuda.Event uninitialized>"),
            handle => write!(f, "<torch.cuda.Event {handle:#x}>"),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            made.let_go();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(native) = self.native.get().copied() else { return };
        if process::in_bad_fork() {
            return;
        }
        let Some(ready) = self.runtime.started() else { return };
        let event = || TraceEvent::EventDeleted { event: native.handle.0 as u64, device: native.device };
        ready.api.trace.report_now(TraceKind::Event, event);
        if self.of_graphs.get().is_some() {
            return;
        }
        if *self.spent.get_mut() {
            // There is nobody to tell, and nothing waits for an event that is being dropped.
            let _ = ready.destroy(DriverObject::Event(native.handle));
        } else {
            give_up(ready, native, self.options.flags());
        }
    }
}
