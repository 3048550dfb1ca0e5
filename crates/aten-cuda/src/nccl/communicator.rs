//! Communicators: one rank of several that work together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use c10_core::{DeviceArg, DeviceIndex, MemoryAccess, Runtime, Stream};

use super::asked::{Asked, Rank};
use super::group::{group, hold, join_later};
use super::library::{self, Connect, Derived, Handle, Newcomer};
use super::looks::Looks;
use super::options::{Calls, Options};
use super::{ReduceOp, UniqueId, unique_id};
use crate::base::error::Result;
use crate::base::nccl_error::NcclError;
use crate::tensor::Tensor;

/// One rank of several that work together (`ncclComm_t`). Clones are the same rank.
///
/// Work is queued on the current stream of the rank's device, after what is queued there; a call returns before it is done.
/// Every rank has to ask for the same, in the same order. Tensors are contiguous and on the rank's device; they are kept
/// until the stream is done with them, as those of any operation. Inside of a capture the work becomes a node of the graph.
///
/// No call waits for other ranks for longer than [`Options::timeout`], unless calls are [`Calls::Direct`]: those wait in NCCL
/// while it connects ranks for them. Dropping the last clone aborts what is under way.
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
    /// There is no NCCL or a version before 2.14 (2.18 for [`Calls::Direct`]), no such device or rank, the ranks do not fit
    /// each other, or they have not come in time.
    pub fn init_rank(
        ranks: usize,
        id: &UniqueId,
        rank: usize,
        device: impl DeviceArg,
        options: &Options,
    ) -> Result<Self> {
        let connect = match options.calls {
            Calls::Polled => Connect::Polled,
            Calls::Direct => Connect::Split,
        };
        Self::join((rank, ranks), id, device, connect, options)
    }

    fn join(
        (rank, ranks): (usize, usize),
        id: &UniqueId,
        device: impl DeviceArg,
        connect: Connect,
        options: &Options,
    ) -> Result<Self> {
        if rank >= ranks {
            return Err(NcclError::Rank { name: "rank", rank, ranks }.into());
        }
        let identity = *id.as_bytes();
        let handle = Runtime::with_current(|runtime| {
            let device = device.resolve(runtime)?;
            let new = Newcomer { identity, rank, ranks, device, connect };
            Handle::join(runtime, library::find(runtime)?, &new, options)
        })?;
        let made = Self(Arc::new(handle));
        if !join_later(&made.0) {
            made.0.settle()?;
            made.0.begin_calls()?;
            made.0.settle_calls(made.0.timeout)?;
        }
        Ok(made)
    }

    /// Has calls go straight to NCCL from now on, as with [`Calls::Direct`]. For ranks that learn only once they are connected
    /// that all of them ask for it, which they have to within the time; with [`Options::split_share`], so that it can be aborted.
    ///
    /// ```
    /// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default());
    /// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
    /// use aten_cuda::nccl::{self, Communicator, Options};
    ///
    /// let options = Options { split_share: Some(true), ..Options::default() };
    /// let alone = Communicator::init_rank(1, &nccl::unique_id()?, 0, 0, &options)?;
    /// let alone = alone.with_direct_calls(options.timeout)?;
    /// assert_eq!((alone.rank(), alone.size()), (0, 1));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// NCCL is older than 2.18; the ranks have not asked in time; the communicator has ended, is in a [`group`], or was
    /// cloned.
    pub fn with_direct_calls(mut self, timeout: Duration) -> Result<Self> {
        let handle = Arc::get_mut(&mut self.0).ok_or(NcclError::Shared { call: "ncclCommSplit" })?;
        if handle.call_directly() {
            handle.begin_calls()?;
            handle.settle_calls(timeout)?;
        }
        Ok(self)
    }

    /// A rank for each of several devices of the process (`ncclCommInitAll`). Calls are [`Calls::Direct`]: no rank is missing.
    ///
    /// # Errors
    /// As [`Self::init_rank`]; a device is named twice, or none is.
    pub fn init_all<D: DeviceArg + Clone>(devices: &[D]) -> Result<Vec<Self>> {
        Self::init_all_with(devices, &Options::default().with_calls(Calls::Direct))
    }

    /// As [`Self::init_all`], with options of one's own.
    ///
    /// ```
    /// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(2));
    /// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
    /// use aten_cuda::nccl::{Communicator, Options};
    ///
    /// let few = Options { min_ctas: Some(1), max_ctas: Some(2), ..Options::default() };
    /// assert_eq!(Communicator::init_all_with(&[0, 1], &few)?[1].rank(), 1);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::init_all`]; NCCL refuses the options.
    pub fn init_all_with<D: DeviceArg + Clone>(devices: &[D], options: &Options) -> Result<Vec<Self>> {
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
        // All ranks are in one group, so that connecting them may wait.
        let connect = if options.calls == Calls::Direct { Connect::Waiting } else { Connect::Polled };
        let join = |(rank, &device)| Self::join((rank, devices.len()), &id, device, connect, options);
        group(|| devices.iter().enumerate().map(join).collect())
    }

    /// Makes communicators of parts of the ranks (`ncclCommSplit`): one for each colour, in which ranks are numbered by their
    /// keys, those with the same key by their number here. Every rank has to ask; one without a colour gets none. Several
    /// ranks of one thread ask in a [`group`], and know their new numbers when it has ended. Calls are as this one's.
    ///
    /// ```
    /// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(3));
    /// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
    /// use aten_cuda::nccl::{self, Communicator, Options};
    ///
    /// let all = Communicator::init_all(&[0, 1, 2])?;
    /// // The first two ranks in the opposite order.
    /// let split = |rank: usize| all[rank].split((rank < 2).then_some(7), -i32::try_from(rank).unwrap_or(0), &Options::default());
    /// let parts = nccl::group(|| (0..3).map(split).collect::<aten_cuda::Result<Vec<_>>>())?;
    /// let seat = |part: &Option<Communicator>| part.as_ref().map(|part| (part.rank(), part.size()));
    /// assert_eq!(parts.iter().map(seat).collect::<Vec<_>>(), [Some((1, 2)), Some((0, 2)), None]);
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// NCCL is older than 2.18, or refuses the options; the communicator has ended or failed; ranks have not asked in time.
    pub fn split(&self, color: Option<u16>, key: i32, options: &Options) -> Result<Option<Self>> {
        let made = self.derive(Derived::Split(color.map(i32::from), key), options)?;
        Ok(color.map(|_| made))
    }

    /// A communicator of all ranks but some, which may have gone (`ncclCommShrink`). All others have to ask for the same; with
    /// `aborts` work under way is ended first, as it is where a rank has failed. Otherwise as [`Self::split`].
    ///
    /// ```
    /// # let simulated = testkit::SimulatedRuntime::new(testkit::Config::default().devices(3));
    /// # aten_cuda::nccl::set_library(Some(cuda_sim::nccl()));
    /// use aten_cuda::nccl::{self, Communicator, Options};
    ///
    /// let all = Communicator::init_all(&[0, 1, 2])?;
    /// let shrink = |rank: usize| all[rank].shrink(&[1], false, &Options::default());
    /// let left = nccl::group(|| [0, 2].into_iter().map(shrink).collect::<aten_cuda::Result<Vec<_>>>())?;
    /// assert_eq!((left[1].rank(), left[1].size(), left[1].device()), (1, 2, 2));
    /// # Ok::<(), aten_cuda::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::split`], for NCCL before 2.27; no such rank, none at all, or this one.
    pub fn shrink(&self, without: &[usize], aborts: bool, options: &Options) -> Result<Self> {
        let ranks = self.size();
        if let Some(&rank) = without.iter().find(|&&rank| rank >= ranks) {
            return Err(NcclError::Rank { name: "excluded rank", rank, ranks }.into());
        }
        let list = without.iter().map(|&rank| i32::try_from(rank).unwrap_or(i32::MAX)).collect();
        self.derive(Derived::Shrunk(list, aborts), options)
    }

    fn derive(&self, mut derived: Derived, options: &Options) -> Result<Self> {
        let made = Self(Arc::new(self.0.derive(&mut derived, options)?));
        if !join_later(&made.0) {
            made.0.settle()?;
        }
        Ok(made)
    }

    /// The rank's number (`ncclCommUserRank`). That of one which is split off in a group is known when the group has ended.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.rank()
    }

    /// How many ranks there are (`ncclCommCount`).
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.ranks()
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
    /// NCCL's error; another thread is in a group with it and does not leave that. A direct call that waits is interrupted
    /// after a second; where all ranks are of [`Self::init_all`] that needs NCCL 2.28.
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
