//! Graphs built by hand: nodes and edges, parameters, instantiation, launch, update.

use super::prelude::*;

cases!("graph", CASES, Needs::CONTEXT;
    create_and_destroy, create_with_flags, empty_node, set_node_runs,
    copy_node_runs, copy_node_in_three_dimensions, host_node_runs, child_node_runs,
    event_nodes_run, alloc_and_free_nodes, every_kind_has_its_type, null_parameters,
    dependencies_of_another_graph, duplicate_dependencies, null_dependency, nodes_of_an_empty_graph,
    nodes_with_little_room, nodes_with_too_much_room, root_nodes, edges_of_a_diamond,
    edges_with_data, dependencies_and_dependents, dependencies_v2, add_dependencies,
    add_dependencies_v2, add_an_existing_dependency, add_a_cycle, add_a_self_edge,
    add_nothing, remove_dependencies, remove_dependencies_v2, remove_a_missing_dependency,
    destroy_node, destroy_node_removes_edges, set_parameters_are_kept, set_parameters_can_change,
    set_parameters_are_checked, copy_parameters_are_kept, copy_parameters_can_change, host_parameters_are_kept,
    host_parameters_can_change, event_of_a_node, event_of_a_node_can_change, parameters_of_another_kind,
    child_graph_is_a_copy, clone_is_independent, find_in_clone, find_in_another_graph,
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
pub(super) fn run(cu: &Cuda<'_>, graph: CUgraph) -> CaseResult<CUgraphExec> {
    let exec = cu.instantiate(graph)?;
    launch(cu, exec)?;
    Ok(exec)
}

pub(super) fn launch(cu: &Cuda<'_>, exec: CUgraphExec) -> CaseResult {
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

pub(super) fn child_node(
    cu: &Cuda<'_>,
    graph: CUgraph,
    after: &[CUgraphNode],
    child: CUgraph,
) -> CaseResult<CUgraphNode> {
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

pub(super) fn record_node(
    cu: &Cuda<'_>,
    graph: CUgraph,
    after: &[CUgraphNode],
    event: CUevent,
) -> CaseResult<CUgraphNode> {
    let mut node = ptr::null_mut();
    ok!(cu.cuGraphAddEventRecordNode(&mut node, graph, after.as_ptr(), after.len(), event));
    Ok(node)
}

pub(super) fn wait_node(
    cu: &Cuda<'_>,
    graph: CUgraph,
    after: &[CUgraphNode],
    event: CUevent,
) -> CaseResult<CUgraphNode> {
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
pub(super) fn alloc_params(bytes: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
    params.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    params.bytesize = bytes;
    params
}

pub(super) fn alloc_node(cu: &Cuda<'_>, graph: CUgraph) -> CaseResult<(CUgraphNode, CUdeviceptr)> {
    let (mut node, mut params) = (ptr::null_mut(), alloc_params(4096));
    ok!(cu.cuGraphAddMemAllocNode(&mut node, graph, ptr::null(), 0, &mut params));
    Ok((node, params.dptr))
}

pub(super) fn free_node(
    cu: &Cuda<'_>,
    graph: CUgraph,
    after: CUgraphNode,
    pointer: CUdeviceptr,
) -> CaseResult<CUgraphNode> {
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

pub(super) fn kind(cu: &Cuda<'_>, node: CUgraphNode) -> CaseResult<u32> {
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
pub(super) fn row(cu: &Cuda<'_>) -> CaseResult<(CUgraph, [CUgraphNode; 3])> {
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

pub(super) fn set_params(cu: &Cuda<'_>, node: CUgraphNode) -> CaseResult<CUDA_MEMSET_NODE_PARAMS> {
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
