//! Executable graphs: instantiation, launch, changed parameters, update.

use cuda_sys::CUresult;

use super::capture::RELAXED;
use super::graph::{alloc_node, child_node, free_node, kind, launch, record_node, row, run, set_params, wait_node};
use super::prelude::*;

cases!("exec", CASES, Needs::CONTEXT;
    instantiate_with_flags, instantiate_with_unknown_flags, instantiate_with_parameters, flags_of_launches_from_the_device, upload_at_instantiation,
    upload_into_a_capture, instantiate_an_empty_graph,
    exec_flags, launch_in_order, launch_on_default_streams, launch_twice_is_ordered,
    launch_waits_for_the_stream, upload_then_launch, exec_outlives_the_graph, destroy_exec_while_running,
    exec_set_parameters, exec_copy_parameters, exec_host_parameters, exec_child_parameters,
    exec_event, exec_parameters_are_checked, update_succeeds, update_topology_changed,
    update_kind_changed, update_parameters_changed, update_more_nodes, update_old_interface,
    update_null, enable_and_disable, enable_wrong_kind, debug_dot,
    debug_dot_to_nowhere, add_node_interface, add_node_v2_interface, add_node_unknown_kind,
    node_set_params, exec_node_set_params, diamond_runs, large_graph,
    memory_attributes, kernel_nodes_need_a_function, alloc_node_parameters, exec_of_alloc_may_not_run_twice,
    destroy_null_handles, user_objects_null,
);

/// A graph with a node that kernels may launch.
fn set_graph(cu: &Cuda<'_>) -> CaseResult<CUgraph> {
    let (graph, memory) = (cu.graph()?, cu.filled(64, 0)?);
    cu.set_node(graph, &[], &line_set(memory, 1, 64))?;
    Ok(graph)
}

fn instantiate_with_flags(cu: &Cuda<'_>) -> CaseResult {
    let graph = set_graph(cu)?;
    for flags in [0, 1, 4, 8, 9, 12] {
        let mut exec = ptr::null_mut();
        ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, flags));
        cu.later(Cleanup::Exec(exec));
    }
    Ok(())
}

fn instantiate_with_unknown_flags(cu: &Cuda<'_>) -> CaseResult {
    let graph = set_graph(cu)?;
    // No stream to upload on, freeing on launch from a device, and flags that nobody knows.
    for flags in [2, 3, 6, 5, 7, 13, 15, 16, 32, 1 << 20, 1 << 32] {
        let mut exec = ptr::dangling_mut();
        want!(INVALID_VALUE, cu.cuGraphInstantiateWithFlags(&mut exec, graph, flags));
        same!(cu, exec, ptr::dangling_mut());
    }
    for flags in [5, 7, 15, 16, 1 << 32] {
        let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS { flags, ..CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed() };
        want!(INVALID_VALUE, cu.cuGraphInstantiateWithParams(&mut ptr::null_mut(), graph, &mut params));
        same!(cu, params.result_out, CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR);
        that!(cu, params.hErrNode_out.is_null());
    }
    Ok(())
}

