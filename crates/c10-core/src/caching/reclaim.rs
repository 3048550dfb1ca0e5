//! Getting memory back: finished events, garbage collection, emptying the cache, and what is said when nothing helps.
//!
//! Each driver call comes before the change in the books that it stands for, so a failure in the middle leaves what
//! was not reached as it was.

use std::sync::Arc;

use crate::caching::block::{BlockId, PoolIndex};
use crate::caching::device::{DeviceAllocator, Plan, signed};
use crate::caching::pool::Pools;
use crate::caching::private_pool::{PoolId, Request};
use crate::caching::size_class::max_split_size;
use crate::driver::{Driver, StreamRef};
use crate::error::{Error, OutOfMemory, Result};

impl DeviceAllocator {
    /// Frees the blocks whose other streams have passed their events. Only the oldest event of each stream is asked
    /// for at a time.
    pub(super) fn process_events<D: Driver>(&mut self, driver: &D) -> Result<()> {
        self.settle_deferred(driver)?;
        for stream in self.pending.streams() {
            while let Some((event, _)) = self.pending.entry(stream, 0) {
                if !driver.event_query(event)? {
                    break;
                }
                self.event_passed(stream, 0);
            }
        }
        Ok(())
    }

    /// Waits for every outstanding event, or for those of one private pool's blocks.
    fn synchronize_and_free_events<D: Driver>(&mut self, driver: &D, only: Option<PoolId>) -> Result<()> {
        self.stats.num_sync_all_streams += 1;
        self.settle_deferred(driver)?;
        for stream in self.pending.streams() {
            let mut position = 0;
            while let Some((event, block)) = self.pending.entry(stream, position) {
                if only.is_some() && self.owner(block) != only {
                    position += 1;
                    continue;
                }
                driver.event_synchronize(event)?;
                self.event_passed(stream, position);
            }
        }
        Ok(())
    }

    fn event_passed(&mut self, stream: StreamRef, position: usize) {
        if let Some(id) = self.pending.take(stream, position) {
            let block = self.blocks.get_mut(id);
            block.events -= 1;
            if !block.is_pending() {
                self.free_block(id);
            }
        }
    }

    /// Records the events that blocks given back during a scope still need.
    fn settle_deferred<D: Driver>(&mut self, driver: &D) -> Result<()> {
        while !self.pending.deferred.is_empty() {
            self.settle(driver, 0)?;
        }
        Ok(())
    }

    /// Records the events that one deferred block needs; frees it if it needs none.
    pub(super) fn settle<D: Driver>(&mut self, driver: &D, position: usize) -> Result<()> {
        let id = self.pending.deferred[position];
        self.blocks.get_mut(id).uses.retain(|known| !known.in_scope);
        while let Some(used) = self.blocks.get(id).uses.first().copied() {
            self.pending.record(driver, used.stream, id)?;
            let block = self.blocks.get_mut(id);
            block.uses.remove(0);
            block.events += 1;
        }
        self.pending.deferred.remove(position);
        if !self.blocks.get(id).is_pending() {
            self.free_block(id);
        }
        Ok(())
    }

    /// Gives all memory that is wholly free back to the driver. While a scope is open only pools that nobody uses any
    /// more are emptied.
    pub(crate) fn release_cached<D: Driver>(&mut self, driver: &D) -> Result<()> {
        if self.scopes.is_empty() {
            self.synchronize_and_free_events(driver, None)?;
            self.release_free(driver, Pools::DEFAULT_LARGE)?;
            self.release_free(driver, Pools::DEFAULT_SMALL)?;
        }
        let unused = self.private.iter().filter(|(_, pool)| pool.use_count == 0).map(|(id, _)| *id);
        let unused: Vec<PoolId> = unused.collect();
        unused.into_iter().try_for_each(|id| self.release_private(driver, id))
    }

    /// Gives the free memory of one private pool back to the driver, if nobody uses the pool any more; waits for the
    /// events of its blocks, except while a scope is open, when that is forbidden.
    pub(crate) fn release_cached_pool<D: Driver>(&mut self, driver: &D, id: PoolId) -> Result<()> {
        if self.private.get(&id).is_none_or(|pool| pool.use_count > 0) {
            return Ok(());
        }
        if self.scopes.is_empty() {
            self.synchronize_and_free_events(driver, Some(id))?;
        }
        self.release_private(driver, id)
    }

    fn release_private<D: Driver>(&mut self, driver: &D, id: PoolId) -> Result<()> {
        let Some(pool) = self.private.get(&id) else { return Ok(()) };
        let (small, large) = (pool.small, pool.large);
        for pool in [small, large] {
            self.release_free(driver, pool)?;
            self.release_bare_ranges(driver, pool)?;
        }
        self.remove_pool_if_unused(id);
        Ok(())
    }

    /// Gives back the segments of a pool that are one free block, and unmaps what is free of its expandable ones.
    fn release_free<D: Driver>(&mut self, driver: &D, pool: PoolIndex) -> Result<()> {
        let free: Vec<BlockId> = self.pools.get(pool).free_blocks().collect();
        let (expanded, plain): (Vec<_>, Vec<_>) = free.into_iter().partition(|id| self.blocks.get(*id).range.is_some());
        for segment in plain {
            if !self.blocks.get(segment).is_split() {
                self.release_segment(driver, segment)?;
            }
        }
        expanded.into_iter().try_for_each(|block| self.shrink(driver, block))
    }

