//! The allocator of one device: serving a request, taking a block back.
//!
//! **Invariants** (checked by `validity.rs`): the mapped blocks of all segments add up to `reserved_bytes`; every block
//! is allocated, pending, free or unmapped; two free neighbours are merged, and so are two unmapped ones; each driver call is made before the books change, so
//! that a failed call leaves them as they were.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::caching::block::{Block, BlockId, Blocks, PoolIndex, StreamUse};
use crate::caching::expandable::Ranges;
use crate::caching::pending::Pending;
use crate::caching::pool::Pools;
use crate::caching::private_pool::{Filter, PoolId, PoolOptions, PrivatePool, Request, Scope, route};
use crate::caching::size_class::{SizeClass, max_split_size, round_size, segment_size, should_split, size_class};
use crate::caching::stats::DeviceStats;
use crate::config::AllocatorConfig;
use crate::device::DeviceIndex;
use crate::driver::{Driver, StreamRef};
use crate::error::{Error, Result};

/// State of one device, behind one lock.
#[derive(Debug)]
pub(crate) struct DeviceAllocator {
    pub(super) device: DeviceIndex,
    pub(super) config: Arc<AllocatorConfig>,
    /// Most bytes to hold from the driver.
    pub(super) limit: Option<u64>,
    pub(super) blocks: Blocks,
    pub(super) pools: Pools,
    pub(super) ranges: Ranges,
    pub(super) private: BTreeMap<PoolId, PrivatePool>,
    /// Pools whose free memory may serve other requests before those fail, in the order they asked to.
    pub(super) use_on_oom: Vec<PoolId>,
    pub(super) scopes: Vec<Scope>,
    pub(super) pending: Pending,
    pub(super) stats: DeviceStats,
}

/// A request with what was decided about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) stream: StreamRef,
    /// Rounded bytes.
    pub(super) size: u64,
    /// Bytes of the segment to ask for.
    pub(super) segment: u64,
    pub(super) pool: PoolIndex,
    /// Segments that expand may serve it.
    pub(super) expandable: bool,
}

impl DeviceAllocator {
    pub(crate) fn new(device: DeviceIndex, config: Arc<AllocatorConfig>) -> Self {
        let max_split_size = config.max_split_size.map_or(-1, signed);
        Self {
            device,
            config,
            limit: None,
            blocks: Blocks::default(),
            pools: Pools::new(),
            ranges: Ranges::default(),
            private: BTreeMap::new(),
            use_on_oom: Vec::new(),
            scopes: Vec::new(),
            pending: Pending::default(),
            stats: DeviceStats { max_split_size, ..DeviceStats::default() },
        }
    }

    pub(crate) fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    pub(crate) fn reset_peak(&mut self) {
        self.stats.reset_peak();
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.stats.reset_accumulated();
    }

    /// Decides by these options from now on; what is held already stays.
    pub(crate) fn set_config(&mut self, config: Arc<AllocatorConfig>) {
        self.config = config;
    }

    /// Sets the most bytes to hold; more that is held already stays.
    pub(crate) fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Bytes held from the driver.
    pub(super) fn held(&self) -> u64 {
        u64::try_from(self.stats.reserved_bytes.all.current).unwrap_or(0)
    }

    /// Serves a request; returns the block and its address.
    pub(crate) fn malloc<D: Driver>(&mut self, driver: &D, request: &Request) -> Result<(BlockId, u64)> {
        if self.scopes.is_empty() {
            self.process_events(driver)?;
        }
        let size = round_size(&self.config, request.bytes);
        let plan = Plan {
            stream: request.stream,
            size,
            segment: segment_size(&self.config, size),
            pool: self.pool_for(request, size_class(size)),
            expandable: self.config.expandable_segments,
        };
        let (block, plan) = match self.take_free(&plan) {
            Some(block) => (block, plan),
            None => self.take_new(driver, request, plan)?,
        };
        Ok(self.hand_out(block, &plan, request.bytes))
    }

    fn pool_for(&self, request: &Request, class: SizeClass) -> PoolIndex {
        let private = route(&self.scopes, request).and_then(|id| self.private.get(&id));
        match (private, class) {
            (Some(private), class) => private.of(class),
            (None, SizeClass::Small) => Pools::DEFAULT_SMALL,
            (None, SizeClass::Large) => Pools::DEFAULT_LARGE,
        }
    }

