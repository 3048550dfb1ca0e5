//! Where device memory comes from: the caching allocator, or another backend in its place.
//!
//! The caching allocator always exists. Where memory comes from elsewhere it stands aside: it holds nothing, each request
//! takes the long way past it, and no address is a block of it, so that both end here. So a request and a free that it
//! serves itself make no test for other backends.
//! [Why](../../../../docs/decisions/0014-other-backends-stand-behind-the-long-way.md).
//!
//! **Invariant:** the backend is chosen when the runtime starts, and stays.

mod driver_pools;
mod other;

pub(crate) use driver_pools::DriverPools;
pub(crate) use other::OtherBackend;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::base::config::AllocatorConfig;
use crate::base::device::DeviceIndex;
use crate::base::error::{BackendError, Error, MemoryError, Result};
use crate::base::handles::{PageHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::caching::{CachingAllocator, Claim, Filter, Owner, PoolCheckpoint, PoolOptions, RestoreResult, SIZE_LIMIT};
use crate::caching::{DeviceStats, PlanStats, SegmentInfo};
use crate::driver::{Api, Relaxed};
use crate::trace::{TraceEvent, TraceKind};

/// The device memory of a runtime.
#[derive(Debug)]
pub(crate) struct Allocator {
    native: CachingAllocator,
    /// Who serves in place of `native`.
    other: Option<Other>,
}

/// A backend in the place of the caching allocator. The driver's pools are named, so that a request is one piece of code.
#[derive(Debug)]
pub(crate) enum Other {
    /// `backend:cudaMallocAsync`.
    DriverPools(Box<DriverPools>),
    /// An allocator that the program has brought.
    Program(Box<dyn OtherBackend>),
}

impl Allocator {
    /// The memory of all devices, from another backend if there is one.
    pub(crate) fn new(api: &Api, config: &Arc<AllocatorConfig>, other: Option<Other>) -> Self {
        let native = CachingAllocator::traced(api.device_count(), config, Arc::clone(&api.trace));
        Self { native: native.telling(api.listens()).standing_aside(other.is_some()), other }
    }

    /// Name of the backend, where it is not one of the caching allocator's.
    pub(crate) fn other_name(&self) -> Option<&'static str> {
        self.other().map(OtherBackend::name)
    }

    /// Whether memory comes from an allocator that the program has brought.
    pub(crate) fn is_of_program(&self) -> bool {
        matches!(self.other, Some(Other::Program(_)))
    }

    fn other(&self) -> Option<&dyn OtherBackend> {
        match &self.other {
            None => None,
            Some(Other::DriverPools(pools)) => Some(&**pools),
            Some(Other::Program(allocator)) => Some(&**allocator),
        }
    }

    /// The same, for a device that exists.
    fn known(&self, device: DeviceIndex) -> Result<Option<&dyn OtherBackend>> {
        self.native.check_device(device).map(|()| self.other())
    }

    /// Refuses what only the caching allocator does, by torch's name of it.
    pub(crate) fn only_native(&self, call: &'static str) -> Result<&CachingAllocator> {
        match self.other() {
            None => Ok(&self.native),
            Some(other) => Err(other.refusal(call)),
        }
    }

    /// Refuses snapshots where the blocks are not known.
    pub(crate) fn check_snapshot(&self) -> Result<()> {
        match self.other().filter(|other| other.snapshot().is_none()) {
            None => Ok(()),
            Some(other) => Err(Error::Backend(BackendError::NoSnapshot { backend: other.name() })),
        }
    }

    /// Memory of at least `bytes` bytes for use on `stream`; its address, or 0 for no bytes. Only that kind of owner gives
    /// it back.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a hit is short, and everything else is a call")]
    pub(crate) fn alloc_for(&self, api: &Api, stream: StreamRef, bytes: u64, owner: Owner) -> Result<u64> {
        self.native.alloc_for(api, stream, bytes, owner, || self.alloc_otherwise(api, stream, bytes, owner))
    }

    /// The same for a request that is not for the cache alone.
    #[inline(never)]
    fn alloc_otherwise(&self, api: &Api, stream: StreamRef, bytes: u64, owner: Owner) -> Result<u64> {
        if let Some(other) = &self.other {
            return Self::alloc_elsewhere(api, other, stream, bytes, owner);
        }
        let planned = self.native.alloc_if_planned(api, stream, bytes, owner);
        planned.unwrap_or_else(|| self.native.alloc_specially(api, stream, bytes, owner))
    }

    /// The same where memory comes from elsewhere.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "called once, on the path of each request of such a backend")]
    fn alloc_elsewhere(api: &Api, other: &Other, stream: StreamRef, bytes: u64, owner: Owner) -> Result<u64> {
        if bytes.wrapping_sub(1) >= SIZE_LIMIT - 1 {
            return refuse_size(bytes);
        }
        let served = match other {
            Other::DriverPools(pools) => pools.alloc(api, stream, bytes, owner),
            Other::Program(allocator) => allocator.alloc(api, stream, bytes, owner),
        };
        if api.trace.wants(TraceKind::Memory) {
            report_allocated(api, stream.device, &served, bytes);
        }
        served
    }

    /// Takes memory back from an owner; 0 is ignored.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the one call that is left is for what is not the last allocation")]
    pub(crate) fn free_by(&self, api: &Api, address: u64, owner: Owner) -> Result<()> {
        self.native.free_by(api, address, owner, |claim| self.free_any(api, claim))
    }

    #[inline(never)]
    fn free_any(&self, api: &Api, claim: Claim) -> Result<()> {
        self.native.free_any(api, claim, || self.free_elsewhere(api, claim))
    }

    /// The same for memory that is no block of the caching allocator.
    #[cold]
    fn free_elsewhere(&self, api: &Api, claim: Claim) -> Result<()> {
        let Some(other) = &self.other else { return self.native.free_uncached(api, claim) };
        let address = claim.address();
        let freed = match other {
            Other::DriverPools(pools) => pools.free(api, address, claim.owner()),
            Other::Program(allocator) => allocator.free(api, address, claim.owner()),
        };
        if api.trace.wants(TraceKind::Memory) && !matches!(freed, Err(Error::Memory(_))) {
            api.trace.report_now(TraceKind::Memory, || TraceEvent::UncachedFreed { address });
        }
        freed
    }

    /// Notes that memory is used on another stream than the one it was allocated for.
    pub(crate) fn record_stream(&self, address: u64, stream: StreamRef) -> Result<()> {
        match self.other() {
            None => self.native.record_stream(address, stream),
            Some(_) if address == 0 => Ok(()),
            Some(other) => other.record_stream(address, stream),
        }
    }

    /// The private pool that live memory belongs to.
    pub(crate) fn owner(&self, address: u64) -> Option<PoolId> {
        self.other().map_or_else(|| self.native.owner(address), |other| other.pool_of(address))
    }

    /// Whether memory is handed out at an address to a buffer.
    pub(crate) fn is_of_buffer(&self, address: u64) -> bool {
        let of_other = |other: &dyn OtherBackend| other.owner(address) == Some(Owner::Buffer);
        self.other().map_or_else(|| self.native.is_of_buffer(address), of_other)
    }

    /// Where the whole allocation begins that an address lies in, to share it with other processes; `None` for what the
    /// driver says.
    pub(crate) fn base_of(&self, address: u64) -> Result<Option<u64>> {
        self.other().map_or(Ok(None), |other| other.base_of(address))
    }

    /// Gives what is cached back to the driver.
    pub(crate) fn empty_cache(&self, api: &Api) -> Result<()> {
        self.other().map_or_else(|| self.native.empty_cache(api), |other| other.empty_cache(api))
    }

    /// All memory held from the driver, or that of one private pool, by device and address; nothing where the blocks are
    /// not known.
    pub(crate) fn snapshot(&self, pool: Option<PoolId>) -> Vec<SegmentInfo> {
        match self.other() {
            None => self.native.snapshot(pool),
            // No piece belongs to a pool.
            Some(_) if pool.is_some_and(|pool| pool != PoolId(0, 0)) => Vec::new(),
            Some(other) => other.snapshot().unwrap_or_default(),
        }
    }

    /// The same of one device.
    pub(crate) fn snapshot_of(&self, device: DeviceIndex, pool: Option<PoolId>) -> Vec<SegmentInfo> {
        match self.other() {
            None => self.native.snapshot_of(device, pool),
            Some(_) => self.snapshot(pool).into_iter().filter(|segment| segment.device == device).collect(),
        }
    }

    /// Marks what is in use of a device; the addresses. Nothing where memory comes from elsewhere.
    pub(crate) fn mark_live(&self, device: DeviceIndex) -> BTreeSet<u64> {
        self.native.mark_live(device)
    }

    /// The addresses of a device's marked blocks that have been in use ever since.
    pub(crate) fn still_live(&self, device: DeviceIndex) -> BTreeSet<u64> {
        self.native.still_live(device)
    }

    /// The pages that move behind memory that somebody holds: see [`CachingAllocator::pages_behind`].
    pub(crate) fn pages_behind(
        &self,
        device: DeviceIndex,
        address: u64,
        bytes: u64,
    ) -> Option<(u64, u64, Vec<PageHandle>)> {
        self.native.pages_behind(device, address, bytes)
    }

    /// Figures of a device.
    pub(crate) fn stats(&self, api: &Api, device: DeviceIndex) -> Result<DeviceStats> {
        match self.known(device)? {
            None => self.native.stats(device),
            Some(other) => other.stats(api, device),
        }
    }

    /// Sets a device's peaks to the present values.
    pub(crate) fn reset_peak_stats(&self, api: &Api, device: DeviceIndex) -> Result<()> {
        match self.known(device)? {
            None => self.native.reset_peak_stats(device),
            Some(other) => other.reset_peak_stats(api, device),
        }
    }

    /// Sets a device's sums and counts to zero.
    pub(crate) fn reset_accumulated_stats(&self, device: DeviceIndex) -> Result<()> {
        match self.known(device)? {
            None => self.native.reset_accumulated_stats(device),
            Some(other) => other.reset_accumulated_stats(device),
        }
    }

    /// Begins a step of a device: see [`CachingAllocator::mark_step`]. Without effect where memory comes from elsewhere.
    pub(crate) fn mark_step(&self, device: DeviceIndex) -> Result<()> {
        self.native.mark_step(device)
    }

    /// What the plans of a device's streams have done. Nothing where memory comes from elsewhere.
    pub(crate) fn plan_stats(&self, device: DeviceIndex) -> Result<PlanStats> {
        self.native.plan_stats(device)
    }

    /// Decides by these options from now on.
    pub(crate) fn set_config(&self, config: &Arc<AllocatorConfig>) {
        self.native.set_config(config);
    }

    /// Limits a device to a fraction of its memory, which is that many bytes; `None` is no limit.
    pub(crate) fn set_fraction(&self, device: DeviceIndex, fraction: f64, limit: Option<u64>) -> Result<()> {
        match self.known(device)? {
            None => self.native.set_limit(device, limit),
            Some(other) => other.set_fraction(device, fraction, limit),
        }
    }

    /// The most bytes of a device to hold.
    pub(crate) fn limit(&self, device: DeviceIndex) -> Result<Option<u64>> {
        match self.known(device)? {
            None => self.native.limit(device),
            Some(other) => other.limit(device),
        }
    }

    /// Switches the caching allocator's cache on or off for requests to come.
    pub(crate) fn enable(&self, enabled: bool) {
        self.native.enable(enabled);
    }

    /// Has this called where a request finds nothing cached: see [`CachingAllocator::set_on_miss`]. Never, where memory comes
    /// from elsewhere.
    pub(crate) fn set_on_miss(&self, give_back: impl Fn() + Send + Sync + 'static) {
        self.native.set_on_miss(give_back);
    }

    /// To be called when somebody begins or ends to listen.
    pub(crate) fn choose_way(&self) {
        self.native.choose_way();
    }

    /// Makes a private pool of a device for a program.
    pub(crate) fn use_pool(&self, device: DeviceIndex, pool: PoolId, options: PoolOptions) -> Result<()> {
        match self.other() {
            None => self.native.use_pool(device, pool, options),
            Some(other) if options.source.is_none() => other.use_pool(device, pool),
            Some(other) => Err(other.refusal("createOrIncrefPool")),
        }
    }

    /// Counts one more use, by a graph, of a pool that a graph uses.
    pub(crate) fn share_pool(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.other().map_or_else(|| self.native.use_pool(device, pool, PoolOptions::default()), |_| Ok(()))
    }

    /// How many graphs, pool objects and scopes use a private pool of a device.
    pub(crate) fn pool_use_count(&self, device: DeviceIndex, pool: PoolId) -> Result<u32> {
        self.only_native("getPoolUseCount")?.pool_use_count(device, pool)
    }

    /// Gives a pool of a program up.
    pub(crate) fn close_pool(&self, api: &Api, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.other().map_or_else(|| self.native.close_pool(api, device, pool), |other| other.release_pool(device, pool))
    }

    /// Routes matching allocations of a device to a private pool, and counts one use of it.
    pub(crate) fn begin_allocate_to_pool(&self, device: DeviceIndex, pool: PoolId, filter: Filter) -> Result<()> {
        match self.other() {
            None => self.native.begin_allocate_to_pool(device, pool, filter),
            Some(other) => other.begin_allocate_to_pool(device, pool, filter).map(|()| self.native.open_scope()),
        }
    }

    /// Ends what [`Self::begin_allocate_to_pool`] began; the use of the pool stays.
    pub(crate) fn end_allocate_to_pool(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        match self.other() {
            None => self.native.end_allocate_to_pool(device, pool),
            Some(other) => other.end_allocate_to_pool(device, pool).map(|()| self.native.close_scope()),
        }
    }

    /// A capture is about to begin: see [`CachingAllocator::begin_capture`].
    pub(crate) fn begin_capture(&self, device: DeviceIndex, pool: PoolId, number: Arc<AtomicU64>) -> Result<()> {
        match self.other() {
            None => self.native.begin_capture(device, pool, number),
            Some(other) => other.begin_capture(device, pool, &number).map(|()| self.native.open_scope()),
        }
    }

    /// The capture that began on a stream is about to end.
    pub(crate) fn finish_capture(&self, api: &Api, stream: StreamRef) -> Result<()> {
        self.other().map_or(Ok(()), |other| other.finish_capture(api, stream))
    }

    /// Ends what [`Self::begin_capture`] began; the use of the pool stays.
    pub(crate) fn end_capture(&self, api: &Api, device: DeviceIndex, pool: PoolId) {
        match self.other() {
            None => self.native.end_capture(device, pool),
            Some(other) => {
                other.end_capture(api, device, pool);
                self.native.close_scope();
            }
        }
    }

    /// Gives up one use of a private pool.
    pub(crate) fn release_pool(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.other().map_or_else(|| self.native.release_pool(device, pool), |other| other.release_pool(device, pool))
    }

    /// The same for a graph, of which replays may still run on these streams.
    pub(crate) fn release_pool_of_graph(
        &self,
        device: DeviceIndex,
        pool: PoolId,
        replayed_on: &BTreeSet<StreamRef>,
    ) -> Result<()> {
        match self.other() {
            None => self.native.release_pool_of_graph(device, pool, replayed_on),
            Some(other) => other.release_pool(device, pool),
        }
    }

    /// What a private pool of a device holds, to bring it back to that.
    pub(crate) fn checkpoint_pool(&self, api: &Api, device: DeviceIndex, pool: PoolId) -> Result<PoolCheckpoint> {
        self.only_native("getCheckpointState")?.checkpoint_pool(api, device, pool)
    }

    /// Brings a private pool of a device back to what a checkpoint notes.
    pub(crate) fn restore_pool(
        &self,
        api: &Api,
        device: DeviceIndex,
        checkpoint: &PoolCheckpoint,
        given_up: Option<&BTreeSet<u64>>,
    ) -> Result<RestoreResult> {
        self.only_native("setCheckpointPoolState")?.restore_pool(api, device, checkpoint, given_up)
    }

    /// Whether exactly these addresses of a device's private pool are handed out.
    pub(crate) fn check_pool_live_allocations(
        &self,
        device: DeviceIndex,
        pool: PoolId,
        expected: &[u64],
    ) -> Result<bool> {
        self.only_native("checkPoolLiveAllocations")?.check_pool_live_allocations(device, pool, expected)
    }

    /// Work of `device` shall reach memory of `peer`, which it can.
    pub(crate) fn let_reach(&self, api: &Api, device: DeviceIndex, peer: DeviceIndex) -> Result<()> {
        let Some(other) = self.other() else { return Ok(()) };
        let _relaxed = Relaxed::new(api, self.is_scoped())?;
        other.let_reach(api, device, peer)
    }

    /// What is wrong with the books, if anything; call it while no other thread allocates.
    pub(crate) fn inconsistency(&self) -> Option<String> {
        self.native.inconsistency().or_else(|| self.other()?.inconsistency())
    }

    /// Gives everything back to the driver; nothing may be allocated or freed afterwards.
    pub(crate) fn dismantle(&self, api: &Api) {
        self.native.dismantle(api);
        self.other().into_iter().for_each(|other| other.dismantle(api));
    }

    /// Whether allocations of any device are routed to a private pool, or a capture is under way.
    #[inline]
    pub(crate) fn is_scoped(&self) -> bool {
        self.native.is_scoped()
    }
}

/// The answer to a request for nothing, or for more than any device has.
#[cold]
fn refuse_size(bytes: u64) -> Result<u64> {
    if bytes == 0 { Ok(0) } else { Err(Error::Memory(MemoryError::RequestTooLarge { requested: bytes })) }
}

#[cold]
fn report_allocated(api: &Api, device: DeviceIndex, served: &Result<u64>, size: u64) {
    if let Ok(address) = *served {
        api.trace.report_now(TraceKind::Memory, || TraceEvent::UncachedAllocated { device, address, size });
    }
}
