//! Which operations become one kernel.
//!
//! Every operation is either kept, so that its results are written to memory, or it is computed anew within the kernels
//! that read it. An operation is kept where somebody outside wants its result, where a reader cannot follow how it lies in
//! memory, and where computing it several times would move more bytes than writing it once. What is kept and goes over the
//! same elements is put together into one kernel where that saves bytes or launches; small kernels over other elements stand
//! in one beside each other.
//!
//! Reductions and row operations carry a frame: the sizes of the elements and the dimensions that a row lies along. A
//! kernel has one frame at most; operations on elements of that frame, and those on what rows come to, are part of it.
//!
//! **Invariants:** a node that is not kept has a plain program or reduction, is the only writer of its results, and is read
//! by maps that exist. Whatever moves a node behind another one has looked at who writes what it reads.

use kernel_ir::reduce::Last;
use smallvec::SmallVec;

use super::graph::{Graph, Node, NodeId, SlotId, View};
use super::map::Map;
use crate::base::shape;
use crate::launch::record::{Beyond, Recorded};

/// Operations that a kernel holds at most.
const MOST_NODES: usize = 48;

/// Results that a kernel over many elements writes at most: with more, a thread has too few registers for vectors of each.
const MOST_RESULTS: usize = 8;

/// A kernel over so few elements costs its launch more than anything else.
const SMALL: i64 = 1 << 16;

/// What a kernel over few elements reads and writes at most.
const MOST_OPERANDS: usize = 128;

/// Operations that stand in a kernel's text at most: the driver's time for it grows with them.
const MOST_WRITTEN: usize = MOST_NODES * MOST_RESULTS;

/// Bytes of a kernel's parameters, of the 4096 that each device has.
const PARAMETER_BYTES: usize = 4000;

/// Rows from which on a kernel that computes each row within one block keeps a device busy.
const ENOUGH_ROWS: i64 = 512;

/// The longest row that a block computes all the same.
const SHORT_ROW: i64 = 8192;

/// Elements of reductions: their sizes, and the dimensions that a row lies along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) sizes: Vec<i64>,
    pub(super) dims: Vec<usize>,
}

/// What a node's expression depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Elements alone.
    Plain,
    /// Rows of a frame; there is a value for each element.
    Element(Frame),
    /// What the rows of one reduction come to, and nothing else.
    Row(NodeId),
}

/// Where an input comes from, as far as it may be computed instead of being read.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) maker: NodeId,
    pub(super) output: usize,
    pub(super) map: Map,
}

/// Why an operation was not fused into its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing of it is needed.
    Dead,
    /// It is no program over elements or rows.
    Opaque,
    /// The result is used outside the traced function.
    Result,
    /// The memory has several writers, or is not the trace's own.
    Shared,
    /// A reader goes over the elements in a way that no index map tells.
    Layout,
    /// The kernel would become too long.
    Long,
    /// Rows that are too few and too long for a block each, or of another shape.
    Rows,
    /// Several kernels read it, and computing it for each would move more bytes.
    Bytes,
    /// What it reads is overwritten before its reader runs.
    Overwritten,
    /// The reader runs on another stream, or behind an event or a wait that the operation stands before.
    Stream,
}

/// How much a kernel holds.
#[derive(Clone, Copy, Debug)]
struct Extent {
    results: usize,
    /// Memory that it reads and writes.
    operands: usize,
    operations: usize,
    /// Whether all of it goes over few elements in the order of memory.
    is_flat: bool,
}

impl Extent {
    fn with(self, other: &Self) -> Self {
        Self {
            results: self.results + other.results,
            operands: self.operands + other.operands,
            operations: self.operations + other.operations,
            is_flat: self.is_flat && other.is_flat,
        }
    }

    /// Whether a kernel over these elements has room for it.
    fn fits(&self, domain: &[i64]) -> bool {
        let is_small = domain.iter().product::<i64>() <= SMALL;
        // For each operand an address, for each program two numbers; or an address and a stride for each dimension, and for each
        // dimension its size.
        let bytes = match self.is_flat {
            true => 8 * self.operands + 16 * self.results,
            false => 8 * self.operands * (2 + domain.len()) + 16 * domain.len() + 64,
        };
        bytes <= PARAMETER_BYTES
            && self.operations <= MOST_WRITTEN
            && if is_small { self.operands <= MOST_OPERANDS } else { self.results <= MOST_RESULTS }
    }
}

