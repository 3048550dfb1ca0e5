//! Expandable segments: address ranges larger than the device, of which only the used pages have memory.
//!
//! A range is a chain of blocks like any segment; those that are unmapped are addresses only. It grows and shrinks by
//! whole pages, whose size is fixed when it is made.
//!
//! **Invariants:** a range begins and ends at blocks without neighbours, and its blocks add up to its size; it is
//! removed when its memory has been given back and it is one unmapped block. Parts that were mapped before a later
//! mapping failed stay, as free blocks. While the driver maps or unmaps, the blocks concerned are held.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::handles::StreamRef;
use crate::caching::block::{Block, BlockId, Index, State};
use crate::caching::block::{SizeClass, page_size};

use crate::caching::pools::PoolIndex;
use crate::caching::remote::ShardId;
use crate::caching::shard::{Books, Flushed, Shard, signed};
use crate::caching::slow::DeviceAllocator;
use crate::caching::slow::elastic::twice;
use crate::caching::slow::growth::{Growth, Plan};
use crate::driver::Driver;
use crate::sync::lock;
use crate::trace::TraceEvent;

/// An address range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Bytes it grows by.
    pub(crate) page: u64,
    /// The stream it serves.
    pub(crate) stream: StreamRef,
    pub(crate) class: SizeClass,
    /// The shard that has its blocks.
    pub(crate) shard: ShardId,
    /// Its memory is pages of the stock.
    pub(crate) elastic: bool,
}

/// How growing a block ended.
enum Grown {
    Enough,
    NoMemory,
    /// Another thread took free memory that was counted on.
    Overtaken,
}

/// Whole pages of a range.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) address: u64,
    pub(crate) size: u64,
}

impl Growth {
    /// The range that an address is in.
    pub(crate) fn range_at(&self, address: u64) -> Range {
        let range = self.ranges.range(..=address).next_back();
        range.map(|(_, range)| *range).expect("blocks of ranges are in ranges that exist")
    }
}

impl DeviceAllocator {
    /// Memory for a request in an expandable segment, held; `None` when the driver has none.
    pub(crate) fn expand<D: Driver>(&self, driver: &D, growth: &mut Growth, plan: &Plan) -> Result<Option<Index>> {
        loop {
            let found = hold_room(&mut plan.shard.lock_flushed(), plan.class, plan.size);
            let mut block = match found {
                Some(block) => block,
                None => match self.new_range(driver, growth, plan)? {
                    Some(block) => block,
                    None => return Ok(None),
                },
            };
            let grown = self.grow_to_size(driver, growth, plan, &mut block);
            if let Ok(Grown::Enough) = grown {
                return Ok(Some(block));
            }
            // What was mapped stays, as a free block.
            let mut state = plan.shard.lock_flushed();
            if state.blocks.get(block).state == State::Held {
                state.join_neighbours(block, State::Free);
                state.put(block);
            }
            if let Grown::NoMemory = grown? {
                return Ok(None);
            }
        }
    }

    /// Maps what is missing after a held or unmapped block, which becomes, or is joined to, the held one returned.
    fn grow_to_size<D: Driver>(&self, driver: &D, growth: &Growth, plan: &Plan, block: &mut Index) -> Result<Grown> {
        loop {
            let (next, part) = {
                let state = plan.shard.lock_flushed();
                let here = state.blocks.get(*block);
                let (next, missing) = if here.state == State::Unmapped {
                    (*block, plan.size)
                } else if here.size >= plan.size {
                    return Ok(Grown::Enough);
                } else {
                    (here.next, plan.size - here.size)
                };
                match state.blocks.find(next).filter(|next| next.state == State::Unmapped) {
                    Some(found) => (next, found.size.min(missing)),
                    None => return Ok(Grown::Overtaken),
                }
            };
            if !self.map(driver, growth, &plan.shard, next, part)? {
                return Ok(Grown::NoMemory);
            }
            *block = next;
        }
    }

    /// A range of an eighth more addresses than the device has memory, as one unmapped block; `None` when that is not
    /// enough for the request or the driver has no such range.
    pub(crate) fn new_range<D: Driver>(&self, driver: &D, growth: &mut Growth, plan: &Plan) -> Result<Option<Index>> {
        let page = page_size(&growth.config, plan.elastic, plan.class);
        let total = driver.total_memory(self.cache.index)?;
        let size = (total + total / 8).next_multiple_of(page);
        if size < plan.size {
            return Ok(None);
        }
        let address = match driver.reserve_range(self.cache.index, size) {
            Ok(address) => address,
            Err(error) if error.driver_is_out_of_memory() => return Ok(None),
            Err(error) => return Err(error),
        };
        let Plan { stream, class, elastic, .. } = *plan;
        let range = Range { address, size, page, stream, class, shard: plan.shard.id, elastic };
        growth.ranges.insert(address, range);
        let owner = growth.pools.get(plan.pool).owner;
        growth.count_segments(owner, 1);
        let mut state = plan.shard.lock_flushed();
        let index = state.blocks.insert(Block::segment(address, size, plan.class, true));
        state.put_unmapped(index);
        Ok(Some(index))
    }

