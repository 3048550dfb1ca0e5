//! The blocks of bins that hold several, each bin's in a tree ordered by (size, address).
//!
//! A tree is one node of up to eleven blocks; only where more blocks are alike are there nodes above it, whose children
//! are nodes. A node keeps the keys of its children beside each other, in no order, and one word that says their
//! order: a place is found by four comparisons that nothing needs to be guessed for, and nothing is moved when a child
//! comes or goes. In bins of one size only addresses are compared. A block knows its *seat*, the node and the place in
//! it, so that leaving needs no search.
//!
//! **Invariants:** a node's first `len` digits of `order` name its children by rising key, the others its vacant
//! places, whose keys are [`Key::VACANT`]; between two calls a node has fewer children than places. A child that is a
//! node holds no key below its own, and none from the next child's on; the first key of a node above others is the one
//! that its parent has for it, of a root [`Key::LEAST`]. Each child's seat is where it is.

use std::hint::select_unpredictable;

use crate::caching::block::{Block, Blocks, Index, NONE};

/// Places of a node.
const PLACES: usize = 12;
/// Nodes with fewer children look for a neighbour to be joined with...
const FEW: usize = 4;
/// ...that leaves places vacant.
const JOINED: usize = 9;
/// Digits of four bits, one for each place. The last one is taken first.
const UNUSED: u64 = 0x0123_4567_89ab;
const DIGITS: u64 = (1 << (4 * PLACES)) - 1;
const ONES: u64 = 0x1111_1111_1111_1111 & DIGITS;

/// Position of a node.
pub(crate) type NodeIndex = u32;

/// What orders blocks: their sizes, and then their addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    size: u64,
    address: u64,
}

impl Key {
    /// Of a place where nothing is: above all others.
    const VACANT: Self = Self { size: u64::MAX, address: u64::MAX };
    const LEAST: Self = Self { size: 0, address: 0 };

    #[inline]
    fn of(block: &Block) -> Self {
        Self { size: block.size, address: block.address }
    }

    /// The next key; no block ends at the last address.
    #[inline]
    fn next(self) -> Self {
        Self { address: self.address + 1, ..self }
    }
}

/// A key as one number, which is compared without a branch.
#[inline]
fn wide(key: Key) -> u128 {
    u128::from(key.size) << 64 | u128::from(key.address)
}

/// A node and one of its places.
#[inline]
fn seat(node: NodeIndex, place: usize) -> u32 {
    debug_assert!(place < PLACES, "a node has no place {place}");
    #[expect(clippy::cast_possible_truncation, reason = "below 12")]
    let place = place as u32;
    node << 4 | place
}

#[inline]
fn node_of(seat: u32) -> NodeIndex {
    seat >> 4
}

#[inline]
fn place_of(seat: u32) -> usize {
    (seat & 15) as usize
}

/// Blocks or nodes in order. What is always needed is one cache line, and the addresses of eight children the next.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Node {
    order: u64,
    /// Its place in the node above, or [`NONE`]; of a node that is not used the next such one.
    seat: u32,
    len: u8,
    /// The children are blocks.
    is_leaf: bool,
    /// Positions of blocks, or of nodes.
    children: [u32; PLACES],
    addresses: [u64; PLACES],
    sizes: [u64; PLACES],
}

impl Node {
    const EMPTY: Self = Self {
        order: UNUSED,
        seat: NONE,
        len: 0,
        is_leaf: true,
        children: [NONE; PLACES],
        addresses: [Key::VACANT.address; PLACES],
        sizes: [Key::VACANT.size; PLACES],
    };

    #[inline]
    fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// The place of the child that so many others come before.
    #[inline]
    fn at(&self, rank: usize) -> usize {
        (self.order >> (4 * rank) & 15) as usize
    }

    /// The child that so many others come before.
    #[inline]
    fn child(&self, rank: usize) -> Option<u32> {
        (rank < self.len()).then(|| self.children[self.at(rank)])
    }

    /// How many children come before the one at that place.
    #[inline]
    fn rank_of(&self, place: usize) -> usize {
        // The lowest digit that does not differ.
        let other = self.order ^ (ONES * place as u64);
        let same = other.wrapping_sub(ONES) & !other & (ONES << 3);
        (same.trailing_zeros() / 4) as usize
    }

    #[inline]
    fn key(&self, place: usize) -> Key {
        Key { size: self.sizes[place], address: self.addresses[place] }
    }

    #[inline]
    fn set_key(&mut self, place: usize, key: Key) {
        self.sizes[place] = key.size;
        self.addresses[place] = key.address;
    }