/// What a graph comes to that is to be launched from the device: the result, and whether the node is named.
fn for_the_device(cu: &Cuda<'_>, graph: CUgraph, node: CUgraphNode) -> CaseResult<(CUgraphInstantiateResult, bool)> {
    let (mut exec, mut params) = (ptr::null_mut(), CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed());
    params.flags = 4;
    let status = status!(cu.cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
    if status == CUresult::CUDA_SUCCESS {
        cu.later(Cleanup::Exec(exec));
    }
    let good = params.result_out == CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS;
    same!(cu, status == CUresult::CUDA_SUCCESS, good);
    Ok((params.result_out, params.hErrNode_out == node))
}

fn flags_of_launches_from_the_device(cu: &Cuda<'_>) -> CaseResult {
    let (success, refused) = (
        CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS,
        CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED,
    );
    let (memory, pinned) = (cu.filled(64, 0)?, cu.pinned(64)?);
    let set = set_graph(cu)?;
    same!(cu, for_the_device(cu, set, ptr::null_mut())?, (success, true));
    let copy = cu.graph()?;
    cu.copy_node(copy, &[], &line_copy(memory, pinned.device(), 64))?;
    same!(cu, for_the_device(cu, copy, ptr::null_mut())?, (success, true));
    let parent = cu.graph()?;
    child_node(cu, parent, &[], set)?;
    same!(cu, for_the_device(cu, parent, ptr::null_mut())?, (success, true));
    let empty = cu.graph()?;
    let node = cu.empty_node(empty, &[])?;
    same!(cu, for_the_device(cu, empty, node)?, (refused, true));
    let host = cu.graph()?;
    let node = cu.host_node(host, &[], counter())?;
    same!(cu, for_the_device(cu, host, node)?, (refused, true));
    let ordinary = [0_u8; 64];
    let params = CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: ordinary.as_ptr().cast(),
        ..line_copy(memory, 0, 64)
    };
    let pageable = cu.graph()?;
    let node = cu.copy_node(pageable, &[], &params)?;
    same!(cu, for_the_device(cu, pageable, node)?, (refused, true));
    let nothing = cu.graph()?;
    let wrong = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR;
    same!(cu, for_the_device(cu, nothing, ptr::null_mut())?, (wrong, true));
    Ok(())
}

fn upload_at_instantiation(cu: &Cuda<'_>) -> CaseResult {
    let (graph, stream) = (set_graph(cu)?, cu.stream()?);
    for (flags, kept) in [(2, 0), (3, 1), (6, 4), (10, 0), (14, 4)] {
        for stream in [stream, DEFAULT, LEGACY, PER_THREAD] {
            let (mut exec, mut told) = (ptr::null_mut(), 77);
            let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
                flags,
                hUploadStream: stream,
                ..CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed()
            };
            ok!(cu.cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
            cu.later(Cleanup::Exec(exec));
            ok!(cu.cuGraphExecGetFlags(exec, &mut told));
            same!(cu, (flags, told), (flags, kept));
        }
    }
    ok!(cu.cuCtxSynchronize());
    Ok(())
}

fn upload_into_a_capture(cu: &Cuda<'_>) -> CaseResult {
    let (graph, stream, mut exec) = (row(cu)?.0, cu.stream()?, ptr::dangling_mut());
    let mut params =
        CUDA_GRAPH_INSTANTIATE_PARAMS { flags: 2, hUploadStream: stream, ..CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed() };
    cu.begin(stream, RELAXED)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
    same!(cu, exec, ptr::dangling_mut());
    same!(cu, params.result_out, CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR);
    want!(STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &mut ptr::null_mut()));
    Ok(())
}

fn instantiate_with_parameters(cu: &Cuda<'_>) -> CaseResult {
    let (graph, _) = row(cu)?;
    let (mut exec, mut params) = (ptr::null_mut(), CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed());
    ok!(cu.cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
    cu.later(Cleanup::Exec(exec));
    same!(cu, params.result_out, CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS);
    params.flags = 1 << 20;
    want!(INVALID_VALUE, cu.cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
    Ok(())
}

fn instantiate_an_empty_graph(cu: &Cuda<'_>) -> CaseResult {
    run(cu, cu.graph()?)?;
    Ok(())
}

fn exec_flags(cu: &Cuda<'_>) -> CaseResult {
    let graph = set_graph(cu)?;
    // The priorities of nodes are used, and not told of.
    for (asked, kept) in [(0, 0), (1, 1), (4, 4), (8, 0), (9, 1), (12, 4)] {
        let (mut exec, mut flags) = (ptr::null_mut(), 77);
        ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, asked));
        cu.later(Cleanup::Exec(exec));
        ok!(cu.cuGraphExecGetFlags(exec, &mut flags));
        same!(cu, flags, kept);
    }
    Ok(())
}

fn launch_in_order(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.filled(64, 0)?);
    let mut last = Vec::new();
    for value in 1..=10 {
        last = vec![cu.set_node(graph, &last, &line_set(device, value, 64))?];
    }
    run(cu, graph)?;
    same!(cu, cu.read(device, 64)?, vec![10; 64]);
    Ok(())
}

