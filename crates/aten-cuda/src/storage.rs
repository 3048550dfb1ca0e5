//! The memory behind tensors.
//!
//! **Invariants:** a storage keeps its size and its place as long as it lives. Host memory is behind a lock, so that
//! threads that share a tensor see whole operations; the lock is never held while a device is waited for.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use c10_core::{Device, DeviceBuffer, DeviceType};

use crate::base::error::Result;

/// The memory of one or several tensors (`torch.UntypedStorage`).
///
/// This is a handle: clones refer to the same memory.
#[derive(Clone)]
pub struct Storage(Memory);

#[derive(Clone)]
enum Memory {
    Host(Arc<HostMemory>),
    Cuda(DeviceBuffer),
}

/// Bytes on the host, aligned to eight.
struct HostMemory {
    words: RwLock<Box<[u64]>>,
    len: usize,
}

/// Host bytes while they are read.
pub(crate) struct HostBytes<'a>(RwLockReadGuard<'a, Box<[u64]>>, usize);

/// Host bytes while they are written.
pub(crate) struct HostBytesMut<'a>(RwLockWriteGuard<'a, Box<[u64]>>, usize);

impl std::ops::Deref for HostBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.0)[..self.1]
    }
}

impl std::ops::Deref for HostBytesMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.0)[..self.1]
    }
}

impl std::ops::DerefMut for HostBytesMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.0)[..self.1]
    }
}

impl Storage {
    /// New memory on a device: zeros on the host, whatever was there before on a CUDA device.
    ///
    /// # Errors
    /// There is not enough memory, or the device does not exist.
    pub fn new(bytes: usize, device: Device) -> Result<Self> {
        Ok(Self(match device.kind {
            DeviceType::Cuda => Memory::Cuda(DeviceBuffer::new(bytes, device)?),
            _ => {
                let words = RwLock::new(vec![0; bytes.div_ceil(8)].into_boxed_slice());
                Memory::Host(Arc::new(HostMemory { words, len: bytes }))
            }
        }))
    }

    /// Host memory with a copy of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = vec![0_u64; bytes.len().div_ceil(8)].into_boxed_slice();
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self(Memory::Host(Arc::new(HostMemory { words: RwLock::new(words), len: bytes.len() })))
    }

    /// The storage of a buffer that exists already; both refer to the same memory.
    #[must_use]
    pub fn from_buffer(buffer: DeviceBuffer) -> Self {
        Self(Memory::Cuda(buffer))
    }

    /// Bytes of the memory (`nbytes`).
    #[must_use]
    pub fn nbytes(&self) -> usize {
        match &self.0 {
            Memory::Host(host) => host.len,
            Memory::Cuda(buffer) => buffer.len(),
        }
    }

    /// Where the memory is.
    #[must_use]
    pub fn device(&self) -> Device {
        match &self.0 {
            Memory::Host(_) => Device { kind: DeviceType::Cpu, index: None },
            Memory::Cuda(buffer) => buffer.device(),
        }
    }

    /// The buffer, on a CUDA device.
    #[must_use]
    pub fn buffer(&self) -> Option<&DeviceBuffer> {
        if let Memory::Cuda(buffer) = &self.0 { Some(buffer) } else { None }
    }

    /// Whether both are the same memory.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Memory::Host(first), Memory::Host(second)) => Arc::ptr_eq(first, second),
            (Memory::Cuda(first), Memory::Cuda(second)) => {
                first.address() == second.address() && first.device_index() == second.device_index()
            }
            _ => false,
        }
    }

    /// The bytes, on the host.
    pub(crate) fn host(&self) -> Option<HostBytes<'_>> {
        let Memory::Host(host) = &self.0 else { return None };
        Some(HostBytes(host.words.read().unwrap_or_else(PoisonError::into_inner), host.len))
    }

    /// The bytes to be written, on the host.
    pub(crate) fn host_mut(&self) -> Option<HostBytesMut<'_>> {
        let Memory::Host(host) = &self.0 else { return None };
        Some(HostBytesMut(host.words.write().unwrap_or_else(PoisonError::into_inner), host.len))
    }

    /// A copy of a range of the bytes, after the work of the current stream where it is on a device.
    pub(crate) fn read(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        // A view without elements may begin anywhere.
        if len == 0 {
            return Ok(Vec::new());
        }
        match &self.0 {
            Memory::Host(_) => Ok(self.host().map(|bytes| bytes[offset..offset + len].to_vec()).unwrap_or_default()),
            Memory::Cuda(buffer) => {
                let mut bytes = vec![0; len];
                buffer.copy_to_slice(offset, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// Writes bytes, ordered on the current stream where it is on a device.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        match &self.0 {
            Memory::Host(_) => {
                if let Some(mut host) = self.host_mut() {
                    host[offset..offset + bytes.len()].copy_from_slice(bytes);
                }
            }
            Memory::Cuda(buffer) => buffer.copy_from_slice(offset, bytes)?,
        }
        Ok(())
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({} bytes on {})", self.nbytes(), self.device())
    }
}
