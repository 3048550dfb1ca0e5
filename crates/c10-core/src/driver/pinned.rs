//! What the allocator of pinned memory needs of a driver. It is written against these traits alone, so that it can be
//! run without any driver.

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::{CaptureMode, EventHandle, StreamRef};

/// Queries of events, which a thread of its own can make.
pub(crate) trait EventQuery {
    /// Whether the work before the event is done.
    ///
    /// # Errors
    /// The driver's error; not being ready is not one.
    fn query(&self, event: EventHandle) -> Result<bool>;

    /// Sets this thread's capture mode and returns the mode before.
    ///
    /// # Errors
    /// The driver's error.
    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode>;
}

/// Pinned memory and events.
pub(crate) trait HostDriver: EventQuery {
    /// Allocates pinned memory, set to zero; the address is never 0.
    ///
    /// # Errors
    /// The driver's error.
    fn host_alloc(&self, device: DeviceIndex, bytes: usize) -> Result<usize>;

    /// Gives such memory back; may wait for the device.
    ///
    /// # Errors
    /// The driver's error; the memory then still counts as taken.
    fn host_free(&self, device: DeviceIndex, address: usize) -> Result<()>;

    /// Maps memory of the system, set to zero, lets up to `threads` threads touch its pages, and registers it.
    ///
    /// # Errors
    /// The system has no such memory, or the driver's error; nothing is taken then.
    fn host_register(&self, device: DeviceIndex, bytes: usize, threads: u32) -> Result<usize>;

    /// Gives such memory back; may wait for the device.
    ///
    /// # Errors
    /// The driver's error; the memory then still counts as taken.
    fn host_unregister(&self, device: DeviceIndex, address: usize, bytes: usize) -> Result<()>;

    /// Registers memory of the program, which stays where it is until [`Self::host_unpin`].
    ///
    /// # Errors
    /// The driver's error.
    fn host_pin(&self, device: DeviceIndex, address: usize, bytes: usize) -> Result<()>;

    /// Gives such memory up; may wait for the device.
    ///
    /// # Errors
    /// The driver's error; the memory is still registered then.
    fn host_unpin(&self, device: DeviceIndex, address: usize) -> Result<()>;

    /// Makes an event without timing.
    ///
    /// # Errors
    /// The driver's error.
    fn create_event(&self, device: DeviceIndex) -> Result<EventHandle>;

    /// Destroys an event.
    ///
    /// # Errors
    /// The driver's error.
    fn destroy_event(&self, event: EventHandle) -> Result<()>;

    /// Records an event after the work queued on a stream so far.
    ///
    /// # Errors
    /// The driver's error; the event then marks the same work as before.
    fn record_event(&self, event: EventHandle, stream: StreamRef) -> Result<()>;

    /// Blocks until the work before an event is done.
    ///
    /// # Errors
    /// The driver's error.
    fn wait_for_event(&self, event: EventHandle) -> Result<()>;

    /// Whether the stream takes part in a capture.
    ///
    /// # Errors
    /// The driver's error.
    fn is_capturing(&self, stream: StreamRef) -> Result<bool>;
}
