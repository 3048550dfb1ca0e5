//! The equations that hold between any two calls, whatever the driver answered in the last one.
//!
//! They are checked twice: shard by shard as it is, with its note and its remote frees ([`DeviceAllocator::check_as_is`]),
//! and all shards together after a flush ([`DeviceAllocator::check`]). Only looks, never mends. Costs time proportional to
//! the number of blocks; meant for tests, while no other thread allocates.

use std::collections::BTreeSet;

use crate::caching::block::{Block, ELASTIC_PAGE, Index, NONE, State};
use crate::caching::block::{MIN_BLOCK_SIZE, SizeClass};

use crate::caching::device::AllShards;
use crate::caching::pools::{Pending, Waiter};
use crate::caching::remote::ShardId;
use crate::caching::shard::{Books, LastAlloc, Locked, Shard, Stage, signed};
use crate::caching::slow::DeviceAllocator;
use crate::caching::slow::growth::Growth;
use crate::caching::stats::{BYTES, COUNT, REQUESTED, SPLIT, SPLIT_BYTES, scope};
use crate::caching::stats::{DeviceStats, StatByPool};
use crate::sync::lock;

/// The first equation that does not hold, in words.
type Check = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(what()) }
}

impl DeviceAllocator {
    /// Checks everything; says what is wrong first.
    pub(crate) fn check(&self) -> Check {
        let growth = lock(&self.growth);
        let pending = self.cache.pending.lock();
        self.cache.all_shards(|all| {
            for (shard, state) in all.shards.iter().zip(&all.states) {
                self.check_shard(shard, state)?;
            }
            self.check_pending(&pending, all)?;
            check_private_pools(&growth, all)?;
            check_ranges(&growth, all)?;
            check_stock(&growth, all)?;
            let stats = all.stats();
            for class in [SizeClass::Small, SizeClass::Large] {
                check_stats(all, &stats, class, idle_bytes(&growth, class))?;
            }
            all.overdrawn().map_or(Ok(()), Err)?;
            ensure(stats.is_valid(), || format!("statistics disagree with themselves: {stats:?}"))
        })
    }

    fn check_shard(&self, shard: &Shard, state: &Books) -> Check {
        for (index, block) in state.blocks.iter() {
            self.check_block(shard.id, state, index, block)?;
        }
        let of_state = |wanted: State| state.blocks.iter().filter(|(_, block)| block.state == wanted).count();
        let (free, unmapped) = (of_state(State::Free), of_state(State::Unmapped));
        let classes = [SizeClass::Small, SizeClass::Large];
        let listed: usize = classes.iter().map(|class| state.bins(*class).len()).sum();
        check_plan(state)?;
        ensure(listed == free, || format!("{listed} blocks in the free set, {free} free blocks"))?;
        let listed: usize = classes.iter().map(|class| state.unmapped(*class).len()).sum();
        ensure(listed == unmapped, || format!("{listed} blocks in the unmapped set, {unmapped} unmapped blocks"))
    }

    /// Checks each shard as it is: nothing is flushed or drained.
    pub(crate) fn check_as_is(&self) -> Check {
        let pending = self.cache.pending.lock();
        let waiting: BTreeSet<Waiter> = pending.iter().collect();
        let shards = lock(&self.cache.figures).shards.clone();
        shards.iter().try_for_each(|shard| self.check_locked(shard, &shard.lock(), &waiting))
    }

    fn check_locked(&self, shard: &Shard, locked: &Locked<'_>, waiting: &BTreeSet<Waiter>) -> Check {
        let (last, books) = (locked.last(), locked.books());
        for (index, block) in books.blocks.iter() {
            check_links(books, index, block)?;
            let slot = self.cache.shared.pages.slot_at(block.address);
            let seen = slot.filter(|(of, _)| *of == shard.id).and_then(|(_, slot)| slot.look());
            let seen = seen.filter(|seen| seen.block() == index);
            let allocated = block.state == State::Allocated;
            ensure(seen.is_some() == allocated, || format!("page table and state differ: {block:?}"))?;
            let marked = last.block_if_noted() == Some(index) && last.marked;
            let used = seen.is_some_and(|seen| seen.is_used());
            ensure(used == (marked || block.uses != NONE), || format!("page table and use differ: {block:?}"))?;
        }
        check_note(shard, last, books, waiting)?;
        [SizeClass::Small, SizeClass::Large].into_iter().try_for_each(|class| check_ledger(books, class))
    }

