//! An event of any kind of device, for code that does not know which kind it works on.
//!
//! **Invariant:** an event of a kind without streams is never recorded: it is done, and waiting for it does nothing.

use std::fmt;

use crate::api::arg::{DeviceOf, StreamArg};
use crate::api::event::{Event, EventOptions};
use crate::base::device::{Device, DeviceIndex, DeviceType};
use crate::base::error::EventError;
use crate::base::error::{Error, Result};
use crate::runtime::Runtime;

/// An event of any kind of device; torch's `torch.Event`, in C++ `c10::Event`.
///
/// An event of the host ([`DeviceType::Cpu`]) can be made, so that code for all devices needs no special case. It
/// cannot be recorded.
///
/// ```
/// use c10_core::{AnyEvent, DeviceType, Error, EventError, EventOptions};
/// let event = AnyEvent::new(DeviceType::Cpu, EventOptions::default());
/// assert_eq!((event.query()?, event.device_index()), (true, None));
/// assert!(matches!(event.record(None), Err(Error::Event(EventError::NoEvents { .. }))));
/// # Ok::<(), Error>(())
/// ```
pub struct AnyEvent(Kind);

enum Kind {
    Cuda(Event),
    /// A kind of device without streams.
    Other(DeviceType, EventOptions),
}

impl AnyEvent {
    /// An event of the current runtime that was not recorded yet. Makes no driver call.
    #[must_use]
    pub fn new(device_type: DeviceType, options: EventOptions) -> Self {
        match device_type {
            DeviceType::Cuda => Event::new(options).into(),
            DeviceType::Cpu => Self(Kind::Other(device_type, options)),
        }
    }

    /// As [`Self::new`], on another runtime.
    #[must_use]
    pub fn on(runtime: &Runtime, device_type: DeviceType, options: EventOptions) -> Self {
        match device_type {
            DeviceType::Cuda => Event::on(runtime, options).into(),
            DeviceType::Cpu => Self(Kind::Other(device_type, options)),
        }
    }

    /// Kind of the device that the event is for.
    #[must_use]
    pub fn device_type(&self) -> DeviceType {
        match &self.0 {
            Kind::Cuda(_) => DeviceType::Cuda,
            Kind::Other(kind, _) => *kind,
        }
    }

    /// Number of the event's device, known from the first record on; torch's is -1 until then.
    #[must_use]
    pub fn device_index(&self) -> Option<DeviceIndex> {
        self.cuda_device()
    }

    /// The event's device, which has a number from the first record on.
    #[must_use]
    pub fn device(&self) -> Device {
        Device { kind: self.device_type(), index: self.device_index() }
    }

    /// The options that the event was made with.
    #[must_use]
    pub fn options(&self) -> EventOptions {
        match &self.0 {
            Kind::Cuda(event) => event.options(),
            Kind::Other(_, options) => *options,
        }
    }

    /// The driver's handle as a number, 0 before the first record; see [`Event::cuda_event`].
    #[must_use]
    pub fn event_id(&self) -> usize {
        self.as_cuda().map_or(0, Event::event_id)
    }

    /// The event, if it is one of CUDA.
    #[must_use]
    pub fn as_cuda(&self) -> Option<&Event> {
        match &self.0 {
            Kind::Cuda(event) => Some(event),
            Kind::Other(..) => None,
        }
    }

    /// Whether the event was recorded.
    #[must_use]
    #[doc(alias = "was_marked_for_recording")]
    pub fn is_recorded(&self) -> bool {
        self.as_cuda().is_some_and(Event::is_recorded)
    }

    /// Records the event after the work queued on the stream (the current one for `None`) so far.
    ///
    /// # Errors
    /// [`crate::EventError::NoEvents`] for a kind of device without streams; else as for [`Event::record`].
    pub fn record(&self, stream: impl StreamArg) -> Result<()> {
        match &self.0 {
            Kind::Cuda(event) => event.record(stream),
            Kind::Other(kind, _) => Err(Error::Event(EventError::NoEvents { kind: *kind })),
        }
    }

    /// Records the event unless it was recorded before.
    ///
    /// # Errors
    /// As for [`Self::record`].
    #[doc(alias = "recordOnce")]
    pub fn record_once(&self, stream: impl StreamArg) -> Result<()> {
        if self.is_recorded() { Ok(()) } else { self.record(stream) }
    }

    /// Makes later work of the stream (the current one for `None`) wait for the event; torch's `wait`, in C++ `block`. Does
    /// nothing if it was never recorded.
    ///
    /// # Errors
    /// As for [`Event::wait`].
    #[doc(alias = "block")]
    pub fn wait(&self, stream: impl StreamArg) -> Result<()> {
        self.as_cuda().map_or(Ok(()), |event| event.wait(stream))
    }

    /// Whether the work before the event is done. Does not block.
    ///
    /// # Errors
    /// The driver's error.
    pub fn query(&self) -> Result<bool> {
        self.as_cuda().map_or(Ok(true), Event::query)
    }

    /// Blocks until the work before the event is done.
    ///
    /// # Errors
    /// The driver's error.
    pub fn synchronize(&self) -> Result<()> {
        self.as_cuda().map_or(Ok(()), Event::synchronize)
    }

    /// Milliseconds from this event to `end`.
    ///
    /// # Errors
    /// [`crate::EventError::Kind`] for events of two kinds of devices; else as for [`Event::elapsed_time`].
    pub fn elapsed_time(&self, end: &Self) -> Result<f32> {
        match (&self.0, &end.0) {
            (Kind::Cuda(first), Kind::Cuda(last)) => first.elapsed_time(last),
            (Kind::Other(..), Kind::Other(..)) => Err(Error::Event(EventError::NotRecorded)),
            _ => Err(Error::Event(EventError::Kind { first: self.device_type(), last: end.device_type() })),
        }
    }
}

impl From<Event> for AnyEvent {
    fn from(event: Event) -> Self {
        Self(Kind::Cuda(event))
    }
}

impl DeviceOf for AnyEvent {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        self.as_cuda().and_then(Event::cuda_device)
    }
}

impl fmt::Debug for AnyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyEvent {{ device: {}, recorded: {} }}", self.device(), self.is_recorded())
    }
}

impl fmt::Display for AnyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "torch.Event device_type={}, device_index=", self.device_type())?;
        self.device_index().unwrap_or(DeviceIndex(-1)).fmt(f)?;
        write!(f, ", event_flag={}, event_id={:#x}", i32::from(self.options().enable_timing), self.event_id())
    }
}
