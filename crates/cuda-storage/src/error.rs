//! What can go wrong between a file and a device. Where torch has a text for it, the text is torch's.

use std::io;
use std::path::{Path, PathBuf};

use cuda_sys::CufileError;

#[cfg(feature = "safetensors")]
use crate::safetensors::HeaderError;

/// The result of a transfer.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a file could not be read or written.
///
/// ```
/// use cuda_storage::Error;
/// use cuda_storage::gds::{GdsFile, OpenFlags};
///
/// let error = GdsFile::new("/nonexistent/file", OpenFlags::RDONLY).unwrap_err();
/// assert!(matches!(error, Error::Io { verb: "open", .. }), "{error}");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused to open, read or write a file.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The disk, or what the user may have of it, is full.
    #[error("no space left for {}: {source}", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file ends before the bytes that were asked for.
    #[error("{} has {found} bytes, and bytes up to {wanted} were asked for", path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// Where the bytes that were asked for end.
        wanted: u64,
        /// Where the file ends.
        found: u64,
    },
    /// A file is registered twice.
    #[error("Cannot register a handle that is already registered.")]
    AlreadyRegistered,
    /// A file that is not registered is deregistered, read or written.
    #[error("{}", match *verb {
        "deregister" => "Cannot deregister a handle that is not registered.",
        "load" => "Cannot load data from a file that is not registered.",
        _ => "Cannot save data to a file that is not registered.",
    })]
    NotRegistered {
        /// What was asked for: `deregister`, `load` or `save`.
        verb: &'static str,
    },
    /// cuFile refused a call.
    #[error("{call} failed: {cause}")]
    Cufile {
        /// The call.
        call: &'static str,
        /// What cuFile says.
        cause: CufileCause,
    },
    /// The memory is not that of a CUDA device.
    #[error("expected a storage of a CUDA device, found one on {found}")]
    NotOnDevice {
        /// Where it is.
        found: c10_core::Device,
    },
    /// The current stream captures a graph, which cannot read files.
    #[error("a file cannot be read or written while the current stream captures a graph")]
    Capturing,
    /// A file position beyond what files can have.
    #[error("file positions up to {offset} + {bytes} are not possible")]
    Position {
        /// Where the bytes begin.
        offset: u64,
        /// How many there are.
        bytes: u64,
    },
    /// What a file of tensors says of itself is wrong.
    #[cfg(feature = "safetensors")]
    #[error("safetensors: {}{cause}", path.as_ref().map_or_else(String::new, |path| format!("{}: ", path.display())))]
    Header {
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// What is wrong.
        cause: HeaderError,
    },
    /// The runtime, the device, or an operation on a tensor failed.
    #[error(transparent)]
    Tensor(#[from] aten_cuda::Error),
}

/// What cuFile says of a call that it refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CufileCause {
    /// A code.
    #[error("{}", .0.status().map_or_else(|| .0.to_string(), |status| status.to_string()))]
    Code(CufileError),
    /// The system's error of a read or a write.
    #[error(transparent)]
    System(io::Error),
}

impl From<c10_core::Error> for Error {
    fn from(error: c10_core::Error) -> Self {
        Self::Tensor(error.into())
    }
}

/// Converts a failed tensor operation to its own error, and any other error to an external one.
impl From<Error> for aten_cuda::Error {
    fn from(error: Error) -> Self {
        if let Error::Tensor(error) = error { error } else { Self::external(error) }
    }
}

impl Error {
    /// The system's error, told as what it means.
    pub(crate) fn io(verb: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        let is_full = matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if is_full { Self::Full { path, source } } else { Self::Io { verb, path, source } }
    }
}
