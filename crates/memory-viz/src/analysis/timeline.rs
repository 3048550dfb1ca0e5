//! The history of a device as lives of allocations: from the entry that made each to the entry that ended it.
//!
//! A history often begins late, when a ring was full. What it frees without having allocated, and what the segments
//! hold at the end and the history does not know, was there before. Invariants: `lives[..before]` have no begin, in
//! order of address; the others follow in order of their begin; a life ends after it begins.

use std::collections::{BTreeMap, HashMap};

use crate::model::{Action, Snapshot, StackId, TraceEntry};

/// From the allocation of a block to its return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// The first byte.
    pub address: u64,
    /// Bytes asked for.
    pub size: u64,
    /// The handle of the stream.
    pub stream: i64,
    /// Where it was allocated.
    pub stack: StackId,
    /// The entry that allocated it; none if it was there before the history begins.
    pub begin: Option<usize>,
    /// The entry after which it is free; none if it lives when the history ends.
    pub end: Option<usize>,
}

/// The lives of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// All lives.
    pub lives: Vec<Life>,
    /// How many of them were there before the history begins.
    pub before: usize,
    /// For each entry of the history the life it begins or ends, as a position in `lives`.
    pub life_of_entry: Vec<Option<usize>>,
    /// Bytes reserved before the first entry.
    pub reserved_before: u64,
}

/// The lives of a device, from its history and its segments.
#[must_use]
pub fn timeline(snapshot: &Snapshot, device: usize) -> Timeline {
    let trace = snapshot.device_traces.get(device).map_or(&[][..], Vec::as_slice);
    let mut builder = Builder::default();
    for (index, entry) in trace.iter().enumerate() {
        let life = builder.step(index, entry);
        builder.life_of_entry.push(life);
    }
    builder.rest(snapshot, device);
    builder.finish(reserved_before(snapshot, device, trace))
}

/// What was reserved at the end, less what the history added.
fn reserved_before(snapshot: &Snapshot, device: usize, trace: &[TraceEntry]) -> u64 {
    let ours = snapshot.segments.iter().filter(|segment| segment.device as usize == device);
    let mut reserved: i128 = ours.map(|segment| i128::from(segment.total_size)).sum();
    for entry in trace {
        reserved -= reserved_change(entry);
    }
    u64::try_from(reserved.max(0)).unwrap_or(u64::MAX)
}

/// By how much an entry changes what is reserved.
fn reserved_change(entry: &TraceEntry) -> i128 {
    match entry.action {
        Action::SegmentAlloc | Action::SegmentMap => i128::from(entry.size),
        Action::SegmentFree | Action::SegmentUnmap => -i128::from(entry.size),
        _ => 0,
    }
}

/// A life in the order it was met: before those with a begin are numbered together with those without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    Before(usize),
    Traced(usize),
}

#[derive(Default)]
struct Builder {
    before: Vec<Life>,
    traced: Vec<Life>,
    alive: HashMap<u64, Met>,
    life_of_entry: Vec<Option<Met>>,
}

impl Builder {
    fn step(&mut self, index: usize, entry: &TraceEntry) -> Option<Met> {
        match entry.action {
            Action::Alloc => {
                // Its last owner's return was not recorded.
                if let Some(old) = self.alive.remove(&entry.addr) {
                    self.life(old).end = Some(index);
                }
                let met = Met::Traced(self.traced.len());
                self.traced.push(life(entry, Some(index)));
                self.alive.insert(entry.addr, met);
                Some(met)
            }
            Action::FreeRequested => Some(self.known(entry)),
            Action::FreeCompleted => {
                let met = self.known(entry);
                self.alive.remove(&entry.addr);
                self.life(met).end = Some(index);
                Some(met)
            }
            _ => None,
        }
    }

    /// The life at an entry's address, which was there before if nobody began it.
    fn known(&mut self, entry: &TraceEntry) -> Met {
        if let Some(met) = self.alive.get(&entry.addr) {
            return *met;
        }
        let met = Met::Before(self.before.len());
        self.before.push(life(entry, None));
        self.alive.insert(entry.addr, met);
        met
    }

    fn life(&mut self, met: Met) -> &mut Life {
        match met {
            Met::Before(index) => &mut self.before[index],
            Met::Traced(index) => &mut self.traced[index],
        }
    }

    /// What is in use at the end and was never mentioned.
    fn rest(&mut self, snapshot: &Snapshot, device: usize) {
        for segment in snapshot.segments.iter().filter(|segment| segment.device as usize == device) {
            for block in segment.blocks.iter().filter(|block| block.state.is_active()) {
                if let Some(met) = self.alive.get(&block.address).copied() {
                    let life = self.life(met);
                    life.stack = if life.stack == StackId::EMPTY { block.stack } else { life.stack };
                    continue;
                }
                let size = if block.requested_size == 0 { block.size } else { block.requested_size };
                let (address, stack) = (block.address, block.stack);
                let life = Life { address, size, stream: segment.stream, stack, begin: None, end: None };
                self.alive.insert(address, Met::Before(self.before.len()));
                self.before.push(life);
            }
        }
    }

