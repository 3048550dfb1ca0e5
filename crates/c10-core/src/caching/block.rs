//! Blocks and the slab they live in.
//!
//! A segment is a chain of blocks, linked by address, that together cover it; of an expandable segment some blocks have
//! no memory behind their addresses (`mapped` is false). **Invariants:** a block's neighbours link back to it and touch
//! it; sizes are multiples of 512; `id` values of removed blocks are never mistaken for those that took their place
//! (generations).

use crate::driver::{StreamHandle, StreamRef};

/// Names a block; goes stale when the block is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BlockId {
    index: u32,
    generation: u32,
}

/// Position of a pool in [`super::pool::Pools`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PoolIndex(pub(super) usize);

/// Names an expandable segment of the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RangeId(pub(super) u64);

/// Another stream that a block was used on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamUse {
    pub(crate) stream: StreamRef,
    /// Recorded while allocations were routed to a private pool: the end of the capture orders that use, and no event
    /// is needed.
    pub(crate) in_scope: bool,
}

/// A piece of a segment.
///
/// In exactly one of four states: *allocated*; *pending* (given back, with `events` outstanding or `uses` that have
/// no event yet); *free* (neither, and in its pool's free set); *unmapped* (addresses only, in its pool's unmapped set).
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Unrounded size of the last request this block served.
    pub(crate) requested: u64,
    pub(crate) stream: StreamHandle,
    pub(crate) pool: PoolIndex,
    pub(crate) allocated: bool,
    pub(crate) prev: Option<BlockId>,
    pub(crate) next: Option<BlockId>,
    pub(crate) uses: Vec<StreamUse>,
    pub(crate) events: u32,
    /// Lookups its pool had seen when the block was last put into the free set.
    pub(crate) born: u64,
    /// The expandable segment it is a part of.
    pub(crate) range: Option<RangeId>,
    /// Whether there is memory behind the addresses.
    pub(crate) mapped: bool,
}

impl Block {
    /// A segment as one free block.
    pub(crate) fn segment(address: u64, size: u64, stream: StreamHandle, pool: PoolIndex) -> Self {
        Self {
            address,
            size,
            requested: 0,
            stream,
            pool,
            allocated: false,
            prev: None,
            next: None,
            uses: Vec::new(),
            events: 0,
            born: 0,
            range: None,
            mapped: true,
        }
    }

    /// A part of the expandable segment that `self` is a part of, free or unmapped as `mapped` says.
    pub(crate) fn piece(&self, address: u64, size: u64, mapped: bool) -> Self {
        Self { range: self.range, mapped, ..Self::segment(address, size, self.stream, self.pool) }
    }

    /// Whether the block is only a part of its segment.
    pub(crate) fn is_split(&self) -> bool {
        self.prev.is_some() || self.next.is_some()
    }

    /// Given back, but not yet free of other streams.
    pub(crate) fn is_pending(&self) -> bool {
        !self.allocated && (self.events > 0 || !self.uses.is_empty())
    }

    /// Can be merged, split and handed out.
    pub(crate) fn is_free(&self) -> bool {
        self.is_unused() && self.mapped
    }

    /// Neither allocated nor pending: free, or addresses without memory.
    pub(crate) fn is_unused(&self) -> bool {
        !self.allocated && !self.is_pending()
    }

    /// Free and the whole of a segment that can be given back by itself.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_split() && self.range.is_none()
    }
}

/// All blocks of a device.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    block: Option<Block>,
}

