//! Pinned host memory: the buffers that users have.
//!
//! **Invariants:** an asynchronous copy notes its stream on the block before it is queued, or, if it is captured, makes
//! the graph an owner of the block. Dropping a buffer waits for nothing.

mod cursor;
mod slices;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use cursor::PinnedCursor;

use crate::api::stream::Stream;
use crate::base::error::{Error, Result};
use crate::base::handles::StreamRef;
use crate::base::host_memory;
use crate::base::ids::RuntimeId;
use crate::base::process;
use crate::base::stat::NestedStat;
use crate::driver::{HostMemory, Relaxed, check_range};
use crate::pinned::Block;
use crate::pinned::BlockId;
use crate::pinned::HostMemorySource;
use crate::pinned::HostStats;
use crate::runtime::Home;
use crate::runtime::{Runtime, Started};
use crate::state::captures::{Capture, KeptId, Told};
use crate::state::holds::Held;
use crate::thread;
use crate::thread::pending::PuttingOff;
use crate::trace::{MemoryUse, TraceEvent, TraceKind};

/// Page-locked (pinned) host memory, which the device can read and write while the host does other things.
///
/// This is a handle: clones refer to the same memory. The host reads and writes copies of bytes ([`Self::read`],
/// [`Self::write`], [`Self::cursor`]) or, with the only handle, the bytes in place ([`Self::as_slice`],
/// [`Self::as_mut_slice`]); if the device writes the same bytes meanwhile, the host reads a mixture of old and new.
/// Events or synchronisation order host and device. When the last handle is dropped, the memory goes to a cache, which
/// reuses it when the streams that used it have finished the work queued until then.
///
/// The memory lives as long as its handles, even if every handle of the runtime is dropped before.
pub struct PinnedBuffer {
    home: &'static Home,
    owner: RuntimeId,
    /// The memory, of which this handle is one owner; none for no bytes.
    block: Option<(BlockId, &'static Block)>,
    len: usize,
    told: Told,
}

impl PinnedBuffer {
    /// Allocates pinned memory of `len` bytes on the current runtime; see [`PinnedMemory::buffer`].
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::PinnedBuffer;
    ///
    /// let buffer = PinnedBuffer::new(4)?;
    /// buffer.write(0, b"abcd")?;
    /// assert_eq!(buffer.to_vec()?, b"abcd");
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`PinnedMemory::buffer`].
    #[inline]
    pub fn new(len: usize) -> Result<Self> {
        Runtime::with_current(|runtime| runtime.pinned().buffer(len))
    }

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
        self.memory().map_or(0, |memory| memory.address())
    }

    /// Copies `from` into the buffer at `offset`.
    ///
    /// # Errors
    /// The bytes do not fit.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        check_range(offset, from.len(), self.len)?;
        let Some(memory) = self.memory() else { return Ok(()) };
        memory.write(offset, from)?;
        self.report_host_access(offset, from.len(), true)
    }

    /// Copies the buffer's bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// The buffer ends before `to` is full.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        check_range(offset, to.len(), self.len)?;
        let Some(memory) = self.memory() else { return Ok(()) };
        memory.read(offset, to)?;
        self.report_host_access(offset, to.len(), false)
    }

    /// All bytes.
    ///
    /// # Errors
    /// [`crate::MemoryError::HostAllocation`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = host_memory::zeroed(self.len)?;
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Notes that the buffer is used on a stream in a way that this crate does not see, for example by another library,
    /// so that its memory is not reused before the stream has finished the work that is queued when the buffer is
    /// dropped. While the stream captures, the graph keeps the memory instead. Queues no work.
    ///
    /// # Errors
    /// The stream belongs to another runtime, or the driver cannot tell whether it captures.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        if stream.runtime().id() != self.owner {
            return Err(Error::OtherRuntime { what: "stream" });
        }
        let ready = stream.ready()?;
        let capture = ready.captures.of(&ready.api, stream.reference())?;
        self.use_on(ready, stream.reference(), capture);
        Ok(())
    }

    /// Reports that the host has read or written bytes, and returns what a subscriber refuses of it.
    #[inline]
    fn report_host_access(&self, offset: usize, bytes: usize, is_write: bool) -> Result<()> {
        if self.home.is_heard() { self.tell_host_access(offset, bytes, is_write) } else { Ok(()) }
    }

    #[cold]
    fn tell_host_access(&self, offset: usize, bytes: usize, is_write: bool) -> Result<()> {
        let Some(runtime) = self.home.runtime() else { return Ok(()) };
        let (address, operation) = ((self.address() + offset) as u64, if is_write { "write" } else { "read" });
        let used =
            MemoryUse { address, size: bytes as u64, argument: "self", is_write, is_output: false, is_on_host: true };
        runtime.trace().report_accesses(None, operation, || [used])
    }

    /// Refuses use by another runtime.
    pub(crate) fn check_owner(&self, runtime: &Runtime) -> Result<()> {
        if runtime.id() == self.owner { Ok(()) } else { Err(Error::OtherRuntime { what: "pinned buffer" }) }
    }

    /// The buffer's memory; `None` when it has no bytes.
    pub(crate) fn memory(&self) -> Option<HostMemory<'_>> {
        Some(self.home.cache.memory(self.block?.0, self.len))
    }

    /// Makes sure that the memory outlives work about to be queued on a stream or, if that is captured (`capture`),
    /// the graph.
    pub(crate) fn use_on(&self, ready: &Started, stream: StreamRef, capture: Option<Capture>) {
        let Some(block) = self.block else { return };
        match capture {
            Some(capture) => self.told.once(capture, || {
                let keep = || -> Held { Arc::new(KeptBlock::new(self.home, block)) };
                ready.captures.keep(capture.id, KeptId::at(block.1), keep);
            }),
            None => self.home.cache.record_stream(block.0, stream),
        }
    }
}

