//! Statistics: torch's counters, moved by the same events by the same amounts.
//!
//! **Invariants:** for each figure `peak >= current >= 0`, and `all` is the sum of both pools' current values; until
//! the sums are reset `current == allocated - freed`. A change made of several steps is counted once, as its net
//! amount.

use std::sync::OnceLock;

use crate::base::stat::Stat;
use crate::caching::block::SizeClass;

/// One figure for both pools and for their sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StatByPool {
    /// Both pools.
    pub all: Stat,
    /// Blocks up to 1 MiB.
    pub small_pool: Stat,
    /// Larger blocks.
    pub large_pool: Stat,
}

impl StatByPool {
    pub(crate) fn change(&mut self, class: SizeClass, by: i64) {
        self.all.change(by);
        match class {
            SizeClass::Small => self.small_pool.change(by),
            SizeClass::Large => self.large_pool.change(by),
        }
    }

    /// Changes the figure by what is no block of a pool.
    pub(crate) fn count(&mut self, is_small: bool, by: i64) {
        self.change(if is_small { SizeClass::Small } else { SizeClass::Large }, by);
    }

    pub(crate) fn of(&self, class: SizeClass) -> &Stat {
        match class {
            SizeClass::Small => &self.small_pool,
            SizeClass::Large => &self.large_pool,
        }
    }

    /// The figure of all blocks (0), of the small pools (1) or of the large ones.
    pub(crate) fn scope(&mut self, scope: usize) -> &mut Stat {
        match scope {
            0 => &mut self.all,
            1 => &mut self.small_pool,
            _ => &mut self.large_pool,
        }
    }

    fn each(&mut self) -> [&mut Stat; 3] {
        [&mut self.all, &mut self.small_pool, &mut self.large_pool]
    }

    fn is_valid(&self) -> bool {
        let Self { all, small_pool, large_pool } = self;
        all.is_valid()
            && small_pool.is_valid()
            && large_pool.is_valid()
            && all.current == small_pool.current + large_pool.current
    }
}

/// What one device's allocator has done; the figures of torch's `memory_stats`.
///
/// Sizes are bytes. Private pools count like the default ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceStats {
    /// Blocks handed out.
    pub allocation: StatByPool,
    /// Segments held from the driver.
    pub segment: StatByPool,
    /// Blocks handed out, or given back and still used by another stream.
    pub active: StatByPool,
    /// Free blocks that are parts of a segment, which therefore cannot be given back to the driver.
    pub inactive_split: StatByPool,
    /// Bytes of the blocks handed out.
    pub allocated_bytes: StatByPool,
    /// Bytes held from the driver.
    pub reserved_bytes: StatByPool,
    /// Bytes of the active blocks.
    pub active_bytes: StatByPool,
    /// Bytes of the free parts.
    pub inactive_split_bytes: StatByPool,
    /// Bytes asked for, before rounding, of the active blocks.
    pub requested_bytes: StatByPool,
    /// Blocks handed out of at least `max_split_size` bytes.
    pub oversize_allocations: Stat,
    /// Segments held of at least `max_split_size` bytes.
    pub oversize_segments: Stat,
    /// Times the driver was asked again after the cache had been given back.
    pub num_alloc_retries: u64,
    /// Requests that failed for want of memory.
    pub num_ooms: u64,
    /// Times all outstanding events were waited for.
    pub num_sync_all_streams: u64,
    /// Segments taken from the driver, and times an expandable one grew.
    pub num_device_alloc: u64,
    /// Segments given back to the driver, and ranges of expandable ones.
    pub num_device_free: u64,
    /// Whether memory was held in pages that move: under the backend `elastic`, or for a memory pool that asked for it.
    /// Only then the figures of the pages, which torch does not have, are in [`Self::flatten`].
    pub has_pages: bool,
    /// Pages taken from the driver; `num_pages_made` in [`Self::flatten`].
    pub pages_made: u64,
    /// How often such a page moved to where it was needed; `num_pages_moved`.
    pub pages_moved: u64,
    /// Bytes of the pages taken from the driver; `num_page_bytes_made`.
    pub page_bytes_made: u64,
    /// Bytes of the pages that moved, each time; `num_page_bytes_moved`.
    pub page_bytes_moved: u64,
    /// Driver calls that made, mapped, unmapped or released pages, or granted access to them, whether they failed or not;
    /// `num_page_calls`.
    pub page_calls: u64,
    /// The option `max_split_size_mb` in bytes, as it was when the runtime started; -1 for no limit.
    pub max_split_size: i64,
}

/// Names of the figures in the order of [`DeviceStats::families_mut`].
pub(crate) const FAMILIES: [&str; 9] = [
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
];

/// Names of the figures of pages, sorted. Torch has nothing that begins as they do.
const PAGES: [&str; 5] =
    ["num_page_bytes_made", "num_page_bytes_moved", "num_page_calls", "num_pages_made", "num_pages_moved"];

/// Number of figures that torch has.
const FIGURES: usize = (FAMILIES.len() * POOLS.len() + 2) * LEAVES.len() + 6;
const POOLS: [&str; 3] = ["all", "small_pool", "large_pool"];
const LEAVES: [&str; 4] = ["current", "peak", "allocated", "freed"];

/// The names in their own order, each with its place in [`DeviceStats::values`].
static NAMES: OnceLock<Vec<(String, usize)>> = OnceLock::new();

