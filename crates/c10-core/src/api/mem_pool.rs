//! Memory pools that a program makes.
//!
//! **Invariants:** a pool lives as long as its handles, guards and graphs, and then as long as memory of it is held.
//! Routing to a pool concerns only the thread that asked for it, and ends when the guard is dropped.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::base::device::{Device, DeviceIndex};
use crate::base::error::{Error, Result};
use crate::base::ids::PoolId;
use crate::base::process;
use crate::caching::{Filter, PoolCheckpoint, PoolOptions, SegmentInfo};
use crate::plugin::CUDAPluggableAllocator;
use crate::runtime::Runtime;
use crate::state::pool_pinned::PoolPinned;
use crate::thread;
use crate::thread::pending::PuttingOff;

/// A memory pool; torch's `MemPool`. Clones are handles of the same pool.
///
/// When the last handle is dropped, the free memory of the pool goes back to the driver, after the other streams that
/// used it were waited for. Memory that is still held stays valid.
#[derive(Clone)]
pub struct MemPool(Arc<Pool>);

/// Options of a memory pool; the arguments of torch's `MemPool`.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{MemPool, MemPoolOptions};
///
/// let pool = MemPool::new(MemPoolOptions { use_on_oom: true, ..MemPoolOptions::default() })?;
/// assert_eq!(format!("{pool:?}"), format!("MemPool {{ id: {}, device: cuda:0 }}", pool.id()));
///
/// let (runtime, pages) = (c10_core::Runtime::current(), MemPoolOptions { elastic: Some(true), ..Default::default() });
/// let pool = MemPool::new(pages)?;
/// let buffer = runtime.mem_pools().with(&pool, c10_core::DeviceIndex(0), || c10_core::DeviceBuffer::new(5 << 20, None))?;
/// assert_eq!(runtime.memory().stats(0)?["num_pages_made"], 3);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemPoolOptions {
    /// Other requests may use its free memory before they fail because memory ran out.
    pub use_on_oom: bool,
    /// Its blocks are never split: each request gets a whole block.
    pub no_split: bool,
    /// Whether its memory on its device is held in pages that move, as under `backend:elastic`; `None` for as the runtime's
    /// backend says. The pool takes free pages of the runtime's other pages that move, and gives its own when the last handle,
    /// guard and graph of it is gone. A device without virtual memory management is refused
    /// ([`crate::StartError::NoVirtualMemory`]). An allocator of the program gives whole segments, whatever this says. Torch
    /// has no such argument.
    pub elastic: Option<bool>,
}

struct Pool {
    runtime: Runtime,
    id: PoolId,
    device: DeviceIndex,
    allocator: Option<CUDAPluggableAllocator>,
    /// Pinned blocks that captures into the pool used.
    _pinned: Arc<PoolPinned>,
}

/// The memory pools of a runtime; made by [`Runtime::mem_pools`].
#[derive(Clone, Copy, Debug)]
pub struct MemPools<'a>(pub(crate) &'a Runtime);

impl Runtime {
    /// Memory pools of programs: making and entering them, checkpoints.
    #[must_use]
    #[inline]
    pub fn mem_pools(&self) -> MemPools<'_> {
        MemPools(self)
    }
}

