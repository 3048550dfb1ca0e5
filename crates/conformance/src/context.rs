//! Contexts: primary ones and others, the stack of a thread, limits and settings.

use super::capture::RELAXED;
use super::prelude::*;

cases!("context", CASES, Needs::CONTEXT;
    current_is_the_primary, set_null, push_and_pop, pop_of_an_empty_stack, push_twice, set_replaces_the_top, current_without_context,
    device_of_the_context, device_without_context, device_v2, another_thread_has_none, ids, api_version, primary_is_shared,
    state_while_retained, flags_of_the_context, set_flags_of_the_context, set_unknown_flags, limits_have_values, limits_can_be_set, unknown_limits,
    read_only_limits, cache_configuration, shared_memory_configuration, priority_range, synchronize_v2, create_and_destroy, create_with_flags,
    create_with_unknown_flags, create_on_an_unknown_device, create_v4, create_v4_errors, created_becomes_current, destroy_of_the_current, destroy_twice_is_not_tried,
    memory_of_another_context, destroy_frees_memory, destroy_of_the_primary, calls_without_context, streams_and_events_name_their_context,
    graphs_are_launched_where_their_stream_is, reset_persisting_cache,
);
cases!("primary", PRIMARY_CASES, Needs::NO_CONTEXT;
    retain_and_release, release_too_often, retain_twice, unknown_devices, state_unretained, flags_before_retaining, unknown_flags, flags_while_active,
    reset_of_an_inactive_one, reset_invalidates_the_context, reset_frees_memory, context_after_last_release, work_with_a_released_context,
);

fn top(cu: &Cuda<'_>) -> CaseResult<CUcontext> {
    cu.current()
}

fn current_is_the_primary(cu: &Cuda<'_>) -> CaseResult {
    let context = cu.primary(0)?;
    same!(cu, top(cu)?, context);
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    Ok(())
}

fn set_null(cu: &Cuda<'_>) -> CaseResult {
    let context = top(cu)?;
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    that!(cu, top(cu)?.is_null());
    ok!(cu.cuCtxSetCurrent(context));
    Ok(())
}

fn push_and_pop(cu: &Cuda<'_>) -> CaseResult {
    let context = top(cu)?;
    ok!(cu.cuCtxPushCurrent_v2(context));
    let mut popped = ptr::null_mut();
    ok!(cu.cuCtxPopCurrent_v2(&mut popped));
    same!(cu, popped, context);
    same!(cu, top(cu)?, context);
    Ok(())
}

fn pop_of_an_empty_stack(cu: &Cuda<'_>) -> CaseResult {
    let context = top(cu)?;
    let mut popped = ptr::null_mut();
    ok!(cu.cuCtxPopCurrent_v2(&mut popped));
    want!(INVALID_CONTEXT, cu.cuCtxPopCurrent_v2(&mut popped));
    ok!(cu.cuCtxSetCurrent(context));
    Ok(())
}

fn push_twice(cu: &Cuda<'_>) -> CaseResult {
    let context = top(cu)?;
    ok!(cu.cuCtxPushCurrent_v2(context));
    ok!(cu.cuCtxPushCurrent_v2(context));
    let mut popped = ptr::null_mut();
    ok!(cu.cuCtxPopCurrent_v2(&mut popped));
    ok!(cu.cuCtxPopCurrent_v2(ptr::null_mut()));
    same!(cu, (popped, top(cu)?), (context, context));
    Ok(())
}

fn set_replaces_the_top(cu: &Cuda<'_>) -> CaseResult {
    let context = top(cu)?;
    ok!(cu.cuCtxPushCurrent_v2(context));
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    // Setting null takes the top away; the context below it shows.
    same!(cu, top(cu)?, context);
    Ok(())
}

fn current_without_context(cu: &Cuda<'_>) -> CaseResult {
    cu.on_another_thread(|cu| {
        ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
        let mut context = ptr::without_provenance_mut(1);
        ok!(cu.cuCtxGetCurrent(&mut context));
        that!(cu, context.is_null());
        Ok(())
    })
}

