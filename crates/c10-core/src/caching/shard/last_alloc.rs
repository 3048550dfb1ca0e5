//! The note about the last allocation of a shard.
//!
//! Programs often give back what they have just asked for, and then ask for the same again. Giving back the last
//! allocation undoes it exactly, and asking again for as much repeats it: the same block, the same figures, no new peak.
//! So only a note is changed then: the block is left as it is, *dormant*, and the note counts how often that happened. If
//! the block was used on one other stream, it *waits* for that stream first, which is a part of the note too: it keeps
//! what it took of the leases until it is free.
//!
//! **Invariants:** before anything else is done with the shard the note is *flushed* into the books: the count is entered
//! into the figures, a dormant block is freed, a waiting one becomes pending. Until then the block and its figures are as
//! they were when it was handed out. Once the block was used on another stream its slot says so until the flush, even if
//! the block was given back and handed out again since; a thread that finds it so takes the shard's lock.

use crate::caching::block::{Asked, Claim, Index, NONE, SizeClass, StreamUse};
use crate::caching::remote::Pages;
use crate::caching::shard::books::{Books, Taking};
use crate::caching::stats::{Change, LANES};

/// The note.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastAlloc {
    /// The block; [`NONE`] before the first.
    pub(crate) block: Index,
    /// What was left of the block it was cut from, or [`NONE`].
    pub(crate) rest: Index,
    /// Where it begins and who owns it; [`Claim::NONE`] if the last change of the shard was another one.
    pub(crate) claim: Claim,
    /// What was asked for.
    pub(crate) asked: Asked,
    pub(crate) class: SizeClass,
    pub(crate) change: Change,
    pub(crate) stage: Stage,
    /// Its slot says that it was used on other streams.
    pub(crate) marked: bool,
    /// Changes of the shard's figures so far, as far as this note knows; never set back.
    changes: u64,
    /// What `changes` was when the block was handed out: each change since is one time that it was given back and was
    /// free again, which the figures do not show yet.
    base: u64,
}

/// What has become of the block since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It is handed out.
    Allocated,
    /// It is handed out and used on another stream.
    Used(StreamUse),
    /// It was given back and waits for that stream.
    Waiting,
    /// It was given back and is free.
    Dormant,
}

impl LastAlloc {
    pub(crate) const NONE: Self = Self {
        block: NONE,
        rest: NONE,
        claim: Claim::NONE,
        asked: Asked::NONE,
        class: SizeClass::Small,
        change: [0; LANES],
        stage: Stage::Allocated,
        marked: false,
        changes: 0,
        base: 0,
    };

    /// Notes a block that was just handed out, after a flush.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "made in its place, not copied there")]
    pub(super) fn set(&mut self, block: Index, rest: Index, address: u64, taking: &Taking) {
        let Taking { class, change, asked, .. } = *taking;
        let claim = Claim::new(address, asked.owner());
        let (stage, marked, changes) = (Stage::Allocated, false, self.changes);
        *self = Self { block, rest, claim, asked, class, change, stage, marked, changes, base: changes };
    }

    #[inline]
    fn is_at(&self, address: u64) -> bool {
        self.claim.address() == address
    }

    /// The last change of the shard is another one.
    #[inline]
    fn forget(&mut self) {
        self.claim = Claim::NONE;
        self.changes += 1;
        self.base = self.changes;
    }

