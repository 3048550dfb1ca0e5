//! Pinned blocks that captures used, for as long as the pools that they captured into.
//!
//! Graphs of one pool are replayed again and again, and a capture into the pool may follow long after the others. So a
//! pinned block that one of them used is not reused while anybody uses the pool: a graph, a capture under way or a
//! [`MemPool`](crate::MemPool). This holds even if the graph that used the block is gone. PyTorch has a private host
//! pool for this.
//!
//! **Invariants:** a pool's blocks are shared by its users, and dropped with the last of them. A block that a replay
//! under way reads is also kept by its graph until the replay is over.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};

use crate::base::device::DeviceIndex;
use crate::base::ids::PoolId;
use crate::state::captures::KeptId;
use crate::state::holds::Held;
use crate::sync::Mutex;

/// The pinned blocks of one pool.
#[derive(Debug, Default)]
pub(crate) struct PoolPinned(Mutex<BTreeMap<KeptId, Held>>);

impl PoolPinned {
    /// Keeps these blocks, each once.
    pub(crate) fn keep<'a>(&self, blocks: impl Iterator<Item = (KeptId, &'a Held)>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, held) in blocks {
            kept.entry(id).or_insert_with(|| Arc::clone(held));
        }
    }
}

/// The blocks of all pools that somebody uses.
#[derive(Debug, Default)]
pub(crate) struct PoolsPinned(Mutex<BTreeMap<(DeviceIndex, PoolId), Weak<PoolPinned>>>);

impl PoolsPinned {
    /// The blocks of a pool, for one more user of it.
    pub(crate) fn of(&self, device: DeviceIndex, pool: PoolId) -> Arc<PoolPinned> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|_, pinned| pinned.strong_count() > 0);
        let known = pools.get(&(device, pool)).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let pinned = Arc::default();
            pools.insert((device, pool), Arc::downgrade(&pinned));
            pinned
        })
    }
}
