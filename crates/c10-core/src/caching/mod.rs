//! The caching allocator: device memory that is given back is kept for the next request of the same stream.
//!
//! Decides exactly as PyTorch's native allocator does (rounding, pools, best fit, splitting, merging, what is counted
//! when), so that figures and habits carry over. `README.md` beside this file has a glossary and the reading order.
//!
//! **Invariants:** nothing here knows the driver except through the trait [`Driver`]. What a stream's cached memory needs
//! is behind a lock of its own, under which the driver is never called.

mod block;
mod device;
mod freeset;
mod plan;
mod pools;
mod remote;
mod shard;
mod slow;
mod stats;

#[cfg(test)]
mod tests;

pub use plan::PlanStats;
pub(crate) use pools::{Filter, PoolOptions, Predicate, Request, SegmentSource, Source};
pub(crate) use slow::RequestSizes;
pub use slow::{BlockCheckpoint, PoolCheckpoint, RestoreResult, SegmentCheckpoint};
pub use slow::{BlockInfo, BlockState, SegmentInfo, SegmentType};
pub use stats::{DeviceStats, StatByPool};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::error::DeviceError;
use crate::base::error::MemoryError;
use crate::base::error::{Error, Result};
use crate::base::handles::{PageHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::driver::{Driver, Relaxed};
use crate::sync::Mutex;
use crate::sync::lock;
use crate::thread;
use crate::trace::{BriefBlock, Order, Purpose, Trace, TraceBlock, TraceEvent, TraceKind};
use block::Asked;
pub(crate) use block::{Claim, Owner, SIZE_LIMIT};
use device::{ByPlan, FreeOfLast, Hit, Shared};
use remote::Place;
use shard::Shard;
use slow::{DeviceAllocator, Marked, Uncached};

/// The allocators of all devices.
#[derive(Debug)]
pub(crate) struct CachingAllocator {
    devices: Box<[DeviceAllocator]>,
    shared: Arc<Shared>,
    /// Open scopes of all devices. While there are any, driver calls are made in relaxed capture mode, since a capture
    /// of any thread could forbid them.
    scopes: AtomicUsize,
    uncached: Uncached,
    /// The driver is told of each block that is handed out or given back.
    tells: bool,
    /// Memory comes from elsewhere, so that no request is served here.
    stands_aside: bool,
    /// Which way requests take: 0, or [`LONG`] and [`PLANNED`].
    way: AtomicU8,
    /// Held while that is decided: whether the options ask for plans.
    deciding: Mutex<bool>,
    /// What was in use when the history of memory ended.
    marked: Mutex<BTreeMap<DeviceIndex, Marked>>,
}

/// Memory goes past the cache, or somebody is told of it.
const LONG: u8 = 1;
/// Streams have plans.
const PLANNED: u8 = 2;

impl CachingAllocator {
    /// Allocators that hold nothing.
    #[cfg(test)]
    pub(crate) fn new(device_count: usize, config: &Arc<AllocatorConfig>) -> Self {
        Self::traced(device_count, config, Arc::default())
    }

    /// Allocators that hold nothing, and report what they do.
    pub(crate) fn traced(device_count: usize, config: &Arc<AllocatorConfig>, trace: Arc<Trace>) -> Self {
        let shared = Arc::new(Shared::new(trace));
        let devices = (0..).map(DeviceIndex).enumerate().take(device_count);
        Self {
            devices: devices
                .map(|(position, index)| DeviceAllocator::new(position, index, &shared, Arc::clone(config)))
                .collect(),
            shared,
            scopes: AtomicUsize::new(0),
            uncached: Uncached::default(),
            tells: false,
            stands_aside: false,
            way: AtomicU8::new(if config.learn_plans { PLANNED } else { 0 }),
            deciding: Mutex::new(config.learn_plans),
            marked: Mutex::default(),
        }
    }

    /// The same, which tell the driver of blocks if it asks for that.
    pub(crate) fn telling(self, tells: bool) -> Self {
        let allocator = Self { tells, ..self };
        allocator.choose_way();
        allocator
    }

    /// The same, which hold nothing ever, if memory comes from elsewhere: every request takes the long way.
    pub(crate) fn standing_aside(self, stands_aside: bool) -> Self {
        let allocator = Self { stands_aside, ..self };
        allocator.choose_way();
        allocator
    }

    /// Decides by these options from now on; what is held already stays.
    pub(crate) fn set_config(&self, config: &Arc<AllocatorConfig>) {
        *lock(&self.deciding) = config.learn_plans;
        // What a plan places was decided by the old options.
        self.devices.iter().for_each(|device| device.set_config(config));
        self.choose_way();
    }

    /// Sets the most bytes of a device to hold; more that is held already stays.
    pub(crate) fn set_limit(&self, device: DeviceIndex, limit: Option<u64>) -> Result<()> {
        self.existing(device)?.set_limit(limit);
        Ok(())
    }

    /// The most bytes of a device to hold.
    pub(crate) fn limit(&self, device: DeviceIndex) -> Result<Option<u64>> {
        Ok(self.existing(device)?.limit())
    }

    /// Switches the cache on or off for requests to come.
    pub(crate) fn enable(&self, enabled: bool) {
        self.uncached.switch(!enabled);
        self.choose_way();
    }

    /// Has this called whenever a request finds nothing cached, before the driver is asked for more: it gives memory back that
    /// is only held for others. Nothing, if something is called already.
    pub(crate) fn set_on_miss(&self, give_back: impl Fn() + Send + Sync + 'static) {
        self.shared.on_miss.set(give_back);
    }

    /// Decides whether requests take the long way; to be called when somebody begins or ends to listen.
    pub(crate) fn choose_way(&self) {
        let deciding = lock(&self.deciding);
        let is_heard = self.shared.trace.wants(TraceKind::Memory);
        let is_long = self.uncached.is_on() || self.tells || self.stands_aside || is_heard;
        let way = if is_long { LONG } else { 0 } | if *deciding { PLANNED } else { 0 };
        self.way.store(way, Ordering::Release);
        if is_heard {
            // Giving back what was handed out before is reported too.
            self.shared.forget_handed_out();
        }
    }

    /// Memory of at least `bytes` bytes for use on `stream`; its address, or 0 for no bytes. Only that kind of owner gives it
    /// back. Requests that are not for the cache alone go to `specially`: to [`Self::alloc_if_planned`], and then to
    /// [`Self::alloc_specially`] unless memory comes from elsewhere. It is one call, since more would slow down a hit.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a hit is short, and everything else is a call")]
    pub(crate) fn alloc_for<D: Driver>(
        &self,
        driver: &D,
        stream: StreamRef,
        bytes: u64,
        owner: Owner,
        specially: impl FnOnce() -> Result<u64>,
    ) -> Result<u64> {
        let asked = Asked::new(bytes, owner);
        let is_plain =
            bytes.wrapping_sub(1) < SIZE_LIMIT - 1 && !self.is_scoped() && self.way.load(Ordering::Acquire) == 0;
        match self.device(stream.device) {
            Some(device) if is_plain && device.cache.has_pending() => {
                self.alloc_after_events(driver, device, stream, asked)
            }
            Some(device) if is_plain => match device.cache.hit(stream.handle, asked) {
                Hit::Found(address) => Ok(address),
                miss @ (Hit::NothingFits | Hit::NoShard) => device.alloc_missed(driver, stream, asked, miss),
            },
            _ => specially(),
        }
    }

    /// The same where blocks are pending: those that wait for nothing any more are freed first.
    #[inline(never)]
    fn alloc_after_events<D: Driver>(
        &self,
        driver: &D,
        device: &DeviceAllocator,
        stream: StreamRef,
        asked: Asked,
    ) -> Result<u64> {
        match device.cache.hit_after_events(driver, stream.handle, asked)? {
            Hit::Found(address) => Ok(address),
            miss @ (Hit::NothingFits | Hit::NoShard) => device.alloc_missed(driver, stream, asked, miss),
        }
    }

    /// The same when scopes are open, nothing is cached or somebody is told, and for requests that are refused.
    #[cold]
    pub(crate) fn alloc_specially<D: Driver>(
        &self,
        driver: &D,
        stream: StreamRef,
        bytes: u64,
        owner: Owner,
    ) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let Some(device) = self.device(stream.device) else { return Err(Error::Device(DeviceError::InvalidId)) };
        if bytes >= SIZE_LIMIT {
            return Err(Error::Memory(MemoryError::RequestTooLarge { requested: bytes }));
        }
        let asked = Asked::new(bytes, owner);
        let mut order = self.shared.trace.order(stream.device, Purpose::Alloc);
        if self.uncached.is_on() {
            return self.alloc_uncached(driver, stream.device, asked);
        }
        let is_scoped = self.is_scoped();
        let address = match is_scoped {
            true => self.alloc_in_scopes(driver, device, stream, asked),
            false if self.way.load(Ordering::Acquire) & PLANNED != 0 => {
                self.alloc_by_plan(driver, device, stream, asked)
            }
            false => self.alloc_after_events(driver, device, stream, asked),
        }?;
        if self.tells {
            driver.tell_handed_out(address, bytes, stream);
        }
        if let Some(order) = &mut order {
            let pool = if is_scoped { self.owner(address) } else { None };
            let stream = stream.handle.0 as u64;
            let brief = BriefBlock { address, requested: bytes, stream, pool: pool.unwrap_or(PoolId(0, 0)) };
            order.tell_allocated(&brief, || self.describe(address));
        }
        if self.tells || order.is_some() {
            // Giving it back is told too, which undoing the last allocation does not do by itself.
            self.shared.tell_of_last();
        }
        Ok(address)
    }

    /// Serves a request that is one for the plan of its stream and for nobody else; `None` for another.
    pub(crate) fn alloc_if_planned<D: Driver>(
        &self,
        driver: &D,
        stream: StreamRef,
        bytes: u64,
        owner: Owner,
    ) -> Option<Result<u64>> {
        if self.way.load(Ordering::Acquire) != PLANNED {
            return None;
        }
        let is_planned = !self.is_scoped() && bytes.wrapping_sub(1) < SIZE_LIMIT - 1;
        let device = self.device(stream.device).filter(|_| is_planned)?;
        Some(self.alloc_by_plan(driver, device, stream, Asked::new(bytes, owner)))
    }

    /// Serves a request by its stream's plan, or by the cache, from which the plan learns.
    #[inline(never)]
    fn alloc_by_plan<D: Driver>(
        &self,
        driver: &D,
        device: &DeviceAllocator,
        stream: StreamRef,
        asked: Asked,
    ) -> Result<u64> {
        if device.cache.has_pending() {
            device.cache.process_events(driver)?;
        }
        match device.cache.hit_by_plan(stream.handle, asked) {
            ByPlan::Found(address) => Ok(address),
            other @ (ByPlan::Cache { .. } | ByPlan::First(_)) => {
                self.alloc_beside_plan(driver, device, stream, asked, other)
            }
        }
    }

    /// The same where the plan has no place, or something is to be done first.
    #[inline(never)]
    fn alloc_beside_plan<D: Driver>(
        &self,
        driver: &D,
        device: &DeviceAllocator,
        stream: StreamRef,
        asked: Asked,
        mut answer: ByPlan,
    ) -> Result<u64> {
        while let ByPlan::First(turn) = answer {
            device.take_turn(driver, stream, turn);
            answer = device.cache.hit_by_plan(stream.handle, asked);
        }
        let learns = match answer {
            ByPlan::Found(address) => return Ok(address),
            ByPlan::Cache { learns } => learns,
            ByPlan::First(_) => false,
        };
        let address = match device.cache.hit(stream.handle, asked) {
            Hit::Found(address) => address,
            miss @ (Hit::NothingFits | Hit::NoShard) => device.alloc_missed(driver, stream, asked, miss)?,
        };
        if learns {
            device.cache.note_allocated(stream.handle, asked, address);
            // That it is given back is noted too, which undoing the last allocation does not do.
            thread::forget_handed_out();
        }
        Ok(address)
    }

    /// Begins a step of a device: what its streams ask for from here on is a period, if they do so again and again.
    pub(crate) fn mark_step(&self, device: DeviceIndex) -> Result<()> {
        self.existing(device)?.cache.marks.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// What the plans of a device's streams have done.
    pub(crate) fn plan_stats(&self, device: DeviceIndex) -> Result<PlanStats> {
        Ok(self.existing(device)?.plan_stats())
    }

    /// The block that is handed out at an address.
    #[cold]
    fn describe(&self, address: u64) -> Option<TraceBlock> {
        let place = self.shared.pages.find(address)?;
        let shard = self.shared.shard(place.shard)?;
        Some(self.devices[shard.device].cache.describe(shard, place.block()))
    }

    /// The same when nothing is cached.
    fn alloc_uncached<D: Driver>(&self, driver: &D, device: DeviceIndex, asked: Asked) -> Result<u64> {
        let _relaxed = Relaxed::new(driver, self.is_scoped())?;
        // What the driver does not take back now it is offered again.
        let _ = self.free_late(driver);
        let address = self.uncached.alloc(driver, device, asked)?;
        let size = asked.bytes();
        self.shared.trace.report(TraceKind::Memory, || TraceEvent::UncachedAllocated { device, address, size });
        Ok(address)
    }

    /// The same when scopes are open.
    fn alloc_in_scopes<D: Driver>(
        &self,
        driver: &D,
        device: &DeviceAllocator,
        stream: StreamRef,
        asked: Asked,
    ) -> Result<u64> {
        let capture = driver.capture_id(stream)?;
        let _relaxed = Relaxed::new(driver, true)?;
        device.cache.process_events(driver)?;
        if capture.is_some() {
            device.cache.free_passed(driver, stream)?;
        }
        let request = Request { stream, asked, capture, thread: Some(thread::number()) };
        device.serve(driver, &request, false)
    }

    /// Takes memory back from an owner; 0 is ignored. It serves again when the streams it was recorded on have passed the
    /// work queued so far. `rest` takes back what is not the last allocation: [`Self::free_any`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the one call that is left is for what is not the last allocation")]
    pub(crate) fn free_by<D: Driver>(
        &self,
        driver: &D,
        address: u64,
        owner: Owner,
        rest: impl FnOnce(Claim) -> Result<()>,
    ) -> Result<()> {
        let claim = Claim::new(address, owner);
        if let Some(shard) = self.shared.shard_of_last(claim) {
            let cache = &self.devices[shard.device].cache;
            match cache.free_last(shard, claim) {
                FreeOfLast::Done => return Ok(()),
                FreeOfLast::Waits(waiter, used) => return cache.wait_for_one(driver, shard, waiter, used),
                FreeOfLast::NotLast => {}
            }
        }
        rest(claim)
    }

    /// The same for memory that need not be the last allocation. What is no block goes to `unknown`, which is
    /// [`Self::free_uncached`] unless memory comes from elsewhere.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "its one caller is a function of its own")]
    pub(crate) fn free_any<D: Driver>(
        &self,
        driver: &D,
        claim: Claim,
        unknown: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let address = claim.address();
        if address == 0 {
            return Ok(());
        }
        let way = self.way.load(Ordering::Relaxed);
        if way & LONG != 0 {
            if self.stands_aside {
                return unknown();
            }
            if way == LONG && self.free_last_told(claim) {
                return Ok(());
            }
        }
        let found = self.shared.pages.slot_at(address);
        let found = found.and_then(|(id, slot)| self.shared.shard(id).map(|shard| (shard, slot)));
        let Some((shard, slot)) = found else { return unknown() };
        let cache = &self.devices[shard.device].cache;
        let is_here = shard.is_owner(thread::number());
        let seen = if is_here { slot.look() } else { slot.look_for_write() };
        let Some(place) = Place::new(shard.id, slot, seen) else {
            return Err(Error::Memory(MemoryError::InvalidPointer { address }));
        };
        if place.owner() != claim.owner() {
            return Err(Error::Memory(MemoryError::OwnedByBuffer { address }));
        }
        match way {
            0 if is_here => cache.free(driver, shard, &place, claim),
            0 => cache.free_remotely(driver, shard, &place, claim),
            PLANNED => cache.free_by_plan(driver, shard, &place, claim),
            _ => self.free_told(driver, shard, claim),
        }
    }

    /// The same for memory that went past the cache.
    #[cold]
    pub(crate) fn free_uncached<D: Driver>(&self, driver: &D, claim: Claim) -> Result<()> {
        self.uncached.free(driver, claim, self.shared.is_capturing(), self.is_scoped())?;
        let address = claim.address();
        self.shared.trace.report(TraceKind::Memory, || TraceEvent::UncachedFreed { address });
        self.shared.trace.deliver();
        Ok(())
    }

    /// The same for what this thread was handed out last, where somebody is told of it; whether that is done.
    #[cold]
    fn free_last_told(&self, claim: Claim) -> bool {
        let Some(shard) = self.shared.told_shard_of_last(claim).filter(|_| !self.tells) else { return false };
        let cache = &self.devices[shard.device].cache;
        let Some(mut order) = self.shared.trace.order(cache.index, Purpose::Free) else { return false };
        let block = cache.free_last_described(shard, claim);
        if let Some(block) = &block {
            order.tell_freed(block);
        }
        block.is_some()
    }

    /// The same for a block of a shard, where somebody may be told of it.
    #[cold]
    fn free_told<D: Driver>(&self, driver: &D, shard: &Shard, claim: Claim) -> Result<()> {
        let (address, cache) = (claim.address(), &self.devices[shard.device].cache);
        let mut order = self.shared.trace.order(cache.index, Purpose::Free);
        // Looked for again: another thread may have given it back before this one had the order.
        let place = self.shared.pages.find(address).filter(|place| place.shard == shard.id);
        let is_in_use = |place: &Place<'_>| place.owner() == claim.owner() && !shard.is_dormant(place.block());
        let Some(place) = place.filter(is_in_use) else {
            return Err(Error::Memory(MemoryError::InvalidPointer { address }));
        };
        if self.tells {
            driver.tell_given_back(address);
        }
        let is_planned = self.way.load(Ordering::Relaxed) & PLANNED != 0;
        let is_owner = shard.is_owner(thread::number());
        if let Some(order) = order.as_mut().filter(|_| is_owner && !place.is_used() && !is_planned)
            && let Some(block) = cache.free_described(shard, &place, claim)
        {
            order.tell_freed(&block);
            return Ok(());
        }
        let block = order.as_ref().map(|_| cache.describe(shard, place.block()));
        if let (Some(order), Some(block)) = (&mut order, &block) {
            order.tell_free_requested(block);
        }
        let pending = cache.pending_count();
        let freed = match is_owner {
            _ if is_planned => cache.free_by_plan(driver, shard, &place, claim),
            true => cache.free(driver, shard, &place, claim),
            false => cache.free_remotely(driver, shard, &place, claim),
        };
        // A block that waits for streams is reported when it has waited, which may have been at once.
        if let (Some(order), Some(block)) = (&mut order, &block)
            && cache.pending_count() == pending
            && Trace::completed() != address
        {
            order.tell_free_completed(block);
        }
        freed
    }

    /// Notes that memory is used on another stream than the one it was allocated for.
    pub(crate) fn record_stream(&self, address: u64, stream: StreamRef) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let claims = [Owner::Program, Owner::Buffer].map(|owner| Claim::new(address, owner));
        if let Some(shard) = claims.into_iter().find_map(|claim| self.shared.shard_of_last(claim))
            && self.devices[shard.device].cache.record_last(shard, address, stream)
        {
            return Ok(());
        }
        // Giving it back takes more than undoing the last allocation.
        thread::forget_handed_out();
        let place = self.shared.pages.find(address);
        match place.and_then(|place| self.shared.shard(place.shard).map(|shard| (shard, place))) {
            Some((shard, place)) => self.devices[shard.device].cache.record_stream(shard, &place, address, stream),
            None if self.uncached.contains(address) => Ok(()),
            None => Err(Error::Memory(MemoryError::InvalidPointer { address })),
        }
    }

    /// The private pool that live memory belongs to.
    pub(crate) fn owner(&self, address: u64) -> Option<PoolId> {
        let shard = self.shared.shard(self.shared.pages.find(address)?.shard)?;
        self.devices[shard.device].cache.owner(shard, address)
    }

    /// The pages that move behind memory that somebody holds: the first one's address, the bytes of each, and their handles;
    /// `None` where there are none.
    pub(crate) fn pages_behind(
        &self,
        device: DeviceIndex,
        address: u64,
        bytes: u64,
    ) -> Option<(u64, u64, Vec<PageHandle>)> {
        self.device(device)?.pages_behind(address, bytes)
    }

    /// Whether memory is handed out at an address to a buffer.
    pub(crate) fn is_of_buffer(&self, address: u64) -> bool {
        self.shared.pages.find(address).is_some_and(|place| place.owner() == Owner::Buffer)
    }

    /// Gives free segments of all devices back to the driver. Goes on after a failure and returns the first.
    pub(crate) fn empty_cache<D: Driver>(&self, driver: &D) -> Result<()> {
        let _relaxed = Relaxed::new(driver, self.is_scoped())?;
        let late = self.free_late(driver);
        let each = self.devices.iter().map(|device| {
            let _order = self.shared.trace.order(device.cache.index, Purpose::Free);
            device.release_cached(driver)
        });
        each.fold(late, Result::and)
    }

    /// Gives the free memory of one private pool, if nobody uses it any more, back to the driver.
    pub(crate) fn empty_pool<D: Driver>(&self, driver: &D, pool: PoolId) -> Result<()> {
        let _relaxed = Relaxed::new(driver, self.is_scoped())?;
        let each = self.devices.iter().map(|device| {
            let _order = self.shared.trace.order(device.cache.index, Purpose::Free);
            device.release_cached_pool(driver, pool)
        });
        each.fold(Ok(()), Result::and)
    }

    /// All memory held from the driver, or that of one private pool, by device and address.
    pub(crate) fn snapshot(&self, pool: Option<PoolId>) -> Vec<SegmentInfo> {
        self.devices.iter().flat_map(|device| device.snapshot(pool)).collect()
    }

    /// The same of one device.
    pub(crate) fn snapshot_of(&self, device: DeviceIndex, pool: Option<PoolId>) -> Vec<SegmentInfo> {
        self.device(device).map_or_else(Vec::new, |device| device.snapshot(pool))
    }

    /// Marks what is in use of a device; the addresses.
    pub(crate) fn mark_live(&self, device: DeviceIndex) -> BTreeSet<u64> {
        self.with_marked(device, DeviceAllocator::mark_live)
    }

    /// The addresses of a device's marked blocks that have been in use ever since.
    pub(crate) fn still_live(&self, device: DeviceIndex) -> BTreeSet<u64> {
        self.with_marked(device, DeviceAllocator::still_live)
    }

    fn with_marked(
        &self,
        device: DeviceIndex,
        look: fn(&DeviceAllocator, &mut Marked) -> BTreeSet<u64>,
    ) -> BTreeSet<u64> {
        let Some(allocator) = self.device(device) else { return BTreeSet::new() };
        look(allocator, lock(&self.marked).entry(device).or_default())
    }

    /// Figures of a device.
    pub(crate) fn stats(&self, device: DeviceIndex) -> Result<DeviceStats> {
        Ok(self.existing(device)?.cache.stats())
    }

    /// Sets a device's peaks to the present values.
    pub(crate) fn reset_peak_stats(&self, device: DeviceIndex) -> Result<()> {
        self.existing(device)?.cache.reset_peak();
        Ok(())
    }

    /// Sets a device's sums and counts to zero.
    pub(crate) fn reset_accumulated_stats(&self, device: DeviceIndex) -> Result<()> {
        self.existing(device)?.cache.reset_accumulated();
        Ok(())
    }

    /// Makes a private pool of a device, or counts one more use of it.
    pub(crate) fn use_pool(&self, device: DeviceIndex, pool: PoolId, options: PoolOptions) -> Result<()> {
        self.existing(device)?.use_pool(pool, options)
    }

    /// How many graphs, pool objects and scopes use a private pool of a device.
    pub(crate) fn pool_use_count(&self, device: DeviceIndex, pool: PoolId) -> Result<u32> {
        Ok(self.existing(device)?.pool_use_count(pool))
    }

    /// Gives a pool up: it helps out no more, is used once less, and what is free of it goes back to the driver.
    pub(crate) fn close_pool<D: Driver>(&self, driver: &D, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.existing(device)?.close_pool(pool);
        self.empty_pool(driver, pool)
    }

    /// Routes matching allocations of a device to a private pool, which is made if need be, and counts one use of it.
    pub(crate) fn begin_allocate_to_pool(&self, device: DeviceIndex, pool: PoolId, filter: Filter) -> Result<()> {
        self.existing(device)?.begin_allocate_to_pool(pool, filter)?;
        self.scopes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Ends what [`Self::begin_allocate_to_pool`] began; the use of the pool stays.
    pub(crate) fn end_allocate_to_pool(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.existing(device)?.end_allocate_to_pool(pool)?;
        self.scopes.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Routes what a capture allocates to a private pool, and counts one use of that. The pool may be one that all its
    /// graphs have given up: what it still holds serves again. `number` is the capture's, 0 until it is known.
    ///
    /// While the runtime captures a graph on any device, nothing is given back to the driver: neither by `empty_cache`,
    /// nor to make room for a request, nor because caching is off. Such a request fails as if there were nothing to give
    /// back, and what was not given back goes with the next occasion.
    pub(crate) fn begin_capture(&self, device: DeviceIndex, pool: PoolId, number: Arc<AtomicU64>) -> Result<()> {
        let revived = self.existing(device)?.revive_pool(pool);
        let begun = self.begin_allocate_to_pool(device, pool, Filter::Capture(number));
        if revived {
            self.existing(device)?.release_pool(pool);
        }
        if begun.is_ok() {
            self.shared.begin_capture();
        }
        begun
    }

    /// Ends what [`Self::begin_capture`] began; the use of the pool stays.
    pub(crate) fn end_capture(&self, device: DeviceIndex, pool: PoolId) {
        // It cannot fail: the routing was begun on this device and not ended since.
        if self.end_allocate_to_pool(device, pool).is_ok() {
            self.shared.end_capture();
        }
    }

    /// Offers the driver uncached memory again that it did not take back. Does nothing during a capture.
    fn free_late<D: Driver>(&self, driver: &D) -> Result<()> {
        if self.shared.is_capturing() { Ok(()) } else { self.uncached.free_late(driver, self.is_scoped()) }
    }

    /// Gives up one use of a private pool.
    pub(crate) fn release_pool(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.existing(device)?.release_pool(pool);
        Ok(())
    }

    /// The same for a graph, of which replays may still run on these streams.
    pub(crate) fn release_pool_of_graph(
        &self,
        device: DeviceIndex,
        pool: PoolId,
        replayed_on: &BTreeSet<StreamRef>,
    ) -> Result<()> {
        let existing = self.existing(device)?;
        existing.note_replays(pool, replayed_on);
        existing.release_pool(pool);
        Ok(())
    }

    /// What a private pool of a device holds, to bring it back to that.
    pub(crate) fn checkpoint_pool<D: Driver>(
        &self,
        driver: &D,
        device: DeviceIndex,
        pool: PoolId,
    ) -> Result<PoolCheckpoint> {
        let _order = self.shared.trace.order(device, Purpose::Free);
        let _relaxed = Relaxed::new(driver, self.is_scoped())?;
        self.existing(device)?.checkpoint_pool(driver, pool)
    }

    /// Brings a private pool of a device back to what a checkpoint notes, by taking back what was given up; see
    /// [`Device::restore_pool`].
    pub(crate) fn restore_pool<D: Driver>(
        &self,
        driver: &D,
        device: DeviceIndex,
        checkpoint: &PoolCheckpoint,
        given_up: Option<&BTreeSet<u64>>,
    ) -> Result<RestoreResult> {
        let mut order = self.shared.trace.order(device, Purpose::Free);
        let _relaxed = Relaxed::new(driver, self.is_scoped())?;
        let (pool, existing) = (Some(checkpoint.pool()), self.existing(device)?);
        let before = order.as_ref().map(|_| existing.live_blocks(pool));
        let restored = existing.restore_pool(driver, checkpoint, given_up);
        if let (Some(before), Some(order)) = (before, &mut order) {
            report_difference(order, &before, &existing.live_blocks(pool));
        }
        restored
    }

    /// Whether exactly these addresses of a device's private pool are handed out.
    pub(crate) fn check_pool_live_allocations(
        &self,
        device: DeviceIndex,
        pool: PoolId,
        expected: &[u64],
    ) -> Result<bool> {
        self.existing(device)?.check_pool_live_allocations(pool, expected)
    }

    /// What is wrong with the books, if anything; call it while no other thread allocates.
    pub(crate) fn inconsistency(&self) -> Option<String> {
        self.inconsistency_as_is().or_else(|| self.devices.iter().find_map(|device| device.check().err()))
    }

    /// The same of each shard as it is, with the note about its last allocation: nothing is flushed.
    pub(crate) fn inconsistency_as_is(&self) -> Option<String> {
        self.devices.iter().find_map(|device| device.check_as_is().err())
    }

    /// Gives everything back to the driver; nothing may be allocated or freed afterwards.
    pub(crate) fn dismantle<D: Driver>(&self, driver: &D) {
        self.devices.iter().for_each(|device| device.dismantle(driver));
        self.uncached.dismantle(driver);
    }

    /// Notes a capture or a route of a backend that serves in place of this one.
    pub(crate) fn open_scope(&self) {
        self.scopes.fetch_add(1, Ordering::AcqRel);
    }

    /// It has ended.
    pub(crate) fn close_scope(&self) {
        self.scopes.fetch_sub(1, Ordering::AcqRel);
    }

    /// Refuses devices that do not exist.
    pub(crate) fn check_device(&self, device: DeviceIndex) -> Result<()> {
        self.existing(device).map(drop)
    }

    /// Whether allocations of any device are routed to a private pool.
    pub(crate) fn is_scoped(&self) -> bool {
        self.scopes.load(Ordering::Acquire) > 0
    }

    #[inline]
    fn device(&self, device: DeviceIndex) -> Option<&DeviceAllocator> {
        self.devices.get(usize::try_from(device).ok()?)
    }

    fn existing(&self, device: DeviceIndex) -> Result<&DeviceAllocator> {
        self.device(device).ok_or(Error::Device(DeviceError::InvalidId))
    }
}

/// Reports what is handed out now and was not before, and the other way round.
#[cold]
fn report_difference(order: &mut Order<'_>, before: &[TraceBlock], now: &[TraceBlock]) {
    let (before, now): (BTreeSet<_>, BTreeSet<_>) = (before.iter().collect(), now.iter().collect());
    for gone in before.difference(&now) {
        order.tell_freed(gone);
    }
    for new in now.difference(&before) {
        order.tell_allocated(&BriefBlock::from(*new), || Some(**new));
    }
}
