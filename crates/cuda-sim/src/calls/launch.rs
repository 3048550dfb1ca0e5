//! Launches of kernels, queued and as nodes of graphs.

use std::ffi::c_void;
use std::sync::Arc;

use cuda_sys::driver::types::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUfunc_st, CUgraph_st, CUgraphExec_st, CUgraphNode,
    CUgraphNode_st, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig, CUstream_st,
};

use super::exec::set_params;
use super::graph::{add, kind_of, set_kind_of};
use crate::call::Call;
use crate::claim::{Ptr, handle};
use crate::codes::{Answer, INVALID_HANDLE, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, NOT_SUPPORTED};
use crate::model::graph::{Graph, NodeId, NodeKind};
use crate::model::kernel::Kernel;
use crate::model::modules::{Launch, LaunchAttributes, Parameters};
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

/// What a launch is besides its function and parameters.
#[derive(Clone, Copy)]
struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    /// Whether all blocks must run at once.
    cooperative: bool,
}

fn make(state: &mut State, function: u64, shape: Shape, given: Given) -> Answer<Launch> {
    state.load_function(function)?;
    let kernel = Arc::clone(&state.function(function)?.kernel);
    if state.function(function)?.module == 0 {
        // A library's function is more than its text.
        return Err(NOT_SUPPORTED);
    }
    let parameters = Arc::new(Parameters::new(&kernel, given.read(&kernel)?));
    let Shape { grid, block, shared_bytes, cooperative } = shape;
    let attributes = LaunchAttributes::default();
    let launch =
        Launch { function, kernel, cooperative, grid, block, shared_bytes, parameters, attributes, library: None };
    state.check_launch(&launch)?;
    Ok(launch)
}

/// The function that a launch names. That of a library's kernel is in the context of the stream.
fn launched(call: &mut Call<'_>, function: u64, stream: u64) -> Answer<u64> {
    if call.library_kernel(function).is_err() {
        return Ok(function);
    }
    let key = call.stream_named(stream)?;
    let home = call.home_of(call.stream(key)?.context);
    call.function_in(function, home)
}

pub(crate) fn queue(call: &mut Call<'_>, stream: u64, launch: Launch) -> Answer {
    let key = call.stream_named(stream)?;
    let context = call.stream(key)?.context;
    if call.function(launch.function)?.context != call.home_of(context) {
        return Err(INVALID_HANDLE);
    }
    call.check_at_once(&launch, call.multiprocessors_of(context))?;
    let priority = call.stream(key)?.priority;
    let with_priority =
        || Launch { attributes: LaunchAttributes { priority, ..launch.attributes.clone() }, ..launch.clone() };
    if call.capture_node(key, |_| Ok(NodeKind::Kernel(with_priority())))? {
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
    let shape = Shape { grid, block, shared_bytes, cooperative: false };
    let given = Given { pointers: params, extra };
    let function = launched(call, function.address(), stream.address())?;
    let launch = make(call, function, shape, given)?;
    queue(call, stream.address(), launch)
}

#[expect(clippy::too_many_arguments, reason = "the C function has as many")]
pub(crate) fn cooperative(
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
) -> Answer {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let shape = Shape { grid, block, shared_bytes, cooperative: true };
    let given = Given { pointers: params, extra: Ptr::null() };
    let function = launched(call, function.address(), stream.address())?;
    let launch = make(call, function, shape, given)?;
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
    let shape = Shape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared_bytes: config.sharedMemBytes,
        cooperative: false,
    };
    let given = Given { pointers: params, extra };
    let stream = config.hStream.addr() as u64;
    let function = launched(call, function.address(), stream)?;
    let mut launch = make(call, function, shape, given)?;
    launch.cooperative = asks_for_cooperation(&config)?;
    call.check_launch(&launch)?;
    queue(call, stream, launch)
}

/// An attribute of a launch whose value is a word.
#[derive(Clone, Copy)]
#[repr(C)]
struct WordAttribute {
    id: CUlaunchAttributeID,
    pad: [u8; 4],
    value: i32,
    more: [i32; 2],
    rest: [u8; 52],
}

impl WordAttribute {
    /// Whether it asks for clusters of one block, which any launch has.
    fn is_one_block(&self) -> bool {
        self.value == 1 && self.more == [1; 2]
    }
}

const _: () = assert!(size_of::<WordAttribute>() == size_of::<CUlaunchAttribute>());

/// The size of clusters that a launch asks for; none where it does not say.
pub(super) fn asks_for_clusters(config: &CUlaunchConfig) -> Answer<Option<u32>> {
    let attributes = Ptr::from_params(config.attrs).cast::<WordAttribute>();
    let mut blocks = None;
    for index in 0..usize::try_from(config.numAttrs).unwrap_or(0) {
        let attribute = attributes.read_at(index)?;
        if attribute.id == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION {
            let axes = [attribute.value, attribute.more[0], attribute.more[1]];
            blocks = Some(axes.into_iter().fold(1_u32, |all, axis| all.saturating_mul(axis.cast_unsigned())));
        }
    }
    Ok(blocks)
}

