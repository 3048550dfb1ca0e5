//! Allocators that a program brings: torch's `CUDAPluggableAllocator`.
//!
//! **Invariants:** every address that the allocator gave is in its books, with bytes, device and stream, until it was given
//! back; it gets nothing back that it did not give. Nothing unwinds into its functions' callers: a panic is an error. Its
//! functions are called with no lock of the books held.

mod address;
mod backend;
mod filter;
mod foreign;
mod functions;
mod held;
mod hooks;
mod source;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

pub(crate) use backend::PluggableBackend;
pub use hooks::AllocatorHook;

use crate::base::device::DeviceIndex;
use crate::base::error::{AllocatorError, Error, PluginLoadError, Result};
use crate::base::handles::StreamRef;
use crate::base::ids::PoolId;
use crate::caching::{DeviceStats, Owner, SegmentInfo, Source};
use crate::plugin::address::SharedObject;
use crate::plugin::functions::Functions;
use crate::plugin::held::{Held, Piece, given_twice};
use crate::plugin::hooks::Hooks;
use crate::resource::{Allocation, MemoryResource, StreamView};

/// An allocator that a program brings, instead of the caching one or as the source of a memory pool's segments; torch's
/// `CUDAPluggableAllocator`. Clones are handles of the same allocator.
///
/// It is made of a shared object ([`Self::new`]), of C functions by their addresses ([`Self::from_addresses`]), of Rust
/// functions ([`Self::from_functions`]), or of a memory resource ([`Self::from_resource`]), which is the safe way. The
/// functions are called from any thread; what they are given as a stream is its raw handle. Memory of no bytes is never asked
/// for.
///
/// Beyond torch's: an answer of null becomes the out-of-memory error; figures and snapshots are those of the books that
/// are kept; a panic of a Rust function is an error; memory that is used on other streams goes back only behind their work.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{CUDAPluggableAllocator, DeviceBuffer, DriverResource, LimitResource, MemPool, MemPoolOptions, Runtime};
///
/// // A pool whose segments come from the driver, at most 4 MiB of them.
/// let driver = DriverResource::new(&Runtime::current());
/// let allocator = CUDAPluggableAllocator::from_resource(LimitResource::new(driver, 4 << 20));
/// let pool = MemPool::with_allocator(&allocator, MemPoolOptions::default())?;
/// let buffer = Runtime::current().mem_pools().with(&pool, 0.into(), || DeviceBuffer::new(1000, None))?;
/// assert_eq!(allocator.stats(0.into()).reserved_bytes.all.current, 2 << 20, "the cache asks for whole segments");
/// # drop(buffer);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone)]
pub struct CUDAPluggableAllocator(Arc<Plugin>);

