//! Sets of device memory.
//!
//! A set without a stream goes to the legacy default stream, and does not wait, unless it writes host memory.

use cuda_sys::driver::types::{CUDA_MEMSET_NODE_PARAMS, CUstream_st};

use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_VALUE};
use crate::model::Effect;
use crate::model::graph::{Fill, NodeKind};
use crate::model::plan::{self, Sight};

/// Picoseconds that a byte takes.
const SET_PICOSECONDS: u64 = 1;

fn linear(dst: u64, value: u32, element_size: u32, count: usize) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst, pitch: 0, value, elementSize: element_size, width: count, height: 1 }
}

fn set_now(call: &mut Call<'_>, params: &CUDA_MEMSET_NODE_PARAMS) -> Answer {
    if params.width == 0 || params.height == 0 {
        return Ok(());
    }
    let fill = plan::set(&call.memory, params, Sight::Now)?;
    let legacy = call.named_stream(Ptr::<CUstream_st>::null())?;
    check_device(call, params.dst, legacy)?;
    call.refuse_implicit(legacy)?;
    let waits = !call.memory.is_device_address(params.dst);
    let timing = call.draw_timing(fill.width.saturating_mul(fill.height), SET_PICOSECONDS);
    call.enqueue(legacy, &[], timing, Effect::Fill(fill))?;
    if waits { call.finish_stream(legacy) } else { Ok(()) }
}

/// A device sets its own memory, and that of others only as their peer.
fn check_device(call: &Call<'_>, address: u64, stream: u64) -> Answer {
    let context = call.usable_context(call.stream(stream)?.context)?;
    let Some((_, region)) = call.memory.region_at(address) else { return Ok(()) };
    let reachable = |peer: &u64| call.contexts.get(peer).is_some_and(|peer| peer.device == region.device);
    let may = region.device == context.device || region.is_mapping() || context.peers.iter().any(reachable);
    if may { Ok(()) } else { Err(INVALID_VALUE) }
}

fn set_on(call: &mut Call<'_>, params: &CUDA_MEMSET_NODE_PARAMS, stream: Ptr<CUstream_st>) -> Answer {
    let key = call.named_stream(stream)?;
    if params.width == 0 || params.height == 0 {
        return Ok(());
    }
    let fill = plan::set(&call.memory, params, call.sight_of(key))?;
    check_device(call, params.dst, key)?;
    if call.capture_node(key, |state| Ok(NodeKind::Memset(state.owned_fill(Fill::from_raw(params)?))))? {
        return Ok(());
    }
    let timing = call.draw_timing(fill.width.saturating_mul(fill.height), SET_PICOSECONDS);
    call.enqueue(key, &[], timing, Effect::Fill(fill))?;
    Ok(())
}

pub(crate) fn d8(call: &mut Call<'_>, to: u64, value: u8, count: usize) -> Answer {
    set_now(call, &linear(to, u32::from(value), 1, count))
}

pub(crate) fn d8_async(call: &mut Call<'_>, to: u64, value: u8, count: usize, stream: Ptr<CUstream_st>) -> Answer {
    set_on(call, &linear(to, u32::from(value), 1, count), stream)
}

pub(crate) fn d2d8(call: &mut Call<'_>, to: u64, pitch: usize, value: u8, width: usize, height: usize) -> Answer {
    set_now(call, &CUDA_MEMSET_NODE_PARAMS { pitch, height, ..linear(to, u32::from(value), 1, width) })
}

pub(crate) fn d2d8_async(
    call: &mut Call<'_>,
    to: u64,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: Ptr<CUstream_st>,
) -> Answer {
    set_on(call, &CUDA_MEMSET_NODE_PARAMS { pitch, height, ..linear(to, u32::from(value), 1, width) }, stream)
}

pub(crate) fn d16(call: &mut Call<'_>, to: u64, value: u16, count: usize) -> Answer {
    set_now(call, &linear(to, u32::from(value), 2, count))
}

pub(crate) fn d16_async(call: &mut Call<'_>, to: u64, value: u16, count: usize, stream: Ptr<CUstream_st>) -> Answer {
    set_on(call, &linear(to, u32::from(value), 2, count), stream)
}

pub(crate) fn d2d16(call: &mut Call<'_>, to: u64, pitch: usize, value: u16, width: usize, height: usize) -> Answer {
    set_now(call, &CUDA_MEMSET_NODE_PARAMS { pitch, height, ..linear(to, u32::from(value), 2, width) })
}

pub(crate) fn d2d16_async(
    call: &mut Call<'_>,
    to: u64,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: Ptr<CUstream_st>,
) -> Answer {
    set_on(call, &CUDA_MEMSET_NODE_PARAMS { pitch, height, ..linear(to, u32::from(value), 2, width) }, stream)
}

pub(crate) fn d32(call: &mut Call<'_>, to: u64, value: u32, count: usize) -> Answer {
    set_now(call, &linear(to, value, 4, count))
}

pub(crate) fn d32_async(call: &mut Call<'_>, to: u64, value: u32, count: usize, stream: Ptr<CUstream_st>) -> Answer {
    set_on(call, &linear(to, value, 4, count), stream)
}

pub(crate) fn d2d32(call: &mut Call<'_>, to: u64, pitch: usize, value: u32, width: usize, height: usize) -> Answer {
    set_now(call, &CUDA_MEMSET_NODE_PARAMS { pitch, height, ..linear(to, value, 4, width) })
}

pub(crate) fn d2d32_async(
    call: &mut Call<'_>,
    to: u64,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
    stream: Ptr<CUstream_st>,
) -> Answer {
    set_on(call, &CUDA_MEMSET_NODE_PARAMS { pitch, height, ..linear(to, value, 4, width) }, stream)
}
