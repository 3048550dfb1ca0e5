//! The allocator of one device: serving a request, taking a block back.
//!
//! **Invariants** (checked by `validity.rs`): the blocks of all segments add up to `reserved_bytes`; every block is
//! allocated, pending or free; two free neighbours are merged; each driver call is made before the books change, so
//! that a failed call leaves them as they were.

use std::collections::BTreeMap;

use crate::caching::block::{Block, BlockId, Blocks, PoolIndex, StreamUse};
use crate::caching::pending::Pending;
use crate::caching::pool::Pools;
use crate::caching::private_pool::{Filter, PoolId, PrivatePool, Request, Scope, route};
use crate::caching::size_class::{SizeClass, round_size, segment_size, should_split, size_class};
use crate::caching::stats::DeviceStats;
use crate::device::DeviceIndex;
use crate::driver::{Driver, StreamRef};
use crate::error::{Error, Result};

/// State of one device, behind one lock.
#[derive(Debug)]
pub(crate) struct DeviceAllocator {
    pub(super) device: DeviceIndex,
    pub(super) blocks: Blocks,
    pub(super) pools: Pools,
    pub(super) private: BTreeMap<PoolId, PrivatePool>,
    pub(super) scopes: Vec<Scope>,
    pub(super) pending: Pending,
    pub(super) stats: DeviceStats,
}

