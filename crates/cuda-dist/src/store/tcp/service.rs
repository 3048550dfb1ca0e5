//! The loop of a server: it waits until sockets can be read or written, and never for one of them.
//!
//! Invariants:
//! - Requests of all clients that are not whole have at most [`Limits::request_bytes`] and one more request. Beyond
//!   that the clients take turns, in the order in which their requests began, and the time of those that have to wait
//!   does not count.
//! - Answers that clients do not take have at most [`Limits::store_bytes`] together.

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

/// Numbers by which the system reports the listener and the end of the server.
const LISTENER: u64 = u64::MAX;
const CLOSING: u64 = u64::MAX - 1;

/// Number of bytes that are read at a time, and of those of a client that has not proved itself.
const READ_BYTES: usize = 256 << 10;
const STRANGER_BYTES: usize = 4 << 10;

/// Number of connections that are taken at a time, so that strangers do not push out those that came just before them.
const ACCEPTED: usize = 16;

/// Number of requests of a client that are served at a time.
const SERVED: usize = 64;

/// The time until connections are taken again after the system had no descriptor.
const PAUSE: Duration = Duration::from_millis(20);

/// State of a server's thread.
#[derive(Debug)]
pub(super) struct Service {
    listener: TcpListener,
    epoll: OwnedFd,
    /// Held as long as `epoll` reports it.
    _closing: Arc<OwnedFd>,
    engine: Engine,
    limits: Limits,
    connections: BTreeMap<ClientId, Connection>,
    next: ClientId,
    /// Deadlines of connections, the nearest first.
    deadlines: BTreeSet<(Instant, ClientId)>,
    /// Clients with an unfinished request, in the order in which these began.
    begun: BTreeMap<u64, ClientId>,
    next_begun: u64,
    /// Number of bytes that have arrived and are not served, and of answers that are not sent.
    pending: usize,
    unsent: usize,
    /// Clients that have to wait until the requests of others are whole.
    paused: BTreeSet<ClientId>,
    /// Clients that have sent more requests than are served at a time.
    ready: BTreeSet<ClientId>,
    /// The time at which connections are taken again.
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

    /// Returns the time until something has to be done although no socket is ready.
    fn timeout(&self) -> Option<Timespec> {
        if !self.ready.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        let left = [deadline, self.accepts_at].into_iter().flatten().min()?.saturating_duration_since(Instant::now());
        let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        Some(Timespec { tv_sec: seconds, tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// Takes connections.
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
                    // No descriptor is free, for example: others may be closed.
                    tracing::warn!(%error, "the store takes no connection for a moment");
                    return self.listen(false);
                }
            }
        }
    }

    /// Takes connections from now on, or does not for a moment.
    fn listen(&mut self, accepts: bool) {
        let flags = if accepts { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        self.accepts_at = (!accepts).then(|| Instant::now() + PAUSE);
        if let Err(error) = epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), flags) {
            tracing::error!(%error, "the store's server cannot wait for connections");
        }
    }

    /// Begins to serve a connection.
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
        // Its first request may be here already.
        self.attempt(client, Self::receive);
        Ok(())
    }

    /// Returns the end of the time that a client has from now on.
    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.limits.seconds)
    }

    /// Ends a connection.
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

    /// Ends the connections whose time is over.
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

    /// Handles what the system reports of a connection.
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

    /// Does something with a connection, and ends it where that fails.
    fn attempt(&mut self, client: ClientId, act: fn(&mut Self, ClientId) -> Result<(), Refusal>) {
        if let Err(refusal) = act(self, client) {
            self.end(client, &refusal);
        }
    }

    /// Reads some of what has arrived, and serves the requests that are whole.
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

    /// Whether a client has to wait until the requests of others are whole.
    fn must_wait(&self, client: ClientId) -> bool {
        let is_first = self.begun.first_key_value().is_none_or(|(_, first)| *first == client);
        self.pending > self.limits.request_bytes && !is_first
    }

    /// Lets clients continue that had to wait: all, or the one whose request began first.
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

    /// Serves the requests of a client that are whole, until there are answers that it has to take first.
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
            // What is left begins another request, whose time begins now.
            self.settle(client, true)?;
        }
        self.ready.insert(client);
        Ok(())
    }

    /// Sends an answer, or as much of it as the socket takes.
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

    /// Sends what the socket takes.
    fn flush(&mut self, client: ClientId) -> Result<(), Refusal> {
        let Some(connection) = self.connections.get_mut(&client) else { return Ok(()) };
        let before = connection.unsent();
        let outcome = connection.send();
        self.unsent -= before - connection.unsent();
        outcome?;
        self.settle(client, true)
    }

    /// Sends what the socket takes, and serves the client's next requests when it has taken all.
    fn send(&mut self, client: ClientId) -> Result<(), Refusal> {
        self.flush(client)?;
        self.serve(client)
    }

    /// Brings the books of a connection up to date: what the system reports of it, its place among unfinished requests,
    /// and its deadline, which `is_moving` sets anew.
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
        // Until a client is admitted its deadline stays the one that it began with.
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
