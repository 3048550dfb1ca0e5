//! The blocks that were in use when the history of memory ended.
//!
//! They keep the stacks that were recorded as long as they are in use. Nobody reports any more when they are given back, so
//! they are marked, and who wants to know looks for the marks.
//!
//! **Invariant:** a block that has its mark has been in use since the history ended.

use std::collections::BTreeSet;

use crate::caching::block::{BlockId, Index};
use crate::caching::slow::DeviceAllocator;

/// Marked blocks of a device: the positions of their shards, and their names there.
pub(crate) type Marked = Vec<(usize, BlockId)>;

impl DeviceAllocator {
    /// Marks what is in use; the addresses.
    pub(crate) fn mark_live(&self, marked: &mut Marked) -> BTreeSet<u64> {
        marked.clear();
        let mut addresses = BTreeSet::new();
        // The notes about last allocations are flushed here, so that no marked block can be given back and handed out again
        // by a note alone.
        self.cache.all_shards(|all| {
            for (position, state) in all.states.iter_mut().enumerate() {
                let active = state.blocks.iter().filter(|(_, block)| block.is_active());
                let active: Vec<(Index, u64)> = active.map(|(index, block)| (index, block.address)).collect();
                for (index, address) in active {
                    marked.push((position, state.blocks.mark(index)));
                    addresses.insert(address);
                }
            }
        });
        addresses
    }

    /// The addresses of the marked blocks that have been in use ever since.
    pub(crate) fn still_live(&self, marked: &mut Marked) -> BTreeSet<u64> {
        let mut addresses = BTreeSet::new();
        self.cache.all_shards(|all| {
            let address = |(position, id): &(usize, BlockId)| {
                all.states.get(*position).and_then(|state| state.blocks.marked(*id)).map(|block| block.address)
            };
            marked.retain(|block| address(block).is_some_and(|address| addresses.insert(address)));
        });
        addresses
    }
}
