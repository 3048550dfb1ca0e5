//! Adding and removing edges one list at a time.
//!
//! As on hardware, a list is worked through from its start: edges before the one that is refused stay changed.

use cuda_sys::driver::CUresult;
use cuda_sys::driver::types::CUgraphEdgeData;

use super::{Graph, NodeId};

/// Whether an edge carries no port and no type: the only edges there are without kernels.
pub(crate) fn is_plain_edge(data: &CUgraphEdgeData) -> bool {
    data.from_port == 0 && data.to_port == 0 && data.type_ == 0 && data.reserved == [0; 5]
}

impl Graph {
    /// Adds edges (from, to).
    ///
    /// `INVALID_VALUE`: an end is not of this graph, both ends are one node, or the edge is there already. A cycle is
    /// not noticed here.
    pub(crate) fn add_dependencies(&mut self, edges: &[(NodeId, NodeId)]) -> Result<(), CUresult> {
        edges.iter().try_for_each(|&(from, to)| self.add_edge(from, to))
    }

    /// Removes edges (from, to). `INVALID_VALUE`: an end is not of this graph, or there is no such edge.
    pub(crate) fn remove_dependencies(&mut self, edges: &[(NodeId, NodeId)]) -> Result<(), CUresult> {
        edges.iter().try_for_each(|&(from, to)| self.remove_edge(from, to))
    }

    fn add_edge(&mut self, from: NodeId, to: NodeId) -> Result<(), CUresult> {
        self.node(to)?;
        if from == to || self.node(from)?.dependents.contains(&to) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(node) = self.nodes.get_mut(&from) {
            node.dependents.push(to);
        }
        self.sinks.retain(|&sink| sink != from);
        if let Some(node) = self.nodes.get_mut(&to) {
            node.dependencies.push(from);
        }
        Ok(())
    }

    fn remove_edge(&mut self, from: NodeId, to: NodeId) -> Result<(), CUresult> {
        if !self.node(from)?.dependents.contains(&to) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.forget_dependent(from, to);
        if let Some(node) = self.nodes.get_mut(&to) {
            node.dependencies.retain(|&dependency| dependency != from);
        }
        Ok(())
    }
}
