//! What a device does when nothing cached fits: segments from the driver, and what can be had by giving up more and more
//! of what is cached.
//!
//! **Invariant:** one thread at a time is here ([`Growth`] is behind a lock, which is free while the driver is asked if
//! `release_lock_on_cudamalloc` says so), and it holds no shard's lock while it calls the driver. A block that the driver is asked about is held
//! meanwhile: in no set, so that no other thread takes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::config::AllocatorConfig;
use crate::base::error::Result;
use crate::base::handles::{StreamHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::caching::block::{Asked, Block, Index, State};
use crate::caching::block::{SizeClass, max_split_size, round_size, segment_size, size_class};
use crate::caching::device::{DeviceCache, Hit, count_segment};
use crate::caching::pools::{FromDriver, new_segment};
use crate::caching::pools::{PoolIndex, Pools, Stock};
use crate::caching::pools::{PrivatePool, Request, Scope, route};
use crate::caching::shard::{Key, Shard};
use crate::caching::slow::DeviceAllocator;
use crate::caching::slow::expandable::Range;
use crate::driver::Driver;
use crate::sync::MutexGuard;
use crate::sync::lock;
use crate::trace::{TraceEvent, TraceSegment};

/// State of a device that hits do not need.
#[derive(Debug)]
pub(crate) struct Growth {
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
    /// The pages of the elastic backend.
    pub(crate) stock: Stock,
    /// Shards of pools that are gone.
    spare: Vec<Arc<Shard>>,
}

/// A request with what was decided about it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) stream: StreamRef,
    pub(crate) asked: Asked,
    /// Rounded bytes.
    pub(crate) size: u64,
    /// Bytes of the segment to ask for.
    pub(crate) segment: u64,
    pub(crate) pool: PoolIndex,
    pub(crate) class: SizeClass,
    pub(crate) shard: Arc<Shard>,
    /// Segments that expand may serve it.
    pub(crate) expandable: bool,
    /// Pages that move serve it.
    pub(crate) elastic: bool,
}

/// Memory of the driver for a request.
pub(crate) enum Memory {
    /// A segment that is in no books yet.
    Segment { address: u64 },
    /// A held block of an expandable segment.
    Block(Index),
}

