//! One device: serving a request from what is cached, taking a block back.
//!
//! What a hit or a free needs is in one shard. Everything else is behind locks of its own, taken in this order: `cold`
//! (what calls the driver for memory), `pending` (blocks that await other streams, and their events), `figures`, then
//! the shards' ([`crate::caching::device::exclusive`]). The driver is called with `cold` or `pending` held at most.
//!
//! **Invariants** (checked by `validity.rs`): the mapped blocks of all segments add up to `reserved_bytes`; every block
//! is in the set that its state names; each driver call is made before the books change, so that a failed call leaves
//! them as they were.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result};
use crate::base::handles::StreamHandle;
use crate::base::ids::PoolId;
use crate::caching::block::NONE;
use crate::caching::block::StreamUse;
use crate::caching::block::{SizeClass, size_class};
use crate::caching::device::exclusive::{Exclusive, Figures};
use crate::caching::pools::{Pending, Waiter};
use crate::caching::remote::MessageBits;
use crate::caching::remote::{Pages, Place, ShardId};
use crate::caching::shard::StreamTable;
use crate::caching::shard::{Apart, Shard, ShardState, Taking, signed};
use crate::caching::slow::Cold;
use crate::caching::stats::DeviceStats;
use crate::driver::Driver;
use crate::sync::lock;
use crate::sync::spin_lock::HotGuard;
use crate::sync::turns::Turns;
use crate::thread::{self, HandedOut};

/// What the allocators of all devices share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Tells allocators apart; never 0.
    pub(crate) number: u64,
    pub(crate) pages: Arc<Pages>,
    shards: Box<[ShardBatch; SHARD_BATCHES]>,
    /// Shards that there are.
    made: AtomicU32,
    /// Captures of graphs under way, on any device.
    pub(crate) captures: AtomicUsize,
}

type ShardBatch = OnceLock<Box<[OnceLock<Arc<Shard>>; SHARDS_OF_BATCH]>>;

const SHARDS_OF_BATCH: usize = 64;
const SHARD_BATCHES: usize = 1024;

impl Shared {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            number,
            pages: Arc::new(Pages::new()),
            shards: Box::new([const { OnceLock::new() }; SHARD_BATCHES]),
            made: AtomicU32::new(0),
            captures: AtomicUsize::new(0),
        }
    }

    /// The shard of a name.
    #[inline]
    pub(crate) fn shard(&self, id: ShardId) -> Option<&Arc<Shard>> {
        let number = id.0 as usize;
        self.shards[number / SHARDS_OF_BATCH % SHARD_BATCHES].get()?[number % SHARDS_OF_BATCH].get()
    }

    /// Notes what this thread was handed out, for it to be found quickly if that is given back next.
    #[inline]
    fn hand_out(&self, address: u64, shard: ShardId) {
        thread::set_handed_out(HandedOut { allocator: self.number, address, shard: shard.0 });
    }

    /// The shard that this thread was handed out an address from, if that was the last one.
    #[inline]
    pub(crate) fn last_shard(&self, address: u64) -> Option<&Arc<Shard>> {
        let last = thread::handed_out();
        let is_it = last.address == address && last.allocator == self.number;
        if is_it { self.shard(ShardId(last.shard)) } else { None }
    }

    /// Number of shards, at least 1 where there is one.
    pub(crate) fn count(&self) -> u32 {
        self.made.load(Ordering::Acquire).max(1)
    }

    /// Keeps a shard that is made with the next name; `None` when there are too many.
    pub(crate) fn add_shard(&self, make: impl FnOnce(ShardId) -> Shard) -> Option<Arc<Shard>> {
        let number = self.made.fetch_add(1, Ordering::AcqRel);
        let batch = self.shards.get(number as usize / SHARDS_OF_BATCH)?;
        let batch = batch.get_or_init(|| Box::new([const { OnceLock::new() }; SHARDS_OF_BATCH]));
        let shard = Arc::new(make(ShardId(number)));
        Some(Arc::clone(batch[number as usize % SHARDS_OF_BATCH].get_or_init(|| shard)))
    }
}

