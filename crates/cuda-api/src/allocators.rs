//! Allocators that a program brings.

use c10_core::{CUDAPluggableAllocator, CurrentAllocator, Result, Runtime};

/// Serves all requests by an allocator of the program; see [`c10_core::Memory::change_current_allocator`]. Call it before
/// anything uses a device.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::CUDAPluggableAllocator;
///
/// // SAFETY: it never gives any memory.
/// let empty = unsafe { CUDAPluggableAllocator::from_functions(|_, _, _| 0, |_, _, _, _| ()) };
/// cuda_api::change_current_allocator(&empty)?;
/// assert!(cuda_api::DeviceBuffer::new(100, None).is_err_and(|error| error.is_out_of_memory()));
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// [`crate::AllocatorError::AlreadyInitialized`].
pub fn change_current_allocator(allocator: &CUDAPluggableAllocator) -> Result<()> {
    Runtime::with_current(|runtime| runtime.memory().change_current_allocator(allocator))
}

/// The allocator that serves requests: one that the options name, or one that the program has brought.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// assert_eq!(cuda_api::get_current_allocator().name(), "native");
/// # Ok::<(), cuda_api::Error>(())
/// ```
#[must_use]
#[doc(alias = "_get_current_allocator")]
pub fn get_current_allocator() -> CurrentAllocator {
    Runtime::with_current(|runtime| runtime.memory().current_allocator())
}
