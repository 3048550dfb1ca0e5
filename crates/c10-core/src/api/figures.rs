//! Figures by their names: `stats["allocated_bytes.all.current"]`, as torch's dictionaries have them.
//!
//! **Invariant:** the names are those of `flatten`, and the value is what `flatten` gives under the name.

use std::ops::Index;

use crate::base::stat::Stat;
use crate::caching::{DeviceStats, StatByPool};
use crate::pinned::{DurationStat, HostStats};

/// A count as the signed number that the flat figures have. A count never becomes so large that it reads as negative.
fn count(count: &u64) -> &i64 {
    bytemuck::cast_ref(count)
}

fn leaf<'a>(stat: &'a Stat, name: &str) -> Option<&'a i64> {
    Some(match name {
        "current" => &stat.current,
        "peak" => &stat.peak,
        "allocated" => &stat.allocated,
        "freed" => &stat.freed,
        _ => return None,
    })
}

fn of_pool<'a>(stat: &'a StatByPool, name: &str) -> Option<&'a i64> {
    let (pool, name) = name.split_once('.')?;
    let stat = match pool {
        "all" => &stat.all,
        "small_pool" => &stat.small_pool,
        "large_pool" => &stat.large_pool,
        _ => return None,
    };
    leaf(stat, name)
}

fn of_time<'a>(time: &'a DurationStat, name: &str) -> Option<&'a i64> {
    Some(match name {
        "total" => &time.total,
        "max" => &time.max,
        "min" => &time.min,
        "count" => &time.count,
        "avg" => &time.avg,
        _ => return None,
    })
}

impl DeviceStats {
    /// The figure that torch's `memory_stats` has under a name, for example `allocated_bytes.all.current`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<i64> {
        self.find(name).copied()
    }

    fn find(&self, name: &str) -> Option<&i64> {
        let (family, rest) = name.split_once('.').unwrap_or((name, ""));
        match family {
            "allocation" => of_pool(&self.allocation, rest),
            "segment" => of_pool(&self.segment, rest),
            "active" => of_pool(&self.active, rest),
            "inactive_split" => of_pool(&self.inactive_split, rest),
            "allocated_bytes" => of_pool(&self.allocated_bytes, rest),
            "reserved_bytes" => of_pool(&self.reserved_bytes, rest),
            "active_bytes" => of_pool(&self.active_bytes, rest),
            "inactive_split_bytes" => of_pool(&self.inactive_split_bytes, rest),
            "requested_bytes" => of_pool(&self.requested_bytes, rest),
            "oversize_allocations" => leaf(&self.oversize_allocations, rest),
            "oversize_segments" => leaf(&self.oversize_segments, rest),
            _ => self.find_count(name),
        }
    }

    fn find_count(&self, name: &str) -> Option<&i64> {
        Some(match name {
            "num_alloc_retries" => count(&self.num_alloc_retries),
            "num_ooms" => count(&self.num_ooms),
            "num_sync_all_streams" => count(&self.num_sync_all_streams),
            "num_device_alloc" => count(&self.num_device_alloc),
            "num_device_free" => count(&self.num_device_free),
            "max_split_size" => &self.max_split_size,
            _ if !self.has_pages => return None,
            "num_pages_made" => count(&self.pages_made),
            "num_pages_moved" => count(&self.pages_moved),
            "num_page_bytes_made" => count(&self.page_bytes_made),
            "num_page_bytes_moved" => count(&self.page_bytes_moved),
            "num_page_calls" => count(&self.page_calls),
            _ => return None,
        })
    }
}

impl HostStats {
    /// The figure that torch's `host_memory_stats` has under a name, for example `allocated_bytes.current`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<i64> {
        self.find(name).copied()
    }

    fn find(&self, name: &str) -> Option<&i64> {
        let (family, rest) = name.split_once('.').unwrap_or((name, ""));
        match (family, rest) {
            ("num_host_alloc", "") => Some(count(&self.num_host_alloc)),
            ("num_host_free", "") => Some(count(&self.num_host_free)),
            ("allocations", rest) => leaf(&self.allocations, rest),
            ("allocated_bytes", rest) => leaf(&self.allocated_bytes, rest),
            ("active_requests", rest) => leaf(&self.active_requests, rest),
            ("active_bytes", rest) => leaf(&self.active_bytes, rest),
            ("host_alloc_time", rest) => of_time(&self.host_alloc_time, rest),
            ("host_free_time", rest) => of_time(&self.host_free_time, rest),
            _ => None,
        }
    }
}

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, Runtime};
///
/// let buffer = DeviceBuffer::new(1000, None)?;
/// let stats = Runtime::current().memory().stats(0)?;
/// assert_eq!(stats["allocated_bytes.all.current"], 1024);
/// assert_eq!(stats["num_ooms"], 0);
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Panics
/// There is no figure of that name; [`DeviceStats::get`] answers `None` instead.
impl Index<&str> for DeviceStats {
    type Output = i64;

