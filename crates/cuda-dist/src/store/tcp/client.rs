//! The end that uses the values: one connection, one request at a time.
//!
//! Invariants:
//! - A connection on which an exchange was interrupted is not used again.
//! - A store is reported lost only if it cannot be reached again. If a store closes a connection but accepts a new one,
//!   it refused a request; the new connection replaces the old one.

use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::engine::Limits;
use super::wire::{ADMITTED, MAGIC, NOT_READY, READY, Reader, Refusal, Request, STOP_WAITING, WAIT_CANCELED};
use crate::error::{Error, Result};
use crate::store::table::sum;
use crate::store::{Store, wait_for_queue};

/// What torch puts before each key.
const KEY_PREFIX: &str = "/";

/// The time in which an answer comes that waits for nobody.
const ANSWER: Duration = Duration::from_secs(60);

/// Time limit for reconnecting to a store that has closed the connection.
const AGAIN: Duration = Duration::from_secs(2);

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
/// Threads that share one take turns: what waits holds up the others, so that a thread that must go on has a
/// [duplicate](Store::duplicate).
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
pub struct TcpStore {
    address: String,
    options: TcpStoreOptions,
    connection: Mutex<Option<TcpStream>>,
}

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
        let begin = Instant::now();
        let mut pause = Duration::from_millis(10);
        loop {
            let left = options.timeout.saturating_sub(begin.elapsed());
            let cause = match reach(address, left) {
                Ok(stream) => {
                    let connection = Mutex::new(Some(stream));
                    let store = Self { address: address.to_owned(), options, connection };
                    store.introduce()?;
                    return Ok(store);
                }
                Err(cause) => Arc::new(cause),
            };
            let left = options.timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(Error::Connect { address: address.to_owned(), waited: begin.elapsed(), cause });
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_secs(1));
        }
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
        &self.address
    }

    /// Counts one more process that has come, where torch counts them, and tells how many came.
    pub(crate) fn count_worker(&self, amount: i64) -> Result<i64> {
        // Without the prefix of other keys, as in torch.
        self.exchange("counted", &Request::Add(b"init/".to_vec(), amount), |answer| {
            Ok(i64::from_le_bytes(answer.raw()?))
        })
    }

    /// Checks that the server speaks the store's protocol.
    fn introduce(&self) -> Result<()> {
        let time = self.options.timeout.clamp(Duration::from_millis(1), ANSWER);
        let greeted =
            self.lock().as_mut().map_or(Ok(true), |stream| greet(stream, self.options.token.as_deref(), time));
        let problem = match greeted {
            Ok(true) => return Ok(()),
            Ok(false) => "it answers something else".to_owned(),
            Err(Refusal::Garbage(problem)) => problem,
            Err(Refusal::Io(error)) => match self.options.token {
                Some(_) => format!("it takes no token, or not this one ({error})"),
                None => {
                    format!("it closed the connection or is silent ({error}); a store that wants a token does so too")
                }
            },
        };
        Err(Error::Protocol { peer: self.address.clone(), problem })
    }

    fn lock(&self) -> MutexGuard<'_, Option<TcpStream>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and reads what comes back.
    fn exchange<T>(
        &self,
        verb: &'static str,
        request: &Request,
        read: impl FnOnce(&mut Reader<'_>) -> Answer<T>,
    ) -> Result<T> {
        let mut guard = self.lock();
        self.on(&mut guard, verb, |stream| {
            stream.set_read_timeout(Some(ANSWER))?;
            stream.write_all(&request.to_bytes())?;
            read(&mut Reader::of_answer(stream, &Limits { value_bytes: usize::MAX, ..Limits::default() }))
        })
    }

    /// Uses the connection, and gives it up where that fails.
    fn on<T>(
        &self,
        guard: &mut MutexGuard<'_, Option<TcpStream>>,
        verb: &'static str,
        exchange: impl FnOnce(&mut TcpStream) -> Answer<T>,
    ) -> Result<T> {
        let lost = |cause: io::Error| Error::StoreLost { store: self.address.clone(), verb, cause: Arc::new(cause) };
        let stream = guard.as_mut().ok_or_else(|| lost(io::ErrorKind::NotConnected.into()))?;
        let refusal = match exchange(stream) {
            Ok(value) => return Ok(value),
            Err(refusal) => refusal,
        };
        let _ = stream.shutdown(Shutdown::Both);
        **guard = None;
        Err(match refusal {
            Refusal::Io(cause) if is_closed(&cause) => match self.reach_anew() {
                Some(stream) => {
                    **guard = Some(stream);
                    Error::StoreRefused { store: self.address.clone(), verb }
                }
                None => lost(cause),
            },
            Refusal::Io(cause) => lost(cause),
            Refusal::Garbage(problem) => Error::Protocol { peer: self.address.clone(), problem },
        })
    }

    /// Returns a new connection if the store still serves.
    fn reach_anew(&self) -> Option<TcpStream> {
        let mut stream = reach(&self.address, AGAIN).ok()?;
        let serves = greet(&mut stream, self.options.token.as_deref(), AGAIN).unwrap_or(false);
        serves.then_some(stream)
    }

    /// Returns the reason why the value of a key cannot be added to, if that is why the store refused the request.
    fn refused_sum(&self, key: &str, amount: i64) -> Result<Option<String>> {
        if !self.check(&[key])? {
            return Ok(None);
        }
        let value = self.exchange("read", &Request::Get(full_key(key)), |answer| answer.value())?;
        Ok(sum(Some(&value), amount).err())
    }
}