    /// How many children have keys below that one, if not all places are taken. Where all are `alike` in size,
    /// addresses tell.
    #[inline]
    fn count_below(&self, key: Key, alike: bool) -> usize {
        if alike {
            self.count(|place| self.addresses[place] < key.address)
        } else {
            self.count(|place| wide(self.key(place)) < wide(key))
        }
    }

    #[inline]
    fn count(&self, is_below: impl Fn(usize) -> bool) -> usize {
        let mut rank = 0;
        for step in [6, 3, 1, 1] {
            let below = is_below(self.at(rank + step - 1));
            rank = select_unpredictable(below, rank + step, rank);
        }
        rank
    }

    /// Adds a child that so many others come before; its place.
    #[inline]
    fn add(&mut self, rank: usize, key: Key, child: u32) -> usize {
        let place = self.at(PLACES - 1);
        let before = (1 << (4 * rank)) - 1;
        let after = (self.order & !before) << 4 & DIGITS;
        self.order = self.order & before | (place as u64) << (4 * rank) | after;
        self.len += 1;
        self.set_key(place, key);
        self.children[place] = child;
        place
    }

    /// Removes the child that so many others come before; its key.
    fn take(&mut self, rank: usize) -> Key {
        let place = self.at(rank);
        let key = self.key(place);
        self.vacate(place, rank);
        key
    }

    /// Removes the child at a place that so many others come before.
    #[inline]
    fn vacate(&mut self, place: usize, rank: usize) {
        let before = (1 << (4 * rank)) - 1;
        self.order = self.order & before | self.order >> 4 & !before | (place as u64) << (4 * (PLACES - 1));
        self.len -= 1;
        self.set_key(place, Key::VACANT);
    }
}

/// What a tree is after a block has left it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// One block, and no tree any more.
    One(Index),
    /// The root.
    More(NodeIndex),
}

/// All trees of a free set.
#[derive(Debug)]
pub(crate) struct Trees {
    nodes: Vec<Node>,
    /// The first node that is not used; the others follow by `seat`.
    vacant: NodeIndex,
}

