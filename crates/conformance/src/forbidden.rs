//! What is forbidden while a stream captures, in each of the three modes, and what becomes of the capture then.

use super::capture::{Bench, GLOBAL, LOCAL, OK, RELAXED, status_of_capture};
use super::prelude::*;

cases!("forbidden", CASES, Needs::CONTEXT;
    launch_into_a_capture,
    stream_synchronize, stream_query, context_synchronize, invalidated_capture_refuses_work, invalidated_fork,
    alloc_in_each_mode, free_in_each_mode, host_alloc_in_each_mode, host_register_in_each_mode, synchronous_copy_in_each_mode,
    synchronous_set_in_each_mode, legacy_work_in_each_mode, legacy_query_in_each_mode, legacy_record_in_each_mode, blocking_stream_and_legacy, other_stream_may_work,
    other_stream_synchronize, other_stream_query, event_of_another_stream, stream_flags_in_each_mode,
    stream_properties_in_each_mode, stream_id_in_each_mode, other_stream_flags_in_each_mode, instantiate_in_each_mode, upload_in_each_mode, upload_while_capturing,
    pageable_copy_to_host, peer_copies_in_each_mode, context_events_in_each_mode, limits_in_each_mode, other_allocations_in_each_mode,
    other_frees_in_each_mode, instantiate_with_parameters_in_each_mode, context_synchronize_v2, event_create_is_allowed, stream_create_is_allowed, begin_elsewhere_is_allowed,
    other_thread_under_global, other_thread_under_local, other_thread_under_relaxed, exchange_mode, exchange_unknown_mode, exchange_allows_allocation,
    queries_are_allowed, event_query_outside, event_synchronize_outside, device_reset_free_calls, wait_for_event_of_invalidated, pool_alloc_elsewhere, graph_calls_are_allowed,
    launch_elsewhere_is_allowed, pool_calls_in_each_mode, pool_create_in_each_mode, pool_destroy_in_each_mode, pool_free_elsewhere, end_without_a_graph, event_of_an_ended_capture, captured_event_recorded_again, legacy_waits_for_captured_event, destroy_stream_elsewhere, destroy_event_elsewhere, per_thread_work_elsewhere,
);

const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

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
    })?;
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED], |bench| {
        let copy = CUDA_MEMCPY3D_PEER {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: bench.device,
            srcContext: context,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: bench.device + 512,
            dstContext: context,
            WidthInBytes: 64,
            Height: 1,
            Depth: 1,
            ..CUDA_MEMCPY3D_PEER::zeroed()
        };
        Ok(status!(cu.cuMemcpy3DPeerAsync(&copy, bench.main)))
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

fn launch_into_a_capture(cu: &Cuda<'_>) -> CaseResult {
    let graph = cu.graph()?;
    cu.empty_node(graph, &[])?;
    let exec = cu.instantiate(graph)?;
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED], |bench| Ok(status!(cu.cuGraphLaunch(exec, bench.main))))
}

fn pool_calls_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    const REFUSED: [CUresult; 3] = [UNSUPPORTED, UNSUPPORTED, OK];
    let (pool, mut value, mut flags) = (super::pool::default_pool(cu)?, 0_u64, CUmemAccess_flags(0));
    let mut here = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let grant = CUmemAccessDesc { location: here, flags: CUmemAccess_flags(3) };
    let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    in_each_mode(cu, REFUSED, |_| Ok(status!(cu.cuMemPoolGetAttribute(pool, threshold, (&raw mut value).cast()))))?;
    in_each_mode(cu, REFUSED, |_| Ok(status!(cu.cuMemPoolSetAttribute(pool, threshold, (&raw mut value).cast()))))?;
    in_each_mode(cu, REFUSED, |_| Ok(status!(cu.cuMemPoolTrimTo(pool, 0))))?;
    in_each_mode(cu, REFUSED, |_| Ok(status!(cu.cuMemPoolSetAccess(pool, &grant, 1))))?;
    in_each_mode(cu, REFUSED, |_| Ok(status!(cu.cuMemPoolGetAccess(&mut flags, pool, &mut here))))?;
    in_each_mode(cu, REFUSED, |_| Ok(status!(cu.cuDeviceSetMemPool(0, pool))))
}