/// The decisions about a graph.
#[derive(Debug)]
pub(super) struct Fusion {
    /// For each node, why its result is written to memory; `None` where it is part of its readers.
    pub(super) kept: Vec<Option<Kept>>,
    pub(super) links: Vec<SmallVec<[Option<Link>; 3]>>,
    pub(super) levels: Vec<Level>,
    /// Kept nodes that make up a kernel, in the order in which kernels run.
    pub(super) kernels: Vec<Vec<NodeId>>,
    /// Whether what goes from one operation to the next within a kernel is not rounded to 16 bits.
    pub(super) keeps_wide: bool,
    /// How many nodes that order streams stand before each one, or are it.
    epochs: Vec<usize>,
}

impl Fusion {
    /// Decides about a graph.
    pub(super) fn new(graph: &Graph, keeps_wide: bool) -> Self {
        let count = graph.nodes.len();
        let mut fusion = Self {
            kept: vec![None; count],
            links: vec![SmallVec::new(); count],
            levels: vec![Level::Plain; count],
            kernels: Vec::new(),
            keeps_wide,
            epochs: epochs(graph),
        };
        let live = live(graph);
        let mut sizes = vec![1_usize; count];
        for (at, is_live) in live.into_iter().enumerate() {
            fusion.kept[at] = if is_live { first_reason(graph, at) } else { Some(Kept::Dead) };
            if is_live {
                fusion.visit(graph, at, &mut sizes);
            }
        }
        fusion.keep_what_several_read(graph);
        fusion.group(graph, &sizes);
        fusion
    }

    /// Whether a node is computed within its readers.
    pub(super) fn is_inlined(&self, node: NodeId) -> bool {
        self.kept[node].is_none()
    }

    /// Decides about what a node reads, and what it depends on then.
    fn visit(&mut self, graph: &Graph, at: NodeId, sizes: &mut [usize]) {
        let node = &graph.nodes[at];
        self.links[at] = node.inputs.iter().map(|input| link(graph, at, input)).collect();
        let makers: SmallVec<[(usize, NodeId); 3]> = self.links[at]
            .iter()
            .enumerate()
            .filter_map(|(input, link)| link.as_ref().map(|link| (input, link.maker)))
            .collect();
        self.keep_makers_without_link(graph, at);
        if !is_fusable(node) {
            return;
        }
        for &(_, maker) in &makers {
            if graph.nodes[maker].stream != node.stream || self.epochs[maker] != self.epochs[at] {
                self.keep(maker, Kept::Stream);
            } else if self.is_overwritten(graph, maker, at) {
                self.keep(maker, Kept::Overwritten);
            }
        }
        self.levels[at] = self.level(graph, at, &makers);
        loop {
            let inlined = makers.iter().filter(|&&(_, maker)| self.is_inlined(maker));
            let total: usize = 1 + inlined.clone().map(|&(_, maker)| sizes[maker]).sum::<usize>();
            let Some(&(_, longest)) = inlined.max_by_key(|&&(_, maker)| sizes[maker]).filter(|_| total > MOST_NODES)
            else {
                sizes[at] = total;
                return;
            };
            self.keep(longest, Kept::Long);
            self.levels[at] = self.level(graph, at, &makers);
        }
    }

    /// Whether something that an earlier node reads is written before a later one runs.
    fn is_overwritten(&self, graph: &Graph, earlier: NodeId, later: NodeId) -> bool {
        let mut open: SmallVec<[NodeId; 8]> = SmallVec::from_elem(earlier, 1);
        let mut budget = 4 * MOST_NODES;
        while let Some(node) = open.pop() {
            budget = budget.saturating_sub(1);
            if budget == 0 {
                return true;
            }
            for (input, link) in graph.nodes[node].inputs.iter().zip(&self.links[node]) {
                let slot = &graph.slots[input.slot];
                if slot.writers.iter().any(|&writer| writer > node && writer <= later) {
                    return true;
                }
                if let Some(link) = link.as_ref().filter(|link| self.is_inlined(link.maker)) {
                    open.push(link.maker);
                }
            }
        }
        false
    }

