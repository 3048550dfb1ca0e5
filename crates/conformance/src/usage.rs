//! Every function that uses a stream, in three situations in which it must refuse.
//!
//! The table below says how to call each function rightly. The situations: the legacy stream while a blocking stream
//! captures, a stream whose capture was invalidated, and a stream handle that names nothing. The last is for
//! simulated drivers alone: real ones read the memory that a handle points to.

use super::capture::RELAXED;
use super::case::{Body, Case};
use super::prelude::*;

/// What the calls work on.
pub(super) struct Objects {
    from: CUdeviceptr,
    to: CUdeviceptr,
    pinned: Pinned,
    event: CUevent,
    exec: CUgraphExec,
    pool: CUmemoryPool,
    pooled: CUdeviceptr,
    graph: CUgraph,
    other: CUstream,
    function: CUfunction,
    managed: CUdeviceptr,
}

/// A function, a right call of it on a stream, and the situations it is tried in.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// The function's symbol.
    pub symbol: &'static str,
    call: fn(&Cuda<'_>, &Objects, CUstream) -> CaseResult<CUresult>,
    situations: &'static [Situation],
}

/// Why a call must be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Situation {
    /// It would make the legacy stream wait for a capture.
    Implicit,
    /// The stream's capture was invalidated.
    Invalidated,
    /// There is no such stream.
    NoStream,
}

use Situation::{Implicit, Invalidated, NoStream};

/// Ordinary work on a stream.
const WORK: &[Situation] = &[Implicit, Invalidated, NoStream];
/// Functions that always use the legacy stream.
const SYNCHRONOUS: &[Situation] = &[Implicit];

impl Usage {
    /// Makes the situation and the call.
    pub(super) fn run(&self, cu: &Cuda<'_>, situation: Situation) -> CaseResult {
        let objects = Objects::new(cu)?;
        match situation {
            Implicit => {
                let capturing = cu.stream_with(0)?;
                cu.begin(capturing, RELAXED)?;
                let status = (self.call)(cu, &objects, LEGACY);
                let mut graph = ptr::null_mut();
                status!(cu.cuStreamEndCapture(capturing, &mut graph));
                if !graph.is_null() {
                    cu.later(Cleanup::Graph(graph));
                }
                same!(cu, status?, CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
            Invalidated => {
                let stream = cu.stream()?;
                cu.begin(stream, RELAXED)?;
                want!(STREAM_CAPTURE_UNSUPPORTED, cu.cuStreamQuery(stream));
                let status = (self.call)(cu, &objects, stream);
                let mut graph = ptr::null_mut();
                want!(STREAM_CAPTURE_INVALIDATED, cu.cuStreamEndCapture(stream, &mut graph));
                same!(cu, status?, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            }
            NoStream => {
                let nothing = ptr::without_provenance_mut(0xDEAD_BEE8);
                same!(cu, (self.call)(cu, &objects, nothing)?, CUresult::CUDA_ERROR_INVALID_HANDLE);
            }
        }
        Ok(())
    }
}

impl Objects {
    fn new(cu: &Cuda<'_>) -> CaseResult<Self> {
        let (from, to) = (cu.filled(4096, 0)?, cu.filled(4096, 0)?);
        let (pinned, event, other) = (cu.pinned(4096)?, cu.event()?, cu.stream()?);
        let graph = cu.graph()?;
        cu.empty_node(graph, &[])?;
        let exec = cu.instantiate(graph)?;
        let mut pool = ptr::null_mut();
        ok!(cu.cuDeviceGetDefaultMemPool(&mut pool, 0));
        let mut pooled = 0;
        ok!(cu.cuMemAllocAsync(&mut pooled, 4096, other));
        ok!(cu.cuStreamSynchronize(other));
        cu.later(Cleanup::Memory(pooled));
        let function = cu.function(&super::ptx::idle())?;
        let mut managed = 0;
        ok!(cu.cuMemAllocManaged(&mut managed, 4096, 1));
        cu.later(Cleanup::Memory(managed));
        Ok(Self { from, to, pinned, event, exec, pool, pooled, graph, other, function, managed })
    }

    fn plane(&self) -> CUDA_MEMCPY2D {
        CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: self.from,
            srcPitch: 64,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: self.to,
            dstPitch: 64,
            WidthInBytes: 32,
            Height: 4,
            ..CUDA_MEMCPY2D::zeroed()
        }
    }

    fn peers(&self, cu: &Cuda<'_>) -> CaseResult<CUDA_MEMCPY3D_PEER> {
        let context = cu.current()?;
        Ok(CUDA_MEMCPY3D_PEER {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: self.from,
            srcContext: context,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: self.to,
            dstContext: context,
            WidthInBytes: 32,
            Height: 1,
            Depth: 1,
            ..CUDA_MEMCPY3D_PEER::zeroed()
        })
    }
}

/// Instantiation with an upload on a stream.
fn upload(stream: CUstream) -> CUDA_GRAPH_INSTANTIATE_PARAMS {
    CUDA_GRAPH_INSTANTIATE_PARAMS { flags: 2, hUploadStream: stream, ..CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed() }
}

/// The cases of all functions in the situations they are tried in.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    TABLE.iter().flat_map(|usage| {
        usage.situations.iter().map(move |&situation| {
            let (area, needs) = match situation {
                Implicit => ("implicit", Needs::CONTEXT),
                Invalidated => ("invalidated", Needs::CONTEXT),
                NoStream => ("no_stream", Needs { simulated: true, ..Needs::CONTEXT }),
            };
            Case { area, name: usage.symbol, needs, body: Body::Usage(usage, situation) }
        })
    })
}

