//! The connections of a client: requests that are answered at once share one; threads that wait for keys use others.
//!
//! Invariants:
//! - No lock is held while a thread waits for keys. A request of another thread interrupts a wait on the shared
//!   connection; the waiting thread then opens a second connection and waits on that for the rest of the time.
//! - All requests but waits use the shared connection: a server handles them in the order in which they were made.
//! - A connection on which an exchange was interrupted is not used again.
//! - A store is reported lost only if it cannot be reached again. If a store closes a connection but accepts a new one,
//!   it refused a request; the new connection replaces the old one.

use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::client::TcpStoreOptions;
use super::engine::Limits;
use super::wire::{ADMITTED, MAGIC, Reader, Refusal, Request, STOP_WAITING, WAIT_CANCELED};
use crate::error::{Error, Result};

/// Time limit for an answer that depends on no other client.
const ANSWER: Duration = Duration::from_secs(60);

/// Time limit for reconnecting to a store that has closed the connection.
const AGAIN: Duration = Duration::from_secs(2);

pub(super) type Answer<T> = std::result::Result<T, Refusal>;

/// The connections of one client.
#[derive(Debug)]
pub(super) struct Connections {
    address: String,
    options: TcpStoreOptions,
    state: Mutex<State>,
    /// Told whenever a wait has given the shared connection back.
    given_back: Condvar,
}

#[derive(Debug)]
struct State {
    shared: Shared,
    /// Connections of waits that have ended.
    spare: Vec<TcpStream>,
}

/// State of the shared connection.
#[derive(Debug)]
enum Shared {
    Free(Arc<TcpStream>),
    /// A thread waits for keys on it.
    Waiting(Arc<TcpStream>),
    /// A thread waits for keys on it and was told to stop.
    Interrupted(Arc<TcpStream>),
    /// The store cannot be reached.
    Lost,
}

/// Result of a wait for keys.
struct Waited {
    has_all: bool,
    /// Whether the server has answered a cancellation that another thread sent.
    was_canceled: bool,
}

impl Connections {
    /// Connects, trying again until the time is over, and checks that the server is a store.
    pub(super) fn open(address: &str, options: TcpStoreOptions) -> Result<Self> {
        let stream = connect(address, options.timeout)?;
        introduce(&stream, address, &options)?;
        let state = State { shared: Shared::Free(Arc::new(stream)), spare: Vec::new() };
        Ok(Self { address: address.to_owned(), options, state: Mutex::new(state), given_back: Condvar::new() })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) const fn options(&self) -> &TcpStoreOptions {
        &self.options
    }