impl DeviceAllocator {
    pub(crate) fn new(device: DeviceIndex) -> Self {
        Self {
            device,
            blocks: Blocks::default(),
            pools: Pools::new(),
            private: BTreeMap::new(),
            scopes: Vec::new(),
            pending: Pending::default(),
            stats: DeviceStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    pub(crate) fn reset_peak(&mut self) {
        self.stats.reset_peak();
    }

    /// Serves a request; returns the block and its address.
    pub(crate) fn malloc<D: Driver>(&mut self, driver: &D, request: &Request) -> Result<(BlockId, u64)> {
        if self.scopes.is_empty() {
            self.process_events(driver)?;
        }
        let size = round_size(request.bytes);
        let pool = self.pool_for(request, size_class(size));
        let block = match self.take_free(pool, request.stream, size) {
            Some(block) => block,
            None => self.take_new(driver, request, pool, size)?,
        };
        Ok(self.hand_out(block, size, request.bytes))
    }

    fn pool_for(&self, request: &Request, class: SizeClass) -> PoolIndex {
        let private = route(&self.scopes, request).and_then(|id| self.private.get(&id));
        match (private, class) {
            (Some(private), class) => private.of(class),
            (None, SizeClass::Small) => Pools::DEFAULT_SMALL,
            (None, SizeClass::Large) => Pools::DEFAULT_LARGE,
        }
    }

    /// The best cached block, taken out of its pool.
    fn take_free(&mut self, pool: PoolIndex, stream: StreamRef, size: u64) -> Option<BlockId> {
        let pool = self.pools.get_mut(pool);
        let block = pool.best_fit(stream.handle, size)?;
        pool.remove(&self.blocks, block);
        Some(block)
    }

    /// A new segment; if the driver has no memory, once more after giving the cache back.
    fn take_new<D: Driver>(&mut self, driver: &D, request: &Request, pool: PoolIndex, size: u64) -> Result<BlockId> {
        let segment = segment_size(size);
        if let Some(block) = self.new_segment(driver, request.stream, pool, segment)? {
            return Ok(block);
        }
        // A capture forbids the waiting that giving the cache back needs.
        if self.scopes.is_empty() {
            self.release_cached(driver)?;
            self.stats.num_alloc_retries += 1;
            if let Some(block) = self.new_segment(driver, request.stream, pool, segment)? {
                return Ok(block);
            }
        }
        Err(self.out_of_memory(driver, request, segment))
    }

    /// Asks the driver for a segment; `None` when it has no memory.
    fn new_segment<D: Driver>(
        &mut self,
        driver: &D,
        stream: StreamRef,
        pool: PoolIndex,
        size: u64,
    ) -> Result<Option<BlockId>> {
        let address = match driver.mem_alloc(self.device, size) {
            Ok(address) => address,
            Err(error) if error.driver_is_out_of_memory() => return Ok(None),
            Err(error) => return Err(error),
        };
        let Pool { class, owner } = self.describe(pool);
        if let Some(private) = owner.and_then(|owner| self.private.get_mut(&owner)) {
            private.segments += 1;
        }
        self.stats.segment.change(class, 1);
        self.stats.reserved_bytes.change(class, signed(size));
        self.stats.num_device_alloc += 1;
        Ok(Some(self.blocks.insert(Block::segment(address, size, stream.handle, pool))))
    }

    /// Marks a block, which is in no pool, as allocated; gives back what the request does not need of it.
    fn hand_out(&mut self, block: BlockId, size: u64, requested: u64) -> (BlockId, u64) {
        let whole = self.blocks.get(block);
        let (pool, whole_size, was_split) = (whole.pool, whole.size, whole.is_split());
        let class = self.describe(pool).class;
        let block = if should_split(class, size, whole_size) {
            let front = self.blocks.split_front(block, size);
            self.pools.get_mut(pool).insert(&self.blocks, block);
            let (count, bytes) = if was_split { (0, -signed(size)) } else { (1, signed(whole_size - size)) };
            self.count_inactive_split(class, count, bytes);
            front
        } else {
            if was_split {
                self.count_inactive_split(class, -1, -signed(whole_size));
            }
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
        (block, address)
    }

    /// Notes that a block is used on another stream.
    pub(crate) fn record_stream(&mut self, block: BlockId, stream: StreamRef) {
        let in_scope = !self.scopes.is_empty();
        let device = self.device;
        let block = self.blocks.get_mut(block);
        let own = stream.device == device && stream.handle == block.stream;
        if !own && !block.uses.iter().any(|known| known.stream == stream) {
            block.uses.push(StreamUse { stream, in_scope });
        }
    }

    /// Takes a block back. Whatever happens the block is no longer allocated: if a driver call fails, the block waits
    /// until a later allocation can make up for that call.
    pub(crate) fn free<D: Driver>(&mut self, driver: &D, id: BlockId) -> Result<()> {
        let class = self.describe(self.blocks.get(id).pool).class;
        let block = self.blocks.get_mut(id);
        block.allocated = false;
        let used_elsewhere = !block.uses.is_empty();
        let size = signed(block.size);
        self.stats.allocation.change(class, -1);
        self.stats.allocated_bytes.change(class, -size);
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
        let class = self.describe(pool).class;
        let (mut count, mut bytes) = (0, 0);
        for neighbour in [block.prev, block.next].into_iter().flatten() {
            if self.blocks.get(neighbour).is_free() {
                self.pools.get_mut(pool).remove(&self.blocks, neighbour);
                count -= 1;
                bytes -= signed(self.blocks.merge(id, neighbour));
            }
        }
        let merged = self.blocks.get(id);
        if merged.is_split() {
            count += 1;
            bytes += signed(merged.size);
        }
        self.pools.get_mut(pool).insert(&self.blocks, id);
        self.count_inactive_split(class, count, bytes);
        self.stats.active.change(class, -1);
        self.stats.active_bytes.change(class, -size);
        self.stats.requested_bytes.change(class, -requested);
    }

    fn count_inactive_split(&mut self, class: SizeClass, count: i64, bytes: i64) {
        self.stats.inactive_split.change(class, count);
        self.stats.inactive_split_bytes.change(class, bytes);
    }

    pub(super) fn describe(&self, pool: PoolIndex) -> Pool {
        let pool = self.pools.get(pool);
        Pool { class: pool.class, owner: pool.owner }
    }

    /// Routes allocations that `filter` takes to a private pool, from now on.
    pub(crate) fn begin_allocate_to_pool(&mut self, id: PoolId, filter: Filter) -> Result<()> {
        if self.scopes.iter().any(|scope| scope.pool == id) {
            return Err(Error::AlreadyRecordingToPool);
        }
        let pools = &mut self.pools;
        let private = self.private.entry(id).or_insert_with(|| PrivatePool {
            use_count: 0,
            segments: 0,
            small: pools.add(SizeClass::Small, id),
            large: pools.add(SizeClass::Large, id),
        });
        private.use_count += 1;
        self.scopes.push(Scope { pool: id, filter });
        Ok(())
    }

    /// Stops routing allocations to a private pool.
    pub(crate) fn end_allocate_to_pool(&mut self, id: PoolId) -> Result<()> {
        let position = self.scopes.iter().position(|scope| scope.pool == id).ok_or(Error::NotRecordingToPool)?;
        self.scopes.remove(position);
        Ok(())
    }

    /// Gives up one use of a private pool.
    pub(crate) fn release_pool(&mut self, id: PoolId) {
        if let Some(pool) = self.private.get_mut(&id) {
            pool.use_count = pool.use_count.saturating_sub(1);
            self.remove_pool_if_unused(id);
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
}

/// Sizes as statistics count them.
pub(super) fn signed(size: u64) -> i64 {
    i64::try_from(size).expect("sizes are below 2^60")
}
