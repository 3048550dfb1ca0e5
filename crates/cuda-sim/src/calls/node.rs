//! Nodes of any kind through one function, and conditional nodes with their conditions, which have no other.

use cuda_sys::driver::types::{
    CUDA_CHILD_GRAPH_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_EVENT_RECORD_NODE_PARAMS, CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUctx_st, CUgraph_st, CUgraphEdgeData,
    CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
};

use super::graph::{add, add_child, add_empty, add_event_record, add_event_wait, copy_kind, host_kind, set_kind};
use super::launch::{Surroundings, node_kind};
use crate::call::Call;
use crate::claim::{Ptr, host_pointer};
use crate::codes::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::model::State;
use crate::model::graph::{Conditional, ConditionalKind, Graph, GraphId, NodeKind};
use crate::model::graphs::Condition;

/// The driver from which on an IF node may have a second body, and SWITCH nodes exist.
const SEVERAL_BODIES: u32 = 12080;

/// The most bodies of a node; no machine has memory for more graphs than this.
const BODIES_MAX: u32 = 1 << 16;

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`: a launch sets the condition to its default value.
const ASSIGN_DEFAULT: u32 = 1;

/// The parameters of a node with one member of the C union.
#[derive(Clone, Copy)]
#[repr(C)]
struct Tagged<T> {
    kind: CUgraphNodeType,
    reserved: [i32; 3],
    value: T,
}

fn value<T: Copy>(params: Ptr<CUgraphNodeParams>) -> Answer<T> {
    params.cast::<Tagged<T>>().read().map(|tagged| tagged.value)
}

pub(crate) fn add_any(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    params: Ptr<CUgraphNodeParams>,
) -> Answer {
    let after = (dependencies, count);
    match params.cast::<CUgraphNodeType>().read()? {
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL => {
            // The newest structure only has more at its end.
            let params: CUDA_KERNEL_NODE_PARAMS = value(params)?;
            let around = Surroundings::of(call);
            add(call, node, graph, after, |state| node_kind(state, &params, around))
        }
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY => {
            let params: CUDA_MEMCPY_NODE_PARAMS = value(params)?;
            add(call, node, graph, after, |state| copy_kind(state, &params.copyParams))
        }
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET => {
            let params: CUDA_MEMSET_NODE_PARAMS = value(params)?;
            add(call, node, graph, after, |state| set_kind(state, &params))
        }
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST => {
            let params: CUDA_HOST_NODE_PARAMS = value(params)?;
            add(call, node, graph, after, |_| host_kind(&params))
        }
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH => {
            let params: CUDA_CHILD_GRAPH_NODE_PARAMS = value(params)?;
            add_child(call, node, graph, dependencies, count, Ptr::from_params(params.graph))
        }
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY => add_empty(call, node, graph, dependencies, count),
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT => {
            // Both structures of events hold the event alone.
            let params: CUDA_EVENT_RECORD_NODE_PARAMS = value(params)?;
            add_event_wait(call, node, graph, dependencies, count, Ptr::from_params(params.event))
        }
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
            let params: CUDA_EVENT_RECORD_NODE_PARAMS = value(params)?;
            add_event_record(call, node, graph, dependencies, count, Ptr::from_params(params.event))
        }
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL => add_conditional(call, node, graph, after, params),
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
        | CUgraphNodeType::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT
        | CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC
        | CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE
        | CUgraphNodeType::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

pub(crate) fn add_any_v2(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    edges: Ptr<CUgraphEdgeData>,
    count: usize,
    params: Ptr<CUgraphNodeParams>,
) -> Answer {
    super::graph::read_plain_edges(edges, count)?;
    add_any(call, node, graph, dependencies, count, params)
}

fn add_conditional(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    after: (Ptr<CUgraphNode>, usize),
    params: Ptr<CUgraphNodeParams>,
) -> Answer {
    let params = params.cast::<Tagged<CUDA_CONDITIONAL_NODE_PARAMS>>();
    let mut told = params.read()?;
    let kind = check(call, graph.address(), &told.value)?;
    let bodies: Vec<GraphId> = (0..told.value.size).map(|_| GraphId(call.new_handle())).collect();
    let made: Conditional<Graph> = Conditional::new(told.value.handle, kind, &bodies);
    told.value.phGraph_out = host_pointer(made.handles.as_ptr().expose_provenance() as u64).cast();
    add(call, node, graph, after, |_| Ok(NodeKind::Conditional(made)))?;
    params.write(told)
}

fn check(state: &State, graph: u64, params: &CUDA_CONDITIONAL_NODE_PARAMS) -> Answer<ConditionalKind> {
    let kind = ConditionalKind::from_raw(params.type_).ok_or(INVALID_VALUE)?;
    let several = state.config.driver_version.0 >= SEVERAL_BODIES;
    let fits = match kind {
        ConditionalKind::If => params.size == 1 || params.size == 2 && several,
        ConditionalKind::While => params.size == 1,
        ConditionalKind::Switch => several && (1..=BODIES_MAX).contains(&params.size),
    };
    let condition = state.conditions.get(&params.handle).ok_or(INVALID_VALUE)?;
    if !fits || condition.context != state.home_of(params.ctx.addr() as u64) {
        return Err(INVALID_VALUE);
    }
    state.whole_graph(graph)?.check_condition(params.handle)?;
    Ok(kind)
}

pub(crate) fn create_condition(
    call: &mut Call<'_>,
    condition: Ptr<u64>,
    graph: Ptr<CUgraph_st>,
    context: Ptr<CUctx_st>,
    default: u32,
    flags: u32,
) -> Answer {
    condition.required()?;
    call.graph(graph.address())?;
    let context = call.home_of(context.address());
    if flags > ASSIGN_DEFAULT || !call.contexts.contains_key(&context) {
        return Err(INVALID_VALUE);
    }
    let made = call.new_handle();
    call.conditions.insert(made, Condition { context, value: 0 });
    call.graph_mut(graph.address())?.add_condition(made, (flags == ASSIGN_DEFAULT).then_some(default));
    condition.write(made)
}
