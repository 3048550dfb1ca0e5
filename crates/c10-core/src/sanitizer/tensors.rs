//! Torch's rules: accesses to tensors, which are named by the address of their first byte.
//!
//! A read is compared with the last write, a write with all reads since the last write or, if there were none, with that
//! write. An access is remembered even if it races. What is remembered of a tensor ends when the allocator takes its memory
//! back.

use std::sync::Arc;

use crate::trace::Stack;

use super::access::{Access, Race};
use super::order::{Order, Words};

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

/// The tensors that are known.
#[derive(Debug, Default)]
pub(super) struct Tensors(Words<u64, Tensor>);

#[derive(Debug, Default)]
struct Tensor {
    allocation: Option<Arc<Stack>>,
    /// Since the last write.
    reads: Vec<Arc<Access>>,
    write: Option<Arc<Access>>,
}

impl Tensors {
    /// Memory was handed out.
    pub(super) fn allocate(&mut self, address: u64, allocation: Option<Arc<Stack>>) {
        if self.0.contains_key(&address) {
            tracing::info!(
                "Found duplicate tensor allocation in the trace for tensor with pointer: {address}. Assuming the trace for \
                 tensor deallocation wasn't caught and backfilling it now. Perhaps the sanitizer was enabled after some \
                 torch operations?"
            );
        }
        self.0.insert(address, Tensor { allocation, ..Tensor::default() });
    }

    /// Memory was given back.
    pub(super) fn free(&mut self, address: u64) {
        if self.0.remove(&address).is_none() {
            backfill!("tensor with pointer:", address, "tensor allocation");
        }
    }

    /// A tensor is accessed; the races are added to `races`.
    pub(super) fn access(&mut self, address: u64, access: &Arc<Access>, order: &Order, races: &mut Vec<Race>) {
        let tensor = self.0.entry(address).or_insert_with(|| {
            backfill!("tensor with pointer:", address, "tensor allocation");
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
            allocation: tensor.allocation.clone(),
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
