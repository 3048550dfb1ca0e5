//! Simulated machines, and which one a thread talks to.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::Write as _;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cuda_sys::CUresult;

use crate::call::Call;
use crate::config::{Config, Fault};
use crate::host_threads::HostThreads;
use crate::journal::JournalEntry;
use crate::model::memory::{MachineFile, MachineFileError, bytes};
use crate::model::{DueHostWork, HostWork, State};
use crate::report::{LiveHandles, Report};
use crate::standstill::{self, Calls};
use crate::toolkit::LibraryCall;
use crate::topology::LinkFault;

/// How often the pump of the default machine looks for work to finish.
pub(crate) const PUMP_INTERVAL: Duration = Duration::from_millis(1);

/// What the threads that use a machine share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Something finished that another thread may wait for.
    pub(crate) progress: Condvar,
    /// Where functions of the program run.
    host_threads: HostThreads,
    itself: Weak<Self>,
    seed: u64,
    calls: Arc<Calls>,
}

impl Shared {
    /// Locks the machine. A panic elsewhere does not make the machine unusable: it answered that call with an error.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call of the program.
    pub(crate) fn note_call(&self) {
        self.calls.note();
    }

    /// Returns the counter of the program's calls.
    pub(crate) fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.calls)
    }

    /// Whether work is queued; `None` while a call is in progress.
    pub(crate) fn has_queued_work(&self) -> Option<bool> {
        self.state.try_lock().ok().map(|state| state.engine.len() > 0)
    }

    /// Lets a function of the program run on the thread of its context; gives it back when there is no thread.
    pub(crate) fn hand_over(&self, state: &State, due: DueHostWork) -> Result<(), HostWork> {
        let Some(shared) = self.itself.upgrade() else { return Err(due.work) };
        self.host_threads.hand_over(shared, due, |context| state.active_context(context).is_ok())
    }

    /// The machine itself; `None` as it goes.
    pub(crate) fn machine(&self) -> Option<Machine> {
        self.itself.upgrade().map(Machine::of_shared)
    }

    /// A function of the program has returned.
    pub(crate) fn host_work_done(&self, due: &DueHostWork) {
        self.lock().finish_host_work(due);
        self.progress.notify_all();
    }
}

/// A simulated machine: devices, memory, queued work and a clock.
///
/// A machine is a value; clones are the same machine. The same configuration and the same calls from one thread give
/// the same history, unless the program pauses while work is queued: once the thread that called last has slept for one
/// second or computed for three, queued work continues without a call. A program may therefore wait on a channel, on a
/// word of pinned memory that it polls, or for another process. Bind a machine to the threads of a test with
/// [`Machine::bind`], or make it the machine of every unbound thread with [`Machine::make_default`].
#[derive(Clone)]
pub struct Machine {
    shared: Arc<Shared>,
}

thread_local! {
    static BOUND: RefCell<Vec<Machine>> = const { RefCell::new(Vec::new()) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

static DEFAULT: Mutex<Option<Machine>> = Mutex::new(None);

/// A number for the calling thread, never used again for another one.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    THREAD.with(|thread| {
        if thread.get() == 0 {
            thread.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        thread.get()
    })
}