fn device_of_the_context(cu: &Cuda<'_>) -> CaseResult {
    let mut device = 77;
    ok!(cu.cuCtxGetDevice(&mut device));
    same!(cu, device, 0);
    Ok(())
}

fn device_without_context(cu: &Cuda<'_>) -> CaseResult {
    cu.on_another_thread(|cu| {
        ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
        let mut device = 77;
        want!(INVALID_CONTEXT, cu.cuCtxGetDevice(&mut device));
        let mut flags = 77;
        want!(INVALID_CONTEXT, cu.cuCtxGetFlags(&mut flags));
        let mut id = 0;
        want!(INVALID_CONTEXT, cu.cuCtxGetId(ptr::null_mut(), &mut id));
        let mut device = 77;
        want!(INVALID_CONTEXT, cu.cuCtxGetDevice_v2(&mut device, ptr::null_mut()));
        Ok(())
    })
}

fn device_v2(cu: &Cuda<'_>) -> CaseResult {
    let mut device = 77;
    ok!(cu.cuCtxGetDevice_v2(&mut device, ptr::null_mut()));
    same!(cu, device, 0);
    device = 77;
    ok!(cu.cuCtxGetDevice_v2(&mut device, top(cu)?));
    same!(cu, device, 0);
    Ok(())
}

fn another_thread_has_none(cu: &Cuda<'_>) -> CaseResult {
    cu.on_another_thread(|cu| {
        that!(cu, !top(cu)?.is_null());
        ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
        Ok(())
    })?;
    that!(cu, !top(cu)?.is_null());
    Ok(())
}

fn ids(cu: &Cuda<'_>) -> CaseResult {
    let (mut first, mut second) = (0, 0);
    ok!(cu.cuCtxGetId(ptr::null_mut(), &mut first));
    ok!(cu.cuCtxGetId(top(cu)?, &mut second));
    same!(cu, first, second);
    let other = created(cu, 0)?;
    ok!(cu.cuCtxGetId(other, &mut second));
    that!(cu, first != second);
    ok!(cu.cuCtxDestroy_v2(other));
    Ok(())
}

fn api_version(cu: &Cuda<'_>) -> CaseResult {
    let mut version = 0;
    ok!(cu.cuCtxGetApiVersion(top(cu)?, &mut version));
    same!(cu, version, 3020);
    version = 0;
    ok!(cu.cuCtxGetApiVersion(ptr::null_mut(), &mut version));
    same!(cu, version, 3020);
    Ok(())
}

fn primary_is_shared(cu: &Cuda<'_>) -> CaseResult {
    let context = Loose::new(top(cu)?);
    cu.on_another_thread(|cu| {
        let again = cu.primary(0)?;
        same!(cu, again, context.get());
        ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
        Ok(())
    })
}

fn state_while_retained(cu: &Cuda<'_>) -> CaseResult {
    let (mut flags, mut active) = (77, 77);
    ok!(cu.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    same!(cu, (flags, active), (0, 1));
    Ok(())
}

fn flags_of_the_context(cu: &Cuda<'_>) -> CaseResult {
    let mut flags = 77;
    ok!(cu.cuCtxGetFlags(&mut flags));
    // Mapping host memory is always on.
    same!(cu, flags & 0xF, 8);
    Ok(())
}

fn set_flags_of_the_context(cu: &Cuda<'_>) -> CaseResult {
    ok!(cu.cuCtxSetFlags(4));
    let mut flags = 77;
    ok!(cu.cuCtxGetFlags(&mut flags));
    same!(cu, flags & 0xF, 12);
    ok!(cu.cuCtxSetFlags(0));
    Ok(())
}

fn set_unknown_flags(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuCtxSetFlags(0x1000));
    want!(INVALID_VALUE, cu.cuCtxSetFlags(3));
    Ok(())
}

