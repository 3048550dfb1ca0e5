//! The pool of one device, and what is kept beside it: counts, and the stream on which memory is freed that several streams
//! use.
//!
//! **Invariant:** the pool is set up when the device's memory is first needed, once; before that no context is made.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::{EventHandle, MemoryPoolHandle, StreamRef};
use crate::driver::{Api, Driver, PoolNumber};
use crate::sync::Mutex;
use crate::sync::lock;

/// What exists once a device's memory was needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    pub(super) handle: MemoryPoolHandle,
    /// The stream that waits for all streams that use some memory, and then frees it.
    pub(super) hidden: StreamRef,
    /// What the pool would have kept without this backend.
    threshold_before: u64,
}

/// The memory of one device.
#[derive(Debug)]
pub(super) struct DevicePool {
    index: DeviceIndex,
    pool: OnceLock<Pool>,
    setting_up: Mutex<()>,
    pub(super) ooms: AtomicU64,
    pub(super) retries: AtomicU64,
    /// The devices whose work reaches the pool.
    reached_by: Mutex<BTreeSet<DeviceIndex>>,
    /// An event of this device that nobody uses. Its lock is held while it is used.
    event: Mutex<Option<EventHandle>>,
}

impl DevicePool {
    pub(super) fn new(index: DeviceIndex) -> Self {
        Self {
            index,
            pool: OnceLock::new(),
            setting_up: Mutex::default(),
            ooms: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            reached_by: Mutex::default(),
            event: Mutex::default(),
        }
    }

    pub(super) fn index(&self) -> DeviceIndex {
        self.index
    }

    /// The pool, if the device's memory was needed before.
    #[inline]
    pub(super) fn pool(&self) -> Option<&Pool> {
        self.pool.get()
    }

    /// The pool, which is set up if need be. It keeps what it holds, and uses memory again in each way that it can.
    #[cold]
    pub(super) fn set_up(&self, api: &Api) -> Result<&Pool> {
        let _setting_up = lock(&self.setting_up);
        if let Some(pool) = self.pool.get() {
            return Ok(pool);
        }
        api.bind(self.index)?;
        let handle = api.default_pool(self.index)?;
        let threshold_before = api.pool_number(handle, PoolNumber::ReleaseThreshold)?;
        api.allow_pool_reuses(handle)?;
        let hidden = StreamRef { device: self.index, handle: api.stream_create(self.index, 0)? };
        if let Err(error) = api.set_pool_number(handle, PoolNumber::ReleaseThreshold, u64::MAX) {
            // What cannot be destroyed ends with its context.
            let _ = api.stream_destroy(hidden);
            return Err(error);
        }
        Ok(self.pool.get_or_init(|| Pool { handle, hidden, threshold_before }))
    }

    /// Sets the highest values to the present ones.
    pub(super) fn reset_peaks(&self, api: &Api) -> Result<()> {
        let Some(pool) = self.pool() else { return Ok(()) };
        let numbers = [PoolNumber::ReservedHigh, PoolNumber::UsedHigh];
        numbers.into_iter().try_for_each(|number| api.set_pool_number(pool.handle, number, 0))
    }

    /// Lets work of another device reach the memory; the driver is told once.
    pub(super) fn let_reach(&self, api: &Api, device: DeviceIndex) -> Result<()> {
        let pool = self.pool().map_or_else(|| self.set_up(api), Ok)?;
        let mut reached_by = lock(&self.reached_by);
        if !reached_by.contains(&device) {
            api.let_reach_pool(pool.handle, device)?;
            reached_by.insert(device);
        }
        Ok(())
    }

    /// Waits for the device, and gives back what the pool holds and nobody uses. Goes on after a failure and returns the
    /// first.
    pub(super) fn trim(&self, api: &Api) -> Result<()> {
        let Some(pool) = self.pool() else { return Ok(()) };
        let waited = api.synchronize_device(self.index);
        let trimmed = api.trim_pool(pool.handle, 0);
        waited.and(trimmed).and_then(|()| api.synchronize_device(self.index))
    }

    /// Makes later work of `waiter` follow what this device's `stream` has now. In a capture the event becomes a part of
    /// that, and is not used again.
    pub(super) fn join(&self, api: &Api, stream: StreamRef, waiter: StreamRef, in_capture: bool) -> Result<()> {
        let mut spare = lock(&self.event);
        let known = if in_capture { None } else { spare.take() };
        let event = known.map_or_else(|| api.event_create(self.index), Ok)?;
        let joined = api.event_record(event, stream).and_then(|()| api.stream_wait(waiter, event));
        if in_capture {
            let destroyed = api.event_destroy(event);
            return joined.and(destroyed);
        }
        *spare = Some(event);
        joined
    }

    /// Leaves the pool as it was found. The device has finished its work, and nothing is handed out.
    pub(super) fn dismantle(&self, api: &Api) {
        // Nobody could be told of a failure; what is left ends with the context.
        let _ = lock(&self.event).take().map(|event| api.event_destroy(event));
        if let Some(pool) = self.pool() {
            let _ = self.trim(api);
            let _ = api.set_pool_number(pool.handle, PoolNumber::ReleaseThreshold, pool.threshold_before);
            let _ = api.stream_destroy(pool.hidden);
        }
    }
}
