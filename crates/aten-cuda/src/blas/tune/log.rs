//! What is told while tuning: as much as `PYTORCH_TUNABLEOP_VERBOSE` asks for, to the place that
//! `PYTORCH_TUNABLEOP_VERBOSE_FILENAME` names; and warnings, which are always told.
//!
//! Levels as in torch: 1 what is read, switched and refused, 2 what is searched and found, 3 each candidate and look-up.
//!
//! **Invariants:** telling never fails: a place that cannot be written to is told nothing. No line is torn by another.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Mutex;

/// Where messages go.
#[derive(Debug, Default)]
enum Place {
    /// The error output (`err`).
    #[default]
    Errors,
    /// The output (`out`).
    Output,
    /// A file; `None` where it could not be made.
    File(Option<Mutex<File>>),
}

/// The messages of a runtime.
#[derive(Debug, Default)]
pub(super) struct Log {
    level: i32,
    place: Place,
}

impl Log {
    /// Messages up to a level, to the place of a name: `err`, `out`, or a file that is made anew.
    pub(super) fn new(level: i32, name: &str) -> Self {
        let place = match name {
            "err" => Place::Errors,
            "out" => Place::Output,
            // A file that is never written to is not made, either.
            _ if level < 1 => Place::Errors,
            path => Place::File(create(path.as_ref()).ok().map(Mutex::new)),
        };
        Self { level, place }
    }

    /// Whether messages of a level are told.
    pub(super) fn tells(&self, level: i32) -> bool {
        level <= self.level
    }

    /// Tells a message of a level.
    pub(super) fn say(&self, level: i32, text: fmt::Arguments<'_>) {
        if !self.tells(level) {
            return;
        }
        let line = format!("{text}\n");
        // Whoever has closed the place does not want to know.
        let _ = match &self.place {
            Place::Errors => io::stderr().write_all(line.as_bytes()),
            Place::Output => io::stdout().write_all(line.as_bytes()),
            Place::File(Some(file)) => super::locked(file).write_all(line.as_bytes()),
            Place::File(None) => Ok(()),
        };
    }
}

/// Creates the log file, or opens a device or a FIFO that another process reads.
fn create(path: &Path) -> io::Result<File> {
    let is_special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    if is_special { regular_files::open_sink(path) } else { File::create(path) }
}

/// Warns the person who runs the program.
pub(super) fn warn(text: fmt::Arguments<'_>) {
    // A program that closed its error output does not want warnings.
    let _ = io::stderr().write_all(format!("Warning: {text}\n").as_bytes());
}
