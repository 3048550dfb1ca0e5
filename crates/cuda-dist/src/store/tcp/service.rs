//! The event loop of a server: it waits with `epoll` until any socket is ready, and never blocks on a single one.
//!
//! Invariants:
//! - The incomplete requests of all clients take at most [`Limits::request_bytes`] plus one request. Beyond that limit
//!   clients take turns, in the order in which their requests began; time spent waiting for a turn does not count
//!   towards a client's deadline.
//! - Replies that clients do not read take at most [`Limits::store_bytes`] in total.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use super::connection::Connection;
use super::engine::{ClientId, Engine, Limits};
use super::wire::{Refusal, TOKEN, VALIDATE};

/// Event ids of the listener and of the shutdown signal.
const LISTENER: u64 = u64::MAX;
const CLOSING: u64 = u64::MAX - 1;

/// Number of bytes read at a time, from an authenticated and from an unauthenticated client.
const READ_BYTES: usize = 256 << 10;
const STRANGER_BYTES: usize = 4 << 10;

/// Number of connections accepted at a time, so that unauthenticated clients do not displace those that have just
/// connected.
const ACCEPTED: usize = 16;

/// Number of requests of one client that are processed at a time.
const SERVED: usize = 64;

/// Delay before accepting again after the system ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(20);

/// State of the server's thread.
#[derive(Debug)]
pub(super) struct Service {
    listener: TcpListener,
    epoll: OwnedFd,
    /// Keeps the descriptor open while it is registered with `epoll`.
    _closing: Arc<OwnedFd>,
    engine: Engine,
    limits: Limits,
    connections: BTreeMap<ClientId, Connection>,
    next: ClientId,
    /// Deadlines of connections, earliest first.
    deadlines: BTreeSet<(Instant, ClientId)>,
    /// Clients with an incomplete request, in the order in which the requests began.
    begun: BTreeMap<u64, ClientId>,
    next_begun: u64,
    /// Number of received bytes that are not yet processed, and of unsent bytes of replies.
    pending: usize,
    unsent: usize,
    /// Clients that must wait until requests of other clients are complete.
    paused: BTreeSet<ClientId>,
    /// Clients with more requests than are processed at a time.
    ready: BTreeSet<ClientId>,
    /// Time at which connections are accepted again.
    accepts_at: Option<Instant>,
    buffer: Vec<u8>,
}

impl Service {
    /// # Errors
    /// The system has no descriptor.
    pub(super) fn new(
        listener: TcpListener,
        closing: Arc<OwnedFd>,
        engine: Engine,
        limits: Limits,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &closing, epoll::EventData::new_u64(CLOSING), epoll::EventFlags::IN)?;
        Ok(Self {
            listener,
            epoll,
            _closing: closing,
            engine,
            limits,
            connections: BTreeMap::new(),
            next: 0,
            deadlines: BTreeSet::new(),
            begun: BTreeMap::new(),
            next_begun: 0,
            pending: 0,
            unsent: 0,
            paused: BTreeSet::new(),
            ready: BTreeSet::new(),
            accepts_at: None,
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Serves until the server is dropped.
    pub(super) fn run(mut self) {
        let mut events = [MaybeUninit::uninit(); 64];
        loop {
            let timeout = self.timeout();
            let found: Vec<(u64, epoll::EventFlags)> = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
                Ok((found, _)) => found.iter().map(|event| (event.data.u64(), event.flags)).collect(),
                Err(rustix::io::Errno::INTR) => Vec::new(),
                Err(error) => {
                    tracing::error!(%error, "the store's server ends");
                    return;
                }
            };
            if found.iter().any(|(id, _)| *id == CLOSING) {
                return;
            }
            found.iter().filter(|(id, _)| *id != LISTENER).for_each(|(client, flags)| self.handle(*client, *flags));
            for client in std::mem::take(&mut self.ready) {
                self.attempt(client, Self::serve);
            }
            // Clients that are connected come first: they may have proved themselves by now.
            if found.iter().any(|(id, _)| *id == LISTENER) {
                self.accept();
            }
            self.resume();
            self.end_late();
        }
    }

    /// Returns the time until the loop must act even if no socket is ready.
    fn timeout(&self) -> Option<Timespec> {
        if !self.ready.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        let left = [deadline, self.accepts_at].into_iter().flatten().min()?.saturating_duration_since(Instant::now());
        let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        Some(Timespec { tv_sec: seconds, tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// Accepts connections.
    fn accept(&mut self) {
        for _ in 0..ACCEPTED {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    if let Err(error) = self.begin(stream, from) {
                        tracing::warn!(%from, %error, "a connection to the store is refused");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // For example, no descriptor is free; other files may be closed soon.
                    tracing::warn!(%error, "the store takes no connection for a moment");
                    return self.listen(false);
                }
            }
        }
    }

    /// Resumes accepting connections, or pauses it for a moment.
    fn listen(&mut self, accepts: bool) {
        let flags = if accepts { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        self.accepts_at = (!accepts).then(|| Instant::now() + PAUSE);
        if let Err(error) = epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), flags) {
            tracing::error!(%error, "the store's server cannot wait for connections");
        }
    }

    /// Registers a new connection.
    fn begin(&mut self, stream: TcpStream, from: SocketAddr) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let client = self.next;
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(client), epoll::EventFlags::IN)?;
        self.next += 1;
        if let Some(oldest) = self.engine.begin(client) {
            self.end(oldest, &Refusal::Garbage("it has not proved itself, and there are newer ones".to_owned()));
        }
        let deadline = self.deadline();
        self.connections.insert(client, Connection::new(stream, from, deadline));
        self.deadlines.insert((deadline, client));
        // The first request may already have arrived.
        self.attempt(client, Self::receive);
        Ok(())
    }

