//! A store inside one process: for groups of threads, and for tests (torch's `HashStore`).
//!
//! Invariant: whoever waits is woken by each change.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::table::Table;
use super::{Store, wait_for_queue};
use crate::error::{Error, Result};

/// A store inside one process (torch's `HashStore`). Clones share their values.
///
/// ```
/// use cuda_dist::{HashStore, Store};
///
/// let store = HashStore::new();
/// let same = store.clone();
/// same.set("key", b"value")?;
/// assert!(store.check(&["key"])?);
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct HashStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    changed: Condvar,
}

impl Default for HashStore {
    fn default() -> Self {
        Self::new()
    }
}

impl HashStore {
    /// An empty store.
    ///
    /// ```
    /// use cuda_dist::{HashStore, Store};
    ///
    /// assert_eq!(HashStore::new().num_keys()?, 0);
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared { table: Mutex::new(Table::new(usize::MAX / 2)), changed: Condvar::new() }) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let result = change(&mut self.table());
        self.shared.changed.notify_all();
        result
    }

    /// The table as soon as all keys have values.
    fn table_with(&self, keys: &[&str], timeout: Duration) -> Result<MutexGuard<'_, Table>> {
        let begin = Instant::now();
        let mut table = self.table();
        loop {
            let missing = || keys.iter().filter(|key| !table.has(key.as_bytes()));
            if missing().next().is_none() {
                return Ok(table);
            }
            let Some(left) = timeout.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) else {
                let keys = missing().map(|key| (*key).to_owned()).collect();
                return Err(Error::StoreTimeout { keys, waited: begin.elapsed() });
            };
            table = self.shared.changed.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Store for HashStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.change(|table| table.set(key.as_bytes(), value.to_vec()))
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        Ok(self.change(|table| table.compare_set(key.as_bytes(), expected, desired.to_vec()))?.0)
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let table = self.table_with(&[key], timeout)?;
        Ok(table.get(key.as_bytes()).unwrap_or_default().to_vec())
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.change(|table| table.add(key.as_bytes(), amount))
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.change(|table| table.append(key.as_bytes(), value))
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        let table = self.table();
        Ok(keys.iter().all(|key| table.has(key.as_bytes())))
    }

    fn wait(&self, keys: &[&str], timeout: Duration) -> Result<()> {
        self.table_with(keys, timeout).map(drop)
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        Ok(self.change(|table| table.delete(key.as_bytes())))
    }

    fn num_keys(&self) -> Result<usize> {
        Ok(self.table().len())
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.change(|table| table.push(key.as_bytes(), value.to_vec()))
    }

    fn queue_pop(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let begin = Instant::now();
        loop {
            let mut table = self.table_with(&[key], timeout.saturating_sub(begin.elapsed()))?;
            if let Some((_, value)) = table.pop(key.as_bytes()) {
                return Ok(value);
            }
            // The key has a value and no queue: that is not what is waited for.
            drop(table);
            wait_for_queue(key, begin, timeout)?;
        }
    }

    fn queue_len(&self, key: &str) -> Result<usize> {
        Ok(self.table().queue_len(key.as_bytes()))
    }

    fn duplicate(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.clone()))
    }
}
