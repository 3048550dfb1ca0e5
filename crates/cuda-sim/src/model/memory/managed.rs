//! Managed memory: memory of the host that devices reach at the same address, and what was said of its pages.
//!
//! The program touches it directly, as it is real memory mapped at its address. Where a page is matters to nobody but
//! the count of pages that prefetches move: a page is at the host until a prefetch moves it. What devices have of it is
//! the business of `resident`.
//!
//! Invariant: `pages` of a [`Managed`] has a run that begins at page 0; a run goes on to the next one, or to the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::bytes::HostPages;
use super::host::Pinned;
use super::{Memory, bytes};
use crate::codes::{Answer, INVALID_VALUE, OUT_OF_MEMORY};

/// Size of a page.
pub(super) const PAGE: u64 = bytes::PAGE;

/// `CU_DEVICE_CPU`, and what the host is called where a device is expected.
pub(crate) const CPU: i32 = -1;

/// A place where pages can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Location {
    /// A device that exists.
    Device(i32),
    /// The host.
    Host,
    /// A node of the host that exists.
    Numa(i32),
    /// The node of the calling thread.
    NumaCurrent,
}

impl Location {
    /// Its `CUmemLocationType`.
    pub(crate) fn kind(self) -> i32 {
        match self {
            Self::Device(_) => 1,
            Self::Host => 2,
            Self::Numa(_) => 3,
            Self::NumaCurrent => 4,
        }
    }

    /// The number that goes with its type.
    pub(crate) fn id(self) -> i32 {
        match self {
            Self::Device(id) | Self::Numa(id) => id,
            Self::Host => CPU,
            Self::NumaCurrent => 0,
        }
    }

    /// What it is called where only devices have names.
    pub(crate) fn device(self) -> i32 {
        match self {
            Self::Device(id) => id,
            Self::Host | Self::Numa(_) | Self::NumaCurrent => CPU,
        }
    }
}

/// What was said of pages, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: Option<Location>,
    pub(crate) accessed_by: BTreeSet<Location>,
    /// Where the last prefetch was asked to move them.
    pub(crate) prefetched: Option<Location>,
    /// The device that has them, or [`CPU`].
    at: i32,
}

/// What is known of one managed allocation.
#[derive(Debug)]
pub(crate) struct Managed {
    pages: BTreeMap<u64, Pages>,
}

/// Pages of one managed allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Where the allocation begins.
    pub(crate) base: u64,
    pub(crate) pages: Range<u64>,
}

impl Managed {
    fn new() -> Self {
        let untouched =
            Pages { read_mostly: false, preferred: None, accessed_by: BTreeSet::new(), prefetched: None, at: CPU };
        Self { pages: BTreeMap::from([(0, untouched)]) }
    }

    /// Lets a run begin at a page.
    fn split(&mut self, page: u64) {
        let before = self.pages.range(..=page).next_back().map(|(_, run)| run.clone());
        if let Some(run) = before {
            self.pages.entry(page).or_insert(run);
        }
    }

    /// Changes pages; `change` is told how many are alike.
    fn change(&mut self, pages: &Range<u64>, mut change: impl FnMut(u64, &mut Pages)) {
        self.split(pages.start);
        self.split(pages.end);
        let starts: Vec<u64> = self.pages.range(pages.clone()).map(|(&start, _)| start).collect();
        let ends = starts.iter().skip(1).copied().chain([pages.end]);
        for (start, end) in starts.iter().copied().zip(ends) {
            if let Some(run) = self.pages.get_mut(&start) {
                change(end - start, run);
            }
        }
    }

    /// The runs that have any of the pages.
    fn runs(&self, pages: &Range<u64>) -> impl Iterator<Item = &Pages> {
        let first = self.pages.range(..=pages.start).next_back().map_or(pages.start, |(&start, _)| start);
        self.pages.range(first..pages.end).map(|(_, run)| run)
    }

    /// What all of the pages have in common.
    pub(crate) fn common<T: PartialEq>(&self, pages: &Range<u64>, read: impl Fn(&Pages) -> T) -> Option<T> {
        let mut values = self.runs(pages).map(read);
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    }

    /// Who was said to access all of the pages, devices first.
    pub(crate) fn accessed_by(&self, pages: &Range<u64>) -> BTreeSet<Location> {
        let sets = self.runs(pages).map(|run| run.accessed_by.clone());
        sets.reduce(|all, set| all.intersection(&set).copied().collect()).unwrap_or_default()
    }
}

impl Memory {
    /// Allocates managed memory; returns its address.
    pub(crate) fn allocate_managed(&mut self, context: u64, length: u64) -> Answer<u64> {
        let bytes = usize::try_from(length).map_err(|_| OUT_OF_MEMORY)?;
        let pages = HostPages::new(bytes).ok_or(OUT_OF_MEMORY)?;
        let address = pages.address();
        self.pin(address, Pinned::managed(length, context, pages, Managed::new()));
        Ok(address)
    }

    /// Gives managed memory back, by the address it was allocated at.
    pub(crate) fn free_managed(&mut self, address: u64) -> Answer {
        self.managed_at(address).filter(|(base, _, _)| *base == address).ok_or(INVALID_VALUE)?;
        self.forget_resident(address);
        self.pinned.remove(&address);
        Ok(())
    }

