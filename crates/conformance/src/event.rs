//! Events: flags, recording, waiting, timing.

use super::prelude::*;

cases!("event", CASES, Needs::CONTEXT;
    create_and_destroy, unknown_flags_are_refused, interprocess_needs_no_timing, query_unrecorded, synchronize_unrecorded,
    query_recorded, query_held, synchronize_waits, blocking_synchronize, destroy_null, destroy_while_pending,
    record_null, record_with_flags, record_with_unknown_flags, record_external_outside_capture, record_on_default_streams, record_again_moves_the_event,
    wait_takes_the_record_of_that_moment, elapsed_is_positive, elapsed_of_one_event, elapsed_backwards,
    elapsed_unrecorded, elapsed_without_timing, elapsed_not_ready, elapsed_null, elapsed_both_interfaces,
    elapsed_errors_both_interfaces, chain_over_streams, one_event_many_waiters, handles_differ, context_record_and_wait,
    query_after_wait, elapsed_over_streams, record_after_query, elapsed_one_of_two_recorded, elapsed_null_result,
);

/// `CU_EVENT_BLOCKING_SYNC`
const BLOCKING_SYNC: u32 = 1;

fn create_and_destroy(cu: &Cuda<'_>) -> CaseResult {
    for flags in [0, 1, 2, 3, 6, 7] {
        let mut event = ptr::null_mut();
        ok!(cu.cuEventCreate(&mut event, flags));
        that!(cu, !event.is_null());
        ok!(cu.cuEventDestroy_v2(event));
    }
    Ok(())
}

fn unknown_flags_are_refused(cu: &Cuda<'_>) -> CaseResult {
    let mut event = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuEventCreate(&mut event, 8));
    want!(INVALID_VALUE, cu.cuEventCreate(&mut event, 0x100));
    Ok(())
}

fn interprocess_needs_no_timing(cu: &Cuda<'_>) -> CaseResult {
    let mut event = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuEventCreate(&mut event, 4));
    want!(INVALID_VALUE, cu.cuEventCreate(&mut event, 5));
    Ok(())
}

fn query_unrecorded(cu: &Cuda<'_>) -> CaseResult {
    let event = cu.event()?;
    want!(SUCCESS, cu.cuEventQuery(event));
    Ok(())
}

fn synchronize_unrecorded(cu: &Cuda<'_>) -> CaseResult {
    let event = cu.event()?;
    want!(SUCCESS, cu.cuEventSynchronize(event));
    Ok(())
}

fn query_recorded(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event) = (cu.stream()?, cu.event()?);
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuStreamSynchronize(stream));
    want!(SUCCESS, cu.cuEventQuery(event));
    Ok(())
}

fn query_held(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event) = (cu.stream()?, cu.event()?);
    let gate = cu.hold(stream)?;
    ok!(cu.cuEventRecord(event, stream));
    want!(NOT_READY, cu.cuEventQuery(event));
    want!(NOT_READY, cu.cuEventQuery(event));
    gate.open();
    want!(SUCCESS, cu.cuEventSynchronize(event));
    want!(SUCCESS, cu.cuEventQuery(event));
    Ok(())
}

fn synchronize_waits(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event, got) = (cu.stream()?, cu.event()?, cu.pinned(1 << 20)?);
    ok!(cu.cuMemsetD8Async(got.device(), 0x52, 1 << 20, stream));
    ok!(cu.cuEventRecord(event, stream));
    ok!(cu.cuEventSynchronize(event));
    that!(cu, got.read().iter().all(|&byte| byte == 0x52));
    Ok(())
}

fn blocking_synchronize(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event) = (cu.stream()?, cu.event_with(BLOCKING_SYNC | NO_TIMING)?);
    let device = cu.filled(8 << 20, 0)?;
    ok!(cu.cuMemsetD8Async(device, 1, 8 << 20, stream));
    ok!(cu.cuEventRecord(event, stream));
    want!(SUCCESS, cu.cuEventSynchronize(event));
    want!(SUCCESS, cu.cuStreamQuery(stream));
    Ok(())
}

fn destroy_null(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_HANDLE, cu.cuEventDestroy_v2(ptr::null_mut()));
    Ok(())
}

