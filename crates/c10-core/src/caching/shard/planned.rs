//! Places of the stream's plan: handing out, taking back, and turning an arena into cached memory.
//!
//! A place is a block of its own, in no chain: the places of a plan overlap, since they are used one after the other. The
//! memory is the arena's: one more block for a segment of its own, and the free parts of segments that stay in any case.
//!
//! **Invariants:** a planned block is `Planned` while its place is free, and its place is taken while it is anything else. An
//! arena that is given up is ordinary memory from then on: its blocks in use and free ones between them are in chains.

use crate::caching::block::{Asked, Block, BlockId, Index, NONE, ROUND_LARGE, SizeClass, State};
use crate::caching::plan::{Answer, Holes, Layout, StreamPlan, Turn};
use crate::caching::remote::Place;
use crate::caching::shard::books::{Books, Taking, signed};
use crate::caching::shard::{Clean, Drained, Locked};
use crate::caching::stats::{BYTES, COUNT, Change, LANES, REQUESTED, SPLIT, SPLIT_BYTES};

/// All planned blocks count as large ones, since the arena does.
const CLASS: SizeClass = SizeClass::Large;

/// What a request is answered by the plan.
pub(crate) enum Planned {
    /// A place is handed out, at that address.
    Found(u64),
    /// A place is taken, and held, but the leases do not cover it.
    Uncovered(Taking),
    /// The cache serves it.
    Cache,
    /// The same, and what it got is to be noted.
    Learn,
    /// Something is to be done first.
    First(Turn),
}

/// A free part of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hole {
    id: BlockId,
    address: u64,
    pub(crate) size: u64,
}

impl Locked<'_> {
    /// Notes what the stream got for a request, if its plan learns.
    pub(crate) fn note_allocated(&mut self, asked: Asked, address: u64) {
        let books = self.books_mut();
        let size = books.round(asked.bytes());
        if let Some(plan) = &mut books.plan {
            plan.allocated(size, address);
        }
    }

    /// Notes what is given back, and whether other streams used it, if the plan learns.
    pub(crate) fn note_freed(&mut self, address: u64, is_shared: bool) {
        if let Some(plan) = &mut self.books_mut().plan {
            plan.freed(address, is_shared);
        }
    }
}

impl Drained<'_> {
    /// Serves a request by the plan; `marks` steps were marked so far. The shard is that of a default pool.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "called once")]
    pub(crate) fn take_place(mut self, asked: Asked, marks: u64, publish: impl FnOnce(Index, u64)) -> Planned {
        let books = self.books_mut();
        let size = books.round(asked.bytes());
        let Some(plan) = &mut books.plan else {
            books.plan = Some(Box::new(StreamPlan::new(marks)));
            return Planned::Learn;
        };
        match plan.next(size, marks) {
            Answer::Place(block) => {
                let mut clean = self.flush();
                match clean.books_mut().hand_place_out(block, asked) {
                    Ok(address) => {
                        // The lock is held until the address is published.
                        publish(block, address);
                        Planned::Found(address)
                    }
                    Err(taking) => Planned::Uncovered(taking),
                }
            }
            Answer::Cache => Planned::Cache,
            Answer::Learn => Planned::Learn,
            Answer::First(turn) => Planned::First(turn),
        }
    }

    /// Whether a block stands for a place of the plan. If not, that it is given back is noted where the plan learns.
    #[inline]
    pub(crate) fn is_place(&mut self, block: Index, address: u64) -> bool {
        let is_planned = self.books_mut().blocks.get(block).is_planned;
        if !is_planned && self.books_mut().plan.as_ref().is_some_and(|plan| plan.is_learning()) {
            self.locked().note_freed(address, false);
        }
        is_planned
    }
}

impl Clean<'_> {
    /// Takes a place back that no other stream uses; false if another thread has done so meanwhile.
    #[inline]
    pub(crate) fn take_place_back(&mut self, place: &Place<'_>) -> bool {
        let is_back = place.withdraw();
        if is_back {
            let books = self.books_mut();
            let &Block { size, requested, .. } = books.blocks.get(place.block());
            books.ledger.remove_block(CLASS, signed(size), signed(requested));
            books.give_place_back(place.block());
        }
        is_back
    }
}

impl Books {
    /// Hands out a place that is taken; its address. If the leases do not cover it, it is held, and that is what would change.
    #[inline]
    fn hand_place_out(&mut self, index: Index, asked: Asked) -> Result<u64, Taking> {
        let block = self.blocks.get_mut(index);
        let (size, requested) = (signed(block.size), signed(asked.bytes()));
        if self.ledger.try_add_block(CLASS, size, requested) {
            (block.state, block.requested) = (State::Allocated, asked.bytes());
            return Ok(block.address);
        }
        block.state = State::Held;
        let mut change = [0; LANES];
        (change[COUNT], change[BYTES], change[REQUESTED]) = (1, size, requested);
        Err(Taking { block: index, class: CLASS, cut: None, size: block.size, asked, change })
    }

    /// Takes the place of a block back that is no longer in use, and no longer counted; whether it stands for one.
    #[inline]
    pub(super) fn give_place_back(&mut self, index: Index) -> bool {
        let block = self.blocks.get_mut(index);
        if !block.is_planned {
            return false;
        }
        block.state = State::Planned;
        let number = block.seat;
        if let Some(plan) = &mut self.plan {
            plan.give_back(number);
        }
        true
    }

