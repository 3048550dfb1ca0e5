//! Collectives of host tensors by way of a store: for barriers and for small values, on any machine.
//!
//! Each rank writes what it called and what it gives under keys of its own, waits until all have done so, compares what they
//! called, and computes its result itself, in the order of the ranks, so that all ranks have the same bits. A thread does so
//! for one collective after the other.
//!
//! Invariants:
//! - A rank writes its values before its call: whoever sees the call finds the values.
//! - When all have written call `n`, none looks at call `n - 1` any more, and each removes its own keys of that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use aten_cuda::Tensor;

use super::{Backend, Operands, Pending};
use crate::call::{Call, Operation, ReduceOp};
use crate::error::{Error, Result};
use crate::store::Store;

/// How long one waits for the store before looking whether the group was given up.
const SLICE: Duration = Duration::from_millis(100);

/// The longest tensor: what fits into one value of a store.
const BYTES_MAX: usize = 8 << 20;

pub(crate) const NAME: &str = "store";

#[derive(Debug)]
pub(crate) struct StoreBackend {
    jobs: Mutex<Sender<Job>>,
    is_aborted: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Job {
    call: Call,
    operands: Option<Operands>,
    progress: Arc<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    outcome: Mutex<Option<Result<()>>>,
    ended: Condvar,
}

impl Pending for Progress {
    fn outcome(&self, timeout: Duration) -> Option<Result<()>> {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.ended.wait_timeout_while(outcome, timeout, |outcome| outcome.is_none());
        ended.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl StoreBackend {
    /// A backend whose thread has the store for itself.
    pub(crate) fn new(store: Arc<dyn Store>, rank: usize, size: usize) -> Result<Self> {
        let (jobs, queue) = channel();
        let is_aborted = Arc::new(AtomicBool::new(false));
        let ranks = Ranks { store, rank, size, is_aborted: Arc::clone(&is_aborted) };
        let spawned = thread::Builder::new().name("dist-store".to_owned()).spawn(move || ranks.work(&queue));
        spawned.map_err(|cause| Error::Argument(format!("no thread for collectives: {cause}")))?;
        Ok(Self { jobs: Mutex::new(jobs), is_aborted })
    }
}

impl Backend for StoreBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn begin(&self, call: &Call, operands: Option<Operands>) -> Result<Arc<dyn Pending>> {
        let unsupported = |problem: String| Err(Error::Unsupported { backend: NAME, problem });
        for tensor in operands.iter().flat_map(|operands| [&operands.input, &operands.output]) {
            if tensor.is_cuda() {
                return unsupported(format!("it takes tensors of the host, and this one is on {}", tensor.device()));
            }
            if tensor.nbytes() > BYTES_MAX {
                return unsupported(format!("{} bytes, and {BYTES_MAX} are the most", tensor.nbytes()));
            }
        }
        let progress = Arc::new(Progress::default());
        let job = Job { call: call.clone(), operands, progress: Arc::clone(&progress) };
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.send(job).map_err(|_| Error::Destroyed)?;
        Ok(progress)
    }

    fn abort(&self) {
        self.is_aborted.store(true, Ordering::Release);
    }
}

impl Drop for StoreBackend {
    fn drop(&mut self) {
        self.abort();
    }
}

/// The ranks as the thread sees them.
struct Ranks {
    store: Arc<dyn Store>,
    rank: usize,
    size: usize,
    is_aborted: Arc<AtomicBool>,
}

impl Ranks {
    fn work(&self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            let outcome = self.run(&job);
            *job.progress.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            job.progress.ended.notify_all();
        }
    }

    fn run(&self, job: &Job) -> Result<()> {
        let call = &job.call;
        let gives = call.root.is_none_or(|root| root == self.rank) || call.operation == Operation::Reduce;
        if let Some(operands) = job.operands.as_ref().filter(|_| gives) {
            self.store.set(&values_key(call.sequence, self.rank), &operands.input.to_bytes()?)?;
        }
        self.store.set(&call_key(call.sequence, self.rank), call.to_line().as_bytes())?;
        self.compare(call)?;
        if let Some(operands) = &job.operands {
            self.finish(call, operands)?;
        }
        Ok(())
    }

