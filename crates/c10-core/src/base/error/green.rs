//! What can be wrong with a green context.

/// Why a green context cannot be made or left.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, GreenContext, GreenContextError};
///
/// let refused = GreenContext::create(133, None).unwrap_err();
/// assert_eq!(refused, Error::GreenContext(GreenContextError::InvalidCount { asked: 133, available: 132 }));
/// assert_eq!(
///     refused.to_string(),
///     "Invalid number of SMs requested for green context: 133 (device has 132 SMs)"
/// );
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GreenContextError {
    /// The driver is older than CUDA 12.8.
    #[error("cuda driver too old to use green context!")]
    DriverTooOld {
        /// Version of the driver: 1000 * major + 10 * minor.
        found: u32,
    },
    /// No multiprocessors were asked for, or more than the device has.
    #[error("Invalid number of SMs requested for green context: {asked} (device has {available} SMs)")]
    InvalidCount {
        /// How many were asked for.
        asked: u32,
        /// How many the device has.
        available: u32,
    },
    /// The driver could not put the multiprocessors together.
    #[error("Failed to create single resource group")]
    NoGroup,
    /// A green context was to be left that is not the one this thread entered last.
    #[error("expected popped context to be the current ctx")]
    NotCurrent,
}
