//! Device memory that several processes use.
//!
//! The sender makes a [`SharedBuffer`], a few hundred bytes that the program passes to the other process, for example
//! through a pipe. The other process opens it as a buffer. Work that the sender had queued on its current stream is
//! done before the receiver's current stream goes on. The driver shares whole allocations of its own, so the handle is
//! that of the segment, and the buffer's place in the segment is sent beside it. Memory in pages, those of expandable segments
//! and of the elastic backend, is shared page by page: the receiver takes over a file descriptor of each from the sender's
//! process, and maps those that the buffer lies in.
//!
//! **Invariants:** the sender keeps the memory until a receiver has opened it and all receivers have dropped it or ended,
//! even where the sender's own buffers are dropped before. The sender looks whether that is so when it is asked to
//! ([`crate::Ipc::collect`]), when it shares more, and when it runs out of memory. A segment is mapped once for a process
//! and device, as long as a buffer of it is there. Dropping a received buffer never blocks: when the streams that used it
//! have passed the work queued until then, its mapping is closed, and after that the sender can see it.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::buffers::{DeviceBuffer, DeviceMemory};
use crate::base::device::{Device, DeviceIndex};
use crate::base::error::{Error, IpcError, Result};
use crate::base::handles::StreamRef;
use crate::base::process;
use crate::driver::{EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, IpcHandle, take_descriptors};
use crate::runtime::{Runtime, Started, WeakRuntime};
use crate::state::captures::KeptId;
use crate::state::deferred_destroy::DriverObject;
use crate::state::ipc::{ReceiverLock, SenderFile};

/// A description of device memory for another process; made by [`crate::DeviceBuffer::share`].
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// use c10_core::{DeviceBuffer, SharedBuffer};
///
/// let buffer = DeviceBuffer::new(1000, None)?;
/// let bytes = buffer.share()?.to_bytes(); // For a pipe to the other process.
/// assert_eq!(SharedBuffer::from_bytes(&bytes)?.len(), 1000);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SharedBuffer {
    device: DeviceIndex,
    len: u64,
    /// `None` for a buffer without bytes.
    place: Option<Place>,
}

/// Where shared memory is.
#[derive(Clone, PartialEq, Eq)]
struct Place {
    source: Source,
    /// Where the memory begins in what is mapped.
    offset: u64,
    /// Recorded behind the sender's work.
    event: IpcHandle,
    /// The file that receivers lock.
    users: PathBuf,
}

/// What a receiver maps.
#[derive(Clone, PartialEq, Eq)]
enum Source {
    /// An allocation of the driver.
    Segment(IpcHandle),
    /// Neighbouring pages.
    Pages {
        /// The process that has their descriptors.
        process: u32,
        descriptors: Vec<i32>,
        /// Bytes of each.
        page: u64,
    },
}

/// First byte of a shared buffer as bytes.
const VERSION: u8 = 2;
/// The same of one that is in pages.
const VERSION_OF_PAGES: u8 = 3;

/// As the bytes of [`SharedBuffer::to_bytes`].
#[cfg(feature = "serde")]
impl serde::Serialize for SharedBuffer {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&self.to_bytes(), serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for SharedBuffer {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = <Vec<u8> as serde::Deserialize>::deserialize(deserializer)?;
        Self::from_bytes(&bytes).map_err(serde::de::Error::custom)
    }
}

impl SharedBuffer {
    /// Bytes of the memory.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    /// Whether the memory has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of the device in the process that shares it.
    #[must_use]
    pub fn device_index(&self) -> DeviceIndex {
        self.device
    }

