//! Graphs built by hand: nodes and edges, parameters, instantiation, launch, update.

use super::prelude::*;

cases!("graph", CASES, Needs::CONTEXT;
    create_and_destroy, create_with_flags, empty_node, set_node_runs, copy_node_runs, copy_node_in_three_dimensions, host_node_runs, child_node_runs,
    event_nodes_run, alloc_and_free_nodes, every_kind_has_its_type, null_parameters, dependencies_of_another_graph, duplicate_dependencies,
    null_dependency, nodes_of_an_empty_graph, nodes_with_little_room, nodes_with_too_much_room, root_nodes, edges_of_a_diamond, edges_with_data,
    dependencies_and_dependents, dependencies_v2, add_dependencies, add_dependencies_v2, add_an_existing_dependency, add_a_cycle, add_a_self_edge, add_nothing, remove_dependencies,
    remove_dependencies_v2, remove_a_missing_dependency, destroy_node, destroy_node_removes_edges, set_parameters_are_kept, set_parameters_can_change,
    set_parameters_are_checked, copy_parameters_are_kept, copy_parameters_can_change, host_parameters_are_kept, host_parameters_can_change,
    event_of_a_node, event_of_a_node_can_change, parameters_of_another_kind, child_graph_is_a_copy, clone_is_independent, find_in_clone, find_in_another_graph,
    instantiate_with_flags, instantiate_with_unknown_flags, instantiate_with_parameters, instantiate_an_empty_graph, exec_flags, launch_in_order,
    launch_on_default_streams, launch_twice_is_ordered, launch_waits_for_the_stream, upload_then_launch, exec_outlives_the_graph, destroy_exec_while_running,
    exec_set_parameters, exec_copy_parameters, exec_host_parameters, exec_child_parameters, exec_event, exec_parameters_are_checked, update_succeeds, update_topology_changed, update_kind_changed, update_parameters_changed,
    update_more_nodes, update_old_interface, update_null, enable_and_disable, enable_wrong_kind, debug_dot, debug_dot_to_nowhere, add_node_interface, add_node_v2_interface, add_node_unknown_kind, node_set_params,
    exec_node_set_params, diamond_runs, large_graph, memory_attributes, kernel_nodes_need_a_function, alloc_node_parameters,
    exec_of_alloc_may_not_run_twice, destroy_null_handles, user_objects_null,
);

const DEVICE: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_DEVICE;

fn create_and_destroy(cu: &Cuda<'_>) -> CaseResult {
    let mut graph = ptr::null_mut();
    ok!(cu.cuGraphCreate(&mut graph, 0));
    that!(cu, !graph.is_null());
    ok!(cu.cuGraphDestroy(graph));
    Ok(())
}

fn create_with_flags(cu: &Cuda<'_>) -> CaseResult {
    let mut graph = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuGraphCreate(&mut graph, 1));
    Ok(())
}

fn empty_node(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let first = cu.empty_node(graph, &[])?;
    cu.empty_node(graph, &[first])?;
    same!(cu, cu.shape(graph)?, "empty empty | empty->empty");
    Ok(())
}

/// Instantiates a graph, launches it on a stream of its own and waits.
fn run(cu: &Cuda<'_>, graph: CUgraph) -> CaseResult<CUgraphExec> {
    let exec = cu.instantiate(graph)?;
    launch(cu, exec)?;
    Ok(exec)
}

fn launch(cu: &Cuda<'_>, exec: CUgraphExec) -> CaseResult {
    let stream = cu.stream()?;
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn set_node_runs(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.filled(64, 0)?);
    cu.set_node(graph, &[], &line_set(device, 5, 10))?;
    run(cu, graph)?;
    same!(cu, cu.read(device, 12)?, vec![5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0]);
    Ok(())
}

