//! What a runtime knows of captures under way: the pool each of them allocates from, and what their graphs will keep.
//!
//! Everything that queues work asks which capture that belongs to ([`Captures::of`]), so that the graph keeps the memory.
//! The driver is asked only where the answer is not known:
//! - A stream that was once seen in a capture of this runtime takes part in it until that ends, which this runtime does,
//!   or the body of a conditional node in it.
//! - While this runtime captures nothing, its streams can take part in a capture only if other code began that capture
//!   with a raw handle: the handle of a stream or an event that this crate has given out, or a stream that was made
//!   elsewhere ([`Captures::open_door`]). Before there is such a handle, no stream captures.
//!
//! **Invariants:** an entry exists from the begin of a capture to its end, however it ends, and so do the streams seen
//! in it. If a capture could not be ended when its graph was discarded, the next sweep or capture that can ends it;
//! until then the driver is asked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::handles::StreamRef;
use crate::base::ids::PoolId;
use crate::base::ids::StreamId;
use crate::driver::Api;
use crate::state::deferred_destroy::{DeferredDestroy, DriverObject};
use crate::state::holds::Held;
use crate::state::pool_pinned::PoolsPinned;
use crate::sync::{Mutex, MutexGuard};

/// Names an object that is kept alive: by its address in this process, which no other object has meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct KeptId(usize);

impl KeptId {
    /// The name of an object that lives as long as its owners.
    #[inline]
    pub(crate) fn of<T: ?Sized>(thing: &Arc<T>) -> Self {
        Self(Arc::as_ptr(thing).addr())
    }

    /// The name of an object that is never moved or freed.
    #[inline]
    pub(crate) fn at<T>(thing: &'static T) -> Self {
        Self(std::ptr::from_ref(thing).addr())
    }
}

/// The objects that a graph keeps alive, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(BTreeMap<KeptId, Held>);

impl Kept {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeptId, &Held)> {
        self.0.iter().map(|(id, held)| (*id, held))
    }
}

/// The last capture that was told whether to keep an object alive. Numbers of captures are never reused, so a capture
/// need not be told twice. The object belongs to one runtime.
#[derive(Debug)]
pub(crate) struct Told(AtomicU64);

impl Default for Told {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl Told {
    /// Calls `tell`, unless the capture was told before.
    #[inline]
    pub(crate) fn once(&self, capture: Capture, tell: impl FnOnce()) {
        if self.0.load(Ordering::Acquire) != capture.id {
            tell();
            self.0.store(capture.id, Ordering::Release);
        }
    }
}

/// A capture that a stream takes part in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Capture {
    /// The driver's number of it.
    pub(crate) id: u64,
    /// The pool that its allocations come from; `None` for a capture that this runtime did not begin.
    pool: Option<PoolId>,
}

impl Capture {
    /// Whether this runtime began it.
    pub(crate) fn is_own(&self) -> bool {
        self.pool.is_some()
    }

    /// Whether the graph must be told to keep memory of that pool (`None` for the default pools): it keeps its own pool
    /// by itself.
    #[inline]
    pub(crate) fn must_keep(&self, owner: Option<PoolId>) -> bool {
        owner.is_none() || owner != self.pool
    }
}

/// The captures under way.
#[derive(Debug, Default)]
struct UnderWay {
    /// The pools of those that this runtime began, by number.
    pools: BTreeMap<u64, PoolId>,
    /// Streams that were seen in one of those.
    streams: Vec<(StreamRef, Capture)>,
    /// What the graphs will keep alive, also for captures that this runtime did not begin.
    kept: BTreeMap<u64, Kept>,
}

impl UnderWay {
    #[inline]
    fn of(&self, stream: StreamRef) -> Option<Capture> {
        self.streams.iter().find(|(seen, _)| *seen == stream).map(|(_, capture)| *capture)
    }
}

/// When this is dropped, the driver is asked again about the streams of a capture.
#[derive(Debug)]
pub(crate) struct AskAgain<'a> {
    captures: &'a Captures,
    capture: u64,
}

impl Drop for AskAgain<'_> {
    fn drop(&mut self) {
        self.captures.lock().streams.retain(|(_, seen)| seen.id != self.capture);
    }
}

/// The captures of a runtime, by the driver's number.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    under_way: Mutex<UnderWay>,
    /// Captures under way that this runtime began.
    begun: AtomicUsize,
    /// Whether other code can bring a stream of this runtime into a capture.
    has_door: AtomicBool,
    /// Streams whose captures were discarded and could not be ended.
    given_up: Mutex<Vec<StreamRef>>,
    given_up_count: AtomicUsize,
    /// Executable graphs that live graph objects hold.
    execs: AtomicUsize,
    /// The streams that are captured where none is named.
    streams: Mutex<BTreeMap<DeviceIndex, StreamId>>,
    /// Pinned blocks that captures used, by the pool they captured into.
    pub(crate) pinned: PoolsPinned,
}