impl MemPools<'_> {
    /// Makes a memory pool on the current device; see [`MemPool::new`].
    ///
    /// # Errors
    /// The runtime cannot start, or the device has no pages that could move, which were asked for.
    pub fn create(self, options: MemPoolOptions) -> Result<MemPool> {
        self.create_on(options, None)
    }

    /// Makes a memory pool on the current device whose segments come from an allocator of the program; see
    /// [`MemPool::with_allocator`].
    ///
    /// # Errors
    /// The runtime cannot start.
    pub fn create_with_allocator(self, allocator: &CUDAPluggableAllocator, options: MemPoolOptions) -> Result<MemPool> {
        self.create_on(options, Some(allocator.clone()))
    }

    fn create_on(self, options: MemPoolOptions, allocator: Option<CUDAPluggableAllocator>) -> Result<MemPool> {
        let MemPoolOptions { use_on_oom, no_split, elastic } = options;
        let (ready, id, device) = (self.0.ready()?, PoolId::handle(), self.0.current_device()?);
        if elastic == Some(true) && allocator.is_none() {
            ready.check_pages(device)?;
        }
        let source = allocator.clone().map(|allocator| {
            // The allocator is given raw handles of streams.
            ready.captures.open_door();
            allocator.as_source()
        });
        ready.allocator.use_pool(device, id, PoolOptions { use_on_oom, no_split, source, elastic })?;
        let pinned = ready.captures.pinned.of(device, id);
        Ok(MemPool(Arc::new(Pool { runtime: self.0.clone(), id, device, allocator, _pinned: pinned })))
    }

    /// Serves this thread's requests on `device` from the pool until the guard is dropped; torch's `use_mem_pool`. With
    /// nested guards the innermost one applies. While any thread holds a guard, memory that was used on other streams
    /// is not reused, and `empty_cache` frees no memory outside of pools. A request that would fail because memory ran
    /// out first waits for those streams and frees all unused memory, except during a capture.
    ///
    /// # Errors
    /// A guard of the same pool is held already, the pool belongs to another runtime, or the device does not exist.
    pub fn enter(self, pool: &MemPool, device: DeviceIndex) -> Result<MemPoolGuard> {
        let runtime = pool.0.runtime.clone();
        self.enter_again(&EnteredPool { runtime, id: pool.id(), handle: Some(pool.clone()) }, device)
    }

    /// As [`Self::enter`], for a pool that was entered before ([`Self::entered`]). One that has no handle is made, if there
    /// is none of its name any more.
    ///
    /// # Errors
    /// As for [`Self::enter`]; [`crate::PoolError::Released`] for a pool that all its users gave up and that still holds
    /// memory.
    pub fn enter_again(self, pool: &EnteredPool, device: DeviceIndex) -> Result<MemPoolGuard> {
        self.0.check_same(&pool.runtime, "memory pool")?;
        pool.begin_on(device)?;
        Entry::note(pool, device, None);
        Ok(MemPoolGuard { pool: pool.clone(), device, thread: PhantomData })
    }

    /// Notes that requests on a device come from a pool from now on, as far as a filter takes them.
    pub(crate) fn note_route(self, device: DeviceIndex, id: PoolId, filter: Filter) {
        Entry::note(&EnteredPool { runtime: self.0.clone(), id, handle: None }, device, Some(filter));
    }

    /// Forgets such a route. Whether this thread has opened it while it puts work off.
    pub(crate) fn forget_route(self, device: DeviceIndex, id: PoolId) -> bool {
        ENTERED.with_borrow_mut(|entered| {
            let is_it = |entry: &Entry| entry.is_of(self.0, device) && entry.pool.id == id && entry.filter.is_some();
            let at = entered.iter().rposition(is_it);
            at.map(|at| entered.remove(at)).is_some()
        })
    }

    /// The pool that memory comes from which this thread asks for on a device, where it has entered one while it puts work
    /// off and not left it since, or begun to take memory from it ([`Self::begin_allocate`]). Memory that is put off as well
    /// has to come from there.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{MemPool, MemPoolOptions, Runtime};
    ///
    /// let (runtime, pool) = (Runtime::current(), MemPool::new(MemPoolOptions::default())?);
    /// let _guard = runtime.mem_pools().enter(&pool, 0.into())?;
    /// assert_eq!(runtime.mem_pools().entered(0.into()), None, "nothing is put off");
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    #[must_use]
    pub fn entered(self, device: DeviceIndex) -> Option<EnteredPool> {
        ENTERED.with_borrow(|entered| {
            let mut inner = entered.iter().rev().filter(|entry| entry.is_of(self.0, device) && entry.takes());
            inner.next().map(|entry| entry.pool.clone())
        })
    }

    /// Whether this thread has entered a pool, on any device, while it put work off, and not left it since.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// assert!(!c10_core::Runtime::current().mem_pools().has_entered());
    /// ```
    #[must_use]
    pub fn has_entered(self) -> bool {
        ENTERED.with_borrow(|entered| entered.iter().any(|entry| entry.is_of(self.0, entry.device)))
    }

    /// Runs `body` as if this thread had left the pools that it has entered while it put work off: work that was put off
    /// before takes no memory from them.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::Runtime;
    ///
    /// assert_eq!(Runtime::current().mem_pools().outside(|| 3)?, 3);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// A pool cannot be left or entered again, since its runtime is gone.
    pub fn outside<T>(self, body: impl FnOnce() -> T) -> Result<T> {
        let mut entered = ENTERED.take();
        entered.retain(Entry::is_present);
        entered.iter().rev().try_for_each(Entry::leave)?;
        let made = body();
        entered.iter().try_for_each(Entry::come_back)?;
        ENTERED.set(entered);
        Ok(made)
    }

    /// Runs `body` while memory that this thread asks for on `device` comes from the pool; see
    /// [`Self::enter`].
    ///
    /// # Errors
    /// As for [`Self::enter`], when `body` has not run; else what `body` returned.
    pub fn with<T, E: From<Error>>(
        self,
        pool: &MemPool,
        device: DeviceIndex,
        body: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let _guard = self.enter(pool, device)?;
        body()
    }

    /// Notes the state of a memory pool, which a program or a graph made: its segments, and which blocks of them are
    /// handed out. [`Self::restore`] can bring the pool back to that state.
    ///
    /// # Errors
    /// The pool does not exist ([`crate::PoolError::NotFound`]) or nobody uses it any more
    /// ([`crate::PoolError::CheckpointOfReleased`]); memory of it that was given back may still be used by other streams
    /// ([`crate::PoolError::CheckpointOfPendingMemory`]); the device does not exist; the driver's error.
    #[doc(alias = "_cuda_getCheckpointState")]
    pub fn checkpoint(self, device: DeviceIndex, pool: PoolId) -> Result<PoolCheckpoint> {
        let ready = self.0.check_device_id(device)?;
        ready.allocator.checkpoint_pool(&ready.api, device, pool)
    }

    /// Whether the memory of a pool that is handed out is exactly that at the addresses `expected`.
    ///
    /// # Errors
    /// The pool ([`crate::PoolError::NotFound`]) or the device does not exist.
    #[doc(alias = "_cuda_checkPoolLiveAllocations")]
    pub fn check_live_allocations(self, device: DeviceIndex, pool: PoolId, expected: &[u64]) -> Result<bool> {
        let ready = self.0.check_device_id(device)?;
        ready.allocator.check_pool_live_allocations(device, pool, expected)
    }
}

