//! The device's memory: bytes, segments, and where the next segment is put.
//!
//! **Invariants:** `used` is the sum of all segments and mapped pages, and at most the capacity at the time of the last
//! request. An address is handed out again only where a test prescribes it.

use std::collections::{BTreeMap, VecDeque};

use super::failure;
use super::pages::Pages;
use crate::base::error::Result;
use crate::base::handles::{MemInfo, PageHandle};
use cuda_sys::CUresult;

const MIB: u64 = 1 << 20;

/// Addresses one after the other.
pub(crate) struct Addresses {
    next: u64,
    /// What follows begins at a multiple of so many bytes.
    granularity: u64,
    /// Bytes that are left out between two.
    gap: u64,
}

impl Addresses {
    /// Addresses that begin at `first`.
    pub(crate) fn new(first: u64, granularity: u64, gap: u64) -> Self {
        Self { next: first, granularity, gap }
    }

    pub(super) fn take(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.next += bytes.next_multiple_of(self.granularity) + self.gap;
        address
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self::new(2 * MIB, 2 * MIB, 0)
    }
}

/// Bytes, segments, ranges and pages.
#[derive(Default)]
pub(crate) struct Memory {
    /// Bytes that can be taken.
    pub(crate) capacity: u64,
    /// Bytes that the device says it has, where those are not the capacity.
    pub(super) total: Option<u64>,
    used: u64,
    addresses: Addresses,
    /// Where the next segments go, before any other address.
    prescribed: VecDeque<u64>,
    pub(super) only_prescribed: bool,
    /// Sizes by address.
    segments: BTreeMap<u64, u64>,
    pub(crate) pages: Pages,
    /// Segments and pages taken and given back, as recorded scripts write them.
    pub(super) log: Vec<String>,
}

impl Memory {
    /// Bytes in segments and mapped pages.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Sizes of segments by address.
    pub(crate) fn segments(&self) -> &BTreeMap<u64, u64> {
        &self.segments
    }

    /// What was taken and given back so far.
    pub(crate) fn log(&self) -> &[String] {
        &self.log
    }

    /// What was taken and given back since the last call.
    pub(crate) fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// A segment to come is put here, after those that were prescribed before.
    pub(crate) fn prescribe(&mut self, address: u64) {
        self.prescribed.push_back(address);
    }

    /// The next segment is put here, and what was prescribed before is forgotten.
    pub(crate) fn prescribe_only(&mut self, address: u64) {
        self.prescribed = VecDeque::from([address]);
    }

    pub(super) fn place(&mut self, segments: Addresses, ranges: Addresses) {
        self.addresses = segments;
        self.pages.addresses = Some(ranges);
    }

    /// A device that lends less than it has lent counts on below zero, as the recorded runtime of the peer does.
    pub(super) fn info(&self) -> MemInfo {
        MemInfo { free: self.capacity.wrapping_sub(self.used), total: self.total.unwrap_or(self.capacity) }
    }

    pub(super) fn alloc(&mut self, bytes: u64) -> Result<u64> {
        self.lend("mem_alloc", bytes)?;
        let address = match self.prescribed.pop_front() {
            Some(address) => address,
            None if self.only_prescribed => panic!("a segment that was not prescribed: {bytes} bytes"),
            None => self.addresses.take(bytes),
        };
        self.log.push(format!("segment_alloc {address:#x} {bytes}"));
        assert_eq!(self.segments.insert(address, bytes), None, "two segments at one address");
        Ok(address)
    }

    pub(super) fn free(&mut self, address: u64) {
        let bytes = self.segments.remove(&address).expect("only segments are freed");
        self.used -= bytes;
        self.log.push(format!("segment_free {address:#x} {bytes}"));
    }

    pub(super) fn reserve(&mut self, bytes: u64) -> u64 {
        self.pages.reserve(bytes, &mut self.addresses)
    }

    pub(super) fn map(&mut self, address: u64, bytes: u64, page: u64) -> Result<()> {
        self.lend("map_pages", bytes)?;
        self.pages.map(address, bytes, page);
        self.log.push(format!("segment_map {address:#x} {bytes}"));
        Ok(())
    }

    pub(super) fn unmap(&mut self, address: u64, page: u64) {
        self.pages.unmap(address, page);
        self.used -= page;
    }

    pub(super) fn create(&mut self, bytes: u64) -> Result<PageHandle> {
        self.lend("create_page", bytes)?;
        Ok(self.pages.create(bytes))
    }

    pub(super) fn release(&mut self, page: PageHandle) {
        self.used -= self.pages.forget(page);
    }

    pub(super) fn unmap_made(&mut self, address: u64, bytes: u64) {
        self.used -= self.pages.unmap_made(address, bytes);
    }

    fn lend(&mut self, call: &'static str, bytes: u64) -> Result<()> {
        if self.used + bytes > self.capacity {
            return Err(failure(call, CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
        self.used += bytes;
        Ok(())
    }
}
