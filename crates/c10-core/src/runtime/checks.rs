//! What is asked after the host has waited for a device: whether kernels have reported anything.
//!
//! **Invariants:** a check makes no driver call and does not hold the runtime, which keeps it as long as it lives. No
//! lock is held while a check runs.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use crate::base::device::DeviceIndex;
use crate::base::error::{DeviceAssertionError, Result};
use crate::sync::RwLock;

type Check = dyn Fn(DeviceIndex) -> Option<DeviceAssertionError> + Send + Sync;

#[derive(Default)]
pub(super) struct Checks {
    /// Whether there is any, so that waiting costs one load where there is none.
    any: AtomicBool,
    list: RwLock<Vec<Arc<Check>>>,
}

impl Checks {
    pub(super) fn add(&self, check: Arc<Check>) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).push(check);
        self.any.store(true, Ordering::Release);
    }

    /// The first thing that a check has found, as an error.
    #[inline]
    pub(super) fn run(&self, device: DeviceIndex) -> Result<()> {
        if self.any.load(Ordering::Acquire) { self.run_all(device) } else { Ok(()) }
    }

    fn run_all(&self, device: DeviceIndex) -> Result<()> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner).clone();
        list.iter().find_map(|check| check(device)).map_or(Ok(()), |found| Err(found.into()))
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks").field("any", &self.any).finish_non_exhaustive()
    }
}
