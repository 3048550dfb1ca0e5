//! Managed memory that devices have: which blocks, and what they take of a device.
//!
//! A block is 2 MiB of an allocation. It comes to a device with a prefetch, with a set, or with a kernel that touches it,
//! and stays there although its pages move on, until the allocation is freed or the device needs the memory for
//! something else. As measured on an H200, the driver takes memory for blocks in slabs of 128 MiB.
//!
//! Invariant: `bytes` is the sum of `blocks`, and `taken` is `bytes` in whole slabs.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::managed::{Location, PAGE, Stretch};
use super::{GRANULE, Memory};

/// What the driver takes of a device at a time.
const SLAB: u64 = 128 << 20;

/// Pages of a block.
const PAGES: u64 = GRANULE / PAGE;

/// Blocks of managed memory: where an allocation begins, and the number of the block in it.
pub(crate) type Blocks = BTreeSet<(u64, u64)>;

/// What one device has.
#[derive(Debug, Default)]
pub(super) struct Resident {
    blocks: BTreeMap<(u64, u64), u64>,
    bytes: u64,
    taken: u64,
}

impl Resident {
    /// All that it takes of its device, which is free for something else then.
    pub(super) fn evict(&mut self) -> u64 {
        std::mem::take(self).taken
    }

    fn forget(&mut self, base: u64) {
        let gone: Vec<(u64, u64)> = self.blocks.range((base, 0)..=(base, u64::MAX)).map(|(&block, _)| block).collect();
        for block in gone {
            self.bytes -= self.blocks.remove(&block).unwrap_or(0);
        }
    }
}

/// The block that an offset is in, as offsets.
pub(super) fn block_at(offset: u64, length: u64) -> Range<u64> {
    let start = offset / GRANULE * GRANULE;
    start..(start + GRANULE).min(length)
}

impl Memory {
    /// A device gets the pages of a prefetch.
    pub(super) fn bring_pages(&mut self, stretch: &Stretch, to: Location) {
        if let Location::Device(device) = to {
            let blocks = stretch.pages.start / PAGES..stretch.pages.end.div_ceil(PAGES);
            let blocks = blocks.map(|block| (stretch.base, block)).collect();
            self.bring(&blocks, u32::try_from(device).unwrap_or(u32::MAX));
        }
    }

    /// A device touches blocks: it gets those whose pages are not to stay elsewhere.
    pub(crate) fn touch(&mut self, blocks: &Blocks, device: u32) {
        let here = i32::try_from(device).unwrap_or(i32::MAX);
        let may_come = |&(base, block): &(u64, u64)| {
            let pages = block * PAGES..block * PAGES + 1;
            let found =
                self.managed_at(base).and_then(|(_, _, managed)| managed.common(&pages, |pages| pages.preferred));
            found.is_some_and(|preferred| preferred.is_none_or(|place| place == Location::Device(here)))
        };
        let blocks = blocks.iter().copied().filter(may_come).collect();
        self.bring(&blocks, device);
    }

    /// The blocks of managed memory in a range of addresses.
    pub(crate) fn managed_blocks(&self, address: u64, length: u64) -> Blocks {
        let Some((base, pinned, _)) = self.managed_at(address).filter(|_| length > 0) else { return Blocks::new() };
        let end = (address - base).saturating_add(length).min(pinned.length);
        ((address - base) / GRANULE..end.div_ceil(GRANULE)).map(|block| (base, block)).collect()
    }

    /// Gives blocks to a device, as far as it has room.
    fn bring(&mut self, blocks: &Blocks, device: u32) {
        for &(base, block) in blocks {
            let Some(length) = self.managed_at(base).map(|(_, pinned, _)| pinned.length) else { continue };
            let Some(resident) = self.resident(device) else { return };
            let inside = block_at(block * GRANULE, length);
            let bytes = inside.end.saturating_sub(inside.start).next_multiple_of(PAGE);
            if resident.blocks.contains_key(&(base, block)) {
                continue;
            }
            let wanted = (resident.bytes + bytes).next_multiple_of(SLAB);
            let missing = wanted - resident.taken;
            // Without room the pages stay where they are, and the device reaches them there.
            if missing > 0 && self.take_spare(device, missing).is_err() {
                return;
            }
            if let Some(resident) = self.resident(device) {
                resident.blocks.insert((base, block), bytes);
                resident.bytes += bytes;
                resident.taken = wanted;
            }
        }
    }

    /// An allocation is gone from all devices.
    pub(super) fn forget_resident(&mut self, base: u64) {
        for device in 0..u32::try_from(self.devices.len()).unwrap_or(0) {
            let Some(resident) = self.resident(device) else { continue };
            resident.forget(base);
            let (wanted, taken) = (resident.bytes.next_multiple_of(SLAB), resident.taken);
            resident.taken = wanted;
            self.give_back_physical(device, taken - wanted);
        }
    }

    fn resident(&mut self, device: u32) -> Option<&mut Resident> {
        self.device(device).ok().map(|device| &mut device.resident)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn used(memory: &Memory) -> u64 {
        memory.info(0).1 - memory.info(0).0
    }

    #[test]
    fn slabs_are_taken_for_blocks_and_given_back_with_them() {
        let mut memory = Memory::new(1, 1 << 30);
        let small = memory.allocate_managed(1, 100).expect("there is memory");
        let large = memory.allocate_managed(1, 200 * MIB).expect("there is memory");
        assert_eq!(used(&memory), 0);
        memory.touch(&memory.managed_blocks(small, 100), 0);
        memory.touch(&memory.managed_blocks(large, 64 * MIB), 0);
        assert_eq!(used(&memory), SLAB);
        let all = Stretch { base: large, pages: 0..200 * MIB / PAGE };
        memory.bring_pages(&all, Location::Device(0));
        memory.bring_pages(&all, Location::Device(0));
        memory.bring_pages(&all, Location::Host);
        assert_eq!(used(&memory), 2 * SLAB);
        memory.free_managed(large).expect("allocated");
        assert_eq!(used(&memory), SLAB);
        memory.free_managed(small).expect("allocated");
        assert_eq!(used(&memory), 0);
    }

    #[test]
    fn pages_that_prefer_another_place_stay_there() {
        let mut memory = Memory::new(2, 1 << 30);
        let base = memory.allocate_managed(1, 4 * MIB).expect("there is memory");
        let first = Stretch { base, pages: 0..PAGES };
        memory.note_pages(&first, |pages| pages.preferred = Some(Location::Host));
        memory.touch(&memory.managed_blocks(base, 2 * MIB), 0);
        assert_eq!(used(&memory), 0);
        memory.note_pages(&first, |pages| pages.preferred = Some(Location::Device(0)));
        memory.touch(&memory.managed_blocks(base, 2 * MIB), 0);
        assert_eq!(used(&memory), SLAB);
    }

    #[test]
    fn devices_need_their_memory_for_other_things_first() {
        let mut memory = Memory::new(1, 200 * MIB);
        let base = memory.allocate_managed(1, 300 * MIB).expect("there is memory");
        memory.touch(&memory.managed_blocks(base, 300 * MIB), 0);
        assert_eq!(used(&memory), SLAB, "the rest stays at the host");
        let plain = memory.allocate(0, 1, 150 * MIB).expect("managed memory makes room");
        assert_eq!(used(&memory), 150 * MIB);
        memory.touch(&memory.managed_blocks(base, 2 * MIB), 0);
        assert_eq!(used(&memory), 150 * MIB);
        memory.free(plain).expect("allocated");
        memory.free_managed(base).expect("allocated");
        assert_eq!(used(&memory), 0);
    }
}
