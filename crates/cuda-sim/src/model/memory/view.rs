//! Memory as a kernel sees it: single values at addresses of devices and of pinned host memory.
//!
//! A window is what one allocation, mapping or pinned range covers, or one block where an allocator of the program tells of
//! those: inside it everything is right. Any other access is looked at one by one. Nothing is mapped or freed while a kernel runs.

use std::collections::{BTreeMap, BTreeSet};

use ptx_sim::{Fault, FindingKind, Notice, Window};

use super::bytes::{self, Bytes};
use super::resident::block_at;
use super::{Heap, Look, ManagedBlocks, Memory, Region, RegionKind};
use crate::model::engine::OpId;

/// What an access does that changes memory, in words.
const WRITES: &str = "writes";

/// Memory for one launch.
#[derive(Debug)]
pub(crate) struct DeviceView<'m> {
    memory: &'m Memory,
    /// Devices whose memory the launch may touch; the last is the one that it runs on.
    devices: &'m [u32],
    /// Conditions of conditional nodes that the launch may set.
    conditions: &'m BTreeSet<u64>,
    /// The work that the program queued.
    work: OpId,
    /// What was wrong with the last access.
    wrong: Option<Notice>,
    /// What the launch may allocate from.
    heap: Option<Heap>,
    /// Whether bytes that come from other devices or go there are counted.
    counts: bool,
    noticed: Noticed,
}

/// Bytes that a launch moved from one device to another.
pub(crate) type Traffic = BTreeMap<(u32, u32), u64>;

/// What a launch left behind beside what it wrote.
#[derive(Debug, Default)]
pub(crate) struct Noticed {
    /// The conditions that were set.
    pub(crate) conditions: BTreeMap<u64, u32>,
    /// Managed memory that was touched. A window is one block of it, so that others are asked for.
    pub(crate) touched: ManagedBlocks,
    /// What came from other devices and went there, where that is counted.
    pub(crate) traffic: Traffic,
    /// What was printed, and what was told of failed assertions.
    pub(crate) printed: String,
    pub(crate) errors: String,
}

impl<'m> DeviceView<'m> {
    pub(crate) fn new(memory: &'m Memory, devices: &'m [u32], conditions: &'m BTreeSet<u64>, work: OpId) -> Self {
        Self { memory, devices, conditions, work, wrong: None, heap: None, counts: false, noticed: Noticed::default() }
    }

    /// The same with a heap.
    pub(crate) fn with_heap(self, heap: Option<Heap>) -> Self {
        Self { heap, ..self }
    }

    /// The same that counts what other devices send and get: there is no window to their memory then, so that each access asks.
    pub(crate) fn counting(self, counts: bool) -> Self {
        Self { counts, ..self }
    }

    /// Whether accesses of a region are counted.
    fn is_counted(&self, region: &Region) -> bool {
        self.counts && self.devices.last().is_some_and(|own| *own != region.device)
    }

    /// What was set and printed, and the heap.
    pub(crate) fn finish(self) -> (Noticed, Option<Heap>) {
        (self.noticed, self.heap)
    }

    fn look_at(&self, address: u64, length: u64) -> Look {
        match self.heap.as_ref().filter(|heap| heap.holds(address)) {
            Some(heap) => heap.look_at(address, length),
            None => self.memory.look_at(address, length),
        }
    }

    /// The region that an access is in, if the launch may touch it.
    fn region(&self, address: u64, length: u64) -> Option<(u64, &'m Region)> {
        let (base, region) = self.memory.region_at(address)?;
        let reachable = match region.kind {
            RegionKind::Mapped => self.devices.last().is_some_and(|own| region.granted >> own & 1 == 1),
            RegionKind::Chunk
            | RegionKind::Whole
            | RegionKind::Pooled
            | RegionKind::Graph
            | RegionKind::Imported
            | RegionKind::Module
            | RegionKind::Heap => region.is_whole() || self.devices.contains(&region.device),
        };
        let inside = address - base;
        (region.accessible && reachable && inside + length <= region.length).then_some((base, region))
    }

    /// The bytes of an access that no window holds, and whether they may be written.
    fn look(&mut self, verb: &str, address: u64, length: u64) -> Result<(Bytes, bool), Fault> {
        if !self.memory.is_device_address(address) {
            let all = self.memory.is_pinned(address, length);
            self.wrong = self.memory.blocks.wrong(verb, address, length, self.work);
            return if all { Ok((Bytes::host(address), true)) } else { Err(Fault::Address) };
        }
        let (base, region) = self.region(address, length).ok_or(Fault::Address)?;
        self.wrong = self.memory.blocks.wrong(verb, address, length, self.work);
        if !region.is_whole() && self.wrong.is_none() {
            self.note(verb, address, length);
        }
        if self.is_counted(region)
            && let Some(&own) = self.devices.last()
        {
            let way = if verb == WRITES { (own, region.device) } else { (region.device, own) };
            *self.noticed.traffic.entry(way).or_default() += length;
        }
        let offset = region.offset + usize::try_from(address - base).map_err(|_| Fault::Address)?;
        Ok((Bytes::inside(&region.backing, offset), region.writable))
    }

    fn note(&mut self, verb: &str, address: u64, bytes: u64) {
        let (kind, what) = match self.look_at(address, bytes) {
            Look::Fine | Look::Ghost | Look::Unmapped => return,
            Look::PastTheEnd => (FindingKind::OutOfBounds, "past the end of the allocation"),
            Look::Early => (FindingKind::UseBeforeAllocation, "which is not allocated yet"),
            Look::NotAllocated => (FindingKind::UseAfterFree, "which is not allocated"),
        };
        self.wrong = Some(Notice { kind, text: format!("{verb} {bytes} bytes, {what}") });
    }

