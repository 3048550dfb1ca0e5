//! What one device's cache consists of, and what the caches of all devices share.
//!
//! Locks are taken in this order: `growth` (of [`crate::caching::slow`], which owns a cache), `pending`, `figures`, then
//! those of shards by position.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::ids::PoolId;
use crate::caching::block::{Claim, Index};
use crate::caching::device::all_shards::Figures;
use crate::caching::device::on_miss::OnMiss;
use crate::caching::pools::Pending;
use crate::caching::remote::{Pages, RemoteFreeFlags, ShardId};
use crate::caching::shard::{Key, Locked, Shard, StreamTable, signed};
use crate::caching::stats::DeviceStats;
use crate::sync::Mutex;
use crate::sync::hybrid_lock::HybridLock;
use crate::sync::lock;
use crate::thread::{self, HandedOut};
use crate::trace::{Trace, TraceBlock};

/// What the caches of all devices share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Tells allocators apart; never 0.
    pub(crate) number: u64,
    /// Tells what threads were handed out lately from what all of them have to forget; never 0 and never that of another
    /// allocator.
    session: AtomicU64,
    /// Who is told what happens.
    pub(crate) trace: Arc<Trace>,
    pub(crate) pages: Arc<Pages>,
    shards: Box<[ShardBatch; SHARD_BATCHES]>,
    /// Number of shards.
    made: AtomicU32,
    /// Captures of graphs under way, on any device.
    captures: AtomicUsize,
    pub(crate) on_miss: OnMiss,
}

type ShardBatch = OnceLock<Box<[OnceLock<Arc<Shard>>; SHARDS_OF_BATCH]>>;

/// Marks the number of an allocator in what a thread was handed out. No number is so high.
const TOLD: u64 = 1 << 63;

const SHARDS_OF_BATCH: usize = 64;
const SHARD_BATCHES: usize = 1024;

impl Shared {
    pub(crate) fn new(trace: Arc<Trace>) -> Self {
        Self {
            number: new_number(),
            session: AtomicU64::new(new_number()),
            trace,
            pages: Arc::new(Pages::new()),
            shards: Box::new([const { OnceLock::new() }; SHARD_BATCHES]),
            made: AtomicU32::new(0),
            captures: AtomicUsize::new(0),
            on_miss: OnMiss::default(),
        }
    }

    /// The shard of a name.
    #[inline]
    pub(crate) fn shard(&self, id: ShardId) -> Option<&Arc<Shard>> {
        let number = id.0 as usize;
        self.shards[number / SHARDS_OF_BATCH % SHARD_BATCHES].get()?[number % SHARDS_OF_BATCH].get()
    }

    #[inline]
    fn session(&self) -> u64 {
        self.session.load(Ordering::Relaxed)
    }

    /// Makes all threads forget what they were handed out, so that giving it back takes the long way.
    pub(crate) fn forget_handed_out(&self) {
        self.session.store(new_number(), Ordering::Relaxed);
    }

    /// Notes what this thread was handed out, for it to be found quickly if that is given back next.
    #[inline]
    pub(super) fn note_handed_out(&self, claim: Claim, shard: ShardId) {
        thread::set_handed_out(HandedOut { allocator: self.session(), claim: claim.word(), shard: shard.0 });
    }

    /// The shard that this thread was handed out the claimed memory from, if that was the last it was handed out.
    #[inline]
    pub(crate) fn shard_of_last(&self, claim: Claim) -> Option<&Arc<Shard>> {
        let last = thread::handed_out();
        let is_it = last.claim == claim.word() && last.allocator == self.session();
        if is_it { self.shard(ShardId(last.shard)) } else { None }
    }

    /// Lets this thread find what it was handed out last only by [`Self::told_shard_of_last`]: giving it back is told.
    pub(crate) fn tell_of_last(&self) {
        let last = thread::handed_out();
        let allocator = if last.allocator == self.session() { last.allocator | TOLD } else { 0 };
        thread::set_handed_out(HandedOut { allocator, ..last });
    }

    /// As [`Self::shard_of_last`], of memory whose giving back is told.
    pub(crate) fn told_shard_of_last(&self, claim: Claim) -> Option<&Arc<Shard>> {
        let last = thread::handed_out();
        let is_it = last.claim == claim.word() && last.allocator == self.session() | TOLD;
        if is_it { self.shard(ShardId(last.shard)) } else { None }
    }

    /// Number of shards, at least 1.
    pub(crate) fn shard_count(&self) -> u32 {
        self.made.load(Ordering::Acquire).max(1)
    }

    /// Keeps a shard that is made with the next name; `None` when there are too many.
    fn add_shard(&self, make: impl FnOnce(ShardId) -> Shard) -> Option<Arc<Shard>> {
        let number = self.made.fetch_add(1, Ordering::AcqRel);
        let batch = self.shards.get(number as usize / SHARDS_OF_BATCH)?;
        let batch = batch.get_or_init(|| Box::new([const { OnceLock::new() }; SHARDS_OF_BATCH]));
        let shard = Arc::new(make(ShardId(number)));
        Some(Arc::clone(batch[number as usize % SHARDS_OF_BATCH].get_or_init(|| shard)))
    }

