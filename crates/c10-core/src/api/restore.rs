//! Bringing a memory pool back to a checkpoint, and what this means for buffers of its memory.
//!
//! **Invariants:** a buffer loses its memory only if it was given up. Memory that is handed out afterwards has one
//! holder: the one that it had before, or a buffer in the result. After an error everything is as it was.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::buffers::DeviceBuffer;
use crate::api::mem_pool::MemPools;
use crate::base::device::DeviceIndex;
use crate::base::error::MemoryError;
use crate::base::error::PoolError;
use crate::base::error::{Error, Result};
use crate::base::handles::{StreamHandle, StreamRef};
use crate::caching::{BlockInfo, PoolCheckpoint};
use crate::runtime::Started;

/// Memory that its holder gives up when a pool is brought back to a checkpoint; torch's stale storages.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{MemPool, MemPoolOptions, Runtime, StaleMemory, Stream};
///
/// let (runtime, pool) = (Runtime::current(), MemPool::new(MemPoolOptions::default())?);
/// let checkpoint = runtime.mem_pools().checkpoint(0, pool.id())?;
/// let stream = Stream::new(None, 0)?;
/// let address = runtime.mem_pools().with(&pool, 0, || runtime.memory().alloc(1000, &stream))?;
/// let mut stale = StaleMemory { addresses: vec![address], ..StaleMemory::default() };
/// runtime.mem_pools().restore(0, &checkpoint, &mut stale)?;
/// assert!(stale.addresses.is_empty() && runtime.memory().free(address).is_err());
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct StaleMemory {
    /// Buffers; each must be the only handle of its memory. They are dropped without freeing it.
    pub buffers: Vec<DeviceBuffer>,
    /// Addresses that were handed out without a buffer ([`crate::Memory::alloc`]).
    pub addresses: Vec<u64>,
}

/// What bringing a pool back to a checkpoint did.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, MemPool, MemPoolOptions, Runtime, StaleMemory};
///
/// let (runtime, pool) = (Runtime::current(), MemPool::new(MemPoolOptions::default())?);
/// let buffer = runtime.mem_pools().with(&pool, 0, || DeviceBuffer::new(1000, None))?;
/// let (address, checkpoint) = (buffer.address(), runtime.mem_pools().checkpoint(0, pool.id())?);
/// drop(buffer);
/// let restored = runtime.mem_pools().restore(0, &checkpoint, &mut StaleMemory::default())?;
/// assert_eq!(restored.buffers[0].address(), address, "handed out again, with a new holder");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct RestoredPool {
    /// Addresses that were handed out before, by stream and address. An address that is also in `allocations_created`
    /// stays with its holder, unless it was given up.
    pub allocations_freed: Vec<u64>,
    /// Blocks that are handed out now, by address.
    pub allocations_created: Vec<BlockInfo>,
    /// Those of them that nobody held before, by address, as buffers of the whole block. Torch has its caller give the
    /// storages of such memory their deleters.
    pub buffers: Vec<DeviceBuffer>,
}

