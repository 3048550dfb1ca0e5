//! Stream capture: what it records, what it forbids, and what is left of it afterwards.

use super::prelude::*;

cases!("capture", CASES, Needs::CONTEXT;
    begin_and_end, end_without_begin, begin_twice, begin_on_legacy, begin_on_per_thread, begin_with_unknown_mode,
    nothing_captured, work_is_not_run, is_capturing, is_capturing_on_default_streams, info_of_an_idle_stream,
    info_of_a_capture, info_v3_of_a_capture, info_with_one_output, capture_ids_differ, chain_of_sets, set_parameters, copy_parameters,
    two_dimensional_set, two_dimensional_copy, host_function_node, callbacks_are_captured, value_writes_are_captured,
    fork_and_join, fork_joined_twice, nested_forks, two_forks_joined_at_once, transitive_dependencies,
    fork_without_work, fork_before_any_work, wait_for_own_event, wait_twice_for_one_event, record_twice_and_wait, fork_from_a_fork,
    parallel_chains, join_then_fork_again, event_reused_for_the_way_back, wait_without_work_between, unjoined, unjoined_deep, unjoined_empty_fork, unmatched, other_stream_ends,
    wrong_thread, other_thread_may_end_relaxed, isolation, isolation_from_outside, merge_of_two_captures, captured_event_outside,
    query_of_a_captured_event, synchronize_of_a_captured_event, elapsed_of_captured_events, captured_event_after_the_end,
    external_record, external_wait, upload_of_captured, replay_runs_the_work, replay_many_times, launch_into_a_capture, two_captures_side_by_side,
    update_dependencies_set, update_dependencies_add, update_dependencies_unknown_flags, update_dependencies_idle, update_dependencies_v2,
    to_graph, to_graph_with_dependencies, to_graph_errors, stream_ordered_memory, zero_sized_work, destroy_of_a_capturing_stream,
    graph_belongs_to_the_caller,
);

cases!("forbidden", FORBIDDEN_CASES, Needs::CONTEXT;
    stream_synchronize, stream_query, context_synchronize, invalidated_capture_refuses_work, invalidated_fork,
    alloc_in_each_mode, free_in_each_mode, host_alloc_in_each_mode, host_register_in_each_mode, synchronous_copy_in_each_mode,
    synchronous_set_in_each_mode, legacy_work_in_each_mode, legacy_query_in_each_mode, legacy_record_in_each_mode, blocking_stream_and_legacy, other_stream_may_work,
    other_stream_synchronize, other_stream_query, event_of_another_stream, stream_flags_in_each_mode,
    stream_properties_in_each_mode, stream_id_in_each_mode, other_stream_flags_in_each_mode, instantiate_in_each_mode, upload_in_each_mode, upload_while_capturing,
    pageable_copy_to_host, peer_copies_in_each_mode, context_events_in_each_mode, limits_in_each_mode, other_allocations_in_each_mode,
    other_frees_in_each_mode, instantiate_with_parameters_in_each_mode, context_synchronize_v2, event_create_is_allowed, stream_create_is_allowed, begin_elsewhere_is_allowed,
    other_thread_under_global, other_thread_under_local, other_thread_under_relaxed, exchange_mode, exchange_unknown_mode, exchange_allows_allocation,
    queries_are_allowed, event_query_outside, event_synchronize_outside, device_reset_free_calls, wait_for_event_of_invalidated, pool_alloc_elsewhere, graph_calls_are_allowed,
    launch_elsewhere_is_allowed, legacy_waits_for_captured_event, destroy_stream_elsewhere, destroy_event_elsewhere, per_thread_work_elsewhere,
);

pub(super) const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const LOCAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
pub(super) const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

/// Streams and memory to capture with; sets are told apart by their value.
struct Bench<'a, 'd> {
    cu: &'a Cuda<'d>,
    device: CUdeviceptr,
    /// The stream on which the capture begins.
    main: CUstream,
    /// Two others.
    side: CUstream,
    third: CUstream,
}

impl<'a, 'd> Bench<'a, 'd> {
    fn new(cu: &'a Cuda<'d>) -> CaseResult<Self> {
        Ok(Self { cu, device: cu.filled(4096, 0)?, main: cu.stream()?, side: cu.stream()?, third: cu.stream()? })
    }

    /// The same, with a capture begun on `main`.
    fn begun(cu: &'a Cuda<'d>) -> CaseResult<Self> {
        let bench = Self::new(cu)?;
        cu.begin(bench.main, GLOBAL)?;
        Ok(bench)
    }

    /// A set that shows as `set{value}` in the graph.
    fn set(&self, value: u8, stream: CUstream) -> CaseResult {
        let cu = self.cu;
        ok!(cu.cuMemsetD8Async(self.device + 16 * CUdeviceptr::from(value), value, 16, stream));
        Ok(())
    }

    /// Makes `to` wait for what is on `from` now.
    fn join(&self, from: CUstream, to: CUstream) -> CaseResult<CUevent> {
        let cu = self.cu;
        let event = cu.event()?;
        ok!(cu.cuEventRecord(event, from));
        ok!(cu.cuStreamWaitEvent(to, event, 0));
        Ok(event)
    }

    /// Ends the capture and compares the graph with its text.
    fn expect(&self, shape: &str) -> CaseResult<CUgraph> {
        let cu = self.cu;
        let graph = cu.end(self.main)?;
        same!(cu, cu.shape(graph)?, shape);
        Ok(graph)
    }

    /// Ends a capture that failed, and shows that the stream works again.
    fn expect_end(&self, code: CUresult) -> CaseResult {
        let cu = self.cu;
        let mut graph = ptr::without_provenance_mut(1);
        let status = status!(cu.cuStreamEndCapture(self.main, &mut graph));
        same!(cu, status, code);
        if code != CUresult::CUDA_SUCCESS {
            that!(cu, graph.is_null());
        } else if !graph.is_null() {
            cu.later(Cleanup::Graph(graph));
        }
        same!(cu, status_of_capture(cu, self.main)?, 0);
        want!(SUCCESS, cu.cuStreamSynchronize(self.main));
        Ok(())
    }
}

fn status_of_capture(cu: &Cuda<'_>, stream: CUstream) -> CaseResult<u32> {
    let mut status = CUstreamCaptureStatus(9);
    ok!(cu.cuStreamIsCapturing(stream, &mut status));
    Ok(status.0)
}

fn begin_and_end(cu: &Cuda<'_>) -> CaseResult {
    for mode in [GLOBAL, LOCAL, RELAXED] {
        let stream = cu.stream()?;
        cu.begin(stream, mode)?;
        let graph = cu.end(stream)?;
        same!(cu, cu.shape(graph)?, "|");
    }
    Ok(())
}

