//! What the sync debug mode refuses.

/// What the sync debug mode refuses, and what names no such mode.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, Runtime, Stream, SyncDebugError};
///
/// Runtime::current().sync_debug().set("error")?;
/// let refused = Stream::new(None, 0)?.synchronize().unwrap_err();
/// assert_eq!(refused, Error::SyncDebug(SyncDebugError::SynchronizingOperation));
/// assert_eq!(refused.to_string(), "called a synchronizing CUDA operation");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncDebugError {
    /// An operation that makes the host wait, which the sync debug mode forbids.
    #[error("called a synchronizing CUDA operation")]
    SynchronizingOperation,
    /// A number that is no sync debug mode.
    #[error("invalid value of debug_mode, expected one of 0,1,2")]
    Number {
        /// The number.
        number: i32,
    },
    /// A text that names no sync debug mode.
    #[error("invalid value of debug_mode, expected one of `default`, `warn`, `error`")]
    Name {
        /// The text.
        text: String,
    },
}
