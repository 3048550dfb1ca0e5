//! The books of a shard: its blocks, its free sets and its figures.
//!
//! **Invariants:** every block is in the set that its state names (`Free`: the free set, `Unmapped`: the unmapped set) or
//! in none; two free neighbours are merged, and so are two unmapped ones; a block with an entry in `uses` is allocated.
//! A change is planned first, without changing anything, and made when its figures are counted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::config::AllocatorConfig;
use crate::base::handles::StreamHandle;
use crate::base::ids::PoolId;
use crate::caching::block::{
    Asked, Block, BlockId, Blocks, Index, NONE, Owner, Rules, SizeClass, State, StreamUse, UseLists, round_plainly,
    round_size, size_class,
};
use crate::caching::freeset::Bins;
use crate::caching::plan::StreamPlan;
use crate::caching::remote::{Pages, Place};
use crate::caching::stats::{BYTES, COUNT, Change, LANES, Ledger, REQUESTED, SPLIT, SPLIT_BYTES};

/// What a shard serves.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) stream: StreamHandle,
    /// The private pool it belongs to, if any.
    pub(crate) owner: Option<PoolId>,
    /// Blocks are handed out whole.
    pub(crate) no_split: bool,
    /// Whether memory is held in pages that move; `None` for what the options say.
    pub(crate) elastic: Option<bool>,
    /// Times each part of its pool was searched while garbage collection was on: the clocks that blocks age by.
    pub(crate) clocks: Arc<[AtomicU64; 2]>,
}

impl Key {
    /// What the options say for the pool.
    fn rules(&self, config: &AllocatorConfig, counts_lookups: bool) -> Rules {
        Rules::new(config, self.elastic.unwrap_or(config.is_elastic()), counts_lookups)
    }
}

/// The books.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) ledger: Ledger,
    pub(crate) key: Key,
    config: Arc<AllocatorConfig>,
    pub(crate) rules: Rules,
    /// How often leases were asked of other shards.
    pub(crate) lease_requests: u32,
    /// Free small blocks, and large ones.
    bins: [Bins; 2],
    pub(crate) blocks: Blocks,
    /// Unmapped blocks by address, of each part.
    unmapped: [BTreeSet<(u64, Index)>; 2],
    uses: UseLists,
    /// The plan of the stream, where plans are on.
    pub(crate) plan: Option<Box<StreamPlan>>,
}

/// A block to be handed out, and what that changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taking {
    pub(super) block: Index,
    pub(crate) class: SizeClass,
    /// The bytes to cut off for the request, if not the whole block is handed out.
    pub(super) cut: Option<u64>,
    pub(crate) size: u64,
    pub(super) asked: Asked,
    pub(crate) change: Change,
}

/// A block that is given back, and what that changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freeing {
    block: Index,
    pub(crate) class: SizeClass,
    /// Size of the block.
    pub(crate) size: u64,
    /// The neighbours that it is joined with, or [`NONE`].
    before: Index,
    after: Index,
    pub(crate) change: Change,
}

/// Position of a part of a shard.
#[inline]
fn part(class: SizeClass) -> usize {
    match class {
        SizeClass::Small => 0,
        SizeClass::Large => 1,
    }
}

/// Sizes as figures count them.
#[inline]
pub(crate) fn signed(size: u64) -> i64 {
    size.cast_signed()
}

impl Taking {
    /// Who will own the block.
    pub(crate) fn owner(&self) -> Owner {
        self.asked.owner()
    }
}

impl Books {
    pub(super) fn new(key: Key, config: Arc<AllocatorConfig>, counts_lookups: bool) -> Self {
        Self {
            ledger: Ledger::default(),
            rules: key.rules(&config, counts_lookups),
            key,
            config,
            lease_requests: 0,
            bins: [Bins::new(), Bins::new()],
            blocks: Blocks::new(),
            unmapped: Default::default(),
            uses: UseLists::default(),
            plan: None,
        }
    }

