//! Getting memory back: finished events, emptying the cache, and what is said when nothing helps.
//!
//! Each driver call comes before the change in the books that it stands for, so a failure in the middle leaves what
//! was not reached as it was.

use crate::caching::block::{BlockId, PoolIndex};
use crate::caching::device::{DeviceAllocator, signed};
use crate::caching::pool::Pools;
use crate::caching::private_pool::{PoolId, Request};
use crate::driver::{Driver, StreamRef};
use crate::error::{Error, OutOfMemory, Result};

impl DeviceAllocator {
    /// Frees the blocks whose other streams have passed their events. Only the oldest event of each stream is asked
    /// for at a time.
    pub(super) fn process_events<D: Driver>(&mut self, driver: &D) -> Result<()> {
        self.settle_deferred(driver)?;
        for stream in self.pending.streams() {
            while let Some(event) = self.pending.head(stream) {
                if !driver.event_query(event)? {
                    break;
                }
                self.event_passed(stream);
            }
        }
        Ok(())
    }

    /// Waits for every outstanding event.
    fn synchronize_and_free_events<D: Driver>(&mut self, driver: &D) -> Result<()> {
        self.stats.num_sync_all_streams += 1;
        self.settle_deferred(driver)?;
        for stream in self.pending.streams() {
            while let Some(event) = self.pending.head(stream) {
                driver.event_synchronize(event)?;
                self.event_passed(stream);
            }
        }
        Ok(())
    }

    fn event_passed(&mut self, stream: StreamRef) {
        if let Some(id) = self.pending.pop(stream) {
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

    /// Gives every segment that is wholly free back to the driver. While a scope is open only pools that no graph
    /// uses any more are emptied.
    pub(crate) fn release_cached<D: Driver>(&mut self, driver: &D) -> Result<()> {
        if self.scopes.is_empty() {
            self.synchronize_and_free_events(driver)?;
            self.release_free_segments(driver, Pools::DEFAULT_LARGE)?;
            self.release_free_segments(driver, Pools::DEFAULT_SMALL)?;
        }
        for id in self.freeable_pools() {
            if let Some(pool) = self.private.get(&id) {
                let (small, large) = (pool.small, pool.large);
                self.release_free_segments(driver, small)?;
                self.release_free_segments(driver, large)?;
                self.remove_pool_if_unused(id);
            }
        }
        Ok(())
    }

    fn freeable_pools(&self) -> Vec<PoolId> {
        self.private.iter().filter(|(_, pool)| pool.use_count == 0).map(|(id, _)| *id).collect()
    }

    fn release_free_segments<D: Driver>(&mut self, driver: &D, pool: PoolIndex) -> Result<()> {
        let whole = |id: &BlockId| !self.blocks.get(*id).is_split();
        let segments: Vec<BlockId> = self.pools.get(pool).free_blocks().filter(whole).collect();
        segments.into_iter().try_for_each(|segment| self.release_segment(driver, segment))
    }

    fn release_segment<D: Driver>(&mut self, driver: &D, id: BlockId) -> Result<()> {
        driver.mem_free(self.device, self.blocks.get(id).address)?;
        let pool = self.blocks.get(id).pool;
        self.pools.get_mut(pool).remove(&self.blocks, id);
        let size = self.blocks.remove(id).size;
        let about = self.describe(pool);
        if let Some(private) = about.owner.and_then(|owner| self.private.get_mut(&owner)) {
            private.segments -= 1;
        }
        self.stats.segment.change(about.class, -1);
        self.stats.reserved_bytes.change(about.class, -signed(size));
        self.stats.num_device_free += 1;
        Ok(())
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
        for (_, head) in self.blocks.iter().filter(|(_, block)| block.prev.is_none()) {
            let _ = driver.mem_free(self.device, head.address);
        }
        *self = Self::new(self.device);
    }
}
