//! The routes to memory pools that a program has opened without a guard.
//!
//! Guards and captures open routes too, and the safety of graphs depends on those. So the routes that a program may
//! close are noted here.
//!
//! **Invariant:** a program closes only routes that it opened, and ends only uses of pools that it began.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use crate::base::device::DeviceIndex;
use crate::base::error::PoolError;
use crate::base::error::{Error, Result};
use crate::base::ids::PoolId;
use crate::sync::{Mutex, MutexGuard};

/// What a program has opened of one pool.
#[derive(Clone, Copy, Debug, Default)]
struct Opened {
    /// Whether its route is open.
    open: bool,
    /// How many uses of the pool the program has begun and not ended.
    uses: u32,
}

/// The routes that a program has opened.
#[derive(Debug, Default)]
pub(crate) struct PoolRoutes(Mutex<BTreeMap<(DeviceIndex, PoolId), Opened>>);

impl PoolRoutes {
    /// Opens a route with `open`, which also begins a use of the pool.
    pub(crate) fn open(&self, device: DeviceIndex, pool: PoolId, open: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut routes = self.lock();
        open()?;
        let opened = routes.entry((device, pool)).or_default();
        (opened.open, opened.uses) = (true, opened.uses + 1);
        Ok(())
    }

    /// Closes the route with `close`; the use of the pool stays.
    pub(crate) fn close(&self, device: DeviceIndex, pool: PoolId, close: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut routes = self.lock();
        let opened = routes.get_mut(&(device, pool)).filter(|opened| opened.open);
        let opened = opened.ok_or(Error::Pool(PoolError::NotRecording))?;
        close()?;
        opened.open = false;
        Ok(())
    }

    /// Ends one use of the pool with `release`.
    pub(crate) fn release(
        &self,
        device: DeviceIndex,
        pool: PoolId,
        release: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut routes = self.lock();
        let opened = routes.get_mut(&(device, pool)).ok_or(Error::Pool(PoolError::NotFound { pool }))?;
        if opened.open && opened.uses == 1 {
            return Err(Error::Pool(PoolError::StillRecording));
        }
        release()?;
        opened.uses -= 1;
        if opened.uses == 0 {
            routes.remove(&(device, pool));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(DeviceIndex, PoolId), Opened>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
