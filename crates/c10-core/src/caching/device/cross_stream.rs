//! Blocks that other streams use: noting that, taking them back, and serving requests once those streams have passed.
//!
//! A block that was used on another stream is *pending* from its free on: it is free when the events have passed that were
//! recorded on those streams then. Each request asks for the oldest event of each stream first, and frees what has passed,
//! in that order. Most programs use a block on one other stream, and ask for as much again when they have given it back.
//! Then the block is the last allocation of its shard all the time, and all this is a note there
//! ([`crate::caching::shard`]).
//!
//! **Invariants:** the lock of `pending` is taken before those of shards; the driver is called under the former. A block
//! that is given back is pending in its shard before anything waits for it. It is freed there under the lock of `pending`
//! when nothing does any more.

use std::sync::atomic::Ordering;

use crate::base::error::{Error, MemoryError, Result};
use crate::base::handles::{EventHandle, StreamHandle, StreamRef};
use crate::base::ids::PoolId;
use crate::caching::block::{Asked, Claim, NONE, State, StreamUse};
use crate::caching::device::cache::DeviceCache;
use crate::caching::device::free::FreeOfLast;
use crate::caching::device::hit::Hit;
use crate::caching::pools::{Pending, Waiter, Waiting};
use crate::caching::remote::Place;
use crate::caching::shard::{Books, Flushed, Key, Shard};
use crate::driver::Driver;
use crate::sync::lock;
use crate::trace::{TraceEvent, TraceKind};

impl DeviceCache {
    /// Whether a stream is the one that a shard serves.
    #[inline]
    fn is_own(&self, key: &Key, stream: StreamRef) -> bool {
        stream.device == self.index && stream.handle == key.stream
    }