fn copy_node_runs(cu: &Cuda<'_>) -> CaseResult {
    let (graph, from, to) = (cu.graph()?, cu.counted(1000)?, cu.filled(1000, 0)?);
    cu.copy_node(graph, &[], &line_copy(to, from, 1000))?;
    run(cu, graph)?;
    that!(cu, cu.read(to, 1000)? == count_up(1000));
    Ok(())
}

fn copy_node_in_three_dimensions(cu: &Cuda<'_>) -> CaseResult {
    let (graph, from, to) = (cu.graph()?, cu.counted(256)?, cu.filled(64, 0xFF)?);
    let copy = CUDA_MEMCPY3D { srcPitch: 16, dstPitch: 8, Height: 3, ..line_copy(to, from, 4) };
    cu.copy_node(graph, &[], &copy)?;
    run(cu, graph)?;
    same!(
        cu,
        cu.read(to, 20)?,
        vec![0, 1, 2, 3, 255, 255, 255, 255, 16, 17, 18, 19, 255, 255, 255, 255, 32, 33, 34, 35]
    );
    Ok(())
}

fn host_node_runs(cu: &Cuda<'_>) -> CaseResult {
    let (graph, count) = (cu.graph()?, counter());
    cu.host_node(graph, &[], count)?;
    run(cu, graph)?;
    same!(cu, count.load(Ordering::SeqCst), 1);
    Ok(())
}

fn child_node(cu: &Cuda<'_>, graph: CUgraph, after: &[CUgraphNode], child: CUgraph) -> CaseResult<CUgraphNode> {
    let mut node = ptr::null_mut();
    ok!(cu.cuGraphAddChildGraphNode(&mut node, graph, after.as_ptr(), after.len(), child));
    Ok(node)
}

fn child_node_runs(cu: &Cuda<'_>) -> CaseResult {
    let (graph, child, device) = (cu.graph()?, cu.graph()?, cu.filled(64, 0)?);
    cu.set_node(child, &[], &line_set(device, 3, 64))?;
    let node = child_node(cu, graph, &[], child)?;
    cu.copy_node(graph, &[node], &line_copy(device + 32, device, 8))?;
    same!(cu, cu.shape(graph)?, "copy8 graph | graph->copy8");
    run(cu, graph)?;
    same!(cu, cu.read(device, 64)?, vec![3; 64]);
    Ok(())
}

fn record_node(cu: &Cuda<'_>, graph: CUgraph, after: &[CUgraphNode], event: CUevent) -> CaseResult<CUgraphNode> {
    let mut node = ptr::null_mut();
    ok!(cu.cuGraphAddEventRecordNode(&mut node, graph, after.as_ptr(), after.len(), event));
    Ok(node)
}

fn wait_node(cu: &Cuda<'_>, graph: CUgraph, after: &[CUgraphNode], event: CUevent) -> CaseResult<CUgraphNode> {
    let mut node = ptr::null_mut();
    ok!(cu.cuGraphAddEventWaitNode(&mut node, graph, after.as_ptr(), after.len(), event));
    Ok(node)
}

fn event_nodes_run(cu: &Cuda<'_>) -> CaseResult {
    let (graph, event, stream) = (cu.graph()?, cu.event()?, cu.stream()?);
    record_node(cu, graph, &[], event)?;
    let exec = cu.instantiate(graph)?;
    let gate = cu.hold(stream)?;
    ok!(cu.cuGraphLaunch(exec, stream));
    want!(NOT_READY, cu.cuEventQuery(event));
    gate.open();
    want!(SUCCESS, cu.cuEventSynchronize(event));
    let waiting = cu.graph()?;
    wait_node(cu, waiting, &[], event)?;
    run(cu, waiting)?;
    Ok(())
}

/// Parameters of a node that allocates on device 0.
fn alloc_params(bytes: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
    params.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    params.bytesize = bytes;
    params
}

fn alloc_node(cu: &Cuda<'_>, graph: CUgraph) -> CaseResult<(CUgraphNode, CUdeviceptr)> {
    let (mut node, mut params) = (ptr::null_mut(), alloc_params(4096));
    ok!(cu.cuGraphAddMemAllocNode(&mut node, graph, ptr::null(), 0, &mut params));
    Ok((node, params.dptr))
}

