//! The memory behind tensors.
//!
//! Reading order: this file ([`Storage`]), `host` (memory of the host), `deferred` (memory of traced functions that is
//! not there yet), `watch` (memory that is watched for writes).
//!
//! **Invariants:** a storage keeps its size and address as long as it lives. Host memory is behind a lock, so that
//! threads that share a tensor see whole elements. An operation takes the lock for a few hundred elements at a time, so
//! another thread may see a partly written tensor. The lock is never held while waiting for a device. Bytes of pinned
//! memory are copied in and out, since a device may be writing neighbouring bytes: an operation on the host writes back
//! only the bytes that it changed.

pub(crate) mod deferred;
mod host;
mod watch;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use c10_core::{Device, DeviceBuffer, DeviceIndex, DeviceOf, DeviceType, PinnedBuffer, Runtime, host_memory};

use crate::base::error::{Error, Result, TensorError, invalid};
use deferred::Deferred;
use host::{HostMemory, Reading, Writing};
pub(crate) use watch::Watch;

/// The memory of one or several tensors (`torch.UntypedStorage`).
///
/// This is a handle: clones refer to the same memory.
#[derive(Clone)]
pub struct Storage(Memory);

impl DeviceOf for Storage {
    fn cuda_device(&self) -> Option<DeviceIndex> {
        self.device().cuda_device()
    }
}

#[derive(Clone)]
enum Memory {
    Host(Arc<HostMemory>),
    /// Host memory of the caching allocator of pinned memory.
    Pinned(Arc<PinnedBuffer>),
    Cuda(DeviceBuffer),
    /// Memory of a device that a traced function has asked for.
    Deferred(Arc<Deferred>),
}

/// Host bytes while they are read.
pub(crate) struct HostBytes<'a>(HostRead<'a>);

enum HostRead<'a> {
    Locked(Reading<'a>),
    Copied(Vec<u8>),
}

/// Host bytes while they are written.
pub(crate) struct HostBytesMut<'a>(HostWrite<'a>);

enum HostWrite<'a> {
    Locked(Writing<'a>),
    Copied { before: Vec<u8>, now: Vec<u8>, to: &'a PinnedBuffer },
}

impl std::ops::Deref for HostBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            HostRead::Locked(reading) => reading.bytes,
            HostRead::Copied(bytes) => bytes,
        }
    }
}

impl std::ops::Deref for HostBytesMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            HostWrite::Locked(writing) => writing.bytes,
            HostWrite::Copied { now, .. } => now,
        }
    }
}

impl std::ops::DerefMut for HostBytesMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            HostWrite::Locked(writing) => writing.bytes,
            HostWrite::Copied { now, .. } => now,
        }
    }
}

impl Drop for HostBytesMut<'_> {
    fn drop(&mut self) {
        if let HostWrite::Copied { before, now, to } = &self.0 {
            // The ranges lie in the memory, so that nothing is refused.
            changed(before, now).for_each(|range| drop(to.write(range.start, &now[range])));
        }
    }
}

/// The ranges of bytes that differ.
fn changed<'a>(before: &'a [u8], now: &'a [u8]) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + before[at..].iter().zip(&now[at..]).position(|(before, now)| before != now)?;
        let same = before[start..].iter().zip(&now[start..]).position(|(before, now)| before == now);
        at = same.map_or(now.len(), |same| start + same);
        Some(start..at)
    })
}

impl Storage {
    /// New memory on a device: zeros on the host, whatever was there before on a CUDA device.
    ///
    /// # Errors
    /// There is not enough memory, or the device does not exist.
    pub fn new(bytes: usize, device: Device) -> Result<Self> {
        Ok(Self(match device.kind {
            DeviceType::Cuda if bytes > 0 && deferred::is_tracing() => {
                let index = device.index.map_or_else(|| Runtime::with_current(Runtime::current_device), Ok)?;
                Memory::Deferred(Arc::new(Deferred::new(bytes, index)?))
            }
            DeviceType::Cuda => Memory::Cuda(DeviceBuffer::new(bytes, device)?),
            _ => Memory::Host(Arc::new(HostMemory::zeros(bytes)?)),
        }))
    }