    /// Notes that the last allocation of a shard is used on another stream, if it is the one at that address and was used on
    /// no further stream; whether it was noted.
    #[inline]
    pub(crate) fn record_last(&self, shard: &Shard, address: u64, stream: StreamRef) -> bool {
        let new = StreamUse { stream, in_scope: self.is_scoped() };
        let mut locked = shard.lock();
        !self.is_own(locked.key(), stream) && locked.use_last(address, new)
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
        let mut locked = shard.lock();
        if !self.is_own(locked.key(), stream) && locked.use_last(address, new) {
            return Ok(());
        }
        let mut state = locked.flush();
        let place = place.again().filter(|place| state.is_allocated(place.block(), address));
        let place = place.ok_or(Error::Memory(MemoryError::InvalidPointer { address }))?;
        if self.is_own(&state.key, stream) {
            return Ok(());
        }
        if !place.mark_used() {
            return Err(Error::Memory(MemoryError::InvalidPointer { address }));
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
        claim: Claim,
    ) -> Result<()> {
        match self.free_last(shard, claim) {
            FreeOfLast::Done => return Ok(()),
            FreeOfLast::Waits(waiter, used) => return self.wait_for_one(driver, shard, waiter, used),
            FreeOfLast::NotLast => {}
        }
        let mut pending = self.pending.lock();
        let empty = pending.list();
        let Some(waiting) = self.begin_pending(shard, place, claim.address(), empty)? else {
            drop(pending);
            return self.free_under_all_locks(driver, shard, claim);
        };
        self.wait_for_events(driver, &mut pending, waiting)
    }

    /// Sees to it that a block which is pending is freed when the streams have passed that it was used on.
    fn wait_for_events<D: Driver>(&self, driver: &D, pending: &mut Pending, mut waiting: Waiting) -> Result<()> {
        if self.is_scoped() {
            pending.defer(waiting);
            self.pending_count.store(pending.count(), Ordering::Release);
            return if self.reuses_in_captures() { pending.mark_last(driver) } else { Ok(()) };
        }
        // Only a scope that is still open when the block comes back orders the uses made inside it.
        waiting.uses.iter_mut().for_each(|used| used.in_scope = false);
        if let &[only] = waiting.uses.as_slice() {
            let awaited = pending.wait_alone(driver, only.stream, waiting.waiter);
            match &awaited {
                Ok(()) => pending.keep_list(waiting.uses),
                Err(_) => pending.defer(waiting),
            }
            self.pending_count.store(pending.count(), Ordering::Release);
            return awaited;
        }
        pending.defer(waiting);
        self.pending_count.store(pending.count(), Ordering::Release);
        let last = pending.deferred_count() - 1;
        self.record_deferred(pending, driver, last)
    }

    /// The same for a block that was used on one other stream.
    #[inline(never)]
    pub(crate) fn wait_for_one<D: Driver>(
        &self,
        driver: &D,
        shard: &Shard,
        waiter: Waiter,
        used: StreamUse,
    ) -> Result<()> {
        let mut pending = self.pending.lock();
        if self.is_scoped() {
            let waiting = self.describe_waiting(&mut pending, shard, waiter, used);
            return self.wait_for_events(driver, &mut pending, waiting);
        }
        match pending.wait_alone(driver, used.stream, waiter) {
            Ok(()) => {
                self.pending_count.store(pending.count(), Ordering::Release);
                Ok(())
            }
            Err(error) => {
                let waiting = self.describe_waiting(&mut pending, shard, waiter, StreamUse { in_scope: false, ..used });
                pending.defer(waiting);
                self.pending_count.store(pending.count(), Ordering::Release);
                Err(error)
            }
        }
    }

    /// What is to be known of a block with one other stream that does not wait alone.
    #[cold]
    fn describe_waiting(&self, pending: &mut Pending, shard: &Shard, waiter: Waiter, used: StreamUse) -> Waiting {
        let mut uses = pending.list();
        uses.push(used);
        let handle = shard.lock().key().stream;
        Waiting { waiter, stream: StreamRef { device: self.index, handle }, uses, events: 0 }
    }

    /// Makes an allocated block pending, with the streams it was used on; `None` if it was used on none.
    fn begin_pending(
        &self,
        shard: &Shard,
        place: &Place<'_>,
        address: u64,
        empty: Vec<StreamUse>,
    ) -> Result<Option<Waiting>> {
        let find = |state: &Books| {
            let place = place.again().filter(|place| state.is_allocated(place.block(), address));
            place.ok_or(Error::Memory(MemoryError::InvalidPointer { address }))
        };
        let begin = |state: &mut Flushed<'_>, place: &Place<'_>, empty| {
            place.withdraw_used();
            let uses = state.begin_pending_for_uses(place.block(), empty);
            let waiter = Waiter { shard: shard.id, block: place.block() };
            let stream = StreamRef { device: self.index, handle: state.key.stream };
            Waiting { waiter, stream, uses, events: 0 }
        };
        {
            let mut state = shard.lock_flushed();
            let place = find(&state)?;
            let block = state.blocks.get(place.block());
            if block.uses == NONE {
                return Ok(None);
            }
            if block.size < state.rules.max_split {
                return Ok(Some(begin(&mut state, &place, empty)));
            }
        }
        self.all_shards(|all| {
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

    /// Frees a pending block that waits for no stream any more.
    #[inline(never)]
    pub(crate) fn free_pending(&self, waiter: Waiter) {
        let Some(shard) = self.shared.shard(waiter.shard) else { return };
        let index = waiter.block;
        self.shared.trace.report(TraceKind::Memory, || TraceEvent::FreeCompleted(self.describe(shard, index)));
        if let Some(mut drained) = shard.lock().drain(&self.remote_frees) {
            if drained.end_wait_of_last(index) {
                return;
            }
            let mut state = drained.flush();
            debug_assert_eq!(state.blocks.get(index).state, State::Pending, "a pending block is gone");
            let freeing = state.plan_free(index);
            if state.ledger.try_apply(freeing.class, &freeing.change) {
                state.free_pending(&freeing);
                return;
            }
        }
        self.all_shards(|all| all.free_pending(shard.position, index));
    }

    #[cold]
    pub(crate) fn free_if_done(&self, pending: &Pending, waiter: Option<Waiter>) {
        if let Some(waiter) = waiter {
            self.pending_count.store(pending.count(), Ordering::Release);
            self.free_pending(waiter);
        }
    }

    /// Frees the blocks whose other streams have passed their events. Only the oldest event of each stream is asked
    /// for at a time. Does nothing while a scope is open.
    pub(crate) fn process_events<D: Driver>(&self, driver: &D) -> Result<()> {
        let mut pending = self.pending.lock();
        let last = self.free_all_but_last(driver, &mut pending)?;
        self.free_if_done(&pending, last);
        Ok(())
    }

    /// The same, and then serves a request from the default pool's cache.
    #[inline]
    pub(crate) fn hit_after_events<D: Driver>(&self, driver: &D, stream: StreamHandle, asked: Asked) -> Result<Hit> {
        let mut pending = self.pending.lock();
        let Some(last) = self.free_all_but_last(driver, &mut pending)? else {
            drop(pending);
            return Ok(self.hit(stream, asked));
        };
        if let Some(address) = self.free_and_hit(last, stream, asked) {
            return Ok(Hit::Found(address));
        }
        drop(pending);
        Ok(self.hit(stream, asked))
    }

    /// Frees a pending block that waits for no stream any more, and serves a request if that gets the same block again.
    #[inline]
    fn free_and_hit(&self, last: Waiter, stream: StreamHandle, asked: Asked) -> Option<u64> {
        if !self.shared.trace.wants(TraceKind::Memory)
            && let Some(shard) = self.shared.shard(last.shard)
            && let Some(locked) = shard.try_lock()
            && (locked.key().stream == stream && locked.key().owner.is_none())
            && let Some(mut drained) = locked.drain(&self.remote_frees)
            && drained.end_wait_of_last(last.block)
        {
            let claim = drained.repeat_last(asked)?;
            return Some(self.handed_out(shard, claim));
        }
        self.free_pending(last);
        None
    }

    /// Frees the blocks that wait for nothing any more, but not the last of them: the caller frees that one before anything
    /// else is done.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "each request comes here while blocks wait")]
    fn free_all_but_last<D: Driver>(&self, driver: &D, pending: &mut Pending) -> Result<Option<Waiter>> {
        if self.is_scoped() {
            return Ok(None);
        }
        if pending.has_deferred() {
            self.record_deferred_of_captures(pending, driver)?;
        }
        let passed = pending.pass_all(driver, |waiter| self.free_pending(waiter));
        self.pending_count.store(pending.count(), Ordering::Release);
        passed
    }

    #[cold]
    fn record_deferred_of_captures<D: Driver>(&self, pending: &mut Pending, driver: &D) -> Result<()> {
        pending.forget_captures();
        self.record_all_deferred(pending, driver)
    }

    /// Waits for every outstanding event, or for those of one private pool's blocks.
    pub(crate) fn synchronize_and_free_events<D: Driver>(&self, driver: &D, only: Option<PoolId>) -> Result<()> {
        lock(&self.figures).stats_mut().num_sync_all_streams += 1;
        let streams = {
            let mut pending = self.pending.lock_long();
            self.record_all_deferred(&mut pending.value, driver)?;
            pending.value.streams()
        };
        self.synchronize_events(streams, driver, only)
    }

    /// Waits for every outstanding event while scopes are open. Deferred blocks get events for all their uses, since no
    /// capture has ordered the uses made since the scope began. Blocks used on a stream that is capturing stay
    /// deferred.
    pub(crate) fn synchronize_in_scopes<D: Driver>(&self, driver: &D) -> Result<()> {
        lock(&self.figures).stats_mut().num_sync_all_streams += 1;
        let streams = {
            let mut pending = self.pending.lock_long();
            let pending = &mut *pending.value;
            let mut position = 0;
            while position < pending.deferred_count() {
                if pending.is_captured(driver, position)? {
                    position += 1;
                    continue;
                }
                pending.keep_uses(position);
                self.record_deferred(pending, driver, position)?;
            }
            pending.streams()
        };
        self.synchronize_events(streams, driver, None)
    }

    /// Waits for the events of streams, or for those of one private pool's blocks.
    fn synchronize_events<D: Driver>(&self, streams: Vec<StreamRef>, driver: &D, only: Option<PoolId>) -> Result<()> {
        for stream in streams {
            let mut position = 0;
            while let Some((event, waiter, passes)) = self.pending_at(stream, position) {
                if only.is_some() && self.owner_of(waiter) != only {
                    position += 1;
                    continue;
                }
                // No lock is held here: a host function that the stream calls before the event may free blocks.
                driver.event_synchronize(event)?;
                let mut pending = self.pending.lock_long();
                let pending = &mut *pending.value;
                if pending.passes() == passes {
                    let passed = pending.pass(stream, position);
                    self.free_if_done(pending, passed);
                } else {
                    // Another thread has processed events in the meantime, and this event may have been recorded again.
                    position = 0;
                }
            }
        }
        Ok(())
    }

    /// Returns an event that blocks wait for, one of these blocks, and the number of events that have passed so far.
    fn pending_at(&self, stream: StreamRef, position: usize) -> Option<(EventHandle, Waiter, u64)> {
        let pending = self.pending.lock();
        let (event, waiter) = pending.get(stream, position)?;
        Some((event, waiter, pending.passes()))
    }

    /// The private pool of a block that waits.
    fn owner_of(&self, waiter: Waiter) -> Option<PoolId> {
        self.shared.shard(waiter.shard).and_then(|shard| shard.lock().key().owner)
    }

    /// Records the events that blocks given back during a scope still need.
    fn record_all_deferred<D: Driver>(&self, pending: &mut Pending, driver: &D) -> Result<()> {
        while pending.deferred_count() > 0 {
            self.record_deferred(pending, driver, 0)?;
        }
        Ok(())
    }

    /// Records the events that one deferred block needs; frees it if it needs none.
    fn record_deferred<D: Driver>(&self, pending: &mut Pending, driver: &D, position: usize) -> Result<()> {
        let free = pending.record_deferred(driver, position)?;
        self.free_if_done(pending, free);
        Ok(())
    }

    /// Frees the blocks of a capturing stream that its next work can use, if the option says so; before a request.
    pub(crate) fn free_passed<D: Driver>(&self, driver: &D, stream: StreamRef) -> Result<()> {
        if !(self.reuses_in_captures() && self.has_pending()) {
            return Ok(());
        }
        let mut pending = self.pending.lock();
        if !pending.has_markers(stream) {
            return Ok(());
        }
        let Some(point) = driver.capture_point(stream)? else { return Ok(()) };
        pending.passed.follow(driver, stream, &point)?;
        while let Some(waiter) = pending.take_passed(stream) {
            self.free_if_done(&pending, Some(waiter));
        }
        Ok(())
    }
}
