//! Routing of requests to memory pools by pairs of calls.
//!
//! Guards ([`MemPools::enter`]) do the same and cannot be left open. These calls are for code where begin and end do
//! not lie in one scope, such as a compiler that records several graphs into one pool.
//!
//! **Invariant:** a program ends only what it began here: never the route of a guard or of a capture.

use std::sync::Arc;

use crate::api::mem_pool::MemPools;
use crate::base::device::DeviceIndex;
use crate::base::error::PoolError;
use crate::base::error::{Error, Result};
use crate::base::ids::PoolId;
use crate::caching::{Filter, Predicate};
use crate::thread;
use crate::thread::pending::PuttingOff;

/// The name of the memory outside of all pools. No route leads there.
const DEFAULT: PoolId = PoolId(0, 0);

impl MemPools<'_> {
    /// From now on takes memory that any thread asks for on `device`, for any stream, from a pool; torch's
    /// `_cuda_beginAllocateToPool`. Makes the pool if there is none of that name, and counts as one more user of it
    /// until [`Self::release`]. If several open routes match a request, the newest counts.
    ///
    /// While any route is open on the device, memory there that was used on other streams is not reused.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceBuffer, PoolId, Runtime};
    ///
    /// let (runtime, pool) = (Runtime::current(), PoolId::handle());
    /// runtime.mem_pools().begin_allocate(0, pool)?;
    /// let buffer = DeviceBuffer::new(100, None)?;
    /// runtime.mem_pools().end_allocate(0, pool)?;
    /// assert_eq!(runtime.memory().snapshot(Some(pool))[0].blocks[0].address, buffer.address());
    /// runtime.mem_pools().release(0, pool)?;
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::PoolError::AlreadyRecording`]; [`crate::PoolError::Released`] for a pool that all its users gave up and
    /// that still holds memory; [`crate::PoolError::NotFound`] for `PoolId(0, 0)`; the device does not exist.
    #[doc(alias = "_cuda_beginAllocateToPool")]
    pub fn begin_allocate(self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.begin(device, pool, Filter::Any)
    }

    /// As [`Self::begin_allocate`], for memory that this thread asks for; torch's
    /// `_cuda_beginAllocateCurrentThreadToPool`.
    ///
    /// # Errors
    /// As for [`Self::begin_allocate`].
    #[doc(alias = "_cuda_beginAllocateCurrentThreadToPool")]
    pub fn begin_allocate_on_thread(self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.begin(device, pool, Filter::Thread(thread::number()))
    }

    /// As [`Self::begin_allocate`], for memory that any thread asks for on the stream that is this thread's current one
    /// of the device now; torch's `_cuda_beginAllocateCurrentStreamToPool`.
    ///
    /// # Errors
    /// As for [`Self::begin_allocate`].
    #[doc(alias = "_cuda_beginAllocateCurrentStreamToPool")]
    pub fn begin_allocate_on_stream(self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.0.check_device_id(device)?;
        self.begin(device, pool, Filter::Stream(thread::stream(self.0.id(), device).handle))
    }

    /// As [`Self::begin_allocate`], for streams whose raw handle `takes` answers with true; torch's C++
    /// `beginAllocateToPool` with its filter. `takes` is asked for each request on the device while the route is open, on
    /// the thread that asks, and may not use the runtime: the device's books are locked meanwhile.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{PoolId, Runtime, Stream};
    ///
    /// let (runtime, pool, stream) = (Runtime::current(), PoolId::handle(), Stream::new(None, 0)?);
    /// let wanted = stream.cuda_stream();
    /// runtime.mem_pools().begin_allocate_where(0, pool, move |handle| handle == wanted)?;
    /// let address = runtime.memory().alloc(100, &stream)?;
    /// runtime.mem_pools().end_allocate(0, pool)?;
    /// assert_eq!(runtime.memory().snapshot(Some(pool))[0].blocks[0].address, address);
    /// runtime.memory().free(address)?;
    /// runtime.mem_pools().release(0, pool)?;
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::begin_allocate`].
    pub fn begin_allocate_where(
        self,
        device: DeviceIndex,
        pool: PoolId,
        takes: impl Fn(usize) -> bool + Send + Sync + 'static,
    ) -> Result<()> {
        self.begin(device, pool, Filter::Where(Predicate(Arc::new(takes))))
    }

    /// Closes the route that one of the calls above opened; torch's `_cuda_endAllocateToPool`. The program still counts
    /// as a user of the pool.
    ///
    /// # Errors
    /// [`crate::PoolError::NotRecording`], also for the route of a guard or of a capture; the device does not exist.
    #[doc(alias = "_cuda_endAllocateToPool")]
    pub fn end_allocate(self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        // A route that is open already was not opened by what is put off.
        if !self.forget_route(device, pool) {
            PuttingOff::settle("memory comes from another pool");
        }
        let ready = self.0.check_device_id(device)?;
        ready.pool_routes.close(device, pool, || ready.allocator.end_allocate_to_pool(device, pool))
    }

    /// Ends one use of a pool that one of the calls above began; torch's `_cuda_releasePool`. When nobody uses the pool
    /// any more, its free memory goes back to the driver with the next [`crate::Memory::empty_cache`].
    ///
    /// # Errors
    /// [`crate::PoolError::NotFound`] where no such use is left; [`crate::PoolError::StillRecording`] for the last such
    /// use while the route is open; the device does not exist.
    #[doc(alias = "_cuda_releasePool")]
    pub fn release(self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        let ready = self.0.check_device_id(device)?;
        ready.pool_routes.release(device, pool, || ready.allocator.release_pool(device, pool))
    }

    fn begin(self, device: DeviceIndex, pool: PoolId, filter: Filter) -> Result<()> {
        if pool == DEFAULT {
            return Err(Error::Pool(PoolError::NotFound { pool }));
        }
        let (ready, noted) = (self.0.check_device_id(device)?, filter.clone());
        ready.pool_routes.open(device, pool, || ready.allocator.begin_allocate_to_pool(device, pool, filter))?;
        self.note_route(device, pool, noted);
        Ok(())
    }
}
