//! From an address that was handed out to its shard and block, without a lock.
//!
//! A table of three levels over the pages of 1 MiB that segments cover. A page knows its shard. Blocks of the large pool
//! have more than 1 MiB, so at most one of them begins in a page, and one slot is enough. A page of the small pool is
//! divided into 128 parts of 8 KiB; a part in which a block begins has 16 slots, one for each 512 bytes. Segments that do
//! not begin at a whole page, or lie beyond the table, have their slots in an ordinary map behind a lock; so has what is
//! left of a block in the large pool while it is handed out for a moment, which it is when a pool is brought back.
//!
//! A *slot* is 0, or the position of an allocated block and two flags: *returned* (another thread has given it back and
//! its shard has not taken note yet) and *used* (it was used on other streams). Only the holder of the shard's lock writes
//! a slot, but for the flag `returned`, which any thread sets by compare-and-swap: of two threads one succeeds.
//!
//! **Invariant:** a slot is not 0 exactly while its block is allocated. What the table was given for a page stays with
//! the page: addresses come back.

use std::array;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::caching::arena::Arena;
use crate::caching::block::Index;
use crate::caching::size_class::SizeClass;

/// Names a shard of the process's allocator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ShardId(pub(super) u32);

const PAGE_BITS: u32 = 20;
const PAGE: u64 = 1 << PAGE_BITS;
/// Address bits the table covers.
const ADDRESS_BITS: u32 = 48;
/// Entries of a node of the two lower levels.
const FAN: usize = 1024;
const ROOTS: usize = 1 << (ADDRESS_BITS - PAGE_BITS - 20);
const PART_BITS: u32 = 13;
const PARTS: usize = 1 << (PAGE_BITS - PART_BITS);
const SLOTS: usize = 1 << (PART_BITS - 9);
/// Parts that are made together.
const BATCH: usize = 8;

const RETURNED: u32 = 1;
const USED: u32 = 2;

/// A slot.
pub(crate) type Slot = AtomicU32;

type Part = [Slot; SLOTS];

/// One page.
#[derive(Debug, Default)]
struct Page {
    /// Number of its shard plus 1, times two, and whether it is one of the small pool.
    shard: AtomicU32,
    /// Where the block of the large pool that begins here does, in units of 512 bytes.
    begin: AtomicU32,
    /// The slot of that block.
    large: Slot,
    small: OnceLock<Box<SmallPage>>,
}

/// The slots of a page of the small pool.
#[derive(Debug)]
struct SmallPage {
    /// Number plus 1 of each part's slots.
    parts: [AtomicU8; PARTS],
    batches: [OnceLock<Box<[Part; BATCH]>>; PARTS / BATCH],
    /// Parts that have slots.
    made: Mutex<u8>,
}

type Node<T> = OnceLock<Box<[T; FAN]>>;

/// The table.
#[derive(Debug)]
pub(crate) struct Pages {
    roots: Box<[Node<Node<Page>>; ROOTS]>,
    /// Blocks that the table cannot hold: their shards, and the numbers of their slots.
    odd: Mutex<BTreeMap<u64, (ShardId, u32)>>,
    odd_slots: Arena<Slot>,
    odd_count: AtomicUsize,
}

/// An allocated block that was found by its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) shard: ShardId,
    pub(crate) block: Index,
    /// Whether it was used on other streams.
    pub(crate) used: bool,
    slot: &'a Slot,
}

