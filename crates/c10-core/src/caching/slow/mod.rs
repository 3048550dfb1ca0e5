//! What is rare: growing, giving memory back to the driver, private pools, checkpoints, snapshots, and checking the books.
//!
//! Reading order: this file ([`DeviceAllocator`]), `growth` (segments from the driver), `expandable` (segments that grow),
//! `window` (where the next one places a request), `elastic` (pages that move), `reclaim` (what goes back), `scopes` (private
//! pools), `uncached`, `checkpoint`, `snapshot`, `validity`.
//!
//! **Invariant:** one thread at a time is here: [`Growth`] is behind a lock, which is taken before all others.

mod checkpoint;
mod elastic;
mod expandable;
mod growth;
mod reclaim;
mod scopes;
mod snapshot;
mod stale;
mod uncached;
mod validity;
mod window;

pub use checkpoint::{BlockCheckpoint, PoolCheckpoint, RestoreResult, SegmentCheckpoint};
pub(crate) use snapshot::RequestSizes;
pub use snapshot::{BlockInfo, BlockState, SegmentInfo, SegmentType};
pub(crate) use uncached::Uncached;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::caching::device::{DeviceCache, Shared};
use crate::caching::slow::growth::Growth;
use crate::sync::lock;

/// The allocator of one device: its cache, and what grows and shrinks that.
#[derive(Debug)]
pub(crate) struct DeviceAllocator {
    pub(crate) cache: DeviceCache,
    growth: Mutex<Growth>,
}

impl DeviceAllocator {
    pub(crate) fn new(position: usize, index: DeviceIndex, shared: &Arc<Shared>, config: Arc<AllocatorConfig>) -> Self {
        let cache = DeviceCache::new(position, index, shared, &config);
        Self { cache, growth: Mutex::new(Growth::new(config)) }
    }

    /// Decides by these options from now on.
    pub(crate) fn set_config(&self, config: &Arc<AllocatorConfig>) {
        let mut growth = lock(&self.growth);
        growth.config = Arc::clone(config);
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