fn free_node(cu: &Cuda<'_>, graph: CUgraph, after: CUgraphNode, pointer: CUdeviceptr) -> CaseResult<CUgraphNode> {
    let mut node = ptr::null_mut();
    ok!(cu.cuGraphAddMemFreeNode(&mut node, graph, &after, 1, pointer));
    Ok(node)
}

fn alloc_and_free_nodes(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.filled(64, 0)?);
    let (alloc, pointer) = alloc_node(cu, graph)?;
    that!(cu, pointer != 0);
    let set = cu.set_node(graph, &[alloc], &line_set(pointer, 9, 64))?;
    let copy = cu.copy_node(graph, &[set], &line_copy(device, pointer, 64))?;
    free_node(cu, graph, copy, pointer)?;
    same!(cu, cu.shape(graph)?, "alloc copy64 free set9 | alloc->set9 copy64->free set9->copy64");
    let exec = run(cu, graph)?;
    same!(cu, cu.read(device, 64)?, vec![9; 64]);
    launch(cu, exec)?;
    want!(SUCCESS, cu.cuDeviceGraphMemTrim(0));
    Ok(())
}

fn kind(cu: &Cuda<'_>, node: CUgraphNode) -> CaseResult<u32> {
    let mut kind = CUgraphNodeType(77);
    ok!(cu.cuGraphNodeGetType(node, &mut kind));
    Ok(kind.0)
}

fn every_kind_has_its_type(cu: &Cuda<'_>) -> CaseResult {
    let (graph, child, device, event) = (cu.graph()?, cu.graph()?, cu.alloc(64)?, cu.event()?);
    same!(cu, kind(cu, cu.copy_node(graph, &[], &line_copy(device, device + 32, 8))?)?, 1);
    same!(cu, kind(cu, cu.set_node(graph, &[], &line_set(device, 1, 8))?)?, 2);
    same!(cu, kind(cu, cu.host_node(graph, &[], counter())?)?, 3);
    same!(cu, kind(cu, child_node(cu, graph, &[], child)?)?, 4);
    same!(cu, kind(cu, cu.empty_node(graph, &[])?)?, 5);
    same!(cu, kind(cu, wait_node(cu, graph, &[], event)?)?, 6);
    same!(cu, kind(cu, record_node(cu, graph, &[], event)?)?, 7);
    Ok(())
}

fn null_parameters(cu: &Cuda<'_>) -> CaseResult {
    let (graph, mut node, context) = (cu.graph()?, ptr::null_mut(), cu.current()?);
    want!(INVALID_VALUE, cu.cuGraphAddEmptyNode(ptr::null_mut(), graph, ptr::null(), 0));
    want!(INVALID_VALUE, cu.cuGraphAddMemsetNode(&mut node, graph, ptr::null(), 0, ptr::null(), context));
    want!(INVALID_VALUE, cu.cuGraphAddMemcpyNode(&mut node, graph, ptr::null(), 0, ptr::null(), context));
    want!(INVALID_VALUE, cu.cuGraphAddHostNode(&mut node, graph, ptr::null(), 0, ptr::null()));
    want!(INVALID_VALUE, cu.cuGraphAddChildGraphNode(&mut node, graph, ptr::null(), 0, ptr::null_mut()));
    want!(INVALID_VALUE, cu.cuGraphAddEventRecordNode(&mut node, graph, ptr::null(), 0, ptr::null_mut()));
    want!(INVALID_VALUE, cu.cuGraphAddEventWaitNode(&mut node, graph, ptr::null(), 0, ptr::null_mut()));
    let params = CUDA_HOST_NODE_PARAMS { fn_: None, userData: ptr::null_mut() };
    want!(INVALID_VALUE, cu.cuGraphAddHostNode(&mut node, graph, ptr::null(), 0, &params));
    same!(cu, cu.nodes(graph)?.len(), 0);
    Ok(())
}

