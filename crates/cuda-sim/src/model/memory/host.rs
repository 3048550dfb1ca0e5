//! Host memory that devices reach: pinned memory allocated here, the program's own that was registered, managed memory.
//!
//! Invariant: pinned ranges do not overlap.

use super::Memory;
use super::bytes::HostPages;
use super::managed::Managed;
use crate::codes::{Answer, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY};

/// `CU_MEMHOSTALLOC_DEVICEMAP`: devices reach all of this memory, asked for or not.
pub(crate) const DEVICE_MAP: u32 = 2;

/// A range of host memory that devices can reach.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) length: u64,
    pub(crate) context: u64,
    pub(crate) flags: u32,
    pub(crate) id: u64,
    /// The memory itself when it was allocated here.
    pages: Option<HostPages>,
    /// What was said of its pages, when it is managed memory.
    pub(super) managed: Option<Managed>,
}

impl Pinned {
    /// Managed memory. It gets its id when it is noted.
    pub(super) fn managed(length: u64, context: u64, pages: HostPages, managed: Managed) -> Self {
        Self { length, context, flags: DEVICE_MAP, id: 0, pages: Some(pages), managed: Some(managed) }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.pages.is_none()
    }

    pub(crate) fn is_managed(&self) -> bool {
        self.managed.is_some()
    }

    /// Whether `cuMemFreeHost` gives it back.
    fn is_allocated_pinned(&self) -> bool {
        !self.is_registered() && !self.is_managed()
    }
}

impl Memory {
    /// Allocates pinned memory; returns its address.
    pub(crate) fn allocate_pinned(&mut self, context: u64, length: u64, flags: u32) -> Answer<u64> {
        if length == 0 {
            return Err(INVALID_VALUE);
        }
        let bytes = usize::try_from(length).map_err(|_| OUT_OF_MEMORY)?;
        let pages = HostPages::new(bytes).ok_or(OUT_OF_MEMORY)?;
        let address = pages.address();
        self.pin(address, Pinned { length, context, flags, id: 0, pages: Some(pages), managed: None });
        Ok(address)
    }

    pub(super) fn pin(&mut self, address: u64, pinned: Pinned) {
        let id = self.next_id;
        self.next_id += 1;
        self.pinned.insert(address, Pinned { id, ..pinned });
    }

    /// Gives pinned memory back. The address must be the one it was allocated at.
    pub(crate) fn free_pinned(&mut self, address: u64) -> Answer {
        self.pinned.get(&address).filter(|pinned| pinned.is_allocated_pinned()).ok_or(INVALID_VALUE)?;
        self.pinned.remove(&address);
        Ok(())
    }

    /// Pins memory of the program's own.
    pub(crate) fn register(&mut self, context: u64, address: u64, length: u64, flags: u32) -> Answer {
        let end = address.checked_add(length).filter(|_| address != 0 && length != 0).ok_or(INVALID_VALUE)?;
        let last = self.pinned.range(..end).next_back();
        match last.filter(|(base, pinned)| *base + pinned.length > address) {
            Some((_, pinned)) if pinned.is_registered() => return Err(HOST_MEMORY_ALREADY_REGISTERED),
            Some(_) => return Err(INVALID_VALUE),
            None => {}
        }
        self.pin(address, Pinned { length, context, flags, id: 0, pages: None, managed: None });
        Ok(())
    }

    /// Undoes [`Memory::register`].
    pub(crate) fn unregister(&mut self, address: u64) -> Answer {
        match self.pinned.get(&address) {
            None => Err(HOST_MEMORY_NOT_REGISTERED),
            Some(pinned) if !pinned.is_registered() => Err(HOST_MEMORY_NOT_REGISTERED),
            Some(_) => {
                self.pinned.remove(&address);
                Ok(())
            }
        }
    }

    /// The pinned range that an address lies in, with its first address.
    pub(crate) fn pinned_at(&self, address: u64) -> Option<(u64, &Pinned)> {
        let (&base, pinned) = self.pinned.range(..=address).next_back()?;
        (address - base < pinned.length).then_some((base, pinned))
    }

    /// Whether all of a host range is pinned.
    pub(crate) fn is_pinned(&self, address: u64, length: u64) -> bool {
        self.pinned_at(address).is_some_and(|(base, pinned)| address - base + length <= pinned.length)
    }

    /// Number of pinned ranges, allocated and registered.
    pub(crate) fn pinned_count(&self) -> usize {
        self.pinned.len() - self.managed_count()
    }
}
