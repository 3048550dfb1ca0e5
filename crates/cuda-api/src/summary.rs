//! The allocator's figures as a table.
//!
//! **Invariant:** every line is as wide as torch's, and a row's cells have the unit of the row above it that sums both
//! pools.

use std::fmt::Write as _;

use c10_core::{DeviceArg, DeviceIndex, DeviceStats, Result, Runtime, Stat, StatByPool};

/// Characters between the bars.
const WIDTH: usize = 75;

/// A readable table of a device's figures; with `abbreviated` without the rows for the pools of small and of large blocks.
/// All figures are 0 before [`crate::init`]. `None` is the current device, and starts the runtime.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// let summary = cuda_api::memory_summary(None, true)?;
/// assert!(summary.contains("| Allocated memory      |      0 B   |"), "{summary}");
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// The device does not exist, or the runtime cannot start.
pub fn memory_summary(device: impl DeviceArg, abbreviated: bool) -> Result<String> {
    let runtime = Runtime::current();
    let device = device.resolve(&runtime)?;
    Ok(table(device, &crate::memory_stats(device)?, abbreviated))
}

fn table(device: DeviceIndex, stats: &DeviceStats, abbreviated: bool) -> String {
    let title = format!("{:17} PyTorch CUDA memory summary, device ID {device:<17} ", "");
    let (ooms, retries) = (stats.num_ooms, stats.num_alloc_retries);
    let failures = format!("  {:9} CUDA OOMs: {ooms:<12} | {:6} cudaMalloc retries: {retries:<8}  ", "", "");
    let names = "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ";
    let (double, single) = ("=".repeat(WIDTH), "-".repeat(WIDTH));
    let mut lines = vec![double.clone(), title, single.clone(), failures, double.clone(), names.to_owned()];
    for (name, unit, family) in families(stats) {
        lines.push(single.clone());
        lines.push(row(name, unit, family.all, family.all));
        if !abbreviated {
            lines.push(row("      from large pool", unit, family.large_pool, family.all));
            lines.push(row("      from small pool", unit, family.small_pool, family.all));
        }
    }
    for (name, stat) in
        [("Oversize allocations", stats.oversize_allocations), ("Oversize GPU segments", stats.oversize_segments)]
    {
        lines.push(single.clone());
        lines.push(row(name, Unit::Count, stat, stat));
    }
    lines.push(double);
    lines.iter().fold(String::new(), |mut table, line| {
        // Writing to a text cannot fail.
        let _ = writeln!(table, "|{line}|");
        table
    })
}

/// What a figure counts.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Count,
}

