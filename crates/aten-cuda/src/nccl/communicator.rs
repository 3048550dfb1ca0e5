//! Communicators: one rank of several that work together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use c10_core::{DeviceArg, DeviceIndex, MemoryAccess, Runtime, Stream};

use super::asked::{Asked, Rank};
use super::group::{group, hold, join_later};
use super::library::{self, Handle, Newcomer};
use super::looks::Looks;
use super::{ReduceOp, UniqueId, unique_id};
use crate::base::error::Result;
use crate::base::nccl_error::NcclError;
use crate::tensor::Tensor;

/// How a communicator is made.
///
/// ```
/// use std::time::Duration;
///
/// let patient = aten_cuda::nccl::Options::default();
/// assert_eq!(patient.timeout, Duration::from_secs(600));
/// assert_eq!(patient.with_timeout(Duration::from_secs(5)).timeout, Duration::from_secs(5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// How long the ranks may take to come together, and a call to be queued; ten minutes, as torch has it.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(600) }
    }
}

impl Options {
    /// The same with another time.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout }
    }
}

/// One rank of several that work together (`ncclComm_t`). Clones are the same rank.
///
/// Work is queued on the current stream of the rank's device, after what is queued there; a call returns before it is done.
/// Every rank has to ask for the same, in the same order. Tensors are contiguous and on the rank's device; they are kept
/// until the stream is done with them, as those of any operation. Inside of a capture the work becomes a node of the graph.
///
/// No call waits for other ranks for longer than [`Options::timeout`]. Dropping the last clone aborts what is under way.
///
/// ```
/// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
/// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
/// use aten_cuda::nccl::{self, Communicator, ReduceOp};
/// use aten_cuda::{DType, Tensor};
///
/// let comms = Communicator::init_all(&[0, 1])?;
/// let parts = [Tensor::full(&[3], 1, DType::F32, "cuda:0")?, Tensor::full(&[3], 2, DType::F32, "cuda:1")?];
/// nccl::group(|| comms.iter().zip(&parts).try_for_each(|(comm, part)| comm.all_reduce(part, part, ReduceOp::Sum)))?;
/// assert_eq!(parts[1].to_vec::<f32>()?, [3.0; 3]);
/// # Ok::<(), aten_cuda::Error>(())
/// ```
#[derive(Clone)]
pub struct Communicator(pub(super) Arc<Handle>);

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Communicator {
    /// Joins the ranks that have the same identity (`ncclCommInitRank`, `torch.cuda.nccl.init_rank`): waits until all
    /// `ranks` of them have come, each in a thread or process of its own, or with others in one [`group`].
    ///
    /// ```
    /// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default());
    /// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
    /// use aten_cuda::nccl::{self, Communicator, Options};
    ///
    /// let alone = Communicator::init_rank(1, &nccl::unique_id()?, 0, 0, &Options::default())?;
    /// assert_eq!((alone.rank(), alone.size(), alone.device()), (0, 1, 0));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no NCCL or a version before 2.14, no such device or rank, the ranks do not fit each other, or they have not
    /// come in time.
    pub fn init_rank(
        ranks: usize,
        id: &UniqueId,
        rank: usize,
        device: impl DeviceArg,
        options: &Options,
    ) -> Result<Self> {
        if rank >= ranks {
            return Err(NcclError::Rank { name: "rank", rank, ranks }.into());
        }
        let identity = *id.as_bytes();
        let handle = Runtime::with_current(|runtime| {
            let device = device.resolve(runtime)?;
            let new = Newcomer { identity, rank, ranks, device, timeout: options.timeout };
            Handle::join(runtime, library::find(runtime)?, &new)
        })?;
        let made = Self(Arc::new(handle));
        if !join_later(&made.0) {
            made.0.complete("ncclCommInitRankConfig", options.timeout)?;
        }
        Ok(made)
    }

    /// A rank for each of several devices of the process (`ncclCommInitAll`).
    ///
    /// # Errors
    /// As [`Self::init_rank`]; a device is named twice, or none is.
    pub fn init_all<D: DeviceArg + Clone>(devices: &[D]) -> Result<Vec<Self>> {
        let resolve = |device: &D| Runtime::with_current(|runtime| device.clone().resolve(runtime));
        let devices = devices.iter().map(|device| Ok(resolve(device)?)).collect::<Result<Vec<DeviceIndex>>>()?;
        if devices.is_empty() {
            return Err(NcclError::NoInputs.into());
        }
        let twice = devices.iter().enumerate().find(|(index, device)| devices[..*index].contains(device));
        if let Some((_, &device)) = twice {
            return Err(NcclError::SharedDevice { device }.into());
        }
        let id = unique_id()?;
        let join = |(rank, &device)| Self::init_rank(devices.len(), &id, rank, device, &Options::default());
        group(|| devices.iter().enumerate().map(join).collect())
    }

    /// The rank's number (`ncclCommUserRank`).
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// How many ranks there are (`ncclCommCount`).
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.ranks
    }

    /// The rank's device (`ncclCommCuDevice`).
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.0.device
    }

    /// Combines the inputs of all ranks, element by element, and gives each the result (`ncclAllReduce`). Input and output
    /// may be one tensor.
    ///
    /// # Errors
    /// A tensor is on the host or another device, has gaps, another dtype or size; the dtype cannot be combined so; the
    /// communicator has ended or failed; the driver's error.
    pub fn all_reduce(&self, input: &Tensor, output: &Tensor, op: ReduceOp) -> Result<()> {
        self.queue(&Asked::all_reduce(self.at(), input, output, op)?)
    }

    /// Combines the inputs of all ranks, element by element, and gives the result to `root` (`ncclReduce`). Other ranks need
    /// no output; the root's may be left out, or be its input.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], or there is no such root.
    pub fn reduce(&self, input: &Tensor, output: Option<&Tensor>, root: usize, op: ReduceOp) -> Result<()> {
        self.queue(&Asked::reduce(self.at(), input, output, root, op)?)
    }

    /// Gives all ranks the input of `root` (`ncclBroadcast`). Other ranks need no input; where the root has none it is its
    /// output.
    ///
    /// # Errors
    /// As [`Self::all_reduce`], or there is no such root.
    pub fn broadcast(&self, input: Option<&Tensor>, output: &Tensor, root: usize) -> Result<()> {
        self.queue(&Asked::broadcast(self.at(), input, output, root)?)
    }

    /// Gives all ranks the inputs of all, one after another (`ncclAllGather`): the output has [`Self::size`] times as many
    /// elements.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn all_gather(&self, input: &Tensor, output: &Tensor) -> Result<()> {
        self.queue(&Asked::all_gather(self.at(), input, output)?)
    }

    /// Combines the inputs of all ranks, element by element, and gives each its part of the result (`ncclReduceScatter`): the
    /// input has [`Self::size`] times as many elements as the output.
    ///
    /// # Errors
    /// As [`Self::all_reduce`].
    pub fn reduce_scatter(&self, input: &Tensor, output: &Tensor, op: ReduceOp) -> Result<()> {
        self.queue(&Asked::reduce_scatter(self.at(), input, output, op)?)
    }

    /// Sends a tensor to another rank, which receives one of as many elements (`ncclSend`). In both directions at once it
    /// needs a [`group`].
    ///
    /// # Errors
    /// As [`Self::all_reduce`], or there is no such rank.
    pub fn send(&self, tensor: &Tensor, peer: usize) -> Result<()> {
        self.queue(&Asked::send(self.at(), tensor, peer)?)
    }

    /// Receives what another rank sends (`ncclRecv`).
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn recv(&self, tensor: &Tensor, peer: usize) -> Result<()> {
        self.queue(&Asked::recv(self.at(), tensor, peer)?)
    }

    /// What has failed since, on this rank's device or elsewhere (`ncclCommGetAsyncError`). Work that has failed may never
    /// end: [`Self::abort`] ends it. Usable from any thread.
    ///
    /// # Errors
    /// [`NcclError::Failed`] with NCCL's last error; the communicator has ended.
    pub fn async_error(&self) -> Result<()> {
        self.0.asynchronous("work under way").map(drop)
    }

    /// Waits until what is queued on a stream is done, and looks for failures meanwhile: unlike waiting for the stream it
    /// ends where a rank has gone. What is under way stays under way.
    ///
    /// ```
    /// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
    /// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
    /// use std::time::Duration;
    ///
    /// use aten_cuda::nccl::{Communicator, ReduceOp};
    /// use aten_cuda::{DType, Tensor};
    ///
    /// let comms = Communicator::init_all(&[0, 1])?;
    /// let alone = Tensor::ones(&[3], DType::F32, "cuda:0")?;
    /// comms[0].all_reduce(&alone, &alone, ReduceOp::Sum)?;
    /// let stream = c10_core::Runtime::current().streams().current(0)?;
    /// let late = comms[0].wait(&stream, Duration::from_millis(20)).unwrap_err();
    /// assert_eq!(late.to_string(), "work of rank 0 of 2 was not done after 0.02 s");
    /// comms[1].abort()?;
    /// assert!(comms[0].wait(&stream, Duration::from_secs(9)).unwrap_err().to_string().contains("rank 1 was aborted"));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::async_error`]; [`NcclError::TimedOut`]; the driver's error.
    pub fn wait(&self, stream: &Stream, timeout: Duration) -> Result<()> {
        let mut looks = Looks::begin();
        loop {
            let is_done = stream.query()?;
            self.async_error()?;
            if is_done {
                return Ok(());
            }
            if !looks.again(timeout) {
                let what = format!("work of rank {} of {}", self.rank(), self.size());
                return Err(NcclError::TimedOut { what, after: timeout }.into());
            }
        }
    }

    /// Ends the communicator at once, also from another thread (`ncclCommAbort`). Work under way goes on without it, and its
    /// results are not to be used. Other ranks find out, or run out of time. Nothing happens where it has ended already.
    ///
    /// # Errors
    /// NCCL's error; another thread is in a group with it and does not leave that.
    pub fn abort(&self) -> Result<()> {
        self.0.abort()
    }

    /// Waits for the communicator's work and ends it (`ncclCommFinalize`, `ncclCommDestroy`). What is not done in time, or
    /// has failed, is aborted, so that this never hangs.
    ///
    /// # Errors
    /// [`NcclError::TimedOut`]; as [`Self::async_error`].
    pub fn finalize(&self, timeout: Duration) -> Result<()> {
        self.0.finalize(timeout)
    }

    fn at(&self) -> Rank {
        Rank { rank: self.rank(), ranks: self.size(), device: self.device() }
    }

    fn queue(&self, asked: &Asked<'_>) -> Result<()> {
        let goes_on = Runtime::with_current(|runtime| {
            let function = runtime.library_function(asked.symbol())?;
            let written = |access| asked.to.and_then(|tensor| tensor.used(access));
            let read = asked.from.and_then(|tensor| tensor.used(MemoryAccess::Reads("input")));
            let buffers: Vec<_> = written(MemoryAccess::Writes("output")).into_iter().chain(read).collect();
            runtime.queue_by_library(function, self.device(), buffers, |stream| self.0.queue(asked, stream))
        })?;
        if let Some(output) = asked.to {
            output.storage().note_write();
        }
        if !hold(&self.0, [asked.from, asked.to]) && goes_on {
            self.0.complete(asked.symbol(), self.0.timeout)?;
        }
        Ok(())
    }
}
