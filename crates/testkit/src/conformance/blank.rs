//! Every function with every argument zero, in three states of driver and thread.
//!
//! Null pointers and null handles are the mistakes that programs make most, and the order in which a driver checks
//! things shows in them: before `cuInit`, after it without a current context, and with one. Codes are hardware's.
//! A dash stands for a call that drivers do not survive, or that has an effect of its own.

use cuda_sys::{CUresult, Driver};

use super::case::{Body, Case, Needs};
use super::cuda::{CaseResult, Cuda, Stop};
use super::zero::ZeroCall;

/// A function, how to call it with zeros, and what it answers in each state (`None`: not called).
#[derive(Debug, Clone, Copy)]
pub struct Blank {
    /// The function's symbol.
    pub symbol: &'static str,
    call: fn(&Driver) -> Option<CUresult>,
    before_init: Option<CUresult>,
    no_context: Option<CUresult>,
    context: Option<CUresult>,
}

impl Blank {
    /// Makes the call and compares.
    pub(super) fn run(&self, cu: &Cuda<'_>, want: CUresult) -> CaseResult {
        let Some(got) = (self.call)(cu.driver()) else {
            return Err(Stop::Skip(format!("the driver has no {}", self.symbol)));
        };
        cu.expect_status(got, want, self.symbol, file!(), line!());
        Ok(())
    }
}

/// The cases of all functions in all states.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    TABLE.iter().flat_map(|blank| {
        let states = [
            ("before_init", Needs::BEFORE_INIT, blank.before_init),
            ("no_context", Needs::NO_CONTEXT, blank.no_context),
            ("zeros", Needs::CONTEXT, blank.context),
        ];
        states.into_iter().filter_map(move |(area, needs, code)| {
            code.map(|code| Case { area, name: blank.symbol, needs, body: Body::Blank(blank, code) })
        })
    })
}

/// Calls a function with every argument zero; `None` when no case does so, or the driver does not have it.
#[must_use]
pub fn call_with_zeros(driver: &Driver, symbol: &str) -> Option<CUresult> {
    let blank = TABLE.iter().find(|blank| blank.symbol == symbol)?;
    (blank.call)(driver)
}

macro_rules! blank {
    ($($symbol:ident: $before:tt $bare:tt $zeros:tt;)*) => {
        &[$(Blank {
            symbol: stringify!($symbol),
            call: |driver| {
                driver.functions().$symbol.map(|function| {
                    // SAFETY: the table below has only functions that answer null pointers with an error.
                    unsafe { function.zero_call() }
                })
            },
            before_init: blank!(@ $before),
            no_context: blank!(@ $bare),
            context: blank!(@ $zeros),
        }),*]
    };
    (@ -) => { None };
    (@ $code:ident) => { Some(super::code::$code) };
}

