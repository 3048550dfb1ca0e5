//! From an address that was handed out to its shard and block, without a lock.
//!
//! A table of three levels over the pages of 1 MiB that segments cover. A page knows its shard. Blocks of the large pool
//! have more than 1 MiB, so at most one of them begins in a page, and one slot is enough. A page of the small pool is
//! divided into 128 parts of 8 KiB; a part in which a block begins has 16 slots, one for each 512 bytes. Segments that do
//! not begin at a whole page, or lie beyond the table, have their slots in an ordinary map behind a lock; so has what is
//! left of a block in the large pool while it is handed out for a moment, which it is when a pool is brought back.
//!
//! **Invariant:** what the table was given for a page stays with the page: addresses come back.

use std::array;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError};

use crate::caching::block::{Index, Owner, SizeClass};
use crate::caching::remote::slot::{RemoteFrees, Seen, Slot};
use crate::sync::arena::Arena;
use crate::sync::{Mutex, MutexGuard};

/// Names a shard of the process's allocator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ShardId(pub(crate) u32);

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
    overflow: Mutex<BTreeMap<u64, (ShardId, u32)>>,
    overflow_slots: Arena<Slot>,
    overflow_count: AtomicUsize,
}

/// An allocated block that was found by its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) shard: ShardId,
    slot: &'a Slot,
    seen: Seen,
}

impl<'a> Place<'a> {
    /// The block that a slot of a shard tells of, unless another thread has given it back.
    #[inline]
    pub(crate) fn new(shard: ShardId, slot: &'a Slot, seen: Option<Seen>) -> Option<Self> {
        seen.filter(|seen| !seen.is_remotely_freed()).map(|seen| Self { shard, slot, seen })
    }

    /// What is handed out there now.
    #[inline]
    pub(crate) fn again(&self) -> Option<Self> {
        Self::new(self.shard, self.slot, self.slot.look())
    }

    /// Position of the block in its shard.
    #[inline]
    pub(crate) fn block(&self) -> Index {
        self.seen.block()
    }

