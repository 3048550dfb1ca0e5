//! Device buffers and copies.
//!
//! **Invariants:** a copy stays inside its buffers (checked before anything is called). Buffers used on a stream other
//! than their own are recorded on it, so that dropping them is safe while the copy runs. Asynchronous copies take
//! pinned memory only, and that memory is not reused until they are done. Plain slices are copied before the call
//! returns.

mod borrowed;
mod typed;

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

pub use borrowed::construct_storage_from_data_pointer;
pub use typed::DeviceSlice;

use crate::api::arg::{DeviceArg, StreamArg};
use crate::api::event::Event;
use crate::api::ipc::{Received, SharedBuffer};
use crate::api::mem_pool::MemPool;
use crate::api::pinned::PinnedBuffer;
use crate::api::stream::Stream;
use crate::base::device::{Device, DeviceIndex};
use crate::base::error::StreamError;
use crate::base::error::{Error, GraphError, Result};
use crate::base::handles::StreamRef;
use crate::base::host_memory;
use crate::base::process;
use crate::driver::{check_part, check_range};
use crate::runtime::{Runtime, Started, WeakRuntime};
use crate::state::captures::{Capture, KeptId, Told};
use crate::thread::pending::PuttingOff;

/// Device memory from the caching allocator.
///
/// This is a handle: clones refer to the same memory. The memory goes back to the allocator when the last clone is
/// dropped. That never blocks, and the allocator does not reuse the memory before the streams that used it have
/// finished the work queued until then. New memory is not cleared: it holds what it held before.
#[derive(Clone)]
pub struct DeviceBuffer {
    runtime: Runtime,
    memory: Arc<DeviceMemory>,
}

/// An allocation that is freed when this is dropped, or memory of another process.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    address: u64,
    len: usize,
    stream: StreamRef,
    home: WeakRuntime,
    received: Option<Arc<Received>>,
    freed_by: FreedBy,
    told: Told,
}

/// Largest number of bytes of host memory that are copied under a lock at once.
const PART: usize = 16 << 20;

/// Who gives memory back.
#[derive(Debug)]
enum FreedBy {
    /// The handles of the buffer, with the last of them.
    Us,
    /// Somebody else.
    Others,
    /// Another buffer of this pool, or the pool when it is brought back to a checkpoint. The handle keeps the pool.
    Pool { _keeps: MemPool },
}

impl DeviceMemory {
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn device(&self) -> DeviceIndex {
        self.stream.device
    }

    /// What another process has sent it as, where it is received.
    pub(crate) fn received(&self) -> Option<&Arc<Received>> {
        self.received.as_ref()
    }

    /// Whether somebody else frees it.
    fn is_borrowed(&self) -> bool {
        !matches!(self.freed_by, FreedBy::Us)
    }

    /// Whether another buffer of its pool frees it.
    fn is_lent(&self) -> bool {
        matches!(self.freed_by, FreedBy::Pool { .. })
    }

    /// Whether it is somebody else's, perhaps another process's.
    pub(crate) fn is_received(&self) -> bool {
        self.received.is_some() || self.is_borrowed()
    }
}

impl DeviceMemory {
    pub(crate) fn bytes(&self) -> u64 {
        self.len as u64
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.address == 0 || self.is_borrowed() || process::in_bad_fork() {
            return;
        }
        if let Some(received) = self.received.take() {
            // Without a runtime no work is under way.
            let _ = Runtime::upgrade(&self.home).map(|runtime| runtime.ready().map(|ready| received.discard(ready)));
            return;
        }
        // Without the runtime the memory is gone already. After an error the allocator keeps the block and tries to
        // free it again later.
        let _ = Runtime::upgrade(&self.home).map(|runtime| runtime.memory().free_of_buffer(self.address));
    }
}