fn dependencies_of_another_graph(cu: &Cuda<'_>) -> CaseResult {
    let (graph, other) = (cu.graph()?, cu.graph()?);
    let (foreign, mut node) = (cu.empty_node(other, &[])?, ptr::null_mut());
    want!(INVALID_VALUE, cu.cuGraphAddEmptyNode(&mut node, graph, &foreign, 1));
    same!(cu, cu.nodes(graph)?.len(), 0);
    Ok(())
}

fn duplicate_dependencies(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let first = cu.empty_node(graph, &[])?;
    let mut node = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuGraphAddEmptyNode(&mut node, graph, [first, first].as_ptr(), 2));
    Ok(())
}

fn null_dependency(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let mut node = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuGraphAddEmptyNode(&mut node, graph, [ptr::null_mut()].as_ptr(), 1));
    want!(INVALID_VALUE, cu.cuGraphAddEmptyNode(&mut node, graph, ptr::null(), 1));
    Ok(())
}

fn nodes_of_an_empty_graph(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let mut count = 77;
    ok!(cu.cuGraphGetNodes(graph, ptr::null_mut(), &mut count));
    same!(cu, count, 0);
    count = 77;
    ok!(cu.cuGraphGetRootNodes(graph, ptr::null_mut(), &mut count));
    same!(cu, count, 0);
    count = 77;
    ok!(cu.cuGraphGetEdges(graph, ptr::null_mut(), ptr::null_mut(), &mut count));
    same!(cu, count, 0);
    Ok(())
}

/// Three empty nodes in a row.
fn row(cu: &Cuda<'_>) -> CaseResult<(CUgraph, [CUgraphNode; 3])> {
    let graph = cu.graph()?;
    let first = cu.empty_node(graph, &[])?;
    let second = cu.empty_node(graph, &[first])?;
    let third = cu.empty_node(graph, &[second])?;
    Ok((graph, [first, second, third]))
}

