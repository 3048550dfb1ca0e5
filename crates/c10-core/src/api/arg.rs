//! What may be given where a device or a stream is wanted, so that callers need not name the obvious one.

use crate::api::buffers::DeviceBuffer;
use crate::api::event::Event;
use crate::api::pinned::PinnedBuffer;
use crate::api::stream::{ExternalStream, Stream};
use crate::base::device::{Device, DeviceIndex};
use crate::base::error::Result;
use crate::runtime::Runtime;

/// What can be given where torch takes a device: a number, a [`Device`], a text such as `"cuda:1"`, or `None` for the
/// current device.
///
/// Numbers pass through unchanged, negative ones too; what they mean is the function's matter.
pub trait DeviceArg: sealed::Sealed {
    /// The device's number; `None` for the current device.
    ///
    /// # Errors
    /// The text names no device, or the device is no CUDA device.
    fn index(self) -> Result<Option<DeviceIndex>>;

    /// The device's number, with the current device for `None` and for devices without a number.
    ///
    /// # Errors
    /// As for [`Self::index`], or the runtime cannot start.
    #[inline]
    fn resolve(self, runtime: &Runtime) -> Result<DeviceIndex>
    where
        Self: Sized,
    {
        match self.index()? {
            Some(index) => Ok(index),
            None => runtime.current_device(),
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl sealed::Sealed for $number {}
        impl DeviceArg for $number {
            #[inline]
            fn index(self) -> Result<Option<DeviceIndex>> {
                // A number that does not fit is out of range whatever its last digits are.
                #[allow(clippy::allow_attributes, unused_comparisons, reason = "some of the types are unsigned")]
                let beyond = if self < 0 { i32::MIN } else { i32::MAX };
                Ok(Some(DeviceIndex(i32::try_from(self).unwrap_or(beyond))))
            }
        }
    )*};
}

numbers! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize }

impl sealed::Sealed for DeviceIndex {}
impl DeviceArg for DeviceIndex {
    #[inline]
    fn index(self) -> Result<Option<DeviceIndex>> {
        Ok(Some(self))
    }
}

impl sealed::Sealed for Device {}
impl DeviceArg for Device {
    #[inline]
    fn index(self) -> Result<Option<DeviceIndex>> {
        self.cuda_index()
    }
}

impl sealed::Sealed for &str {}
impl DeviceArg for &str {
    fn index(self) -> Result<Option<DeviceIndex>> {
        self.parse::<Device>()?.index()
    }
}

impl sealed::Sealed for Option<Device> {}
impl DeviceArg for Option<Device> {
    #[inline]
    fn index(self) -> Result<Option<DeviceIndex>> {
        match self {
            Some(device) => device.index(),
            None => Ok(None),
        }
    }

    #[inline]
    fn resolve(self, runtime: &Runtime) -> Result<DeviceIndex> {
        match self {
            Some(device) => device.resolve(runtime),
            None => runtime.current_device(),
        }
    }
}

/// What is on a device; what torch's `device_of` takes. Types of other crates may say where they are, too.
pub trait DeviceOf {
    /// The CUDA device; `None` for what is on none.
    fn cuda_device(&self) -> Option<DeviceIndex>;
}

impl DeviceOf for DeviceBuffer {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        Some(self.device_index())
    }
}

/// Pinned memory is the host's.
impl DeviceOf for PinnedBuffer {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        None
    }
}

impl DeviceOf for Stream {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        Some(self.device_index())
    }
}

impl DeviceOf for ExternalStream {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        Some(self.device_index())
    }
}

/// An event is on no device before its first record.
impl DeviceOf for Event {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        self.device().and_then(|device| device.cuda_device())
    }
}

impl DeviceOf for Device {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        self.cuda_index().ok().flatten()
    }
}

/// What can be given where torch takes a stream: a stream, or `None` for the current one of the current device.
pub trait StreamArg: sealed::Sealed {
    /// The stream; `None` for the current one.
    fn stream(self) -> Option<Stream>;

    /// Looks at the stream, `None` for the current one, without another handle being made.
    fn with_stream<R>(self, look: impl FnOnce(Option<&Stream>) -> R) -> R;

    /// The stream, with the runtime's current stream of the current device for `None`.
    ///
    /// # Errors
    /// The runtime cannot start.
    fn resolve(self, runtime: &Runtime) -> Result<Stream>
    where
        Self: Sized,
    {
        self.stream().map_or_else(|| runtime.streams().current(runtime.current_device()?), Ok)
    }
}

impl sealed::Sealed for &Stream {}
impl StreamArg for &Stream {
    fn stream(self) -> Option<Stream> {
        Some(self.clone())
    }

    #[inline]
    fn with_stream<R>(self, look: impl FnOnce(Option<&Stream>) -> R) -> R {
        look(Some(self))
    }
}

impl sealed::Sealed for Option<&Stream> {}
impl StreamArg for Option<&Stream> {
    fn stream(self) -> Option<Stream> {
        self.cloned()
    }

    #[inline]
    fn with_stream<R>(self, look: impl FnOnce(Option<&Stream>) -> R) -> R {
        look(self)
    }
}

impl sealed::Sealed for &ExternalStream {}
impl StreamArg for &ExternalStream {
    fn stream(self) -> Option<Stream> {
        Some(Stream::clone(self))
    }

    #[inline]
    fn with_stream<R>(self, look: impl FnOnce(Option<&Stream>) -> R) -> R {
        look(Some(self))
    }
}
