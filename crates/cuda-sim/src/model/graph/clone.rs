//! Copies of graphs: with new ids, remembering which node each was cloned from.

use std::convert::Infallible;

use cuda_sys::driver::CUresult;

use super::{Graph, GraphId, Node, NodeId, NodeKind};

impl Graph {
    /// A copy with ids of its own, children included. `next_id` gives rising ids.
    pub(crate) fn copy(&self, next_id: &mut dyn FnMut() -> u64) -> Self {
        let mut copy = Self::new(GraphId(next_id()));
        copy.origin = Some(self.id);
        copy.conditions.clone_from(&self.conditions);
        copy.holdings.clone_from(&self.holdings);
        let renamed: Vec<(NodeId, NodeId)> = self.nodes.keys().map(|&id| (id, NodeId(next_id()))).collect();
        // Sorted by the original ids, since these come out of the map in order.
        let rename = |id: &NodeId| {
            renamed.binary_search_by_key(id, |&(original, _)| original).ok().map(|index| renamed[index].1)
        };
        copy.sinks = self.sinks.iter().filter_map(rename).collect();
        for (&(_, new), (&original, node)) in renamed.iter().zip(&self.nodes) {
            let copied = Node {
                kind: node.kind.copy(next_id),
                dependencies: node.dependencies.iter().filter_map(rename).collect(),
                dependents: node.dependents.iter().filter_map(rename).collect(),
                origin: Some(original),
            };
            copy.nodes.insert(new, copied);
        }
        copy
    }

    /// The node of this graph that was cloned from `original`.
    ///
    /// `INVALID_VALUE`: this graph is no clone of the graph of `original`, or the node was removed from it since.
    pub(crate) fn find_in_clone(&self, original: NodeId) -> Result<NodeId, CUresult> {
        let found = self.nodes().find(|(_, node)| node.origin == Some(original));
        found.map(|(id, _)| id).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

impl NodeKind<Graph> {
    fn copy(&self, next_id: &mut dyn FnMut() -> u64) -> Self {
        match self {
            Self::Child(graph) => Self::Child(Box::new(graph.copy(next_id))),
            Self::Conditional(conditional) => {
                let Ok(copy) = conditional.map(|body| Ok::<_, Infallible>(body.copy(next_id)));
                Self::Conditional(copy.with_handles())
            }
            Self::Empty
            | Self::Memcpy(_)
            | Self::Memset(_)
            | Self::Kernel(_)
            | Self::Host(_)
            | Self::EventRecord(_)
            | Self::EventWait(_)
            | Self::Value(_)
            | Self::MemAlloc(_)
            | Self::MemFree(_) => self.clone(),
        }
    }
}
