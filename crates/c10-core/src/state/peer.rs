//! Which devices can reach each other's memory.
//!
//! **Invariant:** the driver is asked at most once for each pair, as long as it answers. Asking creates no context.

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
}

impl Peers {
    pub(crate) fn new(devices: usize) -> Self {
        Self { devices, known: (0..devices * devices).map(|_| AtomicU8::new(UNKNOWN)).collect() }
    }

    /// The place of a pair, where both devices exist.
    fn of(&self, device: DeviceIndex, peer: DeviceIndex) -> Option<&AtomicU8> {
        let (row, column) = (usize::try_from(device).ok()?, usize::try_from(peer).ok()?);
        self.known.get(row * self.devices + column).filter(|_| row < self.devices && column < self.devices)
    }

    /// Whether work of `device` can reach memory of `peer`; a device reaches its own.
    pub(crate) fn can_access(&self, api: &Api, device: DeviceIndex, peer: DeviceIndex) -> Result<bool> {
        let known = self.of(device, peer).ok_or(Error::Device(DeviceError::InvalidPeerId))?;
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
}
