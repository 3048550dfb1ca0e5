//! Sync debug mode: whether calls that make the host wait are let through, warned of or refused.
//!
//! Exactly two operations are policed, as in torch: copies between the device and plain host memory, and waiting for a
//! stream. Waiting for a device or an event and what the allocators wait for are not.
//!
//! **Invariants:** a runtime has one mode for all threads; a refused operation does nothing. While the mode is
//! [`SyncDebugMode::Default`] a policed operation pays for one relaxed load.

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::base::error::{Error, Result};
use crate::runtime::handle::Runtime;

/// What happens when a policed operation makes the host wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum SyncDebugMode {
    /// Nothing: it waits.
    #[default]
    Default = 0,
    /// A warning, and it waits.
    Warn = 1,
    /// [`Error::SynchronizingOperation`], and it is not done.
    Error = 2,
}

impl TryFrom<i32> for SyncDebugMode {
    type Error = Error;

    /// Reads torch's numbers of the modes.
    fn try_from(number: i32) -> Result<Self> {
        match number {
            0 => Ok(Self::Default),
            1 => Ok(Self::Warn),
            2 => Ok(Self::Error),
            _ => Err(Error::SyncDebugNumber { number }),
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
            _ => Err(Error::SyncDebugName { text: text.to_owned() }),
        }
    }
}

impl TryFrom<&str> for SyncDebugMode {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self> {
        text.parse()
    }
}

/// What cannot fail has no error: a mode may be given wherever something that becomes one is taken.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// A runtime's mode.
#[derive(Debug, Default)]
pub(crate) struct SyncDebugState {
    mode: AtomicU8,
    told: AtomicBool,
}

impl SyncDebugState {
    fn set(&self, mode: SyncDebugMode) {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"
            );
        }
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    fn mode(&self) -> SyncDebugMode {
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
            return Err(Error::SynchronizingOperation);
        }
        tracing::warn!("called a synchronizing CUDA operation");
        Ok(())
    }
}

/// The sync debug mode of a runtime; made by [`Runtime::sync_debug`].
#[derive(Clone, Copy, Debug)]
pub struct SyncDebug<'a>(&'a Runtime);

impl Runtime {
    /// What happens when a call makes the host wait.
    #[must_use]
    #[inline]
    pub fn sync_debug(&self) -> SyncDebug<'_> {
        SyncDebug(self)
    }
}

impl SyncDebug<'_> {
    /// Says what happens, on every thread, when a policed operation makes the host wait; torch's `set_sync_debug_mode`.
    /// A mode, one of the numbers 0, 1 and 2, or one of the names `default`, `warn` and `error`. Starts the runtime;
    /// the first call warns that this is a prototype.
    ///
    /// # Errors
    /// The number or the name is not that of a mode, or the runtime cannot start.
    pub fn set<M>(self, debug_mode: M) -> Result<()>
    where
        M: TryInto<SyncDebugMode, Error: Into<Error>>,
    {
        self.0.ready()?;
        let mode = debug_mode.try_into().map_err(Into::into)?;
        self.0.sync_debug_state().set(mode);
        Ok(())
    }

    /// What happens when a policed operation makes the host wait; torch's `get_sync_debug_mode`. Starts the runtime.
    ///
    /// # Errors
    /// The runtime cannot start.
    pub fn mode(self) -> Result<SyncDebugMode> {
        self.0.ready()?;
        Ok(self.0.sync_debug_state().mode())
    }
}