    fn keep(&mut self, node: NodeId, why: Kept) {
        self.kept[node].get_or_insert(why);
    }

    /// Makers whose results this node reads from memory, since no map leads to them.
    fn keep_makers_without_link(&mut self, graph: &Graph, at: NodeId) {
        let why = if is_fusable(&graph.nodes[at]) { Kept::Layout } else { Kept::Opaque };
        for (input, link) in graph.nodes[at].inputs.iter().zip(self.links[at].clone()) {
            if link.is_none()
                && let Some(maker) = graph.maker(input.slot)
            {
                self.keep(maker, why);
            }
        }
    }

    /// What the node depends on; makers that do not fit are kept.
    fn level(&mut self, graph: &Graph, at: NodeId, makers: &[(usize, NodeId)]) -> Level {
        let node = &graph.nodes[at];
        if let Recorded::Rows { reduction, dims, .. } = &node.work {
            let frame = Frame { sizes: node.domain().to_vec(), dims: dims.clone() };
            self.keep_other_frames(graph, at, makers, &frame);
            return if *reduction.last() == Last::Row { Level::Row(at) } else { Level::Element(frame) };
        }
        let carried = makers.iter().filter(|&&(_, maker)| self.is_inlined(maker));
        let mut frames = carried.clone().filter_map(|&(_, maker)| self.frame(graph, maker));
        let Some(frame) = frames.next() else { return Level::Plain };
        if let Some(reduction) = self.only_row(graph, at, makers) {
            return Level::Row(reduction);
        }
        if node.domain() == frame.sizes.as_slice() && fits_blocks(&frame) && !uses_index(node) {
            self.keep_other_frames(graph, at, makers, &frame);
            return Level::Element(frame);
        }
        let rows: Vec<NodeId> =
            carried.map(|&(_, maker)| maker).filter(|&maker| self.levels[maker] != Level::Plain).collect();
        rows.into_iter().for_each(|maker| self.keep(maker, Kept::Rows));
        Level::Plain
    }

    /// The reduction whose rows are all that the node reads, one value for each.
    fn only_row(&self, graph: &Graph, at: NodeId, makers: &[(usize, NodeId)]) -> Option<NodeId> {
        let node = &graph.nodes[at];
        let mut reductions = makers.iter().map(|&(_, maker)| match self.levels[maker] {
            Level::Row(reduction) if self.is_inlined(maker) => Some(reduction),
            _ => None,
        });
        let first = reductions.next()??;
        let rows: i64 = rows_of(&graph.nodes[first]);
        let all = makers.len() == node.inputs.len() && reductions.all(|other| other == Some(first));
        (all && node.domain().iter().product::<i64>() == rows && !uses_index(node)).then_some(first)
    }

    /// The frame that a node's expression needs.
    pub(super) fn frame(&self, graph: &Graph, node: NodeId) -> Option<Frame> {
        match &self.levels[node] {
            Level::Plain => None,
            Level::Element(frame) => Some(frame.clone()),
            Level::Row(reduction) => {
                let node = &graph.nodes[*reduction];
                let Recorded::Rows { dims, .. } = &node.work else { return None };
                Some(Frame { sizes: node.domain().to_vec(), dims: dims.clone() })
            }
        }
    }

    /// Keeps inlined makers that need another frame, or lie otherwise in this one.
    fn keep_other_frames(&mut self, graph: &Graph, at: NodeId, makers: &[(usize, NodeId)], frame: &Frame) {
        for &(input, maker) in makers {
            if !self.is_inlined(maker) {
                continue;
            }
            let Some(own) = self.frame(graph, maker) else { continue };
            let fits = own == *frame && fits_blocks(frame) && self.lies_in(graph, at, input, frame);
            if !fits {
                self.keep(maker, Kept::Rows);
            }
        }
    }