    fn release_segment<D: Driver>(&mut self, driver: &D, id: BlockId) -> Result<()> {
        driver.mem_free(self.device, self.blocks.get(id).address)?;
        let pool = self.blocks.get(id).pool;
        self.pools.get_mut(pool).remove(&self.blocks, id);
        let size = self.blocks.remove(id).size;
        let class = self.describe(pool).class;
        self.count_segments(pool, -1);
        self.stats.segment.change(class, -1);
        self.stats.reserved_bytes.change(class, -signed(size));
        self.count_oversize_segment(size, -1);
        self.stats.num_device_free += 1;
        Ok(())
    }

    /// Releases unused segments that are too large to be split until one of the planned size can be had; whether it
    /// can. What was released stays so even if not.
    pub(super) fn release_oversize<D: Driver>(&mut self, driver: &D, plan: &Plan) -> Result<bool> {
        let max_split = max_split_size(&self.config);
        if max_split == u64::MAX {
            return Ok(false);
        }
        let wanted = plan.size.max(max_split);
        // The option may have been lowered since: a part of a segment cannot be released.
        let is_whole = |id: &BlockId| self.blocks.get(*id).is_whole();
        let (mut above, below) = self.pools.get(plan.pool).around(plan.stream.handle, wanted);
        let enough = above.next().filter(is_whole);
        let below = below.take_while(|id| self.blocks.get(*id).size >= max_split);
        let whole: Vec<BlockId> = below.filter(is_whole).collect();
        drop(above);
        if let Some(block) = enough {
            return self.release_segment(driver, block).map(|()| true);
        }
        let mut released = 0;
        for block in whole {
            if released >= wanted {
                break;
            }
            let size = self.blocks.get(block).size;
            self.release_segment(driver, block)?;
            released += size;
        }
        Ok(released >= wanted)
    }

    /// Releases segments of the default large pool that were not used for longer than the average, while more is held
    /// than the threshold allows.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of the limit and a mean, rounded as torch rounds them"
    )]
    pub(super) fn collect_garbage<D: Driver>(&mut self, driver: &D) -> Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        let threshold = (self.config.garbage_collection_threshold * limit as f64) as u64;
        let target = self.held().saturating_sub(threshold);
        let (mut reclaimed, mut progress) = (0, true);
        let ages = self.ages();
        let (mut total, mut count) = (ages.iter().map(|(_, age)| *age as f64).sum::<f64>(), ages.len());
        while reclaimed < target && progress && count > 0 {
            let threshold = total / count as f64;
            progress = false;
            for (id, age) in self.ages() {
                let block = self.blocks.get(id);
                if block.range.is_none() && age as f64 >= threshold {
                    reclaimed += block.size;
                    self.release_segment(driver, id)?;
                    total -= age as f64;
                    count -= 1;
                    progress = true;
                }
            }
        }
        Ok(())
    }

    /// The free blocks of the default large pool that are whole segments, with the lookups since they were freed.
    fn ages(&self) -> Vec<(BlockId, u64)> {
        let pool = self.pools.get(Pools::DEFAULT_LARGE);
        let whole = pool.free_blocks().map(|id| (id, self.blocks.get(id))).filter(|(_, block)| !block.is_split());
        whole.map(|(id, block)| (id, pool.lookups - block.born)).collect()
    }

    /// The error for a request that nothing could serve.
    pub(super) fn out_of_memory<D: Driver>(&mut self, driver: &D, request: &Request, segment: u64) -> Error {
        let info = match driver.mem_get_info(self.device) {
            Ok(info) => info,
            Err(error) => return error,
        };
        self.stats.num_ooms += 1;
        let bytes = |stat: i64| u64::try_from(stat).unwrap_or(0);
        OutOfMemory {
            device: self.device,
            requested: request.bytes,
            segment,
            total: info.total,
            free: info.free,
            allowed: self.limit,
            allocated: bytes(self.stats.allocated_bytes.all.current),
            reserved: bytes(self.stats.reserved_bytes.all.current),
            cached_in_private_pools: self.free_sizes(true).sum(),
            largest_free_block: self.free_sizes(false).max().unwrap_or(0),
        }
        .into()
    }

    /// Sizes of free blocks, of all pools or of private ones only.
    fn free_sizes(&self, private_only: bool) -> impl Iterator<Item = u64> {
        self.pools
            .iter()
            .filter(move |(_, pool)| pool.owner.is_some() || !private_only)
            .flat_map(|(_, pool)| pool.free_blocks())
            .map(|id| self.blocks.get(id).size)
    }

    /// Gives everything back to the driver, whether in use or not. Errors are passed over: this is the end.
    pub(crate) fn dismantle<D: Driver>(&mut self, driver: &D) {
        for event in self.pending.take_events() {
            let _ = driver.event_destroy(event);
        }
        let heads = self.blocks.iter().filter(|(_, block)| block.prev.is_none() && block.range.is_none());
        for (_, head) in heads {
            let _ = driver.mem_free(self.device, head.address);
        }
        self.dismantle_ranges(driver);
        *self = Self::new(self.device, Arc::clone(&self.config));
    }
}
