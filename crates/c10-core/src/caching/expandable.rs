//! Expandable segments: address ranges larger than the device, of which only the used pages have memory.
//!
//! A range is a chain of blocks like any segment; those that are unmapped are addresses only. It grows and shrinks by
//! whole pages, whose size is fixed when it is made.
//!
//! **Invariants:** a range begins and ends at blocks without neighbours, and its blocks add up to its size; it is
//! removed when its memory has been given back and it is one unmapped block. Parts that were mapped before a later
//! mapping failed stay, as free blocks.

use std::collections::BTreeMap;

use crate::caching::block::{Block, BlockId, PoolIndex, RangeId};
use crate::caching::device::{DeviceAllocator, Plan, signed};
use crate::caching::size_class::page_size;
use crate::driver::{Driver, StreamRef};
use crate::error::Result;

/// An address range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) size: u64,
    /// Bytes it grows by.
    pub(super) page: u64,
    /// The stream it serves.
    pub(super) stream: StreamRef,
}

/// The address ranges of a device.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    held: BTreeMap<RangeId, Range>,
    next: u64,
}

impl Ranges {
    fn add(&mut self, range: Range) -> RangeId {
        let id = RangeId(self.next);
        self.next += 1;
        self.held.insert(id, range);
        id
    }

    pub(super) fn get(&self, id: RangeId) -> Range {
        self.held.get(&id).copied().expect("blocks name only ranges that exist")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RangeId, Range)> {
        self.held.iter().map(|(id, range)| (*id, *range))
    }
}

/// Whole pages of a range.
struct Pages {
    address: u64,
    size: u64,
}

impl DeviceAllocator {
    /// Memory for a request in an expandable segment, in no set; `None` when the driver has none.
    pub(super) fn expand<D: Driver>(&mut self, driver: &D, plan: &Plan) -> Result<Option<BlockId>> {
        let mut block = match self.find_room(plan) {
            Some(block) => block,
            None => match self.new_range(driver, plan)? {
                Some(block) => block,
                None => return Ok(None),
            },
        };
        if !self.blocks.get(block).mapped {
            let part = self.blocks.get(block).size.min(plan.size);
            if !self.map(driver, block, part)? {
                return Ok(None);
            }
        }
        while self.blocks.get(block).size < plan.size {
            let here = self.blocks.get(block);
            let missing = plan.size - here.size;
            let next = here.next.expect("room was found up to the size");
            let part = self.blocks.get(next).size.min(missing);
            if !self.map(driver, next, part)? {
                return Ok(None);
            }
            block = next;
        }
        self.pools.get_mut(plan.pool).remove(&self.blocks, block);
        Ok(Some(block))
    }

    /// The first place, by address, where unused neighbours add up to the size.
    fn find_room(&self, plan: &Plan) -> Option<BlockId> {
        let unmapped = self.pools.get(plan.pool).unmapped_of(plan.stream.handle);
        let starts = unmapped.map(|id| {
            let before = self.blocks.get(id).prev;
            before.filter(|before| self.blocks.get(*before).is_unused()).unwrap_or(id)
        });
        starts.into_iter().find(|start| self.has_room(*start, plan.size))
    }

    fn has_room(&self, start: BlockId, size: u64) -> bool {
        let (mut found, mut next) = (0, Some(start));
        while let Some(block) = next.map(|id| self.blocks.get(id)).filter(|block| block.is_unused()) {
            found += block.size;
            if found >= size {
                return true;
            }
            next = block.next;
        }
        false
    }

    /// A range of an eighth more addresses than the device has memory, as one unmapped block; `None` when that is not
    /// enough for the request or the driver has no such range.
    fn new_range<D: Driver>(&mut self, driver: &D, plan: &Plan) -> Result<Option<BlockId>> {
        let page = page_size(&self.config, self.describe(plan.pool).class);
        let total = driver.total_memory(self.device)?;
        let size = (total + total / 8).next_multiple_of(page);
        if size < plan.size {
            return Ok(None);
        }
        let address = match driver.reserve_range(self.device, size) {
            Ok(address) => address,
            Err(error) if error.driver_is_out_of_memory() => return Ok(None),
            Err(error) => return Err(error),
        };
        let range = self.ranges.add(Range { address, size, page, stream: plan.stream });
        let mut block = Block::segment(address, size, plan.stream.handle, plan.pool);
        (block.range, block.mapped) = (Some(range), false);
        let id = self.blocks.insert(block);
        self.pools.get_mut(plan.pool).insert_unmapped(&self.blocks, id);
        self.count_segments(plan.pool, 1);
        Ok(Some(id))
    }

