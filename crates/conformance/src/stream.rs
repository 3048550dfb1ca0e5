//! Streams: flags, priorities, queries, waits, and which streams wait for which.

use super::prelude::*;

cases!("stream", CASES, Needs::CONTEXT;
    create_and_destroy, unknown_flags_are_refused, flags_are_kept, flags_of_default_streams, priorities_are_kept,
    priorities_are_clamped, priority_of_plain_streams, priority_with_unknown_flags, query_of_an_idle_stream,
    query_of_a_held_stream, synchronize_waits, synchronize_of_default_streams, destroy_of_null, destroy_of_default_streams,
    destroy_with_work_pending, handles_differ, ids_differ, id_of_default_streams, context_of_a_stream,
    context_of_default_streams, context_and_green_context, device_of_a_stream, wait_for_an_event, wait_with_flags,
    wait_for_an_unrecorded_event, wait_on_default_streams, context_synchronize_waits_for_all,
    default_waits_for_blocking_streams, default_ignores_non_blocking_streams, blocking_streams_wait_for_default,
    non_blocking_streams_ignore_default, per_thread_waits_for_default, per_thread_and_blocking_streams,
    blocking_streams_are_independent, write_value_32, write_value_64, wait_value_32, wait_value_64,
    wait_value_kinds, value_addresses_are_checked, value_flags_are_checked, streams_exchange_values,
    attributes_can_be_copied, attribute_of_priority, many_streams,
);

fn create_and_destroy(cu: &Cuda<'_>) -> CaseResult {
    for flags in [0, NON_BLOCKING] {
        let mut stream = ptr::null_mut();
        ok!(cu.cuStreamCreate(&mut stream, flags));
        that!(cu, !stream.is_null());
        ok!(cu.cuStreamDestroy_v2(stream));
    }
    Ok(())
}

fn unknown_flags_are_refused(cu: &Cuda<'_>) -> CaseResult {
    let mut stream = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuStreamCreate(&mut stream, 2));
    want!(INVALID_VALUE, cu.cuStreamCreate(&mut stream, 0x100));
    that!(cu, stream.is_null());
    Ok(())
}

fn flags_are_kept(cu: &Cuda<'_>) -> CaseResult {
    for flags in [0, NON_BLOCKING] {
        let stream = cu.stream_with(flags)?;
        let mut found = 9;
        ok!(cu.cuStreamGetFlags(stream, &mut found));
        same!(cu, found, flags);
    }
    Ok(())
}

fn flags_of_default_streams(cu: &Cuda<'_>) -> CaseResult {
    for stream in [DEFAULT, LEGACY, PER_THREAD] {
        let mut found = 9;
        ok!(cu.cuStreamGetFlags(stream, &mut found));
        same!(cu, found, 0);
    }
    Ok(())
}

/// The priority that a stream gets when `asked` is asked for.
fn priority(cu: &Cuda<'_>, asked: i32) -> CaseResult<i32> {
    let mut stream = ptr::null_mut();
    ok!(cu.cuStreamCreateWithPriority(&mut stream, NON_BLOCKING, asked));
    cu.later(Cleanup::Stream(stream));
    let mut found = 99;
    ok!(cu.cuStreamGetPriority(stream, &mut found));
    Ok(found)
}

fn priorities_are_kept(cu: &Cuda<'_>) -> CaseResult {
    let (mut least, mut greatest) = (9, 9);
    ok!(cu.cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    same!(cu, (least, greatest), (0, -5));
    for asked in greatest..=least {
        same!(cu, priority(cu, asked)?, asked);
    }
    Ok(())
}

fn priorities_are_clamped(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, priority(cu, 1)?, 0);
    same!(cu, priority(cu, 1000)?, 0);
    same!(cu, priority(cu, -6)?, -5);
    same!(cu, priority(cu, i32::MIN)?, -5);
    Ok(())
}

fn priority_of_plain_streams(cu: &Cuda<'_>) -> CaseResult {
    for stream in [cu.stream()?, cu.stream_with(0)?, DEFAULT, LEGACY, PER_THREAD] {
        let mut found = 99;
        ok!(cu.cuStreamGetPriority(stream, &mut found));
        same!(cu, found, 0);
    }
    Ok(())
}

