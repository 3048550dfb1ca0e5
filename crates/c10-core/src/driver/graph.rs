//! Stream capture and graphs.
//!
//! # Safety
//! Every unsafe block is one call through the function table. Out pointers are locals that outlive the call. Graph
//! handles come from the functions here and are destroyed once, by the `CUDAGraph` that owns them; nodes are asked for
//! while their graph is alive.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::CStr;
use std::ptr;

use cuda_sys::driver::types::{
    CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUgraphNode,
    CUgraphNodeType, CUstream,
};
use cuda_sys::{CUresult, CallError, DriverError};

use crate::base::error::{Error, GraphError, Result};
use crate::base::handles::{CaptureMode, NodeHandle, StreamRef};
use crate::driver::Api;
use crate::driver::stream::mode_to_raw;
use crate::trace::{TraceEvent, TraceKind};

/// A `CUgraph`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GraphHandle(pub(crate) usize);

/// A `CUgraphExec`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GraphExecHandle(pub(crate) usize);

/// Why the driver refused to update an executable graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UpdateRefusal {
    /// The number of a `CUgraphExecUpdateResult`.
    pub(crate) result: u32,
    /// The node of the new graph that does not match.
    pub(crate) node: Option<NodeHandle>,
    /// The node that an edge which does not match comes from.
    pub(crate) from: Option<NodeHandle>,
}

/// Memory that graph nodes allocate is freed at the next launch (`CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`).
const AUTO_FREE_ON_LAUNCH: u64 = 1;
/// Nodes run at the priority they were captured at (`CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`).
const USE_NODE_PRIORITY: u64 = 8;
/// Everything is written about each node (`CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE`).
const VERBOSE: u32 = 1;
/// The nodes given replace those that the stream's next work comes after (`CU_STREAM_SET_CAPTURE_DEPENDENCIES`).
const SET_DEPENDENCIES: u32 = 1;

