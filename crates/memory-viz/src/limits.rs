//! Limits of the readers: the size of a file, and the memory that its values take.

use crate::error::{Error, Result};

/// Bounds for reading a file. The memory for reading, including the file's bytes and the resulting snapshot, is at most
/// `held_ratio` bytes for each byte of the file, plus 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest size of a file in bytes. Never more than 4 GiB less one byte are read.
    pub bytes_max: u64,
    /// Bytes of memory for each byte of the file: 8. Snapshots take four to six. A small file may reference a list many
    /// times, or consist of empty lists; such a file is rejected.
    pub held_ratio: u64,
    /// Largest nesting depth of lists and dictionaries.
    pub depth_max: usize,
}

impl Default for Limits {
    /// Returns 4 GiB, eight times the file, and a depth of 64.
    fn default() -> Self {
        Self { bytes_max: u64::from(u32::MAX), held_ratio: 8, depth_max: 64 }
    }
}

/// Bytes that every file may take, however small the file is.
const LEAST_BYTES: usize = 64 << 10;

impl Limits {
    /// Returns the memory budget for the values of a file whose bytes are in memory already.
    pub(crate) fn budget(&self, file_bytes: usize) -> Budget {
        let ratio = usize::try_from(self.held_ratio).unwrap_or(usize::MAX);
        Budget { held: 0, limit: file_bytes.saturating_mul(ratio.saturating_sub(1)).saturating_add(LEAST_BYTES) }
    }
}

/// Bytes taken by values, and their limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    held: usize,
    limit: usize,
}

impl Budget {
    /// Charges bytes to the budget.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<()> {
        let held = self.held.saturating_add(bytes);
        if held > self.limit {
            return Err(Error::Limit { what: "bytes of values", limit: self.limit as u64, field: "held_ratio" });
        }
        self.held = held;
        Ok(())
    }

    /// Returns charged bytes to the budget.
    pub(crate) fn give(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// Makes room for `more` items in a list: doubles its capacity, or uses what the budget has left.
    pub(crate) fn reserve<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<()> {
        let free = list.capacity() - list.len();
        if more <= free {
            return Ok(());
        }
        let size = size_of::<T>().max(1);
        let needed = more - free;
        let left = (self.limit - self.held) / size;
        let added = list.capacity().min(left).max(needed);
        self.take(added.saturating_mul(size))?;
        list.reserve_exact(free + added);
        Ok(())
    }

    /// Adds an item to a list.
    pub(crate) fn push<T>(&mut self, list: &mut Vec<T>, item: T) -> Result<()> {
        self.reserve(list, 1)?;
        list.push(item);
        Ok(())
    }

    /// Returns an empty list with capacity for `items` items.
    pub(crate) fn list<T>(&mut self, items: usize) -> Result<Vec<T>> {
        self.take(items.saturating_mul(size_of::<T>()))?;
        Ok(Vec::with_capacity(items))
    }

    /// Charges an entry of a hash table, which has at most three slots for each entry while it grows.
    pub(crate) fn entry<K, V>(&mut self) -> Result<()> {
        self.take(3 * (size_of::<(K, V)>() + 1))
    }
}
