//! Groups of ranks: collectives, barriers, and their end.
//!
//! Invariants:
//! - A rank's collectives are numbered and begun in one order, under one lock.
//! - A group that was given up begins nothing more, and all its works have ended.

mod collectives;
mod messages;
mod objects;
mod recorder;
mod subgroups;
mod watchdog;
mod work;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use aten_cuda::Device;
use c10_core::Runtime;

use crate::backend::Backend;
use crate::backend::nccl::NcclBackend;
use crate::backend::store::StoreBackend;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::rendezvous::{Rendezvous, RendezvousOptions};
use crate::settings::{ErrorHandling, Settings};
use crate::store::Store;
use crate::store::table::number;
use crate::store::tcp::TcpStoreServer;
pub use messages::P2POp;
use recorder::{Member, Recorder};
pub use subgroups::GroupOptions;
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
    /// NCCL: tensors of one device for each rank, on streams.
    Nccl,
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
    /// The device of this rank, for [`BackendKind::Nccl`]: where it is not said, that of the rank's number on its host
    /// (`LOCAL_RANK`) where that is known, or the current one.
    pub device: Option<Device>,
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
            device: None,
            timeout: Duration::from_secs(600),
            name: FIRST_GROUP.to_owned(),
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
    kind: BackendKind,
    barriers: AtomicU64,
    /// How many groups of some of its ranks were made.
    groups: AtomicU64,
    /// After all that uses it.
    server: Option<TcpStoreServer>,
}

#[derive(Debug)]
struct Inner {
    rank: usize,
    size: usize,
    /// The ranks of the members in the first group.
    ranks: Vec<usize>,
    name: String,
    timeout: Duration,
    settings: Settings,
    backend: Box<dyn Backend>,
    /// Held while the backend is given a call, so that it gets them in the order of their numbers. It may wait there for other
    /// ranks, so that the state is not locked meanwhile.
    turn: Mutex<()>,
    state: Mutex<State>,
    /// That of the first group, which those that are made from it share.
    recorder: Arc<Recorder>,
    /// Which of the recorder's groups this is.
    member: usize,
    given_up: OnceLock<Error>,
    is_destroyed: AtomicBool,
    /// Where the watch-dog rests.
    resting: Mutex<()>,
    ending: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many collectives were called.
    called: u64,
    /// How many of them have ended.
    completed: u64,
    last: Option<Call>,
    /// What the backend has been given and has not taken yet.
    beginning: Option<Arc<work::Shared>>,
    /// Collectives, in the order of their calls.
    under_way: VecDeque<Arc<work::Shared>>,
    /// How many messages were begun.
    messages_called: u64,
    /// Messages, in the order of their calls; they end in any.
    messages: Vec<Arc<work::Shared>>,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_destroyed(&self) -> bool {
        self.is_destroyed.load(Ordering::Acquire)
    }

