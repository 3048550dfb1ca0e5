//! Nodes that allocate and free memory, and the memory of graphs as a whole.

use std::ffi::c_void;

use cuda_sys::driver::types::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUgraph_st, CUgraphMem_attribute, CUgraphNode, CUgraphNode_st, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPoolProps,
};

use super::graph::{add, kind_of};
use crate::call::Call;
use crate::claim::Ptr;
use crate::codes::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::model::graph::{GraphId, MemAlloc, NodeKind};

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

pub(crate) fn add_alloc(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    params: Ptr<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> Answer {
    let mut told = params.read()?;
    let device = device_of(call, &told.poolProps)?;
    let grants = Ptr::from_params(told.accessDescs);
    check_grants(call, grants, told.accessDescCount)?;
    let mut made = None;
    add(call, node, graph, (dependencies, count), |state| {
        let alloc = state.reserve_for_graph(GraphId(graph.address()), device, told.bytesize as u64)?;
        made = Some(alloc);
        Ok(NodeKind::MemAlloc(alloc))
    })?;
    told.dptr = made.map_or(0, |alloc| alloc.address);
    params.write(told)
}

/// The device that allocates. Memory of the host and memory for other processes is not there for graphs.
fn device_of(call: &Call<'_>, wanted: &CUmemPoolProps) -> Answer<u32> {
    if wanted.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_INVALID {
        return Err(INVALID_VALUE);
    }
    match wanted.location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID => Err(INVALID_VALUE),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE if wanted.handleTypes.0 == 0 => {
            call.device(wanted.location.id).map_err(|_| INVALID_VALUE)
        }
        _ => Err(NOT_SUPPORTED),
    }
}

/// Devices may be given everything or not be named; what others than the owner may do makes no difference here.
fn check_grants(call: &Call<'_>, grants: Ptr<CUmemAccessDesc>, count: usize) -> Answer {
    // More devices than this no machine has; a wild count must not be believed.
    if count > 1024 {
        return Err(INVALID_VALUE);
    }
    for grant in grants.read_array(count)? {
        call.device(grant.location.id).map_err(|_| INVALID_VALUE)?;
        if grant.flags.0 != READ_WRITE {
            return Err(NOT_SUPPORTED);
        }
    }
    Ok(())
}

pub(crate) fn add_free(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    address: u64,
) -> Answer {
    add(call, node, graph, (dependencies, count), |state| {
        state.check_graph_free(address)?;
        Ok(NodeKind::MemFree(address))
    })
}

pub(crate) fn alloc_params(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> Answer {
    let NodeKind::MemAlloc(alloc) = *kind_of(call, node)? else { return Err(INVALID_VALUE) };
    params.write(raw_params(alloc))
}

fn raw_params(alloc: MemAlloc) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: i32::try_from(alloc.device).unwrap_or(i32::MAX),
            },
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        },
        accessDescs: std::ptr::null(),
        accessDescCount: 0,
        bytesize: usize::try_from(alloc.bytes).unwrap_or(usize::MAX),
        dptr: alloc.address,
    }
}

pub(crate) fn free_params(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, address: Ptr<u64>) -> Answer {
    let NodeKind::MemFree(found) = *kind_of(call, node)? else { return Err(INVALID_VALUE) };
    address.write(found)
}

pub(crate) fn attribute(
    call: &mut Call<'_>,
    device: i32,
    attribute: CUgraphMem_attribute,
    value: Ptr<c_void>,
) -> Answer {
    value.required()?;
    let index = call.device(device)?;
    let (used, reserved) = call.graph_memory.marks(index);
    let number = match attribute {
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => used.current,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => used.high,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => reserved.current,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => reserved.high,
        _ => return Err(INVALID_VALUE),
    };
    value.cast::<u64>().write(number)
}

/// The high marks can be set back, by giving 0.
pub(crate) fn set_attribute(
    call: &mut Call<'_>,
    device: i32,
    attribute: CUgraphMem_attribute,
    value: Ptr<c_void>,
) -> Answer {
    let number = value.cast::<u64>().read()?;
    let index = call.device(device)?;
    let used = match attribute {
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => true,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => false,
        _ => return Err(INVALID_VALUE),
    };
    if number != 0 {
        return Err(INVALID_VALUE);
    }
    call.graph_memory.reset_high(index, used);
    Ok(())
}

pub(crate) fn trim(call: &mut Call<'_>, device: i32) -> Answer {
    let index = call.device(device)?;
    call.trim_graph_memory(index);
    Ok(())
}
