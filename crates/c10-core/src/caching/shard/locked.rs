//! The stages of a shard's lock: what was done since it was taken decides what may be done next.
//!
//! ```text
//! Locked ──drain──► Drained ──flush──► Clean
//!    └─────────────flush────────────► Flushed
//! ```
//!
//! - [`Locked`]: nothing was done yet. A use of the last allocation by another stream may be noted.
//! - [`Drained`]: what other threads gave back before is free, in this shard, and no other shard of the device has
//!   undrained remote frees. The last allocation may be undone or repeated, which the figures learn of later.
//! - [`Flushed`]: the note about the last allocation was entered into the books. Blocks may be held, cut and joined;
//!   the figures do not change.
//! - [`Clean`]: both. Only here blocks are planned, taken and freed: each change is planned first, without changing
//!   anything, and made when the ledger covers it.
//!
//! **Invariants:** the order is kept by the types; the lock is released when the stage is dropped. A remote free may make
//! a peak, at the moment it happens, so it has to be entered before any later change.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use crate::caching::block::{Asked, Claim, Index, NONE, StreamUse};
use crate::caching::remote::{Place, RemoteFreeFlags};
use crate::caching::shard::books::{Books, Freeing, Key, Taking};
use crate::caching::shard::last_alloc::LastAlloc;
use crate::caching::shard::{Shard, ShardState};
use crate::sync::spin_lock::SpinGuard;

/// The lock is held.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    shard: &'a Shard,
    state: SpinGuard<'a, ShardState>,
}

/// Remote frees are drained; the last allocation may be noted only.
#[derive(Debug)]
pub(crate) struct Drained<'a>(Locked<'a>);

/// The note about the last allocation is flushed; remote frees may be undrained.
#[derive(Debug)]
pub(crate) struct Flushed<'a>(Locked<'a>);

/// Remote frees are drained and the note is flushed.
#[derive(Debug)]
pub(crate) struct Clean<'a>(Flushed<'a>);

impl Shard {
    /// Waits for the lock.
    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { shard: self, state: self.state.lock() }
    }

    /// The lock, if nobody holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        self.state.try_lock().map(|state| Locked { shard: self, state })
    }

    /// Waits for the lock with a request that the holder can see meanwhile. The memory, if the holder has served it.
    #[cold]
    pub(crate) fn lock_with_request(&self, asked: Asked) -> (Locked<'_>, Option<Claim>) {
        self.awaited.store(asked.word(), Ordering::Release);
        let mut state = self.state.lock();
        self.awaited.store(0, Ordering::Relaxed);
        let granted = state.granted.take_if(|(granted, _)| *granted == asked);
        (Locked { shard: self, state }, granted.map(|(_, claim)| claim))
    }

    /// The lock, with the note flushed.
    pub(crate) fn lock_flushed(&self) -> Flushed<'_> {
        self.lock().flush()
    }
}

impl<'a> Locked<'a> {
    /// What the shard serves.
    #[inline]
    pub(crate) fn key(&self) -> &Key {
        &self.state.books.key
    }

    /// The note about the last allocation, to look at.
    pub(crate) fn last(&self) -> &LastAlloc {
        &self.state.last
    }

    /// The books as they are, without what the note says, to look at.
    pub(crate) fn books(&self) -> &Books {
        &self.state.books
    }

    /// The books as they are, without what the note says: only for what no figure shows.
    #[inline]
    pub(super) fn books_mut(&mut self) -> &mut Books {
        &mut self.state.books
    }

    /// Whether a request was served that its thread has not come back for yet.
    #[cfg(test)]
    pub(crate) fn has_granted(&self) -> bool {
        self.state.granted.is_some()
    }

    /// Notes that the last allocation is used on another stream, if it is the one at that address and was used on no
    /// further stream; whether it was noted.
    #[inline]
    pub(crate) fn use_last(&mut self, address: u64, new: StreamUse) -> bool {
        self.state.last.use_on(&self.shard.pages, address, new)
    }

    /// Serves the request of a thread that waits for the lock, if the dormant block is what it will get: its call is under
    /// way, so it may come before what the holder of the lock does. Only while no shard of the device has remote frees.
    ///
    /// So threads that contend for the locks hold memory at the same time, as they do without contention.
    pub(crate) fn grant(&mut self) {
        let Some(awaited) = Asked::of_word(self.shard.awaited.load(Ordering::Acquire)) else { return };
        if self.state.granted.is_some() {
            return;
        }
        if let Some(claim) = self.state.last.repeat(awaited) {
            self.state.granted = Some((awaited, claim));
        }
    }

