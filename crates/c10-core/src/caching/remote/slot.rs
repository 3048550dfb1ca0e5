//! The word that says whether a block is handed out, and the chain of blocks that other threads gave back.
//!
//! A *slot* is 0, or the position of an allocated block with three flags: *freed* (another thread has given it back and its
//! shard has not drained it yet), *used* (it was used on other streams, or once was) and *owned* (a buffer gives it back).
//! Remotely freed blocks form a
//! chain, the last one first: the shard's [`RemoteFrees`] names that one and counts all, and the slot of each block in the
//! chain names the one before. The shard keeps the last head that it has followed ([`RemoteCursor`]) and never writes the
//! head: the difference of the counts is the number of new blocks. Most often that is one, and then its slot need not be
//! read, only cleared.
//!
//! **Invariants:** a slot is not 0 exactly while its block is allocated. The holder of the shard's lock writes it, except
//! for the flag *freed*: any thread may set that, once, unless *used* is set. Then that thread writes the slot until the
//! block is in the chain; from there on only the holder of the lock does, and clears it without looking. So a block is
//! given back once, by one thread, and the new part of the chain is complete. The head changes with each block that joins,
//! by its count, so no thread mistakes one head for another: that would take 2^32 blocks that nobody has followed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::caching::block::{Index, Owner};
use crate::caching::remote::flags::Word;

const FREED: u64 = 1;
const USED: u64 = 2;
const OWNED: u64 = 4;
const POSITION_SHIFT: u32 = 3;
const NEXT_SHIFT: u32 = 32;
const COUNT_SHIFT: u32 = 32;
/// No slot has this value.
const IMPOSSIBLE: u64 = u64::MAX;

/// A slot.
#[derive(Debug, Default)]
pub(crate) struct Slot<W = AtomicU64>(W);

/// What a slot of an allocated block held when it was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Position of the block in its slab.
    #[inline]
    pub(crate) fn block(self) -> Index {
        #[expect(clippy::cast_possible_truncation, reason = "the upper half is the next block's")]
        let low = self.0 as u32;
        (low >> POSITION_SHIFT).wrapping_sub(1)
    }

    /// Whether it was used on other streams.
    #[inline]
    pub(crate) fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    /// Who gives it back.
    #[inline]
    pub(crate) fn owner(self) -> Owner {
        if self.0 & OWNED == 0 { Owner::Program } else { Owner::Buffer }
    }

    /// Whether another thread has given it back.
    #[inline]
    pub(crate) fn is_remotely_freed(self) -> bool {
        self.0 & FREED != 0
    }

    /// The block that was given back before this one.
    #[inline]
    fn next(self) -> Option<Index> {
        position(self.0 >> NEXT_SHIFT)
    }
}

/// A position as it is kept: 0 is none.
#[inline]
fn kept(block: Index) -> u64 {
    u64::from(block) + 1
}

/// The position in the lower half of a word.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the upper half tells something else")]
fn position(word: u64) -> Option<Index> {
    (word as u32).checked_sub(1)
}

impl<W: Word> Slot<W> {
    /// Notes that a block is handed out. By the holder of the lock.
    #[inline]
    pub(crate) fn publish(&self, block: Index, owner: Owner) {
        let owned = if owner == Owner::Buffer { OWNED } else { 0 };
        self.0.store(kept(block) << POSITION_SHIFT | owned, Ordering::Release);
    }

    /// The block that is handed out here.
    #[inline]
    pub(crate) fn look(&self) -> Option<Seen> {
        let value = self.0.load(Ordering::Acquire);
        (value != 0).then_some(Seen(value))
    }

    /// The same for a thread that is about to write the slot and did not write it last: acquires the cache line for
    /// writing at once, instead of for reading first.
    #[inline]
    pub(crate) fn look_for_write(&self) -> Option<Seen> {
        let value = self.0.exchange(IMPOSSIBLE, IMPOSSIBLE, Ordering::Acquire).err()?;
        (value != 0).then_some(Seen(value))
    }

