//! The free set of a shard: exact best fit by (size, address).
//!
//! Free blocks lie in bins by size: one for each multiple of 512 below 32 KiB, and 64 for each power of two from there.
//! Two levels of bits say which bins hold anything, so the first bin that can serve a size is found by two bit
//! operations. A bin knows its first block; nearly always that is the only one, or the one that is asked for. Where
//! there are several they are in a tree beside it.
//!
//! **Invariants:** a bin's bit is set exactly when it has a first block; a summary bit exactly when its word is not 0.
//! A bin has a tree exactly when it holds several blocks. A block's size and address do not change while it is in a bin.

use std::hint::select_unpredictable;

use crate::caching::block::{Blocks, Index, NONE};
use crate::caching::freeset::tree::{Left, NodeIndex, Trees};

/// Bins of each power of two; sizes below so many units have a bin each.
const PER_OCTAVE: usize = 64;
/// Blocks of a bin below this one are of one size.
const ALIKE: usize = 2 * PER_OCTAVE;
/// Words of bits, as many as one word of summary can tell of: more than the greatest size needs.
const WORDS: usize = 64;

/// The bin of a size.
#[inline]
fn bin_of(size: u64) -> usize {
    let units = (size >> 9) as usize;
    // The bits of a size that its bin does not tell.
    let shift = (units | PER_OCTAVE).ilog2() as usize - PER_OCTAVE.ilog2() as usize;
    (units >> shift) + shift * PER_OCTAVE
}

/// The set.
#[derive(Debug)]
pub(crate) struct Bins {
    /// The first block of each bin, or [`NONE`]; up to the largest bin used so far.
    firsts: Vec<Index>,
    /// The tree of all blocks of a bin if they are several, otherwise [`NONE`]; for the same bins.
    roots: Vec<NodeIndex>,
    trees: Trees,
    words: [u64; WORDS],
    summary: u64,
    len: usize,
}

impl Bins {
    pub(crate) fn new() -> Self {
        Self { firsts: Vec::new(), roots: Vec::new(), trees: Trees::new(), words: [0; WORDS], summary: 0, len: 0 }
    }

    /// Number of free blocks.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts a block in.
    #[inline]
    pub(crate) fn insert(&mut self, blocks: &mut Blocks, index: Index) {
        let block = blocks.get_mut(index);
        let bin = bin_of(block.size);
        self.len += 1;
        match self.firsts.get_mut(bin) {
            Some(first) if *first == NONE => {
                block.seat = NONE;
                *first = index;
                self.words[bin / 64 % WORDS] |= 1 << (bin % 64);
                self.summary |= 1 << (bin / 64);
            }
            _ => self.join(blocks, bin, index),
        }
    }

    /// Puts a block into a bin that holds others, or is not there yet.
    #[inline(never)]
    fn join(&mut self, blocks: &mut Blocks, bin: usize, index: Index) {
        let Some(root) = self.roots.get_mut(bin) else {
            self.widen(bin);
            self.len -= 1;
            return self.insert(blocks, index);
        };
        let first = &mut self.firsts[bin];
        if *root == NONE {
            (*root, *first) = self.trees.pair(blocks, *first, index);
        } else {
            let (now, is_first) = self.trees.insert(blocks, *root, index, bin < ALIKE);
            *root = now;
            *first = select_unpredictable(is_first, index, *first);
        }
    }

    #[cold]
    fn widen(&mut self, bin: usize) {
        for bins in [&mut self.firsts, &mut self.roots] {
            bins.reserve_exact(bin + 1 - bins.len());
            bins.resize(bin + 1, NONE);
        }
    }

