//! One connection of a server: its buffers of incomplete requests and of unsent replies.
//!
//! Invariant: nothing here blocks; the socket is non-blocking.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::engine::Limits;
use super::frame::Frame;
use super::wire::{Refusal, Request};

/// Largest capacity of a buffer that is kept for reuse, in bytes.
const KEPT_BYTES: usize = 64 << 10;

/// Connection to a client.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) from: SocketAddr,
    /// Received bytes, starting at the beginning of a request.
    input: Vec<u8>,
    frame: Frame,
    /// Replies; the first `sent` bytes are sent.
    output: Vec<u8>,
    sent: usize,
    /// Sequence number of its incomplete request, in the order in which the requests of all clients began.
    pub(super) begun: Option<u64>,
    /// Deadline for the client to authenticate, to complete its request or to receive replies; it is disconnected then.
    pub(super) deadline: Option<Instant>,
    /// Events that `epoll` reports: whether the socket is readable, and whether it is writable.
    pub(super) interest: (bool, bool),
}

impl Connection {
    pub(super) fn new(stream: TcpStream, from: SocketAddr, deadline: Instant) -> Self {
        Self {
            stream,
            from,
            input: Vec::new(),
            frame: Frame::default(),
            output: Vec::new(),
            sent: 0,
            begun: None,
            deadline: Some(deadline),
            interest: (true, false),
        }
    }

    /// Returns the number of received bytes that are not yet processed.
    pub(super) fn pending(&self) -> usize {
        self.input.len()
    }

    /// Returns the first byte of the next request.
    pub(super) fn kind(&self) -> Option<u8> {
        self.input.first().copied()
    }

    /// Returns the number of unsent bytes of replies.
    pub(super) fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Reads some of the available bytes; returns whether there were any.
    ///
    /// # Errors
    /// The client has closed the connection, or an error of the system.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.stream.read(buffer) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                Ok(true)
            }
            Err(error) if is_later(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes the first request if it is complete.
    ///
    /// # Errors
    /// The bytes are not a request, or a length exceeds the limits.
    pub(super) fn request(&mut self, limits: &Limits) -> Result<Option<Request>, Refusal> {
        let Some(end) = self.frame.scan(&self.input, limits)? else { return Ok(None) };
        self.frame = Frame::default();
        let request = Request::read(&mut &self.input[..end], limits)?;
        self.input.drain(..end);
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
            self.input = Vec::new();
        }
        Ok(Some(request))
    }

    /// Appends a reply.
    pub(super) fn answer(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Sends the replies until the socket accepts no more; returns whether it made progress.
    ///
    /// # Errors
    /// An error of the system.
    pub(super) fn send(&mut self) -> io::Result<bool> {
        let before = self.sent;
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if is_later(&error) => return Ok(self.sent > before),
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        self.output.clear();
        if self.output.capacity() > KEPT_BYTES {
            self.output = Vec::new();
        }
        Ok(true)
    }
}

/// Whether an error means that the call must be repeated later.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
