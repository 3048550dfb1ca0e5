//! Groups of ranks: collectives, barriers, and their end.
//!
//! Invariants:
//! - A rank's collectives are numbered and begun in one order, under one lock.
//! - A group that was given up begins nothing more, and all its works have ended.

mod watchdog;
mod work;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use aten_cuda::Tensor;

use crate::backend::store::StoreBackend;
use crate::backend::{Backend, Operands};
use crate::call::{Call, Operation, ReduceOp};
use crate::error::{Error, Result};
use crate::rendezvous::{Rendezvous, RendezvousOptions};
use crate::settings::{ErrorHandling, Settings};
use crate::store::Store;
use crate::store::tcp::TcpStoreServer;
pub use work::Work;

/// What moves the values of a group.
///
/// ```
/// assert_eq!(cuda_dist::InitOptions::default().backend, cuda_dist::BackendKind::Store);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendKind {
    /// The store itself: tensors of the host, up to 8 MiB each. For barriers and for small values.
    Store,
}

/// How a group is made: the arguments of torch's `init_process_group`.
///
/// ```
/// use std::time::Duration;
///
/// let options = cuda_dist::InitOptions { timeout: Duration::from_secs(60), ..Default::default() };
/// assert_eq!(options.name, "0");
/// ```
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// What moves the values.
    pub backend: BackendKind,
    /// How long a collective may take: ten minutes, as in torch.
    pub timeout: Duration,
    /// The name of the group, by which its keys are apart from those of others: torch's first group is `0`.
    pub name: String,
    /// How ranks meet.
    pub rendezvous: RendezvousOptions,
    /// What `TORCH_NCCL_*` say; `None` reads the variables of this process.
    pub settings: Option<Settings>,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self {
            backend: BackendKind::Store,
            timeout: Duration::from_secs(600),
            name: "0".to_owned(),
            rendezvous: RendezvousOptions::default(),
            settings: None,
        }
    }
}

/// Ranks that work together: torch's process group.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use std::sync::Arc;
///
/// use aten_cuda::Tensor;
/// use cuda_dist::{HashStore, InitOptions, ProcessGroup, ReduceOp};
///
/// let group = ProcessGroup::with_store(Arc::new(HashStore::new()), 0, 1, &InitOptions::default())?;
/// let tensor = Tensor::from_slice(&[1.0_f32, 2.0], &[2])?;
/// group.all_reduce(&tensor, ReduceOp::Sum)?.wait()?;
/// assert_eq!(tensor.to_vec::<f32>()?, [1.0, 2.0]);
/// group.destroy()?;
/// # Ok::<(), cuda_dist::Error>(())
/// ```
#[derive(Debug)]
pub struct ProcessGroup {
    inner: Arc<Inner>,
    store: Arc<dyn Store>,
    watchdog: Option<thread::JoinHandle<()>>,
    barriers: AtomicU64,
    /// After all that uses it.
    server: Option<TcpStoreServer>,
}

#[derive(Debug)]
struct Inner {
    rank: usize,
    size: usize,
    timeout: Duration,
    settings: Settings,
    backend: Box<dyn Backend>,
    state: Mutex<State>,
    given_up: OnceLock<Error>,
    is_destroyed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// How many collectives were called.
    called: u64,
    /// How many of them have ended.
    completed: u64,
    last: Option<Call>,
    under_way: VecDeque<Arc<work::Shared>>,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_destroyed(&self) -> bool {
        self.is_destroyed.load(Ordering::Acquire)
    }

    /// Ends all that is under way with an error, and lets nothing more begin.
    fn give_up(&self, error: &Error) {
        let under_way: Vec<_> = self.state().under_way.iter().cloned().collect();
        under_way.iter().for_each(|work| drop(work.verdict.set(error.clone())));
        if self.settings.error_handling != ErrorHandling::NoHandling {
            let _ = self.given_up.set(error.clone());
            self.backend.abort();
        }
    }
}

