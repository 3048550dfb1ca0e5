//! The green contexts of a runtime, and their streams.
//!
//! One that nobody holds any more is not destroyed but kept for the next that asks for as many multiprocessors, because
//! buffers and the current stream of a thread may still name its streams. It costs nothing while no work is queued.
//!
//! **Invariants:** a green context has at most 32 streams, made when first asked for. Streams and then green contexts
//! are destroyed with the runtime, before their primary contexts are released.

use std::sync::PoisonError;

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, GreenContextError, Result};
use crate::base::handles::{GreenHandle, StreamHandle, StreamRef};
use crate::base::ids::{STREAMS_PER_POOL, StreamId, StreamKey};
use crate::driver::Api;
use crate::sync::{Mutex, MutexGuard};

/// A green context.
#[derive(Debug)]
struct Green {
    handle: GreenHandle,
    device: DeviceIndex,
    /// Multiprocessors that were asked for, and that it has.
    asked: u32,
    count: u32,
    streams: Vec<StreamHandle>,
    /// How often a stream was asked for.
    next: usize,
    /// Whether somebody holds it.
    taken: bool,
}

/// All of a runtime; each is named by its place, which never changes.
#[derive(Debug, Default)]
pub(crate) struct GreenContexts(Mutex<Vec<Green>>);

impl GreenContexts {
    /// A green context that nobody holds, with at least `asked` multiprocessors: its place, and how many it has.
    pub(crate) fn take(&self, api: &Api, device: DeviceIndex, asked: u32) -> Result<(usize, u32)> {
        let mut all = self.lock();
        let free = all.iter().position(|green| !green.taken && (green.device, green.asked) == (device, asked));
        if let Some(place) = free {
            all[place].taken = true;
            return Ok((place, all[place].count));
        }
        let (handle, count) = api.green_create(device, asked)?;
        all.push(Green { handle, device, asked, count, streams: Vec::new(), next: 0, taken: true });
        Ok((all.len() - 1, count))
    }

    /// Nobody holds it any more.
    pub(crate) fn give(&self, place: usize) {
        let mut all = self.lock();
        all.get_mut(place).into_iter().for_each(|green| green.taken = false);
    }

    /// The next stream: the 33rd request gets the first one again.
    pub(crate) fn next_stream(&self, api: &Api, place: usize) -> Result<StreamKey> {
        self.stream(api, place, |green| {
            green.next += 1;
            (green.next - 1) % STREAMS_PER_POOL
        })
    }

    /// The stream on which work runs while the green context is entered: the first one.
    pub(crate) fn first_stream(&self, api: &Api, place: usize) -> Result<StreamKey> {
        self.stream(api, place, |_| 0)
    }

    fn stream(&self, api: &Api, place: usize, choose: impl FnOnce(&mut Green) -> usize) -> Result<StreamKey> {
        let mut all = self.lock();
        let green = all.get_mut(place).ok_or(Error::GreenContext(GreenContextError::NoGroup))?;
        let index = choose(green);
        while green.streams.len() <= index {
            green.streams.push(api.green_stream(green.handle)?);
        }
        let handle = green.streams[index];
        // Its id is its handle, which is even: odd ids belong to pools.
        Ok(StreamKey { id: StreamId(i64::try_from(handle.0).unwrap_or(i64::MAX)), handle })
    }

    /// Waits for every stream on a device, as far as the driver does.
    pub(crate) fn wait(&self, api: &Api, device: DeviceIndex) {
        let own = |green: &&Green| green.device == device;
        let all: Vec<_> = self.lock().iter().filter(own).flat_map(|green| green.streams.iter().copied()).collect();
        for handle in all {
            let _ = api.stream_wait_on_host(StreamRef { device, handle });
        }
    }

    /// Destroys every green context.
    pub(crate) fn dismantle(&self, api: &Api) {
        for green in self.lock().drain(..) {
            let device = green.device;
            for handle in green.streams {
                // Nothing can be done about what cannot be destroyed; its context ends soon.
                let _ = api.stream_destroy(StreamRef { device, handle });
            }
            let _ = api.green_destroy(green.handle);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Green>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
