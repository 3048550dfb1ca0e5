//! `backend:cudaMallocAsync`: the driver's default pools of stream-ordered memory, by torch's rules.
//!
//! Reading order: `live` (what is handed out), `device` (the pool of a device), `captures`, `order` (frees, in order with
//! several streams and in captures), this file.
//!
//! **Invariants:** no lock is held during a driver call, except that of a spare event and that of setting a device up. The
//! books change before the driver is called to free and after it was called to allocate, so that no address is in them
//! twice. What the driver did not take back is tried again by the next `empty_cache`, and counts as given back.

mod captures;
mod device;
mod live;
mod order;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::OtherBackend;
use crate::base::config::Backend;
use crate::base::device::DeviceIndex;
use crate::base::error::{DeviceError, Error, OutOfMemory, OutOfMemoryError, Result};
use crate::base::handles::StreamRef;
use crate::base::ids::PoolId;
use crate::base::stat::Stat;
use crate::base::warning::warning;
use crate::caching::{DeviceStats, Owner};
use crate::driver::{Api, Driver, PoolNumber, Relaxed};
use crate::sync::Mutex;
use captures::Captures;
use device::DevicePool;
use live::{Live, Table};

/// The backend.
#[derive(Debug)]
pub(crate) struct DriverPools {
    devices: Box<[DevicePool]>,
    live: Table,
    captures: Captures,
    /// Memory that the driver did not take back.
    late: Mutex<Vec<Late>>,
}

/// Memory that the driver did not take back.
#[derive(Debug)]
struct Late {
    address: u64,
    device: DeviceIndex,
    /// It was allocated in a capture.
    of_graph: bool,
}

impl DriverPools {
    /// A backend that holds nothing.
    pub(crate) fn new(devices: usize) -> Self {
        let pools = (0..).map(|device| DevicePool::new(DeviceIndex(device))).take(devices);
        Self {
            devices: pools.collect(),
            live: Table::new(devices),
            captures: Captures::default(),
            late: Mutex::default(),
        }
    }

    #[inline]
    fn device(&self, device: DeviceIndex) -> Result<&DevicePool> {
        match usize::try_from(device).ok().and_then(|place| self.devices.get(place)) {
            Some(device) => Ok(device),
            None => Err(Error::Device(DeviceError::InvalidId)),
        }
    }

    /// Allows calls that a capture of another thread would forbid.
    fn relaxed<'a>(&self, api: &'a Api) -> Result<Relaxed<'a, Api>> {
        Relaxed::new(api, self.captures.any())
    }

    /// Whether requests have to look at captures, of this runtime or of others.
    #[inline]
    fn is_disturbed(&self, api: &Api) -> bool {
        self.captures.any() || api.others_capture()
    }

    /// The same as [`OtherBackend::alloc`] where the device was not used before, or while a capture is under way.
    #[cold]
    fn alloc_specially(&self, api: &Api, stream: StreamRef, bytes: u64, owner: Owner) -> Result<u64> {
        let _relaxed = self.relaxed(api)?;
        let device = self.device(stream.device)?;
        device.set_up(api)?;
        let capture = if self.captures.any() { api.capture_id(stream)?.unwrap_or(0) } else { 0 };
        self.ask(api, (stream, bytes), owner, capture)
    }

    /// Memory of the driver, as far as the limit allows.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the path of each request")]
    fn ask(&self, api: &Api, (stream, bytes): (StreamRef, u64), owner: Owner, capture: u64) -> Result<u64> {
        let Some(reserved) = self.live.reserve(stream.device, bytes) else {
            return Err(self.out_of_memory(api, stream.device, bytes));
        };
        match api.alloc_in_order(stream, bytes) {
            Ok(address) => {
                self.live.add(address, Live::new(stream, bytes, owner, capture), reserved);
                Ok(address)
            }
            Err(error) => {
                let again = self.ask_again(api, stream, bytes, error).inspect_err(|_| {
                    self.live.cancel(stream.device, reserved);
                });
                let address = again?;
                self.live.add(address, Live::new(stream, bytes, owner, capture), reserved);
                Ok(address)
            }
        }
    }

    /// Asks once more after the device has finished its work and the pool was trimmed, if memory had run out. Torch does
    /// not.
    #[cold]
    fn ask_again(&self, api: &Api, stream: StreamRef, bytes: u64, error: Error) -> Result<u64> {
        let device = self.device(stream.device)?;
        let is_out = error.driver_is_out_of_memory();
        let mut answer = Err(error);
        if is_out && !self.captures.any() {
            device.retries.fetch_add(1, Ordering::Relaxed);
            // Whatever fails here, the second answer counts.
            let _ = self.give_back(api, device);
            answer = api.alloc_in_order(stream, bytes);
        }
        answer.map_err(|error| {
            if error.driver_is_out_of_memory() { self.out_of_memory(api, stream.device, bytes) } else { error }
        })
    }

    /// The error of a request that cannot be served.
    #[cold]
    fn out_of_memory(&self, api: &Api, index: DeviceIndex, bytes: u64) -> Error {
        let device = match self.device(index) {
            Ok(device) => device,
            Err(error) => return error,
        };
        device.ooms.fetch_add(1, Ordering::Relaxed);
        let figures = || {
            let _relaxed = self.relaxed(api)?;
            let info = api.mem_get_info(device.index())?;
            let reserved = device.pool().map_or(Ok(0), |pool| api.pool_number(pool.handle, PoolNumber::Reserved))?;
            Ok(OutOfMemory {
                device: device.index(),
                requested: bytes,
                segment: bytes,
                total: info.total,
                free: info.free,
                allowed: self.live.limit(device.index()),
                allocated: self.live.count(device.index())[1],
                reserved,
                cached_in_private_pools: 0,
                largest_free_block: 0,
            })
        };
        match figures() {
            Ok(figures) => Error::OutOfMemory(Box::new(OutOfMemoryError::of(figures, Backend::CudaMallocAsync))),
            Err(error) => error,
        }
    }

    /// Waits for a device and gives the driver what nobody uses.
    fn give_back(&self, api: &Api, device: &DevicePool) -> Result<()> {
        let waited = api.synchronize_device(device.index());
        self.free_late(api, device, false);
        waited.and(device.trim(api))
    }
}

