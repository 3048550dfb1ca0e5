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
