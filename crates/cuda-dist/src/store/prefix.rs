//! A part of a store: its keys stand behind a prefix in the store beneath (torch's `PrefixStore`).
//!
//! Invariant: keys are `prefix/key`, as torch writes them, so that ranks of PyTorch find the same values.

use std::sync::Arc;
use std::time::Duration;

use super::Store;
use crate::error::Result;

/// A part of a store, whose keys stand behind a prefix (torch's `PrefixStore`).
///
/// ```
/// use std::sync::Arc;
///
/// use cuda_dist::{HashStore, PrefixStore, Store};
///
/// let whole = HashStore::new();
/// let part = PrefixStore::new("default_pg", Arc::new(whole.clone()));
/// part.set("key", b"value")?;
/// assert!(whole.check(&["default_pg/key"])?);
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PrefixStore {
    prefix: String,
    store: Arc<dyn Store>,
}

impl PrefixStore {
    /// The part of a store behind a prefix.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use cuda_dist::{HashStore, PrefixStore, Store};
    ///
    /// let inner = PrefixStore::new("0/", Arc::new(PrefixStore::new("default_pg", Arc::new(HashStore::new()))));
    /// assert_eq!(inner.add("n", 1)?, 1);
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    #[must_use]
    pub fn new(prefix: &str, store: Arc<dyn Store>) -> Self {
        Self { prefix: prefix.to_owned(), store }
    }

    fn key(&self, key: &str) -> String {
        format!("{}/{key}", self.prefix)
    }

    fn with_keys<T>(&self, keys: &[&str], use_keys: impl FnOnce(&[&str]) -> T) -> T {
        let keys: Vec<String> = keys.iter().map(|key| self.key(key)).collect();
        use_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

impl Store for PrefixStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.store.set(&self.key(key), value)
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        self.store.compare_set(&self.key(key), expected, desired)
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        self.store.get(&self.key(key), timeout)
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.store.add(&self.key(key), amount)
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.store.append(&self.key(key), value)
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        self.with_keys(keys, |keys| self.store.check(keys))
    }

    fn wait(&self, keys: &[&str], timeout: Duration) -> Result<()> {
        self.with_keys(keys, |keys| self.store.wait(keys, timeout))
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        self.store.delete_key(&self.key(key))
    }

    fn num_keys(&self) -> Result<usize> {
        self.store.num_keys()
    }

    fn multi_get(&self, keys: &[&str], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        self.with_keys(keys, |keys| self.store.multi_get(keys, timeout))
    }

    fn multi_set(&self, values: &[(&str, &[u8])]) -> Result<()> {
        let keyed: Vec<(String, &[u8])> = values.iter().map(|(key, value)| (self.key(key), *value)).collect();
        self.store.multi_set(&keyed.iter().map(|(key, value)| (key.as_str(), *value)).collect::<Vec<_>>())
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.store.queue_push(&self.key(key), value)
    }

    fn queue_pop(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        self.store.queue_pop(&self.key(key), timeout)
    }

    fn queue_len(&self, key: &str) -> Result<usize> {
        self.store.queue_len(&self.key(key))
    }

    fn duplicate(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self { prefix: self.prefix.clone(), store: self.store.duplicate()? }))
    }
}
