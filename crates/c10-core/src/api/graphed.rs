//! Functions of buffers, captured once and replayed by each call; torch's `make_graphed_callables`.
//!
//! **Invariants:** a callable owns handles of its static buffers, so their addresses are those that its graph was
//! captured with as long as it lives. All callables of one making share one pool, and their replays come one after
//! another whatever streams they are called on. When making fails, nothing that was captured is left.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::buffers::DeviceBuffer;
use crate::api::graph::CUDAGraph;
use crate::api::stream::Stream;
use crate::base::device::DeviceIndex;
use crate::base::error::{GraphedError, Result};
use crate::base::handles::CaptureMode;
use crate::base::ids::PoolId;
use crate::runtime::Runtime;

/// A function of buffers that can be captured. It queues its work on the current stream of the buffers' device and
/// returns the buffers that hold its results.
pub type GraphFn<'a> = dyn Fn(&[DeviceBuffer]) -> Result<Vec<DeviceBuffer>> + 'a;

/// How callables are captured; torch's optional arguments.
///
/// ```
/// use c10_core::{GraphedOptions, PoolId};
///
/// let options = GraphedOptions { pool: Some(PoolId::handle()), ..GraphedOptions::default() };
/// assert_eq!(options.num_warmup_iters, 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphedOptions {
    /// How often each function is run before it is captured.
    pub num_warmup_iters: usize,
    /// Pool to share with other graphs; a new one by default.
    pub pool: Option<PoolId>,
}

impl Default for GraphedOptions {
    fn default() -> Self {
        Self { num_warmup_iters: 3, pool: None }
    }
}

/// A function that was captured. Calling it replays its graph.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, GraphedCallable, GraphedOptions, Result, Runtime};
///
/// let copy = |inputs: &[DeviceBuffer]| -> Result<Vec<DeviceBuffer>> {
///     let output = DeviceBuffer::new(4, None)?;
///     output.copy_from_buffer(0, &inputs[0], .., None)?;
///     Ok(vec![output])
/// };
/// let sample = [DeviceBuffer::new(4, None)?];
/// let mut made = GraphedCallable::make(&Runtime::current(), &[&copy], &[&sample], &GraphedOptions::default())?;
/// let outputs = made[0].call(&[DeviceBuffer::from_slice(b"abcd")?])?;
/// assert_eq!(outputs[0].to_vec()?, b"abcd");
/// # Ok::<(), c10_core::Error>(())
/// ```
pub struct GraphedCallable {
    runtime: Runtime,
    device: DeviceIndex,
    graph: CUDAGraph,
    inputs: Vec<DeviceBuffer>,
    outputs: Vec<DeviceBuffer>,
    /// The stream of the last call of any callable that shares the pool.
    last: Arc<Mutex<Option<Stream>>>,
}

/// The one device of all arguments; the current one when there are none.
fn check_samples(runtime: &Runtime, sample_args: &[&[DeviceBuffer]]) -> Result<DeviceIndex> {
    let mut all = sample_args.iter().flat_map(|inputs| inputs.iter());
    let device = all.next().map_or_else(|| runtime.current_device(), |first| Ok(first.device_index()))?;
    for (callable, inputs) in sample_args.iter().enumerate() {
        for (index, input) in inputs.iter().enumerate() {
            runtime.check_same(input.runtime(), "buffer")?;
            check_device(index, device, input)?;
            let same = |other: &DeviceBuffer| !input.is_empty() && other.address() == input.address();
            if let Some(first) = inputs[..index].iter().position(same) {
                return Err(GraphedError::SameMemory { callable, first, second: index }.into());
            }
        }
    }
    Ok(device)
}

fn check_device(index: usize, expected: DeviceIndex, buffer: &DeviceBuffer) -> Result<()> {
    let found = buffer.device_index();
    if found == expected { Ok(()) } else { Err(GraphedError::Device { index, expected, found }.into()) }
}

