//! Noting the state of a private pool, and bringing the pool back to it.
//!
//! A program that records several graphs into one pool goes on from a state the pool had before: what is handed out now
//! is taken back, and what was handed out then is handed out again, at the same addresses.
//!
//! **Invariants:** everything is checked before anything is changed, so after an error the pool is as it was. Both are
//! done under the lock of `growth`, so that no segment comes or goes, and under those of all shards. A checkpoint describes
//! one pool of one allocator, and only [`Device::checkpoint_pool`] makes one: its blocks cover their segments.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, PoolError, Result};
use crate::base::handles::StreamHandle;
use crate::base::ids::PoolId;
use crate::caching::block::{Asked, Block, Index, NONE, Owner, State};

use crate::caching::device::AllShards;
use crate::caching::pools::Pool;
use crate::caching::remote::Place;
use crate::caching::shard::{Books, Shard};
use crate::caching::slow::DeviceAllocator;
use crate::caching::slow::growth::Growth;
use crate::caching::slow::snapshot::{BlockInfo, BlockState, SegmentType};
use crate::caching::slow::stale::check_given_up;
use crate::driver::Driver;
use crate::sync::lock;
use crate::thread;

/// What a private pool held at a moment, to bring it back to that; torch's checkpoint state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolCheckpoint {
    /// Number of the allocator that made it.
    allocator: u64,
    device: DeviceIndex,
    pool: PoolId,
    segments: Vec<SegmentCheckpoint>,
}

impl PoolCheckpoint {
    /// Device of the pool.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.device
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// Its segments, by address.
    #[must_use]
    pub fn segments(&self) -> &[SegmentCheckpoint] {
        &self.segments
    }
}

/// A segment of a [`PoolCheckpoint`], or the address range of an expandable one.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SegmentCheckpoint {
    /// Handle of the stream it serves, 0 for the default stream.
    pub stream: u64,
    /// Which requests it serves.
    pub segment_type: SegmentType,
    /// Whether it is an expandable segment.
    pub is_expandable: bool,
    /// Its blocks by address; they touch each other.
    pub blocks: Vec<BlockCheckpoint>,
}

/// A block of a [`SegmentCheckpoint`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BlockCheckpoint {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Whether it was handed out.
    pub allocated: bool,
    /// Whether there was memory behind its addresses, which the end of an expandable segment lacks.
    pub mapped: bool,
    /// Other streams it was used on, by device and handle. Not restored: that use is over when the pool is brought back.
    pub extra_streams: Vec<(DeviceIndex, u64)>,
}

/// What bringing a pool back to a checkpoint did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RestoreResult {
    /// Addresses that were handed out before and were taken back, by stream and address. One that is also in
    /// `allocations_created` is handed out anew.
    pub allocations_freed: Vec<u64>,
    /// Blocks that are handed out now, by address; whoever uses them has to give them back.
    pub allocations_created: Vec<BlockInfo>,
}

/// Neighbouring blocks with memory behind them, as far as they go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    size: u64,
    stream: u64,
    segment_type: SegmentType,
    in_range: bool,
}

impl Growth {
    fn pool_of(&self, id: PoolId) -> Result<(u32, &Pool)> {
        let private = self.private.get(&id).ok_or(Error::Pool(PoolError::NotFound { pool: id }))?;
        Ok((private.use_count, self.pools.get(private.pool)))
    }

    /// A pool whose state may be noted or restored.
    fn pool_in_use(&self, id: PoolId) -> Result<&Pool> {
        match self.pool_of(id)? {
            (0, _) => Err(Error::Pool(PoolError::CheckpointOfReleased)),
            (_, pool) => Ok(pool),
        }
    }
}

impl DeviceAllocator {
    /// The state of a private pool. While no scope is open, blocks are freed first whose other streams have passed.
    pub(crate) fn checkpoint_pool<D: Driver>(&self, driver: &D, id: PoolId) -> Result<PoolCheckpoint> {
        let mut growth = lock(&self.growth);
        growth.note_known(id);
        let pool = growth.pool_in_use(id)?;
        self.cache.process_events(driver)?;
        let segments = self.cache.all_shards(|all| {
            let pending = blocks_of(all, pool).find(|(_, block)| block.state == State::Pending);
            if let Some((_, block)) = pending {
                return Err(Error::Pool(PoolError::CheckpointOfPendingMemory { address: block.address }));
            }
            let heads = blocks_of(all, pool).filter(|(_, block)| block.prev == NONE);
            let mut segments: Vec<SegmentCheckpoint> = heads.map(|(state, head)| note_segment(state, head)).collect();
            segments.sort_by_key(SegmentCheckpoint::address);
            Ok(segments)
        })?;
        Ok(PoolCheckpoint { allocator: self.cache.shared.number, device: self.cache.index, pool: id, segments })
    }