fn destroy_while_pending(cu: &Cuda<'_>) -> CaseResult {
    let (first, second) = (cu.stream()?, cu.stream()?);
    let gate = cu.hold(first)?;
    let mut event = ptr::null_mut();
    ok!(cu.cuEventCreate(&mut event, NO_TIMING));
    ok!(cu.cuEventRecord(event, first));
    ok!(cu.cuStreamWaitEvent(second, event, 0));
    ok!(cu.cuEventDestroy_v2(event));
    want!(NOT_READY, cu.cuStreamQuery(second));
    gate.open();
    want!(SUCCESS, cu.cuStreamSynchronize(second));
    Ok(())
}

fn record_null(cu: &Cuda<'_>) -> CaseResult {
    let stream = cu.stream()?;
    want!(INVALID_HANDLE, cu.cuEventRecord(ptr::null_mut(), stream));
    Ok(())
}

fn record_with_flags(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event) = (cu.stream()?, cu.event()?);
    let gate = cu.hold(stream)?;
    ok!(cu.cuEventRecordWithFlags(event, stream, 0));
    want!(NOT_READY, cu.cuEventQuery(event));
    gate.open();
    want!(SUCCESS, cu.cuEventSynchronize(event));
    Ok(())
}

fn record_with_unknown_flags(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event) = (cu.stream()?, cu.event()?);
    want!(INVALID_VALUE, cu.cuEventRecordWithFlags(event, stream, 2));
    want!(INVALID_VALUE, cu.cuEventRecordWithFlags(event, stream, 0x80));
    Ok(())
}

fn record_external_outside_capture(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event) = (cu.stream()?, cu.event()?);
    want!(ILLEGAL_STATE, cu.cuEventRecordWithFlags(event, stream, 1));
    want!(ILLEGAL_STATE, cu.cuStreamWaitEvent(stream, event, 1));
    Ok(())
}

fn record_on_default_streams(cu: &Cuda<'_>) -> CaseResult {
    let event = cu.event()?;
    for stream in [DEFAULT, LEGACY, PER_THREAD] {
        ok!(cu.cuEventRecord(event, stream));
        want!(SUCCESS, cu.cuEventSynchronize(event));
    }
    Ok(())
}

fn record_again_moves_the_event(cu: &Cuda<'_>) -> CaseResult {
    let (first, second, event) = (cu.stream()?, cu.stream()?, cu.event()?);
    ok!(cu.cuEventRecord(event, first));
    want!(SUCCESS, cu.cuEventSynchronize(event));
    let gate = cu.hold(second)?;
    ok!(cu.cuEventRecord(event, second));
    want!(NOT_READY, cu.cuEventQuery(event));
    ok!(cu.cuEventRecord(event, first));
    want!(SUCCESS, cu.cuEventSynchronize(event));
    gate.open();
    Ok(())
}

fn wait_takes_the_record_of_that_moment(cu: &Cuda<'_>) -> CaseResult {
    let (first, second, third, event) = (cu.stream()?, cu.stream()?, cu.stream()?, cu.event()?);
    ok!(cu.cuEventRecord(event, first));
    ok!(cu.cuStreamWaitEvent(second, event, 0));
    let gate = cu.hold(third)?;
    ok!(cu.cuEventRecord(event, third));
    want!(SUCCESS, cu.cuStreamSynchronize(second));
    gate.open();
    Ok(())
}

/// Two events with timing, recorded around a set of 64 MiB, both done.
fn timed(cu: &Cuda<'_>) -> CaseResult<(CUevent, CUevent)> {
    let (stream, start, end) = (cu.stream()?, cu.event_with(0)?, cu.event_with(0)?);
    let device = cu.alloc(64 << 20)?;
    ok!(cu.cuEventRecord(start, stream));
    ok!(cu.cuMemsetD8Async(device, 1, 64 << 20, stream));
    ok!(cu.cuEventRecord(end, stream));
    ok!(cu.cuStreamSynchronize(stream));
    Ok((start, end))
}

fn elapsed_is_positive(cu: &Cuda<'_>) -> CaseResult {
    let (start, end) = timed(cu)?;
    let mut milliseconds = -1.0;
    ok!(cu.cuEventElapsedTime(&mut milliseconds, start, end));
    that!(cu, milliseconds > 0.0 && milliseconds < 1000.0);
    Ok(())
}

