//! What all ranks of a group call together.
//!
//! Invariant: what can be seen to be wrong on one rank alone is refused before the call is counted, so that the next one is
//! again the same on all ranks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use aten_cuda::{DType, Tensor};

use super::recorder::Tensors;
use super::work::Shared;
use super::{ProcessGroup, State, Work};
use crate::backend::{Operands, Pending};
use crate::call::{Call, Operation};
use crate::error::{Error, Result};
use crate::reduce::ReduceOp;

/// A call that the backend was given.
#[derive(Debug, Default)]
struct Beginning {
    has_begun: AtomicBool,
}

impl Pending for Beginning {
    fn outcome(&self, _timeout: Duration) -> Option<Result<()>> {
        self.has_begun.load(Ordering::Acquire).then_some(Ok(()))
    }
}

impl ProcessGroup {
    /// Numbers a call and begins it.
    fn begin(&self, mut call: Call, operands: Operands) -> Result<Work> {
        self.check_given_up()?;
        if let (Some(op), Some(tensor)) = (call.reduce, operands.all().next())
            && let Some(problem) = op.problem(tensor.dtype())
        {
            return Err(Error::Argument(problem));
        }
        call.sequence = self.inner.state().called + 1;
        let gives = call.root.is_none_or(|root| root == self.rank()) || call.operation == Operation::Reduce;
        if gives {
            self.check_numbers(&call, &operands.inputs)?;
        }
        let _turn = self.inner.turn.lock().unwrap_or_else(PoisonError::into_inner);
        call.sequence = self.inner.state().called + 1;
        let begun = self.watched(&call, || self.inner.backend.begin(&call, operands.clone()));
        let mut state = self.inner.state();
        state.beginning = None;
        let pending = begun?;
        state.called += 1;
        state.last = Some(call.clone());
        let number = self.record(&state, &call, &operands);
        let shared = Arc::new(self.shared(call, number, pending));
        state.under_way.push_back(Arc::clone(&shared));
        drop(state);
        Ok(self.hand_out(shared))
    }

    /// Gives the backend a call while the watch-dog looks at it as at one that is under way. Whoever did so forgets it under
    /// the lock of the state, with what became of it.
    pub(super) fn watched<T>(&self, call: &Call, begin: impl FnOnce() -> Result<T>) -> Result<T> {
        let beginning = Arc::new(Beginning::default());
        let watched = Arc::new(self.shared(call.clone(), 0, Arc::<Beginning>::clone(&beginning)));
        self.inner.state().beginning = Some(Arc::clone(&watched));
        let begun = begin();
        if begun.is_err() && watched.begun.elapsed() >= self.inner.timeout {
            self.await_verdict(&watched);
        }
        beginning.has_begun.store(true, Ordering::Release);
        // A backend that was aborted meanwhile has nothing to say, and the watch-dog knows who was missing.
        let verdict = || watched.verdict.get().or(self.inner.given_up.get()).cloned();
        begun.map_err(|error| verdict().unwrap_or(error))
    }

