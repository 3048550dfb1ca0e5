//! Functions of tensors, captured once and replayed by each call (`torch.cuda.make_graphed_callables`).
//!
//! **Invariants:** a callable owns handles of its static tensors, so their addresses are those that its graphs were
//! captured with as long as it lives. Callables that were made together share a pool, and their replays come one after
//! another whatever streams they are called on. When making fails, nothing that was captured is left.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use c10_core::{
    CUDAGraph, CaptureMode, DeviceArg as _, DeviceIndex, DeviceType, GraphedError, GraphedOptions, PoolId, Runtime,
    Stream,
};

use crate::autocast;
use crate::base::amp_error::AmpError;
use crate::base::error::{Error, Result, TensorError, invalid};
use crate::tensor::Tensor;

/// A function of tensors that can be captured. It queues its work on the current stream of their device and returns its
/// results.
pub type ForwardFn<'a> = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'a;

/// The gradients of a function: from what it was given, what it returned and the gradients of that, the gradient for
/// each of its arguments, or none.
pub type BackwardFn<'a> = dyn Fn(&Pass<'_>) -> Result<Vec<Option<Tensor>>> + 'a;

/// What the gradients of a function are computed from.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// The arguments.
    pub inputs: &'a [Tensor],
    /// What the function returned for them.
    pub outputs: &'a [Tensor],
    /// The gradients of those results that are floats or complex numbers, in their order.
    pub grad_outputs: &'a [Tensor],
}

/// What can be captured: a function and, where it has one, the function of its gradients.
#[derive(Clone, Copy)]
pub struct Graphable<'a> {
    forward: &'a ForwardFn<'a>,
    backward: Option<&'a BackwardFn<'a>>,
}

impl<'a> Graphable<'a> {
    /// A function without gradients.
    pub fn new(forward: &'a ForwardFn<'a>) -> Self {
        Self { forward, backward: None }
    }

    /// A function with gradients.
    pub fn with_backward(forward: &'a ForwardFn<'a>, backward: &'a BackwardFn<'a>) -> Self {
        Self { forward, backward: Some(backward) }
    }

    /// Runs the function and, where there is one, that of the gradients, which are ones of no meaning.
    fn warm_up(&self, inputs: &[Tensor]) -> Result<()> {
        let outputs = (self.forward)(inputs)?;
        let Some(backward) = self.backward else { return Ok(()) };
        let grad_outputs = differentiable(&outputs).map(Tensor::ones_like).collect::<Result<Vec<_>>>()?;
        backward(&Pass { inputs, outputs: &outputs, grad_outputs: &grad_outputs }).map(drop)
    }
}

impl fmt::Debug for Graphable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graphable").field("has_backward", &self.backward.is_some()).finish_non_exhaustive()
    }
}

/// Tensors that have gradients.
fn differentiable(tensors: &[Tensor]) -> impl Iterator<Item = &Tensor> {
    tensors.iter().filter(|tensor| tensor.dtype().is_floating_point() || tensor.dtype().is_complex())
}

/// A captured function of tensors. Calling it replays its graph.
pub struct GraphedTensors {
    runtime: Runtime,
    device: DeviceIndex,
    forward: CUDAGraph,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    backward: Option<Backward>,
    /// The stream of the last call of any callable that shares the pool.
    last: Arc<Mutex<Option<Stream>>>,
}

/// The captured gradients.
struct Backward {
    graph: CUDAGraph,
    grad_outputs: Vec<Tensor>,
    grad_inputs: Vec<Option<Tensor>>,
}