    /// Puts memory behind at least the first `size` bytes of an unmapped block, which becomes a free one; whether the
    /// driver had it.
    fn map<D: Driver>(&mut self, driver: &D, id: BlockId, size: u64) -> Result<bool> {
        let block = self.blocks.get(id);
        let (address, whole, pool) = (block.address, block.size, block.pool);
        let range = self.range_of(id);
        let size = size.next_multiple_of(range.page);
        match driver.map_pages(self.device, address, size, range.page) {
            Ok(()) => {}
            Err(error) if error.driver_is_out_of_memory() => return Ok(false),
            Err(error) => return Err(error),
        }
        self.pools.get_mut(pool).remove_unmapped(&self.blocks, id);
        if size < whole {
            let rest = self.blocks.split_back(id, size);
            self.pools.get_mut(pool).insert_unmapped(&self.blocks, rest);
        }
        self.blocks.get_mut(id).mapped = true;
        self.merge_neighbours(id);
        self.pools.get_mut(pool).insert(&mut self.blocks, id);
        self.stats.reserved_bytes.change(self.describe(pool).class, signed(size));
        self.stats.num_device_alloc += 1;
        Ok(true)
    }

    fn range_of(&self, id: BlockId) -> Range {
        self.ranges.get(self.blocks.get(id).range.expect("only blocks of ranges are mapped and unmapped"))
    }

    /// Gives the whole pages of a free block back to the driver; what is left at both ends stays free. A range of
    /// which nothing is left goes too.
    pub(super) fn shrink<D: Driver>(&mut self, driver: &D, id: BlockId) -> Result<()> {
        let Some(pages) = self.whole_pages(id) else { return Ok(()) };
        let range = self.range_of(id);
        driver.stream_synchronize(range.stream)?;
        let (done, result) = driver.unmap_pages(self.device, pages.address, pages.size, range.page);
        if done > 0 {
            self.note_unmapped(id, &Pages { size: done, ..pages });
        }
        result?;
        self.release_range_if_bare(driver, id)
    }

    fn whole_pages(&self, id: BlockId) -> Option<Pages> {
        let (block, range) = (self.blocks.get(id), self.range_of(id));
        let begin = (block.address - range.address).next_multiple_of(range.page);
        let end = (block.address + block.size - range.address) / range.page * range.page;
        (begin < end).then(|| Pages { address: range.address + begin, size: end - begin })
    }

    /// Turns a part of a free block into an unmapped one.
    fn note_unmapped(&mut self, id: BlockId, pages: &Pages) {
        let block = self.blocks.get(id);
        let (address, pool) = (block.address, block.pool);
        self.pools.get_mut(pool).remove(&self.blocks, id);
        if pages.address > address {
            let before = self.blocks.split_front(id, pages.address - address);
            self.pools.get_mut(pool).insert(&mut self.blocks, before);
        }
        if self.blocks.get(id).size > pages.size {
            let after = self.blocks.split_back(id, pages.size);
            self.pools.get_mut(pool).insert(&mut self.blocks, after);
        }
        self.blocks.get_mut(id).mapped = false;
        self.merge_neighbours(id);
        self.pools.get_mut(pool).insert_unmapped(&self.blocks, id);
        self.stats.reserved_bytes.change(self.describe(pool).class, -signed(pages.size));
        self.stats.num_device_free += 1;
    }

    fn release_range_if_bare<D: Driver>(&mut self, driver: &D, id: BlockId) -> Result<()> {
        let block = self.blocks.get(id);
        if block.mapped || block.is_split() {
            return Ok(());
        }
        let range = self.range_of(id);
        driver.release_range(self.device, range.address, range.size)?;
        let pool = self.blocks.get(id).pool;
        self.pools.get_mut(pool).remove_unmapped(&self.blocks, id);
        let gone = self.blocks.remove(id).range;
        self.ranges.held.retain(|range, _| Some(*range) != gone);
        self.count_segments(pool, -1);
        Ok(())
    }

    /// Gives back the ranges of a pool that no memory is left in.
    pub(super) fn release_bare_ranges<D: Driver>(&mut self, driver: &D, pool: PoolIndex) -> Result<()> {
        let unmapped: Vec<BlockId> = self.pools.get(pool).unmapped_blocks().collect();
        unmapped.into_iter().try_for_each(|id| self.release_range_if_bare(driver, id))
    }

    /// Gives every range back with what is mapped of it. Errors are passed over.
    pub(super) fn dismantle_ranges<D: Driver>(&mut self, driver: &D) {
        let mapped = self.blocks.iter().map(|(_, block)| block).filter(|block| block.mapped);
        let pieces = mapped.filter_map(|block| Some(((block.range?, block.address), block.size))).collect();
        for (id, address, size) in joined(pieces) {
            let _ = driver.unmap_pages(self.device, address, size, self.ranges.get(id).page);
        }
        for (_, range) in self.ranges.iter() {
            let _ = driver.release_range(self.device, range.address, range.size);
        }
    }
}

/// Neighbouring pieces of a range as one: only together are they whole pages.
fn joined(pieces: BTreeMap<(RangeId, u64), u64>) -> Vec<(RangeId, u64, u64)> {
    let mut runs: Vec<(RangeId, u64, u64)> = Vec::new();
    for ((range, address), size) in pieces {
        match runs.last_mut() {
            Some(last) if last.0 == range && last.1 + last.2 == address => last.2 += size,
            _ => runs.push((range, address, size)),
        }
    }
    runs
}