    /// New pinned memory of the host, which devices can copy from and to while the program goes on. It holds whatever was
    /// there before.
    ///
    /// # Errors
    /// There is not enough memory to pin, or the runtime cannot start.
    pub fn new_pinned(bytes: usize) -> Result<Self> {
        Ok(Self(Memory::Pinned(Arc::new(PinnedBuffer::new(bytes)?))))
    }

    /// Copies bytes into new host memory.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let memory = HostMemory::zeros(bytes.len())?;
        memory.write().bytes.copy_from_slice(bytes);
        Ok(Self(Memory::Host(Arc::new(memory))))
    }

    /// Copies the bytes into new pageable host memory.
    pub(crate) fn copied_to_host(&self) -> Result<Self> {
        let memory = HostMemory::zeros(self.nbytes())?;
        self.read_into(0, memory.write().bytes)?;
        Ok(Self(Memory::Host(Arc::new(memory))))
    }

    /// The storage of a buffer that exists already; both refer to the same memory.
    #[must_use]
    pub fn from_buffer(buffer: DeviceBuffer) -> Self {
        Self(Memory::Cuda(buffer))
    }

    /// The storage of pinned memory that exists already; both refer to the same memory.
    #[must_use]
    pub fn from_pinned(buffer: PinnedBuffer) -> Self {
        Self(Memory::Pinned(Arc::new(buffer)))
    }

    /// Memory of the host that another library owns, until `keeps` is dropped.
    ///
    /// # Safety
    /// - The bytes are initialised and there until `keeps` is dropped.
    /// - As long as they are, others read and write them in turn with the caller, and not while the storage is used.
    #[expect(unsafe_code, reason = "who names an address answers for the memory there")]
    pub(crate) unsafe fn foreign(
        first: NonNull<u8>,
        len: usize,
        keeps: Box<dyn Any + Send + Sync>,
        is_pinned: bool,
    ) -> Self {
        // SAFETY: the caller's promise.
        Self(Memory::Host(Arc::new(unsafe { HostMemory::foreign(first, len, keeps, is_pinned) })))
    }

    /// Bytes of the memory (`nbytes`).
    #[must_use]
    pub fn nbytes(&self) -> usize {
        match &self.0 {
            Memory::Host(host) => host.len(),
            Memory::Pinned(buffer) => buffer.len(),
            Memory::Cuda(buffer) => buffer.len(),
            Memory::Deferred(deferred) => deferred.bytes(),
        }
    }

    /// Where the memory is.
    #[must_use]
    pub fn device(&self) -> Device {
        match &self.0 {
            Memory::Host(_) | Memory::Pinned(_) => Device { kind: DeviceType::Cpu, index: None },
            Memory::Cuda(buffer) => buffer.device(),
            Memory::Deferred(deferred) => deferred.device(),
        }
    }

    /// The buffer, on a CUDA device. While a function is traced, what it has done so far is run first; memory that a
    /// traced function has left without contents, because it failed, has none.
    #[must_use]
    pub fn buffer(&self) -> Option<&DeviceBuffer> {
        match &self.0 {
            Memory::Cuda(buffer) => {
                deferred::settle("memory is used by an operation that traces do not write down");
                Some(buffer)
            }
            Memory::Deferred(deferred) => deferred.memory(),
            Memory::Host(_) | Memory::Pinned(_) => None,
        }
    }

    /// The buffer where it is there, whatever is pending.
    #[inline]
    pub(crate) fn present(&self) -> Option<&DeviceBuffer> {
        match &self.0 {
            Memory::Cuda(buffer) => Some(buffer),
            Memory::Deferred(deferred) => deferred.filled(),
            Memory::Host(_) | Memory::Pinned(_) => None,
        }
    }

    /// The memory that is not there yet, where it is such.
    pub(crate) fn deferred(&self) -> Option<&Arc<Deferred>> {
        if let Memory::Deferred(deferred) = &self.0 { Some(deferred) } else { None }
    }

    /// The storage, where it has contents or will have some.
    #[inline]
    pub(crate) fn checked(&self) -> Result<&Self> {
        match &self.0 {
            Memory::Deferred(deferred) if deferred.filled().is_none() => {
                let is_coming = deferred::is_tracing() && !deferred.is_overwritten();
                if is_coming { Ok(self) } else { Err(self.without_contents().into()) }
            }
            _ => Ok(self),
        }
    }

    /// Why there is no memory.
    pub(crate) fn without_contents(&self) -> TensorError {
        match &self.0 {
            Memory::Deferred(deferred) if deferred.is_overwritten() => TensorError::Overwritten,
            _ => TensorError::Abandoned,
        }
    }

    /// The storage of what a graph gives.
    pub(crate) fn of_deferred(deferred: Arc<Deferred>) -> Self {
        Self(Memory::Deferred(deferred))
    }

    /// The buffer, or an error where a traced function that failed has left none.
    fn device_memory(&self) -> Result<&DeviceBuffer> {
        self.buffer().ok_or_else(|| self.without_contents().into())
    }

    /// The buffer of pinned memory, where it is such.
    #[must_use]
    pub fn pinned(&self) -> Option<&PinnedBuffer> {
        if let Memory::Pinned(buffer) = &self.0 { Some(buffer) } else { None }
    }

    /// Whether the memory is pinned (`is_pinned`).
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        match &self.0 {
            Memory::Host(host) => host.is_pinned(),
            Memory::Pinned(_) => true,
            Memory::Cuda(_) | Memory::Deferred(_) => false,
        }
    }

    /// The address of the first byte, on the host or on a device; 0 without bytes (`data_ptr`).
    #[must_use]
    pub fn data_ptr(&self) -> u64 {
        match &self.0 {
            Memory::Cuda(_) | Memory::Deferred(_) => self.buffer().map_or(0, DeviceBuffer::address),
            Memory::Pinned(buffer) => buffer.address() as u64,
            Memory::Host(host) if host.len() == 0 => 0,
            Memory::Host(host) => host.address().as_ptr().expose_provenance() as u64,
        }
    }

    /// Whether both are the same memory.
    #[must_use]
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Memory::Host(first), Memory::Host(second)) => Arc::ptr_eq(first, second),
            (Memory::Pinned(first), Memory::Pinned(second)) => first.address() == second.address(),
            (Memory::Cuda(first), Memory::Cuda(second)) => {
                first.address() == second.address() && first.device_index() == second.device_index()
            }
            (Memory::Deferred(first), Memory::Deferred(second)) if Arc::ptr_eq(first, second) => true,
            (Memory::Cuda(_) | Memory::Deferred(_), Memory::Cuda(_) | Memory::Deferred(_)) => {
                let place = |buffer: &DeviceBuffer| (buffer.address(), buffer.device_index());
                let (first, second) = (self.present().map(place), other.present().map(place));
                first.is_some() && first == second
            }
            _ => false,
        }
    }

    /// Whether it is host memory that the trace under way has made: a constant of the traced function, as its numbers are.
    pub(crate) fn is_constant(&self) -> bool {
        matches!(&self.0, Memory::Host(host) if host.is_of_trace())
    }

    /// Tells a trace that values are looked at, unless they follow from the traced function alone.
    fn note_host_values(&self) {
        if !self.is_constant() {
            deferred::note_host_values();
        }
    }

    /// Locks host bytes for reading; pinned memory is copied.
    pub(crate) fn host(&self) -> Result<HostBytes<'_>> {
        self.note_host_values();
        match &self.0 {
            Memory::Host(host) => Ok(HostBytes(HostRead::Locked(host.read()))),
            Memory::Pinned(buffer) => Ok(HostBytes(HostRead::Copied(buffer.to_vec()?))),
            Memory::Cuda(_) | Memory::Deferred(_) => Err(not_on_host()),
        }
    }

    /// Locks host bytes for writing; pinned memory is copied, and changed bytes are written back at the end.
    pub(crate) fn host_mut(&self) -> Result<HostBytesMut<'_>> {
        self.note_host_values();
        self.note_write();
        match &self.0 {
            Memory::Host(host) => Ok(HostBytesMut(HostWrite::Locked(host.write()))),
            Memory::Pinned(to) => {
                let before = to.to_vec()?;
                Ok(HostBytesMut(HostWrite::Copied { now: host_memory::copied(&before)?, before, to }))
            }
            Memory::Cuda(_) | Memory::Deferred(_) => Err(not_on_host()),
        }
    }

    /// Copies a range of the bytes; for device memory, after the work of the current stream.
    pub(crate) fn read(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        let mut bytes = host_memory::zeroed(len)?;
        self.read_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Like [`Self::read`], into memory of the caller.
    pub(crate) fn read_into(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        // A view without elements may begin anywhere.
        if to.is_empty() {
            return Ok(());
        }
        match &self.0 {
            Memory::Host(host) => {
                self.note_host_values();
                to.copy_from_slice(&host.read().bytes[offset..offset + to.len()]);
            }
            Memory::Pinned(buffer) => {
                deferred::settle("pinned memory is read");
                deferred::note_host_values();
                buffer.read(offset, to)?;
            }
            Memory::Cuda(_) | Memory::Deferred(_) => {
                deferred::settle("values are read");
                self.device_memory()?.copy_to_slice(offset, to)?;
            }
        }
        Ok(())
    }

    /// Copies a range of host bytes to a device, after the work of its current stream, and waits for the copy. The
    /// bytes are locked only while they are read, and no wait happens under the lock.
    pub(crate) fn copy_to_device(&self, range: Range<usize>, to: &DeviceBuffer, at: usize) -> Result<()> {
        match &self.0 {
            Memory::Host(host) => {
                self.note_host_values();
                let read = |place: usize, part: &mut [u8]| {
                    part.copy_from_slice(&host.read().bytes[range.start + place..][..part.len()]);
                };
                Ok(to.copy_from_parts(at, range.len(), read)?)
            }
            _ => Ok(to.copy_from_slice(at, &self.read(range.start, range.len())?)?),
        }
    }

    /// Writes bytes, ordered on the current stream where it is on a device.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.note_write();
        match &self.0 {
            Memory::Host(host) => host.write().bytes[offset..offset + bytes.len()].copy_from_slice(bytes),
            Memory::Pinned(buffer) => buffer.write(offset, bytes)?,
            Memory::Cuda(_) | Memory::Deferred(_) => self.device_memory()?.copy_from_slice(offset, bytes)?,
        }
        Ok(())
    }
}

/// Returns the error for a host loop over memory that is not on the host.
#[cold]
fn not_on_host() -> Error {
    invalid("the tensor has no memory on the host")
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pinned = if self.is_pinned() { " pinned" } else { "" };
        write!(f, "Storage({} bytes on {}{pinned})", self.nbytes(), self.device())
    }
}

#[cfg(test)]
mod tests {
    use super::changed;

    #[test]
    fn only_what_differs_is_written_back() {
        let ranges = |before: &[u8], now: &[u8]| changed(before, now).collect::<Vec<_>>();
        assert_eq!(ranges(b"abcdef", b"abcdef"), []);
        assert_eq!(ranges(b"abcdef", b"xbcyzf"), [0..1, 3..5]);
        assert_eq!(ranges(b"abc", b"dec"), vec![0..2]);
        assert_eq!(ranges(b"", b""), []);
    }
}