    #[track_caller]
    fn index(&self, name: &str) -> &i64 {
        self.find(name).unwrap_or_else(|| panic!("memory_stats has no figure {name:?}"))
    }
}

/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{PinnedBuffer, Runtime};
///
/// let buffer = PinnedBuffer::new(1000)?;
/// let stats = Runtime::current().pinned().stats();
/// assert_eq!((stats["allocated_bytes.current"], stats["num_host_alloc"]), (1024, 1));
/// # Ok::<(), c10_core::Error>(())
/// ```
///
/// # Panics
/// There is no figure of that name; [`HostStats::get`] answers `None` instead.
impl Index<&str> for HostStats {
    type Output = i64;

    #[track_caller]
    fn index(&self, name: &str) -> &i64 {
        self.find(name).unwrap_or_else(|| panic!("host_memory_stats has no figure {name:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures that differ from each other, so that a name that finds another's value is noticed.
    fn stat(from: i64) -> Stat {
        Stat { current: from, peak: from + 1, allocated: from + 2, freed: from + 3 }
    }

    #[test]
    fn each_figure_of_a_device_has_its_name() {
        let mut stats = DeviceStats::default();
        let mut next = 0..;
        let mut some = || stat(next.next().unwrap_or(0) * 4);
        for family in [
            &mut stats.allocation,
            &mut stats.segment,
            &mut stats.active,
            &mut stats.inactive_split,
            &mut stats.allocated_bytes,
            &mut stats.reserved_bytes,
            &mut stats.active_bytes,
            &mut stats.inactive_split_bytes,
            &mut stats.requested_bytes,
        ] {
            *family = StatByPool { all: some(), small_pool: some(), large_pool: some() };
        }
        (stats.oversize_allocations, stats.oversize_segments) = (some(), some());
        (stats.num_alloc_retries, stats.num_ooms, stats.num_sync_all_streams) = (1001, 1002, 1003);
        (stats.num_device_alloc, stats.num_device_free, stats.max_split_size) = (1004, 1005, -1);
        assert_eq!(
            (stats.flatten().len(), stats.get("num_pages_made")),
            (122, None),
            "torch's, where there are no pages"
        );
        (stats.pages_made, stats.pages_moved, stats.page_calls) = (1006, 1007, 1008);
        (stats.page_bytes_made, stats.page_bytes_moved, stats.has_pages) = (1009, 1010, true);
        assert!(stats.flatten().is_sorted());
        assert_eq!((stats.flatten().len(), stats["num_pages_moved"], stats["num_page_bytes_moved"]), (127, 1007, 1010));
        for (name, value) in stats.flatten() {
            assert_eq!((stats[name], stats.get(name)), (value, Some(value)), "{name}");
        }
        for none in ["", "allocation", "allocation.all", "allocation.all.currents", "num_ooms.all", "allocated.all"] {
            assert_eq!(stats.get(none), None, "{none}");
        }
    }

    #[test]
    fn each_figure_of_pinned_memory_has_its_name() {
        let time = |from| DurationStat { total: from, max: from + 1, min: from + 2, count: from + 3, avg: from + 4 };
        let stats = HostStats {
            num_host_alloc: 91,
            num_host_free: 92,
            allocations: stat(0),
            allocated_bytes: stat(4),
            active_requests: stat(8),
            active_bytes: stat(12),
            host_alloc_time: time(20),
            host_free_time: time(30),
        };
        for (name, value) in stats.flatten() {
            assert_eq!((stats[name.as_str()], stats.get(&name)), (value, Some(value)), "{name}");
        }
        assert_eq!((stats.get("allocations"), stats.get("num_host_alloc.current")), (None, None));
    }

    #[test]
    #[should_panic(expected = "memory_stats has no figure \"allocated.current\"")]
    fn an_unknown_name_is_named() {
        let _ = DeviceStats::default()["allocated.current"];
    }
}
