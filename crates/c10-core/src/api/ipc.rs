//! Device memory that several processes use.
//!
//! The sender makes a [`SharedBuffer`], a few hundred bytes that the program passes to the other process, for example
//! through a pipe. The other process opens it as a buffer. Work that the sender had queued on its current stream is
//! done before the receiver's current stream goes on. The driver shares whole allocations of its own, so the handle is
//! that of the segment, and the buffer's place in the segment is sent beside it. Memory in pages, those of expandable segments
//! and of the elastic backend, is shared page by page: the receiver takes over a file descriptor of each from the sender's
//! process, or asks for it on the sender's socket, and maps those that the buffer lies in.
//!
//! **Invariants:** the sender keeps the memory until a receiver has opened it and all receivers have dropped it or ended,
//! even where the sender's own buffers are dropped before. The sender looks whether that is so when it is asked to
//! ([`crate::Ipc::collect`]), when it shares more, when a request finds nothing cached, before the driver is asked for more
//! memory, and when it runs out of memory. A segment is mapped once for a process
//! and device, as long as a buffer of it is there, and memory that comes twice is the same buffer. Dropping a received buffer
//! never blocks: when the streams that used it have passed the work queued until then, its mapping is closed, and after that
//! the sender can see it.

mod handle;
mod received;

use std::any::Any;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub use handle::SharedBuffer;
pub(crate) use received::Received;

use crate::api::buffers::{DeviceBuffer, DeviceMemory};
use crate::base::device::DeviceIndex;
use crate::base::error::{Error, IpcError, Result};
use crate::base::handles::{EventHandle, StreamRef};
use crate::driver::{Driver, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, IpcHandle, ProcessName, take_descriptors};
use crate::runtime::{Runtime, Started};
use crate::state::deferred_destroy::DriverObject;
use crate::state::ipc::{ReceiverLock, Sent, SlotName, fetch_descriptors, is_own};
use handle::{Place, Source};
use received::{Mapped, Mapping};

/// What a runtime shares with other processes; made by [`Runtime::ipc`].
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// use c10_core::{DeviceBuffer, Runtime};
///
/// let runtime = Runtime::current();
/// let shared = DeviceBuffer::new(1000, None)?.share()?;
/// assert_eq!(runtime.memory().stats(0)?["allocated_bytes.all.current"], 1024, "kept for the other process");
/// let back = runtime.ipc().open(&shared)?; // The process that has shared it gets the same memory.
/// drop(back);
/// runtime.ipc().collect()?;
/// assert_eq!(runtime.memory().stats(0)?["allocated_bytes.all.current"], 0);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ipc<'a>(&'a Runtime);

impl Runtime {
    /// Memory that several processes use.
    #[must_use]
    #[inline]
    pub fn ipc(&self) -> Ipc<'_> {
        Ipc(self)
    }
}

