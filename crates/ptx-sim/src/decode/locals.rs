//! Local memory of a frame: variables, parameters and arguments of calls.
//!
//! **Invariant:** what lives at the same time does not overlap. Blocks beside each other may lie in the same bytes.

use std::collections::BTreeMap;

use super::shape::Shape;
use crate::program::action::Slot;
use crate::refusal::Refusal;
use crate::text::Place;

/// The most bytes that a thread may have.
const MAX_BYTES: u64 = 512 << 10;

/// A frame's local memory so far.
#[derive(Debug, Default)]
pub(super) struct Locals {
    end: u64,
    most: u64,
    /// Bytes of what lies at each offset.
    sizes: BTreeMap<u32, u32>,
}

impl Locals {
    /// The slot of what is declared next.
    pub(super) fn allocate(&mut self, shape: Shape, name: &str, at: Place) -> Result<Slot, Refusal> {
        let mut end = self.end;
        let offset = shape.behind(&mut end, MAX_BYTES);
        let offset = offset.and_then(|offset| u32::try_from(offset).ok());
        let (Some(offset), Ok(size)) = (offset, u32::try_from(shape.size)) else {
            return Err(Refusal::not_supported(at, format!("'{name}' beyond {MAX_BYTES} bytes of local memory")));
        };
        (self.end, self.most) = (end, self.most.max(end));
        self.sizes.insert(offset, size);
        Ok(Slot { offset, size })
    }

    /// What was allocated at an offset last.
    pub(super) fn slot(&self, offset: u32) -> Slot {
        Slot { offset, size: self.sizes.get(&offset).copied().unwrap_or(0) }
    }

    /// Where the next one would lie, for [`leave_block`](Self::leave_block).
    pub(super) fn enter_block(&self) -> u64 {
        self.end
    }

    pub(super) fn leave_block(&mut self, end: u64) {
        self.end = end;
    }

    /// Bytes of the whole.
    pub(super) fn bytes(&self) -> u32 {
        u32::try_from(self.most.next_multiple_of(16)).unwrap_or(u32::MAX)
    }
}
