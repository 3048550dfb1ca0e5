//! Collectives by NCCL, on devices.
//!
//! Rank 0 puts NCCL's identity into the store under the key that PyTorch's process group uses, so that ranks of PyTorch join
//! the same communicator. Work runs on a stream of the group's own, after what the caller's current stream holds then.
//!
//! NCCL has sums, copies and messages; what gives each rank something else is messages that begin together, and copies.
//!
//! While the current stream is captured, work is a node of its graph instead, and runs there.
//!
//! Invariant: a work's event is recorded behind it on that stream; nothing here waits on the host but for a barrier, and, where
//! calls are direct, while NCCL connects ranks for a call: the watch-dog looks at the call meanwhile, and aborting ends it.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use aten_cuda::nccl::{self, Communicator, Options, UniqueId};
use aten_cuda::{DType, Device, NcclError, Tensor};
use c10_core::{Event, EventOptions, Runtime, Stream};

use super::{Backend, Message, Operands, Pending};
use crate::call::{Call, Operation};
use crate::error::{Error, Result};
use crate::reduce::ReduceOp;
use crate::settings::Settings;
use crate::store::{PrefixStore, Store};

/// How long one looks away between two looks at an event.
const PAUSE: Duration = Duration::from_micros(200);

/// PyTorch counts the communicators of a group; this is the first.
const FIRST_COMMUNICATOR: &str = "0";

pub(crate) const NAME: &str = "nccl";

/// The first NCCL whose communicators can be split.
const SPLITS: (u32, u32, u32) = (2, 18, 0);

/// The least time for splitting one off: all ranks are there, so that a short time of the group is no reason to give up.
const SPLITTING: Duration = Duration::from_secs(60);

/// The key by which a rank says that its calls can go straight to NCCL, which every rank has to ask for: those of PyTorch do
/// not.
pub(crate) fn direct_key(rank: usize) -> String {
    format!("cuda_dist/{rank}")
}

/// NCCL's version as a text, empty where there is none.
pub(crate) fn version_text() -> String {
    nccl::version().map_or_else(|_| String::new(), |(major, minor, patch)| format!("{major}.{minor}.{patch}"))
}