    /// Whether the runtime captures a graph, on any device.
    pub(crate) fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::Acquire) > 0
    }

    /// Notes a capture that begins.
    pub(crate) fn begin_capture(&self) {
        self.captures.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes a capture that ends.
    pub(crate) fn end_capture(&self) {
        self.captures.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A number that no allocator of the process has had.
fn new_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The cached memory of one device.
#[derive(Debug)]
pub(crate) struct DeviceCache {
    pub(crate) index: DeviceIndex,
    pub(crate) position: usize,
    pub(crate) shared: Arc<Shared>,
    /// The shards of the default pools.
    pub(crate) streams: StreamTable,
    /// Open scopes of this device.
    pub(crate) scopes: AtomicUsize,
    /// Number of pending blocks; changed under the lock of `pending`.
    pub(crate) pending_count: AtomicUsize,
    /// Whether a capture may use memory again that other streams of it used.
    pub(crate) reuses_in_captures: AtomicBool,
    /// Steps that the program marked.
    pub(crate) marks: AtomicU64,
    /// Shards that may have remote frees.
    pub(crate) remote_frees: CachePadded<RemoteFreeFlags>,
    pub(crate) pending: CachePadded<HybridLock<Pending>>,
    pub(crate) figures: Mutex<Figures>,
}

impl DeviceCache {
    pub(crate) fn new(position: usize, index: DeviceIndex, shared: &Arc<Shared>, config: &AllocatorConfig) -> Self {
        let max_split_size = config.max_split_size.map_or(-1, signed);
        let stats = DeviceStats { max_split_size, ..DeviceStats::default() };
        Self {
            index,
            position,
            shared: Arc::clone(shared),
            streams: StreamTable::new(),
            scopes: AtomicUsize::new(0),
            pending_count: AtomicUsize::new(0),
            reuses_in_captures: AtomicBool::new(config.graph_capture_record_stream_reuse),
            marks: AtomicU64::new(0),
            remote_frees: CachePadded::default(),
            pending: CachePadded::default(),
            figures: Mutex::new(Figures::new(stats)),
        }
    }

    /// Whether allocations of this device may be routed to a private pool.
    #[inline]
    pub(crate) fn is_scoped(&self) -> bool {
        self.scopes.load(Ordering::Acquire) > 0
    }

    /// Whether a capture may use memory again that other streams of it used.
    pub(crate) fn reuses_in_captures(&self) -> bool {
        self.reuses_in_captures.load(Ordering::Relaxed)
    }

    /// Whether blocks are pending, whose events a request asks for first.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.pending_count.load(Ordering::Acquire) > 0
    }

    /// Number of pending blocks.
    pub(crate) fn pending_count(&self) -> usize {
        self.pending_count.load(Ordering::Acquire)
    }

    /// What is reported of a block of a shard that is handed out or pending.
    pub(crate) fn describe(&self, shard: &Shard, block: Index) -> TraceBlock {
        self.describe_locked(&shard.lock(), block)
    }

    /// The same of a shard whose lock is held.
    #[inline]
    pub(super) fn describe_locked(&self, locked: &Locked<'_>, block: Index) -> TraceBlock {
        // What the note about the last allocation says does not change these.
        let (state, found) = (locked.books(), locked.books().blocks.get(block));
        TraceBlock {
            device: self.index,
            address: found.address,
            requested: found.requested,
            size: found.size,
            stream: state.key.stream.0 as u64,
            pool: state.key.owner.unwrap_or(PoolId(0, 0)),
        }
    }

    /// Makes a shard.
    pub(crate) fn add_shard(&self, key: Key, config: &Arc<AllocatorConfig>, counts_lookups: bool) -> Arc<Shard> {
        let mut figures = lock(&self.figures);
        let position = figures.shards.len();
        let make = |id| {
            let place = (id, self.position, position);
            Shard::new(place, &self.shared.pages, key, Arc::clone(config), counts_lookups)
        };
        let shard = self.shared.add_shard(make).expect("fewer than 65536 pairs of a stream and a pool");
        figures.shards.push(Arc::clone(&shard));
        shard
    }

    /// The private pool that live memory belongs to.
    pub(crate) fn owner(&self, shard: &Shard, address: u64) -> Option<PoolId> {
        let state = shard.lock_flushed();
        let place = self.shared.pages.find(address)?;
        if place.shard == shard.id { state.key.owner } else { None }
    }

    /// Sets the peaks to the present values.
    pub(crate) fn reset_peak(&self) {
        self.all_shards(|all| all.reset_peak());
    }

    /// Sets the sums and counts to 0.
    pub(crate) fn reset_accumulated(&self) {
        self.all_shards(|all| all.reset_accumulated());
    }

    /// Bytes held from the driver.
    pub(crate) fn held(&self) -> u64 {
        u64::try_from(lock(&self.figures).stats().reserved_bytes.all.current).unwrap_or(0)
    }
}
