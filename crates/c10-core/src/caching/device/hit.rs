//! Serving a request from the cache.

use std::sync::atomic::Ordering;

use crate::base::handles::StreamHandle;
use crate::caching::block::size_class;
use crate::caching::device::cache::DeviceCache;
use crate::caching::shard::{Clean, Drained, Locked, Shard, Taking};
use crate::thread;

/// What a search of the cache came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hit {
    Found(u64),
    NothingFits,
    /// The stream has no shard yet: there was nothing to search.
    NoShard,
}

impl DeviceCache {
    /// Serves a request of a stream from the default pool's cache.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the one call that is left finds another block")]
    pub(crate) fn hit(&self, stream: StreamHandle, bytes: u64) -> Hit {
        match self.streams.get(stream) {
            Some(shard) => self.hit_in(shard, bytes).map_or(Hit::NothingFits, Hit::Found),
            None => self.hit_beyond_table(stream, bytes),
        }
    }

    #[cold]
    fn hit_beyond_table(&self, stream: StreamHandle, bytes: u64) -> Hit {
        match self.streams.get_other(stream) {
            Some(shard) => self.hit_in(&shard, bytes).map_or(Hit::NothingFits, Hit::Found),
            None => Hit::NoShard,
        }
    }

    /// Serves a request from a shard; `None` when it has nothing that fits.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn hit_in(&self, shard: &Shard, bytes: u64) -> Option<u64> {
        match shard.try_lock() {
            Some(locked) => self.hit_locked(shard, locked, bytes),
            None => self.hit_contended(shard, bytes),
        }
    }

    /// The same when another thread holds the lock, which may serve the request.
    #[cold]
    fn hit_contended(&self, shard: &Shard, bytes: u64) -> Option<u64> {
        let (locked, granted) = shard.lock_with_request(bytes);
        match granted {
            Some(address) => Some(self.handed_out(shard, address)),
            None => self.hit_locked(shard, locked, bytes),
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn hit_locked(&self, shard: &Shard, locked: Locked<'_>, bytes: u64) -> Option<u64> {
        let Some(mut drained) = locked.drain(&self.remote_frees) else {
            return self.hit_under_all_locks(shard, bytes, true, None);
        };
        match drained.repeat_last(bytes) {
            Some(address) => Some(self.handed_out(shard, address)),
            None => self.hit_fresh(shard, drained, bytes),
        }
    }

    /// Notes that this thread was handed out an address.
    #[inline]
    pub(super) fn handed_out(&self, shard: &Shard, address: u64) -> u64 {
        shard.set_owner(thread::number());
        self.shared.note_handed_out(address, shard.id);
        address
    }

    /// Serves a request by another block than the last.
    #[inline(never)]
    fn hit_fresh(&self, shard: &Shard, drained: Drained<'_>, bytes: u64) -> Option<u64> {
        if drained.counts_lookups() {
            drop(drained);
            return self.hit_under_all_locks(shard, bytes, true, None);
        }
        let mut clean = drained.flush();
        let taking = clean.plan(bytes, clean.rules.expandable)?;
        let is_plain = taking.size < clean.rules.max_split;
        if is_plain && (clean.ledger.try_apply(taking.class, &taking.change) || self.borrow(&mut clean, shard, &taking))
        {
            // The lock is held until the address is published.
            let (_locked, index, address) = clean.take_noted(&taking);
            self.shared.pages.publish(address, shard.id, index);
            return Some(self.handed_out(shard, address));
        }
        drop(clean);
        self.hit_under_all_locks(shard, bytes, true, None)
    }

    /// Counts a request that the shard's leases do not cover, if another shard has the rest to spare.
    #[cold]
    fn borrow(&self, clean: &mut Clean<'_>, shard: &Shard, taking: &Taking) -> bool {
        self.borrow_lease(shard, clean, taking) && clean.ledger.try_apply(taking.class, &taking.change)
    }

    /// The same under all locks: the search is counted if `counts`, and peaks may rise.
    #[cold]
    pub(crate) fn hit_under_all_locks(
        &self,
        shard: &Shard,
        bytes: u64,
        counts: bool,
        expandable: Option<bool>,
    ) -> Option<u64> {
        self.all_shards(|all| {
            let state = &all.states[shard.position];
            if counts && state.rules.counts_lookups {
                state.clock(size_class(bytes)).fetch_add(1, Ordering::Relaxed);
            }
            let taking = state.plan(bytes, expandable.unwrap_or(state.rules.expandable))?;
            shard.set_owner(thread::number());
            Some(all.take(shard.position, &taking))
        })
    }
}
