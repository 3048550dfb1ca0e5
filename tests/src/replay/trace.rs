//! Recorded traces on the runtime, measured: how much memory is taken for how much, how often the driver is called,
//! and how long an operation takes.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::Instant;

use crate::trace::Step;
use c10_core::{DeviceIndex, Runtime, Stream};
use cuda_sim::{Config, Machine};

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
    /// Most bytes that were asked for at one time.
    pub peak_requested_bytes: i64,
    /// Most bytes in blocks that were handed out.
    pub peak_allocated_bytes: i64,
    /// Most bytes held from the driver.
    pub peak_reserved_bytes: i64,
    /// Driver calls for device memory, by name.
    pub driver_calls: BTreeMap<&'static str, u64>,
    /// Time of an allocation or a free, on average.
    pub ns_per_op: f64,
}

impl Pass {
    /// Peak of the allocated over peak of the reserved bytes.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        if self.peak_reserved_bytes == 0 {
            return 0.0;
        }
        real(self.peak_allocated_bytes) / real(self.peak_reserved_bytes)
    }
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
    let streams = streams(&runtime, steps)?;
    let first = pass(&machine, &runtime, &streams, steps)?;
    let second = pass(&machine, &runtime, &streams, steps)?;
    Ok(TraceReport { first, second })
}

fn streams(runtime: &Runtime, steps: &[Step]) -> Result<BTreeMap<u32, Stream>, c10_core::Error> {
    let mut streams = BTreeMap::from([(0, runtime.streams().default(DEVICE)?)]);
    for step in steps {
        if let Step::Alloc { stream, .. } = step
            && !streams.contains_key(stream)
        {
            streams.insert(*stream, runtime.streams().pooled(DEVICE, 0)?);
        }
    }
    Ok(streams)
}

fn pass(
    machine: &Machine,
    runtime: &Runtime,
    streams: &BTreeMap<u32, Stream>,
    steps: &[Step],
) -> Result<Pass, Box<dyn std::error::Error>> {
    // The context comes with the first use; it is no part of the trace.
    runtime.memory().info(DEVICE)?;
    runtime.memory().reset_peak_stats(DEVICE)?;
    let before = counts(machine);
    let mut live = BTreeMap::new();
    let begin = Instant::now();
    for step in steps {
        match step {
            Step::Alloc { id, bytes, stream } => {
                live.insert(*id, runtime.memory().alloc(*bytes, &streams[stream])?);
            }
            Step::Free { id } => {
                let address = live.remove(id).ok_or_else(|| format!("the trace frees {id}, which is not allocated"))?;
                runtime.memory().free(address)?;
            }
        }
    }
    let elapsed = begin.elapsed();
    let figures: BTreeMap<&str, i64> = runtime.memory().stats(DEVICE)?.flatten().into_iter().collect();
    let after = counts(machine);
    live.into_values().try_for_each(|address| runtime.memory().free(address))?;
    let peak = |name: &str| figures.get(format!("{name}.all.peak").as_str()).copied().unwrap_or(0);
    let made = after.into_iter().map(|(name, count)| (name, count - before.get(name).copied().unwrap_or(0)));
    let steps = i64::try_from(steps.len().max(1)).map_or(1.0, real);
    Ok(Pass {
        peak_requested_bytes: peak("requested_bytes"),
        peak_allocated_bytes: peak("allocated_bytes"),
        peak_reserved_bytes: peak("reserved_bytes"),
        driver_calls: made.filter(|(_, count)| *count != 0).collect(),
        ns_per_op: elapsed.as_secs_f64() * 1e9 / steps,
    })
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

/// Bytes as a number to divide.
#[expect(clippy::cast_precision_loss, reason = "a device has fewer than 2^53 bytes")]
fn real(bytes: i64) -> f64 {
    bytes as f64
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
        assert_eq!(report.first.peak_requested_bytes, 1000 + (3 << 20));
        assert_eq!(report.first.peak_allocated_bytes, 1024 + (3 << 20));
        assert_eq!(report.first.peak_reserved_bytes, 22 << 20);
        assert_eq!(report.first.driver_calls, BTreeMap::from([("cuMemAlloc_v2", 2)]));
        assert_eq!(report.second.driver_calls, BTreeMap::new());
        assert_eq!(report.second.peak_allocated_bytes, report.first.peak_allocated_bytes);
    }

    #[test]
    fn a_trace_that_frees_too_much_is_refused() {
        assert!(measure(&[Step::Free { id: 1 }], "").is_err());
        assert!(measure(&[], "foo:1").is_err());
    }
}
