//! Graphs made by hand: nodes, edges, and what can be asked of them.

use std::ffi::c_char;

use cuda_sys::driver::types::{
    CUDA_HOST_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUctx_st, CUevent, CUevent_st, CUgraph, CUgraph_st,
    CUgraphEdgeData, CUgraphNode, CUgraphNode_st, CUgraphNodeType,
};

use super::capture::PLAIN_EDGE;
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, INVALID_VALUE, OPERATING_SYSTEM};
use crate::model::State;
use crate::model::graph::{Copy3d, Fill, Graph, HostCall, NodeId, NodeKind, is_plain_edge};
use crate::model::plan::{self, Sight};

/// Reads an array of node handles, null ones refused.
pub(super) fn read_nodes(nodes: Ptr<CUgraphNode>, count: usize) -> Answer<Vec<NodeId>> {
    let handles = nodes.cast::<usize>().read_array(count)?;
    if handles.contains(&0) {
        return Err(INVALID_VALUE);
    }
    Ok(handles.into_iter().map(|handle| NodeId(handle as u64)).collect())
}

/// Reads edge data, which may be left out and must be plain.
pub(super) fn read_plain_edges(edges: Ptr<CUgraphEdgeData>, count: usize) -> Answer {
    if edges.is_null() {
        return Ok(());
    }
    let plain = edges.read_array(count)?.iter().all(is_plain_edge);
    if plain { Ok(()) } else { Err(INVALID_VALUE) }
}

/// Writes handles into an array as the driver does: without an array only how many there are, else as many as fit,
/// null behind the last.
fn write_handles(to: Ptr<CUgraphNode>, count: Ptr<usize>, handles: &[NodeId]) -> Answer {
    if to.is_null() {
        return count.write(handles.len());
    }
    let capacity = capacity_of(count)?;
    for index in 0..capacity {
        to.write_at(index, handle(handles.get(index).map_or(0, |node| node.0)))?;
    }
    count.write(handles.len().min(capacity))
}

/// Room in arrays that were given; none is refused.
fn capacity_of(count: Ptr<usize>) -> Answer<usize> {
    let capacity = count.read()?;
    if capacity == 0 { Err(INVALID_VALUE) } else { Ok(capacity) }
}

pub(crate) fn create(call: &mut Call<'_>, graph: Ptr<CUgraph>, flags: u32) -> Answer {
    graph.required()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let id = call.new_graph();
    graph.write(handle(id.0))
}

pub(crate) fn destroy(call: &mut Call<'_>, graph: Ptr<CUgraph_st>) -> Answer {
    call.graphs.remove(&graph.address()).ok_or(INVALID_VALUE)?;
    call.forget_graph_addresses();
    Ok(())
}

pub(crate) fn clone(call: &mut Call<'_>, clone: Ptr<CUgraph>, original: Ptr<CUgraph_st>) -> Answer {
    clone.required()?;
    State::refuse_copy(call.graph(original.address())?)?;
    let copy = call.copy_graph(original.address())?;
    let id = copy.id();
    call.graphs.insert(id.0, copy);
    clone.write(handle(id.0))
}

pub(crate) fn find_in_clone(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    original: Ptr<CUgraphNode_st>,
    clone: Ptr<CUgraph_st>,
) -> Answer {
    node.required()?;
    let found = call.graph(clone.address())?.find_in_clone(NodeId(original.address()))?;
    node.write(handle(found.0))
}

/// What every function that adds a node does.
pub(super) fn add(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    (dependencies, count): (Ptr<CUgraphNode>, usize),
    kind: impl FnOnce(&mut State) -> Answer<NodeKind<Graph>>,
) -> Answer {
    node.required()?;
    let dependencies = read_nodes(dependencies, count)?;
    call.graph(graph.address())?;
    let kind = kind(call)?;
    let id = NodeId(call.new_handle());
    call.graph_mut(graph.address())?.add(kind, &dependencies, id)?;
    node.write(handle(id.0))
}

pub(crate) fn add_empty(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
) -> Answer {
    add(call, node, graph, (dependencies, count), |_| Ok(NodeKind::Empty))
}