    /// Whether unused segments are released before more than the limit is held.
    fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.config.garbage_collection_threshold > 0.0
    }

    /// The best cached block, taken out of its pool.
    fn take_free(&mut self, plan: &Plan) -> Option<BlockId> {
        let collects = self.collects_garbage();
        let pool = self.pools.get_mut(plan.pool);
        if collects {
            pool.lookups += 1;
        }
        let block = pool.best_fit(&self.blocks, &self.config, plan.expandable, plan.stream.handle, plan.size)?;
        pool.remove(&self.blocks, block);
        Some(block)
    }

    /// New memory; if there is none, what can be had by giving up more and more of what is cached.
    fn take_new<D: Driver>(&mut self, driver: &D, request: &Request, plan: Plan) -> Result<(BlockId, Plan)> {
        if self.collects_garbage() {
            self.collect_garbage(driver)?;
        }
        if let Some(block) = self.new_memory(driver, &plan)? {
            return Ok((block, plan));
        }
        if let Some(found) = self.take_from_lenders(&plan) {
            return Ok(found);
        }
        if self.release_oversize(driver, &plan)?
            && let Some(block) = self.new_memory(driver, &plan)?
        {
            return Ok((block, plan));
        }
        // A capture forbids the waiting that giving the cache back needs.
        if self.scopes.is_empty() {
            self.release_cached(driver)?;
            self.stats.num_alloc_retries += 1;
            if let Some(block) = self.new_memory(driver, &plan)? {
                return Ok((block, plan));
            }
        }
        Err(self.out_of_memory(driver, request, plan.segment))
    }

    /// A free block of a private pool that helps out when memory is short; only for requests of the default pools.
    fn take_from_lenders(&mut self, plan: &Plan) -> Option<(BlockId, Plan)> {
        let Pool { class, owner, .. } = self.describe(plan.pool);
        if owner.is_some() {
            return None;
        }
        let lenders: Vec<PoolIndex> =
            self.use_on_oom.iter().filter_map(|id| self.private.get(id)).map(|pool| pool.of(class)).collect();
        lenders.into_iter().find_map(|pool| {
            let plan = Plan { pool, expandable: false, ..*plan };
            self.take_free(&plan).map(|block| (block, plan))
        })
    }

    /// Asks the driver for a segment or for more of an expandable one; `None` when it has no memory or the limit
    /// forbids it.
    fn new_memory<D: Driver>(&mut self, driver: &D, plan: &Plan) -> Result<Option<BlockId>> {
        if self.limit.is_some_and(|limit| self.held().saturating_add(plan.segment) > limit) {
            return Ok(None);
        }
        if plan.expandable { self.expand(driver, plan) } else { self.new_segment(driver, plan) }
    }

    fn new_segment<D: Driver>(&mut self, driver: &D, plan: &Plan) -> Result<Option<BlockId>> {
        let (size, pool) = (plan.segment, plan.pool);
        let address = match driver.mem_alloc(self.device, size) {
            Ok(address) => address,
            Err(error) if error.driver_is_out_of_memory() => return Ok(None),
            Err(error) => return Err(error),
        };
        let class = self.describe(pool).class;
        self.count_segments(pool, 1);
        self.stats.segment.change(class, 1);
        self.stats.reserved_bytes.change(class, signed(size));
        self.count_oversize_segment(size, 1);
        self.stats.num_device_alloc += 1;
        Ok(Some(self.blocks.insert(Block::segment(address, size, plan.stream.handle, pool))))
    }

    /// Counts what a private pool holds of the driver.
    pub(super) fn count_segments(&mut self, pool: PoolIndex, by: i32) {
        let owner = self.describe(pool).owner;
        if let Some(private) = owner.and_then(|owner| self.private.get_mut(&owner)) {
            private.segments = private.segments.saturating_add_signed(by);
        }
    }

    pub(super) fn count_oversize_segment(&mut self, size: u64, by: i64) {
        if size >= max_split_size(&self.config) {
            self.stats.oversize_segments.change(by);
        }
    }

    /// Marks a block, which is in no pool, as allocated; gives back what the request does not need of it.
    fn hand_out(&mut self, block: BlockId, plan: &Plan, requested: u64) -> (BlockId, u64) {
        let Pool { class, no_split, .. } = self.describe(plan.pool);
        let whole = self.blocks.get(block).size;
        let splits = !no_split && should_split(&self.config, plan.expandable, class, plan.size, whole);
        self.count_taken_part(block, splits.then_some(plan.size));
        let block = if splits {
            let front = self.blocks.split_front(block, plan.size);
            self.pools.get_mut(plan.pool).insert(&mut self.blocks, block);
            front
        } else {
            block
        };
        let taken = self.blocks.get_mut(block);
        taken.allocated = true;
        taken.requested = requested;
        let (address, size) = (taken.address, taken.size);
        self.stats.allocation.change(class, 1);
        self.stats.allocated_bytes.change(class, signed(size));
        self.stats.active.change(class, 1);
        self.stats.active_bytes.change(class, signed(size));
        self.stats.requested_bytes.change(class, signed(requested));
        self.count_oversize_allocation(size, 1);
        (block, address)
    }

    /// Counts what becomes of the free parts when `block`, or the first `cut` bytes of it, are taken.
    fn count_taken_part(&mut self, block: BlockId, cut: Option<u64>) {
        let block = self.blocks.get(block);
        let (pool, whole) = (block.pool, signed(block.size));
        let (count, bytes) = match (cut, block.is_split()) {
            _ if block.range.is_some() => return,
            (Some(cut), true) => (0, -signed(cut)),
            (Some(cut), false) => (1, whole - signed(cut)),
            (None, true) => (-1, -whole),
            (None, false) => return,
        };
        let class = self.describe(pool).class;
        self.count_inactive_split(class, count, bytes);
    }

    fn count_oversize_allocation(&mut self, size: u64, by: i64) {
        if size >= max_split_size(&self.config) {
            self.stats.oversize_allocations.change(by);
        }
    }

    /// Notes that a block is used on another stream.
    pub(crate) fn record_stream(&mut self, block: BlockId, stream: StreamRef) {
        let in_scope = !self.scopes.is_empty();
        let device = self.device;
        let block = self.blocks.get_mut(block);
        if stream.device == device && stream.handle == block.stream {
            return;
        }
        match block.uses.iter_mut().find(|known| known.stream == stream) {
            Some(known) => known.in_scope |= in_scope,
            None => block.uses.push(StreamUse { stream, in_scope }),
        }
    }

    /// Takes a block back. Whatever happens the block is no longer allocated: if a driver call fails, the block waits
    /// until a later allocation can make up for that call.
    pub(crate) fn free<D: Driver>(&mut self, driver: &D, id: BlockId) -> Result<()> {
        let class = self.describe(self.blocks.get(id).pool).class;
        let block = self.blocks.get_mut(id);
        block.allocated = false;
        let used_elsewhere = !block.uses.is_empty();
        let size = block.size;
        self.stats.allocation.change(class, -1);
        self.stats.allocated_bytes.change(class, -signed(size));
        self.count_oversize_allocation(size, -1);
        if !used_elsewhere {
            self.free_block(id);
            return Ok(());
        }
        self.pending.deferred.push(id);
        if !self.scopes.is_empty() {
            return Ok(());
        }
        // Only a scope that is still open when the block comes back will order the uses made inside it.
        self.blocks.get_mut(id).uses.iter_mut().for_each(|used| used.in_scope = false);
        self.settle(driver, self.pending.deferred.len() - 1)
    }

    /// Turns a block that nobody uses into a free one.
    pub(super) fn free_block(&mut self, id: BlockId) {
        let block = self.blocks.get(id);
        let (pool, size, requested) = (block.pool, signed(block.size), signed(block.requested));
        let (class, in_range) = (self.describe(pool).class, block.range.is_some());
        let (mut count, mut bytes) = self.merge_neighbours(id);
        let merged = self.blocks.get(id);
        if merged.is_split() {
            count += 1;
            bytes += signed(merged.size);
        }
        self.pools.get_mut(pool).insert(&mut self.blocks, id);
        if !in_range {
            self.count_inactive_split(class, count, bytes);
        }
        self.stats.active.change(class, -1);
        self.stats.active_bytes.change(class, -size);
        self.stats.requested_bytes.change(class, -requested);
    }

    /// Joins the unused neighbours that are mapped, or not, like the block itself, which is in no set. Returns the
    /// change in the number of free parts and in their bytes.
    pub(super) fn merge_neighbours(&mut self, id: BlockId) -> (i64, i64) {
        let block = self.blocks.get(id);
        let (pool, mapped) = (block.pool, block.mapped);
        let (mut count, mut bytes) = (0, 0);
        for neighbour in [block.prev, block.next].into_iter().flatten() {
            let other = self.blocks.get(neighbour);
            if other.is_unused() && other.mapped == mapped {
                self.pools.get_mut(pool).take_out(&self.blocks, neighbour);
                count -= 1;
                bytes -= signed(self.blocks.merge(id, neighbour));
            }
        }
        (count, bytes)
    }

    fn count_inactive_split(&mut self, class: SizeClass, count: i64, bytes: i64) {
        self.stats.inactive_split.change(class, count);
        self.stats.inactive_split_bytes.change(class, bytes);
    }

    pub(super) fn describe(&self, pool: PoolIndex) -> Pool {
        let pool = self.pools.get(pool);
        Pool { class: pool.class, owner: pool.owner, no_split: pool.no_split }
    }

    /// Routes allocations that `filter` takes to a private pool, from now on.
    pub(crate) fn begin_allocate_to_pool(&mut self, id: PoolId, filter: Filter) -> Result<()> {
        if self.scopes.iter().any(|scope| scope.pool == id) {
            return Err(Error::AlreadyRecordingToPool);
        }
        self.use_pool(id, PoolOptions::default())?;
        self.scopes.push(Scope { pool: id, filter });
        Ok(())
    }

    /// Counts one more use of a private pool, which is made with these options if need be.
    pub(crate) fn use_pool(&mut self, id: PoolId, options: PoolOptions) -> Result<()> {
        if let Some(pool) = self.private.get_mut(&id) {
            if pool.use_count == 0 {
                return Err(Error::PoolReleased);
            }
            pool.use_count += 1;
            return Ok(());
        }
        let mut add = |class| {
            let index = self.pools.add(class, id);
            self.pools.get_mut(index).no_split = options.no_split;
            index
        };
        let (small, large) = (add(SizeClass::Small), add(SizeClass::Large));
        self.private.insert(id, PrivatePool { use_count: 1, segments: 0, small, large });
        if options.use_on_oom {
            self.use_on_oom.push(id);
        }
        Ok(())
    }

    /// No longer lets a pool's free memory help out when memory is short.
    pub(crate) fn stop_lending(&mut self, id: PoolId) {
        self.use_on_oom.retain(|lender| *lender != id);
    }

    /// How many graphs, pool objects and scopes use a private pool.
    pub(crate) fn pool_use_count(&self, id: PoolId) -> u32 {
        self.private.get(&id).map_or(0, |pool| pool.use_count)
    }

    /// Stops routing allocations to a private pool.
    pub(crate) fn end_allocate_to_pool(&mut self, id: PoolId) -> Result<()> {
        let position = self.scopes.iter().position(|scope| scope.pool == id).ok_or(Error::NotRecordingToPool)?;
        self.scopes.remove(position);
        Ok(())
    }

    /// Gives up one use of a private pool. A pool without uses and memory is gone.
    pub(crate) fn release_pool(&mut self, id: PoolId) {
        self.release_pool_use(id);
        self.remove_pool_if_unused(id);
    }

    /// Gives up one use of a private pool, which stays until it is emptied.
    pub(crate) fn release_pool_use(&mut self, id: PoolId) {
        if let Some(pool) = self.private.get_mut(&id) {
            pool.use_count = pool.use_count.saturating_sub(1);
        }
    }

    /// Whether an allocated or pending block belongs to a pool.
    pub(crate) fn owner(&self, block: BlockId) -> Option<PoolId> {
        self.describe(self.blocks.get(block).pool).owner
    }

    pub(super) fn remove_pool_if_unused(&mut self, id: PoolId) {
        let unused = self.private.get(&id).is_some_and(|pool| pool.use_count == 0 && pool.segments == 0);
        if let Some(pool) = unused.then(|| self.private.remove(&id)).flatten() {
            self.pools.remove(pool.small);
            self.pools.remove(pool.large);
        }
    }
}

/// What the books need to know of a pool.
pub(super) struct Pool {
    pub(super) class: SizeClass,
    pub(super) owner: Option<PoolId>,
    pub(super) no_split: bool,
}

/// Sizes as statistics count them.
pub(super) fn signed(size: u64) -> i64 {
    i64::try_from(size).expect("sizes are below 2^60")
}
