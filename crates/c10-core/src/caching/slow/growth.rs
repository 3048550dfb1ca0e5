//! What a device does when nothing cached fits: segments from the driver, and what can be had by giving up more and more
//! of what is cached.
//!
//! **Invariant:** one thread at a time is here ([`Cold`] is behind a lock, which is free while the driver is asked if
//! `release_lock_on_cudamalloc` says so), and it holds no shard's lock while it calls the driver. What the driver is asked about is held meanwhile: in no set, so that nobody else takes it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use crate::base::config::AllocatorConfig;
use crate::base::error::Result;
use crate::base::handles::{StreamHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::caching::block::{Block, Index};
use crate::caching::block::{SizeClass, max_split_size, round_size, segment_size, size_class};
use crate::caching::device::{Device, Search};
use crate::caching::pools::{FromDriver, new_segment};
use crate::caching::pools::{PoolIndex, Pools};
use crate::caching::pools::{PrivatePool, Request, Scope, route};
use crate::caching::shard::{Key, Shard, ShardState};
use crate::caching::slow::expandable::Range;
use crate::driver::Driver;
use crate::sync::lock;

/// State of a device that hits do not need.
#[derive(Debug)]
pub(crate) struct Cold {
    pub(crate) config: Arc<AllocatorConfig>,
    /// Most bytes to hold from the driver.
    pub(crate) limit: Option<u64>,
    /// Bytes that the driver is being asked for while the lock is free.
    asked_for: u64,
    pub(crate) pools: Pools,
    pub(crate) private: BTreeMap<PoolId, PrivatePool>,
    /// Pools whose free memory may serve other requests before those fail, in the order they asked to.
    pub(crate) use_on_oom: Vec<PoolId>,
    pub(crate) scopes: Vec<Scope>,
    /// Address ranges of expandable segments, by first address.
    pub(crate) ranges: BTreeMap<u64, Range>,
    /// Shards of pools that are gone.
    spare: Vec<Arc<Shard>>,
}

/// A request with what was decided about it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) stream: StreamRef,
    pub(crate) requested: u64,
    /// Rounded bytes.
    pub(crate) size: u64,
    /// Bytes of the segment to ask for.
    pub(crate) segment: u64,
    pub(crate) pool: PoolIndex,
    pub(crate) class: SizeClass,
    pub(crate) shard: Arc<Shard>,
    /// Segments that expand may serve it.
    pub(crate) expandable: bool,
}

/// Memory of the driver for a request.
pub(crate) enum Memory {
    /// A segment that is in no books yet.
    Segment { address: u64 },
    /// A held block of an expandable segment.
    Block(Index),
}

impl Cold {
    pub(crate) fn new(config: Arc<AllocatorConfig>) -> Self {
        Self {
            config,
            limit: None,
            asked_for: 0,
            pools: Pools::new(),
            private: BTreeMap::new(),
            use_on_oom: Vec::new(),
            scopes: Vec::new(),
            ranges: BTreeMap::new(),
            spare: Vec::new(),
        }
    }

