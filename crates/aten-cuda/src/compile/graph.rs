//! The records of a trace as a graph: nodes that read and write views of slots.
//!
//! A slot is memory that was written by one operation as a whole, or memory that was there before. What an operation in
//! place writes as a whole gets a slot of its own, so that intermediate results are values and not places: the graph is in
//! functional form as far as the records allow it.
//!
//! **Invariants:** nodes are in the order of the records. A slot that a trace has made is read after it was written. Each
//! slot knows who reads and writes it.

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use c10_core::{Device, Stream};
use smallvec::SmallVec;

use crate::base::dtype::DType;
use crate::base::error;
use crate::base::shape::{self, Dims};
use crate::launch::record::{Record, Recorded};
use crate::storage::Storage;
use crate::storage::deferred::{Deferred, Source};
use crate::tensor::{Signs, Tensor};

/// A number of a slot.
pub(super) type SlotId = usize;
/// A number of a node.
pub(super) type NodeId = usize;

/// Where the memory of a slot comes from.
#[derive(Clone, Debug)]
pub(super) enum Home {
    /// The storage of an argument, by its number.
    Input(usize),
    /// Memory that the function has kept from before.
    Captured(Storage),
    /// Memory that the function has asked for.
    Made {
        /// Bytes.
        bytes: usize,
        /// The device.
        device: Device,
        /// Where it was asked for.
        source: Source,
    },
}

/// Memory that nodes use.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) home: Home,
    pub(super) writers: SmallVec<[NodeId; 1]>,
    pub(super) readers: SmallVec<[NodeId; 2]>,
    /// What is waited for outside, where the contents are wanted after the last node.
    pub(super) wanted: Option<Arc<Deferred>>,
}

/// Elements of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct View {
    pub(super) slot: SlotId,
    pub(super) dtype: DType,
    pub(super) sizes: Dims,
    /// In elements.
    pub(super) strides: Dims,
    pub(super) offset: i64,
    pub(super) signs: Signs,
}

/// An operation.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: &'static str,
    pub(super) work: Recorded,
    pub(super) outputs: SmallVec<[View; 1]>,
    pub(super) inputs: SmallVec<[View; 3]>,
    pub(super) stream: Stream,
    /// The operations that it does, where they were several nodes.
    pub(super) joined: Option<Box<Joined>>,
}

/// Operations that have become one node.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    pub(super) names: Vec<&'static str>,
    /// Bytes that they would move one after another.
    pub(super) unfused: i64,
}

/// A traced program.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) slots: Vec<Slot>,
    pub(super) nodes: Vec<Node>,
}

/// Names a storage while a graph is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Name {
    Deferred(*const Deferred),
    Present { address: u64, device: Option<c10_core::DeviceIndex> },
}

impl Graph {
    /// The graph of records. `arguments` are the storages that a call gives anew each time.
    pub(super) fn new(records: Vec<Record>, arguments: &[Storage]) -> Self {
        let wanted = wanted(&records);
        let mut making = Making { graph: Self::default(), slots: HashMap::new(), arguments };
        let mut nodes = Vec::with_capacity(records.len());
        for (at, record) in records.into_iter().enumerate() {
            nodes.push(making.node(at, record));
        }
        let Making { mut graph, slots, .. } = making;
        graph.nodes = nodes;
        for (deferred, _) in wanted {
            if let Some(&slot) = slots.get(&Name::Deferred(Arc::as_ptr(&deferred))) {
                graph.slots[slot].wanted = Some(deferred);
            }
        }
        graph
    }

    /// The only node that writes a slot of the trace's own.
    pub(super) fn maker(&self, slot: SlotId) -> Option<NodeId> {
        let slot = &self.slots[slot];
        match (&slot.home, slot.writers.as_slice()) {
            (Home::Made { .. }, &[maker]) => Some(maker),
            _ => None,
        }
    }

    /// Those who wait for contents, in the order of the slots.
    pub(super) fn wanted(&self) -> Vec<Arc<Deferred>> {
        self.slots.iter().filter_map(|slot| slot.wanted.clone()).collect()
    }