    /// Takes a block out; before its size or address changes.
    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, index: Index) {
        let block = blocks.get(index);
        let bin = bin_of(block.size);
        self.len -= 1;
        if block.seat == NONE {
            debug_assert_eq!(self.firsts[bin], index, "a free block was not in its bin");
            self.firsts[bin] = NONE;
            let word = &mut self.words[bin / 64 % WORDS];
            *word &= !(1 << (bin % 64));
            self.summary &= !(u64::from(*word == 0) << (bin / 64));
        } else {
            self.leave(blocks, bin, index);
        }
    }

    /// Takes a block out of a bin that holds others.
    #[inline(never)]
    fn leave(&mut self, blocks: &mut Blocks, bin: usize, index: Index) {
        let (root, first) = (&mut self.roots[bin], &mut self.firsts[bin]);
        (*root, *first) = match self.trees.remove(blocks, *root, index) {
            Left::One(first) => (NONE, first),
            Left::More(root) => (root, self.trees.first_after(root, index, *first)),
        };
    }

    /// The smallest block of at least `size` bytes, of these the one at the lowest address.
    #[inline]
    pub(crate) fn best_fit(&self, blocks: &Blocks, size: u64) -> Index {
        let bin = bin_of(size);
        let first = self.first_from(bin);
        match blocks.find(first) {
            Some(block) if block.size < size => self.later_fit(bin, size),
            _ => first,
        }
    }

    /// The same where the first block of a size's own bin is too small.
    #[inline(never)]
    fn later_fit(&self, bin: usize, size: u64) -> Index {
        let root = self.roots[bin];
        let found = if root == NONE { None } else { self.trees.lower_bound(root, size) };
        found.unwrap_or_else(|| self.first_from(bin + 1))
    }

    /// The first block of the first bin from that one on that holds anything.
    #[inline]
    fn first_from(&self, bin: usize) -> Index {
        let word = bin / 64 % WORDS;
        let mask = u64::MAX << (bin % 64);
        let here = self.words[word] & mask;
        // The words that hold anything from there on: whether it is the first one need not be guessed.
        let words = self.summary & (u64::MAX << word << 1) | u64::from(here != 0) << word;
        if words == 0 {
            return NONE;
        }
        let found = words.trailing_zeros() as usize;
        let bits = self.words[found] & select_unpredictable(found == word, mask, u64::MAX);
        self.firsts.get(found * 64 + bits.trailing_zeros() as usize).copied().unwrap_or(NONE)
    }

    /// The block after one, in order of size and address.
    pub(crate) fn after(&self, blocks: &Blocks, index: Index) -> Index {
        let next = self.trees.after(blocks, index);
        next.unwrap_or_else(|| self.first_from(bin_of(blocks.get(index).size) + 1))
    }

    /// All blocks in order of size and address.
    pub(crate) fn iter<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = Index> + 'a {
        let some = |index: Index| (index != NONE).then_some(index);
        std::iter::successors(some(self.first_from(0)), move |index| some(self.after(blocks, *index)))
    }

    /// Whether the block can be reached as what it is.
    pub(crate) fn contains(&self, blocks: &Blocks, index: Index) -> bool {
        let block = blocks.get(index);
        let bin = bin_of(block.size);
        let (Some(first), Some(root)) = (self.firsts.get(bin), self.roots.get(bin)) else { return false };
        let found = if block.seat == NONE {
            *first == index && *root == NONE
        } else {
            self.trees.root_of(blocks, index) == Some(*root) && *first == self.trees.first(*root)
        };
        let bit = self.words[bin / 64] >> (bin % 64) & 1;
        found && bit == 1 && self.summary >> (bin / 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::caching::block::Block;
    use crate::caching::block::SizeClass;

    #[test]
    fn bins_are_ordered_by_size_and_in_range() {
        let mut before = 0;
        for size in (512..8 << 20).step_by(512).chain((23..=63).map(|bits| 1 << bits)).chain([u64::MAX]) {
            let bin = bin_of(size);
            assert!(bin >= before && bin + 1 < WORDS * 64, "{size}: {before} {bin}");
            before = bin;
        }
    }

    #[test]
    fn small_sizes_have_a_bin_each_and_powers_of_two_64() {
        let expected = |size: u64| {
            let units = (size >> 9) as usize;
            if units < 64 {
                return units;
            }
            let octave = units.ilog2() as usize - 6;
            64 + octave * 64 + (units >> octave & 63)
        };
        let powers = (15..=60).flat_map(|bits| [(1 << bits) - 512, 1 << bits, (1 << bits) + 512]);
        for size in (512..=64 << 20).step_by(512).chain(powers) {
            assert_eq!(bin_of(size), expected(size), "{size}");
        }
    }

    #[test]
    fn huge_sizes_are_told_apart() {
        let mut pair = Pair::new(1);
        for bits in [40, 47, 50, 50, 52, 60] {
            let before = pair.set.len() as u64 * 512;
            pair.insert((1 << 62) + before, (1 << bits) + before);
        }
        pair.check_all();
        for bits in 39..=63 {
            pair.check_fit(1 << bits);
        }
    }

    /// A free set beside an ordered set.
    struct Pair {
        blocks: Blocks,
        bins: Bins,
        set: BTreeSet<(u64, u64, Index)>,
        state: u64,
    }

    impl Pair {
        fn new(seed: u64) -> Self {
            Self { blocks: Blocks::new(), bins: Bins::new(), set: BTreeSet::new(), state: seed }
        }

        fn random(&mut self, below: u64) -> u64 {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.state >> 33) % below
        }

        fn insert(&mut self, address: u64, size: u64) {
            let index = self.blocks.insert(Block::segment(address, size, SizeClass::Large, false));
            self.bins.insert(&mut self.blocks, index);
            self.set.insert((size, address, index));
        }

        fn remove(&mut self, block: (u64, u64, Index)) {
            self.set.remove(&block);
            self.bins.remove(&mut self.blocks, block.2);
            self.blocks.remove(block.2);
        }

        fn from(&self, size: u64, address: u64) -> Option<(u64, u64, Index)> {
            self.set.range((size, address, 0)..).next().copied()
        }

        fn check_fit(&self, wanted: u64) {
            let expected = self.from(wanted, 0).map_or(NONE, |(.., index)| index);
            assert_eq!(self.bins.best_fit(&self.blocks, wanted), expected, "{wanted}");
            assert_eq!(self.bins.len(), self.set.len());
        }

        fn check_all(&self) {
            let all: Vec<Index> = self.set.iter().map(|(.., index)| *index).collect();
            assert_eq!(self.bins.iter(&self.blocks).collect::<Vec<_>>(), all);
            assert!(all.iter().all(|index| self.bins.contains(&self.blocks, *index)));
            self.bins.trees.check(&self.blocks, self.bins.roots.iter().copied());
        }
    }

    /// Random blocks come and go; every answer is that of an ordered set.
    #[test]
    fn agrees_with_an_ordered_set() {
        let mut pair = Pair::new(1);
        for step in 0..60_000_u64 {
            // Now many of few sizes, now few of many; now rather more of them, now rather fewer.
            let sizes = if step / 1000 % 2 == 0 { 3 } else { 100_000 };
            let growth = if step / 10_000 % 3 == 2 { 30 } else { 55 };
            let size = 512 * (1 + pair.random(sizes));
            if pair.random(100) < growth && pair.set.len() < 3000 {
                let address = 512 * (1 + pair.random(1 << 20) * 100_000 + step);
                pair.insert(address, size);
            } else if let Some(block) = pair.from(size, 0) {
                pair.remove(block);
            }
            let wanted = 512 * (1 + pair.random(sizes));
            pair.check_fit(wanted);
            if step % 1000 == 0 {
                pair.check_all();
            }
        }
    }

    /// The same with thousands of blocks in one bin, which come by address, against it or anyhow, and go in all ways.
    #[test]
    fn agrees_where_many_blocks_are_alike() {
        for (seed, span, coming, going) in
            [(1, 1, 0, 0), (2, 1, 1, 1), (3, 1, 2, 2), (4, 512, 2, 0), (5, 512, 0, 2), (6, 512, 1, 2), (7, 1, 2, 1)]
        {
            let mut pair = Pair::new(seed);
            let size = |pair: &mut Pair| (1 << 24) + 512 * pair.random(span);
            for round in 0..3 {
                for step in 0..5000 {
                    let number = [step, 9999 - step, pair.random(1 << 30)][coming];
                    let size = size(&mut pair);
                    pair.insert(number * 16384 + round * 512, size);
                    if step % 250 == 0 {
                        pair.check_all();
                    }
                }
                let left = if round == 1 { 40 } else { 0 };
                while pair.set.len() > left {
                    let (size, address) = (size(&mut pair), pair.random(1 << 44));
                    let first = pair.set.first().copied();
                    let block = match going {
                        0 => first,
                        1 => pair.set.last().copied(),
                        _ => pair.from(size, address).or(first),
                    };
                    pair.remove(block.expect("not empty"));
                    pair.check_fit(size);
                    if pair.set.len().is_multiple_of(250) {
                        pair.check_all();
                    }
                }
                pair.check_all();
            }
        }
    }

    /// A tree is a part of what its blocks take.
    #[test]
    fn trees_take_few_bytes_for_each_block() {
        let mut pair = Pair::new(3);
        for number in 0..20_000 {
            let address = 512 * (pair.random(1 << 30) << 20 | number);
            pair.insert(address, 512);
        }
        assert!(pair.bins.trees.bytes() < 48 * pair.set.len(), "{}", pair.bins.trees.bytes());
        // Of four blocks three are taken by neighbours that are freed.
        let all: Vec<_> = pair.set.iter().copied().collect();
        for (number, block) in all.into_iter().enumerate() {
            if !number.is_multiple_of(4) {
                pair.remove(block);
            }
        }
        pair.check_all();
        assert!(pair.bins.trees.bytes_used() < 96 * pair.set.len(), "{}", pair.bins.trees.bytes_used());
    }
}