    fn check_block(&self, shard: ShardId, state: &Books, index: Index, block: &Block) -> Check {
        check_links(state, index, block)?;
        let fail = |what: &str| format!("{what}: {block:?}");
        let place = self.cache.shared.pages.find(block.address);
        let place = place.filter(|place| place.shard == shard && place.block() == index);
        ensure(place.is_some() == (block.state == State::Allocated), || fail("page table and state differ"))?;
        let used = place.is_some_and(|place| place.is_used());
        ensure(used == (block.uses != NONE), || fail("page table and use differ"))
    }

    fn check_pending(&self, pending: &Pending, all: &AllShards<'_>) -> Check {
        ensure(pending.is_consistent(), || "events and waiting blocks differ".to_owned())?;
        let waiting: BTreeSet<_> = pending.iter().collect();
        let counted = self.cache.pending_count.load(std::sync::atomic::Ordering::Acquire);
        ensure(waiting.len() == counted, || format!("{} blocks wait, {counted} counted", waiting.len()))?;
        let shards = all.shards.iter().zip(&all.states);
        let blocks = shards
            .flat_map(|(shard, state)| state.blocks.iter().map(move |(index, block)| (shard, state, index, block)));
        let mut found = 0;
        for (shard, _, index, block) in blocks.filter(|(.., block)| block.state == State::Pending) {
            let named = waiting.contains(&Waiter { shard: shard.id, block: index });
            ensure(named, || format!("nothing is awaited for {block:?}"))?;
            found += 1;
        }
        ensure(found == waiting.len(), || format!("{} blocks wait, {found} are pending", waiting.len()))
    }
}

/// A block and its neighbours link to each other, touch, and are in the sets that their states name.
fn check_links(state: &Books, index: Index, block: &Block) -> Check {
    let fail = |what: &str| format!("{what}: {block:?}");
    let aligned = block.size > 0 && block.size.is_multiple_of(MIN_BLOCK_SIZE);
    ensure(aligned, || fail("size is no multiple of 512"))?;
    if let Some(after) = state.blocks.find(block.next) {
        ensure(after.state != State::Vacant, || fail("next block is gone"))?;
        ensure(after.prev == index, || fail("next block does not link back"))?;
        ensure(after.address == block.address + block.size, || fail("gap before the next block"))?;
        ensure(after.in_range == block.in_range && after.class == block.class, || fail("segment of two kinds"))?;
        let alike = block.is_unused() && after.state == block.state;
        ensure(!alike, || fail("unused neighbours are not merged"))?;
    }
    if let Some(before) = state.blocks.find(block.prev) {
        ensure(before.state != State::Vacant && before.next == index, || fail("previous block does not link back"))?;
    }
    ensure(block.state != State::Held, || fail("held while nothing is asked of the driver"))?;
    ensure(block.is_mapped() || block.in_range, || fail("unmapped outside of a range"))?;
    ensure(block.uses == NONE || block.state == State::Allocated, || fail("used on other streams and not allocated"))?;
    let unmapped = state.unmapped(block.class).contains(&(block.address, index));
    ensure(unmapped == (block.state == State::Unmapped), || fail("unmapped set and state differ"))?;
    let in_bins = block.state != State::Free || state.bins(block.class).contains(&state.blocks, index);
    ensure(in_bins, || fail("a free block is not in the free set"))?;
    Ok(())
}

