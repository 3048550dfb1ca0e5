//! What is done under the locks of all shards of a device: figures are read, peaks are raised.
//!
//! All locks are taken when figures are read, when memory is taken from the driver or given back, and when a change of one
//! shard would lift a figure above that shard's cap: then the exact sum is known, the peak is raised if it must be, and
//! the room below it is leased out anew.
//!
//! **Invariants:** the figures' lock is taken before those of shards, and those in order. No driver call is made here.
//! Remote frees of all shards are drained first, so what was given back before counts as given back.

use std::sync::Arc;

use crate::caching::block::{Index, SizeClass};
use crate::caching::device::cache::DeviceCache;
use crate::caching::remote::Place;
use crate::caching::shard::{Clean, Locked, Shard, Taking, signed};
use crate::caching::stats::{BYTES, COUNT, LANES, Ledger, REQUESTED, SCOPES, SPLIT, SPLIT_BYTES};
use crate::caching::stats::{DeviceStats, StatByPool};
use crate::sync::lock;

/// What a device's shards have in common.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) shards: Vec<Arc<Shard>>,
    /// The figures that only change under this lock. Of those that shards keep: the peaks, and in `freed` what has to be
    /// added to the shards' increases less their current value.
    stats: DeviceStats,
    last_reading: Option<Reading>,
}

/// The figures at one moment.
#[derive(Debug)]
struct Reading {
    stats: DeviceStats,
    /// The versions of the shards at that moment.
    versions: Vec<(Index, u32)>,
}

impl Figures {
    pub(crate) fn new(stats: DeviceStats) -> Self {
        Self { shards: Vec::new(), stats, last_reading: None }
    }

    /// The figures that only change under this lock.
    pub(crate) fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    /// The same, to be changed.
    pub(crate) fn stats_mut(&mut self) -> &mut DeviceStats {
        self.last_reading = None;
        &mut self.stats
    }

    /// The figures of the last reading, if no shard has changed since.
    fn unchanged(&self) -> Option<&DeviceStats> {
        let Reading { stats, versions } = self.last_reading.as_ref()?;
        // Every shard is looked at, whatever the ones before said: the usual answer is that none has changed, and loads
        // that wait for no branch overlap.
        let changes = self.shards.iter().zip(versions).fold(0, |changes, (shard, then)| {
            let now = shard.version();
            changes | (now.0 ^ then.0) | (now.1 ^ then.1)
        });
        (versions.len() == self.shards.len() && changes == 0).then_some(stats)
    }
}

/// All shards of a device, locked.
pub(crate) struct AllShards<'a> {
    pub(crate) cache: &'a DeviceCache,
    pub(crate) stats: &'a mut DeviceStats,
    pub(crate) shards: &'a [Arc<Shard>],
    /// By position.
    pub(crate) states: Vec<Clean<'a>>,
}

/// A figure that shards keep: its place in the statistics, its lane, and whether what is pending counts too.
type Family = (fn(&mut DeviceStats) -> &mut StatByPool, usize, bool);

const FAMILIES: [Family; 7] = [
    (|stats| &mut stats.allocation, COUNT, false),
    (|stats| &mut stats.allocated_bytes, BYTES, false),
    (|stats| &mut stats.active, COUNT, true),
    (|stats| &mut stats.active_bytes, BYTES, true),
    (|stats| &mut stats.requested_bytes, REQUESTED, false),
    (|stats| &mut stats.inactive_split, SPLIT, false),
    (|stats| &mut stats.inactive_split_bytes, SPLIT_BYTES, false),
];

