//! Collectives of host tensors by way of a store: for barriers and for small values, on any machine.
//!
//! Each rank writes what it called and what it gives under keys of its own, waits until all have done so, compares what they
//! called, and computes its result itself, in the order of the ranks, so that all ranks have the same bits. A thread does so
//! for one collective after the other. What a rank gives to one other has a key for the two.
//!
//! Invariants:
//! - A rank writes its values before its call: whoever sees the call finds the values.
//! - When all have written call `n`, none looks at call `n - 1` any more, and each removes its own keys of that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use aten_cuda::{Device, Tensor};

use super::messages::Messages;
use super::{Backend, Message, Operands, Pending};
use crate::call::{Call, Operation};
use crate::error::{Error, Result};
use crate::reduce::ReduceOp;
use crate::store::Store;

/// How long one waits for the store before looking whether the group was given up.
const SLICE: Duration = Duration::from_millis(100);

/// The longest tensor: what fits into one value of a store.
const BYTES_MAX: usize = 8 << 20;

pub(crate) const NAME: &str = "store";

#[derive(Debug)]
pub(crate) struct StoreBackend {
    jobs: Mutex<Sender<Job>>,
    messages: Messages,
    is_aborted: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Job {
    call: Call,
    operands: Operands,
    progress: Arc<Progress>,
}

/// How far something is that a thread does.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    end: Mutex<Option<End>>,
    ended: Condvar,
}

#[derive(Debug)]
struct End {
    outcome: Result<()>,
    source: Option<usize>,
    took: Duration,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), end: Mutex::default(), ended: Condvar::new() }
    }

    /// It has ended so.
    pub(super) fn end(&self, outcome: Result<()>, source: Option<usize>) {
        let end = End { outcome, source, took: self.begun.elapsed() };
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        self.ended.notify_all();
    }

    fn ask<T>(&self, timeout: Duration, ask: impl FnOnce(&End) -> T) -> Option<T> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.ended.wait_timeout_while(end, timeout, |end| end.is_none());
        ended.unwrap_or_else(PoisonError::into_inner).0.as_ref().map(ask)
    }
}

impl Pending for Progress {
    fn outcome(&self, timeout: Duration) -> Option<Result<()>> {
        self.ask(timeout, |end| end.outcome.clone())
    }

    fn source(&self) -> Option<usize> {
        self.ask(Duration::ZERO, |end| end.source).flatten()
    }

    fn took(&self) -> Result<Option<Duration>> {
        Ok(self.ask(Duration::ZERO, |end| end.took))
    }
}

impl StoreBackend {
    /// A backend whose thread has the store for itself.
    pub(crate) fn new(store: Arc<dyn Store>, rank: usize, size: usize) -> Result<Self> {
        let (jobs, queue) = channel();
        let is_aborted = Arc::new(AtomicBool::new(false));
        let messages = Messages::new(Arc::clone(&store), rank, size, Arc::clone(&is_aborted));
        let ranks = Ranks { store, rank, size, is_aborted: Arc::clone(&is_aborted), written: Vec::new() };
        let spawned = thread::Builder::new().name("dist-store".to_owned()).spawn(move || ranks.work(&queue));
        spawned.map_err(|cause| Error::Argument(format!("no thread for collectives: {cause}")))?;
        Ok(Self { jobs: Mutex::new(jobs), messages, is_aborted })
    }
}

fn check<'t>(tensors: impl Iterator<Item = &'t Tensor>) -> Result<()> {
    let unsupported = |problem: String| Err(Error::Unsupported { backend: NAME, problem });
    for tensor in tensors {
        if tensor.is_cuda() {
            return unsupported(format!("it takes tensors of the host, and this one is on {}", tensor.device()));
        }
        if tensor.nbytes() > BYTES_MAX {
            return unsupported(format!("{} bytes, and {BYTES_MAX} are the most", tensor.nbytes()));
        }
    }
    Ok(())
}

impl Backend for StoreBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> Option<Device> {
        None
    }

    fn begin(&self, call: &Call, operands: Operands) -> Result<Arc<dyn Pending>> {
        check(operands.all())?;
        let progress = Arc::new(Progress::new());
        let job = Job { call: call.clone(), operands, progress: Arc::clone(&progress) };
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.send(job).map_err(|_| Error::Destroyed)?;
        Ok(progress)
    }

    fn exchange(&self, messages: Vec<Message>) -> Result<Vec<Arc<dyn Pending>>> {
        check(messages.iter().map(|message| &message.tensor))?;
        self.messages.begin(messages)
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
    /// This rank's keys of the call before.
    written: Vec<String>,
}

