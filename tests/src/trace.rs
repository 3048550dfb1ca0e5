//! Recorded allocation traces: text lines, plain or compressed with gzip.
//!
//! A line is `a ID BYTES STREAM` for an allocation or `f ID` for a free; empty lines and lines that begin with `#` are
//! passed over. An identifier is used again only after its free.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// One step of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Memory was asked for.
    Alloc {
        /// Name of the allocation within the trace.
        id: u64,
        /// Size in bytes.
        bytes: u64,
        /// Number of the stream it is for.
        stream: u32,
    },
    /// The memory of an allocation was given back.
    Free {
        /// Name of the allocation.
        id: u64,
    },
}

/// Why a trace could not be read.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be read.
    Read(io::Error),
    /// A line is no step; its number, counted from 1, and its text.
    Line(usize, String),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "the trace cannot be read: {error}"),
            Self::Line(number, text) => write!(f, "line {number} of the trace is no step: {text}"),
        }
    }
}

impl std::error::Error for TraceError {}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// Reads a trace from a file; one whose name ends in `.gz` is decompressed.
///
/// # Errors
/// The file cannot be read, or a line of it is no step.
pub fn read(path: &Path) -> Result<Vec<Step>, TraceError> {
    let file = File::open(path)?;
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    if compressed { parse(MultiGzDecoder::new(file)) } else { parse(file) }
}

/// Reads a trace from uncompressed text.
///
/// # Errors
/// The text cannot be read, or a line of it is no step.
pub fn parse(text: impl Read) -> Result<Vec<Step>, TraceError> {
    let mut steps = Vec::new();
    for (index, line) in BufReader::new(text).lines().enumerate() {
        let line = line?;
        let trimmed = line.trim();
        if !trimmed.is_empty() && !trimmed.starts_with('#') {
            steps.push(step(trimmed).ok_or_else(|| TraceError::Line(index + 1, line.clone()))?);
        }
    }
    Ok(steps)
}

fn step(line: &str) -> Option<Step> {
    let mut words = line.split_ascii_whitespace();
    let kind = words.next()?;
    let id = words.next()?.parse().ok()?;
    let step = match kind {
        "a" => Step::Alloc { id, bytes: words.next()?.parse().ok()?, stream: words.next()?.parse().ok()? },
        "f" => Step::Free { id },
        _ => return None,
    };
    words.next().is_none().then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read() {
        let steps = parse("# a comment\na 1 512 0\n\nf 1\n".as_bytes()).unwrap();
        assert_eq!(steps, [Step::Alloc { id: 1, bytes: 512, stream: 0 }, Step::Free { id: 1 }]);
    }

    #[test]
    fn bad_lines_are_named() {
        for bad in ["a 1 512", "f", "x 1", "a 1 512 0 9", "f one"] {
            let text = format!("f 1\n{bad}\n");
            assert!(matches!(parse(text.as_bytes()), Err(TraceError::Line(2, _))), "{bad}");
        }
    }
}