impl GraphedCallable {
    /// Captures functions, each with its sample arguments, in this order and with one pool.
    ///
    /// Each function is run `num_warmup_iters` times on a stream of its own, with waiting for the device before and
    /// after, and is then captured. Its sample arguments become the static inputs: calls overwrite what they hold.
    /// Callables that share a pool are to be called in the order they are given in.
    ///
    /// # Errors
    /// Not as many arguments as functions, arguments of several devices or runtimes, one buffer twice among a
    /// function's arguments, what a function returned, or as for [`CUDAGraph::capture`].
    pub fn make(
        runtime: &Runtime,
        callables: &[&GraphFn<'_>],
        sample_args: &[&[DeviceBuffer]],
        options: &GraphedOptions,
    ) -> Result<Vec<Self>> {
        if callables.len() != sample_args.len() {
            let (callables, samples) = (callables.len(), sample_args.len());
            return Err(GraphedError::Samples { callables, samples }.into());
        }
        let device = check_samples(runtime, sample_args)?;
        let _device = runtime.device_guard(device)?;
        runtime.synchronize(device)?;
        let stream = runtime.streams().pooled(device, 0)?;
        {
            let _stream = runtime.streams().guard(&stream)?;
            for (callable, inputs) in callables.iter().zip(sample_args) {
                (0..options.num_warmup_iters).try_for_each(|_| callable(inputs).map(drop))?;
            }
        }
        runtime.synchronize(device)?;
        runtime.memory().empty_cache()?;
        let pool = options.pool.unwrap_or_else(PoolId::handle);
        let last = Arc::default();
        let pairs = callables.iter().zip(sample_args);
        pairs.map(|(callable, inputs)| Self::make_one(runtime, *callable, inputs, &stream, pool, &last)).collect()
    }

    fn make_one(
        runtime: &Runtime,
        callable: &GraphFn<'_>,
        inputs: &[DeviceBuffer],
        stream: &Stream,
        pool: PoolId,
        last: &Arc<Mutex<Option<Stream>>>,
    ) -> Result<Self> {
        let mut graph = CUDAGraph::on(runtime, false);
        let device = stream.device_index();
        let outputs = graph.capture(stream, Some(pool), CaptureMode::Global, || callable(inputs))?;
        for (index, output) in outputs.iter().enumerate() {
            runtime.check_same(output.runtime(), "buffer")?;
            check_device(index, device, output)?;
        }
        Ok(Self { runtime: runtime.clone(), device, graph, inputs: inputs.to_vec(), outputs, last: Arc::clone(last) })
    }

    /// Queues the captured work on the current stream, on these arguments. Returns before it is done.
    ///
    /// An argument is copied into its static input unless it is that buffer itself. The results are in the static
    /// outputs, which are the same buffers each time: the next call overwrites them. A call on another stream than the
    /// last call is ordered after it.
    ///
    /// # Errors
    /// Not as many arguments as when it was captured, one of another size, device or runtime, or the driver's error.
    pub fn call(&mut self, arguments: &[DeviceBuffer]) -> Result<&[DeviceBuffer]> {
        self.check(arguments)?;
        let stream = self.runtime.streams().current(self.device)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|last| **last != stream) {
            stream.wait_stream(last)?;
        }
        // Noted before anything is queued: what follows may fail halfway.
        *last = Some(stream.clone());
        let staged = self.stage(arguments, &stream)?;
        for (input, argument) in self.inputs.iter().zip(&staged) {
            if input.address() != argument.address() {
                input.copy_from_buffer(0, argument, 0..argument.len(), &stream)?;
            }
        }
        let _device = self.runtime.device_guard(self.device)?;
        self.graph.replay()?;
        drop(last);
        Ok(&self.outputs)
    }

    /// The arguments, with copies of those that are another argument's static input and would be overwritten.
    fn stage(&self, arguments: &[DeviceBuffer], stream: &Stream) -> Result<Vec<DeviceBuffer>> {
        let is_static = |argument: &DeviceBuffer| {
            !argument.is_empty() && self.inputs.iter().any(|input| input.address() == argument.address())
        };
        let pairs = arguments.iter().zip(&self.inputs);
        pairs
            .map(|(argument, input)| {
                if argument.address() == input.address() || !is_static(argument) {
                    return Ok(argument.clone());
                }
                let copy = self.runtime.memory().buffer(argument.len(), stream)?;
                copy.copy_from_buffer(0, argument, 0..argument.len(), stream)?;
                Ok(copy)
            })
            .collect()
    }

    fn check(&self, arguments: &[DeviceBuffer]) -> Result<()> {
        let (expected, found) = (self.inputs.len(), arguments.len());
        if expected != found {
            return Err(GraphedError::ArgumentCount { expected, found }.into());
        }
        for (index, (argument, input)) in arguments.iter().zip(&self.inputs).enumerate() {
            self.runtime.check_same(argument.runtime(), "buffer")?;
            check_device(index, self.device, argument)?;
            let (expected, found) = (input.len(), argument.len());
            if expected != found {
                return Err(GraphedError::ArgumentSize { index, expected, found }.into());
            }
        }
        Ok(())
    }

    /// The buffers that the graph reads its arguments from.
    #[must_use]
    pub fn static_inputs(&self) -> &[DeviceBuffer] {
        &self.inputs
    }

    /// The buffers that the graph leaves its results in.
    #[must_use]
    pub fn static_outputs(&self) -> &[DeviceBuffer] {
        &self.outputs
    }

    /// The graph that each call replays.
    #[must_use]
    pub fn graph(&self) -> &CUDAGraph {
        &self.graph
    }
}

impl fmt::Debug for GraphedCallable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        f.debug_struct("GraphedCallable").field("inputs", &inputs).field("outputs", &outputs).finish()
    }
}