    /// What other threads see of the count of changes.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is compared only, and 2^32 changes would have to be missed"
    )]
    pub(super) fn shown_changes(&self) -> u32 {
        self.changes as u32
    }

    /// The block, if the note is about one.
    pub(crate) fn block_if_noted(&self) -> Option<Index> {
        (self.claim != Claim::NONE).then_some(self.block)
    }

    /// Times the block was given back and was free again.
    #[inline]
    pub(crate) fn undone_count(&self) -> u64 {
        self.changes - self.base
    }

    /// Hands the dormant block out again, if it is what such a request got.
    #[inline]
    pub(super) fn repeat(&mut self, asked: Asked) -> Option<Claim> {
        if !matches!(self.stage, Stage::Dormant) || self.asked != asked {
            return None;
        }
        self.stage = Stage::Allocated;
        Some(self.claim)
    }

    /// Takes the block back, if it is the claimed one; its position.
    #[inline]
    pub(super) fn undo(&mut self, claim: Claim) -> Option<Index> {
        if self.claim != claim || !matches!(self.stage, Stage::Allocated) {
            return None;
        }
        self.stage = Stage::Dormant;
        self.changes += 1;
        Some(self.block)
    }

    /// Notes another stream that the block is used on, if it is the one at that address and was used on no further
    /// stream; whether it was noted.
    #[inline]
    pub(super) fn use_on(&mut self, pages: &Pages, address: u64, new: StreamUse) -> bool {
        if !self.is_at(address) {
            return false;
        }
        match &mut self.stage {
            Stage::Allocated => {}
            Stage::Used(known) if known.stream == new.stream => {
                known.in_scope |= new.in_scope;
                return true;
            }
            Stage::Used(_) | Stage::Waiting | Stage::Dormant => return false,
        }
        if !self.marked {
            self.marked = pages.find(address).is_some_and(|place| place.mark_used());
        }
        if self.marked {
            self.stage = Stage::Used(new);
        }
        self.marked
    }

    /// Takes the block back, if it is the claimed one and was used on one other stream: it waits for that stream.
    #[inline]
    pub(super) fn wait(&mut self, claim: Claim) -> Option<(Index, StreamUse)> {
        let Stage::Used(used) = self.stage else { return None };
        if self.claim != claim {
            return None;
        }
        self.stage = Stage::Waiting;
        // The figures change, though it is not free yet.
        (self.changes, self.base) = (self.changes + 1, self.base + 1);
        Some((self.block, used))
    }

    /// The block has waited for its stream, and is dormant from now on; whether it is this block.
    #[inline]
    pub(super) fn end_wait(&mut self, block: Index) -> bool {
        let waits = matches!(self.stage, Stage::Waiting) && self.block == block;
        if waits {
            self.stage = Stage::Dormant;
            self.changes += 1;
        }
        waits
    }

    /// Whether the books do not show yet what the note says.
    #[inline]
    pub(crate) fn has_effect(&self) -> bool {
        self.changes != self.base || self.marked
    }

    /// Times the allocation was undone and repeated again.
    pub(crate) fn repeated_count(&self) -> i64 {
        self.undone_count().cast_signed() - i64::from(matches!(self.stage, Stage::Dormant))
    }

    /// Enters what the note says into the books, and forgets it.
    #[inline]
    pub(super) fn flush_into(&mut self, books: &mut Books, pages: &Pages) {
        if self.has_effect() {
            self.enter_into(books, pages);
        }
        self.forget();
    }

    #[cold]
    fn enter_into(&mut self, books: &mut Books, pages: &Pages) {
        let repeated = self.repeated_count();
        let Self { block, rest, claim, asked, class, change, stage, marked, .. } = *self;
        (self.stage, self.marked) = (Stage::Allocated, false);
        if repeated > 0 {
            books.ledger.repeat(class, &change, repeated);
            books.ledger.repeat(class, &change.map(|amount| -amount), repeated);
            if rest != NONE {
                // As if the two had been joined and cut again.
                books.blocks.get_mut(rest).requested = asked.bytes();
            }
        }
        let place = || pages.find(claim.address());
        match stage {
            // If the slot is empty, another thread has given the block back too: its remote free is still to be drained.
            Stage::Dormant if place().is_some_and(|place| place.withdraw()) => {
                let freeing = books.plan_free(block);
                books.ledger.apply(class, &freeing.change);
                books.free(&freeing);
            }
            Stage::Dormant => {}
            Stage::Allocated if marked => place().into_iter().for_each(|place| place.unmark()),
            Stage::Allocated => {}
            Stage::Used(used) => books.add_use(block, used),
            Stage::Waiting => {
                place().into_iter().for_each(|place| place.withdraw_used());
                books.begin_pending(block);
            }
        }
    }
}
