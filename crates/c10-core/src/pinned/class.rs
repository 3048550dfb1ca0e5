//! Size classes: for each size the free blocks, and how many blocks are in use.
//!
//! A class has several shards, and a thread stays with one of them while that has blocks, so that threads seldom meet. A
//! shard is locked by one atomic flag. Its other fields are atomic too, so that no unsafe code is needed, but they are
//! read and written only by the thread that holds the flag, with relaxed ordering. Locking is one exchange and unlocking
//! one store.
//!
//! The first thread of a shard, its owner, does not lock where it takes the block again that it has just given back: it
//! parks the block by one store, and takes it by one exchange. A parked block still counts as active. A thread that
//! needs the block or exact figures moves it to the list first, so the figures are exact all the same.
//!
//! **Invariants:** a block is in at most one list, one of its class. A shard's `active` is the number of blocks that its
//! threads have taken, less the number that they have given back; it can be negative, and the sum over all shards is what
//! is in use. For each shard `active <= allowed`, and the sum of `allowed` over all shards, in blocks and in bytes, is at
//! most the peak. So a shard whose `active` stays within `allowed` cannot make a new peak and does not look at the others.
//! A shard that would leave it locks all shards, in the order of sizes and numbers, and counts. No thread waits for a
//! shard while it holds one that comes later in that order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use crate::base::stat::Stat;
use crate::pinned::blocks::{BlockId, Blocks};
use crate::sync::{Mutex, MutexGuard};
use crate::thread;

/// Size classes there are: 1 byte to 2^60 bytes.
pub(crate) const CLASSES: usize = 61;
/// Shards of a class.
const SHARDS: usize = 16;

/// How often a waiting thread reads a flag that is held before it yields the processor.
const SPINS: u32 = 64;
/// How often a waiting thread reads and yields before it sleeps. Only sleep helps where the thread that holds the flag has
/// no processor of its own.
const YIELDS: u32 = 128;
const SLEEP: Duration = Duration::from_micros(50);

/// Blocks of 2^n bytes, named by n.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SizeClass(pub(super) u8);

impl SizeClass {
    /// The class that serves requests of so many bytes, at least one: the next power of two. `None` above 2^60.
    #[inline]
    pub(crate) fn of(bytes: usize) -> Option<Self> {
        let log2 = usize::BITS - bytes.saturating_sub(1).leading_zeros();
        u8::try_from(log2).ok().filter(|log2| usize::from(*log2) < CLASSES).map(Self)
    }

    /// Bytes of each block.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        1 << self.0
    }
}

/// One shard of a class. Aligned so that no two of them share a cache line or a pair of lines that is fetched together.
#[repr(align(128))]
#[derive(Debug)]
struct Shard {
    held: AtomicBool,
    /// The first block of the list, given back last. [`Block::next`](crate::pinned::Block) leads to the others.
    first: AtomicU32,
    active: AtomicI64,
    /// How far `active` may grow before the other shards are asked.
    allowed: AtomicI64,
    /// Blocks that became active since the sums were reset.
    taken: AtomicI64,
    /// Blocks that became unused since then.
    returned: AtomicI64,
    /// A block that was given back and still counts as active. Only the owner puts one here, where there is none.
    parked: AtomicU32,
    /// Number of the owner, 0 before there is one; it is never changed afterwards.
    owner: AtomicU64,
    /// Times the owner took a block that it had parked: each was given back once and taken once. Only the owner counts.
    again: AtomicI64,
    /// What `again` was when the sums were reset.
    again_before: AtomicI64,
}

impl Shard {
    fn new() -> Self {
        Self {
            held: AtomicBool::new(false),
            first: AtomicU32::new(BlockId::NONE.0),
            active: AtomicI64::new(0),
            allowed: AtomicI64::new(0),
            taken: AtomicI64::new(0),
            returned: AtomicI64::new(0),
            parked: AtomicU32::new(BlockId::NONE.0),
            owner: AtomicU64::new(0),
            again: AtomicI64::new(0),
            again_before: AtomicI64::new(0),
        }
    }