fn launch_on_default_streams(cu: &Cuda<'_>) -> CaseResult {
    let (graph, count) = (cu.graph()?, counter());
    cu.host_node(graph, &[], count)?;
    let exec = cu.instantiate(graph)?;
    for stream in [DEFAULT, LEGACY, PER_THREAD] {
        ok!(cu.cuGraphLaunch(exec, stream));
        ok!(cu.cuStreamSynchronize(stream));
    }
    same!(cu, count.load(Ordering::SeqCst), 3);
    Ok(())
}

fn launch_twice_is_ordered(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device, first, second) = (cu.graph()?, cu.filled(64, 0)?, cu.stream()?, cu.stream()?);
    cu.set_node(graph, &[], &line_set(device, 1, 64))?;
    let exec = cu.instantiate(graph)?;
    let gate = cu.hold(first)?;
    ok!(cu.cuGraphLaunch(exec, first));
    ok!(cu.cuGraphLaunch(exec, second));
    // One executable graph does not run beside itself.
    want!(NOT_READY, cu.cuStreamQuery(second));
    gate.open();
    ok!(cu.cuStreamSynchronize(second));
    same!(cu, cu.read(device, 64)?, vec![1; 64]);
    Ok(())
}

fn launch_waits_for_the_stream(cu: &Cuda<'_>) -> CaseResult {
    let (graph, from, to, stream) = (cu.graph()?, cu.filled(64, 0)?, cu.filled(64, 0)?, cu.stream()?);
    cu.copy_node(graph, &[], &line_copy(to, from, 64))?;
    let exec = cu.instantiate(graph)?;
    let gate = cu.hold(stream)?;
    ok!(cu.cuMemsetD8Async(from, 7, 64, stream));
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuMemsetD8Async(from, 1, 64, stream));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(to, 64)?, vec![7; 64]);
    Ok(())
}

fn upload_then_launch(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device, stream) = (cu.graph()?, cu.filled(64, 0)?, cu.stream()?);
    cu.set_node(graph, &[], &line_set(device, 8, 64))?;
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphUpload(exec, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 1)?, vec![0]);
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 1)?, vec![8]);
    Ok(())
}

fn exec_outlives_the_graph(cu: &Cuda<'_>) -> CaseResult {
    let (mut graph, device) = (ptr::null_mut(), cu.filled(64, 0)?);
    ok!(cu.cuGraphCreate(&mut graph, 0));
    cu.set_node(graph, &[], &line_set(device, 4, 64))?;
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphDestroy(graph));
    launch(cu, exec)?;
    same!(cu, cu.read(device, 64)?, vec![4; 64]);
    Ok(())
}

fn destroy_exec_while_running(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device, stream, mut exec) = (cu.graph()?, cu.filled(64, 0)?, cu.stream()?, ptr::null_mut());
    cu.set_node(graph, &[], &line_set(device, 4, 64))?;
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuGraphExecDestroy(exec));
    same!(cu, cu.read(device, 64)?, vec![4; 64]);
    Ok(())
}

fn exec_set_parameters(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device, context) = (cu.graph()?, cu.filled(64, 0)?, cu.current()?);
    let node = cu.set_node(graph, &[], &line_set(device, 1, 64))?;
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphExecMemsetNodeSetParams(exec, node, &line_set(device, 2, 64), context));
    launch(cu, exec)?;
    same!(cu, cu.read(device, 64)?, vec![2; 64]);
    same!(cu, set_params(cu, node)?.value, 1);
    Ok(())
}

fn exec_copy_parameters(cu: &Cuda<'_>) -> CaseResult {
    let (graph, from, to, context) = (cu.graph()?, cu.counted(64)?, cu.filled(64, 0)?, cu.current()?);
    let node = cu.copy_node(graph, &[], &line_copy(to, from, 4))?;
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphExecMemcpyNodeSetParams(exec, node, &line_copy(to, from + 20, 4), context));
    launch(cu, exec)?;
    same!(cu, cu.read(to, 5)?, vec![20, 21, 22, 23, 0]);
    Ok(())
}

