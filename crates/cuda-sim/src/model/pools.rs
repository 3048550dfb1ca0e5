//! The machine's memory pools: books of `pool`, with bytes behind them.
//!
//! A pool owns a range of addresses; each backed chunk of it is a region. What was freed in stream order stays a ghost
//! until that is done, so that work queued before still finds it and nobody is blamed for it.
//!
//! As on hardware, pools belong to devices and outlive contexts, and a freeing that is over counts for giving memory
//! back only once the program has waited for its stream, for an event after it, or for the context.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::State;
use super::engine::{OpId, Timing};
use super::memory::bytes::{Backing, POISON, POISON_BYTES_MAX};
use super::memory::{Allocation, Endpoint, Fill, RegionKind};
use super::pool::{CHUNK, Freeing, Pool};
use super::stream::Kind;
use crate::codes::{Answer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::model::Effect;

/// Addresses that a pool has for itself.
pub(super) const SPAN: u64 = 1 << 38;

/// Who made a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The driver made it for the device.
    Default,
    /// The program.
    Made,
    /// Somebody else; it has the file with this inode. Nothing is allocated from it here.
    Imported(u64),
}

/// A pool of a device.
#[derive(Debug)]
pub(crate) struct DevicePool {
    pub(crate) device: u32,
    pub(super) base: u64,
    pub(crate) books: Pool,
    pub(crate) origin: Origin,
    /// The bytes behind all of its addresses, for a pool that processes share; else each chunk has bytes of its own.
    pub(super) backing: Option<Arc<Backing>>,
    /// The program has exported it; before that nothing in it can be exported.
    pub(super) exported: bool,
    /// The program destroyed it, and its memory is still used.
    destroyed: bool,
    /// What devices may do with its memory; the owner may do everything.
    pub(crate) access: BTreeMap<u32, u32>,
    /// Reuse across event dependencies, of what happens to be freed, and with dependencies of the driver's own. Only
    /// the second makes a difference here.
    pub(crate) reuse: [i32; 3],
}

impl DevicePool {
    /// Whether the program can export it.
    pub(crate) fn is_shareable(&self) -> bool {
        self.origin == Origin::Made && self.backing.is_some()
    }

    pub(super) fn is_imported(&self) -> bool {
        matches!(self.origin, Origin::Imported(_))
    }
}

impl State {
    /// Makes a pool; `backing` as in [`DevicePool`].
    pub(crate) fn new_pool(
        &mut self,
        device: u32,
        max_bytes: u64,
        origin: Origin,
        backing: Option<Arc<Backing>>,
    ) -> Answer<u64> {
        let base = self.memory.take_addresses_quietly(device, SPAN)?;
        let key = self.new_handle();
        let (books, access) = (Pool::new(SPAN, max_bytes), BTreeMap::new());
        let pool = DevicePool {
            device,
            base,
            books,
            origin,
            backing,
            exported: false,
            destroyed: false,
            access,
            reuse: [1; 3],
        };
        self.pools.insert(key, pool);
        Ok(key)
    }

    /// The pool that the driver made for a device, made when first asked for.
    pub(crate) fn default_pool(&mut self, device: u32) -> Answer<u64> {
        let is_default = |pool: &DevicePool| pool.device == device && pool.origin == Origin::Default;
        let made = self.pools.iter().find(|(_, pool)| is_default(pool)).map(|(&key, _)| key);
        made.map_or_else(|| self.new_pool(device, 0, Origin::Default, None), Ok)
    }

    /// The pool that a device allocates from.
    pub(crate) fn current_pool(&mut self, device: u32) -> Answer<u64> {
        match self.current_pools.get(&device) {
            Some(&key) => Ok(key),
            None => self.default_pool(device),
        }
    }

    /// A pool that the program may use.
    pub(crate) fn pool(&mut self, key: u64) -> Answer<&mut DevicePool> {
        self.pools.get_mut(&key).filter(|pool| !pool.destroyed).ok_or(INVALID_VALUE)
    }

