//! The runtime as a value.
//!
//! A [`Runtime`] is a handle; clones share one driver, one caching allocator and one set of stream pools. It starts
//! when something first needs the driver, once, and a failed start is tried again by the next need. The process-wide
//! default is made on first use and never dropped.
//!
//! **Invariants:** objects made by a runtime keep it alive (buffers of pinned memory keep only the parts that they
//! need) and refuse to work with objects of another runtime. Dropping the last handle waits for the devices and gives
//! back every segment, stream, event and context; in a forked child it makes no driver call.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use cuda_sys::Driver as Table;

use crate::base::config::{AllocatorConfig, Backend};
use crate::base::device::DeviceIndex;
use crate::base::error::{
    AllocatorError, BackendError, DeviceAssertionError, DeviceError, Error, LaunchRecord, Result, StartError,
};
use crate::base::handles::StreamRef;
use crate::base::ids::RuntimeId;
use crate::base::process;
use crate::base::warning::warning;
use crate::driver::{Api, Source, count_devices};
use crate::plugin::{CUDAPluggableAllocator, PluggableBackend};
use crate::runtime::bound::{self, RuntimeGuard};
use crate::runtime::checks::Checks;
use crate::runtime::export::FigureExport;
use crate::runtime::extensions::Extensions;
use crate::runtime::guard::DeviceGuard;
use crate::runtime::lazy::Queue;
use crate::runtime::shutdown;
use crate::runtime::started::Started;
use crate::sanitizer::listen_if_asked;
use crate::state::nvml::NvmlSlot;
use crate::state::observers::Observers;
use crate::state::sync_debug::SyncDebugState;
use crate::sync::lasting::{Lasting, WeakLasting};
use crate::sync::lock;
use crate::sync::{Mutex, MutexGuard};
use crate::thread;
use crate::thread::pending::PuttingOff;
use crate::trace::{Trace, TraceEvent, TraceKind};

/// The runtime: one driver with everything that is kept for it.
///
/// Cheap to clone; usable from any thread. Handles of the process-wide runtime need no reference count.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::Runtime;
///
/// let runtime = Runtime::current();
/// assert!(runtime.is_available() && !runtime.is_initialized());
/// let buffer = runtime.memory().buffer(4, &runtime.streams().current(0)?)?;
/// assert!(runtime.is_initialized(), "the first need starts it");
/// runtime.synchronize(0)?;
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Runtime(Lasting<Inner>);

/// A reference to a runtime that does not keep it alive.
#[derive(Debug)]
pub(crate) struct WeakRuntime(WeakLasting<Inner>);

pub(crate) struct Inner {
    id: RuntimeId,
    source: Source,
    loaded: OnceLock<Arc<Table>>,
    ready: OnceLock<Started>,
    /// Number of devices that the driver reported when it was initialised to count them.
    counted: OnceLock<usize>,
    /// Held while starting, so that it happens once.
    starting: Mutex<()>,
    /// The allocator's options. They are read from the environment when they are first needed.
    config: Mutex<Option<Arc<AllocatorConfig>>>,
    /// The allocator that the program has brought.
    allocator: Mutex<Option<CUDAPluggableAllocator>>,
    /// Whether device memory is cached, for runtimes that have not started.
    caching: AtomicBool,
    observers: Observers,
    nvml: NvmlSlot,
    sync_debug: SyncDebugState,
    /// Calls that wait for the start.
    queue: Queue,
    /// Whether graphs keep what they capture until it was written once.
    graph_debug: AtomicBool,
    extensions: Extensions,
    checks: Checks,
    trace: Arc<Trace>,
    /// The export that the environment asked for when the runtime started.
    export: OnceLock<Option<FigureExport>>,
    /// Whether somebody exports the figures, or did.
    exports: AtomicBool,
}

impl Runtime {
    /// A runtime on a driver that is loaded already. Makes no driver call yet.
    #[must_use]
    pub fn new(driver: Table) -> Self {
        Self::with(Source::Given, OnceLock::from(Arc::new(driver)))
    }

