//! Requests that could not be served, and why.
//!
//! The history says what was asked for and what the device had left. The holes at that moment are found by going back
//! from the end, where the segments are known, so that a history that begins late does no harm.

use std::collections::BTreeMap;
use std::fmt;

use super::report::bytes;
use super::timeline::{Ranges, Timeline, timeline};
use crate::model::{Action, Snapshot, StackId, TraceEntry};

/// For how many of a device's shortages, from the last back, the holes are looked for: each takes as long as there are
/// blocks.
const SEARCHES_MAX: usize = 64;

/// The allocator's unit: what is live takes a multiple of it.
const UNIT: u64 = 512;

/// A request that could not be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The device's index.
    pub device: usize,
    /// The entry of its history.
    pub entry: usize,
    /// When, in microseconds since 1970.
    pub time_us: i64,
    /// Bytes that could not be had, rounded as the allocator does.
    pub requested: u64,
    /// Bytes that the device had left.
    pub device_free: u64,
    /// Bytes in segments.
    pub reserved: u64,
    /// Bytes in use, as asked for.
    pub live: u64,
    /// The holes in the segments; none for shortages long before the last.
    pub holes: Option<Holes>,
    /// Where it happened.
    pub stack: StackId,
}

/// Free memory in segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holes {
    /// Bytes in all.
    pub total: u64,
    /// Bytes in the largest.
    pub largest: u64,
    /// How many.
    pub count: u64,
}

/// Why a request could not be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The device had enough: a limit of the process or of a pool said no.
    Limit,
    /// A cached hole was large enough but belongs to another stream, pool or kind of segment.
    Elsewhere,
    /// The holes together were large enough, no single one was.
    Fragmented,
    /// Holes and what the device had left were large enough together.
    Split,
    /// All of it together was too small.
    Full,
}

impl Shortage {
    /// Why. Without [`Shortage::holes`] what is reserved and not in use counts as one hole of unknown shape.
    #[must_use]
    pub fn reason(&self) -> Reason {
        let holes =
            self.holes.unwrap_or(Holes { total: self.reserved.saturating_sub(self.live), largest: 0, count: 0 });
        if self.device_free >= self.requested {
            Reason::Limit
        } else if holes.largest >= self.requested {
            Reason::Elsewhere
        } else if holes.total >= self.requested {
            Reason::Fragmented
        } else if holes.total.saturating_add(self.device_free) >= self.requested {
            Reason::Split
        } else {
            Reason::Full
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holes = self.holes.unwrap_or_default();
        match self.reason() {
            Reason::Limit => write!(
                f,
                "the device had {} left: a limit of the process or of a pool was reached",
                bytes(self.device_free)
            ),
            Reason::Elsewhere => write!(
                f,
                "a free block of {} was cached, but for another stream, pool or kind of segment",
                bytes(holes.largest)
            ),
            Reason::Fragmented => write!(
                f,
                "fragmentation: {} were free in {} holes, the largest of {}",
                bytes(if self.holes.is_some() { holes.total } else { self.reserved.saturating_sub(self.live) }),
                holes.count,
                bytes(holes.largest)
            ),
            Reason::Split => write!(
                f,
                "the free memory was in two places: {} in cached segments and {} on the device, neither enough",
                bytes(self.reserved.saturating_sub(self.live)),
                bytes(self.device_free)
            ),
            Reason::Full => write!(
                f,
                "the memory was full: {} in use of {} reserved, and {} left on the device",
                bytes(self.live),
                bytes(self.reserved),
                bytes(self.device_free)
            ),
        }
    }
}

/// The shortages of all devices, in order of device and time.
#[must_use]
pub fn shortages(snapshot: &Snapshot) -> Vec<Shortage> {
    let mut all = Vec::new();
    for (device, trace) in snapshot.device_traces.iter().enumerate() {
        if trace.iter().any(|entry| entry.action == Action::OutOfMemory) {
            all.extend(of_device(snapshot, device, trace, &timeline(snapshot, device)));
        }
    }
    all
}

fn of_device(snapshot: &Snapshot, device: usize, trace: &[TraceEntry], timeline: &Timeline) -> Vec<Shortage> {
    let mut state = State::at_the_end(snapshot, device, timeline);
    let mut found = Vec::new();
    for (index, entry) in trace.iter().enumerate().rev() {
        if entry.action == Action::OutOfMemory {
            found.push(Shortage {
                device,
                entry: index,
                time_us: entry.time_us,
                requested: entry.size,
                device_free: entry.device_free,
                reserved: state.reserved,
                live: state.live_bytes,
                holes: (found.len() < SEARCHES_MAX).then(|| state.holes()),
                stack: entry.stack,
            });
        }
        state.undo(index, entry, timeline);
    }
    found.reverse();
    found
}

/// What is reserved and in use at a moment; it moves backwards.
struct State {
    segments: Ranges,
    /// Bytes in use by address.
    live: BTreeMap<u64, u64>,
    live_bytes: u64,
    reserved: u64,
}

impl State {
    fn at_the_end(snapshot: &Snapshot, device: usize, timeline: &Timeline) -> Self {
        let mut state = Self { segments: Ranges::default(), live: BTreeMap::new(), live_bytes: 0, reserved: 0 };
        for segment in snapshot.segments.iter().filter(|segment| segment.device as usize == device) {
            let end = segment.address.saturating_add(segment.total_size);
            state.segments.add(segment.address, end, segment.is_expandable);
            state.reserved = state.reserved.saturating_add(segment.total_size);
        }
        for life in timeline.lives.iter().filter(|life| life.end.is_none()) {
            state.put(life.address, life.size);
        }
        state
    }

