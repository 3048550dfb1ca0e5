//! An allocator of the program in the place of the caching one.
//!
//! **Invariants:** memory goes back to the allocator on the stream that it was asked for, behind the work of the other streams
//! that have used it. Where that order cannot be made now, because a stream captures or the driver fails, the memory is *late*:
//! it belongs to nobody, and goes back at the next occasion.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::OtherBackend;
use crate::base::device::DeviceIndex;
use crate::base::error::{AllocatorError, Error, OutOfMemory, Result};
use crate::base::handles::StreamRef;
use crate::base::ids::PoolId;
use crate::caching::{DeviceStats, Filter, Owner, SegmentInfo};
use crate::driver::{Api, Driver, Relaxed};
use crate::plugin::CUDAPluggableAllocator;
use crate::plugin::held::Piece;
use crate::plugin::hooks::StreamFilter;
use crate::resource::StreamView;
use crate::sync::Mutex;
use crate::sync::lock;
use crate::thread;

/// Answers which capture a stream takes part in.
type AsksCaptures = dyn Fn(usize) -> Option<u64> + Send + Sync;

/// The allocator of a runtime.
pub(crate) struct PluggableBackend {
    allocator: CUDAPluggableAllocator,
    asks_captures: Arc<AsksCaptures>,
    /// Handles of streams that memory was asked for. The allocator's filters are asked about no others.
    streams: Arc<Mutex<BTreeSet<usize>>>,
    limits: Mutex<BTreeMap<DeviceIndex, u64>>,
    late: Mutex<Vec<Piece>>,
    /// Routes to pools that are open, and captures under way.
    routes: AtomicUsize,
}

impl PluggableBackend {
    /// Tells the allocator how many devices there are.
    pub(crate) fn new(allocator: CUDAPluggableAllocator, api: &Api) -> Result<Self> {
        allocator.0.hooks.init.call("set_init_fn", |init| init(api.device_count()))?;
        let (streams, limits, late, routes) = Default::default();
        Ok(Self { allocator, asks_captures: Arc::new(api.asks_captures()), streams, limits, late, routes })
    }

    /// Whether a request is more than the program may have of a device. An allocator with a hook for it decides itself.
    fn is_beyond_limit(&self, device: DeviceIndex, bytes: u64) -> bool {
        if self.allocator.0.hooks.memory_fraction.is_set() {
            return false;
        }
        let limit = lock(&self.limits).get(&device).copied();
        limit.is_some_and(|limit| self.held(device).saturating_add(bytes) > limit)
    }

    /// Lets the allocator's functions make calls that a capture of this thread would forbid.
    fn relaxed<'a>(&self, api: &'a Api) -> Result<Relaxed<'a, Api>> {
        Relaxed::new(api, self.routes.load(Ordering::Acquire) > 0)
    }

    fn held(&self, device: DeviceIndex) -> u64 {
        u64::try_from(self.allocator.stats(device).allocated_bytes.all.current).unwrap_or(0)
    }

    /// The error of a request that the allocator has no memory for.
    fn out_of_memory(&self, api: &Api, device: DeviceIndex, requested: u64) -> Error {
        // Where the driver cannot tell, the figures are left out rather than the error.
        let free = api.mem_get_info(device).map_or(0, |info| info.free);
        let total = api.total_memory(device).unwrap_or(0);
        let (held, allowed) = (self.held(device), lock(&self.limits).get(&device).copied());
        let (allocated, reserved, cached_in_private_pools, largest_free_block) = (held, held, 0, 0);
        OutOfMemory {
            device,
            requested,
            segment: requested,
            total,
            free,
            allowed,
            allocated,
            reserved,
            cached_in_private_pools,
            largest_free_block,
        }
        .into()
    }

    /// Gives a piece back behind the work of the streams that have used it, or notes it as late.
    fn give_back(&self, api: &Api, piece: Piece) -> Result<()> {
        // An event on the default stream would end a capture of a stream that waits for that one.
        let captures = self.routes.load(Ordering::Acquire) > 0 || api.others_capture();
        let is_late = captures && !piece.used_on.is_empty();
        let ready = self.relaxed(api).and_then(|relaxed| Ok((!is_late && prepare(api, &piece)?).then_some(relaxed)));
        let Ok(Some(_relaxed)) = ready else {
            lock(&self.late).push(piece);
            return ready.map(drop);
        };
        self.allocator.release(piece).map_err(|(piece, error)| {
            lock(&self.late).extend(piece);
            error
        })
    }

    /// Gives late memory back, as far as that is possible now. Goes on after a failure and returns the first.
    fn give_late(&self, api: &Api) -> Result<()> {
        let late = std::mem::take(&mut *lock(&self.late));
        late.into_iter().map(|piece| self.give_back(api, piece)).fold(Ok(()), Result::and)
    }

    /// The filter of a route as the allocator's hook takes it.
    fn filter(&self, filter: Filter) -> StreamFilter {
        match filter {
            Filter::Thread(number) => Arc::new(move |_| thread::number() == number),
            Filter::Stream(wanted) => Arc::new(move |stream| wanted.0 == stream),
            Filter::Where(predicate) => predicate.0,
            Filter::Any => Arc::new(|_| true),
            Filter::Capture(number) => {
                let (asks, streams) = (Arc::clone(&self.asks_captures), Arc::clone(&self.streams));
                Arc::new(move |stream| {
                    let is_known = lock(&streams).contains(&stream);
                    is_known && asks(stream).is_some_and(|capture| capture == number.load(Ordering::Acquire))
                })
            }
        }
    }
}