    /// A runtime that will search for the system's driver when it is first needed (the environment variable
    /// `CUDA_SYS_LIBCUDA` can name a file instead).
    #[must_use]
    pub fn on_system_driver() -> Self {
        Self::with(Source::Search, OnceLock::new())
    }

    /// A runtime that will open this file as the driver when it is first needed.
    pub fn on_driver_file(path: impl Into<PathBuf>) -> Self {
        Self::with(Source::File(path.into()), OnceLock::new())
    }

    fn with(source: Source, loaded: OnceLock<Arc<Table>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = RuntimeId(NEXT.fetch_add(1, Ordering::Relaxed));
        let trace = Arc::<Trace>::default();
        listen_if_asked(&trace);
        Self(Lasting::new(Inner {
            id,
            source,
            loaded,
            ready: OnceLock::new(),
            counted: OnceLock::new(),
            starting: Mutex::default(),
            config: Mutex::default(),
            allocator: Mutex::default(),
            caching: AtomicBool::new(std::env::var("PYTORCH_NO_CUDA_MEMORY_CACHING").as_deref() != Ok("1")),
            observers: Observers::default(),
            nvml: NvmlSlot::default(),
            sync_debug: SyncDebugState::default(),
            queue: Queue::default(),
            graph_debug: AtomicBool::new(false),
            extensions: Extensions::default(),
            checks: Checks::default(),
            trace,
            export: OnceLock::new(),
            exports: AtomicBool::new(false),
        }))
    }

