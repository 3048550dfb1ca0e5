//! Conditional nodes of captures, and the captures of their bodies.
//!
//! For everybody but the driver a body belongs to the capture that its node is in: [`Bodies`] knows that capture's
//! number from the begin of a body's capture to its end.
//!
//! # Safety
//! Every unsafe block is one call through the function table, or a look at what it wrote. Out pointers are locals that
//! outlive the call. Graphs of bodies belong to their nodes and are alive as long as the graph that is captured.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{ptr, slice};

use cuda_sys::CudaVersion;
use cuda_sys::driver::types::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUgraph, CUgraphConditionalNodeType, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeParams_st__bindgen_ty_1 as AnyParams, CUgraphNodeType,
};

use crate::base::error::{Error, GraphError, Result, Unavailable};
use crate::base::handles::{CaptureMode, StreamRef};
use crate::driver::graph::{raw, raw_graph};
use crate::driver::stream::mode_to_raw;
use crate::driver::{Api, GraphHandle};
use crate::sync::Mutex;
use crate::trace::{TraceEvent, TraceKind};

/// A launch sets the condition to its default value (`CU_GRAPH_COND_ASSIGN_DEFAULT`).
const ASSIGN_DEFAULT: u32 = 1;
/// The first driver with a second body of IF nodes, and with SWITCH nodes.
const SEVERAL_BODIES: CudaVersion = CudaVersion(12080);

/// What a conditional node does with its condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConditionalKind {
    If,
    While,
    Switch,
}

/// The number of a condition, and that of the capture whose graph it was made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConditionHandle {
    pub(crate) number: u64,
    pub(crate) capture: u64,
}

/// Captures of bodies under way, each with the outermost capture that its node belongs to.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    wholes: Mutex<Vec<(u64, u64)>>,
    count: AtomicUsize,
}

impl Bodies {
    fn change(&self, change: impl FnOnce(&mut Vec<(u64, u64)>)) {
        let mut wholes = self.wholes.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut wholes);
        self.count.store(wholes.len(), Ordering::Release);
    }

    /// The capture that a capture belongs to: for a body the capture around it, otherwise itself.
    #[inline]
    pub(super) fn whole(&self, capture: u64) -> u64 {
        if self.count.load(Ordering::Acquire) == 0 { capture } else { self.find(capture) }
    }

    #[cold]
    fn find(&self, capture: u64) -> u64 {
        let wholes = self.wholes.lock().unwrap_or_else(PoisonError::into_inner);
        wholes.iter().find(|(body, _)| *body == capture).map_or(capture, |(_, whole)| *whole)
    }
}

impl Api {
    /// Makes a condition for the graph that the stream is captured into; each launch sets it to `default`.
    pub(crate) fn capture_condition(&self, stream: StreamRef, default: u32) -> Result<ConditionHandle> {
        self.bind(stream.device)?;
        let (context, at) = (self.context(stream.device)?, self.capture_state(stream)?);
        if at.graph.is_null() {
            return Err(Error::Graph(GraphError::InvalidCapture));
        }
        let mut number = 0;
        // SAFETY: the graph is being captured, the context is retained, and `number` outlives the call.
        unsafe { self.table.cuGraphConditionalHandleCreate(&mut number, at.graph, context, default, ASSIGN_DEFAULT) }?;
        Ok(ConditionHandle { number, capture: at.id })
    }

