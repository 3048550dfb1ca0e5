//! Who holds the memory of a device, for a request that failed where pages move.
//!
//! **Invariant:** only looks. What is counted as free could not go to the request: it belongs to a pool that keeps it, or to
//! a stream of which nobody can tell when it has passed.

use std::collections::BTreeMap;

use crate::base::error::{HeldMemory, MemoryHolder};
use crate::base::ids::PoolId;
use crate::caching::block::Block;
use crate::caching::device::AllShards;
use crate::caching::pools::Pending;
use crate::caching::slow::DeviceAllocator;
use crate::caching::slow::expandable::whole_pages;
use crate::caching::slow::growth::Growth;

impl DeviceAllocator {
    /// The pools that hold memory, the default ones first, and the streams that memory waits for.
    pub(crate) fn holders(&self, growth: &Growth) -> Vec<HeldMemory> {
        let pending = self.cache.pending.lock();
        self.cache.all_shards(|all| {
            let mut pools: BTreeMap<Option<PoolId>, HeldMemory> = BTreeMap::new();
            for state in &all.states {
                let owner = state.key.owner;
                let held = pools.entry(owner).or_insert_with(|| nothing(holder(growth, owner)));
                state.blocks.iter().for_each(|(_, block)| add(growth, held, block));
            }
            let pools = pools.into_values().filter(|held| held.reserved > 0);
            pools.chain(awaited(&pending, all)).collect()
        })
    }
}

fn nothing(holder: MemoryHolder) -> HeldMemory {
    HeldMemory { holder, reserved: 0, in_use: 0, free: 0, largest_free_run: 0 }
}

fn holder(growth: &Growth, owner: Option<PoolId>) -> MemoryHolder {
    match owner {
        None => MemoryHolder::Program,
        Some(pool) if growth.private.get(&pool).is_some_and(|pool| pool.is_known) => MemoryHolder::Graphs { pool },
        Some(pool) => MemoryHolder::Pool { pool },
    }
}

fn add(growth: &Growth, held: &mut HeldMemory, block: &Block) {
    if !block.is_mapped() {
        return;
    }
    held.reserved += block.size;
    if block.is_active() {
        held.in_use += block.size;
    } else if block.in_range {
        let range = growth.range_at(block.address);
        let pages = whole_pages(block, &range).map_or(0, |pages| pages.size);
        held.free += pages;
        held.largest_free_run = held.largest_free_run.max(pages);
    }
}

/// What was given back, by the streams that may still use it. A block that several use counts for each.
fn awaited(pending: &Pending, all: &AllShards<'_>) -> Vec<HeldMemory> {
    let mut streams: BTreeMap<usize, u64> = BTreeMap::new();
    for (stream, waiter) in pending.awaited_streams() {
        let shard = all.shards.iter().position(|shard| shard.id == waiter.shard);
        let block = shard.and_then(|position| all.states[position].blocks.find(waiter.block));
        *streams.entry(stream.handle.0).or_default() += block.map_or(0, |block| block.size);
    }
    let held = |(handle, bytes): (usize, u64)| HeldMemory {
        reserved: bytes,
        in_use: bytes,
        ..nothing(MemoryHolder::Stream { handle: handle as u64 })
    };
    streams.into_iter().map(held).collect()
}
