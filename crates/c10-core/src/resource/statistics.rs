//! Counting what is taken of a resource.
//!
//! **Invariant:** the figures are those of a moment: each call is entered as a whole.

use crate::base::error::Result;
use crate::base::stat::Stat;
use crate::resource::{Allocation, MemoryResource, NotDeallocated, StreamView};
use crate::sync::Mutex;
use crate::sync::lock;

/// What was taken of a resource.
///
/// ```
/// let none = c10_core::ResourceStats::default();
/// assert_eq!((none.bytes.peak, none.allocations.current, none.refused), (0, 0, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResourceStats {
    /// Bytes, as asked for.
    pub bytes: Stat,
    /// Allocations.
    pub allocations: Stat,
    /// Bytes of the largest request that was served.
    pub largest: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// Counts bytes and allocations: what is held now, at most, and in all.
///
/// For knowing what a part of a program needs, and that it has given everything back.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DriverResource, MemoryResource, Runtime, StatisticsResource, Stream};
///
/// let memory = StatisticsResource::new(DriverResource::new(&Runtime::current()));
/// let stream = Stream::new(None, 0)?;
/// let (one, two) = (memory.allocate(1000, stream.view())?, memory.allocate(3000, stream.view())?);
/// memory.deallocate(one, stream.view())?;
/// assert_eq!(memory.stats().bytes.to_string(), "3000 (peak 4000, allocated 4000, freed 1000)");
/// memory.deallocate(two, stream.view())?;
/// memory.reset_peaks();
/// assert_eq!((memory.stats().bytes.peak, memory.stats().largest), (0, 3000));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug)]
pub struct StatisticsResource<R> {
    upstream: R,
    stats: Mutex<ResourceStats>,
}

impl<R: MemoryResource> StatisticsResource<R> {
    /// Counts what is taken of `upstream`.
    pub fn new(upstream: R) -> Self {
        Self { upstream, stats: Mutex::default() }
    }

    /// The figures.
    #[must_use]
    pub fn stats(&self) -> ResourceStats {
        *lock(&self.stats)
    }

    /// Sets the peaks to the present values.
    pub fn reset_peaks(&self) {
        let mut stats = lock(&self.stats);
        stats.bytes.peak = stats.bytes.current;
        stats.allocations.peak = stats.allocations.current;
    }

    /// What is beneath.
    pub fn upstream(&self) -> &R {
        &self.upstream
    }
}

/// No sum of allocations is larger: addresses have 64 bits, of which devices use fewer.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl<R: MemoryResource> MemoryResource for StatisticsResource<R> {
    fn allocate(&self, bytes: u64, stream: StreamView) -> Result<Allocation> {
        let taken = self.upstream.allocate(bytes, stream);
        let mut stats = lock(&self.stats);
        if taken.is_err() {
            stats.refused += 1;
            return taken;
        }
        stats.bytes.change(signed(bytes));
        stats.allocations.change(1);
        stats.largest = stats.largest.max(bytes);
        taken
    }

    fn deallocate(&self, memory: Allocation, stream: StreamView) -> Result<(), NotDeallocated> {
        let bytes = memory.bytes();
        self.upstream.deallocate(memory, stream)?;
        let mut stats = lock(&self.stats);
        stats.bytes.change(-signed(bytes));
        stats.allocations.change(-1);
        Ok(())
    }
}
