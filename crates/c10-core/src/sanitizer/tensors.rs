//! Torch's rules: accesses to tensors, which are named by the address of their first byte.
//!
//! A read is compared with the last write, a write with all reads since the last write or, if there were none, with that
//! write. An access is remembered even if it races. What is remembered of a tensor ends when the allocator takes its memory
//! back.

use std::sync::Arc;

use crate::trace::{Stack, TraceAccess};

use super::access::{Access, Race, Use};
use super::order::{Order, Words};
use super::worlds::{Memory, Worlds};

/// Said of memory that was accessed, or freed, without having been allocated while the sanitizer listened.
macro_rules! backfill {
    ($what:literal, $address:expr, $creation:literal) => {
        tracing::info!(
            "Found {} {}, but no matching {} in the trace. Backfilling the trace now. Perhaps the sanitizer was enabled \
             after some torch operations?",
            $what,
            $address,
            $creation
        )
    };
}
pub(super) use backfill;

/// Accessed tensors.
#[derive(Debug, Default)]
pub(super) struct Tensors(Words<u64, Tensor>);

#[derive(Debug, Default)]
struct Tensor {
    /// Since the last write.
    reads: Vec<Arc<Access>>,
    write: Option<Arc<Access>>,
}

impl Memory for Tensors {
    /// Allocated tensors, with the stacks of their allocations.
    type Blocks = Words<u64, Option<Arc<Stack>>>;

    /// Merges the accesses to each tensor into one, with all its arguments: a write if any of them writes. Reads come
    /// first, as in torch.
    fn uses(accesses: &[TraceAccess]) -> Vec<Use> {
        let mut uses: Vec<Use> = Vec::new();
        for access in accesses.iter().filter(|access| access.size > 0 && !access.is_on_host) {
            match uses.iter_mut().find(|known| known.start == access.address) {
                Some(known) => {
                    known.is_write |= access.is_write;
                    known.is_output |= access.is_output;
                    known.arguments.add(access.argument);
                }
                None => uses.push(Use::from(access)),
            }
        }
        uses.sort_by_key(|used| used.is_write);
        uses
    }

    /// Keeps the first write of each tensor, or its first read if the graph only reads it.
    fn of_graph(recorded: Vec<Use>) -> Vec<Use> {
        let mut places: Words<u64, usize> = Words::default();
        let mut uses: Vec<Use> = Vec::new();
        for used in recorded {
            let place = *places.entry(used.start).or_insert(uses.len());
            match uses.get_mut(place) {
                None => uses.push(used),
                Some(known) if used.is_write && !known.is_write => *known = used,
                Some(_) => {}
            }
        }
        uses.sort_by_key(|used| used.is_write);
        uses
    }

    fn note(&mut self, blocks: &Self::Blocks, used: &Use, access: &Arc<Access>, order: &Order, races: &mut Vec<Race>) {
        let address = used.start;
        let tensor = self.0.entry(address).or_insert_with(|| {
            if !blocks.contains_key(&address) {
                backfill!("tensor with pointer:", address, "tensor allocation");
            }
            Tensor::default()
        });
        let against: &[Arc<Access>] = match (&tensor.write, access.is_write && !tensor.reads.is_empty()) {
            (_, true) => &tensor.reads,
            (Some(write), false) => std::slice::from_ref(write),
            (None, false) => &[],
        };
        let unordered = against.iter().filter(|earlier| !order.is_after(access.agent, earlier.epoch()));
        races.extend(unordered.map(|previous| Race {
            address,
            bytes: None,
            is_reused: false,
            allocation: blocks.get(&address).cloned().flatten(),
            current: Arc::clone(access),
            previous: Arc::clone(previous),
        }));
        if access.is_write {
            tensor.reads.clear();
            tensor.write = Some(Arc::clone(access));
        } else {
            tensor.reads.push(Arc::clone(access));
        }
    }
}

impl Worlds<Tensors> {
    /// Notes that memory was allocated.
    pub(super) fn allocate(&mut self, address: u64, allocation: Option<Arc<Stack>>) {
        if self.blocks.insert(address, allocation).is_some() {
            tracing::info!(
                "Found duplicate tensor allocation in the trace for tensor with pointer: {address}. Assuming the trace for \
                 tensor deallocation wasn't caught and backfilling it now. Perhaps the sanitizer was enabled after some \
                 torch operations?"
            );
        }
        self.forget(address);
    }

    /// Notes that memory was freed.
    pub(super) fn free(&mut self, address: u64) {
        if self.blocks.remove(&address).is_none() {
            backfill!("tensor with pointer:", address, "tensor allocation");
        }
        self.forget(address);
    }

    fn forget(&mut self, address: u64) {
        self.for_each_memory(|memory| drop(memory.0.remove(&address)));
    }

    /// Forgets accesses to the memory of a segment that was released to the driver, including those of launched graphs.
    pub(super) fn unmap(&mut self, address: u64, size: u64) {
        self.live_memory().0.retain(|at, _| !(address..address.saturating_add(size)).contains(at));
    }
}