    /// What a crate above keeps for this runtime: the value of its type, made when it is first asked for, the same one
    /// ever after, and dropped with the runtime. It must not hold the runtime itself, or anything that does, such as a
    /// [`Kernel`](crate::Kernel): neither would ever be dropped.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// use c10_core::Runtime;
    ///
    /// #[derive(Default)]
    /// struct Launches(AtomicU32);
    ///
    /// Runtime::current().extension::<Launches>().0.fetch_add(1, Ordering::Relaxed);
    /// assert_eq!(Runtime::current().extension::<Launches>().0.load(Ordering::Relaxed), 1);
    /// ```
    #[must_use]
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.0.extensions.get()
    }

    /// Adds a check that runs whenever the host has waited for a device, its stream or its event: it tells what kernels
    /// have reported meanwhile in memory that the host can read, and the call that waited returns that as
    /// [`Error::DeviceAssertion`]. A check stays as long as the runtime. It must be quick, make no driver call, and not
    /// hold the runtime.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use std::sync::Arc;
    ///
    /// use c10_core::{DeviceAssertionError, Error, Runtime, Stream};
    ///
    /// Runtime::current().check_after_waiting(|device| {
    ///     let found = Arc::new(std::fmt::Error);
    ///     Some(DeviceAssertionError { device, operation: "example", element: 3, value: "-1".into(), found })
    /// });
    /// let refused = Stream::new(None, 0)?.synchronize().unwrap_err();
    /// assert!(matches!(refused, Error::DeviceAssertion(found) if found.element == 3));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    pub fn check_after_waiting(
        &self,
        check: impl Fn(DeviceIndex) -> Option<DeviceAssertionError> + Send + Sync + 'static,
    ) {
        self.0.checks.add(Arc::new(check));
    }

    /// The last launches that were queued on a device, the newest first: at most 64. Torch's ring of launch records.
    ///
    /// # Errors
    /// The device does not exist, or the runtime cannot start.
    pub fn last_launches(&self, device: DeviceIndex) -> Result<Vec<LaunchRecord>> {
        Ok(self.check_device(device)?.launches.last(device))
    }

    /// The result of a call that has waited for a device: the driver's error with the last launches, or what kernels
    /// have reported.
    #[inline]
    pub(crate) fn waited(&self, ready: &Started, device: DeviceIndex, answer: Result<()>) -> Result<()> {
        match answer {
            Ok(()) => self.0.checks.run(device),
            Err(error) => Err(ready.launches.explain(device, error)),
        }
    }

    /// The process-wide runtime. It is on the system's driver unless [`Self::make_default`] was called before.
    #[must_use]
    #[inline]
    pub fn default_runtime() -> Self {
        Self(Lasting::forever(&DEFAULT.get_or_init(Self::on_system_driver).0))
    }

    /// Makes this the process-wide runtime.
    ///
    /// # Errors
    /// Gives the runtime back when there is a process-wide one already.
    pub fn make_default(self) -> Result<(), Self> {
        DEFAULT.set(self)
    }

    /// The runtime bound to this thread, else the process-wide one.
    #[must_use]
    #[inline]
    pub fn current() -> Self {
        bound::bound().unwrap_or_else(Self::default_runtime)
    }

    /// Calls `look` with [`Self::current`].
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what `look` returns would be copied, which takes longer than making it")]
    pub fn with_current<R>(look: impl FnOnce(&Self) -> R) -> R {
        look(&Self::current())
    }

    /// Binds this runtime to the calling thread, so that [`Self::current`] answers it, until the guard is dropped.
    pub fn bind(&self) -> RuntimeGuard {
        RuntimeGuard::new(self)
    }

    /// Starts the runtime, if it was not; torch's `init`. Creates no context.
    ///
    /// # Errors
    /// No driver, a driver that is too old or refuses to start, no devices, a forked child, or
    /// [`crate::StartError::DeferredCall`] of a call that was queued ([`Self::lazy_call`]).
    pub fn init(&self) -> Result<()> {
        self.ready()?;
        self.queue().run(self)
    }

    /// Calls `call` now if the runtime has started, and otherwise when it starts; torch's `_lazy_call`. Starts nothing.
    /// A queued call that fails makes what started the runtime fail, and is tried again by [`Self::init`].
    ///
    /// # Errors
    /// The error of `call`, if it is called now.
    #[track_caller]
    pub fn lazy_call(&self, call: impl FnMut(&Self) -> Result<()> + Send + 'static) -> Result<()> {
        match self.queue().add_unless(|| self.started().is_some(), call) {
            Some(mut call) => call(self),
            None => Ok(()),
        }
    }

    /// Whether the runtime was started, in this process.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        self.0.ready.get().is_some() && !process::in_bad_fork()
    }

    /// Whether this process was forked from one in which a runtime had started, so that none works here.
    #[must_use]
    pub fn is_in_bad_fork() -> bool {
        process::in_bad_fork()
    }

    /// Whether there is a device to use; torch's `is_available`. It never fails, does not start the runtime and ignores
    /// the options of the allocators.
    ///
    /// Initialises the driver, so that children which are forked later cannot use it, unless the environment variable
    /// `PYTORCH_NVML_BASED_CUDA_CHECK` is `1`: then it asks as [`Self::device_count`] does. Where the driver cannot be
    /// initialised it warns and answers `false`; a machine without driver or device is no reason for a warning.
    #[must_use]
    pub fn is_available(&self) -> bool {
        let asks_nvml = std::env::var("PYTORCH_NVML_BASED_CUDA_CHECK").as_deref() == Ok("1");
        if asks_nvml { self.device_count() > 0 } else { self.count_by_driver() > 0 }
    }

    /// Number of devices, 0 when there is no usable driver; torch's `device_count`. It never fails, does not start the
    /// runtime and ignores the options of the allocators.
    ///
    /// NVML is asked first, which does not touch the driver, so that the process can still fork. The driver is
    /// initialised only if NVML cannot tell. Before the runtime has started each call asks anew, so that a change of
    /// `CUDA_VISIBLE_DEVICES` counts.
    #[must_use]
    pub fn device_count(&self) -> usize {
        // A forked child cannot ask, but what its parent knew still holds.
        if let Some(ready) = self.started() {
            return ready.api.device_count();
        }
        self.nvml_slot().visible_count(self.source()).unwrap_or_else(|| self.count_by_driver())
    }

    /// Number of devices that the driver reports, for which it is initialised. A failure becomes a warning.
    fn count_by_driver(&self) -> usize {
        // The driver looks for its devices only once, so its answer is kept, also for a forked child, which cannot ask.
        if let Some(count) = self.started().map(|ready| ready.api.device_count()).or(self.0.counted.get().copied()) {
            return count;
        }
        match self.0.count() {
            Ok(count) => *self.0.counted.get_or_init(|| count),
            Err(error) => {
                if !error.is_no_device() {
                    warning!("CUDA initialization: {error}");
                }
                0
            }
        }
    }

    /// CUDA version of the driver, written 1000 * major + 10 * minor, and where it was loaded from.
    ///
    /// # Errors
    /// No driver could be loaded.
    pub fn driver_version(&self) -> Result<(u32, String)> {
        let table = self.0.table()?;
        Ok((table.version().0, table.origin().to_owned()))
    }

    /// Whether the driver simulates its devices: no GPU computes, and timings are those of the simulator. `false` if no
    /// driver can be loaded.
    ///
    /// ```
    /// let simulated = testkit::simulated_runtime();
    /// assert!(simulated.runtime().is_simulated());
    /// ```
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.0.table().is_ok_and(|table| crate::driver::is_simulated(table))
    }

    /// The started runtime.
    #[inline]
    pub(crate) fn ready(&self) -> Result<&Started> {
        match self.usable() {
            Some(ready) => Ok(ready),
            None => self.start(),
        }
    }

    /// The started runtime, unless it has to be started first or may not be used. It makes no error value, so that it
    /// takes a few instructions where it is inlined.
    #[inline]
    pub(crate) fn usable(&self) -> Option<&Started> {
        if process::in_bad_fork() { None } else { self.0.ready.get() }
    }

    /// As [`Self::usable`], and only if the device exists.
    #[inline]
    pub(crate) fn usable_with(&self, device: DeviceIndex) -> Option<&Started> {
        let ready = self.usable()?;
        if usize::try_from(device).ok()? < ready.api.device_count() { Some(ready) } else { None }
    }

    #[cold]
    fn start(&self) -> Result<&Started> {
        if process::in_bad_fork() {
            return Err(Error::Start(StartError::BadFork));
        }
        let ready = self.0.start()?;
        ready.pinned.belong_to(self.downgrade());
        self.0.export.get_or_init(|| self.export_if_asked());
        self.prepare_export();
        self.queue().run(self)?;
        Ok(ready)
    }

    /// The started runtime, if it has started. Does not start it.
    #[inline]
    pub(crate) fn started(&self) -> Option<&Started> {
        self.0.ready.get()
    }

    /// Notes that the figures are exported.
    pub(super) fn set_exports(&self) {
        self.0.exports.store(true, Ordering::Release);
        self.prepare_export();
    }

    /// Asks for what an export needs of the driver, so that the thread that answers need not call it.
    fn prepare_export(&self) {
        if self.0.exports.load(Ordering::Acquire) {
            self.started().into_iter().for_each(|ready| drop(ready.uuids()));
        }
    }

    /// Whether device memory is cached from now on.
    pub(crate) fn set_caching(&self, enabled: bool) {
        self.0.caching.store(enabled, Ordering::Release);
        let _starting = self.0.starting.lock().unwrap_or_else(PoisonError::into_inner);
        self.started().into_iter().for_each(|ready| ready.allocator.enable(enabled));
    }

    /// Changes the allocator's options, now or for when the runtime starts; `change` is told whether it has started.
    pub(crate) fn change_config(
        &self,
        change: impl FnOnce(&AllocatorConfig, bool) -> Result<AllocatorConfig>,
    ) -> Result<()> {
        let _first = self.config();
        let _starting = self.0.starting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut config = self.0.lock_config();
        let before = config.clone().unwrap_or_default();
        let started = self.started();
        let changed = Arc::new(change(&before, started.is_some())?);
        if let Some(ready) = started {
            ready.allocator.set_config(&changed);
            ready.pinned.cache.set_config(&changed);
        }
        *config = Some(changed);
        Ok(())
    }

    /// Makes an allocator of the program that of the runtime, which has not started.
    pub(crate) fn set_allocator(&self, allocator: &CUDAPluggableAllocator) -> Result<()> {
        let _starting = self.0.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.started().is_some() {
            return Err(AllocatorError::AlreadyInitialized.into());
        }
        *lock(&self.0.allocator) = Some(allocator.clone());
        Ok(())
    }

    /// The allocator of the program that is that of the runtime, or will be when it starts.
    pub(crate) fn allocator(&self) -> Option<CUDAPluggableAllocator> {
        lock(&self.0.allocator).clone()
    }

    /// Returns the allocator's options. If the environment's options are invalid, returns the defaults with the
    /// environment's backend.
    pub(crate) fn config(&self) -> Arc<AllocatorConfig> {
        let backend = |_| Arc::new(AllocatorConfig::backend_from_env(|name| std::env::var(name).ok()));
        self.0.config().unwrap_or_else(backend)
    }

    /// Refuses what only the caching allocator does, by torch's name of it.
    pub(crate) fn only_native(&self, call: &'static str) -> Result<()> {
        if let Some(ready) = self.started() {
            return ready.allocator.only_native(call).map(drop);
        }
        if lock(&self.0.allocator).is_some() {
            return Err(Error::Backend(BackendError::Unsupported { backend: "CUDAPluggableAllocator", call }));
        }
        let backend = self.config().backend;
        let serves = backend != Backend::CudaMallocAsync;
        if serves { Ok(()) } else { Err(Error::Backend(BackendError::Unsupported { backend: backend.name(), call })) }
    }

    /// The observers that are called when memory runs out.
    pub(crate) fn observers(&self) -> &Observers {
        &self.0.observers
    }

    /// Who is told what happens.
    pub(crate) fn trace(&self) -> &Arc<Trace> {
        &self.0.trace
    }

    pub(crate) fn nvml_slot(&self) -> &NvmlSlot {
        &self.0.nvml
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.0.queue
    }

    pub(crate) fn sync_debug_state(&self) -> &SyncDebugState {
        &self.0.sync_debug
    }

    /// Whether graphs keep what they capture until it was written once.
    pub(crate) fn graph_debug(&self) -> bool {
        self.0.graph_debug.load(Ordering::Relaxed)
    }

    pub(crate) fn enable_graph_debug(&self) {
        self.0.graph_debug.store(true, Ordering::Relaxed);
    }

    /// Where the driver comes from.
    pub(crate) fn source(&self) -> &Source {
        &self.0.source
    }

    #[inline]
    pub(crate) fn id(&self) -> RuntimeId {
        self.0.id
    }

    pub(crate) fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(self.0.downgrade())
    }

    pub(crate) fn upgrade(weak: &WeakRuntime) -> Option<Self> {
        weak.0.upgrade().map(Self)
    }

    /// Refuses objects of other runtimes.
    #[inline]
    pub(crate) fn check_same(&self, other: &Self, what: &'static str) -> Result<()> {
        if self == other { Ok(()) } else { Err(Error::OtherRuntime { what }) }
    }

    /// The current device of this thread.
    ///
    /// # Errors
    /// The runtime cannot start.
    #[inline]
    pub fn current_device(&self) -> Result<DeviceIndex> {
        if self.usable().is_none() {
            self.start()?;
        }
        Ok(thread::device(self.id()))
    }

    /// Makes a device current on this thread; does nothing for a negative number. Creates no context.
    ///
    /// # Errors
    /// The runtime cannot start, or the driver knows no such device.
    #[inline]
    pub fn set_device(&self, device: DeviceIndex) -> Result<()> {
        PuttingOff::settle("the current device is set");
        self.exchange_device(device).map(|_| ())
    }

    /// Makes a device current and returns the one before; for a negative number changes nothing and returns -1.
    ///
    /// # Errors
    /// The runtime cannot start, or the driver knows no such device.
    #[inline]
    pub fn exchange_device(&self, device: DeviceIndex) -> Result<DeviceIndex> {
        if self.usable_with(device).is_none() {
            if device < 0 {
                return Ok(DeviceIndex(-1));
            }
            self.check_unusual_device(device)?;
        }
        Ok(thread::exchange_device(self.id(), device))
    }

    /// As [`Self::exchange_device`]; torch has both, of which only this one creates no context. Here none does.
    ///
    /// # Errors
    /// As for [`Self::exchange_device`].
    pub fn maybe_exchange_device(&self, device: DeviceIndex) -> Result<DeviceIndex> {
        self.exchange_device(device)
    }

    /// Makes a device current until the guard is dropped.
    ///
    /// # Errors
    /// The runtime cannot start, or the driver knows no such device.
    #[inline]
    pub fn device_guard(&self, device: DeviceIndex) -> Result<DeviceGuard> {
        DeviceGuard::new(self, device)
    }

    /// The started runtime, or the driver's own error for a device that does not exist.
    #[inline]
    pub(crate) fn check_device(&self, device: DeviceIndex) -> Result<&Started> {
        match self.usable_with(device) {
            Some(ready) => Ok(ready),
            None => self.check_unusual_device(device),
        }
    }

    #[cold]
    fn check_unusual_device(&self, device: DeviceIndex) -> Result<&Started> {
        let ready = self.ready()?;
        match self.usable_with(device) {
            Some(ready) => Ok(ready),
            None => Err(ready.api.device(device).err().unwrap_or(Error::Device(DeviceError::InvalidId))),
        }
    }

    /// Refuses devices that do not exist, in torch's words for queries.
    pub(crate) fn check_device_id(&self, device: DeviceIndex) -> Result<&Started> {
        let ready = self.ready()?;
        let known = usize::try_from(device).is_ok_and(|position| position < ready.api.device_count());
        if known { Ok(ready) } else { Err(Error::Device(DeviceError::InvalidId)) }
    }

    /// Calls `body` and leaves that of the driver's contexts current on this thread which was current before. This runtime
    /// relies on none, but makes a device's context current where the driver needs it; a library beside it in the same
    /// process may take the current context for the device that the program has chosen, as CUDA's runtime library does.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default().devices(2)).unwrap();
    /// use c10_core::{DeviceIndex, Runtime};
    ///
    /// let runtime = Runtime::current();
    /// let address = runtime.keep_context(|| runtime.memory().alloc_on_current_stream(1000, DeviceIndex(1)))?;
    /// runtime.keep_context(|| runtime.memory().free(address))?;
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    pub fn keep_context<R>(&self, body: impl FnOnce() -> R) -> R {
        // Starting makes no context current. Where it fails, `body` meets the same error and no context.
        match self.ready() {
            Ok(ready) => ready.api.keep_context(body),
            Err(_) => body(),
        }
    }

    /// Blocks until all work of a device is done.
    ///
    /// # Errors
    /// The device does not exist, work on it failed ([`Error::DeviceFault`]), a kernel has refused a value
    /// ([`Error::DeviceAssertion`]), or a capture forbids waiting.
    pub fn synchronize(&self, device: DeviceIndex) -> Result<()> {
        PuttingOff::settle("a device is waited for");
        let ready = self.check_device(device)?;
        let retired = ready.modules.retired(device);
        ready.api.trace.begin(TraceKind::Synchronize, StreamRef { device, handle: Default::default() });
        ready.api.synchronize_device(device).map_err(|error| ready.launches.explain(device, error))?;
        ready.api.trace.report_now(TraceKind::Synchronize, || TraceEvent::DeviceSynchronized(device));
        ready.unload(&retired);
        ready.sweep();
        self.0.checks.run(device)
    }

    /// Whether the allocator's books balance. For tests; takes time proportional to the number of blocks, and must not
    /// run beside allocations.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.inconsistency().is_none()
    }

    /// What is wrong with the allocator's books, if anything; see [`Self::is_valid`].
    #[must_use]
    pub fn inconsistency(&self) -> Option<String> {
        let ready = self.0.ready.get()?;
        ready.allocator.inconsistency().or_else(|| ready.pinned.cache.inconsistency())
    }
}

