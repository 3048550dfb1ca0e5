//! Launches of kernels, queued and as nodes of graphs.

use std::ffi::c_void;
use std::sync::Arc;

use cuda_sys::driver::types::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUfunc_st, CUgraph_st, CUgraphExec_st, CUgraphNode,
    CUgraphNode_st, CUlaunchAttributeID, CUlaunchConfig, CUstream_st,
};

use super::exec::set_params;
use super::graph::{add, kind_of, set_kind_of};
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, INVALID_HANDLE, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, NOT_SUPPORTED};
use crate::model::graph::{Graph, NodeKind};
use crate::model::kernel::Kernel;
use crate::model::modules::{Launch, Parameters};
use crate::model::{Effect, State};

/// Words of the `extra` array: its end, a buffer of all parameters, and its size.
const EXTRA_END: u64 = 0;
const EXTRA_BUFFER: u64 = 1;
const EXTRA_SIZE: u64 = 2;

/// Where the parameters are: pointers to each, or one buffer.
#[derive(Clone, Copy)]
struct Given {
    pointers: Ptr<*mut c_void>,
    extra: Ptr<*mut c_void>,
}

impl Given {
    /// Copies the parameters of a kernel.
    fn read(self, kernel: &Kernel) -> Answer<Vec<u8>> {
        if !self.pointers.is_null() && !self.extra.is_null() {
            return Err(INVALID_VALUE);
        }
        if !self.extra.is_null() {
            return self.read_buffer(kernel);
        }
        let mut bytes = vec![0; kernel.parameter_bytes()];
        for (index, parameter) in kernel.parameters.iter().enumerate() {
            let value = self.pointers.pointer_at(index)?.cast::<u8>().read_array(parameter.size)?;
            bytes[parameter.offset..parameter.offset + parameter.size].copy_from_slice(&value);
        }
        Ok(bytes)
    }

    fn read_buffer(self, kernel: &Kernel) -> Answer<Vec<u8>> {
        let (mut buffer, mut size) = (Ptr::null(), 0);
        let mut index = 0;
        loop {
            let word = self.extra.pointer_at(index)?.address();
            if word == EXTRA_END {
                break;
            }
            let value = self.extra.pointer_at(index + 1)?;
            match word {
                EXTRA_BUFFER => buffer = value.cast::<u8>(),
                EXTRA_SIZE => size = value.cast::<usize>().read()?,
                _ => return Err(INVALID_VALUE),
            }
            index += 2;
        }
        // The parameters end with the last of them, without what would fill up a structure.
        if size != kernel.parameter_bytes() {
            return Err(LAUNCH_OUT_OF_RESOURCES);
        }
        buffer.read_array(size)
    }
}

fn make(state: &State, function: u64, grid: [u32; 3], block: [u32; 3], shared: u32, given: Given) -> Answer<Launch> {
    let kernel = Arc::clone(&state.function(function)?.kernel);
    let parameters = Arc::new(Parameters::new(&kernel, given.read(&kernel)?));
    let launch = Launch { function, kernel, cooperative: false, grid, block, shared_bytes: shared, parameters };
    state.check_launch(&launch)?;
    Ok(launch)
}

