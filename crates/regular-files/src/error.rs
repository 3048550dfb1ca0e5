//! Errors of opening and reading: a wrong file type, a file above the size limit, or an error of the system.

use std::fmt;
use std::fs::FileType;
use std::io;
use std::os::unix::fs::FileTypeExt as _;

/// Result of opening or reading a file.
pub type Result<T> = std::result::Result<T, Error>;

/// Type of a file that is not a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A directory.
    Directory,
    /// A FIFO or a pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device, such as `/dev/zero`.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A symbolic link, where links are not followed.
    Link,
    /// Another type.
    Other,
}

impl Kind {
    /// Returns the type of a file that is not a regular file.
    pub(crate) fn of(file: FileType) -> Self {
        match file {
            _ if file.is_dir() => Self::Directory,
            _ if file.is_fifo() => Self::Fifo,
            _ if file.is_socket() => Self::Socket,
            _ if file.is_char_device() => Self::CharacterDevice,
            _ if file.is_block_device() => Self::BlockDevice,
            _ if file.is_symlink() => Self::Link,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::CharacterDevice => "a character device",
            Self::BlockDevice => "a block device",
            Self::Link => "a symbolic link",
            Self::Other => "a special file",
        })
    }
}

/// Reason why a file is not opened or not read. It converts to an [`io::Error`] that carries it.
///
/// ```
/// use regular_files::{Error, Kind};
///
/// let error = regular_files::read("/dev/zero".as_ref(), 1 << 20).unwrap_err();
/// assert!(matches!(error, Error::NotRegular(Kind::CharacterDevice)), "{error}");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The path names a file that is not a regular file.
    NotRegular(Kind),
    /// The file is larger than the reader's limit.
    TooLarge {
        /// Size of the file in bytes; one byte more than the limit if the file grew while it was read.
        bytes: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// The file's content does not fit into memory.
    Memory {
        /// Size of the file in bytes.
        bytes: u64,
    },
    /// An error of the system.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegular(kind) => write!(f, "it is {kind}, and only regular files are opened"),
            Self::TooLarge { bytes, limit } => write!(f, "it has {bytes} bytes, the limit is {limit}"),
            Self::Memory { bytes } => write!(f, "there is no memory for its {bytes} bytes"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => error.source(),
            Self::NotRegular(_) | Self::TooLarge { .. } | Self::Memory { .. } => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Io(error) => return error,
            Error::NotRegular(Kind::Directory) => io::ErrorKind::IsADirectory,
            Error::NotRegular(_) => io::ErrorKind::InvalidInput,
            Error::TooLarge { .. } => io::ErrorKind::FileTooLarge,
            Error::Memory { .. } => io::ErrorKind::OutOfMemory,
        };
        Self::new(kind, error)
    }
}
