//! Memory that graphs allocate: addresses are fixed when a node is made, memory is behind them from the first launch.
//!
//! The nodes of a graph take their addresses from blocks of whole chunks that belong to the graph. An upload or a
//! launch puts memory behind all of them, and it stays there until it is trimmed, whatever is freed: what a freeing
//! changes is that the addresses are nobody's. As in pools, what a launch allocates is handed out when the call returns, what it
//! frees is a ghost until the node that frees it has run, and an access before the allocating node has run is noticed.
//!
//! Not modelled: memory shared by allocations of one graph whose lifetimes are apart, memory shared by graphs that do
//! not run at the same time, and access by other devices.
//!
//! Invariants: blocks lie in addresses taken from their device; a backed block is one region of kind
//! [`RegionKind::Graph`]; every handed out allocation of a graph lies in a backed block.

use std::collections::{BTreeMap, BTreeSet};

use super::State;
use super::graph::{Graph, GraphId, MemAlloc, NodeId, NodeKind, Work};
use super::memory::{Allocation, RegionKind};
use super::pool::{CHUNK, Mark};
use crate::codes::{Answer, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};

/// Alignment of allocations within a block.
const ALIGNMENT: u64 = 512;

/// Addresses of a graph, taken at once.
#[derive(Debug)]
pub(crate) struct Block {
    graph: GraphId,
    device: u32,
    base: u64,
    length: u64,
    /// Offset of what has not been given to a node.
    next: u64,
    backed: bool,
}

/// The books of graph memory of all devices.
#[derive(Debug, Default)]
pub(crate) struct GraphMemory {
    blocks: Vec<Block>,
    /// Memory behind blocks, by device. Used and reserved memory are the same number, as on hardware.
    marks: BTreeMap<u32, Marks>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    used: Mark,
    reserved: Mark,
}

impl GraphMemory {
    /// Memory used by graphs of a device, and reserved for them.
    pub(crate) fn marks(&self, device: u32) -> (Mark, Mark) {
        let marks = self.marks.get(&device).copied().unwrap_or_default();
        (marks.used, marks.reserved)
    }

    /// Sets the high mark of used or of reserved memory back to its current value.
    pub(crate) fn reset_high(&mut self, device: u32, used: bool) {
        let marks = self.marks.entry(device).or_default();
        let mark = if used { &mut marks.used } else { &mut marks.reserved };
        mark.high = mark.current;
    }

    fn count(&mut self, device: u32) {
        let backed = self.blocks.iter().filter(|block| block.device == device && block.backed);
        let bytes = backed.map(|block| block.length).sum();
        let marks = self.marks.entry(device).or_default();
        marks.used.set(bytes);
        marks.reserved.set(bytes);
    }
}

/// What a launch does with memory, found before anything is changed.
#[derive(Debug, Default)]
pub(crate) struct MemoryPlan {
    allocations: Vec<MemAlloc>,
    frees: Vec<u64>,
}

impl MemoryPlan {
    /// What the steps of a launch allocate and free.
    pub(crate) fn of<'w>(work: impl Iterator<Item = &'w Work>) -> Self {
        let mut plan = Self::default();
        for work in work {
            match work {
                Work::MemAlloc(alloc) => plan.allocations.push(*alloc),
                Work::MemFree(address) => plan.frees.push(*address),
                Work::Empty
                | Work::Memcpy(_)
                | Work::Memset(_)
                | Work::Kernel(_)
                | Work::Host(_)
                | Work::EventRecord(_)
                | Work::EventWait(_)
                | Work::Value(_)
                | Work::Conditional(_) => {}
            }
        }
        plan
    }

    fn is_empty(&self) -> bool {
        self.allocations.is_empty() && self.frees.is_empty()
    }
}

