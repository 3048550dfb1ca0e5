//! Memory that is watched for writes.
//!
//! Whoever keeps something that was computed of a storage watches it, and learns of writes before they are made. Operations
//! say of each storage that they are given to write to; while nothing is watched that costs one load.
//!
//! **Invariant:** a write that an operation of this crate makes, in any thread, is noted before it is queued. What others
//! write through addresses of the memory is not seen.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use c10_core::locks::Mutex;
use c10_core::{DeviceBuffer, DeviceType};

use super::Storage;

/// How many watches there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static WATCHED: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

struct Entry {
    range: Range<u64>,
    is_written: Arc<AtomicBool>,
}

/// A watch over a storage's memory, which ends when this is dropped. The storage lives as long.
pub(crate) struct Watch {
    storage: Storage,
    is_written: Arc<AtomicBool>,
}

impl Watch {
    /// Watches a storage from now on.
    pub(crate) fn new(storage: &Storage) -> Self {
        let is_written = Arc::new(AtomicBool::new(false));
        let entry = Entry { range: range_of(storage), is_written: Arc::clone(&is_written) };
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        watched.push(entry);
        COUNT.store(watched.len(), Ordering::Relaxed);
        Self { storage: storage.clone(), is_written }
    }

    /// The storage.
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Whether anything was written since.
    pub(crate) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|entry| !Arc::ptr_eq(&entry.is_written, &self.is_written));
        COUNT.store(watched.len(), Ordering::Relaxed);
    }
}

impl Storage {
    /// Notes that the memory is about to be written.
    #[inline]
    pub(crate) fn note_write(&self) {
        if COUNT.load(Ordering::Relaxed) != 0 {
            note(range_of(self));
        }
    }
}

#[cold]
fn note(range: Range<u64>) {
    let watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    for entry in watched.iter().filter(|entry| entry.range.start < range.end && range.start < entry.range.end) {
        entry.is_written.store(true, Ordering::Relaxed);
    }
}

fn range_of(storage: &Storage) -> Range<u64> {
    // Memory that is not there yet is watched by nobody.
    let first = match storage.device().kind {
        DeviceType::Cuda => storage.present().map_or(0, DeviceBuffer::address),
        _ => storage.data_ptr(),
    };
    first..first.saturating_add(u64::try_from(storage.nbytes()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_seen_by_the_watches_over_that_memory_alone() {
        let (one, other) = (Storage::from_bytes(&[1; 16]).unwrap(), Storage::from_bytes(&[2; 16]).unwrap());
        let (first, second) = (Watch::new(&one), Watch::new(&other));
        one.clone().note_write();
        assert!(first.is_written() && !second.is_written());
        assert!(!Watch::new(&one).is_written(), "a new watch begins anew");
    }
}