    /// Waits for what the watch-dog says of a call that took too long.
    fn await_verdict(&self, watched: &Shared) {
        let begin = Instant::now();
        // The watch-dog looks every moment, and a report has its own time.
        let patience = self.inner.settings.report_time + Duration::from_secs(1);
        while watched.verdict.get().is_none() && begin.elapsed() < patience && !self.inner.is_destroyed() {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Has the flight recorder note a call that has just been counted; its number there.
    pub(super) fn record(&self, state: &State, call: &Call, Operands { inputs, outputs }: &Operands) -> u64 {
        let counts = [state.called, state.messages_called];
        self.inner.recorder.begin(self.inner.member, call, counts, Tensors { inputs, outputs })
    }

    pub(super) fn check_given_up(&self) -> Result<()> {
        self.inner.given_up.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(super) fn shared(&self, call: Call, number: u64, pending: Arc<dyn Pending>) -> Shared {
        Shared {
            rank: self.inner.rank,
            call,
            number,
            begun: Instant::now(),
            pending,
            blocking: self.inner.settings.blocking_wait,
            is_timed: self.inner.settings.enable_timing,
            verdict: OnceLock::new(),
        }
    }

    /// A work for the caller. The group may have been given up since the call was let through.
    pub(super) fn hand_out(&self, shared: Arc<Shared>) -> Work {
        if let Some(error) = self.inner.given_up.get() {
            let _ = shared.verdict.set(error.clone());
        }
        Work { shared }
    }

    /// Looks whether some of the values that this rank gives are NaN, where that is asked for. Not while the current stream
    /// is captured, since the host has to wait.
    pub(super) fn check_numbers(&self, call: &Call, inputs: &[Tensor]) -> Result<()> {
        if !self.inner.settings.nan_check {
            return Ok(());
        }
        for input in inputs.iter().filter(|input| input.numel() > 0 && !input.dtype().is_float8()) {
            let parts = if input.dtype().is_complex() { input.view_as_real()? } else { input.clone() };
            if !parts.dtype().is_floating_point() || is_captured(input)? {
                continue;
            }
            if parts.isnan()?.flatten()?.any((), false)?.to_bools()? == [true] {
                return Err(Error::NotANumber { rank: self.rank(), call: Box::new(call.clone()) });
            }
        }
        Ok(())
    }

    /// A call with a tensor for this rank, and another one or the same for the result.
    fn begin_of(&self, call: Call, input: &Tensor, output: &Tensor) -> Result<Work> {
        self.begin_with(call, input, std::slice::from_ref(input), std::slice::from_ref(output))
    }

    /// A call that is described by one of its tensors.
    fn begin_with(&self, call: Call, like: &Tensor, inputs: &[Tensor], outputs: &[Tensor]) -> Result<Work> {
        let call = call.of(like.dtype(), like.sizes());
        self.begin(call, Operands { inputs: inputs.to_vec(), outputs: outputs.to_vec() })
    }

    pub(super) fn check_rank(&self, rank: usize) -> Result<()> {
        if rank >= self.inner.size {
            return Err(Error::Argument(format!("rank {rank} is none of the {} of the group", self.inner.size)));
        }
        Ok(())
    }

    fn check_whole(&self, part: &Tensor, whole: &Tensor) -> Result<()> {
        let wanted = part.numel() * self.inner.size.cast_signed() as i64;
        if whole.numel() != wanted || whole.dtype() != part.dtype() {
            return Err(Error::Argument(format!(
                "{} elements of {} for {} ranks are {wanted} elements, not {} of {}",
                part.numel(),
                part.dtype(),
                self.inner.size,
                whole.numel(),
                whole.dtype()
            )));
        }
        Ok(())
    }

    /// A tensor for each rank, and each of the same kind as one.
    fn check_list(&self, like: &Tensor, tensors: &[Tensor]) -> Result<()> {
        self.check_count(tensors)?;
        for (rank, tensor) in tensors.iter().enumerate() {
            if tensor.numel() != like.numel() || tensor.dtype() != like.dtype() {
                return Err(Error::Argument(format!(
                    "the tensor for rank {rank} has {} elements of {}, and {} of {} are wanted",
                    tensor.numel(),
                    tensor.dtype(),
                    like.numel(),
                    like.dtype()
                )));
            }
        }
        Ok(())
    }

    fn check_count(&self, tensors: &[Tensor]) -> Result<()> {
        if tensors.len() == self.inner.size {
            return Ok(());
        }
        Err(Error::Argument(format!("{} tensors for {} ranks: each has one", tensors.len(), self.inner.size)))
    }

    /// Every rank gets the values of all, made one, in place.
    ///
    /// # Errors
    /// The dtype cannot be made one so, the backend does not take the tensor, or the group was given up.
    pub fn all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<Work> {
        self.begin_of(Call::new(Operation::AllReduce).reduced(op), tensor, tensor)
    }

    /// Rank `root` gets the values of all, made one, in place; those of the others stay as they are.
    ///
    /// # Errors
    /// There is no such rank, the dtype cannot be made one so, the backend does not take the tensor, or the group was given
    /// up.
    pub fn reduce(&self, tensor: &Tensor, root: usize, op: ReduceOp) -> Result<Work> {
        self.check_rank(root)?;
        self.begin_of(Call::new(Operation::Reduce).reduced(op).rooted(root), tensor, tensor)
    }

    /// Every rank gets the values of rank `root`, in place.
    ///
    /// # Errors
    /// There is no such rank, the backend does not take the tensor, or the group was given up.
    pub fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Work> {
        self.check_rank(root)?;
        self.begin_of(Call::new(Operation::Broadcast).rooted(root), tensor, tensor)
    }

    /// Every rank gets the values of all, one after another in the order of the ranks. `output` has as many elements as all
    /// inputs together.
    ///
    /// # Errors
    /// The sizes do not fit, the backend does not take the tensors, or the group was given up.
    pub fn all_gather_into_tensor(&self, output: &Tensor, input: &Tensor) -> Result<Work> {
        self.check_whole(input, output)?;
        self.begin_of(Call::new(Operation::AllGather), input, output)
    }

    /// Every rank gets its part of the values of all, made one. `input` has as many elements as all outputs together.
    ///
    /// # Errors
    /// The sizes do not fit, the dtype cannot be made one so, the backend does not take the tensors, or the group was given
    /// up.
    pub fn reduce_scatter_tensor(&self, output: &Tensor, input: &Tensor, op: ReduceOp) -> Result<Work> {
        self.check_whole(output, input)?;
        self.begin_of(Call::new(Operation::ReduceScatter).reduced(op), input, output)
    }

    /// Every rank gets the values of all, in a tensor for each rank, of as many elements as its own.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::{DType, Tensor};
    /// use cuda_dist::{HashStore, InitOptions, ProcessGroup};
    ///
    /// let group = ProcessGroup::with_store(std::sync::Arc::new(HashStore::new()), 0, 1, &InitOptions::default())?;
    /// let gathered = [Tensor::zeros(&[2], DType::F32, "cpu")?];
    /// group.all_gather(&gathered, &Tensor::from_slice(&[1.0_f32, 2.0], &[2])?)?.wait()?;
    /// assert_eq!(gathered[0].to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is not one tensor for each rank, the sizes do not fit, the backend does not take the tensors, or the group was
    /// given up.
    pub fn all_gather(&self, outputs: &[Tensor], input: &Tensor) -> Result<Work> {
        self.check_list(input, outputs)?;
        self.begin_with(Call::new(Operation::AllGatherList), input, std::slice::from_ref(input), outputs)
    }

    /// Every rank gets what all have for it, made one. `inputs` has a tensor for each rank.
    ///
    /// # Errors
    /// As [`Self::all_gather`]; the dtype cannot be made one so.
    pub fn reduce_scatter(&self, output: &Tensor, inputs: &[Tensor], op: ReduceOp) -> Result<Work> {
        self.check_list(output, inputs)?;
        let call = Call::new(Operation::ReduceScatterList).reduced(op);
        self.begin_with(call, output, inputs, std::slice::from_ref(output))
    }

    /// Rank `root` gets the values of all, in a tensor for each rank; the others have no outputs.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::{DType, Tensor};
    /// use cuda_dist::{HashStore, InitOptions, ProcessGroup};
    ///
    /// let group = ProcessGroup::with_store(std::sync::Arc::new(HashStore::new()), 0, 1, &InitOptions::default())?;
    /// let own = Tensor::from_slice(&[7_i64], &[1])?;
    /// let gathered = [Tensor::zeros(&[1], DType::I64, "cpu")?];
    /// group.gather(&own, Some(&gathered), 0)?.wait()?;
    /// assert_eq!(gathered[0].to_vec::<i64>()?, [7]);
    /// assert!(group.gather(&own, None, 0).is_err(), "rank 0 has the outputs");
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no such rank; the root has no outputs, or another rank has; or as [`Self::all_gather`].
    pub fn gather(&self, input: &Tensor, outputs: Option<&[Tensor]>, root: usize) -> Result<Work> {
        self.check_rank(root)?;
        let outputs = self.lists_of_root("outputs", outputs, root)?;
        if self.rank() == root {
            self.check_list(input, outputs)?;
        }
        self.begin_with(Call::new(Operation::Gather).rooted(root), input, std::slice::from_ref(input), outputs)
    }

    /// Every rank gets what rank `root` has for it; the others have no inputs.
    ///
    /// # Errors
    /// There is no such rank; the root has no inputs, or another rank has; or as [`Self::all_gather`].
    pub fn scatter(&self, output: &Tensor, inputs: Option<&[Tensor]>, root: usize) -> Result<Work> {
        self.check_rank(root)?;
        let inputs = self.lists_of_root("inputs", inputs, root)?;
        if self.rank() == root {
            self.check_list(output, inputs)?;
        }
        self.begin_with(Call::new(Operation::Scatter).rooted(root), output, inputs, std::slice::from_ref(output))
    }

    /// Only the root has a list, and has one.
    fn lists_of_root<'t>(&self, what: &str, list: Option<&'t [Tensor]>, root: usize) -> Result<&'t [Tensor]> {
        match (list, self.rank() == root) {
            (Some(list), true) => Ok(list),
            (None, false) => Ok(&[]),
            (None, true) => Err(Error::Argument(format!("rank {root} is the root, and has no {what}"))),
            (Some(_), false) => {
                Err(Error::Argument(format!("rank {} has {what}, and the root is rank {root}", self.rank())))
            }
        }
    }

    /// Every rank gets from each what that one has for it: `inputs[r]` goes to rank `r`, `outputs[r]` comes from it. What two
    /// ranks exchange has one size, other pairs may have others.
    ///
    /// # Errors
    /// There is not one tensor for each rank, their dtypes differ, the backend does not take them, or the group was given up.
    /// A pair whose sizes differ is an error of the work.
    pub fn all_to_all(&self, outputs: &[Tensor], inputs: &[Tensor]) -> Result<Work> {
        self.check_count(outputs)?;
        self.check_count(inputs)?;
        let own = self.rank();
        let (like, others) = (&inputs[own], inputs.iter().chain(outputs));
        if let Some(other) = others.into_iter().find(|tensor| tensor.dtype() != like.dtype()) {
            let (one, other) = (like.dtype(), other.dtype());
            return Err(Error::Argument(format!("the dtypes are {one} and {other}: all ranks exchange one")));
        }
        if inputs[own].numel() != outputs[own].numel() {
            let (gives, gets) = (inputs[own].numel(), outputs[own].numel());
            return Err(Error::Argument(format!("rank {own} gives itself {gives} elements, and gets {gets}")));
        }
        self.begin_with(Call::new(Operation::AllToAll), like, inputs, outputs)
    }

    /// Every rank gets from each what that one has for it, as parts of one tensor along its first dimension: as long as the
    /// splits say, or equal ones without.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use aten_cuda::{DType, Tensor};
    /// use cuda_dist::{HashStore, InitOptions, ProcessGroup};
    ///
    /// let group = ProcessGroup::with_store(std::sync::Arc::new(HashStore::new()), 0, 1, &InitOptions::default())?;
    /// let (output, input) = (Tensor::zeros(&[2], DType::I64, "cpu")?, Tensor::from_slice(&[3_i64, 4], &[2])?);
    /// group.all_to_all_single(&output, &input, None, None)?.wait()?;
    /// assert_eq!(output.to_vec::<i64>()?, [3, 4]);
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// A tensor has gaps or cannot be split so, the dtypes differ, the backend does not take the tensors, or the group was
    /// given up. A pair whose sizes differ is an error of the work.
    pub fn all_to_all_single(
        &self,
        output: &Tensor,
        input: &Tensor,
        output_splits: Option<&[usize]>,
        input_splits: Option<&[usize]>,
    ) -> Result<Work> {
        if output.dtype() != input.dtype() {
            let (one, other) = (input.dtype(), output.dtype());
            return Err(Error::Argument(format!("the dtypes are {one} and {other}: all ranks exchange one")));
        }
        let inputs = self.parts("input", input, input_splits)?;
        let outputs = self.parts("output", output, output_splits)?;
        let own = self.rank();
        if inputs[own].numel() != outputs[own].numel() {
            let (gives, gets) = (inputs[own].numel(), outputs[own].numel());
            return Err(Error::Argument(format!("rank {own} gives itself {gives} elements, and gets {gets}")));
        }
        self.begin_with(Call::new(Operation::AllToAllSingle), input, &inputs, &outputs)
    }

    /// Views of a tensor, one for each rank.
    fn parts(&self, name: &str, tensor: &Tensor, splits: Option<&[usize]>) -> Result<Vec<Tensor>> {
        let problem = |problem: String| Error::Argument(format!("the {name} {problem}"));
        if !tensor.is_contiguous() || tensor.dim() == 0 {
            return Err(problem("has gaps or no dimensions, and cannot be split".to_owned()));
        }
        let (ranks, length) = (self.inner.size, usize::try_from(tensor.sizes()[0]).unwrap_or(0));
        let lengths = match splits {
            Some(splits) => splits.to_vec(),
            None if length.is_multiple_of(ranks) => vec![length / ranks; ranks],
            None => return Err(problem(format!("has {length} rows, which {ranks} ranks cannot share equally"))),
        };
        let total = lengths.iter().try_fold(0_usize, |total, part| total.checked_add(*part));
        if lengths.len() != ranks || total != Some(length) {
            return Err(problem(format!("has {length} rows for {ranks} ranks, and the splits are {lengths:?}")));
        }
        let mut begin = 0_i64;
        let part = |length: usize| {
            let (at, length) = (begin, length.cast_signed() as i64);
            begin += length;
            Ok(tensor.narrow(0, at, length)?)
        };
        lengths.into_iter().map(part).collect()
    }

    /// Ends when every rank has called it.
    ///
    /// # Errors
    /// The group was given up.
    pub fn barrier(&self) -> Result<Work> {
        self.begin(Call::new(Operation::Barrier), Operands::default())
    }

    /// A tensor where the backend takes tensors.
    pub(super) fn tensor_of(&self, bytes: &[u8], dtype: DType) -> Result<Tensor> {
        let length = (bytes.len() / dtype.itemsize()).cast_signed() as i64;
        let tensor = Tensor::from_bytes(bytes, &[length], dtype)?;
        Ok(match self.device() {
            Some(device) => tensor.to_device(device)?,
            None => tensor,
        })
    }
}

/// Whether the current stream of a tensor's device is captured.
fn is_captured(tensor: &Tensor) -> Result<bool> {
    let Some(device) = tensor.device().index.filter(|_| tensor.is_cuda()) else { return Ok(false) };
    let asked = c10_core::Runtime::with_current(|runtime| runtime.streams().current(device)?.is_capturing());
    asked.map_err(|error| Error::from(aten_cuda::Error::from(error)))
}