impl DeviceCache {
    /// Does something under the locks of all shards, whose remote frees are drained first.
    pub(crate) fn all_shards<R>(&self, action: impl FnOnce(&mut AllShards<'_>) -> R) -> R {
        self.all_shards_of(&mut lock(&self.figures), action)
    }

    fn all_shards_of<R>(&self, figures: &mut Figures, action: impl FnOnce(&mut AllShards<'_>) -> R) -> R {
        // What is done may change figures that no shard's version tells of.
        figures.last_reading = None;
        let Figures { shards, stats, .. } = figures;
        let mut locked: Vec<Locked<'_>> = shards.iter().map(|shard| shard.lock()).collect();
        if self.remote_frees.are_none() {
            locked.iter_mut().for_each(Locked::grant);
        }
        let states = locked.into_iter().map(|locked| locked.flush().under_all_locks()).collect();
        let mut all = AllShards { cache: self, stats, shards, states };
        all.drain();
        action(&mut all)
    }
}

impl DeviceCache {
    /// The figures. Where nothing changed since they were last read, no shard's lock is taken.
    pub(crate) fn stats(&self) -> DeviceStats {
        let mut figures = lock(&self.figures);
        // A remote free sets its flag before it returns, and changes no version.
        if self.remote_frees.are_none()
            && let Some(stats) = figures.unchanged()
        {
            return *stats;
        }
        let mut versions = figures.last_reading.take().map_or_else(Vec::new, |reading| reading.versions);
        versions.clear();
        let stats = self.all_shards_of(&mut figures, |all| {
            versions.extend(all.shards.iter().map(|shard| shard.version()));
            all.stats()
        });
        figures.last_reading = Some(Reading { stats, versions });
        stats
    }
}

impl AllShards<'_> {
    /// Frees what other threads gave back to any shard.
    pub(crate) fn drain(&mut self) {
        for position in 0..self.states.len() {
            while let Some(index) = self.states[position].next_remote_free() {
                if let Some(place) = self.states[position].remotely_freed(&self.cache.shared.pages, index) {
                    self.free(position, &place);
                }
            }
        }
        let pairs = self.shards.iter().zip(&self.states);
        self.cache.remote_frees.refresh(pairs.map(|(shard, state)| (shard.flag(), || state.has_remote_frees())));
    }

    /// Hands a planned block of a shard out; its address.
    pub(crate) fn take(&mut self, position: usize, taking: &Taking) -> u64 {
        let state = &mut self.states[position];
        if taking.size >= state.rules.max_split {
            self.stats.oversize_allocations.change(1);
        }
        state.ledger.apply(taking.class, &taking.change);
        // Without a note: the leases may change now, and what is oversized is counted here.
        let (index, address) = state.take(taking);
        self.cache.shared.pages.publish(address, self.shards[position].id, index, taking.owner());
        self.cover(position);
        address
    }

    /// Takes an allocated block back that no other stream uses; false if another thread has done so meanwhile.
    pub(crate) fn free(&mut self, position: usize, place: &Place<'_>) -> bool {
        if !place.withdraw() {
            return false;
        }
        let state = &mut self.states[position];
        let freeing = state.plan_free(place.block());
        if freeing.size >= state.rules.max_split {
            self.stats.oversize_allocations.change(-1);
        }
        state.ledger.apply(freeing.class, &freeing.change);
        state.free(&freeing);
        self.cover(position);
        true
    }

    /// Frees a block that has awaited other streams.
    pub(crate) fn free_pending(&mut self, position: usize, index: Index) {
        let state = &mut self.states[position];
        let freeing = state.plan_free(index);
        state.ledger.apply(freeing.class, &freeing.change);
        state.free_pending(&freeing);
        self.cover(position);
    }

    /// Raises the peaks if a shard rose above its cap.
    pub(crate) fn cover(&mut self, position: usize) {
        if !self.states[position].ledger.is_covered() {
            self.rebalance(position);
        }
    }

    /// The present sum of a lane.
    fn sum(&self, scope: usize, lane: usize, pending: bool) -> i64 {
        let more = |ledger: &Ledger| if pending { ledger.pending(scope, lane) } else { 0 };
        self.states.iter().map(|state| state.ledger.current(scope, lane) + more(&state.ledger)).sum()
    }

    /// Raises the peaks to the present values and leases the room below them: others keep what they have as far as it
    /// goes, and the shard that needed more gets half of what is left, or all of it if there is no other.
    fn rebalance(&mut self, needy: usize) {
        let mut rooms = [[i64::MAX; LANES]; SCOPES];
        for (figure, lane, pending) in FAMILIES {
            for (scope, rooms) in rooms.iter_mut().enumerate() {
                let sum = self.sum(scope, lane, pending);
                let stat = figure(self.stats).scope(scope);
                stat.peak = stat.peak.max(sum);
                rooms[lane] = rooms[lane].min(stat.peak - sum);
            }
        }
        self.states.iter_mut().for_each(|state| state.ledger.forget_parked());
        let count = self.states.len();
        for (scope, rooms) in rooms.iter_mut().enumerate() {
            for (lane, room) in rooms.iter_mut().enumerate() {
                for step in 1..count {
                    let ledger = &mut self.states[(needy + step) % count].ledger;
                    let lease = ledger.lease(scope, lane).min(*room).max(0);
                    ledger.set_lease(scope, lane, lease);
                    *room -= lease;
                }
                let lease = if count == 1 { *room } else { *room - *room / 2 };
                self.states[needy].ledger.set_lease(scope, lane, lease);
            }
        }
    }

    /// The figures as they are.
    pub(crate) fn stats(&mut self) -> DeviceStats {
        let mut stats = *self.stats;
        for (figure, lane, pending) in FAMILIES {
            for scope in 0..SCOPES {
                let current = self.sum(scope, lane, pending);
                let increased: i64 = self.states.iter().map(|state| state.ledger.increased(scope, lane)).sum();
                let stat = figure(&mut stats).scope(scope);
                stat.freed += increased - current;
                (stat.current, stat.allocated) = (current, increased);
            }
        }
        stats
    }

    /// Sets every peak to the present value.
    pub(crate) fn reset_peak(&mut self) {
        let mut now = self.stats();
        now.reset_peak();
        self.stats.copy_peaks(&now);
        for state in &mut self.states {
            state.ledger.forget_parked();
            for scope in 0..SCOPES {
                (0..LANES).for_each(|lane| state.ledger.set_lease(scope, lane, 0));
            }
        }
    }

    /// Sets every sum of increases and of decreases, and every count, to 0.
    pub(crate) fn reset_accumulated(&mut self) {
        self.stats.reset_accumulated();
        for state in &mut self.states {
            state.ledger.reset_increased();
        }
        for (figure, lane, pending) in FAMILIES {
            for scope in 0..SCOPES {
                figure(self.stats).scope(scope).freed = self.sum(scope, lane, pending);
            }
        }
    }

    /// The first figure of which more was leased than there is room below its peak, or a lease that is overdrawn.
    pub(crate) fn overdrawn(&self) -> Option<String> {
        let mut stats = *self.stats;
        let overdrawn = self.states.iter().find(|state| !state.ledger.is_covered());
        if let Some(state) = overdrawn {
            return Some(format!("a lease is overdrawn: {:?}", state.ledger));
        }
        for (figure, lane, pending) in FAMILIES {
            for scope in 0..SCOPES {
                let more = |ledger: &Ledger| if pending { ledger.pending(scope, lane) } else { 0 };
                let caps = self.states.iter().map(|state| state.ledger.cap(scope, lane) + more(&state.ledger));
                let (caps, peak) = (caps.sum::<i64>(), figure(&mut stats).scope(scope).peak);
                if caps > peak {
                    return Some(format!("leases reach {caps}, beyond the peak {peak} (lane {lane}, scope {scope})"));
                }
            }
        }
        None
    }
}

/// Counts segments taken (1) or given back (-1).
pub(crate) fn count_segment(stats: &mut DeviceStats, class: SizeClass, size: u64, by: i64, oversize: u64) {
    stats.segment.change(class, by);
    stats.reserved_bytes.change(class, by * signed(size));
    if size >= oversize {
        stats.oversize_segments.change(by);
    }
    match by {
        1 => stats.num_device_alloc += 1,
        _ => stats.num_device_free += 1,
    }
}