/// Copy parameters of a node: nothing to do is refused, and memory must be there now.
pub(super) fn copy_kind(state: &State, params: &CUDA_MEMCPY3D) -> Answer<NodeKind<Graph>> {
    let copy = Copy3d::from_raw(params)?;
    plan::copy(&state.memory, params, Sight::Node)?;
    Ok(NodeKind::Memcpy(state.owned_copy(copy)))
}

/// Set parameters of a node, likewise.
pub(super) fn set_kind(state: &State, params: &CUDA_MEMSET_NODE_PARAMS) -> Answer<NodeKind<Graph>> {
    let fill = Fill::from_raw(params)?;
    plan::set(&state.memory, params, Sight::Node)?;
    Ok(NodeKind::Memset(state.owned_fill(fill)))
}

pub(super) fn host_kind(params: &CUDA_HOST_NODE_PARAMS) -> Answer<NodeKind<Graph>> {
    Ok(NodeKind::Host(HostCall::from_raw(params)?))
}

/// Handle of an event that exists; nodes answer `INVALID_VALUE` where streams answer `INVALID_HANDLE`.
pub(super) fn event_of(state: &State, event: Ptr<CUevent_st>) -> Answer<u64> {
    state.event(event.address()).map_err(|_| INVALID_VALUE)?;
    Ok(event.address())
}

pub(crate) fn add_memcpy(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    params: Ptr<CUDA_MEMCPY3D>,
    _context: Ptr<CUctx_st>,
) -> Answer {
    let params = params.read()?;
    add(call, node, graph, (dependencies, count), |state| copy_kind(state, &params))
}

pub(crate) fn add_memset(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    params: Ptr<CUDA_MEMSET_NODE_PARAMS>,
    _context: Ptr<CUctx_st>,
) -> Answer {
    let params = params.read()?;
    add(call, node, graph, (dependencies, count), |state| set_kind(state, &params))
}

pub(crate) fn add_host(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    params: Ptr<CUDA_HOST_NODE_PARAMS>,
) -> Answer {
    let params = params.read()?;
    add(call, node, graph, (dependencies, count), |_| host_kind(&params))
}

pub(crate) fn add_child(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    child: Ptr<CUgraph_st>,
) -> Answer {
    add(call, node, graph, (dependencies, count), |state| {
        State::refuse_copy(state.graph(child.address())?)?;
        // The node owns a copy, so that later changes of the original do not reach it.
        Ok(NodeKind::Child(Box::new(state.copy_graph(child.address())?)))
    })
}

pub(crate) fn add_event_record(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    event: Ptr<CUevent_st>,
) -> Answer {
    add(call, node, graph, (dependencies, count), |state| Ok(NodeKind::EventRecord(event_of(state, event)?)))
}

pub(crate) fn add_event_wait(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    event: Ptr<CUevent_st>,
) -> Answer {
    add(call, node, graph, (dependencies, count), |state| Ok(NodeKind::EventWait(event_of(state, event)?)))
}

/// Pairs the two arrays of edges that a program gives.
fn read_edges(from: Ptr<CUgraphNode>, to: Ptr<CUgraphNode>, count: usize) -> Answer<Vec<(NodeId, NodeId)>> {
    Ok(read_nodes(from, count)?.into_iter().zip(read_nodes(to, count)?).collect())
}

pub(crate) fn add_dependencies(
    call: &mut Call<'_>,
    graph: Ptr<CUgraph_st>,
    from: Ptr<CUgraphNode>,
    to: Ptr<CUgraphNode>,
    count: usize,
) -> Answer {
    add_dependencies_v2(call, graph, from, to, Ptr::null(), count)
}

pub(crate) fn add_dependencies_v2(
    call: &mut Call<'_>,
    graph: Ptr<CUgraph_st>,
    from: Ptr<CUgraphNode>,
    to: Ptr<CUgraphNode>,
    data: Ptr<CUgraphEdgeData>,
    count: usize,
) -> Answer {
    let edges = read_edges(from, to, count)?;
    read_plain_edges(data, count)?;
    call.graph_mut(graph.address())?.add_dependencies(&edges)
}