fn priority_with_unknown_flags(cu: &Cuda<'_>) -> CaseResult {
    let mut stream = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuStreamCreateWithPriority(&mut stream, 2, 0));
    Ok(())
}

fn query_of_an_idle_stream(cu: &Cuda<'_>) -> CaseResult {
    for stream in [cu.stream()?, DEFAULT, LEGACY, PER_THREAD] {
        want!(SUCCESS, cu.cuStreamQuery(stream));
    }
    Ok(())
}

fn query_of_a_held_stream(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let gate = cu.hold(stream)?;
    want!(NOT_READY, cu.cuStreamQuery(stream));
    want!(NOT_READY, cu.cuStreamQuery(stream));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    want!(SUCCESS, cu.cuStreamQuery(stream));
    Ok(())
}

fn synchronize_waits(cu: &Cuda<'_>) -> CaseResult {
    let (stream, got) = (cu.stream()?, cu.pinned(1 << 20)?);
    let device = cu.filled(1 << 20, 0)?;
    ok!(cu.cuMemsetD8Async(device, 0x19, 1 << 20, stream));
    ok!(cu.cuMemcpyDtoHAsync_v2(got.host(), device, 1 << 20, stream));
    ok!(cu.cuStreamSynchronize(stream));
    that!(cu, got.read().iter().all(|&byte| byte == 0x19));
    Ok(())
}

fn synchronize_of_default_streams(cu: &Cuda<'_>) -> CaseResult {
    for stream in [DEFAULT, LEGACY, PER_THREAD] {
        want!(SUCCESS, cu.cuStreamSynchronize(stream));
    }
    Ok(())
}

fn destroy_of_null(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_HANDLE, cu.cuStreamDestroy_v2(DEFAULT));
    Ok(())
}

fn destroy_of_default_streams(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_HANDLE, cu.cuStreamDestroy_v2(LEGACY));
    want!(INVALID_HANDLE, cu.cuStreamDestroy_v2(PER_THREAD));
    Ok(())
}

