//! One connection of a server: bytes that have arrived and are no whole request yet, and answers that are not sent yet.
//!
//! Invariant: nothing here blocks; the socket does not.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use super::engine::Limits;
use super::frame::Frame;
use super::wire::{Refusal, Request};

/// Number of bytes of a buffer that is kept for the next request or answer.
const KEPT_BYTES: usize = 64 << 10;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) from: SocketAddr,
    /// Bytes that have arrived, from the beginning of a request on.
    input: Vec<u8>,
    frame: Frame,
    /// Answers, of which `sent` bytes are sent.
    output: Vec<u8>,
    sent: usize,
    /// Place of its unfinished request in the order in which those of all clients began.
    pub(super) begun: Option<u64>,
    /// The time at which the client is sent away unless it has proved itself, finished its request or taken answers.
    pub(super) deadline: Option<Instant>,
    /// Whether the system reports that the socket can be read, and that it can be written.
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

    /// Number of bytes that have arrived and are not served.
    pub(super) fn pending(&self) -> usize {
        self.input.len()
    }

    /// First byte of the next request.
    pub(super) fn kind(&self) -> Option<u8> {
        self.input.first().copied()
    }

    /// Number of bytes of answers that are not sent.
    pub(super) fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Reads some of the bytes that have arrived; whether there were any.
    ///
    /// # Errors
    /// The other side has closed the connection, or the system's.
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

    /// Takes the first request, if it is whole.
    ///
    /// # Errors
    /// The bytes are no request, or a length is above the limits.
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

    /// Adds an answer.
    pub(super) fn answer(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Sends as many bytes of the answers as the socket takes; whether there were any.
    ///
    /// # Errors
    /// The system's.
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

/// Whether an error says that a call has to be made again later.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