    /// The same as bytes, for a pipe or a file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let in_pages = self.place.as_ref().is_some_and(|place| matches!(place.source, Source::Pages { .. }));
        let mut bytes = vec![if in_pages { VERSION_OF_PAGES } else { VERSION }];
        bytes.extend(self.device.to_le_bytes());
        bytes.extend(self.len.to_le_bytes());
        if let Some(place) = &self.place {
            bytes.extend(place.offset.to_le_bytes());
            match &place.source {
                Source::Segment(segment) => bytes.extend(segment),
                Source::Pages { process, descriptors, page } => {
                    bytes.extend(process.to_le_bytes());
                    bytes.extend(page.to_le_bytes());
                    bytes.extend((descriptors.len() as u64).to_le_bytes());
                    bytes.extend(descriptors.iter().flat_map(|descriptor| descriptor.to_le_bytes()));
                }
            }
            bytes.extend(place.event);
            bytes.extend(place.users.as_os_str().as_bytes());
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`crate::IpcError::InvalidBytes`] for any other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).ok_or(Error::Ipc(IpcError::InvalidBytes))
    }

    fn read(mut bytes: &[u8]) -> Option<Self> {
        let [version] = take::<1>(&mut bytes)?;
        if ![VERSION, VERSION_OF_PAGES].contains(&version) {
            return None;
        }
        let device = DeviceIndex(i32::from_le_bytes(take(&mut bytes)?));
        let len = u64::from_le_bytes(take(&mut bytes)?);
        if len == 0 {
            return (version == VERSION && bytes.is_empty()).then_some(Self { device, len, place: None });
        }
        let offset = u64::from_le_bytes(take(&mut bytes)?);
        let end = offset.checked_add(len)?;
        let source =
            if version == VERSION { Source::Segment(take(&mut bytes)?) } else { Source::read_pages(&mut bytes, end)? };
        let event = take(&mut bytes)?;
        let users = PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()));
        Some(Self { device, len, place: Some(Place { source, offset, event, users }) })
    }
}

impl Source {
    /// Pages that memory up to a place ends in the last of.
    fn read_pages(bytes: &mut &[u8], end: u64) -> Option<Self> {
        let process = u32::from_le_bytes(take(bytes)?);
        let page = u64::from_le_bytes(take(bytes)?);
        let count = u64::from_le_bytes(take(bytes)?);
        let is_right = page > 0 && count == end.div_ceil(page) && count.checked_mul(page).is_some();
        if !is_right || count > bytes.len() as u64 / 4 {
            return None;
        }
        let descriptors: Option<Vec<i32>> = (0..count).map(|_| take(bytes).map(i32::from_le_bytes)).collect();
        Some(Self::Pages { process, descriptors: descriptors?, page })
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuffer {{ {} bytes of the sender's {} }}", self.len, Device::cuda(self.device))
    }
}

/// Takes the first bytes.
fn take<const COUNT: usize>(bytes: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// Memory of another process, mapped here, for one buffer.
#[derive(Debug)]
struct Mapping {
    home: WeakRuntime,
    device: DeviceIndex,
    mapped: Mapped,
}

#[derive(Debug)]
enum Mapped {
    Segment(IpcHandle),
    /// Pages, by their first address.
    Pages(u64),
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        // Without the runtime the mapping is gone already. What fails is tried again later.
        if let Some(runtime) = Runtime::upgrade(&self.home)
            && let Ok(ready) = runtime.ready()
        {
            match self.mapped {
                Mapped::Segment(segment) => ready.ipc.close(&ready.api, &ready.deferred, (self.device, segment)),
                Mapped::Pages(base) => ready.ipc.close_pages(&ready.api, &ready.deferred, base),
            }
        }
    }
}

/// What a buffer holds whose memory is somebody else's: a mapping of another process's, which is closed before the lock is
/// released, or whatever keeps memory of another library.
pub(crate) struct Received {
    _held: Box<dyn Any + Send + Sync>,
    /// Streams with work that may still use it.
    used: Mutex<BTreeSet<StreamRef>>,
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("used", &self.used).finish_non_exhaustive()
    }
}

impl Received {
    /// Holds something until the work that uses the memory is done.
    pub(crate) fn new(held: Box<dyn Any + Send + Sync>) -> Self {
        Self { _held: held, used: Mutex::default() }
    }

    /// Notes work on a stream.
    pub(crate) fn use_on(&self, stream: StreamRef) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(stream);
    }

    /// Lets go of what is held when the work that uses the memory is done.
    pub(crate) fn discard(self: Arc<Self>, ready: &Started) {
        let used = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        // Without it no event can be recorded now; that is tried again later.
        let _relaxed = ready.relaxed();
        for stream in used {
            match ready.api.stream_capture_id(stream) {
                Ok(Some(capture)) => ready.captures.keep(capture, KeptId::of(&self), || self.clone()),
                Ok(None) | Err(_) => {
                    let _ = ready.holds.hold(&ready.api, stream, self.clone());
                }
            }
        }
        drop(self);
        ready.holds.sweep(&ready.api);
    }
}

