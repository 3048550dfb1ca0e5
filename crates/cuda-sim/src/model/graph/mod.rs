//! Graphs of work as plain data: nodes, edges, their editing, cloning, printing, instantiation and update.
//!
//! Nothing here knows a machine, a stream or memory: the caller hands in ids, says whose memory an address is, and does
//! what the steps of an executable graph say. Refusals are the driver's own codes.
//!
//! Invariants of a [`Graph`], checked by [`Graph::is_valid`]: ids rise in the order of creation, so that iteration by id
//! is iteration by age; each edge stands once in the dependencies of its end and once in the dependents of its start;
//! both are nodes of this graph and not the same; the sinks are the nodes without dependents. Cycles are allowed, as the driver allows them: it finds them when
//! the graph is instantiated.

#![forbid(unsafe_code)]

mod clone;
mod conditional;
mod dot;
mod edges;
mod exec;
mod order;
mod params;
mod steps;
mod update;

#[cfg(test)]
mod model_test;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use cuda_sys::driver::CUresult;
use cuda_sys::driver::types::CUgraphNodeType;

use super::modules::Launch;
use super::user_objects::{Holdings, Kept};

pub(crate) use conditional::{Conditional, ConditionalKind};
pub(crate) use edges::is_plain_edge;
pub(crate) use exec::{ExecGraph, InstantiateFailure};
pub(crate) use params::{Copy3d, Fill, HostCall, Operand};
pub(crate) use steps::{Step, Work};
pub(crate) use update::UpdateFailure;

/// Identity of a node; unique in a machine, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) u64);

/// Identity of a graph; unique in a machine, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GraphId(pub(crate) u64);

/// What a node does. `C` is what a child graph is kept as: a [`Graph`], or an [`ExecGraph`] once instantiated.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind<C> {
    /// Nothing; joins its dependencies.
    Empty,
    /// A copy.
    Memcpy(Copy3d),
    /// A set.
    Memset(Fill),
    /// A launch of a kernel.
    Kernel(Launch),
    /// A call of a function of the host.
    Host(HostCall),
    /// A graph of its own.
    Child(Box<C>),
    /// Records the event with this handle.
    EventRecord(u64),
    /// Waits for the event with this handle.
    EventWait(u64),
    /// Writes a value in memory, or waits for one.
    Value(ValueOp),
    /// Allocates memory at an address that is fixed.
    MemAlloc(MemAlloc),
    /// Frees the memory at an address.
    MemFree(u64),
    /// Runs graphs of its own depending on a value.
    Conditional(Conditional<C>),
}

/// Memory that a node allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemAlloc {
    pub(crate) address: u64,
    /// As asked for.
    pub(crate) bytes: u64,
    pub(crate) device: u32,
}

/// A value in memory that is written or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueOp {
    pub(crate) address: u64,
    pub(crate) value: u64,
    /// Size of the value in bytes, 4 or 8.
    pub(crate) width: u64,
    /// How a value that is waited for is compared; none for one that is written.
    pub(crate) condition: Option<u32>,
}

impl<C> NodeKind<C> {
    /// The graph inside a child graph node.
    pub(crate) fn as_child(&self) -> Option<&C> {
        if let Self::Child(child) = self { Some(child) } else { None }
    }

    /// The graph inside a child graph node, to be changed.
    pub(crate) fn as_child_mut(&mut self) -> Option<&mut C> {
        if let Self::Child(child) = self { Some(child) } else { None }
    }

    /// The graphs inside a node: that of a child graph node, the bodies of a conditional one.
    pub(crate) fn inner(&self) -> &[C] {
        match self {
            Self::Child(child) => std::slice::from_ref(&**child),
            Self::Conditional(conditional) => &conditional.bodies,
            Self::Empty
            | Self::Memcpy(_)
            | Self::Memset(_)
            | Self::Kernel(_)
            | Self::Host(_)
            | Self::EventRecord(_)
            | Self::EventWait(_)
            | Self::Value(_)
            | Self::MemAlloc(_)
            | Self::MemFree(_) => &[],
        }
    }

    /// The same, to be changed.
    pub(crate) fn inner_mut(&mut self) -> &mut [C] {
        match self {
            Self::Child(child) => std::slice::from_mut(&mut **child),
            Self::Conditional(conditional) => &mut conditional.bodies,
            Self::Empty
            | Self::Memcpy(_)
            | Self::Memset(_)
            | Self::Kernel(_)
            | Self::Host(_)
            | Self::EventRecord(_)
            | Self::EventWait(_)
            | Self::Value(_)
            | Self::MemAlloc(_)
            | Self::MemFree(_) => &mut [],
        }
    }

