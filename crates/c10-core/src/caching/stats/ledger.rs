//! The figures of a shard, and how far they may rise before the device's peaks have to be looked at.
//!
//! A peak is the highest value of a sum over shards, so it depends on all of them; yet a shard can nearly always tell by
//! itself that no peak is touched. Of the distance between a peak and the present sum each shard holds a part on lease:
//! its `cap` is its present value and its lease. As long as no shard rises above its cap, the sum cannot rise above the
//! peak. A shard that has to takes all shards' locks ([`crate::caching::device::exclusive`]), where the exact sum is known, the peak is
//! raised if it must be, and what is left is leased out again.
//!
//! **Invariants:** no lease is negative except under all locks; for each figure the caps of all shards add up to no more
//! than its peak: for both pools together, for the small ones and for the large ones. Pending memory is
//! counted apart: `allocation` plus it is `active`, which therefore has no lane of its own.

use std::array;

use crate::caching::block::SizeClass;

/// One value for each lane.
pub(crate) type Change = [i64; LANES];

/// Figures that a shard keeps.
pub(crate) const LANES: usize = 5;
/// Blocks handed out.
pub(crate) const COUNT: usize = 0;
/// Their bytes.
pub(crate) const BYTES: usize = 1;
/// Bytes asked for, of blocks handed out and of pending ones.
pub(crate) const REQUESTED: usize = 2;
/// Free parts of segments.
pub(crate) const SPLIT: usize = 3;
/// Their bytes.
pub(crate) const SPLIT_BYTES: usize = 4;

/// Which blocks are counted: all of them, those of the small pools, those of the large ones.
pub(crate) const SCOPES: usize = 3;
pub(crate) const ALL: usize = 0;

/// The place of a pool's figures.
#[inline]
pub(crate) fn scope(class: SizeClass) -> usize {
    match class {
        SizeClass::Small => 1,
        SizeClass::Large => 2,
    }
}

/// The figures of a shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// How far each figure may rise.
    lease: [Change; SCOPES],
    cap: [Change; SCOPES],
    /// Sums of increases since they were last reset; none for all, which are the sums of the others.
    increased: [Change; SCOPES],
    /// Pending blocks, and their bytes.
    pending: [[i64; 2]; SCOPES],
    /// What the caps were lowered by for pending blocks, and are raised by again when those are free,
    /// unless that room was leased out meanwhile.
    parked: [[i64; 2]; SCOPES],
}

