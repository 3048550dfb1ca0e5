//! The caching allocator: device memory that is given back is kept for the next request of the same stream.
//!
//! Decides exactly as PyTorch's native allocator does (rounding, pools, best fit, splitting, merging, what is counted
//! when), so that figures and habits carry over. `README.md` beside this file gives the reading order.
//!
//! **Invariants:** nothing here knows the driver except through the trait [`Driver`]. What a stream's cached memory needs
//! is behind a lock of its own, under which the driver is never called.

mod block;
mod device;
mod freeset;
mod pools;
mod remote;
mod shard;
mod slow;
mod stats;

#[cfg(test)]
mod tests;

pub(crate) use pools::{Filter, PoolOptions, Request};
pub use slow::{BlockCheckpoint, PoolCheckpoint, RestoreResult, SegmentCheckpoint};
pub use slow::{BlockInfo, BlockState, SegmentInfo, SegmentType};
pub use stats::{DeviceStats, StatByPool};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, Result};
use crate::base::handles::StreamRef;
use crate::base::ids::PoolId;
use crate::driver::{Driver, Relaxed};
use crate::thread;
use block::SIZE_LIMIT;
pub(crate) use device::Search;
use device::{Device, Shared, Undoing};
use remote::Place;

/// The allocators of all devices.
#[derive(Debug)]
pub(crate) struct CachingAllocator {
    devices: Box<[Device]>,
    shared: Arc<Shared>,
    /// Scopes open on any device. While there are any, driver calls are made in relaxed capture mode, since a capture
    /// of any thread could forbid them.
    scopes: AtomicUsize,
    /// Whether requests go past the cache to the driver.
    uncached: AtomicBool,
    /// What was handed out so.
    uncached_memory: Mutex<BTreeMap<u64, DeviceIndex>>,
    /// What of it was given back during a capture.
    late: Mutex<Vec<(u64, DeviceIndex)>>,
}

impl CachingAllocator {
    pub(crate) fn new(device_count: usize, config: &Arc<AllocatorConfig>) -> Self {
        let shared = Arc::new(Shared::new());
        let devices = (0..).map(DeviceIndex).enumerate().take(device_count);
        Self {
            devices: devices
                .map(|(position, index)| Device::new(position, index, &shared, Arc::clone(config)))
                .collect(),
            shared,
            scopes: AtomicUsize::new(0),
            uncached: AtomicBool::new(false),
            uncached_memory: Mutex::default(),
            late: Mutex::default(),
        }
    }

    /// Decides by these options from now on; what is held already stays.
    pub(crate) fn set_config(&self, config: &Arc<AllocatorConfig>) {
        self.devices.iter().for_each(|device| device.set_config(config));
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
        self.uncached.store(!enabled, Ordering::Release);
    }

    /// Memory of at least `bytes` bytes for use on `stream`; its address, or 0 for no bytes.
    #[cfg(test)]
    pub(crate) fn alloc<D: Driver>(&self, driver: &D, stream: StreamRef, bytes: u64) -> Result<u64> {
        let found = match self.search(stream, bytes) {
            Search::Waiting => self.search_after_events(driver, stream, bytes)?,
            found @ (Search::Undone | Search::Found(_) | Search::NothingFits | Search::NoShard) => found,
        };
        self.alloc_after(driver, stream, bytes, &found)
    }

    /// Looks for memory in the cache, if nothing else has to be looked at.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the one call that is left finds a block anew")]
    pub(crate) fn search(&self, stream: StreamRef, bytes: u64) -> Search {
        let plain =
            bytes.wrapping_sub(1) < SIZE_LIMIT - 1 && !self.is_scoped() && !self.uncached.load(Ordering::Acquire);
        match self.device(stream.device) {
            Some(device) if plain && device.is_waiting() => Search::Waiting,
            Some(device) if plain => device.hit_default(stream.handle, bytes),
            _ => Search::Undone,
        }
    }

    /// Looks for memory in the cache where blocks await other streams, after the events that have passed.
    #[inline]
    pub(crate) fn search_after_events<D: Driver>(&self, driver: &D, stream: StreamRef, bytes: u64) -> Result<Search> {
        match self.device(stream.device) {
            Some(device) => device.hit_after_events(driver, stream.handle, bytes),
            None => Ok(Search::Undone),
        }
    }