/// What a search of the cache came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Search {
    /// Something else has to be looked at first.
    Undone,
    /// The events have to be looked at first that blocks await.
    Waiting,
    Found(u64),
    NothingFits,
    /// The stream has none yet: there was nothing to search.
    NoShard,
}

/// What giving back the block that was handed out last came to.
pub(crate) enum Undoing {
    Done,
    /// It was used on another stream, for which it has to wait.
    Awaits(Waiter, StreamUse),
    /// It is another block, or more is to be done.
    Nothing,
}

/// The allocator of one device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) index: DeviceIndex,
    pub(crate) position: usize,
    pub(crate) shared: Arc<Shared>,
    /// The shards of the default pools.
    pub(crate) streams: StreamTable,
    /// Scopes open on this device.
    pub(crate) scopes: AtomicUsize,
    /// Blocks that await other streams; changed under the lock of `pending`.
    pub(crate) waiting: AtomicUsize,
    /// Whether the options let a capture use memory again that other streams of it used.
    reuses_in_captures: AtomicBool,
    /// Shards that may have messages.
    pub(crate) messages: Apart<MessageBits>,
    pub(crate) cold: Mutex<Cold>,
    pub(crate) pending: Apart<Turns<Pending>>,
    pub(crate) figures: Mutex<Figures>,
}

impl Device {
    pub(crate) fn new(position: usize, index: DeviceIndex, shared: &Arc<Shared>, config: Arc<AllocatorConfig>) -> Self {
        let max_split_size = config.max_split_size.map_or(-1, signed);
        let stats = DeviceStats { max_split_size, ..DeviceStats::default() };
        Self {
            index,
            position,
            shared: Arc::clone(shared),
            streams: StreamTable::new(),
            scopes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            reuses_in_captures: AtomicBool::new(config.graph_capture_record_stream_reuse),
            messages: Apart::default(),
            cold: Mutex::new(Cold::new(config)),
            pending: Apart::default(),
            figures: Mutex::new(Figures { shards: Vec::new(), stats }),
        }
    }

    /// Whether any scope is open on this device.
    #[inline]
    pub(crate) fn is_scoped(&self) -> bool {
        self.scopes.load(Ordering::Acquire) > 0
    }

    /// Whether a capture may use memory again that other streams of it used.
    pub(crate) fn reuses_in_captures(&self) -> bool {
        self.reuses_in_captures.load(Ordering::Relaxed)
    }

    /// Whether blocks await other streams, which a request asks for first.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Does something under the locks of all shards, whose messages are followed first.
    pub(crate) fn exclusively<R>(&self, action: impl FnOnce(&mut Exclusive<'_>) -> R) -> R {
        let mut figures = lock(&self.figures);
        let Figures { shards, stats } = &mut *figures;
        let mut states: Vec<_> = shards.iter().map(|shard| shard.state.lock()).collect();
        let is_calm = self.messages.are_none();
        for (shard, state) in shards.iter().zip(&mut states) {
            if is_calm {
                shard.grant(state);
            }
            shard.wake(state);
        }
        let mut all = Exclusive { device: self, stats, shards, states };
        all.settle();
        action(&mut all)
    }

    /// Follows the messages of a shard; false if that takes more than its lock, or others have messages.
    #[inline]
    pub(crate) fn settle(&self, shard: &Shard, state: &mut ShardState) -> bool {
        self.messages.are_none() || self.settle_messages(shard, state)
    }

    /// Out of the way of those who have none.
    #[inline(never)]
    fn settle_messages(&self, shard: &Shard, state: &mut ShardState) -> bool {
        shard.settle(state) && !self.messages.concern(shard.other_bits())
    }

    /// Serves a request of a stream from the default pool's cache.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the one call that is left finds a block anew")]
    pub(crate) fn hit_default(&self, stream: StreamHandle, bytes: u64) -> Search {
        match self.streams.get(stream) {
            Some(shard) => self.hit(shard, bytes).map_or(Search::NothingFits, Search::Found),
            None => self.hit_other(stream, bytes),
        }
    }

    #[cold]
    fn hit_other(&self, stream: StreamHandle, bytes: u64) -> Search {
        match self.streams.get_other(stream) {
            Some(shard) => self.hit(&shard, bytes).map_or(Search::NothingFits, Search::Found),
            None => Search::NoShard,
        }
    }

    /// Serves a request from a shard; `None` when it has nothing that fits.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(crate) fn hit(&self, shard: &Shard, bytes: u64) -> Option<u64> {
        match shard.state.try_lock() {
            Some(state) => self.hit_with(shard, state, bytes),
            None => self.hit_after_waiting(shard, bytes),
        }
    }