impl Machine {
    /// Makes a machine. Nothing is allocated for its devices until they are used. If it is one that processes share, and its
    /// file cannot be used, that is written to the standard error, and the machine has no devices; [`Machine::open`] answers it.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::open(config).unwrap_or_else(|error| Self::of_state(State::new(refuse(&error), None), 0))
    }

    /// Makes a machine, which may be one that processes share ([`Config::machine_file`]).
    ///
    /// # Errors
    /// The file of the shared machine cannot be used: it is something else, or that of another machine in use.
    pub fn open(config: Config) -> Result<Self, MachineFileError> {
        let open = |path: &PathBuf| MachineFile::open(path, config.devices, config.capacity_bytes);
        let file = config.machine_file.as_ref().map(open).transpose()?;
        let seed = config.seed;
        let machine = Self::of_state(State::new(config, file), seed);
        standstill::watch(&machine.shared);
        Ok(machine)
    }

    fn of_state(state: State, seed: u64) -> Self {
        bytes::raise_file_limit();
        let shared = Arc::new_cyclic(|itself| Shared {
            state: Mutex::new(state),
            progress: Condvar::new(),
            host_threads: HostThreads::default(),
            itself: Weak::clone(itself),
            seed,
            calls: Arc::default(),
        });
        Self { shared }
    }

    pub(crate) fn of_shared(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Makes this the machine of the calling thread until the guard is dropped. Bindings nest.
    #[must_use = "the machine is unbound when the guard is dropped"]
    pub fn bind(&self) -> Bound {
        BOUND.with_borrow_mut(|bound| bound.push(self.clone()));
        Bound { not_send: PhantomData }
    }

    /// Makes this the machine of every unbound thread.
    pub fn make_default(&self) {
        *DEFAULT.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clone());
    }

    /// The machine that the calling thread talks to: the one bound last, else the process's default one, which is
    /// made from the environment ([`Config::from_env`]) when first needed.
    #[must_use]
    pub fn current() -> Self {
        // What a thread keeps may call from its destructor, when the bindings are gone.
        if let Ok(Some(machine)) = BOUND.try_with(|bound| bound.borrow().last().cloned()) {
            return machine;
        }
        let mut default = DEFAULT.lock().unwrap_or_else(PoisonError::into_inner);
        default.get_or_insert_with(Self::of_environment).clone()
    }

    fn of_environment() -> Self {
        let config = Config::from_env().unwrap_or_else(|error| refuse(&error));
        if config.tells_reports {
            crate::host_work::at_exit(tell_reports);
        }
        let machine = Self::new(config);
        let pumped = Arc::downgrade(&machine.shared);
        // Without the pump a program that polls memory would never see it change; such a program still can make calls.
        let _ = std::thread::Builder::new().name("cuda-sim pump".to_owned()).spawn(move || pump(&pumped));
        machine
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// A number that no other living machine of the process has.
    pub(crate) fn number(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// The seed that fixes the machine's history.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// Makes a coming call fail. Its own effect does not happen.
    pub fn inject(&self, fault: Fault) {
        self.lock().inject(fault);
    }

    /// Makes a link fail or get slower. Bytes of [`LinkMoment::After`](crate::LinkMoment::After) count from now on.
    pub fn inject_link(&self, fault: LinkFault) {
        self.lock().engine.flows.inject(fault);
    }

    /// Forgets all faults that have not happened yet.
    pub fn clear_faults(&self) {
        self.lock().clear_faults();
    }

    /// Returns the mistakes of the program so far that hardware would not report; empty for a correct program.
    /// [`Machine::calls`] and the journal ([`Machine::keep_journal`]) record what happened.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.lock().reports().to_vec()
    }

    /// As [`Machine::reports`], and forgets them.
    #[must_use]
    pub fn take_reports(&self) -> Vec<Report> {
        self.lock().take_reports()
    }

    /// What kernels have printed since this was asked last, on a machine that keeps it ([`Config::keeps_prints`]).
    #[must_use]
    pub fn take_printed(&self) -> String {
        self.lock().take_printed()
    }

    /// Every call answered so far with each code it was answered with, and how often; injected faults included.
    #[must_use]
    pub fn calls(&self) -> Vec<(&'static str, CUresult, u64)> {
        self.lock().calls().iter().map(|(&(symbol, code), &count)| (symbol, CUresult(code), count)).collect()
    }

    /// The calls made to cuBLAS, cuBLASLt, cuSOLVER and cuFFT, in order; of very many, the last ones.
    #[must_use]
    pub fn library_calls(&self) -> Vec<LibraryCall> {
        self.lock().library_record.all()
    }

    /// As [`Machine::library_calls`], and forgets them.
    #[must_use]
    pub fn take_library_calls(&self) -> Vec<LibraryCall> {
        self.lock().library_record.take()
    }

    /// What exists on the machine right now.
    #[must_use]
    pub fn live(&self) -> LiveHandles {
        self.lock().live()
    }

    /// Pages of managed memory, of 4 KiB each, that prefetches have moved to a device or back so far.
    #[must_use]
    pub fn moved_pages(&self) -> u64 {
        self.lock().memory.moved_pages()
    }

    /// Simulated time since the machine was made, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.lock().clock_ns
    }

    /// Prescribes the addresses that the next allocations and address reservations return, in order. An address that
    /// is taken when its turn comes makes that call run out of memory.
    pub fn next_addresses(&self, addresses: impl IntoIterator<Item = u64>) {
        self.lock().memory.prescribe(addresses);
    }

    /// The file that holds the bytes at a device address, and where in it they are; another process can map it.
    ///
    /// `None` for an address that nothing is mapped at, and when the system has no more file descriptors.
    #[must_use]
    pub fn memory_file(&self, address: u64) -> Option<(OwnedFd, u64)> {
        let state = self.lock();
        let (base, region) = state.memory.region_at(address)?;
        Some((region.backing.file()?, region.offset as u64 + (address - base)))
    }

    /// Keeps a journal from now on: what is queued after what, and what the host is told to be done.
    pub fn keep_journal(&self) {
        self.lock().journal.is_kept = true;
    }

    /// The journal since this was asked last; empty where none is kept ([`Self::keep_journal`]).
    #[must_use]
    pub fn take_journal(&self) -> Vec<JournalEntry> {
        self.lock().journal.take()
    }

    /// Lets all queued work finish, as if a long time passed: late events can be seen then, too.
    pub fn settle(&self) {
        let mut call = Call::new(&self.shared, "Machine::settle");
        call.run_everything();
        call.destroy_orphans();
        call.tell_others();
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("seed", &self.shared.seed).finish_non_exhaustive()
    }
}

/// Keeps a machine bound to the thread.
#[derive(Debug)]
pub struct Bound {
    not_send: PhantomData<Rc<()>>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        // A guard may outlive the thread's storage; then there is nothing left to unbind.
        let _ = BOUND.try_with(|bound| bound.borrow_mut().pop());
    }
}

/// Writes the reports of the machine that was made from the environment to the standard error, as the process ends.
extern "C" fn tell_reports() {
    let machine = DEFAULT.try_lock().ok().and_then(|machine| machine.clone());
    for report in machine.map(|machine| machine.reports()).unwrap_or_default() {
        let _ = writeln!(std::io::stderr(), "cuda-sim: {report}");
    }
}

/// The machine for an environment that cannot be read: one without devices, since any other would be one that nobody
/// asked for. A driver has no words for the reason, so it goes where a person sees it.
#[expect(clippy::print_stderr, reason = "a driver has no other way to say why it does not start")]
fn refuse(error: &dyn std::error::Error) -> Config {
    eprintln!("simulated CUDA driver: {error}");
    Config::default().devices(0)
}

/// Lets simulated time follow real time for as long as the machine exists.
fn pump(machine: &Weak<Shared>) {
    loop {
        std::thread::sleep(PUMP_INTERVAL);
        let Some(shared) = machine.upgrade() else { return };
        let mut call = Call::without_program(&shared, "pump");
        call.let_time_pass(PUMP_INTERVAL);
        call.destroy_orphans();
        call.tell_others();
    }
}