    fn finish(self, reserved_before: u64) -> Timeline {
        let mut order: Vec<usize> = (0..self.before.len()).collect();
        order.sort_by_key(|index| (self.before[*index].address, *index));
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(position, index)| place[*index] = position);
        let before = order.len();
        let number = |met: Met| match met {
            Met::Before(index) => place[index],
            Met::Traced(index) => before + index,
        };
        let life_of_entry = self.life_of_entry.into_iter().map(|met| met.map(number)).collect();
        let mut lives: Vec<Life> = order.iter().map(|index| self.before[*index]).collect();
        lives.extend(self.traced);
        Timeline { lives, before, life_of_entry, reserved_before }
    }
}

fn life(entry: &TraceEntry, begin: Option<usize>) -> Life {
    let TraceEntry { addr: address, size, stream, stack, .. } = *entry;
    Life { address, size, stream, stack, begin, end: None }
}

/// Ranges of addresses that do not overlap.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range, in one with those it touches if they are pages of the same reservation.
    pub(super) fn add(&mut self, mut begin: u64, mut end: u64, joins: bool) {
        if begin >= end {
            return;
        }
        if joins {
            let before = self.0.range(..begin).next_back().map(|(begin, end)| (*begin, *end));
            if let Some((other, _)) = before.filter(|(_, other_end)| *other_end == begin) {
                self.0.remove(&other);
                begin = other;
            }
            if let Some(other_end) = self.0.remove(&end) {
                end = other_end;
            }
        }
        self.0.insert(begin, end);
    }

    /// Takes a range away, from the middle of others too.
    pub(super) fn remove(&mut self, begin: u64, end: u64) {
        let first = self.0.range(..=begin).next_back().map_or(begin, |(first, _)| *first);
        let touched: Vec<(u64, u64)> = self.0.range(first..end.max(first)).map(|(from, to)| (*from, *to)).collect();
        for (from, to) in touched.into_iter().filter(|(_, to)| *to > begin) {
            self.0.remove(&from);
            if from < begin {
                self.0.insert(from, begin);
            }
            if to > end {
                self.0.insert(end, to);
            }
        }
    }

    /// The ranges, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(begin, end)| (*begin, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Block, BlockState, Segment};

    fn entry(action: Action, addr: u64, size: u64) -> TraceEntry {
        TraceEntry { action, addr, size, ..TraceEntry::default() }
    }

    #[test]
    fn lives_are_found_whatever_the_history_leaves_out() {
        let block = |address, state| Block { address, size: 512, requested_size: 100, state, ..Block::default() };
        let snapshot = Snapshot {
            segments: vec![Segment {
                address: 1000,
                total_size: 4096,
                blocks: vec![
                    block(1000, BlockState::ActiveAllocated),
                    block(1512, BlockState::Inactive),
                    block(2024, BlockState::ActivePendingFree),
                ],
                ..Segment::default()
            }],
            device_traces: vec![vec![
                entry(Action::FreeRequested, 1512, 300),
                entry(Action::FreeCompleted, 1512, 300),
                entry(Action::SegmentAlloc, 9000, 1024),
                entry(Action::Alloc, 2024, 100),
                entry(Action::FreeRequested, 2024, 100),
                entry(Action::Alloc, 9000, 50),
                entry(Action::Alloc, 9000, 60),
            ]],
            ..Snapshot::default()
        };
        let timeline = timeline(&snapshot, 0);
        let seen: Vec<_> = timeline.lives.iter().map(|life| (life.address, life.size, life.begin, life.end)).collect();
        assert_eq!(
            seen,
            [
                (1000, 100, None, None),
                (1512, 300, None, Some(1)),
                (2024, 100, Some(3), None),
                (9000, 50, Some(5), Some(6)),
                (9000, 60, Some(6), None)
            ]
        );
        assert_eq!(timeline.before, 2);
        assert_eq!(timeline.life_of_entry, [Some(1), Some(1), None, Some(2), Some(2), Some(3), Some(4)]);
        assert_eq!(timeline.reserved_before, 3072);
    }

    #[test]
    fn ranges_are_joined_and_cut() {
        let mut ranges = Ranges::default();
        ranges.add(10, 20, true);
        ranges.add(30, 40, true);
        ranges.add(20, 30, true);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10, 40)]);
        ranges.add(40, 50, false);
        ranges.remove(15, 45);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10, 15), (45, 50)]);
        ranges.remove(0, 100);
        assert_eq!(ranges.iter().count(), 0);
    }
}
