//! The end that holds the values: a thread that takes connections, and one for each of them.
//!
//! Invariants:
//! - What is to be sent to a client is decided in the order of the requests and sent in that order: it goes to the client's
//!   queue while the engine is locked, and to the network without the lock.
//! - Dropping a server ends every connection and waits for no client.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::engine::{Answers, ClientId, Engine, Limits};
use super::wire::{Refusal, Request};
use crate::error::{Error, Result};

/// How a server is made.
///
/// ```
/// use cuda_dist::{TcpServerOptions, TcpStoreServer};
///
/// let server = TcpStoreServer::with(&TcpServerOptions { token: Some("secret".to_owned()), ..Default::default() })?;
/// assert!(server.address().ip().is_loopback());
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Clone)]
pub struct TcpServerOptions {
    /// Where to listen. Loopback and any free port, unless told otherwise.
    pub bind: SocketAddr,
    /// What a client must know. Then no rank of PyTorch can be one.
    pub token: Option<String>,
    /// What is taken from clients.
    pub limits: Limits,
}

impl Default for TcpServerOptions {
    fn default() -> Self {
        Self { bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), token: None, limits: Limits::default() }
    }
}

impl std::fmt::Debug for TcpServerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("TcpServerOptions")
            .field("bind", &self.bind)
            .field("token", &token)
            .field("limits", &self.limits)
            .finish()
    }
}

/// Holds the values of a [`TcpStore`](super::TcpStore) and serves them to ranks, those of PyTorch too, until it is dropped.
///
/// ```
/// use std::time::Duration;
///
/// use cuda_dist::{Store, TcpStore, TcpStoreServer};
///
/// let server = TcpStoreServer::new("127.0.0.1:0".parse().unwrap())?;
/// let store = TcpStore::connect(&server.address().to_string(), Duration::from_secs(5))?;
/// store.set("key", b"value")?;
/// assert_eq!(store.get("key", Duration::from_secs(5))?, b"value");
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug)]
pub struct TcpStoreServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    engine: Mutex<Engine>,
    peers: Mutex<BTreeMap<ClientId, Arc<Peer>>>,
    limits: Limits,
    is_closing: AtomicBool,
}

