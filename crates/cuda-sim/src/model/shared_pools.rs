//! Memory pools that processes share.
//!
//! The addresses of a pool that can be exported are one memory file, a chunk at its offset; a descriptor of that file is
//! the pool elsewhere. An allocation is named by its offset. Whoever imports it maps the chunks that it touches, for as
//! long as anything imported is in them, and takes no memory of the device: the exporter has it.
//!
//! As on hardware, an imported pool is one however often it is imported, and so is a pointer; freeing an imported pointer
//! leaves the exporter's allocation as it is, and its contents too. An imported pool is not destroyed while anything of it
//! is in use.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::State;
use super::memory::bytes::Backing;
use super::memory::{Allocation, Region, RegionKind};
use super::pool::{CHUNK, chunks_of};
use super::pools::{Origin, SPAN};
use super::shared::{HandleKind, SharedHandle, labelled};
use crate::codes::{Answer, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, UNKNOWN};

impl State {
    /// Makes a pool that can be exported.
    pub(crate) fn new_shareable_pool(&mut self, device: u32, max_bytes: u64) -> Answer<u64> {
        let backing = Backing::new(usize::try_from(SPAN).map_err(|_| OUT_OF_MEMORY)?, false);
        self.new_pool(device, max_bytes, Origin::Made, Some(backing))
    }

    /// Puts the bytes of a shared pool behind one of its chunks.
    pub(super) fn map_shared_chunk(&mut self, base: u64, chunk: u64, device: u32, backing: &Arc<Backing>) {
        let (backing, kind) = (Arc::clone(backing), RegionKind::Pooled);
        let offset = usize::try_from(chunk).unwrap_or(usize::MAX);
        let region =
            Region { length: CHUNK, device, kind, backing, offset, accessible: true, writable: true, granted: 0 };
        self.memory.map(base + chunk, region);
    }

    /// A descriptor of a pool. `INVALID_VALUE`: it was not made for that. `OUT_OF_MEMORY`: the system has no more.
    pub(crate) fn export_pool(&mut self, key: u64) -> Answer<OwnedFd> {
        let handle = self.shared_pool(key)?;
        let backing = self.pool(key)?.backing.clone().ok_or(INVALID_VALUE)?;
        let file = backing.hand_out(SharedHandle { bytes: SPAN, ..handle }, HandleKind::Pool).ok_or(OUT_OF_MEMORY)?;
        self.pool(key)?.exported = true;
        Ok(file)
    }

    /// What names a pool that can be exported, with no part of it.
    fn shared_pool(&mut self, key: u64) -> Answer<SharedHandle> {
        let pool = self.pool(key)?;
        let backing = pool.backing.as_ref().filter(|_| pool.is_shareable()).ok_or(INVALID_VALUE)?;
        let handle = backing.share().ok_or(OUT_OF_MEMORY)?;
        Ok(SharedHandle { device: pool.device, ..handle })
    }

    /// The pool behind a descriptor.
    ///
    /// `UNKNOWN`: it is no descriptor of such memory. `NOT_SUPPORTED`: it is that of a physical handle. `INVALID_VALUE`:
    /// the pool is of a device that this process has not. `OUT_OF_MEMORY`: it cannot be mapped.
    pub(crate) fn import_pool(&mut self, descriptor: i32) -> Answer<u64> {
        let (file, label, kind) = labelled(descriptor).ok_or(UNKNOWN)?;
        if kind != HandleKind::Pool {
            return Err(NOT_SUPPORTED);
        }
        if label.device >= self.config.devices || label.bytes != SPAN {
            return Err(INVALID_VALUE);
        }
        let origin = Origin::Imported(label.inode);
        if let Some((&key, _)) = self.pools.iter().find(|(_, pool)| pool.origin == origin) {
            return Ok(key);
        }
        let own = self.pools.values().filter_map(|pool| pool.backing.as_ref());
        let known = own.into_iter().find(|backing| backing.is_file(label.inode)).map(Arc::clone);
        let length = usize::try_from(SPAN).map_err(|_| OUT_OF_MEMORY)?;
        let backing = known.or_else(|| Backing::of_file(file, length)).ok_or(OUT_OF_MEMORY)?;
        self.new_pool(label.device, 0, origin, Some(backing))
    }

    /// What names an allocation of a pool that was exported, by its first address.
    pub(crate) fn export_pooled(&mut self, address: u64) -> Answer<SharedHandle> {
        let found = self.memory.allocation_at(address).filter(|found| found.base == address).ok_or(INVALID_VALUE)?;
        let (bytes, key) = (found.length, found.pool.ok_or(INVALID_VALUE)?);
        let handle = self.shared_pool(key)?;
        if !self.pool(key)?.exported {
            return Err(INVALID_VALUE);
        }
        Ok(SharedHandle { offset: address - self.pool(key)?.base, bytes, ..handle })
    }

    /// Where an allocation that was exported is in an imported pool. `INVALID_VALUE`: it is none of that pool.
    pub(crate) fn import_pooled(&mut self, key: u64, handle: &SharedHandle) -> Answer<u64> {
        let pool = self.pool(key)?;
        let (base, device) = (pool.base, pool.device);
        let is_of_it = pool.origin == Origin::Imported(handle.inode) && handle.bytes > 0 && handle.file_bytes == SPAN;
        let backing = pool.backing.clone().filter(|_| is_of_it).ok_or(INVALID_VALUE)?;
        let address = base + handle.offset;
        match self.memory.allocation_at(address).filter(|found| found.base == address).map(|found| found.length) {
            Some(length) if length == handle.bytes => return Ok(address),
            // The exporter has allocated anew in the same place.
            Some(_) => drop(self.memory.take_back(address)),
            None => {}
        }
        for chunk in chunks_of(handle.offset, handle.bytes) {
            if self.memory.region_at(base + chunk).is_none() {
                self.map_shared_chunk(base, chunk, device, &backing);
            }
        }
        self.memory.hand_out(Allocation { pool: Some(key), ..Allocation::new(address, handle.bytes, device, 0) });
        Ok(address)
    }

    /// An allocation is not in the books any more: unmaps what only it used, if it was imported. False when it was not.
    pub(super) fn let_go_of_import(&mut self, allocation: &Allocation) -> bool {
        let pool = allocation.pool.and_then(|key| self.pools.get(&key)).filter(|pool| pool.is_imported());
        let Some(base) = pool.map(|pool| pool.base) else { return false };
        for chunk in chunks_of(allocation.base - base, allocation.length) {
            let start = base + chunk;
            if self.memory.allocation_at(start).is_none() && !self.memory.is_occupied(start, CHUNK) {
                self.memory.unmap(start);
            }
        }
        true
    }
}