fn end_without_begin(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let mut graph = ptr::null_mut();
    want!(ILLEGAL_STATE, cu.cuStreamEndCapture(stream, &mut graph));
    want!(ILLEGAL_STATE, cu.cuStreamEndCapture(LEGACY, &mut graph));
    Ok(())
}

fn begin_twice(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    want!(ILLEGAL_STATE, cu.cuStreamBeginCapture_v2(bench.main, GLOBAL));
    bench.set(1, bench.main)?;
    bench.expect("set1 |")?;
    Ok(())
}

fn begin_on_legacy(cu: &Cuda<'_>) -> CaseResult {
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamBeginCapture_v2(DEFAULT, GLOBAL));
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamBeginCapture_v2(LEGACY, RELAXED));
    Ok(())
}

fn begin_on_per_thread(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(64, 0)?;
    cu.begin(PER_THREAD, GLOBAL)?;
    ok!(cu.cuMemsetD8Async(device, 1, 16, PER_THREAD));
    let graph = cu.end(PER_THREAD)?;
    same!(cu, cu.shape(graph)?, "set1 |");
    Ok(())
}

fn begin_with_unknown_mode(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(INVALID_VALUE, cu.cuStreamBeginCapture_v2(stream, CUstreamCaptureMode(3)));
    same!(cu, status_of_capture(cu, stream)?, 0);
    Ok(())
}

fn nothing_captured(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let graph = bench.expect("|")?;
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphLaunch(exec, bench.main));
    ok!(cu.cuStreamSynchronize(bench.main));
    Ok(())
}

fn work_is_not_run(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.expect("set1 |")?;
    same!(cu, cu.read(bench.device, 64)?, vec![0; 64]);
    Ok(())
}

fn is_capturing(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::new(cu)?;
    same!(cu, status_of_capture(cu, bench.main)?, 0);
    cu.begin(bench.main, GLOBAL)?;
    same!(cu, status_of_capture(cu, bench.main)?, 1);
    same!(cu, status_of_capture(cu, bench.side)?, 0);
    bench.join(bench.main, bench.side)?;
    same!(cu, status_of_capture(cu, bench.side)?, 1);
    bench.join(bench.side, bench.main)?;
    bench.expect("|")?;
    same!(cu, status_of_capture(cu, bench.main)?, 0);
    same!(cu, status_of_capture(cu, bench.side)?, 0);
    Ok(())
}

fn is_capturing_on_default_streams(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, status_of_capture(cu, DEFAULT)?, 0);
    same!(cu, status_of_capture(cu, PER_THREAD)?, 0);
    let blocking = cu.stream_with(0)?;
    cu.begin(blocking, RELAXED)?;
    let mut status = CUstreamCaptureStatus(9);
    want!(STREAM_CAPTURE_IMPLICIT, cu.cuStreamIsCapturing(LEGACY, &mut status));
    let mut graph = ptr::null_mut();
    want!(SUCCESS, cu.cuStreamEndCapture(blocking, &mut graph));
    if !graph.is_null() {
        ok!(cu.cuGraphDestroy(graph));
    }
    Ok(())
}

fn info_of_an_idle_stream(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (mut status, mut id) = (CUstreamCaptureStatus(9), 77);
    ok!(cu.cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()));
    same!(cu, status.0, 0);
    ok!(cu.cuStreamGetCaptureInfo_v3(
        stream,
        &mut status,
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut(),
        ptr::null_mut()
    ));
    same!(cu, status.0, 0);
    Ok(())
}

/// What the driver says of a capture: status, id, graph, the nodes that the next one will depend on.
fn info(cu: &Cuda<'_>, stream: CUstream) -> CaseResult<(u32, u64, CUgraph, Vec<CUgraphNode>)> {
    let (mut status, mut id, mut graph) = (CUstreamCaptureStatus(9), 0, ptr::null_mut());
    let (mut nodes, mut count) = (ptr::null(), 0);
    ok!(cu.cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count));
    let nodes = if count == 0 {
        Vec::new()
    } else {
        // SAFETY: the driver says that so many handles lie there, until the next call on the stream.
        unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec()
    };
    Ok((status.0, id, graph, nodes))
}

fn info_of_a_capture(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let (status, id, graph, nodes) = info(cu, bench.main)?;
    same!(cu, (status, nodes.len()), (1, 0));
    that!(cu, id != 0 && !graph.is_null());
    bench.set(1, bench.main)?;
    let (_, same_id, same_graph, nodes) = info(cu, bench.main)?;
    same!(cu, (same_id, same_graph, nodes.len()), (id, graph, 1));
    let ended = bench.expect("set1 |")?;
    same!(cu, ended, graph);
    same!(cu, cu.nodes(ended)?, nodes);
    Ok(())
}

fn info_v3_of_a_capture(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let (mut status, mut id, mut graph) = (CUstreamCaptureStatus(9), 0, ptr::null_mut());
    let (mut nodes, mut edges, mut count) = (ptr::null(), ptr::null(), 0);
    ok!(cu.cuStreamGetCaptureInfo_v3(bench.main, &mut status, &mut id, &mut graph, &mut nodes, &mut edges, &mut count));
    same!(cu, (status.0, count), (1, 1));
    that!(cu, id != 0 && !graph.is_null() && !nodes.is_null());
    bench.expect("set1 |")?;
    Ok(())
}

fn info_with_one_output(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let mut status = CUstreamCaptureStatus(9);
    let none = ptr::null_mut();
    want!(
        SUCCESS,
        cu.cuStreamGetCaptureInfo_v2(bench.main, &mut status, ptr::null_mut(), ptr::null_mut(), none, ptr::null_mut())
    );
    same!(cu, status.0, 1);
    bench.expect("set1 |")?;
    Ok(())
}

fn capture_ids_differ(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let (_, first, _, _) = info(cu, bench.main)?;
    bench.expect("|")?;
    cu.begin(bench.main, GLOBAL)?;
    let (_, second, _, _) = info(cu, bench.main)?;
    bench.expect("|")?;
    that!(cu, first != second);
    Ok(())
}

fn chain_of_sets(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    for value in 1..=4 {
        bench.set(value, bench.main)?;
    }
    bench.expect("set1 set2 set3 set4 | set1->set2 set2->set3 set3->set4")?;
    Ok(())
}

fn set_parameters(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    ok!(cu.cuMemsetD32Async(bench.device, 0x0102_0304, 5, bench.main));
    let graph = cu.end(bench.main)?;
    let mut params = CUDA_MEMSET_NODE_PARAMS::zeroed();
    let Some(&node) = cu.nodes(graph)?.first() else { return Err(Stop::Failed("no node".to_owned())) };
    ok!(cu.cuGraphMemsetNodeGetParams(node, &mut params));
    same!(cu, (params.dst, params.value, params.elementSize), (bench.device, 0x0102_0304, 4));
    same!(cu, (params.width, params.height), (5, 1));
    Ok(())
}