    /// Notes that the block is handed out no more, if nothing changed since; whether that was so. By the holder of
    /// the lock.
    #[inline]
    pub(crate) fn withdraw(&self, seen: Seen) -> bool {
        self.0.exchange(seen.0, 0, Ordering::AcqRel).is_ok()
    }

    /// The same for a block in the chain: no other thread writes its slot.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// The same for a block that was used on other streams: no other thread changes its slot.
    #[inline]
    pub(crate) fn withdraw_used(&self, seen: Seen) {
        debug_assert!(seen.is_used() && !seen.is_remotely_freed(), "others may change a slot that is not marked");
        self.0.store(0, Ordering::Release);
    }

    /// Undoes [`Self::withdraw`]. By the holder of the lock.
    pub(crate) fn restore(&self, seen: Seen) {
        self.0.store(seen.0, Ordering::Release);
    }

    /// Notes that the block was not used on other streams after all. By the holder of the lock, who
    /// marked it: no other thread changes a marked slot.
    pub(crate) fn unmark(&self, seen: Seen) {
        debug_assert!(seen.is_used() && !seen.is_remotely_freed(), "a mark is taken away that is not there");
        self.0.store(seen.0 & !USED, Ordering::Release);
    }

    /// Notes that the block is used on other streams; false if it was given back. By the holder of the lock.
    pub(crate) fn mark_used(&self, seen: Seen) -> bool {
        seen.is_used() || self.0.exchange(seen.0, seen.0 | USED, Ordering::AcqRel).is_ok()
    }
}

/// The chain of remotely freed blocks of a shard: the position of the last one, and above it how many there have been.
#[derive(Debug, Default)]
pub(crate) struct RemoteFrees<W = AtomicU64>(W);

/// How far a shard has followed its chain: what the head was then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RemoteCursor(u64);

impl<W: Word> RemoteFrees<W> {
    /// Gives a block back; false if it was given back, or used on another stream, since it was looked at. The head and the
    /// [`RemoteFreeFlags`](crate::caching::remote::RemoteFreeFlags) are written in one order that all threads see.
    #[inline]
    pub(crate) fn push(&self, slot: &Slot<W>, seen: Seen) -> bool {
        // Most often this thread was the last to write it.
        let mut head = self.0.load(Ordering::Relaxed);
        let linked = |head: u64| seen.0 | FREED | head << NEXT_SHIFT;
        if slot.0.exchange(seen.0, linked(head), Ordering::AcqRel).is_err() {
            return false;
        }
        while let Err(found) = self.0.exchange(head, joined(head, seen.block()), Ordering::SeqCst) {
            head = found;
            slot.0.store(linked(head), Ordering::Release);
        }
        true
    }

    /// Whether blocks joined since.
    #[inline]
    pub(crate) fn has_more(&self, followed: RemoteCursor) -> bool {
        self.0.load(Ordering::SeqCst) != followed.0
    }

    /// The first block that joined since, and into a list the others, the last one first; `slot` gives the slot of a block.
    /// By the holder of the lock.
    #[inline]
    pub(crate) fn follow<'a>(
        &self,
        followed: &mut RemoteCursor,
        list: &mut Vec<Index>,
        slot: impl Fn(Index) -> Option<&'a Slot<W>>,
    ) -> Option<Index>
    where
        W: 'a,
    {
        let head = self.0.load(Ordering::SeqCst);
        let before = std::mem::replace(followed, RemoteCursor(head)).0;
        let count = ((head >> COUNT_SHIFT) as u32).wrapping_sub((before >> COUNT_SHIFT) as u32);
        let mut block = position(head).filter(|_| count > 0)?;
        for _ in 1..count {
            list.push(block);
            block = slot(block).and_then(Slot::look)?.next()?;
        }
        Some(block)
    }
}