    /// Serves a request that a search did not; its address, or 0 for no bytes.
    #[cold]
    pub(crate) fn alloc_after<D: Driver>(
        &self,
        driver: &D,
        stream: StreamRef,
        bytes: u64,
        search: &Search,
    ) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let device = self.existing(stream.device)?;
        match search {
            Search::Found(address) => Ok(*address),
            Search::Undone | Search::Waiting => self.alloc_specially(driver, device, stream, bytes),
            Search::NothingFits | Search::NoShard => {
                device.serve_after(driver, &Request { stream, bytes, capture: None, thread: None }, search)
            }
        }
    }

    /// The same when scopes are open, or nothing is cached.
    #[cold]
    fn alloc_specially<D: Driver>(&self, driver: &D, device: &Device, stream: StreamRef, bytes: u64) -> Result<u64> {
        if bytes >= SIZE_LIMIT {
            return Err(Error::RequestTooLarge { requested: bytes });
        }
        let scoped = self.is_scoped();
        let capture = if scoped { driver.capture_id(stream)? } else { None };
        let _relaxed = Relaxed::new(driver, scoped)?;
        if self.uncached.load(Ordering::Acquire) {
            return self.alloc_uncached(driver, stream.device, bytes);
        }
        device.process_events(driver)?;
        if capture.is_some() {
            device.free_passed(driver, stream)?;
        }
        let request = Request { stream, bytes, capture, thread: scoped.then(thread::number) };
        if scoped {
            return device.serve(driver, &request, false);
        }
        match device.hit_default(stream.handle, bytes) {
            Search::Found(address) => Ok(address),
            miss @ (Search::Undone | Search::Waiting | Search::NothingFits | Search::NoShard) => {
                device.serve_after(driver, &request, &miss)
            }
        }
    }

    fn alloc_uncached<D: Driver>(&self, driver: &D, device: DeviceIndex, bytes: u64) -> Result<u64> {
        // What the driver does not take back now it is offered again.
        let _ = self.free_late(driver);
        let address = driver.mem_alloc(device, bytes)?;
        self.uncached_memory().insert(address, device);
        Ok(address)
    }

    /// Gives uncached memory back; the driver waits for all work that may use it.
    #[cold]
    fn free_uncached<D: Driver>(&self, driver: &D, address: u64) -> Result<()> {
        let mut held = self.uncached_memory();
        let device = held.remove(&address).ok_or(Error::InvalidDevicePointer { address })?;
        drop(held);
        if self.shared.is_capturing() {
            self.free_later(address, device);
            return Ok(());
        }
        let _relaxed = Relaxed::new(driver, self.is_scoped())?;
        driver.mem_free(device, address).inspect_err(|_| {
            self.uncached_memory().insert(address, device);
        })
    }

    fn uncached_memory(&self) -> MutexGuard<'_, BTreeMap<u64, DeviceIndex>> {
        self.uncached_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes memory back. It is not freed before the streams it was recorded on have passed the work queued so far.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the one call that is left is for what was not handed out last")]
    pub(crate) fn free<D: Driver>(&self, driver: &D, address: u64) -> Result<()> {
        if let Some(shard) = self.shared.last_shard(address) {
            let device = &self.devices[shard.device];
            match device.free_newest(shard, address) {
                Undoing::Done => return Ok(()),
                Undoing::Awaits(waiter, used) => return device.await_one(driver, shard, waiter, used),
                Undoing::Nothing => {}
            }
        }
        self.free_any(driver, address)
    }

    /// The same for memory that need not be what was handed out last.
    #[inline(never)]
    fn free_any<D: Driver>(&self, driver: &D, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let found = self.shared.pages.slot_at(address);
        let found = found.and_then(|(id, slot)| self.shared.shard(id).map(|shard| (shard, slot)));
        let Some((shard, slot)) = found else { return self.free_uncached(driver, address) };
        let device = &self.devices[shard.device];
        let is_here = shard.is_owner(thread::number());
        let seen = if is_here { slot.look() } else { slot.look_to_change() };
        let Some(place) = Place::new(shard.id, slot, seen) else { return Err(Error::InvalidDevicePointer { address }) };
        if is_here {
            device.free(driver, shard, &place, address)
        } else {
            device.free_from_afar(driver, shard, &place, address)
        }
    }

    /// Notes that memory is used on another stream than the one it was allocated for.
    pub(crate) fn record_stream(&self, address: u64, stream: StreamRef) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        if let Some(shard) = self.shared.last_shard(address)
            && self.devices[shard.device].record_newest(shard, address, stream)
        {
            return Ok(());
        }
        // Giving it back needs more than undoing the newest change.
        thread::forget_handed_out();
        let place = self.shared.pages.find(address);
        match place.and_then(|place| self.shared.shard(place.shard).map(|shard| (shard, place))) {
            Some((shard, place)) => self.devices[shard.device].record_stream(shard, &place, address, stream),
            None if self.uncached_memory().contains_key(&address) => Ok(()),
            None => Err(Error::InvalidDevicePointer { address }),
        }
    }

    /// The private pool that live memory belongs to.
    pub(crate) fn owner(&self, address: u64) -> Option<PoolId> {
        let shard = self.shared.shard(self.shared.pages.find(address)?.shard)?;
        self.devices[shard.device].owner(shard, address)
    }

    /// Gives free segments of all devices back to the driver. Goes on after a failure and returns the first.
    pub(crate) fn empty_cache<D: Driver>(&self, driver: &D) -> Result<()> {
        let _relaxed = Relaxed::new(driver, self.is_scoped())?;
        let late = self.free_late(driver);
        let each = self.devices.iter().map(|device| device.release_cached(driver));
        each.fold(late, Result::and)
    }

    /// Gives the free memory of one private pool, if nobody uses it any more, back to the driver.
    pub(crate) fn empty_pool<D: Driver>(&self, driver: &D, pool: PoolId) -> Result<()> {
        let _relaxed = Relaxed::new(driver, self.is_scoped())?;
        let each = self.devices.iter().map(|device| device.release_cached_pool(driver, pool));
        each.fold(Ok(()), Result::and)
    }

    /// All memory held from the driver, or that of one private pool, by device and address.
    pub(crate) fn snapshot(&self, pool: Option<PoolId>) -> Vec<SegmentInfo> {
        self.devices.iter().flat_map(|device| device.snapshot(pool)).collect()
    }

    /// Figures of a device.
    pub(crate) fn stats(&self, device: DeviceIndex) -> Result<DeviceStats> {
        Ok(self.existing(device)?.stats())
    }

    /// Sets a device's peaks to the present values.
    pub(crate) fn reset_peak_stats(&self, device: DeviceIndex) -> Result<()> {
        self.existing(device)?.reset_peak();
        Ok(())
    }

    /// Sets a device's sums and counts to zero.
    pub(crate) fn reset_accumulated_stats(&self, device: DeviceIndex) -> Result<()> {
        self.existing(device)?.reset_accumulated();
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

    /// Gives up one use of a private pool.
    pub(crate) fn release_pool(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.existing(device)?.release_pool(pool);
        Ok(())
    }

    /// What a private pool of a device holds, to bring it back to that.
    pub(crate) fn checkpoint_pool<D: Driver>(
        &self,
        driver: &D,
        device: DeviceIndex,
        pool: PoolId,
    ) -> Result<PoolCheckpoint> {
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
        let _relaxed = Relaxed::new(driver, self.is_scoped())?;
        self.existing(device)?.restore_pool(driver, checkpoint, given_up)
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
        self.devices.iter().find_map(|device| device.check().err())
    }

    /// Gives everything back to the driver; nothing may be allocated or freed afterwards.
    pub(crate) fn dismantle<D: Driver>(&self, driver: &D) {
        self.devices.iter().for_each(|device| device.dismantle(driver));
        for (address, device) in std::mem::take(&mut *self.uncached_memory()) {
            let _ = driver.mem_free(device, address);
        }
        let _ = self.free_late(driver);
    }

    /// Whether allocations of any device are routed to a private pool.
    pub(crate) fn is_scoped(&self) -> bool {
        self.scopes.load(Ordering::Acquire) > 0
    }

    #[inline]
    fn device(&self, device: DeviceIndex) -> Option<&Device> {
        self.devices.get(usize::try_from(device).ok()?)
    }

    fn existing(&self, device: DeviceIndex) -> Result<&Device> {
        self.device(device).ok_or(Error::InvalidDeviceId)
    }
}