    #[inline]
    fn lock(&self) -> Held<'_> {
        while self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        Held(self)
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0_u32;
        while self.held.load(Ordering::Relaxed) {
            match looks {
                ..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(SLEEP),
            }
            looks = looks.saturating_add(1);
        }
    }

    /// Whether the shard seems to have a block; may be asked without the flag.
    fn has_any(&self) -> bool {
        self.first.load(Ordering::Relaxed) != BlockId::NONE.0 || self.has_parked()
    }

    #[inline]
    fn has_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed) != BlockId::NONE.0
    }

    /// Takes the parked block; only one of several threads gets it.
    #[inline]
    fn unpark(&self) -> Option<BlockId> {
        BlockId(self.parked.swap(BlockId::NONE.0, Ordering::AcqRel)).some()
    }

    #[inline]
    fn is_owned_by(&self, thread: u64) -> bool {
        self.owner.load(Ordering::Relaxed) == thread
    }
}

#[inline]
fn get(cell: &AtomicI64) -> i64 {
    cell.load(Ordering::Relaxed)
}

#[inline]
fn set(cell: &AtomicI64, value: i64) {
    cell.store(value, Ordering::Relaxed);
}

/// A shard whose flag this thread holds.
struct Held<'a>(&'a Shard);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

impl Held<'_> {
    #[inline]
    fn first(&self) -> Option<BlockId> {
        BlockId(self.0.first.load(Ordering::Relaxed)).some()
    }

    #[inline]
    fn pop(&self, blocks: &Blocks) -> Option<BlockId> {
        let block = self.first()?;
        self.0.first.store(blocks.get(block).next().0, Ordering::Relaxed);
        Some(block)
    }

    #[inline]
    fn push(&self, blocks: &Blocks, block: BlockId) {
        blocks.get(block).set_next(BlockId(self.0.first.load(Ordering::Relaxed)));
        self.0.first.store(block.0, Ordering::Relaxed);
    }

    #[inline]
    fn may_grow(&self) -> bool {
        get(&self.0.active) < get(&self.0.allowed)
    }

    #[inline]
    fn count_taken(&self) {
        set(&self.0.active, get(&self.0.active) + 1);
        set(&self.0.taken, get(&self.0.taken) + 1);
    }

    #[inline]
    fn count_returned(&self) {
        set(&self.0.active, get(&self.0.active) - 1);
        set(&self.0.returned, get(&self.0.returned) + 1);
    }

    /// Moves the parked block to the list, where it counts as free.
    fn list_parked(&self, blocks: &Blocks) {
        if let Some(block) = self.0.has_parked().then(|| self.0.unpark()).flatten() {
            self.push(blocks, block);
            self.count_returned();
        }
    }

    /// Sets the sums to zero.
    fn reset_sums(&self) {
        set(&self.0.taken, 0);
        set(&self.0.returned, 0);
        set(&self.0.again_before, get(&self.0.again));
    }

    fn clear(&self) {
        self.reset_sums();
        self.0.first.store(BlockId::NONE.0, Ordering::Relaxed);
        set(&self.0.active, 0);
        set(&self.0.allowed, 0);
    }
}

/// The shard of a thread.
#[inline]
fn home(thread: u64) -> usize {
    usize::try_from(thread % SHARDS as u64).unwrap_or(0)
}

/// The shard of the calling thread.
fn here() -> usize {
    home(thread::number())
}

/// The most there was at a time.
#[derive(Debug, Default)]
struct Peaks {
    requests: i64,
    bytes: i64,
}

/// All sizes.
#[derive(Debug)]
pub(crate) struct Classes {
    /// The shards of each class, made when it first has a block.
    classes: [OnceLock<Box<[Shard; SHARDS]>>; CLASSES],
    peaks: Mutex<Peaks>,
}