fn limit(cu: &Cuda<'_>, limit: CUlimit) -> CaseResult<usize> {
    let mut value = usize::MAX;
    ok!(cu.cuCtxGetLimit(&mut value, limit));
    Ok(value)
}

fn limits_have_values(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, limit(cu, CUlimit::CU_LIMIT_STACK_SIZE)?, 1024);
    same!(cu, limit(cu, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE)?, 8 << 20);
    that!(cu, limit(cu, CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE)? > 0);
    same!(cu, limit(cu, CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT)?, 2048);
    same!(cu, limit(cu, CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY)?, 64);
    that!(cu, limit(cu, CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE)? < 1 << 40);
    Ok(())
}

fn limits_can_be_set(cu: &Cuda<'_>) -> CaseResult {
    ok!(cu.cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, 4096));
    same!(cu, limit(cu, CUlimit::CU_LIMIT_STACK_SIZE)?, 4096);
    ok!(cu.cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, 1024));
    ok!(cu.cuCtxSetLimit(CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20));
    same!(cu, limit(cu, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE)?, 16 << 20);
    ok!(cu.cuCtxSetLimit(CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20));
    Ok(())
}

fn unknown_limits(cu: &Cuda<'_>) -> CaseResult {
    let mut value = 0;
    want!(INVALID_VALUE, cu.cuCtxGetLimit(&mut value, CUlimit(99)));
    want!(INVALID_VALUE, cu.cuCtxSetLimit(CUlimit(99), 1));
    Ok(())
}

fn read_only_limits(cu: &Cuda<'_>) -> CaseResult {
    want!(NOT_PERMITTED, cu.cuCtxSetLimit(CUlimit::CU_LIMIT_SHMEM_SIZE, 1));
    Ok(())
}

fn cache_configuration(cu: &Cuda<'_>) -> CaseResult {
    let mut config = CUfunc_cache(77);
    ok!(cu.cuCtxGetCacheConfig(&mut config));
    same!(cu, config, CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE);
    ok!(cu.cuCtxSetCacheConfig(CUfunc_cache::CU_FUNC_CACHE_PREFER_L1));
    ok!(cu.cuCtxGetCacheConfig(&mut config));
    same!(cu, config, CUfunc_cache::CU_FUNC_CACHE_PREFER_L1);
    ok!(cu.cuCtxSetCacheConfig(CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE));
    want!(INVALID_VALUE, cu.cuCtxSetCacheConfig(CUfunc_cache(9)));
    Ok(())
}

fn shared_memory_configuration(cu: &Cuda<'_>) -> CaseResult {
    let mut config = CUsharedconfig(77);
    ok!(cu.cuCtxGetSharedMemConfig(&mut config));
    same!(cu, config.0, 1);
    want!(SUCCESS, cu.cuCtxSetSharedMemConfig(CUsharedconfig(2)));
    ok!(cu.cuCtxGetSharedMemConfig(&mut config));
    same!(cu, config.0, 1);
    want!(INVALID_VALUE, cu.cuCtxSetSharedMemConfig(CUsharedconfig(9)));
    Ok(())
}

fn priority_range(cu: &Cuda<'_>) -> CaseResult {
    let (mut least, mut greatest) = (77, 77);
    ok!(cu.cuCtxGetStreamPriorityRange(&mut least, ptr::null_mut()));
    ok!(cu.cuCtxGetStreamPriorityRange(ptr::null_mut(), &mut greatest));
    same!(cu, (least, greatest), (0, -5));
    Ok(())
}

fn synchronize_v2(cu: &Cuda<'_>) -> CaseResult {
    want!(SUCCESS, cu.cuCtxSynchronize_v2(top(cu)?));
    want!(SUCCESS, cu.cuCtxSynchronize_v2(ptr::null_mut()));
    Ok(())
}