thread_local! {
    /// The pools that this thread has entered while it put work off, and not left.
    static ENTERED: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// A pool that a thread takes memory from while it puts work off; see [`MemPools::entered`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{MemPool, MemPoolOptions, Runtime};
///
/// let (runtime, pool) = (Runtime::current(), MemPool::new(MemPoolOptions::default())?);
/// # struct Nobody;
/// # impl c10_core::PutOff for Nobody {
/// #     fn settle(&self, _: &'static str) {}
/// #     fn put_off(&self, _: &'static str, _: [u64; 2], _: Option<&c10_core::Made>,
/// #         _: Box<dyn Fn() -> c10_core::Result<()> + Send + Sync>) -> bool { false }
/// # }
/// let _on = c10_core::PuttingOff::begin(std::rc::Rc::new(Nobody));
/// let guard = runtime.mem_pools().enter(&pool, 0.into())?;
/// let entered = runtime.mem_pools().entered(0.into()).expect("it was entered");
/// drop(guard);
/// assert_eq!((entered.id(), runtime.mem_pools().entered(0.into())), (pool.id(), None));
/// let _again = runtime.mem_pools().enter_again(&entered, 0.into())?;
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone)]
pub struct EnteredPool {
    runtime: Runtime,
    id: PoolId,
    /// Keeps it, where it has handles.
    handle: Option<MemPool>,
}

