//! A pool of stream-ordered memory as books: which parts of a range of addresses are handed out, freed or not backed.
//!
//! Addresses are offsets into the pool's own range, which grows by whole chunks; a chunk is backed by memory from its
//! first use until it is trimmed. The caller puts memory behind chunks and takes it away, and knows which freeing has
//! happened or is ordered before an allocation.
//!
//! Invariants, checked by [`Pool::is_valid`]: blocks do not overlap and lie in backed chunks; `used_bytes` is the sum of
//! what live blocks were asked for, and of what [`Pool::free_at_once`] leaves in it; a high mark is never below its
//! current value.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::codes::{Answer, INVALID_VALUE, OUT_OF_MEMORY};

/// Unit in which a pool takes memory from the device.
pub(crate) const CHUNK: u64 = 32 << 20;

/// Alignment of what is handed out.
const ALIGNMENT: u64 = 512;

/// A freeing that was queued: on which stream, and as which piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freeing {
    pub(crate) stream: u64,
    pub(crate) work: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    /// As asked for; what is taken is the next multiple of the alignment.
    requested_bytes: u64,
    /// Set once it was freed.
    freeing: Option<Freeing>,
}

impl Block {
    fn length(&self) -> u64 {
        self.requested_bytes.next_multiple_of(ALIGNMENT)
    }
}

/// A place found for an allocation. Nothing has changed before [`Pool::commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) offset: u64,
    /// Offsets of the chunks that must be backed first.
    pub(crate) new_chunks: Vec<u64>,
    requested_bytes: u64,
}

/// A value now and its highest since it was last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) current: u64,
    pub(crate) high: u64,
}

impl Mark {
    pub(super) fn set(&mut self, current: u64) {
        self.current = current;
        self.high = self.high.max(current);
    }
}

/// The books of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// Length of the range of addresses, a multiple of the chunk.
    span: u64,
    /// Most memory the pool may take from the device.
    max_bytes: u64,
    /// What the pool keeps when a synchronisation lets it give memory back.
    pub(crate) release_threshold: u64,
    chunks: BTreeSet<u64>,
    blocks: BTreeMap<u64, Block>,
    reserved: Mark,
    used: Mark,
}

impl Pool {
    /// An empty pool with `span` bytes of addresses. The limit counts in chunks; 0 is none.
    pub(crate) fn new(span: u64, max_bytes: u64) -> Self {
        Self {
            span: span / CHUNK * CHUNK,
            max_bytes: max_bytes.checked_next_multiple_of(CHUNK).filter(|&bytes| bytes > 0).unwrap_or(u64::MAX),
            release_threshold: 0,
            chunks: BTreeSet::new(),
            blocks: BTreeMap::new(),
            reserved: Mark::default(),
            used: Mark::default(),
        }
    }

    /// Bytes taken from the device.
    pub(crate) fn reserved(&self) -> Mark {
        self.reserved
    }

    /// Bytes handed out, as they were asked for.
    pub(crate) fn used(&self) -> Mark {
        self.used
    }

    /// Sets the high mark of reserved bytes to what is reserved now.
    pub(crate) fn reset_reserved_high(&mut self) {
        self.reserved.high = self.reserved.current;
    }

    /// Sets the high mark of used bytes to what is used now.
    pub(crate) fn reset_used_high(&mut self) {
        self.used.high = self.used.current;
    }

    /// Number of blocks that are handed out.
    pub(crate) fn live_blocks(&self) -> usize {
        self.blocks.values().filter(|block| block.freeing.is_none()).count()
    }