fn exec_host_parameters(cu: &Cuda<'_>) -> CaseResult {
    let (graph, first, second) = (cu.graph()?, counter(), counter());
    let node = cu.host_node(graph, &[], first)?;
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphExecHostNodeSetParams(
        exec,
        node,
        &CUDA_HOST_NODE_PARAMS { fn_: Some(raise), userData: data(second) }
    ));
    launch(cu, exec)?;
    same!(cu, (first.load(Ordering::SeqCst), second.load(Ordering::SeqCst)), (0, 1));
    Ok(())
}

fn exec_child_parameters(cu: &Cuda<'_>) -> CaseResult {
    let (graph, child, other, device) = (cu.graph()?, cu.graph()?, cu.graph()?, cu.filled(64, 0)?);
    cu.set_node(child, &[], &line_set(device, 1, 64))?;
    cu.set_node(other, &[], &line_set(device, 2, 64))?;
    let node = child_node(cu, graph, &[], child)?;
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphExecChildGraphNodeSetParams(exec, node, other));
    launch(cu, exec)?;
    same!(cu, cu.read(device, 64)?, vec![2; 64]);
    Ok(())
}

fn exec_event(cu: &Cuda<'_>) -> CaseResult {
    let (graph, event, other) = (cu.graph()?, cu.event()?, cu.event()?);
    let (record, wait) = (record_node(cu, graph, &[], event)?, wait_node(cu, graph, &[], event)?);
    let exec = cu.instantiate(graph)?;
    want!(SUCCESS, cu.cuGraphExecEventRecordNodeSetEvent(exec, record, other));
    want!(SUCCESS, cu.cuGraphExecEventWaitNodeSetEvent(exec, wait, other));
    launch(cu, exec)
}

fn exec_parameters_are_checked(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device, context) = (cu.graph()?, cu.filled(64, 0)?, cu.current()?);
    let node = cu.set_node(graph, &[], &line_set(device, 1, 64))?;
    let late_exec = cu.instantiate(graph)?;
    let late = cu.set_node(graph, &[], &line_set(device, 1, 64))?;
    want!(INVALID_VALUE, cu.cuGraphExecMemsetNodeSetParams(late_exec, late, &line_set(device, 2, 64), context));
    want!(INVALID_VALUE, cu.cuGraphExecMemcpyNodeSetParams(late_exec, node, &line_copy(device, device, 4), context));
    let bad = CUDA_MEMSET_NODE_PARAMS { elementSize: 3, ..line_set(device, 2, 64) };
    want!(INVALID_VALUE, cu.cuGraphExecMemsetNodeSetParams(late_exec, node, &bad, context));
    Ok(())
}

/// Updates an executable graph: the call's status and the driver's result.
fn update(cu: &Cuda<'_>, exec: CUgraphExec, graph: CUgraph) -> CaseResult<(CUresult, CUgraphExecUpdateResult)> {
    let mut info = CUgraphExecUpdateResultInfo::zeroed();
    let status = status!(cu.cuGraphExecUpdate_v2(exec, graph, &mut info));
    Ok((status, info.result))
}

const UPDATE_FAILURE: CUresult = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;

fn update_succeeds(cu: &Cuda<'_>) -> CaseResult {
    let (graph, other, device) = (cu.graph()?, cu.graph()?, cu.filled(64, 0)?);
    cu.set_node(graph, &[], &line_set(device, 1, 64))?;
    cu.set_node(other, &[], &line_set(device, 2, 64))?;
    let exec = cu.instantiate(graph)?;
    same!(
        cu,
        update(cu, exec, other)?,
        (CUresult::CUDA_SUCCESS, CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS)
    );
    launch(cu, exec)?;
    same!(cu, cu.read(device, 64)?, vec![2; 64]);
    Ok(())
}

fn update_topology_changed(cu: &Cuda<'_>) -> CaseResult {
    let (graph, _) = row(cu)?;
    let exec = cu.instantiate(graph)?;
    let other = cu.graph()?;
    for _ in 0..3 {
        cu.empty_node(other, &[])?;
    }
    let changed = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    same!(cu, update(cu, exec, other)?, (UPDATE_FAILURE, changed));
    Ok(())
}

fn update_more_nodes(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    let exec = cu.instantiate(graph)?;
    cu.empty_node(graph, &[made[2]])?;
    let changed = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    same!(cu, update(cu, exec, graph)?, (UPDATE_FAILURE, changed));
    launch(cu, exec)
}