fn nodes_with_little_room(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    let (mut nodes, mut count) = ([ptr::null_mut(); 3], 2);
    ok!(cu.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    same!(cu, (count, nodes[2].is_null()), (2, true));
    that!(cu, made.contains(&nodes[0]) && made.contains(&nodes[1]));
    count = 0;
    want!(INVALID_VALUE, cu.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    Ok(())
}

fn nodes_with_too_much_room(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    let (mut nodes, mut count) = ([ptr::dangling_mut(); 5], 5);
    ok!(cu.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    same!(cu, count, 3);
    that!(cu, nodes[3].is_null() && nodes[4].is_null() && made.contains(&nodes[2]));
    Ok(())
}

fn root_nodes(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    let lonely = cu.empty_node(graph, &[])?;
    let (mut roots, mut count) = ([ptr::null_mut(); 4], 4);
    ok!(cu.cuGraphGetRootNodes(graph, roots.as_mut_ptr(), &mut count));
    same!(cu, count, 2);
    that!(cu, roots.contains(&made[0]) && roots.contains(&lonely));
    Ok(())
}

fn edges_of_a_diamond(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let top = cu.empty_node(graph, &[])?;
    let (left, right) = (cu.empty_node(graph, &[top])?, cu.empty_node(graph, &[top])?);
    let bottom = cu.empty_node(graph, &[left, right])?;
    let mut edges = cu.edges(graph)?;
    edges.sort();
    let mut want = vec![(top, left), (top, right), (left, bottom), (right, bottom)];
    want.sort();
    same!(cu, edges, want);
    Ok(())
}

fn edges_with_data(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    let (mut from, mut to, mut count) = ([ptr::null_mut(); 2], [ptr::null_mut(); 2], 2);
    let mut edges = [CUgraphEdgeData { from_port: 9, ..CUgraphEdgeData::zeroed() }; 2];
    ok!(cu.cuGraphGetEdges_v2(graph, from.as_mut_ptr(), to.as_mut_ptr(), edges.as_mut_ptr(), &mut count));
    same!(cu, (count, edges[0].from_port, edges[1].type_), (2, 0, 0));
    that!(cu, from.contains(&made[0]) && to.contains(&made[2]));
    Ok(())
}

fn dependencies_and_dependents(cu: &Cuda<'_>) -> CaseResult {
    let (_, made) = row(cu)?;
    let (mut nodes, mut count) = ([ptr::null_mut(); 3], 3);
    ok!(cu.cuGraphNodeGetDependencies(made[1], nodes.as_mut_ptr(), &mut count));
    same!(cu, (count, nodes[0]), (1, made[0]));
    count = 3;
    ok!(cu.cuGraphNodeGetDependentNodes(made[1], nodes.as_mut_ptr(), &mut count));
    same!(cu, (count, nodes[0]), (1, made[2]));
    ok!(cu.cuGraphNodeGetDependencies(made[0], ptr::null_mut(), &mut count));
    same!(cu, count, 0);
    ok!(cu.cuGraphNodeGetDependentNodes(made[2], ptr::null_mut(), &mut count));
    same!(cu, count, 0);
    Ok(())
}

fn dependencies_v2(cu: &Cuda<'_>) -> CaseResult {
    let (_, made) = row(cu)?;
    let (mut nodes, mut count) = ([ptr::null_mut(); 3], 3);
    let mut edges = [CUgraphEdgeData::zeroed(); 3];
    ok!(cu.cuGraphNodeGetDependencies_v2(made[1], nodes.as_mut_ptr(), edges.as_mut_ptr(), &mut count));
    same!(cu, (count, nodes[0]), (1, made[0]));
    count = 3;
    ok!(cu.cuGraphNodeGetDependentNodes_v2(made[1], nodes.as_mut_ptr(), edges.as_mut_ptr(), &mut count));
    same!(cu, (count, nodes[0]), (1, made[2]));
    Ok(())
}

fn add_dependencies(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    ok!(cu.cuGraphAddDependencies(graph, &made[0], &made[2], 1));
    same!(cu, cu.edges(graph)?.len(), 3);
    Ok(())
}

fn add_dependencies_v2(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    ok!(cu.cuGraphAddDependencies_v2(graph, &made[0], &made[2], ptr::null(), 1));
    same!(cu, cu.edges(graph)?.len(), 3);
    want!(INVALID_VALUE, cu.cuGraphAddDependencies_v2(graph, &made[0], &made[2], ptr::null(), 1));
    Ok(())
}

fn add_an_existing_dependency(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    want!(INVALID_VALUE, cu.cuGraphAddDependencies(graph, &made[0], &made[1], 1));
    same!(cu, cu.edges(graph)?.len(), 2);
    Ok(())
}

fn add_a_cycle(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    want!(SUCCESS, cu.cuGraphAddDependencies(graph, &made[2], &made[0], 1));
    let mut exec = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    Ok(())
}

fn add_a_self_edge(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    want!(INVALID_VALUE, cu.cuGraphAddDependencies(graph, &made[1], &made[1], 1));
    Ok(())
}

fn add_nothing(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    want!(SUCCESS, cu.cuGraphAddDependencies(graph, ptr::null(), ptr::null(), 0));
    want!(SUCCESS, cu.cuGraphRemoveDependencies(graph, ptr::null(), ptr::null(), 0));
    want!(INVALID_VALUE, cu.cuGraphAddDependencies(graph, ptr::null(), &made[1], 1));
    Ok(())
}

fn remove_dependencies(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    ok!(cu.cuGraphRemoveDependencies(graph, &made[0], &made[1], 1));
    same!(cu, cu.edges(graph)?, vec![(made[1], made[2])]);
    Ok(())
}

fn remove_dependencies_v2(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    ok!(cu.cuGraphRemoveDependencies_v2(graph, &made[0], &made[1], ptr::null(), 1));
    same!(cu, cu.edges(graph)?, vec![(made[1], made[2])]);
    want!(INVALID_VALUE, cu.cuGraphRemoveDependencies_v2(graph, &made[0], &made[1], ptr::null(), 1));
    Ok(())
}

fn remove_a_missing_dependency(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    want!(INVALID_VALUE, cu.cuGraphRemoveDependencies(graph, &made[0], &made[2], 1));
    same!(cu, cu.edges(graph)?.len(), 2);
    Ok(())
}

fn destroy_node(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (first, second) = (cu.empty_node(graph, &[])?, cu.empty_node(graph, &[])?);
    ok!(cu.cuGraphDestroyNode(first));
    same!(cu, cu.nodes(graph)?, vec![second]);
    Ok(())
}

fn destroy_node_removes_edges(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    ok!(cu.cuGraphDestroyNode(made[1]));
    same!(cu, (cu.nodes(graph)?.len(), cu.edges(graph)?.len()), (2, 0));
    Ok(())
}

fn set_params(cu: &Cuda<'_>, node: CUgraphNode) -> CaseResult<CUDA_MEMSET_NODE_PARAMS> {
    let mut params = CUDA_MEMSET_NODE_PARAMS::zeroed();
    ok!(cu.cuGraphMemsetNodeGetParams(node, &mut params));
    Ok(params)
}

fn set_parameters_are_kept(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.alloc(4096)?);
    let asked = CUDA_MEMSET_NODE_PARAMS { dst: device, pitch: 64, value: 0x0102, elementSize: 2, width: 10, height: 4 };
    let found = set_params(cu, cu.set_node(graph, &[], &asked)?)?;
    same!(cu, (found.dst, found.pitch, found.value), (device, 64, 0x0102));
    same!(cu, (found.elementSize, found.width, found.height), (2, 10, 4));
    Ok(())
}

fn set_parameters_can_change(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.filled(64, 0)?);
    let node = cu.set_node(graph, &[], &line_set(device, 1, 8))?;
    ok!(cu.cuGraphMemsetNodeSetParams(node, &line_set(device + 8, 2, 4)));
    same!(cu, set_params(cu, node)?.value, 2);
    run(cu, graph)?;
    same!(cu, cu.read(device, 14)?, vec![0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 0, 0]);
    Ok(())
}

fn set_parameters_are_checked(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device, context) = (cu.graph()?, cu.alloc(4096)?, cu.current()?);
    let good = line_set(device, 1, 8);
    for bad in [
        CUDA_MEMSET_NODE_PARAMS { elementSize: 3, ..good },
        CUDA_MEMSET_NODE_PARAMS { elementSize: 0, ..good },
        CUDA_MEMSET_NODE_PARAMS { dst: 0, ..good },
        CUDA_MEMSET_NODE_PARAMS { dst: device + 1, elementSize: 4, ..good },
        CUDA_MEMSET_NODE_PARAMS { height: 2, pitch: 4, ..good },
    ] {
        let mut node = ptr::null_mut();
        want!(INVALID_VALUE, cu.cuGraphAddMemsetNode(&mut node, graph, ptr::null(), 0, &bad, context));
    }
    let node = cu.set_node(graph, &[], &good)?;
    want!(INVALID_VALUE, cu.cuGraphMemsetNodeSetParams(node, &CUDA_MEMSET_NODE_PARAMS { elementSize: 3, ..good }));
    Ok(())
}

