//! The functions that an allocator may have besides the two: torch's setters.
//!
//! **Invariant:** a hook that is not set does nothing; one that panics is an error of the call that called it.

use std::fmt;
use std::sync::Arc;

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::base::ids::PoolId;
use crate::plugin::functions::guarded;
use crate::sync::RwLock;

/// Which streams a route to a pool takes, by their raw handles.
pub(super) type StreamFilter = Arc<dyn Fn(usize) -> bool + Send + Sync>;

pub(super) type Init = dyn Fn(usize) + Send + Sync;
pub(super) type Reset = dyn Fn() + Send + Sync;
pub(super) type MemoryFraction = dyn Fn(f64, DeviceIndex) + Send + Sync;
pub(super) type BaseAlloc = dyn Fn(u64) -> (u64, u64) + Send + Sync;
pub(super) type RecordStream = dyn Fn(u64, usize) + Send + Sync;
pub(super) type BeginPool = dyn Fn(DeviceIndex, PoolId, StreamFilter) + Send + Sync;
pub(super) type OfPool = dyn Fn(DeviceIndex, PoolId) + Send + Sync;

/// The name of a hook, for addresses and symbols.
///
/// ```
/// assert_eq!(c10_core::AllocatorHook::RecordStream.to_string(), "set_record_stream_fn");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum AllocatorHook {
    /// `void(int device_count)`, when the runtime starts.
    Init,
    /// `void()`, for `empty_cache`.
    Reset,
    /// `void(double fraction, int device)`, for `set_per_process_memory_fraction`.
    MemoryFraction,
    /// `void*(void* address, size_t* bytes)`: the whole allocation that an address lies in.
    BaseAlloc,
    /// `void(void* address, cudaStream_t stream)`.
    RecordStream,
    /// `void(int device, std::pair<uint64_t, uint64_t> pool, std::function<bool(cudaStream_t)> filter)`.
    BeginAllocateToPool,
    /// `void(int device, std::pair<uint64_t, uint64_t> pool)`.
    EndAllocateToPool,
    /// `void(int device, std::pair<uint64_t, uint64_t> pool)`.
    ReleasePool,
}

impl AllocatorHook {
    /// Torch's name of its setter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "set_init_fn",
            Self::Reset => "set_reset_fn",
            Self::MemoryFraction => "set_memory_fraction_fn",
            Self::BaseAlloc => "set_base_alloc_fn",
            Self::RecordStream => "set_record_stream_fn",
            Self::BeginAllocateToPool => "set_begin_allocate_to_pool",
            Self::EndAllocateToPool => "set_end_allocate_to_pool_fn",
            Self::ReleasePool => "set_release_pool",
        }
    }
}

impl fmt::Display for AllocatorHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A hook that can be set at any time.
pub(super) struct Slot<F: ?Sized>(RwLock<Option<Arc<F>>>);

impl<F: ?Sized> Default for Slot<F> {
    fn default() -> Self {
        Self(RwLock::new(None))
    }
}

impl<F: ?Sized> Slot<F> {
    pub(super) fn set(&self, hook: Arc<F>) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(hook);
    }

    pub(super) fn is_set(&self) -> bool {
        self.get().is_some()
    }

    fn get(&self) -> Option<Arc<F>> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Calls the hook, if there is one, with no lock held.
    pub(super) fn call<T>(&self, name: &'static str, call: impl FnOnce(&F) -> T) -> Result<Option<T>> {
        self.get().map(|hook| guarded(name, || call(&hook))).transpose()
    }
}

/// All hooks of an allocator.
#[derive(Default)]
pub(super) struct Hooks {
    pub(super) init: Slot<Init>,
    pub(super) reset: Slot<Reset>,
    pub(super) memory_fraction: Slot<MemoryFraction>,
    pub(super) base_alloc: Slot<BaseAlloc>,
    pub(super) record_stream: Slot<RecordStream>,
    pub(super) begin_pool: Slot<BeginPool>,
    pub(super) end_pool: Slot<OfPool>,
    pub(super) release_pool: Slot<OfPool>,
}