    /// Sleeps, but not longer than the group lives.
    fn rest(&self, time: Duration) {
        let resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_destroyed() {
            drop(self.ending.wait_timeout(resting, time).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Ends all that is under way with an error.
    fn condemn(&self, error: &Error) {
        let under_way: Vec<_> = {
            let state = self.state();
            state.under_way.iter().chain(&state.messages).chain(&state.beginning).cloned().collect()
        };
        under_way.iter().for_each(|work| drop(work.verdict.set(error.clone())));
    }

    /// Ends all that is under way with an error, and lets nothing more begin.
    fn give_up(&self, error: &Error) {
        if self.settings.dump_on_timeout {
            self.dump();
        }
        self.condemn(error);
        if self.settings.error_handling != ErrorHandling::NoHandling {
            let _ = self.given_up.set(error.clone());
            self.backend.abort();
        }
    }

    /// Writes the flight recorder into the file of this rank.
    fn dump(&self) {
        let path = format!("{}{}", self.settings.debug_info_file, self.ranks[self.rank]);
        match self.recorder.write(Path::new(&path)) {
            Ok(()) => tracing::info!(path, "the flight recorder is written"),
            Err(error) => tracing::warn!(path, %error, "the flight recorder cannot be written"),
        }
    }
}

/// Where ranks count themselves that leave.
const LEFT: &str = "cuda_dist/left";

/// The name of torch's first group.
const FIRST_GROUP: &str = "0";

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
        let local = || met.local_rank.and_then(|rank| i32::try_from(rank).ok()).map(Device::cuda);
        let device = options.device.or_else(local);
        let options = InitOptions { device, ..options.clone() };
        let mut group = Self::with_store(store, met.rank, met.world_size, &options)?;
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
        let settings = options.settings.clone().map_or_else(Settings::from_env, Ok)?;
        let recorder = Arc::new(Recorder::new(settings.trace_buffer_size));
        Self::build(store, (rank, (0..size).collect()), options, settings, recorder)
    }

    /// Makes a group of ranks that have these numbers in the first group.
    fn build(
        store: Arc<dyn Store>,
        (rank, ranks): (usize, Vec<usize>),
        options: &InitOptions,
        settings: Settings,
        recorder: Arc<Recorder>,
    ) -> Result<Self> {
        let size = ranks.len();
        let backend: Box<dyn Backend> = match options.backend {
            BackendKind::Store => Box::new(StoreBackend::new(store.duplicate()?, rank, size)?),
            BackendKind::Nccl => {
                let device = options.device.map_or_else(current_device, Ok)?;
                let store = store.duplicate()?;
                Box::new(NcclBackend::join(store, (rank, size), device, options.timeout, &settings)?)
            }
        };
        Self::start(store, (rank, ranks), options, (settings, recorder), backend)
    }

    /// Makes a group whose values a backend moves, and has its watch-dog watch.
    fn start(
        store: Arc<dyn Store>,
        (rank, ranks): (usize, Vec<usize>),
        options: &InitOptions,
        (settings, recorder): (Settings, Arc<Recorder>),
        backend: Box<dyn Backend>,
    ) -> Result<Self> {
        let size = ranks.len();
        let member = recorder.join(Member {
            name: options.name.clone(),
            ranks: ranks.clone(),
            rank,
            backend: backend.name(),
            timeout: options.timeout,
        });
        let inner = Arc::new(Inner {
            rank,
            size,
            ranks,
            name: options.name.clone(),
            timeout: options.timeout,
            settings,
            backend,
            turn: Mutex::default(),
            state: Mutex::default(),
            recorder,
            member,
            given_up: OnceLock::new(),
            is_destroyed: AtomicBool::new(false),
            resting: Mutex::default(),
            ending: Condvar::new(),
        });
        let mut watchdog = watchdog::Watchdog { inner: Arc::clone(&inner), store: store.duplicate()?, beat: 0 };
        // From here on the others can tell a rank that died from one that never came.
        watchdog.write_state(false)?;
        let spawned = thread::Builder::new().name("dist-watchdog".to_owned()).spawn(move || watchdog.watch());
        let watchdog = spawned.map_err(|cause| Error::Argument(format!("no thread for the watch-dog: {cause}")))?;
        Ok(Self {
            inner,
            store,
            watchdog: Some(watchdog),
            kind: options.backend,
            barriers: AtomicU64::new(0),
            groups: AtomicU64::new(0),
            server: None,
        })
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

    /// The device of this rank, where the backend has one.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        self.inner.backend.device()
    }

    /// What this rank called last, and how far that came, as JSON: the flight recorder (torch's `_dump_nccl_trace_json`),
    /// which keeps as many calls as `TORCH_NCCL_TRACE_BUFFER_SIZE` says. It is that of the first group and of all that were
    /// made from it.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use cuda_dist::{HashStore, InitOptions, ProcessGroup};
    ///
    /// let group = ProcessGroup::with_store(std::sync::Arc::new(HashStore::new()), 0, 1, &InitOptions::default())?;
    /// group.barrier()?.wait()?;
    /// assert!(group.flight_record().contains("\"profiling_name\":\"store:barrier\""));
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    #[doc(alias = "_dump_nccl_trace_json")]
    #[must_use]
    pub fn flight_record(&self) -> String {
        self.inner.recorder.to_json()
    }

    /// The same as the pickle that is written when a group is given up, where `TORCH_NCCL_DUMP_ON_TIMEOUT` says so: torch's
    /// `_dump_nccl_trace`. In a file named by the rank it is what `torchfrtrace` reads.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use cuda_dist::{HashStore, InitOptions, ProcessGroup};
    ///
    /// let group = ProcessGroup::with_store(std::sync::Arc::new(HashStore::new()), 0, 1, &InitOptions::default())?;
    /// assert_eq!(group.flight_record_pickle()[..2], [0x80, 2], "the second protocol");
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    #[doc(alias = "_dump_nccl_trace")]
    #[must_use]
    pub fn flight_record_pickle(&self) -> Vec<u8> {
        self.inner.recorder.to_pickle()
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

    /// Leaves the group: waits for nothing that is under way, and says to the others that this rank has left. Where this
    /// process holds the store, and by NCCL on every rank, it waits up to five seconds until the others have left too: the end
    /// of a communicator would reach those that still look whether their work is done.
    ///
    /// # Errors
    /// The store was lost before.
    pub fn destroy(mut self) -> Result<()> {
        let ends_together = self.kind == BackendKind::Nccl && self.inner.given_up.get().is_none();
        let left = if ends_together { Some(self.leave(true)) } else { None };
        self.end();
        if let Some(watchdog) = self.watchdog.take() {
            let _ = watchdog.join();
        }
        let left = left.unwrap_or_else(|| self.leave(self.server.is_some()))?;
        let is_last = left == self.size().cast_signed() as i64;
        if is_last && self.inner.name != FIRST_GROUP { self.tidy() } else { Ok(()) }
    }

    /// Says that this rank leaves, and waits for the others where that is wanted; the how manieth it is.
    fn leave(&self, waits: bool) -> Result<i64> {
        let (begin, own) = (Instant::now(), self.store.add(LEFT, 1)?);
        let all = self.size().cast_signed() as i64;
        let mut left = own;
        while waits && left < all && begin.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(5));
            // The last one of a group of some ranks removes the number.
            if !self.store.check(&[LEFT])? {
                break;
            }
            let said = self.store.get(LEFT, Duration::from_secs(1)).unwrap_or_default();
            left = number(&said).unwrap_or(all);
        }
        Ok(own)
    }