/// The places of a plan that are taken are those of the blocks in use; they lie in its arena.
fn check_plan(state: &Books) -> Check {
    let planned = || state.blocks.iter().map(|(_, block)| block).filter(|block| block.is_planned);
    let arenas = state.blocks.iter().filter(|(_, block)| block.state == State::Arena).count();
    let Some(plan) = &state.plan else {
        return ensure(planned().count() + arenas == 0, || "planned blocks without a plan".to_owned());
    };
    let parts: Vec<&Block> = plan.arena().iter().map(|part| state.blocks.get(*part)).collect();
    let is_whole = parts.len() == arenas && parts.iter().all(|part| part.state == State::Arena);
    ensure(is_whole, || format!("{arenas} parts of arenas, the plan has {parts:?}"))?;
    let within = |block: &Block| {
        let end = block.address + block.size;
        parts.iter().any(|part| block.address >= part.address && end <= part.address + part.size)
    };
    let beyond = planned().find(|block| block.is_split() || !within(block));
    ensure(beyond.is_none(), || format!("a planned block is not in the arena: {beyond:?}"))?;
    let taken = planned().filter(|block| block.state != State::Planned).map(|block| block.seat);
    ensure(plan.has_taken(taken), || "blocks in use and places taken differ".to_owned())
}

/// What a shard's note says of its last allocation fits the block.
fn check_note(shard: &Shard, last: &LastAlloc, books: &Books, waiting: &BTreeSet<Waiter>) -> Check {
    let Some(index) = last.block_if_noted() else { return Ok(()) };
    let fail = |what: &str| format!("{what}: {last:?}");
    let block = books.blocks.get(index);
    ensure(block.state == State::Allocated && block.address == last.claim.address(), || {
        fail("the note is of another block")
    })?;
    let is_same = (block.requested, signed(block.size), block.class);
    ensure(is_same == (last.asked.bytes(), last.change[BYTES], last.class), || {
        fail("the note differs from its block")
    })?;
    let rest = books.blocks.find(last.rest).is_none_or(|rest| rest.state == State::Free && block.next == last.rest);
    ensure(rest, || fail("what was left of the block is not free"))?;
    let is_waiting = waiting.contains(&Waiter { shard: shard.id, block: index });
    let (marked, undone) = (last.marked, last.undone_count() > 0);
    let fits = match last.stage {
        Stage::Allocated => !is_waiting,
        Stage::Used(_) => marked && !is_waiting,
        Stage::Waiting => marked && is_waiting,
        Stage::Dormant => undone && !is_waiting,
    };
    ensure(fits, || fail("the stage of the last allocation is impossible"))
}

/// The ledger of a shard counts its blocks as they are.
fn check_ledger(books: &Books, class: SizeClass) -> Check {
    let blocks = || books.blocks.iter().map(|(_, block)| block).filter(|block| block.class == class);
    let of = |state: State| blocks().filter(move |block| block.state == state);
    let bytes = |state: State| of(state).map(|block| signed(block.size)).sum::<i64>();
    let count = |state: State| i64::try_from(of(state).count()).unwrap_or(i64::MAX);
    let parts = || of(State::Free).filter(|block| block.is_split() && !block.in_range);
    let scope = scope(class);
    let sums = [
        (books.ledger.current(scope, COUNT), count(State::Allocated)),
        (books.ledger.current(scope, BYTES), bytes(State::Allocated)),
        (
            books.ledger.current(scope, REQUESTED),
            blocks().filter(|block| block.is_active()).map(|block| signed(block.requested)).sum(),
        ),
        (books.ledger.current(scope, SPLIT), i64::try_from(parts().count()).unwrap_or(i64::MAX)),
        (books.ledger.current(scope, SPLIT_BYTES), parts().map(|block| signed(block.size)).sum()),
        (books.ledger.pending(scope, COUNT), count(State::Pending)),
        (books.ledger.pending(scope, BYTES), bytes(State::Pending)),
    ];
    let differs = sums.iter().position(|(counted, sum)| counted != sum);
    ensure(differs.is_none(), || format!("the ledger of {class:?} counts (counted, sum) {sums:?}"))
}