#[derive(Debug)]
pub(crate) struct NcclBackend {
    shared: Arc<Shared>,
    stream: Stream,
    device: Device,
    is_timed: bool,
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
    /// Before the work, where time is measured.
    begun: Option<Event>,
    event: Event,
    shared: Arc<Shared>,
    is_barrier: bool,
    /// Whose message it is.
    source: Option<usize>,
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
        settings: &Settings,
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
        let is_direct = settings.direct_calls && nccl::version()? >= SPLITS;
        if is_direct {
            // With an answer: what a rank only sets, others may not see yet when all ranks are connected, and then one would
            // have calls go another way than the rest.
            store.compare_set(&direct_key(rank), b"", b"1")?;
        }
        let options = Options::default().with_timeout(settings.nonblocking_timeout.unwrap_or(timeout));
        let options = Options { split_share: is_direct.then_some(true), ..options };
        let mut communicator = Communicator::init_rank(size, &id, rank, device, &options)?;
        // All ranks are connected, so that those that want it have said so.
        let keys: Vec<String> = (0..size).map(direct_key).collect();
        if is_direct && store.check(&keys.iter().map(String::as_str).collect::<Vec<_>>())? {
            communicator = communicator.with_direct_calls(options.timeout.max(SPLITTING))?;
        }
        let stream = Stream::new(device, if settings.high_priority { -1 } else { 0 }).map_err(of_core)?;
        let shared = Arc::new(Shared { communicator, failure: Mutex::default() });
        Ok(Self { shared, stream, device, is_timed: settings.enable_timing })
    }

    /// Queues a collective on the current stream.
    fn queue(&self, call: &Call, operands: &Operands) -> aten_cuda::Result<()> {
        let comm = &self.shared.communicator;
        let op = call.reduce.and_then(ReduceOp::of_nccl).unwrap_or_default();
        let root = call.root.unwrap_or(0);
        let Operands { inputs, outputs } = operands;
        let Some(first) = inputs.first().or(outputs.first()) else {
            let one = Tensor::zeros(&[1], DType::F32, self.device)?;
            return comm.all_reduce(&one, &one, nccl::SUM);
        };
        match call.operation {
            Operation::AllReduce => comm.all_reduce(first, &outputs[0], op),
            Operation::Reduce => comm.reduce(first, Some(&outputs[0]), root, op),
            Operation::Broadcast => comm.broadcast(None, &outputs[0], root),
            Operation::AllGather => comm.all_gather(first, &outputs[0]),
            Operation::ReduceScatter => comm.reduce_scatter(first, &outputs[0], op),
            Operation::AllGatherList => self.all_gather_list(first, outputs),
            Operation::ReduceScatterList => {
                let flat = inputs.iter().map(Tensor::flatten).collect::<aten_cuda::Result<Vec<_>>>()?;
                let whole = Tensor::cat(&flat.iter().collect::<Vec<_>>(), 0)?;
                comm.reduce_scatter(&whole, &outputs[0], op)
            }
            Operation::Gather | Operation::Scatter | Operation::AllToAllSingle | Operation::AllToAll => {
                self.personal(call, operands)
            }
            // These have ways of their own.
            Operation::Barrier | Operation::Send | Operation::Recv => Ok(()),
        }
    }

    /// Gathers into one tensor, and copies from there.
    fn all_gather_list(&self, input: &Tensor, outputs: &[Tensor]) -> aten_cuda::Result<()> {
        let length = input.numel();
        let ranks = outputs.len().cast_signed() as i64;
        let whole = Tensor::empty(&[length * ranks], input.dtype(), self.device)?;
        self.shared.communicator.all_gather(input, &whole)?;
        for (output, place) in outputs.iter().zip(0_i64..) {
            output.copy_(&whole.narrow(0, place * length, length)?.view(output.sizes())?)?;
        }
        Ok(())
    }

    /// Each rank gives another one something else: messages that begin together, and a copy for itself.
    fn personal(&self, call: &Call, Operands { inputs, outputs }: &Operands) -> aten_cuda::Result<()> {
        let comm = &self.shared.communicator;
        let (own, root) = (comm.rank(), call.root.unwrap_or(0));
        let ranks = || (0..comm.size()).filter(move |rank| *rank != own);
        let with = |tensors: &[Tensor]| ranks().map(|rank| (rank, tensors[rank].clone())).collect();
        let root_alone = |tensors: &[Tensor]| vec![(root, tensors[0].clone())];
        // To whom this rank gives something, and from whom it gets something, with the tensors.
        let (gives, gets): (Parcels, Parcels) = match (call.operation, own == root) {
            (Operation::Gather, true) => (Vec::new(), with(outputs)),
            (Operation::Gather, false) => (root_alone(inputs), Vec::new()),
            (Operation::Scatter, true) => (with(inputs), Vec::new()),
            (Operation::Scatter, false) => (Vec::new(), root_alone(outputs)),
            (_, _) => (with(inputs), with(outputs)),
        };
        let has_elements = |(_, tensor): &&(usize, Tensor)| tensor.numel() > 0;
        nccl::group(|| {
            gives.iter().filter(has_elements).try_for_each(|(rank, tensor)| comm.send(tensor, *rank))?;
            gets.iter().filter(has_elements).try_for_each(|(rank, tensor)| comm.recv(tensor, *rank))
        })?;
        // A list of one tensor is that of a rank that gives or gets one.
        let of_own = |tensors: &[Tensor]| tensors.get(own).or(tensors.first()).cloned();
        let is_part = own == root || !matches!(call.operation, Operation::Gather | Operation::Scatter);
        if let (true, Some(input), Some(output)) = (is_part, of_own(inputs), of_own(outputs)) {
            output.copy_(&input)?;
        }
        Ok(())
    }

    /// Runs what queues work on the group's stream, behind the current one, and says when that is done; in place where the
    /// current stream is captured.
    fn on_stream(
        &self,
        (is_barrier, source): (bool, Option<usize>),
        queue: impl FnOnce() -> aten_cuda::Result<()>,
    ) -> Result<Arc<dyn Pending>> {
        let of_call = |error| self.shared.of_call(error);
        let current = Runtime::with_current(|runtime| runtime.streams().current(self.shared.communicator.device()));
        let current = current.map_err(of_core)?;
        if current.is_capturing().map_err(of_core)? {
            // A node of the graph has no end of its own; it is in order where it was called.
            queue().map_err(of_call)?;
            return Ok(Arc::new(Captured));
        }
        self.stream.wait_stream(&current).map_err(of_core)?;
        let options = if self.is_timed { EventOptions::TIMING } else { EventOptions::default() };
        let (begun, event) = (self.is_timed.then(|| Event::new(options)), Event::new(options));
        if let Some(begun) = &begun {
            begun.record(&self.stream).map_err(of_core)?;
        }
        {
            let _on_stream = Runtime::with_current(|runtime| runtime.streams().guard(&self.stream)).map_err(of_core)?;
            queue().map_err(of_call)?;
        }
        event.record(&self.stream).map_err(of_core)?;
        Ok(Arc::new(OnStream { begun, event, shared: Arc::clone(&self.shared), is_barrier, source }))
    }

    fn check<'t>(&self, mut tensors: impl Iterator<Item = &'t Tensor>) -> Result<()> {
        let Some(tensor) = tensors.find(|tensor| tensor.device() != self.device) else { return Ok(()) };
        let problem = format!("this rank's device is {}, and the tensor is on {}", self.device, tensor.device());
        Err(Error::Unsupported { backend: NAME, problem })
    }
}

