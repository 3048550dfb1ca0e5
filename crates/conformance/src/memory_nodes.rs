//! Memory that graphs allocate: nodes made by hand and by capture, launches, and what cannot be done to such graphs.

use super::capture::{Bench, GLOBAL, LOCAL, RELAXED};
use super::graph::{alloc_node, alloc_params, child_node, free_node, kind, launch, run};
use super::prelude::*;

cases!("memory_nodes", CASES, Needs::CONTEXT;
    captured_data, captured_from_a_pool, captured_allocation_outlives_the_launch, free_by_another_graph,
    captured_free_elsewhere, captured_free_twice, captured_too_large, captured_nothing, captured_in_an_invalidated_capture,
    usable_between_launch_and_free, not_there_before_the_launch, freed_at_once, auto_free_on_launch, allocation_outlives_its_graph,
    one_executable_graph, graphs_cannot_be_copied, graphs_cannot_lose_anything, edges_can_be_added, unknown_properties,
    access_descriptions, sets_are_checked, memory_is_counted, high_marks, trimming_is_allowed_while_capturing, update_from_itself,
);

fn alloc_captured(cu: &Cuda<'_>, bytes: usize, stream: CUstream) -> CaseResult<CUdeviceptr> {
    let mut pointer = 0;
    ok!(cu.cuMemAllocAsync(&mut pointer, bytes, stream));
    that!(cu, pointer != 0);
    Ok(pointer)
}

/// Captures the end of a case: the graph is destroyed with it.
fn end_empty(cu: &Cuda<'_>, bench: &Bench<'_, '_>) -> CaseResult {
    let graph = cu.end(bench.main)?;
    same!(cu, cu.nodes(graph)?.len(), 0);
    Ok(())
}

fn captured_data(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let pointer = alloc_captured(cu, 4096, bench.main)?;
    ok!(cu.cuMemsetD8Async(pointer, 7, 64, bench.main));
    ok!(cu.cuMemcpyDtoDAsync_v2(bench.device, pointer, 64, bench.main));
    ok!(cu.cuMemFreeAsync(pointer, bench.main));
    let exec = cu.instantiate(bench.expect("alloc copy64 free set7 | alloc->set7 copy64->free set7->copy64")?)?;
    for _ in 0..3 {
        ok!(cu.cuMemsetD8_v2(bench.device, 0, 64));
        ok!(cu.cuCtxSynchronize());
        launch(cu, exec)?;
        same!(cu, cu.read(bench.device, 64)?, vec![7; 64]);
    }
    Ok(())
}

fn captured_from_a_pool(cu: &Cuda<'_>) -> CaseResult {
    let (bench, mut pool, mut pointer) = (Bench::begun(cu)?, ptr::null_mut(), 0);
    ok!(cu.cuDeviceGetDefaultMemPool(&mut pool, 0));
    ok!(cu.cuMemAllocFromPoolAsync(&mut pointer, 100, pool, bench.main));
    let graph = bench.expect("alloc |")?;
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
    ok!(cu.cuGraphMemAllocNodeGetParams(cu.nodes(graph)?[0], &mut params));
    same!(cu, (params.dptr, params.bytesize, params.accessDescCount), (pointer, 100, 0));
    same!(
        cu,
        (params.poolProps.allocType.0, params.poolProps.location.type_.0, params.poolProps.location.id),
        (1, 1, 0)
    );
    Ok(())
}

fn captured_allocation_outlives_the_launch(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let pointer = alloc_captured(cu, 64, bench.main)?;
    ok!(cu.cuMemsetD8Async(pointer, 3, 64, bench.main));
    let exec = cu.instantiate(bench.expect("alloc set3 | alloc->set3")?)?;
    launch(cu, exec)?;
    same!(cu, cu.read(pointer, 64)?, vec![3; 64]);
    ok!(cu.cuMemFreeAsync(pointer, bench.main));
    ok!(cu.cuStreamSynchronize(bench.main));
    Ok(())
}

