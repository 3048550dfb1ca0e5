//! Private pools: memory that belongs to a graph or a [`MemPool`](crate::MemPool), and the scopes that route
//! allocations to it.
//!
//! **Invariants:** a private pool exists from the first `begin` with its id until it is released as often as it was
//! begun and its last segment has gone back to the driver. While a scope is open on a device, cached memory of the
//! default pools is not given back and no events are waited for there: both are forbidden to a thread that captures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::error::{Error, Result};
use crate::base::handles::{StreamHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::caching::device::Device;
use crate::caching::pools::source::Source;
use crate::caching::pools::table::PoolIndex;
use crate::caching::slow::Cold;
use crate::sync::lock;

/// Which allocations a scope takes.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    /// Those on streams that take part in a capture; the number is 0 until the capture has begun.
    Capture(Arc<AtomicU64>),
    /// Those of the thread of that number.
    Thread(u64),
    /// Those for that stream of the device.
    Stream(StreamHandle),
    /// All.
    Any,
}

impl Filter {
    fn takes(&self, request: &Request) -> bool {
        match self {
            Self::Capture(id) => request.capture.is_some_and(|capture| capture == id.load(Ordering::Acquire)),
            Self::Thread(thread) => request.thread == Some(*thread),
            Self::Stream(stream) => request.stream.handle == *stream,
            Self::Any => true,
        }
    }
}

/// One allocation to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) stream: StreamRef,
    /// Unrounded, at least 1.
    pub(crate) bytes: u64,
    /// Number of the capture the stream takes part in.
    pub(crate) capture: Option<u64>,
    /// Number of the thread that asks; known while there are scopes.
    pub(crate) thread: Option<u64>,
}

/// An open scope.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) pool: PoolId,
    pub(crate) filter: Filter,
}

/// The pool that the newest matching scope routes a request to.
pub(crate) fn route(scopes: &[Scope], request: &Request) -> Option<PoolId> {
    scopes.iter().rev().find(|scope| scope.filter.takes(request)).map(|scope| scope.pool)
}

/// A private pool.
#[derive(Debug)]
pub(crate) struct PrivatePool {
    /// Graphs, pool objects and scopes that use it. At 0 the pool's free segments go back to the driver when the cache is emptied.
    pub(crate) use_count: u32,
    /// Segments it holds from the driver, and address ranges of expandable ones.
    pub(crate) segments: u32,
    pub(crate) pool: PoolIndex,
}

/// How a private pool treats its memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolOptions {
    /// Its free memory serves requests for the default pools before those fail.
    pub(crate) use_on_oom: bool,
    /// Its blocks are handed out whole.
    pub(crate) no_split: bool,
    /// Its segments come from there, and never expand, instead of from the driver.
    pub(crate) source: Option<Source>,
}

impl Device {
    /// Routes allocations that `filter` takes to a private pool, from now on.
    pub(crate) fn begin_allocate_to_pool(&self, id: PoolId, filter: Filter) -> Result<()> {
        if lock(&self.cold).scopes.iter().any(|scope| scope.pool == id) {
            return Err(Error::AlreadyRecordingToPool);
        }
        self.use_pool(id, PoolOptions::default())?;
        lock(&self.cold).scopes.push(Scope { pool: id, filter });
        self.scopes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Stops routing allocations to a private pool.
    pub(crate) fn end_allocate_to_pool(&self, id: PoolId) -> Result<()> {
        let scopes = &mut lock(&self.cold).scopes;
        let position = scopes.iter().position(|scope| scope.pool == id).ok_or(Error::NotRecordingToPool)?;
        scopes.remove(position);
        self.scopes.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Counts one more use of a private pool, which is made with these options if need be.
    pub(crate) fn use_pool(&self, id: PoolId, options: PoolOptions) -> Result<()> {
        let mut cold = lock(&self.cold);
        if let Some(pool) = cold.private.get_mut(&id) {
            if pool.use_count == 0 {
                return Err(Error::PoolReleased);
            }
            pool.use_count += 1;
            return Ok(());
        }
        let pool = cold.pools.add(id, options.no_split, options.source);
        cold.private.insert(id, PrivatePool { use_count: 1, segments: 0, pool });
        if options.use_on_oom {
            cold.use_on_oom.push(id);
        }
        Ok(())
    }

    /// No longer lets a pool's free memory help out when memory is short, and gives up one use of it; it stays until it
    /// is emptied.
    pub(crate) fn close_pool(&self, id: PoolId) {
        let mut cold = lock(&self.cold);
        cold.use_on_oom.retain(|lender| *lender != id);
        cold.release_use(id);
    }

    /// How many graphs, pool objects and scopes use a private pool.
    pub(crate) fn pool_use_count(&self, id: PoolId) -> u32 {
        lock(&self.cold).private.get(&id).map_or(0, |pool| pool.use_count)
    }

    /// Gives up one use of a private pool. A pool without uses and memory is gone.
    pub(crate) fn release_pool(&self, id: PoolId) {
        let mut cold = lock(&self.cold);
        cold.release_use(id);
        cold.remove_pool_if_unused(id);
    }
}

impl Cold {
    fn release_use(&mut self, id: PoolId) {
        if let Some(pool) = self.private.get_mut(&id) {
            pool.use_count = pool.use_count.saturating_sub(1);
        }
    }
}
