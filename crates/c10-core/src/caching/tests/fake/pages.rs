//! Address ranges and the pages that are mapped in them.
//!
//! **Invariants:** ranges do not change between reserving and releasing; pages lie in ranges, no address has two, and a
//! range without pages alone is released. A page that was made by itself may be behind several addresses, and is the
//! device's again when it was given back and is behind none.

use std::collections::BTreeMap;

use super::memory::Addresses;
use crate::base::handles::PageHandle;

/// Ranges and pages.
#[derive(Default)]
pub(crate) struct Pages {
    pub(super) refused: bool,
    /// Where ranges go; `None`: among the segments.
    pub(super) addresses: Option<Addresses>,
    /// Addresses that will be mapped; a range to come begins at the first that no range has.
    prescribed: Vec<u64>,
    /// Sizes of ranges by address.
    ranges: BTreeMap<u64, u64>,
    /// Sizes of mapped pages by address.
    mapped: BTreeMap<u64, u64>,
    /// How many pages were made by themselves.
    made: u64,
    /// Sizes of those that were not given back.
    live: BTreeMap<PageHandle, u64>,
    /// Which of them is behind an address, and whether it can be used there.
    behind: BTreeMap<u64, (PageHandle, bool)>,
}

/// The addresses of the pages in a part of a range.
pub(super) fn each(address: u64, bytes: u64, page: u64) -> impl Iterator<Item = u64> {
    (address..address + bytes).step_by(usize::try_from(page).expect("a page is small"))
}

impl Pages {
    /// How many ranges are reserved.
    pub(crate) fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// This address will be mapped. Where no range has it by then, one is reserved there.
    pub(crate) fn prescribe(&mut self, address: u64) {
        self.prescribed.push(address);
    }

    /// Forgets what was prescribed.
    pub(crate) fn forget_prescribed(&mut self) {
        self.prescribed.clear();
    }

    pub(super) fn reserve(&mut self, bytes: u64, others: &mut Addresses) -> u64 {
        assert!(!self.refused, "no range may be reserved");
        let position = self.prescribed.iter().position(|address| !self.is_reserved(*address));
        let prescribed = position.map(|position| self.prescribed.remove(position));
        let address = prescribed.unwrap_or_else(|| self.addresses.as_mut().unwrap_or(others).take(bytes));
        self.ranges.insert(address, bytes);
        address
    }

    pub(super) fn release(&mut self, address: u64, bytes: u64) {
        assert_eq!(self.mapped.range(address..address + bytes).next(), None, "a range with pages is released");
        assert_eq!(self.ranges.remove(&address), Some(bytes), "only whole ranges are released");
    }

    pub(super) fn map(&mut self, address: u64, bytes: u64, page: u64) {
        assert!(self.is_reserved(address) && self.is_reserved(address + bytes - 1), "mapped outside of a range");
        for at in each(address, bytes, page) {
            assert_eq!(self.mapped.insert(at, page), None, "mapped twice");
        }
    }

    pub(super) fn unmap(&mut self, address: u64, page: u64) {
        assert_eq!(self.mapped.remove(&address), Some(page), "only mapped pages are unmapped");
    }

    pub(super) fn create(&mut self, bytes: u64) -> PageHandle {
        self.made += 1;
        let page = PageHandle(self.made);
        self.live.insert(page, bytes);
        page
    }

    /// A page is given back; the bytes that are the device's again, which are none while it is mapped somewhere.
    pub(super) fn forget(&mut self, page: PageHandle) -> u64 {
        let bytes = self.live.remove(&page).expect("only live pages are given back");
        if self.is_mapped(page) { 0 } else { bytes }
    }

    fn is_mapped(&self, page: PageHandle) -> bool {
        self.behind.values().any(|(behind, _)| *behind == page)
    }

    pub(super) fn map_made(&mut self, address: u64, bytes: u64, page: PageHandle) {
        assert_eq!(self.live.get(&page), Some(&bytes), "only live pages are mapped, as a whole");
        assert!(self.is_reserved(address) && self.is_reserved(address + bytes - 1), "mapped outside of a range");
        assert_eq!(self.mapped.insert(address, bytes), None, "mapped twice");
        self.behind.insert(address, (page, false));
    }

    pub(super) fn allow(&mut self, address: u64, bytes: u64) {
        let mut covered = 0;
        for (at, (_, usable)) in self.behind.range_mut(address..address + bytes) {
            covered += self.mapped[at];
            *usable = true;
        }
        assert_eq!(covered, bytes, "access to addresses without pages");
    }

    /// A page is unmapped; the bytes that are the device's again, if it was given back before.
    pub(super) fn unmap_made(&mut self, address: u64, bytes: u64) -> u64 {
        self.unmap(address, bytes);
        let (page, _) = self.behind.remove(&address).expect("only mapped pages are unmapped");
        if self.live.contains_key(&page) || self.is_mapped(page) { 0 } else { bytes }
    }

    /// The page behind an address, if it can be used there.
    pub(crate) fn usable_at(&self, address: u64) -> Option<PageHandle> {
        let (at, (page, usable)) = self.behind.range(..=address).next_back()?;
        (*usable && address < at + self.mapped[at]).then_some(*page)
    }

    /// Whether a page that was made by itself was not given back.
    pub(crate) fn is_live(&self, page: PageHandle) -> bool {
        self.live.contains_key(&page)
    }

    /// How many pages were made by themselves.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// How many mappings there are.
    pub(crate) fn mapped_count(&self) -> usize {
        self.mapped.len()
    }

    fn is_reserved(&self, address: u64) -> bool {
        let before = self.ranges.range(..=address).next_back();
        before.is_some_and(|(begin, bytes)| address < begin + bytes)
    }
}