static DEFAULT: OnceLock<Runtime> = OnceLock::new();

impl Inner {
    fn table(&self) -> Result<&Arc<Table>> {
        if let Some(table) = self.loaded.get() {
            return Ok(table);
        }
        let table = Arc::new(self.source.load()?);
        Ok(self.loaded.get_or_init(|| table))
    }

    /// Initialises the driver and counts its devices; starts nothing else.
    fn count(&self) -> Result<usize> {
        if process::in_bad_fork() {
            return Err(StartError::BadFork.into());
        }
        let table = self.table()?;
        process::watch_forks();
        count_devices(table)
    }

    #[cold]
    fn start(&self) -> Result<&Started> {
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = self.ready.get() {
            return Ok(ready);
        }
        let _span = tracing::debug_span!("start_runtime").entered();
        // The driver is started first: where there is no device, wrong options do not matter.
        let table = Arc::clone(self.table()?);
        process::watch_forks();
        let api = Api::new(table, Arc::clone(&self.trace))?;
        let config = self.config()?;
        self.trace.set_devices(api.device_count());
        let plugged = lock(&self.allocator).clone();
        let plugged = plugged.map(|allocator| PluggableBackend::new(allocator, &api)).transpose()?;
        let is_plugged = plugged.is_some();
        let ready = Started::new(api, &config, plugged);
        if let Err(error) = ready
            .set_first_limits(config.per_process_memory_fraction)
            .and_then(|()| ready.check_backend(is_plugged, &config))
        {
            ready.pinned.close(ready);
            return Err(error);
        }
        // Options that are set meanwhile wait for this lock, and then find the runtime started.
        let config = self.lock_config();
        for config in config.iter() {
            ready.allocator.set_config(config);
            ready.pinned.cache.set_config(config);
        }
        ready.allocator.enable(self.caching.load(Ordering::Acquire));
        let ready = self.ready.get_or_init(|| ready);
        if lock(&self.allocator).is_some() {
            // It is given raw handles of streams.
            ready.captures.open_door();
        }
        // Whoever began to listen meanwhile did not find the allocator.
        ready.follow_trace();
        Ok(ready)
    }

    fn lock_config(&self) -> MutexGuard<'_, Option<Arc<AllocatorConfig>>> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The allocator's options; those of the environment unless others were set.
    fn config(&self) -> Result<Arc<AllocatorConfig>> {
        let mut config = self.lock_config();
        if let Some(config) = &*config {
            return Ok(Arc::clone(config));
        }
        let read = Arc::new(AllocatorConfig::from_env(|name| std::env::var(name).ok())?);
        Ok(Arc::clone(config.insert(read)))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        thread::forget(self.id);
        if let Some(ready) = self.ready.take().filter(|_| !process::in_bad_fork()) {
            shutdown::finish_work(&ready);
            ready.pinned.close(ready);
        }
    }
}

/// Handles of the same runtime are equal.
impl PartialEq for Runtime {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Runtime {}

/// One short line: the runtime's number and where its driver was loaded from.
impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = self.0.loaded.get().map_or("not loaded", |table| table.origin());
        write!(f, "Runtime {{ id: {}, driver: {origin} }}", self.0.id.0)
    }
}
