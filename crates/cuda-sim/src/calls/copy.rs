//! Copies of every kind.
//!
//! All of them become 3-D copy parameters and go one of two ways: the functions without a stream, which go to the
//! legacy default stream and wait where the driver does, and those with one.

use std::ffi::c_void;

use cuda_sys::driver::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUctx_st, CUmemorytype, CUstream_st};

use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_VALUE, STREAM_CAPTURE_UNSUPPORTED};
use crate::model::Effect;
use crate::model::graph::{Copy3d, NodeKind};
use crate::model::memory::Source;
use crate::model::plan::{self, Place, Plan, Sight};

const HOST: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_HOST;
const DEVICE: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_DEVICE;
const UNIFIED: CUmemorytype = CUmemorytype::CU_MEMORYTYPE_UNIFIED;

/// A copy on the legacy default stream. Copies between device memory are not waited for.
///
/// From pageable memory the driver only promises to have read the source when it returns; here the copy is done then.
fn copy_now(call: &mut Call<'_>, params: &CUDA_MEMCPY3D) -> Answer {
    if plan::is_empty(params) {
        return Ok(());
    }
    let plan = plan::copy(&call.memory, params, Sight::Now)?;
    let legacy = call.named_stream(Ptr::<CUstream_st>::null())?;
    call.refuse_implicit(legacy)?;
    let waits = plan.from != Place::Device || plan.to != Place::Device;
    queue(call, legacy, plan)?;
    if waits { call.finish_stream(legacy) } else { Ok(()) }
}

/// A copy on a stream, or into the graph that the stream captures.
fn copy_on(call: &mut Call<'_>, params: &CUDA_MEMCPY3D, stream: Ptr<CUstream_st>) -> Answer {
    let key = call.named_stream(stream)?;
    if plan::is_empty(params) {
        return Ok(());
    }
    let plan = plan::copy(&call.memory, params, call.sight_of(key))?;
    if call.capture_node(key, |state| Ok(NodeKind::Memcpy(state.owned_copy(Copy3d::from_raw(params)?))))? {
        return Ok(());
    }
    let waits = plan.to == Place::Pageable;
    queue(call, key, plan)?;
    if waits { call.finish_stream(key) } else { Ok(()) }
}

/// Queues a copy; what it reads from pageable memory is read now.
fn queue(call: &mut Call<'_>, stream: u64, plan: Plan) -> Answer {
    let timing = call.copy_timing(&plan.transfer, plan.picoseconds());
    let mut transfer = plan.transfer;
    if plan.from == Place::Pageable
        && plan.to != Place::Pageable
        && let Source::Memory(side) = &transfer.from
    {
        let staged = call.memory.stage(side, transfer.width, transfer.height, transfer.depth);
        transfer.from = Source::Staged(staged.map_err(|_| INVALID_VALUE)?);
    }
    call.enqueue(stream, &[], timing, Effect::Copy(transfer))?;
    Ok(())
}

pub(crate) fn any(call: &mut Call<'_>, to: u64, from: u64, bytes: usize) -> Answer {
    copy_now(call, &plan::linear(to, UNIFIED, from, UNIFIED, bytes))
}

pub(crate) fn any_async(call: &mut Call<'_>, to: u64, from: u64, bytes: usize, stream: Ptr<CUstream_st>) -> Answer {
    copy_on(call, &plan::linear(to, UNIFIED, from, UNIFIED, bytes), stream)
}

pub(crate) fn host_to_device(call: &mut Call<'_>, to: u64, from: Ptr<c_void>, bytes: usize) -> Answer {
    copy_now(call, &plan::linear(to, DEVICE, from.expose(), HOST, bytes))
}

pub(crate) fn host_to_device_async(
    call: &mut Call<'_>,
    to: u64,
    from: Ptr<c_void>,
    bytes: usize,
    stream: Ptr<CUstream_st>,
) -> Answer {
    copy_on(call, &plan::linear(to, DEVICE, from.expose(), HOST, bytes), stream)
}

pub(crate) fn device_to_host(call: &mut Call<'_>, to: Ptr<c_void>, from: u64, bytes: usize) -> Answer {
    copy_now(call, &plan::linear(to.expose(), HOST, from, DEVICE, bytes))
}

pub(crate) fn device_to_host_async(
    call: &mut Call<'_>,
    to: Ptr<c_void>,
    from: u64,
    bytes: usize,
    stream: Ptr<CUstream_st>,
) -> Answer {
    copy_on(call, &plan::linear(to.expose(), HOST, from, DEVICE, bytes), stream)
}

