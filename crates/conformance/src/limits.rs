//! What a device or a model of one does not have: answers that take unusual arguments, and those of simulated drivers.

use super::pool::{default_pool, props};
use super::prelude::*;

cases!("limits", CASES, Needs::CONTEXT;
    limits_the_device_has_not, contexts_with_parameters, kernels_without_a_function, pool_access_of_others, child_of_another_shape,
);

cases!("simulated", SIMULATED_CASES, Needs { simulated: true, ..Needs::CONTEXT };
    unknown_contexts, no_capture_mode, memory_of_the_host, no_addresses_for_pools,
);

fn limits_the_device_has_not(cu: &Cuda<'_>) -> CaseResult {
    let mut value = 0;
    for limit in [3, 9] {
        want!(UNSUPPORTED_LIMIT, cu.cuCtxGetLimit(&mut value, CUlimit(limit)));
        want!(UNSUPPORTED_LIMIT, cu.cuCtxSetLimit(CUlimit(limit), 2));
    }
    Ok(())
}

fn contexts_with_parameters(cu: &Cuda<'_>) -> CaseResult {
    let mut context = ptr::null_mut();
    let nothing =
        CUctxCreateParams { execAffinityParams: ptr::null_mut(), numExecAffinityParams: 0, cigParams: ptr::null_mut() };
    let mut graphics = CUctxCigParam { sharedDataType: CUcigDataType(1), sharedData: ptr::null_mut() };
    let mut shared = CUctxCreateParams { cigParams: &raw mut graphics, ..nothing };
    want!(NOT_SUPPORTED, cu.cuCtxCreate_v4(&mut context, &mut shared, 0, 0));
    let mut part = CUexecAffinityParam {
        type_: CUexecAffinityType(0),
        param: CUexecAffinityParam_st__bindgen_ty_1 { smCount: CUexecAffinitySmCount { val: 8 } },
    };
    let mut parted = CUctxCreateParams { execAffinityParams: &raw mut part, numExecAffinityParams: 1, ..nothing };
    want!(UNSUPPORTED_EXEC_AFFINITY, cu.cuCtxCreate_v4(&mut context, &mut parted, 0, 0));
    Ok(())
}

fn kernels_without_a_function(cu: &Cuda<'_>) -> CaseResult {
    let config = launch_config(ptr::null_mut());
    want!(INVALID_HANDLE, cu.cuLaunchKernelEx(&config, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()));
    Ok(())
}

fn pool_access_of_others(cu: &Cuda<'_>) -> CaseResult {
    let pool = default_pool(cu)?;
    for (kind, flags) in [(0, 3), (2, 3), (1, 1)] {
        let grant = CUmemAccessDesc {
            location: CUmemLocation { type_: CUmemLocationType(kind), id: 0 },
            flags: CUmemAccess_flags(flags),
        };
        want!(NOT_SUPPORTED, cu.cuMemPoolSetAccess(pool, &grant, 1));
    }
    Ok(())
}

fn child_of_another_shape(cu: &Cuda<'_>) -> CaseResult {
    let (graph, child, other) = (cu.graph()?, cu.graph()?, cu.graph()?);
    let first = cu.empty_node(child, &[])?;
    cu.empty_node(child, &[first])?;
    let node = super::graph::child_node(cu, graph, &[], child)?;
    let exec = cu.instantiate(graph)?;
    cu.empty_node(other, &[])?;
    want!(GRAPH_EXEC_UPDATE_FAILURE, cu.cuGraphExecChildGraphNodeSetParams(exec, node, other));
    Ok(())
}

fn unknown_contexts(cu: &Cuda<'_>) -> CaseResult {
    let nothing = ptr::without_provenance_mut(0xDEAD_BEE8);
    want!(INVALID_CONTEXT, cu.cuCtxPushCurrent_v2(nothing));
    want!(INVALID_CONTEXT, cu.cuCtxSetCurrent(nothing));
    Ok(())
}

fn no_capture_mode(cu: &Cuda<'_>) -> CaseResult {
    want!(INVALID_VALUE, cu.cuThreadExchangeStreamCaptureMode(ptr::null_mut()));
    Ok(())
}

/// Hardware has memory of the host in pools and behind handles; the model has not.
fn memory_of_the_host(cu: &Cuda<'_>) -> CaseResult {
    let (mut pool, mut handle, mut wanted) = (ptr::null_mut(), 0, props());
    wanted.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
    want!(NOT_SUPPORTED, cu.cuMemPoolCreate(&mut pool, &wanted));
    let mut property = CUmemAllocationProp::zeroed();
    property.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST;
    want!(NOT_SUPPORTED, cu.cuMemCreate(&mut handle, 2 << 20, &property, 0));
    Ok(())
}

/// Pools have addresses of their own, which may all be taken.
fn no_addresses_for_pools(cu: &Cuda<'_>) -> CaseResult {
    let (mut taken, mut pool) = (Vec::new(), ptr::null_mut());
    for bits in (30..46).rev() {
        let (size, mut base) = (1 << bits, 0);
        while status!(cu.cuMemAddressReserve(&mut base, size, 0, 0, 0)) == CUresult::CUDA_SUCCESS {
            taken.push((base, size));
        }
    }
    want!(OUT_OF_MEMORY, cu.cuMemPoolCreate(&mut pool, &props()));
    for (base, size) in taken {
        ok!(cu.cuMemAddressFree(base, size));
    }
    Ok(())
}