fn elapsed_of_one_event(cu: &Cuda<'_>) -> CaseResult {
    let (start, _) = timed(cu)?;
    let mut milliseconds = -1.0;
    ok!(cu.cuEventElapsedTime(&mut milliseconds, start, start));
    same!(cu, milliseconds, 0.0);
    Ok(())
}

fn elapsed_backwards(cu: &Cuda<'_>) -> CaseResult {
    let (start, end) = timed(cu)?;
    let (mut forwards, mut backwards) = (0.0, 0.0);
    ok!(cu.cuEventElapsedTime(&mut forwards, start, end));
    ok!(cu.cuEventElapsedTime(&mut backwards, end, start));
    that!(cu, backwards < 0.0 && (forwards + backwards).abs() < 0.01);
    Ok(())
}

fn elapsed_unrecorded(cu: &Cuda<'_>) -> CaseResult {
    let (start, end) = (cu.event_with(0)?, cu.event_with(0)?);
    let mut milliseconds = -1.0;
    want!(INVALID_HANDLE, cu.cuEventElapsedTime(&mut milliseconds, start, end));
    Ok(())
}

fn elapsed_one_of_two_recorded(cu: &Cuda<'_>) -> CaseResult {
    let (start, _) = timed(cu)?;
    let end = cu.event_with(0)?;
    let mut milliseconds = -1.0;
    want!(INVALID_HANDLE, cu.cuEventElapsedTime(&mut milliseconds, start, end));
    want!(INVALID_HANDLE, cu.cuEventElapsedTime(&mut milliseconds, end, start));
    Ok(())
}

fn elapsed_without_timing(cu: &Cuda<'_>) -> CaseResult {
    let (start, _) = timed(cu)?;
    let (stream, end) = (cu.stream()?, cu.event()?);
    ok!(cu.cuEventRecord(end, stream));
    ok!(cu.cuStreamSynchronize(stream));
    let mut milliseconds = -1.0;
    want!(INVALID_HANDLE, cu.cuEventElapsedTime(&mut milliseconds, start, end));
    want!(INVALID_HANDLE, cu.cuEventElapsedTime(&mut milliseconds, end, start));
    Ok(())
}

fn elapsed_not_ready(cu: &Cuda<'_>) -> CaseResult {
    let (stream, start, end) = (cu.stream()?, cu.event_with(0)?, cu.event_with(0)?);
    ok!(cu.cuEventRecord(start, stream));
    let gate = cu.hold(stream)?;
    ok!(cu.cuEventRecord(end, stream));
    let mut milliseconds = -1.0;
    want!(NOT_READY, cu.cuEventElapsedTime(&mut milliseconds, start, end));
    want!(NOT_READY, cu.cuEventElapsedTime_v2(&mut milliseconds, start, end));
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    want!(SUCCESS, cu.cuEventElapsedTime(&mut milliseconds, start, end));
    Ok(())
}

fn elapsed_null(cu: &Cuda<'_>) -> CaseResult {
    let (start, end) = timed(cu)?;
    let mut milliseconds = -1.0;
    want!(INVALID_HANDLE, cu.cuEventElapsedTime(&mut milliseconds, ptr::null_mut(), end));
    want!(INVALID_HANDLE, cu.cuEventElapsedTime(&mut milliseconds, start, ptr::null_mut()));
    Ok(())
}

fn elapsed_null_result(cu: &Cuda<'_>) -> CaseResult {
    let (start, end) = timed(cu)?;
    want!(INVALID_HANDLE, cu.cuEventElapsedTime(ptr::null_mut(), start, end));
    want!(INVALID_HANDLE, cu.cuEventElapsedTime_v2(ptr::null_mut(), start, end));
    Ok(())
}

fn elapsed_both_interfaces(cu: &Cuda<'_>) -> CaseResult {
    let (start, end) = timed(cu)?;
    let (mut first, mut second) = (-1.0, -2.0);
    ok!(cu.cuEventElapsedTime(&mut first, start, end));
    ok!(cu.cuEventElapsedTime_v2(&mut second, start, end));
    same!(cu, first, second);
    Ok(())
}

fn elapsed_errors_both_interfaces(cu: &Cuda<'_>) -> CaseResult {
    let (start, end, untimed) = (cu.event_with(0)?, cu.event_with(0)?, cu.event()?);
    let mut milliseconds = -1.0;
    want!(INVALID_HANDLE, cu.cuEventElapsedTime_v2(&mut milliseconds, start, end));
    want!(INVALID_HANDLE, cu.cuEventElapsedTime_v2(&mut milliseconds, start, untimed));
    want!(INVALID_HANDLE, cu.cuEventElapsedTime_v2(&mut milliseconds, untimed, untimed));
    Ok(())
}