fn copy_parameters(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    ok!(cu.cuMemcpyDtoDAsync_v2(bench.device, bench.device + 1024, 100, bench.main));
    let graph = cu.end(bench.main)?;
    let mut params = CUDA_MEMCPY3D::zeroed();
    let Some(&node) = cu.nodes(graph)?.first() else { return Err(Stop::Failed("no node".to_owned())) };
    ok!(cu.cuGraphMemcpyNodeGetParams(node, &mut params));
    same!(cu, (params.srcDevice, params.dstDevice), (bench.device + 1024, bench.device));
    same!(cu, (params.srcMemoryType.0, params.dstMemoryType.0), (2, 2));
    same!(cu, (params.WidthInBytes, params.Height, params.Depth), (100, 1, 1));
    Ok(())
}

fn two_dimensional_set(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    ok!(cu.cuMemsetD2D16Async(bench.device, 64, 0x0707, 8, 3, bench.main));
    let graph = cu.end(bench.main)?;
    let mut params = CUDA_MEMSET_NODE_PARAMS::zeroed();
    let Some(&node) = cu.nodes(graph)?.first() else { return Err(Stop::Failed("no node".to_owned())) };
    ok!(cu.cuGraphMemsetNodeGetParams(node, &mut params));
    same!(cu, (params.pitch, params.elementSize, params.width, params.height), (64, 2, 8, 3));
    Ok(())
}

fn two_dimensional_copy(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: bench.device,
        srcPitch: 64,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: bench.device + 2048,
        dstPitch: 32,
        WidthInBytes: 20,
        Height: 4,
        ..CUDA_MEMCPY2D::zeroed()
    };
    ok!(cu.cuMemcpy2DAsync_v2(&copy, bench.main));
    let graph = bench.expect("copy20 |")?;
    let mut params = CUDA_MEMCPY3D::zeroed();
    let Some(&node) = cu.nodes(graph)?.first() else { return Err(Stop::Failed("no node".to_owned())) };
    ok!(cu.cuGraphMemcpyNodeGetParams(node, &mut params));
    same!(cu, (params.srcPitch, params.dstPitch, params.Height, params.Depth), (64, 32, 4, 1));
    Ok(())
}

fn host_function_node(cu: &Cuda<'_>) -> CaseResult {
    let (bench, count) = (Bench::begun(cu)?, counter());
    bench.set(1, bench.main)?;
    ok!(cu.cuLaunchHostFunc(bench.main, Some(raise), data(count)));
    bench.set(2, bench.main)?;
    let graph = bench.expect("host set1 set2 | host->set2 set1->host")?;
    same!(cu, count.load(Ordering::SeqCst), 0);
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphLaunch(exec, bench.main));
    ok!(cu.cuStreamSynchronize(bench.main));
    same!(cu, count.load(Ordering::SeqCst), 1);
    Ok(())
}

unsafe extern "C" fn ignore(_stream: CUstream, _status: CUresult, _data: *mut c_void) {}

fn callbacks_are_captured(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamAddCallback(bench.main, Some(ignore), ptr::null_mut(), 0));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn value_writes_are_captured(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    ok!(cu.cuStreamWriteValue32_v2(bench.main, bench.device, 1, 0));
    bench.set(1, bench.main)?;
    bench.expect("kind12 set1 | kind12->set1")?;
    Ok(())
}

fn fork_and_join(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.set(2, bench.side)?;
    bench.set(3, bench.main)?;
    bench.join(bench.side, bench.main)?;
    bench.set(4, bench.main)?;
    bench.expect("set1 set2 set3 set4 | set1->set2 set1->set3 set2->set4 set3->set4")?;
    Ok(())
}

fn fork_joined_twice(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.set(2, bench.side)?;
    bench.join(bench.side, bench.main)?;
    bench.join(bench.side, bench.main)?;
    bench.set(3, bench.main)?;
    bench.expect("set1 set2 set3 | set1->set2 set1->set3 set2->set3")?;
    Ok(())
}

fn nested_forks(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.set(2, bench.side)?;
    bench.join(bench.side, bench.third)?;
    bench.set(3, bench.third)?;
    bench.join(bench.third, bench.side)?;
    bench.set(4, bench.side)?;
    bench.join(bench.side, bench.main)?;
    bench.set(5, bench.main)?;
    bench.expect("set1 set2 set3 set4 set5 | set1->set2 set1->set5 set2->set3 set2->set4 set3->set4 set4->set5")?;
    Ok(())
}

fn two_forks_joined_at_once(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let event = bench.join(bench.main, bench.side)?;
    ok!(cu.cuStreamWaitEvent(bench.third, event, 0));
    bench.set(2, bench.side)?;
    bench.set(3, bench.third)?;
    bench.join(bench.side, bench.main)?;
    bench.join(bench.third, bench.main)?;
    bench.set(4, bench.main)?;
    bench.expect("set1 set2 set3 set4 | set1->set2 set1->set3 set1->set4 set2->set4 set3->set4")?;
    Ok(())
}

fn transitive_dependencies(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let early = cu.event()?;
    ok!(cu.cuEventRecord(early, bench.main));
    bench.set(2, bench.main)?;
    bench.join(bench.main, bench.side)?;
    ok!(cu.cuStreamWaitEvent(bench.side, early, 0));
    bench.set(3, bench.side)?;
    bench.join(bench.side, bench.main)?;
    bench.expect("set1 set2 set3 | set1->set2 set1->set3 set2->set3")?;
    Ok(())
}

fn fork_without_work(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.join(bench.side, bench.main)?;
    bench.set(2, bench.main)?;
    bench.expect("set1 set2 | set1->set2")?;
    Ok(())
}

fn fork_before_any_work(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.join(bench.main, bench.side)?;
    bench.set(1, bench.side)?;
    bench.set(2, bench.main)?;
    bench.join(bench.side, bench.main)?;
    bench.set(3, bench.main)?;
    bench.expect("set1 set2 set3 | set1->set3 set2->set3")?;
    Ok(())
}

fn wait_for_own_event(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let event = bench.join(bench.main, bench.main)?;
    bench.set(2, bench.main)?;
    ok!(cu.cuStreamWaitEvent(bench.main, event, 0));
    bench.set(3, bench.main)?;
    bench.expect("set1 set2 set3 | set1->set2 set1->set3 set2->set3")?;
    Ok(())
}

fn wait_twice_for_one_event(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let event = bench.join(bench.main, bench.side)?;
    ok!(cu.cuStreamWaitEvent(bench.side, event, 0));
    bench.set(2, bench.side)?;
    ok!(cu.cuStreamWaitEvent(bench.side, event, 0));
    bench.set(3, bench.side)?;
    bench.join(bench.side, bench.main)?;
    bench.expect("set1 set2 set3 | set1->set2 set1->set3 set2->set3")?;
    Ok(())
}

