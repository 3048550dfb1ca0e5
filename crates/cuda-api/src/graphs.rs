//! CUDA graphs; torch's `torch.cuda.graphs`.

use c10_core::{DeviceBuffer, PoolId, Result, Runtime, Stream};

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

/// Captures what `body` queues. The capture ends on every way out of `body`; after an error or a panic the graph is
/// empty. Where `body` fails with errors of its own, [`CUDAGraph::capture`] does the same.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::{CUDAGraph, DeviceBuffer, GraphOptions, with_graph};
///
/// let buffer = DeviceBuffer::new(1024, None)?;
/// let mut graph = CUDAGraph::new();
/// with_graph(&mut graph, GraphOptions::default(), || buffer.fill(.., 1, None))?;
/// graph.replay()?;
/// cuda_api::synchronize(None)?;
/// assert!(buffer.to_vec()?.iter().all(|&byte| byte == 1));
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// What `body` returned, else as for [`graph()`].
pub fn with_graph<T>(
    cuda_graph: &mut CUDAGraph,
    options: GraphOptions<'_>,
    body: impl FnOnce() -> Result<T>,
) -> Result<T> {
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
///     scope.copy(&result, 0, &between, ..)
/// })?;
/// graph.replay()?;
/// cuda_api::synchronize(None)?;
/// assert!(result.to_vec()?.iter().all(|&byte| byte == 3));
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// What `body` returned, else as for [`graph()`].
pub fn record_graph<T>(
    cuda_graph: &mut CUDAGraph,
    options: GraphOptions<'_>,
    body: impl FnOnce(&CaptureScope<'_>) -> Result<T>,
) -> Result<T> {
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
    body: impl FnMut() -> Result<T>,
) -> Result<CaptureOutcome<T>> {
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

/// Captures functions of buffers, each with its sample arguments, in this order and with one pool. Calling what comes
/// back replays the graph: see [`c10_core::GraphedCallable::make`].
///
/// `num_warmup_iters` is 3 and `pool` a new one by default. What torch does for gradients and for modules has no meaning
/// for buffers.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::{DeviceBuffer, make_graphed_callables};
///
/// let twice = |arguments: &[DeviceBuffer]| {
///     let from = &arguments[0];
///     let to = DeviceBuffer::new(2 * from.len(), None)?;
///     to.copy_from_buffer(0, from, .., None)?;
///     to.copy_from_buffer(from.len(), from, .., None)?;
///     Ok(vec![to])
/// };
/// let sample = [DeviceBuffer::new(4, None)?];
/// let mut callables = make_graphed_callables(&[&twice], &[&sample], None, None)?;
/// let argument = DeviceBuffer::new(4, None)?;
/// argument.copy_from_slice(0, b"abcd")?;
/// assert_eq!(callables[0].call(&[argument])?[0].to_vec()?, b"abcdabcd");
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// As for [`c10_core::GraphedCallable::make`].
pub fn make_graphed_callables(
    callables: &[&GraphFn<'_>],
    sample_args: &[&[DeviceBuffer]],
    num_warmup_iters: impl Into<Option<usize>>,
    pool: impl Into<Option<PoolId>>,
) -> Result<Vec<GraphedCallable>> {
    let usual = GraphedOptions::default();
    let num_warmup_iters = num_warmup_iters.into().unwrap_or(usual.num_warmup_iters);
    let options = GraphedOptions { num_warmup_iters, pool: pool.into() };
    GraphedCallable::make(&Runtime::current(), callables, sample_args, &options)
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