pub(crate) fn remove_dependencies(
    call: &mut Call<'_>,
    graph: Ptr<CUgraph_st>,
    from: Ptr<CUgraphNode>,
    to: Ptr<CUgraphNode>,
    count: usize,
) -> Answer {
    remove_dependencies_v2(call, graph, from, to, Ptr::null(), count)
}

pub(crate) fn remove_dependencies_v2(
    call: &mut Call<'_>,
    graph: Ptr<CUgraph_st>,
    from: Ptr<CUgraphNode>,
    to: Ptr<CUgraphNode>,
    data: Ptr<CUgraphEdgeData>,
    count: usize,
) -> Answer {
    let edges = read_edges(from, to, count)?;
    read_plain_edges(data, count)?;
    State::refuse_memory_nodes(call.graph(graph.address())?)?;
    call.graph_mut(graph.address())?.remove_dependencies(&edges)
}

pub(crate) fn nodes(call: &mut Call<'_>, graph: Ptr<CUgraph_st>, nodes: Ptr<CUgraphNode>, count: Ptr<usize>) -> Answer {
    let found: Vec<NodeId> = call.graph(graph.address())?.nodes().map(|(id, _)| id).collect();
    count.required()?;
    write_handles(nodes, count, &found)
}

pub(crate) fn roots(call: &mut Call<'_>, graph: Ptr<CUgraph_st>, nodes: Ptr<CUgraphNode>, count: Ptr<usize>) -> Answer {
    let found: Vec<NodeId> = call.graph(graph.address())?.roots().collect();
    count.required()?;
    write_handles(nodes, count, &found)
}

pub(crate) fn edges(
    call: &mut Call<'_>,
    graph: Ptr<CUgraph_st>,
    from: Ptr<CUgraphNode>,
    to: Ptr<CUgraphNode>,
    count: Ptr<usize>,
) -> Answer {
    edges_v2(call, graph, from, to, Ptr::null(), count)
}

pub(crate) fn edges_v2(
    call: &mut Call<'_>,
    graph: Ptr<CUgraph_st>,
    from: Ptr<CUgraphNode>,
    to: Ptr<CUgraphNode>,
    data: Ptr<CUgraphEdgeData>,
    count: Ptr<usize>,
) -> Answer {
    let (starts, ends): (Vec<NodeId>, Vec<NodeId>) = call.graph(graph.address())?.edges().unzip();
    count.required()?;
    if from.is_null() != to.is_null() {
        return Err(INVALID_VALUE);
    }
    if !from.is_null() {
        write_plain_edges(data, capacity_of(count)?.min(starts.len()))?;
        let capacity = count.read()?;
        write_handles(from, count, &starts)?;
        count.write(capacity)?;
    }
    write_handles(to, count, &ends)
}

fn write_plain_edges(to: Ptr<CUgraphEdgeData>, count: usize) -> Answer {
    if to.is_null() {
        return Ok(());
    }
    (0..count).try_for_each(|index| to.write_at(index, PLAIN_EDGE))
}

/// A node's neighbours, on either side.
fn neighbours(
    call: &Call<'_>,
    node: Ptr<CUgraphNode_st>,
    to: Ptr<CUgraphNode>,
    data: Ptr<CUgraphEdgeData>,
    count: Ptr<usize>,
    before: bool,
) -> Answer {
    let id = NodeId(node.address());
    let found = call.graph_of(node.address())?.node(id)?;
    let handles = if before { found.dependencies() } else { found.dependents() };
    count.required()?;
    if !to.is_null() {
        write_plain_edges(data, capacity_of(count)?.min(handles.len()))?;
    }
    write_handles(to, count, handles)
}

pub(crate) fn dependencies(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    to: Ptr<CUgraphNode>,
    count: Ptr<usize>,
) -> Answer {
    neighbours(call, node, to, Ptr::null(), count, true)
}

pub(crate) fn dependencies_v2(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    to: Ptr<CUgraphNode>,
    data: Ptr<CUgraphEdgeData>,
    count: Ptr<usize>,
) -> Answer {
    neighbours(call, node, to, data, count, true)
}

