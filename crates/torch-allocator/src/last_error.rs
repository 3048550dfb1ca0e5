//! The text of the last error, and running a body so that nothing unwinds.
//!
//! **Invariant:** the text is kept for the process. In a forked child the lock may be held by a thread that is not there:
//! the text is left out then.

use std::fmt;
use std::sync::{Mutex, TryLockError};

use c10_core::panics::caught;

use crate::streams;

static LAST: Mutex<String> = Mutex::new(String::new());

/// What went wrong in a call from C.
pub(crate) enum Failure {
    /// The runtime's own error.
    Runtime(c10_core::Error),
    /// The caller gave what cannot be.
    Argument(String),
}

impl From<c10_core::Error> for Failure {
    fn from(error: c10_core::Error) -> Self {
        Self::Runtime(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(error) => error.fmt(f),
            Self::Argument(text) => f.write_str(text),
        }
    }
}

/// An error that has become text.
pub(crate) struct Told {
    /// The text.
    pub(crate) text: String,
    /// Whether memory ran out.
    pub(crate) is_out_of_memory: bool,
}

/// Runs `body`. Its error, or its panic, becomes the last error, and `None` comes back.
pub(crate) fn guarded<T>(function: &str, body: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
    attempt(function, body).ok()
}

/// As [`guarded`], and says what went wrong.
pub(crate) fn attempt<T>(function: &str, body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Told> {
    match caught(|| streams::keep_device(body).map_err(|failure| told(&failure))) {
        Ok(answer) => answer,
        Err(panic) => {
            let text = format!("{function} panicked: {}", panic.text);
            keep(&text);
            Err(Told { text, is_out_of_memory: false })
        }
    }
}

#[cold]
fn told(failure: &Failure) -> Told {
    let text = failure.to_string();
    keep(&text);
    let is_out_of_memory = matches!(failure, Failure::Runtime(error) if error.is_out_of_memory());
    Told { text, is_out_of_memory }
}

fn keep(text: &str) {
    with_last(|last| text.clone_into(last));
}

/// The process's last error; empty if there was none.
pub(crate) fn last() -> String {
    with_last(|last| last.clone()).unwrap_or_default()
}

/// Forgets the process's last error.
pub(crate) fn forget() {
    with_last(String::clear);
}

fn with_last<T>(body: impl FnOnce(&mut String) -> T) -> Option<T> {
    match LAST.try_lock() {
        Ok(mut last) => Some(body(&mut last)),
        Err(TryLockError::Poisoned(poisoned)) => Some(body(&mut poisoned.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}