    /// Whether unused segments are released before more than the limit is held.
    pub(crate) fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.config.garbage_collection_threshold > 0.0
    }

    /// The shard of a pool for a stream, which is made if need be.
    pub(crate) fn shard(&mut self, device: &Device, pool: PoolIndex, stream: StreamHandle) -> Arc<Shard> {
        let counts = self.collects_garbage();
        let described = self.pools.get(pool);
        if let Some(shard) = described.shards.get(&stream) {
            return Arc::clone(shard);
        }
        let owner = described.owner;
        let key = Key { stream, owner, no_split: described.no_split, clocks: Arc::clone(&described.clocks) };
        let shard = match self.spare.pop() {
            Some(shard) => {
                shard.open().key = key;
                shard
            }
            None => device.add_shard(ShardState::new(key, Arc::clone(&self.config), counts)),
        };
        self.pools.get_mut(pool).shards.insert(stream, Arc::clone(&shard));
        if owner.is_none() {
            device.streams.set(stream, &shard);
        }
        shard
    }

    /// Removes a private pool that holds nothing.
    pub(crate) fn remove_pool_if_unused(&mut self, id: PoolId) {
        let unused = self.private.get(&id).is_some_and(|pool| pool.use_count == 0 && pool.segments == 0);
        if let Some(pool) = unused.then(|| self.private.remove(&id)).flatten() {
            self.spare.extend(self.pools.remove(pool.pool));
        }
    }

    /// The pool that a request goes to.
    fn pool_for(&self, request: &Request) -> PoolIndex {
        let private = route(&self.scopes, request).and_then(|id| self.private.get(&id));
        private.map_or(Pools::DEFAULT, |private| private.pool)
    }

    /// The decisions about a request.
    fn plan(&mut self, device: &Device, request: &Request) -> Plan {
        let size = round_size(&self.config, request.bytes);
        let pool = self.pool_for(request);
        let expandable = self.config.expandable_segments && self.pools.get(pool).source.is_none();
        Plan {
            stream: request.stream,
            requested: request.bytes,
            size,
            segment: segment_size(&self.config, size),
            pool,
            class: size_class(size),
            shard: self.shard(device, pool, request.stream.handle),
            expandable,
        }
    }

    /// Counts what a private pool holds of the driver.
    pub(crate) fn count_segments(&mut self, pool: Option<PoolId>, by: i32) {
        if let Some(private) = pool.and_then(|owner| self.private.get_mut(&owner)) {
            private.segments = private.segments.saturating_add_signed(by);
        }
    }
}

impl Device {
    fn add_shard(&self, state: ShardState) -> Arc<Shard> {
        let mut figures = lock(&self.figures);
        let position = figures.shards.len();
        let shard = self.shared.add_shard(|id| Shard::new(id, self.position, position, &self.shared.pages, state));
        let shard = shard.expect("fewer than 65536 pairs of a stream and a pool");
        figures.shards.push(Arc::clone(&shard));
        shard
    }

    /// Serves a request after a search of the default pool's cache, which counts once.
    #[cold]
    pub(crate) fn serve_after<D: Driver>(&self, driver: &D, request: &Request, miss: &Search) -> Result<u64> {
        self.serve(driver, request, matches!(miss, Search::NothingFits))
    }

    /// Serves a request that the cache of its stream's default pool does not, or that a scope routes elsewhere.
    pub(crate) fn serve<D: Driver>(&self, driver: &D, request: &Request, searched: bool) -> Result<u64> {
        let mut cold = lock(&self.cold);
        let plan = cold.plan(self, request);
        // Another thread may have given something back since the search; a search is counted once.
        if let Some(address) = self.hit_exclusively(&plan.shard, request.bytes, !searched, Some(plan.expandable)) {
            return Ok(address);
        }
        self.take_new(driver, cold, request, &plan)
    }

    /// New memory; if there is none, what can be had by giving up more and more of what is cached.
    fn take_new<D: Driver>(
        &self,
        driver: &D,
        mut cold: MutexGuard<'_, Cold>,
        request: &Request,
        plan: &Plan,
    ) -> Result<u64> {
        if cold.collects_garbage() {
            self.collect_garbage(driver, &mut cold)?;
        }
        let (mut cold, memory) = self.first_memory(driver, cold, plan);
        let cold = &mut *cold;
        if let Some(memory) = memory? {
            return Ok(self.hand_out(cold, plan, &memory));
        }
        if let Some(address) = self.take_from_lenders(cold, plan) {
            return Ok(address);
        }
        if self.release_oversize(driver, cold, plan)?
            && let Some(memory) = self.new_memory(driver, cold, plan)?
        {
            return Ok(self.hand_out(cold, plan, &memory));
        }
        // A capture forbids the waiting that giving the cache back needs.
        if cold.scopes.is_empty() {
            self.release_cached_of(driver, cold)?;
            lock(&self.figures).stats.num_alloc_retries += 1;
            if let Some(memory) = self.new_memory(driver, cold, plan)? {
                return Ok(self.hand_out(cold, plan, &memory));
            }
        }
        Err(self.out_of_memory(driver, cold, request, plan.segment))
    }