    /// Puts memory behind at least the first `size` bytes of an unmapped block, which becomes a held one with its held
    /// neighbour before it and the free one after it; whether the driver had it.
    fn map<D: Driver>(&self, driver: &D, growth: &Growth, shard: &Shard, index: Index, size: u64) -> Result<bool> {
        let (address, whole, class) = {
            let mut state = shard.lock_flushed();
            state.take_unmapped(index);
            let block = state.blocks.get(index);
            (block.address, block.size, block.class)
        };
        let range = growth.range_at(address);
        let size = size.next_multiple_of(range.page);
        if let Err(error) = driver.map_pages(self.cache.index, address, size, range.page) {
            let mut state = shard.lock_flushed();
            state.put_unmapped(index);
            return if error.driver_is_out_of_memory() { Ok(false) } else { Err(error) };
        }
        self.cache.shared.pages.register(address, size, shard.id, class);
        let mut figures = lock(&self.cache.figures);
        figures.stats_mut().reserved_bytes.change(class, signed(size));
        figures.stats_mut().num_device_alloc += 1;
        let mut state = shard.lock_flushed();
        let place = (address, size, state.key.stream, state.key.owner);
        if size < whole {
            let rest = state.blocks.split_back(index, size);
            state.put_unmapped(rest);
        }
        let before = state.blocks.get(index).prev;
        if state.blocks.find(before).is_some_and(|before| before.state == State::Held) {
            state.blocks.merge(index, before);
        }
        state.join_neighbours(index, State::Free);
        drop((state, figures));
        self.report_segment(TraceEvent::SegmentMapped, place);
        Ok(true)
    }

    /// Gives the whole pages of a free block back to the driver; what is left at both ends stays free. A range of
    /// which nothing is left goes too. Does nothing if the block is free no more.
    pub(crate) fn shrink<D: Driver>(&self, driver: &D, growth: &mut Growth, shard: &Shard, id: BlockId) -> Result<()> {
        // A page is the driver's again only when none of its old mappings is left.
        self.drop_left(driver, growth)?;
        let (range, pages, users) = {
            let mut state = shard.lock_flushed();
            if !state.is_free(id) {
                return Ok(());
            }
            let block = state.blocks.get(id.index);
            let range = growth.range_at(block.address);
            let Some(pages) = whole_pages(block, &range) else { return Ok(()) };
            state.hold(id.index);
            (range, pages, growth.users_of(state.key.owner, range.stream))
        };
        if let Err(error) = users.into_iter().try_for_each(|stream| driver.stream_synchronize(stream)) {
            shard.lock_flushed().put_back(id.index);
            // Whoever lent the stream has destroyed it: the memory stays, since nobody can tell when it is used no more.
            return if error.is_invalid_handle() { Ok(()) } else { Err(error) };
        }
        let (done, result, kept) = if range.elastic {
            self.unmap_elastic(driver, growth, pages)
        } else {
            let (done, result) = driver.unmap_pages(self.cache.index, pages.address, pages.size, range.page);
            (done, result, Vec::new())
        };
        if done > 0 {
            self.note_unmapped(shard, id.index, Stretch { size: done, ..pages });
        } else {
            shard.lock_flushed().put_back(id.index);
        }
        self.keep_as_idle(growth, kept);
        result?;
        self.release_range_if_bare(driver, growth, shard, range)
    }

    /// Turns a part of a held block into an unmapped one.
    fn note_unmapped(&self, shard: &Shard, index: Index, pages: Stretch) {
        self.cache.shared.pages.unregister(pages.address, pages.size);
        let mut figures = lock(&self.cache.figures);
        let mut state = shard.lock_flushed();
        let place = (pages.address, pages.size, state.key.stream, state.key.owner);
        let class = state.blocks.get(index).class;
        figures.stats_mut().reserved_bytes.change(class, -signed(pages.size));
        figures.stats_mut().num_device_free += 1;
        let address = state.blocks.get(index).address;
        if pages.address > address {
            let before = state.blocks.split_front(index, pages.address - address);
            state.join_neighbours(before, State::Free);
            state.put(before);
        }
        if state.blocks.get(index).size > pages.size {
            let after = state.blocks.split_back(index, pages.size);
            state.join_neighbours(after, State::Free);
            state.put(after);
        }
        state.join_neighbours(index, State::Unmapped);
        state.put_unmapped(index);
        drop((state, figures));
        self.report_segment(TraceEvent::SegmentUnmapped, place);
    }

