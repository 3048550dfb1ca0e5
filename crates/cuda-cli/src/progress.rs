//! A bar that shows how far something is, on the error output where that is a terminal.

use std::io::{IsTerminal, Write};

/// Places of the bar.
const WIDTH: usize = 30;

/// A bar for a known number of steps.
#[derive(Debug)]
pub(crate) struct Bar {
    what: String,
    all: usize,
    /// What was drawn last, in percent.
    shown: Option<usize>,
    is_shown: bool,
}

impl Bar {
    pub(crate) fn new(what: &str, all: usize) -> Self {
        Self { what: what.to_owned(), all, shown: None, is_shown: std::io::stderr().is_terminal() }
    }

    /// So many steps are done.
    pub(crate) fn tell(&mut self, done: usize) {
        let percent = (done.min(self.all) * 100).checked_div(self.all).unwrap_or(100);
        if self.is_shown && self.shown != Some(percent) {
            self.shown = Some(percent);
            // Whoever closed the error output wants no bar.
            let _ = write!(std::io::stderr(), "\r{}", line(&self.what, percent));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown.is_some() {
            // The whole line goes, so that the answer stands alone.
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

fn line(what: &str, percent: usize) -> String {
    let full = percent * WIDTH / 100;
    format!("{}{} {percent:3} %  {what}", "█".repeat(full), "░".repeat(WIDTH - full))
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_bar_is_as_full_as_the_work() {
        assert_eq!(line("x", 0), format!("{}   0 %  x", "░".repeat(30)));
        assert_eq!(line("x", 50), format!("{}{}  50 %  x", "█".repeat(15), "░".repeat(15)));
        assert_eq!(line("x", 100), format!("{} 100 %  x", "█".repeat(30)));
    }
}