impl Ranks {
    fn work(mut self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            let outcome = self.run(&job);
            job.progress.end(outcome, None);
        }
    }

    fn run(&mut self, job: &Job) -> Result<()> {
        let Job { call, operands, .. } = job;
        let mut written = Vec::new();
        for (key, tensor) in self.gives(call, operands)? {
            self.store.set(&key, &tensor.to_bytes()?)?;
            written.push(key);
        }
        let key = call_key(call.sequence, self.rank);
        self.store.set(&key, call.to_line().as_bytes())?;
        written.push(key);
        self.compare(call)?;
        for key in std::mem::replace(&mut self.written, written) {
            self.store.delete_key(&key)?;
        }
        self.finish(call, operands)
    }

    /// What this rank gives to the others, and under which keys.
    fn gives(&self, call: &Call, operands: &Operands) -> Result<Vec<(String, Tensor)>> {
        let Operands { inputs, .. } = operands;
        let part = |to: usize| part_key(call.sequence, self.rank, to);
        Ok(match call.operation {
            Operation::Barrier | Operation::Send | Operation::Recv => Vec::new(),
            Operation::Broadcast if call.root != Some(self.rank) => Vec::new(),
            Operation::AllReduce
            | Operation::Reduce
            | Operation::Broadcast
            | Operation::AllGather
            | Operation::AllGatherList
            | Operation::Gather => {
                inputs.iter().map(|input| (values_key(call.sequence, self.rank), input.clone())).collect()
            }
            Operation::ReduceScatter => {
                let (whole, count) = (inputs[0].flatten()?, operands.outputs[0].numel());
                let places = (0..self.size).zip(0_i64..);
                places
                    .map(|(to, place)| Ok((part(to), whole.narrow(0, place * count, count)?)))
                    .collect::<Result<_>>()?
            }
            Operation::ReduceScatterList | Operation::Scatter | Operation::AllToAllSingle | Operation::AllToAll => {
                inputs.iter().enumerate().map(|(to, input)| (part(to), input.clone())).collect()
            }
        })
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
        Ok(())
    }

    /// Computes the result where this rank gets one.
    fn finish(&self, call: &Call, operands: &Operands) -> Result<()> {
        let Operands { inputs, outputs } = operands;
        let values = |rank: usize| values_key(call.sequence, rank);
        let part = |from: usize| part_key(call.sequence, from, self.rank);
        match call.operation {
            Operation::Barrier | Operation::Send | Operation::Recv => {}
            Operation::Broadcast | Operation::Reduce if (call.root == Some(self.rank)) == is_broadcast(call) => {}
            Operation::Broadcast => {
                let root = call.root.unwrap_or(0);
                outputs[0].copy_(&self.given(&values(root), root, &outputs[0])?)?;
            }
            Operation::AllReduce | Operation::Reduce => {
                outputs[0].copy_(&self.reduced(call, &values, &inputs[0])?)?;
            }
            Operation::AllGather => {
                let flat = |rank: usize| Ok(self.given(&values(rank), rank, &inputs[0])?.flatten()?);
                let parts: Vec<Tensor> = (0..self.size).map(flat).collect::<Result<_>>()?;
                let whole = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?;
                outputs[0].copy_(&whole.reshape(outputs[0].sizes())?)?;
            }
            Operation::AllGatherList | Operation::Gather => {
                for (rank, output) in outputs.iter().enumerate() {
                    output.copy_(&self.given(&values(rank), rank, output)?)?;
                }
            }
            Operation::ReduceScatter | Operation::ReduceScatterList => {
                outputs[0].copy_(&self.reduced(call, &part, &outputs[0])?)?;
            }
            Operation::Scatter => {
                let root = call.root.unwrap_or(0);
                outputs[0].copy_(&self.given(&part(root), root, &outputs[0])?)?;
            }
            Operation::AllToAllSingle | Operation::AllToAll => {
                for (from, output) in outputs.iter().enumerate() {
                    output.copy_(&self.given(&part(from), from, output)?)?;
                }
            }
        }
        Ok(())
    }

    /// What a rank gave, which is to have as many bytes as a tensor of this rank.
    fn given(&self, key: &str, rank: usize, like: &Tensor) -> Result<Tensor> {
        let bytes = self.store.get(key, SLICE)?;
        if bytes.len() != like.nbytes() {
            let problem = format!("has {} bytes from rank {rank}, and {} were to come", bytes.len(), like.nbytes());
            return Err(Error::Value { key: key.to_owned(), problem });
        }
        Ok(Tensor::from_bytes(&bytes, like.sizes(), like.dtype())?)
    }

    /// What all ranks gave, made one in the order of the ranks.
    fn reduced(&self, call: &Call, keys: &dyn Fn(usize) -> String, like: &Tensor) -> Result<Tensor> {
        let reduce = call.reduce.unwrap_or_default();
        let given = |rank: usize| {
            let values = self.given(&keys(rank), rank, like)?;
            if let ReduceOp::PremulSum(factor) = reduce { Ok(values.mul(factor)?) } else { Ok::<_, Error>(values) }
        };
        let mut whole = given(0)?;
        for rank in 1..self.size {
            let next = given(rank)?;
            whole = match reduce {
                ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum(_) => whole.add(&next)?,
                ReduceOp::Product => whole.mul(&next)?,
                ReduceOp::Min => whole.minimum(&next)?,
                ReduceOp::Max => whole.maximum(&next)?,
                ReduceOp::BAnd => whole.bitwise_and(&next)?,
                ReduceOp::BOr => whole.bitwise_or(&next)?,
                ReduceOp::BXor => whole.bitwise_xor(&next)?,
            };
        }
        Ok(if reduce == ReduceOp::Avg { whole.div(self.size.cast_signed() as i64)? } else { whole })
    }
}

fn is_broadcast(call: &Call) -> bool {
    call.operation == Operation::Broadcast
}

pub(crate) fn call_key(sequence: u64, rank: usize) -> String {
    format!("cuda_dist/call/{sequence}/{rank}")
}

pub(crate) fn values_key(sequence: u64, rank: usize) -> String {
    format!("cuda_dist/values/{sequence}/{rank}")
}

pub(crate) fn part_key(sequence: u64, from: usize, to: usize) -> String {
    format!("cuda_dist/values/{sequence}/{from}/{to}")
}
