//! What can be wrong with memory that several processes use.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Why memory or an event could not be shared between processes.
///
/// ```
/// use c10_core::{Error, IpcError, SharedBuffer};
///
/// let refused = SharedBuffer::from_bytes(b"something else").unwrap_err();
/// assert_eq!(refused, Error::Ipc(IpcError::InvalidBytes));
/// assert_eq!(refused.to_string(), "the bytes are not those of a shared buffer");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IpcError {
    /// Bytes that cannot be the handle of an event.
    #[error("cudaIpcEventHandle_t expects byte-like object of size 64, but got {got}")]
    EventHandleSize {
        /// How many there are.
        got: usize,
    },
    /// Memory in an expandable segment was to be shared, and its pages cannot be exported: the device does not do that, or
    /// the variable `TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC` is 0.
    #[error(
        "Tensors allocated with expandable_segments:True cannot be shared between processes. Consider turning the option off before memory is allocated that is to be shared."
    )]
    ExpandableSegment,
    /// Memory in pages that move was to be shared, and they cannot be exported: the device does not do that, or the variable
    /// `TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC` is 0.
    #[error(
        "Memory of the allocator backend elastic cannot be shared between processes here: its pages cannot be exported. Consider a memory pool without it (MemPoolOptions::elastic), or the native backend, for memory that is to be shared."
    )]
    ElasticPages,
    /// The descriptors of shared pages could not be had from the process that shared them, neither from its socket nor by
    /// taking them over, which the system allows to a process that may trace the other.
    #[error(
        "cannot take over the shared memory's descriptors from the process that shared it: {reason}. The receiver must see the sender's folder for temporary files, where its socket is, and belong to the same user; or be allowed to trace the sender: as its parent, with the capability SYS_PTRACE, or with kernel.yama.ptrace_scope at 0."
    )]
    Descriptors {
        /// What the system said.
        #[source]
        reason: SystemError,
    },
    /// Memory was to be shared that neither this runtime nor another process has allocated.
    #[error("memory that another library has allocated cannot be shared between processes; share a copy")]
    SharedTwice,
    /// Memory was to be shared or opened while the current stream captures, so that nobody can wait for its work.
    #[error("memory cannot be shared between processes while the current stream is capturing")]
    DuringCapture,
    /// Shared memory was to be opened by another runtime of the process that shared it.
    #[error("another runtime of this process has shared the memory; use the buffer that was shared")]
    OwnMemory,
    /// Shared memory was to be opened after its receivers, or the sender, had let it go.
    #[error("the shared memory is gone: all its receivers have dropped it, or the process that shared it has ended")]
    Released,
    /// Bytes that are no shared buffer.
    #[error("the bytes are not those of a shared buffer")]
    InvalidBytes,
    /// The file by which a sender knows whether shared memory is still used cannot be used.
    #[error("cannot tell which processes use shared memory: {reason}")]
    File {
        /// What the system said.
        #[source]
        reason: SystemError,
    },
}

/// An error of the system; equal to another one of the same kind and code.
///
/// ```
/// use c10_core::{IpcError, SystemError};
/// use std::io::ErrorKind;
///
/// let reason = SystemError::from(std::io::Error::from(ErrorKind::NotFound));
/// assert_eq!(reason.get().kind(), ErrorKind::NotFound);
/// assert!(IpcError::File { reason }.to_string().starts_with("cannot tell which processes use shared memory"));
/// ```
#[derive(Clone)]
pub struct SystemError(Arc<io::Error>);

impl SystemError {
    /// The error itself.
    #[must_use]
    pub fn get(&self) -> &io::Error {
        &self.0
    }
}

impl From<io::Error> for SystemError {
    fn from(error: io::Error) -> Self {
        Self(Arc::new(error))
    }
}

impl PartialEq for SystemError {
    fn eq(&self, other: &Self) -> bool {
        (self.0.kind(), self.0.raw_os_error()) == (other.0.kind(), other.0.raw_os_error())
    }
}

impl Eq for SystemError {}

impl fmt::Debug for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SystemError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
