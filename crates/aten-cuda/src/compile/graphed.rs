//! A plan as a CUDA graph, launched at once (`mode="reduce-overhead"`).
//!
//! A graph has fixed addresses: arguments are copied to memory of its own before each launch, and what it gives lies in
//! memory that the next launch writes again. All graphs of a function share one pool.
//!
//! **Invariants:** a graph is made only of a plan that writes to no argument and stays on the stream of the call. The pool
//! lives as long as the graphs.

use c10_core::{CUDAGraph, CaptureMode, PoolId, Runtime, Stream};

use super::plan::Plan;
use crate::base::error::Result;
use crate::storage::Storage;
use crate::tensor::Tensor;

/// A captured plan.
#[derive(Debug)]
pub(super) struct Graphed {
    graph: CUDAGraph,
    /// What takes the place of each argument.
    inputs: Vec<Tensor>,
    /// The memory of each wanted slot.
    pub(super) made: Vec<Storage>,
}

impl Graphed {
    /// Captures a plan for arguments that lie as these do, on the current stream's side.
    pub(super) fn new(plan: &Plan, arguments: &[&Tensor], pool: PoolId) -> Result<Self> {
        let inputs: Vec<Tensor> = arguments.iter().map(|tensor| standing_for(tensor)).collect::<Result<_>>()?;
        let storages: Vec<Storage> = inputs.iter().map(|tensor| tensor.storage().clone()).collect();
        let device = arguments.iter().find_map(|tensor| tensor.device().index);
        let runtime = Runtime::current();
        let device = device.map_or_else(|| runtime.current_device(), Ok)?;
        let current = runtime.streams().current(device)?;
        let stream = Stream::new(device, 0)?;
        stream.wait_stream(&current)?;
        let mut graph = CUDAGraph::new();
        let made = {
            let _on = stream.guard();
            // What a first run does, such as loading modules, was done when the function was traced. Running it here would
            // draw random numbers, and use indices that nobody has written.
            graph.capture(&stream, Some(pool), CaptureMode::ThreadLocal, || plan.run(&storages))?
        };
        current.wait_stream(&stream)?;
        Ok(Self { graph, inputs, made })
    }

    /// Copies the arguments and launches the graph on the current stream.
    pub(super) fn run(&mut self, arguments: &[&Tensor]) -> Result<()> {
        for (own, given) in self.inputs.iter().zip(arguments) {
            own.copy_(given)?;
        }
        Ok(self.graph.replay()?)
    }
}

/// Memory of its own for an argument, which lies in it as the argument does.
fn standing_for(argument: &Tensor) -> Result<Tensor> {
    let storage = Storage::new(argument.byte_offset() + argument.byte_extent(), argument.device())?;
    Ok(argument.over(storage))
}