    /// Whether it was used on other streams.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.seen.is_used()
    }

    /// Who gives it back.
    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        self.seen.owner()
    }

    /// Notes that the block is handed out no more; false if another thread has given it back meanwhile, or it was used
    /// elsewhere. By the holder of the lock.
    #[inline]
    pub(crate) fn withdraw(&self) -> bool {
        self.slot.withdraw(self.seen)
    }

    /// The same for a block that was used on other streams: no other thread gives it back.
    #[inline]
    pub(crate) fn withdraw_used(&self) {
        self.slot.withdraw_used(self.seen);
    }

    /// Undoes [`Self::withdraw`].
    pub(crate) fn restore(&self) {
        self.slot.restore(self.seen);
    }

    /// Gives the block back from another thread; false if it was given back or used on other streams since it was found.
    #[inline]
    pub(crate) fn free_remotely(&self, chain: &RemoteFrees) -> bool {
        !self.is_used() && chain.push(self.slot, self.seen)
    }

    /// Notes that the block was not used on other streams after all. By the holder of the lock, which marked it.
    pub(crate) fn unmark(&self) {
        self.slot.unmark(self.seen);
    }

    /// Notes that the block is used on other streams. By the holder of the lock; false if it was given back.
    pub(crate) fn mark_used(&self) -> bool {
        self.slot.mark_used(self.seen)
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
            batch.get_or_init(|| Box::new(array::from_fn(|_| array::from_fn(|_| Slot::default()))));
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
            overflow: Mutex::default(),
            overflow_slots: Arena::new(),
            overflow_count: AtomicUsize::new(0),
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
        if self.overflow_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut overflow = self.overflow();
        let gone: Vec<u64> =
            overflow.range(address..address.saturating_add(size)).map(|(address, _)| *address).collect();
        for (_, number) in gone.into_iter().filter_map(|address| overflow.remove(&address)) {
            self.overflow_slots.give_back(number);
        }
        self.overflow_count.store(overflow.len(), Ordering::Release);
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

    /// Notes that a block is handed out. By the holder of the lock.
    #[inline]
    pub(crate) fn publish(&self, address: u64, shard: ShardId, block: Index, owner: Owner) {
        let found = self.page(address).and_then(|page| match page.shard.load(Ordering::Relaxed) {
            0 => None,
            large if large & 1 == 0 => (page.large.look().is_none()).then(|| {
                page.begin.store(begin_of(address), Ordering::Release);
                &page.large
            }),
            _ => page.small.get().and_then(|page| page.slot(offset(address))),
        });
        match found {
            Some(slot) => slot.publish(block, owner),
            None => self.publish_slowly(address, shard, block, owner),
        }
    }

    #[cold]
    fn publish_slowly(&self, address: u64, shard: ShardId, block: Index, owner: Owner) {
        let page = self.page(address).filter(|page| page.shard.load(Ordering::Acquire) & 1 == 1);
        let slot = match page.and_then(|page| page.small.get()) {
            Some(page) => page.make_slot(offset(address)),
            None => self.overflow_slot(address, shard),
        };
        slot.expect("there is a slot for every block").publish(block, owner);
    }

    /// The slot of a block that the table cannot hold.
    fn overflow_slot(&self, address: u64, shard: ShardId) -> Option<&Slot> {
        let mut overflow = self.overflow();
        let number = match overflow.get(&address) {
            Some((_, number)) => *number,
            None => self.overflow_slots.take(Slot::default)?,
        };
        overflow.insert(address, (shard, number));
        self.overflow_count.store(overflow.len(), Ordering::Release);
        self.overflow_slots.get(number)
    }

    fn overflow(&self) -> MutexGuard<'_, BTreeMap<u64, (ShardId, u32)>> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard and the slot for an address, if a block may begin there.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call of its own is a sixth of a free")]
    pub(crate) fn slot_at(&self, address: u64) -> Option<(ShardId, &Slot)> {
        if !address.is_multiple_of(512) {
            return None;
        }
        self.slot(address).or_else(|| self.look_slowly(address))
    }

    #[cold]
    fn look_slowly(&self, address: u64) -> Option<(ShardId, &Slot)> {
        if self.overflow_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let (shard, number) = self.overflow().get(&address).copied()?;
        Some((shard, self.overflow_slots.get(number)?))
    }

    /// Where the memory at an address belongs, if it is handed out and was not given back.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<Place<'_>> {
        let (shard, slot) = self.slot_at(address)?;
        Place::new(shard, slot, slot.look())
    }

    /// Notes that a block which another thread has given back is handed out no more. By the holder of the lock.
    #[inline]
    pub(crate) fn clear(&self, address: u64) {
        if let Some((_, slot)) = self.slot_at(address) {
            slot.clear();
        }
    }

    /// The same as [`Self::find`] for a block that another thread has given back.
    #[inline]
    pub(crate) fn find_remotely_freed(&self, address: u64) -> Option<Place<'_>> {
        let (shard, slot) = self.slot_at(address)?;
        let seen = slot.look().filter(|seen| seen.is_remotely_freed())?;
        Some(Place { shard, slot, seen })
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
        pages.find(address).map(|place| (place.shard.0, place.block()))
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
            pages.publish(address + 1024, ShardId(4), 9, Owner::Program);
            assert_eq!(found(&pages, address + 1024), Some((4, 9)));
            for other in [address, address + 512, address + 1025, address + 1536, address + MIB + 1024] {
                assert_eq!(found(&pages, other), None, "{other:#x}");
            }
            assert!(pages.find(address + 1024).unwrap().withdraw());
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
            (1..4_u32).for_each(|block| pages.publish(u64::from(block) * 1024, ShardId(0), block, Owner::Program));
            for gone in [2, 1, 3] {
                assert_eq!(found(&pages, u64::from(gone) * 1024), Some((0, gone)), "{class:?}");
                assert!(pages.find(u64::from(gone) * 1024).unwrap().withdraw());
                assert_eq!(found(&pages, u64::from(gone) * 1024), None, "{class:?}");
            }
            pages.publish(2048, ShardId(0), 7, Owner::Program);
            assert_eq!(found(&pages, 2048), Some((0, 7)));
            assert!(pages.find(2048).unwrap().withdraw());
            pages.unregister(0, 2 * MIB);
            assert_eq!(pages.overflow_count.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_block_is_given_back_once() {
        let pages = Pages::new();
        let cases = [(SizeClass::Small, MIB), (SizeClass::Large, 4 * MIB), (SizeClass::Large, 9 * MIB + 512)];
        for (class, address) in cases {
            pages.register(address, 2 * MIB, ShardId(0), class);
            pages.publish(address, ShardId(0), 1, Owner::Program);
            let (place, returned) = (pages.find(address).unwrap(), RemoteFrees::default());
            assert!(place.free_remotely(&returned) && !place.free_remotely(&returned) && !place.mark_used());
            assert!(pages.find(address).is_none() && !place.withdraw());
            let returned_place = pages.find_remotely_freed(address).unwrap();
            assert!(returned_place.block() == 1 && returned_place.withdraw());
            assert!(!place.free_remotely(&returned) && pages.find_remotely_freed(address).is_none());
            pages.publish(address, ShardId(0), 1, Owner::Program);
            assert!(
                pages.find(address).unwrap().free_remotely(&returned) && pages.find_remotely_freed(address).is_some()
            );
            pages.clear(address);
            assert!(!place.free_remotely(&returned) && pages.find_remotely_freed(address).is_none());
            pages.publish(address, ShardId(0), 1, Owner::Program);
            assert!(place.mark_used() && !place.free_remotely(&returned) && !place.withdraw());
            let place = pages.find(address).unwrap();
            assert!(place.is_used() && place.mark_used());
            assert!(!place.free_remotely(&returned), "blocks used on other streams take another way");
            assert!(place.withdraw());
            pages.unregister(address, 2 * MIB);
        }
    }

    #[test]
    fn slots_are_used_again() {
        let pages = Pages::new();
        for _ in 0..3 {
            pages.register(0, 2 * MIB, ShardId(0), SizeClass::Small);
            for at in (0..2 * MIB).step_by(8192) {
                pages.publish(at, ShardId(0), 3, Owner::Program);
                assert!(pages.find(at).unwrap().withdraw());
            }
            pages.unregister(0, 2 * MIB);
        }
        let made = |at| *pages.page(at).unwrap().small.get().unwrap().made.lock().unwrap();
        assert_eq!((made(0), made(MIB)), (128, 128));
    }
}