impl MemPools<'_> {
    /// Brings a memory pool back to a checkpoint of it; torch's `_cuda_setCheckpointPoolState`. Takes back memory that
    /// is handed out now and was not at the checkpoint, or that was smaller then; its holder has to give it up in
    /// `stale`. Hands memory that was handed out at the checkpoint out again, at the same addresses: to its present
    /// holder, or as a buffer of the result. Segments that the pool got since then stay with it, free. Contents are not
    /// restored.
    ///
    /// `stale` is empty afterwards. After an error it and the pool are as they were.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceBuffer, MemPool, MemPoolOptions, PoolError, Runtime, StaleMemory};
    ///
    /// let (runtime, device) = (Runtime::current(), 0);
    /// let pool = MemPool::new(MemPoolOptions::default())?;
    /// let new = |len| runtime.mem_pools().with(&pool, device, || DeviceBuffer::new(len, None));
    /// let checkpoint = runtime.mem_pools().checkpoint(device, pool.id())?;
    /// let buffer = new(1 << 20)?;
    ///
    /// let refused = runtime.mem_pools().restore(device, &checkpoint, &mut StaleMemory::default());
    /// assert_eq!(refused.unwrap_err(), PoolError::StaleMemory { address: buffer.address() }.into());
    /// let mut stale = StaleMemory { buffers: vec![buffer], ..StaleMemory::default() };
    /// runtime.mem_pools().restore(device, &checkpoint, &mut stale)?;
    /// assert!(runtime.mem_pools().check_live_allocations(device, pool.id(), &[])?);
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::checkpoint`]; [`crate::PoolError::StaleMemory`] for memory that was not given up;
    /// [`crate::PoolError::BufferNotGivenUp`]; [`crate::MemoryError::OwnedByBuffer`] for the address of a buffer;
    /// memory of the pool is used by other streams ([`crate::PoolError::CheckpointOfPendingMemory`]); the checkpoint is
    /// of another runtime or device, or a segment of it went back to the driver
    /// ([`crate::PoolError::CheckpointIsStale`]).
    #[doc(alias = "_cuda_setCheckpointPoolState")]
    pub fn restore(
        self,
        device: DeviceIndex,
        checkpoint: &PoolCheckpoint,
        stale: &mut StaleMemory,
    ) -> Result<RestoredPool> {
        let ready = self.0.check_device_id(device)?;
        let refused = stale.buffers.iter().find(|buffer| !self.can_give_up(ready, buffer, checkpoint));
        if let Some(buffer) = refused {
            return Err(Error::Pool(PoolError::BufferNotGivenUp { address: buffer.address() }));
        }
        let of_buffer = stale.addresses.iter().find(|address| ready.allocator.is_of_buffer(**address));
        if let Some(address) = of_buffer {
            return Err(Error::Memory(MemoryError::OwnedByBuffer { address: *address }));
        }
        let buffers = stale.buffers.iter().map(DeviceBuffer::address);
        let given_up: BTreeSet<u64> = buffers.chain(stale.addresses.iter().copied()).collect();
        let result = ready.allocator.restore_pool(&ready.api, device, checkpoint, Some(&given_up))?;
        stale.buffers.drain(..).for_each(DeviceBuffer::forget_taken);
        stale.addresses.clear();
        let held: BTreeSet<u64> = result.allocations_freed.iter().copied().collect();
        let streams = streams_of(checkpoint);
        let ownerless = result.allocations_created.iter().filter(|block| {
            let stayed = held.contains(&block.address) && !given_up.contains(&block.address);
            !stayed
        });
        let buffers = ownerless.map(|block| {
            let handle = streams.get(&block.address).copied().unwrap_or_default();
            let len = usize::try_from(block.size).unwrap_or(0);
            DeviceBuffer::owning(self.0, block.address, len, StreamRef { device, handle })
        });
        let buffers = buffers.collect();
        let (allocations_freed, allocations_created) = (result.allocations_freed, result.allocations_created);
        Ok(RestoredPool { allocations_freed, allocations_created, buffers })
    }

    /// Whether a buffer is the only handle of memory of the checkpoint's pool, so that it can be taken back.
    fn can_give_up(self, ready: &Started, buffer: &DeviceBuffer, checkpoint: &PoolCheckpoint) -> bool {
        let is_of_pool = || ready.allocator.owner(buffer.address()) == Some(checkpoint.pool());
        let is_ours = buffer.runtime() == self.0 && buffer.device_index() == checkpoint.device();
        is_ours && buffer.is_sole_owner() && is_of_pool()
    }
}

/// The stream that each block of a checkpoint is for.
fn streams_of(checkpoint: &PoolCheckpoint) -> BTreeMap<u64, StreamHandle> {
    let each = checkpoint.segments().iter().flat_map(|segment| {
        // The number was made of a handle.
        let handle = StreamHandle(usize::try_from(segment.stream).unwrap_or(usize::MAX));
        segment.blocks.iter().map(move |block| (block.address, handle))
    });
    each.collect()
}
