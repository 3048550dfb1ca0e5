//! A store by TCP that speaks the protocol of torch's `TCPStore`, so that our ranks and those of PyTorch find each other.
//!
//! One process holds the values ([`TcpStoreServer`]), all reach them by a [`TcpStore`] each. `wire` is the protocol as bytes,
//! `frame` finds where requests end, `engine` executes requests without input or output. `server` and `client` are the
//! two ends; `client_connections` are those of one client, `service` is the server's event loop over its `connection`s.
//!
//! # The protocol
//! Numbers are little-endian; a text or a value is its length as `u64` and its bytes. The first request of a connection is
//! the byte 0 and the number `0x3C85F7CE`; one that begins otherwise is closed. Then a request is a byte that says what is
//! wanted and the arguments, and those that answer do so in their order. Keys have `/` before them.
//!
//! With a token the second request is the byte 200, which torch does not know, and the token as a text; the answer is the
//! byte 0, or the end of the connection. The token keeps out whoever does not know it, not whoever can read the traffic.
//! A server that wants a token serves no rank of PyTorch.
//!
//! Invariant: what a stranger sends costs bounded memory and time, and changes nothing.

mod client;
mod client_connections;
mod connection;
mod engine;
mod frame;
mod server;
mod service;
mod wire;

pub use client::{TcpStore, TcpStoreOptions};
pub use engine::Limits;
pub use server::{TcpServerOptions, TcpStoreServer};

/// Runs bytes as what one connection sends to a server of its own; how many requests were understood, and what was
/// answered. For fuzz bodies.
#[doc(hidden)]
#[must_use]
pub fn serve_bytes(bytes: &[u8], token: Option<&str>, limits: Limits) -> (usize, Vec<u8>) {
    engine::serve_bytes(bytes, token, limits)
}