impl EnteredPool {
    /// Name of the pool.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// Routes this thread's requests on a device to the pool.
    fn begin_on(&self, device: DeviceIndex) -> Result<()> {
        let ready = self.runtime.check_device_id(device)?;
        ready.allocator.begin_allocate_to_pool(device, self.id, Filter::Thread(thread::number()))
    }
}

impl fmt::Debug for EnteredPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnteredPool").field("id", &self.id).field("handle", &self.handle).finish()
    }
}

impl PartialEq for EnteredPool {
    fn eq(&self, other: &Self) -> bool {
        self.runtime == other.runtime && self.id == other.id
    }
}

impl Eq for EnteredPool {}

/// That a thread has entered a pool.
struct Entry {
    pool: EnteredPool,
    device: DeviceIndex,
    /// What it takes, where a call has opened a route; `None` where there is a guard.
    filter: Option<Filter>,
    /// When it was: what calls have left open then is no part of what is put off now.
    times: u64,
}

impl Entry {
    /// Notes it, where this thread puts work off.
    fn note(pool: &EnteredPool, device: DeviceIndex, filter: Option<Filter>) {
        if PuttingOff::is_on() {
            let entry = Self { pool: pool.clone(), device, filter, times: PuttingOff::times() };
            ENTERED.with_borrow_mut(|entered| entered.push(entry));
        }
    }

    fn is_present(&self) -> bool {
        self.filter.is_none() || self.times == PuttingOff::times()
    }

    fn is_of(&self, runtime: &Runtime, device: DeviceIndex) -> bool {
        self.is_present() && self.device == device && self.pool.runtime == *runtime
    }

    /// Whether it takes what this thread asks for now.
    fn takes(&self) -> bool {
        let stream = || thread::stream(self.pool.runtime.id(), self.device).handle;
        match &self.filter {
            None | Some(Filter::Any) => true,
            Some(Filter::Thread(number)) => *number == thread::number(),
            Some(Filter::Stream(wanted)) => *wanted == stream(),
            Some(Filter::Where(predicate)) => predicate.0(stream().0),
            Some(Filter::Capture(_)) => false,
        }
    }

    /// Ends the route for a while.
    fn leave(&self) -> Result<()> {
        let (ready, id) = (self.pool.runtime.ready()?, self.pool.id);
        ready.allocator.end_allocate_to_pool(self.device, id)?;
        // Who has opened a route by a call uses the pool until it is released.
        if self.filter.is_none() { ready.allocator.release_pool(self.device, id) } else { Ok(()) }
    }

    /// Begins it again.
    fn come_back(&self) -> Result<()> {
        let Some(filter) = &self.filter else { return self.pool.begin_on(self.device) };
        let (ready, id) = (self.pool.runtime.ready()?, self.pool.id);
        ready.allocator.begin_allocate_to_pool(self.device, id, filter.clone())?;
        ready.allocator.release_pool(self.device, id)
    }
}

impl MemPool {
    /// A memory pool of the current runtime on the current device.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{MemPool, MemPoolOptions};
    ///
    /// let pool = MemPool::new(MemPoolOptions { no_split: true, ..MemPoolOptions::default() })?;
    /// assert_eq!((pool.use_count(), pool.snapshot().len()), (1, 0));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The runtime cannot start, or the device has no pages that could move, which were asked for.
    pub fn new(options: MemPoolOptions) -> Result<Self> {
        Runtime::with_current(|runtime| runtime.mem_pools().create(options))
    }

