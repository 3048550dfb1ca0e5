//! Collectives by NCCL, on devices.
//!
//! Rank 0 puts NCCL's identity into the store under the key that PyTorch's process group uses, so that ranks of PyTorch join
//! the same communicator. Work runs on a stream of the group's own, after what the caller's current stream holds then.
//!
//! While the current stream is captured, work is a node of its graph instead, and runs there.
//!
//! Invariant: a work's event is recorded behind it on that stream; nothing here waits on the host but for a barrier.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use aten_cuda::nccl::{self, Communicator, Options, UniqueId};
use aten_cuda::{DType, Device, NcclError, Tensor};
use c10_core::{Event, EventOptions, Runtime, Stream};

use super::{Backend, Operands, Pending};
use crate::call::{Call, Operation};
use crate::error::{Error, Result};
use crate::store::{PrefixStore, Store};

/// How long one looks away between two looks at an event.
const PAUSE: Duration = Duration::from_micros(200);

/// PyTorch counts the communicators of a group; this is the first.
const FIRST_COMMUNICATOR: &str = "0";

pub(crate) const NAME: &str = "nccl";

#[derive(Debug)]
pub(crate) struct NcclBackend {
    shared: Arc<Shared>,
    stream: Stream,
    device: Device,
}

/// What works and the backend have in common.
#[derive(Debug)]
struct Shared {
    communicator: Communicator,
    /// Why it failed. A communicator says so once, and later only that it has ended.
    failure: Mutex<Option<Error>>,
}

impl Shared {
    /// Asks the communicator whether it has failed.
    fn check(&self) -> Result<()> {
        // Locked before it is asked, so that nobody hears of the end before the reason is kept.
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        self.communicator.async_error().map_err(|error| first_of(&mut failure, error))
    }

    /// The error of a call, or why the communicator had failed before it.
    fn of_call(&self, error: aten_cuda::Error) -> Error {
        first_of(&mut self.failure.lock().unwrap_or_else(PoisonError::into_inner), error)
    }
}

/// Keeps the first failure. A communicator that has ended is said to have failed so, or has nothing to say where it was
/// aborted: the group knows why.
fn first_of(failure: &mut Option<Error>, error: aten_cuda::Error) -> Error {
    let is =
        |kind: fn(&NcclError) -> bool| if let aten_cuda::Error::Nccl(cause) = &error { kind(cause) } else { false };
    if is(|cause| matches!(cause, NcclError::Ended { .. })) {
        return failure.clone().unwrap_or(Error::Destroyed);
    }
    let is_failure = is(|cause| matches!(cause, NcclError::Failed { .. }));
    let error = Error::from(error);
    if is_failure { failure.get_or_insert(error).clone() } else { error }
}

#[derive(Debug)]
struct OnStream {
    event: Event,
    shared: Arc<Shared>,
    is_barrier: bool,
}

/// A collective that is a node of a graph now.
#[derive(Debug)]
struct Captured;

impl Pending for Captured {
    fn outcome(&self, _timeout: Duration) -> Option<Result<()>> {
        Some(Ok(()))
    }
}

fn of_core(error: c10_core::Error) -> Error {
    Error::from(aten_cuda::Error::from(error))
}

impl NcclBackend {
    /// Joins the ranks that share a store, within the time.
    pub(crate) fn join(
        store: Arc<dyn Store>,
        (rank, size): (usize, usize),
        device: Device,
        timeout: Duration,
    ) -> Result<Self> {
        let store = PrefixStore::new("cuda/", store);
        let id = if rank == 0 {
            let id = nccl::unique_id()?;
            store.set(FIRST_COMMUNICATOR, id.as_bytes())?;
            id
        } else {
            let bytes = store.get(FIRST_COMMUNICATOR, timeout)?;
            let problem = || Error::Value {
                key: "cuda//0".to_owned(),
                problem: format!("has {} bytes, and NCCL's identity has 128", bytes.len()),
            };
            UniqueId::from_bytes(bytes.as_slice().try_into().map_err(|_| problem())?)
        };
        let options = Options::default().with_timeout(timeout);
        let communicator = Communicator::init_rank(size, &id, rank, device, &options)?;
        let stream = Stream::new(device, 0).map_err(of_core)?;
        Ok(Self { shared: Arc::new(Shared { communicator, failure: Mutex::default() }), stream, device })
    }

    fn queue(&self, call: &Call, operands: Option<Operands>) -> aten_cuda::Result<()> {
        let comm = &self.shared.communicator;
        let op = call.reduce.unwrap_or_default();
        let root = call.root.unwrap_or(0);
        let Some(Operands { input, output }) = operands else {
            let one = Tensor::zeros(&[1], DType::F32, self.device)?;
            return comm.all_reduce(&one, &one, nccl::SUM);
        };
        match call.operation {
            Operation::AllReduce | Operation::Barrier => comm.all_reduce(&input, &output, op),
            Operation::Reduce => comm.reduce(&input, Some(&output), root, op),
            Operation::Broadcast => comm.broadcast(None, &output, root),
            Operation::AllGather => comm.all_gather(&input, &output),
            Operation::ReduceScatter => comm.reduce_scatter(&input, &output, op),
        }
    }
}

impl Backend for NcclBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn begin(&self, call: &Call, operands: Option<Operands>) -> Result<Arc<dyn Pending>> {
        for tensor in operands.iter().flat_map(|operands| [&operands.input, &operands.output]) {
            if tensor.device() != self.device {
                let problem =
                    format!("this rank's device is {}, and the tensor is on {}", self.device, tensor.device());
                return Err(Error::Unsupported { backend: NAME, problem });
            }
        }
        let current = Runtime::with_current(|runtime| runtime.streams().current(self.shared.communicator.device()));
        let current = current.map_err(of_core)?;
        if current.is_capturing().map_err(of_core)? {
            // A node of the graph has no end of its own; it is in order where it was called.
            self.queue(call, operands).map_err(|error| self.shared.of_call(error))?;
            return Ok(Arc::new(Captured));
        }
        self.stream.wait_stream(&current).map_err(of_core)?;
        let event = Event::new(EventOptions::default());
        {
            let _on_stream = Runtime::with_current(|runtime| runtime.streams().guard(&self.stream)).map_err(of_core)?;
            self.queue(call, operands).map_err(|error| self.shared.of_call(error))?;
        }
        event.record(&self.stream).map_err(of_core)?;
        let is_barrier = call.operation == Operation::Barrier;
        Ok(Arc::new(OnStream { event, shared: Arc::clone(&self.shared), is_barrier }))
    }

    fn abort(&self) {
        if let Err(error) = self.shared.communicator.abort() {
            tracing::warn!(%error, "a communicator could not be aborted");
        }
    }
}

impl Pending for OnStream {
    fn outcome(&self, timeout: Duration) -> Option<Result<()>> {
        let begin = Instant::now();
        loop {
            let is_done = match self.event.query() {
                Ok(is_done) => is_done,
                Err(error) => return Some(Err(of_core(error))),
            };
            // A communicator that failed ends its work without effect, so that is asked first.
            if let Err(error) = self.shared.check() {
                return Some(Err(error));
            }
            if is_done {
                return Some(Ok(()));
            }
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return None;
            }
            thread::sleep(PAUSE.min(left));
        }
    }

    fn order(&self) -> Result<bool> {
        if self.is_barrier {
            return Ok(false);
        }
        let device = self.shared.communicator.device();
        Runtime::with_current(|runtime| runtime.streams().current(device)?.wait_event(&self.event)).map_err(of_core)?;
        Ok(true)
    }
}
