//! Pinned host memory, and what keeps memory alive while the device uses it.
//!
//! **Invariants:** a pinned block is in exactly one place: a live buffer (with the copies that use it), or the cache.
//! An asynchronous copy holds its pinned memory until an event recorded behind it has passed, or, when it was
//! captured, for as long as the graph lives. Dropping a buffer calls nothing: its block goes to the cache.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::DeviceIndex;
use crate::driver::{Api, Driver, EventHandle, PinnedBlock, StreamRef};
use crate::error::Result;
use crate::runtime::{Ready, Runtime};
use crate::thread;

/// Something that must not go before the device is done with it.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;

/// Page-locked host memory that the device can read and write while the host does other things.
///
/// A handle: clones are the same memory. The host reads and writes copies of bytes ([`Self::read`], [`Self::write`]);
/// while the device writes the same bytes, what is read is some mixture of old and new. Events or synchronisation
/// order host and device. Given back to a cache when the last handle is dropped and no copy uses it any more.
#[derive(Clone, Debug)]
pub struct PinnedBuffer {
    runtime: Runtime,
    memory: Arc<PinnedMemory>,
    len: usize,
}

impl PinnedBuffer {
    /// Bytes of the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte, as a number.
    #[must_use]
    pub fn address(&self) -> usize {
        self.memory.block().map_or(0, PinnedBlock::address)
    }

    /// Copies `from` into the buffer at `offset`.
    ///
    /// # Errors
    /// The bytes do not fit.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        crate::driver::check_range(offset, from.len(), self.len)?;
        self.memory.block().map_or(Ok(()), |block| block.write(offset, from))
    }

    /// Copies the buffer's bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// The buffer ends before `to` is full.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        crate::driver::check_range(offset, to.len(), self.len)?;
        self.memory.block().map_or(Ok(()), |block| block.read(offset, to))
    }

    /// All bytes.
    ///
    /// # Errors
    /// None at present.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn memory(&self) -> &Arc<PinnedMemory> {
        &self.memory
    }
}

/// A pinned block that goes back to its cache.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    block: Option<PinnedBlock>,
    home: Arc<PinnedCache>,
}

impl PinnedMemory {
    pub(crate) fn block(&self) -> Option<&PinnedBlock> {
        self.block.as_ref()
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.home.put(block);
        }
    }
}

/// Pinned blocks nobody uses, by size.
#[derive(Debug, Default)]
pub(crate) struct PinnedCache {
    free: Mutex<BTreeMap<usize, Vec<PinnedBlock>>>,
}

impl PinnedCache {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<PinnedBlock>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, size: usize) -> Option<PinnedBlock> {
        self.lock().get_mut(&size)?.pop()
    }

    fn put(&self, block: PinnedBlock) {
        self.lock().entry(block.len()).or_default().push(block);
    }

    /// Gives every block back to the driver; the first error, after which the block is kept.
    fn empty(&self, api: &Api, device: DeviceIndex) -> Result<()> {
        let blocks = std::mem::take(&mut *self.lock());
        let mut result = Ok(());
        for block in blocks.into_values().flatten() {
            if let Err(error) = api.host_free(device, &block) {
                self.put(block);
                result = result.and(Err(error));
            }
        }
        result
    }

    /// Gives every block back to the driver, at the end of the runtime.
    pub(crate) fn dismantle(&self, api: &Api) {
        let devices = (0..).map(DeviceIndex).take(api.device_count());
        if let Some(device) = { devices }.find(|device| api.is_used(*device)) {
            let _ = self.empty(api, device);
        }
    }
}

/// Memory held for copies under way, by stream, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    state: Mutex<HoldState>,
}

#[derive(Debug, Default)]
struct HoldState {
    queues: BTreeMap<StreamRef, VecDeque<Hold>>,
    spare: BTreeMap<DeviceIndex, Vec<EventHandle>>,
}

#[derive(Debug)]
struct Hold {
    /// Passed when the copy is done; `None` if it could not be recorded yet.
    event: Option<EventHandle>,
    held: Held,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds something until the stream has passed the work queued so far.
    pub(crate) fn hold(&self, api: &Api, stream: StreamRef, held: Held) -> Result<()> {
        let mut state = self.lock();
        // Held even if no event can be recorded: the copy is on its way. A later sweep records one.
        let recorded = state.record(api, stream);
        let event = recorded.as_ref().ok().copied();
        state.queues.entry(stream).or_default().push_back(Hold { event, held });
        recorded.map(|_| ())
    }

