//! The free set of a shard: exact best fit by (size, address).
//!
//! Free blocks lie in bins by size: one for each multiple of 512 below 32 KiB, and 64 for each power of two from there.
//! Two levels of bits say which bins hold anything, so the first bin that can serve a size is found by two bit
//! operations. A bin is a tree ordered by (size, address) whose links are in the block descriptors (a treap, whose
//! priorities are a hash of the block's position); nearly always it holds one block or a few.
//!
//! **Invariants:** a bin's bit is set exactly when its tree is not empty; a summary bit exactly when its word is not 0.
//! A block's size and address do not change while it is in a bin.

use crate::caching::block::{Blocks, Index, NONE};

/// Sizes below this many units have a bin each.
const EXACT: usize = 64;
/// Bins of each power of two above.
const PER_OCTAVE: usize = 64;
/// Powers of two: from 2^6 units of 512 bytes to beyond 2^60 bytes.
const OCTAVES: usize = 46;
const BINS: usize = EXACT + OCTAVES * PER_OCTAVE;
const WORDS: usize = BINS.div_ceil(64);
const _: () = assert!(WORDS <= 64, "one word of summary");

/// The bin of a size.
#[inline]
fn bin_of(size: u64) -> usize {
    let units = (size >> 9) as usize;
    if units < EXACT {
        return units;
    }
    let octave = units.ilog2() as usize;
    let part = units >> (octave - 6) & (PER_OCTAVE - 1);
    EXACT + (octave - 6) * PER_OCTAVE + part
}

/// The set.
#[derive(Debug)]
pub(crate) struct Bins {
    /// Root of each bin's tree, up to the largest bin used so far.
    roots: Vec<Index>,
    words: [u64; WORDS],
    summary: u64,
    len: usize,
}

impl Bins {
    pub(crate) fn new() -> Self {
        Self { roots: Vec::new(), words: [0; WORDS], summary: 0, len: 0 }
    }

    /// Number of free blocks.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts a block in.
    #[inline]
    pub(crate) fn insert(&mut self, blocks: &mut Blocks, index: Index) {
        let bin = bin_of(blocks.get(index).size);
        if bin >= self.roots.len() {
            self.widen(bin);
        }
        self.len += 1;
        let root = self.roots[bin];
        if root == NONE {
            let block = blocks.get_mut(index);
            (block.left, block.right, block.parent) = (NONE, NONE, NONE);
            self.roots[bin] = index;
            self.words[bin / 64] |= 1 << (bin % 64);
            self.summary |= 1 << (bin / 64);
        } else {
            self.roots[bin] = join_tree(blocks, root, index);
        }
    }

    #[cold]
    fn widen(&mut self, bin: usize) {
        self.roots.reserve_exact(bin + 1 - self.roots.len());
        self.roots.resize(bin + 1, NONE);
    }