impl GraphedTensors {
    /// Captures functions, each with its sample arguments, in this order and with one pool; then the gradients, in the
    /// reverse order.
    ///
    /// Each function is run `num_warmup_iters` times on a stream of its own, with waiting for the device before and
    /// after, and is then captured. Its sample arguments become the static inputs: calls overwrite what they hold.
    /// Callables that share a pool are to be called in the order they are given in, and gradients in the reverse order.
    ///
    /// # Errors
    /// Casts are kept in the region of autocast that this is called in, not as many arguments as functions, arguments of several devices or on the host, one memory twice among a
    /// function's arguments, results on another device, gradients that do not fit the arguments, what a function
    /// returned, or as for [`CUDAGraph::capture`].
    pub fn make(callables: &[Graphable<'_>], sample_args: &[&[Tensor]], options: &GraphedOptions) -> Result<Vec<Self>> {
        let runtime = Runtime::current();
        if autocast::is_autocast_enabled(DeviceType::Cuda)? && autocast::is_autocast_cache_enabled() {
            return Err(AmpError::GraphedWithCache.into());
        }
        if callables.len() != sample_args.len() {
            let (callables, samples) = (callables.len(), sample_args.len());
            return Err(graphed(GraphedError::Samples { callables, samples }));
        }
        let device = device_of(&runtime, sample_args)?;
        let _device = runtime.device_guard(device)?;
        runtime.synchronize(device)?;
        let stream = runtime.streams().pooled(device, 0)?;
        {
            let _stream = runtime.streams().guard(&stream)?;
            for (callable, inputs) in callables.iter().zip(sample_args) {
                (0..options.num_warmup_iters).try_for_each(|_| callable.warm_up(inputs))?;
            }
        }
        runtime.synchronize(device)?;
        runtime.memory().empty_cache()?;
        let making =
            Making { runtime, stream, pool: options.pool.unwrap_or_else(PoolId::handle), last: Arc::default() };
        let pairs = callables.iter().zip(sample_args);
        let mut made = pairs.map(|(callable, inputs)| making.forward(callable, inputs)).collect::<Result<Vec<_>>>()?;
        for (callable, made) in callables.iter().zip(&mut made).rev() {
            made.backward = callable.backward.map(|backward| making.backward(backward, made)).transpose()?;
        }
        Ok(made)
    }

    /// Queues the captured work on the current stream, on these arguments, and returns its results before it is done.
    ///
    /// An argument is copied into its static input unless it is in that memory already. The results are the static
    /// outputs, which are in the same memory each time: the next call overwrites them. A call on another stream than the
    /// last call is ordered after it.
    ///
    /// # Errors
    /// Not as many arguments as when it was captured, one of other sizes, another dtype or device, or the driver's error.
    pub fn call(&mut self, arguments: &[Tensor]) -> Result<Vec<Tensor>> {
        check("argument", arguments, &self.inputs)?;
        let order = Order { runtime: &self.runtime, device: self.device, last: &self.last };
        order.replay(&mut self.forward, arguments, &self.inputs)?;
        Ok(self.outputs.clone())
    }

    /// Queues the captured gradients of the last call on the current stream, and returns them: one for each argument, or
    /// none. They are computed of what the static inputs and outputs hold then, and are themselves in the same memory
    /// each time. There is a gradient to give for each result that is of floats or complex numbers, in their order.
    ///
    /// # Errors
    /// The function was captured without gradients, else as for [`Self::call`].
    pub fn backward(&mut self, grad_outputs: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
        let Some(backward) = &mut self.backward else {
            return Err(invalid("make_graphed_callables: the callable was captured without a backward"));
        };
        check("gradient", grad_outputs, &backward.grad_outputs)?;
        let order = Order { runtime: &self.runtime, device: self.device, last: &self.last };
        order.replay(&mut backward.graph, grad_outputs, &backward.grad_outputs)?;
        Ok(backward.grad_inputs.clone())
    }

    /// The tensors that the graph reads its arguments from.
    #[must_use]
    pub fn static_inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// The tensors that the graph leaves its results in.
    #[must_use]
    pub fn static_outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    /// The tensors that the gradients' graph reads the results' gradients from; none without gradients.
    #[must_use]
    pub fn static_grad_outputs(&self) -> &[Tensor] {
        self.backward.as_ref().map_or(&[], |backward| &backward.grad_outputs)
    }

    /// The graph that each call replays.
    #[must_use]
    pub fn graph(&self) -> &CUDAGraph {
        &self.forward
    }

    /// The graph of the gradients.
    #[must_use]
    pub fn backward_graph(&self) -> Option<&CUDAGraph> {
        self.backward.as_ref().map(|backward| &backward.graph)
    }
}

impl fmt::Debug for GraphedTensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        let has_backward = self.backward.is_some();
        let mut shown = f.debug_struct("GraphedTensors");
        shown.field("inputs", &inputs).field("outputs", &outputs).field("has_backward", &has_backward).finish()
    }
}

/// What the captures of one making have in common.
struct Making {
    runtime: Runtime,
    stream: Stream,
    pool: PoolId,
    last: Arc<Mutex<Option<Stream>>>,
}

impl Making {
    fn capture<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<(CUDAGraph, T)> {
        let mut graph = CUDAGraph::new();
        let made = graph.capture(&self.stream, Some(self.pool), CaptureMode::Global, body)?;
        Ok((graph, made))
    }

    fn forward(&self, callable: &Graphable<'_>, inputs: &[Tensor]) -> Result<GraphedTensors> {
        let device = self.stream.device_index();
        let (forward, outputs) = self.capture(|| (callable.forward)(inputs))?;
        for (index, output) in outputs.iter().enumerate() {
            check_device("result", index, device, output)?;
        }
        let (runtime, inputs, last) = (self.runtime.clone(), inputs.to_vec(), Arc::clone(&self.last));
        Ok(GraphedTensors { runtime, device, forward, inputs, outputs, backward: None, last })
    }

