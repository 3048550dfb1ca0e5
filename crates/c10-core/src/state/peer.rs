//! Which devices can reach each other's memory, and which do.
//!
//! **Invariants:** the driver is asked at most once for each pair, as long as it answers. Asking creates no context. Access
//! that was enabled stays enabled as long as the runtime lives.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::base::device::DeviceIndex;
use crate::base::error::{DeviceError, Error, Result};
use crate::driver::Api;

const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// The driver's answer for each pair.
#[derive(Debug)]
pub(crate) struct Peers {
    devices: usize,
    known: Box<[AtomicU8]>,
    /// Whether access is enabled; no, where the driver has refused.
    enabled: Box<[AtomicU8]>,
}

impl Peers {
    pub(crate) fn new(devices: usize) -> Self {
        let of_pairs = || (0..devices * devices).map(|_| AtomicU8::new(UNKNOWN)).collect();
        Self { devices, known: of_pairs(), enabled: of_pairs() }
    }

    /// The place of a pair, where both devices exist.
    fn place(&self, device: DeviceIndex, peer: DeviceIndex) -> Option<usize> {
        let (row, column) = (usize::try_from(device).ok()?, usize::try_from(peer).ok()?);
        (row < self.devices && column < self.devices).then_some(row * self.devices + column)
    }

    /// Whether work of `device` can reach memory of `peer`; a device reaches its own.
    pub(crate) fn can_access(&self, api: &Api, device: DeviceIndex, peer: DeviceIndex) -> Result<bool> {
        let place = self.place(device, peer).ok_or(Error::Device(DeviceError::InvalidPeerId))?;
        let known = &self.known[place];
        if device == peer {
            return Ok(true);
        }
        match known.load(Ordering::Relaxed) {
            UNKNOWN => {
                let can = api.can_access_peer(device, peer)?;
                known.store(if can { YES } else { NO }, Ordering::Relaxed);
                Ok(can)
            }
            answer => Ok(answer == YES),
        }
    }
    /// Has work of `device` reach memory of `peer` that the driver allocates at once, and says whether it does. Where the
    /// driver has no access left to give, it does not.
    pub(crate) fn enable(&self, api: &Api, device: DeviceIndex, peer: DeviceIndex) -> Result<bool> {
        if !self.can_access(api, device, peer)? {
            return Ok(false);
        }
        let place = self.place(device, peer).ok_or(Error::Device(DeviceError::InvalidPeerId))?;
        let enabled = &self.enabled[place];
        match enabled.load(Ordering::Acquire) {
            UNKNOWN if device != peer => {
                let does = api.enable_peer(device, peer)?;
                enabled.store(if does { YES } else { NO }, Ordering::Release);
                Ok(does)
            }
            answer => Ok(answer != NO),
        }
    }

    /// Whether work of `device` reaches memory of `peer` already.
    pub(crate) fn is_enabled(&self, device: DeviceIndex, peer: DeviceIndex) -> bool {
        device == peer
            || self.place(device, peer).is_some_and(|place| self.enabled[place].load(Ordering::Acquire) == YES)
    }
}
