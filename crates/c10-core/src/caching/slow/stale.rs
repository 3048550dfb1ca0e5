//! Which memory of a pool is lost when the pool is brought back to a checkpoint.
//!
//! **Invariant:** what is handed out of a pool stays so, at the same address and no smaller, or its holder has named it.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::PoolError;
use crate::base::error::{Error, Result};
use crate::caching::block::{Block, State};
use crate::caching::slow::checkpoint::PoolCheckpoint;

/// Refuses to take memory back that is handed out, is not so in the checkpoint, and was not given up by its holder.
pub(super) fn check_given_up<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    checkpoint: &PoolCheckpoint,
    given_up: &BTreeSet<u64>,
) -> Result<()> {
    let noted = checkpoint.segments().iter().flat_map(|segment| &segment.blocks).filter(|block| block.allocated);
    let noted: BTreeMap<u64, u64> = noted.map(|block| (block.address, block.size)).collect();
    let stays = |block: &Block| noted.get(&block.address).is_some_and(|size| *size >= block.size);
    let mut live = blocks.filter(|block| block.state == State::Allocated);
    match live.find(|block| !stays(block) && !given_up.contains(&block.address)) {
        Some(block) => Err(Error::Pool(PoolError::StaleMemory { address: block.address })),
        None => Ok(()),
    }
}