fn families(stats: &DeviceStats) -> [(&'static str, Unit, &StatByPool); 9] {
    [
        ("Allocated memory", Unit::Bytes, &stats.allocated_bytes),
        ("Active memory", Unit::Bytes, &stats.active_bytes),
        ("Requested memory", Unit::Bytes, &stats.requested_bytes),
        ("GPU reserved memory", Unit::Bytes, &stats.reserved_bytes),
        ("Non-releasable memory", Unit::Bytes, &stats.inactive_split_bytes),
        ("Allocations", Unit::Count, &stats.allocation),
        ("Active allocs", Unit::Count, &stats.active),
        ("GPU reserved segments", Unit::Count, &stats.segment),
        ("Non-releasable allocs", Unit::Count, &stats.inactive_split),
    ]
}

/// A row, whose cells have the unit that suits `reference`.
fn row(name: &str, unit: Unit, stat: Stat, reference: Stat) -> String {
    let cells = |stat: Stat| [stat.current, stat.peak, stat.allocated, stat.freed];
    let mut row = format!(" {name:<21} ");
    for (value, reference) in cells(stat).into_iter().zip(cells(reference)) {
        row.push_str("| ");
        row.push_str(&unit.cell(value, reference));
        row.push(' ');
    }
    row
}

impl Unit {
    fn cell(self, mut value: i64, mut reference: i64) -> String {
        let (step, limit, names): (i64, i64, &[&str]) = match self {
            Self::Bytes => (1024, 768 * 1024, &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"]),
            Self::Count => (1000, 750 * 1000, &[" ", "K", "M"]),
        };
        let mut place = 0;
        while reference >= limit && place + 1 < names.len() {
            (value, reference, place) = (value / step, reference / step, place + 1);
        }
        match self {
            Self::Bytes => format!("{value:6} {}", names[place]),
            Self::Count => format!("{value:7} {} ", names[place]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What torch showed, as far as this crate's tests need it.
    fn golden(key: &str) -> String {
        let facts = include_str!("../../../tests/data/golden/torch_facts.json");
        let start = facts.find(&format!("\"{key}\": \"")).expect("torch showed it") + key.len() + 5;
        let end = start + facts[start..].find('"').expect("it ends");
        facts[start..end].replace("\\n", "\n")
    }

    #[test]
    fn cells_are_torchs() {
        for (value, expected) in [
            (0, "     0 B  "),
            (786_431, "786431 B  "),
            (786_432, "   768 KiB"),
            (4_000_256, "  3906 KiB"),
            (805_306_368, "   768 MiB"),
            (i64::MAX, "  8191 PiB"),
        ] {
            assert_eq!(Unit::Bytes.cell(value, value), expected);
        }
        for (value, expected) in [(0, "      0   "), (749_999, " 749999   "), (750_000, "    750 K ")] {
            assert_eq!(Unit::Count.cell(value, value), expected);
        }
        assert_eq!(Unit::Bytes.cell(1000, 1 << 20), "     0 KiB", "the sum decides about the unit");
    }

    fn stat([current, peak, allocated, freed]: [i64; 4]) -> Stat {
        let mut stat = Stat::default();
        (stat.current, stat.peak, stat.allocated, stat.freed) = (current, peak, allocated, freed);
        stat
    }

    /// Bytes that torch's table shows as these KiB; the last column may be zero bytes.
    fn family(large: [i64; 4], small: [i64; 4], all: [i64; 4]) -> StatByPool {
        let mut family = StatByPool::default();
        (family.large_pool, family.small_pool, family.all) = (stat(large), stat(small), stat(all));
        family
    }

    #[test]
    fn the_table_is_torchs() {
        let kib = |cells: [i64; 4]| cells.map(|cell| cell * 1024);
        let bytes = |large, small, all| family(kib(large), kib(small), kib(all));
        let mut stats = DeviceStats::default();
        let zero = [0; 4];
        let large = [274_432, 286_151, 290_057, 15_625];
        stats.allocated_bytes = bytes(large, zero, [274_432, 286_151, 290_058, 15_626]);
        stats.active_bytes = bytes(large, zero, [274_432, 286_151, 290_058, 15_625]);
        let requested = [273_437, 285_156, 289_062, 15_625];
        stats.requested_bytes = bytes(requested, zero, requested);
        stats.reserved_bytes =
            bytes([294_912, 294_912, 294_912, 0], [2048, 2048, 2048, 0], [296_960, 296_960, 296_960, 0]);
        stats.inactive_split_bytes =
            bytes([0, 16_573, 25_334, 25_334], [2047, 2047, 2047, 0], [2047, 16_573, 27_382, 25_334]);
        stats.allocation = family([1, 2, 3, 2], [0, 1, 1, 1], [1, 3, 4, 3]);
        stats.active = family([1, 2, 3, 2], [1, 1, 1, 0], [2, 3, 4, 2]);
        stats.segment = family([2, 2, 2, 0], [1, 1, 1, 0], [3, 3, 3, 0]);
        stats.inactive_split = family([0, 1, 2, 2], [1, 1, 1, 0], [1, 2, 3, 2]);
        assert_eq!(table(DeviceIndex(0), &stats, false), golden("summary"));
        assert_eq!(table(DeviceIndex(0), &stats, true), golden("summary_abbr"));
    }
}
