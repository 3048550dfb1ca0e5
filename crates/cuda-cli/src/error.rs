//! What a command can fail with.

use std::fmt;
use std::io;

/// Why a command could not do what it was asked for.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A snapshot cannot be read, or a file cannot be written.
    Snapshot {
        /// The file that was named.
        file: std::path::PathBuf,
        /// What is wrong.
        source: memory_viz::Error,
    },
    /// A trace of allocations cannot be read.
    Trace {
        /// The file that was named.
        file: std::path::PathBuf,
        /// What is wrong.
        source: trace_replay::TraceError,
    },
    /// A process does not tell its figures.
    Process {
        /// Its number.
        pid: u32,
        /// Why not.
        why: String,
    },
    /// The processes that export their figures cannot be listed.
    Exports(String),
    /// The terminal cannot be used.
    Terminal(io::Error),
    /// The output cannot be written.
    Output(io::Error),
}

impl Error {
    /// Whether the output was closed by whoever read it.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // This error names the file itself.
            Self::Snapshot { source: source @ memory_viz::Error::Io { .. }, .. } => write!(f, "{source}"),
            Self::Snapshot { file, source } => write!(f, "{}: {source}", file.display()),
            Self::Trace { file, source } => write!(f, "{}: {source}", file.display()),
            Self::Process { pid, why } => write!(f, "process {pid} does not tell its figures: {why}"),
            Self::Exports(why) => f.write_str(why),
            Self::Terminal(error) => write!(f, "cannot use the terminal: {error}; `--once` needs none"),
            Self::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
