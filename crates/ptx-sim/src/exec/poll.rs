//! Whether a warp waits for memory to change, as far as that shows in what it reads.
//!
//! A warp that reads by instructions which are not weak, over and over, and writes nothing meanwhile, may wait for another
//! thread, another device or the host. It gives up its turn then. That it does so is no mistake: the warp goes on later, and
//! only how soon others have their turns depends on it.

/// Readings after which a warp counts as one that waits.
const READINGS: u32 = 8;

/// What a warp has read since it last wrote to memory that others see, or since its turn began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Polls {
    readings: u32,
    /// Readings in a row that found the same at the same address.
    same: u32,
    /// The last one.
    pub(crate) last: Reading,
}

/// A reading of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) pc: u32,
    pub(crate) lane: usize,
    pub(crate) address: u64,
    pub(crate) value: u64,
}

impl Polls {
    /// A turn begins.
    pub(crate) fn begin(&mut self) {
        (self.readings, self.same) = (0, 0);
    }

    /// The warp reads by an instruction that is not weak, or changes a value into itself.
    pub(crate) fn read(&mut self, reading: Reading) {
        self.same = if reading == self.last { self.same + 1 } else { 0 };
        (self.readings, self.last) = (self.readings + 1, reading);
    }

    /// The warp writes.
    pub(crate) fn write(&mut self) {
        self.begin();
    }

    /// Whether it does nothing but read one value again and again.
    pub(crate) fn spins(&self) -> bool {
        self.same >= READINGS
    }

    /// Whether it may wait for memory to change.
    pub(crate) fn waits(&self) -> bool {
        self.readings >= READINGS
    }
}