    /// The part of a range that work may touch as far as blocks are told of, with the address in it; all of it where none
    /// are.
    fn of_block(&self, address: u64, (base, length): (u64, u64)) -> Option<(u64, u64)> {
        let blocks = &self.memory.blocks;
        if !blocks.is_segment(address) {
            return Some((base, length));
        }
        let (start, bytes) = blocks.range_at(address, self.work)?;
        let (first, end) = (start.max(base), (start + bytes).min(base + length));
        Some((first, end - first))
    }
}

impl<'m> ptx_sim::Memory<'m> for DeviceView<'m> {
    fn window(&mut self, address: u64) -> Option<Window<'m>> {
        if !self.memory.is_device_address(address) {
            let (start, pinned) = self.memory.pinned_at(address)?;
            let inside = if pinned.is_managed() {
                self.noticed.touched.extend(self.memory.managed_blocks(address, 1));
                block_at(address - start, pinned.length)
            } else {
                0..pinned.length
            };
            let (base, length) = self.of_block(address, (start + inside.start, inside.end - inside.start))?;
            let bytes = bytes::host_cells(self.memory, base, usize::try_from(length).ok()?)?;
            return Some(Window { base, bytes, writable: true, written: None, is_shared: true });
        }
        let (region_base, region) = self.region(address, 1)?;
        if self.is_counted(region) {
            return None;
        }
        let (base, length) = match self.memory.allocation_at(address) {
            _ if region.is_whole() => (region_base, region.length),
            Some(found) if found.present => (found.base, found.length),
            Some(_) | None => return None,
        };
        let (base, length) = self.of_block(address, (base, length))?;
        let offset = region.offset + usize::try_from(base - region_base).ok()?;
        let bytes = region.backing.cells(offset, usize::try_from(length).ok()?)?;
        let written = region.backing.written().and_then(|written| written.part(offset, bytes.len()));
        Some(Window { base, bytes, writable: region.writable, written, is_shared: region.backing.is_shared() })
    }

    fn load(&mut self, address: u64, length: u64) -> Result<u64, Fault> {
        let (at, _) = self.look("reads", address, length)?;
        bytes::read_word(&at, 0, usize::try_from(length).unwrap_or(8)).ok_or(Fault::Address)
    }

    fn store(&mut self, address: u64, length: u64, value: u64) -> Result<(), Fault> {
        let (at, writable) = self.look(WRITES, address, length)?;
        let count = usize::try_from(length).unwrap_or(8).min(8);
        let written = writable && bytes::write_word(&at, 0, &value.to_le_bytes()[..count]);
        if written { Ok(()) } else { Err(Fault::Address) }
    }

    fn exchange(&mut self, address: u64, length: u64, expected: u64, new: u64) -> Result<u64, Fault> {
        let (at, writable) = self.look(WRITES, address, length)?;
        if !writable {
            return Err(Fault::Address);
        }
        bytes::compare_exchange(&at, usize::try_from(length).unwrap_or(8), expected, new).ok_or(Fault::Address)
    }

    fn noticed(&mut self) -> Option<Notice> {
        self.wrong.take()
    }

    fn set_condition(&mut self, handle: u64, value: u64) -> Result<(), Fault> {
        if !self.conditions.contains(&handle) {
            return Err(Fault::Address);
        }
        let value = u32::try_from(value & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        self.noticed.conditions.insert(handle, value);
        Ok(())
    }

    fn print(&mut self, text: &str) {
        self.noticed.printed.push_str(text);
    }

    fn print_error(&mut self, text: &str) {
        self.noticed.errors.push_str(text);
    }

    fn allocate(&mut self, bytes: u64) -> u64 {
        self.heap.as_mut().map_or(0, |heap| heap.allocate(bytes))
    }

    fn free(&mut self, address: u64) -> Result<(), Fault> {
        match &mut self.heap {
            Some(heap) => heap.free(address),
            None if address == 0 => Ok(()),
            None => Err(Fault::Free),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptx_sim::Memory as _;

    #[test]
    fn values_stay_inside_what_the_device_may_touch() {
        let mut memory = Memory::new(2, 1 << 30);
        let mine = memory.allocate(0, 1, 100).expect("fits");
        let other = memory.allocate(1, 2, 100).expect("fits");
        let none = BTreeSet::new();
        let mut view = DeviceView::new(&memory, &[0], &none, OpId(1));
        assert_eq!(view.window(mine + 8).map(|window| (window.base, window.bytes.len())), Some((mine, 100)));
        assert!(view.window(other).is_none() && view.window(16).is_none());
        assert_eq!(view.store(mine + 8, 4, 0x0102_0304), Ok(()));
        assert_eq!(view.load(mine + 8, 2), Ok(0x0304));
        assert_eq!(view.load(other, 4), Err(Fault::Address));
        assert_eq!(view.load(16, 4), Err(Fault::Address));
        assert!(view.load(mine + 96, 8).is_ok(), "hardware does not notice");
        let text = "reads 8 bytes, past the end of the allocation".to_owned();
        assert_eq!(view.noticed(), Some(Notice { kind: FindingKind::OutOfBounds, text }));
        assert_eq!(view.noticed(), None);
    }
}