impl Trees {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new(), vacant: NONE }
    }

    #[inline]
    fn node(&self, node: NodeIndex) -> &Node {
        &self.nodes[node as usize]
    }

    #[inline]
    fn node_mut(&mut self, node: NodeIndex) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    /// A node without children.
    #[inline]
    fn make(&mut self, is_leaf: bool) -> NodeIndex {
        if self.vacant == NONE {
            self.grow();
        }
        let made = self.vacant;
        let node = self.node_mut(made);
        node.is_leaf = is_leaf;
        let next = std::mem::replace(&mut node.seat, NONE);
        self.vacant = next;
        made
    }

    #[cold]
    fn grow(&mut self) {
        let index = NodeIndex::try_from(self.nodes.len()).ok().filter(|index| *index < NONE >> 4);
        self.vacant = index.expect("fewer than 2^28 nodes of several blocks");
        if self.nodes.len() == self.nodes.capacity() {
            // As blocks are.
            self.nodes.reserve_exact((self.nodes.len() / 4).max(4));
        }
        self.nodes.push(Node::EMPTY);
    }

    /// A node that has no children is used no more.
    #[inline]
    fn discard(&mut self, node: NodeIndex) {
        let vacant = self.vacant;
        let gone = self.node_mut(node);
        debug_assert_eq!(gone.len, 0, "a node with children is gone");
        gone.seat = vacant;
        self.vacant = node;
    }

    /// A tree of two blocks; its root, and the block that comes first.
    #[inline]
    pub(crate) fn pair(&mut self, blocks: &mut Blocks, one: Index, other: Index) -> (NodeIndex, Index) {
        let root = self.make(true);
        let node = self.node_mut(root);
        let block = blocks.get_mut(one);
        let key = Key::of(block);
        block.seat = seat(root, node.add(0, key, one));
        let block = blocks.get_mut(other);
        let is_later = wide(key) < wide(Key::of(block));
        block.seat = seat(root, node.add(usize::from(is_later), Key::of(block), other));
        (root, select_unpredictable(is_later, one, other))
    }

    /// Adds a block to a tree; the root, and whether the block comes first. All may be `alike` in size.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        blocks: &mut Blocks,
        root: NodeIndex,
        index: Index,
        alike: bool,
    ) -> (NodeIndex, bool) {
        let block = blocks.get_mut(index);
        let key = Key::of(block);
        let (at, mut first) = if self.node(root).is_leaf { (root, true) } else { self.leaf_for(root, key, alike) };
        let node = self.node_mut(at);
        let rank = node.count_below(key, alike);
        block.seat = seat(at, node.add(rank, key, index));
        first &= rank == 0;
        if node.len() < PLACES {
            return (root, first);
        }
        (self.split(blocks, root, at, rank), first)
    }

    /// The leaf of a tree of several nodes that a key belongs to, and whether it is the first one.
    #[inline(never)]
    fn leaf_for(&self, root: NodeIndex, key: Key, alike: bool) -> (NodeIndex, bool) {
        let (mut at, mut node, mut first) = (root, self.node(root), true);
        while !node.is_leaf {
            let rank = node.count_below(key.next(), alike).saturating_sub(1);
            first &= rank == 0;
            at = node.children[node.at(rank)];
            node = self.node(at);
        }
        (at, first)
    }

    /// Cuts a node in two that has no vacant place, and so the nodes above it; the root. The child that came last has
    /// that rank.
    #[inline(never)]
    fn split(&mut self, blocks: &mut Blocks, mut root: NodeIndex, mut full: NodeIndex, mut rank: usize) -> NodeIndex {
        while self.node(full).len() == PLACES {
            // Where children come in order, nodes are left full.
            let kept = match rank {
                0 => 1,
                _ if rank == PLACES - 1 => PLACES - 1,
                _ => PLACES / 2,
            };
            let other = self.make(self.node(full).is_leaf);
            self.give(blocks, full, kept, other);
            let node = self.node(other);
            let key = node.key(node.at(0));
            if full == root {
                root = self.make(false);
                let place = self.node_mut(root).add(0, Key::LEAST, full);
                self.node_mut(full).seat = seat(root, place);
            }
            let above = self.node(full).seat;
            let parent = self.node_mut(node_of(above));
            rank = parent.rank_of(place_of(above)) + 1;
            let place = parent.add(rank, key, other);
            self.node_mut(other).seat = seat(node_of(above), place);
            full = node_of(above);
        }
        root
    }

    /// Lets a node give its children from that rank on to a node whose children come before them, or which has none.
    fn give(&mut self, blocks: &mut Blocks, from: NodeIndex, rank: usize, to: NodeIndex) {
        while let Some(child) = self.node(from).child(rank) {
            let key = self.node_mut(from).take(rank);
            let node = self.node_mut(to);
            let place = node.add(node.len(), key, child);
            if node.is_leaf {
                blocks.get_mut(child).seat = seat(to, place);
            } else {
                self.node_mut(child).seat = seat(to, place);
            }
        }
    }

    /// Takes a block out of its tree; what the tree is then.
    #[inline]
    pub(crate) fn remove(&mut self, blocks: &mut Blocks, root: NodeIndex, index: Index) -> Left {
        let at = blocks.get(index).seat;
        let leaf = node_of(at);
        let node = self.node_mut(leaf);
        debug_assert_eq!(node.children[place_of(at)], index, "a free block was not at its seat");
        node.vacate(place_of(at), node.rank_of(place_of(at)));
        let few = select_unpredictable(leaf == root, 2, FEW);
        if node.len() >= few {
            return Left::More(root);
        }
        let root = if leaf == root { root } else { self.shrink(blocks, root, leaf) };
        match *self.node(root) {
            Node { len: 1, is_leaf: true, .. } => Left::One(self.end(blocks, root)),
            _ => Left::More(root),
        }
    }

    /// Ends a tree of one block, which is returned.
    #[inline]
    fn end(&mut self, blocks: &mut Blocks, root: NodeIndex) -> Index {
        let node = self.node_mut(root);
        let place = node.at(0);
        let index = node.children[place];
        node.vacate(place, 0);
        self.discard(root);
        blocks.get_mut(index).seat = NONE;
        index
    }

    /// Joins a node that has few children with a neighbour, and so the nodes above; the root.
    #[inline(never)]
    fn shrink(&mut self, blocks: &mut Blocks, root: NodeIndex, mut few: NodeIndex) -> NodeIndex {
        while few != root && self.node(few).len() < FEW {
            let above = self.node(few).seat;
            let (parent, rank) = (self.node(node_of(above)), self.node(node_of(above)).rank_of(place_of(above)));
            let len = self.node(few).len();
            let fits = |other: &NodeIndex| self.node(*other).len() + len <= JOINED;
            let (before, after) = (rank.checked_sub(1).and_then(|rank| parent.child(rank)), parent.child(rank + 1));
            let gone = if let Some(before) = before.filter(fits) {
                self.give(blocks, few, 0, before);
                rank
            } else if let Some(after) = after.filter(fits) {
                let least = parent.key(place_of(above));
                self.give(blocks, after, 0, few);
                // Of a node that had no children the first one is another one now.
                self.lower(few, least);
                rank + 1
            } else if len == 0 {
                rank
            } else {
                break;
            };
            few = node_of(above);
            self.drop_child(few, gone);
        }
        self.top(root)
    }

    /// Takes a node without children from the one above it.
    fn drop_child(&mut self, parent: NodeIndex, rank: usize) {
        let node = self.node_mut(parent);
        let place = node.at(rank);
        let child = node.children[place];
        let key = node.take(rank);
        let empty = node.len == 0;
        self.discard(child);
        if rank == 0 && !empty {
            self.lower(parent, key);
        }
    }

    /// Lets what lies between that key and the first child of a node belong to that child.
    fn lower(&mut self, node: NodeIndex, key: Key) {
        let mut node = self.node_mut(node);
        while !node.is_leaf {
            let first = node.at(0);
            node.set_key(first, key);
            let child = node.children[first];
            node = self.node_mut(child);
        }
    }

    /// The root without the nodes on top that have one child.
    fn top(&mut self, mut root: NodeIndex) -> NodeIndex {
        while !self.node(root).is_leaf && self.node(root).len == 1 {
            let node = self.node_mut(root);
            let child = node.children[node.at(0)];
            node.take(0);
            self.discard(root);
            self.node_mut(child).seat = NONE;
            root = child;
        }
        root
    }

    /// The first block of a tree that has lost a block, where `first` was the first one before.
    #[inline]
    pub(crate) fn first_after(&self, root: NodeIndex, gone: Index, first: Index) -> Index {
        if self.node(root).is_leaf || gone == first { self.first(root) } else { first }
    }

    /// The first block of a tree, or of what is under a node.
    #[inline]
    pub(crate) fn first(&self, root: NodeIndex) -> Index {
        let mut node = self.node(root);
        while !node.is_leaf {
            node = self.node(node.children[node.at(0)]);
        }
        node.children[node.at(0)]
    }

    /// The first block of a tree that has at least `size` bytes.
    pub(crate) fn lower_bound(&self, root: NodeIndex, size: u64) -> Option<Index> {
        let key = Key { size, address: 0 };
        let (leaf, _) = self.leaf_for(root, key, false);
        self.from(leaf, self.node(leaf).count_below(key, false))
    }

    /// The block after one, in its tree.
    pub(crate) fn after(&self, blocks: &Blocks, index: Index) -> Option<Index> {
        let at = blocks.get(index).seat;
        self.from(node_of(at), self.nodes.get(node_of(at) as usize)?.rank_of(place_of(at)) + 1)
    }

    /// The block that has that rank in a leaf, or is the first after it.
    fn from(&self, leaf: NodeIndex, rank: usize) -> Option<Index> {
        let mut node = self.node(leaf);
        if let Some(index) = node.child(rank) {
            return Some(index);
        }
        loop {
            let seat = node.seat;
            node = self.nodes.get(node_of(seat) as usize)?;
            if let Some(next) = node.child(node.rank_of(place_of(seat)) + 1) {
                return Some(self.first(next));
            }
        }
    }

    /// The root of the tree that a block can be found in as what it is.
    pub(crate) fn root_of(&self, blocks: &Blocks, index: Index) -> Option<NodeIndex> {
        let block = blocks.get(index);
        let key = Key::of(block);
        let (mut seat, mut child, mut is_leaf) = (block.seat, index, true);
        loop {
            let at = node_of(seat);
            let node = self.nodes.get(at as usize).filter(|node| node.is_leaf == is_leaf)?;
            let rank = node.rank_of(place_of(seat));
            let found = node.child(rank) == Some(child);
            let known = node.key(place_of(seat));
            let in_order = if is_leaf { known == key } else { known <= key };
            let next = (rank + 1 < node.len()).then(|| node.key(node.at(rank + 1)));
            if !found || !in_order || next.is_some_and(|next| next <= key) {
                return None;
            }
            if node.seat == NONE {
                return Some(at);
            }
            (seat, child, is_leaf) = (node.seat, at, false);
        }
    }
}