fn destroy_with_work_pending(cu: &Cuda<'_>) -> CaseResult {
    let mut stream = ptr::null_mut();
    ok!(cu.cuStreamCreate(&mut stream, NON_BLOCKING));
    let device = cu.filled(1 << 20, 0)?;
    let gate = cu.hold(stream)?;
    ok!(cu.cuMemsetD8Async(device, 0x2B, 1 << 20, stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    gate.open();
    that!(cu, cu.read(device, 1 << 20)?.iter().all(|&byte| byte == 0x2B));
    Ok(())
}

fn handles_differ(cu: &Cuda<'_>) -> CaseResult {
    let mut streams = (0..20).map(|_| cu.stream()).collect::<CaseResult<Vec<_>>>()?;
    streams.sort();
    streams.dedup();
    same!(cu, streams.len(), 20);
    Ok(())
}

fn id(cu: &Cuda<'_>, stream: CUstream) -> CaseResult<u64> {
    let mut id = 0;
    ok!(cu.cuStreamGetId(stream, &mut id));
    Ok(id)
}

fn ids_differ(cu: &Cuda<'_>) -> CaseResult {
    let (first, second) = (cu.stream()?, cu.stream()?);
    that!(cu, id(cu, first)? != id(cu, second)?);
    same!(cu, id(cu, first)?, id(cu, first)?);
    Ok(())
}

fn id_of_default_streams(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    same!(cu, id(cu, DEFAULT)?, id(cu, LEGACY)?);
    that!(cu, id(cu, LEGACY)? != id(cu, PER_THREAD)?);
    that!(cu, id(cu, LEGACY)? != id(cu, stream)?);
    Ok(())
}

fn context_of_a_stream(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let mut context = ptr::null_mut();
    ok!(cu.cuStreamGetCtx(stream, &mut context));
    same!(cu, context, cu.current()?);
    Ok(())
}

fn context_of_default_streams(cu: &Cuda<'_>) -> CaseResult {
    for stream in [DEFAULT, LEGACY, PER_THREAD] {
        let mut context = ptr::null_mut();
        ok!(cu.cuStreamGetCtx(stream, &mut context));
        same!(cu, context, cu.current()?);
    }
    Ok(())
}

fn context_and_green_context(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    let (mut context, mut green) = (ptr::null_mut(), ptr::without_provenance_mut(1));
    ok!(cu.cuStreamGetCtx_v2(stream, &mut context, &mut green));
    same!(cu, context, cu.current()?);
    that!(cu, green.is_null());
    Ok(())
}

fn device_of_a_stream(cu: &Cuda<'_>) -> CaseResult {
    for stream in [cu.stream()?, DEFAULT] {
        let mut device = 9;
        ok!(cu.cuStreamGetDevice(stream, &mut device));
        same!(cu, device, 0);
    }
    Ok(())
}

fn wait_for_an_event(cu: &Cuda<'_>) -> CaseResult {
    let (first, second, event) = (cu.stream()?, cu.stream()?, cu.event()?);
    let (from, to) = (cu.filled(1 << 20, 0)?, cu.filled(1 << 20, 0)?);
    let gate = cu.hold(first)?;
    ok!(cu.cuMemsetD8Async(from, 0x71, 1 << 20, first));
    ok!(cu.cuEventRecord(event, first));
    ok!(cu.cuStreamWaitEvent(second, event, 0));
    ok!(cu.cuMemcpyDtoDAsync_v2(to, from, 1 << 20, second));
    want!(NOT_READY, cu.cuStreamQuery(second));
    gate.open();
    ok!(cu.cuStreamSynchronize(second));
    that!(cu, cu.read(to, 1 << 20)?.iter().all(|&byte| byte == 0x71));
    Ok(())
}

fn wait_with_flags(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event) = (cu.stream()?, cu.event()?);
    ok!(cu.cuEventRecord(event, stream));
    want!(INVALID_VALUE, cu.cuStreamWaitEvent(stream, event, 2));
    want!(ILLEGAL_STATE, cu.cuStreamWaitEvent(stream, event, 1));
    want!(INVALID_HANDLE, cu.cuStreamWaitEvent(stream, ptr::null_mut(), 0));
    Ok(())
}

fn wait_for_an_unrecorded_event(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event) = (cu.stream()?, cu.event()?);
    want!(SUCCESS, cu.cuStreamWaitEvent(stream, event, 0));
    want!(SUCCESS, cu.cuStreamSynchronize(stream));
    Ok(())
}

fn wait_on_default_streams(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event) = (cu.stream()?, cu.event()?);
    for waiting in [DEFAULT, LEGACY, PER_THREAD] {
        let gate = cu.hold(stream)?;
        ok!(cu.cuEventRecord(event, stream));
        ok!(cu.cuStreamWaitEvent(waiting, event, 0));
        want!(NOT_READY, cu.cuStreamQuery(waiting));
        gate.open();
        want!(SUCCESS, cu.cuStreamSynchronize(waiting));
    }
    Ok(())
}

fn context_synchronize_waits_for_all(cu: &Cuda<'_>) -> CaseResult {
    let streams = (0..4).map(|_| cu.stream()).collect::<CaseResult<Vec<_>>>()?;
    let device = cu.filled(1 << 20, 0)?;
    for &stream in &streams {
        ok!(cu.cuMemsetD8Async(device, 1, 1 << 20, stream));
    }
    ok!(cu.cuCtxSynchronize());
    for &stream in &streams {
        want!(SUCCESS, cu.cuStreamQuery(stream));
    }
    Ok(())
}