    /// The managed allocation that an address lies in.
    pub(crate) fn managed_at(&self, address: u64) -> Option<(u64, &Pinned, &Managed)> {
        let (base, pinned) = self.pinned_at(address)?;
        Some((base, pinned, pinned.managed.as_ref()?))
    }

    /// The pages that a range touches, all of one managed allocation.
    pub(crate) fn managed_pages(&self, address: u64, length: u64) -> Answer<Stretch> {
        let (base, pinned, _) = self.managed_at(address).ok_or(INVALID_VALUE)?;
        let start = address - base;
        let end = start.checked_add(length).filter(|&end| length > 0 && end <= pinned.length).ok_or(INVALID_VALUE)?;
        Ok(Stretch { base, pages: start / PAGE..end.div_ceil(PAGE) })
    }

    /// Notes something of pages.
    pub(crate) fn note_pages(&mut self, stretch: &Stretch, note: impl Fn(&mut Pages)) {
        if let Some(managed) = self.pinned.get_mut(&stretch.base).and_then(|pinned| pinned.managed.as_mut()) {
            managed.change(&stretch.pages, |_, pages| note(pages));
        }
    }

    /// Moves pages of the allocation with an id, if it is still there, and counts those that were elsewhere.
    pub(crate) fn move_pages(&mut self, stretch: &Stretch, id: u64, to: Location) {
        let found = self.pinned.get_mut(&stretch.base).filter(|pinned| pinned.id == id);
        let Some(managed) = found.and_then(|pinned| pinned.managed.as_mut()) else { return };
        let mut moved = 0;
        managed.change(&stretch.pages, |count, pages| {
            if pages.at != to.device() {
                moved += count;
            }
            pages.at = to.device();
        });
        self.moved_pages += moved;
        self.bring_pages(stretch, to);
    }

    /// Pages that prefetches have moved so far.
    pub(crate) fn moved_pages(&self) -> u64 {
        self.moved_pages
    }

    /// Number of managed allocations.
    pub(crate) fn managed_count(&self) -> usize {
        self.pinned.values().filter(|pinned| pinned.managed.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn managed() -> (Memory, u64, u64) {
        let mut memory = Memory::new(1, 1 << 30);
        let base = memory.allocate_managed(1, 10 * PAGE).expect("there is memory");
        let id = memory.pinned_at(base).expect("allocated").1.id;
        (memory, base, id)
    }

    #[test]
    fn pages_are_told_of_as_a_whole() {
        let (mut memory, base, _) = managed();
        let stretch = memory.managed_pages(base + PAGE + 100, 1).expect("inside");
        assert_eq!(stretch.pages, 1..2);
        memory.note_pages(&stretch, |pages| pages.read_mostly = true);
        let (_, _, books) = memory.managed_at(base).expect("allocated");
        let read_mostly = |pages| books.common(&pages, |pages| pages.read_mostly);
        assert_eq!((read_mostly(1..2), read_mostly(0..1), read_mostly(2..10)), (Some(true), Some(false), Some(false)));
        assert_eq!((read_mostly(0..2), read_mostly(1..3)), (None, None));
    }

    #[test]
    fn ranges_lie_in_one_allocation() {
        let (memory, base, _) = managed();
        for (address, length) in [(base, 0), (base, 10 * PAGE + 1), (base - 1, 2), (base + 10 * PAGE, 1), (0, 1)] {
            assert_eq!(memory.managed_pages(address, length), Err(INVALID_VALUE), "{address:#x} {length}");
        }
        assert_eq!(memory.managed_pages(base, 10 * PAGE).map(|stretch| stretch.pages), Ok(0..10));
    }

    #[test]
    fn only_pages_that_are_elsewhere_move() {
        let (mut memory, base, id) = managed();
        let all = Stretch { base, pages: 0..10 };
        memory.move_pages(&Stretch { base, pages: 2..5 }, id, Location::Device(0));
        memory.move_pages(&all, id, Location::Device(0));
        assert_eq!(memory.moved_pages(), 10);
        memory.move_pages(&all, id, Location::Device(0));
        memory.move_pages(&all, id + 1, Location::Host);
        assert_eq!(memory.moved_pages(), 10);
        memory.move_pages(&all, id, Location::Numa(0));
        assert_eq!(memory.moved_pages(), 20);
    }

    #[test]
    fn accessors_are_those_of_all_pages() {
        let (mut memory, base, _) = managed();
        let all = Stretch { base, pages: 0..10 };
        memory.note_pages(&all, |pages| {
            pages.accessed_by.insert(Location::Host);
        });
        memory.note_pages(&Stretch { base, pages: 0..1 }, |pages| {
            pages.accessed_by.insert(Location::Device(0));
        });
        let (_, _, books) = memory.managed_at(base).expect("allocated");
        let names = |pages| books.accessed_by(&pages).into_iter().map(Location::device).collect::<Vec<_>>();
        assert_eq!((names(0..1), names(0..2)), (vec![0, CPU], vec![CPU]));
    }
}