/// A new context on device 0, which is current no more afterwards.
fn created(cu: &Cuda<'_>, flags: u32) -> CaseResult<CUcontext> {
    let mut context = ptr::null_mut();
    ok!(cu.cuCtxCreate_v2(&mut context, flags, 0));
    let mut popped = ptr::null_mut();
    ok!(cu.cuCtxPopCurrent_v2(&mut popped));
    same!(cu, popped, context);
    Ok(context)
}

fn create_and_destroy(cu: &Cuda<'_>) -> CaseResult {
    let before = top(cu)?;
    let context = created(cu, 0)?;
    that!(cu, !context.is_null() && context != before);
    ok!(cu.cuCtxDestroy_v2(context));
    same!(cu, top(cu)?, before);
    Ok(())
}

fn create_with_flags(cu: &Cuda<'_>) -> CaseResult {
    for asked in [1, 2, 4] {
        let context = created(cu, asked)?;
        ok!(cu.cuCtxPushCurrent_v2(context));
        let mut flags = 77;
        ok!(cu.cuCtxGetFlags(&mut flags));
        same!(cu, flags & 7, asked);
        ok!(cu.cuCtxDestroy_v2(context));
    }
    Ok(())
}

fn create_with_unknown_flags(cu: &Cuda<'_>) -> CaseResult {
    let mut context = ptr::null_mut();
    want!(INVALID_VALUE, cu.cuCtxCreate_v2(&mut context, 0x10000, 0));
    want!(INVALID_VALUE, cu.cuCtxCreate_v2(&mut context, 3, 0));
    Ok(())
}

fn create_on_an_unknown_device(cu: &Cuda<'_>) -> CaseResult {
    let mut context = ptr::null_mut();
    want!(INVALID_DEVICE, cu.cuCtxCreate_v2(&mut context, 0, -1));
    want!(INVALID_DEVICE, cu.cuCtxCreate_v2(&mut context, 0, 1000));
    Ok(())
}

fn create_v4(cu: &Cuda<'_>) -> CaseResult {
    let before = top(cu)?;
    let mut context = ptr::null_mut();
    ok!(cu.cuCtxCreate_v4(&mut context, ptr::null_mut(), 0, 0));
    same!(cu, top(cu)?, context);
    ok!(cu.cuCtxDestroy_v2(context));
    same!(cu, top(cu)?, before);
    Ok(())
}

fn create_v4_errors(cu: &Cuda<'_>) -> CaseResult {
    let mut context = ptr::null_mut();
    want!(INVALID_DEVICE, cu.cuCtxCreate_v4(&mut context, ptr::null_mut(), 0, 1000));
    want!(INVALID_VALUE, cu.cuCtxCreate_v4(&mut context, ptr::null_mut(), 0x10000, 0));
    Ok(())
}

fn created_becomes_current(cu: &Cuda<'_>) -> CaseResult {
    let before = top(cu)?;
    let mut context = ptr::null_mut();
    ok!(cu.cuCtxCreate_v2(&mut context, 0, 0));
    same!(cu, top(cu)?, context);
    ok!(cu.cuCtxDestroy_v2(context));
    same!(cu, top(cu)?, before);
    Ok(())
}

fn destroy_of_the_current(cu: &Cuda<'_>) -> CaseResult {
    let context = created(cu, 0)?;
    ok!(cu.cuCtxPushCurrent_v2(context));
    ok!(cu.cuCtxPushCurrent_v2(context));
    ok!(cu.cuCtxDestroy_v2(context));
    // Only the top entry went; the one below it names a context that is no more.
    want!(CONTEXT_IS_DESTROYED, cu.cuCtxSynchronize());
    let mut popped = ptr::null_mut();
    ok!(cu.cuCtxPopCurrent_v2(&mut popped));
    that!(cu, top(cu)? != context);
    Ok(())
}

fn destroy_twice_is_not_tried(cu: &Cuda<'_>) -> CaseResult {
    // A destroyed handle is freed memory to the driver; null is what can be checked.
    want!(INVALID_VALUE, cu.cuCtxDestroy_v2(ptr::null_mut()));
    want!(INVALID_VALUE, cu.cuCtxPushCurrent_v2(ptr::null_mut()));
    Ok(())
}

