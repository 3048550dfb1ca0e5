//! Executable graphs: a snapshot of a graph, whose parameters can still be changed node by node.
//!
//! A node is named by the handle of the template's node it was made of, or by that of the node it was last updated
//! from. Shape, kinds and what [`super::Copy3d::may_become`] and [`super::Fill::may_become`] say are fixed.

use std::collections::BTreeMap;
use std::sync::Arc;

use cuda_sys::driver::CUresult;
use cuda_sys::driver::types::CUgraphInstantiateResult;

use super::{Graph, Kept, Launch, NodeId, NodeKind};

/// Why a graph could not be instantiated. The call answers `INVALID_VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InstantiateFailure {
    pub(crate) result: CUgraphInstantiateResult,
    pub(crate) node: NodeId,
}

/// A node of an executable graph.
#[derive(Clone, Debug)]
pub(crate) struct ExecNode {
    /// The node this one was made of.
    pub(super) made_of: NodeId,
    /// The node this one was last updated from; at first `made_of`.
    pub(super) updated_from: NodeId,
    pub(super) kind: NodeKind<ExecGraph>,
    /// Indices of earlier nodes, in the order of the template's edges.
    pub(super) dependencies: Vec<usize>,
    pub(super) enabled: bool,
}

/// A graph ready to be launched: nodes in topological order.
#[derive(Clone, Debug)]
pub(crate) struct ExecGraph {
    pub(super) nodes: Vec<ExecNode>,
    /// Indices of the template's sinks, in its order.
    pub(super) sinks: Vec<usize>,
    /// What a launch sets conditions of the template to.
    pub(super) defaults: Vec<(u64, u32)>,
    /// Data of the program that lives as long as this graph.
    pub(super) kept: Vec<Arc<Kept>>,
}

impl ExecGraph {
    /// Takes a snapshot of a graph.
    ///
    /// A graph that sits in a child graph node cannot be instantiated by itself; the caller must know that.
    pub(crate) fn new(graph: &Graph) -> Result<Self, InstantiateFailure> {
        graph.check_conditionals()?;
        Self::snapshot(graph)
    }

    /// Whether a kernel may launch it: it has only kernels, copies between memory that devices reach, sets, and graphs of
    /// such.
    pub(crate) fn check_device_launch(&self, is_reachable: &impl Fn(u64) -> bool) -> Result<(), InstantiateFailure> {
        for node in &self.nodes {
            let fits = match &node.kind {
                NodeKind::Kernel(_) | NodeKind::Memset(_) => true,
                NodeKind::Memcpy(copy) => is_reachable(copy.src.base()) && is_reachable(copy.dst.base()),
                NodeKind::Child(child) => {
                    child.check_device_launch(is_reachable)?;
                    true
                }
                NodeKind::Empty
                | NodeKind::Host(_)
                | NodeKind::Conditional(_)
                | NodeKind::EventRecord(_)
                | NodeKind::EventWait(_)
                | NodeKind::Value(_)
                | NodeKind::MemAlloc(_)
                | NodeKind::MemFree(_) => false,
            };
            if !fits {
                let result = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
                return Err(InstantiateFailure { result, node: node.made_of });
            }
        }
        Ok(())
    }

    fn snapshot(graph: &Graph) -> Result<Self, InstantiateFailure> {
        let order = graph.topological_order().map_err(|node| InstantiateFailure {
            result: CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE,
            node,
        })?;
        let index: BTreeMap<NodeId, usize> = order.iter().enumerate().map(|(index, &id)| (id, index)).collect();
        let indices = |ids: &[NodeId]| ids.iter().filter_map(|id| index.get(id).copied()).collect();
        let mut nodes = Vec::with_capacity(order.len());
        for (id, node) in order.iter().filter_map(|&id| graph.node(id).ok().map(|node| (id, node))) {
            nodes.push(ExecNode {
                made_of: id,
                updated_from: id,
                kind: snapshot(node.kind())?,
                dependencies: indices(node.dependencies()),
                enabled: true,
            });
        }
        Ok(Self { nodes, sinks: indices(graph.sinks()), defaults: graph.defaults(), kept: graph.kept() })
    }

