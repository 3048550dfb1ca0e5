//! Warnings for the person who runs the program: what torch warns of, and errors that cannot be returned to a caller.
//!
//! **Invariant:** a warning goes to `tracing`. A program without a subscriber would never see it, so there it is also
//! written to the error output, the first time that its line of code is reached.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Warns with a text, as `format!` takes it.
macro_rules! warning {
    ($($text:tt)+) => {{
        static WRITTEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        tracing::warn!($($text)+);
        $crate::base::warning::write_unless_heard(&WRITTEN, format_args!($($text)+));
    }};
}
pub(crate) use warning;

/// Warns the person who runs the program, for a crate above that warns of each thing once: by `tracing`, and on the error
/// output where the program does not listen to that.
///
/// ```
/// c10_core::warn("the file of results is of another version and is not used");
/// ```
pub fn warn(text: &str) {
    tracing::warn!("{text}");
    write_unless_heard(&AtomicBool::new(false), format_args!("{text}"));
}

/// Writes a warning to the error output, unless the program listens to `tracing` or it was `written` before.
pub(crate) fn write_unless_heard(written: &AtomicBool, text: fmt::Arguments<'_>) {
    if tracing::dispatcher::has_been_set() || written.swap(true, Ordering::Relaxed) {
        return;
    }
    // A program that closed its error output does not want warnings.
    let _ = writeln!(std::io::stderr(), "Warning: {text}");
}
