//! What is rare: growing, giving memory back to the driver, private pools, checkpoints, snapshots, and checking the books.
//!
//! Reading order: this file ([`DeviceAllocator`]), `growth` (segments from the driver), `expandable` (segments that grow),
//! `window` (where the next one places a request), `elastic` (pages that move), `reclaim` (what goes back), `plans` (the
//! arenas of plans), `holders` (who holds what, when nothing helps), `scopes` (private pools), `uncached`, `checkpoint`, `snapshot`, `recorded`,
//! `validity`.
//!
//! **Invariant:** one thread at a time is here: [`Growth`] is behind a lock, which is taken before all others.

mod checkpoint;
mod elastic;
mod expandable;
mod growth;
mod holders;
mod plans;
mod reclaim;
mod recorded;
mod scopes;
mod snapshot;
mod stale;
mod uncached;
mod validity;
mod window;

pub use checkpoint::{BlockCheckpoint, PoolCheckpoint, RestoreResult, SegmentCheckpoint};
pub(crate) use recorded::Marked;
pub(crate) use snapshot::RequestSizes;
pub use snapshot::{BlockInfo, BlockState, SegmentInfo, SegmentType};
pub(crate) use uncached::Uncached;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::error::{AllocatorError, Error, MemoryError, Result};
use crate::caching::device::{DeviceCache, Shared};
use crate::caching::slow::growth::Growth;
use crate::sync::Mutex;
use crate::sync::lock;
use crate::thread;

/// The allocator of one device: its cache, and what grows and shrinks that.
#[derive(Debug)]
pub(crate) struct DeviceAllocator {
    pub(crate) cache: DeviceCache,
    growth: Mutex<Growth>,
    /// Number of the thread that asks a pool's own source, 0 for none.
    asks_source: AtomicU64,
}

thread_local! {
    /// The allocator whose rare work this thread does, by its place in memory; 0 for none.
    static AT_WORK: Cell<usize> = const { Cell::new(0) };
}

/// This thread does rare work of an allocator until this is dropped.
struct AtWork {
    before: usize,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.set(self.before);
    }
}

impl DeviceAllocator {
    /// Begins rare work. Refused if this thread is at it: what it has called, a subscriber of `tracing` say, would wait for
    /// itself.
    fn begin_work(&self) -> Result<AtWork> {
        let own = std::ptr::from_ref(self).addr();
        let working = AtWork { before: AT_WORK.replace(own) };
        if working.before == own { Err(Error::Memory(MemoryError::Reentered)) } else { Ok(working) }
    }

    pub(crate) fn new(position: usize, index: DeviceIndex, shared: &Arc<Shared>, config: Arc<AllocatorConfig>) -> Self {
        let cache = DeviceCache::new(position, index, shared, &config);
        // This lock is held while waiting for the device: only requests that reach the driver take it, which host
        // functions must not make; freeing a block does not take it.
        Self { cache, growth: Mutex::held_through_waits(Growth::new(config)), asks_source: AtomicU64::new(0) }
    }

    /// Refuses what a pool's own source asks for while it is asked: the books are locked by its own thread.
    fn refuse_source(&self) -> Result<()> {
        let is_source = self.asks_source.load(Ordering::Relaxed) == thread::number();
        if is_source { Err(AllocatorError::Reentered.into()) } else { Ok(()) }
    }

    /// Calls a source; the books are locked.
    fn ask_source<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.asks_source.store(thread::number(), Ordering::Relaxed);
        let answer = ask();
        self.asks_source.store(0, Ordering::Relaxed);
        answer
    }

    /// Decides by these options from now on.
    pub(crate) fn set_config(&self, config: &Arc<AllocatorConfig>) {
        let mut growth = lock(&self.growth);
        growth.config = Arc::clone(config);
        self.dissolve_plans(|_| true);
        self.apply_config(&growth);
    }

    /// Sets the most bytes to hold.
    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        let mut growth = lock(&self.growth);
        growth.limit = limit;
        self.apply_config(&growth);
    }

    /// The most bytes to hold.
    pub(crate) fn limit(&self) -> Option<u64> {
        lock(&self.growth).limit
    }

    /// Tells every shard what the options and the limit say.
    fn apply_config(&self, growth: &Growth) {
        let reuses = growth.config.graph_capture_record_stream_reuse;
        self.cache.reuses_in_captures.store(reuses, Ordering::Relaxed);
        self.cache.all_shards(|all| {
            for state in &mut all.states {
                state.set_config(&growth.config, growth.collects_garbage());
            }
        });
    }
}