/// Whether work on `second` waits for work on `first` that was given before it.
fn waits(cu: &Cuda<'_>, second: CUstream, first: CUstream) -> CaseResult<bool> {
    let (flag, event) = (cu.pinned(64)?, cu.event()?);
    let gate = cu.hold(first)?;
    ok!(cu.cuMemsetD8Async(flag.device(), 1, 64, second));
    ok!(cu.cuEventRecord(event, second));
    // Work that waits never becomes ready while the gate is closed; work that does not wait soon does.
    let mut status = CUresult::CUDA_ERROR_NOT_READY;
    for _ in 0..200 {
        status = status!(cu.cuEventQuery(event));
        if status != CUresult::CUDA_ERROR_NOT_READY {
            break;
        }
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    gate.open();
    ok!(cu.cuCtxSynchronize());
    same!(cu, flag.read(), vec![1; 64]);
    Ok(status == CUresult::CUDA_ERROR_NOT_READY)
}

fn default_waits_for_blocking_streams(cu: &Cuda<'_>) -> CaseResult {
    let blocking = cu.stream_with(0)?;
    that!(cu, waits(cu, DEFAULT, blocking)?);
    that!(cu, waits(cu, LEGACY, blocking)?);
    Ok(())
}

fn default_ignores_non_blocking_streams(cu: &Cuda<'_>) -> CaseResult {
    let free = cu.stream()?;
    that!(cu, !waits(cu, DEFAULT, free)?);
    that!(cu, !waits(cu, PER_THREAD, free)?);
    Ok(())
}

fn blocking_streams_wait_for_default(cu: &Cuda<'_>) -> CaseResult {
    let blocking = cu.stream_with(0)?;
    that!(cu, waits(cu, blocking, DEFAULT)?);
    that!(cu, waits(cu, blocking, LEGACY)?);
    Ok(())
}

fn non_blocking_streams_ignore_default(cu: &Cuda<'_>) -> CaseResult {
    let free = cu.stream()?;
    that!(cu, !waits(cu, free, DEFAULT)?);
    that!(cu, !waits(cu, free, PER_THREAD)?);
    Ok(())
}

fn per_thread_waits_for_default(cu: &Cuda<'_>) -> CaseResult {
    that!(cu, waits(cu, PER_THREAD, LEGACY)?);
    that!(cu, waits(cu, LEGACY, PER_THREAD)?);
    Ok(())
}

fn per_thread_and_blocking_streams(cu: &Cuda<'_>) -> CaseResult {
    let blocking = cu.stream_with(0)?;
    that!(cu, !waits(cu, PER_THREAD, blocking)?);
    that!(cu, !waits(cu, blocking, PER_THREAD)?);
    Ok(())
}

fn blocking_streams_are_independent(cu: &Cuda<'_>) -> CaseResult {
    let (first, second) = (cu.stream_with(0)?, cu.stream_with(0)?);
    that!(cu, !waits(cu, second, first)?);
    Ok(())
}

fn write_value_32(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(16, 0)?);
    ok!(cu.cuStreamWriteValue32_v2(stream, device + 4, 0x0403_0201, 0));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 16)?, vec![0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
    Ok(())
}

fn write_value_64(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(16, 0)?);
    ok!(cu.cuStreamWriteValue64_v2(stream, device + 8, 0x0807_0605_0403_0201, 0));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu, cu.read(device, 16)?, vec![0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    Ok(())
}

fn wait_value_32(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(16, 0)?);
    ok!(cu.cuStreamWaitValue32_v2(stream, device, 5, 0));
    want!(NOT_READY, cu.cuStreamQuery(stream));
    ok!(cu.cuMemsetD32Async(device, 6, 1, PER_THREAD));
    want!(SUCCESS, cu.cuStreamSynchronize(stream));
    Ok(())
}

fn wait_value_64(cu: &Cuda<'_>) -> CaseResult {
    let (first, second, device) = (cu.stream()?, cu.stream()?, cu.filled(16, 0)?);
    ok!(cu.cuStreamWaitValue64_v2(first, device, 1 << 40, 1));
    want!(NOT_READY, cu.cuStreamQuery(first));
    ok!(cu.cuStreamWriteValue64_v2(second, device, 1 << 40, 0));
    want!(SUCCESS, cu.cuStreamSynchronize(first));
    Ok(())
}

fn wait_value_kinds(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(16, 0)?);
    ok!(cu.cuMemsetD32_v2(device, 0b1010, 1));
    // At least, equal, any common bit, not all bits.
    for (kind, value) in [(0, 0b1001), (1, 0b1010), (2, 0b1000), (3, 0b0101)] {
        ok!(cu.cuStreamWaitValue32_v2(stream, device, value, kind));
        want!(SUCCESS, cu.cuStreamSynchronize(stream));
    }
    Ok(())
}