fn record_twice_and_wait(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let event = cu.event()?;
    bench.set(1, bench.main)?;
    ok!(cu.cuEventRecord(event, bench.main));
    bench.set(2, bench.main)?;
    ok!(cu.cuEventRecord(event, bench.main));
    ok!(cu.cuStreamWaitEvent(bench.side, event, 0));
    bench.set(3, bench.side)?;
    bench.join(bench.side, bench.main)?;
    bench.expect("set1 set2 set3 | set1->set2 set2->set3")?;
    Ok(())
}

fn fork_from_a_fork(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.join(bench.main, bench.side)?;
    bench.set(1, bench.side)?;
    bench.join(bench.side, bench.third)?;
    bench.set(2, bench.third)?;
    bench.set(3, bench.side)?;
    bench.join(bench.third, bench.main)?;
    bench.join(bench.side, bench.main)?;
    bench.set(4, bench.main)?;
    bench.expect("set1 set2 set3 set4 | set1->set2 set1->set3 set2->set4 set3->set4")?;
    Ok(())
}

fn parallel_chains(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.join(bench.main, bench.side)?;
    bench.join(bench.main, bench.third)?;
    for (value, stream) in
        [(1, bench.main), (2, bench.side), (3, bench.third), (4, bench.main), (5, bench.side), (6, bench.third)]
    {
        bench.set(value, stream)?;
    }
    bench.join(bench.side, bench.main)?;
    bench.join(bench.third, bench.main)?;
    bench.expect("set1 set2 set3 set4 set5 set6 | set1->set4 set2->set5 set3->set6")?;
    Ok(())
}

