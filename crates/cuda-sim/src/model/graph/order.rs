//! Orders of a graph's nodes: from the roots, as work runs; from the sinks, as graphs are compared.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Graph, NodeId};

impl Graph {
    /// Every node after its dependencies, older nodes first where there is a choice.
    ///
    /// The error is a node on a cycle.
    pub(crate) fn topological_order(&self) -> Result<Vec<NodeId>, NodeId> {
        let mut open: BTreeMap<NodeId, usize> =
            self.nodes().map(|(id, node)| (id, node.dependencies().len())).collect();
        let mut ready: BTreeSet<NodeId> = self.roots().collect();
        let mut order = Vec::with_capacity(self.len());
        while let Some(id) = ready.pop_first() {
            open.remove(&id);
            order.push(id);
            for &dependent in self.node(id).map_or(&[][..], |node| node.dependents()) {
                if let Some(count) = open.get_mut(&dependent) {
                    *count -= 1;
                    if *count == 0 {
                        ready.insert(dependent);
                    }
                }
            }
        }
        match open.keys().next() {
            None => Ok(order),
            Some(&stuck) => Err(self.on_cycle(stuck, &open)),
        }
    }

    /// Walks back from a node that could not be sorted: among such nodes each has a dependency that is one too.
    fn on_cycle(&self, start: NodeId, unsorted: &BTreeMap<NodeId, usize>) -> NodeId {
        let mut seen = BTreeSet::new();
        let mut at = start;
        while seen.insert(at) {
            let dependencies = self.node(at).map_or(&[][..], |node| node.dependencies());
            at = dependencies.iter().copied().find(|dependency| unsorted.contains_key(dependency)).unwrap_or(at);
        }
        at
    }

    /// Nodes in breadth first order from the sinks, the youngest sink first, dependencies in their own order.
    ///
    /// This is the numbering that a verbose print shows. Nodes of cycles that reach no sink are left out.
    pub(crate) fn sinks_first(&self) -> Vec<NodeId> {
        let mut queue: VecDeque<NodeId> = self.sinks().iter().rev().copied().collect();
        let mut seen: BTreeSet<NodeId> = queue.iter().copied().collect();
        let mut order = Vec::with_capacity(self.len());
        while let Some(id) = queue.pop_front() {
            order.push(id);
            for &dependency in self.node(id).map_or(&[][..], |node| node.dependencies()) {
                if seen.insert(dependency) {
                    queue.push_back(dependency);
                }
            }
        }
        order
    }
}