    /// Brings a private pool back to a state it had. Memory that it got since stays in it, free. Of what is handed out now
    /// and was not then, only the addresses `given_up` are taken back; any for `None`.
    pub(crate) fn restore_pool<D: Driver>(
        &self,
        driver: &D,
        checkpoint: &PoolCheckpoint,
        given_up: Option<&BTreeSet<u64>>,
    ) -> Result<RestoreResult> {
        if checkpoint.allocator != self.cache.shared.number {
            return Err(Error::OtherRuntime { what: "checkpoint" });
        }
        if checkpoint.device != self.cache.index {
            return Err(Error::Pool(PoolError::CheckpointDevice {
                checkpoint: checkpoint.device,
                device: self.cache.index,
            }));
        }
        let growth = lock(&self.growth);
        let pool = growth.pool_in_use(checkpoint.pool)?;
        self.cache.process_events(driver)?;
        self.cache.all_shards(|all| {
            let is_in_use = |block: &Block| {
                block.state == State::Pending || (block.state == State::Allocated && block.uses != NONE)
            };
            if let Some((_, block)) = blocks_of(all, pool).find(|(_, block)| is_in_use(block)) {
                return Err(Error::Pool(PoolError::CheckpointOfPendingMemory { address: block.address }));
            }
            check_segments(all, pool, checkpoint)?;
            if let Some(given_up) = given_up {
                check_given_up(blocks_of(all, pool).map(|(_, block)| block), checkpoint, given_up)?;
            }
            let owners = owners_after(all, pool, given_up);
            let mut result = RestoreResult::default();
            let free = free_everything(all, pool, &mut result);
            for segment in &checkpoint.segments {
                let shard = pool.shards.get(&segment.handle());
                shard.into_iter().for_each(|shard| restore_segment(all, shard, &free, &owners, segment, &mut result));
            }
            Ok(result)
        })
    }

    /// Whether exactly these addresses of a private pool are handed out.
    pub(crate) fn check_pool_live_allocations(&self, id: PoolId, expected: &[u64]) -> Result<bool> {
        let growth = lock(&self.growth);
        let (_, pool) = growth.pool_of(id)?;
        let expected: BTreeSet<u64> = expected.iter().copied().collect();
        let live: BTreeSet<u64> = self.cache.all_shards(|all| {
            let allocated = blocks_of(all, pool).filter(|(_, block)| block.state == State::Allocated);
            allocated.map(|(_, block)| block.address).collect()
        });
        Ok(live == expected)
    }
}

impl SegmentCheckpoint {
    fn address(&self) -> u64 {
        self.blocks.first().map_or(0, |block| block.address)
    }

    fn handle(&self) -> StreamHandle {
        // It was a handle before.
        StreamHandle(usize::try_from(self.stream).unwrap_or(usize::MAX))
    }

    /// The stretches that had memory, by address, each with its blocks.
    fn runs(&self) -> impl Iterator<Item = (u64, Run, &[BlockCheckpoint])> {
        let stretches = self.blocks.split(|block| !block.mapped);
        stretches.filter_map(|blocks| {
            let run = Run {
                size: blocks.iter().map(|block| block.size).sum(),
                stream: self.stream,
                segment_type: self.segment_type,
                in_range: self.is_expandable,
            };
            blocks.first().map(|first| (first.address, run, blocks))
        })
    }
}

/// Every block of a pool.
fn blocks_of<'a>(all: &'a AllShards<'_>, pool: &'a Pool) -> impl Iterator<Item = (&'a Books, &'a Block)> {
    let states = pool.shards.values().map(|shard| &**all.states[shard.position]);
    states.flat_map(|state| state.blocks.iter().map(move |(_, block)| (state, block)))
}

/// A block and all that follow it in its segment.
fn chain<'a>(state: &'a Books, head: &'a Block) -> impl Iterator<Item = &'a Block> {
    std::iter::successors(Some(head), |block| state.blocks.find(block.next))
}

fn note_segment(state: &Books, head: &Block) -> SegmentCheckpoint {
    let note_block = |block: &Block| BlockCheckpoint {
        address: block.address,
        size: block.size,
        allocated: block.state == State::Allocated,
        mapped: block.is_mapped(),
        extra_streams: state
            .uses_of(block)
            .iter()
            .map(|used| (used.stream.device, used.stream.handle.0 as u64))
            .collect(),
    };
    SegmentCheckpoint {
        stream: state.key.stream.0 as u64,
        segment_type: head.class.into(),
        is_expandable: head.in_range,
        blocks: chain(state, head).map(note_block).collect(),
    }
}

