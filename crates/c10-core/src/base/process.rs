//! What the runtime needs to know of processes: whether its own is a forked child, and when one was started.
//!
//! A driver that was initialised before a fork does not work in the child. A handler registered when a runtime is
//! first initialised notes the fork; from then on every runtime of the child refuses to work, and dropping what was
//! inherited calls nothing.
//!
//! Nothing is registered to run at process exit: the default runtime is never dropped, and the driver cleans up by
//! itself.
//!
//! # Safety
//! One foreign call registers the handler. The handler runs between `fork` and whatever the child does next, where
//! only async-signal-safe code is allowed: it stores one atomic flag.
#![expect(unsafe_code, reason = "fork handlers are registered through C")]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static IN_BAD_FORK: AtomicBool = AtomicBool::new(false);
static REGISTER: Once = Once::new();

/// Whether this process was forked from one in which a runtime had been initialised.
#[inline]
pub(crate) fn in_bad_fork() -> bool {
    IN_BAD_FORK.load(Ordering::Relaxed)
}

/// Makes sure that children of this process know that they are.
pub(crate) fn watch_forks() {
    REGISTER.call_once(|| {
        // SAFETY: the handler is a function of this program, which is never unloaded while it can fork, and touches
        // nothing but an atomic. The call fails only for want of memory; then forks go unnoticed, as before it.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
}

/// When a process was started, in the system's ticks: with its number that names it, also when the number is used again.
pub(crate) fn start_of(process: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name stands in brackets and may hold anything. The start is the 20th word after it.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

unsafe extern "C" fn child() {
    IN_BAD_FORK.store(true, Ordering::Relaxed);
}
