//! The launches of a call by the raw driver: what they cost that nothing is wrapped around.
//!
//! # Safety
//! Every pointer given to the driver points to a local variable that outlives the call, or is one that the driver itself has
//! given for a node of a graph, and is good for as long as the graph. The graph lives as long as what is launched here, and
//! keeps the memory that its kernels use; they run one after another on the default stream.
#![expect(unsafe_code, reason = "calls the driver's C interface")]

use std::ptr;

use aten_cuda::Result;
use c10_core::{CUDAGraph, CaptureMode, Stream};
use cuda_sys::Driver;
use cuda_sys::driver::types::{
    CUDA_KERNEL_NODE_PARAMS_v2, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeType,
};

/// The kernels that a call launches, with their parameters, and a graph of them.
pub(crate) struct Launches {
    driver: Driver,
    kernels: Vec<CUDA_KERNEL_NODE_PARAMS_v2>,
    exec: CUgraphExec,
    /// Keeps the parameters, and the memory that they name.
    _graph: CUDAGraph,
}

impl Launches {
    /// Those of a call; nothing where it does anything but launching kernels.
    ///
    /// # Errors
    /// Those of the call, or the driver's.
    pub(crate) fn of(call: &dyn Fn() -> Result<()>) -> std::result::Result<Option<Self>, Box<dyn std::error::Error>> {
        let stream = Stream::new(None, 0)?;
        let mut graph = CUDAGraph::with_keep_graph();
        aten_cuda::synchronize(None)?;
        {
            let _on = stream.guard();
            graph.capture(&stream, None, CaptureMode::ThreadLocal, call)?;
        }
        graph.instantiate()?;
        let driver = Driver::load()?;
        let mut kernels = Vec::new();
        for node in nodes(&driver, ptr::with_exposed_provenance_mut(graph.raw_cuda_graph()?))? {
            match kernel(&driver, node)? {
                Some(launch) => kernels.push(launch),
                None => return Ok(None),
            }
        }
        let exec = ptr::with_exposed_provenance_mut(graph.raw_cuda_graph_exec()?);
        Ok(Some(Self { driver, kernels, exec, _graph: graph }))
    }

    /// Queues the kernels one by one on the default stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn launch(&self) -> Result<()> {
        for launch in &self.kernels {
            let function = if launch.func.is_null() { launch.kern.cast() } else { launch.func };
            let [grid, block] = [
                [launch.gridDimX, launch.gridDimY, launch.gridDimZ],
                [launch.blockDimX, launch.blockDimY, launch.blockDimZ],
            ];
            self.queue(function, grid, block, launch)?;
        }
        Ok(())
    }

    fn queue(
        &self,
        function: CUfunction,
        [x, y, z]: [u32; 3],
        [wide, high, deep]: [u32; 3],
        launch: &CUDA_KERNEL_NODE_PARAMS_v2,
    ) -> Result<()> {
        let (shared, stream, none) = (launch.sharedMemBytes, ptr::null_mut(), ptr::null_mut());
        let (driver, parameters) = (&self.driver, launch.kernelParams);
        // SAFETY: the parameters are those of the kernel in the graph, whose memory the graph keeps.
        unsafe { driver.cuLaunchKernel(function, x, y, z, wide, high, deep, shared, stream, parameters, none) }
            .map_err(c10_core::Error::from)?;
        Ok(())
    }

    /// Queues the graph on the default stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn launch_graph(&self) -> Result<()> {
        // SAFETY: the graph is alive and instantiated.
        unsafe { self.driver.cuGraphLaunch(self.exec, ptr::null_mut()) }.map_err(c10_core::Error::from)?;
        Ok(())
    }
}

/// The nodes of a graph.
fn nodes(driver: &Driver, graph: CUgraph) -> std::result::Result<Vec<CUgraphNode>, cuda_sys::DriverError> {
    let mut count = 0;
    // SAFETY: `count` outlives the call, and no memory for nodes is given.
    unsafe { driver.cuGraphGetNodes(graph, ptr::null_mut(), &mut count) }?;
    let mut nodes = vec![ptr::null_mut(); count];
    // SAFETY: there is memory for so many nodes.
    unsafe { driver.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) }?;
    nodes.truncate(count);
    Ok(nodes)
}

/// What a node launches, where it does.
fn kernel(
    driver: &Driver,
    node: CUgraphNode,
) -> std::result::Result<Option<CUDA_KERNEL_NODE_PARAMS_v2>, cuda_sys::DriverError> {
    let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: the node is of a graph that is alive; `kind` outlives the call.
    unsafe { driver.cuGraphNodeGetType(node, &mut kind) }?;
    if kind != CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL {
        return Ok(None);
    }
    let mut launch = CUDA_KERNEL_NODE_PARAMS_v2 {
        func: ptr::null_mut(),
        gridDimX: 0,
        gridDimY: 0,
        gridDimZ: 0,
        blockDimX: 0,
        blockDimY: 0,
        blockDimZ: 0,
        sharedMemBytes: 0,
        kernelParams: ptr::null_mut(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    };
    // SAFETY: the same, and the node is one of a kernel.
    unsafe { driver.cuGraphKernelNodeGetParams_v2(node, &mut launch) }?;
    Ok(Some(launch).filter(|launch| !launch.kernelParams.is_null()))
}