impl Ipc<'_> {
    /// Describes memory for another process, and keeps it until that process has dropped it.
    pub(crate) fn send(self, memory: &Arc<DeviceMemory>) -> Result<SharedBuffer> {
        let ready = self.0.ready()?;
        let (device, len) = (memory.device(), memory.len() as u64);
        ready.ipc.sendings.collect_sometimes(&ready.api, &ready.deferred);
        let before = memory.received().and_then(|received| received.place());
        if memory.is_received() && before.is_none() {
            return Err(Error::Ipc(IpcError::SharedTwice));
        }
        if len == 0 {
            return Ok(SharedBuffer { device, len, place: None });
        }
        let _relaxed = ready.relaxed()?;
        let stream = self.stream_for_sharing(ready, device)?;
        let kept: Arc<dyn Any + Send + Sync> = memory.clone();
        let (mut place, descriptors) = match before {
            Some(before) => (before.clone(), Arc::default()),
            None => describe(ready, memory, &kept)?,
        };
        let slot = ready.ipc.sendings.slot()?;
        self.collect_on_misses(ready);
        // The process that has allocated the memory counts receivers first, whoever shares it on.
        place.slots.truncate(1);
        place.slots.push(slot.name());
        let recorded = record(ready, stream)?;
        place.event = recorded.map(|(_, name)| name);
        let event = recorded.map(|(event, _)| event);
        ready.ipc.sendings.add(Sent { slot, event, memory: kept, identity: place.identity, descriptors });
        Ok(SharedBuffer { device, len, place: Some(place) })
    }

    /// Has the allocator free what receivers have let go of, whenever a request finds nothing cached.
    fn collect_on_misses(self, ready: &Started) {
        let home = self.0.downgrade();
        ready.allocator.set_on_miss(move || {
            if let Some(runtime) = Runtime::upgrade(&home)
                && let Some(ready) = runtime.started()
            {
                ready.ipc.sendings.collect_limbo(&ready.api, &ready.deferred);
            }
        });
    }

    /// Opens memory that another process has shared. The current stream of the device waits here for the work that was
    /// queued there. The sender expects one opening; more are allowed as long as the first is open. Memory that this process
    /// has already, because it has shared it itself or has received it before, is the same memory.
    ///
    /// # Errors
    /// [`crate::IpcError::OwnMemory`] where another runtime of this process has shared it; [`crate::IpcError::Released`] where
    /// all receivers, or the sender, have dropped the memory; [`crate::IpcError::Descriptors`] where the memory is in pages
    /// and this process can have no descriptors of them; the device does not exist, the current stream captures,
    /// or the driver's error.
    pub fn open(self, shared: &SharedBuffer) -> Result<DeviceBuffer> {
        let Some(place) = &shared.place else {
            let device = shared.device;
            let ready = self.0.check_device(device)?;
            self.stream_for_sharing(ready, device)?;
            return self.0.memory().buffer(0, &self.0.streams().current(device)?);
        };
        let device = device_here(self.0.ready()?, shared.device, place)?;
        let ready = self.0.check_device(device)?;
        let stream = self.stream_for_sharing(ready, device)?;
        let _relaxed = ready.relaxed()?;
        if let Some(own) = own_memory(ready, stream, place)? {
            return self.one_more(own, shared.len);
        }
        let mut locks = lock_all(&place.slots)?;
        let name = (place.slots[0].path.clone(), place.identity, device);
        if let Some(there) = ready.ipc.received(&name) {
            wait_for(ready, stream, place.event).map_err(|error| why_not_opened(&locks, error))?;
            locks.iter_mut().try_for_each(ReceiverLock::confirm)?;
            let buffer = self.one_more(there, shared.len)?;
            buffer.memory().received().into_iter().for_each(|received| received.use_on(stream));
            let_go_behind(ready, stream, locks);
            return Ok(buffer);
        }
        let mapped = self.map_shared(ready, stream, place, shared.len);
        let (mapping, address) = mapped.map_err(|error| why_not_opened(&locks, error))?;
        locks.iter_mut().try_for_each(ReceiverLock::confirm)?;
        let received = Received::of_process(Box::new((mapping, locks)), place.clone());
        // The sender's event must stay until the stream has passed it.
        received.use_on(stream);
        let buffer = DeviceBuffer::of(self.0, address, shared.len(), stream, Some(Arc::new(received)));
        let memory: Arc<dyn Any + Send + Sync> = buffer.memory().clone();
        ready.ipc.add_received(name, &memory);
        Ok(buffer)
    }

    /// A buffer of memory that is here already.
    fn one_more(self, memory: Arc<dyn Any + Send + Sync>, len: u64) -> Result<DeviceBuffer> {
        match memory.downcast::<DeviceMemory>() {
            Ok(memory) if memory.bytes() == len => Ok(DeviceBuffer::one_more(self.0, memory)),
            _ => Err(Error::Ipc(IpcError::InvalidBytes)),
        }
    }

    /// Maps the memory and makes the stream wait for the sender's work. Returns the mapping, and the address of the memory.
    fn map_shared(self, ready: &Started, stream: StreamRef, place: &Place, len: u64) -> Result<(Mapping, u64)> {
        let device = stream.device;
        let (base, mapped) = match &place.source {
            Source::Segment(segment) => (ready.ipc.open(&ready.api, device, *segment)?, Mapped::Segment(*segment)),
            Source::Pages { process, descriptors, page } => {
                let taken = pages_of(process, descriptors, &place.slots[0])?;
                let base = ready.ipc.open_pages(&ready.api, &ready.deferred, device, *page, taken)?;
                (base, Mapped::Pages(base))
            }
        };
        let is_segment = matches!(mapped, Mapped::Segment(_));
        let mapping = Mapping { home: self.0.downgrade(), device, mapped };
        let address = base.checked_add(place.offset).ok_or(Error::Ipc(IpcError::InvalidBytes))?;
        // Bytes from another process may be wrong. Where the driver does not tell the size of the memory, they are
        // trusted. There are as many pages as the memory needs, and they were mapped.
        if is_segment
            && let Ok((start, size)) = ready.api.address_range(device, base)
            && address.checked_add(len).is_none_or(|end| end > start.saturating_add(size))
        {
            return Err(Error::Ipc(IpcError::InvalidBytes));
        }
        wait_for(ready, stream, place.event).map(|()| (mapping, address))
    }

    /// The current stream of a device, which must not capture: other processes wait for what is queued now.
    fn stream_for_sharing(self, ready: &Started, device: DeviceIndex) -> Result<StreamRef> {
        let stream = self.0.streams().current(device)?.reference();
        match ready.api.stream_capture_id(stream)? {
            None => Ok(stream),
            Some(_) => Err(Error::Ipc(IpcError::DuringCapture)),
        }
    }

    /// Says that shared memory will not be opened: by the process that was to receive it, or by the sender, for example
    /// because the receiver has ended before it has read the description; torch's `_release_ipc_counter`. The sender then
    /// keeps the memory only for receivers that have opened it.
    ///
    /// ```
    /// # let simulated = testkit::simulated_runtime();
    /// use c10_core::{DeviceBuffer, Runtime};
    ///
    /// let runtime = Runtime::current();
    /// let shared = DeviceBuffer::new(1000, None)?.share()?;
    /// runtime.ipc().release(&shared)?;
    /// runtime.ipc().collect()?;
    /// assert_eq!(runtime.memory().stats(0)?["allocated_bytes.all.current"], 0);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::IpcError::Released`] where the sender does not keep the memory any more; the runtime cannot start; the file
    /// that tells who uses the memory cannot be written.
    #[doc(alias = "_release_ipc_counter")]
    pub fn release(self, shared: &SharedBuffer) -> Result<()> {
        let ready = self.0.ready()?;
        let Some(slot) = shared.place.as_ref().and_then(|place| place.slots.last()) else { return Ok(()) };
        if is_own(&slot.path) {
            let is_known = ready.ipc.sendings.withdraw(slot)?;
            return if is_known { Ok(()) } else { Err(Error::Ipc(IpcError::Released)) };
        }
        ReceiverLock::new(slot)?.confirm()
    }

    /// Frees shared memory that no other process uses any more; torch's `ipc_collect`. A receiver that has ended
    /// without dropping the memory, for example because it was killed, does not use it any more. Sharing does this too,
    /// with many sharings in use now and then, and so does a request for memory that finds nothing cached. Where nothing is shared any more, the file that counts receivers is closed.
    ///
    /// # Errors
    /// The runtime cannot start.
    pub fn collect(self) -> Result<()> {
        let ready = self.0.ready()?;
        ready.sweep();
        ready.ipc.sendings.collect(&ready.api, &ready.deferred);
        ready.ipc.sendings.close_if_idle();
        Ok(())
    }
}