    /// A free block of a private pool that helps out when memory is short; only for requests of the default pools.
    fn take_from_lenders(&self, cold: &mut Cold, plan: &Plan) -> Option<u64> {
        if cold.pools.get(plan.pool).owner.is_some() {
            return None;
        }
        let lenders = cold.use_on_oom.iter().filter_map(|id| cold.private.get(id));
        let mut shards = lenders.map(|lender| {
            let pool = cold.pools.get(lender.pool);
            (pool, pool.shards.get(&plan.stream.handle))
        });
        shards.find_map(|(pool, shard)| match shard {
            Some(shard) => self.hit_exclusively(shard, plan.requested, true, Some(false)),
            None => {
                let counted = u64::from(cold.collects_garbage());
                pool.clocks[usize::from(plan.class == SizeClass::Large)].fetch_add(counted, Ordering::Relaxed);
                None
            }
        })
    }

    /// New memory, at the first attempt. The lock is free while the driver is asked for a segment, if the options say so
    /// and the request is for the default pool, which cannot go meanwhile.
    fn first_memory<'a, D: Driver>(
        &'a self,
        driver: &D,
        mut cold: MutexGuard<'a, Cold>,
        plan: &Plan,
    ) -> (MutexGuard<'a, Cold>, Result<Option<Memory>>) {
        let plain = !plan.expandable && plan.pool == Pools::DEFAULT;
        if !(plain && cold.config.release_lock_on_cudamalloc) || self.is_beyond_limit(&cold, plan) {
            let memory = self.new_memory(driver, &mut cold, plan);
            return (cold, memory);
        }
        cold.asked_for += plan.segment;
        drop(cold);
        let address = new_segment(&FromDriver(driver), self.index, plan.segment, plan.stream);
        let mut cold = lock(&self.cold);
        cold.asked_for -= plan.segment;
        (cold, address.map(|address| address.map(|address| Memory::Segment { address })))
    }

    /// Whether a segment would be more than may be held.
    fn is_beyond_limit(&self, cold: &Cold, plan: &Plan) -> bool {
        let held = self.held().saturating_add(cold.asked_for);
        cold.limit.is_some_and(|limit| held.saturating_add(plan.segment) > limit)
    }

    /// Asks the driver, or the pool's own source, for a segment, or the driver for more of an expandable one; `None` when it has no memory or the limit
    /// forbids it.
    fn new_memory<D: Driver>(&self, driver: &D, cold: &mut Cold, plan: &Plan) -> Result<Option<Memory>> {
        if self.is_beyond_limit(cold, plan) {
            return Ok(None);
        }
        if plan.expandable {
            return Ok(self.expand(driver, cold, plan)?.map(Memory::Block));
        }
        let driver = FromDriver(driver);
        let source = cold.source(cold.pools.get(plan.pool).owner, &driver);
        let address = new_segment(source, self.index, plan.segment, plan.stream)?;
        Ok(address.map(|address| Memory::Segment { address }))
    }

    /// Enters new memory into the books and hands out what the request needs of it.
    fn hand_out(&self, cold: &mut Cold, plan: &Plan, memory: &Memory) -> u64 {
        let Plan { shard, segment, class, .. } = plan;
        let oversize = max_split_size(&cold.config);
        if let Memory::Segment { address } = memory {
            self.shared.pages.register(*address, *segment, shard.id, *class);
            cold.count_segments(cold.pools.get(plan.pool).owner, 1);
        }
        self.exclusively(|all| {
            let state = &mut all.states[shard.position];
            let index = match memory {
                Memory::Segment { address } => {
                    Self::count_segment(all.stats, *class, *segment, 1, oversize);
                    state.blocks.insert(Block::segment(*address, *segment, *class, false))
                }
                Memory::Block(index) => *index,
            };
            let taking = state.plan_take(index, plan.size, plan.requested, plan.expandable);
            shard.set_owner(crate::thread::number());
            all.take(shard.position, &taking)
        })
    }
}
