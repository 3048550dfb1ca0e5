//! The end that uses the values, with torch's rules: what each call sends, and what its answer means.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client_connections::{Connections, flag};
use super::wire::{NOT_READY, READY, Reader, Request};
use crate::error::{Error, Result};
use crate::store::table::sum;
use crate::store::{Store, wait_for_queue};

/// What torch puts before each key.
const KEY_PREFIX: &str = "/";

/// How a [`TcpStore`] is connected.
///
/// ```
/// use std::time::Duration;
///
/// use cuda_dist::TcpStoreOptions;
///
/// let options = TcpStoreOptions { timeout: Duration::from_secs(30), ..Default::default() };
/// assert_eq!(options.token, None);
/// ```
#[derive(Clone)]
pub struct TcpStoreOptions {
    /// How long a server is waited for: five minutes, as in torch.
    pub timeout: Duration,
    /// What the server wants to hear. PyTorch's take no token.
    pub token: Option<String>,
}

impl Default for TcpStoreOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(300), token: None }
    }
}

impl std::fmt::Debug for TcpStoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("TcpStoreOptions").field("timeout", &self.timeout).field("token", &token).finish()
    }
}

/// A store that a [`TcpStoreServer`](super::TcpStoreServer) holds, or the `TCPStore` of a process of PyTorch.
///
/// Threads may share one: their requests take turns, and a thread that waits for a key holds up no other. Threads that
/// wait at the same time have one connection each, beside the connection for all other requests.
///
/// ```
/// use std::time::Duration;
///
/// use cuda_dist::{Error, Store, TcpStore, TcpStoreServer};
///
/// let server = TcpStoreServer::new("127.0.0.1:0".parse().unwrap())?;
/// let store = TcpStore::connect(&server.address().to_string(), Duration::from_secs(5))?;
/// assert_eq!(store.add("count", 3)?, 3);
/// let error = store.get("nothing", Duration::from_millis(50)).unwrap_err();
/// assert!(matches!(error, Error::StoreTimeout { ref keys, .. } if *keys == ["nothing"]));
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug)]
pub struct TcpStore(Connections);

impl TcpStore {
    /// Connects to `host:port`, trying again until the time is over.
    ///
    /// # Errors
    /// Nobody answers there in time, or the other side is no store.
    pub fn connect(address: &str, timeout: Duration) -> Result<Self> {
        Self::with(address, TcpStoreOptions { timeout, ..TcpStoreOptions::default() })
    }

    /// Connects to `host:port` as the options say.
    ///
    /// # Errors
    /// Nobody answers there in time, the other side is no store, or it refuses the token.
    pub fn with(address: &str, options: TcpStoreOptions) -> Result<Self> {
        Connections::open(address, options).map(Self)
    }

    /// Where the server is.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use cuda_dist::{TcpStore, TcpStoreServer};
    ///
    /// let server = TcpStoreServer::new("127.0.0.1:0".parse().unwrap())?;
    /// let address = server.address().to_string();
    /// assert_eq!(TcpStore::connect(&address, Duration::from_secs(5))?.address(), address);
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    #[must_use]
    pub fn address(&self) -> &str {
        self.0.address()
    }

    /// Counts one more process that has come, where torch counts them, and tells how many came.
    pub(crate) fn count_worker(&self, amount: i64) -> Result<i64> {
        // Without the prefix of other keys, as in torch.
        self.0.exchange("counted", &Request::Add(b"init/".to_vec(), amount), |answer| {
            Ok(i64::from_le_bytes(answer.raw()?))
        })
    }

    /// Returns the reason why the value of a key cannot be added to, if that is why the store refused the request.
    fn refused_sum(&self, key: &str, amount: i64) -> Result<Option<String>> {
        if !self.check(&[key])? {
            return Ok(None);
        }
        let value = self.0.exchange("read", &Request::Get(full_key(key)), |answer| answer.value())?;
        Ok(sum(Some(&value), amount).err())
    }
}

fn full_key(key: &str) -> Vec<u8> {
    [KEY_PREFIX, key].concat().into_bytes()
}