/// Reads the attributes of a launch: whether all blocks must run at once.
fn asks_for_cooperation(config: &CUlaunchConfig) -> Answer<bool> {
    let attributes = Ptr::from_params(config.attrs).cast::<WordAttribute>();
    let mut cooperative = false;
    for index in 0..usize::try_from(config.numAttrs).unwrap_or(0) {
        let attribute = attributes.read_at(index)?;
        // A priority orders nothing here, and a launch that may begin early begins in its turn; of what else can be asked
        // nothing is simulated.
        match attribute.id {
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE
            | CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY
            | CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION => {}
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => cooperative = attribute.value != 0,
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION if attribute.is_one_block() => {}
            _ => return Err(NOT_SUPPORTED),
        }
    }
    Ok(cooperative)
}

/// Where nodes launch their kernels: what a call knows beside their parameters.
#[derive(Clone, Copy)]
pub(super) struct Surroundings {
    /// The current context.
    context: Option<u64>,
    /// Whether all blocks must run at once.
    cooperative: bool,
}

impl Surroundings {
    pub(super) fn of(call: &Call<'_>) -> Self {
        Self { context: call.current_context(call.thread), cooperative: false }
    }
}

/// The function that a node names: a function, or a kernel of a library in a context of its own or the current one.
fn function_of_node(state: &mut State, params: &CUDA_KERNEL_NODE_PARAMS, around: Surroundings) -> Answer<u64> {
    let (function, kernel) = (params.func.addr() as u64, params.kern.addr() as u64);
    let named = if function == 0 { kernel } else { function };
    if named == 0 {
        return Err(INVALID_VALUE);
    }
    if state.library_kernel(named).is_err() {
        return Ok(named);
    }
    let context = if params.ctx.is_null() { around.context } else { Some(params.ctx.addr() as u64) };
    let context = context.map(|context| state.home_of(context));
    let context = context.filter(|context| state.contexts.contains_key(context)).ok_or(INVALID_VALUE)?;
    state.function_in(named, context)
}

/// The parameters of a node as a program gives them. A null pointer, a kernel of no module or no function is refused.
pub(super) fn node_kind(
    state: &mut State,
    params: &CUDA_KERNEL_NODE_PARAMS,
    around: Surroundings,
) -> Answer<NodeKind<Graph>> {
    let shape = Shape {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared_bytes: params.sharedMemBytes,
        cooperative: around.cooperative,
    };
    let given = Given { pointers: Ptr::from_params(params.kernelParams), extra: Ptr::from_params(params.extra) };
    let function = function_of_node(state, params, around)?;
    let launch = make(state, function, shape, given);
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
    let around = Surroundings::of(call);
    add(call, node, graph, (dependencies, count), |state| node_kind(state, &params, around))
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
    let around = Surroundings::of(call);
    add(call, node, graph, (dependencies, count), |state| node_kind(state, &params, around))
}

/// The parameters of a node; pointers to values lead into the node.
fn told(call: &Call<'_>, node: Ptr<CUgraphNode_st>) -> Answer<CUDA_KERNEL_NODE_PARAMS> {
    let launch = launch_of(call, node)?;
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

/// The parameters of a node that had others. What was asked for by attributes, the node keeps.
fn renewed(call: &mut Call<'_>, old: Option<Launch>, params: &CUDA_KERNEL_NODE_PARAMS) -> Answer<NodeKind<Graph>> {
    let cooperative = old.as_ref().is_some_and(|launch| launch.cooperative);
    let around = Surroundings { cooperative, ..Surroundings::of(call) };
    let mut kind = node_kind(call, params, around)?;
    if let (NodeKind::Kernel(launch), Some(old)) = (&mut kind, old) {
        launch.attributes = old.attributes;
    }
    Ok(kind)
}

fn set_node(call: &mut Call<'_>, node: Ptr<CUgraphNode_st>, params: &CUDA_KERNEL_NODE_PARAMS) -> Answer {
    let old = launch_of(call, node).cloned().ok();
    let kind = renewed(call, old, params)?;
    set_kind_of(call, node, kind)
}

/// What a kernel node launches. `INVALID_VALUE`: there is no such node, or it is another one.
pub(super) fn launch_of<'c>(call: &'c Call<'_>, node: Ptr<CUgraphNode_st>) -> Answer<&'c Launch> {
    let NodeKind::Kernel(launch) = kind_of(call, node)? else { return Err(INVALID_VALUE) };
    Ok(launch)
}

/// The same for a node of an executable graph.
fn set_exec_node(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    params: &CUDA_KERNEL_NODE_PARAMS,
) -> Answer {
    let found = call.graph_execs.get(&exec.address());
    let old = found.and_then(|exec| exec.graph.launch(NodeId(node.address())).cloned());
    let kind = renewed(call, old, params)?;
    set_params(call, exec, node, kind)
}

pub(crate) fn set_node_params(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    set_node(call, node, &widened(&params.read()?))
}

pub(crate) fn set_node_params_v2(
    call: &mut Call<'_>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    set_node(call, node, &params.read()?)
}

pub(crate) fn set_exec_params(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Answer {
    set_exec_node(call, exec, node, &widened(&params.read()?))
}

pub(crate) fn set_exec_params_v2(
    call: &mut Call<'_>,
    exec: Ptr<CUgraphExec_st>,
    node: Ptr<CUgraphNode_st>,
    params: Ptr<CUDA_KERNEL_NODE_PARAMS>,
) -> Answer {
    set_exec_node(call, exec, node, &params.read()?)
}
