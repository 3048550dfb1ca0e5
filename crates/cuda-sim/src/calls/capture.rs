//! Stream capture.

use cuda_sys::driver::types::{
    CUgraph, CUgraph_st, CUgraphEdgeData, CUgraphNode, CUstream_st, CUstreamCaptureMode, CUstreamCaptureStatus,
};

use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, ILLEGAL_STATE, INVALID_VALUE, STREAM_CAPTURE_INVALIDATED};
use crate::model::graph::{GraphId, NodeId};

/// An edge without anything special; the only kind that is modelled.
pub(super) const PLAIN_EDGE: CUgraphEdgeData = CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };

pub(crate) fn begin(call: &mut Call<'_>, stream: Ptr<CUstream_st>, mode: CUstreamCaptureMode) -> Answer {
    let key = call.named_stream(stream)?;
    let thread = call.thread;
    call.begin_capture(key, mode.0, thread, None)
}

pub(crate) fn begin_to_graph(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    edges: Ptr<CUgraphEdgeData>,
    count: usize,
    mode: CUstreamCaptureMode,
) -> Answer {
    let nodes = super::graph::read_nodes(dependencies, count)?;
    super::graph::read_plain_edges(edges, count)?;
    graph.required()?;
    let key = call.named_stream(stream)?;
    let found = call.graph(graph.address())?;
    nodes.iter().try_for_each(|&node| found.node(node).map(|_| ()))?;
    let thread = call.thread;
    call.begin_capture(key, mode.0, thread, Some((GraphId(graph.address()), nodes)))
}

pub(crate) fn end(call: &mut Call<'_>, stream: Ptr<CUstream_st>, graph: Ptr<CUgraph>) -> Answer {
    let key = call.named_stream(stream)?;
    graph.write_if_wanted(handle(0));
    if call.stream(key)?.capturing.is_none() {
        return Err(ILLEGAL_STATE);
    }
    let thread = call.thread;
    let is_new = call.capture_of(key).is_some_and(|capture| !capture.into_existing);
    let ended = call.end_capture(key, thread)?;
    if graph.is_null() {
        // Nobody could name the graph; one that was there before the capture stays.
        if is_new {
            call.graphs.remove(&ended.0);
            call.forget_graph_addresses();
        }
        return Ok(());
    }
    graph.write(handle(ended.0))
}

fn status_of(call: &Call<'_>, key: u64) -> CUstreamCaptureStatus {
    match call.capture_of(key) {
        None => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
        Some(capture) if capture.invalidated => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
        Some(_) => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE,
    }
}

pub(crate) fn is_capturing(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    status: Ptr<CUstreamCaptureStatus>,
) -> Answer {
    status.required()?;
    let key = call.named_stream(stream)?;
    call.refuse_implicit_query(key)?;
    status.write(status_of(call, key))
}

pub(crate) fn info_v2(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    status: Ptr<CUstreamCaptureStatus>,
    id: Ptr<u64>,
    graph: Ptr<CUgraph>,
    dependencies: Ptr<*const CUgraphNode>,
    count: Ptr<usize>,
) -> Answer {
    info_v3(call, stream, status, id, graph, dependencies, Ptr::null(), count)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn info_v3(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    status: Ptr<CUstreamCaptureStatus>,
    id: Ptr<u64>,
    graph: Ptr<CUgraph>,
    dependencies: Ptr<*const CUgraphNode>,
    edges: Ptr<*const CUgraphEdgeData>,
    count: Ptr<usize>,
) -> Answer {
    status.required()?;
    let key = call.named_stream(stream)?;
    call.refuse_implicit_query(key)?;
    status.write(status_of(call, key))?;
    let Some(capturing) = call.stream(key)?.capturing.clone() else { return Ok(()) };
    if call.capture_of(key).is_none_or(|capture| capture.invalidated) {
        return Ok(());
    }
    id.write_if_wanted(capturing.capture);
    graph.write_if_wanted(handle(call.capture_of(key).map_or(0, |capture| capture.graph.0)));
    let told: Box<[usize]> =
        capturing.dependencies.iter().map(|node| usize::try_from(node.0).unwrap_or(usize::MAX)).collect();
    count.write_if_wanted(told.len());
    dependencies.write_if_wanted(told.as_ptr().cast());
    edges.write_if_wanted(std::ptr::null());
    call.stream_mut(key)?.told = told;
    Ok(())
}

pub(crate) fn update(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    flags: u32,
) -> Answer {
    update_v2(call, stream, dependencies, Ptr::null(), count, flags)
}

pub(crate) fn update_v2(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    dependencies: Ptr<CUgraphNode>,
    edges: Ptr<CUgraphEdgeData>,
    count: usize,
    flags: u32,
) -> Answer {
    /// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`; 0 adds.
    const REPLACE: u32 = 1;
    let key = call.named_stream(stream)?;
    let capture = call.capture_of(key).ok_or(ILLEGAL_STATE)?;
    if capture.invalidated {
        return Err(STREAM_CAPTURE_INVALIDATED);
    }
    if flags > REPLACE {
        return Err(INVALID_VALUE);
    }
    let nodes: Vec<NodeId> = super::graph::read_nodes(dependencies, count)?;
    super::graph::read_plain_edges(edges, count)?;
    call.update_capture(key, nodes, flags == REPLACE)
}

pub(crate) fn exchange_mode(call: &mut Call<'_>, mode: Ptr<CUstreamCaptureMode>) -> Answer {
    let wanted = mode.read()?;
    let thread = call.thread;
    let kept = &mut call.thread(thread).capture_mode;
    let before = std::mem::replace(kept, wanted.0);
    mode.write(CUstreamCaptureMode(before))
}