    /// Waits until all have called, and compares what they called.
    fn compare(&self, call: &Call) -> Result<()> {
        let keys: Vec<String> = (0..self.size).map(|rank| call_key(call.sequence, rank)).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        loop {
            if self.is_aborted.load(Ordering::Acquire) {
                return Err(Error::Destroyed);
            }
            match self.store.wait(&keys, SLICE) {
                Err(Error::StoreTimeout { .. }) => {}
                other => break other?,
            }
        }
        for (rank, line) in self.store.multi_get(&keys, SLICE)?.iter().enumerate() {
            let line = String::from_utf8_lossy(line);
            let problem = || format!("is '{}', which is no call", line.escape_debug());
            let other = Call::from_line(&line)
                .ok_or_else(|| Error::Value { key: keys[rank].to_owned(), problem: problem() })?;
            if let Some(difference) = call.difference(&other) {
                let (own, other) = (Box::new(call.clone()), Box::new(other));
                return Err(Error::Mismatch { rank: self.rank, own, other_rank: rank, other, difference });
            }
        }
        let before = call.sequence - 1;
        self.store.delete_key(&values_key(before, self.rank))?;
        self.store.delete_key(&call_key(before, self.rank))?;
        Ok(())
    }

    /// Computes the result where this rank gets one.
    fn finish(&self, call: &Call, operands: &Operands) -> Result<()> {
        let (input, output) = (&operands.input, &operands.output);
        match call.operation {
            Operation::Barrier => {}
            Operation::Broadcast => {
                if call.root != Some(self.rank) {
                    output.copy_(&self.given(call, call.root.unwrap_or(0), input)?)?;
                }
            }
            Operation::Reduce if call.root != Some(self.rank) => {}
            Operation::AllReduce | Operation::Reduce => {
                output.copy_(&self.reduced(call, input)?)?;
            }
            Operation::AllGather => {
                let parts: Vec<Tensor> =
                    (0..self.size).map(|rank| Ok(self.given(call, rank, input)?.flatten()?)).collect::<Result<_>>()?;
                let whole = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?;
                output.copy_(&whole.reshape(output.sizes())?)?;
            }
            Operation::ReduceScatter => {
                let whole = self.reduced(call, input)?.flatten()?;
                let begin = self.rank.cast_signed() as i64 * output.numel();
                output.copy_(&whole.narrow(0, begin, output.numel())?.reshape(output.sizes())?)?;
            }
        }
        Ok(())
    }

    /// What a rank gave, which is like this rank's own.
    fn given(&self, call: &Call, rank: usize, like: &Tensor) -> Result<Tensor> {
        let key = values_key(call.sequence, rank);
        let bytes = self.store.get(&key, SLICE)?;
        if bytes.len() != like.nbytes() {
            let problem = format!("has {} bytes, and {} were to come", bytes.len(), like.nbytes());
            return Err(Error::Value { key, problem });
        }
        Ok(Tensor::from_bytes(&bytes, like.sizes(), like.dtype())?)
    }

    /// What all ranks gave, made one in the order of the ranks.
    fn reduced(&self, call: &Call, like: &Tensor) -> Result<Tensor> {
        let reduce = call.reduce.unwrap_or(ReduceOp::Sum);
        let mut whole = self.given(call, 0, like)?;
        for rank in 1..self.size {
            let next = self.given(call, rank, like)?;
            whole = match reduce {
                ReduceOp::Sum | ReduceOp::Avg => whole.add(&next)?,
                ReduceOp::Product => whole.mul(&next)?,
                ReduceOp::Min => whole.minimum(&next)?,
                ReduceOp::Max => whole.maximum(&next)?,
            };
        }
        Ok(if reduce == ReduceOp::Avg { whole.div(self.size.cast_signed() as i64)? } else { whole })
    }
}

fn call_key(sequence: u64, rank: usize) -> String {
    format!("cuda_dist/call/{sequence}/{rank}")
}

fn values_key(sequence: u64, rank: usize) -> String {
    format!("cuda_dist/values/{sequence}/{rank}")
}