    /// Takes a block out; before its size or address changes.
    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, index: Index) {
        let block = blocks.get(index);
        let (bin, left, right, parent) = (bin_of(block.size), block.left, block.right, block.parent);
        self.len -= 1;
        if parent == NONE && left == NONE && right == NONE {
            debug_assert_eq!(self.roots[bin], index, "a free block was not in its bin");
            self.roots[bin] = NONE;
            self.words[bin / 64] &= !(1 << (bin % 64));
            if self.words[bin / 64] == 0 {
                self.summary &= !(1 << (bin / 64));
            }
        } else if let Some(root) = leave_tree(blocks, index) {
            self.roots[bin] = root;
        }
    }

    /// The smallest block of at least `size` bytes, of these the one at the lowest address.
    #[inline]
    pub(crate) fn best_fit(&self, blocks: &Blocks, size: u64) -> Index {
        let bin = bin_of(size);
        let root = self.roots.get(bin).copied().unwrap_or(NONE);
        if root != NONE {
            let found = lower_bound(blocks, root, size);
            if found != NONE {
                return found;
            }
        }
        self.next_bin(bin + 1).map_or(NONE, |bin| leftmost(blocks, self.roots[bin]))
    }

    /// The first bin from `bin` on that holds anything.
    #[inline]
    fn next_bin(&self, bin: usize) -> Option<usize> {
        let word = bin / 64;
        let here = self.words.get(word)? & (u64::MAX << (bin % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        // Words of which only those above the present one are looked at.
        let above = self.summary & (u64::MAX << word) & !(1 << word);
        if above == 0 {
            return None;
        }
        let word = above.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// The block after one, in order of size and address.
    pub(crate) fn after(&self, blocks: &Blocks, index: Index) -> Index {
        let block = blocks.get(index);
        if block.right != NONE {
            return leftmost(blocks, block.right);
        }
        let (mut child, mut parent) = (index, block.parent);
        while parent != NONE && blocks.get(parent).right == child {
            (child, parent) = (parent, blocks.get(parent).parent);
        }
        if parent != NONE {
            return parent;
        }
        self.next_bin(bin_of(block.size) + 1).map_or(NONE, |bin| leftmost(blocks, self.roots[bin]))
    }

    /// All blocks in order of size and address.
    pub(crate) fn iter<'a>(&'a self, blocks: &'a Blocks) -> impl Iterator<Item = Index> + 'a {
        let some = |index: Index| (index != NONE).then_some(index);
        let first = self.next_bin(0).map(|bin| leftmost(blocks, self.roots[bin]));
        std::iter::successors(first, move |index| some(self.after(blocks, *index)))
    }

    /// Whether the block can be reached as what it is.
    pub(crate) fn contains(&self, blocks: &Blocks, index: Index) -> bool {
        let mut top = index;
        while let Some(parent) = blocks.find(blocks.get(top).parent) {
            if parent.left != top && parent.right != top {
                return false;
            }
            top = blocks.get(top).parent;
        }
        let bin = bin_of(blocks.get(index).size);
        self.roots.get(bin) == Some(&top) && self.words[bin / 64] >> (bin % 64) & 1 == 1
    }
}

/// Order in a tree.
#[inline]
fn key(blocks: &Blocks, index: Index) -> (u64, u64) {
    let block = blocks.get(index);
    (block.size, block.address)
}

/// A number for each position that looks random: parents have higher ones than their children.
#[inline]
fn priority(index: Index) -> u32 {
    let mixed = index.wrapping_add(1).wrapping_mul(0x9e37_79b9);
    (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b)
}

#[inline]
fn leftmost(blocks: &Blocks, mut index: Index) -> Index {
    loop {
        let left = blocks.get(index).left;
        if left == NONE {
            return index;
        }
        index = left;
    }
}

/// The first block of a tree that has at least `size` bytes.
#[inline]
fn lower_bound(blocks: &Blocks, root: Index, size: u64) -> Index {
    let (mut found, mut at) = (NONE, root);
    while let Some(block) = blocks.find(at) {
        at = if block.size >= size {
            found = at;
            block.left
        } else {
            block.right
        };
    }
    found
}

/// Adds a block to a tree that is not empty and returns the root.
fn join_tree(blocks: &mut Blocks, root: Index, index: Index) -> Index {
    let new = key(blocks, index);
    let mut parent = root;
    loop {
        let block = blocks.get(parent);
        let child = if new < (block.size, block.address) { block.left } else { block.right };
        if child == NONE {
            break;
        }
        parent = child;
    }
    let under = blocks.get_mut(parent);
    if new < (under.size, under.address) {
        under.left = index;
    } else {
        under.right = index;
    }
    let block = blocks.get_mut(index);
    (block.left, block.right, block.parent) = (NONE, NONE, parent);
    while parent != NONE && priority(index) > priority(parent) {
        rotate_up(blocks, index);
        parent = blocks.get(index).parent;
    }
    if parent == NONE { index } else { root }
}

/// Removes a block from a tree with others; returns the root if that is another one now.
fn leave_tree(blocks: &mut Blocks, index: Index) -> Option<Index> {
    let mut root = None;
    loop {
        let block = blocks.get(index);
        let (left, right, parent) = (block.left, block.right, block.parent);
        let child = match (left, right) {
            (NONE, child) | (child, NONE) => {
                if let Some(child) = blocks.find(child).map(|_| child) {
                    blocks.get_mut(child).parent = parent;
                }
                replace_child(blocks, parent, index, child);
                return if parent == NONE { Some(child) } else { root };
            }
            (left, right) if priority(left) > priority(right) => left,
            (_, right) => right,
        };
        rotate_up(blocks, child);
        if parent == NONE {
            root = Some(child);
        }
    }
}

/// Lets a parent point to another child.
fn replace_child(blocks: &mut Blocks, parent: Index, old: Index, new: Index) {
    if parent == NONE {
        return;
    }
    let parent = blocks.get_mut(parent);
    if parent.left == old {
        parent.left = new;
    } else {
        parent.right = new;
    }
}

/// Lets a block and its parent change places.
fn rotate_up(blocks: &mut Blocks, index: Index) {
    let parent = blocks.get(index).parent;
    let above = blocks.get(parent).parent;
    let inner = if blocks.get(parent).left == index {
        let inner = std::mem::replace(&mut blocks.get_mut(index).right, parent);
        blocks.get_mut(parent).left = inner;
        inner
    } else {
        let inner = std::mem::replace(&mut blocks.get_mut(index).left, parent);
        blocks.get_mut(parent).right = inner;
        inner
    };
    if inner != NONE {
        blocks.get_mut(inner).parent = parent;
    }
    blocks.get_mut(parent).parent = index;
    blocks.get_mut(index).parent = above;
    replace_child(blocks, above, parent, index);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::caching::block::Block;
    use crate::caching::size_class::SizeClass;

    #[test]
    fn bins_are_ordered_by_size_and_in_range() {
        let mut before = 0;
        for size in (512..8 << 20).step_by(512).chain((23..=60).map(|bits| 1 << bits)) {
            let bin = bin_of(size);
            assert!(bin >= before && bin < BINS, "{size}: {before} {bin}");
            before = bin;
        }
    }

    /// Random blocks come and go; every answer is that of an ordered set.
    #[test]
    fn agrees_with_an_ordered_set() {
        let (mut blocks, mut bins, mut set) = (Blocks::new(), Bins::new(), BTreeSet::new());
        let mut state = 1_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..60_000_u64 {
            // Now many of few sizes, now few of many.
            let sizes = if step / 1000 % 2 == 0 { 3 } else { 100_000 };
            let size = 512 * (1 + random(sizes));
            if random(100) < 52 && set.len() < 3000 {
                let address = 512 * (step + 1);
                let index = blocks.insert(Block::segment(address, size, SizeClass::Large, false));
                bins.insert(&mut blocks, index);
                set.insert((size, address, index));
            } else if let Some(&(size, address, index)) = set.range((size, 0, 0)..).next() {
                set.remove(&(size, address, index));
                bins.remove(&mut blocks, index);
                blocks.remove(index);
            }
            let wanted = 512 * (1 + random(sizes));
            let expected = set.range((wanted, 0, 0)..).next().map_or(NONE, |(.., index)| *index);
            assert_eq!(bins.best_fit(&blocks, wanted), expected);
            if step % 1000 == 0 {
                let all: Vec<Index> = set.iter().map(|(.., index)| *index).collect();
                assert_eq!(bins.iter(&blocks).collect::<Vec<_>>(), all);
                assert!(all.iter().all(|index| bins.contains(&blocks, *index)));
            }
            assert_eq!(bins.len(), set.len());
        }
    }
}