    /// Finds the lowest place for `bytes`, in backed chunks if there is one, else wherever it fits.
    ///
    /// `may_reuse` says of a freeing whether the new allocation comes after it. `INVALID_VALUE`: no bytes are asked for
    /// (the call itself answers that with success and no address). `OUT_OF_MEMORY`: the pool's limit or its addresses
    /// are exhausted.
    pub(crate) fn place(&self, bytes: u64, may_reuse: &dyn Fn(Freeing) -> bool) -> Answer<Placement> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let length = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(OUT_OF_MEMORY)?;
        let gaps = self.gaps(may_reuse);
        let backed = gaps.iter().find_map(|&gap| self.backed_place(gap, length));
        let place = || gaps.iter().find(|(start, end)| end - start >= length).map(|&(start, _)| start);
        let offset = backed.or_else(place).ok_or(OUT_OF_MEMORY)?;
        let new_chunks: Vec<u64> = chunks_of(offset, length).filter(|chunk| !self.chunks.contains(chunk)).collect();
        let reserved = self.reserved.current.saturating_add((new_chunks.len() as u64).saturating_mul(CHUNK));
        if reserved > self.max_bytes {
            return Err(OUT_OF_MEMORY);
        }
        Ok(Placement { offset, new_chunks, requested_bytes: bytes })
    }

    /// Hands out what [`Pool::place`] found, with no other change in between.
    pub(crate) fn commit(&mut self, placement: Placement) -> u64 {
        let Placement { offset, new_chunks, requested_bytes } = placement;
        let block = Block { requested_bytes, freeing: None };
        let end = offset + block.length();
        self.chunks.extend(new_chunks);
        self.reserved.set(self.chunks.len() as u64 * CHUNK);
        self.forget_freed(offset, end);
        self.blocks.insert(offset, block);
        self.used.set(self.used.current + requested_bytes);
        offset
    }

    /// Frees a block in stream order: it counts as unused at once, and is reused by whoever comes after `freeing`.
    ///
    /// `INVALID_VALUE`: no live block begins there.
    pub(crate) fn free(&mut self, offset: u64, freeing: Freeing) -> Answer {
        let block = self.live_mut(offset)?;
        block.freeing = Some(freeing);
        let requested_bytes = block.requested_bytes;
        self.used.set(self.used.current.saturating_sub(requested_bytes));
        Ok(())
    }

    /// Frees a block after the device has caught up, as cuMemFree does.
    ///
    /// As on hardware (driver 580), the bytes stay in the count of used ones. `INVALID_VALUE`: no live block begins
    /// there.
    pub(crate) fn free_at_once(&mut self, offset: u64) -> Answer {
        self.live_mut(offset)?;
        self.blocks.remove(&offset);
        Ok(())
    }

    /// What a live block was asked for. `INVALID_VALUE`: no live block begins there.
    #[cfg(test)]
    pub(crate) fn requested_bytes(&self, offset: u64) -> Answer<u64> {
        let block = self.blocks.get(&offset).filter(|block| block.freeing.is_none());
        block.map(|block| block.requested_bytes).ok_or(INVALID_VALUE)
    }

    /// Gives chunks without blocks back, the highest first, as long as `keep_bytes` stay reserved.
    ///
    /// `has_happened` says whether a freeing is over. The offsets are those of the chunks that are backed no more.
    pub(crate) fn trim(&mut self, keep_bytes: u64, has_happened: &dyn Fn(Freeing) -> bool) -> Vec<u64> {
        self.blocks.retain(|_, block| !block.freeing.is_some_and(has_happened));
        let mut spare = self.reserved.current.saturating_sub(keep_bytes) / CHUNK;
        let mut given_back = Vec::new();
        for &chunk in self.chunks.iter().rev() {
            if spare > 0 && self.is_unused(chunk) {
                given_back.push(chunk);
                spare -= 1;
            }
        }
        given_back.iter().for_each(|chunk| {
            self.chunks.remove(chunk);
        });
        self.reserved.set(self.chunks.len() as u64 * CHUNK);
        given_back
    }

    fn live_mut(&mut self, offset: u64) -> Answer<&mut Block> {
        self.blocks.get_mut(&offset).filter(|block| block.freeing.is_none()).ok_or(INVALID_VALUE)
    }

    /// Ranges that no block is in the way of, lowest first.
    fn gaps(&self, may_reuse: &dyn Fn(Freeing) -> bool) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut start = 0;
        for (&offset, block) in &self.blocks {
            if !block.freeing.is_some_and(may_reuse) {
                gaps.push((start, offset));
                start = offset + block.length();
            }
        }
        gaps.push((start, self.span));
        gaps
    }

    /// The lowest place in a gap where all chunks are backed.
    fn backed_place(&self, (start, end): (u64, u64), length: u64) -> Option<u64> {
        let mut candidate = start;
        while candidate.checked_add(length)? <= end {
            match chunks_of(candidate, length).filter(|chunk| !self.chunks.contains(chunk)).last() {
                None => return Some(candidate),
                // Beyond the last chunk that misses memory, if there is any memory beyond.
                Some(missing) => {
                    self.chunks.range(missing..).next()?;
                    candidate = missing + CHUNK;
                }
            }
        }
        None
    }

    /// Drops freed blocks that a new one covers; what sticks out on either side is free for the same streams.
    fn forget_freed(&mut self, start: u64, end: u64) {
        let covered: Vec<(u64, Block)> = self
            .blocks
            .range(..end)
            .rev()
            .take_while(|(offset, block)| *offset + block.length() > start)
            .map(|(&offset, &block)| (offset, block))
            .collect();
        for (offset, block) in covered {
            self.blocks.remove(&offset);
            let block_end = offset + block.length();
            for (from, to) in [(offset, start), (end, block_end)] {
                if from < to {
                    self.blocks.insert(from, Block { requested_bytes: to - from, freeing: block.freeing });
                }
            }
        }
    }

    fn is_unused(&self, chunk: u64) -> bool {
        let last = self.blocks.range(..chunk + CHUNK).next_back();
        last.is_none_or(|(&offset, block)| offset + block.length() <= chunk)
    }

    /// Whether the invariants of the module hold.
    #[cfg(test)]
    pub(crate) fn is_valid(&self) -> bool {
        let mut end = 0;
        let blocks_are_valid = self.blocks.iter().all(|(&offset, block)| {
            let apart = offset >= std::mem::replace(&mut end, offset + block.length());
            let backed = chunks_of(offset, block.length()).all(|chunk| self.chunks.contains(&chunk));
            apart && backed && offset.is_multiple_of(ALIGNMENT)
        });
        let live: u64 =
            self.blocks.values().filter(|block| block.freeing.is_none()).map(|block| block.requested_bytes).sum();
        let marks_are_valid = self.reserved.current == self.chunks.len() as u64 * CHUNK
            && self.used.current >= live
            && self.reserved.high >= self.reserved.current
            && self.used.high >= self.used.current;
        blocks_are_valid && marks_are_valid && end <= self.span && self.reserved.current <= self.max_bytes
    }
}

