//! What can be wrong with a stream.

use crate::base::device::DeviceIndex;

/// What is wrong with a stream.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, Runtime, StreamError, StreamId};
///
/// let refused = Runtime::current().streams().by_id(0, StreamId(2)).unwrap_err();
/// assert_eq!(refused, Error::Stream(StreamError::Unknown { id: 2 }));
/// assert_eq!(refused.to_string(), "the device has no stream with the id 2");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// A stream of one device was given where another device was named.
    #[error("the stream is on device {stream}, but device {device} was asked for")]
    Device {
        /// The device that was named.
        device: DeviceIndex,
        /// The stream's device.
        stream: DeviceIndex,
    },
    /// A number that names no stream of the device.
    #[error("the device has no stream with the id {id}")]
    Unknown {
        /// The number.
        id: i64,
    },
    /// A priority was asked for a stream that was made elsewhere and has its own.
    #[error("Priority was explicitly set for a external stream")]
    ExternalPriority,
    /// A function was to be called once by a stream that captures; its graph would call it at each replay.
    #[error(
        "a function that is called once cannot be captured; record one that can be called again with CaptureScope::launch_host_func"
    )]
    HostFunctionDuringCapture,
}