    /// Tells graphs apart: two graphs with one signature do the same to the same memory.
    pub(super) fn signature(&self) -> u128 {
        let hash = |salt: u64| {
            let mut hasher = std::hash::DefaultHasher::new();
            salt.hash(&mut hasher);
            for slot in &self.slots {
                slot.wanted.is_some().hash(&mut hasher);
                match &slot.home {
                    Home::Input(argument) => (0_u8, *argument).hash(&mut hasher),
                    Home::Captured(storage) => (1_u8, name(storage)).hash(&mut hasher),
                    Home::Made { bytes, device, source } => (2_u8, *bytes, *device, source).hash(&mut hasher),
                }
            }
            self.nodes.iter().for_each(|node| node.hash_to(&mut hasher));
            hasher.finish()
        };
        u128::from(hash(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(hash(0xc2b2_ae3d_27d4_eb4f))
    }

    /// Tells apart what graphs do, whatever the sizes: two graphs of one structure have the same operations between the
    /// same memory, with sizes, strides and offsets of their own, and with the numbers that come of these.
    pub(super) fn structure(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        for slot in &self.slots {
            slot.wanted.is_some().hash(&mut hasher);
            match &slot.home {
                Home::Input(argument) => (0_u8, *argument).hash(&mut hasher),
                Home::Captured(storage) => (1_u8, name(storage)).hash(&mut hasher),
                Home::Made { device, source, .. } => (2_u8, *device, source).hash(&mut hasher),
            }
        }
        self.nodes.iter().for_each(|node| node.hash_structure(&mut hasher));
        hasher.finish()
    }

    /// What graphs of one structure may have others of: sizes, strides, offsets, and numbers that operations are given. Such
    /// graphs have as many.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let mut numbers = Vec::new();
        for node in &self.nodes {
            for view in node.views() {
                numbers.extend(view.sizes.iter().chain(&view.strides).map(|number| number.cast_unsigned()));
                numbers.push(view.offset.cast_unsigned());
            }
            match &node.work {
                Recorded::Elements { scalars, sizes, .. } => {
                    numbers.extend(scalars.iter().copied().chain(sizes.iter().map(|size| size.cast_unsigned())));
                }
                Recorded::Rows { scalars, .. } => numbers.extend(scalars),
                Recorded::Call { detail, .. } => numbers.extend(detail),
            }
        }
        numbers
    }

    /// Leaves nodes out, and finds out anew who reads and writes each slot.
    pub(super) fn leave_out(&mut self, nodes: &[NodeId]) {
        let mut at = 0..;
        self.nodes.retain(|_| at.next().is_some_and(|at| !nodes.contains(&at)));
        for slot in &mut self.slots {
            (slot.readers, slot.writers) = (SmallVec::new(), SmallVec::new());
        }
        for (at, node) in self.nodes.iter().enumerate() {
            for view in &node.inputs {
                note(&mut self.slots[view.slot].readers, at);
            }
            for view in &node.outputs {
                note(&mut self.slots[view.slot].writers, at);
            }
        }
    }

    /// Whether the contents of a slot matter after the program.
    pub(super) fn is_result(&self, slot: SlotId) -> bool {
        let slot = &self.slots[slot];
        slot.wanted.is_some() || !matches!(slot.home, Home::Made { .. })
    }
}

/// The deferred memory of records that somebody else holds as well.
fn wanted(records: &[Record]) -> Vec<(Arc<Deferred>, usize)> {
    let mut held: HashMap<*const Deferred, (Arc<Deferred>, usize)> = HashMap::new();
    for tensor in records.iter().flat_map(|record| record.outputs.iter().chain(&record.inputs)) {
        if let Some(deferred) = tensor.storage().deferred() {
            held.entry(Arc::as_ptr(deferred)).or_insert_with(|| (Arc::clone(deferred), 1)).1 += 1;
        }
    }
    held.into_values().filter(|(deferred, here)| Arc::strong_count(deferred) > *here).collect()
}

/// A graph that is being made.
struct Making<'a> {
    graph: Graph,
    /// The slot that has the contents of a storage now.
    slots: HashMap<Name, SlotId>,
    arguments: &'a [Storage],
}