impl Captures {
    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a capture that has begun on a stream.
    pub(crate) fn begin(&self, stream: StreamRef, id: u64, pool: PoolId) {
        let mut under_way = self.lock();
        under_way.pools.insert(id, pool);
        under_way.streams.push((stream, Capture { id, pool: Some(pool) }));
        self.begun.store(under_way.pools.len(), Ordering::Release);
    }

    /// Notes that other code has the raw handle of a stream or an event, or that a stream was made elsewhere: from now
    /// on streams can take part in captures that this runtime did not begin.
    #[inline]
    pub(crate) fn open_door(&self) {
        if !self.has_door.load(Ordering::Relaxed) {
            self.has_door.store(true, Ordering::Release);
        }
    }

    /// The capture that a stream takes part in.
    #[inline]
    pub(crate) fn of(&self, api: &Api, stream: StreamRef) -> Result<Option<Capture>> {
        if self.begun.load(Ordering::Acquire) == 0 {
            let can_capture = self.has_door.load(Ordering::Acquire) || self.given_up_count.load(Ordering::Acquire) > 0;
            return if can_capture { self.ask(api, stream) } else { Ok(None) };
        }
        if let Some(capture) = self.lock().of(stream) {
            return Ok(Some(capture));
        }
        self.ask(api, stream)
    }

    /// The driver's answer, which is remembered for captures of this runtime.
    fn ask(&self, api: &Api, stream: StreamRef) -> Result<Option<Capture>> {
        if !api.may_capture(stream)? {
            return Ok(None);
        }
        let Some(id) = api.stream_capture_id(stream)? else { return Ok(None) };
        let mut under_way = self.lock();
        let capture = Capture { id, pool: under_way.pools.get(&id).copied() };
        if capture.pool.is_some() && under_way.of(stream).is_none() {
            under_way.streams.push((stream, capture));
        }
        Ok(Some(capture))
    }

    /// Keeps an object alive as long as the graph that the capture becomes, unless it is kept already. This runtime
    /// does not learn what becomes of a capture that it did not begin; it keeps the objects of such a capture as long
    /// as it lives.
    pub(crate) fn keep(&self, capture: u64, id: KeptId, held: impl FnOnce() -> Held) {
        self.lock().kept.entry(capture).or_default().0.entry(id).or_insert_with(held);
    }

    /// Returns a value that, when dropped, makes this forget which streams were seen in a capture: streams that record
    /// the body of a conditional node leave the capture with the body.
    pub(crate) fn ask_again_after(&self, capture: u64) -> AskAgain<'_> {
        AskAgain { captures: self, capture }
    }

    /// Forgets a capture that is over, and returns what its graph keeps alive.
    pub(crate) fn end(&self, capture: u64) -> Kept {
        let mut under_way = self.lock();
        under_way.pools.remove(&capture);
        under_way.streams.retain(|(_, seen)| seen.id != capture);
        self.begun.store(under_way.pools.len(), Ordering::Release);
        under_way.kept.remove(&capture).unwrap_or_default()
    }

    /// Drops everything, at the end of the runtime.
    pub(crate) fn clear(&self) {
        let under_way = std::mem::take(&mut *self.lock());
        self.begun.store(0, Ordering::Release);
        drop(under_way);
    }

    /// Notes a stream whose capture was discarded and could not be ended.
    pub(crate) fn give_up(&self, stream: StreamRef) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.push(stream);
        self.given_up_count.store(given_up.len(), Ordering::Release);
    }

    /// Whether there are captures that were discarded and could not be ended.
    #[inline]
    pub(crate) fn any_given_up(&self) -> bool {
        self.given_up_count.load(Ordering::Acquire) > 0
    }

    /// Ends discarded captures, as far as this thread can.
    pub(crate) fn sweep(&self, api: &Api, deferred: &DeferredDestroy) {
        if !self.any_given_up() {
            return;
        }
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.retain(|stream| {
            let _ = api
                .end_capture(*stream)
                .map(|graph| graph.map(|graph| deferred.destroy(api, DriverObject::Graph(graph))));
            api.stream_is_capturing(*stream).unwrap_or(true)
        });
        self.given_up_count.store(given_up.len(), Ordering::Release);
    }

    /// The stream of a device that is captured where none is named; made by `make` when first asked for.
    pub(crate) fn stream(&self, device: DeviceIndex, make: impl FnOnce() -> Result<StreamId>) -> Result<StreamId> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = streams.get(&device) {
            return Ok(*stream);
        }
        let stream = make()?;
        streams.insert(device, stream);
        Ok(stream)
    }

    /// Counts an executable graph that was made (1) or discarded (-1).
    pub(crate) fn count_exec(&self, by: isize) {
        self.execs.fetch_add(by.cast_unsigned(), Ordering::Relaxed);
    }

    pub(crate) fn exec_count(&self) -> usize {
        self.execs.load(Ordering::Relaxed)
    }
}
