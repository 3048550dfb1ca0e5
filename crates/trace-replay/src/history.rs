//! The history of a snapshot as the steps of a trace.
//!
//! **Invariant:** every free is of something that was allocated before: what a history frees or a snapshot holds without
//! telling of its allocation was there before the history began, and is allocated first.

use std::collections::BTreeMap;

use memory_viz::{Action, BlockState, Snapshot};

use crate::step::Step;

/// The steps of a device's history. Without a history they are the allocations that the snapshot holds.
///
/// ```
/// use memory_viz::{Action, Snapshot, TraceEntry};
/// use trace_replay::{Step, steps_of};
///
/// let entry = |action, addr, size| TraceEntry { action, addr, size, ..TraceEntry::default() };
/// let history = vec![entry(Action::FreeRequested, 4096, 100), entry(Action::Alloc, 8192, 200)];
/// let snapshot = Snapshot { device_traces: vec![history], ..Snapshot::default() };
/// let steps = [
///     Step::Alloc { id: 0, bytes: 100, stream: 0 },
///     Step::Free { id: 0 },
///     Step::Alloc { id: 1, bytes: 200, stream: 0 },
/// ];
/// assert_eq!(steps_of(&snapshot, 0), steps);
/// assert_eq!(steps_of(&snapshot, 1), []);
/// ```
#[must_use]
pub fn steps_of(snapshot: &Snapshot, device: u32) -> Vec<Step> {
    let mut maker = Maker::default();
    let history = usize::try_from(device).ok().and_then(|device| snapshot.device_traces.get(device));
    for entry in history.into_iter().flatten() {
        if entry.action == Action::Alloc {
            // Two allocations of one address: the free between them was not kept.
            maker.free(entry.addr);
            let step = maker.alloc(entry.addr, entry.size, entry.stream);
            maker.steps.push(step);
        }
        if entry.action == Action::FreeRequested {
            if !maker.live.contains_key(&entry.addr) {
                maker.before(entry.addr, entry.size, entry.stream);
            }
            maker.free(entry.addr);
        }
    }
    for segment in snapshot.segments.iter().filter(|segment| segment.device == device) {
        for block in segment.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated) {
            if !maker.live.contains_key(&block.address) {
                let bytes = if block.requested_size == 0 { block.size } else { block.requested_size };
                maker.before(block.address, bytes, segment.stream);
            }
        }
    }
    maker.first.append(&mut maker.steps);
    maker.first
}

/// Steps under construction.
#[derive(Default)]
struct Maker {
    /// Allocations from before the history.
    first: Vec<Step>,
    steps: Vec<Step>,
    /// The allocation that an address belongs to.
    live: BTreeMap<u64, u64>,
    /// Streams by their handles, in order of appearance; the default stream is the first.
    streams: BTreeMap<i64, u32>,
    next: u64,
}

impl Maker {
    fn alloc(&mut self, address: u64, bytes: u64, stream: i64) -> Step {
        let id = self.next;
        self.next += 1;
        self.live.insert(address, id);
        let count = u32::try_from(self.streams.len()).unwrap_or(u32::MAX - 1);
        let stream = if stream == 0 { 0 } else { *self.streams.entry(stream).or_insert(count + 1) };
        Step::Alloc { id, bytes, stream }
    }

    fn before(&mut self, address: u64, bytes: u64, stream: i64) {
        let step = self.alloc(address, bytes, stream);
        self.first.push(step);
    }

    fn free(&mut self, address: u64) {
        self.steps.extend(self.live.remove(&address).map(|id| Step::Free { id }));
    }
}

#[cfg(test)]
mod tests {
    use memory_viz::{Block, Segment, TraceEntry};

    use super::*;

    #[test]
    fn what_was_there_before_is_allocated_first() {
        let entry = |action, addr, size, stream| TraceEntry { action, addr, size, stream, ..TraceEntry::default() };
        let history = vec![
            entry(Action::SegmentAlloc, 4096, 1 << 21, 0),
            entry(Action::Alloc, 4096, 10, 77),
            entry(Action::FreeRequested, 8192, 20, 0),
            entry(Action::FreeCompleted, 8192, 20, 0),
            entry(Action::Alloc, 4096, 30, 77),
            entry(Action::OutOfMemory, 0, 40, 0),
        ];
        let block = |address, size, state| Block { address, size, state, ..Block::default() };
        let blocks = vec![
            block(4096, 512, BlockState::ActiveAllocated),
            block(12288, 512, BlockState::ActiveAllocated),
            block(16384, 512, BlockState::ActivePendingFree),
        ];
        let segment = Segment { device: 1, blocks, stream: 5, ..Segment::default() };
        let snapshot =
            Snapshot { device_traces: vec![Vec::new(), history], segments: vec![segment], ..Snapshot::default() };
        let alloc = |id, bytes, stream| Step::Alloc { id, bytes, stream };
        let expected = [
            alloc(1, 20, 0),
            alloc(3, 512, 2),
            alloc(0, 10, 1),
            Step::Free { id: 1 },
            Step::Free { id: 0 },
            alloc(2, 30, 1),
        ];
        assert_eq!(steps_of(&snapshot, 1), expected);
        assert_eq!(steps_of(&snapshot, 0), []);
    }
}
