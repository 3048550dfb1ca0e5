//! Pools: sets of free blocks, ordered so that the best fit is the first that is large enough.
//!
//! **Invariants:** a pool's free set holds exactly the free blocks whose `pool` it is, under their present stream,
//! size and address; its unmapped set holds exactly its unmapped blocks by stream and address. The two default pools
//! always exist. Streams never share free blocks.

use std::collections::BTreeSet;

use crate::caching::block::{BlockId, Blocks, PoolIndex};
use crate::caching::private_pool::PoolId;
use crate::caching::size_class::{SizeClass, may_use};
use crate::config::AllocatorConfig;
use crate::driver::StreamHandle;

/// Place of a free block in its pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FreeKey {
    stream: StreamHandle,
    size: u64,
    address: u64,
    block: Option<BlockId>,
}

/// Place of an unmapped block in its pool.
type UnmappedKey = (StreamHandle, u64, Option<BlockId>);

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) class: SizeClass,
    /// The private pool this belongs to, if any.
    pub(crate) owner: Option<PoolId>,
    /// Blocks are handed out whole.
    pub(crate) no_split: bool,
    /// Times it was searched while garbage collection was on: the clock that blocks age by.
    pub(crate) lookups: u64,
    free: BTreeSet<FreeKey>,
    unmapped: BTreeSet<UnmappedKey>,
}

impl Pool {
    fn new(class: SizeClass, owner: Option<PoolId>) -> Self {
        Self { class, owner, no_split: false, lookups: 0, free: BTreeSet::new(), unmapped: BTreeSet::new() }
    }

    /// Puts a free block in.
    pub(crate) fn insert(&mut self, blocks: &mut Blocks, id: BlockId) {
        blocks.get_mut(id).born = self.lookups;
        let inserted = self.free.insert(key(blocks, id));
        debug_assert!(inserted, "a free block was put in twice");
    }

    /// Takes a free block out; before its size or address changes.
    pub(crate) fn remove(&mut self, blocks: &Blocks, id: BlockId) {
        let removed = self.free.remove(&key(blocks, id));
        debug_assert!(removed, "a free block was not in its pool");
    }

    /// The smallest free block of the stream that is at least `size`, lowest address first, if it may be used.
    ///
    /// With `expandable`, a block of an expandable segment counts as what it can grow to; without it such blocks are
    /// passed over.
    pub(crate) fn best_fit(
        &self,
        blocks: &Blocks,
        config: &AllocatorConfig,
        expandable: bool,
        stream: StreamHandle,
        size: u64,
    ) -> Option<BlockId> {
        let least = FreeKey { stream, size, address: 0, block: None };
        let mut fitting = self.free.range(least..).take_while(|key| key.stream == stream);
        let in_range = |key: &FreeKey| key.block.is_some_and(|block| blocks.get(block).range.is_some());
        let mut found = fitting.next()?;
        if in_range(found) {
            if expandable {
                for next in fitting {
                    if !in_range(found) || reach(blocks, next) >= reach(blocks, found) {
                        break;
                    }
                    found = next;
                }
            } else {
                found = fitting.find(|key| !in_range(key))?;
            }
        }
        if may_use(config, size, found.size) { found.block } else { None }
    }

    /// Free blocks of a stream from `size` on in order, and those before it from the largest down.
    pub(crate) fn around(
        &self,
        stream: StreamHandle,
        size: u64,
    ) -> (impl Iterator<Item = BlockId>, impl Iterator<Item = BlockId>) {
        let key = FreeKey { stream, size, address: 0, block: None };
        let of_stream = move |key: &&FreeKey| key.stream == stream;
        let above = self.free.range(key..).take_while(of_stream).filter_map(|key| key.block);
        let below = self.free.range(..key).rev().take_while(of_stream).filter_map(|key| key.block);
        (above, below)
    }

    /// Puts an unmapped block in.
    pub(crate) fn insert_unmapped(&mut self, blocks: &Blocks, id: BlockId) {
        let inserted = self.unmapped.insert(unmapped_key(blocks, id));
        debug_assert!(inserted, "an unmapped block was put in twice");
    }

    /// Takes an unmapped block out; before its address changes.
    pub(crate) fn remove_unmapped(&mut self, blocks: &Blocks, id: BlockId) {
        let removed = self.unmapped.remove(&unmapped_key(blocks, id));
        debug_assert!(removed, "an unmapped block was not in its pool");
    }

    /// Takes an unused block out of the set it is in.
    pub(crate) fn take_out(&mut self, blocks: &Blocks, id: BlockId) {
        if blocks.get(id).mapped { self.remove(blocks, id) } else { self.remove_unmapped(blocks, id) }
    }

    /// Unmapped blocks of a stream by address.
    pub(crate) fn unmapped_of(&self, stream: StreamHandle) -> impl Iterator<Item = BlockId> {
        let from = self.unmapped.range((stream, 0, None)..);
        from.take_while(move |(of, ..)| *of == stream).filter_map(|(.., block)| *block)
    }