/// A buffer that keeps its memory, but not its runtime alive; made by [`DeviceBuffer::detach`].
///
/// What a runtime keeps for a crate above ([`Runtime::extension`]) cannot hold a [`DeviceBuffer`], which holds the
/// runtime.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// let buffer = c10_core::DeviceBuffer::new(512, None)?;
/// let detached = buffer.detach();
/// assert_eq!((detached.address(), detached.len()), (buffer.address(), 512));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DetachedBuffer(Arc<DeviceMemory>);

impl DetachedBuffer {
    /// The address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }
}

impl DeviceBuffer {
    /// The memory without its runtime.
    #[must_use]
    pub fn detach(&self) -> DetachedBuffer {
        DetachedBuffer(Arc::clone(&self.memory))
    }

    /// Allocates `len` bytes of device memory on the current runtime, for use on the current stream of `device`. The
    /// memory is not cleared. [`crate::Memory::buffer`] takes another stream, [`crate::DeviceSlice`] has elements
    /// instead of bytes.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::DeviceBuffer;
    ///
    /// let buffer = DeviceBuffer::new(1 << 20, None)?;
    /// buffer.fill(.., 7, None)?;
    /// assert!(buffer.to_vec()?.iter().all(|&byte| byte == 7));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The device does not exist, not enough memory, or the driver's error.
    pub fn new(len: usize, device: impl DeviceArg) -> Result<Self> {
        let device = device.index()?;
        Runtime::with_current(|runtime| {
            let device = device.resolve(runtime)?;
            runtime.memory().buffer_on_current_stream(len, device)
        })
    }

    /// Memory that another process has shared ([`Self::share`]), on the current runtime; see [`crate::Ipc::open`].
    ///
    /// # Errors
    /// As for [`crate::Ipc::open`].
    #[doc(alias = "_new_shared_cuda")]
    pub fn open_shared(shared: &SharedBuffer) -> Result<Self> {
        Runtime::with_current(|runtime| runtime.ipc().open(shared))
    }

    /// Makes the buffer that owns an allocation; `received` is set where the memory came from another process.
    pub(crate) fn of(
        runtime: &Runtime,
        address: u64,
        len: usize,
        stream: StreamRef,
        received: Option<Arc<Received>>,
    ) -> Self {
        let told = Told::default();
        let (home, freed_by) = (runtime.downgrade(), FreedBy::Us);
        let memory = DeviceMemory { address, len, stream, home, received, freed_by, told };
        Self { runtime: runtime.clone(), memory: Arc::new(memory) }
    }

    /// One more handle of memory.
    pub(crate) fn one_more(runtime: &Runtime, memory: Arc<DeviceMemory>) -> Self {
        Self { runtime: runtime.clone(), memory }
    }