/// Sends the magic number and the token; returns whether the server answers as a store does.
fn greet(stream: &mut TcpStream, token: Option<&str>, time: Duration) -> Answer<bool> {
    let (nonce, limits) = (std::process::id(), Limits::default());
    let mut hello = Request::Validate(MAGIC).to_bytes();
    if let Some(token) = token {
        hello.extend(Request::Token(token.as_bytes().to_vec()).to_bytes());
    }
    stream.set_read_timeout(Some(time))?;
    stream.write_all(&hello)?;
    if token.is_some() && Reader::of_answer(stream, &limits).raw()? != [ADMITTED] {
        return Ok(false);
    }
    stream.write_all(&Request::Ping(nonce).to_bytes())?;
    Ok(Reader::of_answer(stream, &limits).raw()? == nonce.to_le_bytes())
}

/// Whether an error means that the server has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

type Answer<T> = std::result::Result<T, Refusal>;

/// One attempt to connect, at each address of the host.
fn reach(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    for place in addresses {
        match TcpStream::connect_timeout(&place, timeout.clamp(Duration::from_millis(1), Duration::from_secs(10))) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(ANSWER))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn full_key(key: &str) -> Vec<u8> {
    [KEY_PREFIX, key].concat().into_bytes()
}

fn full_keys(keys: &[&str]) -> Vec<Vec<u8>> {
    keys.iter().map(|key| full_key(key)).collect()
}

/// An answer of one byte, which is one of two.
fn flag(reader: &mut Reader<'_>, yes: u8, no: u8) -> Answer<bool> {
    let [byte] = reader.raw()?;
    if byte != yes && byte != no {
        return Err(Refusal::Garbage(format!("{byte} is no answer")));
    }
    Ok(byte == yes)
}

/// Waits on the server; whether all keys have values.
fn wait_there(stream: &mut TcpStream, keys: &[&str], timeout: Duration) -> Answer<bool> {
    let limits = Limits::default();
    stream.write_all(&Request::Wait(full_keys(keys)).to_bytes())?;
    stream.set_read_timeout(Some(timeout.max(Duration::from_millis(1))))?;
    match flag(&mut Reader::of_answer(stream, &limits), STOP_WAITING, WAIT_CANCELED) {
        Err(Refusal::Io(error)) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
        other => return other,
    }
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(&Request::CancelWait.to_bytes())?;
    let mut reader = Reader::of_answer(stream, &limits);
    let is_there = flag(&mut reader, STOP_WAITING, WAIT_CANCELED)?;
    // The answer had been on its way; that to the cancellation comes after it.
    if is_there && flag(&mut reader, STOP_WAITING, WAIT_CANCELED)? {
        return Err(Refusal::Garbage("a wait ended twice".to_owned()));
    }
    Ok(is_there)
}

impl Store for TcpStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.exchange("set", &Request::Set(full_key(key), value.to_vec()), |_| Ok(()))
    }

    fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        let (expected, desired) = (expected.to_vec(), desired.to_vec());
        self.exchange("compared", &Request::CompareSet { key: full_key(key), expected, desired }, |answer| {
            answer.value()
        })
    }

    fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        self.wait(&[key], timeout)?;
        self.exchange("read", &Request::Get(full_key(key)), |answer| answer.value())
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64> {
        let add = Request::Add(full_key(key), amount);
        let outcome = self.exchange("added to", &add, |answer| Ok(i64::from_le_bytes(answer.raw()?)));
        if matches!(outcome, Err(Error::StoreRefused { .. }))
            && let Some(problem) = self.refused_sum(key, amount)?
        {
            // The protocol has no error reply for this: servers, torch's included, close the connection.
            return Err(Error::Value { key: key.to_owned(), problem });
        }
        outcome
    }

    fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.exchange("lengthened", &Request::Append(full_key(key), value.to_vec()), |_| Ok(()))
    }

    fn check(&self, keys: &[&str]) -> Result<bool> {
        self.exchange("looked for", &Request::Check(full_keys(keys)), |answer| flag(answer, READY, NOT_READY))
    }

    fn wait(&self, keys: &[&str], timeout: Duration) -> Result<()> {
        let begin = Instant::now();
        let is_there = self.on(&mut self.lock(), "waited for", |stream| wait_there(stream, keys, timeout))?;
        if is_there {
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
        self.exchange("removed", &Request::Delete(full_key(key)), |answer| Ok(i64::from_le_bytes(answer.raw()?) == 1))
    }

    fn num_keys(&self) -> Result<usize> {
        let count =
            |answer: &mut Reader<'_>| Ok(usize::try_from(u64::from_le_bytes(answer.raw()?)).unwrap_or(usize::MAX));
        self.exchange("counted", &Request::NumKeys, count)
    }

    fn multi_get(&self, keys: &[&str], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        self.wait(keys, timeout)?;
        self.exchange("read", &Request::MultiGet(full_keys(keys)), |answer| {
            keys.iter().map(|_| answer.value()).collect()
        })
    }

    fn multi_set(&self, values: &[(&str, &[u8])]) -> Result<()> {
        let pairs = values.iter().map(|(key, value)| (full_key(key), value.to_vec())).collect();
        self.exchange("set", &Request::MultiSet(pairs), |_| Ok(()))
    }

    fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.exchange("put into a queue", &Request::QueuePush(full_key(key), value.to_vec()), |_| Ok(()))
    }

    fn queue_pop(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let begin = Instant::now();
        loop {
            self.wait(&[key], timeout.saturating_sub(begin.elapsed()))?;
            let pop = Request::QueuePop(full_key(key));
            let value = self.exchange("taken from a queue", &pop, |answer| {
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
        self.exchange("counted", &Request::QueueLen(full_key(key)), |answer| {
            Ok(usize::try_from(u64::from_le_bytes(answer.raw()?)).unwrap_or(usize::MAX))
        })
    }

    fn duplicate(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self::with(&self.address, self.options.clone())?))
    }
}