fn free_by_another_graph(cu: &Cuda<'_>) -> CaseResult {
    let (graph, other, stream) = (cu.graph()?, cu.graph()?, cu.stream()?);
    let (_, pointer) = alloc_node(cu, graph)?;
    let mut node = ptr::null_mut();
    ok!(cu.cuGraphAddMemFreeNode(&mut node, other, ptr::null(), 0, pointer));
    let (allocates, frees) = (cu.instantiate(graph)?, cu.instantiate(other)?);
    for _ in 0..2 {
        ok!(cu.cuGraphLaunch(allocates, stream));
        ok!(cu.cuGraphLaunch(frees, stream));
    }
    want!(SUCCESS, cu.cuStreamSynchronize(stream));
    Ok(())
}

fn captured_free_elsewhere(cu: &Cuda<'_>) -> CaseResult {
    let (bench, mut pooled) = (Bench::new(cu)?, 0);
    ok!(cu.cuMemAllocAsync(&mut pooled, 4096, bench.side));
    ok!(cu.cuStreamSynchronize(bench.side));
    cu.begin(bench.main, RELAXED)?;
    want!(INVALID_VALUE, cu.cuMemFreeAsync(0x1000, bench.main));
    want!(INVALID_VALUE, cu.cuMemFreeAsync(pooled, bench.main));
    want!(INVALID_VALUE, cu.cuMemFreeAsync(bench.device, bench.main));
    end_empty(cu, &bench)?;
    ok!(cu.cuMemFreeAsync(pooled, bench.side));
    Ok(())
}

fn captured_free_twice(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let pointer = alloc_captured(cu, 64, bench.main)?;
    ok!(cu.cuMemFreeAsync(pointer, bench.main));
    want!(INVALID_VALUE, cu.cuMemFreeAsync(pointer, bench.main));
    bench.expect("alloc free | alloc->free")?;
    Ok(())
}

fn captured_too_large(cu: &Cuda<'_>) -> CaseResult {
    let (bench, mut pointer) = (Bench::begun(cu)?, 77);
    want!(OUT_OF_MEMORY, cu.cuMemAllocAsync(&mut pointer, 1 << 45, bench.main));
    same!(cu, pointer, 0);
    end_empty(cu, &bench)
}

fn captured_nothing(cu: &Cuda<'_>) -> CaseResult {
    let (bench, mut pointer) = (Bench::begun(cu)?, 77);
    want!(SUCCESS, cu.cuMemAllocAsync(&mut pointer, 0, bench.main));
    same!(cu, pointer, 0);
    want!(SUCCESS, cu.cuMemFreeAsync(0, bench.main));
    end_empty(cu, &bench)
}

fn captured_in_an_invalidated_capture(cu: &Cuda<'_>) -> CaseResult {
    let (bench, mut pointer) = (Bench::begun(cu)?, 0);
    let inside = alloc_captured(cu, 64, bench.main)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(bench.main));
    want!(STREAM_CAPTURE_INVALIDATED, cu.cuMemAllocAsync(&mut pointer, 64, bench.main));
    want!(STREAM_CAPTURE_INVALIDATED, cu.cuMemFreeAsync(inside, bench.main));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn usable_between_launch_and_free(cu: &Cuda<'_>) -> CaseResult {
    let (graph, stream) = (cu.graph()?, cu.stream()?);
    let (_, pointer) = alloc_node(cu, graph)?;
    let exec = cu.instantiate(graph)?;
    for _ in 0..2 {
        ok!(cu.cuGraphLaunch(exec, stream));
        want!(SUCCESS, cu.cuMemsetD8Async(pointer, 5, 4096, stream));
        ok!(cu.cuStreamSynchronize(stream));
        let (mut base, mut size) = (0, 0);
        ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut size, pointer + 8));
        same!(cu, (base, size, cu.read(pointer, 8)?), (pointer, 4096, vec![5; 8]));
        want!(SUCCESS, cu.cuMemFreeAsync(pointer, stream));
        want!(INVALID_VALUE, cu.cuMemFreeAsync(pointer, stream));
        ok!(cu.cuStreamSynchronize(stream));
        want!(NOT_FOUND, cu.cuMemGetAddressRange_v2(&mut base, &mut size, pointer));
        want!(INVALID_VALUE, cu.cuMemFree_v2(pointer));
    }
    Ok(())
}