    /// Frees what other threads gave back before. `None`, and the lock is released, if that takes more than this lock:
    /// the ledger does not cover it, or another shard of the device may have remote frees.
    #[inline]
    pub(crate) fn drain(self, flags: &RemoteFreeFlags) -> Option<Drained<'a>> {
        if flags.are_none() { Some(Drained(self)) } else { self.drain_slowly(flags) }
    }

    /// The same for hot paths: goes on with `then`, or with `otherwise` where this lock is not enough. Each way is compiled
    /// by itself, so that the usual one does not test what it knows.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(crate) fn drain_then<R>(
        self,
        flags: &RemoteFreeFlags,
        then: impl FnOnce(Drained<'a>) -> R,
        otherwise: impl FnOnce() -> R,
    ) -> R {
        if flags.are_none() {
            return then(Drained(self));
        }
        match self.drain_slowly(flags) {
            Some(drained) => then(drained),
            None => otherwise(),
        }
    }

    // By value: a reference would keep the stage in memory, where it is in registers.
    #[inline(never)]
    fn drain_slowly(mut self, flags: &RemoteFreeFlags) -> Option<Drained<'a>> {
        let drained = !self.has_remote_frees() || self.free_remote();
        (drained && !flags.any_of(self.shard.other_flags)).then_some(Drained(self))
    }

    /// Frees blocks that other threads gave back, as far as the ledger covers it; whether that was all.
    #[cold]
    fn free_remote(&mut self) -> bool {
        self.flush_note();
        let mut next = self.next_remote_free();
        while let Some(index) = next {
            if !self.state.books.free_remote(&self.shard.pages, index) {
                self.state.inbox.push(index);
                return false;
            }
            // Blocks that join the chain from here on count as given back later.
            next = self.state.inbox.pop();
        }
        true
    }

    /// Whether there are blocks that other threads gave back.
    #[inline]
    fn has_remote_frees(&self) -> bool {
        self.shard.remote_frees.has_more(self.state.cursor) || !self.state.inbox.is_empty()
    }

    /// The next block that another thread gave back.
    #[inline]
    fn next_remote_free(&mut self) -> Option<Index> {
        let ShardState { inbox, cursor, books, .. } = &mut *self.state;
        let pages = &self.shard.pages;
        let slot = |index| pages.slot_at(books.blocks.get(index).address).map(|(_, slot)| slot);
        inbox.pop().or_else(|| self.shard.remote_frees.follow(cursor, inbox, slot))
    }

    /// Lets other threads see which block is dormant and that the figures may have changed.
    #[inline]
    fn show(&self, dormant: Index) {
        // In this order: a thread that finds the dormant block finds the count that belongs to it, or a later one.
        self.shard.changes.store(self.state.last.shown_changes(), Ordering::Relaxed);
        self.shard.dormant.store(dormant, Ordering::Release);
    }

    /// Enters the note about the last allocation into the books.
    #[inline]
    pub(crate) fn flush(mut self) -> Flushed<'a> {
        self.flush_note();
        Flushed(self)
    }

    #[inline]
    fn flush_note(&mut self) {
        let ShardState { last, books, .. } = &mut *self.state;
        last.flush_into(books, &self.shard.pages);
        self.show(NONE);
    }
}

impl<'a> Drained<'a> {
    /// Hands the dormant block out again, if it is what such a request got last.
    #[inline]
    pub(crate) fn repeat_last(&mut self, asked: Asked) -> Option<Claim> {
        let claim = self.0.state.last.repeat(asked)?;
        self.0.show(NONE);
        Some(claim)
    }

    /// Takes the last allocation back, if it is the claimed one; whether it was.
    #[inline]
    pub(crate) fn undo_last(&mut self, claim: Claim) -> bool {
        let undone = self.0.state.last.undo(claim);
        if let Some(block) = undone {
            self.0.show(block);
        }
        undone.is_some()
    }

    /// Takes the last allocation back, if it is the claimed one and was used on one other stream, which it has to wait for.
    #[inline]
    pub(crate) fn await_last(&mut self, claim: Claim) -> Option<(Index, StreamUse)> {
        let waits = self.0.state.last.wait(claim)?;
        self.0.show(NONE);
        Some(waits)
    }

    /// A block has waited for its other stream: it is dormant from now on, if it is the last allocation; whether it was.
    #[inline]
    pub(crate) fn end_wait_of_last(&mut self, block: Index) -> bool {
        let ended = self.0.state.last.end_wait(block);
        if ended {
            self.0.show(NONE);
        }
        ended
    }