impl Api {
    /// Starts a capture.
    pub(crate) fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        self.bind(stream.device)?;
        // SAFETY: the stream is alive.
        unsafe { self.table.cuStreamBeginCapture_v2(raw(stream), mode_to_raw(mode)) }?;
        self.trace.report_now(TraceKind::Graph, || TraceEvent::CaptureBegun(stream.into()));
        Ok(())
    }

    /// Ends a capture; `None` when the driver made no graph of it.
    pub(crate) fn end_capture(&self, stream: StreamRef) -> Result<Option<GraphHandle>> {
        self.bind(stream.device)?;
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the stream is alive; `graph` outlives the call.
        unsafe { self.table.cuStreamEndCapture(raw(stream), &mut graph) }?;
        self.trace.report_now(TraceKind::Graph, || TraceEvent::CaptureEnded(stream.into()));
        let graph = (!graph.is_null()).then(|| GraphHandle(graph.expose_provenance()));
        if let Some(graph) = graph {
            let captured = || TraceEvent::GraphCaptured { graph: graph.0 as u64, stream: stream.into() };
            self.trace.report_now(TraceKind::Order, captured);
        }
        Ok(graph)
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
        let node = raw_node(node);
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
        Ok(nodes.into_iter().take(count).filter_map(node_handle).collect())
    }

    /// The nodes, in the order in which they were added.
    pub(crate) fn graph_nodes(&self, graph: GraphHandle) -> Result<Vec<NodeHandle>> {
        let mut count = self.graph_node_count(graph)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut nodes: Vec<CUgraphNode> = vec![ptr::null_mut(); count];
        // SAFETY: the graph is alive, and the array has room for `count` nodes; both outlive the call.
        unsafe { self.table.cuGraphGetNodes(raw_graph(graph), nodes.as_mut_ptr(), &mut count) }?;
        nodes.truncate(count);
        Ok(nodes.into_iter().filter_map(node_handle).collect())
    }

    /// The number of a node's `CUgraphNodeType`.
    pub(crate) fn graph_node_type(&self, node: NodeHandle) -> Result<u32> {
        let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        // SAFETY: the node's graph is alive; `kind` outlives the call.
        unsafe { self.table.cuGraphNodeGetType(raw_node(node), &mut kind) }?;
        Ok(kind.0)
    }

    /// Makes an executable graph.
    pub(crate) fn graph_instantiate(&self, graph: GraphHandle) -> Result<GraphExecHandle> {
        let _span = tracing::debug_span!("instantiate_graph").entered();
        let _spared = self.spare_others()?;
        let flags = AUTO_FREE_ON_LAUNCH | USE_NODE_PRIORITY;
        let mut exec: CUgraphExec = ptr::null_mut();
        // SAFETY: the graph is alive; `exec` outlives the call.
        unsafe { self.table.cuGraphInstantiateWithFlags(&mut exec, raw_graph(graph), flags) }?;
        let exec = GraphExecHandle(exec.expose_provenance());
        self.report_instantiated(graph, exec);
        Ok(exec)
    }

    /// Reports that an executable graph does what a graph says.
    fn report_instantiated(&self, graph: GraphHandle, exec: GraphExecHandle) {
        let made = || TraceEvent::GraphInstantiated { graph: graph.0 as u64, exec: exec.0 as u64 };
        self.trace.report_now(TraceKind::Order, made);
    }

    /// Moves what a launch needs to the device, in the order of the stream.
    pub(crate) fn graph_upload(&self, exec: GraphExecHandle, stream: StreamRef) -> Result<()> {
        let _span = tracing::debug_span!("upload_graph", device = stream.device).entered();
        self.bind_unless_named(stream)?;
        // SAFETY: graph and stream are alive.
        Ok(unsafe { self.table.cuGraphUpload(raw_exec(exec), raw(stream)) }?)
    }

    /// Queues the whole graph on a stream.
    #[inline]
    pub(crate) fn graph_launch(&self, exec: GraphExecHandle, stream: StreamRef) -> Result<()> {
        self.bind_unless_named(stream)?;
        self.trace.begin(TraceKind::Graph, stream);
        // SAFETY: graph and stream are alive, and the owner launches from one thread at a time.
        unsafe { self.table.cuGraphLaunch(raw_exec(exec), raw(stream)) }?;
        let event = || TraceEvent::GraphReplayed { graph: exec.0 as u64, stream: stream.into() };
        self.trace.report_checked(TraceKind::Graph, event)
    }

    /// Gives an executable graph the parameters of a graph of the same shape. When it cannot take them, nothing has
    /// changed and the refusal says why.
    pub(crate) fn graph_exec_update(
        &self,
        exec: GraphExecHandle,
        graph: GraphHandle,
    ) -> Result<Result<(), UpdateRefusal>> {
        let success = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS;
        let no = ptr::null_mut();
        let mut info = CUgraphExecUpdateResultInfo { result: success, errorNode: no, errorFromNode: no };
        // SAFETY: both graphs are alive; `info` outlives the call.
        let answer = match unsafe { self.table.cuGraphExecUpdate_v2(raw_exec(exec), raw_graph(graph), &mut info) } {
            Err(CallError::Missing(_)) => self.graph_exec_update_v1(exec, graph, &mut info),
            answer => answer,
        };
        match answer {
            Ok(()) => {
                self.report_instantiated(graph, exec);
                Ok(Ok(()))
            }
            Err(error) if error.status() == Some(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) => {
                let (node, from) = (node_handle(info.errorNode), node_handle(info.errorFromNode));
                Ok(Err(UpdateRefusal { result: info.result.0, node, from }))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Self::graph_exec_update`], with the function that drivers before CUDA 12 have.
    fn graph_exec_update_v1(
        &self,
        exec: GraphExecHandle,
        graph: GraphHandle,
        info: &mut CUgraphExecUpdateResultInfo,
    ) -> Result<(), DriverError> {
        let (node, result) = (&mut info.errorNode, &mut info.result);
        // SAFETY: both graphs are alive; `node` and `result` outlive the call.
        unsafe { self.table.cuGraphExecUpdate(raw_exec(exec), raw_graph(graph), node, result) }
    }

    /// Adds a copy of `child` to the graph that the stream is captured into, as a node after the stream's work so far
    /// and before its next work.
    pub(crate) fn capture_child(&self, stream: StreamRef, child: GraphHandle) -> Result<()> {
        self.bind(stream.device)?;
        let at = self.capture_state(stream)?;
        if at.graph.is_null() {
            // The stream captures nothing, or its capture is spoilt.
            return Err(Error::Graph(GraphError::InvalidCapture));
        }
        let mut node: CUgraphNode = ptr::null_mut();
        let child = raw_graph(child);
        // SAFETY: both graphs are alive, the dependencies are valid until the stream is used again, and `node` outlives
        // the call.
        unsafe { self.table.cuGraphAddChildGraphNode(&mut node, at.graph, at.nodes, at.count, child) }?;
        self.continue_after(stream, &mut node).map_err(|error| {
            // Nothing would be ordered after the node. If it cannot be removed either, the owner of the capture is
            // still told of the failure.
            // SAFETY: the node was added above, and no handle of it is kept.
            let _ = unsafe { self.table.cuGraphDestroyNode(node) };
            error.into()
        })
    }

    /// Makes the work that is captured next on a stream come after one node.
    pub(super) fn continue_after(&self, stream: StreamRef, node: &mut CUgraphNode) -> Result<(), DriverError> {
        let no = ptr::null();
        // SAFETY: the stream is alive and captured into the node's graph; `node` outlives the call.
        match unsafe { self.table.cuStreamUpdateCaptureDependencies_v2(raw(stream), node, no, 1, SET_DEPENDENCIES) } {
            Err(CallError::Missing(_)) => {}
            answer => return answer,
        }
        // SAFETY: as above.
        unsafe { self.table.cuStreamUpdateCaptureDependencies(raw(stream), node, 1, SET_DEPENDENCIES) }
    }

    /// Writes everything about a graph into a file that Graphviz reads.
    pub(crate) fn graph_debug_dot(&self, graph: GraphHandle, path: &CStr) -> Result<()> {
        // SAFETY: the graph is alive, and the path outlives the call.
        Ok(unsafe { self.table.cuGraphDebugDotPrint(raw_graph(graph), path.as_ptr(), VERBOSE) }?)
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

pub(super) fn raw(stream: StreamRef) -> CUstream {
    ptr::with_exposed_provenance_mut(stream.handle.0)
}

pub(super) fn raw_graph(graph: GraphHandle) -> CUgraph {
    ptr::with_exposed_provenance_mut(graph.0)
}

fn raw_exec(exec: GraphExecHandle) -> CUgraphExec {
    ptr::with_exposed_provenance_mut(exec.0)
}

fn raw_node(node: NodeHandle) -> CUgraphNode {
    ptr::with_exposed_provenance_mut(node.0)
}

/// A node, unless there is none.
fn node_handle(node: CUgraphNode) -> Option<NodeHandle> {
    (!node.is_null()).then(|| NodeHandle(node.expose_provenance()))
}
