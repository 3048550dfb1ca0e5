//! What may be given where a device or a stream is wanted, so that callers need not name the obvious one.

use crate::api::buffers::{DeviceBuffer, DeviceSlice};
use crate::api::event::Event;
use crate::api::ipc::SharedBuffer;
use crate::api::mem_pool::MemPool;
use crate::api::pinned::PinnedBuffer;
use crate::api::stream::{ExternalStream, Stream};
use crate::base::device::{Device, DeviceIndex};
use crate::base::error::Result;
use crate::runtime::Runtime;

/// What can be given where torch takes a device: a number, a [`Device`], a text such as `"cuda:1"`, `None` for the
/// current device, `Some` of a number, or a reference to any of these.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Device, DeviceArg, DeviceIndex};
///
/// let (device, text, chosen) = (Device::cuda(1), String::from("cuda:1"), Some(1));
/// let found = [device.index()?, (&device).index()?, (&text).index()?, chosen.index()?, 1_u8.index()?];
/// assert_eq!(found, [Some(1); 5]);
/// assert_eq!(Option::<DeviceIndex>::None.index()?, None);
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// Numbers pass through unchanged, also negative ones; each function says what they mean. `Option` is accepted of one
/// type only, [`tyalias@DeviceIndex`], so that the compiler knows the type of a plain `None`.
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
    impl<T: Sealed + ?Sized> Sealed for &T {}
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl sealed::Sealed for $number {}
        impl DeviceArg for $number {
            #[inline]
            fn index(self) -> Result<Option<DeviceIndex>> {
                // A number that does not fit is out of range whatever its last digits are.
                #[allow(clippy::allow_attributes, unused_comparisons, reason = "some of the types are unsigned")]
                let beyond = if self < 0 { DeviceIndex::MIN } else { DeviceIndex::MAX };
                Ok(Some(DeviceIndex::try_from(self).unwrap_or(beyond)))
            }
        }
    )*};
}

numbers! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize }

impl sealed::Sealed for Device {}
impl DeviceArg for Device {
    #[inline]
    fn index(self) -> Result<Option<DeviceIndex>> {
        self.cuda_index()
    }
}

impl sealed::Sealed for str {}
impl DeviceArg for &str {
    fn index(self) -> Result<Option<DeviceIndex>> {
        self.parse::<Device>()?.index()
    }
}

impl sealed::Sealed for String {}
impl DeviceArg for String {
    fn index(self) -> Result<Option<DeviceIndex>> {
        self.as_str().index()
    }
}

impl<T> sealed::Sealed for Option<T> {}
impl DeviceArg for Option<DeviceIndex> {
    #[inline]
    fn index(self) -> Result<Option<DeviceIndex>> {
        Ok(self)
    }

    #[inline]
    fn resolve(self, runtime: &Runtime) -> Result<DeviceIndex> {
        match self {
            Some(device) => Ok(device),
            None => runtime.current_device(),
        }
    }
}

/// References to numbers, devices and texts, as `&device` gives them.
macro_rules! references {
    ($($type:ty)*) => {$(
        impl DeviceArg for &$type {
            #[inline]
            fn index(self) -> Result<Option<DeviceIndex>> {
                self.clone().index()
            }
        }
    )*};
}

references! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize Device }

impl DeviceArg for &String {
    fn index(self) -> Result<Option<DeviceIndex>> {
        self.as_str().index()
    }
}

/// An optional device, as a program stores it.
impl<T> DeviceArg for &Option<T>
where
    for<'a> &'a T: DeviceArg,
{
    fn index(self) -> Result<Option<DeviceIndex>> {
        self.as_ref().map_or(Ok(None), DeviceArg::index)
    }
}

/// A value that lies on a device; what torch's `device_of` takes. Other crates can implement it for their own types.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, DeviceIndex, DeviceOf};
///
/// struct Tensor(DeviceBuffer);
/// impl DeviceOf for Tensor {
///     fn cuda_device(&self) -> Option<DeviceIndex> {
///         self.0.cuda_device()
///     }
/// }
/// assert_eq!(Tensor(DeviceBuffer::new(4, None)?).cuda_device(), Some(0));
/// # Ok::<(), c10_core::Error>(())
/// ```
pub trait DeviceOf {
    /// The CUDA device; `None` for a value that is on none.
    fn cuda_device(&self) -> Option<DeviceIndex>;
}

impl DeviceOf for DeviceBuffer {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        Some(self.device_index())
    }
}

impl<T> DeviceOf for DeviceSlice<T> {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        Some(self.device_index())
    }
}

impl DeviceOf for SharedBuffer {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        Some(self.device_index())
    }
}

impl DeviceOf for MemPool {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        Some(self.device())
    }
}

/// Pinned memory belongs to the host.
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

/// What can be given where torch takes a stream: a stream, by value or by reference, or `None` for the current one.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, Stream};
///
/// let (stream, buffer) = (Stream::new(None, 0)?, DeviceBuffer::new(16, None)?);
/// buffer.fill(.., 1, None)?;
/// stream.wait_stream(&Runtime::current().streams().current(stream.device_index())?)?;
/// buffer.fill(..8, 2, &stream)?;
/// buffer.fill(8.., 3, stream)?;
/// # Ok::<(), c10_core::Error>(())
/// ```
pub trait StreamArg: sealed::Sealed {
    /// Calls `look` with the stream, or with `None` for the current one. No new handle is made.
    fn with_stream<R>(self, look: impl FnOnce(Option<&Stream>) -> R) -> R;

    /// The stream; `None` for the current one.
    fn stream(self) -> Option<Stream>
    where
        Self: Sized,
    {
        self.with_stream(|stream| stream.cloned())
    }

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

impl sealed::Sealed for Stream {}
impl sealed::Sealed for ExternalStream {}

/// The types that name a stream, and how each gives a reference to it.
macro_rules! streams {
    ($($type:ty: $this:ident => $look:expr;)*) => {$(
        impl StreamArg for $type {
            #[inline]
            fn with_stream<R>(self, look: impl FnOnce(Option<&Stream>) -> R) -> R {
                let $this = self;
                look($look)
            }
        }
    )*};
}

streams! {
    &Stream: stream => Some(stream);
    Stream: stream => Some(&stream);
    Option<&Stream>: stream => stream;
    &Option<Stream>: stream => stream.as_ref();
    &ExternalStream: stream => Some(stream);
    ExternalStream: stream => Some(&stream);
}
