//! The pools that streams are handed out from: 32 for each device and priority.
//!
//! **Invariant:** the streams of a pool are made together, or none of them, and destroyed with the runtime.

use std::sync::PoisonError;

use crate::base::device::DeviceIndex;
use crate::base::error::{DeviceError, Error, Result};
use crate::base::handles::{StreamHandle, StreamRef};
use crate::base::ids::MAX_LEVELS;
use crate::base::ids::STREAMS_PER_POOL;
use crate::base::ids::StreamId;
use crate::base::ids::StreamKey;
use crate::base::ids::priority_of;
use crate::driver::Api;
use crate::sync::{Mutex, MutexGuard};
use crate::trace::{TraceEvent, TraceKind};

/// The pools of all devices.
#[derive(Debug)]
pub(crate) struct StreamPools {
    devices: Box<[Mutex<DevicePools>]>,
}

impl StreamPools {
    pub(crate) fn new(device_count: usize) -> Self {
        Self { devices: (0..device_count).map(|_| Mutex::default()).collect() }
    }

    pub(crate) fn of(&self, device: DeviceIndex) -> Result<MutexGuard<'_, DevicePools>> {
        let pools = usize::try_from(device)
            .ok()
            .and_then(|position| self.devices.get(position))
            .ok_or(Error::Device(DeviceError::InvalidId))?;
        Ok(pools.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for every stream of a device, the default one among them, as far as the driver does.
    pub(crate) fn wait(&self, api: &Api, device: DeviceIndex) {
        let Ok(pools) = self.of(device) else { return };
        let made = pools.levels.iter().flatten().flat_map(|pool| pool.streams.iter().copied());
        let all: Vec<StreamHandle> = made.chain([StreamHandle::default()]).collect();
        drop(pools);
        for handle in all {
            let _ = api.stream_wait_on_host(StreamRef { device, handle });
        }
    }

    /// Destroys every stream.
    pub(crate) fn dismantle(&self, api: &Api) {
        for (device, pools) in (0..).map(DeviceIndex).zip(&self.devices) {
            let pools = std::mem::take(&mut *pools.lock().unwrap_or_else(PoisonError::into_inner));
            pools.unpooled.into_iter().for_each(|(handle, ..)| destroy(api, device, handle));
            for pool in pools.levels.into_iter().flatten() {
                pool.streams.into_iter().for_each(|handle| destroy(api, device, handle));
            }
        }
    }
}

/// Notes that a stream was made; subscribers are told when the pools are unlocked.
fn report(api: &Api, device: DeviceIndex, handle: StreamHandle) {
    let event = || TraceEvent::StreamCreated(StreamRef { device, handle }.into());
    api.trace.report(TraceKind::Stream, event);
}

fn destroy(api: &Api, device: DeviceIndex, handle: StreamHandle) {
    // Nothing can be done about a stream that cannot be destroyed; its context ends soon.
    let _ = api.stream_destroy(StreamRef { device, handle });
}

/// The pools of one device.
#[derive(Debug, Default)]
pub(crate) struct DevicePools {
    level_count: Option<usize>,
    levels: [Option<Pool>; MAX_LEVELS],
    /// Streams outside the pools, each with its level and whether it is in use.
    unpooled: Vec<(StreamHandle, usize, bool)>,
}

/// The streams of one priority.
#[derive(Debug)]
struct Pool {
    streams: Vec<StreamHandle>,
    next: usize,
}

impl DevicePools {
    /// Priorities the device tells apart, at most 4.
    pub(crate) fn level_count(&mut self, api: &Api, device: DeviceIndex) -> Result<usize> {
        if let Some(count) = self.level_count {
            return Ok(count);
        }
        let (least, greatest) = api.stream_priority_range(device)?;
        let count = usize::try_from(least.saturating_sub(greatest)).unwrap_or(0) + 1;
        Ok(*self.level_count.insert(count.min(MAX_LEVELS)))
    }