    fn backward(&self, backward: &BackwardFn<'_>, of: &GraphedTensors) -> Result<Backward> {
        let grad_outputs = differentiable(&of.outputs).map(Tensor::zeros_like).collect::<Result<Vec<_>>>()?;
        // They are written on the current stream, and the graph reads them on its own.
        self.runtime.synchronize(of.device)?;
        let pass = Pass { inputs: &of.inputs, outputs: &of.outputs, grad_outputs: &grad_outputs };
        let (graph, grad_inputs) = self.capture(|| backward(&pass))?;
        let (expected, found) = (of.inputs.len(), grad_inputs.len());
        if expected != found {
            return Err(invalid(format!("make_graphed_callables: {found} gradients for {expected} arguments")));
        }
        for (index, (gradient, input)) in grad_inputs.iter().zip(&of.inputs).enumerate() {
            if let Some(gradient) = gradient {
                check_device("gradient", index, of.device, gradient)?;
                check_like("gradient", index, gradient, input)?;
            }
        }
        Ok(Backward { graph, grad_outputs, grad_inputs })
    }
}

/// Where replays are queued, one after another.
struct Order<'a> {
    runtime: &'a Runtime,
    device: DeviceIndex,
    last: &'a Mutex<Option<Stream>>,
}

impl Order<'_> {
    /// Copies what is given to the static tensors and replays a graph.
    fn replay(&self, graph: &mut CUDAGraph, given: &[Tensor], fixed: &[Tensor]) -> Result<()> {
        let _device = self.runtime.device_guard(self.device)?;
        let stream = self.runtime.streams().current(self.device)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|last| **last != stream) {
            stream.wait_stream(last)?;
        }
        // Noted before anything is queued: what follows may fail halfway.
        *last = Some(stream);
        let staged = stage(given, fixed)?;
        for (to, from) in fixed.iter().zip(&staged) {
            if !is_at(from, to) {
                to.copy_(from)?;
            }
        }
        graph.replay()?;
        Ok(())
    }
}

/// What is given, with copies of what is in a static tensor's memory and would be overwritten.
fn stage(given: &[Tensor], fixed: &[Tensor]) -> Result<Vec<Tensor>> {
    let is_static = |tensor: &Tensor| fixed.iter().any(|fixed| fixed.storage().is_same(tensor.storage()));
    let pairs = given.iter().zip(fixed);
    pairs
        .map(|(given, fixed)| if is_at(given, fixed) || !is_static(given) { Ok(given.clone()) } else { given.copy() })
        .collect()
}

/// Whether both are the same elements in the same places.
fn is_at(first: &Tensor, second: &Tensor) -> bool {
    first.data_ptr() == second.data_ptr() && first.strides() == second.strides() && first.signs() == second.signs()
}

/// The one device of all sample arguments; the current one where there are none.
fn device_of(runtime: &Runtime, sample_args: &[&[Tensor]]) -> Result<DeviceIndex> {
    let first = sample_args.iter().flat_map(|inputs| inputs.iter()).next();
    let device = match first.map(Tensor::device) {
        Some(device) => device.index().map_err(Error::from)?.unwrap_or(runtime.current_device()?),
        None => runtime.current_device()?,
    };
    for (callable, inputs) in sample_args.iter().enumerate() {
        for (index, input) in inputs.iter().enumerate() {
            check_device("argument", index, device, input)?;
            let same = |other: &Tensor| input.numel() > 0 && other.storage().is_same(input.storage());
            if let Some(first) = inputs[..index].iter().position(same) {
                return Err(graphed(GraphedError::SameMemory { callable, first, second: index }));
            }
        }
    }
    Ok(device)
}

fn check_device(what: &'static str, index: usize, expected: DeviceIndex, tensor: &Tensor) -> Result<()> {
    if tensor.storage().buffer().is_some_and(|buffer| buffer.device_index() == expected) {
        return Ok(());
    }
    let found = tensor.device();
    Err(invalid(format!("make_graphed_callables: {what} {index} is on {found}, but the graph is on cuda:{expected}")))
}

/// Checks what a call is given against the static tensors.
fn check(what: &'static str, given: &[Tensor], fixed: &[Tensor]) -> Result<()> {
    let (expected, found) = (fixed.len(), given.len());
    if expected != found {
        return Err(graphed(GraphedError::ArgumentCount { expected, found }));
    }
    for (index, (given, fixed)) in given.iter().zip(fixed).enumerate() {
        check_like(what, index, given, fixed)?;
        if given.device() != fixed.device() {
            let (first, second) = (fixed.device().to_string(), given.device().to_string());
            return Err(TensorError::Devices { first, second }.into());
        }
    }
    Ok(())
}

fn check_like(what: &'static str, index: usize, found: &Tensor, expected: &Tensor) -> Result<()> {
    if found.dtype() == expected.dtype() && found.sizes() == expected.sizes() {
        return Ok(());
    }
    Err(TensorError::Graphed {
        what,
        index,
        found: (found.dtype(), found.sizes().to_vec()),
        expected: (expected.dtype(), expected.sizes().to_vec()),
    }
    .into())
}

fn graphed(error: GraphedError) -> Error {
    Error::Runtime(error.into())
}
