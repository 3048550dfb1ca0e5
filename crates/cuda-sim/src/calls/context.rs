//! Primary contexts, the current context, limits.

use cuda_sys::driver::types::{
    CUcontext, CUctx_st, CUctxCreateParams, CUevent_st, CUfunc_cache, CUlimit, CUsharedconfig,
};

use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{
    Answer, INVALID_CONTEXT, INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED, PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_NOT_ENABLED, PEER_ACCESS_UNSUPPORTED, UNSUPPORTED_EXEC_AFFINITY, UNSUPPORTED_LIMIT,
};
use crate::model::Effect;
use crate::model::engine::{OpId, Timing};
use crate::model::heaps::{HEAP_BYTES, HEAP_LIMIT};

/// Flags that a context can be made with: scheduling (3 bits), mapped host memory, local memory, coredumps, sync memops.
const CONTEXT_FLAGS: u32 = 0xFF & !0x40 | 0x40;

/// Scheduling bits; only one may be set.
const SCHEDULING_FLAGS: u32 = 0x7;

/// What a context says its flags are, whatever they were: host memory is always mapped.
const MAPS_HOST_MEMORY: u32 = 0x8;

fn check_flags(flags: u32) -> Answer {
    let scheduling = flags & SCHEDULING_FLAGS;
    if flags & !CONTEXT_FLAGS != 0 || scheduling.count_ones() > 1 { Err(INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn primary_retain(call: &mut Call<'_>, context: Ptr<CUcontext>, device: i32) -> Answer {
    context.required()?;
    let index = call.device(device)?;
    let key = call.retain_primary(index)?;
    context.write(handle(key))
}

pub(crate) fn primary_release(call: &mut Call<'_>, device: i32) -> Answer {
    let index = call.device(device)?;
    if call.primary(index).retained == 1
        && let Some(context) = call.primary(index).handle
    {
        // A lost context is given back like any other.
        let _ = call.finish_context(context);
    }
    call.release_primary(index)
}

pub(crate) fn primary_reset(call: &mut Call<'_>, device: i32) -> Answer {
    let index = call.device(device)?;
    call.reset_primary(index);
    Ok(())
}

pub(crate) fn primary_state(call: &mut Call<'_>, device: i32, flags: Ptr<u32>, active: Ptr<i32>) -> Answer {
    flags.required()?;
    active.required()?;
    call.need_init()?;
    let index = call.device(device)?;
    let (kept, is_active) = (call.primary(index).flags, call.primary_is_active(index));
    flags.write(kept)?;
    active.write(i32::from(is_active))
}

pub(crate) fn primary_set_flags(call: &mut Call<'_>, device: i32, flags: u32) -> Answer {
    let index = call.device(device)?;
    check_flags(flags)?;
    call.primary(index).flags = flags;
    Ok(())
}

pub(crate) fn get_current(call: &mut Call<'_>, context: Ptr<CUcontext>) -> Answer {
    context.write(handle(call.current_context(call.thread).unwrap_or(0)))
}

pub(crate) fn set_current(call: &mut Call<'_>, context: Ptr<CUctx_st>) -> Answer {
    let key = known_context(call, context)?;
    let thread = call.thread;
    let current = &mut call.thread(thread).current;
    current.pop();
    current.extend(key);
    Ok(())
}

/// A context's key; none for null. A context that ended keeps its handle.
fn known_context(call: &Call<'_>, context: Ptr<CUctx_st>) -> Answer<Option<u64>> {
    if context.is_null() {
        return Ok(None);
    }
    let key = context.address();
    if call.is_context(key) { Ok(Some(key)) } else { Err(INVALID_CONTEXT) }
}

pub(crate) fn push_current(call: &mut Call<'_>, context: Ptr<CUctx_st>) -> Answer {
    let key = known_context(call, context)?.ok_or(INVALID_VALUE)?;
    let thread = call.thread;
    call.thread(thread).current.push(key);
    Ok(())
}

pub(crate) fn pop_current(call: &mut Call<'_>, context: Ptr<CUcontext>) -> Answer {
    let thread = call.thread;
    let popped = call.thread(thread).current.pop().ok_or(INVALID_CONTEXT)?;
    context.write_if_wanted(handle(popped));
    Ok(())
}

pub(crate) fn create(call: &mut Call<'_>, context: Ptr<CUcontext>, flags: u32, device: i32) -> Answer {
    context.required()?;
    let index = call.device(device)?;
    check_flags(flags)?;
    let key = call.create_context(index, flags)?;
    let thread = call.thread;
    call.thread(thread).current.push(key);
    context.write(handle(key))
}

/// Parameters ask for parts of a device or for sharing with graphics; a device as this one has neither.
pub(crate) fn create_v4(
    call: &mut Call<'_>,
    context: Ptr<CUcontext>,
    params: Ptr<CUctxCreateParams>,
    flags: u32,
    device: i32,
) -> Answer {
    if !params.is_null() {
        let wanted = params.read()?;
        if wanted.numExecAffinityParams > 0 {
            return Err(UNSUPPORTED_EXEC_AFFINITY);
        }
        if !wanted.cigParams.is_null() {
            return Err(NOT_SUPPORTED);
        }
    }
    create(call, context, flags, device)
}

pub(crate) fn destroy(call: &mut Call<'_>, context: Ptr<CUctx_st>) -> Answer {
    if context.is_null() {
        return Err(INVALID_VALUE);
    }
    call.need_init()?;
    let key = context.address();
    let made = call.contexts.get(&key).is_some_and(|found| found.made_with.is_some());
    if !made {
        return Err(INVALID_CONTEXT);
    }
    // A lost context is destroyed like any other.
    let _ = call.finish_context(key);
    call.end_context(key);
    let thread = call.thread;
    let current = &mut call.thread(thread).current;
    if current.last() == Some(&key) {
        current.pop();
    }
    Ok(())
}

pub(crate) fn get_device_v2(call: &mut Call<'_>, device: Ptr<i32>, context: Ptr<CUctx_st>) -> Answer {
    device.required()?;
    let key = named_context(call, context)?;
    let index = call.active_context(key)?.device;
    device.write(i32::try_from(index).unwrap_or(i32::MAX))
}

pub(crate) fn synchronize_v2(call: &mut Call<'_>, context: Ptr<CUctx_st>) -> Answer {
    let key = named_context(call, context)?;
    call.refuse_while_capturing_anywhere(key)?;
    call.finish_context(key)
}

/// All streams of a context, for work that concerns all of them.
fn streams_of(call: &Call<'_>, context: u64) -> Vec<u64> {
    call.streams.iter().filter(|(_, stream)| call.is_within(stream.context, context)).map(|(&key, _)| key).collect()
}

/// The event is reached when everything queued in the context is done.
pub(crate) fn record_event(call: &mut Call<'_>, context: Ptr<CUctx_st>, event: Ptr<CUevent_st>) -> Answer {
    let key = known_context(call, context)?.ok_or(INVALID_CONTEXT)?;
    record_in(call, key, event)
}

pub(super) fn record_in(call: &mut Call<'_>, key: u64, event: Ptr<CUevent_st>) -> Answer {
    call.usable_context(key)?;
    let event = call.named_event(event)?;
    call.refuse_while_capturing_anywhere(key)?;
    let before: Vec<OpId> = streams_of(call, key).iter().filter_map(|stream| call.streams.get(stream)?.last).collect();
    let serial = call.next_serial(event)?;
    let (now_ns, effect) = (call.clock_ns, Effect::Record { event, serial });
    let op = call.engine.submit(now_ns, key, &before, Timing::default(), effect);
    call.note_recording(event, serial, op)
}

/// Everything queued in the context from now on comes after the event.
pub(crate) fn wait_event(call: &mut Call<'_>, context: Ptr<CUctx_st>, event: Ptr<CUevent_st>) -> Answer {
    let key = known_context(call, context)?.ok_or(INVALID_CONTEXT)?;
    wait_in(call, key, event)
}

pub(super) fn wait_in(call: &mut Call<'_>, key: u64, event: Ptr<CUevent_st>) -> Answer {
    call.usable_context(key)?;
    let event = call.named_event(event)?;
    call.refuse_while_capturing_anywhere(key)?;
    let reached = call.event(event)?.recording.map(|recording| recording.op);
    if let Some(op) = reached.filter(|&op| call.is_pending(op)) {
        for stream in streams_of(call, key) {
            call.enqueue(stream, &[op], Timing::default(), Effect::Nothing)?;
        }
    }
    Ok(())
}

/// There is no cache to reset.
pub(crate) fn reset_cache(call: &mut Call<'_>) -> Answer {
    call.need_context().map(|_| ())
}

pub(crate) fn get_shared_config(_: &mut Call<'_>, config: Ptr<CUsharedconfig>) -> Answer {
    config.write(CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE)
}

/// Any known configuration is taken and has no effect, as on all newer devices.
pub(crate) fn set_shared_config(_: &mut Call<'_>, config: CUsharedconfig) -> Answer {
    if config.0 > CUsharedconfig::CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE.0 { Err(INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn get_device(call: &mut Call<'_>, device: Ptr<i32>) -> Answer {
    device.required()?;
    let key = named_context(call, Ptr::null())?;
    let index = call.active_context(key)?.device;
    device.write(i32::try_from(index).unwrap_or(i32::MAX))
}

pub(crate) fn get_flags(call: &mut Call<'_>, flags: Ptr<u32>) -> Answer {
    flags.required()?;
    let context = named_context(call, Ptr::null())?;
    let kept = *call.context_flags(context)?;
    flags.write(kept | MAPS_HOST_MEMORY)
}

pub(crate) fn set_flags(call: &mut Call<'_>, flags: u32) -> Answer {
    check_flags(flags)?;
    let context = call.need_context()?;
    *call.context_flags(context)? = flags;
    Ok(())
}

pub(crate) fn get_id(call: &mut Call<'_>, context: Ptr<CUctx_st>, id: Ptr<u64>) -> Answer {
    id.required()?;
    let key = named_context(call, context)?;
    let number = call.active_context(key)?.id;
    id.write(call.greens.get(&key).map_or(number, |green| green.id))
}

/// The context that a handle names, the current one for null; it may be lost.
pub(super) fn named_context(call: &Call<'_>, context: Ptr<CUctx_st>) -> Answer<u64> {
    call.need_init()?;
    match known_context(call, context)? {
        None => {
            let current = call.current_context(call.thread).ok_or(INVALID_CONTEXT)?;
            call.active_context(current)?;
            Ok(current)
        }
        Some(key) => Ok(key),
    }
}

pub(crate) fn get_api_version(call: &mut Call<'_>, context: Ptr<CUctx_st>, version: Ptr<u32>) -> Answer {
    const CONTEXT_API: u32 = 3020;
    named_context(call, context)?;
    version.required()?;
    version.write(CONTEXT_API)
}

pub(crate) fn synchronize(call: &mut Call<'_>) -> Answer {
    let context = call.need_current()?;
    call.refuse_while_capturing_anywhere(context)?;
    call.finish_context(context)?;
    call.trim_pools(&|_| true);
    Ok(())
}

pub(crate) fn priority_range(_: &mut Call<'_>, least: Ptr<i32>, greatest: Ptr<i32>) -> Answer {
    least.write_if_wanted(super::stream::LEAST_PRIORITY);
    greatest.write_if_wanted(super::stream::GREATEST_PRIORITY);
    Ok(())
}

/// What the limits 0 to 9 are at first; none where the device has no such limit.
const LIMITS: [Option<usize>; 10] = [
    Some(1024),
    Some(8_650_752),
    Some(HEAP_BYTES),
    None,
    Some(2048),
    Some(64),
    Some(11_796_480),
    Some(232_448),
    Some(0),
    None,
];

fn known_limit(limit: CUlimit) -> Answer<usize> {
    let index = usize::try_from(limit.0).unwrap_or(usize::MAX);
    LIMITS.get(index).ok_or(INVALID_VALUE)?.ok_or(UNSUPPORTED_LIMIT)
}

pub(crate) fn get_limit(call: &mut Call<'_>, value: Ptr<usize>, limit: CUlimit) -> Answer {
    value.required()?;
    let default = known_limit(limit)?;
    let context = call.need_context()?;
    let set = call.usable_context(context)?.limits.get(&limit.0).copied();
    value.write(set.unwrap_or(default))
}

pub(crate) fn set_limit(call: &mut Call<'_>, limit: CUlimit, value: usize) -> Answer {
    call.refuse_if_unsafe()?;
    known_limit(limit)?;
    if limit == CUlimit::CU_LIMIT_SHMEM_SIZE {
        return Err(NOT_PERMITTED);
    }
    let context = call.need_context()?;
    // A kernel has used it already.
    if limit.0 == HEAP_LIMIT && call.heaps.contains_key(&context) {
        return Err(INVALID_VALUE);
    }
    if let Some(context) = call.contexts.get_mut(&context) {
        context.limits.insert(limit.0, value);
    }
    Ok(())
}

pub(crate) fn get_cache_config(call: &mut Call<'_>, config: Ptr<CUfunc_cache>) -> Answer {
    let context = call.need_context()?;
    let kept = call.usable_context(context)?.cache_config;
    config.write(CUfunc_cache(kept))
}

pub(crate) fn set_cache_config(call: &mut Call<'_>, config: CUfunc_cache) -> Answer {
    if config.0 > 3 {
        return Err(INVALID_VALUE);
    }
    let context = call.need_context()?;
    if let Some(context) = call.contexts.get_mut(&context) {
        context.cache_config = config.0;
    }
    Ok(())
}

pub(crate) fn enable_peer(call: &mut Call<'_>, peer: Ptr<CUctx_st>, flags: u32) -> Answer {
    let context = call.need_context()?;
    let peer = known_context(call, peer)?.ok_or(INVALID_CONTEXT)?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    call.usable_context(peer)?;
    let peer = call.home_of(peer);
    let devices = (call.active_context(context)?.device, call.active_context(peer)?.device);
    call.change_links();
    if peer == context || !call.reaches(devices.0, devices.1) {
        return Err(PEER_ACCESS_UNSUPPORTED);
    }
    let current = call.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?;
    if current.peers.insert(peer) { Ok(()) } else { Err(PEER_ACCESS_ALREADY_ENABLED) }
}

pub(crate) fn disable_peer(call: &mut Call<'_>, peer: Ptr<CUctx_st>) -> Answer {
    let context = call.need_context()?;
    let peer = known_context(call, peer)?.map(|peer| call.home_of(peer)).ok_or(INVALID_CONTEXT)?;
    let current = call.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?;
    if current.peers.remove(&peer) { Ok(()) } else { Err(PEER_ACCESS_NOT_ENABLED) }
}