/// What the classes have counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Active {
    pub(crate) requests: Stat,
    pub(crate) bytes: Stat,
}

/// All shards, with their sizes, while this thread holds their flags.
type Stopped<'a> = [(SizeClass, Held<'a>)];

impl Classes {
    pub(crate) fn new() -> Self {
        Self { classes: [const { OnceLock::new() }; CLASSES], peaks: Mutex::default() }
    }

    #[inline]
    fn known_shards(&self, class: SizeClass) -> &[Shard] {
        self.classes[usize::from(class.0)].get().map_or(&[], |shards| shards.as_slice())
    }

    fn shards(&self, class: SizeClass) -> &[Shard; SHARDS] {
        self.classes[usize::from(class.0)].get_or_init(|| Box::new(std::array::from_fn(|_| Shard::new())))
    }

    fn lock_peaks(&self) -> MutexGuard<'_, Peaks> {
        self.peaks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free block, which is active from now on: the one that a thread of this shard gave back last, else one of
    /// another shard.
    #[inline]
    pub(crate) fn take(&self, class: SizeClass, blocks: &Blocks) -> Option<BlockId> {
        let thread = thread::number();
        let shard = self.known_shards(class).get(home(thread))?;
        if shard.is_owned_by(thread)
            && shard.has_parked()
            && let Some(block) = shard.unpark()
        {
            set(&shard.again, get(&shard.again) + 1);
            return Some(block);
        }
        let held = shard.lock();
        if held.may_grow()
            && let Some(block) = held.pop(blocks)
        {
            held.count_taken();
            return Some(block);
        }
        drop(held);
        self.take_elsewhere(class, blocks)
    }

    #[cold]
    fn take_elsewhere(&self, class: SizeClass, blocks: &Blocks) -> Option<BlockId> {
        let block = self.withdraw(class, blocks)?;
        self.add(class, blocks);
        Some(block)
    }

    /// Counts a new block, which is in no list, as active.
    pub(crate) fn add(&self, class: SizeClass, blocks: &Blocks) {
        let thread = thread::number();
        let shard = &self.shards(class)[home(thread)];
        // Fails where there is an owner, who stays.
        let _ = shard.owner.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
        let held = shard.lock();
        if held.may_grow() {
            held.count_taken();
            return;
        }
        drop(held);
        self.add_at_peak(class, blocks);
    }

    /// Gives an active block back: it is parked or goes to a list of its class.
    #[inline]
    pub(crate) fn give(&self, class: SizeClass, blocks: &Blocks, block: BlockId) {
        let thread = thread::number();
        if let Some(shard) = self.known_shards(class).get(home(thread)) {
            if shard.is_owned_by(thread) && !shard.has_parked() {
                shard.parked.store(block.0, Ordering::Release);
                return;
            }
            let held = shard.lock();
            if shard.is_owned_by(thread) {
                held.list_parked(blocks);
            }
            held.push(blocks, block);
            held.count_returned();
        }
    }

    /// Takes a block out of its class's lists, without counting it as active.
    pub(crate) fn withdraw(&self, class: SizeClass, blocks: &Blocks) -> Option<BlockId> {
        let (before, from_here) = self.known_shards(class).split_at_checked(here())?;
        let mut shards = from_here.iter().chain(before).filter(|shard| shard.has_any());
        shards.find_map(|shard| {
            let held = shard.lock();
            held.list_parked(blocks);
            held.pop(blocks)
        })
    }

    /// Puts a block that was withdrawn back.
    pub(crate) fn put_back(&self, class: SizeClass, blocks: &Blocks, block: BlockId) {
        self.shards(class)[here()].lock().push(blocks, block);
    }

    /// All classes that have had blocks.
    pub(crate) fn known(&self) -> impl Iterator<Item = SizeClass> {
        (0..).map(SizeClass).take(CLASSES).filter(|class| !self.known_shards(*class).is_empty())
    }

