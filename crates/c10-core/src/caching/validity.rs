//! The equations that hold between any two calls, whatever the driver answered in the last one.
//!
//! Only looks, never mends. Costs time proportional to the number of blocks; meant for tests.

use std::collections::HashMap;

use crate::caching::block::{Block, BlockId};
use crate::caching::device::{DeviceAllocator, signed};
use crate::caching::size_class::{MIN_BLOCK_SIZE, SizeClass};
use crate::caching::stats::StatByPool;

/// The first equation that does not hold, in words.
type Check = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

impl DeviceAllocator {
    /// Number of blocks handed out.
    pub(crate) fn live(&self) -> usize {
        self.blocks.iter().filter(|(_, block)| block.allocated).count()
    }

    /// Checks everything; says what is wrong first.
    pub(crate) fn check(&self) -> Check {
        self.blocks.iter().try_for_each(|(id, block)| self.check_block(id, block))?;
        self.check_free_sets()?;
        self.check_pending()?;
        self.check_private_pools()?;
        [SizeClass::Small, SizeClass::Large].into_iter().try_for_each(|class| self.check_stats(class))?;
        self.check_ranges()?;
        ensure(self.stats.is_valid(), || format!("statistics disagree with themselves: {:?}", self.stats))
    }

    fn check_block(&self, id: BlockId, block: &Block) -> Check {
        let fail = |what: &str| format!("{what}: {block:?}");
        let aligned = block.size > 0 && block.size.is_multiple_of(MIN_BLOCK_SIZE);
        ensure(aligned, || fail("size is no multiple of 512"))?;
        ensure(!block.allocated || block.events == 0, || fail("allocated and awaiting events"))?;
        if let Some(next) = block.next {
            ensure(self.blocks.contains(next), || fail("next block is gone"))?;
            let after = self.blocks.get(next);
            ensure(after.prev == Some(id), || fail("next block does not link back"))?;
            ensure(after.address == block.address + block.size, || fail("gap before the next block"))?;
            ensure(after.pool == block.pool && after.stream == block.stream, || fail("segment of two pools"))?;
            ensure(after.range == block.range, || fail("segment of two ranges"))?;
            let alike = block.is_unused() && after.is_unused() && block.mapped == after.mapped;
            ensure(!alike, || fail("unused neighbours are not merged"))?;
        }
        if let Some(prev) = block.prev {
            ensure(self.blocks.contains(prev), || fail("previous block is gone"))?;
            ensure(self.blocks.get(prev).next == Some(id), || fail("previous block does not link back"))?;
        }
        ensure(block.mapped || block.is_unused(), || fail("in use without memory"))?;
        ensure(block.mapped || block.range.is_some(), || fail("unmapped outside of a range"))?;
        let unmapped = self.pools.get(block.pool).contains_unmapped(&self.blocks, id);
        ensure(unmapped != block.mapped, || fail("unmapped set and state differ"))?;
        let in_set = self.pools.get(block.pool).contains(&self.blocks, id);
        ensure(in_set == block.is_free(), || fail("free set and state differ"))
    }

    fn check_free_sets(&self) -> Check {
        let listed: usize = self.pools.iter().map(|(_, pool)| pool.free_count()).sum();
        let free = self.blocks.iter().filter(|(_, block)| block.is_free()).count();
        ensure(listed == free, || format!("{listed} blocks in free sets, {free} free blocks"))?;
        let listed: usize = self.pools.iter().map(|(_, pool)| pool.unmapped_count()).sum();
        let unmapped = self.blocks.iter().filter(|(_, block)| !block.mapped).count();
        ensure(listed == unmapped, || format!("{listed} blocks in unmapped sets, {unmapped} unmapped blocks"))
    }

