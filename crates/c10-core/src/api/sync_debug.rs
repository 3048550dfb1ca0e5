//! Sync debug mode as users set it; `state/sync_debug.rs` says what it does.

use crate::base::error::{Error, Result};
use crate::runtime::Runtime;
use crate::state::sync_debug::SyncDebugMode;

/// The sync debug mode of a runtime; made by [`Runtime::sync_debug`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime, SyncDebugMode};
///
/// let (runtime, buffer) = (Runtime::current(), DeviceBuffer::new(4, None)?);
/// runtime.sync_debug().set(SyncDebugMode::Error)?;
/// assert!(buffer.to_vec().is_err(), "the copy would make the host wait");
/// runtime.sync_debug().set("default")?;
/// assert_eq!(buffer.to_vec()?.len(), 4);
/// # Ok::<(), c10_core::Error>(())
/// ```
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
    /// Sets what happens, on every thread, when a policed operation makes the host wait; torch's `set_sync_debug_mode`.
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