    /// The place of a block that another thread gave back.
    #[inline]
    pub(crate) fn remotely_freed<'a>(&self, pages: &'a Pages, index: Index) -> Option<Place<'a>> {
        let place = pages.find_remotely_freed(self.blocks.get(index).address);
        debug_assert!(place.is_some_and(|place| place.block() == index), "a remotely freed block stays as it is");
        place
    }

    /// The rounded size of a request.
    #[inline]
    pub(crate) fn round(&self, bytes: u64) -> u64 {
        if self.rules.rounds_plainly { round_plainly(bytes) } else { round_size(&self.config, bytes) }
    }

    /// Decides by these options from now on.
    pub(crate) fn set_config(&mut self, config: &Arc<AllocatorConfig>, counts_lookups: bool) {
        self.rules = self.key.rules(config, counts_lookups);
        self.config = Arc::clone(config);
    }

    /// The free blocks of a part.
    #[inline]
    pub(crate) fn bins(&self, class: SizeClass) -> &Bins {
        &self.bins[part(class)]
    }

    /// The unmapped blocks of a part.
    pub(crate) fn unmapped(&self, class: SizeClass) -> &BTreeSet<(u64, Index)> {
        &self.unmapped[part(class)]
    }

    /// How often a part of the pool was searched.
    pub(crate) fn clock(&self, class: SizeClass) -> &AtomicU64 {
        &self.key.clocks[part(class)]
    }

    /// All free blocks: the small ones, then the large ones, each by size and address.
    pub(crate) fn free_blocks(&self) -> impl Iterator<Item = Index> {
        self.bins.iter().flat_map(|bins| bins.iter(&self.blocks))
    }

    #[inline]
    fn take_out(&mut self, index: Index) {
        let part = part(self.blocks.get(index).class);
        self.bins[part].remove(&mut self.blocks, index);
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a part of the hot paths")]
    fn put_in(&mut self, index: Index) {
        let part = part(self.blocks.get(index).class);
        self.bins[part].insert(&mut self.blocks, index);
    }

    /// What serving a request from the free blocks changes; `None` when none may be used.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is found out here is used right after")]
    pub(super) fn plan(&self, asked: Asked, expandable: bool) -> Option<Taking> {
        let size = self.round(asked.bytes());
        let index = self.best_fit(size, expandable)?;
        Some(self.plan_take(index, size, asked, expandable))
    }

    /// The smallest free block of at least `size` bytes, lowest address first, if it may be used.
    ///
    /// With `expandable`, a block of an expandable segment counts as what it can grow to; without it such blocks are
    /// passed over.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn best_fit(&self, size: u64, expandable: bool) -> Option<Index> {
        let class = size_class(size);
        let mut found = self.bins(class).best_fit(&self.blocks, size);
        if self.blocks.find(found)?.in_range && !self.rules.elastic {
            found = self.best_in_ranges(found, expandable)?;
        }
        self.rules.may_use(size, self.blocks.get(found).size).then_some(found)
    }

    #[cold]
    fn best_in_ranges(&self, mut found: Index, expandable: bool) -> Option<Index> {
        let bins = self.bins(self.blocks.get(found).class);
        let mut next = bins.after(&self.blocks, found);
        while next != NONE {
            let done = if expandable {
                !self.blocks.get(found).in_range || self.reach(next) >= self.reach(found)
            } else {
                !self.blocks.get(found).in_range
            };
            if done {
                break;
            }
            found = next;
            next = bins.after(&self.blocks, found);
        }
        (expandable || !self.blocks.get(found).in_range).then_some(found)
    }

    /// What a free block can grow to without another one being touched.
    fn reach(&self, index: Index) -> u64 {
        let block = self.blocks.get(index);
        let next = self.blocks.find(block.next).filter(|next| next.state == State::Unmapped);
        block.size + next.map_or(0, |next| next.size)
    }

    /// What handing out a block, free or held, for a request changes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(super) fn plan_take(&self, index: Index, size: u64, asked: Asked, expandable: bool) -> Taking {
        let block = self.blocks.get(index);
        let splits = !self.key.no_split && self.rules.should_split(expandable, block.class, size, block.size);
        self.plan_part(index, splits.then_some(size), asked)
    }

    /// What handing out a block, or that much cut off from its front, changes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(super) fn plan_part(&self, index: Index, cut: Option<u64>, asked: Asked) -> Taking {
        let block = self.blocks.get(index);
        let whole = block.size;
        let taken = cut.unwrap_or(whole);
        let (count, bytes) = match (cut, block.is_split()) {
            _ if block.in_range => (0, 0),
            (Some(size), true) => (0, -signed(size)),
            (Some(size), false) => (1, signed(whole - size)),
            (None, true) => (-1, -signed(whole)),
            (None, false) => (0, 0),
        };
        let mut change = [0; LANES];
        change[COUNT] = 1;
        change[BYTES] = signed(taken);
        change[REQUESTED] = signed(asked.bytes());
        change[SPLIT] = count;
        change[SPLIT_BYTES] = bytes;
        Taking { block: index, class: block.class, cut, size: taken, asked, change }
    }

    /// Hands a planned block out, whose figures are counted: its position, that of what is left of the block it was cut
    /// from, and its address.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(super) fn take(&mut self, taking: &Taking) -> (Index, Index, u64) {
        let (mut index, mut rest) = (taking.block, NONE);
        if self.blocks.get(index).state == State::Free {
            self.take_out(index);
        }
        if let Some(size) = taking.cut {
            rest = index;
            index = self.blocks.split_front(rest, size);
            self.put(rest);
        }
        let block = self.blocks.get_mut(index);
        block.state = State::Allocated;
        block.requested = taking.asked.bytes();
        (index, rest, block.address)
    }

    /// Puts a block, which is in no set, into the free set.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a part of the hot paths")]
    pub(crate) fn put(&mut self, index: Index) {
        let block = self.blocks.get_mut(index);
        block.state = State::Free;
        block.born = self.key.clocks[part(block.class)].load(Ordering::Relaxed);
        self.put_in(index);
    }

    /// Takes a free block out of the free set, for the driver to be asked about it.
    pub(crate) fn hold(&mut self, index: Index) {
        self.take_out(index);
        self.blocks.get_mut(index).state = State::Held;
    }

    /// Puts a held block back as it was.
    pub(crate) fn put_back(&mut self, index: Index) {
        self.blocks.get_mut(index).state = State::Free;
        self.put_in(index);
    }

    /// What freeing a block, allocated or pending, changes in the free parts and in what was asked for.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is found out here is used right after")]
    pub(super) fn plan_free(&self, index: Index) -> Freeing {
        let &Block { prev, next, size, requested, state, class, in_range, .. } = self.blocks.get(index);
        let mut change = [0; LANES];
        change[REQUESTED] = -signed(requested);
        if state == State::Allocated {
            change[COUNT] = -1;
            change[BYTES] = -signed(size);
        }
        let (before, bytes_before, first) = self.joins(prev, |block| block.prev);
        let (after, bytes_after, last) = self.joins(next, |block| block.next);
        let joined = bytes_before + bytes_after;
        let is_part = (first & last) != NONE;
        if !in_range {
            change[SPLIT] = i64::from(is_part) - i64::from(before != NONE) - i64::from(after != NONE);
            change[SPLIT_BYTES] = if is_part { signed(size) } else { -signed(joined) };
        }
        Freeing { block: index, class, size, before, after, change }
    }

    /// A neighbour that a block is joined with, if it is free; its bytes; and the neighbour behind it, or else itself.
    /// Without branches as far as can be: whether neighbours are free follows no pattern.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn joins(&self, neighbour: Index, behind: impl Fn(&Block) -> Index) -> (Index, u64, Index) {
        let Some(block) = self.blocks.find(neighbour) else { return (NONE, 0, NONE) };
        let is_free = block.state == State::Free;
        let (size, behind) = (block.size, behind(block));
        (
            if is_free { neighbour } else { NONE },
            if is_free { size } else { 0 },
            if is_free { behind } else { neighbour },
        )
    }

    /// Turns a block that is no longer in use, and no longer counted, into a free one.
    pub(super) fn free(&mut self, freeing: &Freeing) {
        if !self.give_place_back(freeing.block) {
            self.free_unplanned(freeing);
        }
    }

    /// The same for a block that stands for no place of a plan.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for its plan")]
    fn free_unplanned(&mut self, freeing: &Freeing) {
        let Freeing { block, class, before, after, .. } = *freeing;
        let bins = &mut self.bins[part(class)];
        for neighbour in [before, after] {
            if neighbour != NONE {
                bins.remove(&mut self.blocks, neighbour);
                self.blocks.merge(block, neighbour);
            }
        }
        self.put(block);
    }

    /// Frees a pending block that waits for nothing any more, and whose figures are counted but for that.
    pub(super) fn free_pending(&mut self, freeing: &Freeing) {
        self.ledger.end_pending(freeing.class, signed(freeing.size));
        self.free(freeing);
    }

    /// Frees an allocated block that no other stream uses, if the ledger covers it and it is still there to be
    /// freed; whether that was so.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call of its own is a tenth of it")]
    pub(super) fn free_if_covered(&mut self, place: &Place<'_>) -> bool {
        debug_assert!(!place.is_used(), "a block that other streams use is freed by another route");
        // Whether the place still tells the truth is seen when it is withdrawn: a plan changes nothing.
        debug_assert!(!self.blocks.get(place.block()).is_planned, "a place of a plan is given back by another route");
        let freeing = self.plan_free(place.block());
        if freeing.size >= self.rules.max_split || !place.withdraw() {
            return false;
        }
        if !self.ledger.try_apply(freeing.class, &freeing.change) {
            place.restore();
            return false;
        }
        self.free_unplanned(&freeing);
        true
    }

    /// Frees a block that another thread gave back, if the ledger covers it; whether that was so.
    #[inline]
    pub(super) fn free_remote(&mut self, pages: &Pages, index: Index) -> bool {
        let freeing = self.plan_free(index);
        let plain = freeing.size < self.rules.max_split;
        if !(plain && self.ledger.try_apply(freeing.class, &freeing.change)) {
            return false;
        }
        debug_assert!(self.remotely_freed(pages, index).is_some(), "a block of the chain is allocated until here");
        pages.clear(self.blocks.get(index).address);
        self.free(&freeing);
        true
    }

    /// Joins the neighbours that are in that set to a block that is in none.
    #[inline]
    pub(crate) fn join_neighbours(&mut self, index: Index, set: State) {
        let block = self.blocks.get(index);
        let (before, after) = (block.prev, block.next);
        for neighbour in [before, after] {
            if self.blocks.find(neighbour).is_some_and(|other| other.state == set) {
                if set == State::Unmapped {
                    self.take_unmapped(neighbour);
                } else {
                    self.take_out(neighbour);
                }
                self.blocks.merge(index, neighbour);
            }
        }
    }

    /// Puts a block, which is in no set, into the unmapped set.
    pub(crate) fn put_unmapped(&mut self, index: Index) {
        let block = self.blocks.get_mut(index);
        block.state = State::Unmapped;
        self.unmapped[part(block.class)].insert((block.address, index));
    }

    /// Takes a block out of the unmapped set.
    pub(crate) fn take_unmapped(&mut self, index: Index) {
        let block = self.blocks.get(index);
        let removed = self.unmapped[part(block.class)].remove(&(block.address, index));
        debug_assert!(removed, "an unmapped block was not in its set");
        self.blocks.get_mut(index).state = State::Held;
    }

    /// Whether a block is handed out at that address.
    #[inline]
    pub(crate) fn is_allocated(&self, index: Index, address: u64) -> bool {
        self.blocks.find(index).is_some_and(|block| block.state == State::Allocated && block.address == address)
    }

    /// Whether a block still exists and is free.
    pub(crate) fn is_free(&self, id: BlockId) -> bool {
        self.blocks.contains(id) && self.blocks.get(id.index).state == State::Free
    }

    /// Whether a block is free and a segment by itself, so that it can be given back.
    pub(crate) fn is_whole(&self, id: BlockId) -> bool {
        let block = self.blocks.get(id.index);
        self.is_free(id) && !block.is_split() && !block.in_range
    }

    /// Notes another stream that an allocated block is used on.
    pub(crate) fn add_use(&mut self, index: Index, new: StreamUse) {
        let uses = &mut self.blocks.get_mut(index).uses;
        self.uses.add(uses, new);
    }

    /// The other streams that a block was used on.
    pub(crate) fn uses_of(&self, block: &Block) -> &[StreamUse] {
        self.uses.get(block.uses)
    }

    /// An allocated block that other streams use is given back: it is pending until they have passed, and they are
    /// returned. `empty` takes the place of their list.
    pub(crate) fn begin_pending_for_uses(&mut self, index: Index, empty: Vec<StreamUse>) -> Vec<StreamUse> {
        let list = std::mem::replace(&mut self.blocks.get_mut(index).uses, NONE);
        self.begin_pending(index);
        self.uses.take(list, empty)
    }

    /// An allocated block is pending from now on.
    pub(crate) fn begin_pending(&mut self, index: Index) {
        let block = self.blocks.get_mut(index);
        block.state = State::Pending;
        self.ledger.begin_pending(block.class, signed(block.size));
    }
}