    fn release_range_if_bare<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        shard: &Shard,
        range: Range,
    ) -> Result<()> {
        let bare = |state: &Books| {
            let first = state.unmapped(range.class).range((range.address, 0)..).next().copied();
            let first = first.filter(|(address, _)| *address == range.address).map(|(_, index)| index);
            first.filter(|index| state.blocks.get(*index).size == range.size)
        };
        let Some(index) = bare(&shard.lock_flushed()) else { return Ok(()) };
        driver.release_range(self.cache.index, range.address, range.size)?;
        let owner = {
            let mut state = shard.lock_flushed();
            state.take_unmapped(index);
            state.blocks.remove(index);
            state.key.owner
        };
        growth.ranges.remove(&range.address);
        growth.count_segments(owner, -1);
        Ok(())
    }

    /// Gives back the ranges of a pool that no memory is left in.
    pub(crate) fn release_bare_ranges<D: Driver>(
        &self,
        driver: &D,
        growth: &mut Growth,
        pool: PoolIndex,
        class: SizeClass,
    ) -> Result<()> {
        let shards: Vec<Arc<Shard>> = growth.pools.get(pool).shards.values().map(Arc::clone).collect();
        for shard in shards {
            let ranges: Vec<Range> = growth
                .ranges
                .values()
                .filter(|range| range.shard == shard.id && range.class == class)
                .copied()
                .collect();
            for range in ranges {
                self.release_range_if_bare(driver, growth, &shard, range)?;
            }
        }
        Ok(())
    }

    /// Gives every range back with what is mapped of it. Errors are passed over.
    pub(crate) fn dismantle_ranges<D: Driver>(&self, driver: &D, growth: &mut Growth) {
        self.dismantle_stock(driver, growth);
        self.unmap_all(driver, growth);
        for range in growth.ranges.values() {
            twice(|| driver.release_range(self.cache.index, range.address, range.size));
        }
    }

    fn unmap_all<D: Driver>(&self, driver: &D, growth: &Growth) {
        let mapped = self.cache.all_shards(|all| {
            let blocks = all.states.iter().flat_map(|state| state.blocks.iter()).map(|(_, block)| block);
            let of_the_stock = |block: &&Block| growth.range_at(block.address).elastic;
            let mapped = blocks.filter(|block| block.in_range && block.is_mapped() && !of_the_stock(block));
            mapped.map(|block| (block.address, block.size)).collect()
        });
        for (address, size) in joined(growth, mapped) {
            let _ = driver.unmap_pages(self.cache.index, address, size, growth.range_at(address).page);
        }
    }
}

/// The first place, by address, where unused neighbours add up to the size: its first block, held if it is a free one.
fn hold_room(state: &mut Flushed<'_>, class: SizeClass, size: u64) -> Option<Index> {
    let starts = state.unmapped(class).iter().map(|(_, index)| {
        let before = state.blocks.get(*index).prev;
        let is_free = state.blocks.find(before).is_some_and(|before| before.state == State::Free);
        if is_free { before } else { *index }
    });
    let start = starts.into_iter().find(|start| has_room(state, *start, size))?;
    if state.blocks.get(start).state == State::Free {
        state.hold(start);
    }
    Some(start)
}

fn has_room(state: &Books, start: Index, size: u64) -> bool {
    let (mut found, mut next) = (0, start);
    while let Some(block) = state.blocks.find(next).filter(|block| block.is_unused()) {
        found += block.size;
        if found >= size {
            return true;
        }
        next = block.next;
    }
    false
}

/// The pages that lie in a block.
pub(crate) fn whole_pages(block: &Block, range: &Range) -> Option<Stretch> {
    let begin = (block.address - range.address).next_multiple_of(range.page);
    let end = (block.address + block.size - range.address) / range.page * range.page;
    (begin < end).then(|| Stretch { address: range.address + begin, size: end - begin })
}

/// Neighbouring pieces of a range as one: only together are they whole pages.
fn joined(growth: &Growth, pieces: BTreeMap<u64, u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (address, size) in pieces {
        match runs.last_mut() {
            Some(last)
                if last.0 + last.1 == address
                    && growth.range_at(last.0).address == growth.range_at(address).address =>
            {
                last.1 += size;
            }
            _ => runs.push((address, size)),
        }
    }
    runs
}
