//! Who holds the memory: active blocks by the stack that allocated them.

use std::collections::BTreeMap;

use crate::model::{Snapshot, StackId};

/// What one stack holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Where the blocks were allocated; [`StackId::EMPTY`] where nothing is known.
    pub stack: StackId,
    /// Bytes in its blocks.
    pub bytes: u64,
    /// How many blocks.
    pub blocks: u64,
}

/// The active blocks of all devices by stack, the largest holder first.
#[must_use]
pub fn holders(snapshot: &Snapshot) -> Vec<Holder> {
    let mut by_stack: BTreeMap<StackId, Holder> = BTreeMap::new();
    for block in snapshot.segments.iter().flat_map(|segment| &segment.blocks).filter(|block| block.state.is_active()) {
        let holder = by_stack.entry(block.stack).or_insert(Holder { stack: block.stack, bytes: 0, blocks: 0 });
        holder.bytes = holder.bytes.saturating_add(block.size);
        holder.blocks += 1;
    }
    let mut holders: Vec<Holder> = by_stack.into_values().collect();
    holders.sort_by_key(|holder| (std::cmp::Reverse(holder.bytes), holder.stack));
    holders
}