    /// Lets go of what the streams have passed.
    pub(crate) fn sweep(&self, api: &Api) {
        let mut state = self.lock();
        let mut done = Vec::new();
        for stream in state.queues.keys().copied().collect::<Vec<_>>() {
            while let Some(held) = state.pop_if_passed(api, stream) {
                done.push(held);
            }
        }
        state.queues.retain(|_, queue| !queue.is_empty());
        drop(state);
        // Dropped without the lock: what was held may take other locks when it goes.
        drop(done);
    }

    /// Lets go of everything, at the end of the runtime, when the devices are idle.
    pub(crate) fn dismantle(&self, api: &Api) {
        let state = std::mem::take(&mut *self.lock());
        let holds = state.queues.into_values().flatten();
        let events: Vec<_> = holds.filter_map(|hold| hold.event).collect();
        for event in events.into_iter().chain(state.spare.into_values().flatten()) {
            let _ = api.event_destroy(event);
        }
    }
}

impl HoldState {
    fn record(&mut self, api: &Api, stream: StreamRef) -> Result<EventHandle> {
        let spare = self.spare.entry(stream.device).or_default();
        let event = match spare.pop() {
            Some(event) => event,
            None => api.event_create(stream.device)?,
        };
        if let Err(error) = api.event_record(event, stream) {
            spare.push(event);
            return Err(error);
        }
        Ok(event)
    }

    /// The oldest thing held for a stream, if the stream has passed it. Trouble with the driver counts as not passed.
    fn pop_if_passed(&mut self, api: &Api, stream: StreamRef) -> Option<Held> {
        let event = match self.queues.get(&stream)?.front()?.event {
            Some(event) => event,
            None => {
                let event = self.record(api, stream).ok()?;
                self.queues.get_mut(&stream)?.front_mut()?.event = Some(event);
                event
            }
        };
        if !api.event_query(event).unwrap_or(false) {
            return None;
        }
        self.spare.entry(stream.device).or_default().push(event);
        self.queues.get_mut(&stream)?.pop_front().map(|hold| hold.held)
    }
}

impl Ready {
    /// Keeps something alive for work just queued on a stream: until the stream has passed it or, if the work was
    /// captured (`capture`), as long as the graph.
    pub(crate) fn keep(&self, stream: StreamRef, capture: Option<u64>, held: Held) -> Result<()> {
        if let Some(capture) = capture {
            self.captures.keep(capture, held);
            return Ok(());
        }
        self.sweep();
        self.holds.hold(&self.api, stream, held)
    }
}

impl Runtime {
    /// Pinned host memory of `len` bytes, all zero when it is new and arbitrary when it comes from the cache. Sizes
    /// are rounded up to a power of two inside.
    ///
    /// # Errors
    /// The driver's error, for example that the host has no memory left.
    pub fn pinned(&self, len: usize) -> Result<PinnedBuffer> {
        let ready = self.ready()?;
        let home = Arc::clone(&ready.pinned);
        let block = if len == 0 { None } else { Some(self.pinned_block(ready, len)?) };
        Ok(PinnedBuffer { runtime: self.clone(), memory: Arc::new(PinnedMemory { block, home }), len })
    }

    fn pinned_block(&self, ready: &Ready, len: usize) -> Result<PinnedBlock> {
        let size = len.checked_next_power_of_two().unwrap_or(len);
        ready.sweep();
        if let Some(block) = ready.pinned.take(size) {
            return Ok(block);
        }
        let _relaxed = ready.relaxed()?;
        ready.api.host_alloc(thread::device(self.id()), size)
    }

    /// Gives pinned memory that nobody uses back to the driver; may wait for the devices. Does nothing before the
    /// runtime has started.
    ///
    /// # Errors
    /// The driver's error; what could not be given back stays in the cache.
    pub fn host_empty_cache(&self) -> Result<()> {
        if !self.is_initialized() {
            return Ok(());
        }
        let ready = self.ready()?;
        ready.sweep();
        let _relaxed = ready.relaxed()?;
        ready.pinned.empty(&ready.api, thread::device(self.id()))
    }
}