fn copy_params(cu: &Cuda<'_>, node: CUgraphNode) -> CaseResult<CUDA_MEMCPY3D> {
    let mut params = CUDA_MEMCPY3D::zeroed();
    ok!(cu.cuGraphMemcpyNodeGetParams(node, &mut params));
    Ok(params)
}

fn copy_parameters_are_kept(cu: &Cuda<'_>) -> CaseResult {
    let (graph, device) = (cu.graph()?, cu.alloc(4096)?);
    let found = copy_params(cu, cu.copy_node(graph, &[], &line_copy(device, device + 512, 100))?)?;
    same!(cu, (found.dstDevice, found.srcDevice, found.WidthInBytes), (device, device + 512, 100));
    same!(cu, (found.srcMemoryType, found.dstMemoryType), (DEVICE, DEVICE));
    Ok(())
}

fn copy_parameters_can_change(cu: &Cuda<'_>) -> CaseResult {
    let (graph, from, to) = (cu.graph()?, cu.counted(64)?, cu.filled(64, 0)?);
    let node = cu.copy_node(graph, &[], &line_copy(to, from, 8))?;
    ok!(cu.cuGraphMemcpyNodeSetParams(node, &line_copy(to, from + 10, 3)));
    run(cu, graph)?;
    same!(cu, cu.read(to, 4)?, vec![10, 11, 12, 0]);
    want!(
        INVALID_VALUE,
        cu.cuGraphMemcpyNodeSetParams(
            node,
            &CUDA_MEMCPY3D { srcMemoryType: CUmemorytype(9), ..line_copy(to, from, 8) }
        )
    );
    Ok(())
}

