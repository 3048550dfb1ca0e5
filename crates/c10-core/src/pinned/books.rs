//! The memory that is held, by address, and what the driver was asked for.
//!
//! **Invariants:** `by_address` has every block that has memory, and no two overlap. A number is there or in `unused`, or
//! is being moved between the two. `allocations` counts `by_address`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::stat::Stat;
use crate::pinned::blocks::{BlockId, Blocks, Memory};
use crate::pinned::stats::DurationStat;

#[derive(Debug, Default)]
pub(crate) struct Books {
    by_address: BTreeMap<usize, BlockId>,
    /// Numbers whose memory went back.
    unused: Vec<BlockId>,
    pub(crate) num_host_alloc: u64,
    pub(crate) num_host_free: u64,
    pub(crate) allocations: Stat,
    pub(crate) allocated_bytes: Stat,
    pub(crate) host_alloc_time: DurationStat,
    pub(crate) host_free_time: DurationStat,
}

impl Books {
    /// A number for new memory.
    pub(crate) fn enter(&mut self, blocks: &Blocks, memory: Memory) -> BlockId {
        let block = self.unused.pop().unwrap_or_else(|| blocks.make());
        blocks.get(block).set_memory(memory);
        self.by_address.insert(memory.address, block);
        self.allocations.change(1);
        self.allocated_bytes.change(bytes(memory));
        block
    }

    /// A block's memory went back.
    pub(crate) fn remove(&mut self, block: BlockId, memory: Memory) {
        self.by_address.remove(&memory.address);
        self.allocations.change(-1);
        self.allocated_bytes.change(-bytes(memory));
        self.unused.push(block);
    }

    /// The driver took this long to give memory.
    pub(crate) fn count_alloc(&mut self, time: Duration) {
        self.num_host_alloc += 1;
        self.host_alloc_time.add(time);
    }

    /// The driver took this long to take memory back.
    pub(crate) fn count_free(&mut self, time: Duration) {
        self.num_host_free += 1;
        self.host_free_time.add(time);
    }

    /// The block that an address lies in.
    pub(crate) fn find(&self, blocks: &Blocks, address: usize) -> Option<BlockId> {
        let (begin, block) = self.by_address.range(..=address).next_back()?;
        (address - begin < blocks.get(*block).class().bytes()).then_some(*block)
    }

    /// All blocks that have memory.
    pub(crate) fn all(&self) -> impl Iterator<Item = BlockId> {
        self.by_address.values().copied()
    }

    /// Forgets everything but the numbers, which are all unused.
    pub(crate) fn restart(&mut self, blocks: &Blocks) {
        *self = Self { unused: blocks.all().collect(), ..Self::default() };
    }

    pub(crate) fn reset_accumulated(&mut self) {
        for stat in [&mut self.allocations, &mut self.allocated_bytes] {
            (stat.allocated, stat.freed) = (0, 0);
        }
        self.host_alloc_time.reset_accumulated();
        self.host_free_time.reset_accumulated();
        (self.num_host_alloc, self.num_host_free) = (0, 0);
    }

    pub(crate) fn reset_peak(&mut self) {
        for stat in [&mut self.allocations, &mut self.allocated_bytes] {
            stat.peak = stat.current;
        }
        self.host_alloc_time.reset_peak();
        self.host_free_time.reset_peak();
    }
}

fn bytes(memory: Memory) -> i64 {
    i64::try_from(memory.class.bytes()).unwrap_or(i64::MAX)
}
