//! Memory that other streams use: noting that, taking it back, and serving requests once those streams have passed.
//!
//! A block that was used elsewhere is pending from its free on; it is free when the events have passed that were recorded
//! on those streams then. Each request asks for the oldest event of each stream first, and frees what has passed, in that
//! order. Most programs use a block on one other stream, and ask for as much again when they have given it back: then
//! the block is the newest change of its shard all the time, and all this is a note there ([`crate::caching::shard::newest`]).
//!
//! **Invariants:** the lock of `pending` is taken before those of shards; the driver is called under the former. A block
//! that is given back is pending in its shard before anything waits for it, and is freed there under the lock of
//! `pending` when nothing does any more.

use std::sync::atomic::Ordering;

use crate::base::error::{Error, Result};
use crate::base::handles::{StreamHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::caching::block::StreamUse;
use crate::caching::block::{NONE, State};
use crate::caching::device::hit::{Device, Search, Undoing};
use crate::caching::pools::{Pending, Waiter, Waiting};
use crate::caching::remote::Place;
use crate::caching::shard::{Shard, ShardState};
use crate::driver::Driver;
use crate::sync::lock;

impl Device {
    /// Whether a stream is the one that a shard serves.
    #[inline]
    fn is_own(&self, state: &ShardState, stream: StreamRef) -> bool {
        stream.device == self.index && stream.handle == state.key.stream
    }

    /// Notes that the block which a shard handed out last is used on another stream, if it is that one and was used on no
    /// further stream; whether it was noted.
    #[inline]
    pub(crate) fn record_newest(&self, shard: &Shard, address: u64, stream: StreamRef) -> bool {
        let new = StreamUse { stream, in_scope: self.is_scoped() };
        let mut state = shard.state.lock();
        !self.is_own(&state, stream) && state.use_newest(&self.shared.pages, address, new)
    }

    /// Notes that a block is used on another stream.
    pub(crate) fn record_stream(
        &self,
        shard: &Shard,
        place: &Place<'_>,
        address: u64,
        stream: StreamRef,
    ) -> Result<()> {
        let new = StreamUse { stream, in_scope: self.is_scoped() };
        let mut state = shard.state.lock();
        if !self.is_own(&state, stream) && state.use_newest(&self.shared.pages, address, new) {
            return Ok(());
        }
        shard.wake(&mut state);
        let place = place.again().filter(|place| state.is_allocated(place.block(), address));
        let place = place.ok_or(Error::InvalidDevicePointer { address })?;
        if self.is_own(&state, stream) {
            return Ok(());
        }
        if !place.mark_used() {
            return Err(Error::InvalidDevicePointer { address });
        }
        state.add_use(place.block(), new);
        Ok(())
    }

    /// Takes a block back that was used on other streams, or once was.
    #[inline(never)]
    pub(crate) fn free_used<D: Driver>(
        &self,
        driver: &D,
        shard: &Shard,
        place: &Place<'_>,
        address: u64,
    ) -> Result<()> {
        match self.free_newest(shard, address) {
            Undoing::Done => return Ok(()),
            Undoing::Awaits(waiter, used) => return self.await_one(driver, shard, waiter, used),
            Undoing::Nothing => {}
        }
        let mut pending = self.pending.lock();
        let empty = pending.list();
        let Some(waiting) = self.await_streams(shard, place, address, empty)? else {
            drop(pending);
            return self.free_exclusively(driver, shard, address);
        };
        self.await_events(driver, &mut pending, waiting)
    }

    /// Sees to it that a block which is pending is freed when the streams have passed that it was used on.
    fn await_events<D: Driver>(&self, driver: &D, pending: &mut Pending, mut waiting: Waiting) -> Result<()> {
        if self.is_scoped() {
            pending.defer(waiting);
            self.waiting.store(pending.count(), Ordering::Release);
            return if self.reuses_in_captures() { pending.mark_newest(driver) } else { Ok(()) };
        }
        // Only a scope that is still open when the block comes back orders the uses made inside it.
        waiting.uses.iter_mut().for_each(|used| used.in_scope = false);
        if let &[only] = waiting.uses.as_slice() {
            let awaited = pending.await_one(driver, only.stream, waiting.waiter);
            match &awaited {
                Ok(()) => pending.keep_list(waiting.uses),
                Err(_) => pending.defer(waiting),
            }
            self.waiting.store(pending.count(), Ordering::Release);
            return awaited;
        }
        pending.defer(waiting);
        self.waiting.store(pending.count(), Ordering::Release);
        let newest = pending.deferred_count() - 1;
        self.settle_waiting(pending, driver, newest)
    }

    /// The same for a block that was used on one other stream.
    #[inline(never)]
    pub(crate) fn await_one<D: Driver>(
        &self,
        driver: &D,
        shard: &Shard,
        waiter: Waiter,
        used: StreamUse,
    ) -> Result<()> {
        let mut pending = self.pending.lock();
        if self.is_scoped() {
            let waiting = self.describe(&mut pending, shard, waiter, used);
            return self.await_events(driver, &mut pending, waiting);
        }
        match pending.await_one(driver, used.stream, waiter) {
            Ok(()) => {
                self.waiting.store(pending.count(), Ordering::Release);
                Ok(())
            }
            Err(error) => {
                let waiting = self.describe(&mut pending, shard, waiter, StreamUse { in_scope: false, ..used });
                pending.defer(waiting);
                self.waiting.store(pending.count(), Ordering::Release);
                Err(error)
            }
        }
    }

    /// What is to be known of a block with one other stream that does not wait alone.
    #[cold]
    fn describe(&self, pending: &mut Pending, shard: &Shard, waiter: Waiter, used: StreamUse) -> Waiting {
        let mut uses = pending.list();
        uses.push(used);
        let handle = shard.state.lock().key.stream;
        Waiting { waiter, stream: StreamRef { device: self.index, handle }, uses, events: 0 }
    }

    /// Marks an allocated block as waiting for the streams it was used on; `None` if it was used on none.
    fn await_streams(
        &self,
        shard: &Shard,
        place: &Place<'_>,
        address: u64,
        empty: Vec<StreamUse>,
    ) -> Result<Option<Waiting>> {
        let find = |state: &ShardState| {
            let place = place.again().filter(|place| state.is_allocated(place.block(), address));
            place.ok_or(Error::InvalidDevicePointer { address })
        };
        let begin = |state: &mut ShardState, place: &Place<'_>, empty| {
            place.withdraw_used();
            let uses = state.await_streams(place.block(), empty);
            let waiter = Waiter { shard: shard.id, block: place.block() };
            let stream = StreamRef { device: self.index, handle: state.key.stream };
            Waiting { waiter, stream, uses, events: 0 }
        };
        {
            let mut state = shard.open();
            let place = find(&state)?;
            let block = state.blocks.get(place.block());
            if block.uses == NONE {
                return Ok(None);
            }
            if block.size < state.rules.max_split {
                return Ok(Some(begin(&mut state, &place, empty)));
            }
        }
        self.exclusively(|all| {
            let state = &mut all.states[shard.position];
            let place = find(state)?;
            if state.blocks.get(place.block()).uses == NONE {
                return Ok(None);
            }
            let waiting = begin(state, &place, empty);
            all.stats.oversize_allocations.change(-1);
            Ok(Some(waiting))
        })
    }

    /// Frees a block that awaits other streams no more.
    #[inline(never)]
    pub(crate) fn finish(&self, waiter: Waiter) {
        let Some(shard) = self.shared.shard(waiter.shard) else { return };
        let index = waiter.block;
        {
            let mut state = shard.state.lock();
            let settled = self.settle(shard, &mut state);
            if settled && state.pass_newest(waiter.block) {
                return;
            }
            shard.wake(&mut state);
            debug_assert_eq!(state.blocks.get(index).state, State::Pending, "a block that waits is gone");
            let freeing = state.plan_free(index);
            if settled && state.ledger.try_apply(freeing.class, &freeing.change) {
                state.free_pending(&freeing);
                return;
            }
        }
        self.exclusively(|all| all.free_pending(shard.position, index));
    }

    #[cold]
    pub(crate) fn finish_any(&self, pending: &Pending, waiter: Option<Waiter>) {
        if let Some(waiter) = waiter {
            self.waiting.store(pending.count(), Ordering::Release);
            self.finish(waiter);
        }
    }

    /// Frees the blocks whose other streams have passed their events. Only the oldest event of each stream is asked
    /// for at a time. Does nothing while a scope is open.
    pub(crate) fn process_events<D: Driver>(&self, driver: &D) -> Result<()> {
        let mut pending = self.pending.lock();
        let last = self.free_all_but_last(driver, &mut pending)?;
        self.finish_any(&pending, last);
        Ok(())
    }

    /// The same and then a search of the default pool's cache.
    #[inline]
    pub(crate) fn hit_after_events<D: Driver>(&self, driver: &D, stream: StreamHandle, bytes: u64) -> Result<Search> {
        let mut pending = self.pending.lock();
        let Some(last) = self.free_all_but_last(driver, &mut pending)? else {
            drop(pending);
            return Ok(self.hit_default(stream, bytes));
        };
        if let Some(address) = self.free_and_hit(last, stream, bytes) {
            return Ok(Search::Found(address));
        }
        drop(pending);
        Ok(self.hit_default(stream, bytes))
    }

    /// Frees a block that awaits other streams no more, and serves a request if that gets the same block again.
    #[inline]
    fn free_and_hit(&self, last: Waiter, stream: StreamHandle, bytes: u64) -> Option<u64> {
        if let Some(shard) = self.shared.shard(last.shard)
            && let Some(mut state) = shard.state.try_lock()
            && (state.key.stream == stream && state.key.owner.is_none())
            && self.settle(shard, &mut state)
            && state.pass_newest(last.block)
        {
            let address = state.take_again(bytes)?;
            shard.set_dormant(NONE);
            return Some(self.handed_out(shard, address));
        }
        self.finish(last);
        None
    }

    /// Frees what is free by now but the last, which is left to the caller to free before anything else is done.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "each request comes here while blocks wait")]
    fn free_all_but_last<D: Driver>(&self, driver: &D, pending: &mut Pending) -> Result<Option<Waiter>> {
        if self.is_scoped() {
            return Ok(None);
        }
        if pending.has_deferred() {
            self.settle_deferred_of_captures(pending, driver)?;
        }
        let passed = pending.pass_all(driver, |waiter| self.finish(waiter));
        self.waiting.store(pending.count(), Ordering::Release);
        passed
    }

    #[cold]
    fn settle_deferred_of_captures<D: Driver>(&self, pending: &mut Pending, driver: &D) -> Result<()> {
        pending.forget_captures();
        self.settle_deferred(pending, driver)
    }

    /// Waits for every outstanding event, or for those of one private pool's blocks.
    pub(crate) fn synchronize_and_free_events<D: Driver>(&self, driver: &D, only: Option<PoolId>) -> Result<()> {
        lock(&self.figures).stats.num_sync_all_streams += 1;
        let mut pending = self.pending.lock_for_long();
        let pending = &mut *pending.value;
        self.settle_deferred(pending, driver)?;
        for queue in 0..pending.queue_count() {
            let mut position = 0;
            while let Some((event, waiter)) = pending.entry(queue, position) {
                if only.is_some() && self.owner_of(waiter) != only {
                    position += 1;
                    continue;
                }
                driver.event_synchronize(event)?;
                let passed = pending.pass(queue, position);
                self.finish_any(pending, passed);
            }
        }
        Ok(())
    }

    /// The private pool of a block that waits.
    fn owner_of(&self, waiter: Waiter) -> Option<PoolId> {
        self.shared.shard(waiter.shard).and_then(|shard| shard.state.lock().key.owner)
    }

    /// Records the events that blocks given back during a scope still need.
    fn settle_deferred<D: Driver>(&self, pending: &mut Pending, driver: &D) -> Result<()> {
        while pending.deferred_count() > 0 {
            self.settle_waiting(pending, driver, 0)?;
        }
        Ok(())
    }

    /// Records the events that one deferred block needs; frees it if it needs none.
    fn settle_waiting<D: Driver>(&self, pending: &mut Pending, driver: &D, position: usize) -> Result<()> {
        let free = pending.settle(driver, position)?;
        self.finish_any(pending, free);
        Ok(())
    }
}