impl Ledger {
    /// Makes a change to a pool's blocks if it is within the leases; whether it was.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a part of the hot paths")]
    pub(crate) fn try_apply(&mut self, class: SizeClass, change: &Change) -> bool {
        let scope = scope(class);
        let (mut all, mut own, mut signs) = ([0; LANES], [0; LANES], 0);
        // Without branches, so that several lanes go at once.
        for lane in 0..LANES {
            all[lane] = self.lease[ALL][lane] - change[lane];
            own[lane] = self.lease[scope][lane] - change[lane];
            signs |= all[lane] | own[lane];
        }
        if signs < 0 {
            return false;
        }
        (self.lease[ALL], self.lease[scope]) = (all, own);
        self.count_increases(scope, change);
        true
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a part of the hot paths")]
    fn count_increases(&mut self, scope: usize, change: &Change) {
        let increased = &mut self.increased[scope];
        // What is allocated rises or falls as one.
        if change[COUNT] > 0 {
            for lane in [COUNT, BYTES, REQUESTED] {
                increased[lane] += change[lane];
            }
        }
        increased[SPLIT] += change[SPLIT].max(0);
        increased[SPLIT_BYTES] += change[SPLIT_BYTES].max(0);
    }

    /// Counts a block that is handed out and leaves the free parts as they are, if that is within the leases; whether it was.
    #[inline]
    pub(crate) fn try_add_block(&mut self, class: SizeClass, bytes: i64, requested: i64) -> bool {
        let scope = scope(class);
        let (all, own) = (self.lease[ALL], self.lease[scope]);
        let rest = [all[COUNT] - 1, all[BYTES] - bytes, all[REQUESTED] - requested];
        let rest_own = [own[COUNT] - 1, own[BYTES] - bytes, own[REQUESTED] - requested];
        if rest.iter().chain(&rest_own).fold(0, |signs, rest| signs | rest) < 0 {
            return false;
        }
        for lane in [COUNT, BYTES, REQUESTED] {
            (self.lease[ALL][lane], self.lease[scope][lane]) = (rest[lane], rest_own[lane]);
        }
        let increased = &mut self.increased[scope];
        increased[COUNT] += 1;
        increased[BYTES] += bytes;
        increased[REQUESTED] += requested;
        true
    }

    /// The same for a block that is given back, which no lease forbids.
    #[inline]
    pub(crate) fn remove_block(&mut self, class: SizeClass, bytes: i64, requested: i64) {
        for scope in [ALL, scope(class)] {
            let lease = &mut self.lease[scope];
            lease[COUNT] += 1;
            lease[BYTES] += bytes;
            lease[REQUESTED] += requested;
        }
    }

    /// Whether no lease is overdrawn.
    pub(crate) fn is_covered(&self) -> bool {
        self.lease.iter().flatten().all(|lease| *lease >= 0)
    }

    /// Makes a change, whatever the leases are.
    #[inline]
    pub(crate) fn apply(&mut self, class: SizeClass, change: &Change) {
        let scope = scope(class);
        for (lane, change) in change.iter().enumerate() {
            self.lease[ALL][lane] -= change;
            self.lease[scope][lane] -= change;
        }
        self.count_increases(scope, change);
    }

    /// Counts changes that were made and undone, so many times.
    pub(crate) fn repeat(&mut self, class: SizeClass, change: &Change, times: i64) {
        for (increased, change) in self.increased[scope(class)].iter_mut().zip(change) {
            *increased += (*change).max(0) * times;
        }
    }

    /// Present value of a figure.
    pub(crate) fn current(&self, scope: usize, lane: usize) -> i64 {
        self.cap[scope][lane] - self.lease[scope][lane]
    }

    /// How far a figure may rise.
    pub(crate) fn lease(&self, scope: usize, lane: usize) -> i64 {
        self.lease[scope][lane]
    }

    /// Room that was parked is leased out to the shard that needs it.
    pub(crate) fn forget_parked(&mut self) {
        self.parked = Default::default();
    }

    /// The value that a figure may rise to.
    pub(crate) fn cap(&self, scope: usize, lane: usize) -> i64 {
        self.cap[scope][lane]
    }

    /// Changes how far a figure may rise.
    pub(crate) fn set_lease(&mut self, scope: usize, lane: usize, lease: i64) {
        self.cap[scope][lane] += lease - self.lease[scope][lane];
        self.lease[scope][lane] = lease;
    }

    /// What the leases lack for a change of a pool's blocks: of both pools together, and of that pool.
    pub(crate) fn shortage(&self, class: SizeClass, change: &Change) -> [Change; 2] {
        [ALL, scope(class)].map(|scope| array::from_fn(|lane| (change[lane] - self.lease[scope][lane]).max(0)))
    }

    /// Hands that much of the leases over to another shard; false if there is less.
    pub(crate) fn pass(&mut self, to: &mut Self, class: SizeClass, need: &[Change; 2]) -> bool {
        let scopes = [ALL, scope(class)];
        let lanes = || {
            scopes.into_iter().zip(need).flat_map(|(scope, need)| (0..LANES).map(move |lane| (scope, lane, need[lane])))
        };
        if lanes().any(|(scope, lane, need)| need > 0 && self.lease(scope, lane) < need) {
            return false;
        }
        for (scope, lane, need) in lanes().filter(|(.., need)| *need > 0) {
            self.set_lease(scope, lane, self.lease(scope, lane) - need);
            to.set_lease(scope, lane, to.lease(scope, lane) + need);
        }
        true
    }

    /// Sum of a figure's increases.
    pub(crate) fn increased(&self, scope: usize, lane: usize) -> i64 {
        match scope {
            ALL => self.increased.iter().map(|of_scope| of_scope[lane]).sum(),
            scope => self.increased[scope][lane],
        }
    }

    /// Sets the sums of increases to 0.
    pub(crate) fn reset_increased(&mut self) {
        self.increased = Default::default();
    }

    /// Pending blocks, or their bytes.
    pub(crate) fn pending(&self, scope: usize, lane: usize) -> i64 {
        self.pending[scope][lane]
    }

    /// An allocated block is pending from now on. What `active` may rise to does not change by that.
    pub(crate) fn begin_pending(&mut self, class: SizeClass, bytes: i64) {
        for scope in [ALL, scope(class)] {
            for (lane, amount) in [(COUNT, 1), (BYTES, bytes)] {
                self.cap[scope][lane] -= amount;
                self.parked[scope][lane] += amount;
                self.pending[scope][lane] += amount;
            }
        }
    }

    /// A block is no longer pending.
    pub(crate) fn end_pending(&mut self, class: SizeClass, bytes: i64) {
        for scope in [ALL, scope(class)] {
            for (lane, amount) in [(COUNT, 1), (BYTES, bytes)] {
                let back = amount.min(self.parked[scope][lane]);
                self.parked[scope][lane] -= back;
                self.cap[scope][lane] += back;
                self.lease[scope][lane] += back;
                self.pending[scope][lane] -= amount;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: SizeClass = SizeClass::Small;

    fn leased(all: Change, small: Change) -> Ledger {
        let mut ledger = Ledger::default();
        for lane in 0..LANES {
            ledger.set_lease(ALL, lane, all[lane]);
            ledger.set_lease(scope(SMALL), lane, small[lane]);
        }
        ledger
    }

    #[test]
    fn a_change_beyond_any_lease_is_refused() {
        let change = [1, 512, 500, 1, 512];
        let mut ledger = leased([2, 1024, 1000, 1, 512], [1, 4096, 4096, 9, 4096]);
        assert!(!ledger.try_apply(SizeClass::Large, &change) && ledger.try_apply(SMALL, &change));
        assert_eq!((ledger.current(ALL, BYTES), ledger.lease(ALL, BYTES), ledger.cap(ALL, BYTES)), (512, 512, 1024));
        assert!(!ledger.try_apply(SMALL, &[1, 0, 0, 0, 0]), "of the pool");
        assert!(!ledger.try_apply(SMALL, &[0, 0, 0, 1, 0]), "of all");
        ledger.apply(SMALL, &[-1, -512, -500, -1, -512]);
        assert_eq!((ledger.increased(ALL, SPLIT), ledger.increased(ALL, BYTES)), (1, 512));
        for lane in 0..LANES {
            let mut one = [0; LANES];
            one[lane] = ledger.lease(ALL, lane).min(ledger.lease(scope(SMALL), lane)) + 1;
            assert!(!ledger.try_apply(SMALL, &one));
            one[lane] -= 1;
            assert!(ledger.try_apply(SMALL, &one));
        }
    }

    #[test]
    fn a_lease_passes_whole_or_not_at_all() {
        let change = [1, 512, 500, 0, -512];
        let mut needy = leased([0, 100, 500, 0, 0], [0, 512, 500, 0, 0]);
        let need = needy.shortage(SMALL, &change);
        assert_eq!(need, [[1, 412, 0, 0, 0], [1, 0, 0, 0, 0]]);
        let mut poor = leased([1, 411, 9, 9, 9], [1, 9, 9, 9, 9]);
        let before = format!("{needy:?} {poor:?}");
        assert!(!poor.pass(&mut needy, SMALL, &need));
        assert_eq!(format!("{needy:?} {poor:?}"), before);
        let mut rich = leased([1, 500, 9, 9, 9], [1, 9, 9, 9, 9]);
        let caps = |ledgers: [&Ledger; 2], lane| ledgers.map(|ledger| ledger.cap(ALL, lane)).iter().sum::<i64>();
        let sums = [COUNT, BYTES].map(|lane| caps([&needy, &rich], lane));
        assert!(rich.pass(&mut needy, SMALL, &need) && needy.try_apply(SMALL, &change));
        assert_eq!([COUNT, BYTES].map(|lane| caps([&needy, &rich], lane)), sums);
        assert_eq!((rich.lease(ALL, COUNT), rich.lease(ALL, BYTES), needy.lease(ALL, BYTES)), (0, 88, 0));
    }

    #[test]
    fn awaiting_other_streams_leaves_what_is_active() {
        let mut ledger = leased([1, 512, 512, 0, 0], [1, 512, 512, 0, 0]);
        ledger.apply(SMALL, &[1, 512, 512, 0, 0]);
        ledger.begin_pending(SMALL, 512);
        assert_eq!((ledger.current(ALL, COUNT), ledger.pending(ALL, COUNT), ledger.lease(ALL, COUNT)), (0, 1, 0));
        ledger.end_pending(SMALL, 512);
        assert_eq!((ledger.pending(ALL, BYTES), ledger.cap(ALL, BYTES), ledger.lease(ALL, BYTES)), (0, 512, 512));
        assert_eq!(ledger.current(ALL, BYTES), 0);
    }
}
