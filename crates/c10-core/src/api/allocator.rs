//! The allocator of a runtime: which it is, and bringing another one.

use crate::api::memory::Memory;
use crate::base::config::Backend;
use crate::base::error::Result;
use crate::plugin::CUDAPluggableAllocator;

/// The allocator of device memory of a runtime.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Backend, CurrentAllocator, Runtime};
///
/// let current = Runtime::current().memory().current_allocator();
/// assert_eq!((current.name(), current), ("native", CurrentAllocator::Backend(Backend::Native)));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CurrentAllocator {
    /// One that the options name.
    Backend(Backend),
    /// One that the program has brought.
    Pluggable(CUDAPluggableAllocator),
}

impl CurrentAllocator {
    /// Its name: that of the backend, or `pluggable`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Backend(backend) => backend.name(),
            Self::Pluggable(_) => "pluggable",
        }
    }
}

impl Memory<'_> {
    /// Serves all requests by an allocator of the program instead of the caching one; torch's `change_current_allocator`.
    /// It must be called before the runtime starts, which the first need of a device does.
    ///
    /// Each request is then one call of the allocator and each buffer that is dropped another one, on the thread that does
    /// so. An answer of null is the out-of-memory error, of which observers are told. Memory that was used on other streams
    /// goes back when its own stream has been made to wait for them, unless the allocator has a hook for that. What a
    /// captured graph uses is kept by the graph. Figures and snapshots are those of what is handed out. The history and
    /// checkpoints are refused by torch's words ([`crate::BackendError::Unsupported`]), and so are memory pools unless the
    /// allocator has hooks for them.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{AllocatorError, CUDAPluggableAllocator, DeviceBuffer, Error, Runtime};
    /// # let memory = std::sync::atomic::AtomicU64::new(1 << 45);
    ///
    /// let runtime = Runtime::current();
    /// // SAFETY: nothing in this example reads or writes the memory.
    /// let made_up = unsafe {
    ///     CUDAPluggableAllocator::from_functions(
    ///         move |bytes, _, _| memory.fetch_add(bytes.next_multiple_of(512), std::sync::atomic::Ordering::Relaxed),
    ///         |_, _, _, _| (),
    ///     )
    /// };
    /// runtime.memory().change_current_allocator(&made_up)?;
    /// let buffer = DeviceBuffer::new(1000, None)?;
    /// assert_eq!(runtime.memory().stats(0.into())?.allocated_bytes.all.current, 1000, "nothing is rounded");
    /// assert_eq!(runtime.memory().backend(), "pluggable");
    /// let late = runtime.memory().change_current_allocator(&made_up);
    /// assert_eq!(late, Err(Error::Allocator(AllocatorError::AlreadyInitialized)));
    /// # drop(buffer);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::AllocatorError::AlreadyInitialized`].
    pub fn change_current_allocator(self, allocator: &CUDAPluggableAllocator) -> Result<()> {
        self.runtime().set_allocator(allocator)
    }

    /// The allocator that serves requests, or will when the runtime starts; torch's `_get_current_allocator`.
    #[must_use]
    #[doc(alias = "_get_current_allocator")]
    pub fn current_allocator(self) -> CurrentAllocator {
        match self.runtime().allocator() {
            Some(allocator) => CurrentAllocator::Pluggable(allocator),
            None => CurrentAllocator::Backend(self.config().backend),
        }
    }
}