    /// Whether an input is read where the frame has its elements, or its rows.
    fn lies_in(&self, graph: &Graph, at: NodeId, input: usize, frame: &Frame) -> bool {
        let Some(link) = &self.links[at][input] else { return false };
        let maker = &graph.nodes[link.maker];
        match &self.levels[link.maker] {
            Level::Element(_) => link.map.is_identity_at(&frame.sizes, |_| true),
            // The values of rows are read along the dimensions that tell the row.
            Level::Row(_) if maker.domain().len() == frame.sizes.len() => {
                let kept = |dim: usize| !frame.dims.contains(&dim);
                link.map.is_identity_at(&frame.sizes, kept)
            }
            Level::Row(_) | Level::Plain => false,
        }
    }

    /// Keeps what kernels over different elements read, where computing it for each moves more bytes than writing it once.
    fn keep_what_several_read(&mut self, graph: &Graph) {
        let mut roots: Vec<SmallVec<[NodeId; 2]>> = vec![SmallVec::new(); graph.nodes.len()];
        for at in (0..graph.nodes.len()).rev() {
            if self.kept[at].is_some() {
                roots[at].push(at);
                continue;
            }
            let node = &graph.nodes[at];
            let mut own: SmallVec<[NodeId; 2]> = SmallVec::new();
            for &reader in node.outputs.iter().flat_map(|output| &graph.slots[output.slot].readers) {
                own.extend(roots[reader].iter().copied());
            }
            own.sort_unstable();
            own.dedup();
            if own.len() > 1 && !self.may_share(graph, at, &own) {
                self.keep(at, Kept::Bytes);
                own = SmallVec::from_elem(at, 1);
            }
            roots[at] = own;
        }
    }

    /// Whether an expression may be part of several kernels.
    fn may_share(&self, graph: &Graph, at: NodeId, roots: &[NodeId]) -> bool {
        let node = &graph.nodes[at];
        let is_plain =
            |root: &NodeId| self.levels[*root] == Level::Plain && graph.nodes[*root].domain() == node.domain();
        if self.levels[at] == Level::Plain && roots.iter().all(is_plain) {
            return true;
        }
        if self.levels[at] != Level::Plain {
            return false;
        }
        let read: i64 = self.leaves(graph, at);
        let written: i64 = node.outputs.iter().map(|output| output.bytes()).sum();
        let times = i64::try_from(roots.len()).unwrap_or(i64::MAX);
        // Kept, it is written once and read by each.
        times.saturating_mul(read) <= read.saturating_add(written.saturating_mul(1 + times))
    }

    /// Bytes that an expression reads.
    fn leaves(&self, graph: &Graph, at: NodeId) -> i64 {
        let bytes = self.reads(graph, at).into_iter().map(|(_, view, _)| view.bytes());
        bytes.fold(0, i64::saturating_add)
    }

    /// Puts kept nodes together. `sizes` are the operations of each node's expression.
    fn group(&mut self, graph: &Graph, sizes: &[usize]) {
        let mut extents: Vec<Extent> = Vec::new();
        for (at, &operations) in sizes.iter().enumerate() {
            if self.kept[at].is_none_or(|kept| kept == Kept::Dead) {
                continue;
            }
            let own = self.extent(graph, at, operations);
            let has_room = |kernel: &usize| extents[*kernel].with(&own).fits(graph.nodes[at].domain());
            let near = || (0..self.kernels.len()).rev().take(16).filter(has_room);
            let beside =
                |kernel: &usize| extents[*kernel].with(&own).is_flat && self.may_stand_beside(graph, *kernel, at);
            let home = near().find(|&kernel| self.may_join(graph, kernel, at)).or_else(|| near().find(beside));
            let (mut nodes, extent) = match home {
                Some(kernel) => (self.kernels.remove(kernel), extents.remove(kernel).with(&own)),
                None => (Vec::new(), own),
            };
            nodes.push(at);
            self.kernels.push(nodes);
            extents.push(extent);
        }
    }

