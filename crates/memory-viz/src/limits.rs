//! Limits of the readers: the size of a file, and the memory that its values take.

use crate::error::{Error, Result};

/// Bounds on what is read. The memory that reading takes and the snapshot that it returns are at most `held_ratio`
/// bytes for each byte of the file, the file's own bytes among them, and 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size limit of a file in bytes. At most 4 GiB less one byte are ever read.
    pub bytes_max: u64,
    /// Bytes of memory for each byte of the file: 8. Snapshots take four to six. A small file can hold the same list
    /// many times over, or nothing but empty lists; such a file is refused.
    pub held_ratio: u64,
    /// Depth limit of lists and dictionaries inside each other.
    pub depth_max: usize,
}

impl Default for Limits {
    /// 4 GiB, eight times the file, depth 64.
    fn default() -> Self {
        Self { bytes_max: u64::from(u32::MAX), held_ratio: 8, depth_max: 64 }
    }
}

/// Bytes that every file may take, however small it is.
const LEAST_BYTES: usize = 64 << 10;

impl Limits {
    /// Returns the budget of the values of a file, which is in memory itself.
    pub(crate) fn budget(&self, file_bytes: usize) -> Budget {
        let ratio = usize::try_from(self.held_ratio).unwrap_or(usize::MAX);
        Budget { held: 0, limit: file_bytes.saturating_mul(ratio.saturating_sub(1)).saturating_add(LEAST_BYTES) }
    }
}

/// Bytes that values take, and how many they may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    held: usize,
    limit: usize,
}

impl Budget {
    /// Counts bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<()> {
        let held = self.held.saturating_add(bytes);
        if held > self.limit {
            return Err(Error::Limit { what: "bytes of values", limit: self.limit as u64, field: "held_ratio" });
        }
        self.held = held;
        Ok(())
    }

    /// Returns bytes that were counted.
    pub(crate) fn give(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// Makes room in a list that is full for `more` items: as many again, or what the budget has left.
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

    /// Returns an empty list with room for some items.
    pub(crate) fn list<T>(&mut self, items: usize) -> Result<Vec<T>> {
        self.take(items.saturating_mul(size_of::<T>()))?;
        Ok(Vec::with_capacity(items))
    }

    /// Counts an entry of a hash table, whose places are at most three for each entry while it grows.
    pub(crate) fn entry<K, V>(&mut self) -> Result<()> {
        self.take(3 * (size_of::<(K, V)>() + 1))
    }
}
