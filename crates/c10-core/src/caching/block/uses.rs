//! The other streams that allocated blocks are used on.
//!
//! **Invariant:** a list is named by one block, or is empty and free to be used again.

use crate::base::handles::StreamRef;
use crate::caching::block::descriptor::NONE;

/// Another stream that a block is used on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamUse {
    pub(crate) stream: StreamRef,
    /// Recorded while allocations were routed to a private pool: the end of the capture orders that use, and no event
    /// is needed.
    pub(crate) in_scope: bool,
}

/// Lists of streams, made once and used again. A block names its list by number; [`NONE`] names none.
#[derive(Debug, Default)]
pub(crate) struct UseLists {
    lists: Vec<Vec<StreamUse>>,
    free: Vec<u32>,
}

impl UseLists {
    /// Adds a stream to a list, which is made if there is none.
    pub(crate) fn add(&mut self, list: &mut u32, new: StreamUse) {
        if *list == NONE {
            *list = self.free.pop().unwrap_or_else(|| {
                self.lists.push(Vec::new());
                u32::try_from(self.lists.len() - 1).expect("no more lists than blocks")
            });
        }
        let list = &mut self.lists[*list as usize];
        match list.iter_mut().find(|known| known.stream == new.stream) {
            Some(known) => known.in_scope |= new.in_scope,
            None => list.push(new),
        }
    }

    /// The streams of a list.
    pub(crate) fn get(&self, list: u32) -> &[StreamUse] {
        self.lists.get(list as usize).map_or(&[], Vec::as_slice)
    }

    /// Exchanges a list for an empty one, which is used again.
    pub(crate) fn take(&mut self, list: u32, empty: Vec<StreamUse>) -> Vec<StreamUse> {
        self.free.push(list);
        std::mem::replace(&mut self.lists[list as usize], empty)
    }
}
