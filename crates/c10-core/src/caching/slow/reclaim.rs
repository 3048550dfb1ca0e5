//! Getting memory back: garbage collection, emptying the cache, and what is said when nothing helps.
//!
//! Each driver call comes before the change in the books that it stands for, so a failure in the middle leaves what
//! was not reached as it was.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::error::{Error, OutOfMemory, OutOfMemoryError, Result};
use crate::base::ids::PoolId;
use crate::caching::block::{BlockId, Index};
use crate::caching::block::{SizeClass, max_split_size};
use crate::caching::device::count_segment;

use crate::caching::plan::StreamPlan;
use crate::caching::pools::FromDriver;
use crate::caching::pools::Request;
use crate::caching::pools::{PoolIndex, Pools};
use crate::caching::remote::ShardId;
use crate::caching::shard::{Books, Shard};
use crate::caching::slow::DeviceAllocator;
use crate::caching::slow::growth::{Growth, Plan};
use crate::driver::Driver;
use crate::sync::lock;
use crate::trace::{TraceEvent, TraceKind};

/// A free block of a shard.
type Place = (Arc<Shard>, BlockId);

impl DeviceAllocator {
    /// Gives all memory that is wholly free back to the driver. While a scope is open only pools that nobody uses any
    /// more are emptied, and while a graph is captured nothing is.
    pub(crate) fn release_cached<D: Driver>(&self, driver: &D) -> Result<()> {
        self.refuse_source()?;
        let _working = self.begin_work()?;
        let _span = tracing::debug_span!("empty_cache", device = self.cache.index).entered();
        let mut growth = lock(&self.growth);
        if !self.cache.shared.is_capturing() {
            self.dissolve_plans(StreamPlan::is_idle);
        }
        self.release_cached_of(driver, &mut growth)
    }

