//! Private pools: memory that belongs to a graph or a [`MemPool`](crate::MemPool), and the scopes that route
//! allocations to it.
//!
//! **Invariants:** a private pool exists from the first `begin` with its id until it has been released as often as it
//! was begun and its last segment has gone back to the driver. While a scope is open on a device, `empty_cache` neither
//! frees cached memory of the default pools nor waits for events, since a capturing thread must not do either. Before
//! it fails, a request on a stream that is not capturing does both, provided that the runtime captures nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::handles::{StreamHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::caching::block::Asked;
use crate::caching::pools::source::Source;
use crate::caching::pools::table::PoolIndex;

/// Which allocations a scope takes.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    /// Those on streams that take part in a capture; the number is 0 until the capture has begun.
    Capture(Arc<AtomicU64>),
    /// Those of the thread of that number.
    Thread(u64),
    /// Those for that stream of the device.
    Stream(StreamHandle),
    /// Those for streams whose handle a function of the program takes.
    Where(Predicate),
    /// All.
    Any,
}

/// A function of the program that says which streams a scope takes. It is called with the device's growth locked, so that
/// it may not use the runtime.
#[derive(Clone)]
pub(crate) struct Predicate(pub(crate) Arc<dyn Fn(usize) -> bool + Send + Sync>);

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

impl Filter {
    fn takes(&self, request: &Request) -> bool {
        match self {
            Self::Capture(id) => request.capture.is_some_and(|capture| capture == id.load(Ordering::Acquire)),
            Self::Thread(thread) => request.thread == Some(*thread),
            Self::Stream(stream) => request.stream.handle == *stream,
            Self::Where(predicate) => predicate.0(request.stream.handle.0),
            Self::Any => true,
        }
    }
}

/// One allocation to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) stream: StreamRef,
    /// Unrounded, at least 1 byte.
    pub(crate) asked: Asked,
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
    /// A capture or a checkpoint knows addresses of it, so that its pages stay where they are while it is used.
    pub(crate) is_known: bool,
    /// Streams on which graphs that are gone may still use it.
    pub(crate) replayed_on: BTreeSet<StreamRef>,
}

impl PrivatePool {
    /// One that is used once and holds nothing.
    pub(crate) fn new(pool: PoolIndex) -> Self {
        Self { use_count: 1, segments: 0, pool, is_known: false, replayed_on: BTreeSet::new() }
    }

    /// Whether its free pages may go elsewhere whenever they are needed: it is given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.use_count == 0
    }
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
    /// Its memory is held in pages that move, or not; `None` for as in the default pools.
    pub(crate) elastic: Option<bool>,
}