    fn put(&mut self, address: u64, size: u64) {
        let before = self.live.insert(address, size).unwrap_or(0);
        self.live_bytes = self.live_bytes.saturating_sub(before).saturating_add(size);
    }

    fn undo(&mut self, index: usize, entry: &TraceEntry, timeline: &Timeline) {
        let end = entry.addr.saturating_add(entry.size);
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                self.segments.remove(entry.addr, end);
                self.reserved = self.reserved.saturating_sub(entry.size);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                self.segments.add(entry.addr, end, entry.action == Action::SegmentUnmap);
                self.reserved = self.reserved.saturating_add(entry.size);
            }
            Action::Alloc => {
                let gone = self.live.remove(&entry.addr).unwrap_or(0);
                self.live_bytes = self.live_bytes.saturating_sub(gone);
            }
            Action::FreeCompleted => {
                if let Some(life) = timeline.life_of_entry.get(index).copied().flatten() {
                    self.put(timeline.lives[life].address, timeline.lives[life].size);
                }
            }
            _ => {}
        }
    }

    fn holes(&self) -> Holes {
        let mut holes = Holes::default();
        let mut hole = |begin: u64, end: u64| {
            let size = end.saturating_sub(begin);
            if size >= UNIT {
                holes = Holes {
                    total: holes.total.saturating_add(size),
                    largest: holes.largest.max(size),
                    count: holes.count + 1,
                };
            }
        };
        let mut live = self.live.iter().peekable();
        for (begin, end) in self.segments.iter() {
            let mut at = begin;
            while let Some((address, size)) = live.next_if(|(address, _)| **address < end) {
                if *address >= at {
                    hole(at, *address);
                }
                let rounded = size.checked_next_multiple_of(UNIT).unwrap_or(*size);
                at = at.max(address.saturating_add(rounded));
            }
            hole(at, end);
        }
        holes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Block, BlockState, Segment};

    const MIB: u64 = 1 << 20;

    fn entry(action: Action, addr: u64, size: u64) -> TraceEntry {
        TraceEntry { action, addr, size, ..TraceEntry::default() }
    }

    /// Twenty MiB with blocks of four, every other one in use; then a request, and afterwards everything is given back.
    fn snapshot(requested: u64, device_free: u64) -> Snapshot {
        let begin = 64 * MIB;
        let mut trace = vec![entry(Action::SegmentAlloc, begin, 20 * MIB)];
        for block in [0, 2, 4] {
            trace.push(entry(Action::Alloc, begin + block * 4 * MIB, 4 * MIB - 100));
        }
        trace.push(TraceEntry { device_free, ..entry(Action::OutOfMemory, 0, requested) });
        for block in [0, 2, 4] {
            trace.push(entry(Action::FreeRequested, begin + block * 4 * MIB, 4 * MIB - 100));
            trace.push(entry(Action::FreeCompleted, begin + block * 4 * MIB, 4 * MIB - 100));
        }
        let free = Block { address: begin, size: 20 * MIB, state: BlockState::Inactive, ..Block::default() };
        let segment = Segment { address: begin, total_size: 20 * MIB, blocks: vec![free], ..Segment::default() };
        Snapshot { segments: vec![segment], device_traces: vec![trace], ..Snapshot::default() }
    }

    #[test]
    fn the_holes_of_the_moment_decide_the_reason() {
        let found = shortages(&snapshot(6 * MIB, MIB));
        let holes = Holes { total: 8 * MIB, largest: 4 * MIB, count: 2 };
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].entry, found[0].holes, found[0].reserved), (4, Some(holes), 20 * MIB));
        assert_eq!(found[0].live, 3 * (4 * MIB - 100));
        assert_eq!(found[0].to_string(), "fragmentation: 8.0 MiB were free in 2 holes, the largest of 4.0 MiB");
        let reason = |requested, device_free| shortages(&snapshot(requested, device_free))[0].reason();
        assert_eq!(reason(6 * MIB, MIB), Reason::Fragmented);
        assert_eq!(reason(3 * MIB, MIB), Reason::Elsewhere);
        assert_eq!(reason(9 * MIB, 2 * MIB), Reason::Split);
        assert_eq!(reason(11 * MIB, 2 * MIB), Reason::Full);
        assert_eq!(reason(11 * MIB, 20 * MIB), Reason::Limit);
    }
}
