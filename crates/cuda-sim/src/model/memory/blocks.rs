//! Blocks that an allocator of the program has cut out of its memory, as far as it tells of them.
//!
//! An allocation or reservation in which a block was ever told of is a *segment*: work has no business in it outside of
//! blocks. Work counts as of the moment when it was queued, since such allocators give memory back while work that uses it
//! is still queued: it may touch a block that was handed out then and not given back.
//!
//! Blocks that were handed out during a capture stay the graph's: whoever gives one back, a replay writes to it again. So
//! they are *kept* until their memory goes. Where kept blocks lie next to each other they are one.
//!
//! **Invariants:** live blocks do not overlap, nor do kept ranges; a block that is gone is remembered while work is queued
//! that may touch it, and the last ones longer, for what is said of accesses to them.

use std::collections::{BTreeMap, VecDeque};

use ptx_sim::{FindingKind, Notice};

use crate::model::engine::OpId;

/// Blocks that are remembered though no work may touch them any more.
const REMEMBERED: usize = 512;

/// Between the end of a block and a multiple of this no other block begins.
const PADDING: u64 = 512;

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    base: u64,
    length: u64,
    /// The first work that may touch it.
    born: OpId,
}

impl Block {
    fn end(&self) -> u64 {
        self.base + self.length
    }

    fn covers(&self, address: u64, length: u64) -> bool {
        self.base <= address && address.saturating_add(length) <= self.end()
    }

    /// Bytes between an address and the block.
    fn distance(&self, address: u64) -> u64 {
        self.base.saturating_sub(address).max(address.saturating_sub(self.end()))
    }
}

/// A block that was given back.
#[derive(Clone, Copy, Debug)]
struct Gone {
    block: Block,
    /// The first work that may not touch it any more.
    died: OpId,
}

/// Everything that was told.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Lengths by first address.
    segments: BTreeMap<u64, u64>,
    live: BTreeMap<u64, Block>,
    /// In the order in which they were given back.
    gone: VecDeque<Gone>,
    /// Lengths of kept ranges by first address.
    kept: BTreeMap<u64, u64>,
}

impl Blocks {
    /// A block was handed out of a segment. `born`: the next work that will be queued.
    pub(crate) fn hand_out(&mut self, segment: (u64, u64), base: u64, length: u64, born: OpId, is_kept: bool) {
        self.segments.insert(segment.0, segment.1);
        let block = Block { base, length, born };
        let overlapping: Vec<u64> =
            self.live.range(..block.end()).rev().take_while(|(_, live)| live.end() > base).map(|(&at, _)| at).collect();
        for at in overlapping {
            self.end(at, born);
        }
        self.live.insert(base, block);
        if is_kept {
            self.keep(base, length);
        }
    }

    /// A block was given back. `died`: the next work that will be queued; `oldest`: the first that is not done.
    pub(crate) fn give_back(&mut self, base: u64, died: OpId, oldest: OpId) {
        self.end(base, died);
        while self.gone.len() > REMEMBERED && self.gone.front().is_some_and(|gone| gone.died <= oldest) {
            self.gone.pop_front();
        }
    }

    fn end(&mut self, base: u64, died: OpId) {
        self.gone.extend(self.live.remove(&base).map(|block| Gone { block, died }));
    }

    fn keep(&mut self, base: u64, length: u64) {
        let (mut start, mut end) = (base, (base + length).next_multiple_of(PADDING));
        while let Some((&before, &length)) = self.kept.range(..=end).next_back().filter(|(at, of)| *at + **of >= start)
        {
            self.kept.remove(&before);
            (start, end) = (start.min(before), end.max(before + length));
        }
        self.kept.insert(start, end - start);
    }

    /// The segment that begins at an address goes, with all that was told of it.
    pub(crate) fn forget_segment(&mut self, base: u64) {
        let Some(length) = self.segments.remove(&base) else { return };
        let end = base + length;
        let inside = |at: &u64| (base..end).contains(at);
        self.live.retain(|at, _| !inside(at));
        self.gone.retain(|gone| !inside(&gone.block.base));
        self.unkeep(base, end);
    }