unsafe extern "C" fn ignore(_stream: CUstream, _status: CUresult, _data: *mut c_void) {}

macro_rules! usage {
    ($($situations:ident $symbol:ident |$cu:ident, $o:ident, $s:ident| ($($argument:expr),* $(,)?);)*) => {
        &[$(Usage {
            symbol: stringify!($symbol),
            call: |$cu, $o, $s| {
                let _ = ($o, $s);
                Ok(status!($cu.$symbol($($argument),*)))
            },
            situations: $situations,
        }),*]
    };
}

/// Reads of a stream's state that a capture on another stream makes impossible.
const STATE: &[Situation] = &[Implicit, NoStream];
/// What changes a capture.
const CAPTURED: &[Situation] = &[Invalidated, NoStream];
/// Functions that only look at the handle.
const LOOK: &[Situation] = &[NoStream];

static TABLE: &[Usage] = usage! {
    WORK cuEventRecordWithFlags |cu, o, s| (o.event, s, 0);
    STATE cuEventRecord |cu, o, s| (o.event, s);
    STATE cuGraphInstantiateWithParams |cu, o, s| (&mut ptr::null_mut(), o.graph, &mut upload(s));
    STATE cuGraphLaunch |cu, o, s| (o.exec, s);
    STATE cuGraphUpload |cu, o, s| (o.exec, s);
    STATE cuLaunchHostFunc |cu, o, s| (s, Some(raise), data(counter()));
    WORK cuLaunchCooperativeKernel |cu, o, s| (o.function, 1, 1, 1, 1, 1, 1, 0, s, ptr::null_mut());
    WORK cuLaunchKernel |cu, o, s| (o.function, 1, 1, 1, 1, 1, 1, 0, s, ptr::null_mut(), ptr::null_mut());
    WORK cuLaunchKernelEx |cu, o, s| (&launch_config(s), o.function, ptr::null_mut(), ptr::null_mut());
    WORK cuMemAllocAsync |cu, o, s| (&mut 0, 4096, s);
    WORK cuMemAllocFromPoolAsync |cu, o, s| (&mut 0, 4096, o.pool, s);
    WORK cuMemFreeAsync |cu, o, s| (o.pooled, s);
    STATE cuMemPrefetchAsync |cu, o, s| (o.managed, 4096, 0, s);
    STATE cuMemPrefetchAsync_v2 |cu, o, s| (o.managed, 4096, CUmemLocation { type_: CUmemLocationType(1), id: 0 }, 0, s);
    STATE cuStreamAttachMemAsync |cu, o, s| (s, o.managed, 0, 1);
    SYNCHRONOUS cuMemcpy |cu, o, s| (o.to, o.from, 64);
    WORK cuMemcpy2DAsync_v2 |cu, o, s| (&o.plane(), s);
    SYNCHRONOUS cuMemcpy2DUnaligned_v2 |cu, o, s| (&o.plane());
    SYNCHRONOUS cuMemcpy2D_v2 |cu, o, s| (&o.plane());
    WORK cuMemcpy3DAsync_v2 |cu, o, s| (&line_copy(o.to, o.from, 64), s);
    SYNCHRONOUS cuMemcpy3DPeer |cu, o, s| (&o.peers(cu)?);
    STATE cuMemcpy3DPeerAsync |cu, o, s| (&o.peers(cu)?, s);
    SYNCHRONOUS cuMemcpy3D_v2 |cu, o, s| (&line_copy(o.to, o.from, 64));
    WORK cuMemcpyAsync |cu, o, s| (o.to, o.from, 64, s);
    WORK cuMemcpyDtoDAsync_v2 |cu, o, s| (o.to, o.from, 64, s);
    SYNCHRONOUS cuMemcpyDtoD_v2 |cu, o, s| (o.to, o.from, 64);
    WORK cuMemcpyDtoHAsync_v2 |cu, o, s| (o.pinned.host(), o.from, 64, s);
    SYNCHRONOUS cuMemcpyDtoH_v2 |cu, o, s| (o.pinned.host(), o.from, 64);
    WORK cuMemcpyHtoDAsync_v2 |cu, o, s| (o.to, o.pinned.host(), 64, s);
    SYNCHRONOUS cuMemcpyHtoD_v2 |cu, o, s| (o.to, o.pinned.host(), 64);
    SYNCHRONOUS cuMemcpyPeer |cu, o, s| (o.to, cu.current()?, o.from, cu.current()?, 64);
    STATE cuMemcpyPeerAsync |cu, o, s| (o.to, cu.current()?, o.from, cu.current()?, 64, s);
    WORK cuMemsetD16Async |cu, o, s| (o.to, 1, 32, s);
    SYNCHRONOUS cuMemsetD16_v2 |cu, o, s| (o.to, 1, 32);
    WORK cuMemsetD2D16Async |cu, o, s| (o.to, 64, 1, 8, 4, s);
    SYNCHRONOUS cuMemsetD2D16_v2 |cu, o, s| (o.to, 64, 1, 8, 4);
    WORK cuMemsetD2D32Async |cu, o, s| (o.to, 64, 1, 8, 4, s);
    SYNCHRONOUS cuMemsetD2D32_v2 |cu, o, s| (o.to, 64, 1, 8, 4);
    WORK cuMemsetD2D8Async |cu, o, s| (o.to, 64, 1, 8, 4, s);
    SYNCHRONOUS cuMemsetD2D8_v2 |cu, o, s| (o.to, 64, 1, 8, 4);
    WORK cuMemsetD32Async |cu, o, s| (o.to, 1, 16, s);
    SYNCHRONOUS cuMemsetD32_v2 |cu, o, s| (o.to, 1, 16);
    WORK cuMemsetD8Async |cu, o, s| (o.to, 1, 64, s);
    SYNCHRONOUS cuMemsetD8_v2 |cu, o, s| (o.to, 1, 64);
    STATE cuStreamAddCallback |cu, o, s| (s, Some(ignore), ptr::null_mut(), 0);
    STATE cuStreamGetCaptureInfo_v2 |cu, o, s| (s, &mut CUstreamCaptureStatus(0), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    STATE cuStreamGetCaptureInfo_v3 |cu, o, s| (s, &mut CUstreamCaptureStatus(0), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    STATE cuStreamQuery |cu, o, s| (s);
    STATE cuStreamSynchronize |cu, o, s| (s);
    WORK cuStreamWaitEvent |cu, o, s| (s, o.event, 0);
    WORK cuStreamWaitValue32_v2 |cu, o, s| (s, o.to, 0, 0);
    WORK cuStreamWaitValue64_v2 |cu, o, s| (s, o.to, 0, 0);
    WORK cuStreamWriteValue32_v2 |cu, o, s| (s, o.to, 0, 0);
    WORK cuStreamWriteValue64_v2 |cu, o, s| (s, o.to, 0, 0);
    LOOK cuStreamBeginCaptureToGraph |cu, o, s| (s, o.graph, ptr::null(), ptr::null(), 0, RELAXED);
    LOOK cuStreamBeginCapture_v2 |cu, o, s| (s, RELAXED);
    LOOK cuStreamCopyAttributes |cu, o, s| (o.other, s);
    LOOK cuStreamEndCapture |cu, o, s| (s, &mut ptr::null_mut());
    LOOK cuStreamGetAttribute |cu, o, s| (s, CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY, &mut CUlaunchAttributeValue::zeroed());
    LOOK cuStreamSetAttribute |cu, o, s| (s, CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY, &CUlaunchAttributeValue::zeroed());
    LOOK cuStreamGetCtx |cu, o, s| (s, &mut ptr::null_mut());
    LOOK cuStreamGetCtx_v2 |cu, o, s| (s, &mut ptr::null_mut(), &mut ptr::null_mut());
    LOOK cuStreamGetDevice |cu, o, s| (s, &mut 0);
    LOOK cuStreamGetFlags |cu, o, s| (s, &mut 0);
    LOOK cuStreamGetGreenCtx |cu, o, s| (s, &mut ptr::null_mut());
    LOOK cuStreamGetId |cu, o, s| (s, &mut 0);
    LOOK cuStreamGetPriority |cu, o, s| (s, &mut 0);
    LOOK cuStreamIsCapturing |cu, o, s| (s, &mut CUstreamCaptureStatus(0));
    CAPTURED cuStreamUpdateCaptureDependencies |cu, o, s| (s, ptr::null_mut(), 0, 0);
    CAPTURED cuStreamUpdateCaptureDependencies_v2 |cu, o, s| (s, ptr::null_mut(), ptr::null(), 0, 0);
};
