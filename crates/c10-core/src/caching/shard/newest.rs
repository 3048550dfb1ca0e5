//! The newest change of a shard, if that was to hand a block out.
//!
//! Programs often give back what they have just asked for, and then ask for the same again. Giving back the block that
//! was handed out last undoes that change exactly, and asking again for as much repeats it: the same block, the same
//! figures, no new peak. So nothing is touched then but a note: the block is left as it is, *dormant*, and how often that
//! happened is counted. Was the block used on one other stream, it *waits* for that stream first, which is a part of the
//! same note: what it took of the leases it keeps until it is free.
//!
//! **Invariants:** before anything else is done with the shard it is [woken](ShardState::wake): the count is entered into
//! the figures, a dormant block is freed, one that waits becomes pending. Until then the block and its figures are as
//! they were when it was handed out. The slot of a block that was used elsewhere says so from then on until the shard is
//! woken, though the block may have been given back and handed out again: who finds it so takes the shard's lock.

use crate::caching::block::SizeClass;
use crate::caching::block::StreamUse;
use crate::caching::block::{Index, NONE, State};
use crate::caching::remote::Pages;
use crate::caching::shard::state::{ShardState, signed};
use crate::caching::stats::{Change, LANES};

/// The newest change of a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    /// The block, or [`NONE`] if the newest change was another one.
    pub(crate) block: Index,
    /// What was left of the block it was cut from, or [`NONE`].
    pub(crate) rest: Index,
    pub(crate) address: u64,
    /// The unrounded size it was asked for.
    pub(crate) requested: u64,
    pub(crate) class: SizeClass,
    pub(crate) change: Change,
    pub(crate) stage: Stage,
    /// Its slot says that it was used on other streams.
    pub(crate) marked: bool,
    /// Times it was given back and was free again, so far without effect on the figures.
    pub(crate) undone: i64,
}

/// What has become of the block since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Out,
    /// It is used on another stream.
    Used(StreamUse),
    /// It has been given back, and awaits that stream.
    Waiting,
    /// It has been given back.
    Dormant,
}

impl Newest {
    pub(crate) const NONE: Self = Self {
        block: NONE,
        rest: NONE,
        address: 0,
        requested: 0,
        class: SizeClass::Small,
        change: [0; LANES],
        stage: Stage::Out,
        marked: false,
        undone: 0,
    };

    #[inline]
    fn is_at(&self, address: u64) -> bool {
        self.block != NONE && self.address == address
    }
}

impl ShardState {
    /// Hands the dormant block out again, if it was what a request for so many bytes got; its address.
    #[inline]
    pub(crate) fn take_again(&mut self, requested: u64) -> Option<u64> {
        if !matches!(self.newest.stage, Stage::Dormant) || self.newest.requested != requested {
            return None;
        }
        self.newest.stage = Stage::Out;
        Some(self.newest.address)
    }

    /// Gives back the block that was handed out last, if it is the one at that address; its position.
    #[inline]
    pub(crate) fn undo_take(&mut self, address: u64) -> Option<Index> {
        if !self.newest.is_at(address) || !matches!(self.newest.stage, Stage::Out) {
            return None;
        }
        debug_assert_eq!(self.blocks.get(self.newest.block).uses, NONE, "noting a use in a list wakes the shard");
        self.newest.stage = Stage::Dormant;
        self.newest.undone += 1;
        Some(self.newest.block)
    }

    /// Notes another stream that the block is used on which was handed out last, if it is the one at that address and was
    /// used on no further stream; whether it was noted.
    #[inline]
    pub(crate) fn use_newest(&mut self, pages: &Pages, address: u64, new: StreamUse) -> bool {
        if !self.newest.is_at(address) {
            return false;
        }
        match &mut self.newest.stage {
            Stage::Out => {}
            Stage::Used(known) if known.stream == new.stream => {
                known.in_scope |= new.in_scope;
                return true;
            }
            Stage::Used(_) | Stage::Waiting | Stage::Dormant => return false,
        }
        if !self.newest.marked {
            self.newest.marked = pages.find(address).is_some_and(|place| place.mark_used());
        }
        if self.newest.marked {
            self.newest.stage = Stage::Used(new);
        }
        self.newest.marked
    }

    /// Gives back the block that was handed out last, if it is the one at that address and was used on one other stream,
    /// which it awaits from now on.
    #[inline]
    pub(crate) fn await_newest(&mut self, address: u64) -> Option<(Index, StreamUse)> {
        let Stage::Used(used) = self.newest.stage else { return None };
        if !self.newest.is_at(address) {
            return None;
        }
        self.newest.stage = Stage::Waiting;
        Some((self.newest.block, used))
    }

    /// A block awaits other streams no more: it is dormant from now on, if it was handed out last; whether it was.
    #[inline]
    pub(crate) fn pass_newest(&mut self, block: Index) -> bool {
        let waits = matches!(self.newest.stage, Stage::Waiting) && self.newest.block == block;
        if waits {
            self.newest.stage = Stage::Dormant;
            self.newest.undone += 1;
        }
        waits
    }

    /// The newest change is not one that can be undone.
    pub(crate) fn forget_newest(&mut self) {
        self.newest = Newest::NONE;
    }

    /// Completes what was left undone of the newest change; before anything else is done.
    #[inline]
    pub(crate) fn wake(&mut self, pages: &Pages) {
        if self.newest.undone > 0 || self.newest.marked {
            self.wake_slowly(pages);
        }
        self.newest.block = NONE;
    }

    #[cold]
    fn wake_slowly(&mut self, pages: &Pages) {
        let Newest { block, rest, address, requested, class, change, stage, marked, undone } = self.newest;
        self.newest = Newest::NONE;
        // Each time the change was undone and, but for the last time if it sleeps, made again.
        let again = undone - i64::from(matches!(stage, Stage::Dormant));
        if again > 0 {
            self.ledger.repeat(class, &change, again);
            self.ledger.repeat(class, &change.map(|amount| -amount), again);
            if rest != NONE {
                // As if they had been joined and cut again.
                self.blocks.get_mut(rest).requested = requested;
            }
        }
        let place = || pages.find(address);
        match stage {
            // Otherwise another thread has given it back too, and it will be freed when that is followed.
            Stage::Dormant if place().is_some_and(|place| place.withdraw()) => {
                let freeing = self.plan_free(block);
                self.ledger.apply(class, &freeing.change);
                self.free(&freeing);
            }
            Stage::Dormant => {}
            Stage::Out if marked => place().into_iter().for_each(|place| place.unmark()),
            Stage::Out => {}
            Stage::Used(used) => self.add_use(block, used),
            Stage::Waiting => {
                place().into_iter().for_each(|place| place.withdraw_used());
                self.begin_pending(block);
            }
        }
    }

    /// An allocated block awaits other streams from now on.
    pub(crate) fn begin_pending(&mut self, index: Index) {
        let block = self.blocks.get_mut(index);
        block.state = State::Pending;
        self.ledger.begin_pending(block.class, signed(block.size));
    }
}
