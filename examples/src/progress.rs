//! A progress bar on a terminal; a few plain lines anywhere else.
//!
//! Invariant: without a terminal no control character is written.

use std::io::{IsTerminal as _, Write as _};

/// How many marks a full bar has.
const WIDTH: usize = 40;

/// Shows how far a task is.
#[derive(Debug)]
pub struct Progress {
    label: &'static str,
    total: usize,
    shown: usize,
    on_terminal: bool,
}

impl Progress {
    /// Begins to show a task of so many steps.
    #[must_use]
    pub fn new(label: &'static str, total: usize) -> Self {
        Self { label, total: total.max(1), shown: usize::MAX, on_terminal: std::io::stdout().is_terminal() }
    }

    /// Shows that so many steps are done; `note` stands behind the bar.
    pub fn at(&mut self, done: usize, note: impl FnOnce() -> String) {
        let marks = done * WIDTH / self.total;
        if marks == self.shown {
            return;
        }
        self.shown = marks;
        let mut out = std::io::stdout().lock();
        // Nobody reads along when the output is gone: that is no reason to stop.
        let _ = if self.on_terminal {
            let bar = format!("{}{}", "#".repeat(marks), ".".repeat(WIDTH - marks));
            write!(out, "\r  {} [{bar}] {}\x1b[K", self.label, note()).and_then(|()| out.flush())
        } else if marks.is_multiple_of(WIDTH / 4) {
            writeln!(out, "  {} {:>3} % {}", self.label, marks * 100 / WIDTH, note())
        } else {
            Ok(())
        };
    }

    /// Ends the line of the bar.
    pub fn finish(self) {
        if self.on_terminal {
            let _ = writeln!(std::io::stdout());
        }
    }
}
