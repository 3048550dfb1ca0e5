//! A shard: the memory that one pool holds for one stream, behind one lock.
//!
//! Streams never share free memory, so all that a cached request needs is in one shard. Its parts lie on cache lines of
//! their own: what every thread reads ([`Header`]), what other threads write ([`RemoteFrees`]), and what the holder of the
//! lock writes ([`ShardState`]).
//!
//! Reading order: this file, `books` (blocks, free sets and figures), `last_alloc` (the note about the last allocation),
//! `locked` (what may be done at which stage of the lock), `planned` (places of the stream's plan), `stream_table` (from a
//! stream to its shard).
//!
//! **Invariant:** the state is reached only through [`Locked`] and the stages that follow it.

mod books;
mod last_alloc;
mod locked;
mod planned;
mod stream_table;

pub(crate) use books::{Books, Key, Taking, signed};
pub(crate) use last_alloc::{LastAlloc, Stage};
pub(crate) use locked::{Clean, Drained, Flushed, Locked};
pub(crate) use planned::{Hole, Planned};
pub(crate) use stream_table::StreamTable;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::base::config::AllocatorConfig;
use crate::caching::block::{Asked, Claim, Index, NONE};
use crate::caching::remote::{Pages, RemoteCursor, RemoteFrees, ShardId};
use crate::sync::spin_lock::SpinLock;

/// The flag that shards without one of their own share.
const LAST_FLAG: usize = 62;

/// A shard.
#[derive(Debug)]
pub(crate) struct Shard {
    state: CachePadded<SpinLock<ShardState>>,
    header: CachePadded<Header>,
    /// Blocks that other threads gave back.
    remote_frees: CachePadded<RemoteFrees>,
}

/// What any thread may read of a shard.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) id: ShardId,
    /// Position of its device.
    pub(crate) device: usize,
    /// Position among the shards of its device.
    pub(crate) position: usize,
    /// The flags of other shards, as far as they can be told apart.
    pub(crate) other_flags: u64,
    /// Number of the thread that allocated last.
    owner: AtomicU64,
    /// The dormant block, or [`NONE`].
    dormant: AtomicU32,
    /// A count of the changes of the shard's figures.
    changes: AtomicU32,
    /// The word of a request whose thread waits for the lock; 0 for none.
    awaited: AtomicU64,
    pages: Arc<Pages>,
}

/// What the lock of a shard guards.
#[derive(Debug)]
pub(crate) struct ShardState {
    books: Books,
    last: LastAlloc,
    /// A request that was served for a thread that waits for the lock: what was asked for, and the memory.
    granted: Option<(Asked, Claim)>,
    /// How far the chain of remote frees was followed.
    cursor: RemoteCursor,
    /// Blocks of that chain that are not freed yet, the last given back first.
    inbox: Vec<Index>,
}

impl Deref for Shard {
    type Target = Header;

    #[inline]
    fn deref(&self) -> &Header {
        &self.header
    }
}

impl Shard {
    /// A shard that holds nothing. `counts_lookups`: searches are counted, for garbage collection.
    pub(crate) fn new(
        (id, device, position): (ShardId, usize, usize),
        pages: &Arc<Pages>,
        key: Key,
        config: Arc<AllocatorConfig>,
        counts_lookups: bool,
    ) -> Self {
        let header = Header {
            id,
            device,
            position,
            other_flags: if position < LAST_FLAG { !(1 << position) } else { u64::MAX },
            owner: AtomicU64::new(0),
            dormant: AtomicU32::new(NONE),
            changes: AtomicU32::new(0),
            awaited: AtomicU64::new(0),
            pages: Arc::clone(pages),
        };
        let state = ShardState {
            books: Books::new(key, config, counts_lookups),
            last: LastAlloc::NONE,
            granted: None,
            cursor: RemoteCursor::default(),
            inbox: Vec::new(),
        };
        Self {
            state: CachePadded::new(SpinLock::new(state)),
            header: CachePadded::new(header),
            remote_frees: CachePadded::default(),
        }
    }

    /// The chain that other threads add the blocks to that they give back.
    #[inline]
    pub(crate) fn remote_frees(&self) -> &RemoteFrees {
        &self.remote_frees
    }

    /// The flag of this shard in a word that says which shards of a device may have remote frees.
    #[inline]
    pub(crate) fn flag(&self) -> u64 {
        1 << self.position.min(LAST_FLAG)
    }

    /// Whether a block may be dormant: its slot says that it is allocated, but it was given back.
    pub(crate) fn is_dormant(&self, block: Index) -> bool {
        self.dormant.load(Ordering::Acquire) == block
    }

    /// A pair that is another one after each change of the shard's figures but remote frees: the dormant block and the
    /// count of changes. (It would take 2^32 changes for the same one to come back.)
    #[inline]
    pub(crate) fn version(&self) -> (Index, u32) {
        // The count is read last. A block that became dormant again since has raised it, so the pair is not an old one.
        let dormant = self.dormant.load(Ordering::Acquire);
        (dormant, self.changes.load(Ordering::Acquire))
    }

    /// Notes the thread that allocates. By the holder of the lock.
    #[inline]
    pub(crate) fn set_owner(&self, thread: u64) {
        if self.owner.load(Ordering::Relaxed) != thread {
            self.owner.store(thread, Ordering::Relaxed);
        }
    }

    /// Whether the thread allocated last.
    #[inline]
    pub(crate) fn is_owner(&self, thread: u64) -> bool {
        self.owner.load(Ordering::Relaxed) == thread
    }

    /// Whether a thread waits for the lock with a request.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire) != 0
    }
}
