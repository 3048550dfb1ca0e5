//! Memory that goes past the cache: each request is a driver call, and nothing is counted.
//!
//! **Invariant:** what the driver cannot take back during a capture, or refused, is offered again at the next occasion.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::device::DeviceIndex;
use crate::base::error::MemoryError;
use crate::base::error::{Error, Result};
use crate::caching::block::{Asked, Claim, Owner};
use crate::driver::{Driver, Relaxed};
use crate::sync::Mutex;
use crate::sync::lock;

/// Uncached memory of all devices.
#[derive(Debug, Default)]
pub(crate) struct Uncached {
    /// Whether requests go past the cache.
    is_on: AtomicBool,
    /// What is handed out, by address.
    live: Mutex<BTreeMap<u64, (DeviceIndex, Owner)>>,
    /// What was given back and the driver still has to take.
    late: Mutex<Vec<(u64, DeviceIndex)>>,
}

impl Uncached {
    /// Switches it on or off for requests to come.
    pub(crate) fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Release);
    }

    /// Whether requests go past the cache.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Whether an address is uncached memory.
    pub(crate) fn contains(&self, address: u64) -> bool {
        lock(&self.live).contains_key(&address)
    }

    /// Takes memory of the driver.
    pub(crate) fn alloc<D: Driver>(&self, driver: &D, device: DeviceIndex, asked: Asked) -> Result<u64> {
        let address = driver.mem_alloc(device, asked.bytes())?;
        lock(&self.live).insert(address, (device, asked.owner()));
        Ok(address)
    }

    /// Gives memory back to the driver, which waits for all work that may use it; during a capture (`later`) it is only
    /// noted. `relaxed`: a capture could forbid the call.
    #[cold]
    pub(crate) fn free<D: Driver>(&self, driver: &D, claim: Claim, later: bool, relaxed: bool) -> Result<()> {
        let (address, device) = self.take(claim)?;
        if later {
            self.free_later(address, device);
            return Ok(());
        }
        let _relaxed = Relaxed::new(driver, relaxed)?;
        driver.mem_free(device, address).inspect_err(|_| {
            lock(&self.live).insert(address, (device, claim.owner()));
        })
    }

    /// Removes claimed memory from what is handed out.
    fn take(&self, claim: Claim) -> Result<(u64, DeviceIndex)> {
        let (address, mut live) = (claim.address(), lock(&self.live));
        match live.get(&address) {
            None => Err(Error::Memory(MemoryError::InvalidPointer { address })),
            Some((_, owner)) if *owner != claim.owner() => Err(Error::Memory(MemoryError::OwnedByBuffer { address })),
            Some((device, _)) => {
                let device = *device;
                live.remove(&address);
                Ok((address, device))
            }
        }
    }

    fn free_later(&self, address: u64, device: DeviceIndex) {
        lock(&self.late).push((address, device));
    }

    /// Offers the driver again what it did not take; what fails stays for another time.
    pub(crate) fn free_late<D: Driver>(&self, driver: &D, relaxed: bool) -> Result<()> {
        let late = std::mem::take(&mut *lock(&self.late));
        if late.is_empty() {
            return Ok(());
        }
        let _relaxed = Relaxed::new(driver, relaxed).inspect_err(|_| lock(&self.late).extend(&late))?;
        let free =
            |(address, device)| driver.mem_free(device, address).inspect_err(|_| self.free_later(address, device));
        let each = late.into_iter().map(free);
        each.fold(Ok(()), Result::and)
    }

    /// Gives everything back, at the end. Errors are passed over.
    pub(crate) fn dismantle<D: Driver>(&self, driver: &D) {
        for (address, (device, _)) in std::mem::take(&mut *lock(&self.live)) {
            let _ = driver.mem_free(device, address);
        }
        let _ = self.free_late(driver, false);
    }
}