/// Offsets of the chunks that a range touches.
pub(super) fn chunks_of(offset: u64, length: u64) -> impl Iterator<Item = u64> {
    let (first, last) = (offset / CHUNK, (offset + length - 1) / CHUNK);
    (first..=last).map(|index| index * CHUNK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn pool() -> Pool {
        Pool::new(1 << 40, 0)
    }

    fn freeing(stream: u64) -> Freeing {
        Freeing { stream, work: 1 }
    }

    fn allocate(pool: &mut Pool, bytes: u64) -> u64 {
        allocate_after(pool, bytes, &|_| true)
    }

    fn allocate_after(pool: &mut Pool, bytes: u64, may_reuse: &dyn Fn(Freeing) -> bool) -> u64 {
        let placement = pool.place(bytes, may_reuse).expect("fits");
        let offset = pool.commit(placement);
        assert!(pool.is_valid());
        offset
    }

    fn mark(current: u64, high: u64) -> Mark {
        Mark { current, high }
    }

    #[test]
    fn memory_is_taken_by_chunks_and_used_as_asked_for() {
        let mut pool = pool();
        let first = allocate(&mut pool, 100);
        assert_eq!((pool.reserved(), pool.used()), (mark(CHUNK, CHUNK), mark(100, 100)));
        let second = allocate(&mut pool, MIB);
        assert_eq!(second - first, 512);
        allocate(&mut pool, 40 * MIB);
        assert_eq!((pool.reserved().current, pool.used().current), (2 * CHUNK, 41 * MIB + 100));
        assert_eq!(pool.requested_bytes(first), Ok(100));
        assert_eq!(pool.requested_bytes(first + 1), Err(INVALID_VALUE));
        assert_eq!(pool.place(0, &|_| true), Err(INVALID_VALUE));
        assert_eq!(pool.place(u64::MAX, &|_| true), Err(OUT_OF_MEMORY));
        assert_eq!(pool.live_blocks(), 3);
    }

    #[test]
    fn holes_are_filled_from_below() {
        let mut pool = pool();
        let blocks: Vec<u64> = (0..4).map(|_| allocate(&mut pool, 10 * MIB)).collect();
        assert_eq!(blocks, [0, 10 * MIB, 20 * MIB, 30 * MIB]);
        pool.free(blocks[1], freeing(1)).expect("live");
        assert_eq!(pool.trim(0, &|_| true), []);
        assert_eq!(allocate(&mut pool, 20 * MIB), 40 * MIB);
        assert_eq!(allocate(&mut pool, 5 * MIB), 10 * MIB);
        assert_eq!(pool.reserved().current, 2 * CHUNK);
    }

    #[test]
    fn a_synchronisation_gives_back_whole_chunks() {
        let mut pool = pool();
        let large = allocate(&mut pool, 70 * MIB);
        pool.free(large, freeing(1)).expect("live");
        assert_eq!(pool.used(), mark(0, 70 * MIB));
        let small = allocate(&mut pool, MIB);
        assert_eq!(small, large);
        assert_eq!((pool.reserved().current, pool.used()), (3 * CHUNK, mark(MIB, 70 * MIB)));
        assert_eq!(pool.trim(0, &|_| true), [2 * CHUNK, CHUNK]);
        assert_eq!(pool.reserved(), mark(CHUNK, 3 * CHUNK));
        pool.free(small, freeing(1)).expect("live");
        assert_eq!(pool.free(small, freeing(1)), Err(INVALID_VALUE));
        assert_eq!(pool.trim(0, &|_| false), []);
        assert_eq!(pool.trim(0, &|_| true), [0]);
        assert_eq!(pool.reserved(), mark(0, 3 * CHUNK));
        pool.reset_reserved_high();
        pool.reset_used_high();
        assert_eq!((pool.reserved(), pool.used()), (mark(0, 0), mark(0, 0)));
        assert!(pool.is_valid());
    }

    #[test]
    fn trimming_keeps_at_least_what_it_is_told_to() {
        let mut pool = pool();
        let block = allocate(&mut pool, 40 * MIB);
        pool.free(block, freeing(1)).expect("live");
        pool.trim(u64::MAX, &|_| true);
        assert_eq!(pool.reserved().current, 2 * CHUNK);
        pool.trim(16 * MIB, &|_| true);
        assert_eq!(pool.reserved().current, CHUNK);
        pool.trim(0, &|_| true);
        assert_eq!(pool.reserved().current, 0);
    }

    #[test]
    fn only_what_comes_after_a_freeing_reuses_it() {
        let mut pool = pool();
        let block = allocate(&mut pool, 4 * MIB);
        pool.free(block, freeing(7)).expect("live");
        let other = allocate_after(&mut pool, 4 * MIB, &|freed| freed.stream == 8);
        assert_ne!(other, block);
        let part = allocate_after(&mut pool, MIB, &|freed| freed.stream == 7);
        assert_eq!(part, block);
        // What is left of the freed block still belongs to the stream that freed it.
        assert_ne!(allocate_after(&mut pool, 3 * MIB, &|freed| freed.stream == 8), block + MIB);
        assert_eq!(allocate_after(&mut pool, 3 * MIB, &|freed| freed.stream == 7), block + MIB);
    }

    #[test]
    fn freeing_at_once_leaves_the_count_of_used_bytes() {
        let mut pool = pool();
        let block = allocate(&mut pool, MIB);
        assert_eq!(pool.free_at_once(block), Ok(()));
        assert_eq!(pool.free_at_once(block), Err(INVALID_VALUE));
        assert_eq!(pool.trim(0, &|_| true), [0]);
        assert_eq!((pool.reserved().current, pool.used().current), (0, MIB));
        assert_eq!(allocate(&mut pool, MIB), block);
        assert_eq!(pool.used(), mark(2 * MIB, 2 * MIB));
    }

    #[test]
    fn limits() {
        let mut pool = Pool::new(1 << 40, 33 * MIB);
        assert_eq!(pool.place(65 * MIB, &|_| true), Err(OUT_OF_MEMORY));
        allocate(&mut pool, 33 * MIB);
        assert_eq!(pool.place(32 * MIB, &|_| true), Err(OUT_OF_MEMORY));
        let mut pool = Pool::new(CHUNK, 0);
        allocate(&mut pool, CHUNK);
        assert_eq!(pool.place(1, &|_| true), Err(OUT_OF_MEMORY));
    }

    #[test]
    fn chunks_in_the_middle_are_backed_again_only_when_needed() {
        let mut pool = pool();
        let blocks: Vec<u64> = (0..3).map(|_| allocate(&mut pool, CHUNK)).collect();
        pool.free(blocks[1], freeing(1)).expect("live");
        assert_eq!(pool.trim(0, &|_| true), [CHUNK]);
        pool.free(blocks[2], freeing(1)).expect("live");
        assert_eq!(allocate(&mut pool, MIB), 2 * CHUNK);
        assert_eq!(allocate(&mut pool, CHUNK), CHUNK);
        assert_eq!(pool.reserved(), mark(3 * CHUNK, 3 * CHUNK));
    }

    proptest! {
        /// Blocks of random sizes on three streams, each reusing only its own: no two live ones ever overlap.
        #[test]
        fn books_balance(steps in prop::collection::vec((0..4u8, 1..(40 * MIB), 0..3u64), 0..80)) {
            let mut pool = pool();
            let mut live: Vec<(u64, u64, u64)> = Vec::new();
            for (what, bytes, stream) in steps {
                match what {
                    0 | 1 => {
                        let offset = allocate_after(&mut pool, bytes, &|freed| freed.stream == stream);
                        prop_assert!(live.iter().all(|&(o, b, _)| o + b <= offset || offset + bytes <= o));
                        live.push((offset, bytes, stream));
                    }
                    2 if !live.is_empty() => {
                        let index = usize::try_from(bytes).expect("small") % live.len();
                        let (offset, _, stream) = live.swap_remove(index);
                        prop_assert_eq!(pool.free(offset, freeing(stream)), Ok(()));
                    }
                    _ => {
                        pool.trim(bytes, &|freed| freed.stream == stream);
                        let spare = pool.reserved().current.saturating_sub(bytes);
                        prop_assert!(spare < CHUNK || !live.is_empty() || pool.blocks.len() > live.len());
                    }
                }
                prop_assert!(pool.is_valid());
                prop_assert_eq!(pool.used().current, live.iter().map(|&(_, bytes, _)| bytes).sum::<u64>());
                prop_assert_eq!(pool.live_blocks(), live.len());
            }
        }
    }
}
