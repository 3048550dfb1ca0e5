//! Serving a request from the cache.

use std::sync::atomic::Ordering;

use crate::base::handles::StreamHandle;
use crate::caching::block::{Asked, Claim, size_class};
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
    pub(crate) fn hit(&self, stream: StreamHandle, asked: Asked) -> Hit {
        match self.streams.get(stream) {
            Some(shard) => self.hit_in(shard, asked).map_or(Hit::NothingFits, Hit::Found),
            None => self.hit_beyond_table(stream, asked),
        }
    }

    #[cold]
    fn hit_beyond_table(&self, stream: StreamHandle, asked: Asked) -> Hit {
        match self.streams.get_other(stream) {
            Some(shard) => self.hit_in(&shard, asked).map_or(Hit::NothingFits, Hit::Found),
            None => Hit::NoShard,
        }
    }

    /// Serves a request from a shard; `None` when it has nothing that fits.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn hit_in(&self, shard: &Shard, asked: Asked) -> Option<u64> {
        match shard.try_lock() {
            Some(locked) => self.hit_locked(shard, locked, asked),
            None => self.hit_contended(shard, asked),
        }
    }

    /// The same when another thread holds the lock, which may serve the request.
    #[cold]
    fn hit_contended(&self, shard: &Shard, asked: Asked) -> Option<u64> {
        let (locked, granted) = shard.lock_with_request(asked);
        match granted {
            Some(claim) => Some(self.handed_out(shard, claim)),
            None => self.hit_locked(shard, locked, asked),
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn hit_locked(&self, shard: &Shard, locked: Locked<'_>, asked: Asked) -> Option<u64> {
        let hit = |mut drained: Drained<'_>| match drained.repeat_last(asked) {
            Some(claim) => Some(self.handed_out(shard, claim)),
            None => self.hit_fresh(shard, drained, asked),
        };
        locked.drain_then(&self.remote_frees, hit, || self.hit_under_all_locks(shard, asked, true, None))
    }

    /// Notes that this thread was handed out memory; its address.
    #[inline]
    pub(super) fn handed_out(&self, shard: &Shard, claim: Claim) -> u64 {
        shard.set_owner(thread::number());
        self.shared.note_handed_out(claim, shard.id);
        claim.address()
    }

    /// Serves a request by another block than the last.
    #[inline(never)]
    fn hit_fresh(&self, shard: &Shard, drained: Drained<'_>, asked: Asked) -> Option<u64> {
        if drained.counts_lookups() {
            drop(drained);
            return self.hit_under_all_locks(shard, asked, true, None);
        }
        let mut clean = drained.flush();
        let taking = clean.plan(asked, clean.rules.expandable)?;
        let is_plain = taking.size < clean.rules.max_split;
        if is_plain && (clean.ledger.try_apply(taking.class, &taking.change) || self.borrow(&mut clean, shard, &taking))
        {
            // The lock is held until the address is published.
            let (_locked, index, address) = clean.take_noted(&taking);
            self.shared.pages.publish(address, shard.id, index, asked.owner());
            return Some(self.handed_out(shard, Claim::new(address, asked.owner())));
        }
        drop(clean);
        self.hit_under_all_locks(shard, asked, true, None)
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
        asked: Asked,
        counts: bool,
        expandable: Option<bool>,
    ) -> Option<u64> {
        self.all_shards(|all| {
            let state = &all.states[shard.position];
            if counts && state.rules.counts_lookups {
                state.clock(size_class(asked.bytes())).fetch_add(1, Ordering::Relaxed);
            }
            let taking = state.plan(asked, expandable.unwrap_or(state.rules.expandable))?;
            shard.set_owner(thread::number());
            Some(all.take(shard.position, &taking))
        })
    }
}