#[cfg(test)]
impl Trees {
    /// Bytes that nodes take, with room for more.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    /// Bytes of nodes that have children.
    pub(crate) fn bytes_used(&self) -> usize {
        self.nodes.iter().filter(|node| node.len > 0).count() * size_of::<Node>()
    }

    /// Fails if an invariant does not hold, or a node is in no tree of those.
    pub(crate) fn check(&self, blocks: &Blocks, roots: impl Iterator<Item = NodeIndex>) {
        let mut used = 0;
        for root in roots.filter(|root| *root != NONE) {
            assert_eq!(self.node(root).seat, NONE);
            assert!(self.node(root).len > 1, "a root of one child");
            used += self.check_node(blocks, root, Key::LEAST..Key::VACANT);
        }
        let mut vacant = self.vacant;
        while vacant != NONE {
            let node = self.node(vacant);
            assert!(node.len == 0 && (0..PLACES).all(|place| node.key(place) == Key::VACANT), "{node:?}");
            (used, vacant) = (used + 1, node.seat);
        }
        assert_eq!(used, self.nodes.len());
    }

    /// Number of nodes from that one on, whose keys are in a range.
    fn check_node(&self, blocks: &Blocks, index: NodeIndex, range: std::ops::Range<Key>) -> usize {
        let node = self.node(index);
        assert!(node.len > 0 && node.len() < PLACES, "{node:?}");
        let mut digits: Vec<usize> = (0..PLACES).map(|rank| node.at(rank)).collect();
        let keys: Vec<Key> = digits.iter().map(|place| node.key(*place)).collect();
        let (taken, vacant) = keys.split_at(node.len());
        assert!(taken.is_sorted_by(|key, next| key < next) && vacant.iter().all(|key| *key == Key::VACANT), "{node:?}");
        assert!(taken.iter().all(|key| range.contains(key)), "{range:?} {node:?}");
        assert!(node.is_leaf || taken[0] == range.start, "{range:?} {node:?}");
        let mut nodes = 1;
        for rank in 0..node.len() {
            let (place, child) = (digits[rank], node.child(rank).expect("one of them"));
            assert_eq!(node.rank_of(place), rank);
            if node.is_leaf {
                let block = blocks.get(child);
                assert_eq!((block.seat, Key::of(block)), (seat(index, place), keys[rank]));
            } else {
                assert_eq!(self.node(child).seat, seat(index, place));
                let end = taken.get(rank + 1).map_or(range.end, |next| *next);
                nodes += self.check_node(blocks, child, keys[rank]..end);
            }
        }
        digits.sort_unstable();
        assert!(digits.into_iter().eq(0..PLACES), "{node:?}");
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_four_cache_lines() {
        assert_eq!(size_of::<Node>(), 256);
    }

    /// All orders in which children of a full node can come, and places they can leave from.
    #[test]
    fn a_node_keeps_its_children_in_order() {
        for shift in 0..PLACES {
            for (stride, alike) in [(1, false), (5, false), (7, true), (11, true)] {
                let (mut node, mut expected) = (Node::EMPTY, Vec::new());
                // Of two sizes, or of one.
                let key = |number: usize| {
                    let size = if alike { 0 } else { number as u64 / 60 };
                    Key { size, address: number as u64 - 60 * size }
                };
                for number in 0..PLACES {
                    let number = (number * stride + shift) % PLACES * 10;
                    let rank = expected.partition_point(|(known, _)| *known < key(number));
                    for beside in [number, number + 1] {
                        assert_eq!(node.count_below(key(beside), alike), rank, "{node:?}");
                    }
                    #[expect(clippy::cast_possible_truncation, reason = "below 120")]
                    let child = number as u32 + 1000;
                    let place = node.add(rank, key(number), child);
                    expected.insert(rank, (key(number), child));
                    assert_eq!(node.rank_of(place), rank);
                    let children: Vec<_> = (0..=PLACES).map_while(|rank| node.child(rank)).collect();
                    assert!(children.iter().eq(expected.iter().map(|(_, child)| child)), "{node:?}");
                }
                for number in 0..PLACES {
                    let rank = (number * 7 + shift) % expected.len();
                    assert_eq!(node.take(rank), expected.remove(rank).0);
                    let children: Vec<_> = (0..=PLACES).map_while(|rank| node.child(rank)).collect();
                    assert!(children.iter().eq(expected.iter().map(|(_, child)| child)), "{node:?}");
                    let counted = node.count_below(key(55), alike);
                    assert_eq!(counted, expected.partition_point(|(known, _)| *known < key(55)));
                }
            }
        }
    }
}
