//! Buffers of memory that somebody else owns, and buffers whose memory was taken back.
//!
//! # Safety
//! No foreign function is called here. One function relies on a promise of its caller.
#![expect(unsafe_code, reason = "who names an address answers for the memory there")]

use std::any::Any;
use std::sync::Arc;

use crate::api::arg::DeviceArg;
use crate::api::buffers::{DeviceBuffer, FreedBy};
use crate::api::ipc::Received;
use crate::api::mem_pool::MemPool;
use crate::base::error::{PoolError, Result};
use crate::base::handles::StreamRef;
use crate::runtime::Runtime;
use crate::thread;

/// Makes a buffer of the `size_bytes` bytes at an address without owning them: dropping the buffer frees nothing.
/// Torch's `_construct_storage_from_data_pointer`. For memory that something else owns, such as the memory that a
/// captured graph writes at each replay.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, construct_storage_from_data_pointer};
///
/// let owner = DeviceBuffer::from_slice(&[1_u8, 2, 3, 4])?;
/// // SAFETY: the bytes are `owner`'s, which outlives the buffer.
/// let part = unsafe { construct_storage_from_data_pointer(owner.address() + 1, 0, 2)? };
/// assert!(part.is_borrowed());
/// assert_eq!(part.to_vec()?, [2, 3]);
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Safety
/// The bytes are memory of `device`, or that it can reach, until the last handle of the buffer is dropped and the work
/// that it was used in is done. The caller orders that work and all other work on the same bytes.
///
/// # Errors
/// The device does not exist, or the runtime cannot start.
#[doc(alias = "_construct_storage_from_data_pointer")]
pub unsafe fn construct_storage_from_data_pointer(
    data_ptr: u64,
    device: impl DeviceArg,
    size_bytes: usize,
) -> Result<DeviceBuffer> {
    let runtime = Runtime::current();
    let device = device.resolve(&runtime)?;
    runtime.check_device(device)?;
    let stream = thread::stream(runtime.id(), device).on(device);
    let mut buffer = DeviceBuffer::of(&runtime, data_ptr, size_bytes, stream, None);
    Arc::get_mut(&mut buffer.memory).into_iter().for_each(|memory| memory.freed_by = FreedBy::Others);
    Ok(buffer)
}

impl DeviceBuffer {
    /// A buffer of the `size_bytes` bytes at an address, which `owner` keeps: memory of another library. The owner is
    /// dropped after the last handle of the buffer, when the work that was queued with them is done: by whatever next
    /// waits for a device or frees memory.
    ///
    /// # Safety
    /// The bytes are memory of `device`, or that it can reach, until the owner is dropped. The caller orders the work of
    /// this crate after whatever else was queued with the same bytes.
    ///
    /// # Errors
    /// The device does not exist, or the runtime cannot start.
    pub unsafe fn from_owner(
        data_ptr: u64,
        device: impl DeviceArg,
        size_bytes: usize,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        let runtime = Runtime::current();
        let device = device.resolve(&runtime)?;
        runtime.check_device(device)?;
        let stream = thread::stream(runtime.id(), device).on(device);
        let received = Received::new(Box::new(owner));
        Ok(Self::of(&runtime, data_ptr, size_bytes, stream, Some(Arc::new(received))))
    }

    /// Whether somebody else owns the memory and frees it.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.memory.is_borrowed()
    }

    /// A buffer of the same memory that does not own it, and keeps the pool that the memory is of. Where the pool is brought
    /// back to a checkpoint ([`crate::MemPools::restore`]), the memory may be handed out again although this buffer is there:
    /// what it holds then is for whoever restores to say. Uses of it on streams are not noted either; whoever restores orders
    /// what comes after them. For results of graphs that share a pool.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceBuffer, MemPool, MemPoolOptions, Runtime, StaleMemory};
    ///
    /// let (runtime, pool) = (Runtime::current(), MemPool::new(MemPoolOptions::default())?);
    /// let checkpoint = runtime.mem_pools().checkpoint(0, pool.id())?;
    /// let new = || runtime.mem_pools().with(&pool, 0, || DeviceBuffer::new(1000, None));
    /// let owner = new()?;
    /// let lent = owner.lend(&pool)?;
    ///
    /// let mut stale = StaleMemory { buffers: vec![owner], ..StaleMemory::default() };
    /// runtime.mem_pools().restore(0, &checkpoint, &mut stale)?;
    /// assert_eq!(new()?.address(), lent.address());
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The memory is not the pool's ([`crate::PoolError::NotOfPool`]).
    pub fn lend(&self, pool: &MemPool) -> Result<Self> {
        if self.runtime.ready()?.allocator.owner(self.address()) != Some(pool.id()) {
            return Err(PoolError::NotOfPool { address: self.address(), pool: pool.id() }.into());
        }
        let mut lent = Self::of(&self.runtime, self.address(), self.len(), self.memory.stream, None);
        let keeps = || FreedBy::Pool { _keeps: pool.clone() };
        Arc::get_mut(&mut lent.memory).into_iter().for_each(|memory| memory.freed_by = keeps());
        Ok(lent)
    }

    /// A buffer that owns memory which was handed out for use on a stream.
    pub(crate) fn owning(runtime: &Runtime, address: u64, len: usize, stream: StreamRef) -> Self {
        Self::of(runtime, address, len, stream, None)
    }

    /// Whether this is the only handle of memory that the allocator handed out.
    pub(crate) fn is_sole_owner(&self) -> bool {
        !self.memory.is_borrowed() && self.memory.received.is_none() && Arc::strong_count(&self.memory) == 1
    }

    /// Drops the only handle of memory that was taken back already.
    pub(crate) fn forget_taken(mut self) {
        // There is one handle, as the caller has made sure of.
        Arc::get_mut(&mut self.memory).into_iter().for_each(|memory| memory.freed_by = FreedBy::Others);
    }
}
