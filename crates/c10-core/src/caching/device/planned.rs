//! Requests that the plan of their stream serves, and frees while there are plans.
//!
//! **Invariants:** what a plan hands out is an ordinary block to everybody else: it is found by its address, used on other
//! streams, given back by other threads, and pending as any other. All that differs is where it goes when it is free.

use std::sync::atomic::Ordering;

use crate::base::error::Result;
use crate::base::handles::StreamHandle;
use crate::caching::block::{Asked, Claim};
use crate::caching::device::cache::DeviceCache;
use crate::caching::plan::Turn;
use crate::caching::remote::Place;
use crate::caching::shard::{Drained, Locked, Planned, Shard};
use crate::driver::Driver;
use crate::thread;

/// What a request is answered by its stream's plan.
#[derive(Debug)]
pub(crate) enum ByPlan {
    Found(u64),
    /// The cache serves it; with `learns` it is to be noted what it got.
    Cache {
        learns: bool,
    },
    /// Something is to be done first; then the plan is to be asked again.
    First(Turn),
}

impl DeviceCache {
    /// Asks the plan of a stream for a request's memory.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "called where a plan usually answers")]
    pub(crate) fn hit_by_plan(&self, stream: StreamHandle, asked: Asked) -> ByPlan {
        // Streams beyond the table have no plan.
        let Some(shard) = self.streams.get(stream) else { return ByPlan::Cache { learns: false } };
        let take = |drained: Drained<'_>| self.take_place(shard, drained, asked);
        shard.lock().drain_then(&self.remote_frees, take, || self.hit_by_plan_drained(shard, asked))
    }

    /// The same where draining takes the locks of all shards.
    #[cold]
    fn hit_by_plan_drained(&self, shard: &Shard, asked: Asked) -> ByPlan {
        self.all_shards(|_| ());
        match shard.lock().drain(&self.remote_frees) {
            Some(drained) => self.take_place(shard, drained, asked),
            None => ByPlan::Cache { learns: false },
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn take_place(&self, shard: &Shard, drained: Drained<'_>, asked: Asked) -> ByPlan {
        let publish = |block, address| {
            shard.set_owner(thread::number());
            self.shared.pages.publish(address, shard.id, block, asked.owner());
        };
        match drained.take_place(asked, self.marks.load(Ordering::Acquire), publish) {
            Planned::Found(address) => ByPlan::Found(address),
            Planned::Uncovered(taking) => ByPlan::Found(self.all_shards(|all| {
                shard.set_owner(thread::number());
                all.take(shard.position, &taking)
            })),
            Planned::Cache => ByPlan::Cache { learns: false },
            Planned::Learn => ByPlan::Cache { learns: true },
            Planned::First(turn) => ByPlan::First(turn),
        }
    }

    /// Notes what a stream got for a request.
    pub(crate) fn note_allocated(&self, stream: StreamHandle, asked: Asked, address: u64) {
        if let Some(shard) = self.streams.get(stream) {
            shard.lock().note_allocated(asked, address);
        }
    }

    /// Takes a block back while streams have plans. Whatever happens the block is no longer allocated.
    #[inline(never)]
    pub(crate) fn free_by_plan<D: Driver>(
        &self,
        driver: &D,
        shard: &Shard,
        place: &Place<'_>,
        claim: Claim,
    ) -> Result<()> {
        let is_here = shard.is_owner(thread::number());
        if place.is_used() || !is_here {
            return self.free_by_plan_elsewhere(driver, shard, place, claim);
        }
        let free = |mut drained: Drained<'_>| {
            if drained.is_place(place.block(), claim.address()) {
                drained.flush().take_place_back(place)
            } else {
                drained.undo_last(claim) || drained.flush().free_if_covered(place)
            }
        };
        if shard.lock().drain_then(&self.remote_frees, free, || false) {
            return Ok(());
        }
        self.free_under_all_locks(driver, shard, claim)
    }

    /// The same for a block that other streams used, or that another thread allocated.
    fn free_by_plan_elsewhere<D: Driver>(
        &self,
        driver: &D,
        shard: &Shard,
        place: &Place<'_>,
        claim: Claim,
    ) -> Result<()> {
        let note = |mut locked: Locked<'_>| locked.note_freed(claim.address(), place.is_used());
        note(shard.lock());
        if place.is_used() {
            self.free_used(driver, shard, place, claim)
        } else {
            self.free_remotely(driver, shard, place, claim)
        }
    }
}
