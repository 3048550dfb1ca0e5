//! How much of the reserved memory is of use: sums over segments, and the holes between blocks.

use std::collections::BTreeMap;

use crate::model::{BlockState, Segment, SegmentKind, Snapshot};

/// Sums over some segments, in bytes unless something else is said.
///
/// `reserved == allocated + pending + free`, where blocks fill their segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// In segments.
    pub reserved: u64,
    /// In blocks that are in use.
    pub allocated: u64,
    /// In blocks that are given back while a stream may still use them.
    pub pending: u64,
    /// Asked for, of what is in use or pending: the rest of those blocks is lost to rounding.
    pub requested: u64,
    /// In free blocks.
    pub free: u64,
    /// In free blocks of segments that also have blocks in use: `empty_cache` cannot give them back.
    pub free_stuck: u64,
    /// In the largest free block.
    pub largest_free: u64,
    /// How many segments.
    pub segments: u64,
    /// How many blocks are in use or pending.
    pub blocks: u64,
    /// How many free blocks.
    pub holes: u64,
}

impl Fragmentation {
    /// The part of the free memory that the largest free block is not: 0 when all of it is one block, near 1 when it is
    /// in many small ones.
    #[must_use]
    pub fn of_free(&self) -> f64 {
        ratio(self.free.saturating_sub(self.largest_free), self.free)
    }

    /// The part of the reserved memory that nobody uses.
    #[must_use]
    pub fn unused(&self) -> f64 {
        ratio(self.free, self.reserved)
    }

    /// In blocks that are in use or pending.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.allocated.saturating_add(self.pending)
    }

    fn add(&mut self, segment: &Segment) {
        self.segments += 1;
        self.reserved = self.reserved.saturating_add(segment.total_size);
        let is_used = segment.blocks.iter().any(|block| block.state.is_active());
        for block in &segment.blocks {
            let sum = match block.state {
                BlockState::ActiveAllocated => &mut self.allocated,
                BlockState::ActivePendingFree => &mut self.pending,
                BlockState::Inactive => &mut self.free,
            };
            *sum = sum.saturating_add(block.size);
            if block.state.is_active() {
                self.requested = self.requested.saturating_add(block.requested_size);
                self.blocks += 1;
            } else {
                self.holes += 1;
                self.largest_free = self.largest_free.max(block.size);
                self.free_stuck = self.free_stuck.saturating_add(if is_used { block.size } else { 0 });
            }
        }
    }
}

/// A share of two numbers of bytes; 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "a share is for people")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What decides which segments can serve a request: only those of the same group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The device's index.
    pub device: u32,
    /// The private pool; `(0, 0)` is the common pool.
    pub pool_id: (u64, u64),
    /// The stream's handle.
    pub stream: i64,
    /// Whether the segments serve large requests.
    pub is_large: bool,
}

/// The sums over all segments.
#[must_use]
pub fn fragmentation(snapshot: &Snapshot) -> Fragmentation {
    let mut all = Fragmentation::default();
    snapshot.segments.iter().for_each(|segment| all.add(segment));
    all
}

/// The sums by what can serve a request.
#[must_use]
pub fn by_group(snapshot: &Snapshot) -> Vec<(Group, Fragmentation)> {
    let mut groups: BTreeMap<Group, Fragmentation> = BTreeMap::new();
    for segment in &snapshot.segments {
        let group = Group {
            device: segment.device,
            pool_id: segment.pool_id,
            stream: segment.stream,
            is_large: segment.kind == SegmentKind::Large,
        };
        groups.entry(group).or_default().add(segment);
    }
    groups.into_iter().collect()
}