    /// Sends a request on the shared connection and reads the answer.
    pub(super) fn exchange<T>(
        &self,
        verb: &'static str,
        request: &Request,
        read: impl FnOnce(&mut Reader<'_>) -> Answer<T>,
    ) -> Result<T> {
        let (mut state, stream) = self.take_shared(verb)?;
        let answer = ask(&stream, request, read);
        self.give_back(&mut state, stream, verb, answer)
    }

    /// Waits on the server; returns whether all keys have values.
    pub(super) fn wait(&self, verb: &'static str, keys: &[Vec<u8>], timeout: Duration) -> Result<bool> {
        let begin = Instant::now();
        let spare = self.state().spare.pop();
        let stream = match spare {
            Some(stream) => stream,
            None => match self.wait_on_shared(verb, keys, timeout)? {
                Some(has_all) => return Ok(has_all),
                None => self.reach_anew().ok_or_else(|| self.lost(verb, io::ErrorKind::NotConnected.into()))?,
            },
        };
        match wait_there(&stream, keys, timeout.saturating_sub(begin.elapsed())) {
            Ok(waited) => {
                self.state().spare.push(stream);
                Ok(waited.has_all)
            }
            Err(refusal) => {
                let (error, replacement) = self.replace(&stream, verb, refusal);
                self.state().spare.extend(replacement);
                Err(error)
            }
        }
    }

    /// Waits on the shared connection; returns `None` if a request of another thread interrupted that.
    fn wait_on_shared(&self, verb: &'static str, keys: &[Vec<u8>], timeout: Duration) -> Result<Option<bool>> {
        let (mut state, stream) = self.take_shared(verb)?;
        state.shared = Shared::Waiting(Arc::clone(&stream));
        drop(state);
        let waited = wait_there(&stream, keys, timeout);
        let mut state = self.state();
        let is_interrupted = matches!(state.shared, Shared::Interrupted(_));
        let waited = waited.and_then(|waited| {
            if is_interrupted && !waited.was_canceled {
                read_cancellation(&stream)?;
            }
            Ok((waited.has_all || !is_interrupted).then_some(waited.has_all))
        });
        let outcome = self.give_back(&mut state, stream, verb, waited);
        drop(state);
        self.given_back.notify_all();
        outcome
    }

    /// Puts the shared connection back after an exchange, or a new one if the exchange failed; returns the outcome.
    fn give_back<T>(
        &self,
        state: &mut State,
        stream: Arc<TcpStream>,
        verb: &'static str,
        answer: Answer<T>,
    ) -> Result<T> {
        let (outcome, shared) = match answer {
            Ok(value) => (Ok(value), Shared::Free(stream)),
            Err(refusal) => {
                let (error, replacement) = self.replace(&stream, verb, refusal);
                (Err(error), replacement.map_or(Shared::Lost, |stream| Shared::Free(Arc::new(stream))))
            }
        };
        state.shared = shared;
        outcome
    }

    /// Takes the shared connection, from a wait if need be; the caller puts it back while it has the lock.
    fn take_shared(&self, verb: &'static str) -> Result<(MutexGuard<'_, State>, Arc<TcpStream>)> {
        let mut state = self.state();
        loop {
            match std::mem::replace(&mut state.shared, Shared::Lost) {
                Shared::Free(stream) => return Ok((state, stream)),
                Shared::Waiting(stream) => {
                    if (&*stream).write_all(&Request::CancelWait.to_bytes()).is_err() {
                        // The reading end finds out why.
                        let _ = stream.shutdown(Shutdown::Both);
                    }
                    state.shared = Shared::Interrupted(stream);
                }
                Shared::Interrupted(stream) => {
                    state.shared = Shared::Interrupted(Arc::clone(&stream));
                    let waited = self.given_back.wait_timeout(state, ANSWER).unwrap_or_else(PoisonError::into_inner);
                    if waited.1.timed_out() {
                        let _ = stream.shutdown(Shutdown::Both);
                    }
                    state = waited.0;
                }
                Shared::Lost => return Err(self.lost(verb, io::ErrorKind::NotConnected.into())),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes a connection on which an exchange failed. Returns the error, and a new connection if the store serves.
    fn replace(&self, stream: &TcpStream, verb: &'static str, refusal: Refusal) -> (Error, Option<TcpStream>) {
        let _ = stream.shutdown(Shutdown::Both);
        match refusal {
            Refusal::Io(cause) if is_closed(&cause) => match self.reach_anew() {
                Some(stream) => (Error::StoreRefused { store: self.address.clone(), verb }, Some(stream)),
                None => (self.lost(verb, cause), None),
            },
            Refusal::Io(cause) => (self.lost(verb, cause), None),
            Refusal::Garbage(problem) => (Error::Protocol { peer: self.address.clone(), problem }, None),
        }
    }

    fn lost(&self, verb: &'static str, cause: io::Error) -> Error {
        Error::StoreLost { store: self.address.clone(), verb, cause: Arc::new(cause) }
    }

    /// Returns a new connection if the store still serves.
    fn reach_anew(&self) -> Option<TcpStream> {
        let stream = reach(&self.address, AGAIN).ok()?;
        let serves = greet(&stream, self.options.token.as_deref(), AGAIN).unwrap_or(false);
        serves.then_some(stream)
    }
}

/// Connects, trying again until the time is over.
fn connect(address: &str, timeout: Duration) -> Result<TcpStream> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let cause = match reach(address, timeout.saturating_sub(begin.elapsed())) {
            Ok(stream) => return Ok(stream),
            Err(cause) => Arc::new(cause),
        };
        let left = timeout.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(Error::Connect { address: address.to_owned(), waited: begin.elapsed(), cause });
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Tries once to connect to each address of the host.
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

/// Checks that the server speaks the store's protocol and takes the token.
fn introduce(stream: &TcpStream, address: &str, options: &TcpStoreOptions) -> Result<()> {
    let time = options.timeout.clamp(Duration::from_millis(1), ANSWER);
    let problem = match greet(stream, options.token.as_deref(), time) {
        Ok(true) => return Ok(()),
        Ok(false) => "it answers something else".to_owned(),
        Err(Refusal::Garbage(problem)) => problem,
        Err(Refusal::Io(error)) => match options.token {
            Some(_) => format!("it takes no token, or not this one ({error})"),
            None => format!("it closed the connection or is silent ({error}); a store that wants a token does so too"),
        },
    };
    Err(Error::Protocol { peer: address.to_owned(), problem })
}

/// Sends the magic number and the token; returns whether the server answers as a store does.
fn greet(mut stream: &TcpStream, token: Option<&str>, time: Duration) -> Answer<bool> {
    let (nonce, limits) = (std::process::id(), Limits::default());
    let mut hello = Request::Validate(MAGIC).to_bytes();
    if let Some(token) = token {
        hello.extend(Request::Token(token.as_bytes().to_vec()).to_bytes());
    }
    stream.set_read_timeout(Some(time))?;
    stream.write_all(&hello)?;
    if token.is_some() && Reader::of_answer(&mut stream, &limits).raw()? != [ADMITTED] {
        return Ok(false);
    }
    stream.write_all(&Request::Ping(nonce).to_bytes())?;
    Ok(Reader::of_answer(&mut stream, &limits).raw()? == nonce.to_le_bytes())
}

/// Sends a request and reads the answer.
fn ask<T>(mut stream: &TcpStream, request: &Request, read: impl FnOnce(&mut Reader<'_>) -> Answer<T>) -> Answer<T> {
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(&request.to_bytes())?;
    read(&mut Reader::of_answer(&mut stream, &Limits { value_bytes: usize::MAX, ..Limits::default() }))
}

/// Waits on the server until all keys have values, the time is over, or another thread cancels that.
fn wait_there(mut stream: &TcpStream, keys: &[Vec<u8>], timeout: Duration) -> Answer<Waited> {
    stream.write_all(&Request::Wait(keys.to_vec()).to_bytes())?;
    stream.set_read_timeout(Some(timeout.max(Duration::from_millis(1))))?;
    match flag(&mut Reader::of_answer(&mut stream, &Limits::default()), STOP_WAITING, WAIT_CANCELED) {
        Err(Refusal::Io(error)) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
        outcome => return outcome.map(|has_all| Waited { has_all, was_canceled: !has_all }),
    }
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(&Request::CancelWait.to_bytes())?;
    let has_all = flag(&mut Reader::of_answer(&mut stream, &Limits::default()), STOP_WAITING, WAIT_CANCELED)?;
    if has_all {
        // The answer had been on its way; that to the cancellation comes after it.
        read_cancellation(stream)?;
    }
    Ok(Waited { has_all, was_canceled: false })
}

/// Reads the answer to a cancellation of a wait.
fn read_cancellation(mut stream: &TcpStream) -> Answer<()> {
    stream.set_read_timeout(Some(ANSWER))?;
    if flag(&mut Reader::of_answer(&mut stream, &Limits::default()), STOP_WAITING, WAIT_CANCELED)? {
        return Err(Refusal::Garbage("a wait ended twice".to_owned()));
    }
    Ok(())
}

/// Reads an answer of one byte, which is `yes` or `no`.
pub(super) fn flag(reader: &mut Reader<'_>, yes: u8, no: u8) -> Answer<bool> {
    let [byte] = reader.raw()?;
    if byte != yes && byte != no {
        return Err(Refusal::Garbage(format!("{byte} is no answer")));
    }
    Ok(byte == yes)
}

/// Whether an error means that the server has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}