/// Makes a piece's own stream wait for the others that have used it, and its device current. `false` where a capture forbids
/// that now.
fn prepare(api: &Api, piece: &Piece) -> Result<bool> {
    let own = piece.stream.0;
    for used in piece.used_on.iter().map(|used| used.0) {
        let captures = [api.capture_id(used)?, api.capture_id(own)?];
        if captures[0] != captures[1] {
            return Ok(false);
        }
        let event = api.event_create(used.device)?;
        let ordered = api.event_record(event, used).and_then(|()| api.stream_wait(own, event));
        // The stream waits all the same.
        let destroyed = api.event_destroy(event);
        ordered.and(destroyed)?;
    }
    api.bind(own.device)?;
    Ok(true)
}

impl fmt::Debug for PluggableBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.allocator.fmt(f)
    }
}

impl OtherBackend for PluggableBackend {
    fn name(&self) -> &'static str {
        "pluggable"
    }

    fn title(&self) -> &'static str {
        "CUDAPluggableAllocator"
    }

    fn alloc(&self, api: &Api, stream: StreamRef, bytes: u64, owner: Owner) -> Result<u64> {
        // What cannot go back now is late still.
        let _ = self.give_late(api);
        api.bind(stream.device)?;
        let _relaxed = self.relaxed(api)?;
        lock(&self.streams).insert(stream.handle.0);
        let given = match self.is_beyond_limit(stream.device, bytes) {
            true => {
                self.allocator.count_out_of_memory(stream.device);
                None
            }
            false => self.allocator.take_memory(stream, bytes, owner)?,
        };
        given.ok_or_else(|| self.out_of_memory(api, stream.device, bytes))
    }

    fn free(&self, api: &Api, address: u64, owner: Owner) -> Result<()> {
        let piece = self.allocator.0.held.take(address, owner)?;
        self.give_back(api, piece)
    }

    fn record_stream(&self, address: u64, stream: StreamRef) -> Result<()> {
        let hooks = &self.allocator.0.hooks;
        let told = hooks.record_stream.call("set_record_stream_fn", |hook| hook(address, stream.handle.0))?;
        // The allocator that is told takes care of it.
        if told.is_some() { Ok(()) } else { self.allocator.0.held.record(address, StreamView(stream)) }
    }

    fn owner(&self, address: u64) -> Option<Owner> {
        self.allocator.0.held.owner(address)
    }

    fn base_of(&self, address: u64) -> Result<Option<u64>> {
        let asked = self.allocator.0.hooks.base_alloc.call("set_base_alloc_fn", |hook| hook(address))?;
        match asked {
            None => Ok(None),
            Some((base, bytes)) if (base..base.saturating_add(bytes)).contains(&address) => Ok(Some(base)),
            Some((base, bytes)) => Err(AllocatorError::WrongBase { address, base, bytes }.into()),
        }
    }

    fn empty_cache(&self, api: &Api) -> Result<()> {
        let late = self.give_late(api);
        self.allocator.0.hooks.reset.call("set_reset_fn", |reset| reset())?;
        late
    }

    fn snapshot(&self) -> Option<Vec<SegmentInfo>> {
        Some(self.allocator.snapshot())
    }

    fn stats(&self, _: &Api, device: DeviceIndex) -> Result<DeviceStats> {
        Ok(self.allocator.stats(device))
    }

    fn reset_peak_stats(&self, _: &Api, device: DeviceIndex) -> Result<()> {
        self.allocator.0.held.change_stats(device, DeviceStats::reset_peak);
        Ok(())
    }

    fn reset_accumulated_stats(&self, device: DeviceIndex) -> Result<()> {
        self.allocator.0.held.change_stats(device, DeviceStats::reset_accumulated);
        Ok(())
    }

    fn set_fraction(&self, device: DeviceIndex, fraction: f64, limit: Option<u64>) -> Result<()> {
        self.allocator.0.hooks.memory_fraction.call("set_memory_fraction_fn", |hook| hook(fraction, device))?;
        let mut limits = lock(&self.limits);
        match limit {
            Some(limit) => limits.insert(device, limit),
            None => limits.remove(&device),
        };
        Ok(())
    }

    fn limit(&self, device: DeviceIndex) -> Result<Option<u64>> {
        Ok(lock(&self.limits).get(&device).copied())
    }

    fn use_pool(&self, _: DeviceIndex, _: PoolId) -> Result<()> {
        // An allocator that is told of pools keeps them itself.
        if self.allocator.0.hooks.begin_pool.is_set() { Ok(()) } else { Err(self.refusal("createOrIncrefPool")) }
    }

    fn begin_allocate_to_pool(&self, device: DeviceIndex, pool: PoolId, filter: Filter) -> Result<()> {
        let filter = self.filter(filter);
        let hook = &self.allocator.0.hooks.begin_pool;
        hook.call("set_begin_allocate_to_pool", |begin| begin(device, pool, filter))?;
        self.routes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn end_allocate_to_pool(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.routes.fetch_sub(1, Ordering::AcqRel);
        let hook = &self.allocator.0.hooks.end_pool;
        hook.call("set_end_allocate_to_pool_fn", |end| end(device, pool)).map(drop)
    }

    fn release_pool(&self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        let hook = &self.allocator.0.hooks.release_pool;
        hook.call("set_release_pool", |release| release(device, pool)).map(drop)
    }

    fn inconsistency(&self) -> Option<String> {
        self.allocator.0.held.inconsistency()
    }

    fn dismantle(&self, api: &Api) {
        let late = std::mem::take(&mut *lock(&self.late));
        for piece in late.into_iter().chain(self.allocator.0.held.take_all()) {
            // This is the end: what fails now stays taken.
            let _ = api.bind(piece.stream.device());
            let _ = self.allocator.release(piece);
        }
    }
}