/// The blocks of each range cover it, and what is mapped of it is made of whole pages.
fn check_ranges(growth: &Growth, all: &AllShards<'_>) -> Check {
    let in_ranges = || {
        all.states.iter().flat_map(|state| state.blocks.iter()).map(|(_, block)| block).filter(|block| block.in_range)
    };
    for range in growth.ranges.values() {
        let of_range = |block: &&Block| (range.address..range.address + range.size).contains(&block.address);
        let blocks: Vec<&Block> = in_ranges().filter(of_range).collect();
        let covered: u64 = blocks.iter().map(|block| block.size).sum();
        let heads = blocks.iter().filter(|block| block.prev == NONE).count();
        ensure(covered == range.size && heads == 1, || format!("{range:?} has {heads} heads, {covered} bytes"))?;
        let unaligned = |block: &&&Block| {
            let (from, to) = (block.address - range.address, block.address + block.size - range.address);
            let whole = from.is_multiple_of(range.page) && to.is_multiple_of(range.page);
            !(block.is_mapped() || whole)
        };
        let torn = blocks.iter().find(unaligned);
        ensure(torn.is_none(), || format!("a part of a page is unmapped: {torn:?}"))?;
    }
    let total: u64 = growth.ranges.values().map(|range| range.size).sum();
    let covered: u64 = in_ranges().map(|block| block.size).sum();
    ensure(total == covered, || format!("ranges of {total} bytes have blocks of {covered}"))
}

/// Each page is behind the one place that a block has memory at, or idle, and what was left is what blocks stand for.
fn check_stock(growth: &Growth, all: &AllShards<'_>) -> Check {
    let of_ranges = || {
        let blocks = all.states.iter().flat_map(|state| state.blocks.iter().map(|(_, block)| block));
        blocks.filter(|block| block.in_range)
    };
    let stock = &growth.stock;
    // The ends of a block that are no whole pages share them with its neighbours.
    let of_stock = |block: &&Block| block.is_mapped() && growth.range_at(block.address).elastic;
    let pages = of_ranges().filter(of_stock).flat_map(|block| {
        let (begin, end) = (block.address / ELASTIC_PAGE, (block.address + block.size).div_ceil(ELASTIC_PAGE));
        (begin..end).map(|page| page * ELASTIC_PAGE)
    });
    let pages: BTreeSet<u64> = pages.collect();
    let places: BTreeSet<u64> = stock.places().map(|(place, _)| place).collect();
    ensure(pages == places, || format!("blocks have pages at {pages:x?}, the stock at {places:x?}"))?;
    let handles: Vec<_> = stock.places().map(|(_, page)| page).chain(stock.idle()).collect();
    let distinct = handles.iter().collect::<BTreeSet<_>>().len();
    ensure(distinct == handles.len(), || format!("{distinct} pages are in {} places", handles.len()))?;
    let ends = |address: u64, size: u64| address + size;
    let noted: BTreeSet<u64> = stock.all_left().map(|left| ends(left.address, left.size)).collect();
    let left = of_ranges().filter(|block| block.state == State::Left);
    let left: BTreeSet<u64> = left.map(|block| ends(block.address, block.size)).collect();
    ensure(noted == left, || format!("blocks that were left end at {left:x?}, the stock's at {noted:x?}"))?;
    let bytes: u64 = stock.all_left().map(|left| left.size).sum();
    ensure(bytes == stock.left_bytes(), || format!("{bytes} bytes were left, {} counted", stock.left_bytes()))
}

/// Bytes that are held behind no address; they count as those of large blocks.
fn idle_bytes(growth: &Growth, class: SizeClass) -> i64 {
    let pages = if class == SizeClass::Large { growth.stock.idle().count() as u64 } else { 0 };
    signed(pages * ELASTIC_PAGE)
}