    /// The memory behind a part of a segment goes.
    pub(crate) fn unkeep(&mut self, base: u64, end: u64) {
        let cut: Vec<(u64, u64)> =
            self.kept.range(..end).rev().map(|(&at, &of)| (at, at + of)).take_while(|(_, last)| *last > base).collect();
        for (start, last) in cut {
            self.kept.remove(&start);
            for (from, to) in [(start, base), (end, last)] {
                if from < to {
                    self.kept.insert(from, to - from);
                }
            }
        }
    }

    /// Whether an address lies in a segment.
    pub(crate) fn is_segment(&self, address: u64) -> bool {
        self.segments.range(..=address).next_back().is_some_and(|(base, length)| address - base < *length)
    }

    /// The range around an address of a segment that work may touch: a block, or a kept range.
    pub(crate) fn range_at(&self, address: u64, work: OpId) -> Option<(u64, u64)> {
        if let Some(block) = self.block_at(address, 1, work) {
            return Some((block.base, block.length));
        }
        let (&base, &length) = self.kept.range(..=address).next_back()?;
        (address - base < length).then_some((base, length))
    }

    fn block_at(&self, address: u64, length: u64, work: OpId) -> Option<Block> {
        let live = self.live.range(..=address).next_back().map(|(_, block)| *block);
        let had = |gone: &&Gone| gone.died > work && gone.block.covers(address, length) && gone.block.born <= work;
        live.filter(|block| block.covers(address, length) && block.born <= work)
            .or_else(|| self.gone.iter().rev().find(had).map(|gone| gone.block))
    }

    /// What is wrong with an access of work to a segment: its verb and length come first in the text.
    pub(crate) fn wrong(&self, verb: &str, address: u64, length: u64, work: OpId) -> Option<Notice> {
        if !self.is_segment(address) || self.block_at(address, length, work).is_some() {
            return None;
        }
        let is_kept = self.kept.range(..=address).next_back();
        if is_kept.is_some_and(|(base, of)| address.saturating_add(length) <= base + of) {
            return None;
        }
        let nearest = self.nearest(address, work);
        let is_behind =
            |block: &Block| address + length > block.base && address < block.end().next_multiple_of(PADDING);
        let gone = self.gone.iter().rev().find(|gone| gone.block.covers(address, 1)).map(|gone| gone.block);
        let (kind, place) = match (nearest, gone) {
            (Some(block), _) if is_behind(&block) => (FindingKind::OutOfBounds, place_beside(&block, address)),
            (nearest, Some(gone)) => {
                let inside = format!(
                    "at byte {} of a block of {} bytes at {:#x}, which was given back",
                    address - gone.base,
                    gone.length,
                    gone.base
                );
                let nearest = nearest.map_or(String::new(), |block| format!("; {}", place_beside(&block, address)));
                (FindingKind::UseAfterFree, inside + &nearest)
            }
            (Some(block), None) => (FindingKind::OutOfBounds, place_beside(&block, address)),
            (None, None) => (FindingKind::OutOfBounds, "where no block is handed out".to_owned()),
        };
        Some(Notice { kind, text: format!("{verb} {length} bytes, {place}") })
    }

    /// The block that work may touch and that is nearest to an address, in the same segment.
    fn nearest(&self, address: u64, work: OpId) -> Option<Block> {
        let (&start, &length) = self.segments.range(..=address).next_back()?;
        let mine = |block: &&Block| block.born <= work;
        let before = self.live.range(start..=address).rev().map(|(_, block)| block).find(mine);
        let behind = self.live.range(address..start + length).map(|(_, block)| block).find(mine);
        before.into_iter().chain(behind).min_by_key(|block| block.distance(address)).copied()
    }
}