fn update_kind_changed(cu: &Cuda<'_>) -> CaseResult {
    let (graph, other, device) = (cu.graph()?, cu.graph()?, cu.filled(64, 0)?);
    cu.set_node(graph, &[], &line_set(device, 1, 64))?;
    cu.copy_node(other, &[], &line_copy(device, device + 32, 8))?;
    let exec = cu.instantiate(graph)?;
    let changed = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    same!(cu, update(cu, exec, other)?, (UPDATE_FAILURE, changed));
    Ok(())
}

fn update_parameters_changed(cu: &Cuda<'_>) -> CaseResult {
    let (graph, other, device, pinned) = (cu.graph()?, cu.graph()?, cu.filled(64, 0)?, cu.pinned(64)?);
    cu.copy_node(graph, &[], &line_copy(device, device + 32, 8))?;
    let host = CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: pinned.host().cast_const(),
        ..line_copy(device, 0, 8)
    };
    cu.copy_node(other, &[], &host)?;
    let exec = cu.instantiate(graph)?;
    let changed = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    same!(cu, update(cu, exec, other)?, (UPDATE_FAILURE, changed));
    Ok(())
}

fn update_old_interface(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    let exec = cu.instantiate(graph)?;
    let (mut node, mut result) = (ptr::null_mut(), CUgraphExecUpdateResult(77));
    want!(SUCCESS, cu.cuGraphExecUpdate(exec, graph, &mut node, &mut result));
    same!(cu, (node.is_null(), result.0), (true, 0));
    cu.empty_node(graph, &[made[2]])?;
    want!(GRAPH_EXEC_UPDATE_FAILURE, cu.cuGraphExecUpdate(exec, graph, &mut node, &mut result));
    // The old interface calls a changed topology "not supported".
    same!(cu, result, CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
    Ok(())
}

fn update_null(cu: &Cuda<'_>) -> CaseResult {
    let (graph, _) = row(cu)?;
    let exec = cu.instantiate(graph)?;
    let mut info = CUgraphExecUpdateResultInfo::zeroed();
    want!(INVALID_VALUE, cu.cuGraphExecUpdate_v2(exec, ptr::null_mut(), &mut info));
    want!(SUCCESS, cu.cuGraphExecUpdate_v2(exec, graph, ptr::null_mut()));
    Ok(())
}

fn enable_and_disable(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.filled(64, 0)?);
    let node = cu.set_node(graph, &[], &line_set(device, 1, 64))?;
    let exec = cu.instantiate(graph)?;
    let mut enabled = 77;
    ok!(cu.cuGraphNodeGetEnabled(exec, node, &mut enabled));
    same!(cu, enabled, 1);
    ok!(cu.cuGraphNodeSetEnabled(exec, node, 0));
    ok!(cu.cuGraphNodeGetEnabled(exec, node, &mut enabled));
    same!(cu, enabled, 0);
    launch(cu, exec)?;
    same!(cu, cu.read(device, 64)?, vec![0; 64]);
    ok!(cu.cuGraphNodeSetEnabled(exec, node, 1));
    launch(cu, exec)?;
    same!(cu, cu.read(device, 64)?, vec![1; 64]);
    Ok(())
}

fn enable_wrong_kind(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    let exec = cu.instantiate(graph)?;
    let mut enabled = 77;
    want!(INVALID_VALUE, cu.cuGraphNodeSetEnabled(exec, made[0], 0));
    want!(INVALID_VALUE, cu.cuGraphNodeGetEnabled(exec, made[0], &mut enabled));
    Ok(())
}

fn debug_dot(cu: &Cuda<'_>) -> CaseResult {
    let (graph, _) = row(cu)?;
    let path = std::env::temp_dir().join(format!("conformance-{}.dot", std::process::id()));
    let name = std::ffi::CString::new(path.to_string_lossy().into_owned())
        .map_err(|_| Stop::Failed("a path with a zero in it".to_owned()))?;
    ok!(cu.cuGraphDebugDotPrint(graph, name.as_ptr(), 1));
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    that!(cu, text.starts_with("digraph") && text.contains("->"));
    Ok(())
}