/// Function: before `cuInit`, without a context, with one.
static TABLE: &[Blank] = blank! {
    cuCtxCreate_v2: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuCtxCreate_v4: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuCtxDestroy_v2: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuCtxDisablePeerAccess: NOT_INITIALIZED INVALID_CONTEXT INVALID_CONTEXT;
    cuCtxEnablePeerAccess: NOT_INITIALIZED INVALID_CONTEXT INVALID_CONTEXT;
    cuCtxGetApiVersion: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuCtxGetCacheConfig: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuCtxGetCurrent: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuCtxGetDevice: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuCtxGetDevice_v2: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuCtxGetFlags: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuCtxGetId: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuCtxGetLimit: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuCtxGetSharedMemConfig: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuCtxGetStreamPriorityRange: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuCtxPopCurrent_v2: NOT_INITIALIZED INVALID_CONTEXT -;
    cuCtxPushCurrent_v2: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuCtxRecordEvent: NOT_INITIALIZED INVALID_CONTEXT INVALID_CONTEXT;
    cuCtxResetPersistingL2Cache: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuCtxSetCacheConfig: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuCtxSetCurrent: NOT_INITIALIZED SUCCESS -;
    cuCtxSetFlags: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuCtxSetLimit: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuCtxSetSharedMemConfig: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuCtxSynchronize: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuCtxSynchronize_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuCtxWaitEvent: NOT_INITIALIZED INVALID_CONTEXT INVALID_CONTEXT;
    cuDeviceCanAccessPeer: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceComputeCapability: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGet: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetAttribute: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuDeviceGetByPCIBusId: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetCount: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetDefaultMemPool: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetLuid: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetMemPool: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetName: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetP2PAttribute: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetPCIBusId: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetProperties: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetUuid: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceGetUuid_v2: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDevicePrimaryCtxGetState: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuDevicePrimaryCtxRelease_v2: NOT_INITIALIZED INVALID_CONTEXT -;
    cuDevicePrimaryCtxReset_v2: NOT_INITIALIZED SUCCESS -;
    cuDevicePrimaryCtxRetain: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDevicePrimaryCtxSetFlags_v2: NOT_INITIALIZED SUCCESS SUCCESS;
    cuDeviceSetMemPool: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDeviceTotalMem_v2: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuDriverGetVersion: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuEventCreate: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuEventDestroy_v2: INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE;
    cuEventElapsedTime: INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE;
    cuEventElapsedTime_v2: INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE;
    cuEventQuery: INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE;
    cuEventRecord: NOT_INITIALIZED INVALID_CONTEXT INVALID_HANDLE;
    cuEventRecordWithFlags: NOT_INITIALIZED INVALID_CONTEXT INVALID_HANDLE;
    cuEventSynchronize: INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE;
    cuGraphAddChildGraphNode: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphAddDependencies: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphAddDependencies_v2: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphAddEmptyNode: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphAddEventRecordNode: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphAddEventWaitNode: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphAddHostNode: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphAddMemcpyNode: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphAddMemsetNode: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphChildGraphNodeGetGraph: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphClone: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphCreate: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphDebugDotPrint: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphDestroy: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphDestroyNode: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphEventRecordNodeGetEvent: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphEventRecordNodeSetEvent: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphEventWaitNodeGetEvent: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphEventWaitNodeSetEvent: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphExecChildGraphNodeSetParams: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphExecDestroy: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphExecEventRecordNodeSetEvent: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphExecEventWaitNodeSetEvent: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphExecGetFlags: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphExecHostNodeSetParams: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphExecMemcpyNodeSetParams: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphExecMemsetNodeSetParams: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphExecUpdate: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphExecUpdate_v2: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphGetEdges: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphGetEdges_v2: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphGetNodes: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphGetRootNodes: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphHostNodeGetParams: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphHostNodeSetParams: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphInstantiateWithFlags: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuGraphInstantiateWithParams: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphLaunch: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuGraphMemcpyNodeGetParams: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphMemcpyNodeSetParams: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphMemsetNodeGetParams: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphMemsetNodeSetParams: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphNodeFindInClone: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphNodeGetDependencies: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphNodeGetDependencies_v2: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphNodeGetDependentNodes: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphNodeGetDependentNodes_v2: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphNodeGetEnabled: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphNodeGetType: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuGraphNodeSetEnabled: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphRemoveDependencies: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphRemoveDependencies_v2: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuGraphUpload: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuInit: - SUCCESS SUCCESS;
    cuLaunchHostFunc: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuLaunchKernel: NOT_INITIALIZED INVALID_CONTEXT INVALID_HANDLE;
    cuLaunchKernelEx: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuMemAddressFree: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemAddressReserve: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemAllocAsync: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemAllocFromPoolAsync: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemAllocHost_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemAllocPitch_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemAlloc_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemCreate: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemFreeAsync: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemFreeHost: NOT_INITIALIZED SUCCESS SUCCESS;
    cuMemFree_v2: NOT_INITIALIZED SUCCESS SUCCESS;
    cuMemGetAccess: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemGetAddressRange_v2: SUCCESS SUCCESS SUCCESS;
    cuMemGetAllocationGranularity: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemGetAllocationPropertiesFromHandle: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemGetInfo_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemHostAlloc: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemHostGetDevicePointer_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemHostGetFlags: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuMemHostRegister_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemHostUnregister: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemMap: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemPoolCreate: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemPoolDestroy: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemPoolGetAccess: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemPoolGetAttribute: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemPoolSetAccess: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemPoolSetAttribute: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemPoolTrimTo: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemRelease: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemRetainAllocationHandle: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemSetAccess: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemUnmap: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuMemcpy: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemcpy2DAsync_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemcpy2DUnaligned_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemcpy2D_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemcpy3DAsync_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemcpy3D_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuMemcpyAsync: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemcpyDtoDAsync_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemcpyDtoD_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemcpyDtoHAsync_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemcpyDtoH_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemcpyHtoDAsync_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemcpyHtoD_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemcpyPeer: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemcpyPeerAsync: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD16Async: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD16_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD2D16Async: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD2D16_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD2D32Async: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD2D32_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD2D8Async: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD2D8_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD32Async: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD32_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD8Async: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuMemsetD8_v2: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuPointerGetAttribute: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuPointerGetAttributes: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuPointerSetAttribute: NOT_INITIALIZED INVALID_VALUE INVALID_VALUE;
    cuStreamAddCallback: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamBeginCaptureToGraph: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamBeginCapture_v2: NOT_INITIALIZED INVALID_CONTEXT STREAM_CAPTURE_UNSUPPORTED;
    cuStreamCopyAttributes: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuStreamCreate: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamCreateWithPriority: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamDestroy_v2: INVALID_HANDLE INVALID_HANDLE INVALID_HANDLE;
    cuStreamEndCapture: NOT_INITIALIZED INVALID_CONTEXT ILLEGAL_STATE;
    cuStreamGetAttribute: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuStreamGetCaptureInfo_v2: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamGetCaptureInfo_v3: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamGetCtx: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamGetCtx_v2: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamGetDevice: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamGetFlags: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamGetId: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamGetPriority: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamIsCapturing: INVALID_VALUE INVALID_VALUE INVALID_VALUE;
    cuStreamQuery: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuStreamSetAttribute: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuStreamSynchronize: NOT_INITIALIZED INVALID_CONTEXT SUCCESS;
    cuStreamUpdateCaptureDependencies: NOT_INITIALIZED INVALID_CONTEXT ILLEGAL_STATE;
    cuStreamUpdateCaptureDependencies_v2: NOT_INITIALIZED INVALID_CONTEXT ILLEGAL_STATE;
    cuStreamWaitEvent: NOT_INITIALIZED INVALID_CONTEXT INVALID_HANDLE;
    cuStreamWaitValue32_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuStreamWaitValue64_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuStreamWriteValue32_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuStreamWriteValue64_v2: NOT_INITIALIZED INVALID_CONTEXT INVALID_VALUE;
    cuThreadExchangeStreamCaptureMode: NOT_INITIALIZED - -;
};
