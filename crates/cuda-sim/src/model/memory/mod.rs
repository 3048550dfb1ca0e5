//! Memory of the machine: what is mapped where, and what the program was given.
//!
//! A [`Region`] is a range of device addresses with bytes behind it; an [`Allocation`] is what one call handed out.
//! Small allocations share a region of one granule (a chunk), as on hardware, so running past the end of one of them
//! hits its neighbour and nothing notices; [`Memory::look_at`] tells that from an access that hardware refuses.
//!
//! Invariants: regions do not overlap; an allocation lies inside one region; `used_bytes` of a device is the sum of
//! the physical memory of its regions and handles, but for what other processes have taken, and with `others_bytes` never above `capacity_bytes`.

pub(crate) mod blocks;
pub(crate) mod bytes;
mod heap;
mod host;
mod machine_file;
mod managed;
mod resident;
mod space;
mod transfer;
mod view;
mod written;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub(crate) use heap::Heap;
pub(crate) use host::{DEVICE_MAP, Pinned};
pub use machine_file::MachineFileError;
pub(crate) use machine_file::{Holding, MachineFile};
pub(crate) use managed::{CPU, Location, Managed, Pages, Stretch};
pub(crate) use resident::Blocks as ManagedBlocks;
pub(crate) use space::GRANULE;
pub(crate) use transfer::{BadAddress, Endpoint, Fill, Source, Transfer};
pub(crate) use view::{DeviceView, Noticed, Traffic};

use self::blocks::Blocks;
use self::bytes::{Backing, Bytes};
use self::resident::Resident;
use self::space::Space;
use super::shared::SharedHandle;
use crate::codes::{Answer, INVALID_VALUE, OUT_OF_MEMORY};

/// Alignment of what cuMemAlloc returns.
const ALIGNMENT: u64 = 512;

/// Who made a region, and so who takes it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionKind {
    /// A granule shared by small allocations.
    Chunk,
    /// One large allocation.
    Whole,
    /// Memory of a stream-ordered pool.
    Pooled,
    /// A mapped handle of the virtual memory functions.
    Mapped,
    /// Memory of graphs.
    Graph,
    /// Memory of another process.
    Imported,
    /// The variables of a module.
    Module,
    /// The device's heap of a context.
    Heap,
}

/// Device addresses with bytes behind them.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) length: u64,
    pub(crate) device: u32,
    pub(crate) kind: RegionKind,
    pub(crate) backing: Arc<Backing>,
    pub(crate) offset: usize,
    /// Whether devices may touch it; a mapping may not before its access was set.
    pub(crate) accessible: bool,
    /// Whether devices may write to it.
    pub(crate) writable: bool,
    /// Whose kernels may touch it, a bit for each device; looked at for mappings.
    pub(crate) granted: u64,
}

impl Region {
    /// Whether it is a mapped handle of the virtual memory functions.
    pub(crate) fn is_mapping(&self) -> bool {
        self.kind == RegionKind::Mapped
    }

    /// Whether all of it belongs to one owner, so that no allocations inside it tell what may be touched.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.kind, RegionKind::Mapped | RegionKind::Module)
    }
}

/// What one call handed out.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) length: u64,
    pub(crate) device: u32,
    pub(crate) context: u64,
    pub(crate) id: u64,
    /// The pool it came from, for stream-ordered allocations.
    pub(crate) pool: Option<u64>,
    /// Whether the program asked for synchronous operations on it.
    pub(crate) synchronous: bool,
    /// Whether a graph allocates it.
    pub(crate) graph: bool,
    /// Whether the work that allocates it has run; only graphs allocate by work.
    pub(crate) present: bool,
}

impl Allocation {
    /// One outside of pools and graphs. It gets its id when it is handed out.
    pub(crate) fn new(base: u64, length: u64, device: u32, context: u64) -> Self {
        Self { base, length, device, context, id: 0, pool: None, synchronous: false, graph: false, present: true }
    }

    fn covers(&self, address: u64, length: u64) -> bool {
        self.base <= address && address.saturating_add(length) <= self.base + self.length
    }
}

/// What hardware and model think of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Inside one allocation.
    Fine,
    /// Inside an allocation whose freeing is queued.
    Ghost,
    /// Inside memory of a graph that will be allocated by work that has not run yet.
    Early,
    /// Mapped, but runs past the end of the allocation it starts in.
    PastTheEnd,
    /// Mapped, but belongs to no allocation any more.
    NotAllocated,
    /// Not mapped: hardware refuses.
    Unmapped,
}