/// Describes memory of this runtime, but for the event. The same memory is described by the same descriptors.
fn describe(
    ready: &Started,
    memory: &DeviceMemory,
    kept: &Arc<dyn Any + Send + Sync>,
) -> Result<(Place, Arc<Vec<OwnedFd>>)> {
    let (device, address, len) = (memory.device(), memory.address(), memory.bytes());
    let index = usize::try_from(device).unwrap_or(usize::MAX);
    let uuid = ready.uuids()?.get(index).map_or([0; 16], |uuid| uuid.bytes);
    let known = ready.ipc.sendings.known(kept);
    let identity = known.as_ref().map_or_else(|| ready.ipc.sendings.new_identity(), |(identity, _)| *identity);
    let (source, base, descriptors) = export(ready, device, (address, len), known.map(|(_, descriptors)| descriptors))?;
    Ok((Place { source, offset: address - base, uuid, identity, event: None, slots: Vec::new() }, descriptors))
}

/// What a receiver maps for memory, where that begins, and the descriptors that it takes over, which may be there already.
fn export(
    ready: &Started,
    device: DeviceIndex,
    (address, len): (u64, u64),
    known: Option<Arc<Vec<OwnedFd>>>,
) -> Result<(Source, u64, Arc<Vec<OwnedFd>>)> {
    let segment = |base| Ok((Source::Segment(ready.api.ipc_memory_handle(device, base)?), base, Arc::default()));
    if let Some(base) = ready.allocator.base_of(address)? {
        return segment(base);
    }
    let moving = ready.allocator.pages_behind(device, address, len);
    let refusal = if moving.is_some() { IpcError::ElasticPages } else { IpcError::ExpandableSegment };
    let Some((first, page, handles)) = moving.or_else(|| ready.api.pages_at(address, len)) else {
        return segment(ready.api.address_range(device, address)?.0);
    };
    if !ready.api.exports_pages(device) {
        return Err(Error::Ipc(refusal));
    }
    let exported = match known.filter(|known| known.len() == handles.len()) {
        Some(known) => known,
        None => {
            Arc::new(handles.into_iter().map(|handle| ready.api.export_page(device, handle)).collect::<Result<_>>()?)
        }
    };
    let descriptors = exported.iter().map(AsRawFd::as_raw_fd).collect();
    Ok((Source::Pages { process: ProcessName::own(), descriptors, page }, first, exported))
}

