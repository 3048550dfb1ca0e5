//! Stores: values under keys that all processes of a group see (torch's `torch.distributed.Store`).
//!
//! Invariant: operations of one store that come from one thread happen in their order.

mod file;
mod hash;
mod prefix;
pub(crate) mod table;
pub(crate) mod tcp;

use std::fmt::Debug;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub use file::FileStore;
pub use hash::HashStore;
pub use prefix::PrefixStore;

use crate::error::{Error, Result};

/// Values under keys that all processes of a group see: torch's `torch.distributed.Store`.
///
/// A key is a text, a value a row of bytes. What waits takes a time-out and says which keys have no value.
///
/// ```
/// use std::time::Duration;
///
/// use cuda_dist::{HashStore, Store};
///
/// let store = HashStore::new();
/// store.set("key", b"value")?;
/// assert_eq!(store.get("key", Duration::from_secs(1))?, b"value");
/// assert_eq!(store.add("count", 2)?, 2);
/// assert!(!store.check(&["key", "other"])?);
/// # Ok::<(), cuda_dist::Error>(())
/// ```
pub trait Store: Send + Sync + Debug {
    /// Sets a value, whether there was one or not. Nobody has to have it when this returns: a
    /// [`TcpStore`](crate::TcpStore) waits for no answer, as in torch. Who has to know that others can see it asks something
    /// after it, or uses [`Self::compare_set`].
    ///
    /// # Errors
    /// The store is lost, or takes no more.
    fn set(&self, key: &str, value: &[u8]) -> Result<()>;

    /// Sets a value if there is `expected`, or none where that is empty; what is there then. As in torch, `expected` comes
    /// back too where there is no value and one was expected.
    ///
    /// # Errors
    /// The store is lost, or takes no more.
    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>>;

    /// Waits for a value.
    ///
    /// # Errors
    /// There is none within the time, or the store is lost.
    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>>;

    /// Adds to the number that a value is as a decimal text; the sum. Where there is no value, it counts from 0.
    ///
    /// # Errors
    /// The value is no number, or the store is lost.
    fn add(&self, key: &str, amount: i64) -> Result<i64>;

    /// Adds bytes at the end of a value, whether there was one or not.
    ///
    /// # Errors
    /// The store is lost, or takes no more.
    fn append(&self, key: &str, value: &[u8]) -> Result<()>;

    /// Whether all of these keys have values.
    ///
    /// # Errors
    /// The store is lost.
    fn check(&self, keys: &[&str]) -> Result<bool>;

    /// Waits until all of these keys have values.
    ///
    /// # Errors
    /// Not all have one within the time; the error lists those without. Or the store is lost.
    fn wait(&self, keys: &[&str], timeout: Duration) -> Result<()>;

    /// Removes a value; whether there was one.
    ///
    /// # Errors
    /// The store is lost.
    fn delete_key(&self, key: &str) -> Result<bool>;

    /// How many keys have values, those of other users of the store too.
    ///
    /// # Errors
    /// The store is lost.
    fn num_keys(&self) -> Result<usize>;

    /// Waits for several values.
    ///
    /// # Errors
    /// Not all are there within the time, or the store is lost.
    fn multi_get(&self, keys: &[&str], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        self.wait(keys, timeout)?;
        keys.iter().map(|key| self.get(key, timeout)).collect()
    }

    /// Sets several values.
    ///
    /// # Errors
    /// The store is lost, or takes no more.
    fn multi_set(&self, values: &[(&str, &[u8])]) -> Result<()> {
        values.iter().try_for_each(|(key, value)| self.set(key, value))
    }

    /// Puts a value at the end of a queue, apart from the key's value (torch's `queue_push`). Whoever waits for the key finds
    /// it there; [`Self::num_keys`] does not count it, and [`Self::delete_key`] leaves it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use cuda_dist::{HashStore, Store};
    ///
    /// let store = HashStore::new();
    /// store.queue_push("jobs", b"first")?;
    /// store.queue_push("jobs", b"second")?;
    /// assert_eq!(store.queue_len("jobs")?, 2);
    /// assert_eq!(store.queue_pop("jobs", Duration::ZERO)?, b"first");
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// The store is lost or takes no more. A [`FileStore`] has no queues, as in torch.
    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()>;

    /// Takes the first value of a queue, and waits for one where there is none (torch's `queue_pop`).
    ///
    /// # Errors
    /// There is none within the time, or as [`Self::queue_push`].
    fn queue_pop(&self, key: &str, timeout: Duration) -> Result<Vec<u8>>;

    /// How many values are in a queue (torch's `queue_len`).
    ///
    /// # Errors
    /// As [`Self::queue_push`].
    fn queue_len(&self, key: &str) -> Result<usize>;

    /// Opens the same store a second time: its values, by a separate connection (torch's `clone`).
    ///
    /// # Errors
    /// The store is lost.
    fn duplicate(&self) -> Result<Arc<dyn Store>>;
}

/// A moment until a queue is looked at again, since waiting for its key was of no use: another took what came, or the key
/// has a value too.
///
/// # Errors
/// The time is over.
fn wait_for_queue(key: &str, begin: Instant, timeout: Duration) -> Result<()> {
    if begin.elapsed() >= timeout {
        return Err(Error::StoreTimeout { keys: vec![key.to_owned()], waited: begin.elapsed() });
    }
    thread::sleep(Duration::from_millis(1));
    Ok(())
}