thread_local! {
    /// The allocator that this thread is asking for memory, by its address; 0 for none.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

struct Plugin {
    functions: Functions,
    hooks: Hooks,
    held: Held,
    library: Option<SharedObject>,
}

impl CUDAPluggableAllocator {
    fn of(functions: Functions, library: Option<SharedObject>) -> Self {
        Self(Arc::new(Plugin { functions, hooks: Hooks::default(), held: Held::default(), library }))
    }

    /// An allocator of a memory resource. Its memory goes back on the stream that it was asked for.
    pub fn from_resource(resource: impl MemoryResource + 'static) -> Self {
        Self::of(Functions::Resource(Arc::new(resource)), None)
    }

    fn symbol(&self, name: &str) -> Result<std::ptr::NonNull<std::ffi::c_void>> {
        match &self.0.library {
            Some(library) => library.symbol(name),
            None => {
                let (path, symbol) = ("an allocator without a shared object".to_owned(), Some(name.to_owned()));
                let reason = "give the function's address or a Rust function".to_owned();
                Err(AllocatorError::Library(Box::new(PluginLoadError { path, symbol, reason })).into())
            }
        }
    }

    /// Calls `hook` with the number of devices when a runtime starts that has this allocator, or at once when it is set
    /// later; torch's `set_init_fn`.
    pub fn set_init_fn(&self, hook: impl Fn(usize) + Send + Sync + 'static) {
        self.0.hooks.init.set(Arc::new(hook));
    }

    /// Calls `hook` for `empty_cache`; torch's `set_reset_fn`.
    pub fn set_reset_fn(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.0.hooks.reset.set(Arc::new(hook));
    }

    /// Calls `hook` with the part of the device's memory that the process may use and the device; torch's
    /// `set_memory_fraction_fn`.
    pub fn set_memory_fraction_fn(&self, hook: impl Fn(f64, DeviceIndex) + Send + Sync + 'static) {
        self.0.hooks.memory_fraction.set(Arc::new(hook));
    }

    /// Asks `hook` for the whole allocation around an address, which is what other processes can be given: its address and
    /// its bytes. Torch's `set_base_alloc_fn`. Without it the memory that was asked for is the whole.
    pub fn set_base_alloc_fn(&self, hook: impl Fn(u64) -> (u64, u64) + Send + Sync + 'static) {
        self.0.hooks.base_alloc.set(Arc::new(hook));
    }

    /// Tells `hook` of each use of memory on another stream: address and raw handle; torch's `set_record_stream_fn`. Without
    /// it, the memory goes back behind the work of those streams.
    pub fn set_record_stream_fn(&self, hook: impl Fn(u64, usize) + Send + Sync + 'static) {
        self.0.hooks.record_stream.set(Arc::new(hook));
    }

    /// Tells `hook` that requests for the streams that a filter takes belong to a pool from now on; torch's
    /// `set_begin_allocate_to_pool`.
    pub fn set_begin_allocate_to_pool(
        &self,
        hook: impl Fn(DeviceIndex, PoolId, Arc<dyn Fn(usize) -> bool + Send + Sync>) + Send + Sync + 'static,
    ) {
        self.0.hooks.begin_pool.set(Arc::new(hook));
    }

    /// Tells `hook` that requests belong to a pool no longer; torch's `set_end_allocate_to_pool_fn`.
    pub fn set_end_allocate_to_pool_fn(&self, hook: impl Fn(DeviceIndex, PoolId) + Send + Sync + 'static) {
        self.0.hooks.end_pool.set(Arc::new(hook));
    }

    /// Tells `hook` that one user of a pool is gone; torch's `set_release_pool`.
    pub fn set_release_pool(&self, hook: impl Fn(DeviceIndex, PoolId) + Send + Sync + 'static) {
        self.0.hooks.release_pool.set(Arc::new(hook));
    }

    /// What the allocator has given of a device's memory: each piece counts as a segment and as a block of its own.
    #[must_use]
    pub fn stats(&self, device: DeviceIndex) -> DeviceStats {
        self.0.held.stats(device)
    }

    /// The memory that the allocator has given and not got back, by device and address.
    #[must_use]
    pub fn snapshot(&self) -> Vec<SegmentInfo> {
        self.0.held.snapshot()
    }

    /// The allocator as a source of segments.
    pub(crate) fn as_source(&self) -> Source {
        Arc::new(self.clone())
    }

    /// Memory for a stream; `None` where the allocator has none.
    pub(crate) fn take_memory(&self, stream: StreamRef, bytes: u64, owner: Owner) -> Result<Option<u64>> {
        if bytes == 0 {
            return Ok(None);
        }
        let stream = StreamView(stream);
        let asked = self.asked(|| self.0.functions.alloc(bytes, stream))?;
        let Some(memory) = asked else {
            self.0.held.count_out_of_memory(stream.device());
            return Ok(None);
        };
        // It is in use: to give it back would take it from whoever has it.
        let entered = self.0.held.enter(memory, stream, owner);
        Ok(Some(entered.map_err(|memory| given_twice(&memory))?))
    }

    /// Takes memory back on the stream that it was asked for; it is handed out still where that fails.
    pub(crate) fn give_memory(&self, address: u64, owner: Owner) -> Result<()> {
        let piece = self.0.held.take(address, owner)?;
        self.release(piece).map_err(|(piece, error)| {
            piece.into_iter().for_each(|piece| self.0.held.put_back(piece));
            error
        })
    }

    /// Gives a piece that is in no books back to where it came from. It comes back where it was refused, and not where the
    /// function panicked: nobody knows then whether it was taken.
    fn release(&self, mut piece: Piece) -> Result<(), (Option<Piece>, Error)> {
        let none = Allocation::empty(piece.stream.device());
        let memory = std::mem::replace(&mut piece.memory, none);
        self.0.functions.free(memory, piece.stream).map_err(|(memory, error)| {
            let back = memory.map(|memory| Piece { memory, ..piece });
            (back, error)
        })
    }

    /// Asks the allocator, unless it is the one that asks.
    fn asked<T>(&self, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        let this = Arc::as_ptr(&self.0).addr();
        let before = ASKED.replace(this);
        let answer = if before == this { Err(AllocatorError::Reentered.into()) } else { ask() };
        ASKED.set(before);
        answer
    }

    fn count_out_of_memory(&self, device: DeviceIndex) {
        self.0.held.count_out_of_memory(device);
    }
}

impl PartialEq for CUDAPluggableAllocator {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CUDAPluggableAllocator {}

impl fmt::Debug for CUDAPluggableAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.library {
            Some(library) => write!(f, "CUDAPluggableAllocator({})", library.path()),
            None => write!(f, "CUDAPluggableAllocator({:?})", self.0.functions),
        }
    }
}