    /// All unmapped blocks.
    pub(crate) fn unmapped_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.unmapped.iter().filter_map(|(.., block)| *block)
    }

    /// Number of unmapped blocks.
    pub(crate) fn unmapped_count(&self) -> usize {
        self.unmapped.len()
    }

    /// Free blocks in order.
    pub(crate) fn free_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.free.iter().filter_map(|key| key.block)
    }

    /// Number of free blocks.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Whether the block is in the free set, under its present key.
    pub(crate) fn contains(&self, blocks: &Blocks, id: BlockId) -> bool {
        self.free.contains(&key(blocks, id))
    }

    /// Whether the block is in the unmapped set, under its present key.
    pub(crate) fn contains_unmapped(&self, blocks: &Blocks, id: BlockId) -> bool {
        self.unmapped.contains(&unmapped_key(blocks, id))
    }
}

/// What a free block can grow to without another one being touched.
fn reach(blocks: &Blocks, key: &FreeKey) -> u64 {
    let next = key.block.and_then(|block| blocks.get(block).next).map(|next| blocks.get(next));
    key.size + next.filter(|next| !next.mapped).map_or(0, |next| next.size)
}

fn unmapped_key(blocks: &Blocks, id: BlockId) -> UnmappedKey {
    let block = blocks.get(id);
    (block.stream, block.address, Some(id))
}

fn key(blocks: &Blocks, id: BlockId) -> FreeKey {
    let block = blocks.get(id);
    FreeKey { stream: block.stream, size: block.size, address: block.address, block: Some(id) }
}

/// All pools of a device.
#[derive(Debug)]
pub(crate) struct Pools {
    slots: Vec<Option<Pool>>,
}

impl Pools {
    /// The default pool for small blocks.
    pub(crate) const DEFAULT_SMALL: PoolIndex = PoolIndex(0);
    /// The default pool for large blocks.
    pub(crate) const DEFAULT_LARGE: PoolIndex = PoolIndex(1);

    pub(crate) fn new() -> Self {
        Self { slots: vec![Some(Pool::new(SizeClass::Small, None)), Some(Pool::new(SizeClass::Large, None))] }
    }

    /// Adds a pool of a private pool.
    pub(crate) fn add(&mut self, class: SizeClass, owner: PoolId) -> PoolIndex {
        let pool = Some(Pool::new(class, Some(owner)));
        if let Some(vacant) = self.slots.iter().position(Option::is_none) {
            self.slots[vacant] = pool;
            return PoolIndex(vacant);
        }
        self.slots.push(pool);
        PoolIndex(self.slots.len() - 1)
    }

    /// Removes an empty pool.
    pub(crate) fn remove(&mut self, index: PoolIndex) {
        let pool = self.slots[index.0].take();
        debug_assert!(
            pool.is_some_and(|pool| pool.free.is_empty() && pool.unmapped.is_empty()),
            "a pool with blocks was removed"
        );
    }

    pub(crate) fn get(&self, index: PoolIndex) -> &Pool {
        self.slots[index.0].as_ref().expect("blocks name only pools that exist")
    }

    pub(crate) fn get_mut(&mut self, index: PoolIndex) -> &mut Pool {
        self.slots[index.0].as_mut().expect("blocks name only pools that exist")
    }

    /// Every pool.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PoolIndex, &Pool)> {
        self.slots.iter().enumerate().filter_map(|(index, pool)| Some((PoolIndex(index), pool.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caching::block::Block;

    fn fit(pool: &Pool, blocks: &Blocks, stream: usize, size: u64) -> Option<BlockId> {
        pool.best_fit(blocks, &AllocatorConfig::default(), false, StreamHandle(stream), size)
    }

    #[test]
    fn best_fit_is_smallest_then_lowest_and_stays_on_its_stream() {
        let mut blocks = Blocks::default();
        let mut pool = Pool::new(SizeClass::Large, None);
        let mut put = |address, size, stream| {
            let block = Block::segment(address, size, StreamHandle(stream), Pools::DEFAULT_LARGE);
            let id = blocks.insert(block);
            pool.insert(&mut blocks, id);
            id
        };
        let high = put(0x9000, 1024, 0);
        let low = put(0x5000, 1024, 0);
        let large = put(0x1000, 4096, 0);
        let other = put(0x2000, 512, 16);
        assert_eq!(fit(&pool, &blocks, 0, 512), Some(low));
        assert_eq!(fit(&pool, &blocks, 0, 1025), Some(large));
        assert_eq!(fit(&pool, &blocks, 0, 8192), None);
        assert_eq!(fit(&pool, &blocks, 16, 512), Some(other));
        assert_eq!(fit(&pool, &blocks, 8, 512), None);
        pool.remove(&blocks, low);
        assert_eq!(fit(&pool, &blocks, 0, 512), Some(high));
    }
}
