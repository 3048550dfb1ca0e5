//! What the allocator holds, segment by segment and block by block.

use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::ids::PoolId;
use crate::caching::block::{Block, State};
use crate::caching::block::{Rules, SIZE_LIMIT, SizeClass, round_size, segment_size, size_class};
use crate::caching::slow::DeviceAllocator;

use crate::caching::shard::Books;
use crate::trace::TraceBlock;

/// What a block is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum BlockState {
    /// Handed out.
    ActiveAllocated,
    /// Given back, and still used by another stream.
    ActivePendingFree,
    /// Free.
    Inactive,
}

impl BlockState {
    /// The name that torch's snapshots use, for example `active_allocated`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ActiveAllocated => "active_allocated",
            Self::ActivePendingFree => "active_pending_free",
            Self::Inactive => "inactive",
        }
    }
}

/// Which requests a segment serves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SegmentType {
    /// Those up to 1 MiB.
    Small,
    /// Larger ones.
    Large,
}

impl SegmentType {
    /// The name that torch's snapshots use: `small` or `large`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

impl From<SizeClass> for SegmentType {
    fn from(class: SizeClass) -> Self {
        match class {
            SizeClass::Small => Self::Small,
            SizeClass::Large => Self::Large,
        }
    }
}

/// A block of a [`SegmentInfo`]. Sizes are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BlockInfo {
    /// First byte.
    pub address: u64,
    /// Bytes of the block.
    pub size: u64,
    /// Bytes last asked for; of a block that is not in use that is past, and 0 if it never was.
    pub requested_size: u64,
    /// What it is doing.
    pub state: BlockState,
}

/// Memory held from the driver: a segment, or a stretch of an expandable one that is mapped. Sizes are bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SegmentInfo {
    /// Device the memory is on.
    pub device: DeviceIndex,
    /// First byte.
    pub address: u64,
    /// Bytes of all blocks.
    pub total_size: u64,
    /// Bytes of the blocks handed out.
    pub allocated_size: u64,
    /// Bytes of the blocks handed out or still used by another stream.
    pub active_size: u64,
    /// Bytes that were asked for, of the active blocks.
    pub requested_size: u64,
    /// Handle of the stream it serves, 0 for the default stream.
    pub stream: u64,
    /// Which requests it serves.
    pub segment_type: SegmentType,
    /// The private pool it belongs to; `PoolId(0, 0)` for none. Torch's `segment_pool_id`.
    pub pool: PoolId,
    /// Whether it is a part of an expandable segment.
    pub is_expandable: bool,
    /// Its blocks by address; they touch each other.
    pub blocks: Vec<BlockInfo>,
}

/// The sizes that a request leads to.
#[derive(Clone, Debug)]
pub(crate) struct RequestSizes {
    /// Of the block.
    pub(crate) rounded: u64,
    /// Of the segment that the driver would be asked for.
    pub(crate) segment: u64,
    /// Which segments serve it.
    pub(crate) segment_type: SegmentType,
    rules: Rules,
}

impl RequestSizes {
    /// `None` for a request that is refused for its size.
    pub(crate) fn new(config: &AllocatorConfig, bytes: u64) -> Option<Self> {
        let rounded = (bytes < SIZE_LIMIT).then(|| round_size(config, bytes))?;
        let elastic = config.is_elastic();
        let (segment, segment_type) = (segment_size(config, elastic, rounded), size_class(rounded).into());
        Some(Self { rounded, segment, segment_type, rules: Rules::new(config, elastic, false) })
    }

    /// Whether the smallest free block that is large enough may be used.
    pub(crate) fn may_use(&self, block: u64) -> bool {
        self.rules.may_use(self.rounded, block)
    }
}

impl DeviceAllocator {
    /// Everything held from the driver, or what one private pool holds, by address.
    pub(crate) fn snapshot(&self, only: Option<PoolId>) -> Vec<SegmentInfo> {
        let mut segments: Vec<SegmentInfo> = self.cache.all_shards(|all| {
            let states = all.states.iter().map(|state| &**state);
            let states = states.filter(|state| only.is_none() || only == Some(pool_of(state)));
            states.flat_map(|state| self.segments_of(state)).collect()
        });
        segments.sort_by_key(|segment| segment.address);
        segments
    }

    /// What is handed out of a pool.
    pub(crate) fn live_blocks(&self, only: Option<PoolId>) -> Vec<TraceBlock> {
        let live = |segment: &SegmentInfo| {
            let &SegmentInfo { device, stream, pool, .. } = segment;
            let allocated = segment.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated);
            let of = |&BlockInfo { address, size, requested_size: requested, .. }: &BlockInfo| TraceBlock {
                device,
                address,
                requested,
                size,
                stream,
                pool,
            };
            allocated.map(of).collect::<Vec<_>>()
        };
        self.snapshot(only).iter().flat_map(live).collect()
    }

    fn segments_of(&self, state: &Books) -> Vec<SegmentInfo> {
        let begins = |block: &Block| {
            let continues = state.blocks.find(block.prev).is_some_and(Block::is_mapped);
            block.has_memory() && !continues
        };
        let heads = state.blocks.iter().map(|(_, block)| block).filter(|block| begins(block));
        heads.map(|head| self.describe_segment(state, head)).collect()
    }

    fn describe_segment(&self, state: &Books, head: &Block) -> SegmentInfo {
        let follow = |block: &&Block| state.blocks.find(block.next).filter(|next| next.is_mapped());
        let describe = |block: &Block| {
            let chain = if block.state == State::Arena { state.arena_chain(block) } else { vec![block.clone()] };
            chain.iter().map(describe_block).collect::<Vec<_>>()
        };
        let blocks: Vec<BlockInfo> = std::iter::successors(Some(head), follow).flat_map(describe).collect();
        let sum = |takes: fn(&BlockInfo) -> bool, of: fn(&BlockInfo) -> u64| {
            blocks.iter().filter(|block| takes(block)).map(of).sum()
        };
        SegmentInfo {
            device: self.cache.index,
            address: head.address,
            total_size: sum(|_| true, |block| block.size),
            allocated_size: sum(|block| block.state == BlockState::ActiveAllocated, |block| block.size),
            active_size: sum(|block| block.state != BlockState::Inactive, |block| block.size),
            requested_size: sum(|block| block.state != BlockState::Inactive, |block| block.requested_size),
            stream: state.key.stream.0 as u64,
            segment_type: head.class.into(),
            pool: pool_of(state),
            is_expandable: head.in_range,
            blocks,
        }
    }
}

fn pool_of(state: &Books) -> PoolId {
    state.key.owner.unwrap_or(PoolId(0, 0))
}

fn describe_block(block: &Block) -> BlockInfo {
    let state = match block.state {
        State::Allocated => BlockState::ActiveAllocated,
        State::Pending => BlockState::ActivePendingFree,
        State::Free | State::Held | State::Arena | State::Planned | State::Unmapped | State::Left | State::Vacant => {
            BlockState::Inactive
        }
    };
    BlockInfo { address: block.address, size: block.size, requested_size: block.requested, state }
}
