//! Allocators and hooks whose author the compiler cannot check: a shared object, C functions by their addresses, Rust
//! functions that answer with addresses.
//!
//! # Safety
//! Each function here says what its caller answers for. What is called is `address`, under the same promises.
#![expect(unsafe_code, reason = "functions whose caller answers for functions and memory at addresses")]

use std::path::Path;

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::plugin::address::{self, SharedObject};
use crate::plugin::functions::Functions;
use crate::plugin::{AllocatorHook, CUDAPluggableAllocator};

impl CUDAPluggableAllocator {
    /// An allocator of a shared object, by the names of its two functions:
    ///
    /// ```c
    /// void *my_malloc(ssize_t bytes, int device, cudaStream_t stream);
    /// void my_free(void *address, ssize_t bytes, int device, cudaStream_t stream);
    /// ```
    ///
    /// The file is searched for as the system's loader does, and never closed.
    ///
    /// # Errors
    /// [`crate::AllocatorError::Library`]: the file cannot be opened, or lacks one of the functions.
    ///
    /// # Safety
    /// The file's initialisers are run, and its functions are what is said above: they may be called from any thread, give
    /// memory that the device can use and that nobody else uses, and let no exception out.
    pub unsafe fn new(path_to_so_file: impl AsRef<Path>, alloc_fn_name: &str, free_fn_name: &str) -> Result<Self> {
        // SAFETY: the caller wants the file to be opened.
        let library = unsafe { SharedObject::open(path_to_so_file.as_ref()) }?;
        let (alloc, free) = (library.symbol(alloc_fn_name)?, library.symbol(free_fn_name)?);
        // SAFETY: the caller's promise about the function of this name.
        let alloc = unsafe { address::alloc_at(alloc) };
        // SAFETY: as above.
        let free = unsafe { address::free_at(free) };
        Ok(Self::of(Functions::Plain { alloc, free }, Some(library)))
    }

    /// An allocator of two C functions by their addresses; see [`Self::new`].
    ///
    /// # Errors
    /// [`crate::AllocatorError::NullFunction`].
    ///
    /// # Safety
    /// At each address other than 0 lies a function of the signature that [`Self::new`] says, and it is as said there.
    pub unsafe fn from_addresses(alloc: usize, free: usize) -> Result<Self> {
        let (alloc, free) = (address::function(alloc, "alloc")?, address::function(free, "free")?);
        // SAFETY: the caller's promise about the function at this address.
        let alloc = unsafe { address::alloc_at(alloc) };
        // SAFETY: as above.
        let free = unsafe { address::free_at(free) };
        Ok(Self::of(Functions::Plain { alloc, free }, None))
    }

    /// An allocator of two Rust functions: `alloc(bytes, device, stream)` answers with an address, 0 for no memory;
    /// `free(address, bytes, device, stream)` takes it back. The stream is its raw handle.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{CUDAPluggableAllocator, DeviceBuffer, MemPool, MemPoolOptions, Runtime};
    ///
    /// // SAFETY: it never gives any memory.
    /// let empty = unsafe { CUDAPluggableAllocator::from_functions(|_, _, _| 0, |_, _, _, _| ()) };
    /// let pool = MemPool::with_allocator(&empty, MemPoolOptions::default())?;
    /// let refused = Runtime::current().mem_pools().with(&pool, 0.into(), || DeviceBuffer::new(1000, None));
    /// assert!(refused.is_err_and(|error| error.is_out_of_memory()), "null is the out-of-memory error");
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Safety
    /// What `alloc` gives is memory of the device that nobody else uses until it was given to `free`.
    pub unsafe fn from_functions(
        alloc: impl Fn(u64, DeviceIndex, usize) -> u64 + Send + Sync + 'static,
        free: impl Fn(u64, u64, DeviceIndex, usize) + Send + Sync + 'static,
    ) -> Self {
        Self::of(Functions::Plain { alloc: Box::new(alloc), free: Box::new(free) }, None)
    }

    /// Sets a hook to the C function at an address; torch's setters, such as `set_record_stream_fn`.
    ///
    /// # Errors
    /// [`crate::AllocatorError::NullFunction`].
    ///
    /// # Safety
    /// At an address other than 0 lies a function of the signature that [`AllocatorHook`] says, which may be called from any
    /// thread and lets no exception out. C++ objects are those of libstdc++.
    pub unsafe fn set_hook_at(&self, hook: AllocatorHook, address: usize) -> Result<()> {
        let address = address::function(address, hook.name())?;
        // SAFETY: the caller's promise.
        unsafe { address::set_hook(&self.0.hooks, hook, address) };
        Ok(())
    }

    /// Sets a hook to a function of the shared object that the allocator was made of.
    ///
    /// # Errors
    /// [`crate::AllocatorError::Library`]: the shared object lacks the function, or there is none.
    ///
    /// # Safety
    /// As for [`Self::set_hook_at`].
    pub unsafe fn set_hook(&self, hook: AllocatorHook, symbol: &str) -> Result<()> {
        let address = self.symbol(symbol)?;
        // SAFETY: the caller's promise about the function of this name.
        unsafe { address::set_hook(&self.0.hooks, hook, address) };
        Ok(())
    }
}