fn chain_over_streams(cu: &Cuda<'_>) -> CaseResult {
    let streams = (0..5).map(|_| cu.stream()).collect::<CaseResult<Vec<_>>>()?;
    let device = cu.filled(4096, 0)?;
    let gate = cu.hold(streams[0])?;
    for (index, pair) in streams.windows(2).enumerate() {
        let event = cu.event()?;
        ok!(cu.cuMemsetD8Async(device, u8::try_from(index).unwrap_or(0) + 1, 4096, pair[0]));
        ok!(cu.cuEventRecord(event, pair[0]));
        ok!(cu.cuStreamWaitEvent(pair[1], event, 0));
    }
    ok!(cu.cuMemsetD8Async(device, 50, 4096, streams[4]));
    gate.open();
    same!(cu, cu.read(device, 4096)?, vec![50; 4096]);
    Ok(())
}

fn one_event_many_waiters(cu: &Cuda<'_>) -> CaseResult {
    let (first, event) = (cu.stream()?, cu.event()?);
    let gate = cu.hold(first)?;
    ok!(cu.cuEventRecord(event, first));
    let waiting = (0..6).map(|_| cu.stream()).collect::<CaseResult<Vec<_>>>()?;
    for &stream in &waiting {
        ok!(cu.cuStreamWaitEvent(stream, event, 0));
        want!(NOT_READY, cu.cuStreamQuery(stream));
    }
    gate.open();
    for &stream in &waiting {
        want!(SUCCESS, cu.cuStreamSynchronize(stream));
    }
    Ok(())
}

fn handles_differ(cu: &Cuda<'_>) -> CaseResult {
    let mut events = (0..20).map(|_| cu.event()).collect::<CaseResult<Vec<_>>>()?;
    events.sort();
    events.dedup();
    same!(cu, events.len(), 20);
    Ok(())
}

fn context_record_and_wait(cu: &Cuda<'_>) -> CaseResult {
    let event = cu.event()?;
    let context = cu.current()?;
    want!(SUCCESS, cu.cuCtxRecordEvent(context, event));
    want!(SUCCESS, cu.cuEventSynchronize(event));
    want!(SUCCESS, cu.cuCtxWaitEvent(context, event));
    want!(SUCCESS, cu.cuCtxSynchronize());
    want!(INVALID_HANDLE, cu.cuCtxRecordEvent(context, ptr::null_mut()));
    want!(INVALID_HANDLE, cu.cuCtxWaitEvent(context, ptr::null_mut()));
    Ok(())
}

fn query_after_wait(cu: &Cuda<'_>) -> CaseResult {
    let (first, second, event) = (cu.stream()?, cu.stream()?, cu.event()?);
    ok!(cu.cuEventRecord(event, first));
    ok!(cu.cuStreamWaitEvent(second, event, 0));
    ok!(cu.cuStreamSynchronize(second));
    want!(SUCCESS, cu.cuEventQuery(event));
    Ok(())
}

fn elapsed_over_streams(cu: &Cuda<'_>) -> CaseResult {
    let (first, second) = (cu.stream()?, cu.stream()?);
    let (start, end) = (cu.event_with(0)?, cu.event_with(0)?);
    ok!(cu.cuEventRecord(start, first));
    ok!(cu.cuStreamWaitEvent(second, start, 0));
    ok!(cu.cuEventRecord(end, second));
    ok!(cu.cuCtxSynchronize());
    let mut milliseconds = -1.0;
    ok!(cu.cuEventElapsedTime(&mut milliseconds, start, end));
    that!(cu, milliseconds >= 0.0);
    Ok(())
}

fn record_after_query(cu: &Cuda<'_>) -> CaseResult {
    let (stream, event) = (cu.stream()?, cu.event()?);
    for _ in 0..10 {
        ok!(cu.cuEventRecord(event, stream));
        while status!(cu.cuEventQuery(event)) == CUresult::CUDA_ERROR_NOT_READY {}
        want!(SUCCESS, cu.cuEventQuery(event));
    }
    Ok(())
}