    fn end(&self) {
        {
            let _resting = self.inner.resting.lock().unwrap_or_else(PoisonError::into_inner);
            self.inner.is_destroyed.store(true, Ordering::Release);
        }
        self.inner.ending.notify_all();
        self.inner.condemn(&Error::Destroyed);
        self.inner.backend.abort();
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.end();
    }
}

fn current_device() -> Result<Device> {
    let device = Runtime::with_current(Runtime::current_device).map_err(aten_cuda::Error::from)?;
    Ok(Device::cuda(device))
}

fn missing(rank: usize, world_size: usize, missing: Vec<usize>, waited: Duration) -> Error {
    Error::RanksMissing { rank, world_size, joined: world_size - missing.len(), missing, waited }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use aten_cuda::{DType, Tensor};

    use super::*;
    use crate::backend::{Message, Operands, Pending};
    use crate::store::HashStore;
    use crate::{ErrorHandling, P2POp, ReduceOp};

    /// A backend whose calls wait for ranks that never come, until they are aborted, or give up by themselves.
    #[derive(Debug, Default)]
    struct Waiting {
        is_aborted: Mutex<bool>,
        changed: Condvar,
        /// How often it was aborted.
        aborts: Arc<AtomicUsize>,
        patience: Option<Duration>,
    }

    impl Waiting {
        fn wait(&self) -> Error {
            let is_aborted = self.is_aborted.lock().unwrap();
            let patience = self.patience.unwrap_or(Duration::from_secs(60));
            let (is_aborted, _) =
                self.changed.wait_timeout_while(is_aborted, patience, |is_aborted| !*is_aborted).unwrap();
            if *is_aborted { Error::Destroyed } else { Error::Argument("it took too long".to_owned()) }
        }
    }

    impl Backend for Waiting {
        fn name(&self) -> &'static str {
            "waiting"
        }

        fn device(&self) -> Option<Device> {
            None
        }

        fn begin(&self, _call: &Call, _operands: Operands) -> Result<Arc<dyn Pending>> {
            Err(self.wait())
        }

        fn exchange(&self, _messages: Vec<Message>) -> Result<Vec<Arc<dyn Pending>>> {
            Err(self.wait())
        }

        fn abort(&self) {
            self.aborts.fetch_add(1, Ordering::AcqRel);
            *self.is_aborted.lock().unwrap() = true;
            self.changed.notify_all();
        }
    }

    fn group_of_two(store: &HashStore, backend: Waiting) -> ProcessGroup {
        let settings = Settings {
            beat: Duration::from_millis(20),
            error_handling: ErrorHandling::CleanUpOnly,
            ..Settings::default()
        };
        let options = InitOptions { timeout: Duration::from_millis(300), ..InitOptions::default() };
        let recorder = Arc::new(Recorder::new(4));
        let store = Arc::new(store.clone());
        ProcessGroup::start(store, (0, vec![0, 1]), &options, (settings, recorder), Box::new(backend)).unwrap()
    }

    #[test]
    fn a_call_that_waits_in_the_backend_is_ended_by_the_watch_dog() {
        let tensor = Tensor::zeros(&[3], DType::F32, "cpu").unwrap();
        let begin = |group: &ProcessGroup, is_sum: bool| match is_sum {
            true => group.all_reduce(&tensor, ReduceOp::Sum).map(drop),
            false => group.batch_isend_irecv(&[P2POp::isend(&tensor, 1)]).map(drop),
        };
        // One that would wait for long, and one that gives up a moment before.
        for patience in [None, Some(Duration::from_millis(310))] {
            for (is_sum, name) in
                [(true, "all_reduce #1 of float32 [3] (sum)"), (false, "send #1 of float32 [3] (to rank 1)")]
            {
                let aborts = Arc::<AtomicUsize>::default();
                let backend = Waiting { patience, aborts: Arc::clone(&aborts), ..Waiting::default() };
                let group = group_of_two(&HashStore::new(), backend);
                let begun = Instant::now();
                let error = begin(&group, is_sum).unwrap_err();
                assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
                let Error::Timeout(report) = &error else { panic!("{name}: {error}") };
                assert_eq!((report.missing(), report.call.to_string().as_str()), (vec![1], name));
                assert_eq!(aborts.load(Ordering::Acquire), 1, "{name}");
                assert!(matches!(begin(&group, is_sum), Err(Error::Timeout(_))), "nothing more begins");
            }
        }
    }

    #[test]
    fn others_see_what_a_rank_waits_in_and_that_it_lives() {
        let store = HashStore::new();
        let group = group_of_two(&store, Waiting::default());
        let tensor = Tensor::zeros(&[3], DType::F32, "cpu").unwrap();
        let state = || store.get(&watchdog::state_key(0), Duration::ZERO).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| group.all_reduce(&tensor, ReduceOp::Sum).unwrap_err());
            thread::sleep(Duration::from_millis(120));
            let first = state();
            thread::sleep(Duration::from_millis(60));
            let second = state();
            assert_ne!(first, second, "its state is written while it waits");
            let text = String::from_utf8(second).unwrap();
            assert!(text.contains("1 all_reduce float32 3 sum"), "{text}");
        });
    }

    #[test]
    fn what_fails_at_once_is_told_at_once() {
        let backend = Waiting { patience: Some(Duration::ZERO), ..Waiting::default() };
        let group = group_of_two(&HashStore::new(), backend);
        let tensor = Tensor::zeros(&[3], DType::F32, "cpu").unwrap();
        let error = group.all_reduce(&tensor, ReduceOp::Sum).unwrap_err();
        assert_eq!(error.to_string(), Error::Argument("it took too long".to_owned()).to_string());
        thread::sleep(Duration::from_millis(400));
        assert!(group.inner.given_up.get().is_none(), "a call that failed is not waited for");
    }
}
