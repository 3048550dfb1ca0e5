//! Recorded traces on the runtime, measured: how much memory is taken for how much, how often the driver is called,
//! and how long an operation takes.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use c10_core::{DeviceIndex, Runtime};
use cuda_sim::{Config, Machine};
use trace_replay::{Replay, Step};

const DEVICE: DeviceIndex = DeviceIndex(0);

/// Memory of the simulated device: that of the one the traces were recorded on.
const CAPACITY_BYTES: u64 = 150_109_880_320;

/// Driver calls that are counted: those that take, give back, map or unmap device memory.
const COUNTED: [&str; 8] = [
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemFree_v2",
    "cuMemMap",
    "cuMemRelease",
    "cuMemUnmap",
];

/// What one pass over a trace came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Pass {
    /// The allocator's figures and the time.
    pub figures: trace_replay::Pass,
    /// Driver calls for device memory, by name, with those that give back what the pass has left.
    pub driver_calls: BTreeMap<&'static str, u64>,
}

/// A trace, twice in a row.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceReport {
    /// From an empty allocator.
    pub first: Pass,
    /// With what the first one left in the cache.
    pub second: Pass,
}

/// Runs a trace twice under a configuration text, on a machine of its own.
///
/// # Errors
/// The text is refused, the trace frees what it has not allocated, or memory runs out.
pub fn measure(steps: &[Step], conf: &str) -> Result<TraceReport, Box<dyn std::error::Error>> {
    let machine = Machine::new(Config::default().capacity(CAPACITY_BYTES));
    let _bound = machine.bind();
    let runtime = Runtime::new(cuda_sim::driver()?);
    if !conf.is_empty() {
        runtime.memory().set_settings(conf)?;
    }
    let replay = Replay::new(&runtime, DEVICE, steps)?;
    let first = pass(&machine, &replay)?;
    let second = pass(&machine, &replay)?;
    Ok(TraceReport { first, second })
}

fn pass(machine: &Machine, replay: &Replay<'_>) -> Result<Pass, Box<dyn std::error::Error>> {
    let before = counts(machine);
    let figures = replay.pass(|_| ())?;
    let made = counts(machine).into_iter();
    let made = made.map(|(name, count)| (name, count - before.get(name).copied().unwrap_or(0)));
    Ok(Pass { figures, driver_calls: made.filter(|(_, count)| *count != 0).collect() })
}

/// Calls answered so far, by name.
fn counts(machine: &Machine) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for (symbol, _, count) in machine.calls() {
        if COUNTED.contains(&symbol) {
            *counts.entry(symbol).or_default() += count;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_passes_are_measured() {
        let steps = [
            Step::Alloc { id: 1, bytes: 1000, stream: 0 },
            Step::Alloc { id: 2, bytes: 3 << 20, stream: 1 },
            Step::Free { id: 1 },
        ];
        let report = measure(&steps, "").unwrap();
        assert_eq!(report.first.figures.peak_requested_bytes, 1000 + (3 << 20));
        assert_eq!(report.first.figures.peak_allocated_bytes, 1024 + (3 << 20));
        assert_eq!(report.first.figures.peak_reserved_bytes, 22 << 20);
        assert_eq!(report.first.driver_calls, BTreeMap::from([("cuMemAlloc_v2", 2)]));
        assert_eq!(report.second.driver_calls, BTreeMap::new());
        assert_eq!(report.second.figures.peak_allocated_bytes, report.first.figures.peak_allocated_bytes);
    }

    #[test]
    fn a_trace_that_frees_too_much_is_refused() {
        assert!(measure(&[Step::Free { id: 1 }], "").is_err());
        assert!(measure(&[], "foo:1").is_err());
    }
}