fn pool_create_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    in_each_mode(cu, [UNSUPPORTED, UNSUPPORTED, OK], |_| {
        let mut pool = ptr::null_mut();
        let status = status!(cu.cuMemPoolCreate(&mut pool, &super::pool::props()));
        if status == CUresult::CUDA_SUCCESS {
            cu.later(Cleanup::Pool(pool));
        }
        Ok(status)
    })
}

fn pool_destroy_in_each_mode(cu: &Cuda<'_>) -> CaseResult {
    for (mode, answer) in [(GLOBAL, UNSUPPORTED), (LOCAL, UNSUPPORTED), (RELAXED, OK)] {
        let (bench, mut pool) = (Bench::new(cu)?, ptr::null_mut());
        ok!(cu.cuMemPoolCreate(&mut pool, &super::pool::props()));
        cu.begin(bench.main, mode)?;
        let status = status!(cu.cuMemPoolDestroy(pool));
        same!(cu, (mode.0, status), (mode.0, answer));
        let end = if answer == OK { OK } else { CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED };
        bench.expect_end(end)?;
        if status != CUresult::CUDA_SUCCESS {
            cu.later(Cleanup::Pool(pool));
        }
    }
    Ok(())
}

fn pool_free_elsewhere(cu: &Cuda<'_>) -> CaseResult {
    for (mode, answer) in [(GLOBAL, UNSUPPORTED), (LOCAL, UNSUPPORTED), (RELAXED, OK)] {
        let (bench, mut pointer) = (Bench::new(cu)?, 0);
        ok!(cu.cuMemAllocAsync(&mut pointer, 4096, bench.side));
        cu.begin(bench.main, mode)?;
        let status = status!(cu.cuMemFreeAsync(pointer, bench.side));
        same!(cu, (mode.0, status), (mode.0, answer));
        let end = if answer == OK { OK } else { CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED };
        bench.expect_end(end)?;
        if status != CUresult::CUDA_SUCCESS {
            ok!(cu.cuMemFreeAsync(pointer, bench.side));
        }
        ok!(cu.cuStreamSynchronize(bench.side));
    }
    Ok(())
}

fn end_without_a_graph(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    want!(SUCCESS, cu.cuStreamEndCapture(bench.main, ptr::null_mut()));
    same!(cu, status_of_capture(cu, bench.main)?, 0);
    want!(SUCCESS, cu.cuStreamSynchronize(bench.main));
    Ok(())
}

/// A record outside makes an ordinary event of it, whether the capture goes on or is over.
fn captured_event_recorded_again(cu: &Cuda<'_>) -> CaseResult {
    let (bench, outside, event) = (Bench::begun(cu)?, cu.stream()?, cu.event()?);
    ok!(cu.cuEventRecord(event, bench.main));
    want!(SUCCESS, cu.cuEventRecord(event, outside));
    want!(SUCCESS, cu.cuStreamWaitEvent(outside, event, 0));
    ok!(cu.cuEventRecord(event, bench.main));
    bench.expect_end(OK)?;
    want!(SUCCESS, cu.cuEventRecord(event, outside));
    want!(SUCCESS, cu.cuEventSynchronize(event));
    want!(SUCCESS, cu.cuEventQuery(event));
    Ok(())
}

fn event_of_an_ended_capture(cu: &Cuda<'_>) -> CaseResult {
    let bench = Bench::begun(cu)?;
    let event = cu.event()?;
    ok!(cu.cuEventRecord(event, bench.main));
    bench.expect_end(OK)?;
    want!(INVALID_VALUE, cu.cuEventSynchronize(event));
    want!(INVALID_VALUE, cu.cuEventQuery(event));
    Ok(())
}
