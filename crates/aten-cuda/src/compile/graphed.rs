//! A plan as a CUDA graph.
//!
//! A graph has fixed addresses. Arguments that have lain at one address in each call, as weights do, are read there; others
//! are copied to memory of the graph's own before each launch.
//!
//! **Invariants:** a graph is launched only for arguments that lie where it reads them, and writes to no argument that it
//! reads a copy of. An argument that has moved once is copied from then on, so that a graph is made anew at most once for
//! each argument.

use std::ops::Range;
use std::sync::Arc;

use c10_core::{CUDAGraph, CaptureMode, PoolId, Runtime, Stream};
use smallvec::SmallVec;

use super::layout::{Made, Place};
use super::plan::Plan;
use crate::base::error::Result;
use crate::base::shape;
use crate::storage::Storage;
use crate::tensor::Tensor;

/// Where each argument has been so far; nothing for one that has moved, or has no address on a device.
#[derive(Clone, Debug)]
pub(super) struct Places(SmallVec<[Option<u64>; 8]>);

/// A captured plan.
#[derive(Debug)]
pub(super) struct Graphed {
    graph: CUDAGraph,
    plan: Arc<Plan>,
    inputs: Vec<Input>,
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

/// New memory in which elements lie as those of a tensor.
pub(super) fn own_memory(tensor: &Tensor) -> Result<Tensor> {
    tensor.over(Storage::new(tensor.byte_offset() + tensor.byte_extent(), tensor.device())?)
}

impl Places {
    /// Where these arguments lie. `stays` says of each whether it may lie there in the next call as well.
    pub(super) fn of(arguments: &[&Tensor], stays: impl Fn(&Tensor) -> bool) -> Self {
        Self(arguments.iter().map(|tensor| place(tensor).filter(|_| stays(tensor))).collect())
    }

    /// Whether each argument lies elsewhere than it did, or has done so before.
    pub(super) fn moving(&self, arguments: &[&Tensor], stays: impl Fn(&Tensor) -> bool) -> SmallVec<[bool; 8]> {
        let moves =
            |(before, tensor): (&Option<u64>, &&Tensor)| before.is_none() || *before != place(tensor) || !stays(tensor);
        self.0.iter().zip(arguments).map(moves).collect()
    }

    /// Forgets where those were that move.
    pub(super) fn forget(&mut self, moves: &[bool]) {
        self.0.iter_mut().zip(moves).filter(|(_, moves)| **moves).for_each(|(place, _)| *place = None);
    }
}

/// Whether a plan writes to an argument that moves, so that a graph of it would write to a copy.
pub(super) fn writes_what_moves(plan: &Plan, moves: &[bool]) -> bool {
    let is_moving = |place: &Place| matches!(place, Place::Input(at) if moves.get(*at).is_none_or(|moves| *moves));
    plan.written.iter().any(|&slot| is_moving(&plan.layout.places[slot]))
}

/// Whether a plan uses memory of an argument that is not on a device.
pub(super) fn reads_host(plan: &Plan, arguments: &[&Tensor]) -> bool {
    let is_on_host = |at: usize| arguments.get(at).is_none_or(|tensor| place(tensor).is_none());
    plan.layout.places.iter().any(|place| matches!(place, Place::Input(at) if is_on_host(*at)))
}

impl Graphed {
    /// Captures a plan for arguments that lie as these do, on a stream into a pool. Those that move are copied. The answer
    /// has the memory of each wanted slot beside it.
    pub(super) fn new(
        plan: &Arc<Plan>,
        arguments: &[&Tensor],
        moves: &[bool],
        (stream, pool): (&Stream, PoolId),
    ) -> Result<(Self, Made)> {
        let mut inputs = Vec::with_capacity(arguments.len());
        for (tensor, moves) in arguments.iter().zip(moves) {
            inputs.push(match place(tensor).filter(|_| !moves) {
                Some(address) => Input::There(address),
                None => Input::copied(tensor)?,
            });
        }
        let storage = |at: usize| Some(inputs.get(at)?.read(arguments.get(at)?).storage());
        let runtime = Runtime::current();
        let current = runtime.streams().current(stream.device_index())?;
        stream.wait_stream(&current)?;
        let mut graph = CUDAGraph::new();
        let made = {
            let _on = stream.guard();
            // What a first run does, such as loading modules, was done when the function was traced. Running it here would
            // draw random numbers, and use indices that nobody has written.
            graph.capture(stream, Some(pool), CaptureMode::ThreadLocal, || plan.run(&runtime, storage))?
        };
        current.wait_stream(stream)?;
        Ok((Self { graph, plan: Arc::clone(plan), inputs }, made))
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

    /// Copies the arguments that move to where the graph reads them.
    pub(super) fn take(&self, arguments: &[&Tensor]) -> Result<()> {
        self.inputs.iter().zip(arguments).try_for_each(|(input, given)| input.take(given))
    }

    /// Launches the graph on the current stream. `argument` gives the memory of each argument.
    pub(super) fn launch<'a>(&mut self, argument: impl Fn(usize) -> Option<&'a Storage>) -> Result<()> {
        for &slot in &self.plan.written {
            match &self.plan.layout.places[slot] {
                Place::Input(at) => argument(*at).into_iter().for_each(Storage::note_write),
                Place::Captured(storage) => storage.note_write(),
                Place::New { .. } | Place::Arena { .. } | Place::Nowhere => {}
            }
        }
        Ok(self.graph.replay()?)
    }
}

impl Input {
    /// Memory of the graph's own for an argument, which lies in it as the argument does.
    fn copied(argument: &Tensor) -> Result<Self> {
        let (own, start, extent) = (own_memory(argument)?, argument.byte_offset(), argument.byte_extent());
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