    /// A pool that the program may allocate from and ask for figures.
    pub(crate) fn own_pool(&mut self, key: u64) -> Answer<&mut DevicePool> {
        let pool = self.pool(key)?;
        if pool.is_imported() { Err(INVALID_VALUE) } else { Ok(pool) }
    }

    /// Allocates from a pool, for work that comes after what is on the stream.
    pub(crate) fn allocate_pooled(&mut self, key: u64, bytes: u64, stream: u64) -> Answer<u64> {
        let pool = self.pools.get(&key).filter(|pool| !pool.destroyed).ok_or(INVALID_VALUE)?;
        let (engine, by_chance) = (&self.engine, pool.reuse[1] != 0);
        let may_reuse =
            |freeing: Freeing| freeing.stream == stream || (by_chance && !engine.is_pending(OpId(freeing.work)));
        let placement = pool.books.place(bytes, &may_reuse)?;
        let (device, base, backing) = (pool.device, pool.base, pool.backing.clone());
        let new_chunks = placement.new_chunks.clone();
        self.memory.take_physical(device, CHUNK * new_chunks.len() as u64)?;
        for chunk in new_chunks {
            match &backing {
                Some(backing) => self.map_shared_chunk(base, chunk, device, backing),
                None => self.memory.back(base + chunk, CHUNK, device, RegionKind::Pooled)?,
            }
        }
        let offset = self.pool(key)?.books.commit(placement);
        let base = base + offset;
        self.memory.hand_out(Allocation { pool: Some(key), ..Allocation::new(base, bytes, device, 0) });
        if !self.memory.is_haunted(base, bytes) {
            self.poison(base, bytes);
        }
        Ok(base)
    }

    /// Makes what is in small memory unusable, so that reading what nobody wrote is noticed.
    pub(super) fn poison(&self, base: u64, bytes: u64) {
        if bytes <= POISON_BYTES_MAX as u64 {
            let fill = Fill { to: Endpoint::linear(base), pattern: vec![POISON], width: bytes, height: 1 };
            // Where memory has gone already there is nothing to make unusable.
            let _ = self.memory.fill(&fill);
        }
        self.memory.forget_written(base, bytes);
    }

    /// Frees memory of any kind once the work on a stream is done. Freeing it again is refused, also where hardware
    /// would not notice.
    pub(crate) fn free_in_order(&mut self, address: u64, stream: u64) -> Answer {
        let found = self.memory.allocation_at(address).filter(|found| found.base == address).ok_or(INVALID_VALUE)?;
        let (id, pool, graph) = (found.id, found.pool, found.graph);
        let is_same = |effect: &Effect| matches!(effect, Effect::FreeInOrder { id: queued, .. } if *queued == id);
        if self.engine.effects().any(is_same) {
            return Err(INVALID_VALUE);
        }
        let op = self.enqueue(stream, &[], Timing::default(), Effect::FreeInOrder { base: address, id })?;
        if pool.is_some() || graph {
            self.memory.make_ghost(address);
        }
        if let Some(key) = pool {
            let pool = self.pools.get_mut(&key).ok_or(INVALID_VALUE)?;
            if !pool.is_imported() {
                pool.books.free(address - pool.base, Freeing { stream, work: op.0 })?;
            }
        }
        Ok(())
    }

    /// The freeing that was queued is reached.
    pub(crate) fn finish_freeing(&mut self, base: u64, id: u64) {
        if let Some(ghost) = self.memory.drop_ghost(id) {
            if !self.let_go_of_import(&ghost) {
                self.poison(base, ghost.length);
            }
        } else if self.memory.allocation_at(base).is_some_and(|found| found.id == id) {
            // Found a moment ago; and only what is not there can fail to be freed.
            let _ = self.memory.free(base);
        }
    }