    pub(crate) fn next(&mut self, api: &Api, device: DeviceIndex, priority: i32) -> Result<StreamKey> {
        let level = self.level(api, device, priority)?;
        let pool = self.pool(api, device, level)?;
        let index = pool.next % STREAMS_PER_POOL;
        pool.next += 1;
        Ok(StreamKey { id: StreamId::of_pool(level, index), handle: pool.streams[index] })
    }

    /// A stream outside the pools that is not in use: one that was returned and has no work left, or a new one.
    pub(crate) fn take_unpooled(&mut self, api: &Api, device: DeviceIndex, priority: i32) -> Result<StreamKey> {
        let level = self.level(api, device, priority)?;
        let idle = |handle| api.stream_query(StreamRef { device, handle }).unwrap_or(false);
        let mut known = self.unpooled.iter_mut();
        let handle = match known.find(|(handle, of, taken)| !*taken && *of == level && idle(*handle)) {
            Some((handle, _, taken)) => {
                *taken = true;
                *handle
            }
            None => {
                let handle = api.stream_create(device, priority_of(level))?;
                report(api, device, handle);
                self.unpooled.push((handle, level, true));
                handle
            }
        };
        // Its id is its handle, which is even: odd ids belong to pools.
        Ok(StreamKey { id: StreamId(i64::try_from(handle.0).unwrap_or(i64::MAX)), handle })
    }

    /// Whether a stream lives as long as the runtime: the default stream, a pooled stream, or a stream created by the
    /// runtime outside the pools.
    pub(crate) fn owns(&self, handle: StreamHandle) -> bool {
        handle == StreamHandle::default()
            || self.levels.iter().flatten().any(|pool| pool.streams.contains(&handle))
            || self.unpooled.iter().any(|(known, ..)| *known == handle)
    }

    /// Returns such a stream. Objects that still name it go on working.
    pub(crate) fn give_unpooled(&mut self, handle: StreamHandle) {
        let known = self.unpooled.iter_mut().find(|(known, ..)| *known == handle);
        known.into_iter().for_each(|(.., taken)| *taken = false);
    }

    fn level(&mut self, api: &Api, device: DeviceIndex, priority: i32) -> Result<usize> {
        let last = self.level_count(api, device)? - 1;
        Ok(usize::try_from(priority.saturating_neg()).unwrap_or(0).min(last))
    }

    pub(crate) fn find(
        &mut self,
        api: &Api,
        device: DeviceIndex,
        level: usize,
        index: usize,
    ) -> Result<Option<StreamKey>> {
        if level >= self.level_count(api, device)? {
            return Ok(None);
        }
        let handle = self.pool(api, device, level)?.streams[index];
        Ok(Some(StreamKey { id: StreamId::of_pool(level, index), handle }))
    }

    /// The pool of a level, made on first use. While somebody listens, those of all levels are made together, as torch
    /// makes them: each is reported 32 times the number of levels at once.
    fn pool(&mut self, api: &Api, device: DeviceIndex, level: usize) -> Result<&mut Pool> {
        if self.levels[level].is_none() && api.trace.wants(TraceKind::Stream) {
            for each in 0..self.level_count(api, device)? {
                self.make_pool(api, device, each)?;
            }
        }
        self.make_pool(api, device, level)
    }

    /// The pool of a level: all its streams or none.
    fn make_pool(&mut self, api: &Api, device: DeviceIndex, level: usize) -> Result<&mut Pool> {
        let slot = &mut self.levels[level];
        if slot.is_none() {
            let priority = priority_of(level);
            let mut streams = Vec::with_capacity(STREAMS_PER_POOL);
            for _ in 0..STREAMS_PER_POOL {
                match api.stream_create(device, priority) {
                    Ok(stream) => streams.push(stream),
                    Err(error) => {
                        streams.into_iter().for_each(|stream| destroy(api, device, stream));
                        return Err(error);
                    }
                }
            }
            streams.iter().for_each(|stream| report(api, device, *stream));
            *slot = Some(Pool { streams, next: 0 });
        }
        Ok(slot.as_mut().expect("filled above"))
    }
}