impl Blocks {
    pub(crate) fn insert(&mut self, block: Block) -> BlockId {
        if let Some(index) = self.vacant.pop() {
            let slot = &mut self.slots[index as usize];
            slot.block = Some(block);
            return BlockId { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 blocks of at least 512 bytes");
        self.slots.push(Slot { generation: 0, block: Some(block) });
        BlockId { index, generation: 0 }
    }

    pub(crate) fn remove(&mut self, id: BlockId) -> Block {
        let slot = &mut self.slots[id.index as usize];
        assert_eq!(slot.generation, id.generation, "a removed block was removed again");
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(id.index);
        slot.block.take().expect("a slot of this generation holds its block")
    }

    pub(crate) fn get(&self, id: BlockId) -> &Block {
        let slot = &self.slots[id.index as usize];
        assert_eq!(slot.generation, id.generation, "a removed block was used");
        slot.block.as_ref().expect("a slot of this generation holds its block")
    }

    pub(crate) fn get_mut(&mut self, id: BlockId) -> &mut Block {
        let slot = &mut self.slots[id.index as usize];
        assert_eq!(slot.generation, id.generation, "a removed block was used");
        slot.block.as_mut().expect("a slot of this generation holds its block")
    }

    /// Whether the block still exists.
    pub(crate) fn contains(&self, id: BlockId) -> bool {
        self.slots.get(id.index as usize).is_some_and(|slot| slot.generation == id.generation && slot.block.is_some())
    }

    /// Cuts `size` bytes from the front of `rest` into a block of their own, which is returned.
    pub(crate) fn split_front(&mut self, rest: BlockId, size: u64) -> BlockId {
        let old = self.get(rest);
        let mut front = old.piece(old.address, size, old.mapped);
        front.prev = old.prev;
        front.next = Some(rest);
        let before = old.prev;
        let front = self.insert(front);
        let old = self.get_mut(rest);
        old.address += size;
        old.size -= size;
        old.prev = Some(front);
        if let Some(before) = before {
            self.get_mut(before).next = Some(front);
        }
        front
    }

    /// Cuts what is beyond `size` bytes off the end of `front` into a block of their own, which is returned.
    pub(crate) fn split_back(&mut self, front: BlockId, size: u64) -> BlockId {
        let old = self.get(front);
        let mut back = old.piece(old.address + size, old.size - size, old.mapped);
        back.prev = Some(front);
        back.next = old.next;
        let after = old.next;
        let back = self.insert(back);
        let old = self.get_mut(front);
        old.size = size;
        old.next = Some(back);
        if let Some(after) = after {
            self.get_mut(after).prev = Some(back);
        }
        back
    }

    /// Joins `gone`, a neighbour, to `block` and returns the size it had.
    pub(crate) fn merge(&mut self, block: BlockId, gone: BlockId) -> u64 {
        let gone_block = self.remove(gone);
        let kept = self.get_mut(block);
        kept.size += gone_block.size;
        if kept.prev == Some(gone) {
            kept.address = gone_block.address;
            kept.prev = gone_block.prev;
            if let Some(before) = gone_block.prev {
                self.get_mut(before).next = Some(block);
            }
        } else {
            kept.next = gone_block.next;
            if let Some(after) = gone_block.next {
                self.get_mut(after).prev = Some(block);
            }
        }
        gone_block.size
    }

    /// Every block with its name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            let id = BlockId { index, generation: slot.generation };
            slot.block.as_ref().map(|block| (id, block))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(size: u64) -> Block {
        Block::segment(0x1000, size, StreamHandle(0), PoolIndex(0))
    }

    #[test]
    fn split_and_merge_undo_each_other() {
        let mut blocks = Blocks::default();
        let rest = blocks.insert(segment(4096));
        let first = blocks.split_front(rest, 512);
        let second = blocks.split_front(rest, 1024);
        assert_eq!((blocks.get(first).address, blocks.get(first).size), (0x1000, 512));
        assert_eq!((blocks.get(second).address, blocks.get(second).size), (0x1200, 1024));
        assert_eq!((blocks.get(rest).address, blocks.get(rest).size), (0x1600, 2560));
        assert_eq!(blocks.get(first).next, Some(second));
        assert_eq!(blocks.merge(second, first), 512);
        assert_eq!(blocks.merge(second, rest), 2560);
        let whole = blocks.get(second);
        assert_eq!((whole.address, whole.size, whole.is_split()), (0x1000, 4096, false));
    }

    #[test]
    fn names_of_removed_blocks_are_stale() {
        let mut blocks = Blocks::default();
        let first = blocks.insert(segment(512));
        blocks.remove(first);
        let second = blocks.insert(segment(512));
        assert_ne!(first, second);
        assert!(!blocks.contains(first) && blocks.contains(second));
    }
}