    /// Returns the deadline for a client that makes progress now.
    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.limits.seconds)
    }

    /// Closes a connection.
    fn end(&mut self, client: ClientId, refusal: &Refusal) {
        self.engine.leave(client);
        self.paused.remove(&client);
        self.ready.remove(&client);
        let Some(connection) = self.connections.remove(&client) else { return };
        self.pending -= connection.pending();
        self.unsent -= connection.unsent();
        connection.begun.map(|begun| self.begun.remove(&begun));
        connection.deadline.map(|deadline| self.deadlines.remove(&(deadline, client)));
        match refusal {
            Refusal::Garbage(problem) => {
                tracing::warn!(from = %connection.from, problem, "a connection to the store is closed");
            }
            Refusal::Io(error) => tracing::debug!(from = %connection.from, %error, "a connection to the store ended"),
        }
    }

    /// Closes the connections whose deadline has passed.
    fn end_late(&mut self) {
        let now = Instant::now();
        while let Some((deadline, client)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.remove(&(deadline, client));
            self.end(client, &Refusal::Io(io::ErrorKind::TimedOut.into()));
        }
        if self.accepts_at.is_some_and(|at| at <= now) {
            self.listen(true);
        }
    }

    /// Handles the events of a connection.
    fn handle(&mut self, client: ClientId, flags: epoll::EventFlags) {
        let is_broken = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        if is_broken && self.paused.contains(&client) {
            return self.end(client, &Refusal::Io(io::ErrorKind::ConnectionReset.into()));
        }
        if flags.contains(epoll::EventFlags::OUT) {
            self.attempt(client, Self::send);
        }
        if is_broken || flags.contains(epoll::EventFlags::IN) {
            self.attempt(client, Self::receive);
        }
    }

    /// Runs a step for a connection, and closes the connection if the step fails.
    fn attempt(&mut self, client: ClientId, act: fn(&mut Self, ClientId) -> Result<(), Refusal>) {
        if let Err(refusal) = act(self, client) {
            self.end(client, &refusal);
        }
    }

    /// Reads some of the available bytes, and processes complete requests.
    fn receive(&mut self, client: ClientId) -> Result<(), Refusal> {
        if self.must_wait(client) {
            self.paused.insert(client);
            return self.settle(client, false);
        }
        let is_admitted = self.engine.is_admitted(client);
        let Some(connection) = self.connections.get_mut(&client) else { return Ok(()) };
        let before = connection.pending();
        let buffer = if is_admitted { &mut self.buffer[..] } else { &mut self.buffer[..STRANGER_BYTES] };
        let has_more = connection.receive(buffer);
        self.pending += connection.pending() - before;
        if has_more? { self.serve(client) } else { Ok(()) }
    }

    /// Whether a client must wait until requests of other clients are complete.
    fn must_wait(&self, client: ClientId) -> bool {
        let is_first = self.begun.first_key_value().is_none_or(|(_, first)| *first == client);
        self.pending > self.limits.request_bytes && !is_first
    }

    /// Resumes paused clients: all of them, or only the one whose request began first.
    fn resume(&mut self) {
        let paused = std::mem::take(&mut self.paused);
        let (resumed, paused) = paused.into_iter().partition(|client| !self.must_wait(*client));
        self.paused = paused;
        let resumed: BTreeSet<ClientId> = resumed;
        for client in resumed {
            if let Err(refusal) = self.settle(client, true) {
                self.end(client, &refusal);
            }
        }
    }

    /// Processes complete requests of a client until it has replies that it must read first.
    fn serve(&mut self, client: ClientId) -> Result<(), Refusal> {
        for _ in 0..SERVED {
            let is_stranger = !self.engine.is_admitted(client);
            let Some(connection) = self.connections.get_mut(&client) else { return Ok(()) };
            if connection.unsent() > 0 {
                return self.settle(client, false);
            }
            if is_stranger && connection.kind().is_some_and(|kind| ![VALIDATE, TOKEN].contains(&kind)) {
                return Err(Refusal::Garbage("the first request is not that of a store's client".to_owned()));
            }
            let before = connection.pending();
            let request = connection.request(&self.limits);
            self.pending -= before - connection.pending();
            let Some(request) = request? else { return self.settle(client, false) };
            let answers = self.engine.apply(client, request)?;
            answers.iter().for_each(|(to, answer)| self.answer(*to, answer));
            // The remaining bytes begin another request, whose time starts now.
            self.settle(client, true)?;
        }
        self.ready.insert(client);
        Ok(())
    }

    /// Sends a reply, or as much of it as the socket accepts.
    fn answer(&mut self, client: ClientId, answer: &[u8]) {
        while self.unsent > 0 && self.unsent + answer.len() > self.limits.store_bytes {
            let most = self.connections.iter().max_by_key(|(_, connection)| connection.unsent());
            let Some(slowest) = most.map(|(client, _)| *client) else { break };
            self.end(slowest, &Refusal::Garbage("it does not take its answers".to_owned()));
        }
        let Some(connection) = self.connections.get_mut(&client) else { return };
        let is_first = connection.unsent() == 0;
        connection.answer(answer);
        self.unsent += answer.len();
        if is_first {
            self.attempt(client, Self::flush);
        }
    }

    /// Sends what the socket accepts.
    fn flush(&mut self, client: ClientId) -> Result<(), Refusal> {
        let Some(connection) = self.connections.get_mut(&client) else { return Ok(()) };
        let before = connection.unsent();
        let outcome = connection.send();
        self.unsent -= before - connection.unsent();
        outcome?;
        self.settle(client, true)
    }

    /// Sends what the socket accepts, and processes the client's next requests once everything is sent.
    fn send(&mut self, client: ClientId) -> Result<(), Refusal> {
        self.flush(client)?;
        self.serve(client)
    }

    /// Updates the state of a connection: its `epoll` events, its place among incomplete requests, and its deadline,
    /// which is extended if `is_moving`.
    fn settle(&mut self, client: ClientId, is_moving: bool) -> Result<(), Refusal> {
        let (is_paused, is_admitted) = (self.paused.contains(&client), self.engine.is_admitted(client));
        let fresh = self.deadline();
        let Some(connection) = self.connections.get_mut(&client) else { return Ok(()) };
        let writes = connection.unsent() > 0;
        let is_unfinished = !writes && connection.pending() > 0;
        let interest = (!writes && !is_paused, writes);
        if connection.interest != interest {
            let mut flags = epoll::EventFlags::empty();
            flags.set(epoll::EventFlags::IN, interest.0);
            flags.set(epoll::EventFlags::OUT, interest.1);
            let data = epoll::EventData::new_u64(client);
            epoll::modify(&self.epoll, &connection.stream, data, flags).map_err(io::Error::from)?;
            connection.interest = interest;
        }
        if connection.begun.is_some() != is_unfinished {
            match connection.begun.take() {
                Some(begun) => drop(self.begun.remove(&begun)),
                None => {
                    connection.begun = Some(self.next_begun);
                    self.begun.insert(self.next_begun, client);
                    self.next_begun += 1;
                }
            }
        }
        // Until a client is admitted it keeps its first deadline.
        if is_admitted {
            let deadline = match connection.deadline {
                _ if is_paused || !(writes || is_unfinished) => None,
                Some(deadline) if !is_moving => Some(deadline),
                _ => Some(fresh),
            };
            if deadline != connection.deadline {
                connection.deadline.map(|deadline| self.deadlines.remove(&(deadline, client)));
                deadline.map(|deadline| self.deadlines.insert((deadline, client)));
                connection.deadline = deadline;
            }
        }
        Ok(())
    }
}