fn not_there_before_the_launch(cu: &Cuda<'_>) -> CaseResult {
    let (graph, stream) = (cu.graph()?, cu.stream()?);
    let (_, pointer) = alloc_node(cu, graph)?;
    want!(INVALID_VALUE, cu.cuMemsetD8Async(pointer, 1, 64, stream));
    want!(INVALID_VALUE, cu.cuMemFreeAsync(pointer, stream));
    want!(INVALID_VALUE, cu.cuMemFree_v2(pointer));
    let mut kind = 0_u32;
    want!(
        INVALID_VALUE,
        cu.cuPointerGetAttribute(
            (&raw mut kind).cast(),
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            pointer
        )
    );
    Ok(())
}

fn freed_at_once(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (_, pointer) = alloc_node(cu, graph)?;
    let exec = run(cu, graph)?;
    want!(SUCCESS, cu.cuMemFree_v2(pointer));
    launch(cu, exec)?;
    want!(SUCCESS, cu.cuMemFree_v2(pointer));
    Ok(())
}

fn auto_free_on_launch(cu: &Cuda<'_>) -> CaseResult {
    let (graph, stream, mut exec) = (cu.graph()?, cu.stream()?, ptr::null_mut());
    let (alloc, pointer) = alloc_node(cu, graph)?;
    cu.set_node(graph, &[alloc], &line_set(pointer, 6, 64))?;
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 1));
    cu.later(Cleanup::Exec(exec));
    for _ in 0..4 {
        want!(SUCCESS, cu.cuGraphLaunch(exec, stream));
    }
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(pointer, 64)?, vec![6; 64]);
    want!(SUCCESS, cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn allocation_outlives_its_graph(cu: &Cuda<'_>) -> CaseResult {
    let (mut graph, mut exec, stream) = (ptr::null_mut(), ptr::null_mut(), cu.stream()?);
    ok!(cu.cuGraphCreate(&mut graph, 0));
    let (_, pointer) = alloc_node(cu, graph)?;
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    want!(SUCCESS, cu.cuMemsetD8Async(pointer, 5, 64, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(pointer, 64)?, vec![5; 64]);
    want!(SUCCESS, cu.cuMemFreeAsync(pointer, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn one_executable_graph(cu: &Cuda<'_>) -> CaseResult {
    let (graph, mut exec, mut second) = (cu.graph()?, ptr::null_mut(), ptr::null_mut());
    let (alloc, pointer) = alloc_node(cu, graph)?;
    free_node(cu, graph, alloc, pointer)?;
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    want!(NOT_SUPPORTED, cu.cuGraphInstantiateWithFlags(&mut second, graph, 0));
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed();
    want!(NOT_SUPPORTED, cu.cuGraphInstantiateWithParams(&mut second, graph, &mut params));
    ok!(cu.cuGraphExecDestroy(exec));
    run(cu, graph)?;
    Ok(())
}

fn graphs_cannot_be_copied(cu: &Cuda<'_>) -> CaseResult {
    let (graph, parent, mut clone, mut node) = (cu.graph()?, cu.graph()?, ptr::null_mut(), ptr::null_mut());
    alloc_node(cu, graph)?;
    want!(NOT_SUPPORTED, cu.cuGraphClone(&mut clone, graph));
    want!(NOT_SUPPORTED, cu.cuGraphAddChildGraphNode(&mut node, parent, ptr::null(), 0, graph));
    let plain = cu.graph()?;
    child_node(cu, parent, &[], plain)?;
    Ok(())
}

fn graphs_cannot_lose_anything(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (alloc, pointer) = alloc_node(cu, graph)?;
    let free = free_node(cu, graph, alloc, pointer)?;
    let empty = cu.empty_node(graph, &[alloc])?;
    for node in [alloc, free, empty] {
        want!(NOT_SUPPORTED, cu.cuGraphDestroyNode(node));
    }
    want!(NOT_SUPPORTED, cu.cuGraphRemoveDependencies(graph, &alloc, &free, 1));
    if cu.driver().functions().cuGraphRemoveDependencies_v2.is_some() {
        want!(NOT_SUPPORTED, cu.cuGraphRemoveDependencies_v2(graph, &alloc, &free, ptr::null(), 1));
    }
    same!(cu, cu.nodes(graph)?.len(), 3);
    Ok(())
}

fn edges_can_be_added(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (alloc, _) = alloc_node(cu, graph)?;
    let empty = cu.empty_node(graph, &[])?;
    want!(SUCCESS, cu.cuGraphAddDependencies(graph, &empty, &alloc, 1));
    same!(cu, (kind(cu, alloc)?, cu.shape(graph)?), (10, "alloc empty | empty->alloc".to_owned()));
    Ok(())
}

/// What adding a node that allocates so answers, and the address that its parameters name then: 77 before.
fn refused(
    cu: &Cuda<'_>,
    bytes: usize,
    change: impl FnOnce(&mut CUDA_MEM_ALLOC_NODE_PARAMS),
) -> CaseResult<(CUresult, CUdeviceptr)> {
    let (graph, mut node, mut params) = (cu.graph()?, ptr::null_mut(), alloc_params(bytes));
    change(&mut params);
    params.dptr = 77;
    let status = status!(cu.cuGraphAddMemAllocNode(&mut node, graph, ptr::null(), 0, &mut params));
    Ok((status, params.dptr))
}

fn unknown_properties(cu: &Cuda<'_>) -> CaseResult {
    let invalid = (CUresult::CUDA_ERROR_INVALID_VALUE, 77);
    let unsupported = (CUresult::CUDA_ERROR_NOT_SUPPORTED, 77);
    same!(cu, refused(cu, 0, |_| {})?, invalid);
    same!(cu, refused(cu, 1 << 45, |_| {})?, (CUresult::CUDA_ERROR_OUT_OF_MEMORY, 77));
    same!(cu, refused(cu, 64, |params| params.poolProps.allocType = CUmemAllocationType(0))?, invalid);
    same!(cu, refused(cu, 64, |params| params.poolProps.location.type_ = CUmemLocationType(0))?, invalid);
    same!(cu, refused(cu, 64, |params| params.poolProps.location.type_ = CUmemLocationType(2))?, unsupported);
    same!(cu, refused(cu, 64, |params| params.poolProps.location.id = 1000)?, invalid);
    same!(cu, refused(cu, 64, |params| params.poolProps.handleTypes = CUmemAllocationHandleType(1))?, unsupported);
    Ok(())
}

fn access_descriptions(cu: &Cuda<'_>) -> CaseResult {
    let mut grant = CUmemAccessDesc {
        location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
        flags: CUmemAccess_flags(1),
    };
    let (read, address) =
        refused(cu, 64, |params| (params.accessDescs, params.accessDescCount) = (&raw const grant, 1))?;
    same!(cu, (read, address), (CUresult::CUDA_ERROR_NOT_SUPPORTED, 77));
    grant.flags = CUmemAccess_flags(3);
    let (all, address) =
        refused(cu, 64, |params| (params.accessDescs, params.accessDescCount) = (&raw const grant, 1))?;
    same!(cu, (all, address != 0), (CUresult::CUDA_SUCCESS, true));
    Ok(())
}

fn sets_are_checked(cu: &Cuda<'_>) -> CaseResult {
    let (graph, other, mut node, mut context) = (cu.graph()?, cu.graph()?, ptr::null_mut(), ptr::null_mut());
    let (alloc, pointer) = alloc_node(cu, graph)?;
    ok!(cu.cuCtxGetCurrent(&mut context));
    cu.set_node(graph, &[alloc], &line_set(pointer, 1, 4096))?;
    let long = line_set(pointer, 1, 4097);
    want!(INVALID_VALUE, cu.cuGraphAddMemsetNode(&mut node, graph, &alloc, 1, &long, context));
    // Nobody looks whether the other graph will have run.
    cu.set_node(other, &[], &line_set(pointer, 1, 64))?;
    Ok(())
}

/// Used and reserved memory of graphs, each now and at most.
fn marks(cu: &Cuda<'_>) -> CaseResult<[u64; 4]> {
    let mut marks = [0; 4];
    for (attribute, mark) in (0..).zip(&mut marks) {
        ok!(cu.cuDeviceGetGraphMemAttribute(0, CUgraphMem_attribute(attribute), ptr::from_mut(mark).cast()));
    }
    Ok(marks)
}

const CHUNK: u64 = 32 << 20;

fn memory_is_counted(cu: &Cuda<'_>) -> CaseResult {
    ok!(cu.cuDeviceGraphMemTrim(0));
    let (graph, stream) = (cu.graph()?, cu.stream()?);
    let (mut node, mut large, mut small) = (ptr::null_mut(), alloc_params(100 << 20), alloc_params(100));
    ok!(cu.cuGraphAddMemAllocNode(&mut node, graph, ptr::null(), 0, &mut large));
    ok!(cu.cuGraphAddMemAllocNode(&mut node, graph, ptr::null(), 0, &mut small));
    let exec = cu.instantiate(graph)?;
    let before = marks(cu)?;
    same!(cu, (before[0], before[2]), (0, 0));
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuStreamSynchronize(stream));
    let launched = marks(cu)?;
    same!(cu, (launched[0], launched[2]), (4 * CHUNK, 4 * CHUNK));
    ok!(cu.cuMemFreeAsync(large.dptr, stream));
    ok!(cu.cuMemFreeAsync(small.dptr, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, marks(cu)?[0], launched[0]);
    ok!(cu.cuDeviceGraphMemTrim(0));
    let trimmed = marks(cu)?;
    same!(cu, (trimmed[0], trimmed[1] >= launched[0], trimmed[2]), (0, true, 0));
    Ok(())
}

fn high_marks(cu: &Cuda<'_>) -> CaseResult {
    let (graph, mut value) = (cu.graph()?, 0_u64);
    let (alloc, pointer) = alloc_node(cu, graph)?;
    free_node(cu, graph, alloc, pointer)?;
    run(cu, graph)?;
    ok!(cu.cuDeviceGraphMemTrim(0));
    that!(cu, marks(cu)?[1] >= CHUNK);
    for (attribute, code) in [(0, 1), (1, 0), (2, 1), (3, 0), (4, 1)] {
        let at = CUgraphMem_attribute(attribute);
        let status = status!(cu.cuDeviceSetGraphMemAttribute(0, at, (&raw mut value).cast()));
        same!(cu, (attribute, status.0), (attribute, code));
    }
    same!(cu, marks(cu)?, [0; 4]);
    value = 5;
    want!(INVALID_VALUE, cu.cuDeviceSetGraphMemAttribute(0, CUgraphMem_attribute(1), (&raw mut value).cast()));
    Ok(())
}

fn trimming_is_allowed_while_capturing(cu: &Cuda<'_>) -> CaseResult {
    for mode in [GLOBAL, LOCAL, RELAXED] {
        let bench = Bench::new(cu)?;
        cu.begin(bench.main, mode)?;
        marks(cu)?;
        want!(SUCCESS, cu.cuDeviceGraphMemTrim(0));
        end_empty(cu, &bench)?;
    }
    Ok(())
}

fn update_from_itself(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    let (alloc, pointer) = alloc_node(cu, graph)?;
    free_node(cu, graph, alloc, pointer)?;
    let exec = cu.instantiate(graph)?;
    want!(SUCCESS, cu.cuGraphExecUpdate_v2(exec, graph, ptr::null_mut()));
    launch(cu, exec)
}