fn join_then_fork_again(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.set(2, bench.side)?;
    bench.join(bench.side, bench.main)?;
    bench.set(3, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.set(4, bench.side)?;
    bench.join(bench.side, bench.main)?;
    bench.expect("set1 set2 set3 set4 | set1->set2 set1->set3 set2->set3 set2->set4 set3->set4")?;
    Ok(())
}

fn event_reused_for_the_way_back(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let event = bench.join(bench.main, bench.side)?;
    bench.set(2, bench.side)?;
    ok!(cu.cuEventRecord(event, bench.side));
    ok!(cu.cuStreamWaitEvent(bench.main, event, 0));
    bench.set(3, bench.main)?;
    bench.expect("set1 set2 set3 | set1->set2 set1->set3 set2->set3")?;
    Ok(())
}

fn wait_without_work_between(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.set(2, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.set(3, bench.side)?;
    bench.join(bench.side, bench.main)?;
    bench.expect("set1 set2 set3 | set1->set2 set1->set3 set2->set3")?;
    Ok(())
}

fn unjoined(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.set(2, bench.side)?;
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED)?;
    same!(cu, status_of_capture(cu, bench.side)?, 0);
    Ok(())
}

fn unjoined_deep(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.join(bench.main, bench.side)?;
    bench.set(1, bench.side)?;
    bench.join(bench.side, bench.third)?;
    bench.set(2, bench.third)?;
    bench.join(bench.side, bench.main)?;
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
}

fn unjoined_empty_fork(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.set(2, bench.main)?;
    bench.expect_end(CUresult::CUDA_SUCCESS)
}

fn unmatched(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    bench.set(2, bench.side)?;
    let mut graph = ptr::null_mut();
    want!(STREAM_CAPTURE_UNMATCHED, cu.cuStreamEndCapture(bench.side, &mut graph));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn other_stream_ends(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let mut graph = ptr::null_mut();
    want!(ILLEGAL_STATE, cu.cuStreamEndCapture(bench.side, &mut graph));
    bench.set(1, bench.main)?;
    bench.expect("set1 |")?;
    Ok(())
}

fn wrong_thread(cu: &Cuda<'_>) -> CaseResult {
    for mode in [GLOBAL, LOCAL] {
        let bench = Bench::new(cu)?;
        cu.begin(bench.main, mode)?;
        bench.set(1, bench.main)?;
        let main = Loose::new(bench.main);
        cu.on_another_thread(|cu| {
            let mut graph = ptr::null_mut();
            want!(STREAM_CAPTURE_WRONG_THREAD, cu.cuStreamEndCapture(main.get(), &mut graph));
            Ok(())
        })?;
        // The failed attempt ended the capture.
        bench.expect_end(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    }
    Ok(())
}

fn other_thread_may_end_relaxed(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::new(cu)?;
    cu.begin(bench.main, RELAXED)?;
    bench.set(1, bench.main)?;
    let main = Loose::new(bench.main);
    cu.on_another_thread(|cu| {
        let graph = cu.end(main.get())?;
        same!(cu, cu.shape(graph)?, "set1 |");
        Ok(())
    })
}

fn isolation(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::new(cu)?;
    let event = cu.event()?;
    ok!(cu.cuEventRecord(event, bench.side));
    cu.begin(bench.main, GLOBAL)?;
    want!(STREAM_CAPTURE_ISOLATION, cu.cuStreamWaitEvent(bench.main, event, 0));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn isolation_from_outside(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let (inside, outside) = (cu.event()?, cu.event()?);
    ok!(cu.cuEventRecord(inside, bench.main));
    ok!(cu.cuStreamWaitEvent(bench.side, inside, 0));
    ok!(cu.cuEventRecord(outside, bench.third));
    want!(STREAM_CAPTURE_ISOLATION, cu.cuStreamWaitEvent(bench.side, outside, 0));
    same!(cu, status_of_capture(cu, bench.main)?, 2);
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn merge_of_two_captures(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    cu.begin(bench.side, GLOBAL)?;
    bench.set(1, bench.main)?;
    bench.set(2, bench.side)?;
    let event = cu.event()?;
    ok!(cu.cuEventRecord(event, bench.side));
    want!(STREAM_CAPTURE_MERGE, cu.cuStreamWaitEvent(bench.main, event, 0));
    let mut graph = ptr::null_mut();
    want!(STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(bench.side, &mut graph));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn captured_event_outside(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    // The waiting stream became part of the capture, and its work a node.
    bench.set(2, bench.side)?;
    bench.join(bench.side, bench.main)?;
    bench.expect("set1 set2 | set1->set2")?;
    Ok(())
}

fn query_of_a_captured_event(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let event = cu.event()?;
    ok!(cu.cuEventRecord(event, bench.main));
    want!(CAPTURED_EVENT, cu.cuEventQuery(event));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn synchronize_of_a_captured_event(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let event = cu.event()?;
    ok!(cu.cuEventRecord(event, bench.main));
    want!(CAPTURED_EVENT, cu.cuEventSynchronize(event));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn elapsed_of_captured_events(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let (start, end) = (cu.event_with(0)?, cu.event_with(0)?);
    ok!(cu.cuEventRecord(start, bench.main));
    ok!(cu.cuEventRecord(end, bench.main));
    let mut milliseconds = 0.0;
    want!(CAPTURED_EVENT, cu.cuEventElapsedTime(&mut milliseconds, start, end));
    want!(CAPTURED_EVENT, cu.cuEventElapsedTime_v2(&mut milliseconds, start, end));
    bench.expect_end(OK)
}

fn captured_event_after_the_end(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let event = cu.event()?;
    bench.set(1, bench.main)?;
    ok!(cu.cuEventRecord(event, bench.main));
    bench.expect("set1 |")?;
    want!(INVALID_VALUE, cu.cuEventQuery(event));
    want!(INVALID_VALUE, cu.cuStreamWaitEvent(bench.side, event, 0));
    ok!(cu.cuEventRecord(event, bench.side));
    want!(SUCCESS, cu.cuEventSynchronize(event));
    Ok(())
}

fn external_record(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let event = cu.event()?;
    bench.set(1, bench.main)?;
    ok!(cu.cuEventRecordWithFlags(event, bench.main, 1));
    bench.set(2, bench.main)?;
    let graph = bench.expect("record set1 set2 | record->set2 set1->record")?;
    want!(SUCCESS, cu.cuEventQuery(event));
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphLaunch(exec, bench.main));
    want!(SUCCESS, cu.cuEventSynchronize(event));
    Ok(())
}

fn external_wait(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::new(cu)?;
    let event = cu.event()?;
    ok!(cu.cuEventRecord(event, bench.side));
    cu.begin(bench.main, GLOBAL)?;
    bench.set(1, bench.main)?;
    ok!(cu.cuStreamWaitEvent(bench.main, event, 1));
    bench.set(2, bench.main)?;
    bench.expect("set1 set2 wait | set1->wait wait->set2")?;
    Ok(())
}

fn upload_of_captured(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let exec = cu.instantiate(bench.expect("set1 |")?)?;
    ok!(cu.cuGraphUpload(exec, bench.main));
    ok!(cu.cuStreamSynchronize(bench.main));
    same!(cu, cu.read(bench.device + 16, 16)?, vec![0; 16]);
    Ok(())
}

fn replay_runs_the_work(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    bench.join(bench.main, bench.side)?;
    ok!(cu.cuMemcpyDtoDAsync_v2(bench.device + 1024, bench.device + 16, 16, bench.side));
    bench.join(bench.side, bench.main)?;
    let exec = cu.instantiate(bench.expect("copy16 set1 | set1->copy16")?)?;
    ok!(cu.cuGraphLaunch(exec, bench.main));
    same!(cu, cu.read(bench.device + 1024, 16)?, vec![1; 16]);
    Ok(())
}

fn replay_many_times(cu: &Cuda<'_>) -> CaseResult {
    let (bench, count) = (Bench::begun(cu)?, counter());
    ok!(cu.cuLaunchHostFunc(bench.main, Some(raise), data(count)));
    let exec = cu.instantiate(bench.expect("host |")?)?;
    for _ in 0..20 {
        ok!(cu.cuGraphLaunch(exec, bench.main));
    }
    ok!(cu.cuStreamSynchronize(bench.main));
    same!(cu, count.load(Ordering::SeqCst), 20);
    Ok(())
}

fn launch_into_a_capture(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    cu.empty_node(graph, &[])?;
    let exec = cu.instantiate(graph)?;
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED], |bench| Ok(status!(cu.cuGraphLaunch(exec, bench.main))))
}

fn two_captures_side_by_side(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    cu.begin(bench.side, GLOBAL)?;
    bench.set(1, bench.main)?;
    bench.set(2, bench.side)?;
    bench.set(3, bench.main)?;
    let other = cu.end(bench.side)?;
    same!(cu, cu.shape(other)?, "set2 |");
    bench.expect("set1 set3 | set1->set3")?;
    Ok(())
}

fn update_dependencies_set(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let (_, _, _, mut first) = info(cu, bench.main)?;
    bench.set(2, bench.main)?;
    ok!(cu.cuStreamUpdateCaptureDependencies(bench.main, first.as_mut_ptr(), 1, 1));
    bench.set(3, bench.main)?;
    bench.expect("set1 set2 set3 | set1->set2 set1->set3")?;
    Ok(())
}

fn update_dependencies_add(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let (_, _, graph, _) = info(cu, bench.main)?;
    let mut empty = [cu.empty_node(graph, &[])?];
    ok!(cu.cuStreamUpdateCaptureDependencies(bench.main, empty.as_mut_ptr(), 1, 0));
    bench.set(2, bench.main)?;
    bench.expect("empty set1 set2 | empty->set2 set1->set2")?;
    Ok(())
}

fn update_dependencies_unknown_flags(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    want!(INVALID_VALUE, cu.cuStreamUpdateCaptureDependencies(bench.main, ptr::null_mut(), 0, 2));
    bench.set(1, bench.main)?;
    want!(SUCCESS, cu.cuStreamUpdateCaptureDependencies(bench.main, ptr::null_mut(), 0, 1));
    bench.set(2, bench.main)?;
    let mut null = [ptr::null_mut()];
    want!(INVALID_VALUE, cu.cuStreamUpdateCaptureDependencies(bench.main, null.as_mut_ptr(), 1, 0));
    bench.expect_end(OK)
}

fn update_dependencies_idle(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(ILLEGAL_STATE, cu.cuStreamUpdateCaptureDependencies(stream, ptr::null_mut(), 0, 0));
    want!(ILLEGAL_STATE, cu.cuStreamUpdateCaptureDependencies_v2(stream, ptr::null_mut(), ptr::null(), 0, 0));
    Ok(())
}

fn update_dependencies_v2(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let (_, _, _, mut first) = info(cu, bench.main)?;
    bench.set(2, bench.main)?;
    ok!(cu.cuStreamUpdateCaptureDependencies_v2(bench.main, first.as_mut_ptr(), ptr::null(), 1, 0));
    bench.set(3, bench.main)?;
    want!(INVALID_VALUE, cu.cuStreamUpdateCaptureDependencies_v2(bench.main, ptr::null_mut(), ptr::null(), 0, 2));
    bench.expect("set1 set2 set3 | set1->set2 set1->set3 set2->set3")?;
    Ok(())
}

fn to_graph(cu: &Cuda<'_>) -> CaseResult {
    let (bench, graph) = (Bench::new(cu)?, cu.graph()?);
    ok!(cu.cuStreamBeginCaptureToGraph(bench.main, graph, ptr::null(), ptr::null(), 0, GLOBAL));
    bench.set(1, bench.main)?;
    let mut ended = ptr::null_mut();
    ok!(cu.cuStreamEndCapture(bench.main, &mut ended));
    same!(cu, ended, graph);
    same!(cu, cu.shape(graph)?, "set1 |");
    Ok(())
}

fn to_graph_with_dependencies(cu: &Cuda<'_>) -> CaseResult {
    let (bench, graph) = (Bench::new(cu)?, cu.graph()?);
    let before = [cu.empty_node(graph, &[])?];
    ok!(cu.cuStreamBeginCaptureToGraph(bench.main, graph, before.as_ptr(), ptr::null(), 1, GLOBAL));
    bench.set(1, bench.main)?;
    let mut ended = ptr::null_mut();
    ok!(cu.cuStreamEndCapture(bench.main, &mut ended));
    same!(cu, cu.shape(graph)?, "empty set1 | empty->set1");
    Ok(())
}

fn to_graph_errors(cu: &Cuda<'_>) -> CaseResult {
    let (bench, graph) = (Bench::new(cu)?, cu.graph()?);
    let none = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuStreamBeginCaptureToGraph(bench.main, none, ptr::null(), ptr::null(), 0, GLOBAL));
    want!(
        INVALID_VALUE,
        cu.cuStreamBeginCaptureToGraph(bench.main, graph, ptr::null(), ptr::null(), 0, CUstreamCaptureMode(3))
    );
    want!(
        STREAM_CAPTURE_UNSUPPORTED,
        cu.cuStreamBeginCaptureToGraph(LEGACY, graph, ptr::null(), ptr::null(), 0, GLOBAL)
    );
    cu.begin(bench.main, GLOBAL)?;
    want!(ILLEGAL_STATE, cu.cuStreamBeginCaptureToGraph(bench.main, graph, ptr::null(), ptr::null(), 0, GLOBAL));
    bench.expect("|")?;
    Ok(())
}

fn stream_ordered_memory(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let mut pointer = 0;
    ok!(cu.cuMemAllocAsync(&mut pointer, 4096, bench.main));
    ok!(cu.cuMemsetD8Async(pointer, 7, 16, bench.main));
    ok!(cu.cuMemFreeAsync(pointer, bench.main));
    let exec = cu.instantiate(bench.expect("alloc free set7 | alloc->set7 set7->free")?)?;
    ok!(cu.cuGraphLaunch(exec, bench.main));
    want!(SUCCESS, cu.cuStreamSynchronize(bench.main));
    Ok(())
}

fn zero_sized_work(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    want!(SUCCESS, cu.cuMemsetD8Async(bench.device, 1, 0, bench.main));
    want!(SUCCESS, cu.cuMemcpyDtoDAsync_v2(bench.device, bench.device + 64, 0, bench.main));
    bench.set(2, bench.main)?;
    bench.expect("set2 |")?;
    Ok(())
}

fn destroy_of_a_capturing_stream(cu: &Cuda<'_>) -> CaseResult {
    let mut stream = ptr::null_mut();
    ok!(cu.cuStreamCreate(&mut stream, NON_BLOCKING));
    cu.begin(stream, GLOBAL)?;
    want!(SUCCESS, cu.cuStreamDestroy_v2(stream));
    let device = cu.alloc(64)?;
    want!(SUCCESS, cu.cuMemsetD8_v2(device, 1, 64));
    Ok(())
}

fn graph_belongs_to_the_caller(cu: &Cuda<'_>) -> CaseResult {
    let mut bench = Bench::begun(cu)?;
    bench.set(1, bench.main)?;
    let mut graph = ptr::null_mut();
    ok!(cu.cuStreamEndCapture(bench.main, &mut graph));
    bench.main = cu.stream()?;
    let exec = cu.instantiate(graph)?;
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuGraphLaunch(exec, bench.main));
    same!(cu, cu.read(bench.device + 16, 16)?, vec![1; 16]);
    Ok(())
}

// What is forbidden while a capture goes on.

fn stream_synchronize(cu: &Cuda<'_>) -> CaseResult {
    for mode in [GLOBAL, LOCAL, RELAXED] {
        let bench = Bench::new(cu)?;
        cu.begin(bench.main, mode)?;
        want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamSynchronize(bench.main));
        bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
    }
    Ok(())
}

fn stream_query(cu: &Cuda<'_>) -> CaseResult {
    for mode in [GLOBAL, RELAXED] {
        let bench = Bench::new(cu)?;
        cu.begin(bench.main, mode)?;
        want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(bench.main));
        bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
    }
    Ok(())
}

fn context_synchronize(cu: &Cuda<'_>) -> CaseResult {
    for mode in [GLOBAL, LOCAL, RELAXED] {
        let bench = Bench::new(cu)?;
        cu.begin(bench.main, mode)?;
        want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuCtxSynchronize());
        bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
    }
    Ok(())
}

