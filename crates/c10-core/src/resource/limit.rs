//! A limit on what is held of a resource.
//!
//! **Invariant:** what is held, with what is being asked for, is never above the limit.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::error::{AllocatorError, Result};
use crate::resource::{Allocation, MemoryResource, NotDeallocated, StreamView};

/// Gives no more than so many bytes at a time, of all devices and streams together.
///
/// For a part of a program that must leave memory to others. Bytes are counted as asked for.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DriverResource, LimitResource, MemoryResource, Runtime, Stream};
///
/// let memory = LimitResource::new(DriverResource::new(&Runtime::current()), 2000);
/// let stream = Stream::new(None, 0)?;
/// let held = memory.allocate(1500, stream.view())?;
/// assert_eq!(
///     memory.allocate(501, stream.view()).unwrap_err().to_string(),
///     "the limit of 2000 bytes leaves 500 of them, and 501 were asked for"
/// );
/// memory.deallocate(held, stream.view())?;
/// assert_eq!(memory.held(), 0);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug)]
pub struct LimitResource<R> {
    upstream: R,
    limit: u64,
    held: AtomicU64,
}

impl<R: MemoryResource> LimitResource<R> {
    /// Gives at most `limit` bytes of `upstream`.
    pub fn new(upstream: R, limit: u64) -> Self {
        Self { upstream, limit, held: AtomicU64::new(0) }
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// What is beneath.
    pub fn upstream(&self) -> &R {
        &self.upstream
    }
}

impl<R: MemoryResource> MemoryResource for LimitResource<R> {
    fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation> {
        let limit = self.limit;
        let add = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= limit);
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).map_err(|held| {
            let left = limit.saturating_sub(held);
            AllocatorError::LimitReached { limit, left, requested: bytes }
        })?;
        let taken = self.upstream.allocate(bytes, stream);
        taken.inspect_err(|_| {
            self.held.fetch_sub(bytes, Ordering::AcqRel);
        })
    }

    fn deallocate(&self, memory: Allocation, stream: StreamView) -> Result<(), NotDeallocated> {
        let bytes = memory.bytes();
        self.upstream.deallocate(memory, stream)?;
        self.held.fetch_sub(bytes, Ordering::AcqRel);
        Ok(())
    }
}