fn memory_of_another_context(cu: &Cuda<'_>) -> CaseResult {
    let pointer = cu.filled(4096, 6)?;
    let context = created(cu, 0)?;
    ok!(cu.cuCtxPushCurrent_v2(context));
    let mut host = [0_u8; 16];
    want!(SUCCESS, cu.cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), pointer, 16));
    same!(cu, host, [6; 16]);
    ok!(cu.cuCtxDestroy_v2(context));
    Ok(())
}

fn destroy_frees_memory(cu: &Cuda<'_>) -> CaseResult {
    let context = created(cu, 0)?;
    ok!(cu.cuCtxPushCurrent_v2(context));
    let mut pointer = 0;
    ok!(cu.cuMemAlloc_v2(&mut pointer, 64 << 20));
    ok!(cu.cuCtxDestroy_v2(context));
    want!(INVALID_VALUE, cu.cuMemFree_v2(pointer));
    Ok(())
}

fn destroy_of_the_primary(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_CONTEXT, cu.cuCtxDestroy_v2(top(cu)?));
    that!(cu, !top(cu)?.is_null());
    Ok(())
}

fn calls_without_context(cu: &Cuda<'_>) -> CaseResult {
    cu.on_another_thread(|cu| {
        ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
        let (mut pointer, mut stream, mut event) = (0, ptr::null_mut(), ptr::null_mut());
        want!(INVALID_CONTEXT, cu.cuMemAlloc_v2(&mut pointer, 64));
        want!(INVALID_CONTEXT, cu.cuStreamCreate(&mut stream, 0));
        want!(INVALID_CONTEXT, cu.cuStreamCreateWithPriority(&mut stream, 0, 0));
        want!(INVALID_CONTEXT, cu.cuEventCreate(&mut event, 0));
        want!(INVALID_CONTEXT, cu.cuLaunchHostFunc(ptr::null_mut(), Some(raise), data(counter())));
        let mut flags = 0;
        want!(INVALID_CONTEXT, cu.cuStreamGetFlags(ptr::null_mut(), &mut flags));
        let mut priority = 0;
        want!(INVALID_CONTEXT, cu.cuStreamGetPriority(ptr::null_mut(), &mut priority));
        let mut id = 0;
        want!(INVALID_CONTEXT, cu.cuStreamGetId(ptr::null_mut(), &mut id));
        let mut context = ptr::null_mut();
        want!(INVALID_CONTEXT, cu.cuStreamGetCtx(ptr::null_mut(), &mut context));
        let mut status = CUstreamCaptureStatus(0);
        want!(INVALID_CONTEXT, cu.cuStreamIsCapturing(ptr::null_mut(), &mut status));
        let (mut device, mut green) = (0, ptr::null_mut());
        want!(INVALID_CONTEXT, cu.cuStreamGetDevice(ptr::null_mut(), &mut device));
        want!(INVALID_CONTEXT, cu.cuStreamGetCtx_v2(ptr::null_mut(), &mut context, &mut green));
        Ok(())
    })
}

/// Looking at a stream or an event works whatever context is current, and leaves it so.
fn streams_and_events_name_their_context(cu: &Cuda<'_>) -> CaseResult {
    let (home, stream, event) = (top(cu)?, cu.stream()?, cu.event()?);
    let other = created(cu, 0)?;
    for current in [ptr::null_mut(), other] {
        ok!(cu.cuCtxSetCurrent(current));
        want!(SUCCESS, cu.cuEventRecord(event, stream));
        want!(SUCCESS, cu.cuEventSynchronize(event));
        want!(SUCCESS, cu.cuEventQuery(event));
        want!(SUCCESS, cu.cuStreamWaitEvent(stream, event, 0));
        want!(SUCCESS, cu.cuStreamSynchronize(stream));
        want!(SUCCESS, cu.cuStreamQuery(stream));
        let (mut status, mut priority) = (CUstreamCaptureStatus(7), 7);
        want!(SUCCESS, cu.cuStreamIsCapturing(stream, &mut status));
        want!(SUCCESS, cu.cuStreamGetPriority(stream, &mut priority));
        same!(cu, (status.0, priority), (0, 0));
        same!(cu, top(cu)?, current);
    }
    ok!(cu.cuCtxSetCurrent(home));
    ok!(cu.cuCtxDestroy_v2(other));
    Ok(())
}

