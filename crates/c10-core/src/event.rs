//! Events: marks in a stream that the host and other streams can wait for.
//!
//! **Invariants:** the driver's event is made by the first record, on the recording stream's device, and destroyed
//! once, when the event is dropped. Before the first record an event is done and waiting for it does nothing.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::arg::{DeviceArg, StreamArg};
use crate::device::{Device, DeviceIndex};
use crate::driver::{EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_EXTERNAL, EVENT_INTERPROCESS, EventHandle};
use crate::error::{Error, Result};
use crate::process;
use crate::remains::Doomed;
use crate::runtime::Runtime;
use crate::stream::Stream;

/// What an event can do.
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

/// A mark in a stream; torch's `Event`.
#[derive(Debug)]
pub struct Event {
    runtime: Runtime,
    options: EventOptions,
    native: Mutex<Option<Native>>,
}

/// The driver's event.
#[derive(Clone, Copy, Debug)]
struct Native {
    handle: EventHandle,
    device: DeviceIndex,
    recorded: bool,
}

impl Event {
    /// An event of the current runtime that stands for nothing yet. Calls nothing.
    #[must_use]
    pub fn new(options: EventOptions) -> Self {
        Self::on(&Runtime::current(), options)
    }

    /// An event of a runtime that stands for nothing yet. Calls nothing.
    #[must_use]
    pub fn on(runtime: &Runtime, options: EventOptions) -> Self {
        Self { runtime: runtime.clone(), options, native: Mutex::new(None) }
    }

