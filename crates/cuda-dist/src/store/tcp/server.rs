//! The server of a TCP store: one thread that serves all connections.
//!
//! Invariants:
//! - A connection has one file descriptor and no thread. A quarter of the files that the process may open is reserved
//!   for the rest of the process.
//! - Replies to a client are sent in the order in which they were produced.
//! - While a client does not read its replies, its further requests are not processed; it is disconnected if it reads
//!   nothing for a while.
//! - Dropping a server ends every connection and waits for no client.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};

use super::engine::{Engine, Limits};
use super::service::Service;
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
    /// Event descriptor (`eventfd`) that is signalled when the server is dropped.
    closing: Arc<OwnedFd>,
    serving: Option<thread::JoinHandle<()>>,
}

/// Backlog of `listen`: connections that the system queues until the server accepts them. The system's own limit may be
/// lower.
const BACKLOG: i32 = 4096;

impl TcpStoreServer {
    /// A server without a token that listens at an address; port 0 takes one that is free.
    ///
    /// # Errors
    /// Another program listens there, or the address is not one of this host.
    pub fn new(bind: SocketAddr) -> Result<Self> {
        Self::with(&TcpServerOptions { bind, ..TcpServerOptions::default() })
    }

    /// Starts a server with these options.
    ///
    /// # Errors
    /// Another program listens on the address, the address is not one of this host, or the process may not open enough
    /// files.
    pub fn with(options: &TcpServerOptions) -> Result<Self> {
        let refused = |cause: io::Error| {
            if cause.kind() == io::ErrorKind::AddrInUse {
                return Error::PortInUse { address: options.bind };
            }
            Error::Listen { address: options.bind.to_string(), cause: Arc::new(cause), hint: "" }
        };
        let listener = TcpListener::bind(options.bind).map_err(refused)?;
        // The standard library uses a backlog of 128, fewer than the ranks that may connect at once.
        rustix::net::listen(&listener, BACKLOG).map_err(|cause| refused(cause.into()))?;
        let address = listener.local_addr().map_err(refused)?;
        let limits = within_open_files(options.limits, getrlimit(Resource::Nofile).current);
        let closing = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let closing = Arc::new(closing.map_err(|cause| refused(cause.into()))?);
        let engine = Engine::new(options.token.as_deref(), limits);
        let service = Service::new(listener, Arc::clone(&closing), engine, limits).map_err(refused)?;
        let serving = thread::Builder::new().name("store".to_owned()).spawn(move || service.run()).map_err(refused)?;
        Ok(Self { address, closing, serving: Some(serving) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TcpStoreServer {
    fn drop(&mut self) {
        let woken = rustix::io::write(&self.closing, &1_u64.to_ne_bytes());
        if let (Ok(_), Some(serving)) = (woken, self.serving.take()) {
            let _ = serving.join();
        }
    }
}

/// Lowers the limit of connections to the files that the process may open, minus a reserve for other files.
fn within_open_files(limits: Limits, open_files: Option<u64>) -> Limits {
    let open_files = open_files.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let reserve = (open_files / 4).clamp(64, 1024);
    let room = open_files.saturating_sub(reserve);
    let strangers = limits.strangers.min(room / 8).max(1);
    let connections = limits.connections.min(room.saturating_sub(strangers)).max(1);
    Limits { connections, strangers, ..limits }
}

#[cfg(test)]
mod tests {
    use super::{Limits, within_open_files};

    #[test]
    fn open_files_bound_the_connections() {
        let bounded = |open_files| {
            let limits = within_open_files(Limits::default(), open_files);
            (limits.connections, limits.strangers)
        };
        assert_eq!(bounded(None), (4096, 64));
        assert_eq!(bounded(Some(1 << 20)), (4096, 64));
        // One thousand ranks with three connections each.
        assert_eq!(bounded(Some(4096)), (3008, 64));
        assert_eq!(bounded(Some(1024)), (704, 64));
        assert_eq!(bounded(Some(256)), (168, 24));
        assert_eq!(bounded(Some(20)), (1, 1));
        let few = within_open_files(Limits { connections: 3, ..Limits::default() }, Some(1024));
        assert_eq!((few.connections, few.strangers), (3, 64));
    }
}
