//! Streams, the functions of the program they call, and values in memory they write and wait for.

use std::ffi::c_void;

use cuda_sys::driver::types::{CUcontext, CUevent_st, CUgreenCtx, CUhostFn, CUstream, CUstream_st, CUstreamCallback};

use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_READY, STREAM_CAPTURE_UNSUPPORTED};
use crate::model::engine::Timing;
use crate::model::graph::{HostCall, NodeKind, ValueOp};
use crate::model::graphs::value_effect;
use crate::model::green::Green;
use crate::model::plan::{self, Place};
use crate::model::stream::{Kind, NON_BLOCKING, Stream};
use crate::model::{Effect, HostWork};

/// Priority of streams that do not say otherwise.
pub(super) const LEAST_PRIORITY: i32 = 0;

/// The highest priority; lower numbers go first.
pub(super) const GREATEST_PRIORITY: i32 = -5;

/// `CU_EVENT_WAIT_EXTERNAL` and `CU_EVENT_RECORD_EXTERNAL`.
pub(super) const EXTERNAL: u32 = 1;

pub(crate) fn create(call: &mut Call<'_>, stream: Ptr<CUstream>, flags: u32) -> Answer {
    create_with_priority(call, stream, flags, LEAST_PRIORITY)
}

pub(crate) fn create_with_priority(call: &mut Call<'_>, stream: Ptr<CUstream>, flags: u32, priority: i32) -> Answer {
    stream.required()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(INVALID_VALUE);
    }
    let context = call.need_current()?;
    make(call, stream, context, flags, priority)
}

/// Makes a stream in a context.
pub(super) fn make(call: &mut Call<'_>, stream: Ptr<CUstream>, context: u64, flags: u32, priority: i32) -> Answer {
    let key = call.new_handle();
    let priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
    let id = call.new_id();
    call.streams.insert(key, Stream::new(context, Kind::Created, flags, priority, id));
    stream.write(handle(key))
}

pub(crate) fn destroy(call: &mut Call<'_>, stream: Ptr<CUstream_st>) -> Answer {
    // The streams of a green context that has ended were destroyed with it.
    let context = call.streams.get(&stream.address()).map(|stream| stream.context);
    let has_ended = context.and_then(|context| call.greens.get(&context)).is_some_and(Green::has_ended);
    if stream.address() <= 2 || has_ended {
        return Err(INVALID_HANDLE);
    }
    let key = call.named_stream(stream)?;
    if call.stream(key)?.kind != Kind::Created {
        return Err(INVALID_HANDLE);
    }
    call.end_capture_with_stream(key);
    call.forget_stream(key);
    Ok(())
}

pub(crate) fn query(call: &mut Call<'_>, stream: Ptr<CUstream_st>) -> Answer {
    let key = call.named_stream(stream)?;
    let thread = call.thread;
    call.refuse_stream_wait(key, thread)?;
    call.poll();
    let context = call.stream(key)?.context;
    call.usable_context(context)?;
    if !call.stream_is_idle(key) {
        return Err(NOT_READY);
    }
    call.note_stream_seen(key);
    Ok(())
}

pub(crate) fn synchronize(call: &mut Call<'_>, stream: Ptr<CUstream_st>) -> Answer {
    let key = call.named_stream(stream)?;
    let thread = call.thread;
    call.refuse_stream_wait(key, thread)?;
    call.finish_stream(key)?;
    call.trim_pools_after(key);
    Ok(())
}

pub(crate) fn priority(call: &mut Call<'_>, stream: Ptr<CUstream_st>, priority: Ptr<i32>) -> Answer {
    priority.required()?;
    let key = call.named_stream(stream)?;
    priority.write(call.stream(key)?.priority)
}

pub(crate) fn flags(call: &mut Call<'_>, stream: Ptr<CUstream_st>, flags: Ptr<u32>) -> Answer {
    flags.required()?;
    let key = call.named_stream(stream)?;
    refuse_captured(call, key)?;
    flags.write(call.stream(key)?.flags)
}

/// Some calls spoil the capture that a stream is in.
fn refuse_captured(call: &mut Call<'_>, key: u64) -> Answer {
    let Some(capturing) = call.stream(key)?.capturing.clone() else { return Ok(()) };
    call.invalidate_capture(capturing.capture);
    Err(STREAM_CAPTURE_UNSUPPORTED)
}

pub(crate) fn id(call: &mut Call<'_>, stream: Ptr<CUstream_st>, id: Ptr<u64>) -> Answer {
    id.required()?;
    let key = call.named_stream(stream)?;
    refuse_captured(call, key)?;
    id.write(call.stream(key)?.id)
}

pub(crate) fn context(call: &mut Call<'_>, stream: Ptr<CUstream_st>, context: Ptr<CUcontext>) -> Answer {
    context.required()?;
    let key = call.named_stream(stream)?;
    context.write(handle(call.stream(key)?.context))
}

pub(crate) fn context_v2(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    context: Ptr<CUcontext>,
    green: Ptr<CUgreenCtx>,
) -> Answer {
    context.required()?;
    let key = call.named_stream(stream)?;
    let named = call.stream(key)?.context;
    context.write(handle(call.home_of(named)))?;
    green.write_if_wanted(handle(if call.greens.contains_key(&named) { named } else { 0 }));
    Ok(())
}