    fn extent(&self, graph: &Graph, at: NodeId, operations: usize) -> Extent {
        let (results, is_flat) = (graph.nodes[at].outputs.len(), self.is_flat(graph, at));
        let mut read: SmallVec<[&View; 8]> = SmallVec::new();
        for (_, view, _) in self.reads(graph, at) {
            if !read.contains(&view) {
                read.push(view);
            }
        }
        Extent { results, operands: results + read.len(), operations, is_flat }
    }

    /// Whether an expression goes over few elements, each of which is read and written at its own number: a kernel may then
    /// hold it beside others of other sizes.
    fn is_flat(&self, graph: &Graph, root: NodeId) -> bool {
        let domain = graph.nodes[root].domain();
        let numel: i64 = domain.iter().product();
        let lies_so = |view: &View| {
            view.sizes.as_slice() == domain && view.strides == shape::contiguous_strides(domain) && view.is_plain()
        };
        let mut open: SmallVec<[NodeId; 8]> = SmallVec::from_elem(root, 1);
        let is_small = 0 < numel && numel <= SMALL;
        let mut is_flat =
            is_small && self.levels[root] == Level::Plain && graph.nodes[root].outputs.iter().all(lies_so);
        while let Some(at) = open.pop().filter(|_| is_flat) {
            let node = &graph.nodes[at];
            is_flat = matches!(node.work, Recorded::Elements { .. }) && node.domain() == domain && !uses_index(node);
            for (input, link) in node.inputs.iter().zip(&self.links[at]) {
                match link {
                    Some(link) if self.is_inlined(link.maker) => {
                        is_flat &= link.map.is_identity_at(domain, |_| true);
                        open.push(link.maker);
                    }
                    _ => is_flat &= lies_so(input),
                }
            }
        }
        is_flat
    }

    /// Whether a kernel may run at the place of a later node, as a kernel that does both without one knowing of the other.
    fn may_stand_beside(&self, graph: &Graph, kernel: usize, at: NodeId) -> bool {
        let (node, nodes) = (&graph.nodes[at], &self.kernels[kernel]);
        let written = |node: NodeId| graph.nodes[node].outputs.iter().map(|output| output.slot);
        let own: SmallVec<[SlotId; 2]> = written(at).collect();
        let read = self.slots_read(graph, at);
        let is_apart = |&other: &NodeId| {
            let touches = |slot: SlotId| own.contains(&slot) || read.contains(&slot);
            graph.nodes[other].stream == node.stream
                && !written(other).any(touches)
                && !self.slots_read(graph, other).iter().any(|slot| own.contains(slot))
        };
        nodes.iter().all(is_apart) && self.may_all_sink(graph, nodes, at)
    }

    /// Whether a kernel may run at the place of a later node, as one kernel with it, and something is gained.
    fn may_join(&self, graph: &Graph, kernel: usize, at: NodeId) -> bool {
        let (node, nodes) = (&graph.nodes[at], &self.kernels[kernel]);
        let is_plain = |node: NodeId| {
            is_fusable(&graph.nodes[node])
                && matches!(graph.nodes[node].work, Recorded::Elements { .. })
                && self.levels[node] == Level::Plain
        };
        let fits = is_plain(at)
            && nodes.iter().all(|&other| {
                let other_node = &graph.nodes[other];
                is_plain(other)
                    && other_node.domain() == node.domain()
                    && other_node.stream == node.stream
                    && uses_index(other_node) == uses_index(node)
            });
        fits && self.gains(graph, nodes, at)
            && self.may_all_sink(graph, nodes, at)
            && self.reads_joined_in_place(graph, nodes, at)
    }

    fn gains(&self, graph: &Graph, nodes: &[NodeId], at: NodeId) -> bool {
        let numel: i64 = graph.nodes[at].domain().iter().product();
        let read = |node: NodeId| self.slots_read(graph, node);
        let own = read(at);
        let written = |node: NodeId| graph.nodes[node].outputs.iter().map(|output| output.slot).collect::<Vec<_>>();
        numel <= SMALL
            || nodes.iter().any(|&other| {
                let others = read(other);
                let made = written(other);
                own.iter().any(|slot| others.contains(slot) || made.contains(slot))
            })
    }