fn debug_dot_to_nowhere(cu: &Cuda<'_>) -> CaseResult {
    let (graph, _) = row(cu)?;
    want!(OPERATING_SYSTEM, cu.cuGraphDebugDotPrint(graph, c"/no/such/folder/graph.dot".as_ptr(), 0));
    Ok(())
}

/// Parameters of a set, as the general interface takes them.
fn general_set(cu: &Cuda<'_>, device: CUdeviceptr, value: u8) -> CaseResult<CUgraphNodeParams> {
    let plain = line_set(device, value, 64);
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET;
    params.__bindgen_anon_1.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
        dst: plain.dst,
        pitch: plain.pitch,
        value: plain.value,
        elementSize: plain.elementSize,
        width: plain.width,
        height: plain.height,
        ctx: cu.current()?,
    };
    Ok(params)
}

fn add_node_interface(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device, mut node) = (cu.graph()?, cu.filled(64, 0)?, ptr::null_mut());
    let mut params = general_set(cu, device, 6)?;
    ok!(cu.cuGraphAddNode(&mut node, graph, ptr::null(), 0, &mut params));
    same!(cu, kind(cu, node)?, 2);
    run(cu, graph)?;
    same!(cu, cu.read(device, 64)?, vec![6; 64]);
    Ok(())
}

fn add_node_v2_interface(cu: &Cuda<'_>) -> CaseResult {
    let (graph, mut node) = (cu.graph()?, ptr::null_mut());
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    let first = cu.empty_node(graph, &[])?;
    ok!(cu.cuGraphAddNode_v2(&mut node, graph, &first, ptr::null(), 1, &mut params));
    same!(cu, cu.shape(graph)?, "empty empty | empty->empty");
    Ok(())
}

fn add_node_unknown_kind(cu: &Cuda<'_>) -> CaseResult {
    let (graph, mut node) = (cu.graph()?, ptr::null_mut());
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = CUgraphNodeType(99);
    want!(INVALID_VALUE, cu.cuGraphAddNode(&mut node, graph, ptr::null(), 0, &mut params));
    want!(INVALID_VALUE, cu.cuGraphAddNode_v2(&mut node, graph, ptr::null(), ptr::null(), 0, &mut params));
    Ok(())
}

fn node_set_params(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.filled(64, 0)?);
    let node = cu.set_node(graph, &[], &line_set(device, 1, 64))?;
    let mut params = general_set(cu, device, 9)?;
    ok!(cu.cuGraphNodeSetParams(node, &mut params));
    same!(cu, set_params(cu, node)?.value, 9);
    params.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST;
    want!(INVALID_VALUE, cu.cuGraphNodeSetParams(node, &mut params));
    Ok(())
}

fn exec_node_set_params(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.filled(64, 0)?);
    let node = cu.set_node(graph, &[], &line_set(device, 1, 64))?;
    let exec = cu.instantiate(graph)?;
    let mut params = general_set(cu, device, 9)?;
    ok!(cu.cuGraphExecNodeSetParams(exec, node, &mut params));
    launch(cu, exec)?;
    same!(cu, cu.read(device, 64)?, vec![9; 64]);
    Ok(())
}

fn diamond_runs(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device, count) = (cu.graph()?, cu.filled(64, 0)?, counter());
    let top = cu.set_node(graph, &[], &line_set(device, 1, 64))?;
    let left = cu.copy_node(graph, &[top], &line_copy(device + 16, device, 16))?;
    let right = cu.host_node(graph, &[top], count)?;
    cu.set_node(graph, &[left, right], &line_set(device + 32, 2, 16))?;
    run(cu, graph)?;
    same!(cu, (cu.read(device + 16, 32)?, count.load(Ordering::SeqCst)), ([vec![1; 16], vec![2; 16]].concat(), 1));
    Ok(())
}

fn large_graph(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.filled(1000, 0)?);
    let mut last = Vec::new();
    for index in 0..1000_u64 {
        last = vec![cu.set_node(graph, &last, &line_set(device + index, 7, 1))?];
    }
    same!(cu, (cu.nodes(graph)?.len(), cu.edges(graph)?.len()), (1000, 999));
    run(cu, graph)?;
    same!(cu, cu.read(device, 1000)?, vec![7; 1000]);
    Ok(())
}