pub(crate) fn device_to_device(call: &mut Call<'_>, to: u64, from: u64, bytes: usize) -> Answer {
    copy_now(call, &plan::linear(to, DEVICE, from, DEVICE, bytes))
}

pub(crate) fn device_to_device_async(
    call: &mut Call<'_>,
    to: u64,
    from: u64,
    bytes: usize,
    stream: Ptr<CUstream_st>,
) -> Answer {
    copy_on(call, &plan::linear(to, DEVICE, from, DEVICE, bytes), stream)
}

/// The contexts say what the addresses say as well, since no two devices share one.
pub(crate) fn peer(
    call: &mut Call<'_>,
    to: u64,
    _to_context: Ptr<CUctx_st>,
    from: u64,
    _from_context: Ptr<CUctx_st>,
    bytes: usize,
) -> Answer {
    copy_now(call, &plan::linear(to, UNIFIED, from, UNIFIED, bytes))
}

pub(crate) fn peer_async(
    call: &mut Call<'_>,
    to: u64,
    _to_context: Ptr<CUctx_st>,
    from: u64,
    _from_context: Ptr<CUctx_st>,
    bytes: usize,
    stream: Ptr<CUstream_st>,
) -> Answer {
    refuse_capturing(call, stream)?;
    copy_on(call, &plan::linear(to, UNIFIED, from, UNIFIED, bytes), stream)
}

/// Copies between contexts cannot be captured, nor can work on pages of managed memory.
pub(super) fn refuse_capturing(call: &mut Call<'_>, stream: Ptr<CUstream_st>) -> Answer {
    let key = call.named_stream(stream)?;
    call.refuse_implicit(key)?;
    let Some(capturing) = call.stream(key)?.capturing.clone() else { return Ok(()) };
    call.invalidate_capture(capturing.capture);
    Err(STREAM_CAPTURE_UNSUPPORTED)
}

pub(crate) fn box_2d(call: &mut Call<'_>, params: Ptr<CUDA_MEMCPY2D>) -> Answer {
    let params = plan::of_2d(&params.read()?);
    copy_now(call, &params)
}

pub(crate) fn box_2d_async(call: &mut Call<'_>, params: Ptr<CUDA_MEMCPY2D>, stream: Ptr<CUstream_st>) -> Answer {
    let params = plan::of_2d(&params.read()?);
    copy_on(call, &params, stream)
}

pub(crate) fn box_3d(call: &mut Call<'_>, params: Ptr<CUDA_MEMCPY3D>) -> Answer {
    let params = params.read()?;
    copy_now(call, &params)
}

/// The fields of a copy between contexts that say where and how much; the contexts follow from the addresses.
fn of_peer(params: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: params.srcXInBytes,
        srcY: params.srcY,
        srcZ: params.srcZ,
        srcMemoryType: params.srcMemoryType,
        srcHost: params.srcHost,
        srcDevice: params.srcDevice,
        srcPitch: params.srcPitch,
        srcHeight: params.srcHeight,
        dstXInBytes: params.dstXInBytes,
        dstY: params.dstY,
        dstZ: params.dstZ,
        dstMemoryType: params.dstMemoryType,
        dstHost: params.dstHost,
        dstDevice: params.dstDevice,
        dstPitch: params.dstPitch,
        dstHeight: params.dstHeight,
        WidthInBytes: params.WidthInBytes,
        Height: params.Height,
        Depth: params.Depth,
        ..plan::linear(0, DEVICE, 0, DEVICE, 0)
    }
}

pub(crate) fn box_peer(call: &mut Call<'_>, params: Ptr<CUDA_MEMCPY3D_PEER>) -> Answer {
    let params = of_peer(&params.read()?);
    copy_now(call, &params)
}

pub(crate) fn box_peer_async(call: &mut Call<'_>, params: Ptr<CUDA_MEMCPY3D_PEER>, stream: Ptr<CUstream_st>) -> Answer {
    let params = of_peer(&params.read()?);
    refuse_capturing(call, stream)?;
    copy_on(call, &params, stream)
}

pub(crate) fn box_3d_async(call: &mut Call<'_>, params: Ptr<CUDA_MEMCPY3D>, stream: Ptr<CUstream_st>) -> Answer {
    let params = params.read()?;
    copy_on(call, &params, stream)
}