/// So does launching a graph; the default streams are those of the current context.
fn graphs_are_launched_where_their_stream_is(cu: &Cuda<'_>) -> CaseResult {
    let (home, stream, count) = (top(cu)?, cu.stream()?, counter());
    cu.begin(stream, RELAXED)?;
    ok!(cu.cuLaunchHostFunc(stream, Some(raise), data(count)));
    let exec = cu.instantiate(cu.end(stream)?)?;
    let other = created(cu, 0)?;
    for current in [ptr::null_mut(), other] {
        ok!(cu.cuCtxSetCurrent(current));
        want!(SUCCESS, cu.cuGraphUpload(exec, stream));
        want!(SUCCESS, cu.cuGraphLaunch(exec, stream));
        ok!(cu.cuStreamSynchronize(stream));
        same!(cu, top(cu)?, current);
    }
    same!(cu, count.load(Ordering::SeqCst), 2);
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    for default in [ptr::null_mut(), LEGACY, PER_THREAD] {
        want!(INVALID_CONTEXT, cu.cuGraphLaunch(exec, default));
    }
    ok!(cu.cuCtxSetCurrent(home));
    ok!(cu.cuCtxDestroy_v2(other));
    Ok(())
}

fn reset_persisting_cache(cu: &Cuda<'_>) -> CaseResult {
    want!(SUCCESS, cu.cuCtxResetPersistingL2Cache());
    Ok(())
}

fn state(cu: &Cuda<'_>) -> CaseResult<(u32, i32)> {
    let (mut flags, mut active) = (77, 77);
    ok!(cu.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    Ok((flags, active))
}

fn retain_and_release(cu: &Cuda<'_>) -> CaseResult {
    let context = cu.primary(0)?;
    that!(cu, !context.is_null());
    same!(cu, state(cu)?.1, 1);
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    same!(cu, state(cu)?.1, 0);
    Ok(())
}

fn release_too_often(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2(0));
    cu.primary(0)?;
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    want!(INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2(0));
    Ok(())
}

fn retain_twice(cu: &Cuda<'_>) -> CaseResult {
    let (first, second) = (cu.primary(0)?, cu.primary(0)?);
    same!(cu, first, second);
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    same!(cu, state(cu)?.1, 1);
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    same!(cu, state(cu)?.1, 0);
    Ok(())
}

fn unknown_devices(cu: &Cuda<'_>) -> CaseResult {
    for device in [-1, 1000] {
        let (mut context, mut flags, mut active) = (ptr::null_mut(), 0, 0);
        want!(INVALID_DEVICE, cu.cuDevicePrimaryCtxRetain(&mut context, device));
        want!(INVALID_DEVICE, cu.cuDevicePrimaryCtxRelease_v2(device));
        want!(INVALID_DEVICE, cu.cuDevicePrimaryCtxReset_v2(device));
        want!(INVALID_DEVICE, cu.cuDevicePrimaryCtxSetFlags_v2(device, 0));
        want!(INVALID_DEVICE, cu.cuDevicePrimaryCtxGetState(device, &mut flags, &mut active));
    }
    Ok(())
}

fn state_unretained(cu: &Cuda<'_>) -> CaseResult {
    same!(cu, state(cu)?, (0, 0));
    Ok(())
}