#[derive(Debug)]
struct DeviceMemory {
    capacity_bytes: u64,
    used_bytes: u64,
    /// What other processes hold.
    others_bytes: u64,
    /// Managed memory that it has.
    resident: Resident,
    space: Space,
}

/// All memory of a machine.
#[derive(Debug)]
pub(crate) struct Memory {
    devices: Vec<DeviceMemory>,
    regions: BTreeMap<u64, Region>,
    allocations: BTreeMap<u64, Allocation>,
    pinned: BTreeMap<u64, Pinned>,
    /// Pooled allocations whose freeing is queued, by their ids: work queued before it still may touch them.
    ghosts: BTreeMap<u64, Allocation>,
    /// Addresses that nodes of graphs allocate, with their lengths and devices.
    promises: BTreeMap<u64, (u64, u32)>,
    prescribed: VecDeque<u64>,
    /// Whether it is noted which bytes of devices are written.
    tracks: bool,
    /// What the program's own allocator has cut out of all this.
    pub(crate) blocks: Blocks,
    /// Pages of managed memory that prefetches have moved.
    moved_pages: u64,
    next_id: u64,
    /// Where other processes and this one tell each other what they hold.
    file: Option<MachineFile>,
}

impl Memory {
    pub(crate) fn new(devices: u32, capacity_bytes: u64) -> Self {
        let device = |index| DeviceMemory {
            capacity_bytes,
            used_bytes: 0,
            others_bytes: 0,
            resident: Resident::default(),
            space: Space::of_device(index, devices),
        };
        Self {
            devices: (0..devices).map(device).collect(),
            regions: BTreeMap::new(),
            allocations: BTreeMap::new(),
            pinned: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            promises: BTreeMap::new(),
            prescribed: VecDeque::new(),
            tracks: false,
            blocks: Blocks::default(),
            moved_pages: 0,
            next_id: 1,
            file: None,
        }
    }

    /// The same of a machine that processes share.
    pub(crate) fn shared_by(self, file: Option<MachineFile>) -> Self {
        Self { file, ..self }
    }

    /// What other processes that share the machine have on a device.
    pub(crate) fn others(&self, device: u32) -> Vec<Holding> {
        self.file.as_ref().map_or_else(Vec::new, |file| file.others(device))
    }

    /// The file that tells other processes of this one.
    pub(crate) fn file(&mut self) -> Option<&mut MachineFile> {
        self.file.as_mut()
    }

    /// The same, in which it is noted which bytes of devices are written, if `tracks`.
    pub(crate) fn tracking(self, tracks: bool) -> Self {
        Self { tracks, ..self }
    }

    /// Nobody has written a range of device memory, as far as anybody is to know.
    pub(crate) fn forget_written(&self, address: u64, length: u64) {
        let mut at = address;
        while let Some((base, region)) = self.region_at(at).filter(|_| at < address + length) {
            let end = (base + region.length).min(address + length);
            let (offset, bytes) = (usize::try_from(at - base).unwrap_or(0), usize::try_from(end - at).unwrap_or(0));
            region.backing.forget_written(region.offset + offset, bytes);
            at = end;
        }
    }

    /// Addresses that the next allocations and reservations return, in order.
    pub(crate) fn prescribe(&mut self, addresses: impl IntoIterator<Item = u64>) {
        self.prescribed.extend(addresses);
    }

    /// Lets other processes hold memory of every device, as far as there is any.
    pub(crate) fn occupy(&mut self, bytes: u64) {
        for memory in &mut self.devices {
            let free = memory.capacity_bytes - memory.used_bytes - memory.others_bytes;
            memory.others_bytes += bytes.min(free);
        }
    }

    /// Bytes of a device that this process holds.
    pub(crate) fn used_bytes(&self, device: u32) -> u64 {
        let found = usize::try_from(device).ok().and_then(|index| self.devices.get(index));
        found.map_or(0, |memory| memory.used_bytes)
    }

    fn device(&mut self, index: u32) -> Answer<&mut DeviceMemory> {
        self.devices.get_mut(usize::try_from(index).unwrap_or(usize::MAX)).ok_or(INVALID_VALUE)
    }

    /// Free and total bytes of a device.
    pub(crate) fn info(&self, device: u32) -> (u64, u64) {
        let found = usize::try_from(device).ok().and_then(|index| self.devices.get(index));
        let shared: u64 = self.others(device).iter().map(|other| other.bytes).sum();
        found.map_or((0, 0), |memory| {
            let free = memory.capacity_bytes - memory.used_bytes - memory.others_bytes;
            (free.saturating_sub(shared), memory.capacity_bytes)
        })
    }

