//! What can be wrong with memory pools and their checkpoints.

use crate::base::device::DeviceIndex;
use crate::base::ids::PoolId;

/// What is wrong with a memory pool or a checkpoint of it.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{Error, PoolError, PoolId, Runtime};
///
/// let refused = Runtime::current().mem_pools().end_allocate(0, PoolId::handle()).unwrap_err();
/// assert_eq!(refused, Error::Pool(PoolError::NotRecording));
/// assert_eq!(refused.to_string(), "endAllocatePool: not currently recording to mempool_id");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A pool that receives allocations already was to receive them once more.
    #[error("beginAllocateToPool: already recording to mempool_id")]
    AlreadyRecording,
    /// A pool that receives no allocations was to stop receiving them.
    #[error("endAllocatePool: not currently recording to mempool_id")]
    NotRecording,
    /// The last use of a pool was to be given up while requests still come from it.
    #[error("the memory pool still receives allocations; end that first")]
    StillRecording,
    /// A pool was to be used that all its users have given up and that still holds memory.
    #[error("the memory pool was released; make a new one")]
    Released,
    /// A pool's own source of segments gave memory that cannot be handed out.
    #[error("a memory pool's allocator gave memory at {address:#x}, which is not a multiple of 512 bytes")]
    UnusableSegment {
        /// The memory, which was given back.
        address: u64,
    },
    /// A memory pool was named that the device does not have.
    #[error("Could not find pool of id {pool}")]
    NotFound {
        /// The name.
        pool: PoolId,
    },
    /// Memory was to be lent as a pool's that is not of that pool.
    #[error("memory at {address:#x} is not of memory pool {pool}")]
    NotOfPool {
        /// The memory.
        address: u64,
        /// The pool.
        pool: PoolId,
    },
    /// The state of a pool was to be noted or restored that all its users have given up.
    #[error("Not expected to checkpoint freeable graph")]
    CheckpointOfReleased,
    /// The state of a pool was to be noted or restored while other streams may still use memory of it.
    #[error(
        "memory at {address:#x} of the memory pool may still be used by other streams; free it and synchronize those streams before its state is noted or restored"
    )]
    CheckpointOfPendingMemory {
        /// The memory.
        address: u64,
    },
    /// The state of a pool was to be restored on another device than the one it was noted on.
    #[error("the checkpoint is of device {checkpoint}, but device {device} was asked for")]
    CheckpointDevice {
        /// Device of the checkpoint.
        checkpoint: DeviceIndex,
        /// Device that was named.
        device: DeviceIndex,
    },
    /// The state of a pool cannot be restored, since memory of it went back to the driver.
    #[error("the memory pool no longer holds the segment at {address:#x} that the checkpoint notes")]
    CheckpointIsStale {
        /// The segment.
        address: u64,
    },
    /// A pool was to be brought back to a state in which memory is not handed out that somebody holds and has not given up.
    #[error(
        "Any stale tensors which are being manually freed must be passed to set checkpoint, but the memory at {address:#x} was not"
    )]
    StaleMemory {
        /// The memory.
        address: u64,
    },
    /// A buffer was given up that has other handles, is not the pool's, or does not own its memory.
    #[error("the buffer at {address:#x} cannot be given up: it must be the only handle of memory of the pool")]
    BufferNotGivenUp {
        /// The buffer's memory.
        address: u64,
    },
}