    /// Data of the program that it keeps, and that the graphs inside it keep.
    pub(crate) fn all_kept(&self) -> Vec<Arc<Kept>> {
        let inside = self.nodes.iter().flat_map(|node| node.kind.inner()).flat_map(Self::all_kept);
        self.kept.iter().cloned().chain(inside).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Gives a node other parameters of its own kind; child graphs have [`ExecGraph::set_child`].
    ///
    /// `INVALID_VALUE`: no node of this graph has that handle, it is of another kind, or the change is not allowed.
    pub(crate) fn set_params(&mut self, id: NodeId, kind: NodeKind<Graph>) -> Result<(), CUresult> {
        let node = self.find_mut(id)?;
        if !may_become(&node.kind, &kind) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        node.replace(&kind);
        Ok(())
    }

    /// Gives a child graph node the parameters of `graph`, which must have the same shape.
    ///
    /// `INVALID_VALUE`: no child graph node has that handle. `GRAPH_EXEC_UPDATE_FAILURE`: the graphs do not match.
    pub(crate) fn set_child(&mut self, id: NodeId, graph: &Graph) -> Result<(), CUresult> {
        let child = self.find_mut(id)?.kind.as_child_mut().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        child.update(graph).map_err(|_| CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    }

    /// Whether a copy, a set or a kernel is carried out. `INVALID_VALUE`: the node is something else.
    pub(crate) fn is_enabled(&self, id: NodeId) -> Result<bool, CUresult> {
        let node = self.find(id).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if node.can_be_disabled() { Ok(node.enabled) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
    }

    /// Switches a copy, a set or a kernel on or off. `INVALID_VALUE`: the node is something else.
    pub(crate) fn set_enabled(&mut self, id: NodeId, enabled: bool) -> Result<(), CUresult> {
        let node = self.find_mut(id)?;
        if !node.can_be_disabled() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        node.enabled = enabled;
        Ok(())
    }

    /// What a node launches.
    pub(crate) fn launch(&self, id: NodeId) -> Option<&Launch> {
        self.find(id).and_then(|node| if let NodeKind::Kernel(launch) = &node.kind { Some(launch) } else { None })
    }

    /// Whether it was instantiated from the graph of a node.
    pub(crate) fn is_made_of(&self, id: NodeId) -> bool {
        self.nodes.iter().any(|node| node.made_of == id)
    }

    /// Addresses that a launch allocates or frees.
    pub(crate) fn memory(&self) -> Vec<u64> {
        let mut addresses = Vec::new();
        for node in &self.nodes {
            match &node.kind {
                NodeKind::MemAlloc(alloc) => addresses.push(alloc.address),
                NodeKind::MemFree(address) => addresses.push(*address),
                NodeKind::Child(child) => addresses.extend(child.memory()),
                // Bodies neither allocate nor free.
                NodeKind::Conditional(_)
                | NodeKind::Empty
                | NodeKind::Memcpy(_)
                | NodeKind::Memset(_)
                | NodeKind::Kernel(_)
                | NodeKind::Host(_)
                | NodeKind::EventRecord(_)
                | NodeKind::EventWait(_)
                | NodeKind::Value(_) => {}
            }
        }
        addresses
    }

    /// Handles of events that a launch records or waits for.
    pub(crate) fn events(&self) -> Vec<u64> {
        let mut events = Vec::new();
        for node in &self.nodes {
            match &node.kind {
                NodeKind::EventRecord(event) | NodeKind::EventWait(event) => events.push(*event),
                NodeKind::Child(child) => events.extend(child.events()),
                // Bodies have no events.
                NodeKind::Conditional(_)
                | NodeKind::Empty
                | NodeKind::Memcpy(_)
                | NodeKind::Memset(_)
                | NodeKind::Kernel(_)
                | NodeKind::Host(_)
                | NodeKind::Value(_)
                | NodeKind::MemAlloc(_)
                | NodeKind::MemFree(_) => {}
            }
        }
        events
    }

    fn find(&self, id: NodeId) -> Option<&ExecNode> {
        let here = self.nodes.iter().find(|node| node.is_named(id));
        here.or_else(|| self.nodes.iter().flat_map(|node| node.kind.inner()).find_map(|inner| inner.find(id)))
    }

    fn find_mut(&mut self, id: NodeId) -> Result<&mut ExecNode, CUresult> {
        let inside = |node: &ExecNode| node.kind.inner().iter().any(|inner| inner.find(id).is_some());
        let holds = |node: &ExecNode| node.is_named(id) || inside(node);
        let node = self.nodes.iter_mut().find(|node| holds(node)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if node.is_named(id) {
            return Ok(node);
        }
        let inner = node.kind.inner_mut().iter_mut().find(|inner| inner.find(id).is_some());
        inner.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.find_mut(id)
    }
}

impl ExecNode {
    fn is_named(&self, id: NodeId) -> bool {
        self.made_of == id || self.updated_from == id
    }

    pub(super) fn child(&self) -> Option<&ExecGraph> {
        self.kind.as_child()
    }

    fn can_be_disabled(&self) -> bool {
        matches!(self.kind, NodeKind::Memcpy(_) | NodeKind::Memset(_) | NodeKind::Kernel(_))
    }

    /// Takes over parameters; graphs inside the node are left alone.
    pub(super) fn replace(&mut self, kind: &NodeKind<Graph>) {
        self.kind = match kind {
            NodeKind::Empty | NodeKind::Child(_) => return,
            NodeKind::Conditional(new) => {
                if let NodeKind::Conditional(old) = &mut self.kind {
                    old.condition = new.condition;
                }
                return;
            }
            NodeKind::Memcpy(copy) => NodeKind::Memcpy(*copy),
            NodeKind::Memset(fill) => NodeKind::Memset(*fill),
            NodeKind::Kernel(launch) => NodeKind::Kernel(launch.clone()),
            NodeKind::Host(call) => NodeKind::Host(*call),
            NodeKind::EventRecord(event) => NodeKind::EventRecord(*event),
            NodeKind::EventWait(event) => NodeKind::EventWait(*event),
            NodeKind::Value(value) => NodeKind::Value(*value),
            NodeKind::MemAlloc(alloc) => NodeKind::MemAlloc(*alloc),
            NodeKind::MemFree(address) => NodeKind::MemFree(*address),
        };
    }
}

fn snapshot(kind: &NodeKind<Graph>) -> Result<NodeKind<ExecGraph>, InstantiateFailure> {
    Ok(match kind {
        NodeKind::Empty => NodeKind::Empty,
        NodeKind::Memcpy(copy) => NodeKind::Memcpy(*copy),
        NodeKind::Memset(fill) => NodeKind::Memset(*fill),
        NodeKind::Kernel(launch) => NodeKind::Kernel(launch.clone()),
        NodeKind::Host(call) => NodeKind::Host(*call),
        NodeKind::Child(graph) => NodeKind::Child(Box::new(ExecGraph::snapshot(graph)?)),
        NodeKind::Conditional(conditional) => NodeKind::Conditional(conditional.map(ExecGraph::snapshot)?),
        NodeKind::EventRecord(event) => NodeKind::EventRecord(*event),
        NodeKind::EventWait(event) => NodeKind::EventWait(*event),
        NodeKind::Value(value) => NodeKind::Value(*value),
        NodeKind::MemAlloc(alloc) => NodeKind::MemAlloc(*alloc),
        NodeKind::MemFree(address) => NodeKind::MemFree(*address),
    })
}

/// Whether a node may take over parameters. A node with graphs has none of its own.
pub(super) fn may_become(old: &NodeKind<ExecGraph>, new: &NodeKind<Graph>) -> bool {
    match (old, new) {
        (NodeKind::Memcpy(old), NodeKind::Memcpy(new)) => old.may_become(new),
        (NodeKind::Memset(old), NodeKind::Memset(new)) => old.may_become(new),
        (NodeKind::MemAlloc(old), NodeKind::MemAlloc(new)) => old == new,
        (NodeKind::MemFree(old), NodeKind::MemFree(new)) => old == new,
        (NodeKind::Child(_) | NodeKind::Conditional(_), _) => false,
        (
            NodeKind::Empty
            | NodeKind::Memcpy(_)
            | NodeKind::Memset(_)
            | NodeKind::Kernel(_)
            | NodeKind::Host(_)
            | NodeKind::EventRecord(_)
            | NodeKind::EventWait(_)
            | NodeKind::Value(_)
            | NodeKind::MemAlloc(_)
            | NodeKind::MemFree(_),
            _,
        ) => old.node_type() == new.node_type(),
    }
}
