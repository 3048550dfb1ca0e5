//! Updating an executable graph from a graph of the same shape.
//!
//! Nodes are paired from the sinks, the latest sink first, then breadth first along dependencies in their own order;
//! nothing is changed before every pair has been found and allowed.

use std::collections::{BTreeMap, VecDeque};

use cuda_sys::driver::types::CUgraphExecUpdateResult;

use super::exec::may_become;
use super::{ExecGraph, Graph, NodeId, NodeKind};

/// Why an update was refused. The call answers `GRAPH_EXEC_UPDATE_FAILURE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpdateFailure {
    pub(crate) result: CUgraphExecUpdateResult,
    /// The node of the new graph that does not match.
    pub(crate) node: Option<NodeId>,
    /// The dependency of `node` that does not match, when it is that.
    pub(crate) from: Option<NodeId>,
}

const TOPOLOGY: CUgraphExecUpdateResult = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
const TYPE: CUgraphExecUpdateResult = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
const PARAMETERS: CUgraphExecUpdateResult = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;

impl UpdateFailure {
    fn new(result: CUgraphExecUpdateResult, node: Option<NodeId>) -> Self {
        Self { result, node, from: None }
    }
}

impl ExecGraph {
    /// Takes over the parameters of a graph of the same shape. On an error nothing has changed.
    pub(crate) fn update(&mut self, graph: &Graph) -> Result<(), UpdateFailure> {
        let mut pairs = Vec::new();
        self.check(graph, &mut pairs)?;
        self.apply(graph, &mut pairs.into_iter());
        Ok(())
    }

    /// Finds the node of `graph` for each node here; pairs of a child graph follow those of the graph it is in.
    fn check(&self, graph: &Graph, pairs: &mut Vec<(usize, NodeId)>) -> Result<(), UpdateFailure> {
        let first = pairs.len();
        self.pair(graph, pairs)?;
        let mine = pairs[first..].to_vec();
        for (index, id) in mine {
            let new = graph.node(id).map_or(&[][..], |node| node.kind().inner());
            for (old, new) in self.nodes[index].kind.inner().iter().zip(new) {
                old.check(new, pairs)?;
            }
        }
        Ok(())
    }

    /// Pairs the nodes of one level, in the order in which they are come upon.
    fn pair(&self, graph: &Graph, pairs: &mut Vec<(usize, NodeId)>) -> Result<(), UpdateFailure> {
        if graph.len() != self.len() {
            return Err(UpdateFailure::new(TOPOLOGY, None));
        }
        let (old_sinks, mut new_sinks) = (self.sinks.iter().rev(), graph.sinks().iter().rev());
        let mut queue: VecDeque<(usize, NodeId)> = old_sinks.copied().zip(new_sinks.by_ref().copied()).collect();
        if queue.len() < self.sinks.len() || graph.sinks().len() > queue.len() {
            let extra = graph.sinks().iter().rev().nth(self.sinks.len());
            return Err(UpdateFailure::new(TOPOLOGY, extra.copied()));
        }
        let mut known: BTreeMap<NodeId, usize> = queue.iter().map(|&(old, new)| (new, old)).collect();
        let mut taken = vec![false; self.len()];
        queue.iter().for_each(|&(old, _)| taken[old] = true);
        while let Some((old, new)) = queue.pop_front() {
            pairs.push((old, new));
            for (old_from, new_from) in self.matching_dependencies(old, graph, new)? {
                match known.get(&new_from) {
                    Some(&paired) if paired == old_from => {}
                    None if !taken[old_from] => {
                        known.insert(new_from, old_from);
                        taken[old_from] = true;
                        queue.push_back((old_from, new_from));
                    }
                    Some(_) | None => {
                        let mismatch = UpdateFailure::new(TOPOLOGY, Some(new));
                        return Err(UpdateFailure { from: Some(new_from), ..mismatch });
                    }
                }
            }
        }
        // Only what lies on a cycle is not come upon.
        if known.len() == self.len() { Ok(()) } else { Err(UpdateFailure::new(TOPOLOGY, None)) }
    }

    /// Compares one pair by itself and puts their dependencies side by side.
    fn matching_dependencies(
        &self,
        old: usize,
        graph: &Graph,
        new: NodeId,
    ) -> Result<Vec<(usize, NodeId)>, UpdateFailure> {
        let old = &self.nodes[old];
        let Ok(node) = graph.node(new) else { return Err(UpdateFailure::new(TOPOLOGY, None)) };
        let failure = |result| Err(UpdateFailure::new(result, Some(new)));
        if old.kind.node_type() != node.kind().node_type() {
            return failure(TYPE);
        }
        if old.dependencies.len() != node.dependencies().len() {
            return failure(TOPOLOGY);
        }
        let fits = match (&old.kind, node.kind()) {
            (_, NodeKind::Child(_)) => true,
            (NodeKind::Conditional(old), NodeKind::Conditional(new)) => old.fits(new),
            (old, new) => may_become(old, new),
        };
        if !fits {
            return failure(PARAMETERS);
        }
        Ok(old.dependencies.iter().copied().zip(node.dependencies().iter().copied()).collect())
    }

    /// Carries out what [`ExecGraph::check`] found, taking as many pairs as there are nodes.
    fn apply(&mut self, graph: &Graph, pairs: &mut dyn Iterator<Item = (usize, NodeId)>) {
        let mine: Vec<_> = pairs.take(self.len()).collect();
        self.defaults = graph.defaults();
        self.kept = graph.kept();
        for &(index, id) in &mine {
            let old = &mut self.nodes[index];
            old.updated_from = id;
            if let Ok(new) = graph.node(id) {
                old.replace(new.kind());
            }
        }
        for (index, id) in mine {
            let new = graph.node(id).map_or(&[][..], |node| node.kind().inner());
            for (old, new) in self.nodes[index].kind.inner_mut().iter_mut().zip(new) {
                old.apply(new, pairs);
            }
        }
    }
}