/// The head when a block has joined.
#[inline]
fn joined(head: u64, block: Index) -> u64 {
    (head >> COUNT_SHIFT).wrapping_add(1) << COUNT_SHIFT | kept(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::AtomicU64 as ModelWord;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// A shard whose blocks are all handed out.
    struct Shard {
        slots: [Slot<ModelWord>; 3],
        returned: RemoteFrees<ModelWord>,
        /// What the lock guards.
        state: Mutex<State>,
    }

    #[derive(Default)]
    struct State {
        followed: RemoteCursor,
        /// How often each block was freed.
        freed: [u32; 3],
    }

    impl Shard {
        fn new() -> Arc<Self> {
            let shard = Self {
                slots: std::array::from_fn(|_| Slot::default()),
                returned: RemoteFrees::default(),
                state: Mutex::default(),
            };
            (0..).zip(&shard.slots).for_each(|(block, slot)| slot.publish(block, Owner::Program));
            Arc::new(shard)
        }

        /// Frees what was returned.
        fn follow(&self, state: &mut State) {
            let State { followed, freed } = state;
            let mut list = Vec::new();
            let oldest = self.returned.follow(followed, &mut list, |block| self.slots.get(block as usize));
            for block in list.into_iter().chain(oldest) {
                let slot = &self.slots[block as usize];
                let seen = slot.look().unwrap();
                assert!(seen.is_remotely_freed() && seen.block() == block);
                slot.clear();
                freed[block as usize] += 1;
            }
        }

        /// A free by the thread that allocates; whether it was accepted.
        fn free_here(&self, block: usize) -> bool {
            let mut state = self.state.lock().unwrap();
            self.follow(&mut state);
            let slot = &self.slots[block];
            let done = slot.look().is_some_and(|seen| !seen.is_remotely_freed() && slot.withdraw(seen));
            state.freed[block] += u32::from(done);
            done
        }

        /// A free by another thread; whether it was accepted.
        fn free_remotely(&self, block: usize) -> bool {
            let slot = &self.slots[block];
            let seen = slot.look_for_write().filter(|seen| !seen.is_remotely_freed());
            seen.is_some_and(|seen| self.returned.push(slot, seen))
        }

        /// Frees what was returned, and hands a block out again if it was among that; whether it was.
        fn take_again(&self, block: Index) -> bool {
            let mut state = self.state.lock().unwrap();
            self.follow(&mut state);
            let slot = &self.slots[block as usize];
            let is_free = slot.look().is_none();
            if is_free {
                slot.publish(block, Owner::Program);
            }
            is_free
        }
    }

    /// In every order of the memory accesses: each block is freed as often as it was handed out and frees were accepted.
    fn each_is_freed_once(threads: [fn(&Shard) -> u32; 2], here: fn(&Shard) -> [u32; 2]) {
        loom::model(move || {
            let shard = Shard::new();
            let threads = threads.map(|body| {
                let shard = Arc::clone(&shard);
                thread::spawn(move || body(&shard))
            });
            let [mut accepted, again] = here(&shard);
            accepted += threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>();
            let mut state = shard.state.lock().unwrap();
            shard.follow(&mut state);
            assert!(!shard.returned.has_more(state.followed));
            assert!(state.freed.iter().all(|count| *count <= 1 + again), "{:?}", state.freed);
            let gone = shard.slots.iter().map(|slot| u32::from(slot.look().is_none())).sum::<u32>();
            assert_eq!((state.freed.iter().sum::<u32>(), gone + again), (accepted, accepted));
        });
    }

    #[test]
    fn no_block_is_lost_or_freed_twice() {
        each_is_freed_once(
            [|shard| u32::from(shard.free_remotely(0)), |shard| u32::from(shard.free_remotely(1))],
            |shard| [u32::from(shard.free_here(2)), 0],
        );
    }

    #[test]
    fn a_block_that_two_threads_give_back_is_freed_once() {
        each_is_freed_once(
            [|shard| u32::from(shard.free_remotely(0)), |shard| u32::from(shard.free_remotely(0))],
            |shard| [u32::from(shard.free_remotely(1)), 0],
        );
        each_is_freed_once(
            [|shard| u32::from(shard.free_remotely(0)), |shard| u32::from(shard.free_remotely(1))],
            |shard| [u32::from(shard.free_here(0)), 0],
        );
    }

    /// The chain goes on behind what was followed: links of new blocks lead to old ones, which may be in use again.
    #[test]
    fn a_chain_is_followed_as_far_as_it_is_new() {
        each_is_freed_once(
            [
                |shard| u32::from(shard.free_remotely(0)) + u32::from(shard.free_remotely(1)),
                |shard| u32::from(shard.free_remotely(2)),
            ],
            |shard| [0, u32::from(shard.take_again(0))],
        );
        each_is_freed_once(
            [
                |shard| u32::from(shard.free_remotely(0)) + u32::from(shard.free_remotely(0)),
                |shard| u32::from(shard.free_remotely(1)),
            ],
            |shard| [0, u32::from(shard.take_again(0))],
        );
    }

    #[test]
    fn blocks_come_in_the_order_they_were_returned() {
        let slots: [Slot; 4] = std::array::from_fn(|_| Slot::default());
        let (returned, mut followed) =
            (RemoteFrees::<AtomicU64>::default(), RemoteCursor(u64::from(u32::MAX - 1) << COUNT_SHIFT));
        // The count begins anew on the way.
        returned.0.store(followed.0, Ordering::SeqCst);
        for order in [&[0][..], &[2], &[0, 1], &[3, 2, 1, 0], &[]] {
            for block in order {
                let slot = &slots[*block as usize];
                slot.publish(*block, Owner::Program);
                assert!(returned.push(slot, slot.look().unwrap()));
            }
            assert_eq!(returned.has_more(followed), !order.is_empty());
            let mut list = Vec::new();
            let oldest = returned.follow(&mut followed, &mut list, |block| slots.get(block as usize));
            assert!(list.iter().chain(&oldest).eq(order.iter().rev()), "{order:?}");
            assert!(!returned.has_more(followed));
            order.iter().for_each(|block| slots[*block as usize].clear());
        }
    }

    /// The holder of the shard marks a block as used, unless it has been returned, and then does more to its slot, while
    /// another thread gives the block back. Whether it was marked; whether it was given back, or `None` if nothing was there;
    /// the slot, and the chain.
    fn used_and_returned(
        then: fn(&Slot<ModelWord>),
    ) -> (bool, Option<bool>, Arc<Slot<ModelWord>>, RemoteFrees<ModelWord>) {
        let slot = Arc::new(Slot::<ModelWord>::default());
        slot.publish(4, Owner::Program);
        let holder = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                let seen = slot.look().filter(|seen| !seen.is_remotely_freed());
                let marked = seen.is_some_and(|seen| slot.mark_used(seen));
                if marked {
                    then(&slot);
                }
                marked
            })
        };
        let returned = RemoteFrees::<ModelWord>::default();
        let given = slot.look_for_write().map(|seen| !seen.is_used() && returned.push(&slot, seen));
        (holder.join().unwrap(), given, slot, returned)
    }

    #[test]
    fn a_mark_is_taken_away_and_what_is_remotely_freed_meanwhile_stays_so() {
        loom::model(|| {
            let (marked, given, slot, _) = used_and_returned(|slot| slot.unmark(slot.look().unwrap()));
            let given = given.unwrap();
            assert!(marked || given, "nobody was in the other's way");
            let seen = slot.look().unwrap();
            assert_eq!((seen.block(), seen.is_used(), seen.is_remotely_freed()), (4, false, given));
        });
    }

    #[test]
    fn what_other_streams_used_is_withdrawn_by_its_shard_alone() {
        loom::model(|| {
            let (marked, given, slot, returned) = used_and_returned(|slot| slot.withdraw_used(slot.look().unwrap()));
            let given = given.unwrap_or(false);
            assert!(given != marked, "one of them takes it back");
            assert_eq!((slot.look().is_some(), returned.has_more(RemoteCursor::default())), (given, given));
        });
    }

    #[test]
    fn what_other_streams_used_is_not_freed_remotely() {
        loom::model(|| {
            let (used, given, slot, _) = used_and_returned(|_| {});
            let given = given.unwrap_or(false);
            assert!(given != used, "one of them");
            let seen = slot.look().unwrap();
            assert_eq!((seen.block(), seen.is_used(), seen.is_remotely_freed()), (4, used, given));
        });
    }
}