fn full_keys(keys: &[&str]) -> Vec<Vec<u8>> {
    keys.iter().map(|key| full_key(key)).collect()
}

impl Store for TcpStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.0.exchange("set", &Request::Set(full_key(key), value.to_vec()), |_| Ok(()))
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        let (expected, desired) = (expected.to_vec(), desired.to_vec());
        self.0.exchange("compared", &Request::CompareSet { key: full_key(key), expected, desired }, |answer| {
            answer.value()
        })
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        self.wait(&[key], timeout)?;
        self.0.exchange("read", &Request::Get(full_key(key)), |answer| answer.value())
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        let add = Request::Add(full_key(key), amount);
        let outcome = self.0.exchange("added to", &add, |answer| Ok(i64::from_le_bytes(answer.raw()?)));
        if matches!(outcome, Err(Error::StoreRefused { .. }))
            && let Some(problem) = self.refused_sum(key, amount)?
        {
            // The protocol has no error reply for this: servers, torch's included, close the connection.
            return Err(Error::Value { key: key.to_owned(), problem });
        }
        outcome
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.0.exchange("lengthened", &Request::Append(full_key(key), value.to_vec()), |_| Ok(()))
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        self.0.exchange("looked for", &Request::Check(full_keys(keys)), |answer| flag(answer, READY, NOT_READY))
    }

    fn wait(&self, keys: &[&str], timeout: Duration) -> Result<()> {
        let begin = Instant::now();
        if self.0.wait("waited for", &full_keys(keys), timeout)? {
            return Ok(());
        }
        let mut missing = Vec::new();
        for key in keys {
            if !self.check(&[key])? {
                missing.push((*key).to_owned());
            }
        }
        // All came while they were looked for.
        if missing.is_empty() { Ok(()) } else { Err(Error::StoreTimeout { keys: missing, waited: begin.elapsed() }) }
    }

    fn delete_key(&self, key: &str) -> Result<bool> {
        self.0.exchange("removed", &Request::Delete(full_key(key)), |answer| Ok(i64::from_le_bytes(answer.raw()?) == 1))
    }

    fn num_keys(&self) -> Result<usize> {
        let count =
            |answer: &mut Reader<'_>| Ok(usize::try_from(u64::from_le_bytes(answer.raw()?)).unwrap_or(usize::MAX));
        self.0.exchange("counted", &Request::NumKeys, count)
    }

    fn multi_get(&self, keys: &[&str], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        self.wait(keys, timeout)?;
        self.0.exchange("read", &Request::MultiGet(full_keys(keys)), |answer| {
            keys.iter().map(|_| answer.value()).collect()
        })
    }

    fn multi_set(&self, values: &[(&str, &[u8])]) -> Result<()> {
        let pairs = values.iter().map(|(key, value)| (full_key(key), value.to_vec())).collect();
        self.0.exchange("set", &Request::MultiSet(pairs), |_| Ok(()))
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.0.exchange("put into a queue", &Request::QueuePush(full_key(key), value.to_vec()), |_| Ok(()))
    }

    fn queue_pop(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let begin = Instant::now();
        loop {
            self.wait(&[key], timeout.saturating_sub(begin.elapsed()))?;
            let pop = Request::QueuePop(full_key(key));
            let value = self.0.exchange("taken from a queue", &pop, |answer| {
                let count = u64::from_le_bytes(answer.raw()?);
                if count == 0 { Ok(None) } else { answer.value().map(Some) }
            })?;
            match value {
                Some(value) => return Ok(value),
                // Another took it first.
                None => wait_for_queue(key, begin, timeout)?,
            }
        }
    }

    fn queue_len(&self, key: &str) -> Result<usize> {
        self.0.exchange("counted", &Request::QueueLen(full_key(key)), |answer| {
            Ok(usize::try_from(u64::from_le_bytes(answer.raw()?)).unwrap_or(usize::MAX))
        })
    }

    fn duplicate(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self::with(self.0.address(), self.0.options().clone())?))
    }
}