fn sorted_names() -> Vec<(String, usize)> {
    let families = FAMILIES.iter().flat_map(|family| POOLS.iter().map(move |pool| format!("{family}.{pool}")));
    let stats = families.chain(["oversize_allocations", "oversize_segments"].map(str::to_owned));
    let leaves = stats.flat_map(|stat| LEAVES.map(|leaf| format!("{stat}.{leaf}")));
    let counts = [
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "max_split_size",
    ];
    let mut names: Vec<(String, usize)> = leaves.chain(counts.map(str::to_owned)).zip(0..).collect();
    names.sort();
    names
}

impl DeviceStats {
    /// Every figure under the name that torch's `memory_stats` gives it, for example `allocated_bytes.all.current`,
    /// in torch's order, which is that of the names. Those of pages are among them where there are pages
    /// ([`Self::has_pages`]): `num_pages_made`, `num_pages_moved`, `num_page_bytes_made`, `num_page_bytes_moved` and
    /// `num_page_calls`.
    #[must_use]
    pub fn flatten(&self) -> Vec<(&'static str, i64)> {
        let values = self.values();
        let torchs = NAMES.get_or_init(sorted_names).iter().map(|(name, at)| (name.as_str(), values[*at]));
        let mut figures: Vec<(&'static str, i64)> = torchs.collect();
        if self.has_pages {
            let [bytes_made, bytes_moved, calls] = [self.page_bytes_made, self.page_bytes_moved, self.page_calls];
            let pages = [bytes_made, bytes_moved, calls, self.pages_made, self.pages_moved];
            figures.extend(PAGES.into_iter().zip(pages.map(|count| i64::try_from(count).unwrap_or(i64::MAX))));
            figures.sort_unstable();
        }
        figures
    }

    /// Every figure, in the order in which [`sorted_names`] makes the names.
    fn values(&self) -> [i64; FIGURES] {
        let mut copy = *self;
        let [oversize, segments] = [self.oversize_allocations, self.oversize_segments];
        let families = copy.families_mut().map(|family| family.each().map(|stat| *stat));
        let stats = families.into_iter().flatten().chain([oversize, segments]).flat_map(Stat::leaves);
        let counts = [
            self.num_alloc_retries,
            self.num_ooms,
            self.num_sync_all_streams,
            self.num_device_alloc,
            self.num_device_free,
        ];
        let counts = counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        let mut values = [0; FIGURES];
        for (place, value) in values.iter_mut().zip(stats.chain(counts).chain([self.max_split_size])) {
            *place = value;
        }
        values
    }

    /// Sets every sum of increases and of decreases, and every count, to 0.
    pub(crate) fn reset_accumulated(&mut self) {
        self.each_stat(|stat| (stat.allocated, stat.freed) = (0, 0));
        let counts = [
            &mut self.num_alloc_retries,
            &mut self.num_ooms,
            &mut self.num_sync_all_streams,
            &mut self.num_device_alloc,
            &mut self.num_device_free,
            &mut self.pages_made,
            &mut self.pages_moved,
            &mut self.page_bytes_made,
            &mut self.page_bytes_moved,
            &mut self.page_calls,
        ];
        counts.into_iter().for_each(|count| *count = 0);
    }

    /// Sets every peak to the present value.
    pub(crate) fn reset_peak(&mut self) {
        self.each_stat(|stat| stat.peak = stat.current);
    }

    /// Takes over the peaks of other figures.
    pub(crate) fn copy_peaks(&mut self, other: &Self) {
        let mut other = *other;
        for (family, from) in self.families_mut().into_iter().zip(other.families_mut()) {
            for (stat, from) in family.each().into_iter().zip(from.each()) {
                stat.peak = from.peak;
            }
        }
        self.oversize_allocations.peak = other.oversize_allocations.peak;
        self.oversize_segments.peak = other.oversize_segments.peak;
    }

    fn each_stat(&mut self, action: impl Fn(&mut Stat)) {
        self.families_mut().into_iter().flat_map(StatByPool::each).for_each(&action);
        action(&mut self.oversize_allocations);
        action(&mut self.oversize_segments);
    }

    /// Whether the figures agree with each other.
    pub(crate) fn is_valid(&self) -> bool {
        let mut copy = *self;
        copy.families_mut().iter().all(|family| family.is_valid())
    }

    fn families_mut(&mut self) -> [&mut StatByPool; 9] {
        [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_and_sums_follow_changes() {
        let mut stat = StatByPool::default();
        stat.change(SizeClass::Small, 10);
        stat.change(SizeClass::Large, 5);
        stat.change(SizeClass::Small, -4);
        assert_eq!(stat.all, Stat { current: 11, peak: 15, allocated: 15, freed: 4 });
        assert_eq!(stat.small_pool, Stat { current: 6, peak: 10, allocated: 10, freed: 4 });
        assert!(stat.is_valid());
    }

    #[test]
    fn a_reset_peak_is_the_present_value() {
        let mut stats = DeviceStats::default();
        stats.allocation.change(SizeClass::Large, 3);
        stats.allocation.change(SizeClass::Large, -2);
        stats.reset_peak();
        assert_eq!(stats.allocation.all, Stat { current: 1, peak: 1, allocated: 3, freed: 2 });
        assert_eq!(stats.allocation.large_pool.peak, 1);
        assert!(stats.is_valid());
    }
}
