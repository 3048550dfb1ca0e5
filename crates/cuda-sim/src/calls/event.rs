//! Events.

use cuda_sys::driver::types::{CUevent, CUevent_st, CUstream_st};

use super::stream::EXTERNAL;
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, CAPTURED_EVENT, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, NOT_READY};
use crate::model::event::{DISABLE_TIMING, Event};
use crate::model::graph::NodeKind;

/// Blocking sync, no timing, interprocess.
const FLAGS: u32 = 0x7;

/// Can be used by other processes; such an event cannot tell the time.
pub(super) const INTERPROCESS: u32 = 4;

pub(crate) fn create(call: &mut Call<'_>, event: Ptr<CUevent>, flags: u32) -> Answer {
    event.required()?;
    let tells_time = flags & DISABLE_TIMING == 0;
    if flags & !FLAGS != 0 || (flags & INTERPROCESS != 0 && tells_time) {
        return Err(INVALID_VALUE);
    }
    let context = call.need_context()?;
    let key = call.new_handle();
    call.events.insert(key, Event::new(context, flags));
    event.write(handle(key))
}

pub(crate) fn destroy(call: &mut Call<'_>, event: Ptr<CUevent_st>) -> Answer {
    let key = call.named_event(event)?;
    call.events.remove(&key);
    Ok(())
}

pub(crate) fn record(call: &mut Call<'_>, event: Ptr<CUevent_st>, stream: Ptr<CUstream_st>) -> Answer {
    record_with_flags(call, event, stream, 0)
}

pub(crate) fn record_with_flags(
    call: &mut Call<'_>,
    event: Ptr<CUevent_st>,
    stream: Ptr<CUstream_st>,
    flags: u32,
) -> Answer {
    let key = call.named_stream(stream)?;
    let event = call.named_event(event)?;
    if flags & !EXTERNAL != 0 {
        return Err(INVALID_VALUE);
    }
    if call.event(event)?.context != call.home_of(call.stream(key)?.context) {
        return Err(INVALID_HANDLE);
    }
    if flags == EXTERNAL {
        let captured = call.capture_node(key, |_| Ok(NodeKind::EventRecord(event)))?;
        return if captured { Ok(()) } else { Err(ILLEGAL_STATE) };
    }
    if call.capture_event(event, key)? { Ok(()) } else { call.record_event(event, key) }
}

pub(crate) fn query(call: &mut Call<'_>, event: Ptr<CUevent_st>) -> Answer {
    let key = call.named_event(event)?;
    refuse(call, key)?;
    call.poll();
    let context = call.event(key)?.context;
    call.usable_context(context)?;
    if !is_done(call, key)? {
        return Err(NOT_READY);
    }
    let reached = call.event(key)?.recording.map(|recording| recording.op);
    call.note_seen(reached);
    Ok(())
}

fn refuse(call: &mut Call<'_>, key: u64) -> Answer {
    call.refuse_captured_event(key)?;
    call.refuse_if_unsafe()
}

/// An event that was never recorded counts as done.
fn is_done(call: &Call<'_>, key: u64) -> Answer<bool> {
    let event = call.event(key)?;
    let here = event.recording.is_none() || event.reached_ns(call.clock_ns).is_some();
    Ok(here && event.awaited_elsewhere().is_none())
}

pub(crate) fn synchronize(call: &mut Call<'_>, event: Ptr<CUevent_st>) -> Answer {
    let key = call.named_event(event)?;
    refuse(call, key)?;
    let (context, recording) = (call.event(key)?.context, call.event(key)?.recording);
    if let Some(recording) = recording {
        call.wait_for(recording.op);
        call.trim_pools(&|freeing| freeing.work < recording.op.0);
        call.usable_context(context)?;
        let visible_ns = call.events.get(&key).and_then(Event::visible_ns).unwrap_or(0);
        call.clock_ns = call.clock_ns.max(visible_ns);
        call.note_seen([recording.op]);
    }
    if let Some((shared, number)) = call.event(key)?.awaited_elsewhere() {
        call.wait_until(|_| shared.has_reached(number));
    }
    Ok(())
}

pub(crate) fn elapsed_time(
    call: &mut Call<'_>,
    milliseconds: Ptr<f32>,
    start: Ptr<CUevent_st>,
    end: Ptr<CUevent_st>,
) -> Answer {
    if milliseconds.is_null() {
        return Err(INVALID_HANDLE);
    }
    let (start, end) = (call.named_event(start)?, call.named_event(end)?);
    if call.event(start)?.context != call.event(end)?.context {
        return Err(INVALID_HANDLE);
    }
    let (start_ns, end_ns) = (timed(call, start)?, timed(call, end)?);
    let (start_ns, end_ns) = (start_ns.ok_or(NOT_READY)?, end_ns.ok_or(NOT_READY)?);
    milliseconds.write(difference_ms(start_ns, end_ns))
}

/// When an event that tells the time was reached; none while it has not been.
fn timed(call: &Call<'_>, key: u64) -> Answer<Option<u64>> {
    let event = call.event(key)?;
    if event.captured.is_some() {
        return Err(CAPTURED_EVENT);
    }
    if event.flags & DISABLE_TIMING != 0 || event.recording.is_none() {
        return Err(INVALID_HANDLE);
    }
    Ok(event.reached_ns(call.clock_ns))
}

/// Hardware counts in units of half a microsecond.
fn difference_ms(start_ns: u64, end_ns: u64) -> f32 {
    const TICK_NS: u64 = 500;
    let (start, end) = (start_ns / TICK_NS, end_ns / TICK_NS);
    let ticks = |number: u64| f32::from(u16::try_from(number & 0xFFFF).unwrap_or(0)) + 65_536.0 * high(number);
    if end >= start { ticks(end - start) / 2000.0 } else { -ticks(start - end) / 2000.0 }
}

/// Bits 16 to 31 as a number; times are far below 2^32 ticks (half an hour).
fn high(number: u64) -> f32 {
    f32::from(u16::try_from((number >> 16).min(u64::from(u16::MAX))).unwrap_or(u16::MAX))
}
