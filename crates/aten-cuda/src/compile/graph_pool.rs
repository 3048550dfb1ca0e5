//! The memory pool of a function's CUDA graphs, which is brought back to a checkpoint before a graph is captured.
//!
//! Graphs that never run in one call need no memory apart. The pool's state behind a graph is noted; when another graph is
//! captured behind the same one, the pool is brought back to that state first, so that it hands out the same memory again.
//!
//! **Invariants:** the pool owns what graphs gave; tensors have buffers that are lent, and keep the pool. Where the backend
//! has no such pools, or the state cannot be restored, graphs have memory apart and everything else is as it was.

use std::sync::Arc;

use c10_core::{
    DeviceBuffer, DeviceIndex, Error as RuntimeError, MemPool, MemPoolOptions, PoolCheckpoint, PoolId, Runtime,
    StaleMemory, Stream,
};
use smallvec::SmallVec;

use super::layout::Made;
use crate::base::error::Result;
use crate::storage::Storage;

/// What a graph gives, by the wanted slots of its plan.
pub(super) type Given = SmallVec<[Option<DeviceBuffer>; 4]>;

/// The pool of a function's graphs.
#[derive(Debug)]
pub(super) struct GraphPool {
    id: PoolId,
    /// The stream of captures: memory is handed out again to the stream that it was for.
    stream: Stream,
    /// The handle, where the backend has pools that programs make.
    pool: Option<MemPool>,
    /// What the pool has handed out.
    held: Vec<DeviceBuffer>,
    empty: PoolState,
    /// The number of the state that the pool is in, where it is one that was noted.
    now: Option<u64>,
}

/// The state of the pool behind a graph.
#[derive(Clone, Debug)]
pub(super) struct PoolState {
    number: u64,
    checkpoint: Option<Arc<PoolCheckpoint>>,
}

impl GraphPool {
    pub(super) fn new(runtime: &Runtime, device: DeviceIndex) -> Result<Self> {
        let _on = runtime.device_guard(device)?;
        let pool = match runtime.mem_pools().create(MemPoolOptions::default()) {
            Ok(pool) => Some(pool),
            Err(RuntimeError::Backend(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let id = pool.as_ref().map_or_else(PoolId::handle, MemPool::id);
        let empty = PoolState { number: 0, checkpoint: None };
        let stream = Stream::new(device, 0)?;
        let mut own = Self { id, stream, pool, held: Vec::new(), empty, now: Some(0) };
        own.empty.checkpoint = own.checkpoint(runtime)?;
        Ok(own)
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn id(&self) -> PoolId {
        self.id
    }

    /// Brings the pool back to the state behind a graph, or to what it was at first.
    pub(super) fn return_to(&mut self, runtime: &Runtime, state: Option<&PoolState>) -> Result<()> {
        let PoolState { number, checkpoint } = state.unwrap_or(&self.empty);
        if self.now.replace(*number) == Some(*number) {
            return Ok(());
        }
        self.now = None;
        let Some(checkpoint) = checkpoint.as_deref() else { return Ok(()) };
        let mut stale = StaleMemory { buffers: std::mem::take(&mut self.held), ..StaleMemory::default() };
        let restored = runtime.mem_pools().restore(self.stream.device_index(), checkpoint, &mut stale);
        self.held = stale.buffers;
        match restored {
            Ok(restored) => {
                self.held.extend(restored.buffers);
                self.now = Some(*number);
                Ok(())
            }
            // Somebody else holds or uses memory of the pool.
            Err(RuntimeError::Pool(_) | RuntimeError::Backend(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps what a graph was captured with. The answer is what it gives, and the state behind it.
    pub(super) fn keep(&mut self, runtime: &Runtime, made: Made, number: u64) -> Result<(Given, PoolState)> {
        let mut given = Given::new();
        for storage in made {
            let buffer = storage.as_ref().and_then(Storage::present);
            given.push(match (buffer, &self.pool) {
                (Some(buffer), Some(pool)) if !buffer.is_empty() => {
                    self.held.push(buffer.clone());
                    Some(buffer.lend(pool)?)
                }
                (buffer, _) => buffer.cloned(),
            });
        }
        self.now = Some(number);
        Ok((given, PoolState { number, checkpoint: self.checkpoint(runtime)? }))
    }

    fn checkpoint(&self, runtime: &Runtime) -> Result<Option<Arc<PoolCheckpoint>>> {
        if self.pool.is_none() {
            return Ok(None);
        }
        match runtime.mem_pools().checkpoint(self.stream.device_index(), self.id) {
            Ok(checkpoint) => Ok(Some(Arc::new(checkpoint))),
            Err(RuntimeError::Pool(_) | RuntimeError::Backend(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
