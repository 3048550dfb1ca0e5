//! Conditional nodes: conditions, bodies, what their default values make of them, and kernels that set conditions.

use super::prelude::*;
use super::ptx::ONE;

cases!("conditional", CASES, Needs::CONTEXT.since(12030);
    bodies_are_graphs_of_the_node, an_if_body_runs_by_the_default_value, a_body_can_be_captured,
    unknown_kinds_of_conditions, a_kernel_sets_a_condition, a_loop_comes_to_its_end,
    conditions_need_a_graph,
);

cases!("conditional", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT.since(12030) };
    an_unused_condition, kinds_that_are_not_simulated, kernel_nodes_of_nothing, bodies_hold_device_work_only,
    conditional_graphs_are_not_added,
);

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`.
const ASSIGN_DEFAULT: u32 = 1;

const IF: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF;
const WHILE: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;

/// Sets a condition to a word in memory, and takes one from that word before.
const COUNT_DOWN: &str = ".version 7.8\n.target sm_75\n.address_size 64\n\
    .extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n\
    .visible .entry k(.param .u64 word, .param .u64 condition)\n{\n\
    .reg .b64 %d<2>;\n.reg .b32 %r<1>;\n.param .b64 handle_given;\n.param .b32 value_given;\n\
    ld.param.u64 %d0, [word];\nld.param.u64 %d1, [condition];\n\
    ld.global.u32 %r0, [%d0];\nsub.u32 %r0, %r0, 1;\nst.global.u32 [%d0], %r0;\n\
    st.param.b64 [handle_given], %d1;\nst.param.b32 [value_given], %r0;\n\
    call.uni cudaGraphSetConditional, (handle_given, value_given);\nret;\n}\n";

fn condition(cu: &Cuda<'_>, graph: CUgraph, default: u32) -> CaseResult<CUgraphConditionalHandle> {
    let mut condition = 0;
    ok!(cu.cuGraphConditionalHandleCreate(&mut condition, graph, cu.current()?, default, ASSIGN_DEFAULT));
    Ok(condition)
}

fn params(
    cu: &Cuda<'_>,
    condition: CUgraphConditionalHandle,
    kind: CUgraphConditionalNodeType,
) -> CaseResult<CUgraphNodeParams> {
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.__bindgen_anon_1.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
        handle: condition,
        type_: kind,
        size: 1,
        phGraph_out: ptr::null_mut(),
        ctx: cu.current()?,
    };
    Ok(params)
}

/// A conditional node after others, and its body.
fn add(
    cu: &Cuda<'_>,
    graph: CUgraph,
    after: &[CUgraphNode],
    condition: CUgraphConditionalHandle,
    kind: CUgraphConditionalNodeType,
) -> CaseResult<(CUgraphNode, CUgraph)> {
    let (mut node, mut params) = (ptr::null_mut(), params(cu, condition, kind)?);
    ok!(cu.cuGraphAddNode_v2(&mut node, graph, after.as_ptr(), ptr::null(), after.len(), &mut params));
    // SAFETY: the driver wrote the parameters of a conditional node.
    let bodies = unsafe { params.__bindgen_anon_1.conditional }.phGraph_out;
    // SAFETY: its array has one graph and lives as long as the node.
    Ok((node, unsafe { *bodies }))
}

fn launch(cu: &Cuda<'_>, graph: CUgraph) -> CaseResult {
    let (exec, stream) = (cu.instantiate(graph)?, cu.stream()?);
    for _ in 0..2 {
        ok!(cu.cuGraphLaunch(exec, stream));
        ok!(cu.cuStreamSynchronize(stream));
    }
    Ok(())
}

fn bodies_are_graphs_of_the_node(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.filled(64, 0)?);
    let (node, body) = add(cu, graph, &[], condition(cu, graph, 1)?, IF)?;
    let mut kind = CUgraphNodeType(0);
    ok!(cu.cuGraphNodeGetType(node, &mut kind));
    same!(cu, kind, CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL);
    same!(cu, cu.nodes(body)?.len(), 0);
    cu.set_node(body, &[], &line_set(device, 4, 64))?;
    same!(cu, (cu.nodes(body)?.len(), cu.nodes(graph)?.len()), (1, 1));
    Ok(())
}

fn an_if_body_runs_by_the_default_value(cu: &Cuda<'_>) -> CaseResult {
    for (default, expected) in [(0, 1), (1, 2)] {
        let (graph, device) = (cu.graph()?, cu.filled(64, 0)?);
        let first = cu.set_node(graph, &[], &line_set(device, 1, 64))?;
        let (_, body) = add(cu, graph, &[first], condition(cu, graph, default)?, IF)?;
        cu.set_node(body, &[], &line_set(device, 2, 64))?;
        launch(cu, graph)?;
        same!(cu, cu.read(device, 64)?, vec![expected; 64]);
    }
    Ok(())
}

fn a_body_can_be_captured(cu: &Cuda<'_>) -> CaseResult {
    let (stream, side, device) = (cu.stream()?, cu.stream()?, cu.filled(64, 0)?);
    cu.begin(stream, CUstreamCaptureMode(0))?;
    ok!(cu.cuMemsetD8Async(device, 1, 64, stream));
    let (mut status, mut id) = (CUstreamCaptureStatus(0), 0);
    let (mut graph, mut nodes, mut count) = (ptr::null_mut(), ptr::null(), 0);
    ok!(cu.cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count));
    same!(cu, count, 1);
    // SAFETY: the driver's array has one node until the stream is used again.
    let after = unsafe { *nodes };
    let (mut node, body) = add(cu, graph, &[after], condition(cu, graph, 1)?, IF)?;
    ok!(cu.cuStreamUpdateCaptureDependencies_v2(stream, &mut node, ptr::null(), 1, 1));
    let relaxed = CUstreamCaptureMode(2);
    ok!(cu.cuStreamBeginCaptureToGraph(side, body, ptr::null(), ptr::null(), 0, relaxed));
    ok!(cu.cuMemsetD8Async(device, 2, 32, side));
    let mut ended = ptr::null_mut();
    ok!(cu.cuStreamEndCapture(side, &mut ended));
    same!(cu, ended, body);
    ok!(cu.cuMemsetD8Async(device + 16, 3, 8, stream));
    let graph = cu.end(stream)?;
    same!(cu, (cu.nodes(graph)?.len(), cu.edges(graph)?.len()), (3, 2));
    launch(cu, graph)?;
    same!(cu, cu.read(device, 64)?, [vec![2; 16], vec![3; 8], vec![2; 8], vec![1; 32]].concat());
    Ok(())
}

fn unknown_kinds_of_conditions(cu: &Cuda<'_>) -> CaseResult {
    let (graph, mut node) = (cu.graph()?, ptr::null_mut());
    let mut params = params(cu, 0, CUgraphConditionalNodeType(77))?;
    want!(INVALID_VALUE, cu.cuGraphAddNode(&mut node, graph, ptr::null(), 0, &mut params));
    want!(INVALID_VALUE, cu.cuGraphAddNode_v2(&mut node, graph, ptr::null(), ptr::null(), 0, &mut params));
    Ok(())
}

/// A graph with one word that a kernel counts down, and the condition that it is made of the word.
fn counting(cu: &Cuda<'_>, start: u8, kind: CUgraphConditionalNodeType) -> CaseResult<(CUgraph, CUdeviceptr)> {
    let (graph, device) = (cu.graph()?, cu.filled(64, 0)?);
    let function = cu.function(COUNT_DOWN)?;
    let condition = condition(cu, graph, 1)?;
    let (mut word, mut handle) = (device, condition);
    let mut pointers = [ptr::from_mut(&mut word).cast::<c_void>(), ptr::from_mut(&mut handle).cast()];
    let [x, y, z] = ONE;
    let kernel = CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: x,
        blockDimY: y,
        blockDimZ: z,
        kernelParams: pointers.as_mut_ptr(),
        ..CUDA_KERNEL_NODE_PARAMS::zeroed()
    };
    let first = cu.set_node(graph, &[], &line_set(device, start, 1))?;
    let mut node = ptr::null_mut();
    if kind == WHILE {
        let (_, body) = add(cu, graph, &[first], condition, kind)?;
        let marked = cu.set_node(body, &[], &line_set(device + 32, 9, 32))?;
        ok!(cu.cuGraphAddKernelNode_v2(&mut node, body, &marked, 1, &kernel));
    } else {
        ok!(cu.cuGraphAddKernelNode_v2(&mut node, graph, &first, 1, &kernel));
        let (_, body) = add(cu, graph, &[node], condition, kind)?;
        cu.set_node(body, &[], &line_set(device + 32, 9, 32))?;
    }
    Ok((graph, device))
}

fn a_kernel_sets_a_condition(cu: &Cuda<'_>) -> CaseResult {
    for (start, expected) in [(1, 0), (2, 9)] {
        let (graph, device) = counting(cu, start, IF)?;
        launch(cu, graph)?;
        same!(cu, cu.read(device + 32, 32)?, vec![expected; 32]);
    }
    Ok(())
}

fn a_loop_comes_to_its_end(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = counting(cu, 5, WHILE)?;
    launch(cu, graph)?;
    same!(cu, cu.read(device, 4)?, vec![0; 4]);
    same!(cu, cu.read(device + 32, 32)?, vec![9; 32]);
    Ok(())
}

fn conditions_need_a_graph(cu: &Cuda<'_>) -> CaseResult {
    let mut condition = 0;
    want!(INVALID_VALUE, cu.cuGraphConditionalHandleCreate(&mut condition, ptr::null_mut(), cu.current()?, 1, 1));
    want!(INVALID_VALUE, cu.cuGraphConditionalHandleCreate(&mut condition, cu.graph()?, cu.current()?, 1, 1 << 20));
    Ok(())
}

fn conditional_graphs_are_not_added(cu: &Cuda<'_>) -> CaseResult {
    let (graph, parent) = (cu.graph()?, cu.graph()?);
    add(cu, graph, &[], condition(cu, graph, 1)?, IF)?;
    let (mut clone, mut node) = (ptr::null_mut(), ptr::null_mut());
    want!(NOT_SUPPORTED, cu.cuGraphClone(&mut clone, graph));
    want!(NOT_SUPPORTED, cu.cuGraphAddChildGraphNode(&mut node, parent, ptr::null(), 0, graph));
    Ok(())
}

fn an_unused_condition(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let condition = condition(cu, graph, 1)?;
    let mut exec = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    let mut told = CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed();
    want!(INVALID_VALUE, cu.cuGraphInstantiateWithParams(&mut exec, graph, &mut told));
    same!(cu, told.result_out, CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    add(cu, graph, &[], condition, IF)?;
    let (mut node, mut again) = (ptr::null_mut(), params(cu, condition, IF)?);
    want!(INVALID_VALUE, cu.cuGraphAddNode(&mut node, graph, ptr::null(), 0, &mut again));
    launch(cu, graph)
}

fn kinds_that_are_not_simulated(cu: &Cuda<'_>) -> CaseResult {
    let (graph, mut node) = (cu.graph()?, ptr::null_mut());
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    want!(NOT_SUPPORTED, cu.cuGraphAddNode(&mut node, graph, ptr::null(), 0, &mut params));
    want!(NOT_SUPPORTED, cu.cuGraphAddNode_v2(&mut node, graph, ptr::null(), ptr::null(), 0, &mut params));
    Ok(())
}

fn kernel_nodes_of_nothing(cu: &Cuda<'_>) -> CaseResult {
    let (graph, mut node) = (cu.graph()?, ptr::null_mut());
    let mut params = CUgraphNodeParams::zeroed();
    params.__bindgen_anon_1.kernel.func = ptr::without_provenance_mut(0xDEAD_BEE8);
    want!(INVALID_HANDLE, cu.cuGraphAddNode(&mut node, graph, ptr::null(), 0, &mut params));
    want!(INVALID_HANDLE, cu.cuGraphAddNode_v2(&mut node, graph, ptr::null(), ptr::null(), 0, &mut params));
    Ok(())
}

fn bodies_hold_device_work_only(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (_, body) = add(cu, graph, &[], condition(cu, graph, 1)?, IF)?;
    cu.host_node(body, &[], counter())?;
    let mut exec = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    Ok(())
}