/// What a runtime shares with other processes; made by [`Runtime::ipc`].
///
/// ```
/// # let simulated = testkit::simulated_runtime();
/// use c10_core::{DeviceBuffer, Error, IpcError, Runtime};
///
/// let (runtime, shared) = (Runtime::current(), DeviceBuffer::new(1000, None)?.share()?);
/// assert_eq!(runtime.memory().stats(0)?["allocated_bytes.all.current"], 1024, "kept for the other process");
/// assert_eq!(runtime.ipc().open(&shared).unwrap_err(), Error::Ipc(IpcError::OwnMemory));
/// runtime.ipc().collect()?;
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
        let device = memory.device();
        ready.ipc.collect(&ready.api, &ready.deferred);
        if memory.is_received() {
            return Err(Error::Ipc(IpcError::SharedTwice));
        }
        let (address, len) = (memory.address(), memory.len() as u64);
        if len == 0 {
            return Ok(SharedBuffer { device, len, place: None });
        }
        let _relaxed = ready.relaxed()?;
        let stream = self.stream_for_sharing(ready, device)?;
        let (source, base, descriptors) = export(ready, device, address, len)?;
        let users = SenderFile::new()?;
        let event = ready.api.event_create_with_flags(device, EVENT_DISABLE_TIMING | EVENT_INTERPROCESS)?;
        let recorded = ready.api.event_record_with_flags(event, stream, 0);
        let named = recorded.and_then(|()| ready.api.ipc_event_handle(device, event));
        let event_name = named.inspect_err(|_| {
            let _ = ready.destroy(DriverObject::Event(event));
        })?;
        let place = Place { source, offset: address - base, event: event_name, users: users.path().to_owned() };
        ready.ipc.add_sent(users, event, memory.clone(), descriptors);
        Ok(SharedBuffer { device, len, place: Some(place) })
    }

    /// Opens memory that another process has shared. The current stream of the device waits here for the work that was
    /// queued there. The sender expects one opening; more are allowed as long as the first is open.
    ///
    /// # Errors
    /// [`crate::IpcError::OwnMemory`] where this process has shared it; [`crate::IpcError::Released`] where all
    /// receivers, or the sender, have dropped the memory; [`crate::IpcError::Descriptors`] where the memory is in pages and
    /// this process may not take over descriptors of the sender's; the device does not exist, the current stream captures,
    /// or the driver's error.
    pub fn open(self, shared: &SharedBuffer) -> Result<DeviceBuffer> {
        let device = shared.device;
        let ready = self.0.check_device(device)?;
        let stream = self.stream_for_sharing(ready, device)?;
        let Some(place) = &shared.place else {
            return self.0.memory().buffer(0, &self.0.streams().current(device)?);
        };
        let lock = ReceiverLock::new(&place.users)?;
        let (mapping, address) = self.map_shared(ready, stream, place, shared.len)?;
        lock.confirm()?;
        let received = Received::new(Box::new((mapping, lock)));
        Ok(DeviceBuffer::of(self.0, address, shared.len(), stream, Some(Arc::new(received))))
    }

    /// Maps the memory and makes the stream wait for the sender's work. Returns the mapping, and the address of the memory.
    fn map_shared(self, ready: &Started, stream: StreamRef, place: &Place, len: u64) -> Result<(Mapping, u64)> {
        let _relaxed = ready.relaxed()?;
        let device = stream.device;
        let (base, mapped) = match &place.source {
            Source::Segment(segment) => (ready.ipc.open(&ready.api, device, *segment)?, Mapped::Segment(*segment)),
            Source::Pages { process, descriptors, page } => {
                let taken = take_descriptors(*process, descriptors).map_err(why_not_taken)?;
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
        let event = ready.api.ipc_open_event(stream.device, &place.event)?;
        let waits = ready.api.stream_wait_event(stream, event, 0);
        // An event that cannot be destroyed now is destroyed later; the stream waits all the same.
        let _ = ready.destroy(DriverObject::Event(event));
        waits.map(|()| (mapping, address))
    }

    /// The current stream of a device, which must not capture: other processes wait for what is queued now.
    fn stream_for_sharing(self, ready: &Started, device: DeviceIndex) -> Result<StreamRef> {
        let stream = self.0.streams().current(device)?.reference();
        match ready.api.stream_capture_id(stream)? {
            None => Ok(stream),
            Some(_) => Err(Error::Ipc(IpcError::DuringCapture)),
        }
    }

    /// Frees shared memory that no other process uses any more; torch's `ipc_collect`. A receiver that has ended
    /// without dropping the memory, for example because it was killed, does not use it any more. Sharing does this too.
    ///
    /// # Errors
    /// The runtime cannot start.
    pub fn collect(self) -> Result<()> {
        let ready = self.0.ready()?;
        ready.sweep();
        ready.ipc.collect(&ready.api, &ready.deferred);
        Ok(())
    }
}

/// What a receiver maps for memory, where that begins, and the descriptors that it takes over.
fn export(ready: &Started, device: DeviceIndex, address: u64, len: u64) -> Result<(Source, u64, Vec<OwnedFd>)> {
    if let Some(base) = ready.allocator.base_of(address)? {
        return Ok((Source::Segment(ready.api.ipc_memory_handle(device, base)?), base, Vec::new()));
    }
    let moving = ready.allocator.pages_behind(device, address, len);
    let refusal = if moving.is_some() { IpcError::ElasticPages } else { IpcError::ExpandableSegment };
    let Some((first, page, handles)) = moving.or_else(|| ready.api.pages_at(address, len)) else {
        let (base, _) = ready.api.address_range(device, address)?;
        return Ok((Source::Segment(ready.api.ipc_memory_handle(device, base)?), base, Vec::new()));
    };
    if !ready.api.exports_pages(device) {
        return Err(Error::Ipc(refusal));
    }
    let exported: Result<Vec<OwnedFd>> =
        handles.into_iter().map(|handle| ready.api.export_page(device, handle)).collect();
    let exported = exported?;
    let descriptors = exported.iter().map(AsRawFd::as_raw_fd).collect();
    Ok((Source::Pages { process: std::process::id(), descriptors, page }, first, exported))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_buffers_survive_the_way() {
        let users = PathBuf::from("/tmp/c10-ipc-1-2");
        let place = Place { source: Source::Segment([7; 64]), offset: 512, event: [9; 64], users };
        let pages = Source::Pages { process: 17, descriptors: vec![4, 5], page: 2 << 20 };
        let in_pages = Place { source: pages, offset: 1 << 20, ..place.clone() };
        let in_pages = SharedBuffer { device: DeviceIndex(1), len: 3 << 20, place: Some(in_pages) };
        assert_eq!(SharedBuffer::from_bytes(&in_pages.to_bytes()), Ok(in_pages.clone()));
        let refused =
            |bytes: &[u8]| assert_eq!(SharedBuffer::from_bytes(bytes), Err(Error::Ipc(IpcError::InvalidBytes)));
        let bytes = in_pages.to_bytes();
        (0..bytes.len() - 16).for_each(|end| refused(&bytes[..end]));
        for (at, what) in [(12, "the memory ends behind the pages"), (28, "no such page"), (33, "fewer descriptors")] {
            let mut wrong = bytes.clone();
            wrong[at] = wrong[at].wrapping_add(1);
            assert!(SharedBuffer::from_bytes(&wrong).is_err(), "{what}");
        }
        let shared = SharedBuffer { device: DeviceIndex(3), len: 1 << 40, place: Some(place) };
        assert_eq!(SharedBuffer::from_bytes(&shared.to_bytes()), Ok(shared.clone()));
        let empty = SharedBuffer { len: 0, place: None, ..shared.clone() };
        assert_eq!(SharedBuffer::from_bytes(&empty.to_bytes()), Ok(empty));
        for end in 0..149 {
            assert_eq!(
                SharedBuffer::from_bytes(&shared.to_bytes()[..end]),
                Err(Error::Ipc(IpcError::InvalidBytes)),
                "{end}"
            );
        }
        let beyond = SharedBuffer { len: u64::MAX, ..shared };
        assert_eq!(SharedBuffer::from_bytes(&beyond.to_bytes()), Err(Error::Ipc(IpcError::InvalidBytes)));
    }
}
