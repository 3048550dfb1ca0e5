//! Captures of graphs, as the allocator takes part in them.
//!
//! **Invariant:** while the runtime captures a graph on any device, nothing is given back to the driver: neither by
//! `empty_cache`, nor to make room for a request, nor because caching is off. Such a request fails as if there were nothing
//! to give back, and what was not given back goes with the next occasion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::ids::PoolId;
use crate::caching::device::{Device, Shared};
use crate::caching::{CachingAllocator, Filter};
use crate::driver::{Driver, Relaxed};
use crate::sync::lock;

impl CachingAllocator {
    /// Routes what a capture allocates to a private pool, and counts one use of that. The pool may be one that all its
    /// graphs have given up: what it still holds serves again. `number` is the capture's, 0 until it is known.
    pub(crate) fn begin_capture(&self, device: DeviceIndex, pool: PoolId, number: Arc<AtomicU64>) -> Result<()> {
        let revived = self.existing(device)?.revive_pool(pool);
        let begun = self.begin_allocate_to_pool(device, pool, Filter::Capture(number));
        if revived {
            self.existing(device)?.release_pool(pool);
        }
        if begun.is_ok() {
            self.shared.captures.fetch_add(1, Ordering::AcqRel);
        }
        begun
    }

    /// Ends what [`Self::begin_capture`] began; the use of the pool stays.
    pub(crate) fn end_capture(&self, device: DeviceIndex, pool: PoolId) {
        // It cannot fail: the routing was begun on this device and not ended since.
        if self.end_allocate_to_pool(device, pool).is_ok() {
            self.shared.captures.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Notes uncached memory that was given back during a capture.
    pub(crate) fn free_later(&self, address: u64, device: DeviceIndex) {
        lock(&self.late).push((address, device));
    }

    /// Gives uncached memory back that could not go before; what fails stays for another time. Does nothing during a
    /// capture.
    pub(crate) fn free_late<D: Driver>(&self, driver: &D) -> Result<()> {
        if self.shared.is_capturing() {
            return Ok(());
        }
        let late = std::mem::take(&mut *lock(&self.late));
        if late.is_empty() {
            return Ok(());
        }
        let _relaxed = Relaxed::new(driver, self.is_scoped()).inspect_err(|_| lock(&self.late).extend(&late))?;
        let free =
            |(address, device)| driver.mem_free(device, address).inspect_err(|_| self.free_later(address, device));
        let each = late.into_iter().map(free);
        each.fold(Ok(()), Result::and)
    }
}

impl Device {
    /// Counts a use of a pool that nobody uses any more; whether there was such a pool.
    fn revive_pool(&self, id: PoolId) -> bool {
        let mut cold = lock(&self.cold);
        match cold.private.get_mut(&id).filter(|pool| pool.use_count == 0) {
            Some(pool) => {
                pool.use_count = 1;
                true
            }
            None => false,
        }
    }
}

impl Shared {
    /// Whether the runtime captures a graph, on any device.
    pub(crate) fn is_capturing(&self) -> bool {
        self.captures.load(Ordering::Acquire) > 0
    }
}