    /// What the handle refers to.
    pub(crate) fn memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }

    /// Bytes of the buffer.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Whether the buffer has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.len == 0
    }

    /// Address of the first byte on the device (`CUdeviceptr`), as a number.
    #[must_use]
    #[inline]
    pub fn address(&self) -> u64 {
        self.memory.address
    }

    /// The buffer's device.
    #[must_use]
    #[inline]
    pub fn device(&self) -> Device {
        Device::cuda(self.device_index())
    }

    /// Number of the buffer's device.
    #[must_use]
    #[inline]
    pub fn device_index(&self) -> DeviceIndex {
        self.memory.stream.device
    }

    /// Notes that the buffer is used on another stream in a way that this crate does not see, for example by another
    /// library. Makes no driver call.
    ///
    /// # Errors
    /// The stream belongs to another runtime.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        if let Some(received) = &self.memory.received {
            self.runtime.check_same(stream.runtime(), "stream")?;
            received.use_on(stream.reference());
            return Ok(());
        }
        if self.memory.is_lent() {
            return self.runtime.check_same(stream.runtime(), "stream");
        }
        self.runtime.memory().record_stream(self.memory.address, stream)
    }

    /// Describes the memory for another process; torch's `_share_cuda_`. The other process opens it with
    /// [`crate::Ipc::open`]. This process keeps the memory until the other one has dropped it
    /// ([`crate::Ipc::collect`]). Work that is queued on the current stream of the buffer's device now runs before the
    /// work of the other process. With 1000 sharings in use, each further one waits here for that stream instead, as in torch.
    /// Memory in pages (expandable segments, the elastic backend) costs this process an open file for each page of 2 or 20 MiB
    /// as long as it is shared.
    ///
    /// Memory that another process has shared may be shared on, also with the process that it came from; the receiver then
    /// depends on this process only until it has opened the memory.
    ///
    /// # Errors
    /// The memory is in pages that cannot be exported ([`crate::IpcError::ElasticPages`],
    /// [`crate::IpcError::ExpandableSegment`]) or another library's, the current stream captures, the file that
    /// tells who uses the memory cannot be made, or the driver's error.
    pub fn share(&self) -> Result<SharedBuffer> {
        self.runtime.ipc().send(&self.memory)
    }

    /// Copies `from` into the buffer at `offset`, after the work of the current stream of the buffer's device and of
    /// the stream that the buffer was allocated on. The copy is complete when the call returns and is visible to all
    /// streams.
    ///
    /// # Errors
    /// The bytes do not fit, the current stream is capturing, the sync debug mode forbids waiting, or
    /// the driver's error.
    pub fn copy_from_slice(&self, offset: usize, from: &[u8]) -> Result<()> {
        PuttingOff::settle("memory is copied");
        check_range(offset, from.len(), self.len())?;
        if from.is_empty() {
            return Ok(());
        }
        let (ready, stream) = self.for_host_copy()?;
        let _relaxed = ready.relaxed()?;
        let copied = ready.api.copy_from_slice(self.at(offset), from, stream.reference());
        self.runtime.waited(ready, self.device_index(), copied)
    }

    /// Copies `bytes` bytes into the buffer at `offset`, after the work of the current stream of the buffer's device
    /// and of the stream that the buffer was allocated on. `read(place, part)` fills `part` with the bytes from `place`
    /// on. It is called once for each part of at most 16 MiB, after the preceding work on the device is done and while
    /// no wait is in progress. It may therefore take a lock that host functions of the stream take. The copy is
    /// complete when the call returns and is visible to all streams.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// let buffer = c10_core::DeviceBuffer::new(4, None)?;
    /// buffer.copy_from_parts(1, 3, |place, part| part.copy_from_slice(&b"abc"[place..][..part.len()]))?;
    /// assert_eq!(&buffer.to_vec()?[1..], b"abc");
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Self::copy_from_slice`], or there is no memory for a part.
    pub fn copy_from_parts(&self, offset: usize, bytes: usize, mut read: impl FnMut(usize, &mut [u8])) -> Result<()> {
        PuttingOff::settle("memory is copied");
        check_range(offset, bytes, self.len())?;
        if bytes == 0 {
            return Ok(());
        }
        let (ready, stream) = self.for_host_copy()?;
        let _relaxed = ready.relaxed()?;
        let mut room: Vec<u8> = host_memory::zeroed(bytes.min(PART))?;
        let awaited = ready.api.stream_wait_on_host(stream.reference());
        self.runtime.waited(ready, self.device_index(), awaited)?;
        for place in (0..bytes).step_by(PART) {
            let part = &mut room[..(bytes - place).min(PART)];
            read(place, part);
            let copied = ready.api.copy_from_slice(self.at(offset + place), part, stream.reference());
            self.runtime.waited(ready, self.device_index(), copied)?;
        }
        Ok(())
    }

    /// Copies the buffer's bytes from `offset` on into `to`, after the work of the current stream of the buffer's
    /// device and of the stream that the buffer was allocated on. The caller must wait for work of other streams, and
    /// for work of the allocation stream if another library created it. The copy is complete when the call returns.
    ///
    /// # Errors
    /// The buffer ends before `to` is full, the current stream is capturing, the sync debug mode forbids waiting, or
    /// the driver's error.
    pub fn copy_to_slice(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        PuttingOff::settle("values are read");
        check_range(offset, to.len(), self.len())?;
        if to.is_empty() {
            return Ok(());
        }
        let (ready, stream) = self.for_host_copy()?;
        let _relaxed = ready.relaxed()?;
        let copied = ready.api.copy_to_slice(to, self.at(offset), stream.reference());
        self.runtime.waited(ready, self.device_index(), copied)
    }

    /// All bytes; see [`Self::copy_to_slice`].
    ///
    /// # Errors
    /// As for [`Self::copy_to_slice`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = host_memory::zeroed(self.len())?;
        self.copy_to_slice(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Queues a copy of pinned bytes into the buffer at `offset`. Returns before the copy is done. The copy is ordered
    /// on `stream`, or on the current stream of the buffer's device for `None`. The pinned bytes are read when the copy
    /// runs, not now.
    ///
    /// # Errors
    /// The range leaves a buffer, or the driver's error.
    pub fn copy_from_pinned(
        &self,
        offset: usize,
        from: &PinnedBuffer,
        range: impl RangeBounds<usize>,
        stream: impl StreamArg,
    ) -> Result<()> {
        PuttingOff::settle("memory is copied");
        let range = within(&range, from.len());
        stream.with_stream(|stream| self.queue_from_pinned(offset, from, &range, stream))
    }

    fn queue_from_pinned(
        &self,
        offset: usize,
        from: &PinnedBuffer,
        range: &Range<usize>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let bytes = check_part(range, from.len())?;
        check_range(offset, bytes, self.len())?;
        from.check_owner(&self.runtime)?;
        let (Some(memory), true) = (from.memory(), bytes > 0) else { return Ok(()) };
        let (ready, stream, capture) = self.use_on(stream)?;
        from.use_on(ready, stream, capture);
        let queued = ready.api.copy_from_pinned(self.at(offset), memory, range.start, bytes, stream);
        queued.map_err(|error| ready.launches.explain(stream.device, error))
    }

    /// Queues a copy of the buffer's bytes into pinned memory at `offset`. Returns before the copy is done. The copy is
    /// ordered on `stream`, or on the current stream of the buffer's device for `None`.
    ///
    /// # Errors
    /// The range leaves a buffer, or the driver's error.
    pub fn copy_to_pinned(
        &self,
        range: impl RangeBounds<usize>,
        to: &PinnedBuffer,
        offset: usize,
        stream: impl StreamArg,
    ) -> Result<()> {
        PuttingOff::settle("values are read");
        let range = within(&range, self.len());
        stream.with_stream(|stream| self.queue_to_pinned(&range, to, offset, stream))
    }

    fn queue_to_pinned(
        &self,
        range: &Range<usize>,
        to: &PinnedBuffer,
        offset: usize,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let bytes = check_part(range, self.len())?;
        check_range(offset, bytes, to.len())?;
        to.check_owner(&self.runtime)?;
        let (Some(memory), true) = (to.memory(), bytes > 0) else { return Ok(()) };
        let (ready, stream, capture) = self.use_on(stream)?;
        to.use_on(ready, stream, capture);
        let queued = ready.api.copy_to_pinned(memory, offset, self.at(range.start), bytes, stream);
        queued.map_err(|error| ready.launches.explain(stream.device, error))
    }

    /// Queues a copy of another buffer's bytes, of this device or another, into this one at `offset`. Returns before
    /// the copy is done. The copy is ordered on `stream`, or on the current stream of this buffer's device for `None`.
    ///
    /// As in torch, a copy between two devices also waits for the work queued on the current streams of both devices,
    /// and work queued there afterwards waits for the copy, whichever stream queues it. During a capture this holds for
    /// those of the three streams that take part in the same capture as `stream`: a graph cannot wait for others.
    ///
    /// # Errors
    /// The range leaves a buffer, or the driver's error.
    pub fn copy_from_buffer(
        &self,
        offset: usize,
        from: &Self,
        range: impl RangeBounds<usize>,
        stream: impl StreamArg,
    ) -> Result<()> {
        PuttingOff::settle("memory is copied");
        let range = within(&range, from.len());
        stream.with_stream(|stream| self.queue_from_buffer(offset, from, &range, stream))
    }

    fn queue_from_buffer(
        &self,
        offset: usize,
        from: &Self,
        range: &Range<usize>,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let bytes = check_part(range, from.len())?;
        check_range(offset, bytes, self.len())?;
        self.runtime.check_same(&from.runtime, "buffer")?;
        if bytes == 0 {
            return Ok(());
        }
        let (ready, named, capture) = self.use_on(stream)?;
        from.use_in(ready, named, capture)?;
        let copy = || {
            let queued = ready.api.copy_on_device(self.at(offset), from.at(range.start), bytes, named);
            queued.map_err(|error| ready.launches.explain(named.device, error))
        };
        if from.device_index() == self.device_index() {
            return copy();
        }
        ready.let_reach_each_other(self.device_index(), from.device_index())?;
        let current;
        let stream = match stream {
            Some(stream) => stream,
            None => {
                current = self.runtime.streams().current(self.device_index())?;
                &current
            }
        };
        let around = self.streams_around_copy(ready, from, stream, capture)?;
        around.iter().try_for_each(|other| stream.wait_stream(other))?;
        copy()?;
        let done = stream.record_event()?;
        around.iter().try_for_each(|other| other.wait_event(&done))
    }

    /// As [`Self::copy_from_buffer`], ordered on `stream` alone, whatever the current streams are: the caller orders it with
    /// the other work on both buffers, by events. Copies between the same two devices can go on at once so, and parts of
    /// one buffer one after another through several devices.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
    /// use c10_core::{DeviceBuffer, Runtime, Stream};
    ///
    /// let (from, to) = (DeviceBuffer::new(8, 0)?, DeviceBuffer::new(8, 1)?);
    /// from.fill(.., 7, None)?;
    /// let side = Stream::new(1, 0)?;
    /// side.wait_stream(&Runtime::current().streams().current(0)?)?;
    /// to.copy_from_buffer_on(0, &from, .., &side)?;
    /// Runtime::current().streams().current(1)?.wait_stream(&side)?;
    /// assert_eq!(to.to_vec()?, [7; 8]);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::copy_from_buffer`].
    pub fn copy_from_buffer_on(
        &self,
        offset: usize,
        from: &Self,
        range: impl RangeBounds<usize>,
        stream: &Stream,
    ) -> Result<()> {
        PuttingOff::settle("memory is copied");
        let range = within(&range, from.len());
        let bytes = check_part(&range, from.len())?;
        check_range(offset, bytes, self.len())?;
        self.runtime.check_same(&from.runtime, "buffer")?;
        if bytes == 0 {
            return Ok(());
        }
        let (ready, named, capture) = self.use_on(Some(stream))?;
        from.use_in(ready, named, capture)?;
        if from.device_index() != self.device_index() {
            ready.let_reach_each_other(self.device_index(), from.device_index())?;
        }
        let queued = ready.api.copy_on_device(self.at(offset), from.at(range.start), bytes, named);
        queued.map_err(|error| ready.launches.explain(named.device, error))
    }

    /// Has kernels of `device` reach the buffer's memory, and says whether they do. Launches there take the buffer from
    /// then on. A device reaches its own memory; that of another where the driver gives access (`cuCtxEnablePeerAccess`),
    /// unless it is in mapped pages (expandable segments, the elastic backend), another process's, borrowed, or from an
    /// allocator of the program.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
    /// let buffer = c10_core::DeviceBuffer::new(8, 0)?;
    /// assert!(buffer.let_reach(0.into())? && buffer.let_reach(1.into())?);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The device does not exist, or the driver's error.
    pub fn let_reach(&self, device: DeviceIndex) -> Result<bool> {
        if device == self.device_index() {
            return Ok(true);
        }
        let ready = self.runtime.check_device(device)?;
        Ok(self.may_be_reached(ready) && ready.let_reach(device, self.device_index())?)
    }

    /// Whether kernels of `device` reach the memory, as far as was asked for.
    pub(crate) fn is_reached(&self, ready: &Started, device: DeviceIndex) -> bool {
        device == self.device_index()
            || (ready.peers.is_enabled(device, self.device_index()) && self.may_be_reached(ready))
    }

    /// Whether it is memory to which access between devices extends.
    fn may_be_reached(&self, ready: &Started) -> bool {
        !self.memory.is_received() && !ready.allocator.is_of_program() && !ready.api.is_page(self.memory.address)
    }

    /// The current streams of both devices that a copy between them must be ordered with: those that differ from
    /// `stream` and take part in the same capture as `stream`, or in none if `stream` does not capture.
    fn streams_around_copy(
        &self,
        ready: &Started,
        from: &Self,
        stream: &Stream,
        capture: Option<Capture>,
    ) -> Result<Vec<Stream>> {
        let mut around = Vec::with_capacity(2);
        for device in [from.device_index(), self.device_index()] {
            let current = self.runtime.streams().current(device)?;
            if current != *stream && ready.captures.of(&ready.api, current.reference())? == capture {
                around.push(current);
            }
        }
        Ok(around)
    }

    /// Queues a fill: sets bytes of the buffer to `value`. Returns before the fill is done. The fill is ordered on
    /// `stream`, or on the current stream of the buffer's device for `None`.
    ///
    /// # Errors
    /// The range leaves the buffer; [`crate::StreamError::Device`] for a stream of another device; the driver's error.
    pub fn fill(&self, range: impl RangeBounds<usize>, value: u8, stream: impl StreamArg) -> Result<()> {
        PuttingOff::settle("memory is filled");
        let range = within(&range, self.len());
        stream.with_stream(|stream| self.queue_fill(&range, value, stream))
    }

    fn queue_fill(&self, range: &Range<usize>, value: u8, stream: Option<&Stream>) -> Result<()> {
        let bytes = check_part(range, self.len())?;
        let to = self.at(range.start);
        match bytes {
            0 => Ok(()),
            _ => self.queue_set(stream, |ready, stream| ready.api.set_bytes(to, value, bytes, stream)),
        }
    }

    /// Queues work that sets bytes of the buffer, on a stream of its device.
    pub(crate) fn queue_set(
        &self,
        stream: Option<&Stream>,
        set: impl FnOnce(&Started, StreamRef) -> Result<()>,
    ) -> Result<()> {
        if let Some(stream) = stream.filter(|stream| stream.device_index() != self.device_index()) {
            return Err(Error::Stream(StreamError::Device {
                device: self.device_index(),
                stream: stream.device_index(),
            }));
        }
        let (ready, stream, _) = self.use_on(stream)?;
        set(ready, stream).map_err(|error| ready.launches.explain(stream.device, error))
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn at(&self, offset: usize) -> u64 {
        self.memory.address + offset as u64
    }

    /// Makes sure that the buffer outlives work about to be queued on a stream, `None` for the current one of its
    /// device. Returns the stream, and the capture that the work belongs to.
    #[inline]
    pub(crate) fn use_on(&self, stream: Option<&Stream>) -> Result<(&Started, StreamRef, Option<Capture>)> {
        let stream = match stream {
            Some(stream) => {
                self.runtime.check_same(stream.runtime(), "stream")?;
                stream.reference()
            }
            None => self.runtime.streams().current_ref(self.device_index()),
        };
        let ready = self.runtime.ready()?;
        let capture = ready.captures.of(&ready.api, stream)?;
        self.use_in(ready, stream, capture)?;
        Ok((ready, stream, capture))
    }

    /// As [`Self::use_on`], for a stream of the buffer's runtime whose capture is known.
    #[inline]
    pub(crate) fn use_in(&self, ready: &Started, stream: StreamRef, capture: Option<Capture>) -> Result<()> {
        if let Some(received) = &self.memory.received {
            received.use_on(stream);
        } else if stream != self.memory.stream && !self.memory.is_lent() {
            let noted = ready.allocator.record_stream(self.memory.address, stream);
            // The allocator does not know memory that comes from elsewhere.
            if !self.memory.is_borrowed() {
                noted?;
            }
        }
        if let Some(capture) = capture {
            self.memory.told.once(capture, || self.keep_in(ready, capture));
        }
        Ok(())
    }

    /// A graph keeps the memory of its own pool by itself. Any other memory that it reads or writes is kept alive here
    /// until the graph is gone.
    #[cold]
    fn keep_in(&self, ready: &Started, capture: Capture) {
        if capture.must_keep(ready.allocator.owner(self.memory.address)) {
            ready.captures.keep(capture.id, KeptId::of(&self.memory), || self.memory.clone());
        }
    }

    /// Returns the stream that copies of pageable host memory are queued on, ordered after the stream that the buffer
    /// was allocated on.
    fn for_host_copy(&self) -> Result<(&Started, Stream)> {
        let ready = self.runtime.ready()?;
        let stream = self.runtime.streams().current(self.device_index())?;
        if ready.captures.of(&ready.api, stream.reference())?.is_some() {
            return Err(Error::Graph(GraphError::UnpinnedCopy));
        }
        self.runtime.sync_debug_state().police()?;
        if stream.reference() != self.memory.stream {
            self.follow_own_stream(ready, stream.reference())?;
        }
        Ok((ready, stream))
    }

    /// Orders later work of `stream` after the current work of the stream that the buffer was allocated on. Does
    /// nothing if that stream is capturing, since captured work does not run, or if another library created it, since
    /// it may be gone.
    #[cold]
    fn follow_own_stream(&self, ready: &Started, stream: StreamRef) -> Result<()> {
        let own = self.memory.stream;
        let is_alive = own.device == stream.device && ready.streams.of(own.device)?.owns(own.handle);
        if self.memory.is_received() || !is_alive || ready.captures.of(&ready.api, own)?.is_some() {
            return Ok(());
        }
        Event::order(&self.runtime, own, stream)
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer {{ {} bytes at {:#x} on {} }}", self.len(), self.address(), self.device())
    }
}

/// The bytes that a range of any kind names in a buffer of `len` bytes; [`check_part`] says whether it has them.
pub(crate) fn within(range: &impl RangeBounds<usize>, len: usize) -> Range<usize> {
    // `usize::MAX` names bytes that no buffer has.
    let after = |bound: usize| bound.saturating_add(1);
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => after(before),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => after(last),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len.max(start),
    };
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_every_kind() {
        assert_eq!(within(&(..), 8), 0..8);
        assert_eq!(within(&(2..), 8), 2..8);
        assert_eq!(within(&(..3), 8), 0..3);
        assert_eq!(within(&(2..=3), 8), 2..4);
        assert_eq!(within(&(Bound::Excluded(2), Bound::Unbounded), 8), 3..8);
        assert!(check_part(&within(&(..=usize::MAX), 8), 8).is_err());
    }

    #[test]
    fn a_range_that_begins_behind_the_buffer_is_refused() {
        assert_eq!(within(&(9..), 8), 9..9);
        assert!(check_part(&within(&(9..), 8), 8).is_err());
        assert!(check_part(&within(&(8..), 8), 8).is_ok());
    }
}
