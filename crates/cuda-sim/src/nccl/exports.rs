//! The functions of NCCL that are simulated: symbol, arguments, who answers. Sorted by symbol.

/// Calls the macro `$callback` with the functions of NCCL that are simulated and answer with a status.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_nccl_export {
    ($callback:ident) => {
        $callback! {
            ncclAllGather (sendbuff: *const core::ffi::c_void, recvbuff: *mut core::ffi::c_void, sendcount: usize, datatype: ncclDataType_t, comm: ncclComm_t, stream: cudaStream_t) => collectives::all_gather;
            ncclAllReduce (sendbuff: *const core::ffi::c_void, recvbuff: *mut core::ffi::c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t, comm: ncclComm_t, stream: cudaStream_t) => collectives::all_reduce;
            ncclBcast (buff: *mut core::ffi::c_void, count: usize, datatype: ncclDataType_t, root: core::ffi::c_int, comm: ncclComm_t, stream: cudaStream_t) => collectives::bcast;
            ncclBroadcast (sendbuff: *const core::ffi::c_void, recvbuff: *mut core::ffi::c_void, count: usize, datatype: ncclDataType_t, root: core::ffi::c_int, comm: ncclComm_t, stream: cudaStream_t) => collectives::broadcast;
            ncclCommAbort (comm: ncclComm_t) => comms::abort;
            ncclCommCount (comm: ncclComm_t, count: *mut core::ffi::c_int) => comms::count;
            ncclCommCuDevice (comm: ncclComm_t, device: *mut core::ffi::c_int) => comms::device;
            ncclCommDeregister (comm: ncclComm_t, handle: *mut core::ffi::c_void) => memory::deregister;
            ncclCommDestroy (comm: ncclComm_t) => comms::destroy;
            ncclCommFinalize (comm: ncclComm_t) => comms::finalize;
            ncclCommGetAsyncError (comm: ncclComm_t, asyncError: *mut ncclResult_t) => comms::async_error;
            ncclCommInitAll (comm: *mut ncclComm_t, ndev: core::ffi::c_int, devlist: *const core::ffi::c_int) => comms::init_all;
            ncclCommInitRank (comm: *mut ncclComm_t, nranks: core::ffi::c_int, commId: ncclUniqueId, rank: core::ffi::c_int) => comms::init_rank;
            ncclCommInitRankConfig (comm: *mut ncclComm_t, nranks: core::ffi::c_int, commId: ncclUniqueId, rank: core::ffi::c_int, config: *mut ncclConfig_t) => comms::init_rank_config;
            ncclCommRegister (comm: ncclComm_t, buff: *mut core::ffi::c_void, size: usize, handle: *mut *mut core::ffi::c_void) => memory::register;
            ncclCommRevoke (comm: ncclComm_t, revokeFlags: core::ffi::c_int) => split::revoke;
            ncclCommShrink (comm: ncclComm_t, excludeRanksList: *mut core::ffi::c_int, excludeRanksCount: core::ffi::c_int, newcomm: *mut ncclComm_t, config: *mut ncclConfig_t, shrinkFlags: core::ffi::c_int) => split::shrink;
            ncclCommSplit (comm: ncclComm_t, color: core::ffi::c_int, key: core::ffi::c_int, newcomm: *mut ncclComm_t, config: *mut ncclConfig_t) => split::split;
            ncclCommUserRank (comm: ncclComm_t, rank: *mut core::ffi::c_int) => comms::rank;
            ncclGetUniqueId (uniqueId: *mut ncclUniqueId) => comms::unique_id;
            ncclGetVersion (version: *mut core::ffi::c_int) => general::version;
            ncclGroupEnd () => group::end;
            ncclGroupStart () => group::start;
            ncclMemAlloc (ptr: *mut *mut core::ffi::c_void, size: usize) => memory::alloc;
            ncclMemFree (ptr: *mut core::ffi::c_void) => memory::free;
            ncclRecv (recvbuff: *mut core::ffi::c_void, count: usize, datatype: ncclDataType_t, peer: core::ffi::c_int, comm: ncclComm_t, stream: cudaStream_t) => collectives::recv;
            ncclRedOpCreatePreMulSum (op: *mut ncclRedOp_t, scalar: *mut core::ffi::c_void, datatype: ncclDataType_t, residence: ncclScalarResidence_t, comm: ncclComm_t) => collectives::scaled_sum;
            ncclRedOpDestroy (op: ncclRedOp_t, comm: ncclComm_t) => collectives::forget_sum;
            ncclReduce (sendbuff: *const core::ffi::c_void, recvbuff: *mut core::ffi::c_void, count: usize, datatype: ncclDataType_t, op: ncclRedOp_t, root: core::ffi::c_int, comm: ncclComm_t, stream: cudaStream_t) => collectives::reduce;
            ncclReduceScatter (sendbuff: *const core::ffi::c_void, recvbuff: *mut core::ffi::c_void, recvcount: usize, datatype: ncclDataType_t, op: ncclRedOp_t, comm: ncclComm_t, stream: cudaStream_t) => collectives::reduce_scatter;
            ncclSend (sendbuff: *const core::ffi::c_void, count: usize, datatype: ncclDataType_t, peer: core::ffi::c_int, comm: ncclComm_t, stream: cudaStream_t) => collectives::send;
        }
    };
}
