//! Right calls of functions that look at their arguments before they look for a context or for initialisation.
//!
//! With these, and with calls that have only zeros for the others, every function can be asked what it answers when the
//! driver was not initialised, or when its context is missing, ended or lost.

use cuda_sys::{CUresult, Driver};

use super::blank::call_with_zeros;
use super::prelude::*;

/// What calls name. Null handles name the current context and its default stream.
#[derive(Debug, Clone, Copy)]
pub struct Handles {
    /// A stream.
    pub stream: CUstream,
    /// An event.
    pub event: CUevent,
    /// A graph.
    pub graph: CUgraph,
    /// A green context.
    pub green: CUgreenCtx,
    /// Device memory.
    pub memory: CUdeviceptr,
    /// Host memory of the driver's.
    pub pinned: *mut c_void,
    /// Host memory of the program's that is registered.
    pub registered: *mut c_void,
}

impl Default for Handles {
    fn default() -> Self {
        Self {
            stream: ptr::null_mut(),
            event: ptr::null_mut(),
            graph: ptr::null_mut(),
            green: ptr::null_mut(),
            memory: 0,
            pinned: ptr::null_mut(),
            registered: ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn ignore(_stream: CUstream, _status: CUresult, _data: *mut c_void) {}

/// Calls a function rightly, with zeros where it does not matter; `None` when the driver does not have it, or when no
/// call of it is known.
#[must_use]
pub fn call_rightly(driver: &Driver, symbol: &str, handles: &Handles) -> Option<CUresult> {
    match TABLE.iter().find(|(known, _)| *known == symbol) {
        Some((_, call)) => call(driver, handles),
        None => call_with_zeros(driver, symbol),
    }
}

type Entry = (&'static str, fn(&Driver, &Handles) -> Option<CUresult>);

macro_rules! right {
    ($($symbol:ident |$h:ident| ($($argument:expr),* $(,)?);)*) => {
        &[$((stringify!($symbol), |driver, $h| {
            let _ = $h;
            driver.functions().$symbol.map(|function| {
                // SAFETY: pointers lead to variables that outlive the call; handles are the caller's, and bad ones are
                // only given to simulated drivers, which look them up.
                unsafe { function($($argument),*) }
            })
        })),*]
    };
}

const PRIORITY: CUlaunchAttributeID = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
const COUNT: CUdevice_attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;

static TABLE: &[Entry] = right! {
    cuCtxDestroy_v2 |h| (ptr::without_provenance_mut(0x1000));
    cuCtxFromGreenCtx |h| (&mut ptr::null_mut(), h.green);
    cuCtxGetApiVersion |h| (ptr::null_mut(), &mut 0);
    cuCtxGetDevResource |h| (ptr::null_mut(), &mut CUdevResource::zeroed(), CUdevResourceType(1));
    cuCtxGetDevice |h| (&mut 0);
    cuCtxGetDevice_v2 |h| (&mut 0, ptr::null_mut());
    cuCtxGetFlags |h| (&mut 0);
    cuCtxGetId |h| (ptr::null_mut(), &mut 0);
    cuDevResourceGenerateDesc |h| (&mut ptr::null_mut(), &mut CUdevResource::zeroed(), 1);
    cuDeviceGetAttribute |h| (&mut 0, COUNT, 0);
    cuDevicePrimaryCtxGetState |h| (0, &mut 0, &mut 0);
    cuEventDestroy_v2 |h| (h.event);
    cuEventElapsedTime |h| (&mut 0.0, h.event, h.event);
    cuEventElapsedTime_v2 |h| (&mut 0.0, h.event, h.event);
    cuEventQuery |h| (h.event);
    cuEventRecord |h| (h.event, h.stream);
    cuEventRecordWithFlags |h| (h.event, h.stream, 0);
    cuEventSynchronize |h| (h.event);
    cuFuncGetAttribute |h| (&mut 0, CUfunction_attribute(0), ptr::null_mut());
    cuFuncGetModule |h| (&mut ptr::null_mut(), ptr::null_mut());
    cuFuncGetName |h| (&mut ptr::null(), ptr::null_mut());
    cuFuncGetParamInfo |h| (ptr::null_mut(), 0, &mut 0, &mut 0);
    cuFuncIsLoaded |h| (&mut CUfunctionLoadingState(0), ptr::null_mut());
    cuFuncLoad |h| (ptr::null_mut());
    cuFuncSetAttribute |h| (ptr::null_mut(), CUfunction_attribute(0), 0);
    cuFuncSetCacheConfig |h| (ptr::null_mut(), CUfunc_cache(0));
    cuGraphAddKernelNode |h| (&mut ptr::null_mut(), h.graph, ptr::null(), 0, ptr::null());
    cuGraphAddKernelNode_v2 |h| (&mut ptr::null_mut(), h.graph, ptr::null(), 0, ptr::null());
    cuGraphAddNode |h| (&mut ptr::null_mut(), h.graph, ptr::null(), 0, ptr::null_mut());
    cuGraphAddNode_v2 |h| (&mut ptr::null_mut(), h.graph, ptr::null(), ptr::null(), 0, ptr::null_mut());
    cuGraphConditionalHandleCreate |h| (&mut 0, h.graph, ptr::null_mut(), 0, 0);
    cuGraphExecKernelNodeSetParams |h| (ptr::null_mut(), ptr::null_mut(), ptr::null());
    cuGraphExecKernelNodeSetParams_v2 |h| (ptr::null_mut(), ptr::null_mut(), ptr::null());
    cuGraphInstantiateWithParams |h| (&mut ptr::null_mut(), h.graph, &mut CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed());
    cuGreenCtxCreate |h| (&mut ptr::null_mut(), ptr::null_mut(), 0, 1);
    cuGreenCtxGetDevResource |h| (h.green, &mut CUdevResource::zeroed(), CUdevResourceType(1));
    cuGreenCtxGetId |h| (h.green, &mut 0);
    cuGreenCtxRecordEvent |h| (h.green, h.event);
    cuGreenCtxStreamCreate |h| (&mut ptr::null_mut(), h.green, NON_BLOCKING, 0);
    cuGreenCtxWaitEvent |h| (h.green, h.event);
    cuIpcGetEventHandle |h| (&mut CUipcEventHandle { reserved: [0; 64] }, h.event);
    cuIpcGetMemHandle |h| (&mut CUipcMemHandle { reserved: [0; 64] }, h.memory);
    cuIpcOpenEventHandle |h| (&mut ptr::null_mut(), CUipcEventHandle { reserved: [0; 64] });
    cuIpcOpenMemHandle_v2 |h| (&mut 0, CUipcMemHandle { reserved: [0; 64] }, 0);
    cuKernelGetAttribute |h| (&mut 0, CUfunction_attribute(0), ptr::null_mut(), 0);
    cuKernelGetFunction |h| (&mut ptr::null_mut(), ptr::null_mut());
    cuKernelGetLibrary |h| (&mut ptr::null_mut(), ptr::null_mut());
    cuKernelGetName |h| (&mut ptr::null(), ptr::null_mut());
    cuKernelGetParamInfo |h| (ptr::null_mut(), 0, &mut 0, &mut 0);
    cuKernelSetAttribute |h| (CUfunction_attribute(0), 0, ptr::null_mut(), 0);
    cuKernelSetCacheConfig |h| (ptr::null_mut(), CUfunc_cache(0), 0);
    cuLaunchCooperativeKernel |h| (ptr::null_mut(), 1, 1, 1, 1, 1, 1, 0, h.stream, ptr::null_mut());
    cuLaunchHostFunc |h| (h.stream, Some(raise), ptr::null_mut());
    cuLaunchKernelEx |h| (&launch_config(h.stream), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    cuGraphKernelNodeSetParams |h| (ptr::null_mut(), ptr::null());
    cuGraphKernelNodeSetParams_v2 |h| (ptr::null_mut(), ptr::null());
    cuLibraryEnumerateKernels |h| (&mut ptr::null_mut(), 1, ptr::null_mut());
    cuLibraryGetGlobal |h| (&mut 0, &mut 0, ptr::null_mut(), c"v".as_ptr());
    cuLibraryGetKernel |h| (&mut ptr::null_mut(), ptr::null_mut(), c"k".as_ptr());
    cuLibraryGetKernelCount |h| (&mut 0, ptr::null_mut());
    cuLibraryGetManaged |h| (&mut 0, &mut 0, ptr::null_mut(), c"v".as_ptr());
    cuLibraryGetModule |h| (&mut ptr::null_mut(), ptr::null_mut());
    cuLibraryGetUnifiedFunction |h| (&mut ptr::null_mut(), ptr::null_mut(), c"f".as_ptr());
    cuLibraryLoadData |h| (&mut ptr::null_mut(), c"".as_ptr().cast(), ptr::null_mut(), ptr::null_mut(), 0, ptr::null_mut(), ptr::null_mut(), 0);
    cuLibraryLoadFromFile |h| (&mut ptr::null_mut(), c"/dev/null".as_ptr(), ptr::null_mut(), ptr::null_mut(), 0, ptr::null_mut(), ptr::null_mut(), 0);
    cuLibraryUnload |h| (ptr::null_mut());
    cuLinkAddData_v2 |h| (ptr::null_mut(), CUjitInputType(1), ptr::null_mut(), 0, ptr::null(), 0, ptr::null_mut(), ptr::null_mut());
    cuLinkAddFile_v2 |h| (ptr::null_mut(), CUjitInputType(1), ptr::null(), 0, ptr::null_mut(), ptr::null_mut());
    cuLinkComplete |h| (ptr::null_mut(), &mut ptr::null_mut(), &mut 0);
    cuLinkCreate_v2 |h| (0, ptr::null_mut(), ptr::null_mut(), &mut ptr::null_mut());
    cuLinkDestroy |h| (ptr::null_mut());
    cuModuleEnumerateFunctions |h| (&mut ptr::null_mut(), 1, ptr::null_mut());
    cuModuleGetFunctionCount |h| (&mut 0, ptr::null_mut());
    cuModuleGetGlobal_v2 |h| (&mut 0, &mut 0, ptr::null_mut(), c"v".as_ptr());
    cuModuleGetFunction |h| (&mut ptr::null_mut(), ptr::null_mut(), c"k".as_ptr());
    cuModuleLoad |h| (&mut ptr::null_mut(), c"/dev/null".as_ptr());
    cuModuleLoadData |h| (&mut ptr::null_mut(), c"".as_ptr().cast());
    cuModuleLoadDataEx |h| (&mut ptr::null_mut(), c"".as_ptr().cast(), 0, ptr::null_mut(), ptr::null_mut());
    cuModuleLoadFatBinary |h| (&mut ptr::null_mut(), c"".as_ptr().cast());
    cuModuleUnload |h| (ptr::null_mut());
    cuMemAdvise_v2 |h| (h.memory, 16, CUmem_advise(1), CUmemLocation { type_: CUmemLocationType(1), id: 0 });
    cuMemAllocManaged |h| (&mut 0, 16, 1);
    cuMemPrefetchAsync |h| (h.memory, 16, 0, h.stream);
    cuMemPrefetchAsync_v2 |h| (h.memory, 16, CUmemLocation { type_: CUmemLocationType(1), id: 0 }, 0, h.stream);
    cuStreamAttachMemAsync |h| (h.stream, h.memory, 0, 1);
    cuOccupancyAvailableDynamicSMemPerBlock |h| (&mut 0, ptr::null_mut(), 1, 1);
    cuOccupancyMaxActiveBlocksPerMultiprocessor |h| (&mut 0, ptr::null_mut(), 1, 0);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags |h| (&mut 0, ptr::null_mut(), 1, 0, 0);
    cuOccupancyMaxActiveClusters |h| (&mut 0, ptr::null_mut(), &launch_config(ptr::null_mut()));
    cuOccupancyMaxPotentialClusterSize |h| (&mut 0, ptr::null_mut(), &launch_config(ptr::null_mut()));
    cuOccupancyMaxPotentialBlockSize |h| (&mut 0, &mut 0, ptr::null_mut(), None, 0, 0);
    cuOccupancyMaxPotentialBlockSizeWithFlags |h| (&mut 0, &mut 0, ptr::null_mut(), None, 0, 0, 0);
    cuMemFreeHost |h| (h.pinned);
    cuMemFree_v2 |h| (h.memory);
    cuMemGetAddressRange_v2 |h| (&mut 0, &mut 0, h.memory);
    cuMemHostGetFlags |h| (&mut 0, ptr::without_provenance_mut(0x1000));
    cuMemHostUnregister |h| (h.registered);
    cuMemcpy3DPeer |h| (&CUDA_MEMCPY3D_PEER::zeroed());
    cuMemcpy3DPeerAsync |h| (&CUDA_MEMCPY3D_PEER::zeroed(), h.stream);
    cuStreamAddCallback |h| (h.stream, Some(ignore), ptr::null_mut(), 0);
    cuStreamBeginCaptureToGraph |h| (h.stream, h.graph, ptr::null(), ptr::null(), 0, CUstreamCaptureMode(0));
    cuStreamBeginCapture_v2 |h| (h.stream, CUstreamCaptureMode(0));
    cuStreamCreate |h| (&mut ptr::null_mut(), 0);
    cuStreamCreateWithPriority |h| (&mut ptr::null_mut(), 0, 0);
    cuStreamDestroy_v2 |h| (h.stream);
    cuStreamEndCapture |h| (h.stream, &mut ptr::null_mut());
    cuStreamGetAttribute |h| (h.stream, PRIORITY, &mut CUlaunchAttributeValue::zeroed());
    cuStreamGetCaptureInfo_v2 |h| (h.stream, &mut CUstreamCaptureStatus(0), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    cuStreamGetCaptureInfo_v3 |h| (h.stream, &mut CUstreamCaptureStatus(0), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    cuStreamGetCtx |h| (h.stream, &mut ptr::null_mut());
    cuStreamGetCtx_v2 |h| (h.stream, &mut ptr::null_mut(), &mut ptr::null_mut());
    cuStreamGetDevice |h| (h.stream, &mut 0);
    cuStreamGetFlags |h| (h.stream, &mut 0);
    cuStreamGetGreenCtx |h| (h.stream, &mut ptr::null_mut());
    cuStreamGetId |h| (h.stream, &mut 0);
    cuStreamGetPriority |h| (h.stream, &mut 0);
    cuStreamIsCapturing |h| (h.stream, &mut CUstreamCaptureStatus(0));
    cuStreamQuery |h| (h.stream);
    cuStreamSynchronize |h| (h.stream);
    cuStreamUpdateCaptureDependencies |h| (h.stream, ptr::null_mut(), 0, 0);
    cuStreamUpdateCaptureDependencies_v2 |h| (h.stream, ptr::null_mut(), ptr::null(), 0, 0);
    cuStreamWaitEvent |h| (h.stream, h.event, 0);
    cuStreamWaitValue32_v2 |h| (h.stream, h.memory, 0, 0);
    cuStreamWaitValue64_v2 |h| (h.stream, h.memory, 0, 0);
    cuStreamWriteValue32_v2 |h| (h.stream, h.memory, 0, 0);
    cuStreamWriteValue64_v2 |h| (h.stream, h.memory, 0, 0);
};
