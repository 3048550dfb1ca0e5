//! Blocks and the slab they live in.
//!
//! A segment is a chain of blocks, linked by address, that together cover it; of an expandable segment some blocks have
//! no memory behind their addresses. A slab belongs to one shard and names its blocks by position.
//!
//! **Invariants:** a block's neighbours link back to it and touch it; sizes are multiples of 512; a [`BlockId`] of a
//! removed block is never mistaken for the one that took its place (generations). A descriptor takes 64 bytes, so that
//! it and its links are one cache line.

use crate::caching::block::size_class::SizeClass;

/// Position of a block in its slab.
pub(crate) type Index = u32;

/// No block.
pub(crate) const NONE: Index = Index::MAX;

/// What `born` is of a block in use that was marked, until it is put into the free set.
const MARKED: u64 = u64::MAX;

/// Names a block of a shard; goes stale when the block is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BlockId {
    pub(crate) index: Index,
    generation: u32,
}

/// What a block is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Handed out.
    Allocated,
    /// Given back, with events outstanding or uses that have no event yet.
    Pending,
    /// In the free set of its shard.
    Free,
    /// Addresses only, in the unmapped set of its shard.
    Unmapped,
    /// Addresses that pages have moved away from; the old mapping is still there.
    Left,
    /// In no set: the driver is being asked about it, or its figures are not counted yet.
    Held,
    /// In no set: it stands for the arena of a plan.
    Arena,
    /// In no set: it stands for a place of a plan that nothing is handed out at.
    Planned,
    /// Not a block: a place for one.
    Vacant,
}

/// A piece of a segment.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Unrounded size of the last request this block served.
    pub(crate) requested: u64,
    /// Lookups its pool had seen when the block was last put into the free set, or [`MARKED`].
    pub(crate) born: u64,
    pub(crate) prev: Index,
    /// The neighbour after it; of a vacant place the next vacant one.
    pub(crate) next: Index,
    /// Where in the tree of its bin it is; [`NONE`] if it is the only block there. Of a planned block the number of its place.
    pub(crate) seat: u32,
    generation: u32,
    /// The list of other streams it was used on, or [`NONE`].
    pub(crate) uses: u32,
    pub(crate) state: State,
    /// Which pool its segment is of.
    pub(crate) class: SizeClass,
    /// Whether it is a part of an expandable segment.
    pub(crate) in_range: bool,
    /// Whether it stands for a place of a plan, in no chain: such blocks overlap, and the arena's block has the memory.
    pub(crate) is_planned: bool,
}

impl Block {
    /// A whole segment, or an address range, in no set.
    pub(crate) fn segment(address: u64, size: u64, class: SizeClass, in_range: bool) -> Self {
        Self {
            address,
            size,
            requested: 0,
            born: 0,
            prev: NONE,
            next: NONE,
            seat: NONE,
            generation: 0,
            uses: NONE,
            state: State::Held,
            class,
            in_range,
            is_planned: false,
        }
    }

    /// The arena of a plan.
    pub(crate) fn arena(address: u64, size: u64, class: SizeClass) -> Self {
        Self { state: State::Arena, ..Self::segment(address, size, class, false) }
    }

    /// A place of a plan that is not in use.
    pub(crate) fn planned(address: u64, size: u64, class: SizeClass, number: u32) -> Self {
        Self { state: State::Planned, seat: number, is_planned: true, ..Self::segment(address, size, class, false) }
    }

    /// Whether the block is only a part of its segment.
    #[inline]
    pub(crate) fn is_split(&self) -> bool {
        self.prev != NONE || self.next != NONE
    }

    /// Whether it has the memory behind its addresses.
    pub(crate) fn is_mapped(&self) -> bool {
        !matches!(self.state, State::Unmapped | State::Left)
    }

    /// Whether the memory behind its addresses counts as its own.
    pub(crate) fn has_memory(&self) -> bool {
        self.is_mapped() && !self.is_planned
    }

    /// Nobody uses it: free, or addresses without memory.
    pub(crate) fn is_unused(&self) -> bool {
        matches!(self.state, State::Free | State::Unmapped)
    }

    /// Handed out, or given back and still used.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, State::Allocated | State::Pending)
    }
}

/// All blocks of a shard.
#[derive(Debug)]
pub(crate) struct Blocks {
    places: Vec<Block>,
    /// The first vacant place; the others follow by `next`.
    vacant: Index,
}