    /// The blocks of each range cover it, and what is mapped of it is made of whole pages.
    fn check_ranges(&self) -> Check {
        for (id, range) in self.ranges.iter() {
            let mut blocks: Vec<&Block> = self.blocks.iter().map(|(_, block)| block).collect();
            blocks.retain(|block| block.range == Some(id));
            let covered: u64 = blocks.iter().map(|block| block.size).sum();
            let heads = blocks.iter().filter(|block| block.prev.is_none()).count();
            ensure(covered == range.size && heads == 1, || format!("{range:?} has {heads} heads, {covered} bytes"))?;
            let unaligned = |block: &&&Block| {
                let (from, to) = (block.address - range.address, block.address + block.size - range.address);
                let whole = from.is_multiple_of(range.page) && to.is_multiple_of(range.page);
                !block.mapped && !whole
            };
            let torn = blocks.iter().find(unaligned);
            ensure(torn.is_none(), || format!("a part of a page is unmapped: {torn:?}"))?;
        }
        let known = |block: &Block| block.range.is_none_or(|id| self.ranges.iter().any(|(held, _)| held == id));
        ensure(self.blocks.iter().all(|(_, block)| known(block)), || "a block of a range that is gone".to_owned())
    }

    fn check_pending(&self) -> Check {
        let mut events: HashMap<BlockId, u32> = HashMap::new();
        for (_, id) in self.pending.queues.values().flatten() {
            *events.entry(*id).or_default() += 1;
        }
        for (id, block) in self.blocks.iter() {
            let queued = events.remove(&id).unwrap_or(0);
            ensure(queued == block.events, || format!("{queued} events queued for {block:?}"))?;
            let deferred = self.pending.deferred.iter().filter(|other| **other == id).count();
            let expected = usize::from(!block.allocated && !block.uses.is_empty());
            ensure(deferred == expected, || format!("deferred {deferred} times: {block:?}"))?;
        }
        ensure(events.is_empty(), || "events queued for removed blocks".to_owned())
    }

    fn check_private_pools(&self) -> Check {
        for (id, pool) in &self.private {
            let heads = |block: &Block| block.prev.is_none() && [pool.small, pool.large].contains(&block.pool);
            let segments = self.blocks.iter().filter(|(_, block)| heads(block)).count();
            ensure(segments == pool.segments as usize, || format!("{id:?} has {segments} segments: {pool:?}"))?;
        }
        let pools = self.pools.iter().count();
        ensure(pools == 2 + 2 * self.private.len(), || format!("{pools} pools"))
    }

    fn check_stats(&self, class: SizeClass) -> Check {
        let stats = &self.stats;
        let one = |_: &Block| 1;
        let size = |block: &Block| signed(block.size);
        let active = |block: &Block| block.allocated || block.is_pending();
        let parts = |block: &Block| block.is_free() && block.is_split() && block.range.is_none();
        let segments = |block: &Block| block.prev.is_none() && block.range.is_none();
        self.check_sum(class, "allocation", &stats.allocation, |block| block.allocated, one)?;
        self.check_sum(class, "allocated_bytes", &stats.allocated_bytes, |block| block.allocated, size)?;
        self.check_sum(class, "active", &stats.active, active, one)?;
        self.check_sum(class, "active_bytes", &stats.active_bytes, active, size)?;
        self.check_sum(class, "requested_bytes", &stats.requested_bytes, active, |block| signed(block.requested))?;
        self.check_sum(class, "inactive_split", &stats.inactive_split, parts, one)?;
        self.check_sum(class, "inactive_split_bytes", &stats.inactive_split_bytes, parts, size)?;
        self.check_sum(class, "segment", &stats.segment, segments, one)?;
        self.check_sum(class, "reserved_bytes", &stats.reserved_bytes, |block| block.mapped, size)
    }

    fn check_sum(
        &self,
        class: SizeClass,
        name: &str,
        stat: &StatByPool,
        counts: impl Fn(&Block) -> bool,
        amount: impl Fn(&Block) -> i64,
    ) -> Check {
        let of_class = |block: &&Block| self.pools.get(block.pool).class == class && counts(block);
        let sum: i64 = self.blocks.iter().map(|(_, block)| block).filter(of_class).map(amount).sum();
        let current = stat.of(class).current;
        ensure(sum == current, || format!("{name} of {class:?} is {current}, blocks add up to {sum}"))
    }
}
