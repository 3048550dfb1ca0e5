//! Address ranges of one device: which are taken, and where the next one goes.
//!
//! Invariant: the ranges in `taken` do not overlap.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::bytes::host_range_is_empty;

/// Unit in which the device hands out physical memory.
pub(crate) const GRANULE: u64 = 2 << 20;

/// Where the devices' addresses may lie: the first address, and how many there are. Programs, heaps, stacks and libraries
/// lie in neither range by the usual layout of x86-64 and AArch64 Linux. In a process whose stack may be larger than usual,
/// which NVRTC sees to for the children of its process, libraries lie in the first.
const WINDOWS: [(u64, u64); 2] = [(0x1000_0000_0000, 1 << 46), (0x5800_0000_0000, 1 << 45)];

/// The addresses of all devices of this process.
fn window() -> (u64, u64) {
    static CHOSEN: OnceLock<(u64, u64)> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let is_empty = |&(start, length): &(u64, u64)| host_range_is_empty(start, length);
        WINDOWS.into_iter().find(is_empty).unwrap_or(WINDOWS[0])
    })
}

/// Where the addresses of all simulated devices lie; nothing else is ever there.
pub(crate) fn is_simulated(address: u64) -> bool {
    let (start, length) = window();
    address.checked_sub(start).is_some_and(|offset| offset < length)
}

/// The addresses of one device.
#[derive(Debug)]
pub(crate) struct Space {
    start: u64,
    end: u64,
    taken: BTreeMap<u64, u64>,
}

impl Space {
    /// The addresses of device `index` of so many.
    pub(crate) fn of_device(index: u32, devices: u32) -> Self {
        let (first, length) = window();
        let share = length / u64::from(devices.max(1)) / GRANULE * GRANULE;
        let start = first + u64::from(index) * share;
        Self { start, end: start + share, taken: BTreeMap::new() }
    }

    /// Takes the lowest free range of that length and alignment.
    pub(crate) fn take(&mut self, length: u64, alignment: u64) -> Option<u64> {
        let mut candidate = self.start.next_multiple_of(alignment);
        for (&base, &taken) in self.taken.range(self.start..self.end) {
            if candidate.checked_add(length)? <= base {
                break;
            }
            candidate = candidate.max(base + taken).next_multiple_of(alignment);
        }
        let fits = candidate.checked_add(length)? <= self.end;
        fits.then(|| {
            self.taken.insert(candidate, length);
            candidate
        })
    }

    /// Takes a range at a given address, which may lie anywhere, if it is free.
    pub(crate) fn take_at(&mut self, base: u64, length: u64) -> bool {
        let Some(end) = base.checked_add(length) else { return false };
        let collides = self.taken.range(..end).next_back().is_some_and(|(&other, &taken)| other + taken > base);
        if !collides {
            self.taken.insert(base, length);
        }
        !collides
    }

    pub(crate) fn give_back(&mut self, base: u64) {
        self.taken.remove(&base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_free_range_is_taken() {
        let mut space = Space::of_device(0, 1);
        let first = space.take(GRANULE, GRANULE).expect("free");
        let second = space.take(GRANULE, GRANULE).expect("free");
        assert_eq!(second, first + GRANULE);
        space.give_back(first);
        assert_eq!(space.take(2 * GRANULE, GRANULE), Some(second + GRANULE));
        assert_eq!(space.take(GRANULE, GRANULE), Some(first));
    }

    #[test]
    fn collisions_are_refused() {
        let mut space = Space::of_device(1, 16);
        assert!(space.take_at(0x7000_0000_0000, 4096));
        assert!(!space.take_at(0x7000_0000_0800, 4096));
        assert!(space.take_at(0x7000_0000_1000, 4096));
        assert!(space.take(1 << 43, GRANULE).is_none());
    }
}