impl Clone for PinnedBuffer {
    fn clone(&self) -> Self {
        self.block.into_iter().for_each(|(id, _)| self.home.cache.share(id));
        Self { home: self.home, owner: self.owner, block: self.block, len: self.len, told: Told::default() }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if let (Some(block), false) = (self.block, process::in_bad_fork()) {
            self.home.release(block);
        }
    }
}

impl fmt::Debug for PinnedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer {{ {} bytes at {:#x} }}", self.len, self.address())
    }
}

/// An owner of a block that makes no driver call when it is dropped, for graphs.
#[derive(Debug)]
pub(crate) struct KeptBlock {
    home: &'static Home,
    block: (BlockId, &'static Block),
}

impl KeptBlock {
    /// One more owner of a block that the caller owns.
    fn new(home: &'static Home, block: (BlockId, &'static Block)) -> Self {
        home.cache.share(block.0);
        Self { home, block }
    }

    /// The block's address and bytes.
    pub(crate) fn place(&self) -> (usize, usize) {
        let memory = self.block.1.memory();
        (memory.address, memory.class.bytes())
    }
}

impl Drop for KeptBlock {
    fn drop(&mut self) {
        if !process::in_bad_fork() {
            self.home.release_silently(self.block);
        }
    }
}

/// The pinned host memory of a runtime; made by [`Runtime::pinned`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::Runtime;
///
/// let runtime = Runtime::current();
/// let buffer = runtime.pinned().buffer(1000)?;
/// drop(buffer);
/// let stats = runtime.pinned().stats();
/// assert_eq!((stats.active_bytes.current, stats.allocated_bytes.current), (0, 1024), "cached for the next buffer");
/// runtime.pinned().empty_cache()?;
/// assert_eq!(runtime.pinned().stats().allocated_bytes.current, 0);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PinnedMemory<'a>(&'a Runtime);

impl Runtime {
    /// Pinned host memory.
    #[must_use]
    #[inline]
    pub fn pinned(&self) -> PinnedMemory<'_> {
        PinnedMemory(self)
    }
}

