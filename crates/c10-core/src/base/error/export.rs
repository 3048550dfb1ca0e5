//! Why a process cannot show its figures to other processes.

use std::path::PathBuf;

use crate::base::error::SystemError;

/// Why figures cannot be exported, or the processes that export theirs not be listed.
///
/// ```
/// use c10_core::{ExportError, SystemError};
///
/// let reason = SystemError::from(std::io::Error::from(std::io::ErrorKind::NotFound));
/// let error = ExportError::Folder { folder: "/run/user/7".into(), reason };
/// assert!(error.to_string().starts_with("figures cannot be exported in /run/user/7: "));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The folder of exports cannot be made or read, or the socket not be bound in it.
    #[error("figures cannot be exported in {}: {reason}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        reason: SystemError,
    },
    /// Others could put something into the folder of exports, so nothing there can be believed.
    #[error(
        "the folder {} is not used for exports: {why}; TORCH_CUDA_EXPORT_FOLDER can name another one",
        folder.display()
    )]
    Unsafe {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The thread that answers cannot be started.
    #[error("the thread that shows figures cannot be started: {reason}")]
    Thread {
        /// What the system said.
        #[source]
        reason: SystemError,
    },
}
