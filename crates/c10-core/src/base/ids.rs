//! Names of streams, memory pools and runtimes.
//!
//! **Invariant:** a stream's id and device name it completely; a runtime's id is never used twice.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::device::DeviceIndex;
use crate::base::handles::{StreamHandle, StreamRef};

/// Streams in a pool.
pub(crate) const STREAMS_PER_POOL: usize = 32;

/// Priorities that are told apart at most.
pub(crate) const MAX_LEVELS: usize = 4;

/// A stream's number on its device; torch's `stream_id`.
///
/// 0 is the default stream. Bit 0 is set for streams of a pool, whose next four bits are the priority's level plus 1
/// and the rest the index. Anything else is the handle of a stream made elsewhere.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Runtime, Stream, StreamId};
///
/// let (runtime, stream) = (Runtime::current(), Stream::new(None, 0)?);
/// assert_eq!(runtime.streams().by_id(0, stream.stream_id())?, stream);
/// assert_eq!(runtime.streams().default(0)?.stream_id(), StreamId(0));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub i64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StreamId {
    pub(crate) fn of_pool(level: usize, index: usize) -> Self {
        let id = index * 32 + (level + 1) * 2 + 1;
        Self(i64::try_from(id).expect("at most 32 * 32"))
    }

    /// Level and index of a pool stream.
    pub(crate) fn pool(self) -> Option<(usize, usize)> {
        let id = usize::try_from(self.0).ok().filter(|id| id & 1 == 1)?;
        let (level, index) = ((id >> 1 & 15).checked_sub(1)?, id >> 5);
        (level < MAX_LEVELS && index < STREAMS_PER_POOL).then_some((level, index))
    }
}

/// CUDA's priority of a level.
pub(crate) fn priority_of(level: usize) -> i32 {
    -i32::try_from(level).expect("at most 4 levels")
}

/// A stream without its runtime and device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamKey {
    pub(crate) id: StreamId,
    pub(crate) handle: StreamHandle,
}

impl StreamKey {
    pub(crate) const DEFAULT: Self = Self { id: StreamId(0), handle: StreamHandle(0) };

    #[cfg(test)]
    pub(crate) const fn new(id: StreamId, handle: StreamHandle) -> Self {
        Self { id, handle }
    }

    /// The stream of a device.
    pub(crate) fn on(self, device: DeviceIndex) -> StreamRef {
        StreamRef { device, handle: self.handle }
    }
}

/// Name of a pool: `(n, 0)` belongs to one capture, `(0, n)` is a handle that several may share.
///
/// ```
/// use c10_core::PoolId;
///
/// assert_ne!(PoolId::handle(), PoolId::handle());
/// assert_eq!(PoolId(0, 7).to_string(), "(0, 7)");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolId(pub u64, pub u64);

impl fmt::Display for PoolId {
    /// As torch writes it: `(0, 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0, self.1)
    }
}

impl PoolId {
    /// A new name for one capture's pool.
    pub(crate) fn for_capture() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed), 0)
    }

    /// A new name for a pool that captures may share; torch's `graph_pool_handle`.
    #[must_use]
    pub fn handle() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(0, NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Tells runtimes apart; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RuntimeId(pub(crate) u64);

impl RuntimeId {
    /// No runtime's.
    pub(crate) const NONE: Self = Self(0);

    #[cfg(test)]
    pub(crate) const fn for_test(number: u64) -> Self {
        Self(u64::MAX - number)
    }
}