    /// Frees pooled memory now, without waiting for work that may use it.
    pub(crate) fn free_pooled_now(&mut self, base: u64) -> Answer {
        let allocation = self.memory.take_back(base).ok_or(INVALID_VALUE)?;
        if self.let_go_of_import(&allocation) {
            return Ok(());
        }
        let key = allocation.pool.ok_or(INVALID_VALUE)?;
        let pool = self.pools.get_mut(&key).ok_or(INVALID_VALUE)?;
        pool.books.free_at_once(base - pool.base)?;
        let keep_bytes = pool.books.release_threshold;
        self.trim_pool(key, keep_bytes, &|_| false);
        self.drop_empty_pools();
        Ok(())
    }

    /// Gives memory of a pool that nobody uses back to the device, down to `keep_bytes`.
    ///
    /// `is_observed` says of a freeing whether the program has waited for it since.
    pub(crate) fn trim_pool(&mut self, key: u64, keep_bytes: u64, is_observed: &dyn Fn(Freeing) -> bool) {
        let engine = &self.engine;
        let has_happened = |freeing: Freeing| is_observed(freeing) && !engine.is_pending(OpId(freeing.work));
        let Some(pool) = self.pools.get_mut(&key) else { return };
        let given_back = pool.books.trim(keep_bytes, &has_happened);
        let (base, device, backing) = (pool.base, pool.device, pool.backing.clone());
        for chunk in given_back {
            self.memory.unmap(base + chunk);
            self.memory.give_back_physical(device, CHUNK);
            if let Some(backing) = &backing {
                backing.discard(chunk, CHUNK);
            }
        }
    }

    /// What the driver does with its pools when the program has waited for freeings.
    pub(crate) fn trim_pools(&mut self, is_observed: &dyn Fn(Freeing) -> bool) {
        let thresholds: Vec<(u64, u64)> =
            self.pools.iter().map(|(&key, pool)| (key, pool.books.release_threshold)).collect();
        for (key, keep_bytes) in thresholds {
            self.trim_pool(key, keep_bytes, is_observed);
        }
        self.drop_empty_pools();
    }

    /// As [`State::trim_pools`], when the program has waited for a stream.
    pub(crate) fn trim_pools_after(&mut self, stream: u64) {
        let waited_for: BTreeSet<u64> = match self.streams.get(&stream) {
            Some(legacy) if legacy.kind == Kind::Legacy => {
                let with_it =
                    self.streams.iter().filter(|(_, other)| other.context == legacy.context && other.is_blocking());
                with_it.map(|(&key, _)| key).chain([stream]).collect()
            }
            _ => BTreeSet::from([stream]),
        };
        self.trim_pools(&|freeing| waited_for.contains(&freeing.stream));
    }

    /// Takes a pool away; its memory stays until it is freed.
    pub(crate) fn destroy_pool(&mut self, key: u64) -> Answer {
        let is_used = self.memory.is_from_pool(key);
        let pool = self.pool(key)?;
        if pool.origin == Origin::Default || (pool.is_imported() && is_used) {
            return Err(INVALID_VALUE);
        }
        pool.destroyed = true;
        pool.books.release_threshold = 0;
        self.current_pools.retain(|_, &mut current| current != key);
        self.drop_empty_pools();
        Ok(())
    }

    fn drop_empty_pools(&mut self) {
        let empty: Vec<u64> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.destroyed && pool.books.live_blocks() == 0)
            .map(|(&key, _)| key)
            .collect();
        for key in empty {
            self.trim_pool(key, 0, &|_| true);
            if let Some(pool) = self.pools.get(&key).filter(|pool| pool.books.reserved().current == 0) {
                let (device, base) = (pool.device, pool.base);
                self.memory.give_back_addresses(device, base);
                self.pools.remove(&key);
            }
        }
    }

    /// Number of pools that the program has made and not destroyed.
    pub(crate) fn made_pools(&self) -> usize {
        self.pools.values().filter(|pool| pool.origin == Origin::Made && !pool.destroyed).count()
    }

    /// Memory for a pool must be asked of a device that has any.
    pub(crate) fn check_room(&self, device: u32, bytes: u64) -> Answer {
        if bytes <= self.memory.info(device).1 { Ok(()) } else { Err(OUT_OF_MEMORY) }
    }
}