/// Tensors, each with the rank that it comes from or goes to.
type Parcels = Vec<(usize, Tensor)>;

fn check_message(call: &Call) -> Result<usize> {
    let refused = |problem: &str| Err(Error::Unsupported { backend: NAME, problem: problem.to_owned() });
    match (call.peer, call.tag) {
        (Some(peer), 0) => Ok(peer),
        (Some(_), _) => refused("its messages have no tags: those between two ranks come in their order"),
        (None, _) => refused("it must know which rank a message comes from"),
    }
}

impl Backend for NcclBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> Option<Device> {
        Some(self.device)
    }

    fn begin(&self, call: &Call, operands: Operands) -> Result<Arc<dyn Pending>> {
        self.check(operands.all())?;
        if let Some(op) = call.reduce.filter(|op| op.of_nccl().is_none()) {
            let problem = format!("it has no {op}; the backend 'store' has");
            return Err(Error::Unsupported { backend: NAME, problem });
        }
        self.on_stream((call.operation == Operation::Barrier, None), || self.queue(call, &operands))
    }

    fn exchange(&self, messages: Vec<Message>) -> Result<Vec<Arc<dyn Pending>>> {
        self.check(messages.iter().map(|message| &message.tensor))?;
        let peers = messages.iter().map(|message| check_message(&message.call)).collect::<Result<Vec<_>>>()?;
        let comm = &self.shared.communicator;
        let queue = |(message, peer): (&Message, &usize)| {
            let Message { call, tensor } = message;
            if call.operation == Operation::Send { comm.send(tensor, *peer) } else { comm.recv(tensor, *peer) }
        };
        let source = peers.first().copied();
        let together = || nccl::group(|| messages.iter().zip(&peers).try_for_each(queue));
        let pending = self.on_stream((false, source.filter(|_| peers.len() == 1)), together)?;
        Ok(messages.iter().map(|_| Arc::clone(&pending)).collect())
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

    fn source(&self) -> Option<usize> {
        self.source
    }

    fn took(&self) -> Result<Option<Duration>> {
        let took = |begun: &Event| if self.event.query()? { begun.elapsed(&self.event).map(Some) } else { Ok(None) };
        self.begun.as_ref().map_or(Ok(None), took).map_err(of_core)
    }
}
