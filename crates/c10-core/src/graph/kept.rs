//! What a runtime knows of captures under way: the pool each of them allocates from, and what their graphs will keep.
//!
//! **Invariant:** an entry is there from the begin of a capture to its end, whichever way that comes about. A capture that
//! could not be ended when its graph was given up is ended by the next sweep or capture that can.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::caching::PoolId;
use crate::device::DeviceIndex;
use crate::driver::{Api, StreamRef};
use crate::error::Result;
use crate::pinned::Held;
use crate::remains::{Doomed, Remains};
use crate::stream::StreamId;

/// What a graph keeps alive, each thing once, by its address in this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(BTreeMap<usize, Held>);

impl Kept {
    fn add(&mut self, held: Held) {
        self.0.entry(Arc::as_ptr(&held).cast::<()>().addr()).or_insert(held);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.0.values()
    }
}

/// A capture under way.
#[derive(Debug, Default)]
struct Entry {
    /// Where its allocations come from; unknown of a capture that this runtime did not begin.
    pool: Option<PoolId>,
    kept: Kept,
}

/// The captures of a runtime, by the driver's number.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    under_way: Mutex<HashMap<u64, Entry>>,
    /// Streams of captures that nobody wants any more and that could not be ended.
    given_up: Mutex<Vec<StreamRef>>,
    given_up_count: AtomicUsize,
    /// Executable graphs that live graph objects hold.
    execs: AtomicUsize,
    /// The streams that are captured where none is named.
    streams: Mutex<BTreeMap<DeviceIndex, StreamId>>,
}

impl Captures {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a capture that has begun.
    pub(super) fn begin(&self, capture: u64, pool: PoolId) {
        self.lock().insert(capture, Entry { pool: Some(pool), kept: Kept::default() });
    }

    /// Whether a graph must be told to keep memory of that pool (`None` for the default pools): it keeps its own pool by
    /// itself.
    pub(crate) fn must_keep(&self, capture: u64, owner: Option<PoolId>) -> bool {
        owner.is_none() || self.lock().get(&capture).is_none_or(|entry| entry.pool != owner)
    }

    /// Keeps something as long as the graph that the capture becomes. A capture that this runtime did not begin is
    /// never heard of again; what it uses is kept as long as the runtime.
    pub(crate) fn keep(&self, capture: u64, held: Held) {
        self.lock().entry(capture).or_default().kept.add(held);
    }

    /// Forgets a capture that is over; what its graph keeps.
    pub(super) fn end(&self, capture: u64) -> Kept {
        self.lock().remove(&capture).unwrap_or_default().kept
    }

    /// Lets go of everything, at the end of the runtime.
    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut *self.lock());
        drop(entries);
    }

    /// Notes a stream whose capture nobody wants any more and that could not be ended.
    pub(super) fn give_up(&self, stream: StreamRef) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.push(stream);
        self.given_up_count.store(given_up.len(), Ordering::Release);
    }

    /// Ends captures that nobody wants any more, as far as this thread can.
    pub(crate) fn sweep(&self, api: &Api, remains: &Remains) {
        if self.given_up_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.retain(|stream| {
            let _ = api.end_capture(*stream).map(|graph| graph.map(|graph| remains.destroy(api, Doomed::Graph(graph))));
            api.stream_is_capturing(*stream).unwrap_or(true)
        });
        self.given_up_count.store(given_up.len(), Ordering::Release);
    }

    /// The stream of a device that is captured where none is named; made by `make` when first asked for.
    pub(super) fn stream(&self, device: DeviceIndex, make: impl FnOnce() -> Result<StreamId>) -> Result<StreamId> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = streams.get(&device) {
            return Ok(*stream);
        }
        let stream = make()?;
        streams.insert(device, stream);
        Ok(stream)
    }

    /// Counts an executable graph made (1) or given up (-1).
    pub(super) fn count_exec(&self, by: isize) {
        self.execs.fetch_add(by.cast_unsigned(), Ordering::Relaxed);
    }

    pub(super) fn exec_count(&self) -> usize {
        self.execs.load(Ordering::Relaxed)
    }
}