fn host_parameters_are_kept(cu: &Cuda<'_>) -> CaseResult {
    let (graph, count) = (cu.graph()?, counter());
    let node = cu.host_node(graph, &[], count)?;
    let mut params = CUDA_HOST_NODE_PARAMS::zeroed();
    ok!(cu.cuGraphHostNodeGetParams(node, &mut params));
    same!(cu, (params.fn_.is_some(), params.userData), (true, data(count)));
    Ok(())
}

fn host_parameters_can_change(cu: &Cuda<'_>) -> CaseResult {
    let (graph, first, second) = (cu.graph()?, counter(), counter());
    let node = cu.host_node(graph, &[], first)?;
    let params = CUDA_HOST_NODE_PARAMS { fn_: Some(raise), userData: data(second) };
    ok!(cu.cuGraphHostNodeSetParams(node, &params));
    run(cu, graph)?;
    same!(cu, (first.load(Ordering::SeqCst), second.load(Ordering::SeqCst)), (0, 1));
    want!(INVALID_VALUE, cu.cuGraphHostNodeSetParams(node, &CUDA_HOST_NODE_PARAMS { fn_: None, ..params }));
    Ok(())
}

fn event_of_a_node(cu: &Cuda<'_>) -> CaseResult {
    let (graph, event) = (cu.graph()?, cu.event()?);
    let (record, wait) = (record_node(cu, graph, &[], event)?, wait_node(cu, graph, &[], event)?);
    let mut found = ptr::null_mut();
    ok!(cu.cuGraphEventRecordNodeGetEvent(record, &mut found));
    same!(cu, found, event);
    found = ptr::null_mut();
    ok!(cu.cuGraphEventWaitNodeGetEvent(wait, &mut found));
    same!(cu, found, event);
    Ok(())
}

fn event_of_a_node_can_change(cu: &Cuda<'_>) -> CaseResult {
    let (graph, event, other) = (cu.graph()?, cu.event()?, cu.event()?);
    let (record, wait) = (record_node(cu, graph, &[], event)?, wait_node(cu, graph, &[], event)?);
    ok!(cu.cuGraphEventRecordNodeSetEvent(record, other));
    ok!(cu.cuGraphEventWaitNodeSetEvent(wait, other));
    let mut found = ptr::null_mut();
    ok!(cu.cuGraphEventRecordNodeGetEvent(record, &mut found));
    same!(cu, found, other);
    ok!(cu.cuGraphEventWaitNodeGetEvent(wait, &mut found));
    same!(cu, found, other);
    Ok(())
}

