//! What a backend of device memory does not do.

/// A backend other than the caching allocator was asked for what only that one does; torch's refusals.
///
/// ```
/// use c10_core::BackendError;
///
/// let refused = BackendError::Unsupported { backend: "cudaMallocAsync", call: "recordHistory" };
/// assert_eq!(
///     refused.to_string(),
///     "cudaMallocAsync does not yet support recordHistory. If you need it, please file an issue describing your use case."
/// );
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The backend has no such function.
    #[error("{backend} does not yet support {call}. If you need it, please file an issue describing your use case.")]
    Unsupported {
        /// Name of the backend, as torch writes it here.
        backend: &'static str,
        /// Torch's name of the function.
        call: &'static str,
    },
    /// A snapshot was asked for, and the driver keeps the blocks.
    #[error(
        "Calling snapshot with backend:{backend} is not meaningful. (For backend:native, snapshot returns a detailed summary of all blocks tracked by the allocator, but the {backend} backend does not track individual blocks.)"
    )]
    NoSnapshot {
        /// Name of the backend.
        backend: &'static str,
    },
    /// A second capture was to begin, where the backend allows one.
    #[error("Only one capture at a time is allowed in a process.")]
    OneCapture,
}
