//! Sync debug mode: whether calls that make the host wait are let through, warned of or refused.
//!
//! Exactly two operations are policed, as in torch: copies between the device and plain host memory, and waiting for a
//! stream. Waiting for a device or an event and what the allocators wait for are not.
//!
//! **Invariants:** a runtime has one mode for all threads; a refused operation does nothing. While the mode is
//! [`SyncDebugMode::Default`] a policed operation pays for one relaxed load.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::base::error::{Error, Result, SyncDebugError};
use crate::base::warning::warning;

/// What happens when a policed operation makes the host wait; see [`crate::SyncDebug`].
///
/// ```
/// use c10_core::SyncDebugMode;
///
/// assert_eq!(SyncDebugMode::try_from("warn")?, SyncDebugMode::Warn);
/// assert_eq!(SyncDebugMode::try_from(2)?.to_string(), "error");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum SyncDebugMode {
    /// Nothing special: the operation waits.
    #[default]
    Default = 0,
    /// A warning is written, and the operation waits.
    Warn = 1,
    /// The operation is not done; it returns [`crate::SyncDebugError::SynchronizingOperation`].
    Error = 2,
}

impl fmt::Display for SyncDebugMode {
    /// Writes torch's names of the modes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Warn => "warn",
            Self::Error => "error",
        })
    }
}

impl TryFrom<i32> for SyncDebugMode {
    type Error = Error;

    /// Reads torch's numbers of the modes.
    fn try_from(number: i32) -> Result<Self> {
        match number {
            0 => Ok(Self::Default),
            1 => Ok(Self::Warn),
            2 => Ok(Self::Error),
            _ => Err(Error::SyncDebug(SyncDebugError::Number { number })),
        }
    }
}

impl FromStr for SyncDebugMode {
    type Err = Error;

    /// Reads torch's names of the modes.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "default" => Ok(Self::Default),
            "warn" => Ok(Self::Warn),
            "error" => Ok(Self::Error),
            _ => Err(Error::SyncDebug(SyncDebugError::Name { text: text.to_owned() })),
        }
    }
}

impl TryFrom<&str> for SyncDebugMode {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self> {
        text.parse()
    }
}

/// A runtime's mode.
#[derive(Debug, Default)]
pub(crate) struct SyncDebugState {
    mode: AtomicU8,
    told: AtomicBool,
}

impl SyncDebugState {
    pub(crate) fn set(&self, mode: SyncDebugMode) {
        if !self.told.swap(true, Ordering::Relaxed) {
            warning!(
                "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"
            );
        }
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    pub(crate) fn mode(&self) -> SyncDebugMode {
        match self.mode.load(Ordering::Relaxed) {
            0 => SyncDebugMode::Default,
            1 => SyncDebugMode::Warn,
            _ => SyncDebugMode::Error,
        }
    }

    /// Called before a policed operation.
    #[inline]
    pub(crate) fn police(&self) -> Result<()> {
        if self.mode.load(Ordering::Relaxed) == SyncDebugMode::Default as u8 { Ok(()) } else { self.complain() }
    }

    #[cold]
    fn complain(&self) -> Result<()> {
        if self.mode() == SyncDebugMode::Error {
            return Err(Error::SyncDebug(SyncDebugError::SynchronizingOperation));
        }
        warning!("called a synchronizing CUDA operation");
        Ok(())
    }
}