/// The way back to a client.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    /// What is decided and not sent yet.
    queue: Mutex<Vec<u8>>,
    /// Held by the thread that sends.
    sending: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TcpStoreServer {
    /// A server without a token that listens at an address; port 0 takes one that is free.
    ///
    /// # Errors
    /// Another program listens there, or the address is not one of this host.
    pub fn new(bind: SocketAddr) -> Result<Self> {
        Self::with(&TcpServerOptions { bind, ..TcpServerOptions::default() })
    }

    /// A server as the options say.
    ///
    /// # Errors
    /// Another program listens there, or the address is not one of this host.
    pub fn with(options: &TcpServerOptions) -> Result<Self> {
        let refused = |cause: io::Error| {
            if cause.kind() == io::ErrorKind::AddrInUse {
                return Error::PortInUse { address: options.bind };
            }
            Error::Listen { address: options.bind.to_string(), cause: Arc::new(cause), hint: "" }
        };
        let listener = TcpListener::bind(options.bind).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let shared = Arc::new(Shared {
            engine: Mutex::new(Engine::new(options.token.as_deref(), options.limits)),
            peers: Mutex::new(BTreeMap::new()),
            limits: options.limits,
            is_closing: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let accepting = thread::Builder::new()
            .name("store-accept".to_owned())
            .spawn(move || accept(&listener, &of_thread))
            .map_err(refused)?;
        Ok(Self { address, shared, accepting: Some(accepting) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TcpStoreServer {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        // A connection to itself wakes the thread that takes connections.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            IpAddr::V4(_) | IpAddr::V6(_) => self.address.ip(),
        };
        let woken = TcpStream::connect_timeout(&SocketAddr::new(ip, self.address.port()), Duration::from_secs(1));
        lock(&self.shared.peers).values().for_each(|peer| peer.close());
        if let (Ok(_), Some(accepting)) = (woken, self.accepting.take()) {
            let _ = accepting.join();
        }
    }
}

/// Takes connections until the server closes.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in 0.. {
        let accepted = listener.accept();
        if shared.is_closing.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((stream, from)) => {
                if let Err(error) = begin(client, stream, shared) {
                    tracing::warn!(%from, %error, "a connection to the store is refused");
                }
            }
            // No file descriptor is free, for example: others may leave.
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Begins to serve a connection by a thread of its own.
fn begin(client: ClientId, stream: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    if !lock(&shared.engine).admit(client) {
        return Err(io::Error::other(format!("there are {} already", shared.limits.connections)));
    }
    let outcome = (|| {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(shared.limits.seconds.max(1))))?;
        let peer = Peer { stream: stream.try_clone()?, queue: Mutex::default(), sending: Mutex::default() };
        lock(&shared.peers).insert(client, Arc::new(peer));
        let of_thread = Arc::clone(shared);
        let serve = move || serve(client, &stream, &of_thread);
        thread::Builder::new().name("store-client".to_owned()).stack_size(256 << 10).spawn(serve)
    })();
    if outcome.is_err() {
        end(client, shared);
    }
    outcome.map(drop)
}

fn end(client: ClientId, shared: &Shared) {
    lock(&shared.engine).leave(client);
    if let Some(peer) = lock(&shared.peers).remove(&client) {
        peer.close();
    }
}

/// Serves a connection until it ends or sends what is no request.
fn serve(client: ClientId, stream: &TcpStream, shared: &Shared) {
    let begin = Instant::now();
    let refusal = serve_requests(client, stream, shared, begin);
    end(client, shared);
    match refusal {
        Refusal::Garbage(problem) => {
            let from = stream.peer_addr().map_or_else(|_| "a client".to_owned(), |from| from.to_string());
            tracing::warn!(from, problem, "a connection to the store is closed");
        }
        Refusal::Io(error) => tracing::debug!(%error, "a connection to the store ended"),
    }
}

fn serve_requests(client: ClientId, stream: &TcpStream, shared: &Shared, begin: Instant) -> Refusal {
    let time = Duration::from_secs(shared.limits.seconds);
    let mut reader = BufReader::new(Timed { stream, until: Some(begin + time) });
    let mut is_admitted = false;
    loop {
        if is_admitted {
            // An idle client may be idle for as long as it likes; one that has begun a request finishes it.
            reader.get_mut().until = None;
            match reader.fill_buf() {
                Ok([]) => return Refusal::Io(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => reader.get_mut().until = Some(Instant::now() + time),
                Err(error) => return Refusal::Io(error),
            }
        }
        let request = match Request::read(&mut reader, &shared.limits) {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        let outcome = {
            let mut engine = lock(&shared.engine);
            let outcome = engine.apply(client, request).map(|answers| shared.enqueue(answers));
            is_admitted = engine.is_admitted(client);
            outcome
        };
        match outcome {
            Ok(peers) => peers.iter().for_each(|peer| peer.send()),
            Err(refusal) => return refusal,
        }
    }
}

impl Shared {
    /// Puts answers into the queues of those they are for. The engine is locked meanwhile.
    fn enqueue(&self, answers: Answers) -> Vec<Arc<Peer>> {
        let peers = lock(&self.peers);
        let enqueue = |(client, answer): (ClientId, Vec<u8>)| {
            let peer = peers.get(&client)?;
            lock(&peer.queue).extend(answer);
            Some(Arc::clone(peer))
        };
        answers.into_iter().filter_map(enqueue).collect()
    }
}

impl Peer {
    /// Sends what is in the queue, unless another thread does. That one looks again when it has finished, so that nothing
    /// stays.
    fn send(&self) {
        while !lock(&self.queue).is_empty() {
            let Ok(_sending) = self.sending.try_lock() else { return };
            let bytes = std::mem::take(&mut *lock(&self.queue));
            if (&self.stream).write_all(&bytes).is_err() {
                self.close();
                return;
            }
        }
    }

    fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A connection that is read until some moment.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Option<Instant>,
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(left)?;
        self.stream.read(bytes)
    }
}