fn invalidated_capture_refuses_work(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(bench.main));
    same!(cu, status_of_capture(cu, bench.main)?, 2);
    want!(STREAM_CAPTURE_INVALIDATED, cu.cuMemsetD8Async(bench.device, 1, 16, bench.main));
    let event = cu.event()?;
    want!(STREAM_CAPTURE_INVALIDATED, cu.cuEventRecord(event, bench.main));
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(bench.main));
    want!(STREAM_CAPTURE_INVALIDATED, cu.cuLaunchHostFunc(bench.main, Some(raise), data(counter())));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn invalidated_fork(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    bench.join(bench.main, bench.side)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(bench.side));
    same!(cu, status_of_capture(cu, bench.main)?, 2);
    same!(cu, status_of_capture(cu, bench.side)?, 2);
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
    same!(cu, status_of_capture(cu, bench.side)?, 0);
    want!(SUCCESS, cu.cuStreamSynchronize(bench.side));
    Ok(())
}

/// Makes one call during a capture in each mode and compares its answer, and what becomes of the capture.
///
/// `answers` are for global, thread-local and relaxed mode.
fn in_each_mode(
    cu: &Cuda<'_>,
    answers: [CUresult; 3],
    mut call: impl FnMut(&Bench<'_, '_>) -> CaseResult<CUresult>,
) -> CaseResult {
    for (mode, answer) in [GLOBAL, LOCAL, RELAXED].into_iter().zip(answers) {
        let bench = Bench::new(cu)?;
        cu.begin(bench.main, mode)?;
        let status = call(&bench)?;
        same!(cu, (mode.0, status), (mode.0, answer));
        let end = if answer == CUresult::CUDA_SUCCESS {
            CUresult::CUDA_SUCCESS
        } else {
            CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        };
        bench.expect_end(end)?;
    }
    Ok(())
}

const OK: CUresult = CUresult::CUDA_SUCCESS;
const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

fn alloc_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let mut pointer = 0;
        let status = status!(cu.cuMemAlloc_v2(&mut pointer, 4096));
        if pointer != 0 {
            cu.later(Cleanup::Memory(pointer));
        }
        Ok(status)
    })
}