impl ProcessGroup {
    /// Meets the other ranks at `env://`, `tcp://...` or `file://...` ([`Rendezvous::meet`]) and makes a group of all of
    /// them: torch's `init_process_group`.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use cuda_dist::{InitOptions, ProcessGroup};
    ///
    /// let path = std::env::temp_dir().join(format!("cuda-dist-init-{}", std::process::id()));
    /// let url = format!("file://{}?rank=0&world_size=1", path.display());
    /// let group = ProcessGroup::init(&url, &InitOptions::default())?;
    /// group.barrier()?.wait()?;
    /// group.destroy()?;
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Rendezvous::meet`], and a variable `TORCH_NCCL_*` that is none of its values.
    pub fn init(url: &str, options: &InitOptions) -> Result<Self> {
        let met = Rendezvous::meet(url, &options.rendezvous)?;
        let store = met.group_store(&options.name);
        let mut group = Self::with_store(store, met.rank, met.world_size, options)?;
        group.server = met.server;
        Ok(group)
    }

    /// Makes a group of the ranks that share a store, which has no other use.
    ///
    /// # Errors
    /// The rank is none of the group, a variable `TORCH_NCCL_*` is none of its values, or the store is lost.
    pub fn with_store(store: Arc<dyn Store>, rank: usize, size: usize, options: &InitOptions) -> Result<Self> {
        if rank >= size {
            return Err(Error::Argument(format!("rank {rank} of {size}: ranks count from 0")));
        }
        let settings = options.settings.map_or_else(Settings::from_env, Ok)?;
        let backend: Box<dyn Backend> = match options.backend {
            BackendKind::Store => Box::new(StoreBackend::new(store.duplicate()?, rank, size)?),
        };
        let inner = Arc::new(Inner {
            rank,
            size,
            timeout: options.timeout,
            settings,
            backend,
            state: Mutex::default(),
            given_up: OnceLock::new(),
            is_destroyed: AtomicBool::new(false),
        });
        let mut watchdog = watchdog::Watchdog { inner: Arc::clone(&inner), store: store.duplicate()?, beat: 0 };
        // From here on the others can tell a rank that died from one that never came.
        watchdog.write_state(false)?;
        let spawned = thread::Builder::new().name("dist-watchdog".to_owned()).spawn(move || watchdog.watch());
        let watchdog = spawned.map_err(|cause| Error::Argument(format!("no thread for the watch-dog: {cause}")))?;
        Ok(Self { inner, store, watchdog: Some(watchdog), barriers: AtomicU64::new(0), server: None })
    }

    /// The rank of this process in the group.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// The name of what moves the values.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.inner.backend.name()
    }

    /// The part of the store that belongs to this group.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Numbers a call and begins it.
    fn begin(&self, mut call: Call, operands: Option<Operands>) -> Result<Work> {
        if let Some(error) = self.inner.given_up.get() {
            return Err(error.clone());
        }
        let mut state = self.inner.state();
        call.sequence = state.called + 1;
        let pending = self.inner.backend.begin(&call, operands)?;
        state.called += 1;
        state.last = Some(call.clone());
        let shared = Arc::new(work::Shared {
            rank: self.inner.rank,
            call,
            begun: Instant::now(),
            pending,
            verdict: OnceLock::new(),
        });
        state.under_way.push_back(Arc::clone(&shared));
        drop(state);
        // The group may have been given up in between.
        if let Some(error) = self.inner.given_up.get() {
            let _ = shared.verdict.set(error.clone());
        }
        Ok(Work { shared })
    }

    fn begin_of(&self, call: Call, input: &Tensor, output: &Tensor) -> Result<Work> {
        let call = call.of(input.dtype(), input.sizes());
        self.begin(call, Some(Operands { input: input.clone(), output: output.clone() }))
    }

    fn check_root(&self, root: usize) -> Result<()> {
        if root >= self.inner.size {
            return Err(Error::Argument(format!("rank {root} is none of the {} of the group", self.inner.size)));
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

    /// Every rank gets the values of all, made one, in place.
    ///
    /// # Errors
    /// The backend does not take the tensor, or the group was given up.
    pub fn all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<Work> {
        self.begin_of(Call::new(Operation::AllReduce).reduced(op), tensor, tensor)
    }

    /// Rank `root` gets the values of all, made one, in place; those of the others stay as they are.
    ///
    /// # Errors
    /// There is no such rank, the backend does not take the tensor, or the group was given up.
    pub fn reduce(&self, tensor: &Tensor, root: usize, op: ReduceOp) -> Result<Work> {
        self.check_root(root)?;
        self.begin_of(Call::new(Operation::Reduce).reduced(op).rooted(root), tensor, tensor)
    }

    /// Every rank gets the values of rank `root`, in place.
    ///
    /// # Errors
    /// There is no such rank, the backend does not take the tensor, or the group was given up.
    pub fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Work> {
        self.check_root(root)?;
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
    /// The sizes do not fit, the backend does not take the tensors, or the group was given up.
    pub fn reduce_scatter_tensor(&self, output: &Tensor, input: &Tensor, op: ReduceOp) -> Result<Work> {
        self.check_whole(output, input)?;
        self.begin_of(Call::new(Operation::ReduceScatter).reduced(op), input, output)
    }

    /// Ends when every rank has called it.
    ///
    /// # Errors
    /// The group was given up.
    pub fn barrier(&self) -> Result<Work> {
        self.begin(Call::new(Operation::Barrier), None)
    }

    /// Waits until every rank is here, on the host and past the backend, and names those that are not: torch's
    /// `monitored_barrier`. Rank 0 waits for one after the other and names the first that is missing, or all of them with
    /// `wait_all_ranks`; the others hear from it.
    ///
    /// # Errors
    /// Ranks that did not come in time, named; or rank 0 did not.
    pub fn monitored_barrier(&self, timeout: Duration, wait_all_ranks: bool) -> Result<()> {
        let number = self.barriers.fetch_add(1, Ordering::AcqRel);
        let (rank, size) = (self.rank(), self.size());
        let key = |rank: usize| format!("cuda_dist/monitored/{number}/{rank}");
        let ended = format!("cuda_dist/monitored/{number}/ended");
        if rank > 0 {
            self.store.set(&key(rank), b"here")?;
            // Rank 0 may come later, and then has the whole time.
            let said = self.store.get(&ended, timeout * 2).map_err(|error| {
                let Error::StoreTimeout { waited, .. } = error else { return error };
                missing(rank, size, vec![0], waited)
            })?;
            let reason = String::from_utf8_lossy(&said).into_owned();
            return if reason.is_empty() { Ok(()) } else { Err(Error::Aborted { rank, by: 0, reason }) };
        }
        let begin = Instant::now();
        let mut absent = Vec::new();
        for other in 1..size {
            match self.store.wait(&[&key(other)], timeout.saturating_sub(begin.elapsed())) {
                Ok(()) => {}
                Err(Error::StoreTimeout { .. }) => absent.push(other),
                Err(error) => return Err(error),
            }
            if !absent.is_empty() && !wait_all_ranks {
                break;
            }
        }
        let outcome = if absent.is_empty() { Ok(()) } else { Err(missing(rank, size, absent, begin.elapsed())) };
        let said = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
        self.store.set(&ended, said.as_bytes())?;
        outcome
    }

    /// Leaves the group: waits for nothing that is under way, says to the others that this rank has left, and where this
    /// process holds the store, waits up to five seconds until the others have left too.
    ///
    /// # Errors
    /// The store was lost before.
    pub fn destroy(mut self) -> Result<()> {
        self.end();
        if let Some(watchdog) = self.watchdog.take() {
            let _ = watchdog.join();
        }
        let left = self.store.add("cuda_dist/left", 1);
        if self.server.is_none() {
            return left.map(drop);
        }
        let (begin, mut left) = (Instant::now(), left?);
        while left < self.size().cast_signed() as i64 && begin.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(5));
            left = self.store.add("cuda_dist/left", 0)?;
        }
        Ok(())
    }

    fn end(&self) {
        self.inner.is_destroyed.store(true, Ordering::Release);
        let under_way: Vec<_> = self.inner.state().under_way.iter().cloned().collect();
        under_way.iter().for_each(|work| drop(work.verdict.set(Error::Destroyed)));
        self.inner.backend.abort();
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.end();
    }
}

fn missing(rank: usize, world_size: usize, missing: Vec<usize>, waited: Duration) -> Error {
    Error::RanksMissing { rank, world_size, joined: world_size - missing.len(), missing, waited }
}
