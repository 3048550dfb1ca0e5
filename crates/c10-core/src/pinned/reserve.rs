//! The reserved segment: pinned memory that is taken at once and cut into blocks.
//!
//! **Invariants:** the segment is made by the first request that needs memory while the option
//! `pinned_reserve_segment_size_mb` is set, once, and goes back at the end of the runtime. Blocks are cut off one after
//! the other at multiples of 4 KiB and never put together again; given back they are cached like others, also when the
//! cache is emptied.

use crate::base::device::DeviceIndex;
use crate::pinned::blocks::Origin;
use crate::pinned::class::SizeClass;

/// Blocks begin at multiples of this.
const GRAIN: usize = 4096;

/// The segment, and how much of it is cut off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    pub(crate) device: DeviceIndex,
    /// How it was made: by the driver, or registered.
    pub(crate) origin: Origin,
    cut: usize,
}

impl Reserve {
    pub(crate) fn new(address: usize, bytes: usize, device: DeviceIndex, origin: Origin) -> Self {
        Self { address, bytes, device, origin, cut: 0 }
    }

    /// The address of a new block, while there is room.
    pub(crate) fn cut(&mut self, class: SizeClass) -> Option<usize> {
        let bytes = class.bytes().checked_next_multiple_of(GRAIN)?;
        let end = self.cut.checked_add(bytes).filter(|end| *end <= self.bytes)?;
        let address = self.address + self.cut;
        self.cut = end;
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_off_until_there_is_no_room() {
        let mut reserve = Reserve::new(1 << 20, 32 << 10, DeviceIndex(0), Origin::Driver);
        let addresses: Vec<_> = [0, 12, 14, 13, 30, 12, 0].map(|log2| reserve.cut(SizeClass(log2))).into();
        let at = |kib: usize| Some((1 << 20) + (kib << 10));
        assert_eq!(addresses, [at(0), at(4), at(8), at(24), None, None, None]);
    }
}
