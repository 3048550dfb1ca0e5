//! Which bytes were accessed by whom.
//!
//! **Invariants:** cells do not overlap, and each has its accesses in the order in which they were made. An access stays
//! until one comes after it that conflicts with all that it conflicts with: then whatever is not after the older one is not
//! after the newer one either, and is told of that one. So a stream has at most one write and one read in a cell.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::trace::{Stack, TraceAccess};

use super::access::{Access, Race, Use};
use super::order::Order;
use super::worlds::{Memory, Worlds};

/// Allocated block of device memory.
#[derive(Debug)]
pub(super) struct Block {
    end: u64,
    /// Sequence number of the last work before the allocation.
    after: u64,
    stack: Option<Arc<Stack>>,
}

/// The bytes that were accessed.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// By the first byte.
    cells: BTreeMap<u64, Cell>,
}

#[derive(Clone, Debug)]
struct Cell {
    end: u64,
    accesses: Vec<Arc<Access>>,
}

/// A part of an access that races with an earlier one.
#[derive(Debug)]
pub(super) struct Overlap {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) previous: Arc<Access>,
}

impl Cell {
    /// Notes an access, and adds races to `overlaps`.
    fn access(&mut self, start: u64, access: &Arc<Access>, order: &Order, overlaps: &mut Vec<Overlap>) {
        let end = self.end;
        self.accesses.retain(|earlier| {
            let is_after = order.is_after(access.agent, earlier.epoch());
            if !is_after && (access.is_write || earlier.is_write) {
                note(overlaps, start, end, earlier);
            }
            !is_after || (earlier.is_write && !access.is_write)
        });
        self.accesses.push(Arc::clone(access));
    }

    fn has_same(&self, other: &Self) -> bool {
        self.accesses.len() == other.accesses.len()
            && self.accesses.iter().zip(&other.accesses).all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

/// Adds a part to what is known of the race with an earlier access.
#[cold]
fn note(overlaps: &mut Vec<Overlap>, start: u64, end: u64, previous: &Arc<Access>) {
    match overlaps.iter_mut().find(|known| Arc::ptr_eq(&known.previous, previous)) {
        Some(known) => known.bytes += end - start,
        None => overlaps.push(Overlap { start, bytes: end - start, previous: Arc::clone(previous) }),
    }
}

impl Ranges {
    /// Notes an access to bytes, and returns the earlier ones that it races with.
    pub(super) fn access(&mut self, start: u64, size: u64, access: &Arc<Access>, order: &Order) -> Vec<Overlap> {
        let (end, mut overlaps) = (start.saturating_add(size), Vec::new());
        if let Some(cell) = self.cells.get_mut(&start).filter(|cell| cell.end == end) {
            cell.access(start, access, order, &mut overlaps);
            return overlaps;
        }
        self.split(start);
        self.split(end);
        let (mut gaps, mut next) = (Vec::new(), start);
        for (&from, cell) in self.cells.range_mut(start..end) {
            if next < from {
                gaps.push(next..from);
            }
            next = cell.end;
            cell.access(from, access, order, &mut overlaps);
        }
        if next < end {
            gaps.push(next..end);
        }
        for gap in gaps {
            self.cells.insert(gap.start, Cell { end: gap.end, accesses: vec![Arc::clone(access)] });
        }
        self.merge(start, end);
        overlaps
    }

    /// Makes a cell that has an address inside two.
    fn split(&mut self, at: u64) {
        let Some((_, cell)) = self.cells.range_mut(..at).next_back() else { return };
        if cell.end > at {
            let upper = cell.clone();
            cell.end = at;
            self.cells.insert(at, upper);
        }
    }

    /// Makes neighbours with the same accesses one.
    fn merge(&mut self, start: u64, end: u64) {
        let mut last: Option<u64> = None;
        let starts: Vec<u64> = self.cells.range(start..end).map(|(&from, _)| from).collect();
        for from in starts {
            let Some(before) = last.and_then(|before| self.cells.get(&before)) else {
                last = Some(from);
                continue;
            };
            let cell = &self.cells[&from];
            if before.end == from && before.has_same(cell) {
                let end = cell.end;
                self.cells.remove(&from);
                if let Some(before) = last.and_then(|before| self.cells.get_mut(&before)) {
                    before.end = end;
                }
            } else {
                last = Some(from);
            }
        }
    }

    /// Forgets what was done to bytes.
    pub(super) fn forget(&mut self, start: u64, size: u64) {
        let end = start.saturating_add(size);
        self.split(start);
        self.split(end);
        let gone: Vec<u64> = self.cells.range(start..end).map(|(&from, _)| from).collect();
        gone.iter().for_each(|from| drop(self.cells.remove(from)));
    }
}

impl Memory for Ranges {
    type Blocks = BTreeMap<u64, Block>;

    fn uses(accesses: &[TraceAccess]) -> Vec<Use> {
        accesses.iter().filter(|access| access.size > 0).map(Use::from).collect()
    }

    fn of_graph(recorded: Vec<Use>) -> Vec<Use> {
        recorded
    }

    fn note(&mut self, blocks: &Self::Blocks, used: &Use, access: &Arc<Access>, order: &Order, races: &mut Vec<Race>) {
        for overlap in self.access(used.start, used.size, access, order) {
            let block = blocks.range(..=overlap.start).next_back().map(|(_, block)| block);
            let block = block.filter(|block| overlap.start < block.end);
            races.push(Race {
                address: overlap.start,
                bytes: Some(overlap.bytes),
                is_reused: block.is_some_and(|block| overlap.previous.work <= block.after),
                allocation: block.and_then(|block| block.stack.clone()),
                current: Arc::clone(access),
                previous: overlap.previous,
            });
        }
    }
}

impl Worlds<Ranges> {
    /// Notes an allocation made after work number `after`.
    pub(super) fn allocate(&mut self, address: u64, size: u64, after: u64, stack: Option<Arc<Stack>>) {
        self.blocks.insert(address, Block { end: address.saturating_add(size), after, stack });
    }

    /// Notes that memory was released to the driver, which waits for all work that uses it.
    pub(super) fn unmap(&mut self, address: u64, size: u64) {
        self.live_memory().forget(address, size);
        let gone: Vec<u64> = self.blocks.range(address..address.saturating_add(size)).map(|(&from, _)| from).collect();
        gone.iter().for_each(|from| drop(self.blocks.remove(from)));
    }
}