impl Blocks {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), vacant: NONE }
    }

    pub(crate) fn insert(&mut self, block: Block) -> Index {
        let index = self.reserve();
        let place = self.get_mut(index);
        *place = Block { generation: place.generation, ..block };
        index
    }

    /// A place for a block, in whatever state it was left.
    #[inline]
    fn reserve(&mut self) -> Index {
        let index = self.vacant;
        match self.places.get(index as usize) {
            Some(place) => {
                self.vacant = place.next;
                index
            }
            None => self.grow(),
        }
    }

    #[cold]
    fn grow(&mut self) -> Index {
        let index = Index::try_from(self.places.len()).ok().filter(|index| *index < NONE >> 2);
        let index = index.expect("fewer than 2^30 blocks of at least 512 bytes");
        if self.places.len() == self.places.capacity() {
            // A quarter at a time: what is not used of it counts as memory too.
            self.places.reserve_exact((self.places.len() / 4).max(16));
        }
        self.places.push(Block { state: State::Vacant, ..Block::segment(0, 0, SizeClass::Small, false) });
        index
    }

    /// Removes a block that is in no set.
    #[inline]
    pub(crate) fn remove(&mut self, index: Index) {
        let vacant = self.vacant;
        let place = self.get_mut(index);
        debug_assert_ne!(place.state, State::Vacant, "a removed block was removed again");
        place.generation = place.generation.wrapping_add(1);
        place.state = State::Vacant;
        place.next = vacant;
        self.vacant = index;
    }

    #[inline]
    pub(crate) fn get(&self, index: Index) -> &Block {
        &self.places[index as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: Index) -> &mut Block {
        &mut self.places[index as usize]
    }

    /// The block at a position that may be [`NONE`].
    #[inline]
    pub(crate) fn find(&self, index: Index) -> Option<&Block> {
        self.places.get(index as usize)
    }

    /// The lasting name of a block.
    pub(crate) fn id(&self, index: Index) -> BlockId {
        BlockId { index, generation: self.get(index).generation }
    }

    /// Marks a block in use. The mark costs other calls nothing: being free takes it away, and so does being removed.
    pub(crate) fn mark(&mut self, index: Index) -> BlockId {
        self.get_mut(index).born = MARKED;
        self.id(index)
    }

    /// The block, if it has been in use since it was marked.
    pub(crate) fn marked(&self, id: BlockId) -> Option<&Block> {
        self.find(id.index).filter(|block| self.contains(id) && block.is_active() && block.born == MARKED)
    }

    /// Whether the block still exists.
    pub(crate) fn contains(&self, id: BlockId) -> bool {
        self.find(id.index).is_some_and(|block| block.generation == id.generation && block.state != State::Vacant)
    }

    /// Cuts `size` bytes from the front of `rest`, which is in no set, into a block of their own.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a part of the hot paths")]
    pub(crate) fn split_front(&mut self, rest: Index, size: u64) -> Index {
        let old = self.get(rest);
        let (before, address, class, in_range) = (old.prev, old.address, old.class, old.in_range);
        let front = self.reserve();
        // Field by field: a whole descriptor would be made on the stack and copied.
        let new = self.get_mut(front);
        (new.address, new.size, new.requested, new.prev, new.next) = (address, size, 0, before, rest);
        (new.uses, new.state, new.class, new.in_range) = (NONE, State::Held, class, in_range);
        let old = self.get_mut(rest);
        old.address += size;
        old.size -= size;
        old.prev = front;
        if let Some(before) = self.places.get_mut(before as usize) {
            before.next = front;
        }
        front
    }

    /// Cuts what is beyond `size` bytes off the end of `front`, which is in no set, into a block of their own.
    pub(crate) fn split_back(&mut self, front: Index, size: u64) -> Index {
        let old = self.get(front);
        let Block { next: after, address, size: whole, class, in_range, .. } = *old;
        let back = Block { prev: front, next: after, ..Block::segment(address + size, whole - size, class, in_range) };
        let back = self.insert(back);
        let old = self.get_mut(front);
        old.size = size;
        old.next = back;
        if let Some(after) = self.places.get_mut(after as usize) {
            after.prev = back;
        }
        back
    }

    /// Joins `gone`, a neighbour in no set, to `kept`.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a part of the hot paths")]
    pub(crate) fn merge(&mut self, kept: Index, gone: Index) {
        let (address, size, prev, next) = {
            let gone = self.get(gone);
            (gone.address, gone.size, gone.prev, gone.next)
        };
        self.remove(gone);
        let block = self.get_mut(kept);
        block.size += size;
        if block.prev == gone {
            block.address = address;
            block.prev = prev;
            if let Some(before) = self.places.get_mut(prev as usize) {
                before.next = kept;
            }
        } else {
            block.next = next;
            if let Some(after) = self.places.get_mut(next as usize) {
                after.prev = kept;
            }
        }
    }

    /// Every block with its position.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Index, &Block)> {
        (0..).zip(&self.places).filter(|(_, block)| block.state != State::Vacant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(size: u64) -> Block {
        Block::segment(0x1000, size, SizeClass::Small, false)
    }

    #[test]
    fn a_descriptor_is_one_cache_line() {
        assert_eq!(size_of::<Block>(), 64);
    }

    #[test]
    fn split_and_merge_undo_each_other() {
        let mut blocks = Blocks::new();
        let rest = blocks.insert(segment(4096));
        let first = blocks.split_front(rest, 512);
        let second = blocks.split_front(rest, 1024);
        let last = blocks.split_back(rest, 2048);
        let place = |blocks: &Blocks, index| (blocks.get(index).address, blocks.get(index).size);
        assert_eq!(place(&blocks, first), (0x1000, 512));
        assert_eq!(place(&blocks, second), (0x1200, 1024));
        assert_eq!(place(&blocks, rest), (0x1600, 2048));
        assert_eq!(place(&blocks, last), (0x1e00, 512));
        assert_eq!((blocks.get(first).next, blocks.get(last).prev), (second, rest));
        blocks.merge(second, first);
        blocks.merge(second, rest);
        blocks.merge(second, last);
        assert_eq!(place(&blocks, second), (0x1000, 4096));
        assert!(!blocks.get(second).is_split());
        assert_eq!(blocks.iter().count(), 1);
    }

    #[test]
    fn names_of_removed_blocks_are_stale() {
        let mut blocks = Blocks::new();
        let first = blocks.insert(segment(512));
        let name = blocks.id(first);
        blocks.remove(first);
        assert!(!blocks.contains(name));
        let second = blocks.insert(segment(512));
        assert_eq!(first, second);
        assert!(!blocks.contains(name) && blocks.contains(blocks.id(second)));
    }
}
