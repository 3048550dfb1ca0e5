//! Pools: sets of free blocks, ordered so that the best fit is the first that is large enough.
//!
//! **Invariants:** a pool's free set holds exactly the free blocks whose `pool` it is, under their present stream,
//! size and address. The two default pools always exist. Streams never share free blocks.

use std::collections::BTreeSet;

use crate::caching::block::{BlockId, Blocks, PoolIndex};
use crate::caching::private_pool::PoolId;
use crate::caching::size_class::{SizeClass, may_use};
use crate::driver::StreamHandle;

/// Place of a free block in its pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FreeKey {
    stream: StreamHandle,
    size: u64,
    address: u64,
    block: Option<BlockId>,
}

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) class: SizeClass,
    /// The private pool this belongs to, if any.
    pub(crate) owner: Option<PoolId>,
    free: BTreeSet<FreeKey>,
}

impl Pool {
    fn new(class: SizeClass, owner: Option<PoolId>) -> Self {
        Self { class, owner, free: BTreeSet::new() }
    }

    /// Puts a free block in.
    pub(crate) fn insert(&mut self, blocks: &Blocks, id: BlockId) {
        let inserted = self.free.insert(key(blocks, id));
        debug_assert!(inserted, "a free block was put in twice");
    }

    /// Takes a free block out; before its size or address changes.
    pub(crate) fn remove(&mut self, blocks: &Blocks, id: BlockId) {
        let removed = self.free.remove(&key(blocks, id));
        debug_assert!(removed, "a free block was not in its pool");
    }

    /// The smallest free block of the stream that is at least `size`, lowest address first, if it may be used.
    pub(crate) fn best_fit(&self, stream: StreamHandle, size: u64) -> Option<BlockId> {
        let least = FreeKey { stream, size, address: 0, block: None };
        let found = self.free.range(least..).next()?;
        if found.stream != stream || !may_use(size, found.size) {
            return None;
        }
        found.block
    }

    /// Free blocks in order.
    pub(crate) fn free_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.free.iter().filter_map(|key| key.block)
    }

    /// Number of free blocks.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Whether the block is in, under its present key.
    pub(crate) fn contains(&self, blocks: &Blocks, id: BlockId) -> bool {
        self.free.contains(&key(blocks, id))
    }
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
        debug_assert!(pool.is_some_and(|pool| pool.free.is_empty()), "a pool with blocks was removed");
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

    #[test]
    fn best_fit_is_smallest_then_lowest_and_stays_on_its_stream() {
        let mut blocks = Blocks::default();
        let mut pool = Pool::new(SizeClass::Large, None);
        let mut put = |address, size, stream| {
            let block = Block::segment(address, size, StreamHandle(stream), Pools::DEFAULT_LARGE);
            let id = blocks.insert(block);
            pool.insert(&blocks, id);
            id
        };
        let high = put(0x9000, 1024, 0);
        let low = put(0x5000, 1024, 0);
        let large = put(0x1000, 4096, 0);
        let other = put(0x2000, 512, 16);
        assert_eq!(pool.best_fit(StreamHandle(0), 512), Some(low));
        assert_eq!(pool.best_fit(StreamHandle(0), 1025), Some(large));
        assert_eq!(pool.best_fit(StreamHandle(0), 8192), None);
        assert_eq!(pool.best_fit(StreamHandle(16), 512), Some(other));
        assert_eq!(pool.best_fit(StreamHandle(8), 512), None);
        pool.remove(&blocks, low);
        assert_eq!(pool.best_fit(StreamHandle(0), 512), Some(high));
    }
}