    /// The slots that an expression reads from memory.
    fn slots_read(&self, graph: &Graph, at: NodeId) -> SmallVec<[usize; 8]> {
        let mut slots: SmallVec<[usize; 8]> = self.reads(graph, at).into_iter().map(|(_, view, _)| view.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Whether the nodes of a kernel may all run as late as another one.
    fn may_all_sink(&self, graph: &Graph, nodes: &[NodeId], to: NodeId) -> bool {
        let first = nodes.iter().copied().min().unwrap_or(to);
        if self.epochs[first] != self.epochs[to] {
            return false;
        }
        // Inlined readers run where their kernels do, which may be before. Kernels are in the order of their last nodes.
        let is_between = |root: &NodeId| *root > first && *root < to && !nodes.contains(root);
        let later = self.kernels.iter().rev().take_while(|kernel| kernel.last() > Some(&first));
        let roots: Vec<NodeId> = later.flatten().copied().filter(is_between).collect();
        nodes.iter().all(|&node| self.may_sink(graph, node, to, (nodes, &roots)))
    }

    /// Whether a kept node may run as late as another one, along with the other nodes of its kernel. `roots` are the kept
    /// nodes that run in between, and maybe more.
    fn may_sink(&self, graph: &Graph, node: NodeId, to: NodeId, (along, roots): (&[NodeId], &[NodeId])) -> bool {
        let between = |user: &NodeId| *user > node && *user < to && !along.contains(user);
        let readers: Vec<NodeId> = roots.iter().copied().filter(between).collect();
        let written = graph.nodes[node].outputs.iter().map(|output| output.slot);
        let is_read = written.clone().any(|slot| {
            readers.iter().any(|&root| self.slots_read(graph, root).contains(&slot))
                || graph.slots[slot].writers.iter().any(&between)
        });
        let read = self.slots_read(graph, node);
        !is_read
            && !read.iter().any(|&slot| graph.slots[slot].writers.iter().any(|writer| *writer > node && *writer < to))
    }

    /// Whether whatever a joined kernel both reads and writes is read before it is written, and at the element that is
    /// written.
    fn reads_joined_in_place(&self, graph: &Graph, nodes: &[NodeId], at: NodeId) -> bool {
        let all = || nodes.iter().copied().chain([at]);
        let written: Vec<(NodeId, &View)> =
            all().flat_map(|node| graph.nodes[node].outputs.iter().map(move |view| (node, view))).collect();
        // Two nodes of a kernel do not write one memory.
        let slots: Vec<SlotId> = written.iter().map(|(_, view)| view.slot).collect();
        let once = slots.iter().enumerate().all(|(at, slot)| !slots[..at].contains(slot));
        let is_read_well = |reader: NodeId, view: &View, is_direct: bool| {
            written.iter().filter(|(_, out)| out.slot == view.slot).all(|&(writer, out)| {
                // A value of the trace's own is computed again, or taken from where it was computed.
                let is_value = graph.maker(out.slot) == Some(writer);
                let in_place = out.sizes == view.sizes && out.strides == view.strides && out.offset == view.offset;
                is_value || (is_direct && in_place && reader <= writer)
            })
        };
        once && all().all(|root| {
            self.reads(graph, root).into_iter().all(|(reader, view, _)| is_read_well(reader, view, reader == root))
        }) && all().all(|root| self.takes_made_values(graph, root, &slots))
    }

    /// Whether what an expression reads of these slots, which its own kernel makes, is read by a map that tells where.
    fn takes_made_values(&self, graph: &Graph, root: NodeId, slots: &[SlotId]) -> bool {
        let here = |(_, view, _): &(NodeId, &View, Option<&Link>)| slots.contains(&view.slot);
        self.reads(graph, root).into_iter().filter(here).all(|(node, view, link)| match link {
            Some(link) => {
                let domain = graph.nodes[link.maker].domain();
                link.map.is_identity_at(domain, |_| true) && node == root
            }
            None => graph.maker(view.slot).is_none(),
        })
    }

    /// What an expression reads from memory: the node that reads it, where it lies, and where it comes from. Nodes that are
    /// computed within several others are followed once for each.
    fn reads<'g>(&'g self, graph: &'g Graph, root: NodeId) -> Vec<(NodeId, &'g View, Option<&'g Link>)> {
        let mut reads = Vec::new();
        let mut open: SmallVec<[NodeId; 8]> = SmallVec::from_elem(root, 1);
        while let Some(node) = open.pop() {
            for (input, link) in graph.nodes[node].inputs.iter().zip(&self.links[node]) {
                match link {
                    Some(link) if self.is_inlined(link.maker) => open.push(link.maker),
                    _ => reads.push((node, input, link.as_ref())),
                }
            }
        }
        reads
    }
}

/// Why a node's result has to be in memory whatever its readers are.
fn first_reason(graph: &Graph, at: NodeId) -> Option<Kept> {
    let node = &graph.nodes[at];
    if !is_fusable(node) {
        return Some(Kept::Opaque);
    }
    let outputs = || node.outputs.iter().map(|output| output.slot);
    if outputs().any(|slot| graph.maker(slot) != Some(at)) {
        return Some(Kept::Shared);
    }
    if outputs().any(|slot| graph.is_result(slot)) {
        return Some(Kept::Result);
    }
    if uses_index(node) {
        return Some(Kept::Layout);
    }
    None
}

/// Nodes whose work is seen by somebody.
fn live(graph: &Graph) -> Vec<bool> {
    let mut live = vec![false; graph.nodes.len()];
    for at in (0..graph.nodes.len()).rev() {
        let node = &graph.nodes[at];
        let seen = |slot: usize| {
            graph.is_result(slot) || graph.slots[slot].readers.iter().any(|&reader| reader != at && live[reader])
        };
        let does_more = matches!(node.work, Recorded::Call { beyond: Beyond::State | Beyond::Streams, .. });
        live[at] = does_more || node.outputs.iter().any(|output| seen(output.slot));
    }
    live
}

/// Whether the node can be part of a larger kernel.
pub(super) fn is_fusable(node: &Node) -> bool {
    let is_plain = node.views().all(View::is_plain);
    match &node.work {
        Recorded::Elements { .. } => is_plain,
        Recorded::Rows { reduction, .. } => {
            is_plain && !reduction.is_indexed() && *reduction.last() != Last::Running && !node.inputs.is_empty()
        }
        Recorded::Call { .. } => false,
    }
}

/// Whether the node orders streams.
pub(super) fn is_fence(node: &Node) -> bool {
    matches!(node.work, Recorded::Call { .. }) && node.views().next().is_none()
}

/// How many nodes before each one order streams. What stands before such a node is done before it: other streams may write
/// what it has read from then on.
fn epochs(graph: &Graph) -> Vec<usize> {
    let fences = graph.nodes.iter().scan(0, |fences, node| {
        *fences += usize::from(is_fence(node));
        Some(*fences)
    });
    fences.collect()
}

fn uses_index(node: &Node) -> bool {
    matches!(&node.work, Recorded::Elements { program, .. } if program.uses_index())
}

fn rows_of(node: &Node) -> i64 {
    let Recorded::Rows { dims, .. } = &node.work else { return 0 };
    node.domain().iter().enumerate().filter(|(dim, _)| !dims.contains(dim)).map(|(_, &size)| size).product()
}

/// Whether blocks that take a row each keep a device busy.
fn fits_blocks(frame: &Frame) -> bool {
    let extent: i64 = frame.dims.iter().map(|&dim| frame.sizes[dim]).product();
    let rows = frame.sizes.iter().product::<i64>() / extent.max(1);
    extent <= SHORT_ROW || rows >= ENOUGH_ROWS
}

/// Where an input comes from, if its maker can be part of a kernel and a map leads there.
fn link(graph: &Graph, at: NodeId, input: &View) -> Option<Link> {
    let maker = graph.maker(input.slot).filter(|&maker| maker < at)?;
    let made = &graph.nodes[maker];
    let output = made.outputs.iter().position(|output| output.slot == input.slot)?;
    if !is_fusable(made) || !is_fusable(&graph.nodes[at]) {
        return None;
    }
    let map = Map::link(input, graph.nodes[at].domain(), &made.outputs[output], made.domain())?;
    Some(Link { maker, output, map })
}