fn parameters_of_another_kind(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let node = cu.empty_node(graph, &[])?;
    let (mut set, mut copy, mut host) =
        (CUDA_MEMSET_NODE_PARAMS::zeroed(), CUDA_MEMCPY3D::zeroed(), CUDA_HOST_NODE_PARAMS::zeroed());
    let (mut event, mut child) = (ptr::null_mut(), ptr::null_mut());
    want!(INVALID_VALUE, cu.cuGraphMemsetNodeGetParams(node, &mut set));
    want!(INVALID_VALUE, cu.cuGraphMemcpyNodeGetParams(node, &mut copy));
    want!(INVALID_VALUE, cu.cuGraphHostNodeGetParams(node, &mut host));
    want!(INVALID_VALUE, cu.cuGraphEventRecordNodeGetEvent(node, &mut event));
    want!(INVALID_VALUE, cu.cuGraphEventWaitNodeGetEvent(node, &mut event));
    want!(INVALID_VALUE, cu.cuGraphChildGraphNodeGetGraph(node, &mut child));
    Ok(())
}

fn child_graph_is_a_copy(cu: &Cuda<'_>) -> CaseResult {
    let (graph, child) = (cu.graph()?, cu.graph()?);
    cu.empty_node(child, &[])?;
    let node = child_node(cu, graph, &[], child)?;
    cu.empty_node(child, &[])?;
    let mut inside = ptr::null_mut();
    ok!(cu.cuGraphChildGraphNodeGetGraph(node, &mut inside));
    that!(cu, inside != child);
    same!(cu, (cu.nodes(inside)?.len(), cu.nodes(child)?.len()), (1, 2));
    Ok(())
}

fn clone_is_independent(cu: &Cuda<'_>) -> CaseResult {
    let (graph, _) = row(cu)?;
    let mut clone = ptr::null_mut();
    ok!(cu.cuGraphClone(&mut clone, graph));
    cu.later(Cleanup::Graph(clone));
    cu.empty_node(graph, &[])?;
    same!(cu, (cu.nodes(graph)?.len(), cu.nodes(clone)?.len(), cu.edges(clone)?.len()), (4, 3, 2));
    Ok(())
}

fn find_in_clone(cu: &Cuda<'_>) -> CaseResult {
    let (graph, made) = row(cu)?;
    let (mut clone, mut found) = (ptr::null_mut(), ptr::null_mut());
    ok!(cu.cuGraphClone(&mut clone, graph));
    cu.later(Cleanup::Graph(clone));
    let inside = cu.nodes(clone)?;
    for node in made {
        ok!(cu.cuGraphNodeFindInClone(&mut found, node, clone));
        that!(cu, found != node && inside.contains(&found));
    }
    let late = cu.empty_node(graph, &[])?;
    want!(INVALID_VALUE, cu.cuGraphNodeFindInClone(&mut found, late, clone));
    Ok(())
}

fn find_in_another_graph(cu: &Cuda<'_>) -> CaseResult {
    let ((_, made), (other, _)) = (row(cu)?, row(cu)?);
    let mut found = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuGraphNodeFindInClone(&mut found, made[0], other));
    Ok(())
}

fn instantiate_with_flags(cu: &Cuda<'_>) -> CaseResult {
    let (graph, _) = row(cu)?;
    for flags in [0, 1, 8] {
        let mut exec = ptr::null_mut();
        ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, flags));
        cu.later(Cleanup::Exec(exec));
    }
    Ok(())
}

fn instantiate_with_unknown_flags(cu: &Cuda<'_>) -> CaseResult {
    let (graph, _) = row(cu)?;
    let mut exec = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuGraphInstantiateWithFlags(&mut exec, graph, 1 << 20));
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
    let (graph, _) = row(cu)?;
    for asked in [0, 1] {
        let (mut exec, mut flags) = (ptr::null_mut(), 77);
        ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, asked));
        cu.later(Cleanup::Exec(exec));
        ok!(cu.cuGraphExecGetFlags(exec, &mut flags));
        same!(cu, flags, asked);
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