/// An event behind the work of a stream, and its name for other processes. Where there are too many already, the work is
/// waited for, and there is none.
fn record(ready: &Started, stream: StreamRef) -> Result<Option<(EventHandle, IpcHandle)>> {
    if !ready.ipc.sendings.may_have_event() {
        return ready.api.stream_synchronize(stream).map(|()| None);
    }
    let event = ready.api.event_create_with_flags(stream.device, EVENT_DISABLE_TIMING | EVENT_INTERPROCESS)?;
    let recorded = ready.api.event_record_with_flags(event, stream, 0);
    let named = recorded.and_then(|()| ready.api.ipc_event_handle(stream.device, event));
    let name = named.inspect_err(|_| {
        let _ = ready.destroy(DriverObject::Event(event));
    })?;
    Ok(Some((event, name)))
}

/// The device that memory is on; where no device here is known to be it, the one with the sender's number.
fn device_here(ready: &Started, theirs: DeviceIndex, place: &Place) -> Result<DeviceIndex> {
    let at = ready.uuids()?.iter().position(|uuid| uuid.bytes == place.uuid);
    Ok(at.and_then(|at| i32::try_from(at).ok()).map_or(theirs, DeviceIndex))
}

/// Makes a stream wait for the work before another process's event.
fn wait_for(ready: &Started, stream: StreamRef, event: Option<IpcHandle>) -> Result<()> {
    let Some(event) = event else { return Ok(()) };
    let event = ready.api.ipc_open_event(stream.device, &event)?;
    let waits = ready.api.stream_wait_event(stream, event, 0);
    // An event that cannot be destroyed now is destroyed later; the stream waits all the same.
    let _ = ready.destroy(DriverObject::Event(event));
    waits
}

fn lock_all(slots: &[SlotName]) -> Result<Vec<ReceiverLock>> {
    slots.iter().map(ReceiverLock::new).collect()
}

/// Why memory or an event of a process cannot be opened: where that process has ended meanwhile, it is this and not what
/// the driver says of it. A process that ends loses its locks a moment after its memory.
fn why_not_opened(locks: &[ReceiverLock], error: Error) -> Error {
    const MOMENT: Duration = Duration::from_millis(1);
    for _ in 0..20 {
        if locks.iter().any(ReceiverLock::sender_has_ended) {
            return Error::Ipc(IpcError::Released);
        }
        std::thread::sleep(MOMENT);
    }
    error
}

/// Lets the locks go when the stream has passed the events that they keep.
fn let_go_behind(ready: &Started, stream: StreamRef, locks: Vec<ReceiverLock>) {
    let received = Received::new(Box::new(locks));
    received.use_on(stream);
    Arc::new(received).discard(ready);
}

/// Memory that this runtime has shared itself, where it is such; the stream waits for the work before it was shared.
fn own_memory(ready: &Started, stream: StreamRef, place: &Place) -> Result<Option<Arc<dyn Any + Send + Sync>>> {
    let Some(at) = place.slots.iter().position(|slot| is_own(&slot.path)) else { return Ok(None) };
    let (slot, later) = (&place.slots[at], &place.slots[at + 1..]);
    if !ready.ipc.sendings.is_in(&slot.path) {
        return Err(Error::Ipc(IpcError::OwnMemory));
    }
    let (memory, event) = ready.ipc.sendings.own(slot).ok_or(Error::Ipc(IpcError::Released))?;
    if later.is_empty() {
        event.map_or(Ok(()), |event| ready.api.stream_wait_event(stream, event, 0))?;
        ready.ipc.sendings.withdraw(slot)?;
    } else {
        // It comes back from another process.
        let mut locks = lock_all(later)?;
        wait_for(ready, stream, place.event).map_err(|error| why_not_opened(&locks, error))?;
        locks.iter_mut().try_for_each(ReceiverLock::confirm)?;
        let_go_behind(ready, stream, locks);
    }
    Ok(Some(memory))
}

/// Descriptors of pages of another process: taken over where the system allows it, else from the sender's socket.
fn pages_of(process: &ProcessName, numbers: &[i32], slot: &SlotName) -> Result<Vec<OwnedFd>> {
    take_descriptors(process, numbers)
        .or_else(|refused| fetch_descriptors(slot, numbers.len()).map_err(|_| why_not_taken(refused)))
}

/// Why descriptors of another process could not be taken over.
fn why_not_taken(error: io::Error) -> Error {
    // The sender has ended, or has closed the descriptors because it has freed the memory.
    if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EBADF)) {
        Error::Ipc(IpcError::Released)
    } else {
        Error::Ipc(IpcError::Descriptors { reason: error.into() })
    }
}