    /// Adds a conditional node with empty bodies after the stream's work so far and before its next work. Returns the
    /// bodies.
    pub(crate) fn capture_conditional(
        &self,
        stream: StreamRef,
        condition: ConditionHandle,
        kind: ConditionalKind,
        bodies: u32,
    ) -> Result<Vec<GraphHandle>> {
        self.check_bodies(kind, bodies)?;
        self.bind(stream.device)?;
        let at = self.capture_state(stream)?;
        if at.graph.is_null() {
            return Err(Error::Graph(GraphError::InvalidCapture));
        }
        if at.id != condition.capture {
            return Err(Error::Graph(GraphError::ConditionOfOtherScope));
        }
        let conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle: condition.number,
            type_: match kind {
                ConditionalKind::If => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF,
                ConditionalKind::While => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE,
                ConditionalKind::Switch => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH,
            },
            size: bodies,
            phGraph_out: ptr::null_mut(),
            ctx: self.context(stream.device)?,
        };
        let mut params = CUgraphNodeParams {
            type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            reserved0: [0; 3],
            // The unused part of the union has to be zero.
            __bindgen_anon_1: AnyParams { reserved1: [0; 29] },
            reserved2: 0,
        };
        params.__bindgen_anon_1.conditional = conditional;
        let (mut node, no): (CUgraphNode, _) = (ptr::null_mut(), ptr::null());
        // SAFETY: the graph is being captured, the dependencies are valid until the stream is used again, and `node` and
        // `params` outlive the call.
        unsafe { self.table.cuGraphAddNode_v2(&mut node, at.graph, at.nodes, no, at.count, &mut params) }?;
        self.continue_after(stream, &mut node).inspect_err(|_| {
            // Nothing would be ordered behind the node. Where it cannot be removed, the capture's owner is told that it
            // failed.
            // SAFETY: the node was added above, and no handle of it is kept.
            let _ = unsafe { self.table.cuGraphDestroyNode(node) };
        })?;
        // SAFETY: the driver wrote the parameters of a conditional node.
        let made: *const CUgraph = unsafe { params.__bindgen_anon_1.conditional }.phGraph_out;
        // SAFETY: the driver's array has as many graphs as were asked for, and lives as long as the node.
        let made = unsafe { slice::from_raw_parts(made, usize::try_from(bodies).unwrap_or(0)) };
        Ok(made.iter().map(|graph| GraphHandle(graph.expose_provenance())).collect())
    }

    fn check_bodies(&self, kind: ConditionalKind, bodies: u32) -> Result<()> {
        let found = self.table.version();
        let several = bodies > 1 || kind == ConditionalKind::Switch;
        if several && found < SEVERAL_BODIES {
            let (symbol, needs) = ("cuGraphAddNode_v2", SEVERAL_BODIES.0);
            return Err(Unavailable { symbol, needs, found: found.0 }.into());
        }
        Ok(())
    }

    /// Captures a stream into the body of a conditional node of the stream `outer`, as a part of the capture `whole`.
    /// Returns the number of the body's own capture; after an error the stream captures nothing.
    pub(crate) fn begin_body(
        &self,
        (stream, outer): (StreamRef, StreamRef),
        body: GraphHandle,
        whole: u64,
    ) -> Result<u64> {
        self.bind(stream.device)?;
        // The capture around it decides what is forbidden.
        let mode = mode_to_raw(CaptureMode::Relaxed);
        let (nodes, edges) = (ptr::null(), ptr::null());
        // SAFETY: stream and graph are alive; there are no dependencies.
        unsafe { self.table.cuStreamBeginCaptureToGraph(raw(stream), raw_graph(body), nodes, edges, 0, mode) }?;
        let number = self.stream_capture_id(stream).and_then(|id| id.ok_or(Error::Graph(GraphError::InvalidCapture)));
        match number {
            Ok(number) => {
                self.bodies.change(|wholes| wholes.push((number, whole)));
                let begun = || TraceEvent::BodyBegun { body: stream.into(), stream: outer.into() };
                self.trace.report_now(TraceKind::Order, begun);
            }
            Err(_) => drop(self.end_body((stream, outer), 0)),
        }
        number
    }

    /// Ends the capture of a body. After an error it is over as well, unless the driver refuses to end it.
    pub(crate) fn end_body(&self, (stream, outer): (StreamRef, StreamRef), number: u64) -> Result<()> {
        let over = || TraceEvent::BodyEnded { body: stream.into(), stream: outer.into() };
        self.trace.report_now(TraceKind::Order, over);
        self.bodies.change(|wholes| wholes.retain(|(body, _)| *body != number));
        let ended = self.try_end_body(stream);
        if ended.is_err() && self.stream_is_capturing(stream).unwrap_or(true) {
            // It was refused without being ended. The error remains.
            let _ = self.try_end_body(stream);
        }
        ended
    }

    fn try_end_body(&self, stream: StreamRef) -> Result<()> {
        self.bind(stream.device)?;
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the stream is alive; `graph` outlives the call. The graph stays the node's.
        Ok(unsafe { self.table.cuStreamEndCapture(raw(stream), &mut graph) }?)
    }
}