    /// A memory pool of the current runtime on the current device whose segments come from an allocator of the program.
    ///
    /// The allocator is asked for whole segments, and everything else stays: small requests share a segment, what is given
    /// back serves the next request, figures, snapshots and checkpoints count the pool's memory. Segments go back to the
    /// allocator when the pool is not used any more and nothing of them is held, even if that is after the last handle of
    /// the pool and of the allocator is gone. The allocator is called while the books of the device are locked, so it must
    /// not ask the same runtime for memory ([`crate::AllocatorError::Reentered`]).
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{CUDAPluggableAllocator, DeviceBuffer, DriverResource, MemPool, MemPoolOptions, Runtime};
    ///
    /// let (runtime, stats) = (Runtime::current(), |of: &CUDAPluggableAllocator| of.stats(0.into()).segment.all.current);
    /// let allocator = CUDAPluggableAllocator::from_resource(DriverResource::new(&runtime));
    /// let pool = MemPool::with_allocator(&allocator, MemPoolOptions::default())?;
    /// let buffer = runtime.mem_pools().with(&pool, 0.into(), || DeviceBuffer::new(1000, None))?;
    /// drop(pool);
    /// assert_eq!(stats(&allocator), 1, "the buffer still needs its segment");
    /// drop(buffer);
    /// runtime.memory().empty_cache()?;
    /// assert_eq!(stats(&allocator), 0);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The runtime cannot start.
    pub fn with_allocator(allocator: &CUDAPluggableAllocator, options: MemPoolOptions) -> Result<Self> {
        Runtime::with_current(|runtime| runtime.mem_pools().create_with_allocator(allocator, options))
    }

    /// The allocator that the pool's segments come from, if not from the driver.
    #[must_use]
    pub fn allocator(&self) -> Option<&CUDAPluggableAllocator> {
        self.0.allocator.as_ref()
    }

    /// Name of the pool, for graphs to share it.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// Device the pool was made on.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.0.device
    }

    /// Number of users of the pool: its handles count as one, and each graph and each guard as one.
    #[must_use]
    pub fn use_count(&self) -> u32 {
        let ready = self.0.runtime.ready();
        ready.and_then(|ready| ready.allocator.pool_use_count(self.0.device, self.0.id)).unwrap_or(0)
    }

    /// The pool's memory, by address.
    #[must_use]
    pub fn snapshot(&self) -> Vec<SegmentInfo> {
        self.0.runtime.memory().snapshot(Some(self.0.id))
    }
}

impl fmt::Debug for MemPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemPool {{ id: {}, device: {} }}", self.id(), Device::cuda(self.device()))
    }
}

impl PartialEq for MemPool {
    fn eq(&self, other: &Self) -> bool {
        self.0.runtime == other.0.runtime && self.0.id == other.0.id
    }
}

impl Eq for MemPool {}

impl Drop for Pool {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        if let Ok(ready) = self.runtime.ready() {
            // Memory that the driver does not take back now is freed by the next `empty_cache`.
            let _ = ready.allocator.close_pool(&ready.api, self.device, self.id);
        }
    }
}

/// Takes memory from a pool until this is dropped; made by [`crate::MemPools::enter`].
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, MemPool, MemPoolOptions, Runtime};
///
/// let (runtime, pool) = (Runtime::current(), MemPool::new(MemPoolOptions::default())?);
/// let guard = runtime.mem_pools().enter(&pool, 0)?;
/// let (inside, _) = (DeviceBuffer::new(1000, None)?, drop(guard));
/// let outside = DeviceBuffer::new(1000, None)?;
/// let holds = |buffer: &DeviceBuffer| pool.snapshot()[0].blocks.iter().any(|block| block.address == buffer.address());
/// assert!(holds(&inside) && !holds(&outside));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[must_use = "memory comes from the pool only while the guard lives"]
pub struct MemPoolGuard {
    pool: EnteredPool,
    device: DeviceIndex,
    thread: PhantomData<*const ()>,
}

impl fmt::Debug for MemPoolGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemPoolGuard {{ pool: {}, device: {} }}", self.pool.id, Device::cuda(self.device))
    }
}

impl Drop for MemPoolGuard {
    fn drop(&mut self) {
        if process::in_bad_fork() {
            return;
        }
        ENTERED.with_borrow_mut(|entered| {
            let is_it =
                |entry: &Entry| entry.filter.is_none() && entry.pool == self.pool && entry.device == self.device;
            if let Some(at) = entered.iter().rposition(is_it) {
                entered.remove(at);
            }
        });
        if let Ok(ready) = self.pool.runtime.ready() {
            // Neither can fail: the pool was begun on this device and not ended since.
            let _ = ready.allocator.end_allocate_to_pool(self.device, self.pool.id);
            let _ = ready.allocator.release_pool(self.device, self.pool.id);
        }
    }
}