impl Making<'_> {
    fn node(&mut self, at: NodeId, record: Record) -> Node {
        let inputs: SmallVec<[View; 3]> = record.inputs.iter().map(|tensor| self.read(at, tensor)).collect();
        // A call that changes what is there finds it in the memory that it writes.
        let is_changed = |tensor: &Tensor| {
            matches!(record.work, Recorded::Call { .. })
                && record.inputs.iter().any(|input| input.storage().is_same(tensor.storage()))
        };
        let write = |tensor: &Tensor| self.write(at, tensor, is_changed(tensor));
        let outputs = record.outputs.iter().map(write).collect();
        Node { name: record.name, work: record.work, outputs, inputs, stream: record.stream, joined: None }
    }

    fn read(&mut self, at: NodeId, tensor: &Tensor) -> View {
        let slot = self.slot(tensor.storage());
        note(&mut self.graph.slots[slot].readers, at);
        view(slot, tensor)
    }

    fn write(&mut self, at: NodeId, tensor: &Tensor, is_changed: bool) -> View {
        let storage = tensor.storage();
        let mut slot = self.slot(storage);
        let is_made = matches!(self.graph.slots[slot].home, Home::Made { .. });
        if is_made
            && !is_changed
            && !self.graph.slots[slot].writers.is_empty()
            && is_whole(tensor)
            && let Some(deferred) = storage.deferred()
        {
            slot = self.add(made(deferred));
            self.slots.insert(name(storage), slot);
        }
        note(&mut self.graph.slots[slot].writers, at);
        view(slot, tensor)
    }

    fn slot(&mut self, storage: &Storage) -> SlotId {
        if let Some(&known) = self.slots.get(&name(storage)) {
            return known;
        }
        let home = match self.arguments.iter().position(|argument| argument.is_same(storage)) {
            Some(argument) => Home::Input(argument),
            None => match storage.deferred().filter(|deferred| deferred.filled().is_none()) {
                Some(deferred) => made(deferred),
                None => Home::Captured(storage.clone()),
            },
        };
        let slot = self.add(home);
        self.slots.insert(name(storage), slot);
        slot
    }

    fn add(&mut self, home: Home) -> SlotId {
        let (writers, readers) = (SmallVec::new(), SmallVec::new());
        self.graph.slots.push(Slot { home, writers, readers, wanted: None });
        self.graph.slots.len() - 1
    }
}

/// Adds the node that uses a slot now, once.
fn note<const N: usize>(users: &mut SmallVec<[NodeId; N]>, at: NodeId) {
    if users.last() != Some(&at) {
        users.push(at);
    }
}

fn made(deferred: &Deferred) -> Home {
    Home::Made { bytes: deferred.bytes(), device: deferred.device(), source: deferred.source().clone() }
}

fn name(storage: &Storage) -> Name {
    match (storage.present(), storage.deferred()) {
        (Some(buffer), _) => Name::Present { address: buffer.address(), device: Some(buffer.device_index()) },
        (None, Some(deferred)) => Name::Deferred(Arc::as_ptr(deferred)),
        (None, None) => Name::Present { address: storage.data_ptr(), device: None },
    }
}

/// How a tensor lies in a slot.
pub(super) fn view(slot: SlotId, tensor: &Tensor) -> View {
    View {
        slot,
        dtype: tensor.dtype(),
        sizes: Dims::from_slice(tensor.sizes()),
        strides: Dims::from_slice(tensor.strides()),
        offset: tensor.storage_offset(),
        signs: tensor.signs(),
    }
}

/// Whether a tensor is all of its storage, each element once.
fn is_whole(tensor: &Tensor) -> bool {
    tensor.nbytes() == tensor.storage().nbytes()
        && shape::is_non_overlapping_and_dense(tensor.sizes(), tensor.strides())
}