    #[cold]
    fn add_at_peak(&self, class: SizeClass, blocks: &Blocks) {
        let mine = &raw const self.shards(class)[here()];
        self.stopped(blocks, |peaks, all| {
            let mine = all.iter().position(|(_, held)| std::ptr::eq(held.0, mine));
            if let Some(mine) = mine {
                all[mine].1.count_taken();
                peaks.note(all);
                peaks.share_out(all, mine);
            }
        });
    }

    /// Runs `action` while all shards are locked. Blocks that were parked before are in their lists.
    fn stopped<R>(&self, blocks: &Blocks, action: impl FnOnce(&mut Peaks, &Stopped<'_>) -> R) -> R {
        let mut peaks = self.lock_peaks();
        let shards = self.known().flat_map(|class| self.known_shards(class).iter().map(move |shard| (class, shard)));
        let all: Vec<(SizeClass, Held<'_>)> = shards.map(|(class, shard)| (class, shard.lock())).collect();
        all.iter().for_each(|(_, held)| held.list_parked(blocks));
        action(&mut peaks, &all)
    }

    /// Figures of all classes at one moment.
    pub(crate) fn stats(&self, blocks: &Blocks) -> Active {
        self.stopped(blocks, |peaks, all| {
            let mut active = Active::default();
            for (class, held) in all {
                add_counts(&mut active.requests, held, 0);
                add_counts(&mut active.bytes, held, class.0);
            }
            (active.requests.peak, active.bytes.peak) = (peaks.requests, peaks.bytes);
            active
        })
    }

    /// Sets the sums to zero.
    pub(crate) fn reset_accumulated(&self, blocks: &Blocks) {
        self.stopped(blocks, |_, all| all.iter().for_each(|(_, held)| held.reset_sums()));
    }

    /// Sets the peaks to the present values.
    pub(crate) fn reset_peak(&self, blocks: &Blocks) {
        self.stopped(blocks, |peaks, all| {
            *peaks = Peaks::default();
            peaks.note(all);
            all.iter().for_each(|(_, held)| set(&held.0.allowed, get(&held.0.active)));
        });
    }

    /// Forgets everything.
    pub(crate) fn clear(&self, blocks: &Blocks) {
        self.stopped(blocks, |peaks, all| {
            *peaks = Peaks::default();
            all.iter().for_each(|(_, held)| held.clear());
        });
    }

    /// Active blocks and the blocks in the lists of each class at one moment, or what breaks the invariants.
    pub(crate) fn check(&self, blocks: &Blocks) -> Result<BTreeMap<SizeClass, (i64, Vec<BlockId>)>, String> {
        self.stopped(blocks, |peaks, all| {
            let (mut requests, mut bytes) = (0, 0);
            let mut classes: BTreeMap<SizeClass, (i64, Vec<BlockId>)> = BTreeMap::new();
            for (class, held) in all {
                let (active, allowed) = (get(&held.0.active), get(&held.0.allowed));
                if active > allowed {
                    return Err(format!("{active} pinned blocks of {} bytes, {allowed} allowed", class.bytes()));
                }
                (requests, bytes) = (requests + allowed, bytes + (allowed << class.0));
                let (sum, list) = classes.entry(*class).or_default();
                *sum += active;
                let mut next = held.first();
                while let Some(block) = next.filter(|_| list.len() <= blocks.made()) {
                    list.push(block);
                    next = blocks.get(block).next().some();
                }
            }
            let within = requests <= peaks.requests && bytes <= peaks.bytes;
            let what = || format!("{requests} pinned blocks of {bytes} bytes are allowed, the peaks are {peaks:?}");
            if within { Ok(classes) } else { Err(what()) }
        })
    }
}

impl Peaks {
    /// Raises the peaks to the present values, if those are higher.
    fn note(&mut self, all: &Stopped<'_>) {
        let (requests, bytes) = totals(all);
        (self.requests, self.bytes) = (self.requests.max(requests), self.bytes.max(bytes));
    }

    /// Divides what may become active before there is a new peak: each shard keeps half of what it was allowed and did not
    /// use, and the shard `mine` gets the rest.
    fn share_out(&self, all: &Stopped<'_>, mine: usize) {
        let (requests, bytes) = totals(all);
        let mut left = (self.requests - requests, self.bytes - bytes);
        let mut allow = |(class, held): &(SizeClass, Held<'_>), wanted: i64| {
            let extra = wanted.min(left.0).min(left.1 >> class.0);
            left = (left.0 - extra, left.1 - (extra << class.0));
            set(&held.0.allowed, get(&held.0.active) + extra);
        };
        for other in all.iter().enumerate().filter(|(index, _)| *index != mine).map(|(_, other)| other) {
            allow(other, (get(&other.1.0.allowed) - get(&other.1.0.active)).max(0) / 2);
        }
        allow(&all[mine], i64::MAX);
    }
}

/// Active blocks and their bytes.
fn totals(all: &Stopped<'_>) -> (i64, i64) {
    all.iter().fold((0, 0), |(requests, bytes), (class, held)| {
        let active = get(&held.0.active);
        (requests + active, bytes + (active << class.0))
    })
}

/// Adds what a shard has counted, each block as 2^`shift`.
fn add_counts(stat: &mut Stat, held: &Held<'_>, shift: u8) {
    stat.current += get(&held.0.active) << shift;
    let again = get(&held.0.again) - get(&held.0.again_before);
    stat.allocated += (get(&held.0.taken) + again) << shift;
    stat.freed += (get(&held.0.returned) + again) << shift;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_rounded_up_to_powers_of_two() {
        for (bytes, rounded) in [(1, 1), (2, 2), (3, 4), (3000, 4096), (4096, 4096), (5 << 20, 8 << 20)] {
            assert_eq!(SizeClass::of(bytes).unwrap().bytes(), rounded, "{bytes}");
        }
        assert_eq!(SizeClass::of(1 << 60), Some(SizeClass(60)));
        assert_eq!((SizeClass::of((1 << 60) + 1), SizeClass::of(usize::MAX)), (None, None));
    }

    #[test]
    fn peaks_are_those_of_all_classes_together() {
        let (classes, blocks) = (Classes::new(), Blocks::new());
        let (small, large) = (SizeClass(10), SizeClass(20));
        let small_blocks: Vec<BlockId> = (0..10).map(|_| blocks.make()).collect();
        let large_block = blocks.make();
        small_blocks.iter().for_each(|_| classes.add(small, &blocks));
        small_blocks.iter().for_each(|block| classes.give(small, &blocks, *block));
        classes.add(large, &blocks);
        classes.give(large, &blocks, large_block);
        let bytes = |classes: &Classes| classes.stats(&blocks).bytes.peak;
        assert_eq!(
            (classes.stats(&blocks).requests.peak, bytes(&classes)),
            (10, 1 << 20),
            "never more than one large block"
        );
        for _ in 0..10 {
            assert!(classes.take(small, &blocks).is_some());
            assert!(classes.check(&blocks).is_ok());
        }
        assert_eq!(bytes(&classes), 1 << 20);
        assert_eq!(classes.take(large, &blocks), Some(large_block));
        assert_eq!((classes.stats(&blocks).requests.peak, bytes(&classes)), (11, (1 << 20) + (10 << 10)));
        classes.give(large, &blocks, large_block);
        classes.reset_peak(&blocks);
        assert_eq!((classes.stats(&blocks).requests.peak, bytes(&classes)), (10, 10 << 10));
        assert_eq!(classes.take(large, &blocks), Some(large_block));
        assert_eq!(classes.stats(&blocks).requests.peak, 11);
    }
}
