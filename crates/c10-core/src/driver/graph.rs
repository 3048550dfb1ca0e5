//! Stream capture and graphs.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Out pointers are locals that outlive the call. Graph
//! handles come from the functions here and are destroyed once, by the `CUDAGraph` that owns them.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ptr;

use cuda_sys::CallError;
use cuda_sys::driver::types::{CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphNode, CUstream};

use crate::driver::stream::mode_to_raw;
use crate::driver::{Api, CaptureMode, NodeHandle, StreamRef};
use crate::error::Result;

/// A `CUgraph`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GraphHandle(pub(crate) usize);

/// A `CUgraphExec`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GraphExecHandle(pub(crate) usize);

/// Memory that graph nodes allocate is freed at the next launch (`CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`).
const AUTO_FREE_ON_LAUNCH: u64 = 1;
/// Nodes run at the priority they were captured at (`CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`).
const USE_NODE_PRIORITY: u64 = 8;

impl Api {
    /// Starts a capture.
    pub(crate) fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        self.bind(stream.device)?;
        // SAFETY: the stream is alive.
        Ok(unsafe { self.table.cuStreamBeginCapture_v2(raw(stream), mode_to_raw(mode)) }?)
    }

    /// Ends a capture; `None` when the driver made no graph of it.
    pub(crate) fn end_capture(&self, stream: StreamRef) -> Result<Option<GraphHandle>> {
        self.bind(stream.device)?;
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the stream is alive; `graph` outlives the call.
        unsafe { self.table.cuStreamEndCapture(raw(stream), &mut graph) }?;
        Ok((!graph.is_null()).then(|| GraphHandle(graph.expose_provenance())))
    }

    /// Number of nodes.
    pub(crate) fn graph_node_count(&self, graph: GraphHandle) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the graph is alive, `count` outlives the call, and without an array only the number is told.
        unsafe { self.table.cuGraphGetNodes(raw_graph(graph), ptr::null_mut(), &mut count) }?;
        Ok(count)
    }

    /// The nodes that a node follows directly, through the newest function that the driver has.
    pub(crate) fn graph_node_dependencies(&self, node: NodeHandle) -> Result<Vec<NodeHandle>> {
        let node: CUgraphNode = ptr::with_exposed_provenance_mut(node.0);
        let ask = |nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: &mut usize| {
            // SAFETY: the node's graph is being captured; the arrays are null or have room for `count` results.
            match unsafe { self.table.cuGraphNodeGetDependencies_v2(node, nodes, edges, count) } {
                // SAFETY: as above.
                Err(CallError::Missing(_)) => unsafe { self.table.cuGraphNodeGetDependencies(node, nodes, count) },
                answer => answer,
            }
        };
        let mut count = 0;
        ask(ptr::null_mut(), ptr::null_mut(), &mut count)?;
        let mut nodes: Vec<CUgraphNode> = vec![ptr::null_mut(); count];
        let edge = CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
        let mut edges = vec![edge; count];
        if count > 0 {
            ask(nodes.as_mut_ptr(), edges.as_mut_ptr(), &mut count)?;
        }
        Ok(nodes.into_iter().take(count).map(|node| NodeHandle(node.expose_provenance())).collect())
    }

    /// Makes an executable graph.
    pub(crate) fn graph_instantiate(&self, graph: GraphHandle) -> Result<GraphExecHandle> {
        let flags = AUTO_FREE_ON_LAUNCH | USE_NODE_PRIORITY;
        let mut exec: CUgraphExec = ptr::null_mut();
        // SAFETY: the graph is alive; `exec` outlives the call.
        unsafe { self.table.cuGraphInstantiateWithFlags(&mut exec, raw_graph(graph), flags) }?;
        Ok(GraphExecHandle(exec.expose_provenance()))
    }

    /// Queues the whole graph on a stream.
    pub(crate) fn graph_launch(&self, exec: GraphExecHandle, stream: StreamRef) -> Result<()> {
        self.bind(stream.device)?;
        // SAFETY: graph and stream are alive, and the owner launches from one thread at a time.
        Ok(unsafe { self.table.cuGraphLaunch(raw_exec(exec), raw(stream)) }?)
    }

    /// Destroys a graph.
    pub(crate) fn graph_destroy(&self, graph: GraphHandle) -> Result<()> {
        // SAFETY: the owner gives it up.
        Ok(unsafe { self.table.cuGraphDestroy(raw_graph(graph)) }?)
    }

    /// Destroys an executable graph; a launch under way still finishes.
    pub(crate) fn graph_exec_destroy(&self, exec: GraphExecHandle) -> Result<()> {
        // SAFETY: the owner gives it up.
        Ok(unsafe { self.table.cuGraphExecDestroy(raw_exec(exec)) }?)
    }
}

fn raw(stream: StreamRef) -> CUstream {
    ptr::with_exposed_provenance_mut(stream.handle.0)
}

fn raw_graph(graph: GraphHandle) -> CUgraph {
    ptr::with_exposed_provenance_mut(graph.0)
}

fn raw_exec(exec: GraphExecHandle) -> CUgraphExec {
    ptr::with_exposed_provenance_mut(exec.0)
}