impl View {
    /// Returns a tensor with this layout over another storage.
    ///
    /// # Errors
    /// The storage is smaller than that of the traced tensor.
    #[inline]
    pub(super) fn over(&self, storage: Storage) -> error::Result<Tensor> {
        let (sizes, strides) = (Dims::from_slice(&self.sizes), Dims::from_slice(&self.strides));
        let made = Tensor::view_of(storage, self.dtype, sizes, strides, self.offset)?;
        Ok(if self.signs == Signs::PLAIN { made } else { made.with_signs(self.signs) })
    }

    /// What of it does not follow from sizes.
    pub(super) fn hash_structure(&self, hasher: &mut std::hash::DefaultHasher) {
        (self.slot, self.dtype, self.sizes.len(), self.signs).hash(hasher);
    }

    /// Whether the elements are real numbers that lie in memory as they are.
    pub(super) fn is_plain(&self) -> bool {
        self.signs == Signs::PLAIN && !self.dtype.is_complex()
    }

    pub(super) fn numel(&self) -> i64 {
        shape::numel(&self.sizes)
    }

    /// Bytes that are touched in memory: an element that is repeated counts once.
    pub(super) fn bytes_in_memory(&self) -> i64 {
        let pairs = self.sizes.iter().zip(&self.strides);
        let elements: i64 = pairs.filter(|&(_, &stride)| stride != 0).map(|(&size, _)| size).product();
        elements * i64::try_from(self.dtype.itemsize()).unwrap_or(i64::MAX)
    }

    pub(super) fn bytes(&self) -> i64 {
        self.numel() * i64::try_from(self.dtype.itemsize()).unwrap_or(i64::MAX)
    }
}

impl Node {
    fn hash_to(&self, hasher: &mut std::hash::DefaultHasher) {
        (self.name, &self.outputs, &self.inputs, &self.stream).hash(hasher);
        match &self.work {
            Recorded::Elements { key, program, scalars, sizes } => (0_u8, key, program, scalars, sizes).hash(hasher),
            Recorded::Rows { key, reduction, scalars, dims } => (1_u8, key, reduction, scalars, dims).hash(hasher),
            Recorded::Call { detail, .. } => (2_u8, detail).hash(hasher),
        }
    }

    fn hash_structure(&self, hasher: &mut std::hash::DefaultHasher) {
        (self.name, self.outputs.len(), self.inputs.len(), &self.stream).hash(hasher);
        self.views().for_each(|view| view.hash_structure(hasher));
        match &self.work {
            Recorded::Elements { key, program, scalars, sizes } => {
                (0_u8, key, program, scalars.len(), sizes.len()).hash(hasher);
            }
            Recorded::Rows { key, reduction, scalars, dims } => {
                (1_u8, key, reduction, scalars.len(), dims).hash(hasher);
            }
            Recorded::Call { detail, .. } => (2_u8, detail.len()).hash(hasher),
        }
    }

    /// The sizes that the work goes over.
    pub(super) fn domain(&self) -> &[i64] {
        match &self.work {
            Recorded::Elements { sizes, .. } => sizes,
            Recorded::Rows { .. } => self.inputs.first().map_or(&[][..], |input| &input.sizes),
            Recorded::Call { .. } => self.outputs.first().map_or(&[][..], |output| &output.sizes),
        }
    }

    /// The operations that it does.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.joined.as_ref().map_or_else(|| vec![self.name], |joined| joined.names.clone())
    }

    /// Bytes that its operations would read and write one after another.
    pub(super) fn moved(&self) -> i64 {
        self.joined.as_ref().map_or_else(|| self.moved_at_once(), |joined| joined.unfused)
    }

    /// Bytes that it reads and writes.
    pub(super) fn moved_at_once(&self) -> i64 {
        self.views().map(View::bytes_in_memory).sum()
    }

    /// The operands, outputs first.
    pub(super) fn views(&self) -> impl Iterator<Item = &View> {
        self.outputs.iter().chain(&self.inputs)
    }
}