fn free_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let mut pointer = 0;
        let mut mode = RELAXED;
        ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
        ok!(cu.cuMemAlloc_v2(&mut pointer, 4096));
        ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
        let status = status!(cu.cuMemFree_v2(pointer));
        if status != CUresult::CUDA_SUCCESS {
            cu.later(Cleanup::Memory(pointer));
        }
        Ok(status)
    })
}

fn host_alloc_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let mut pointer = ptr::null_mut();
        let status = status!(cu.cuMemHostAlloc(&mut pointer, 4096, 0));
        if !pointer.is_null() {
            cu.later(Cleanup::Host(pointer));
        }
        Ok(status)
    })
}

fn host_register_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    let mut memory = vec![0_u8; 4096];
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let status = status!(cu.cuMemHostRegister_v2(memory.as_mut_ptr().cast(), 4096, 0));
        if status == CUresult::CUDA_SUCCESS {
            ok!(cu.cuMemHostUnregister(memory.as_mut_ptr().cast()));
        }
        Ok(status)
    })
}

fn synchronous_copy_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    let host = [0_u8; 64];
    in_each_mode(cu, [OK, OK, OK], |bench| Ok(status!(cu.cuMemcpyHtoD_v2(bench.device, host.as_ptr().cast(), 64))))
}

fn synchronous_set_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |bench| Ok(status!(cu.cuMemsetD8_v2(bench.device, 1, 64))))
}

fn legacy_work_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |bench| Ok(status!(cu.cuMemsetD8Async(bench.device, 1, 64, LEGACY))))
}

fn legacy_query_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| Ok(status!(cu.cuStreamQuery(DEFAULT))))
}

fn legacy_record_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    let event = cu.event()?;
    in_each_mode(cu, [OK, OK, OK], |_| Ok(status!(cu.cuEventRecord(event, DEFAULT))))
}

fn blocking_stream_and_legacy(cu: &Cuda<'_>) -> CaseResult {
    for mode in [GLOBAL, RELAXED] {
        let mut bench = Bench::new(cu)?;
        bench.main = cu.stream_with(0)?;
        cu.begin(bench.main, mode)?;
        want!(STREAM_CAPTURE_IMPLICIT, cu.cuMemsetD8Async(bench.device, 1, 64, LEGACY));
        bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
    }
    Ok(())
}

fn other_stream_may_work(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    ok!(cu.cuMemsetD8Async(bench.device, 5, 16, bench.side));
    bench.set(1, bench.main)?;
    bench.expect("set1 |")?;
    same!(cu, cu.read(bench.device, 16)?, vec![5; 16]);
    Ok(())
}

fn other_stream_synchronize(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |bench| Ok(status!(cu.cuStreamSynchronize(bench.side))))
}

fn other_stream_query(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |bench| Ok(status!(cu.cuStreamQuery(bench.side))))
}

fn stream_flags_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED], |bench| {
        let mut flags = 0;
        Ok(status!(cu.cuStreamGetFlags(bench.main, &mut flags)))
    })
}

fn stream_properties_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |bench| {
        let (mut priority, mut context) = (0, ptr::null_mut());
        want!(SUCCESS, cu.cuStreamGetPriority(bench.main, &mut priority));
        want!(SUCCESS, cu.cuStreamGetCtx(bench.main, &mut context));
        Ok(OK)
    })
}

fn stream_id_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED], |bench| {
        let mut id = 0;
        Ok(status!(cu.cuStreamGetId(bench.main, &mut id)))
    })
}

fn other_stream_flags_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |bench| {
        let mut flags = 0;
        Ok(status!(cu.cuStreamGetFlags(bench.side, &mut flags)))
    })
}

fn instantiate_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    cu.empty_node(graph, &[])?;
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let mut exec = ptr::null_mut();
        let status = status!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        if status == OK {
            cu.later(Cleanup::Exec(exec));
        }
        Ok(status)
    })
}

fn upload_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    cu.empty_node(graph, &[])?;
    let exec = cu.instantiate(graph)?;
    in_each_mode(cu, [OK, OK, OK], |bench| Ok(status!(cu.cuGraphUpload(exec, bench.side))))
}

fn upload_while_capturing(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    cu.empty_node(graph, &[])?;
    let exec = cu.instantiate(graph)?;
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED], |bench| Ok(status!(cu.cuGraphUpload(exec, bench.main))))
}

fn pageable_copy_to_host(cu: &Cuda<'_>) -> CaseResult {
    let mut host = [0_u8; 64];
    in_each_mode(cu, [OK, OK, OK], |bench| {
        Ok(status!(cu.cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), bench.device, 64, bench.main)))
    })
}

fn event_of_another_stream(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let event = bench.join(bench.side, bench.third)?;
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuEventSynchronize(event));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn event_create_is_allowed(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |_| {
        cu.event()?;
        Ok(OK)
    })
}

fn stream_create_is_allowed(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |_| {
        let mut stream = ptr::null_mut();
        let status = status!(cu.cuStreamCreate(&mut stream, NON_BLOCKING));
        if !stream.is_null() {
            cu.later(Cleanup::Stream(stream));
        }
        Ok(status)
    })
}

fn begin_elsewhere_is_allowed(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |bench| {
        let status = status!(cu.cuStreamBeginCapture_v2(bench.side, GLOBAL));
        cu.end(bench.side)?;
        Ok(status)
    })
}

/// The answer of an allocation on another thread, while this one captures in `mode`.
fn alloc_on_another_thread(cu: &Cuda<'_>, mode: CUstreamCaptureMode, answer: CUresult) -> CaseResult {
    let bench = Bench::new(cu)?;
    cu.begin(bench.main, mode)?;
    cu.on_another_thread(|cu| {
        let mut pointer = 0;
        let status = status!(cu.cuMemAlloc_v2(&mut pointer, 4096));
        same!(cu, status, answer);
        if pointer != 0 {
            ok!(cu.cuMemFree_v2(pointer));
        }
        Ok(())
    })?;
    bench.expect_end(if answer == OK { OK } else { CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED })
}

fn other_thread_under_global(cu: &Cuda<'_>) -> CaseResult {
    alloc_on_another_thread(cu, GLOBAL, UNSUPPORTED)
}

fn other_thread_under_local(cu: &Cuda<'_>) -> CaseResult {
    alloc_on_another_thread(cu, LOCAL, OK)
}

fn other_thread_under_relaxed(cu: &Cuda<'_>) -> CaseResult {
    alloc_on_another_thread(cu, RELAXED, OK)
}

fn exchange_mode(cu: &Cuda<'_>) -> CaseResult {
    let mut mode = RELAXED;
    ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
    same!(cu, mode, GLOBAL);
    mode = LOCAL;
    ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
    same!(cu, mode, RELAXED);
    cu.on_another_thread(|cu| {
        let mut mode = GLOBAL;
        ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
        same!(cu, mode, GLOBAL);
        Ok(())
    })?;
    mode = GLOBAL;
    ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
    same!(cu, mode, LOCAL);
    Ok(())
}

