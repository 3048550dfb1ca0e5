//! Virtual memory management on the machine: the books of `vmm`, and the memory and addresses behind them.
//!
//! Invariants: every handle in the books has bytes in `backings`, and its physical memory is taken from its device;
//! every mapping in the books is a region of the memory; every reservation is taken from the addresses of device 0.

use std::sync::Arc;

use super::State;
use super::memory::bytes::Backing;
use super::memory::{Region, RegionKind};
use super::vmm::{self, Physical, Vmm};
use crate::codes::{Answer, OUT_OF_MEMORY};

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
        if let Some(physical) = gone {
            self.backings.remove(&handle);
            self.memory.give_back_physical(physical.device, physical.length);
        }
    }

    /// Maps a handle; nobody may touch the range before its access is set.
    pub(crate) fn map_physical(&mut self, base: u64, length: u64, offset: u64, handle: u64, flags: u64) -> Answer {
        self.vmm.map(base, length, offset, handle, flags)?;
        let device = self.vmm.physical(handle)?.device;
        if let Some(backing) = self.backings.get(&handle).map(Arc::clone) {
            let kind = RegionKind::Mapped;
            self.memory
                .map(base, Region { length, device, kind, backing, offset: 0, accessible: false, writable: false });
        }
        Ok(())
    }

    /// Takes away every mapping in a range.
    pub(crate) fn unmap_range(&mut self, base: u64, length: u64) -> Answer {
        for unmapped in self.vmm.unmap(base, length)? {
            self.memory.unmap(unmapped.base);
            self.give_back_handle(unmapped.handle, unmapped.gone);
        }
        Ok(())
    }

    /// Says what devices may do with the mappings in a range.
    pub(crate) fn set_range_access(&mut self, base: u64, length: u64, grants: &[(u32, u32)]) -> Answer {
        for base in self.vmm.set_access(base, length, grants)? {
            let (accessible, writable) = self.vmm.allowed(base);
            self.memory.set_access(base, accessible, writable);
        }
        Ok(())
    }
}