    /// The books as they are, without what the note says: only for what no figure shows.
    #[inline]
    pub(super) fn books_mut(&mut self) -> &mut Books {
        self.0.books_mut()
    }

    /// The stage before, for notes that no figure shows.
    #[inline]
    pub(super) fn locked(&mut self) -> &mut Locked<'a> {
        &mut self.0
    }

    /// Whether searches are counted, which takes the locks of all shards.
    #[inline]
    pub(crate) fn counts_lookups(&self) -> bool {
        self.0.state.books.rules.counts_lookups
    }

    /// Enters the note about the last allocation into the books.
    #[inline]
    pub(crate) fn flush(self) -> Clean<'a> {
        Clean(self.0.flush())
    }
}

impl<'a> Flushed<'a> {
    /// The next stage under the locks of all shards, whose holder drains the remote frees of all of them before anything
    /// else.
    pub(crate) fn under_all_locks(self) -> Clean<'a> {
        Clean(self)
    }
}

impl Deref for Flushed<'_> {
    type Target = Books;

    #[inline]
    fn deref(&self) -> &Books {
        &self.0.state.books
    }
}

impl DerefMut for Flushed<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Books {
        &mut self.0.state.books
    }
}

impl<'a> Clean<'a> {
    /// What serving a request from the free blocks changes; `None` when none may be used. With `expandable`, blocks of
    /// expandable segments count as what they can grow to; without it they are passed over.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is found out here is used right after")]
    pub(crate) fn plan(&self, asked: Asked, expandable: bool) -> Option<Taking> {
        self.books().plan(asked, expandable)
    }

    /// What handing out a block, free or held, for a request changes.
    #[inline]
    pub(crate) fn plan_take(&self, index: Index, size: u64, asked: Asked, expandable: bool) -> Taking {
        self.books().plan_take(index, size, asked, expandable)
    }

    /// What handing out a block, or that much cut off from its front, changes.
    pub(crate) fn plan_part(&self, index: Index, cut: Option<u64>, asked: Asked) -> Taking {
        self.books().plan_part(index, cut, asked)
    }

    /// Hands a planned block out, whose figures are counted, as the last allocation: the lock, which is still held, the
    /// block's position and its address.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub(crate) fn take_noted(self, taking: &Taking) -> (Locked<'a>, Index, u64) {
        let Self(Flushed(mut locked)) = self;
        let state = &mut *locked.state;
        let (index, rest, address) = state.books.take(taking);
        state.last.set(index, rest, address, taking);
        (locked, index, address)
    }

    /// Hands a planned block out, whose figures are counted, without a note; its position and address.
    pub(crate) fn take(&mut self, taking: &Taking) -> (Index, u64) {
        let (index, _, address) = self.books_mut().take(taking);
        (index, address)
    }

    /// What freeing a block, allocated or pending, changes.
    #[inline]
    pub(crate) fn plan_free(&self, index: Index) -> Freeing {
        self.books().plan_free(index)
    }

    /// Turns a block that is no longer in use, and whose figures are counted, into a free one.
    pub(crate) fn free(&mut self, freeing: &Freeing) {
        self.books_mut().free(freeing);
    }

    /// Frees a block that waits for no stream any more, and whose figures are counted but for that.
    pub(crate) fn free_pending(&mut self, freeing: &Freeing) {
        self.books_mut().free_pending(freeing);
    }

    /// Frees an allocated block that no other stream uses, if the ledger covers it and no other thread has given it back;
    /// whether that was so.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call of its own is a tenth of it")]
    pub(crate) fn free_if_covered(&mut self, place: &Place<'_>) -> bool {
        self.books_mut().free_if_covered(place)
    }

    /// The next block that another thread gave back. Under the locks of all shards.
    pub(crate) fn next_remote_free(&mut self) -> Option<Index> {
        self.0.0.next_remote_free()
    }

    /// Whether there are blocks that other threads gave back.
    pub(crate) fn has_remote_frees(&self) -> bool {
        self.0.0.has_remote_frees()
    }

    #[inline]
    fn books(&self) -> &Books {
        &self.0.0.state.books
    }

    #[inline]
    pub(super) fn books_mut(&mut self) -> &mut Books {
        &mut self.0.0.state.books
    }
}

impl<'a> Deref for Clean<'a> {
    type Target = Flushed<'a>;

    #[inline]
    fn deref(&self) -> &Flushed<'a> {
        &self.0
    }
}

impl DerefMut for Clean<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