    pub(crate) fn release_cached_of<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        if self.cache.shared.is_capturing() {
            return Ok(());
        }
        if growth.scopes.is_empty() {
            self.cache.synchronize_and_free_events(driver, None)?;
            self.release_default_pools(driver, growth)?;
        }
        self.release_given_up(driver, growth)
    }

    /// Releases all wholly free memory to the driver before a request fails, even while memory pools are entered. Must
    /// not be called for a stream that is capturing, nor while the runtime captures a graph.
    pub(crate) fn release_all_cached<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        if growth.scopes.is_empty() {
            return self.release_cached_of(driver, growth);
        }
        self.cache.synchronize_in_scopes(driver)?;
        self.release_default_pools(driver, growth)?;
        self.release_given_up(driver, growth)
    }

    fn release_default_pools<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        self.release_free(driver, growth, Pools::DEFAULT, SizeClass::Large)?;
        self.release_free(driver, growth, Pools::DEFAULT, SizeClass::Small)?;
        self.release_left(driver, growth)
    }

    /// Releases the free memory of private pools without users to the driver.
    fn release_given_up<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        let unused = growth.private.iter().filter(|(_, pool)| pool.use_count == 0).map(|(id, _)| *id);
        let unused: Vec<PoolId> = unused.collect();
        unused.into_iter().try_for_each(|id| self.release_private(driver, growth, id))
    }

    /// Where there are pages that move: drops old mappings, and gives back pages and ranges that nobody uses.
    fn release_left<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        let none_idle = growth.stock.idle().next().is_none();
        if none_idle && !growth.ranges.values().any(|range| range.elastic) {
            return Ok(());
        }
        self.drop_left(driver, growth)?;
        self.release_idle(driver, growth)?;
        [SizeClass::Large, SizeClass::Small]
            .into_iter()
            .try_for_each(|class| self.release_bare_ranges(driver, growth, Pools::DEFAULT, class))
    }

    /// Gives the free memory of one private pool back to the driver, if nobody uses the pool any more; waits for the
    /// events of its blocks, except while a scope is open, when that is forbidden.
    pub(crate) fn release_cached_pool<D: Driver>(&self, driver: &D, id: PoolId) -> Result<()> {
        let _working = self.begin_work()?;
        let mut growth = lock(&self.growth);
        if self.cache.shared.is_capturing() || growth.private.get(&id).is_none_or(|pool| pool.use_count > 0) {
            return Ok(());
        }
        if growth.scopes.is_empty() {
            self.cache.synchronize_and_free_events(driver, Some(id))?;
        }
        self.release_private(driver, &mut growth, id)
    }

    fn release_private<D: Driver>(&self, driver: &D, growth: &mut Growth, id: PoolId) -> Result<()> {
        let Some(pool) = growth.private.get(&id) else { return Ok(()) };
        let pool = pool.pool;
        for class in [SizeClass::Small, SizeClass::Large] {
            self.release_free(driver, growth, pool, class)?;
        }
        let shards: BTreeSet<ShardId> = growth.pools.get(pool).shards.values().map(|shard| shard.id).collect();
        if growth.stock.all_left().any(|left| shards.contains(&left.shard)) {
            self.drop_left(driver, growth)?;
        }
        for class in [SizeClass::Small, SizeClass::Large] {
            self.release_bare_ranges(driver, growth, pool, class)?;
        }
        growth.remove_pool_if_unused(id);
        Ok(())
    }

    /// Free blocks of a pool that a test finds fitting, by stream, size and address.
    fn free_blocks(
        &self,
        growth: &Growth,
        pool: PoolIndex,
        class: SizeClass,
        takes: impl Fn(&Books, Index) -> bool,
    ) -> Vec<Place> {
        // Remote frees are drained first: what was given back is free.
        self.cache.all_shards(|all| {
            let shards = growth.pools.get(pool).shards.values();
            let of_shard = |shard: &Arc<Shard>| {
                let state = &all.states[shard.position];
                let fitting = state.bins(class).iter(&state.blocks).filter(|index| takes(state, *index));
                fitting.map(|index| (Arc::clone(shard), state.blocks.id(index))).collect::<Vec<_>>()
            };
            shards.flat_map(of_shard).collect()
        })
    }

    /// Gives back the segments of a pool that are one free block, and unmaps what is free of its expandable ones.
    fn release_free<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        pool: PoolIndex,
        class: SizeClass,
    ) -> Result<()> {
        let free = self.free_blocks(growth, pool, class, |_, _| true);
        let in_range = |(shard, id): &Place| {
            let state = shard.lock_flushed();
            state.is_free(*id) && state.blocks.get(id.index).in_range
        };
        let (expanded, plain): (Vec<_>, Vec<_>) = free.into_iter().partition(in_range);
        for place in plain {
            self.release_segment(driver, growth, &place)?;
        }
        expanded.into_iter().try_for_each(|(shard, id)| self.shrink(driver, growth, &shard, id))
    }

    /// Gives a segment that is one free block back to where it came from; its bytes. Does nothing if it is that no more.
    fn release_segment<D: Driver>(&self, driver: &D, growth: &mut Growth, (shard, id): &Place) -> Result<u64> {
        let (address, size, class, stream, owner) = {
            let mut state = shard.lock_flushed();
            if !state.is_whole(*id) {
                return Ok(0);
            }
            state.hold(id.index);
            let block = state.blocks.get(id.index);
            (block.address, block.size, block.class, state.key.stream, state.key.owner)
        };
        self.cache.shared.pages.unregister(address, size);
        let driver = FromDriver(driver);
        let source = growth.source(owner, &driver);
        if let Err(error) = self.ask_source(|| source.free(self.cache.index, address, size)) {
            self.cache.shared.pages.register(address, size, shard.id, class);
            shard.lock_flushed().put_back(id.index);
            return Err(error);
        }
        // Segments are not of pages.
        let oversize = max_split_size(&growth.config, false);
        let mut figures = lock(&self.cache.figures);
        count_segment(figures.stats_mut(), class, size, -1, oversize);
        shard.lock_flushed().blocks.remove(id.index);
        drop(figures);
        growth.count_segments(owner, -1);
        self.report_segment(TraceEvent::SegmentFreed, (address, size, stream, owner));
        Ok(size)
    }

    /// Releases unused segments that are too large to be split until one of the planned size can be had; whether it
    /// can. What was released stays so even if not.
    pub(crate) fn release_oversize<D: Driver>(&self, driver: &D, growth: &mut Growth, plan: &Plan) -> Result<bool> {
        let max_split = max_split_size(&growth.config, plan.elastic);
        if max_split == u64::MAX || self.cache.shared.is_capturing() {
            return Ok(false);
        }
        let wanted = plan.size.max(max_split);
        let (above, below) = {
            let state = plan.shard.lock_flushed();
            let ids = state.bins(plan.class).iter(&state.blocks).map(|index| state.blocks.id(index));
            let (above, mut below): (Vec<_>, Vec<_>) = ids.partition(|id| state.blocks.get(id.index).size >= wanted);
            below.retain(|id| state.blocks.get(id.index).size >= max_split);
            // The option may have been lowered since: a part of a segment cannot be released.
            let first = above.first().copied().filter(|id| state.is_whole(*id));
            below.retain(|id| state.is_whole(*id));
            (first, below)
        };
        let place = |id| (Arc::clone(&plan.shard), id);
        if let Some(id) = above {
            return self.release_segment(driver, growth, &place(id)).map(|_| true);
        }
        let mut released = 0;
        for id in below.into_iter().rev() {
            if released >= wanted {
                break;
            }
            released += self.release_segment(driver, growth, &place(id))?;
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
    pub(crate) fn collect_garbage<D: Driver>(&self, driver: &D, growth: &mut Growth) -> Result<()> {
        let Some(limit) = growth.limit.filter(|_| !self.cache.shared.is_capturing()) else { return Ok(()) };
        let _span = tracing::debug_span!("collect_garbage", device = self.cache.index).entered();
        let threshold = (growth.config.garbage_collection_threshold * limit as f64) as u64;
        let target = self.cache.held().saturating_sub(threshold);
        let (mut reclaimed, mut progress) = (0, true);
        let ages = self.ages(growth);
        let (mut total, mut count) = (ages.iter().map(|(_, age)| *age as f64).sum::<f64>(), ages.len());
        while reclaimed < target && progress && count > 0 {
            let threshold = total / count as f64;
            progress = false;
            for (place, age) in self.ages(growth) {
                let in_range = place.0.lock_flushed().blocks.get(place.1.index).in_range;
                if !in_range && age as f64 >= threshold {
                    reclaimed += self.release_segment(driver, growth, &place)?;
                    total -= age as f64;
                    count = count.saturating_sub(1);
                    progress = true;
                }
            }
        }
        Ok(())
    }

    /// The free blocks of the default large pool that are whole segments, with the lookups since they were freed.
    fn ages(&self, growth: &Growth) -> Vec<(Place, u64)> {
        let is_whole = |state: &Books, index| !state.blocks.get(index).is_split();
        let whole = self.free_blocks(growth, Pools::DEFAULT, SizeClass::Large, is_whole);
        let now = growth.pools.get(Pools::DEFAULT).clocks[1].load(Ordering::Relaxed);
        let age = |(shard, id): &Place| now.saturating_sub(shard.lock_flushed().blocks.get(id.index).born);
        whole.into_iter().map(|place| (age(&place), place)).map(|(age, place)| (place, age)).collect()
    }

    /// The error for a request that nothing could serve.
    pub(crate) fn out_of_memory<D: Driver>(
        &self,
        driver: &D,
        growth: &Growth,
        request: &Request,
        plan: &Plan,
    ) -> Error {
        let _span = tracing::debug_span!("out_of_memory", device = self.cache.index, bytes = plan.segment).entered();
        let info = match driver.mem_get_info(self.cache.index) {
            Ok(info) => info,
            Err(error) => return error,
        };
        let (stats, cached, largest) = self.cache.all_shards(|all| {
            all.stats.num_ooms += 1;
            let (mut cached, mut largest) = (0, 0);
            for state in &all.states {
                for size in state.free_blocks().map(|index| state.blocks.get(index).size) {
                    largest = largest.max(size);
                    cached += if state.key.owner.is_some() { size } else { 0 };
                }
            }
            (all.stats(), cached, largest)
        });
        self.cache.shared.trace.report(TraceKind::Memory, || TraceEvent::OutOfMemory {
            device: self.cache.index,
            stream: request.stream.handle.0 as u64,
            size: plan.segment,
            device_free: info.free,
            pool: growth.pools.get(plan.pool).owner.unwrap_or(PoolId(0, 0)),
        });
        let bytes = |stat: i64| u64::try_from(stat).unwrap_or(0);
        let figures = OutOfMemory {
            device: self.cache.index,
            requested: request.asked.bytes(),
            segment: plan.segment,
            total: info.total,
            free: info.free,
            allowed: growth.limit,
            allocated: bytes(stats.allocated_bytes.all.current),
            reserved: bytes(stats.reserved_bytes.all.current),
            cached_in_private_pools: cached,
            largest_free_block: largest,
        };
        let held = if plan.elastic { self.holders(growth) } else { Vec::new() };
        Error::OutOfMemory(Box::new(OutOfMemoryError { held, ..OutOfMemoryError::new(figures) }))
    }

    /// Gives everything back to the driver, whether in use or not; nothing may be asked of the device afterwards.
    /// Errors are passed over: this is the end.
    pub(crate) fn dismantle<D: Driver>(&self, driver: &D) {
        let mut growth = lock(&self.growth);
        for event in self.cache.pending.lock().take_events() {
            let _ = driver.event_destroy(event);
        }
        for segment in self.snapshot(None).iter().filter(|segment| !segment.is_expandable) {
            let driver = FromDriver(driver);
            let source = growth.source(Some(segment.pool), &driver);
            let _ = source.free(self.cache.index, segment.address, segment.total_size);
        }
        self.dismantle_ranges(driver, &mut growth);
    }
}