pub(crate) fn dependents(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    to: Ptr<CUgraphNode>,
    count: Ptr<usize>,
) -> Answer {
    neighbours(call, node, to, Ptr::null(), count, false)
}

pub(crate) fn dependents_v2(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    to: Ptr<CUgraphNode>,
    data: Ptr<CUgraphEdgeData>,
    count: Ptr<usize>,
) -> Answer {
    neighbours(call, node, to, data, count, false)
}

pub(crate) fn node_type(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, kind: Ptr<CUgraphNodeType>) -> Answer {
    let found = kind_of(call, node)?.node_type();
    kind.write(found)
}

pub(super) fn kind_of<'c>(call: &'c Call<'_>, node: Ptr<CUgraphNode_st>) -> Answer<&'c NodeKind<Graph>> {
    Ok(call.graph_of(node.address())?.node(NodeId(node.address()))?.kind())
}

pub(super) fn set_kind_of(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, kind: NodeKind<Graph>) -> Answer {
    call.graph_of_mut(node.address())?.set_params(NodeId(node.address()), kind)
}

pub(crate) fn destroy_node(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>) -> Answer {
    State::refuse_memory_nodes(call.graph_of(node.address())?)?;
    call.graph_of_mut(node.address())?.remove(NodeId(node.address())).map(|_| ())
}

pub(crate) fn memcpy_params(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, params: Ptr<CUDA_MEMCPY3D>) -> Answer {
    let NodeKind::Memcpy(copy) = *kind_of(call, node)? else { return Err(INVALID_VALUE) };
    params.write(copy.to_raw())
}

pub(crate) fn set_memcpy_params(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, params: Ptr<CUDA_MEMCPY3D>) -> Answer {
    let kind = copy_kind(call, &params.read()?)?;
    set_kind_of(call, node, kind)
}

pub(crate) fn memset_params(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_MEMSET_NODE_PARAMS>,
) -> Answer {
    let NodeKind::Memset(fill) = *kind_of(call, node)? else { return Err(INVALID_VALUE) };
    params.write(fill.to_raw())
}

pub(crate) fn set_memset_params(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_MEMSET_NODE_PARAMS>,
) -> Answer {
    let kind = set_kind(call, &params.read()?)?;
    set_kind_of(call, node, kind)
}

pub(crate) fn host_params(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_HOST_NODE_PARAMS>,
) -> Answer {
    let NodeKind::Host(host) = *kind_of(call, node)? else { return Err(INVALID_VALUE) };
    params.write(host.to_raw())
}

pub(crate) fn set_host_params(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_HOST_NODE_PARAMS>,
) -> Answer {
    let kind = host_kind(&params.read()?)?;
    set_kind_of(call, node, kind)
}

pub(crate) fn record_event(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, event: Ptr<CUevent>) -> Answer {
    let NodeKind::EventRecord(found) = *kind_of(call, node)? else { return Err(INVALID_VALUE) };
    event.write(handle(found))
}

pub(crate) fn set_record_event(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, event: Ptr<CUevent_st>) -> Answer {
    let event = event_of(call, event)?;
    set_kind_of(call, node, NodeKind::EventRecord(event))
}

pub(crate) fn wait_event(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, event: Ptr<CUevent>) -> Answer {
    let NodeKind::EventWait(found) = *kind_of(call, node)? else { return Err(INVALID_VALUE) };
    event.write(handle(found))
}

pub(crate) fn set_wait_event(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, event: Ptr<CUevent_st>) -> Answer {
    let event = event_of(call, event)?;
    set_kind_of(call, node, NodeKind::EventWait(event))
}

pub(crate) fn child_graph(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, graph: Ptr<CUgraph>) -> Answer {
    graph.required()?;
    let id = call.graph_of(node.address())?.child(NodeId(node.address()))?.id();
    graph.write(handle(id.0))
}

pub(crate) fn dot(call: &mut Call<'_>, graph: Ptr<CUgraph_st>, path: Ptr<c_char>, flags: u32) -> Answer {
    let path = path.read_string()?;
    let text = call.graph(graph.address())?.to_dot(flags);
    std::fs::write(path, text).map_err(|_| OPERATING_SYSTEM)
}