impl State {
    /// Takes an address for a node of a graph that allocates.
    ///
    /// `INVALID_VALUE`: no bytes. `OUT_OF_MEMORY`: more than the device has.
    pub(crate) fn reserve_for_graph(&mut self, graph: GraphId, device: u32, bytes: u64) -> Answer<MemAlloc> {
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        self.check_room(device, bytes)?;
        let length = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(OUT_OF_MEMORY)?;
        let last = self.graph_memory.blocks.iter_mut().rev().find(|block| block.graph == graph);
        if let Some(block) = last.filter(|block| block.device == device && block.next + length <= block.length) {
            let address = block.base + block.next;
            block.next += length;
            self.memory.promise(address, bytes, device);
            return Ok(MemAlloc { address, bytes, device });
        }
        let whole = length.checked_next_multiple_of(CHUNK).ok_or(OUT_OF_MEMORY)?;
        let base = self.memory.take_addresses_quietly(device, whole)?;
        self.graph_memory.blocks.push(Block { graph, device, base, length: whole, next: length, backed: false });
        self.memory.promise(base, bytes, device);
        Ok(MemAlloc { address: base, bytes, device })
    }

    /// Refuses to free what no node allocates, or what a node frees already.
    pub(crate) fn check_graph_free(&self, address: u64) -> Answer {
        let kinds = || self.graphs.values().flat_map(|graph| graph.nodes().map(|(_, node)| node.kind()));
        let allocated = kinds().any(|kind| matches!(kind, NodeKind::MemAlloc(alloc) if alloc.address == address));
        let freed = kinds().any(|kind| matches!(kind, NodeKind::MemFree(other) if *other == address));
        if allocated && !freed { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// Refuses to copy a graph that allocates or frees, or that has conditional nodes.
    pub(crate) fn refuse_copy(graph: &Graph) -> Answer {
        if graph.has_conditional_nodes() { Err(NOT_SUPPORTED) } else { Self::refuse_memory_nodes(graph) }
    }

    /// Refuses what cannot be done to a graph that allocates or frees.
    pub(crate) fn refuse_memory_nodes(graph: &Graph) -> Answer {
        if graph.has_memory_nodes() { Err(NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Refuses a second executable graph of a graph that allocates or frees.
    pub(crate) fn refuse_second_exec(&self, graph: &Graph) -> Answer {
        let first = graph.nodes().next().map(|(id, _)| id);
        let made_of = |id: NodeId| self.graph_execs.values().any(|exec| exec.graph.is_made_of(id));
        if graph.has_memory_nodes() && first.is_some_and(made_of) { Err(NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Checks what a launch does with memory and puts memory behind it.
    ///
    /// `INVALID_VALUE`: what it allocates was not freed since the last launch, unless that is done on launch; or what it
    /// frees is not there.
    pub(crate) fn prepare_graph_memory(&mut self, plan: &MemoryPlan, frees_on_launch: bool) -> Answer {
        if plan.is_empty() {
            return Ok(());
        }
        let live = |address: u64| self.memory.allocation_at(address).is_some_and(|found| found.base == address);
        let own = |address: u64| plan.allocations.iter().any(|alloc| alloc.address == address);
        let unfreed = plan.allocations.iter().any(|alloc| live(alloc.address));
        let unknown = plan.frees.iter().any(|&address| !own(address) && !live(address));
        if unknown || (unfreed && !frees_on_launch) {
            return Err(INVALID_VALUE);
        }
        self.back_graph_memory(plan)
    }

    /// Puts memory behind the blocks of all allocations of a launch.
    pub(crate) fn back_graph_memory(&mut self, plan: &MemoryPlan) -> Answer {
        let holds = |block: &Block| {
            plan.allocations.iter().any(|alloc| (block.base..block.base + block.length).contains(&alloc.address))
        };
        let missing = |block: &&Block| !block.backed && holds(block);
        let wanted: Vec<u64> = self.graph_memory.blocks.iter().filter(missing).map(|block| block.base).collect();
        if !wanted.is_empty() {
            self.drop_blocks_without_graph();
        }
        for base in wanted {
            self.back_block(base)?;
        }
        Ok(())
    }

    fn back_block(&mut self, base: u64) -> Answer {
        let Some(block) = self.graph_memory.blocks.iter_mut().find(|block| block.base == base) else { return Ok(()) };
        let (device, length) = (block.device, block.length);
        if self.memory.take_physical(device, length).is_err() {
            self.trim_graph_memory(device);
            self.memory.take_physical(device, length)?;
        }
        self.memory.back(base, length, device, RegionKind::Graph)?;
        if let Some(block) = self.graph_memory.blocks.iter_mut().find(|block| block.base == base) {
            block.backed = true;
        }
        self.graph_memory.count(device);
        Ok(())
    }

    /// Hands out what a launch allocates and makes ghosts of what it frees; the ids of both, by address.
    pub(crate) fn hand_out_graph_memory(&mut self, plan: &MemoryPlan, stream: u64) -> Answer<BTreeMap<u64, u64>> {
        let mut ids = BTreeMap::new();
        for &MemAlloc { address, bytes, device } in &plan.allocations {
            if self.memory.allocation_at(address).is_some_and(|found| found.base == address) {
                // Only a graph that frees on launch gets here.
                self.free_in_order(address, stream)?;
            }
            let allocation = Allocation { graph: true, ..Allocation::new(address, bytes, device, 0) };
            ids.insert(address, self.memory.hand_out(Allocation { present: false, ..allocation }));
        }
        for &address in &plan.frees {
            if let Some(found) = self.memory.allocation_at(address) {
                ids.insert(address, found.id);
                self.memory.make_ghost(address);
            }
        }
        Ok(ids)
    }

    /// Gives memory behind blocks that nothing uses back to the device, and the addresses of graphs that are gone.
    pub(crate) fn trim_graph_memory(&mut self, device: u32) {
        let idle: BTreeSet<u64> = self.idle_blocks().filter(|block| block.device == device).map(|b| b.base).collect();
        for base in idle {
            self.unback_block(base);
        }
        self.graph_memory.count(device);
        self.forget_graph_addresses();
    }

    fn idle_blocks(&self) -> impl Iterator<Item = &Block> {
        self.graph_memory.blocks.iter().filter(|block| !self.memory.is_occupied(block.base, block.length))
    }

    fn unback_block(&mut self, base: u64) {
        let Some(block) = self.graph_memory.blocks.iter_mut().find(|block| block.base == base && block.backed) else {
            return;
        };
        block.backed = false;
        let (device, length) = (block.device, block.length);
        self.memory.unmap(base);
        self.memory.give_back_physical(device, length);
    }

    /// Takes memory from graphs that are gone, so that others can have it.
    fn drop_blocks_without_graph(&mut self) {
        let gone: Vec<(u64, u32)> = self
            .idle_blocks()
            .filter(|block| !self.is_graph_known(block))
            .map(|block| (block.base, block.device))
            .collect();
        for (base, device) in gone {
            self.unback_block(base);
            self.graph_memory.count(device);
        }
        self.forget_graph_addresses();
    }

    /// Whether a graph or an executable graph still names addresses of a block.
    fn is_graph_known(&self, block: &Block) -> bool {
        let range = block.base..block.base + block.length;
        self.graphs.contains_key(&block.graph.0)
            || self.graph_execs.values().any(|exec| exec.graph.memory().iter().any(|address| range.contains(address)))
    }

    /// Gives back the addresses of graphs that are gone, where nothing is behind them.
    pub(crate) fn forget_graph_addresses(&mut self) {
        let gone: Vec<(u64, u64, u32)> = self
            .idle_blocks()
            .filter(|block| !block.backed && !self.is_graph_known(block))
            .map(|block| (block.base, block.length, block.device))
            .collect();
        for (base, length, device) in gone {
            self.graph_memory.blocks.retain(|block| block.base != base);
            self.memory.forget_promises(base, length);
            self.memory.give_back_addresses(device, base);
        }
    }

    /// The node that allocates has been reached.
    pub(crate) fn reach_graph_allocation(&mut self, id: u64) {
        if let Some((base, length)) = self.memory.make_present(id) {
            self.poison(base, length);
        }
    }
}
