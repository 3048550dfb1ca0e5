//! Memory of the host: the crate's own, or that of another library.
//!
//! **Invariants:** the memory stays where it is as long as it lives. The bytes are read and written under a lock, so that
//! threads that share a tensor see whole elements; operations take the lock several times, and no thread waits for a
//! device while holding it.
//!
//! # Safety
//! The memory comes from a boxed slice that is given back once, when this is dropped, or from another library, for which
//! whoever made this promises that it is there until the owner is dropped and that nobody writes it meanwhile but in turn.
//! References to the bytes live as long as a guard of the lock.
#![expect(unsafe_code, reason = "memory that other libraries use too, as a slice")]

use std::any::Any;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::PoisonError;

use c10_core::locks::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use c10_core::{MemoryError, host_memory};

use super::deferred;
use crate::base::error::Result;

/// Bytes on the host; the crate's own are aligned to eight.
pub(super) struct HostMemory {
    first: NonNull<u8>,
    len: usize,
    lock: RwLock<()>,
    owner: Owner,
    /// The trace that has made it; 0 outside of traces.
    trace: u64,
}

enum Owner {
    /// A boxed slice of so many words.
    Words(usize),
    /// Memory of somebody else, with what keeps it, and whether it is pinned.
    Foreign { _keeps: Box<dyn Any + Send + Sync>, is_pinned: bool },
}

// SAFETY: the bytes are plain data behind a lock; whatever keeps foreign memory may go to any thread.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates zeroed memory; fails if the system has none left.
    pub(super) fn zeros(len: usize) -> Result<Self> {
        // The error reports the requested bytes, not the bytes rounded up to whole words.
        let words = host_memory::zeroed(len.div_ceil(8)).map_err(|_| MemoryError::HostAllocation { bytes: len });
        Ok(Self::of_words(words.map_err(c10_core::Error::from)?.into_boxed_slice(), len))
    }

    /// The first `len` bytes of these words.
    pub(super) fn of_words(words: Box<[u64]>, len: usize) -> Self {
        let count = words.len();
        let first = NonNull::from(Box::leak(words)).cast::<u8>();
        let (lock, owner, trace) = (RwLock::default(), Owner::Words(count), deferred::trace());
        Self { first, len, lock, owner, trace }
    }

    /// Memory of somebody else.
    ///
    /// # Safety
    /// - The bytes are initialised and there until `keeps` is dropped.
    /// - As long as they are, others read and write them in turn with the caller, and not while the storage is used.
    pub(super) unsafe fn foreign(
        first: NonNull<u8>,
        len: usize,
        keeps: Box<dyn Any + Send + Sync>,
        is_pinned: bool,
    ) -> Self {
        let owner = Owner::Foreign { _keeps: keeps, is_pinned };
        Self { first, len, lock: RwLock::default(), owner, trace: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The address of the first byte.
    pub(super) fn address(&self) -> NonNull<u8> {
        self.first
    }

    /// Whether the trace that is under way has made it: its values follow from the traced function alone.
    pub(super) fn is_of_trace(&self) -> bool {
        self.trace != 0 && self.trace == deferred::trace()
    }

    pub(super) fn is_pinned(&self) -> bool {
        matches!(self.owner, Owner::Foreign { is_pinned: true, .. })
    }

    /// The bytes, for reading.
    pub(super) fn read(&self) -> Reading<'_> {
        let guard = self.lock.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the memory has so many bytes and lives as long as `self`; the lock keeps writers away.
        let bytes = unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) };
        Reading { bytes, _guard: guard }
    }

    /// The bytes, for writing.
    pub(super) fn write(&self) -> Writing<'_> {
        let guard = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the memory has so many bytes and lives as long as `self`; the lock keeps everybody else away.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) };
        Writing { bytes, _guard: guard }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Owner::Words(count) = self.owner {
            let words = ptr::slice_from_raw_parts_mut(self.first.as_ptr().cast::<u64>(), count);
            // SAFETY: the slice was leaked when this was made, and nobody refers to it any more.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("first", &self.first).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Bytes while they are read.
pub(super) struct Reading<'a> {
    pub(super) bytes: &'a [u8],
    _guard: RwLockReadGuard<'a, ()>,
}

/// Bytes while they are written.
pub(super) struct Writing<'a> {
    pub(super) bytes: &'a mut [u8],
    _guard: RwLockWriteGuard<'a, ()>,
}