fn value_addresses_are_checked(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(64, 0)?);
    want!(INVALID_VALUE, cu.cuStreamWriteValue32_v2(stream, device + 2, 1, 0));
    want!(INVALID_VALUE, cu.cuStreamWriteValue64_v2(stream, device + 4, 1, 0));
    want!(INVALID_VALUE, cu.cuStreamWaitValue32_v2(stream, device + 1, 1, 0));
    want!(INVALID_VALUE, cu.cuStreamWaitValue64_v2(stream, device + 4, 1, 0));
    want!(INVALID_VALUE, cu.cuStreamWriteValue32_v2(stream, 0x1000, 1, 0));
    want!(INVALID_VALUE, cu.cuStreamWaitValue32_v2(stream, 0x1000, 1, 0));
    Ok(())
}

fn value_flags_are_checked(cu: &Cuda<'_>) -> CaseResult {
    let (stream, device) = (cu.stream()?, cu.filled(64, 0)?);
    want!(INVALID_VALUE, cu.cuStreamWriteValue32_v2(stream, device, 1, 0x80));
    want!(INVALID_VALUE, cu.cuStreamWriteValue64_v2(stream, device, 1, 0x80));
    want!(INVALID_VALUE, cu.cuStreamWaitValue32_v2(stream, device, 0, 0x80));
    want!(INVALID_VALUE, cu.cuStreamWaitValue64_v2(stream, device, 0, 0x80));
    want!(INVALID_VALUE, cu.cuStreamWriteValue32_v2(stream, device, 1, 1));
    Ok(())
}

fn streams_exchange_values(cu: &Cuda<'_>) -> CaseResult {
    let (first, second) = (cu.stream()?, cu.stream()?);
    let (words, from, to) = (cu.filled(64, 0)?, cu.filled(4096, 0)?, cu.filled(4096, 0)?);
    ok!(cu.cuStreamWaitValue32_v2(second, words, 1, 1));
    ok!(cu.cuMemcpyDtoDAsync_v2(to, from, 4096, second));
    ok!(cu.cuMemsetD8Async(from, 0x66, 4096, first));
    ok!(cu.cuStreamWriteValue32_v2(first, words, 1, 0));
    ok!(cu.cuStreamSynchronize(second));
    same!(cu, cu.read(to, 4096)?, vec![0x66; 4096]);
    Ok(())
}

fn attributes_can_be_copied(cu: &Cuda<'_>) -> CaseResult {
    let (first, second) = (cu.stream()?, cu.stream()?);
    want!(SUCCESS, cu.cuStreamCopyAttributes(first, second));
    Ok(())
}

fn attribute_of_priority(cu: &Cuda<'_>) -> CaseResult {
    let mut stream = ptr::null_mut();
    ok!(cu.cuStreamCreateWithPriority(&mut stream, NON_BLOCKING, -2));
    cu.later(Cleanup::Stream(stream));
    let mut value = CUlaunchAttributeValue::zeroed();
    ok!(cu.cuStreamGetAttribute(stream, CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY, &mut value));
    // SAFETY: the driver wrote the field that belongs to the attribute.
    let found = unsafe { value.priority };
    same!(cu, found, -2);
    want!(INVALID_VALUE, cu.cuStreamGetAttribute(stream, CUlaunchAttributeID(999), &mut value));
    want!(INVALID_VALUE, cu.cuStreamSetAttribute(stream, CUlaunchAttributeID(999), &value));
    Ok(())
}

fn many_streams(cu: &Cuda<'_>) -> CaseResult {
    let device = cu.filled(64 * 40, 0)?;
    for index in 0..40_u8 {
        let stream = cu.stream()?;
        ok!(cu.cuMemsetD8Async(device + 64 * CUdeviceptr::from(index), index, 64, stream));
    }
    let got = cu.read(device, 64 * 40)?;
    that!(cu, got.chunks(64).zip(0..).all(|(chunk, index)| chunk.iter().all(|&byte| byte == index)));
    Ok(())
}