fn exchange_unknown_mode(cu: &Cuda<'_>) -> CaseResult {
    let mut mode = CUstreamCaptureMode(3);
    want!(SUCCESS, cu.cuThreadExchangeStreamCaptureMode(&mut mode));
    Ok(())
}

fn exchange_allows_allocation(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let mut mode = RELAXED;
    ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
    cu.alloc(4096)?;
    ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
    bench.set(1, bench.main)?;
    bench.expect("set1 |")?;
    Ok(())
}

fn queries_are_allowed(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |bench| {
        let (mut free, mut total, mut device) = (0, 0, 0);
        let (mut base, mut size) = (0, 0);
        ok!(cu.cuMemGetInfo_v2(&mut free, &mut total));
        ok!(cu.cuCtxGetDevice(&mut device));
        ok!(cu.cuMemGetAddressRange_v2(&mut base, &mut size, bench.device));
        Ok(OK)
    })
}

fn event_query_outside(cu: &Cuda<'_>) -> CaseResult {
    let event = cu.event()?;
    let stream = cu.stream()?;
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuStreamSynchronize(stream));
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| Ok(status!(cu.cuEventQuery(event))))
}

fn event_synchronize_outside(cu: &Cuda<'_>) -> CaseResult {
    let event = cu.event()?;
    let stream = cu.stream()?;
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuStreamSynchronize(stream));
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| Ok(status!(cu.cuEventSynchronize(event))))
}

fn device_reset_free_calls(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |_| {
        let mut value = 0;
        Ok(status!(cu.cuCtxGetLimit(&mut value, CUlimit::CU_LIMIT_STACK_SIZE)))
    })
}

fn wait_for_event_of_invalidated(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let event = cu.event()?;
    ok!(cu.cuEventRecord(event, bench.main));
    want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(bench.main));
    want!(INVALID_VALUE, cu.cuStreamWaitEvent(bench.side, event, 0));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn pool_alloc_elsewhere(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |bench| {
        let mut pointer = 0;
        let status = status!(cu.cuMemAllocAsync(&mut pointer, 4096, bench.side));
        if pointer != 0 {
            ok!(cu.cuMemFreeAsync(pointer, bench.side));
        }
        Ok(status)
    })
}

fn graph_calls_are_allowed(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |_| {
        let graph = cu.graph()?;
        cu.empty_node(graph, &[])?;
        Ok(OK)
    })
}

fn launch_elsewhere_is_allowed(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    cu.empty_node(graph, &[])?;
    let exec = cu.instantiate(graph)?;
    in_each_mode(cu, [OK, OK, OK], |bench| Ok(status!(cu.cuGraphLaunch(exec, bench.side))))
}

fn legacy_waits_for_captured_event(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::new(cu)?;
    cu.begin(bench.main, RELAXED)?;
    let event = cu.event()?;
    ok!(cu.cuEventRecord(event, bench.main));
    want!(STREAM_CAPTURE_IMPLICIT, cu.cuStreamWaitEvent(LEGACY, event, 0));
    bench.expect_end(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
}

fn destroy_stream_elsewhere(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |_| {
        let mut stream = ptr::null_mut();
        ok!(cu.cuStreamCreate(&mut stream, NON_BLOCKING));
        Ok(status!(cu.cuStreamDestroy_v2(stream)))
    })
}

fn destroy_event_elsewhere(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |_| {
        let mut event = ptr::null_mut();
        ok!(cu.cuEventCreate(&mut event, NO_TIMING));
        Ok(status!(cu.cuEventDestroy_v2(event)))
    })
}

fn per_thread_work_elsewhere(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [OK, OK, OK], |bench| Ok(status!(cu.cuMemsetD8Async(bench.device, 1, 64, PER_THREAD))))
}

fn peer_copies_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    let context = cu.current()?;
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED], |bench| {
        Ok(status!(cu.cuMemcpyPeerAsync(bench.device, context, bench.device + 512, context, 64, bench.main)))
    })
}

fn context_events_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    let (event, context) = (cu.event()?, cu.current()?);
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED], |_| Ok(status!(cu.cuCtxRecordEvent(context, event))))?;
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED], |_| Ok(status!(cu.cuCtxWaitEvent(context, event))))
}

fn limits_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        Ok(status!(cu.cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, 1024)))
    })
}

fn other_allocations_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let (mut pointer, mut pitch) = (0, 0);
        let status = status!(cu.cuMemAllocPitch_v2(&mut pointer, &mut pitch, 100, 4, 4));
        if pointer != 0 {
            cu.later(Cleanup::Memory(pointer));
        }
        Ok(status)
    })?;
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let mut pointer = ptr::null_mut();
        let status = status!(cu.cuMemAllocHost_v2(&mut pointer, 4096));
        if !pointer.is_null() {
            cu.later(Cleanup::Host(pointer));
        }
        Ok(status)
    })?;
    let mut pool = ptr::null_mut();
    ok!(cu.cuDeviceGetDefaultMemPool(&mut pool, 0));
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |bench| {
        let mut pointer = 0;
        let status = status!(cu.cuMemAllocFromPoolAsync(&mut pointer, 4096, pool, bench.side));
        if status == OK {
            cu.later(Cleanup::Memory(pointer));
        }
        Ok(status)
    })
}

fn other_frees_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    let mut pointers = [ptr::null_mut(); 3];
    for pointer in &mut pointers {
        ok!(cu.cuMemHostAlloc(pointer, 4096, 0));
    }
    let mut left = pointers.iter().copied();
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let pointer = left.next().unwrap_or(ptr::null_mut());
        let status = status!(cu.cuMemFreeHost(pointer));
        if status != OK {
            cu.later(Cleanup::Host(pointer));
        }
        Ok(status)
    })?;
    let mut memory = vec![0_u8; 4096];
    let place = memory.as_mut_ptr().cast();
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let mut mode = RELAXED;
        ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
        ok!(cu.cuMemHostRegister_v2(place, 4096, 0));
        ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
        let status = status!(cu.cuMemHostUnregister(place));
        if status != OK {
            mode = RELAXED;
            ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
            ok!(cu.cuMemHostUnregister(place));
            ok!(cu.cuThreadExchangeStreamCaptureMode(&mut mode));
        }
        Ok(status)
    })
}

fn instantiate_with_parameters_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    cu.empty_node(graph, &[])?;
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let (mut exec, mut params) = (ptr::null_mut(), CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed());
        let status = status!(cu.cuGraphInstantiateWithParams(&mut exec, graph, &mut params));
        if status == OK {
            cu.later(Cleanup::Exec(exec));
        }
        Ok(status)
    })
}

fn context_synchronize_v2(cu: &Cuda<'_>) -> CaseResult {
    let context = cu.current()?;
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED], |_| Ok(status!(cu.cuCtxSynchronize_v2(context))))
}