/// Where an address is, seen from a block.
fn place_beside(block: &Block, address: u64) -> String {
    let Block { base, length, .. } = *block;
    let described = format!("the nearest block, of {length} bytes at {base:#x}");
    match address.checked_sub(block.end()) {
        Some(past) => format!("{past} bytes past the end of {described}"),
        None if address < base => format!("{} bytes before {described}", base - address),
        None => format!("across the end of {described}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: (u64, u64) = (0x20_0000, 0x20_0000);

    fn kind(blocks: &Blocks, address: u64, work: u64) -> Option<FindingKind> {
        blocks.wrong("reads", address, 4, OpId(work)).map(|notice| notice.kind)
    }

    #[test]
    fn work_may_touch_what_was_handed_out_when_it_was_queued() {
        let mut blocks = Blocks::default();
        let base = SEGMENT.0 + 0x1000;
        blocks.hand_out(SEGMENT, base, 100, OpId(5), false);
        assert_eq!((kind(&blocks, base, 4), kind(&blocks, base, 5)), (Some(FindingKind::OutOfBounds), None));
        blocks.give_back(base, OpId(7), OpId(5));
        assert_eq!((kind(&blocks, base, 6), kind(&blocks, base, 7)), (None, Some(FindingKind::UseAfterFree)));
        blocks.hand_out(SEGMENT, base, 50, OpId(8), false);
        assert_eq!((blocks.range_at(base, OpId(6)), blocks.range_at(base, OpId(7))), (Some((base, 100)), None));
        assert_eq!(blocks.range_at(base, OpId(8)), Some((base, 50)));
    }

    #[test]
    fn what_is_wrong_names_the_nearest_block() {
        let mut blocks = Blocks::default();
        let (low, high) = (SEGMENT.0 + 0x1000, SEGMENT.0 + 0x2000);
        blocks.hand_out(SEGMENT, low, 100, OpId(1), false);
        blocks.hand_out(SEGMENT, high, 64, OpId(1), false);
        let text = |address| blocks.wrong("writes", address, 4, OpId(1)).map(|notice| notice.text);
        let past = "writes 4 bytes, 0 bytes past the end of the nearest block, of 100 bytes at 0x201000";
        assert_eq!(text(low + 100).as_deref(), Some(past));
        let before = "writes 4 bytes, 4 bytes before the nearest block, of 64 bytes at 0x202000";
        assert_eq!(text(high - 4).as_deref(), Some(before));
        let across = "writes 4 bytes, across the end of the nearest block, of 100 bytes at 0x201000";
        assert_eq!(text(low + 98).as_deref(), Some(across));
        assert_eq!((text(low), text(SEGMENT.0 + SEGMENT.1)), (None, None));
    }

    #[test]
    fn what_graphs_have_is_kept_until_its_memory_goes() {
        let mut blocks = Blocks::default();
        blocks.hand_out(SEGMENT, SEGMENT.0, 1000, OpId(1), true);
        blocks.hand_out(SEGMENT, SEGMENT.0 + 1024, 1000, OpId(1), true);
        blocks.give_back(SEGMENT.0, OpId(2), OpId(2));
        blocks.give_back(SEGMENT.0 + 1024, OpId(2), OpId(2));
        assert_eq!(blocks.range_at(SEGMENT.0 + 1500, OpId(9)), Some((SEGMENT.0, 2048)));
        assert_eq!((kind(&blocks, SEGMENT.0 + 8, 9), kind(&blocks, SEGMENT.0 + 4096, 9).is_some()), (None, true));
        blocks.unkeep(SEGMENT.0 + 512, SEGMENT.0 + 1024);
        assert_eq!(kind(&blocks, SEGMENT.0 + 600, 9), Some(FindingKind::UseAfterFree));
        assert_eq!((kind(&blocks, SEGMENT.0, 9), kind(&blocks, SEGMENT.0 + 1024, 9)), (None, None));
        blocks.forget_segment(SEGMENT.0);
        assert!(!blocks.is_segment(SEGMENT.0) && blocks.kept.is_empty() && blocks.gone.is_empty());
    }
}