fn queue(call: &mut Call<'_>, stream: u64, launch: Launch) -> Answer {
    let key = call.stream_named(stream)?;
    if call.function(launch.function)?.context != call.stream(key)?.context {
        return Err(INVALID_HANDLE);
    }
    if call.capture_node(key, |_| Ok(NodeKind::Kernel(launch.clone())))? {
        return Ok(());
    }
    let timing = call.draw_timing(0, 0);
    call.enqueue(key, &[], timing, Effect::Launch(launch))?;
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn kernel(
    call: &mut Call<'_>,
    function: Ptr<CUfunc_st>,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Ptr<CUstream_st>,
    params: Ptr<*mut c_void>,
    extra: Ptr<*mut c_void>,
) -> Answer {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let given = Given { pointers: params, extra };
    let launch = make(call, function.address(), grid, block, shared_bytes, given)?;
    queue(call, stream.address(), launch)
}

pub(crate) fn kernel_ex(
    call: &mut Call<'_>,
    config: Ptr<CUlaunchConfig>,
    function: Ptr<CUfunc_st>,
    params: Ptr<*mut c_void>,
    extra: Ptr<*mut c_void>,
) -> Answer {
    let config = config.read()?;
    call.need_context()?;
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
    let given = Given { pointers: params, extra };
    let launch = make(call, function.address(), grid, block, config.sharedMemBytes, given)?;
    let attributes = Ptr::from_params(config.attrs);
    for index in 0..usize::try_from(config.numAttrs).unwrap_or(0) {
        // A priority orders nothing here; of what else can be asked nothing is simulated.
        match attributes.read_at(index)?.id {
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE | CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY => {}
            _ => return Err(NOT_SUPPORTED),
        }
    }
    queue(call, config.hStream.addr() as u64, launch)
}

/// The parameters of a node as a program gives them. A null pointer, a kernel of no module or no function is refused.
pub(super) fn node_kind(state: &State, params: &CUDA_KERNEL_NODE_PARAMS) -> Answer<NodeKind<Graph>> {
    let grid = [params.gridDimX, params.gridDimY, params.gridDimZ];
    let block = [params.blockDimX, params.blockDimY, params.blockDimZ];
    let given = Given { pointers: Ptr::from_params(params.kernelParams), extra: Ptr::from_params(params.extra) };
    let function = params.func.addr() as u64;
    if function == 0 {
        return Err(INVALID_VALUE);
    }
    let launch = make(state, function, grid, block, params.sharedMemBytes, given);
    // Of a node nothing is launched yet.
    let refused = |code| if code == LAUNCH_OUT_OF_RESOURCES { INVALID_VALUE } else { code };
    launch.map(NodeKind::Kernel).map_err(refused)
}

fn widened(params: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        kern: handle(0),
        ctx: handle(0),
    }
}

pub(crate) fn add_node(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    let params = widened(&params.read()?);
    add(call, node, graph, (dependencies, count), |state| node_kind(state, &params))
}

pub(crate) fn add_node_v2(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode>,
    graph: Ptr<CUgraph_st>,
    dependencies: Ptr<CUgraphNode>,
    count: usize,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    let params = params.read()?;
    add(call, node, graph, (dependencies, count), |state| node_kind(state, &params))
}

/// The parameters of a node; pointers to values lead into the node.
fn told(call: &Call<'_>, node: Ptr<CUgraphNode_st>) -> Answer<CUDA_KERNEL_NODE_PARAMS> {
    let NodeKind::Kernel(launch) = kind_of(call, node)? else { return Err(INVALID_VALUE) };
    let context = call.function(launch.function).map_or(0, |function| function.context);
    let pointers = crate::claim::host_pointer(launch.parameters.pointers());
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: handle(launch.function),
        gridDimX: launch.grid[0],
        gridDimY: launch.grid[1],
        gridDimZ: launch.grid[2],
        blockDimX: launch.block[0],
        blockDimY: launch.block[1],
        blockDimZ: launch.block[2],
        sharedMemBytes: launch.shared_bytes,
        kernelParams: pointers.cast(),
        extra: handle(0),
        kern: handle(0),
        ctx: handle(context),
    })
}

pub(crate) fn node_params(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    let told = told(call, node)?;
    params.write(CUDA_KERNEL_NODE_PARAMS_v1 {
        func: told.func,
        gridDimX: told.gridDimX,
        gridDimY: told.gridDimY,
        gridDimZ: told.gridDimZ,
        blockDimX: told.blockDimX,
        blockDimY: told.blockDimY,
        blockDimZ: told.blockDimZ,
        sharedMemBytes: told.sharedMemBytes,
        kernelParams: told.kernelParams,
        extra: told.extra,
    })
}

pub(crate) fn node_params_v2(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    params.write(told(call, node)?)
}

pub(crate) fn set_node_params(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    let kind = node_kind(call, &widened(&params.read()?))?;
    set_kind_of(call, node, kind)
}

pub(crate) fn set_node_params_v2(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    let kind = node_kind(call, &params.read()?)?;
    set_kind_of(call, node, kind)
}

pub(crate) fn set_exec_params(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    let kind = node_kind(call, &widened(&params.read()?))?;
    set_params(call, exec, node, kind)
}

pub(crate) fn set_exec_params_v2(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    let kind = node_kind(call, &params.read()?)?;
    set_params(call, exec, node, kind)
}
