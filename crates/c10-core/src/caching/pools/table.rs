//! The pools of a device: which shards belong together.
//!
//! **Invariants:** the default pool always exists; a pool has at most one shard for each stream, and a shard without
//! a pool holds nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::base::config::AllocatorConfig;
use crate::base::handles::StreamHandle;
use crate::base::ids::PoolId;
use crate::caching::pools::private_pool::PoolOptions;
use crate::caching::pools::source::Source;
use crate::caching::shard::Shard;

/// Position of a pool in [`Pools`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PoolIndex(usize);

/// One pool, of small blocks and of large ones.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The private pool this is, if it is not the default one.
    pub(crate) owner: Option<PoolId>,
    /// Blocks are handed out whole.
    pub(crate) no_split: bool,
    /// Where its segments come from, if not from the driver.
    pub(crate) source: Option<Source>,
    /// Whether its memory is held in pages that move; `None` for what the options say.
    pub(crate) elastic: Option<bool>,
    /// Times each part was searched while garbage collection was on.
    pub(crate) clocks: Arc<[AtomicU64; 2]>,
    /// By stream handle, which is the order in which memory is given back.
    pub(crate) shards: BTreeMap<StreamHandle, Arc<Shard>>,
}

impl Pool {
    fn new(owner: Option<PoolId>, options: PoolOptions) -> Self {
        let PoolOptions { no_split, source, elastic, .. } = options;
        // A source gives whole segments.
        let elastic = if source.is_some() { Some(false) } else { elastic };
        Self { owner, no_split, source, elastic, clocks: Arc::default(), shards: BTreeMap::new() }
    }

    /// Whether its memory is held in pages that move.
    pub(crate) fn is_elastic(&self, config: &AllocatorConfig) -> bool {
        self.elastic.unwrap_or(config.is_elastic())
    }

    /// Whether its segments are address ranges that grow.
    pub(crate) fn expands(&self, config: &AllocatorConfig) -> bool {
        self.source.is_none() && (config.expandable_segments || self.is_elastic(config))
    }
}

/// All pools of a device.
#[derive(Debug)]
pub(crate) struct Pools {
    slots: Vec<Option<Pool>>,
}

impl Pools {
    /// The default pool.
    pub(crate) const DEFAULT: PoolIndex = PoolIndex(0);

    pub(crate) fn new() -> Self {
        Self { slots: vec![Some(Pool::new(None, PoolOptions::default()))] }
    }

    /// Adds a private pool.
    pub(crate) fn add(&mut self, owner: PoolId, options: PoolOptions) -> PoolIndex {
        let pool = Some(Pool::new(Some(owner), options));
        if let Some(vacant) = self.slots.iter().position(Option::is_none) {
            self.slots[vacant] = pool;
            return PoolIndex(vacant);
        }
        self.slots.push(pool);
        PoolIndex(self.slots.len() - 1)
    }

    /// Removes a pool; its shards.
    pub(crate) fn remove(&mut self, index: PoolIndex) -> impl Iterator<Item = Arc<Shard>> + use<> {
        self.slots[index.0].take().into_iter().flat_map(|pool| pool.shards.into_values())
    }

    pub(crate) fn get(&self, index: PoolIndex) -> &Pool {
        self.slots[index.0].as_ref().expect("indices name only pools that exist")
    }

    pub(crate) fn get_mut(&mut self, index: PoolIndex) -> &mut Pool {
        self.slots[index.0].as_mut().expect("indices name only pools that exist")
    }

    /// Every pool.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.slots.iter().flatten()
    }
}