    /// The driver's word for the kind.
    pub(crate) fn node_type(&self) -> CUgraphNodeType {
        match self {
            Self::Empty => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY,
            Self::Memcpy(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Memset(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Kernel(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Host(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH,
            Self::EventRecord(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::EventWait(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::Value(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            Self::MemAlloc(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::MemFree(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE,
            Self::Conditional(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
        }
    }
}

/// A node of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(super) kind: NodeKind<Graph>,
    /// In the order in which the edges were added.
    pub(super) dependencies: Vec<NodeId>,
    /// In the order in which the edges were added.
    pub(super) dependents: Vec<NodeId>,
    /// The node that this one was cloned from.
    pub(super) origin: Option<NodeId>,
}

impl Node {
    pub(crate) fn kind(&self) -> &NodeKind<Graph> {
        &self.kind
    }

    pub(crate) fn dependencies(&self) -> &[NodeId] {
        &self.dependencies
    }

    pub(crate) fn dependents(&self) -> &[NodeId] {
        &self.dependents
    }
}

/// A graph of work: the template that executable graphs are made of.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    id: GraphId,
    /// The graph that this one was cloned from.
    origin: Option<GraphId>,
    nodes: BTreeMap<NodeId, Node>,
    /// Nodes that nothing depends on, in the order in which they became so: what graphs are compared from.
    sinks: Vec<NodeId>,
    /// Conditions that were made for this graph, in that order, and what a launch sets them to.
    conditions: Vec<(u64, Option<u32>)>,
    /// Data of the program that lives as long as this graph.
    pub(crate) holdings: Holdings,
}

impl Graph {
    /// An empty graph.
    pub(crate) fn new(id: GraphId) -> Self {
        Self {
            id,
            origin: None,
            nodes: BTreeMap::new(),
            sinks: Vec::new(),
            conditions: Vec::new(),
            holdings: Holdings::new(),
        }
    }

    pub(crate) fn id(&self) -> GraphId {
        self.id
    }

    /// The graph that this one was cloned from.
    #[cfg(test)]
    pub(crate) fn origin(&self) -> Option<GraphId> {
        self.origin
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes in the order of creation.
    pub(crate) fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(&id, node)| (id, node))
    }

    /// A node of this graph itself. `INVALID_VALUE`: there is none of this id.
    pub(crate) fn node(&self, id: NodeId) -> Result<&Node, CUresult> {
        self.nodes.get(&id).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Data of the program that it keeps.
    fn kept(&self) -> Vec<Arc<Kept>> {
        self.holdings.values().map(|holding| Arc::clone(&holding.object)).collect()
    }

    /// Nodes without dependencies, in the order of creation.
    pub(crate) fn roots(&self) -> impl Iterator<Item = NodeId> {
        self.nodes().filter(|(_, node)| node.dependencies.is_empty()).map(|(id, _)| id)
    }

    /// Nodes that nothing depends on, in the order in which they became so.
    pub(crate) fn sinks(&self) -> &[NodeId] {
        &self.sinks
    }

    /// Edges as (from, to): by age of their start, then in the order in which they were added.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.nodes().flat_map(|(from, node)| node.dependents.iter().map(move |&to| (from, to)))
    }

    /// Adds a node after `dependencies`.
    ///
    /// `INVALID_VALUE`: a dependency is not of this graph or is named twice; then nothing was added.
    pub(crate) fn add(
        &mut self,
        kind: NodeKind<Self>,
        dependencies: &[NodeId],
        id: NodeId,
    ) -> Result<NodeId, CUresult> {
        debug_assert!(self.nodes.last_key_value().is_none_or(|(&last, _)| last < id), "ids rise");
        for (index, dependency) in dependencies.iter().enumerate() {
            if !self.nodes.contains_key(dependency) || dependencies[..index].contains(dependency) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        for dependency in dependencies {
            if let Some(node) = self.nodes.get_mut(dependency) {
                node.dependents.push(id);
            }
        }
        self.sinks.retain(|sink| !dependencies.contains(sink));
        self.sinks.push(id);
        let node = Node { kind, dependencies: dependencies.to_vec(), dependents: Vec::new(), origin: None };
        self.nodes.insert(id, node);
        Ok(id)
    }

    /// Takes a node and its edges out. `INVALID_VALUE`: there is no such node.
    pub(crate) fn remove(&mut self, id: NodeId) -> Result<NodeKind<Self>, CUresult> {
        let node = self.nodes.remove(&id).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.sinks.retain(|&sink| sink != id);
        for &dependency in &node.dependencies {
            self.forget_dependent(dependency, id);
        }
        for dependent in &node.dependents {
            if let Some(other) = self.nodes.get_mut(dependent) {
                other.dependencies.retain(|&dependency| dependency != id);
            }
        }
        Ok(node.kind)
    }

    fn forget_dependent(&mut self, from: NodeId, to: NodeId) {
        if let Some(node) = self.nodes.get_mut(&from) {
            node.dependents.retain(|&dependent| dependent != to);
            if node.dependents.is_empty() {
                self.sinks.push(from);
            }
        }
    }

    /// Gives a node other parameters of its own kind.
    ///
    /// `INVALID_VALUE`: there is no such node, it is of another kind, or it has graphs of its own and no parameters.
    pub(crate) fn set_params(&mut self, id: NodeId, kind: NodeKind<Self>) -> Result<(), CUresult> {
        let node = self.nodes.get_mut(&id).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let has_graphs = matches!(kind, NodeKind::Child(_) | NodeKind::Conditional(_));
        if has_graphs || node.kind.node_type() != kind.node_type() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        node.kind = kind;
        Ok(())
    }

    /// The graph inside a child graph node. `INVALID_VALUE`: there is no such node here, or it is of another kind.
    pub(crate) fn child(&self, id: NodeId) -> Result<&Self, CUresult> {
        self.node(id)?.kind.as_child().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Graphs inside nodes, in the order of the nodes' creation.
    fn children(&self) -> impl Iterator<Item = (NodeId, &Self)> {
        self.nodes().flat_map(|(id, node)| node.kind.inner().iter().map(move |graph| (id, graph)))
    }

    fn children_mut(&mut self) -> impl Iterator<Item = &mut Self> {
        self.nodes.values_mut().flat_map(|node| node.kind.inner_mut())
    }

    /// Whether a node allocates or frees memory.
    pub(crate) fn has_memory_nodes(&self) -> bool {
        self.nodes.values().any(|node| matches!(node.kind, NodeKind::MemAlloc(_) | NodeKind::MemFree(_)))
    }

    /// This graph or one inside it, by id.
    pub(crate) fn find(&self, id: GraphId) -> Option<&Self> {
        if self.id == id { Some(self) } else { self.children().find_map(|(_, child)| child.find(id)) }
    }

    /// This graph or one inside it, by id.
    pub(crate) fn find_mut(&mut self, id: GraphId) -> Option<&mut Self> {
        if self.id == id { Some(self) } else { self.children_mut().find_map(|child| child.find_mut(id)) }
    }

    /// The graph that a node is in: this one or one inside it.
    pub(crate) fn graph_of(&self, id: NodeId) -> Option<&Self> {
        if self.nodes.contains_key(&id) {
            return Some(self);
        }
        self.children().find_map(|(_, child)| child.graph_of(id))
    }

    /// The graph that a node is in: this one or one inside it.
    pub(crate) fn graph_of_mut(&mut self, id: NodeId) -> Option<&mut Self> {
        if self.nodes.contains_key(&id) {
            return Some(self);
        }
        self.children_mut().find_map(|child| child.graph_of_mut(id))
    }

    /// Ids of this graph and of all inside it.
    #[cfg(test)]
    pub(crate) fn graph_ids(&self) -> Vec<GraphId> {
        let mut ids = vec![self.id];
        ids.extend(self.children().flat_map(|(_, child)| child.graph_ids()));
        ids
    }

    /// Ids of the nodes of this graph and of all inside it.
    #[cfg(test)]
    pub(crate) fn node_ids(&self) -> Vec<NodeId> {
        let mut ids: Vec<_> = self.nodes.keys().copied().collect();
        ids.extend(self.children().flat_map(|(_, child)| child.node_ids()));
        ids
    }

    /// Whether the invariants of the module hold, here and in every child.
    #[cfg(test)]
    pub(crate) fn is_valid(&self) -> bool {
        let once = |list: &[NodeId], id| list.iter().filter(|&&other| other == id).count() == 1;
        let node_is_valid = |(id, node): (NodeId, &Node)| {
            let forth = node.dependents.iter().all(|&to| {
                to != id && once(&node.dependents, to) && self.nodes.get(&to).is_some_and(|n| once(&n.dependencies, id))
            });
            let back = node.dependencies.iter().all(|&from| {
                once(&node.dependencies, from) && self.nodes.get(&from).is_some_and(|n| once(&n.dependents, id))
            });
            forth && back
        };
        let is_sink = |&(_, node): &(NodeId, &Node)| node.dependents.is_empty();
        let sinks_are_valid = self.nodes().filter(is_sink).count() == self.sinks.len()
            && self.nodes().filter(is_sink).all(|(id, _)| once(&self.sinks, id));
        sinks_are_valid && self.nodes().all(node_is_valid) && self.children().all(|(_, child)| child.is_valid())
    }
}
