//! The guard of a device: the device is current until the guard is dropped.
//!
//! **Invariants:** a guard restores what was current when it was made, on the thread it was made on (guards cannot be
//! sent). It creates no context: that happens when a device is first used.

use std::fmt;
use std::marker::PhantomData;

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::ids::RuntimeId;
use crate::runtime::handle::Runtime;
use crate::thread;

/// Keeps a device current until it is dropped; torch's `torch.cuda.device`.
///
/// ```
/// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
/// use c10_core::Runtime;
///
/// let runtime = Runtime::current();
/// let guard = runtime.device_guard(1)?;
/// assert_eq!((runtime.current_device()?, guard.previous()), (1, Some(0)));
/// drop(guard);
/// assert_eq!(runtime.current_device()?, 0);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[must_use = "the device is current only while the guard lives"]
pub struct DeviceGuard {
    runtime: RuntimeId,
    /// Negative when the guard does nothing.
    previous: DeviceIndex,
    /// Ties the guard to its thread.
    thread: PhantomData<*const ()>,
}

impl DeviceGuard {
    #[inline]
    pub(crate) fn new(runtime: &Runtime, device: DeviceIndex) -> Result<Self> {
        let previous = runtime.exchange_device(device)?;
        Ok(Self { runtime: runtime.id(), previous, thread: PhantomData })
    }

    /// The device that was current before; `None` when the guard was made for a negative number and does nothing.
    #[must_use]
    pub fn previous(&self) -> Option<DeviceIndex> {
        (self.previous >= 0).then_some(self.previous)
    }
}

impl fmt::Debug for DeviceGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceGuard").field("previous", &self.previous()).finish()
    }
}

impl Drop for DeviceGuard {
    #[inline]
    fn drop(&mut self) {
        if self.previous >= 0 {
            thread::exchange_device(self.runtime, self.previous);
        }
    }
}
