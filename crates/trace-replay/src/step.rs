//! Steps of a trace as text lines, plain or compressed with gzip.
//!
//! A line is `a ID BYTES STREAM` for an allocation or `f ID` for a free; empty lines and lines that begin with `#` are
//! passed over. An identifier is used again only after its free.
//!
//! **Invariant:** a file takes no more memory than [`STEPS_MAX`] steps, however it was made: lines have a greatest length, and
//! a compressed file becomes at most [`GROWTH_MAX`] times as long.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// One step of a trace.
///
/// ```
/// use trace_replay::{Step, parse};
///
/// assert_eq!(parse("f 7".as_bytes())?, [Step::Free { id: 7 }]);
/// # Ok::<(), trace_replay::TraceError>(())
/// ```
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

/// Most steps of a trace.
const STEPS_MAX: usize = 1 << 26;

/// Most bytes of a line.
const LINE_MAX: u64 = 1 << 10;

/// Largest ratio of decompressed to compressed bytes. Recorded traces have a ratio of five.
const GROWTH_MAX: u64 = 64;

/// Bytes that any compressed file may become.
const SHORT: u64 = 1 << 20;

/// Why a trace could not be read.
///
/// ```
/// use trace_replay::{TraceError, parse};
///
/// let refused = parse("a 1 512 0\nb 1\n".as_bytes()).unwrap_err();
/// assert!(matches!(refused, TraceError::Line(2, _)));
/// assert_eq!(refused.to_string(), "line 2 of the trace is no step: b 1");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be read.
    #[error("the trace cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A line is no step; its number, counted from 1, and its text.
    #[error("line {0} of the trace is no step: {text}", text = printable(.1))]
    Line(usize, String),
    /// A compressed file becomes too long.
    #[error("the trace has {file} bytes and becomes more than {limit} when it is decompressed")]
    Grows {
        /// Bytes of the file.
        file: u64,
        /// Bytes that a file of this size may become.
        limit: u64,
    },
    /// There are more steps than can be replayed.
    #[error("the trace has more than {STEPS_MAX} steps")]
    TooLong,
}

/// A text that others wrote, as far as a terminal should see it.
fn printable(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { '?' } else { sign }).take(80).collect()
}

/// Reads a trace from a file; one whose name ends in `.gz` is decompressed.
///
/// ```
/// let refused = trace_replay::read("/nowhere.trace".as_ref()).unwrap_err();
/// assert!(refused.to_string().starts_with("the trace cannot be read: "));
/// ```
///
/// # Errors
/// The file cannot be read, a line of it is no step, or a compressed file becomes more than 64 times as long.
pub fn read(path: &Path) -> Result<Vec<Step>, TraceError> {
    let file = regular_files::open(path).map_err(io::Error::from)?;
    if path.extension().is_none_or(|extension| extension != "gz") {
        return parse(file);
    }
    let length = file.metadata()?.len();
    let limit = length.saturating_mul(GROWTH_MAX).saturating_add(SHORT);
    // A byte more than allowed tells that there are too many.
    let mut text = MultiGzDecoder::new(file).take(limit + 1);
    let steps = parse(&mut text);
    if text.limit() == 0 { Err(TraceError::Grows { file: length, limit }) } else { steps }
}

/// Reads a trace from uncompressed text.
///
/// ```
/// use trace_replay::{Step, parse};
///
/// let steps = parse("# a comment\na 1 512 0\nf 1\n".as_bytes())?;
/// assert_eq!(steps, [Step::Alloc { id: 1, bytes: 512, stream: 0 }, Step::Free { id: 1 }]);
/// # Ok::<(), trace_replay::TraceError>(())
/// ```
///
/// # Errors
/// The text cannot be read, or a line of it is no step.
pub fn parse(text: impl Read) -> Result<Vec<Step>, TraceError> {
    let (mut text, mut steps, mut line) = (BufReader::new(text), Vec::new(), Vec::new());
    for number in 1.. {
        line.clear();
        if (&mut text).take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let words = String::from_utf8_lossy(&line);
        let words = words.trim();
        if !words.is_empty() && !words.starts_with('#') {
            steps.push(step(words).ok_or_else(|| TraceError::Line(number, words.to_owned()))?);
        }
        if steps.len() > STEPS_MAX {
            return Err(TraceError::TooLong);
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
    use std::io::Write as _;

    use super::*;

    #[test]
    fn steps_are_read() {
        let steps = parse("# a comment\na 1 512 0\n\nf 1\n".as_bytes()).unwrap();
        assert_eq!(steps, [Step::Alloc { id: 1, bytes: 512, stream: 0 }, Step::Free { id: 1 }]);
    }

    #[test]
    fn hostile_text_is_refused_in_short() {
        let endless = parse(io::repeat(b'1'));
        assert!(matches!(&endless, Err(TraceError::Line(1, text)) if text.len() == 1024));
        let told = parse("\u{1b}[2J".as_bytes()).unwrap_err().to_string();
        assert_eq!(told, "line 1 of the trace is no step: ?[2J");
        assert!(parse([0xff, 0xfe].as_slice()).is_err());
    }

    #[test]
    fn special_files_are_refused() {
        let path = std::env::temp_dir().join(format!("trace-replay-fifo-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let fifo = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(&fifo, Err(TraceError::Read(error)) if error.to_string().contains("a FIFO")), "{fifo:?}");
        let zero = read("/dev/zero".as_ref());
        assert!(matches!(&zero, Err(TraceError::Read(error)) if error.to_string().contains("device")), "{zero:?}");
    }

    #[test]
    fn a_small_file_cannot_become_a_large_one() {
        let path = std::env::temp_dir().join(format!("trace-replay-bomb-{}.gz", std::process::id()));
        for line in ["f 1\n", "#\n"] {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(line.repeat(2 << 20).as_bytes()).unwrap();
            std::fs::write(&path, packed.finish().unwrap()).unwrap();
            let refused = read(&path);
            std::fs::remove_file(&path).unwrap();
            assert!(matches!(&refused, Err(TraceError::Grows { file, .. }) if *file < 1 << 20), "{line}: {refused:?}");
        }
    }

    #[test]
    fn damaged_files_are_refused_or_read() {
        let text = "# a trace\n".to_owned() + &"a 1 512 0\nf 1\na 2 70000 3\nf 2\n".repeat(20);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        assert_eq!(parse(MultiGzDecoder::new(packed.as_slice())).unwrap().len(), 80);
        for at in 0..packed.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = packed.clone();
                damaged[at] = value;
                let _ = parse(MultiGzDecoder::new(damaged.as_slice()));
            }
            assert!(parse(MultiGzDecoder::new(&packed[..at])).is_err() || at == 0);
        }
        for at in 0..text.len() {
            for value in [0, b'\n', b'-', b'9', 0xff] {
                let mut damaged = text.clone().into_bytes();
                damaged[at] = value;
                let _ = parse(damaged.as_slice());
            }
        }
    }

    #[test]
    fn bad_lines_are_named() {
        for bad in ["a 1 512", "f", "x 1", "a 1 512 0 9", "f one"] {
            let text = format!("f 1\n{bad}\n");
            assert!(matches!(parse(text.as_bytes()), Err(TraceError::Line(2, _))), "{bad}");
        }
    }
}