impl OtherBackend for DriverPools {
    fn name(&self) -> &'static str {
        Backend::CudaMallocAsync.name()
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "called where each request of this backend is answered")]
    fn alloc(&self, api: &Api, stream: StreamRef, bytes: u64, owner: Owner) -> Result<u64> {
        let device = self.device(stream.device)?;
        if device.pool().is_none() || self.is_disturbed(api) {
            return self.alloc_specially(api, stream, bytes, owner);
        }
        self.ask(api, (stream, bytes), owner, 0)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn free(&self, api: &Api, address: u64, owner: Owner) -> Result<()> {
        let live = self.live.take(address, owner)?;
        if !live.is_plain() || self.is_disturbed(api) {
            return self.free_specially(api, address, live);
        }
        match api.free_in_order(address, live.stream()) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.keep_late(address, &live);
                Err(error)
            }
        }
    }

    fn record_stream(&self, address: u64, stream: StreamRef) -> Result<()> {
        if !self.live.use_on(address, stream)? {
            warning!(
                "Called record_stream on tensor whose original creation stream matches the recorded stream. This is \
                 unnecessary and has no effect."
            );
        }
        Ok(())
    }

    fn owner(&self, address: u64) -> Option<Owner> {
        self.live.look(address, Live::owner)
    }

    fn pool_of(&self, address: u64) -> Option<PoolId> {
        let capture = if self.captures.any() { self.live.look(address, Live::capture)? } else { 0 };
        self.captures.pool_of(capture)
    }

    /// Does nothing while a capture is under way, which waiting would spoil.
    fn empty_cache(&self, api: &Api) -> Result<()> {
        if self.captures.any() {
            return Ok(());
        }
        let _spared = Relaxed::new(api, false)?;
        let used = self.devices.iter().filter(|device| device.pool().is_some());
        used.map(|device| self.give_back(api, device)).fold(Ok(()), Result::and)
    }

    fn stats(&self, api: &Api, device: DeviceIndex) -> Result<DeviceStats> {
        let own = self.device(device)?;
        let mut stats = DeviceStats::default();
        if let Some(pool) = own.pool() {
            let _relaxed = self.relaxed(api)?;
            let number = |number| api.pool_number(pool.handle, number).map(signed);
            let figure = |now, high| -> Result<Stat> {
                Ok(Stat { current: number(now)?, peak: number(high)?, ..Stat::default() })
            };
            stats.allocated_bytes.all = figure(PoolNumber::Used, PoolNumber::UsedHigh)?;
            stats.reserved_bytes.all = figure(PoolNumber::Reserved, PoolNumber::ReservedHigh)?;
        }
        let sums = self.live.sums(device);
        let allocated = &mut stats.allocated_bytes.all;
        [allocated.allocated, allocated.freed] = sums.bytes.map(signed);
        stats.active_bytes = stats.allocated_bytes;
        [stats.num_device_alloc, stats.num_device_free] = sums.requests;
        stats.num_ooms = own.ooms.load(Ordering::Relaxed);
        stats.num_alloc_retries = own.retries.load(Ordering::Relaxed);
        Ok(stats)
    }

    fn reset_peak_stats(&self, api: &Api, device: DeviceIndex) -> Result<()> {
        let _relaxed = self.relaxed(api)?;
        self.device(device)?.reset_peaks(api)
    }

    fn reset_accumulated_stats(&self, device: DeviceIndex) -> Result<()> {
        let own = self.device(device)?;
        warning!("For backend:cudaMallocAsync, resetAccumulatedStats has no effect on the figures of the driver.");
        self.live.reset_sums(device);
        own.ooms.store(0, Ordering::Relaxed);
        own.retries.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn set_fraction(&self, device: DeviceIndex, _fraction: f64, limit: Option<u64>) -> Result<()> {
        self.device(device).map(|_| self.live.set_limit(device, limit))
    }

    fn limit(&self, device: DeviceIndex) -> Result<Option<u64>> {
        self.device(device).map(|_| self.live.limit(device))
    }

    fn begin_capture(&self, _device: DeviceIndex, pool: PoolId, number: &Arc<AtomicU64>) -> Result<()> {
        self.captures.begin(pool, number)
    }

    fn finish_capture(&self, api: &Api, stream: StreamRef) -> Result<()> {
        self.finish(api, stream)
    }

    fn end_capture(&self, api: &Api, _device: DeviceIndex, _pool: PoolId) {
        for (address, live) in self.captures.end() {
            // What the driver does not take back now is tried again later.
            let _ = self.free_outside(api, address, &live);
        }
    }

    fn let_reach(&self, api: &Api, device: DeviceIndex, peer: DeviceIndex) -> Result<()> {
        self.device(peer)?.let_reach(api, device)
    }

    fn inconsistency(&self) -> Option<String> {
        self.devices.iter().find_map(|device| self.live.inconsistency(device.index()))
    }

    fn dismantle(&self, api: &Api) {
        for (address, live) in self.captures.end().into_iter().chain(self.live.drain()) {
            self.keep_late(address, &live);
        }
        for device in &self.devices {
            self.free_late(api, device, true);
            device.dismantle(api);
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
