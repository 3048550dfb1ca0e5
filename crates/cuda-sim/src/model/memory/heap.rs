//! The device's heap of a context: what `malloc` gives kernels, kept from launch to launch.
//!
//! Every access of a kernel to it is looked at by itself, so that one beside a block or to one that was freed is noticed.
//!
//! Invariant: blocks do not overlap and lie in the heap.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use ptx_sim::Fault;

use super::Look;

/// Alignment of what is given out.
const ALIGNMENT: u64 = 16;

/// A heap.
#[derive(Debug)]
pub(crate) struct Heap {
    pub(crate) base: u64,
    length: u64,
    /// What it takes of its device.
    pub(crate) physical: u64,
    blocks: BTreeMap<u64, u64>,
}

impl Heap {
    /// An empty heap of `length` bytes.
    pub(crate) fn new(base: u64, length: u64, physical: u64) -> Self {
        Self { base, length, physical, blocks: BTreeMap::new() }
    }

    /// The lowest place for so many bytes; 0 where there is none, and for none.
    pub(crate) fn allocate(&mut self, bytes: u64) -> u64 {
        let mut place = self.base;
        for (&block, &length) in &self.blocks {
            if place.checked_add(bytes).is_some_and(|end| end <= block) {
                break;
            }
            place = (block + length).next_multiple_of(ALIGNMENT);
        }
        let fits = place.checked_add(bytes).is_some_and(|end| end <= self.base + self.length);
        if !fits || bytes == 0 {
            return 0;
        }
        self.blocks.insert(place, bytes);
        place
    }

    /// Gives a block back; nothing for the null pointer. [`Fault::Free`]: no block begins there.
    pub(crate) fn free(&mut self, address: u64) -> Result<(), Fault> {
        let known = address == 0 || self.blocks.remove(&address).is_some();
        if known { Ok(()) } else { Err(Fault::Free) }
    }

    /// Whether an address is of the heap, in a block or not.
    pub(crate) fn holds(&self, address: u64) -> bool {
        (self.base..self.base + self.length).contains(&address)
    }

    /// What there is to say of an access to it.
    pub(crate) fn look_at(&self, address: u64, length: u64) -> Look {
        let block = self.blocks.range(..=address).next_back().map(|(&block, &bytes)| block + bytes);
        match block.filter(|&end| address < end) {
            Some(end) if address.saturating_add(length) <= end => Look::Fine,
            Some(_) => Look::PastTheEnd,
            None => Look::NotAllocated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_given_out_from_below_and_used_again() {
        let mut heap = Heap::new(4096, 100, 0);
        assert_eq!((heap.allocate(0), heap.allocate(101), heap.allocate(u64::MAX)), (0, 0, 0));
        assert_eq!((heap.allocate(17), heap.allocate(1), heap.allocate(50)), (4096, 4128, 4144));
        assert_eq!(heap.allocate(16), 0);
        assert_eq!(heap.free(4096), Ok(()));
        assert_eq!((heap.allocate(33), heap.allocate(20)), (0, 4096));
        assert_eq!((heap.free(0), heap.free(4097), heap.free(8)), (Ok(()), Err(Fault::Free), Err(Fault::Free)));
        assert_eq!((heap.free(4128), heap.free(4128)), (Ok(()), Err(Fault::Free)));
    }

    #[test]
    fn accesses_are_told_apart() {
        let mut heap = Heap::new(4096, 100, 0);
        heap.allocate(20);
        assert_eq!((heap.look_at(4096, 8), heap.look_at(4112, 4)), (Look::Fine, Look::Fine));
        assert_eq!((heap.look_at(4112, 8), heap.look_at(4116, 1)), (Look::PastTheEnd, Look::NotAllocated));
        assert!(heap.holds(4195) && !heap.holds(4196) && !heap.holds(4095));
    }
}