fn flags_before_retaining(cu: &Cuda<'_>) -> CaseResult {
    ok!(cu.cuDevicePrimaryCtxSetFlags_v2(0, 4));
    same!(cu, state(cu)?, (4, 0));
    let context = cu.primary(0)?;
    same!(cu, state(cu)?, (4, 1));
    ok!(cu.cuCtxPushCurrent_v2(context));
    let mut flags = 77;
    ok!(cu.cuCtxGetFlags(&mut flags));
    same!(cu, flags & 7, 4);
    ok!(cu.cuCtxPopCurrent_v2(ptr::null_mut()));
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    ok!(cu.cuDevicePrimaryCtxSetFlags_v2(0, 0));
    same!(cu, state(cu)?, (0, 0));
    Ok(())
}

fn unknown_flags(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuDevicePrimaryCtxSetFlags_v2(0, 0x1000));
    want!(INVALID_VALUE, cu.cuDevicePrimaryCtxSetFlags_v2(0, 3));
    Ok(())
}

fn flags_while_active(cu: &Cuda<'_>) -> CaseResult {
    cu.primary(0)?;
    ok!(cu.cuDevicePrimaryCtxSetFlags_v2(0, 2));
    same!(cu, state(cu)?, (2, 1));
    ok!(cu.cuDevicePrimaryCtxSetFlags_v2(0, 0));
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    Ok(())
}

fn reset_of_an_inactive_one(cu: &Cuda<'_>) -> CaseResult {
    want!(SUCCESS, cu.cuDevicePrimaryCtxReset_v2(0));
    same!(cu, state(cu)?, (0, 0));
    Ok(())
}

fn reset_invalidates_the_context(cu: &Cuda<'_>) -> CaseResult {
    let context = cu.primary(0)?;
    ok!(cu.cuCtxSetCurrent(context));
    ok!(cu.cuDevicePrimaryCtxReset_v2(0));
    same!(cu, state(cu)?.1, 0);
    want!(CONTEXT_IS_DESTROYED, cu.cuCtxSynchronize());
    let mut pointer = 0;
    want!(CONTEXT_IS_DESTROYED, cu.cuMemAlloc_v2(&mut pointer, 64));
    // The reset left the reference as it was.
    want!(SUCCESS, cu.cuDevicePrimaryCtxRelease_v2(0));
    want!(INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2(0));
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    Ok(())
}

fn reset_frees_memory(cu: &Cuda<'_>) -> CaseResult {
    let context = cu.primary(0)?;
    ok!(cu.cuCtxSetCurrent(context));
    let mut pointer = 0;
    ok!(cu.cuMemAlloc_v2(&mut pointer, 64 << 20));
    ok!(cu.cuDevicePrimaryCtxReset_v2(0));
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    let context = cu.primary(0)?;
    ok!(cu.cuCtxSetCurrent(context));
    want!(INVALID_VALUE, cu.cuMemFree_v2(pointer));
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    Ok(())
}

fn context_after_last_release(cu: &Cuda<'_>) -> CaseResult {
    let context = cu.primary(0)?;
    ok!(cu.cuCtxSetCurrent(context));
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    let mut current = ptr::null_mut();
    want!(SUCCESS, cu.cuCtxGetCurrent(&mut current));
    same!(cu, current, context);
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    Ok(())
}

fn work_with_a_released_context(cu: &Cuda<'_>) -> CaseResult {
    let context = cu.primary(0)?;
    ok!(cu.cuCtxSetCurrent(context));
    ok!(cu.cuDevicePrimaryCtxRelease_v2(0));
    let (mut pointer, mut stream) = (0, ptr::null_mut());
    want!(CONTEXT_IS_DESTROYED, cu.cuMemAlloc_v2(&mut pointer, 64));
    want!(CONTEXT_IS_DESTROYED, cu.cuStreamCreate(&mut stream, 0));
    ok!(cu.cuCtxSetCurrent(ptr::null_mut()));
    Ok(())
}
