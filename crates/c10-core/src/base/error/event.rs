//! What can be wrong with an event.

use crate::base::device::DeviceIndex;

/// Why an event cannot be recorded or asked.
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
    /// An event was recorded on one device and then on another.
    #[error("Event device {event} does not match recording stream's device {stream}.")]
    Device {
        /// Device of the event.
        event: DeviceIndex,
        /// Device of the stream.
        stream: DeviceIndex,
    },
}
