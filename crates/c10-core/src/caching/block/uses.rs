//! The other streams that allocated blocks were used on.
//!
//! **Invariant:** a list is named by one block, or is free to be used again and empty.

use crate::base::handles::StreamRef;
use crate::caching::block::descriptor::{Block, Index, NONE};
use crate::caching::shard::ShardState;

/// Another stream that a block was used on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamUse {
    pub(crate) stream: StreamRef,
    /// Recorded while allocations were routed to a private pool: the end of the capture orders that use, and no event
    /// is needed.
    pub(crate) in_scope: bool,
}

/// Lists of streams, made once and used again.
#[derive(Debug, Default)]
pub(crate) struct UseLists {
    lists: Vec<Vec<StreamUse>>,
    free: Vec<u32>,
}

impl UseLists {
    fn add(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.lists.push(Vec::new());
            u32::try_from(self.lists.len() - 1).expect("no more lists than blocks")
        })
    }

    /// Exchanges a list for an empty one, which is used again.
    fn take(&mut self, list: u32, empty: Vec<StreamUse>) -> Vec<StreamUse> {
        self.free.push(list);
        std::mem::replace(&mut self.lists[list as usize], empty)
    }
}

impl ShardState {
    /// Notes another stream that an allocated block is used on.
    pub(crate) fn add_use(&mut self, index: Index, new: StreamUse) {
        if self.blocks.get(index).uses == NONE {
            self.blocks.get_mut(index).uses = self.uses.add();
        }
        let list = &mut self.uses.lists[self.blocks.get(index).uses as usize];
        match list.iter_mut().find(|known| known.stream == new.stream) {
            Some(known) => known.in_scope |= new.in_scope,
            None => list.push(new),
        }
    }

    /// The other streams that a block was used on.
    pub(crate) fn uses_of(&self, block: &Block) -> &[StreamUse] {
        self.uses.lists.get(block.uses as usize).map_or(&[], Vec::as_slice)
    }

    /// An allocated block that was used elsewhere is given back: it awaits those streams, which are returned. `empty`
    /// takes the place of their list.
    pub(crate) fn await_streams(&mut self, index: Index, empty: Vec<StreamUse>) -> Vec<StreamUse> {
        let list = std::mem::replace(&mut self.blocks.get_mut(index).uses, NONE);
        self.begin_pending(index);
        self.uses.take(list, empty)
    }
}