    /// The device of the event, known from the first record on.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        self.native().map(|native| Device::cuda(native.device.0))
    }

    /// The event's CUDA handle (`CUevent`) as a number, 0 before the first record. A raw door: whoever uses it with
    /// the driver answers for what is done.
    #[must_use]
    pub fn cuda_event(&self) -> usize {
        self.native().map_or(0, |native| native.handle.0)
    }

    /// What the event can do.
    #[must_use]
    pub fn options(&self) -> EventOptions {
        self.options
    }

    /// The event's name for other processes, 64 bytes; makes the driver's event on the current device if there is none.
    /// Keep the event as long as the other process uses what it opens with this ([`Self::from_ipc_handle`]).
    ///
    /// # Errors
    /// The driver's error: "invalid resource handle" for an event that was not made with
    /// [`EventOptions::interprocess`].
    pub fn ipc_handle(&self) -> Result<[u8; 64]> {
        let ready = self.runtime.ready()?;
        let mut slot = self.lock();
        let native = match &mut *slot {
            Some(native) => native,
            none => {
                let device = self.runtime.current_device()?;
                let handle = ready.api.event_create_with_flags(device, self.options.flags())?;
                none.insert(Native { handle, device, recorded: false })
            }
        };
        let name = ready.api.ipc_event_handle(native.device, native.handle)?;
        // From now on the other process may record it: the driver is asked each time.
        native.recorded = true;
        Ok(name)
    }

    /// The event of another process that [`Self::ipc_handle`] named there, for use with a device here, on the current
    /// runtime.
    ///
    /// # Errors
    /// [`Error::IpcEventHandleSize`] unless there are 64 bytes; the device does not exist; the driver's error, "invalid
    /// device context" for an event of this process.
    pub fn from_ipc_handle(device: impl DeviceArg, handle: &[u8]) -> Result<Self> {
        let runtime = Runtime::current();
        let device = device.resolve(&runtime)?;
        runtime.event_from_ipc_handle(device, handle)
    }

    /// Records the event after the work queued on the stream (the current one for `None`) so far; from then on it stands for that work alone.
    ///
    /// # Errors
    /// The stream is on another device than the event was first recorded on, or the driver's error.
    pub fn record(&self, stream: impl StreamArg) -> Result<()> {
        let stream = &stream.resolve(&self.runtime)?;
        self.runtime.check_same(stream.runtime(), "stream")?;
        let api = &self.runtime.ready()?.api;
        let flags = self.external_flag(stream)?;
        let mut slot = self.lock();
        let native = match &mut *slot {
            Some(native) => native,
            none => {
                let device = stream.device_index();
                let handle = api.event_create_with_flags(device, self.options.flags())?;
                none.insert(Native { handle, device, recorded: false })
            }
        };
        if native.device != stream.device_index() {
            return Err(Error::EventDevice { event: native.device, stream: stream.device_index() });
        }
        api.event_record_with_flags(native.handle, stream.reference(), flags)?;
        native.recorded = true;
        Ok(())
    }

    /// Makes later work of the stream, which may be on another device, wait for the event. Does nothing if it was
    /// never recorded.
    ///
    /// # Errors
    /// The driver's error.
    pub fn wait(&self, stream: impl StreamArg) -> Result<()> {
        let stream = &stream.resolve(&self.runtime)?;
        self.runtime.check_same(stream.runtime(), "stream")?;
        let Some(native) = self.recorded() else { return Ok(()) };
        let flags = self.external_flag(stream)?;
        self.runtime.ready()?.api.stream_wait_event(stream.reference(), native.handle, flags)
    }

    /// Whether the work before the event is done. Does not block.
    ///
    /// # Errors
    /// The driver's error.
    pub fn query(&self) -> Result<bool> {
        let Some(native) = self.recorded() else { return Ok(true) };
        self.runtime.ready()?.api.event_is_done(native.handle)
    }

    /// Blocks until the work before the event is done.
    ///
    /// # Errors
    /// The driver's error.
    pub fn synchronize(&self) -> Result<()> {
        let Some(native) = self.recorded() else { return Ok(()) };
        let ready = self.runtime.ready()?;
        ready.api.event_wait_on_host(native.handle)?;
        ready.sweep();
        Ok(())
    }

    /// Milliseconds from this event to `end`, to about half a microsecond.
    ///
    /// # Errors
    /// One of them has no timing, was not recorded or is not done; the driver's error, for example for events of two
    /// devices.
    pub fn elapsed_time(&self, end: &Self) -> Result<f32> {
        self.runtime.check_same(&end.runtime, "event")?;
        if !(self.options.enable_timing && end.options.enable_timing) {
            return Err(Error::EventWithoutTiming);
        }
        let (Some(first), Some(last)) = (self.recorded(), end.recorded()) else {
            return Err(Error::EventNotRecorded);
        };
        if !(self.query()? && end.query()?) {
            return Err(Error::EventNotCompleted);
        }
        self.runtime.ready()?.api.event_elapsed_ms(first.handle, last.handle)
    }

    /// The flag with which an external event is used on a stream that captures.
    fn external_flag(&self, stream: &Stream) -> Result<u32> {
        Ok(if self.options.external && stream.is_capturing()? { EVENT_EXTERNAL } else { 0 })
    }

    fn recorded(&self) -> Option<Native> {
        self.native().filter(|native| native.recorded)
    }

    fn native(&self) -> Option<Native> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Native>> {
        self.native.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime {
    /// See [`Event::from_ipc_handle`].
    ///
    /// # Errors
    /// As there.
    pub fn event_from_ipc_handle(&self, device: DeviceIndex, handle: &[u8]) -> Result<Event> {
        let name = handle.try_into().map_err(|_| Error::IpcEventHandleSize { got: handle.len() })?;
        let handle = self.check_device(device)?.api.ipc_open_event(device, &name)?;
        // Whether it was recorded, only the other process knows: the driver is asked each time.
        let native = Some(Native { handle, device, recorded: true });
        let options = EventOptions { interprocess: true, ..EventOptions::default() };
        Ok(Event { runtime: self.clone(), options, native: Mutex::new(native) })
    }
}

impl Default for Event {
    fn default() -> Self {
        Self::new(EventOptions::default())
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
        let native = self.native();
        if let (Some(native), false, Ok(ready)) = (native, process::in_bad_fork(), self.runtime.ready()) {
            // There is nobody to tell, and nothing waits for an event that is being dropped.
            let _ = ready.destroy(Doomed::Event(native.handle));
        }
    }
}
