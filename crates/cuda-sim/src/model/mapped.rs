//! Virtual memory management on the machine: the books of `vmm`, and the memory and addresses behind them.
//!
//! Invariants: every handle in the books has bytes in `backings`, and its physical memory is taken from its device;
//! every mapping in the books is a region of the memory; every reservation is taken from the addresses of device 0.
//!
//! Handles of one memory, made by exporting and importing, share its bytes; the memory is given back with the last of
//! them. A descriptor that the program holds keeps the bytes, but no memory of the device: nobody sees it being closed.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::State;
use super::memory::bytes::Backing;
use super::memory::{Region, RegionKind};
use super::shared::{HandleKind, SharedHandle, labelled};
use super::vmm::{self, Physical, Vmm};
use crate::codes::{Answer, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, UNKNOWN};

/// The device out of whose addresses reservations are made; they can be mapped to memory of any.
const RESERVING_DEVICE: u32 = 0;

impl State {
    /// Reserves addresses.
    pub(crate) fn reserve_addresses(&mut self, length: u64, alignment: u64, flags: u64) -> Answer<u64> {
        let alignment = vmm::reservation_alignment(length, alignment, flags)?;
        let base = self.memory.take_addresses(RESERVING_DEVICE, length, alignment)?;
        // Only a prescribed address can be out of line.
        if !base.is_multiple_of(alignment) {
            self.memory.give_back_addresses(RESERVING_DEVICE, base);
            return Err(OUT_OF_MEMORY);
        }
        self.vmm.reserve(base, length);
        Ok(base)
    }

    /// Gives a reservation back.
    pub(crate) fn free_addresses(&mut self, base: u64, length: u64) -> Answer {
        self.vmm.free_reservation(base, length)?;
        self.memory.give_back_addresses(RESERVING_DEVICE, base);
        Ok(())
    }

    /// Makes a handle of physical memory.
    pub(crate) fn create_physical(&mut self, device: u32, length: u64, handle_types: u32) -> Answer<u64> {
        Vmm::check_length(length)?;
        let bytes = usize::try_from(length).map_err(|_| OUT_OF_MEMORY)?;
        self.memory.take_physical(device, length)?;
        let handle = self.new_handle();
        self.backings.insert(handle, Backing::new(bytes, self.config.checks.uninitialized));
        self.vmm.create(handle, length, device, handle_types);
        Ok(handle)
    }

    /// Releases a handle once.
    pub(crate) fn release_physical(&mut self, handle: u64) -> Answer {
        let gone = self.vmm.release(handle)?;
        self.give_back_handle(handle, gone);
        Ok(())
    }

    /// Gives the memory of a handle back once nothing holds it.
    fn give_back_handle(&mut self, handle: u64, gone: Option<Physical>) {
        let Some(physical) = gone else { return };
        let Some(backing) = self.backings.remove(&handle) else { return };
        let is_shared = self.backings.values().any(|other| Arc::ptr_eq(other, &backing));
        if !is_shared && !physical.is_foreign {
            self.memory.give_back_physical(physical.device, physical.length);
        }
    }

    /// A descriptor of the memory behind a handle. `OUT_OF_MEMORY`: the system has no more of them.
    pub(crate) fn export_physical(&mut self, handle: u64, handle_type: u32) -> Answer<OwnedFd> {
        let (device, length) = self.vmm.exported(handle, handle_type).map(|found| (found.device, found.length))?;
        let backing = self.backings.get(&handle).ok_or(INVALID_VALUE)?;
        let shared = backing.share().ok_or(OUT_OF_MEMORY)?;
        backing.hand_out(SharedHandle { device, bytes: length, ..shared }, HandleKind::Physical).ok_or(OUT_OF_MEMORY)
    }

    /// A handle of the memory behind a descriptor; a new one each time.
    ///
    /// `UNKNOWN`: it is no descriptor of such memory. `NOT_SUPPORTED`: it is a pool's. `INVALID_VALUE`: the memory is
    /// of a device that this process has not. `OUT_OF_MEMORY`: it cannot be mapped, or this process gave it back to
    /// the device and that has no more.
    pub(crate) fn import_physical(&mut self, descriptor: i32) -> Answer<u64> {
        let (file, label, kind) = labelled(descriptor).ok_or(UNKNOWN)?;
        if kind != HandleKind::Physical {
            return Err(NOT_SUPPORTED);
        }
        if label.device >= self.config.devices {
            return Err(INVALID_VALUE);
        }
        let is_foreign = !label.is_own();
        let known = self.backings.values().find(|backing| backing.is_file(label.inode)).map(Arc::clone);
        let backing = if let Some(backing) = known {
            backing
        } else {
            let length = usize::try_from(label.bytes).map_err(|_| OUT_OF_MEMORY)?;
            let backing = Backing::of_file(file, length).ok_or(OUT_OF_MEMORY)?;
            if !is_foreign {
                self.memory.take_physical(label.device, label.bytes)?;
            }
            backing
        };
        let handle = self.new_handle();
        self.backings.insert(handle, backing);
        self.vmm.import(handle, label.bytes, label.device, is_foreign);
        Ok(handle)
    }

    /// Maps a handle; nobody may touch the range before its access is set.
    pub(crate) fn map_physical(&mut self, base: u64, length: u64, offset: u64, handle: u64, flags: u64) -> Answer {
        self.vmm.map(base, length, offset, handle, flags)?;
        let device = self.vmm.physical(handle)?.device;
        if let Some(backing) = self.backings.get(&handle).map(Arc::clone) {
            let kind = RegionKind::Mapped;
            self.memory.map(
                base,
                Region { length, device, kind, backing, offset: 0, accessible: false, writable: false, granted: 0 },
            );
        }
        Ok(())
    }

    /// Takes away every mapping in a range.
    pub(crate) fn unmap_range(&mut self, base: u64, length: u64) -> Answer {
        self.check_unmapped(base, length)?;
        for unmapped in self.vmm.unmap(base, length)? {
            self.memory.unmap(unmapped.base);
            self.give_back_handle(unmapped.handle, unmapped.gone);
        }
        Ok(())
    }

    /// Says what devices may do with the mappings in a range.
    pub(crate) fn set_range_access(&mut self, base: u64, length: u64, grants: &[(u32, u32)]) -> Answer {
        for base in self.vmm.set_access(base, length, grants)? {
            self.memory.set_access(base, self.vmm.allowed(base), self.vmm.granted(base));
        }
        Ok(())
    }
}