    /// Takes physical memory of a device; managed memory makes room for it.
    pub(crate) fn take_physical(&mut self, device: u32, bytes: u64) -> Answer {
        let taken = self.take_spare(device, bytes);
        let evicted = if taken.is_err() { self.device(device)?.resident.evict() } else { 0 };
        if evicted == 0 {
            return taken;
        }
        self.give_back_physical(device, evicted);
        self.take_spare(device, bytes)
    }

    /// Takes physical memory of a device that nothing is in.
    fn take_spare(&mut self, device: u32, bytes: u64) -> Answer {
        let memory = self.device(device)?;
        let used_bytes = memory.used_bytes.checked_add(bytes).ok_or(OUT_OF_MEMORY)?;
        let most = memory.capacity_bytes - memory.others_bytes;
        if used_bytes > most || self.file.as_ref().is_some_and(|file| !file.take(device, used_bytes, most)) {
            return Err(OUT_OF_MEMORY);
        }
        self.device(device)?.used_bytes = used_bytes;
        Ok(())
    }

    /// Gives physical memory of a device back.
    pub(crate) fn give_back_physical(&mut self, device: u32, bytes: u64) {
        if let Ok(memory) = self.device(device) {
            memory.used_bytes = memory.used_bytes.saturating_sub(bytes);
            let left = memory.used_bytes;
            if let Some(file) = &self.file {
                file.give_back(device, left);
            }
        }
    }

    /// Takes a range of a device's addresses; a prescribed one if there is any.
    pub(crate) fn take_addresses(&mut self, device: u32, length: u64, alignment: u64) -> Answer<u64> {
        let prescribed = self.prescribed.pop_front();
        let space = &mut self.device(device)?.space;
        if let Some(base) = prescribed {
            return if space.take_at(base, length) { Ok(base) } else { Err(OUT_OF_MEMORY) };
        }
        space.take(length, alignment).ok_or(OUT_OF_MEMORY)
    }

    /// Takes a range of a device's addresses for the driver's own use, which no program prescribes.
    pub(crate) fn take_addresses_quietly(&mut self, device: u32, length: u64) -> Answer<u64> {
        self.device(device)?.space.take(length, GRANULE).ok_or(OUT_OF_MEMORY)
    }

    /// Puts fresh bytes behind addresses that were taken, physical memory having been taken too.
    pub(crate) fn back(&mut self, base: u64, length: u64, device: u32, kind: RegionKind) -> Answer {
        let backing = Backing::new(usize::try_from(length).map_err(|_| OUT_OF_MEMORY)?, self.tracks);
        self.map(
            base,
            Region { length, device, kind, backing, offset: 0, accessible: true, writable: true, granted: 0 },
        );
        Ok(())
    }

    /// Makes an allocation one whose freeing is queued.
    pub(crate) fn make_ghost(&mut self, base: u64) {
        if let Some(allocation) = self.allocations.remove(&base) {
            self.ghosts.insert(allocation.id, allocation);
        }
    }

    /// The freeing of a ghost is done.
    pub(crate) fn drop_ghost(&mut self, id: u64) -> Option<Allocation> {
        self.ghosts.remove(&id)
    }

    /// Whether a ghost is anywhere in a range.
    pub(crate) fn is_haunted(&self, base: u64, length: u64) -> bool {
        self.ghosts.values().any(|ghost| ghost.base < base + length && base < ghost.base + ghost.length)
    }

    /// Whether anything of a pool is handed out or waits to be freed.
    pub(crate) fn is_from_pool(&self, key: u64) -> bool {
        self.allocations.values().chain(self.ghosts.values()).any(|found| found.pool == Some(key))
    }

    /// Gives a range of addresses back.
    pub(crate) fn give_back_addresses(&mut self, device: u32, base: u64) {
        self.blocks.forget_segment(base);
        if let Ok(memory) = self.device(device) {
            memory.space.give_back(base);
        }
    }

    /// Puts bytes behind a range of addresses.
    pub(crate) fn map(&mut self, base: u64, region: Region) {
        self.regions.insert(base, region);
    }

    /// Takes the bytes away from behind the range that begins at `base`.
    pub(crate) fn unmap(&mut self, base: u64) -> Option<Region> {
        let region = self.regions.remove(&base)?;
        self.blocks.unkeep(base, base + region.length);
        Some(region)
    }

