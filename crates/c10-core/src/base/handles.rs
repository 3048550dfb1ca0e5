//! The driver's handles as numbers, and plain answers of the driver.
//!
//! **Invariant:** handles are made and used only inside the crate, so that a safe caller cannot present a made-up one.

use std::fmt;
use std::str::FromStr;

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, GraphError, Result};
use crate::base::size::Size;

/// A `CUstream`. Zero is the default stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct StreamHandle(pub(crate) usize);

impl fmt::Debug for StreamHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A `CUgreenCtx`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct GreenHandle(pub(crate) usize);

/// A `CUevent`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct EventHandle(pub(crate) usize);

/// A `CUmemGenericAllocationHandle`: memory that can be put behind addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PageHandle(pub(crate) u64);

/// A `CUmemoryPool`: stream-ordered memory that the driver keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MemoryPoolHandle(pub(crate) usize);

/// A stream with its device: the default streams of two devices have the same handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct StreamRef {
    /// Device the stream belongs to.
    pub(crate) device: DeviceIndex,
    /// The stream.
    pub(crate) handle: StreamHandle,
}

/// A `CUgraphNode`; a number as long as its graph is alive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NodeHandle(pub(crate) usize);

/// Free and total bytes of a device.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime};
///
/// let (memory, before) = (Runtime::current(), Runtime::current().memory().info(0)?);
/// let buffer = DeviceBuffer::new(1000, 0)?;
/// let now = memory.memory().info(0)?;
/// assert_eq!((before.free - now.free, now.total), (2 << 20, before.total), "the cache takes 2 MiB at a time");
/// println!("{now}"); // such as "15.99 GiB free of 16.00 GiB"
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemInfo {
    /// Free bytes.
    pub free: u64,
    /// Bytes the device has.
    pub total: u64,
}

impl fmt::Display for MemInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} free of {}", Size(self.free), Size(self.total))
    }
}

/// Which calls the driver forbids while a stream captures (`CUstreamCaptureMode`).
///
/// ```
/// use c10_core::CaptureMode;
///
/// assert_eq!("thread_local".parse::<CaptureMode>()?, CaptureMode::ThreadLocal);
/// assert_eq!(CaptureMode::default().to_string(), "global");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CaptureMode {
    /// Potentially unsafe calls are forbidden to every thread.
    #[default]
    Global,
    /// They are forbidden to the capturing thread only.
    ThreadLocal,
    /// They are allowed.
    Relaxed,
}

/// The point that a capturing stream has reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CapturePoint {
    /// Number of the capture.
    pub(crate) capture: u64,
    /// The nodes that the next queued work will follow.
    pub(crate) nodes: Vec<NodeHandle>,
}

impl fmt::Display for CaptureMode {
    /// Writes torch's names of the modes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "global",
            Self::ThreadLocal => "thread_local",
            Self::Relaxed => "relaxed",
        })
    }
}

impl FromStr for CaptureMode {
    type Err = Error;

    /// Reads torch's names of the modes.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "global" => Ok(Self::Global),
            "thread_local" => Ok(Self::ThreadLocal),
            "relaxed" => Ok(Self::Relaxed),
            _ => Err(Error::Graph(GraphError::UnknownMode { text: text.to_owned() })),
        }
    }
}
