//! Why a process's figures are not to be had.

use std::fmt;
use std::io;

/// Why a process that exports its figures did not tell them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process has ended and left its socket behind.
    Ended,
    /// It does not answer in time.
    Silent,
    /// It hung up without a word: its runtime is gone.
    Empty,
    /// Another process answers in its place.
    OtherProcess(u32),
    /// It says more than figures can be.
    TooLong,
    /// What it says is no text.
    NoText,
    /// The line with this number is no figure.
    Line(usize),
    /// The system refused.
    System(io::ErrorKind),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the process has ended"),
            Self::Silent => f.write_str("the process does not answer"),
            Self::Empty => f.write_str("the process has no runtime any more"),
            Self::OtherProcess(pid) => write!(f, "process {pid} answers in its place"),
            Self::TooLong => f.write_str("the process says more than figures can be"),
            Self::NoText => f.write_str("what the process says is no text"),
            Self::Line(line) => write!(f, "line {line} of what the process says is no figure"),
            Self::System(kind) => write!(f, "the process cannot be asked: {kind}"),
        }
    }
}