fn memory_attributes(cu: &Cuda<'_>) -> CaseResult {
    let mut value = 77_u64;
    for attribute in 0..4 {
        ok!(cu.cuDeviceGetGraphMemAttribute(0, CUgraphMem_attribute(attribute), (&raw mut value).cast()));
    }
    value = 0;
    want!(SUCCESS, cu.cuDeviceSetGraphMemAttribute(0, CUgraphMem_attribute(1), (&raw mut value).cast()));
    want!(INVALID_VALUE, cu.cuDeviceSetGraphMemAttribute(0, CUgraphMem_attribute(0), (&raw mut value).cast()));
    want!(INVALID_VALUE, cu.cuDeviceGetGraphMemAttribute(0, CUgraphMem_attribute(99), (&raw mut value).cast()));
    want!(INVALID_DEVICE, cu.cuDeviceGetGraphMemAttribute(1000, CUgraphMem_attribute(0), (&raw mut value).cast()));
    want!(INVALID_DEVICE, cu.cuDeviceGraphMemTrim(1000));
    want!(INVALID_DEVICE, cu.cuDeviceSetGraphMemAttribute(1000, CUgraphMem_attribute(1), (&raw mut value).cast()));
    Ok(())
}

fn kernel_nodes_need_a_function(cu: &Cuda<'_>) -> CaseResult {
    want!(
        INVALID_HANDLE,
        cu.cuLaunchKernel(ptr::null_mut(), 1, 1, 1, 1, 1, 1, 0, ptr::null_mut(), ptr::null_mut(), ptr::null_mut())
    );
    Ok(())
}

fn alloc_node_parameters(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (alloc, pointer) = alloc_node(cu, graph)?;
    same!(cu, kind(cu, alloc)?, 10);
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
    ok!(cu.cuGraphMemAllocNodeGetParams(alloc, &mut params));
    same!(cu, (params.dptr, params.bytesize), (pointer, 4096));
    let free = free_node(cu, graph, alloc, pointer)?;
    same!(cu, kind(cu, free)?, 11);
    let mut freed = 0_u64;
    ok!(cu.cuGraphMemFreeNodeGetParams(free, (&raw mut freed).cast()));
    same!(cu, freed, pointer);
    let (mut node, mut freed) = (ptr::null_mut(), 0_u64);
    want!(INVALID_VALUE, cu.cuGraphAddMemFreeNode(&mut node, graph, &alloc, 1, pointer));
    want!(INVALID_VALUE, cu.cuGraphAddMemFreeNode(&mut node, graph, ptr::null(), 0, 0));
    want!(INVALID_VALUE, cu.cuGraphAddMemAllocNode(&mut node, graph, ptr::null(), 0, ptr::null_mut()));
    let empty = cu.empty_node(graph, &[])?;
    want!(INVALID_VALUE, cu.cuGraphMemFreeNodeGetParams(empty, (&raw mut freed).cast()));
    want!(INVALID_VALUE, cu.cuGraphMemAllocNodeGetParams(empty, &mut params));
    Ok(())
}

fn exec_of_alloc_may_not_run_twice(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (_, pointer) = alloc_node(cu, graph)?;
    let (exec, stream) = (cu.instantiate(graph)?, cu.stream()?);
    ok!(cu.cuGraphLaunch(exec, stream));
    // What the first launch allocated was not freed.
    want!(INVALID_VALUE, cu.cuGraphLaunch(exec, stream));
    want!(SUCCESS, cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn destroy_null_handles(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuGraphDestroy(ptr::null_mut()));
    want!(INVALID_VALUE, cu.cuGraphExecDestroy(ptr::null_mut()));
    want!(INVALID_VALUE, cu.cuGraphDestroyNode(ptr::null_mut()));
    Ok(())
}

fn user_objects_null(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    want!(INVALID_VALUE, cu.cuGraphRetainUserObject(graph, ptr::null_mut(), 1, 0));
    want!(INVALID_VALUE, cu.cuGraphReleaseUserObject(graph, ptr::null_mut(), 1));
    Ok(())
}