    #[cold]
    fn hit_after_waiting(&self, shard: &Shard, bytes: u64) -> Option<u64> {
        let (state, granted) = shard.wait_for(bytes);
        match granted {
            Some(address) => Some(self.handed_out(shard, address)),
            None => self.hit_with(shard, state, bytes),
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn hit_with(&self, shard: &Shard, mut state: HotGuard<'_, ShardState>, bytes: u64) -> Option<u64> {
        let settled = self.settle(shard, &mut state);
        if settled && let Some(address) = state.take_again(bytes) {
            shard.set_dormant(NONE);
            return Some(self.handed_out(shard, address));
        }
        self.hit_anew(shard, state, settled, bytes)
    }

    /// Notes that this thread was handed out an address.
    #[inline]
    pub(crate) fn handed_out(&self, shard: &Shard, address: u64) -> u64 {
        shard.set_owner(thread::number());
        self.shared.hand_out(address, shard.id);
        address
    }

    /// Finds a block for a request. `settled`: nothing has to be done first that takes more than the shard's lock.
    #[inline(never)]
    fn hit_anew(&self, shard: &Shard, mut state: HotGuard<'_, ShardState>, settled: bool, bytes: u64) -> Option<u64> {
        if settled && !state.rules.counts_lookups {
            shard.wake(&mut state);
            let taking = state.plan(bytes, state.rules.expandable)?;
            let plain = taking.size < state.rules.max_split;
            if plain && (state.ledger.try_apply(taking.class, &taking.change) || self.lend(shard, &mut state, taking)) {
                let (index, address) = state.take(&taking);
                self.shared.pages.publish(address, shard.id, index);
                return Some(self.handed_out(shard, address));
            }
        }
        drop(state);
        self.hit_exclusively(shard, bytes, true, None)
    }

    /// Counts a request that the shard's leases do not cover, if another shard has the rest to spare.
    #[cold]
    fn lend(&self, shard: &Shard, state: &mut ShardState, taking: Taking) -> bool {
        self.borrow_lease(shard, state, &taking) && state.ledger.try_apply(taking.class, &taking.change)
    }

    /// The same under all locks: a search is counted, and peaks may rise.
    #[cold]
    pub(crate) fn hit_exclusively(
        &self,
        shard: &Shard,
        bytes: u64,
        counts: bool,
        expandable: Option<bool>,
    ) -> Option<u64> {
        self.exclusively(|all| {
            let state = &all.states[shard.position];
            if counts && state.rules.counts_lookups {
                state.clock(size_class(bytes)).fetch_add(1, Ordering::Relaxed);
            }
            let taking = state.plan(bytes, expandable.unwrap_or(state.rules.expandable))?;
            shard.set_owner(thread::number());
            Some(all.take(shard.position, &taking))
        })
    }

    /// Takes back the block that a shard handed out last, if it is that; what that came to.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call of its own would be a fifth of it")]
    pub(crate) fn free_newest(&self, shard: &Shard, address: u64) -> Undoing {
        let mut state = shard.state.lock();
        if !self.settle(shard, &mut state) {
            return Undoing::Nothing;
        }
        if let Some(block) = state.undo_take(address) {
            shard.set_dormant(block);
            return Undoing::Done;
        }
        let awaits = state.await_newest(address);
        awaits.map_or(Undoing::Nothing, |(block, used)| Undoing::Awaits(Waiter { shard: shard.id, block }, used))
    }

    /// Takes a block back. Whatever happens the block is no longer allocated: if a driver call fails, the block waits
    /// until a later allocation can make up for that call.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "called once")]
    pub(crate) fn free<D: Driver>(&self, driver: &D, shard: &Shard, place: &Place<'_>, address: u64) -> Result<()> {
        if place.is_used() {
            return self.free_used(driver, shard, place, address);
        }
        {
            let mut state = shard.state.lock();
            let settled = self.settle(shard, &mut state);
            if settled && let Some(block) = state.undo_take(address) {
                shard.set_dormant(block);
                return Ok(());
            }
            shard.wake(&mut state);
            if settled && state.free_if_covered(place) {
                return Ok(());
            }
        }
        self.free_exclusively(driver, shard, address)
    }

    #[cold]
    pub(crate) fn free_exclusively<D: Driver>(&self, driver: &D, shard: &Shard, address: u64) -> Result<()> {
        let used = self.exclusively(|all| {
            let place = self.shared.pages.find(address).filter(|place| place.shard == shard.id);
            let place = place.ok_or(Error::InvalidDevicePointer { address })?;
            if !(place.is_used() || all.free(shard.position, &place)) {
                return Err(Error::InvalidDevicePointer { address });
            }
            Ok(Some(place).filter(Place::is_used))
        })?;
        used.map_or(Ok(()), |place| self.free_used(driver, shard, &place, address))
    }

    /// The same by a thread that was not the last to allocate from the shard: leaves word with the shard, whose lock that
    /// other thread takes again and again.
    pub(crate) fn free_from_afar<D: Driver>(
        &self,
        driver: &D,
        shard: &Shard,
        place: &Place<'_>,
        address: u64,
    ) -> Result<()> {
        if place.is_used() {
            return self.free_used(driver, shard, place, address);
        }
        // What is given back may make a peak, so the order matters in which shards take note of it: only one at a time
        // has messages. And the slot of a dormant block tells nothing: most likely it was given back before.
        if self.messages.concern(shard.other_bits()) || shard.is_dormant(place.block()) {
            return self.free_exclusively(driver, shard, address);
        }
        if place.give_back(&shard.returned) {
            self.messages.set(shard.bit());
            return Ok(());
        }
        // It was given back meanwhile, or used elsewhere.
        match self.shared.pages.find(address) {
            Some(place) if place.is_used() => self.free_used(driver, shard, &place, address),
            _ => Err(Error::InvalidDevicePointer { address }),
        }
    }

    /// The private pool that live memory belongs to.
    pub(crate) fn owner(&self, shard: &Shard, address: u64) -> Option<PoolId> {
        let state = shard.open();
        let place = self.shared.pages.find(address)?;
        if place.shard == shard.id { state.key.owner } else { None }
    }

    /// Figures.
    pub(crate) fn stats(&self) -> DeviceStats {
        self.exclusively(|all| all.stats())
    }

    pub(crate) fn reset_peak(&self) {
        self.exclusively(|all| all.reset_peak());
    }

    pub(crate) fn reset_accumulated(&self) {
        self.exclusively(|all| all.reset_accumulated());
    }

    /// Decides by these options from now on.
    pub(crate) fn set_config(&self, config: &Arc<AllocatorConfig>) {
        let mut cold = lock(&self.cold);
        cold.config = Arc::clone(config);
        self.apply_config(&cold);
    }

    /// Sets the most bytes to hold.
    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        let mut cold = lock(&self.cold);
        cold.limit = limit;
        self.apply_config(&cold);
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        lock(&self.cold).limit
    }

    /// Tells every shard what the options and the limit say.
    pub(crate) fn apply_config(&self, cold: &Cold) {
        self.reuses_in_captures.store(cold.config.graph_capture_record_stream_reuse, Ordering::Relaxed);
        self.exclusively(|all| {
            for state in &mut all.states {
                state.set_config(&cold.config, cold.collects_garbage());
            }
        });
    }

    /// Bytes held from the driver.
    pub(crate) fn held(&self) -> u64 {
        u64::try_from(lock(&self.figures).stats.reserved_bytes.all.current).unwrap_or(0)
    }

    /// Counts segments taken or given back.
    pub(crate) fn count_segment(stats: &mut DeviceStats, class: SizeClass, size: u64, by: i64, oversize: u64) {
        stats.segment.change(class, by);
        stats.reserved_bytes.change(class, by * signed(size));
        if size >= oversize {
            stats.oversize_segments.change(by);
        }
        match by {
            1 => stats.num_device_alloc += 1,
            _ => stats.num_device_free += 1,
        }
    }
}
