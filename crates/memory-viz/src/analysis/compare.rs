//! Two snapshots beside each other: which stacks hold more, which segments came and went.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::flame::identity;
use super::holders;
use crate::model::{Names, Segment, Snapshot, StackId};

/// What one stack holds in two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The frames as text, innermost first; empty where nothing is known.
    pub frames: Vec<String>,
    /// Bytes and blocks in the first snapshot.
    pub before: (u64, u64),
    /// Bytes and blocks in the second.
    pub after: (u64, u64),
}

impl Change {
    /// Bytes more, or fewer, in the second.
    #[must_use]
    pub fn bytes(&self) -> i128 {
        i128::from(self.after.0) - i128::from(self.before.0)
    }
}

/// The stacks that hold memory in either snapshot: those that grew most first, those that shrank most last. Stacks are
/// the same when their texts are: the numbers of two snapshots have nothing to do with each other.
#[must_use]
pub fn changes(before: &Snapshot, after: &Snapshot) -> Vec<Change> {
    let mut by_frames: BTreeMap<Vec<String>, Change> = BTreeMap::new();
    for (snapshot, is_after) in [(before, false), (after, true)] {
        for holder in holders(snapshot) {
            let frames = texts(&snapshot.names, holder.stack);
            let change = by_frames.entry(frames.clone()).or_insert(Change { frames, before: (0, 0), after: (0, 0) });
            let side = if is_after { &mut change.after } else { &mut change.before };
            *side = (side.0.saturating_add(holder.bytes), side.1 + holder.blocks);
        }
    }
    let mut changes: Vec<Change> = by_frames.into_values().collect();
    changes.sort_by_key(|change| Reverse(change.bytes()));
    changes
}

fn texts(names: &Names, stack: StackId) -> Vec<String> {
    names.frames_of(stack).iter().map(|frame| names.frame_text(*frame)).collect()
}

/// The segments that only one of two snapshots has, by address and size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentChanges<'snapshot> {
    /// Those of the first alone.
    pub only_before: Vec<&'snapshot Segment>,
    /// Those of the second alone.
    pub only_after: Vec<&'snapshot Segment>,
}

/// Compares the segments of two snapshots.
#[must_use]
pub fn segment_changes<'snapshot>(
    before: &'snapshot Snapshot,
    after: &'snapshot Snapshot,
) -> SegmentChanges<'snapshot> {
    let only = |one: &'snapshot Snapshot, other: &Snapshot| {
        let known: BTreeSet<(u64, u64)> = other.segments.iter().map(identity).collect();
        one.segments.iter().filter(|segment| !known.contains(&identity(segment))).collect()
    };
    SegmentChanges { only_before: only(before, after), only_after: only(after, before) }
}
