//! Stream capture: what it records, what it forbids, and what is left of it afterwards.

use super::prelude::*;

cases!("capture", CASES, Needs::CONTEXT;
    begin_and_end, end_without_begin, begin_twice, begin_on_legacy,
    begin_on_per_thread, begin_with_unknown_mode, nothing_captured, work_is_not_run,
    is_capturing, is_capturing_on_default_streams, chain_of_sets, set_parameters,
    copy_parameters, two_dimensional_set, two_dimensional_copy, host_function_node,
    callbacks_are_captured, value_writes_are_captured, fork_and_join, fork_joined_twice,
    nested_forks, two_forks_joined_at_once, transitive_dependencies, fork_without_work,
    fork_before_any_work, wait_for_own_event, wait_twice_for_one_event, record_twice_and_wait,
    fork_from_a_fork, parallel_chains, join_then_fork_again, event_reused_for_the_way_back,
    wait_without_work_between, unjoined, unjoined_deep, unjoined_empty_fork,
    unmatched, other_stream_ends, wrong_thread, other_thread_may_end_relaxed,
    captured_event_outside, query_of_a_captured_event, synchronize_of_a_captured_event, elapsed_of_captured_events,
    captured_event_after_the_end, external_record, external_wait, upload_of_captured,
    replay_runs_the_work, replay_many_times, two_captures_side_by_side, stream_ordered_memory,
    zero_sized_work, destroy_of_a_capturing_stream, graph_belongs_to_the_caller,
);

pub(super) const OK: CUresult = CUresult::CUDA_SUCCESS;
pub(super) const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
pub(super) const LOCAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
pub(super) const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

/// Streams and memory to capture with; sets are told apart by their value.
pub(super) struct Bench<'a, 'd> {
    cu: &'a Cuda<'d>,
    pub(super) device: CUdeviceptr,
    /// The stream on which the capture begins.
    pub(super) main: CUstream,
    /// Two others.
    pub(super) side: CUstream,
    pub(super) third: CUstream,
}

impl<'a, 'd> Bench<'a, 'd> {
    pub(super) fn new(cu: &'a Cuda<'d>) -> CaseResult<Self> {
        Ok(Self { cu, device: cu.filled(4096, 0)?, main: cu.stream()?, side: cu.stream()?, third: cu.stream()? })
    }

    /// The same, with a capture begun on `main`.
    pub(super) fn begun(cu: &'a Cuda<'d>) -> CaseResult<Self> {
        let bench = Self::new(cu)?;
        cu.begin(bench.main, GLOBAL)?;
        Ok(bench)
    }

    /// A set that shows as `set{value}` in the graph.
    pub(super) fn set(&self, value: u8, stream: CUstream) -> CaseResult {
        let cu = self.cu;
        ok!(cu.cuMemsetD8Async(self.device + 16 * CUdeviceptr::from(value), value, 16, stream));
        Ok(())
    }

    /// Makes `to` wait for what is on `from` now.
    pub(super) fn join(&self, from: CUstream, to: CUstream) -> CaseResult<CUevent> {
        let cu = self.cu;
        let event = cu.event()?;
        ok!(cu.cuEventRecord(event, from));
        ok!(cu.cuStreamWaitEvent(to, event, 0));
        Ok(event)
    }

    /// Ends the capture and compares the graph with its text.
    pub(super) fn expect(&self, shape: &str) -> CaseResult<CUgraph> {
        let cu = self.cu;
        let graph = cu.end(self.main)?;
        same!(cu, cu.shape(graph)?, shape);
        Ok(graph)
    }

    /// Ends a capture that failed, and shows that the stream works again.
    pub(super) fn expect_end(&self, code: CUresult) -> CaseResult {
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

pub(super) fn status_of_capture(cu: &Cuda<'_>, stream: CUstream) -> CaseResult<u32> {
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
