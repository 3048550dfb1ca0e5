//! A map with a limit: the entry whose last use is longest ago makes room for a new one.
//!
//! **Invariants:** at most `limit` entries. Reading an entry marks it as used and needs no exclusive access, so that a
//! map behind a read-write lock is read by several threads at once. An entry that goes is returned, so that its owner can
//! drop it outside of a lock.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

/// A map that forgets its least recently used entry.
#[derive(Debug)]
pub(crate) struct RecentMap<K, V> {
    entries: HashMap<K, Entry<V>>,
    limit: usize,
    /// Counts uses.
    clock: AtomicU64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// The clock at the last use.
    used: AtomicU64,
}

impl<K: Eq + Hash + Clone, V> RecentMap<K, V> {
    /// An empty map for at most `limit` entries.
    pub(crate) fn new(limit: usize) -> Self {
        Self { entries: HashMap::new(), limit, clock: AtomicU64::new(0) }
    }

    /// The value of a key, which counts as used now.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let entry = self.entries.get(key)?;
        entry.used.store(self.tick(), Ordering::Relaxed);
        Some(&entry.value)
    }

    /// Adds an entry, or replaces the value of its key. Returns the value that had to go: the replaced one or, at the
    /// limit, that of the least recently used entry.
    #[must_use = "a value may have to be dropped outside of a lock"]
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let entry = Entry { value, used: AtomicU64::new(self.tick()) };
        if let Some(replaced) = self.entries.insert(key, entry) {
            return Some(replaced.value);
        }
        if self.entries.len() <= self.limit {
            return None;
        }
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed));
        let oldest = oldest.map(|(key, _)| key.clone())?;
        self.entries.remove(&oldest).map(|entry| entry.value)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_makes_room() {
        let mut map = RecentMap::new(2);
        assert_eq!(map.insert('a', 1), None);
        assert_eq!(map.insert('b', 2), None);
        assert_eq!(map.get(&'a'), Some(&1));
        assert_eq!(map.insert('c', 3), Some(2));
        assert_eq!((map.get(&'a'), map.get(&'b'), map.get(&'c')), (Some(&1), None, Some(&3)));
    }

    #[test]
    fn a_replaced_value_is_returned_and_nothing_else_goes() {
        let mut map = RecentMap::new(1);
        assert_eq!(map.insert('a', 1), None);
        assert_eq!(map.insert('a', 2), Some(1));
        assert_eq!(map.get(&'a'), Some(&2));
    }
}
