//! Virtual memory: address ranges, and the pages of memory that are put behind them.
//!
//! The elastic backend keeps the books of its pages itself, and calls what stands for one call each.
//!
//! **Invariants:** each page that is mapped for `map_pages` has one handle, listed under its address. What could not be undone after a
//! failure (a page still mapped, a handle still held) stays listed. The next call that maps, unmaps or gives a range
//! back tries again, and a range is not given back before.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Out pointers and structures are locals that outlive the
//! call. Addresses come from `cuMemAddressReserve`, handles from `cuMemCreate`, and both are given back once: the list
//! forgets them when the driver has taken them. The allocator unmaps only memory that nobody holds, after waiting for
//! its stream.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::collections::BTreeMap;
use std::ptr;
use std::sync::PoisonError;

use cuda_sys::driver::types::{
    CUdevice_attribute, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1,
    CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use crate::base::device::DeviceIndex;
use crate::base::error::{Error, MemoryError, Result};
use crate::base::handles::PageHandle;
use crate::driver::Api;
use crate::sync::MutexGuard;

/// The mapped pages, and the remains of failed calls.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    pages: BTreeMap<u64, Page>,
    /// Handles of pages that are unmapped but could not be released.
    unreleased: Vec<PageHandle>,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    handle: PageHandle,
    size: u64,
    /// Its mapping failed as a whole and it could not be unmapped again.
    leftover: bool,
}

impl Api {
    fn mappings(&self) -> MutexGuard<'_, Mappings> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether memory can be put behind addresses of a device.
    pub(crate) fn has_virtual_memory(&self, device: DeviceIndex) -> Result<bool> {
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        self.attribute(device, attribute).map(|supported| supported != 0)
    }

    /// Whether the memory at an address is a page that was mapped there.
    pub(crate) fn is_page(&self, address: u64) -> bool {
        let mappings = self.mappings();
        let before = mappings.pages.range(..=address).next_back();
        before.is_some_and(|(first, page)| address - first < page.size)
    }

    /// Takes a range of addresses.
    pub(crate) fn address_reserve(&self, device: DeviceIndex, bytes: u64) -> Result<u64> {
        self.bind(device)?;
        let mut address = 0;
        // SAFETY: `address` outlives the call.
        unsafe { self.table.cuMemAddressReserve(&mut address, length(bytes)?, 0, 0, 0) }?;
        Ok(address)
    }

    /// Gives a range of addresses back.
    pub(crate) fn address_free(&self, device: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        self.bind(device)?;
        self.tidy(&mut self.mappings())?;
        let bytes = length(bytes)?;
        // SAFETY: the range was reserved with this size, nothing of it is mapped, and nobody uses it any more.
        Ok(unsafe { self.table.cuMemAddressFree(address, bytes) }?)
    }

