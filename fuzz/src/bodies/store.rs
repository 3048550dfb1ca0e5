//! What a stranger sends to a store.
//!
//! What must hold: no bytes make the server panic, take more memory than its limits say, or answer before the other side has
//! proved that it speaks the protocol and knows the token.

use cuda_dist::{Limits, serve_bytes};

/// The first request of a connection.
const HELLO: [u8; 5] = [0, 0xce, 0xf7, 0x85, 0x3c];

/// Small limits, so that they are met.
const LIMITS: Limits = Limits {
    key_bytes: 64,
    value_bytes: 256,
    keys: 16,
    request_bytes: 1024,
    store_bytes: 4096,
    waiting_bytes: 1024,
    connections: 1,
    strangers: 1,
    seconds: 1,
};

/// Runs one input: as a stranger's, and as what follows a greeting, with a token and without.
///
/// # Errors
/// A stranger got an answer, or an answer is longer than the limits allow.
pub(super) fn run(bytes: &[u8]) -> Result<(), String> {
    let greeted = [&HELLO[..], bytes].concat();
    let (_, answer) = serve_bytes(&greeted, Some("token that no input has"), LIMITS);
    if !answer.is_empty() {
        return Err(format!("an answer without the token: {answer:?}"));
    }
    let (count, answer) = serve_bytes(bytes, None, LIMITS);
    if !bytes.starts_with(&HELLO) && (count > 0 || !answer.is_empty()) {
        return Err(format!("{count} requests of a stranger are served: {answer:?}"));
    }
    let (count, answer) = serve_bytes(&greeted, None, LIMITS);
    let longest = count * (LIMITS.request_bytes + LIMITS.store_bytes);
    if answer.len() > longest {
        return Err(format!("{count} requests are answered by {} bytes", answer.len()));
    }
    // The same bytes do the same.
    if serve_bytes(&greeted, None, LIMITS) != (count, answer) {
        return Err("the same bytes are answered otherwise".to_owned());
    }
    Ok(())
}