fn check_private_pools(growth: &Growth, all: &AllShards<'_>) -> Check {
    for (id, pool) in &growth.private {
        let states = all.states.iter().filter(|state| state.key.owner == Some(*id));
        let segments = states.flat_map(|state| state.blocks.iter()).filter(|(_, block)| block.prev == NONE).count();
        ensure(segments == pool.segments as usize, || format!("{id:?} has {segments} segments: {pool:?}"))?;
    }
    let pools = growth.pools.iter().count();
    ensure(pools == 1 + growth.private.len(), || format!("{pools} pools"))
}

fn check_stats(all: &AllShards<'_>, stats: &DeviceStats, class: SizeClass, idle: i64) -> Check {
    let one = |_: &Block| 1;
    let size = |block: &Block| signed(block.size);
    let allocated = |block: &Block| block.state == State::Allocated;
    let parts = |block: &Block| block.state == State::Free && block.is_split() && !block.in_range;
    let segments = |block: &Block| block.prev == NONE && !block.in_range && !block.is_planned;
    let check = |name: &str, stat: &StatByPool, counts: &dyn Fn(&Block) -> bool, amount: &dyn Fn(&Block) -> i64| {
        let blocks = all.states.iter().flat_map(|state| state.blocks.iter()).map(|(_, block)| block);
        let sum: i64 = blocks.filter(|block| block.class == class && counts(block)).map(amount).sum();
        let current = stat.of(class).current;
        ensure(sum == current, || format!("{name} of {class:?} is {current}, blocks add up to {sum}"))
    };
    check("allocation", &stats.allocation, &allocated, &one)?;
    check("allocated_bytes", &stats.allocated_bytes, &allocated, &size)?;
    check("active", &stats.active, &Block::is_active, &one)?;
    check("active_bytes", &stats.active_bytes, &Block::is_active, &size)?;
    check("requested_bytes", &stats.requested_bytes, &Block::is_active, &|block| signed(block.requested))?;
    check("inactive_split", &stats.inactive_split, &parts, &one)?;
    check("inactive_split_bytes", &stats.inactive_split_bytes, &parts, &size)?;
    check("segment", &stats.segment, &segments, &one)?;
    let mapped = all.states.iter().flat_map(|state| state.blocks.iter()).map(|(_, block)| block);
    let mapped: i64 = mapped.filter(|block| block.class == class && block.has_memory()).map(size).sum();
    let reserved = stats.reserved_bytes.of(class).current;
    ensure(mapped + idle == reserved, || {
        format!("reserved_bytes of {class:?} is {reserved}, blocks add up to {mapped}, and {idle} are idle")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caching::tests::scripts::{Bench, on};

    /// A shard is checked with its note, which stays, and what is wrong is found in each part of it.
    #[test]
    fn a_shard_is_checked_as_it_is() {
        let bench = Bench::with(64 << 30, "");
        // The first allocation grows the cache, which is not noted; the second is.
        let pair = || {
            let address = bench.allocator.alloc(&bench.driver, on(0), 5000).unwrap();
            bench.allocator.free(&bench.driver, address).unwrap();
            address
        };
        let address = (pair(), pair()).1;
        let shared = &bench.allocator.shared;
        let (id, slot) = shared.pages.slot_at(address).unwrap();
        let shard = shared.shard(id).unwrap();
        let noted = |shard: &Shard| *shard.lock().last();
        let before = noted(shard);
        assert_eq!(bench.allocator.inconsistency_as_is(), None);
        assert_eq!((noted(shard).stage, noted(shard).undone_count(), before.undone_count()), (Stage::Dormant, 1, 1));

        let seen = slot.look().unwrap();
        assert!(slot.withdraw(seen));
        let found = bench.allocator.inconsistency_as_is().unwrap();
        assert!(found.starts_with("page table and state differ"), "{found}");
        slot.restore(seen);
        assert!(slot.mark_used(seen));
        let found = bench.allocator.inconsistency_as_is().unwrap();
        assert!(found.starts_with("page table and use differ"), "{found}");
        slot.restore(seen);
        assert_eq!(bench.allocator.inconsistency(), None);
        assert_eq!(noted(shard).block_if_noted(), None, "the whole check has flushed it");
    }
}