    /// Changes whether the region that begins at `base` may be touched, and written to.
    pub(crate) fn set_access(&mut self, base: u64, (accessible, writable): (bool, bool), granted: u64) {
        if let Some(region) = self.regions.get_mut(&base) {
            region.granted = granted;
            region.accessible = accessible;
            region.writable = writable;
        }
    }

    /// Whether devices may write to all that is mapped in a range.
    pub(crate) fn is_writable(&self, address: u64, length: u64) -> bool {
        let start = self.region_at(address).map_or(address, |(base, _)| base);
        self.regions.range(start..address.saturating_add(length).max(start)).all(|(_, region)| region.writable)
    }

    /// Allocates device memory as cuMemAlloc does.
    pub(crate) fn allocate(&mut self, device: u32, context: u64, bytes: u64) -> Answer<u64> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let rounded = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(OUT_OF_MEMORY)?;
        let base = if rounded < GRANULE && self.prescribed.is_empty() {
            self.place_in_chunk(device, context, rounded)?
        } else {
            self.new_region(device, rounded.checked_next_multiple_of(GRANULE).ok_or(OUT_OF_MEMORY)?, RegionKind::Whole)?
        };
        self.hand_out(Allocation::new(base, bytes, device, context));
        Ok(base)
    }

    /// Maps memory of another process and hands a part of it out; where that part begins. No memory of the device is
    /// taken: the other process has it.
    pub(crate) fn import(&mut self, context: u64, handle: &SharedHandle, backing: Arc<Backing>) -> Answer<u64> {
        let (device, length) = (handle.device, handle.file_bytes);
        let base = self.take_addresses_quietly(device, length.next_multiple_of(GRANULE))?;
        let kind = RegionKind::Imported;
        self.map(
            base,
            Region { length, device, kind, backing, offset: 0, accessible: true, writable: true, granted: 0 },
        );
        self.hand_out(Allocation::new(base + handle.offset, handle.bytes, device, context));
        Ok(base + handle.offset)
    }

    /// A handle of what is allocated at an address for other processes; `None` for what only this process can have.
    pub(crate) fn share(&self, address: u64) -> Option<Answer<SharedHandle>> {
        let found = self.allocation_at(address).filter(|found| found.base == address && found.pool.is_none())?;
        let (base, region) = self.region_at(address)?;
        if !matches!(region.kind, RegionKind::Chunk | RegionKind::Whole) {
            return None;
        }
        let handle = region.backing.share().map(|file| SharedHandle {
            device: found.device,
            offset: address - base,
            bytes: found.length,
            ..file
        });
        Some(handle.ok_or(OUT_OF_MEMORY))
    }

    /// Whether memory of another process is mapped at an address.
    pub(crate) fn is_imported(&self, address: u64) -> bool {
        self.region_at(address).is_some_and(|(_, region)| region.kind == RegionKind::Imported)
    }

    /// Notes an allocation and gives it an id of its own.
    pub(crate) fn hand_out(&mut self, allocation: Allocation) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.allocations.insert(allocation.base, Allocation { id, ..allocation });
        id
    }

    /// Takes a note away without touching the region behind it.
    pub(crate) fn take_back(&mut self, base: u64) -> Option<Allocation> {
        self.allocations.remove(&base)
    }

    /// Maps fresh memory of `length` bytes, a multiple of the granule, at new addresses.
    pub(crate) fn new_region(&mut self, device: u32, length: u64, kind: RegionKind) -> Answer<u64> {
        self.take_physical(device, length)?;
        let base = self.take_addresses(device, length, GRANULE).inspect_err(|_| {
            self.give_back_physical(device, length);
        })?;
        self.back(base, length, device, kind)?;
        Ok(base)
    }

    /// Unmaps a region of [`Memory::new_region`] and gives back its memory and addresses.
    pub(crate) fn drop_region(&mut self, base: u64) {
        if let Some(region) = self.unmap(base) {
            self.give_back_physical(region.device, region.length);
            self.give_back_addresses(region.device, base);
        }
    }

    /// Finds room in a chunk that is there, or makes one. Chunks belong to a context.
    fn place_in_chunk(&mut self, device: u32, context: u64, length: u64) -> Answer<u64> {
        let chunks: Vec<u64> = self
            .regions
            .iter()
            .filter(|(_, region)| region.kind == RegionKind::Chunk && region.device == device)
            .map(|(&base, _)| base)
            .collect();
        for chunk in chunks {
            if let Some(base) = self.gap_in_chunk(chunk, context, length) {
                return Ok(base);
            }
        }
        self.new_region(device, GRANULE, RegionKind::Chunk)
    }

    fn gap_in_chunk(&self, chunk: u64, context: u64, length: u64) -> Option<u64> {
        let mut candidate = chunk;
        for allocation in self.allocations_within(chunk, GRANULE) {
            if allocation.context != context {
                return None;
            }
            if candidate + length <= allocation.base {
                return Some(candidate);
            }
            candidate = (allocation.base + allocation.length).next_multiple_of(ALIGNMENT);
        }
        (candidate + length <= chunk + GRANULE).then_some(candidate)
    }

    fn allocations_within(&self, base: u64, length: u64) -> impl Iterator<Item = &Allocation> {
        self.allocations.range(base..base + length).map(|(_, allocation)| allocation)
    }

    /// Frees what [`Memory::allocate`] returned.
    pub(crate) fn free(&mut self, base: u64) -> Answer {
        let plain =
            self.allocations.get(&base).is_some_and(|allocation| allocation.pool.is_none() && !allocation.graph);
        let (region_base, region) = self.region_at(base).filter(|_| plain).ok_or(INVALID_VALUE)?;
        let (region_kind, backing) = (region.kind, Arc::clone(&region.backing));
        let offset = usize::try_from(base - region_base).unwrap_or(0);
        let allocation = self.allocations.remove(&base).ok_or(INVALID_VALUE)?;
        self.blocks.forget_segment(base);
        match region_kind {
            RegionKind::Whole => self.drop_region(base),
            RegionKind::Chunk if self.allocations_within(region_base, GRANULE).next().is_none() => {
                self.drop_region(region_base);
            }
            RegionKind::Chunk => backing.poison(offset, usize::try_from(allocation.length).unwrap_or(0)),
            RegionKind::Imported => {
                self.unmap(region_base);
                self.give_back_addresses(allocation.device, region_base);
            }
            RegionKind::Pooled | RegionKind::Mapped | RegionKind::Graph | RegionKind::Module | RegionKind::Heap => {}
        }
        Ok(())
    }

    /// Frees everything that a context allocated.
    pub(crate) fn free_context(&mut self, context: u64) {
        let bases: Vec<u64> = self
            .allocations
            .values()
            .filter(|entry| entry.context == context && entry.pool.is_none() && !entry.graph)
            .map(|entry| entry.base)
            .collect();
        for base in bases {
            // Every base was found in the table a moment ago, and only such entries can fail to be freed.
            let _ = self.free(base);
        }
        let gone: Vec<u64> =
            self.pinned.iter().filter(|(_, pinned)| pinned.context == context).map(|(&base, _)| base).collect();
        for base in gone {
            self.forget_resident(base);
            self.pinned.remove(&base);
        }
    }

    /// The region that an address lies in.
    pub(crate) fn region_at(&self, address: u64) -> Option<(u64, &Region)> {
        let (&base, region) = self.regions.range(..=address).next_back()?;
        (address - base < region.length).then_some((base, region))
    }

    /// The allocation that an address lies in.
    pub(crate) fn allocation_at(&self, address: u64) -> Option<&Allocation> {
        let (_, allocation) = self.allocations.range(..=address).next_back()?;
        (address - allocation.base < allocation.length).then_some(allocation)
    }

    /// Whether an address is of the simulated devices, mapped or not.
    pub(crate) fn is_device_address(&self, address: u64) -> bool {
        space::is_simulated(address) || self.region_at(address).is_some()
    }

    /// The bytes behind a range of device addresses, in pieces; `None` when a part is not mapped.
    fn pieces(&self, mut address: u64, mut length: u64) -> Option<Vec<(Bytes, u64)>> {
        let mut pieces = Vec::new();
        while length > 0 {
            let (base, region) = self.region_at(address).filter(|(_, region)| region.accessible)?;
            let inside = address - base;
            let taken = length.min(region.length - inside);
            let offset = region.offset + usize::try_from(inside).ok()?;
            pieces.push((Bytes::inside(&region.backing, offset), taken));
            address += taken;
            length -= taken;
        }
        Some(pieces)
    }

    /// What there is to say of an access to device addresses.
    pub(crate) fn look_at(&self, address: u64, length: u64) -> Look {
        if self.pieces(address, length.max(1)).is_none() {
            return Look::Unmapped;
        }
        let Some((_, region)) = self.region_at(address) else { return Look::Unmapped };
        if region.is_whole() {
            return Look::Fine;
        }
        let mut ghosts = self.ghosts.values().filter(|ghost| ghost.covers(address, length));
        match self.allocation_at(address) {
            Some(found) if found.covers(address, length) && found.present => Look::Fine,
            _ if ghosts.clone().any(|ghost| ghost.present) => Look::Ghost,
            Some(found) if found.covers(address, length) => Look::Early,
            _ if ghosts.next().is_some() => Look::Early,
            Some(_) => Look::PastTheEnd,
            None => Look::NotAllocated,
        }
    }

    /// Notes that a node of a graph allocates a range.
    pub(crate) fn promise(&mut self, base: u64, length: u64, device: u32) {
        self.promises.insert(base, (length, device));
    }

    /// Forgets what was promised in a range.
    pub(crate) fn forget_promises(&mut self, base: u64, length: u64) {
        self.promises.retain(|address, _| !(base..base + length).contains(address));
    }

    /// The range of a graph that an address lies in: its start, length and device.
    pub(crate) fn promised_at(&self, address: u64) -> Option<(u64, u64, u32)> {
        let (&base, &(length, device)) = self.promises.range(..=address).next_back()?;
        (address - base < length).then_some((base, length, device))
    }

    /// The work that allocates has run: the range that is there now, if nobody freed it outside the order of work.
    pub(crate) fn make_present(&mut self, id: u64) -> Option<(u64, u64)> {
        let handed_out = self.allocations.values_mut().find(|allocation| allocation.id == id);
        let found = handed_out.or_else(|| self.ghosts.get_mut(&id))?;
        found.present = true;
        Some((found.base, found.length))
    }

    /// Whether anything in a range is handed out or waits to be freed.
    pub(crate) fn is_occupied(&self, base: u64, length: u64) -> bool {
        self.allocations_within(base, length).next().is_some() || self.is_haunted(base, length)
    }

    /// Notes whether operations on an allocation are to be synchronous.
    pub(crate) fn set_synchronous(&mut self, base: u64, synchronous: bool) {
        if let Some(allocation) = self.allocations.get_mut(&base) {
            allocation.synchronous = synchronous;
        }
    }

    /// Whether the pages of a host range exist.
    pub(crate) fn host_range_exists(&self, address: u64, length: u64) -> bool {
        usize::try_from(length).is_ok_and(|length| bytes::host_range_exists(address, length))
    }

    pub(crate) fn allocation_count(&self) -> usize {
        self.allocations.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_allocations_share_a_granule() {
        let mut memory = Memory::new(1, 1 << 30);
        let first = memory.allocate(0, 1, 100).expect("fits");
        let second = memory.allocate(0, 1, 100).expect("fits");
        assert_eq!(second, first + 512);
        assert_eq!(memory.info(0).0, (1 << 30) - GRANULE);
        assert_eq!(memory.look_at(first, 101), Look::PastTheEnd);
        memory.free(first).expect("allocated");
        assert_eq!(memory.look_at(first, 1), Look::NotAllocated);
        memory.free(second).expect("allocated");
        assert_eq!(memory.look_at(first, 1), Look::Unmapped);
        assert_eq!(memory.info(0).0, 1 << 30);
    }

    #[test]
    fn capacity_is_kept() {
        let mut memory = Memory::new(1, 8 << 20);
        assert_eq!(memory.allocate(0, 1, 9 << 20), Err(OUT_OF_MEMORY));
        let all = memory.allocate(0, 1, 8 << 20).expect("fits");
        assert_eq!(memory.allocate(0, 1, 1), Err(OUT_OF_MEMORY));
        memory.free(all).expect("allocated");
        assert_eq!(memory.free(all), Err(INVALID_VALUE));
        assert_eq!(memory.allocate(0, 1, 0), Err(INVALID_VALUE));
    }

    #[test]
    fn prescribed_addresses_are_used() {
        let mut memory = Memory::new(1, 1 << 30);
        memory.prescribe([0x7f00_0020_0000]);
        assert_eq!(memory.allocate(0, 1, 4 << 20), Ok(0x7f00_0020_0000));
        assert_eq!(memory.look_at(0x7f00_0020_0000, 4 << 20), Look::Fine);
        assert!(memory.allocate(0, 1, 4 << 20).is_ok_and(space::is_simulated));
    }
}