impl Growth {
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
            stock: Stock::default(),
            spare: Vec::new(),
        }
    }

    /// Whether unused segments are released before more than the limit is held.
    pub(crate) fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.config.garbage_collection_threshold > 0.0
    }

    /// The shard of a pool for a stream, which is made if need be.
    pub(crate) fn shard(&mut self, cache: &DeviceCache, pool: PoolIndex, stream: StreamHandle) -> Arc<Shard> {
        let counts = self.collects_garbage();
        let described = self.pools.get(pool);
        if let Some(shard) = described.shards.get(&stream) {
            return Arc::clone(shard);
        }
        let owner = described.owner;
        let (no_split, elastic) = (described.no_split, described.elastic);
        let key = Key { stream, owner, no_split, elastic, clocks: Arc::clone(&described.clocks) };
        let shard = match self.spare.pop() {
            Some(shard) => {
                let mut state = shard.lock_flushed();
                state.key = key;
                state.set_config(&self.config, counts);
                drop(state);
                shard
            }
            None => cache.add_shard(key, &self.config, counts),
        };
        self.pools.get_mut(pool).shards.insert(stream, Arc::clone(&shard));
        if owner.is_none() {
            cache.streams.set(stream, &shard);
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
    fn plan(&mut self, cache: &DeviceCache, request: &Request) -> Plan {
        let size = round_size(&self.config, request.asked.bytes());
        let pool = self.pool_for(request);
        let described = self.pools.get(pool);
        let (expandable, elastic) = (described.expands(&self.config), described.is_elastic(&self.config));
        Plan {
            stream: request.stream,
            asked: request.asked,
            size,
            segment: segment_size(&self.config, elastic, size),
            pool,
            class: size_class(size),
            shard: self.shard(cache, pool, request.stream.handle),
            expandable,
            elastic,
        }
    }

    /// The streams whose work may use free memory of a pool: that of the shard, and those on which graphs were replayed that
    /// are gone.
    pub(crate) fn users_of(&self, owner: Option<PoolId>, stream: StreamRef) -> Vec<StreamRef> {
        let owner = owner.and_then(|id| self.private.get(&id));
        let replayed = owner.into_iter().flat_map(|pool| &pool.replayed_on).filter(|other| **other != stream);
        std::iter::once(stream).chain(replayed.copied()).collect()
    }

    /// Notes that a capture or a checkpoint knows addresses of a private pool.
    pub(crate) fn note_known(&mut self, id: PoolId) {
        if let Some(pool) = self.private.get_mut(&id) {
            pool.is_known = true;
        }
    }

    /// Counts what a private pool holds of the driver.
    pub(crate) fn count_segments(&mut self, pool: Option<PoolId>, by: i32) {
        if let Some(private) = pool.and_then(|owner| self.private.get_mut(&owner)) {
            private.segments = private.segments.saturating_add_signed(by);
        }
    }
}

impl DeviceAllocator {
    /// Serves a request that the cache of its stream did not; a search counts once.
    #[cold]
    pub(crate) fn alloc_missed<D: Driver>(
        &self,
        driver: &D,
        stream: StreamRef,
        asked: Asked,
        miss: Hit,
    ) -> Result<u64> {
        let request = Request { stream, asked, capture: None, thread: None };
        self.serve(driver, &request, matches!(miss, Hit::NothingFits))
    }

    /// Serves a request that the cache of its stream's default pool does not, or that a scope routes to another pool.
    pub(crate) fn serve<D: Driver>(&self, driver: &D, request: &Request, searched: bool) -> Result<u64> {
        self.refuse_source()?;
        let _working = self.begin_work()?;
        let (mut growth, mut plan, mut found) = self.search(request, !searched);
        if found.is_none()
            && let Some(give_back) = self.cache.shared.on_miss.get()
        {
            // What is given back takes locks of its own. Pools may come and go meanwhile.
            drop(growth);
            give_back();
            (growth, plan, found) = self.search(request, false);
        }
        found.map_or_else(|| self.take_new(driver, growth, request, &plan), Ok)
    }

    /// Decides about a request, and looks whether another thread has given something back since the cache was searched; a
    /// search is counted once.
    fn search(&self, request: &Request, counts: bool) -> (MutexGuard<'_, Growth>, Plan, Option<u64>) {
        let mut growth = lock(&self.growth);
        let plan = growth.plan(&self.cache, request);
        if let (Some(_), Some(owner)) = (request.capture, growth.pools.get(plan.pool).owner) {
            growth.note_known(owner);
        }
        let found = self.cache.hit_under_all_locks(&plan.shard, request.asked, counts, Some(plan.expandable));
        (growth, plan, found)
    }

    /// New memory; if there is none, what can be had by giving up more and more of what is cached.
    fn take_new<D: Driver>(
        &self,
        driver: &D,
        mut growth: MutexGuard<'_, Growth>,
        request: &Request,
        plan: &Plan,
    ) -> Result<u64> {
        let device = self.cache.index;
        let _span = tracing::debug_span!("grow", device, bytes = plan.segment).entered();
        if growth.collects_garbage() {
            self.collect_garbage(driver, &mut growth)?;
        }
        let (mut growth, memory) = self.first_memory(driver, growth, plan);
        let growth = &mut *growth;
        if let Some(memory) = memory? {
            return Ok(self.hand_out(growth, plan, &memory));
        }
        // An arena is memory that can serve other requests too.
        if self.dissolve_plans(|_| true)
            && let Some(address) = self.search_shard(plan)
        {
            return Ok(address);
        }
        if let Some(address) = self.take_from_lenders(growth, plan) {
            return Ok(address);
        }
        if self.release_oversize(driver, growth, plan)?
            && let Some(memory) = self.new_memory(driver, growth, plan)?
        {
            return Ok(self.hand_out(growth, plan, &memory));
        }
        // A capture forbids the waiting that giving the cache back needs.
        if request.capture.is_none() && !self.cache.shared.is_capturing() {
            let _span = tracing::debug_span!("retry", device, bytes = plan.segment).entered();
            self.release_all_cached(driver, growth)?;
            lock(&self.cache.figures).stats_mut().num_alloc_retries += 1;
            if let Some(memory) = self.new_memory(driver, growth, plan)? {
                return Ok(self.hand_out(growth, plan, &memory));
            }
            // Blocks whose events were waited for may now be free inside segments that could not be released.
            if let Some(address) = self.search_again(growth, plan) {
                return Ok(address);
            }
        }
        Err(self.out_of_memory(driver, growth, request, plan))
    }

    /// Repeats the cache lookup of a request without counting it again.
    fn search_shard(&self, plan: &Plan) -> Option<u64> {
        self.cache.hit_under_all_locks(&plan.shard, plan.asked, false, Some(plan.expandable))
    }

    /// Repeats the search that the next equal request would do: its own pool, then the lenders.
    fn search_again(&self, growth: &mut Growth, plan: &Plan) -> Option<u64> {
        self.search_shard(plan).or_else(|| self.take_from_lenders(growth, plan))
    }

    /// A free block of a private pool that helps out when memory is short; only for requests of the default pools.
    fn take_from_lenders(&self, growth: &mut Growth, plan: &Plan) -> Option<u64> {
        if growth.pools.get(plan.pool).owner.is_some() {
            return None;
        }
        let lenders = growth.use_on_oom.iter().filter_map(|id| growth.private.get(id));
        let mut shards = lenders.map(|lender| {
            let pool = growth.pools.get(lender.pool);
            (pool, pool.shards.get(&plan.stream.handle))
        });
        shards.find_map(|(pool, shard)| match shard {
            Some(shard) => self.cache.hit_under_all_locks(shard, plan.asked, true, Some(false)),
            None => {
                let counted = u64::from(growth.collects_garbage());
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
        mut growth: MutexGuard<'a, Growth>,
        plan: &Plan,
    ) -> (MutexGuard<'a, Growth>, Result<Option<Memory>>) {
        let plain = !plan.expandable && plan.pool == Pools::DEFAULT;
        if !(plain && growth.config.release_lock_on_cudamalloc) || self.is_beyond_limit(&growth, plan) {
            let memory = self.new_memory(driver, &mut growth, plan);
            return (growth, memory);
        }
        growth.asked_for += plan.segment;
        drop(growth);
        let address = new_segment(&FromDriver(driver), self.cache.index, plan.segment, plan.stream);
        let mut growth = lock(&self.growth);
        growth.asked_for -= plan.segment;
        (growth, address.map(|address| address.map(|address| Memory::Segment { address })))
    }

    /// Whether a segment would be more than may be held.
    fn is_beyond_limit(&self, growth: &Growth, plan: &Plan) -> bool {
        let held = self.cache.held().saturating_add(growth.asked_for);
        growth.limit.is_some_and(|limit| held.saturating_add(plan.segment) > limit)
    }

    /// Asks the driver, or the pool's own source, for a segment, or the driver for more of an expandable one; `None` when it has no memory or the limit
    /// forbids it.
    fn new_memory<D: Driver>(&self, driver: &D, growth: &mut Growth, plan: &Plan) -> Result<Option<Memory>> {
        if plan.elastic {
            return Ok(self.expand_elastic(driver, growth, plan)?.map(Memory::Block));
        }
        if self.is_beyond_limit(growth, plan) {
            return Ok(None);
        }
        if plan.expandable {
            return Ok(self.expand(driver, growth, plan)?.map(Memory::Block));
        }
        let driver = FromDriver(driver);
        let source = growth.source(growth.pools.get(plan.pool).owner, &driver);
        let address = self.ask_source(|| new_segment(source, self.cache.index, plan.segment, plan.stream))?;
        Ok(address.map(|address| Memory::Segment { address }))
    }

    /// Reports what was done to memory of the driver: its address, bytes, stream and pool.
    pub(crate) fn report_segment(
        &self,
        event: fn(TraceSegment) -> TraceEvent,
        (address, size, stream, pool): (u64, u64, StreamHandle, Option<PoolId>),
    ) {
        let (device, pool) = (self.cache.index, pool.unwrap_or(PoolId(0, 0)));
        let segment = TraceSegment { device, address, size, stream: stream.0 as u64, pool };
        self.cache.shared.trace.report_segment(event, segment);
    }

    /// Enters new memory into the books and hands out what the request needs of it.
    fn hand_out(&self, growth: &mut Growth, plan: &Plan, memory: &Memory) -> u64 {
        let Plan { shard, segment, class, .. } = plan;
        let oversize = max_split_size(&growth.config, plan.elastic);
        if let Memory::Segment { address } = memory {
            self.cache.shared.pages.register(*address, *segment, shard.id, *class);
            let owner = growth.pools.get(plan.pool).owner;
            growth.count_segments(owner, 1);
            let place = (*address, *segment, plan.stream.handle, owner);
            self.report_segment(TraceEvent::SegmentAllocated, place);
        }
        self.cache.all_shards(|all| {
            let state = &mut all.states[shard.position];
            let index = match memory {
                Memory::Segment { address } => {
                    count_segment(all.stats, *class, *segment, 1, oversize);
                    state.blocks.insert(Block::segment(*address, *segment, *class, false))
                }
                Memory::Block(index) => {
                    // What was given back beside it meanwhile did not join it: it was held.
                    state.join_neighbours(*index, State::Free);
                    *index
                }
            };
            let taking = state.plan_take(index, plan.size, plan.asked, plan.expandable);
            shard.set_owner(crate::thread::number());
            all.take(shard.position, &taking)
        })
    }
}