/// Whether the pool still has all memory of the checkpoint; of what expands it may have more.
fn check_segments(all: &AllShards<'_>, pool: &Pool, checkpoint: &PoolCheckpoint) -> Result<()> {
    let held: BTreeMap<u64, Run> = runs_of(all, pool);
    for (address, noted, _) in checkpoint.segments.iter().flat_map(SegmentCheckpoint::runs) {
        let holds = |held: &&Run| {
            let may_be_more = noted.in_range && held.size > noted.size;
            **held == noted || (may_be_more && Run { size: noted.size, ..**held } == noted)
        };
        held.get(&address).filter(holds).ok_or(Error::Pool(PoolError::CheckpointIsStale { address }))?;
    }
    Ok(())
}

/// The stretches of a pool that have memory, by address.
fn runs_of(all: &AllShards<'_>, pool: &Pool) -> BTreeMap<u64, Run> {
    let begins = |(state, block): &(&Books, &Block)| {
        block.is_mapped() && !state.blocks.find(block.prev).is_some_and(Block::is_mapped)
    };
    let run = |(state, first): (&Books, &Block)| {
        let run = Run {
            size: chain(state, first).take_while(|block| block.is_mapped()).map(|block| block.size).sum(),
            stream: state.key.stream.0 as u64,
            segment_type: first.class.into(),
            in_range: first.in_range,
        };
        (first.address, run)
    };
    blocks_of(all, pool).filter(begins).map(run).collect()
}

/// Who will own memory of a pool: its present owner, unless it gives the memory up; else, where holders give memory up
/// (`given_up`), a buffer, and where they do not, the program.
fn owners_after(all: &AllShards<'_>, pool: &Pool, given_up: Option<&BTreeSet<u64>>) -> impl Fn(u64) -> Owner + use<> {
    let pages = &all.cache.shared.pages;
    let live = blocks_of(all, pool).map(|(_, block)| block).filter(|block| block.state == State::Allocated);
    let stays = live.filter(|block| given_up.is_some_and(|given_up| !given_up.contains(&block.address)));
    let owner = |block: &Block| pages.find(block.address).map(|place| (block.address, place.owner()));
    let known: BTreeMap<u64, Owner> = stays.filter_map(owner).collect();
    let other = if given_up.is_some() { Owner::Buffer } else { Owner::Program };
    move |address| known.get(&address).copied().unwrap_or(other)
}

/// Takes back all that is handed out of a pool, so that each stretch with memory is one free block; those by address.
fn free_everything(all: &mut AllShards<'_>, pool: &Pool, result: &mut RestoreResult) -> BTreeMap<u64, Index> {
    let mut free = BTreeMap::new();
    for shard in pool.shards.values() {
        let blocks = all.states[shard.position].blocks.iter().map(|(_, block)| block);
        let live: BTreeSet<u64> =
            blocks.filter(|block| block.state == State::Allocated).map(|block| block.address).collect();
        live.iter().for_each(|address| take_back(all, shard, *address));
        result.allocations_freed.extend(live);
        let state = &all.states[shard.position];
        free.extend(state.free_blocks().map(|index| (state.blocks.get(index).address, index)));
    }
    free
}

/// Takes an allocated block back. Another thread may be about to do so too: then that is waited for, which is a matter of
/// a few instructions, and is followed.
fn take_back(all: &mut AllShards<'_>, shard: &Shard, address: u64) {
    let pages = &all.cache.shared.pages;
    while let Some((_, slot)) = pages.slot_at(address) {
        let Some(seen) = slot.look() else { return };
        if Place::new(shard.id, slot, Some(seen)).is_some_and(|place| all.free(shard.position, &place)) {
            return;
        }
        std::thread::yield_now();
        all.drain();
    }
}

/// Hands all blocks of a segment out, at the sizes they had whatever the options say now, then takes those back that
/// were free.
fn restore_segment(
    all: &mut AllShards<'_>,
    shard: &Shard,
    free: &BTreeMap<u64, Index>,
    owner_of: &dyn Fn(u64) -> Owner,
    segment: &SegmentCheckpoint,
    result: &mut RestoreResult,
) {
    for (begin, _, blocks) in segment.runs() {
        // There is one: the segments were checked.
        let Some(rest) = free.get(&begin).copied() else { continue };
        for block in blocks {
            let state = &all.states[shard.position];
            let cut = (state.blocks.get(rest).size > block.size).then_some(block.size);
            // What is left keeps its position, and is the next block.
            let taking = state.plan_part(rest, cut, Asked::new(block.size, owner_of(block.address)));
            let address = all.take(shard.position, &taking);
            debug_assert_eq!(address, block.address, "blocks of a checkpoint touch each other");
        }
        blocks.iter().filter(|block| !block.allocated).for_each(|block| take_back(all, shard, block.address));
        let created = blocks.iter().filter(|block| block.allocated).map(|block| BlockInfo {
            address: block.address,
            size: block.size,
            requested_size: block.size,
            state: BlockState::ActiveAllocated,
        });
        result.allocations_created.extend(created);
    }
    shard.set_owner(thread::number());
}
