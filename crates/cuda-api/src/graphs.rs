//! CUDA graphs; torch's `torch.cuda.graphs`.

use aten_cuda::Tensor;
use c10_core::{PoolId, Result, Runtime, Stream};

pub use aten_cuda::{BackwardFn, ForwardFn, Graphable, GraphedTensors, Pass};
pub use c10_core::{
    CUDAGraph, CaptureMode, CaptureOutcome, CaptureScope, Condition, GeneratorState, GraphCapture, GraphFn, GraphNode,
    GraphNodeKind, GraphReport, GraphUpdateError, GraphUpdateFailure, GraphedCallable, GraphedError, GraphedOptions,
};

use crate::device::synchronize;
use crate::memory::{empty_cache, host_empty_cache};

/// How to capture; torch's arguments of `graph`.
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphOptions<'a> {
    /// Pool to share with other graphs; its own by default.
    pub pool: Option<PoolId>,
    /// Stream to capture on; by default [`c10_core::Streams::for_captures`] of the current device.
    pub stream: Option<&'a Stream>,
    /// What is forbidden meanwhile.
    pub capture_error_mode: CaptureMode,
}

/// Captures until the guard is ended or dropped. Waits for the current device and empties the caches first.
///
/// # Errors
/// The graph has captured already, the stream is the default one, or the driver's error.
pub fn graph<'a>(cuda_graph: &'a mut CUDAGraph, options: GraphOptions<'_>) -> Result<GraphCapture<'a>> {
    let stream = prepare(&options)?;
    cuda_graph.capture_guard(&stream, options.pool, options.capture_error_mode)
}

/// Captures the work that `body` queues. The capture ends when `body` returns or unwinds; after an error or a panic the
/// graph is empty. If `body` has another error type, call [`CUDAGraph::capture`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::{CUDAGraph, GraphOptions, torch, with_graph};
///
/// let input = torch::zeros(&[3], torch::float32, "cuda")?;
/// let mut graph = CUDAGraph::new();
/// let result = with_graph(&mut graph, GraphOptions::default(), || input.add(1))?;
/// input.fill_(4)?;
/// graph.replay()?;
/// assert_eq!(result.to_vec::<f32>()?, [5.0; 3]);
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// What `body` returned, else as for [`graph()`].
pub fn with_graph<T>(
    cuda_graph: &mut CUDAGraph,
    options: GraphOptions<'_>,
    body: impl FnOnce() -> aten_cuda::Result<T>,
) -> aten_cuda::Result<T> {
    let stream = prepare(&options)?;
    cuda_graph.capture(&stream, options.pool, options.capture_error_mode, body)
}

/// Captures what `body` records with the scope it is given, which has only what a capture allows. Else as [`with_graph`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::{CUDAGraph, DeviceBuffer, GraphOptions, record_graph};
///
/// let result = DeviceBuffer::new(1024, None)?;
/// let mut graph = CUDAGraph::new();
/// record_graph(&mut graph, GraphOptions::default(), |scope| {
///     let between = scope.buffer(1024)?;
///     scope.fill(&between, .., 3)?;
///     Ok(scope.copy(&result, 0, &between, ..)?)
/// })?;
/// graph.replay()?;
/// cuda_api::synchronize(None)?;
/// assert!(result.to_vec()?.iter().all(|&byte| byte == 3));
/// # Ok::<(), cuda_api::torch::Error>(())
/// ```
///
/// # Errors
/// What `body` returned, else as for [`graph()`].
pub fn record_graph<T>(
    cuda_graph: &mut CUDAGraph,
    options: GraphOptions<'_>,
    body: impl FnOnce(&CaptureScope<'_>) -> aten_cuda::Result<T>,
) -> aten_cuda::Result<T> {
    let stream = prepare(&options)?;
    cuda_graph.record(&stream, options.pool, options.capture_error_mode, body)
}

/// Captures what `body` queues or, where that cannot be captured, lets it run at once; see
/// [`CUDAGraph::capture_or_run`].
///
/// # Errors
/// As for [`CUDAGraph::capture_or_run`], and what waiting for the device or emptying the caches answers.
pub fn capture_or_run<T>(
    cuda_graph: &mut CUDAGraph,
    options: GraphOptions<'_>,
    body: impl FnMut() -> aten_cuda::Result<T>,
) -> aten_cuda::Result<CaptureOutcome<T, aten_cuda::Error>> {
    let stream = prepare(&options)?;
    cuda_graph.capture_or_run(&stream, options.pool, options.capture_error_mode, body)
}

/// What torch does before each capture; the stream to capture on.
fn prepare(options: &GraphOptions<'_>) -> Result<Stream> {
    let runtime = Runtime::current();
    let stream = match options.stream {
        Some(stream) => stream.clone(),
        None => runtime.streams().for_captures(runtime.current_device()?)?,
    };
    synchronize(None)?;
    empty_cache()?;
    host_empty_cache()?;
    Ok(stream)
}

/// Captures functions of tensors, each with its sample arguments, in this order and with one pool; then the gradients of
/// those that bring some, in the reverse order. Calling what comes back replays the graph: see
/// [`GraphedTensors::make`]. For functions of buffers see [`GraphedCallable::make`].
///
/// `num_warmup_iters` is 3 and `pool` a new one by default. What torch does for modules and for arguments that need no
/// gradients has no meaning here: a function of gradients says itself which arguments have some.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::torch::{self, Tensor};
/// use cuda_api::{Graphable, Pass, make_graphed_callables};
///
/// let square = |inputs: &[Tensor]| Ok(vec![inputs[0].square()?]);
/// let slope = |pass: &Pass<'_>| Ok(vec![Some(pass.grad_outputs[0].mul(&pass.inputs[0].mul(2)?)?)]);
/// let sample = [torch::zeros(&[2], torch::float32, "cuda")?];
/// let callables = [Graphable::with_backward(&square, &slope)];
/// let mut graphed = make_graphed_callables(&callables, &[&sample], None, None)?;
///
/// let argument = torch::full(&[2], 3.0, torch::float32, "cuda")?;
/// assert_eq!(graphed[0].call(&[argument])?[0].to_vec::<f32>()?, [9.0, 9.0]);
/// let gradients = graphed[0].backward(&[torch::ones(&[2], torch::float32, "cuda")?])?;
/// assert_eq!(gradients[0].as_ref().unwrap().to_vec::<f32>()?, [6.0, 6.0]);
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// As for [`GraphedTensors::make`].
pub fn make_graphed_callables(
    callables: &[Graphable<'_>],
    sample_args: &[&[Tensor]],
    num_warmup_iters: impl Into<Option<usize>>,
    pool: impl Into<Option<PoolId>>,
) -> aten_cuda::Result<Vec<GraphedTensors>> {
    let usual = GraphedOptions::default();
    let num_warmup_iters = num_warmup_iters.into().unwrap_or(usual.num_warmup_iters);
    GraphedTensors::make(callables, sample_args, &GraphedOptions { num_warmup_iters, pool: pool.into() })
}

/// A new name for a memory pool that graphs can share. Calls nothing.
#[must_use]
#[doc(alias = "_graph_pool_handle")]
pub fn graph_pool_handle() -> PoolId {
    PoolId::handle()
}

/// Whether the current stream takes part in a capture. Creates no context.
///
/// # Errors
/// The driver's error.
#[doc(alias = "_cuda_isCurrentStreamCapturing")]
pub fn is_current_stream_capturing() -> Result<bool> {
    Runtime::current().streams().is_current_capturing()
}
