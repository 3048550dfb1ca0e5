//! A plan as a CUDA graph, launched at once (`mode="reduce-overhead"`).
//!
//! A graph has fixed addresses. Arguments that have lain at one address in each call, as weights do, are read there; others
//! are copied to memory of the graph's own before each launch. What the graph gives lies in memory that the next launch
//! writes again. All graphs of a function share one pool.
//!
//! **Invariants:** a graph is made only of a plan that writes to no argument and stays on the stream of the call. It is
//! launched only for arguments that lie where it reads them. An argument that has moved once is copied from then on, so that
//! a graph is made anew at most once for each argument. The pool lives as long as the graphs.

use std::ops::Range;

use c10_core::{CUDAGraph, CaptureMode, PoolId, Runtime, Stream};
use smallvec::SmallVec;

use super::layout::Made;
use super::plan::Plan;
use crate::base::error::Result;
use crate::base::shape;
use crate::storage::Storage;
use crate::tensor::Tensor;

/// A program as a CUDA graph.
#[derive(Debug, Default)]
pub(super) enum AsGraph {
    /// Nobody has asked for it.
    #[default]
    Not,
    /// It cannot be one.
    Never(&'static str),
    /// It will be one in the next call. It was one where arguments have moved.
    Seen(Places),
    Is(Box<Graphed>),
}

/// Where each argument has been so far; nothing for one that has moved, or has no address on a device.
#[derive(Debug)]
pub(super) struct Places(SmallVec<[Option<u64>; 8]>);

/// A captured plan.
#[derive(Debug)]
pub(super) struct Graphed {
    graph: CUDAGraph,
    inputs: Vec<Input>,
    /// The memory of each wanted slot.
    pub(super) made: Made,
}

/// How the graph gets an argument.
#[derive(Debug)]
enum Input {
    /// It reads it at this address. The graph keeps the memory alive, so that nothing else comes to lie there.
    There(u64),
    /// It reads a copy. The bytes are what to copy of the memory as a whole, where the elements lie without gaps.
    Copied { own: Tensor, bytes: Option<Range<usize>> },
}

/// The address of the memory that a tensor is a view of.
fn place(tensor: &Tensor) -> Option<u64> {
    tensor.storage().present().map(c10_core::DeviceBuffer::address)
}

impl AsGraph {
    /// That of a program after its first call; it is never one where there is a reason.
    pub(super) fn first(never: Option<&'static str>, arguments: &[&Tensor]) -> Self {
        let seen = || Self::Seen(Places(arguments.iter().map(|tensor| place(tensor)).collect()));
        never.map_or_else(seen, Self::Never)
    }

    /// Why it is no graph.
    pub(super) fn refused(&self) -> Option<&'static str> {
        if let Self::Never(why) = self { Some(why) } else { None }
    }
}

impl Places {
    /// Whether each argument lies elsewhere than it did, or has done so before.
    pub(super) fn moving(&self, arguments: &[&Tensor]) -> SmallVec<[bool; 8]> {
        self.0.iter().zip(arguments).map(|(before, tensor)| before.is_none() || *before != place(tensor)).collect()
    }
}

impl Graphed {
    /// Captures a plan for arguments that lie as these do, on the current stream's side. Those that move are copied.
    pub(super) fn new(plan: &Plan, arguments: &[&Tensor], moves: &[bool], pool: PoolId) -> Result<Self> {
        let mut inputs = Vec::with_capacity(arguments.len());
        for (tensor, moves) in arguments.iter().zip(moves) {
            inputs.push(match place(tensor).filter(|_| !moves) {
                Some(address) => Input::There(address),
                None => Input::copied(tensor)?,
            });
        }
        let storage = |at: usize| Some(inputs.get(at)?.read(arguments.get(at)?).storage());
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
            graph.capture(&stream, Some(pool), CaptureMode::ThreadLocal, || plan.run(&runtime, storage))?
        };
        current.wait_stream(&stream)?;
        Ok(Self { graph, inputs, made })
    }

    /// Whether each argument that is not copied lies where the graph reads it.
    pub(super) fn fits(&self, arguments: &[&Tensor]) -> bool {
        self.inputs.iter().zip(arguments).all(|(input, tensor)| !input.has_moved(tensor))
    }

    /// Where it reads arguments; nothing for those that are copied.
    pub(super) fn places(&self) -> Places {
        let place = |input: &Input| if let Input::There(address) = input { Some(*address) } else { None };
        Places(self.inputs.iter().map(place).collect())
    }

    /// Copies the arguments that move and launches the graph on the current stream.
    pub(super) fn run(&mut self, arguments: &[&Tensor]) -> Result<()> {
        for (input, given) in self.inputs.iter().zip(arguments) {
            input.take(given)?;
        }
        Ok(self.graph.replay()?)
    }
}

impl Input {
    /// Memory of the graph's own for an argument, which lies in it as the argument does.
    fn copied(argument: &Tensor) -> Result<Self> {
        let (start, extent) = (argument.byte_offset(), argument.byte_extent());
        let own = argument.over(Storage::new(start + extent, argument.device())?);
        let is_dense = shape::is_non_overlapping_and_dense(argument.sizes(), argument.strides());
        Ok(Self::Copied { own, bytes: is_dense.then(|| start..start + extent) })
    }

    /// What the graph reads for an argument.
    fn read<'a>(&'a self, argument: &'a Tensor) -> &'a Tensor {
        match self {
            Self::There(_) => argument,
            Self::Copied { own, .. } => own,
        }
    }

    fn has_moved(&self, argument: &Tensor) -> bool {
        match self {
            Self::There(address) => place(argument) != Some(*address),
            Self::Copied { .. } => false,
        }
    }

    /// Has the graph read an argument in its next launch.
    fn take(&self, argument: &Tensor) -> Result<()> {
        let Self::Copied { own, bytes } = self else { return Ok(()) };
        match (bytes, own.storage().present(), argument.storage().present()) {
            (Some(bytes), Some(to), Some(from)) => Ok(to.copy_from_buffer(bytes.start, from, bytes.clone(), None)?),
            _ => own.copy_(argument).map(drop),
        }
    }
}
