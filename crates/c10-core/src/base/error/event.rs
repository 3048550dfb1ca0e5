//! What can be wrong with an event.

use crate::base::device::{DeviceIndex, DeviceType};

/// Why an event cannot be recorded or asked.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, Event, EventError, EventOptions};
///
/// let (start, end) = (Event::new(EventOptions::TIMING), Event::new(EventOptions::TIMING));
/// let refused = start.elapsed_time(&end).unwrap_err();
/// assert_eq!(refused, Error::Event(EventError::NotRecorded));
/// assert_eq!(refused.to_string(), "Both events must be recorded before calculating elapsed time.");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// An event without timing was asked for a time.
    #[error("Both events must be created with argument 'enable_timing=True'.")]
    WithoutTiming,
    /// An event that was never recorded was asked for a time.
    #[error("Both events must be recorded before calculating elapsed time.")]
    NotRecorded,
    /// An event whose work is not done was asked for a time.
    #[error("Both events must be completed before calculating elapsed time.")]
    NotCompleted,
    /// A time was asked for that ends before it begins.
    #[error("the first event was recorded after the second; there is no duration from it to that")]
    Reversed,
    /// An event of a kind of device that has no streams was to be recorded.
    #[error("{kind} backend doesn't support events.")]
    NoEvents {
        /// Kind of the device, for example `cpu`.
        kind: DeviceType,
    },
    /// The time between events of two kinds of devices was asked for.
    #[error("Event device type {first} does not match other's device type {last}.")]
    Kind {
        /// Kind of the first event's device.
        first: DeviceType,
        /// Kind of the second event's device.
        last: DeviceType,
    },
    /// An event was recorded on one device and then on another.
    #[error("Event device {event} does not match recording stream's device {stream}.")]
    Device {
        /// Device of the event.
        event: DeviceIndex,
        /// Device of the stream.
        stream: DeviceIndex,
    },
}