impl PinnedMemory<'_> {
    /// Allocates `len` bytes of pinned host memory. New memory is all zero; memory from the cache holds anything. The
    /// allocator rounds sizes up to a power of two.
    ///
    /// # Errors
    /// [`crate::MemoryError::HostOutOfMemory`] where the driver or the system has no memory to pin, and for more than
    /// 2^60 bytes; the driver's error.
    pub fn buffer(self, len: usize) -> Result<PinnedBuffer> {
        let ready = self.0.ready()?;
        let device = || ready.host_device(thread::device(self.0.id()));
        let block = if len == 0 { None } else { Some(ready.pinned.cache.alloc(&ready.api, device, len)?) };
        let buffer = PinnedBuffer { home: ready.pinned, owner: self.0.id(), block, len, told: Told::default() };
        if block.is_some() {
            let (address, requested) = (buffer.address() as u64, len as u64);
            ready.api.trace.report_now(TraceKind::Pinned, || TraceEvent::PinnedAllocated { address, requested });
        }
        Ok(buffer)
    }

    /// Takes memory from a source of the program from now on, which the driver then pins (`cuMemHostRegister`); from the
    /// driver again for `None`. The cache stays as it is: what came from elsewhere goes back there. Starts the runtime.
    ///
    /// # Errors
    /// The runtime cannot start.
    pub fn set_source(self, source: Option<Arc<dyn HostMemorySource>>) -> Result<()> {
        self.0.ready()?.pinned.cache.set_source(source);
        Ok(())
    }

    /// Gives unused pinned memory back to the driver; may wait for the devices. Memory that a graph or a capture under
    /// way uses is kept, and captures go on. Does nothing before the runtime has started. Torch's
    /// `torch._C._host_emptyCache`.
    ///
    /// # Errors
    /// The driver's error; what could not be given back stays in the cache.
    pub fn empty_cache(self) -> Result<()> {
        if !self.0.is_initialized() {
            return Ok(());
        }
        let ready = self.0.ready()?;
        // Also for captures that others have begun, which are not known.
        let _relaxed = Relaxed::new(&ready.api, true)?;
        ready.sweep();
        ready.pinned.cache.empty(&ready.api)
    }

    /// Notes that the pinned memory at an address is used on a stream, like [`PinnedBuffer::record_stream`]; while the
    /// stream is capturing, the graph and its pool keep the memory alive. Returns `false` if no pinned memory in use
    /// contains the address. Queues no work.
    ///
    /// # Errors
    /// The stream belongs to another runtime, or the driver cannot tell whether the stream is capturing.
    pub fn record_stream(self, address: usize, stream: &Stream) -> Result<bool> {
        self.0.check_same(stream.runtime(), "stream")?;
        let Some(ready) = self.0.started() else { return Ok(false) };
        let Some(capture) = ready.captures.of(&ready.api, stream.reference())? else {
            return Ok(ready.pinned.cache.record_address(address, stream.reference()));
        };
        let Some(block) = ready.pinned.cache.share_address(address) else { return Ok(false) };
        let kept: Held = Arc::new(KeptBlock { home: ready.pinned, block });
        ready.captures.keep(capture.id, KeptId::at(block.1), || Arc::clone(&kept));
        Ok(true)
    }

    /// What the allocator of pinned memory has done; torch's `host_memory_stats`. All zero before the runtime has
    /// started.
    #[must_use]
    pub fn stats(self) -> HostStats {
        PuttingOff::settle("the state of memory is asked for");
        self.0.started().map_or_else(HostStats::default, |ready| ready.pinned.cache.stats())
    }

    /// What the allocator of pinned memory has done, in torch's structure; empty before the runtime has started.
    #[must_use]
    pub fn stats_as_nested_dict(self) -> BTreeMap<String, NestedStat> {
        PuttingOff::settle("the state of memory is asked for");
        self.0.started().map_or_else(BTreeMap::new, |ready| ready.pinned.cache.stats().as_nested_dict())
    }

    /// Sets the peaks of the pinned memory's figures to their present values, and the longest and shortest times to 0;
    /// torch's `reset_peak_host_memory_stats`. Does nothing before the runtime has started.
    pub fn reset_peak_stats(self) {
        PuttingOff::settle("the state of memory is changed");
        self.0.started().into_iter().for_each(|ready| ready.pinned.cache.reset_peak_stats());
    }

    /// Sets the sums of increases and decreases of the pinned memory's figures, its counts and its total times to zero;
    /// torch's `reset_accumulated_host_memory_stats`. Does nothing before the runtime has started.
    pub fn reset_accumulated_stats(self) {
        PuttingOff::settle("the state of memory is changed");
        self.0.started().into_iter().for_each(|ready| ready.pinned.cache.reset_accumulated_stats());
    }
}
