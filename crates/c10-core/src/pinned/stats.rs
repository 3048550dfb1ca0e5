//! Statistics of pinned memory, under torch's names.
//!
//! **Invariants:** all figures are exact, the peaks those of all sizes together. `current == allocated - freed` until
//! the sums are reset.
//!
//! PyTorch 2.11 adds up the peaks of its size classes, which need not have come at the same time; it forgets to lower
//! `active_requests` and `active_bytes` when memory is given back that no stream has used, and raises `active_bytes`
//! once more when an event has passed. None of that is done here: a peak is the most there was at a time, and memory is
//! active from the request until it can serve again.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::base::size::Size;
use crate::base::stat::Stat;
use crate::base::stat::{NestedStat, tree};

/// How long driver calls of one kind took, in microseconds.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{PinnedBuffer, Runtime};
///
/// let buffer = PinnedBuffer::new(1000)?;
/// let times = Runtime::current().pinned().stats().host_alloc_time;
/// assert_eq!((times.count, times.max), (1, times.total));
/// println!("{times}"); // such as "1 calls in 12 us (12 to 12 us, 12 us on average)"
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DurationStat {
    /// All of them together.
    pub total: i64,
    /// The longest.
    pub max: i64,
    /// The shortest; 0 also where none was measured.
    pub min: i64,
    /// How many there were.
    pub count: i64,
    /// `total / count`, rounded down; 0 where none was measured.
    pub avg: i64,
}

impl DurationStat {
    pub(crate) fn add(&mut self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        self.total = self.total.saturating_add(micros);
        self.count += 1;
        self.avg = self.total / self.count;
        self.max = self.max.max(micros);
        self.min = if self.min == 0 { micros } else { self.min.min(micros) };
    }

    pub(crate) fn reset_accumulated(&mut self) {
        (self.total, self.count, self.avg) = (0, 0, 0);
    }

    pub(crate) fn reset_peak(&mut self) {
        (self.max, self.min) = (0, 0);
    }
}

impl fmt::Display for DurationStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, max, min, count, avg } = self;
        write!(f, "{count} calls in {total} us ({min} to {max} us, {avg} us on average)")
    }
}

/// What the allocator of pinned host memory has done; the figures of torch's `host_memory_stats`.
///
/// Sizes are bytes, after rounding up to powers of two.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{PinnedBuffer, Runtime};
///
/// let buffer = PinnedBuffer::new(1000)?;
/// let stats = Runtime::current().pinned().stats();
/// assert_eq!(stats.active_bytes.current, 1024);
/// assert!(stats.to_string().starts_with("1024 bytes in 1 blocks in use, 1024 bytes in 1 blocks held"));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HostStats {
    /// Times pinned memory was taken from the driver, by allocation or by registration.
    pub num_host_alloc: u64,
    /// Times it was given back.
    pub num_host_free: u64,
    /// Blocks held, in use or cached. Blocks cut from the reserved segment count, the segment does not.
    pub allocations: Stat,
    /// Bytes of the blocks held.
    pub allocated_bytes: Stat,
    /// Blocks handed out, or given back and still used by a stream.
    pub active_requests: Stat,
    /// Bytes of those.
    pub active_bytes: Stat,
    /// How long taking memory from the driver took.
    pub host_alloc_time: DurationStat,
    /// How long giving it back took.
    pub host_free_time: DurationStat,
}

impl fmt::Display for HostStats {
    /// One line: what is held and in use, and how often the driver was asked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, active) = (Size::of(self.allocated_bytes.current), Size::of(self.active_bytes.current));
        let (blocks, used) = (self.allocations.current, self.active_requests.current);
        write!(f, "{active} in {used} blocks in use, {held} in {blocks} blocks held, ")?;
        write!(f, "{} driver allocations, {} driver frees", self.num_host_alloc, self.num_host_free)
    }
}

impl HostStats {
    /// Every figure under the name that torch's `host_memory_stats` gives it, for example `allocated_bytes.current`, in
    /// torch's order, which is that of the names.
    #[must_use]
    pub fn flatten(&self) -> Vec<(String, i64)> {
        let families = [
            ("allocations", self.allocations),
            ("allocated_bytes", self.allocated_bytes),
            ("active_requests", self.active_requests),
            ("active_bytes", self.active_bytes),
        ];
        let times = [("host_alloc_time", self.host_alloc_time), ("host_free_time", self.host_free_time)];
        let counts = [("num_host_alloc", self.num_host_alloc), ("num_host_free", self.num_host_free)];
        let counts = counts.map(|(name, count)| (name.to_owned(), i64::try_from(count).unwrap_or(i64::MAX)));
        let mut flat: Vec<(String, i64)> = families
            .into_iter()
            .flat_map(|(name, stat)| leaves(name, stat))
            .chain(times.into_iter().flat_map(|(name, time)| time.leaves(name)))
            .chain(counts)
            .collect();
        flat.sort();
        flat
    }

    /// Every figure in torch's structure: `["allocated_bytes"]["current"]`, `["num_host_alloc"]`.
    #[must_use]
    pub fn as_nested_dict(&self) -> BTreeMap<String, NestedStat> {
        tree(self.flatten())
    }
}

fn leaves(name: &str, stat: Stat) -> [(String, i64); 4] {
    let leaf = |leaf: &str, value| (format!("{name}.{leaf}"), value);
    [
        leaf("current", stat.current),
        leaf("peak", stat.peak),
        leaf("allocated", stat.allocated),
        leaf("freed", stat.freed),
    ]
}

impl DurationStat {
    fn leaves(self, name: &str) -> [(String, i64); 5] {
        let leaf = |leaf: &str, value| (format!("{name}.{leaf}"), value);
        [
            leaf("total", self.total),
            leaf("max", self.max),
            leaf("min", self.min),
            leaf("count", self.count),
            leaf("avg", self.avg),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_torchs() {
        let names: Vec<String> = HostStats::default().flatten().into_iter().map(|(name, _)| name).collect();
        let mut expected = vec!["num_host_alloc".to_owned(), "num_host_free".to_owned()];
        for family in ["active_bytes", "active_requests", "allocated_bytes", "allocations"] {
            expected.extend(["allocated", "current", "freed", "peak"].map(|leaf| format!("{family}.{leaf}")));
        }
        for family in ["host_alloc_time", "host_free_time"] {
            expected.extend(["avg", "count", "max", "min", "total"].map(|leaf| format!("{family}.{leaf}")));
        }
        expected.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn times_are_summed_up() {
        let mut time = DurationStat::default();
        [7, 3, 9].into_iter().for_each(|micros| time.add(Duration::from_nanos(micros * 1000 + 999)));
        assert_eq!(time, DurationStat { total: 19, max: 9, min: 3, count: 3, avg: 6 });
        time.reset_peak();
        assert_eq!(time, DurationStat { total: 19, max: 0, min: 0, count: 3, avg: 6 });
        time.reset_accumulated();
        time.add(Duration::from_micros(5));
        assert_eq!(time, DurationStat { total: 5, max: 5, min: 5, count: 1, avg: 5 });
    }
}