impl Place<'_> {
    /// Notes that the block is handed out no more. By the holder of its shard.
    #[inline]
    pub(crate) fn withdraw(&self) {
        self.slot.store(0, Ordering::Release);
    }

    /// Gives the block back from another thread; false if it was given back or used elsewhere since it was found.
    #[inline]
    pub(crate) fn give_back(&self) -> bool {
        !self.used && self.set_flag(RETURNED)
    }

    /// Notes that the block is used on other streams. By the holder of its shard; false if it was given back.
    pub(crate) fn mark_used(&self) -> bool {
        self.used || self.set_flag(USED)
    }

    #[inline]
    fn set_flag(&self, flag: u32) -> bool {
        let old = slot_of(self.block);
        self.slot.compare_exchange(old, old | flag, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Units of 512 bytes from the beginning of a page.
#[inline]
fn offset(address: u64) -> usize {
    ((address & (PAGE - 1)) >> 9) as usize
}

/// Number of the page that an address is in.
#[inline]
fn page_of(address: u64) -> usize {
    (address >> PAGE_BITS) as usize
}

/// The first addresses of a segment's pages.
fn pages_of(address: u64, size: u64) -> impl Iterator<Item = u64> {
    (address >> PAGE_BITS..(address + size) >> PAGE_BITS).map(|number| number << PAGE_BITS)
}

/// The same as it is kept.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "below the number of units in a page")]
fn begin_of(address: u64) -> u32 {
    offset(address) as u32
}

#[inline]
fn slot_of(block: Index) -> u32 {
    (block + 1) << 2
}

#[inline]
fn block_of(slot: u32) -> Index {
    (slot >> 2).wrapping_sub(1)
}

impl SmallPage {
    fn new() -> Self {
        Self {
            parts: [const { AtomicU8::new(0) }; PARTS],
            batches: [const { OnceLock::new() }; PARTS / BATCH],
            made: Mutex::default(),
        }
    }

    #[inline]
    fn slot(&self, offset: usize) -> Option<&Slot> {
        let number = usize::from(self.parts[offset / SLOTS % PARTS].load(Ordering::Acquire)).checked_sub(1)?;
        let batch = self.batches[number / BATCH % (PARTS / BATCH)].get()?;
        Some(&batch[number % BATCH][offset % SLOTS])
    }

    #[cold]
    fn make_slot(&self, offset: usize) -> Option<&Slot> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if self.parts[offset / SLOTS % PARTS].load(Ordering::Acquire) == 0 {
            let batch = &self.batches[usize::from(*made) / BATCH % (PARTS / BATCH)];
            batch.get_or_init(|| Box::new(array::from_fn(|_| array::from_fn(|_| Slot::new(0)))));
            *made += 1;
            self.parts[offset / SLOTS % PARTS].store(*made, Ordering::Release);
        }
        drop(made);
        self.slot(offset)
    }
}

impl Pages {
    pub(crate) fn new() -> Self {
        Self {
            roots: Box::new([const { OnceLock::new() }; ROOTS]),
            odd: Mutex::default(),
            odd_slots: Arena::new(),
            odd_count: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn page(&self, address: u64) -> Option<&Page> {
        if address >> ADDRESS_BITS != 0 {
            return None;
        }
        let number = page_of(address);
        let node = self.roots[(number >> 20) % ROOTS].get()?;
        node[(number >> 10) % FAN].get().map(|pages| &pages[number % FAN])
    }

    fn make_page(&self, address: u64) -> &Page {
        let number = page_of(address);
        let node = self.roots[(number >> 20) % ROOTS].get_or_init(|| Box::new([const { OnceLock::new() }; FAN]));
        let pages = node[(number >> 10) % FAN].get_or_init(|| Box::new(array::from_fn(|_| Page::default())));
        &pages[number % FAN]
    }

    /// Notes the shard of a segment that no memory is handed out of yet.
    pub(crate) fn register(&self, address: u64, size: u64, shard: ShardId, class: SizeClass) {
        if !fits(address, size) {
            return;
        }
        let small = class == SizeClass::Small;
        for at in pages_of(address, size) {
            let page = self.make_page(at);
            if small {
                page.small.get_or_init(|| Box::new(SmallPage::new()));
            }
            page.shard.store((shard.0 + 1) << 1 | u32::from(small), Ordering::Release);
        }
    }

    /// Forgets a segment that nothing is handed out of.
    pub(crate) fn unregister(&self, address: u64, size: u64) {
        if fits(address, size) {
            pages_of(address, size)
                .filter_map(|at| self.page(at))
                .for_each(|page| page.shard.store(0, Ordering::Release));
        }
        if self.odd_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut odd = self.odd();
        let gone: Vec<u64> = odd.range(address..address.saturating_add(size)).map(|(address, _)| *address).collect();
        for (_, number) in gone.into_iter().filter_map(|address| odd.remove(&address)) {
            self.odd_slots.give_back(number);
        }
        self.odd_count.store(odd.len(), Ordering::Release);
    }

    /// The shard and the slot for an address in the table.
    #[inline]
    fn slot(&self, address: u64) -> Option<(ShardId, &Slot)> {
        let page = self.page(address)?;
        let shard = page.shard.load(Ordering::Acquire);
        let slot = if shard & 1 == 0 {
            let begins = page.begin.load(Ordering::Acquire) == begin_of(address);
            begins.then_some(&page.large)?
        } else {
            page.small.get()?.slot(offset(address))?
        };
        Some((ShardId((shard >> 1).checked_sub(1)?), slot))
    }

    /// Notes that a block is handed out. By the holder of its shard.
    #[inline]
    pub(crate) fn publish(&self, address: u64, shard: ShardId, block: Index) {
        let found = self.page(address).and_then(|page| match page.shard.load(Ordering::Relaxed) {
            0 => None,
            large if large & 1 == 0 => (page.large.load(Ordering::Relaxed) == 0).then(|| {
                page.begin.store(begin_of(address), Ordering::Release);
                &page.large
            }),
            _ => page.small.get().and_then(|page| page.slot(offset(address))),
        });
        match found {
            Some(slot) => slot.store(slot_of(block), Ordering::Release),
            None => self.publish_slowly(address, shard, block),
        }
    }

    #[cold]
    fn publish_slowly(&self, address: u64, shard: ShardId, block: Index) {
        let page = self.page(address).filter(|page| page.shard.load(Ordering::Acquire) & 1 == 1);
        let slot = match page.and_then(|page| page.small.get()) {
            Some(page) => page.make_slot(offset(address)),
            None => self.odd_slot(address, shard),
        };
        slot.expect("there is a slot for every block").store(slot_of(block), Ordering::Release);
    }

    /// The slot of a block that the table cannot hold.
    fn odd_slot(&self, address: u64, shard: ShardId) -> Option<&Slot> {
        let mut odd = self.odd();
        let number = match odd.get(&address) {
            Some((_, number)) => *number,
            None => self.odd_slots.take(|| Slot::new(0))?,
        };
        odd.insert(address, (shard, number));
        self.odd_count.store(odd.len(), Ordering::Release);
        self.odd_slots.get(number)
    }

    fn odd(&self) -> MutexGuard<'_, BTreeMap<u64, (ShardId, u32)>> {
        self.odd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of a block, wherever it is.
    #[inline]
    fn look(&self, address: u64) -> Option<(ShardId, &Slot)> {
        self.slot(address).or_else(|| self.look_slowly(address))
    }

    #[cold]
    fn look_slowly(&self, address: u64) -> Option<(ShardId, &Slot)> {
        if self.odd_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let (shard, number) = self.odd().get(&address).copied()?;
        Some((shard, self.odd_slots.get(number)?))
    }

    /// Where the memory at an address belongs, if it is handed out and nobody has given it back.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<Place<'_>> {
        self.find_flagged(address, 0)
    }

    /// The same for a block that another thread has given back.
    #[inline]
    pub(crate) fn find_returned(&self, address: u64) -> Option<Place<'_>> {
        self.find_flagged(address, RETURNED)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call of its own is a sixth of a free")]
    fn find_flagged(&self, address: u64, returned: u32) -> Option<Place<'_>> {
        if !address.is_multiple_of(512) {
            return None;
        }
        let (shard, slot) = self.look(address)?;
        let value = slot.load(Ordering::Acquire);
        let found = value != 0 && value & RETURNED == returned;
        found.then(|| Place { shard, block: block_of(value), used: value & USED != 0, slot })
    }
}

/// Whether the table can hold a segment.
fn fits(address: u64, size: u64) -> bool {
    let end = address.checked_add(size);
    (address | size).is_multiple_of(PAGE) && end.is_some_and(|end| end <= 1 << ADDRESS_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn found(pages: &Pages, address: u64) -> Option<(u32, Index)> {
        pages.find(address).map(|place| (place.shard.0, place.block))
    }

    #[test]
    fn only_allocated_blocks_are_found() {
        let cases = [
            (SizeClass::Small, 7 << 40),
            (SizeClass::Large, 3 << 30),
            (SizeClass::Large, 512),
            (SizeClass::Small, 1 << 50),
        ];
        let pages = Pages::new();
        for (class, address) in cases {
            pages.register(address, 2 * MIB, ShardId(4), class);
            for at in [address, address + 1024, address + 2 * MIB] {
                assert_eq!(found(&pages, at), None);
            }
            pages.publish(address + 1024, ShardId(4), 9);
            assert_eq!(found(&pages, address + 1024), Some((4, 9)));
            for other in [address, address + 512, address + 1025, address + 1536, address + MIB + 1024] {
                assert_eq!(found(&pages, other), None, "{other:#x}");
            }
            pages.find(address + 1024).unwrap().withdraw();
            assert_eq!(found(&pages, address + 1024), None);
            pages.unregister(address, 2 * MIB);
            assert_eq!(found(&pages, address), None);
        }
    }

    #[test]
    fn blocks_of_the_large_pool_may_begin_in_one_page() {
        let pages = Pages::new();
        // The page was one of the small pool before.
        for class in [SizeClass::Small, SizeClass::Large] {
            pages.register(0, 2 * MIB, ShardId(0), class);
            (1..4_u32).for_each(|block| pages.publish(u64::from(block) * 1024, ShardId(0), block));
            for gone in [2, 1, 3] {
                assert_eq!(found(&pages, u64::from(gone) * 1024), Some((0, gone)), "{class:?}");
                pages.find(u64::from(gone) * 1024).unwrap().withdraw();
                assert_eq!(found(&pages, u64::from(gone) * 1024), None, "{class:?}");
            }
            pages.publish(2048, ShardId(0), 7);
            assert_eq!(found(&pages, 2048), Some((0, 7)));
            pages.find(2048).unwrap().withdraw();
            pages.unregister(0, 2 * MIB);
            assert_eq!(pages.odd_count.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_block_is_given_back_once() {
        let pages = Pages::new();
        let cases = [(SizeClass::Small, MIB), (SizeClass::Large, 4 * MIB), (SizeClass::Large, 9 * MIB + 512)];
        for (class, address) in cases {
            pages.register(address, 2 * MIB, ShardId(0), class);
            pages.publish(address, ShardId(0), 1);
            let place = pages.find(address).unwrap();
            assert!(place.give_back() && !place.give_back() && !place.mark_used());
            assert!(pages.find(address).is_none());
            assert_eq!(pages.find_returned(address).map(|place| place.block), Some(1));
            place.withdraw();
            assert!(!place.give_back() && pages.find_returned(address).is_none());
            pages.publish(address, ShardId(0), 1);
            assert!(place.mark_used() && pages.find(address).is_some_and(|place| place.used && place.mark_used()));
            assert!(!place.give_back(), "blocks used elsewhere take another way");
            place.withdraw();
            pages.unregister(address, 2 * MIB);
        }
    }

    #[test]
    fn slots_are_used_again() {
        let pages = Pages::new();
        for _ in 0..3 {
            pages.register(0, 2 * MIB, ShardId(0), SizeClass::Small);
            for at in (0..2 * MIB).step_by(8192) {
                pages.publish(at, ShardId(0), 3);
                pages.find(at).unwrap().withdraw();
            }
            pages.unregister(0, 2 * MIB);
        }
        let made = |at| *pages.page(at).unwrap().small.get().unwrap().made.lock().unwrap();
        assert_eq!((made(0), made(MIB)), (128, 128));
    }
}