    /// Free parts of segments that a plan may use: their names, addresses and bytes.
    pub(crate) fn holes(&self) -> Vec<Hole> {
        let hole = |index| {
            let &Block { address, size, in_range, .. } = self.blocks.get(index);
            (!in_range && size >= ROUND_LARGE).then(|| Hole { id: self.blocks.id(index), address, size })
        };
        self.bins(CLASS).iter(&self.blocks).filter_map(hole).collect()
    }

    /// Whether a hole is what it was.
    pub(crate) fn has_hole(&self, hole: &Hole) -> bool {
        let block = self.blocks.find(hole.id.index);
        self.is_free(hole.id) && block.is_some_and(|block| (block.address, block.size) == (hole.address, hole.size))
    }

    /// Takes an arena over for the plan that wants it: holes, and a segment whose figures are counted. What that changes in
    /// the figures.
    pub(crate) fn adopt(
        &mut self,
        layout: &Layout,
        holes: &Holes,
        parts: &[Option<Hole>],
        new: Option<(u64, u64)>,
    ) -> Change {
        let (mut change, mut arena, mut bytes) = ([0; LANES], Vec::new(), 0);
        for hole in parts.iter().flatten() {
            let block = self.blocks.get(hole.id.index);
            if block.is_split() {
                change[SPLIT] -= 1;
                change[SPLIT_BYTES] -= signed(block.size);
            }
            self.hold(hole.id.index);
            self.blocks.get_mut(hole.id.index).state = State::Arena;
            arena.push(hole.id.index);
            bytes += hole.size;
        }
        if let Some((address, size)) = new {
            arena.push(self.blocks.insert(Block::arena(address, size, CLASS)));
            bytes += size;
        }
        let address = |offset: u64| match holes.find(offset) {
            Some((hole, within)) => parts[hole].map_or(0, |hole| hole.address + within),
            None => new.map_or(0, |(address, _)| address + offset - holes.end()),
        };
        let blocks = &mut self.blocks;
        let place =
            |offset: u64, size: u64, number: u32| blocks.insert(Block::planned(address(offset), size, CLASS, number));
        if let Some(plan) = &mut self.plan {
            plan.adopt(arena, bytes, layout, place);
        }
        change
    }

    /// The planned blocks in use between two addresses, in order.
    fn places_in_use(&self, from: u64, to: u64) -> Vec<Index> {
        let in_use =
            |block: &Block| block.is_planned && block.state != State::Planned && (from..to).contains(&block.address);
        let found = self.blocks.iter().filter(|(_, block)| in_use(block));
        let mut found: Vec<(u64, Index)> = found.map(|(index, block)| (block.address, index)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, index)| index).collect()
    }

    /// The blocks that a part of an arena would consist of without the plan.
    pub(crate) fn arena_chain(&self, arena: &Block) -> Vec<Block> {
        let free = |from: u64, to: u64| Block::segment(from, to - from, CLASS, false);
        let (mut chain, mut at) = (Vec::new(), arena.address);
        let end = arena.address + arena.size;
        for block in self.places_in_use(at, end).into_iter().map(|index| self.blocks.get(index)) {
            if block.address > at {
                chain.push(free(at, block.address));
            }
            at = block.address + block.size;
            chain.push(block.clone());
        }
        if at < end {
            chain.push(free(at, end));
        }
        chain
    }

    /// Gives the plan up: what is in use of its arena stays, the rest is free. Whether there was one. Under all locks: the
    /// leases may be overdrawn.
    pub(crate) fn dissolve(&mut self) -> bool {
        let Some(plan) = &mut self.plan else { return false };
        let (arena, blocks) = (plan.arena().to_vec(), plan.blocks());
        plan.drop_plan();
        let part = |index: &Index| {
            let &Block { address, size, .. } = self.blocks.get(*index);
            self.places_in_use(address, address + size)
        };
        let in_use: Vec<Vec<Index>> = arena.iter().map(part).collect();
        for index in blocks {
            let block = self.blocks.get_mut(index);
            (block.is_planned, block.seat) = (false, NONE);
            if block.state == State::Planned {
                self.blocks.remove(index);
            }
        }
        for (index, in_use) in arena.iter().zip(&in_use) {
            self.chain_up(*index, in_use);
        }
        !arena.is_empty()
    }

    /// Puts blocks in use, and free ones between them, in the place of a part of an arena.
    fn chain_up(&mut self, arena: Index, in_use: &[Index]) {
        let &Block { address: mut at, size, prev: mut before, next: after, .. } = self.blocks.get(arena);
        let (end, mut free) = (at + size, Vec::new());
        self.blocks.remove(arena);
        for next in in_use.iter().copied().map(Some).chain([None]) {
            let begin = next.map_or(end, |index| self.blocks.get(index).address);
            if begin > at {
                let gap = self.blocks.insert(Block::segment(at, begin - at, CLASS, false));
                self.link(before, gap);
                before = gap;
                free.push(gap);
            }
            if let Some(index) = next {
                self.link(before, index);
                (before, at) = (index, begin + self.blocks.get(index).size);
            }
        }
        if after != NONE {
            self.link(before, after);
        }
        for gap in free {
            let freeing = self.plan_free(gap);
            self.ledger.apply(CLASS, &freeing.change);
            self.free(&freeing);
        }
    }

    /// Makes a block the neighbour of the one before it.
    fn link(&mut self, before: Index, index: Index) {
        self.blocks.get_mut(index).prev = before;
        if before != NONE {
            self.blocks.get_mut(before).next = index;
        }
    }
}
