//! The device heaps of contexts: made for the first kernel that may use one, gone with the context.
//!
//! A heap is as large as the context's limit says. What every context has of it is part of what a context takes of its
//! device; a larger one takes the rest. Where there is no memory for that, kernels are told that none is left.

use super::State;
use super::memory::{GRANULE, Heap, RegionKind};

/// `CU_LIMIT_MALLOC_HEAP_SIZE`.
pub(crate) const HEAP_LIMIT: u32 = 2;

/// What that limit is at first.
pub(crate) const HEAP_BYTES: usize = 8 << 20;

impl State {
    /// Takes the heap of a context out for a launch, which [`State::put_heap`] ends. Also kernels that allocate nothing
    /// touch what others have allocated, but they make no heap.
    pub(super) fn take_heap(&mut self, context: u64, is_needed: bool) -> Option<Heap> {
        self.heaps.remove(&context).or_else(|| if is_needed { self.new_heap(context) } else { None })
    }

    fn new_heap(&mut self, context: u64) -> Option<Heap> {
        let owner = self.contexts.get(&context)?;
        let (device, limit) = (owner.device, owner.limits.get(&HEAP_LIMIT).copied().unwrap_or(HEAP_BYTES) as u64);
        let length = limit.checked_next_multiple_of(GRANULE).filter(|&length| length > 0)?;
        let physical = length.saturating_sub(HEAP_BYTES as u64);
        self.memory.take_physical(device, physical).ok()?;
        let placed = self.memory.take_addresses_quietly(device, length).and_then(|base| {
            self.memory.back(base, length, device, RegionKind::Heap)?;
            Ok(Heap::new(base, limit, physical))
        });
        placed.inspect_err(|_| self.memory.give_back_physical(device, physical)).ok()
    }

    pub(super) fn put_heap(&mut self, context: u64, heap: Option<Heap>) {
        self.heaps.extend(heap.map(|heap| (context, heap)));
    }

    /// Takes the heap of a context away.
    pub(super) fn drop_heap(&mut self, context: u64) {
        let Some(heap) = self.heaps.remove(&context) else { return };
        if let Some(region) = self.memory.unmap(heap.base) {
            self.memory.give_back_addresses(region.device, heap.base);
            self.memory.give_back_physical(region.device, heap.physical);
        }
    }
}
