//! Taking a block back: by the thread that allocated last from its shard, or by another thread.

use crate::base::error::MemoryError;
use crate::base::error::{Error, Result};
use crate::caching::block::{Claim, StreamUse};
use crate::caching::device::cache::DeviceCache;
use crate::caching::pools::Waiter;
use crate::caching::remote::Place;
use crate::caching::shard::{Drained, Shard};
use crate::driver::Driver;
use crate::trace::TraceBlock;

/// What giving back the last allocation of a shard came to.
pub(crate) enum FreeOfLast {
    Done,
    /// It was used on another stream, which it waits for.
    Waits(Waiter, StreamUse),
    /// It is another block, or more is to be done.
    NotLast,
}

impl DeviceCache {
    /// Takes the last allocation of a shard back, if it is the claimed one.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call of its own would be a fifth of it")]
    pub(crate) fn free_last(&self, shard: &Shard, claim: Claim) -> FreeOfLast {
        let free = |mut drained: Drained<'_>| {
            if drained.undo_last(claim) {
                return FreeOfLast::Done;
            }
            match drained.await_last(claim) {
                Some((block, used)) => FreeOfLast::Waits(Waiter { shard: shard.id, block }, used),
                None => FreeOfLast::NotLast,
            }
        };
        shard.lock().drain_then(&self.remote_frees, free, || FreeOfLast::NotLast)
    }

    /// Takes a block back. Whatever happens the block is no longer allocated: if a driver call fails, the block is pending
    /// until a later allocation can make up for that call.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "called once")]
    pub(crate) fn free<D: Driver>(&self, driver: &D, shard: &Shard, place: &Place<'_>, claim: Claim) -> Result<()> {
        if place.is_used() {
            return self.free_used(driver, shard, place, claim);
        }
        let free = |mut drained: Drained<'_>| drained.undo_last(claim) || drained.flush().free_if_covered(place);
        if shard.lock().drain_then(&self.remote_frees, free, || false) {
            return Ok(());
        }
        self.free_under_all_locks(driver, shard, claim)
    }

    /// The same as [`Self::free_last`] where somebody is told: what the block was. `None`, and nothing was done, if it is
    /// another block, or more is to be done.
    pub(crate) fn free_last_described(&self, shard: &Shard, claim: Claim) -> Option<TraceBlock> {
        let locked = shard.lock();
        let block = self.describe_locked(&locked, locked.last().block_if_noted()?);
        let free = |mut drained: Drained<'_>| drained.undo_last(claim);
        locked.drain_then(&self.remote_frees, free, || false).then_some(block)
    }

    /// The same as [`Self::free`] where somebody is told: what the block was. `None`, and nothing was done, if the lock of its shard is not
    /// enough.
    pub(crate) fn free_described(&self, shard: &Shard, place: &Place<'_>, claim: Claim) -> Option<TraceBlock> {
        let locked = shard.lock();
        let block = self.describe_locked(&locked, place.block());
        let free = |mut drained: Drained<'_>| drained.undo_last(claim) || drained.flush().free_if_covered(place);
        locked.drain_then(&self.remote_frees, free, || false).then_some(block)
    }

    #[cold]
    pub(super) fn free_under_all_locks<D: Driver>(&self, driver: &D, shard: &Shard, claim: Claim) -> Result<()> {
        let address = claim.address();
        let used = self.all_shards(|all| {
            let place = self.shared.pages.find(address).filter(|place| place.shard == shard.id);
            let place = place.ok_or(Error::Memory(MemoryError::InvalidPointer { address }))?;
            if !(place.is_used() || all.free(shard.position, &place)) {
                return Err(Error::Memory(MemoryError::InvalidPointer { address }));
            }
            Ok(Some(place).filter(Place::is_used))
        })?;
        used.map_or(Ok(()), |place| self.free_used(driver, shard, &place, claim))
    }

    /// The same by a thread that was not the last to allocate from the shard: the block joins the shard's chain, since the
    /// other thread takes the shard's lock again and again.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "of its two callers one is cold")]
    pub(crate) fn free_remotely<D: Driver>(
        &self,
        driver: &D,
        shard: &Shard,
        place: &Place<'_>,
        claim: Claim,
    ) -> Result<()> {
        if place.is_used() {
            return self.free_used(driver, shard, place, claim);
        }
        // A block that is given back may make a peak, so the order matters in which shards drain: only one at a time has
        // remote frees. And the slot of a dormant block says nothing: most likely it was given back before.
        if self.remote_frees.any_of(shard.other_flags) || shard.is_dormant(place.block()) {
            return self.free_under_all_locks(driver, shard, claim);
        }
        if place.free_remotely(shard.remote_frees()) {
            self.remote_frees.set(shard.flag());
            return Ok(());
        }
        // It was given back meanwhile, or used on another stream.
        let address = claim.address();
        match self.shared.pages.find(address) {
            Some(place) if place.is_used() => self.free_used(driver, shard, &place, claim),
            _ => Err(Error::Memory(MemoryError::InvalidPointer { address })),
        }
    }
}
