//! The text of the last error, and running a body so that nothing unwinds.
//!
//! **Invariants:** the text is kept for the process and, for the function that raises it, for the thread. In a forked
//! child the lock may be held by a thread that is not there: the text is left out then.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, TryLockError};

static LAST: Mutex<String> = Mutex::new(String::new());

thread_local! {
    static RAISED: RefCell<CString> = RefCell::default();
}

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

/// Runs `body`. Its error, or its panic, becomes the last error, and `None` comes back.
pub(crate) fn guarded<T>(function: &str, body: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
    let text = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(failure)) => failure.to_string(),
        Err(panic) => format!("{function} panicked: {}", said(&*panic)),
    };
    keep(text);
    None
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text")
}

fn keep(text: String) {
    // A thread that is ending has no such place any more; nobody is left on it to raise the text.
    let _ = RAISED.try_with(|raised| *raised.borrow_mut() = CString::new(text.replace('\0', " ")).unwrap_or_default());
    with_last(|last| *last = text);
}

/// The last error's text on this thread; valid until the thread's next error.
pub(crate) fn raised() -> *const c_char {
    RAISED.try_with(|raised| raised.borrow().as_ptr()).unwrap_or(ERROR.as_ptr())
}

/// What is said where the text is gone.
const ERROR: &CStr = c"the allocator failed";

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