    /// Makes pages and maps them; all or none.
    pub(crate) fn map_new_pages(&self, device: DeviceIndex, address: u64, bytes: u64, page: u64) -> Result<()> {
        self.bind(device)?;
        let mut mappings = self.mappings();
        self.tidy(&mut mappings)?;
        let mut handles = Vec::new();
        for _ in 0..bytes / page {
            match self.create_memory(device, page) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    self.release_pages(&mut mappings, handles);
                    return Err(error);
                }
            }
        }
        self.map_and_allow(&mut mappings, &[device], (address, page), handles)
    }

    /// Makes one piece of memory of a device and maps it so that all of some devices may use it; all or nothing.
    pub(crate) fn map_for_devices(
        &self,
        owner: DeviceIndex,
        devices: &[DeviceIndex],
        address: u64,
        bytes: u64,
    ) -> Result<()> {
        self.bind(owner)?;
        let mut mappings = self.mappings();
        self.tidy(&mut mappings)?;
        let handle = self.create_memory(owner, bytes)?;
        self.map_and_allow(&mut mappings, devices, (address, bytes), vec![handle])
    }

    /// Maps pages that another process has made, and which are released when they are unmapped; all or none.
    pub(super) fn map_pages_of_others(
        &self,
        device: DeviceIndex,
        address: u64,
        page: u64,
        handles: Vec<PageHandle>,
    ) -> Result<()> {
        self.map_and_allow(&mut self.mappings(), &[device], (address, page), handles)
    }

    fn map_and_allow(
        &self,
        mappings: &mut Mappings,
        devices: &[DeviceIndex],
        (address, page): (u64, u64),
        handles: Vec<PageHandle>,
    ) -> Result<()> {
        let bytes = handles.len() as u64 * page;
        let mapped = self.map_all(mappings, address, page, handles);
        let usable =
            mapped.and_then(|()| devices.iter().try_for_each(|&device| self.allow_access_to(device, address, bytes)));
        if usable.is_err() {
            mappings.pages.range_mut(address..address + bytes).for_each(|(_, page)| page.leftover = true);
            // Tried again later; the error above is the one to return.
            let _ = self.tidy(mappings);
        }
        usable
    }

    /// Releases pages that are mapped nowhere.
    pub(super) fn drop_pages(&self, handles: Vec<PageHandle>) {
        self.release_pages(&mut self.mappings(), handles);
    }

    /// The pages of an expandable segment that memory lies in: the first address, the bytes of each, and their handles.
    pub(crate) fn pages_at(&self, address: u64, bytes: u64) -> Option<(u64, u64, Vec<PageHandle>)> {
        let mappings = self.mappings();
        let (first, page) = mappings.pages.range(..=address).next_back().map(|(first, page)| (*first, page.size))?;
        let count = (address + bytes - first).div_ceil(page);
        let at = |number| mappings.pages.get(&(first + number * page)).map(|page| page.handle);
        let handles: Option<Vec<PageHandle>> = (0..count).map(at).collect();
        handles.filter(|_| address < first + page).map(|handles| (first, page, handles))
    }

    /// Maps the pages one after the other; those that are not mapped after a failure are released.
    fn map_all(&self, mappings: &mut Mappings, address: u64, size: u64, handles: Vec<PageHandle>) -> Result<()> {
        let mut handles = handles.into_iter();
        let mut at = address;
        while let Some(handle) = handles.next() {
            if let Err(error) = self.map_memory(at, size, handle) {
                self.release_pages(mappings, std::iter::once(handle).chain(handles).collect());
                return Err(error);
            }
            mappings.pages.insert(at, Page { handle, size, leftover: false });
            at += size;
        }
        Ok(())
    }

    /// Unmaps pages and releases them, from the front; the bytes that are unmapped, and the error if not all are.
    pub(crate) fn unmap_and_release(
        &self,
        device: DeviceIndex,
        address: u64,
        bytes: u64,
        page: u64,
    ) -> (u64, Result<()>) {
        let mut mappings = self.mappings();
        if let Err(error) = self.bind(device).and_then(|()| self.tidy(&mut mappings)) {
            return (0, Err(error));
        }
        let mut done = 0;
        while done < bytes {
            if let Err(error) = self.unmap_listed(&mut mappings, address + done) {
                return (done, Err(error));
            }
            done += page;
        }
        (done, Ok(()))
    }

    /// Makes memory that is behind no address.
    pub(super) fn create_memory(&self, device: DeviceIndex, bytes: u64) -> Result<PageHandle> {
        let properties = CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: self.page_handle_types(device),
            location: location(device),
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let bytes = length(bytes)?;
        let mut handle = 0;
        // SAFETY: `handle` and `properties` outlive the call.
        unsafe { self.table.cuMemCreate(&mut handle, bytes, &properties, 0) }?;
        Ok(PageHandle(handle))
    }

    /// Puts memory behind addresses.
    pub(super) fn map_memory(&self, address: u64, bytes: u64, handle: PageHandle) -> Result<()> {
        let bytes = length(bytes)?;
        // SAFETY: the part of a reserved range is unmapped, and the handle is of a page of this size.
        Ok(unsafe { self.table.cuMemMap(address, bytes, 0, handle.0, 0) }?)
    }

    /// Lets a device use what is behind addresses.
    pub(super) fn allow_access_to(&self, device: DeviceIndex, address: u64, bytes: u64) -> Result<()> {
        let access = CUmemAccessDesc {
            location: location(device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let bytes = length(bytes)?;
        // SAFETY: the part is mapped, and the one description outlives the call.
        Ok(unsafe { self.table.cuMemSetAccess(address, bytes, &access, 1) }?)
    }

    /// Takes memory away from behind addresses.
    pub(super) fn unmap_memory(&self, address: u64, bytes: u64) -> Result<()> {
        let bytes = length(bytes)?;
        // SAFETY: one handle is mapped there as a whole, and nobody uses it at these addresses any more.
        Ok(unsafe { self.table.cuMemUnmap(address, bytes) }?)
    }

    fn unmap_listed(&self, mappings: &mut Mappings, address: u64) -> Result<()> {
        let Some(page) = mappings.pages.get(&address).copied() else { return Ok(()) };
        self.unmap_memory(address, page.size)?;
        mappings.pages.remove(&address);
        self.release_pages(mappings, vec![page.handle]);
        Ok(())
    }

    /// Releases pages that are not mapped; those that cannot be are listed for later.
    fn release_pages(&self, mappings: &mut Mappings, handles: Vec<PageHandle>) {
        for handle in handles {
            if self.release_memory(handle).is_err() {
                mappings.unreleased.push(handle);
            }
        }
    }

    /// Gives memory back.
    pub(super) fn release_memory(&self, page: PageHandle) -> Result<()> {
        // SAFETY: the handle is released once: only a failed release is tried again.
        Ok(unsafe { self.table.cuMemRelease(page.0) }?)
    }

    /// Tries again what could not be undone before.
    fn tidy(&self, mappings: &mut Mappings) -> Result<()> {
        let left: Vec<u64> =
            mappings.pages.iter().filter(|(_, page)| page.leftover).map(|(address, _)| *address).collect();
        left.into_iter().try_for_each(|address| self.unmap_listed(mappings, address))?;
        let unreleased = std::mem::take(&mut mappings.unreleased);
        self.release_pages(mappings, unreleased);
        Ok(())
    }

    /// Undoes what failed calls have left behind, at the end of the runtime.
    pub(crate) fn tidy_mappings(&self) {
        let _ = self.tidy(&mut self.mappings());
    }
}

fn location(device: DeviceIndex) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

fn length(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::Memory(MemoryError::RequestTooLarge { requested: bytes }))
}
