//! The caching allocator: device memory that is given back is kept for the next request of the same stream.
//!
//! Decides exactly as PyTorch's native allocator does (rounding, pools, best fit, splitting, merging, what is counted
//! when), so that figures and habits carry over. `README.md` beside this file gives the reading order.
//!
//! **Invariants:** nothing here knows the driver except through the trait [`Driver`]; one lock for each device guards
//! all state of that device, and no two are held at once.

mod block;
mod device;
mod pending;
mod pointers;
mod pool;
mod private_pool;
mod reclaim;
mod size_class;
mod stats;
mod validity;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

pub use private_pool::PoolId;
pub(crate) use private_pool::{Filter, Request};
pub use stats::{DeviceStats, Stat, StatByPool};

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::DeviceIndex;
use crate::driver::{Driver, Relaxed, StreamRef};
use crate::error::{Error, Result};
use device::DeviceAllocator;
use pointers::{Place, Pointers};

/// The allocators of all devices.
#[derive(Debug)]
pub(crate) struct CachingAllocator {
    devices: Box<[Mutex<DeviceAllocator>]>,
    pointers: Pointers,
    /// Scopes open on any device. While there are any, driver calls are made in relaxed capture mode, since a capture
    /// of any thread could forbid them.
    scopes: AtomicUsize,
}

impl CachingAllocator {
    pub(crate) fn new(device_count: usize) -> Self {
        let devices = (0..).map(DeviceIndex).take(device_count);
        Self {
            devices: devices.map(|device| Mutex::new(DeviceAllocator::new(device))).collect(),
            pointers: Pointers::new(),
            scopes: AtomicUsize::new(0),
        }
    }

    /// Memory of at least `bytes` bytes for use on `stream`; its address, or 0 for no bytes.
    pub(crate) fn alloc<D: Driver>(&self, driver: &D, stream: StreamRef, bytes: u64) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        if bytes >= size_class::SIZE_LIMIT {
            return Err(Error::RequestTooLarge { requested: bytes });
        }
        let scoped = self.is_scoped();
        let capture = if scoped { driver.capture_id(stream)? } else { None };
        let _relaxed = Relaxed::new(driver, scoped)?;
        let request = Request { stream, bytes, capture };
        let (block, address) = self.lock(stream.device)?.malloc(driver, &request)?;
        self.pointers.insert(address, Place { device: stream.device, block });
        Ok(address)
    }

    /// Takes memory back. It is not freed before the streams it was recorded on have passed the work queued so far.
    pub(crate) fn free<D: Driver>(&self, driver: &D, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let place = self.pointers.remove(address).ok_or(Error::InvalidDevicePointer { address })?;
        self.lock(place.device)?.free(driver, place.block)
    }

    /// Notes that memory is used on another stream than the one it was allocated for.
    pub(crate) fn record_stream(&self, address: u64, stream: StreamRef) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let place = self.pointers.get(address).ok_or(Error::InvalidDevicePointer { address })?;
        self.lock(place.device)?.record_stream(place.block, stream);
        Ok(())
    }

    /// The private pool that live memory belongs to.
    pub(crate) fn owner(&self, address: u64) -> Option<PoolId> {
        let place = self.pointers.get(address)?;
        self.lock(place.device).ok()?.owner(place.block)
    }

    /// Gives free segments of all devices back to the driver. Goes on after a failure and returns the first.
    pub(crate) fn empty_cache<D: Driver>(&self, driver: &D) -> Result<()> {
        let _relaxed = Relaxed::new(driver, self.is_scoped())?;
        let each = self.devices.iter().map(|device| lock(device).release_cached(driver));
        each.fold(Ok(()), Result::and)
    }

    /// Figures of a device.
    pub(crate) fn stats(&self, device: DeviceIndex) -> Result<DeviceStats> {
        Ok(*self.lock(device)?.stats())
    }

    /// Sets a device's peaks to the present values.
    pub(crate) fn reset_peak_stats(&self, device: DeviceIndex) -> Result<()> {
        self.lock(device)?.reset_peak();
        Ok(())
    }

    /// Routes matching allocations of a device to a private pool, which is made if need be, and counts one use of it.
    pub(crate) fn begin_allocate_to_pool(&self, device: DeviceIndex, pool: PoolId, filter: Filter) -> Result<()> {
        self.lock(device)?.begin_allocate_to_pool(pool, filter)?;
        self.scopes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Ends what [`Self::begin_allocate_to_pool`] began; the use of the pool stays.
    pub(crate) fn end_allocate_to_pool(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.lock(device)?.end_allocate_to_pool(pool)?;
        self.scopes.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Gives up one use of a private pool.
    pub(crate) fn release_pool(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.lock(device)?.release_pool(pool);
        Ok(())
    }

    /// What is wrong with the books, if anything; call it while no other thread allocates.
    pub(crate) fn inconsistency(&self) -> Option<String> {
        let mut live = 0;
        for device in &self.devices {
            let device = lock(device);
            if let Err(what) = device.check() {
                return Some(what);
            }
            live += device.live();
        }
        let known = self.pointers.len();
        (known != live).then(|| format!("{known} addresses are known, {live} blocks are allocated"))
    }

    /// Gives everything back to the driver; nothing may be allocated or freed afterwards.
    pub(crate) fn dismantle<D: Driver>(&self, driver: &D) {
        self.devices.iter().for_each(|device| lock(device).dismantle(driver));
    }

    /// Whether allocations of any device are routed to a private pool.
    pub(crate) fn is_scoped(&self) -> bool {
        self.scopes.load(Ordering::Acquire) > 0
    }

    fn lock(&self, device: DeviceIndex) -> Result<MutexGuard<'_, DeviceAllocator>> {
        let device = device.position().and_then(|position| self.devices.get(position));
        device.map(lock).ok_or(Error::InvalidDeviceId)
    }
}

/// Locks, and goes on after a panic elsewhere: the books change only in steps that leave them whole.
fn lock(device: &Mutex<DeviceAllocator>) -> MutexGuard<'_, DeviceAllocator> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}