pub(crate) fn device(call: &mut Call<'_>, stream: Ptr<CUstream_st>, device: Ptr<i32>) -> Answer {
    device.required()?;
    let key = call.named_stream(stream)?;
    let context = call.stream(key)?.context;
    let index = call.usable_context(context)?.device;
    device.write(i32::try_from(index).unwrap_or(i32::MAX))
}

pub(crate) fn wait_event(call: &mut Call<'_>, stream: Ptr<CUstream_st>, event: Ptr<CUevent_st>, flags: u32) -> Answer {
    let key = call.named_stream(stream)?;
    let event = call.named_event(event)?;
    if flags & !EXTERNAL != 0 {
        return Err(INVALID_VALUE);
    }
    if flags == EXTERNAL {
        let captured = call.capture_node(key, |_| Ok(NodeKind::EventWait(event)))?;
        return if captured { Ok(()) } else { Err(crate::codes::ILLEGAL_STATE) };
    }
    if call.capture_wait(key, event)? {
        return Ok(());
    }
    call.refuse_implicit(key)?;
    let reached = call.event(event)?.recording.map(|recording| recording.op);
    // A journal names what comes before even if it is done.
    if let Some(op) = reached.filter(|&op| call.is_pending(op) || call.journal.is_kept) {
        call.enqueue(key, &[op], Timing::default(), Effect::Nothing)?;
    }
    if let Some((event, number)) = call.event(event)?.awaited_elsewhere() {
        call.enqueue(key, &[], Timing::default(), Effect::WaitElsewhere { event, number })?;
    }
    Ok(())
}

pub(crate) fn launch_host(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    function: CUhostFn,
    data: Ptr<c_void>,
) -> Answer {
    let callable = function.ok_or(INVALID_VALUE)?;
    let key = call.named_stream(stream)?;
    let data = data.expose();
    if call.capture_node(key, |_| Ok(NodeKind::Host(HostCall { function, user_data: data })))? {
        return Ok(());
    }
    let timing = call.draw_timing(0, 0);
    call.enqueue(key, &[], timing, Effect::Host(HostWork::Function { function: callable, data }))?;
    Ok(())
}

pub(crate) fn add_callback(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    callback: CUstreamCallback,
    data: Ptr<c_void>,
    flags: u32,
) -> Answer {
    let function = callback.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
    let key = call.named_stream(stream)?;
    call.refuse_implicit(key)?;
    refuse_captured(call, key)?;
    let timing = call.draw_timing(0, 0);
    let work = HostWork::Callback { function, stream: stream.address(), data: data.expose() };
    call.enqueue(key, &[], timing, Effect::Host(work))?;
    Ok(())
}

pub(crate) fn write_value32(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    address: u64,
    value: u32,
    flags: u32,
) -> Answer {
    write_value(call, stream, ValueOp { address, value: u64::from(value), width: 4, condition: None }, flags)
}

pub(crate) fn write_value64(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    address: u64,
    value: u64,
    flags: u32,
) -> Answer {
    write_value(call, stream, ValueOp { address, value, width: 8, condition: None }, flags)
}

fn write_value(call: &mut Call<'_>, stream: Ptr<CUstream_st>, op: ValueOp, flags: u32) -> Answer {
    let key = call.named_stream(stream)?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    queue_value(call, key, op)
}

/// Queues or captures an operation on a value in memory, which must be aligned and not be pageable.
fn queue_value(call: &mut Call<'_>, key: u64, op: ValueOp) -> Answer {
    let aligned = op.address != 0 && op.address.is_multiple_of(op.width);
    if !aligned || plan::classify(&call.memory, op.address, op.width, call.sight_of(key))? == Place::Pageable {
        return Err(INVALID_VALUE);
    }
    if call.capture_node(key, |_| Ok(NodeKind::Value(op)))? {
        return Ok(());
    }
    let timing = call.draw_timing(0, 0);
    call.enqueue(key, &[], timing, value_effect(op))?;
    Ok(())
}

pub(crate) fn wait_value32(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    address: u64,
    value: u32,
    flags: u32,
) -> Answer {
    wait_value(call, stream, (address, u64::from(value), 4), flags)
}

pub(crate) fn wait_value64(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    address: u64,
    value: u64,
    flags: u32,
) -> Answer {
    wait_value(call, stream, (address, value, 8), flags)
}

fn wait_value(
    call: &mut Call<'_>,
    stream: Ptr<CUstream_st>,
    (address, value, width): (u64, u64, u64),
    flags: u32,
) -> Answer {
    /// The four ways to compare.
    const CONDITIONS: u32 = 3;
    /// Makes writes of other devices visible; no difference here.
    const FLUSH: u32 = 1 << 30;
    let key = call.named_stream(stream)?;
    if flags & !(CONDITIONS | FLUSH) != 0 {
        return Err(INVALID_VALUE);
    }
    queue_value(call, key, ValueOp { address, value, width, condition: Some(flags & CONDITIONS) })
}
