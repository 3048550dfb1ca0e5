//! The figures of a runtime's memory as text for Prometheus.
//!
//! **Invariants:** nothing changes by asking, and nothing is started. The driver is asked once, for the identities of its devices. Each metric has one line
//! that says its type, and the metrics are sorted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::base::device::DeviceIndex;
use crate::base::error::Result;
use crate::pinned::HostStats;
use crate::runtime::handle::Runtime;
use crate::runtime::started::Started;

impl Runtime {
    /// The figures of all devices and of pinned memory in the text format of Prometheus: current values and peaks as
    /// gauges, sums and counts as counters, which begin again when they are reset. Bytes, or microseconds for times. Torch
    /// has no such thing.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use c10_core::{DeviceBuffer, Runtime};
    ///
    /// let buffer = DeviceBuffer::new(1000, None)?;
    /// let text = Runtime::current().figures_text()?;
    /// assert!(text.contains("\ntorch_cuda_allocated_bytes{device=\"0\",pool=\"all\"} 1024\n"));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The driver's error.
    pub fn figures_text(&self) -> Result<String> {
        let mut metrics = Metrics::default();
        let ready = self.started().filter(|_| self.is_initialized());
        let mut pinned = HostStats::default();
        if let Some(ready) = ready {
            of_devices(ready, &mut metrics)?;
            pinned = ready.pinned.cache.stats();
        }
        for (name, value) in pinned.flatten() {
            metrics.add("torch_cuda_host_", &name, None, value);
        }
        Ok(metrics.text())
    }
}

fn of_devices(ready: &Started, metrics: &mut Metrics) -> Result<()> {
    for device in (0..).map(DeviceIndex).take(ready.api.device_count()) {
        for (name, value) in ready.allocator.stats(&ready.api, device)?.flatten() {
            metrics.add("torch_cuda_", name, Some(device), value);
        }
    }
    // Numbers of devices are the process's own; their identities are everybody's.
    for (device, uuid) in ready.uuids()?.iter().enumerate() {
        metrics.put(
            "torch_cuda_device_info",
            false,
            &[("device", &device.to_string()), ("uuid", &format!("GPU-{uuid}"))],
            1,
        );
    }
    Ok(())
}

/// Samples by the metric they belong to, whether that is a counter, and in the order in which they were added.
#[derive(Default)]
struct Metrics(BTreeMap<String, (bool, Vec<String>)>);

impl Metrics {
    /// Adds a figure by torch's name for it: a family, perhaps a pool, perhaps a leaf.
    fn add(&mut self, prefix: &str, name: &str, device: Option<DeviceIndex>, value: i64) {
        let parts: Vec<&str> = name.split('.').collect();
        let (family, pool, leaf) = match parts.as_slice() {
            [family, pool, leaf] => (*family, Some(*pool), *leaf),
            [family, leaf] => (*family, None, *leaf),
            _ => (name, None, ""),
        };
        let (suffix, counts) = kind(family, leaf);
        let device = device.map(|device| device.to_string());
        let labels = device.iter().map(|device| ("device", device.as_str())).chain(pool.map(|pool| ("pool", pool)));
        let family = family.trim_start_matches(if prefix.ends_with("host_") { "host_" } else { "" });
        self.put(&format!("{prefix}{family}{suffix}"), counts, &labels.collect::<Vec<_>>(), value);
    }

    /// Adds a sample. No label's value has a character that would have to be written otherwise.
    fn put(&mut self, metric: &str, counts: bool, labels: &[(&str, &str)], value: i64) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let sample = format!("{metric}{labels} {value}");
        self.0.entry(metric.to_owned()).or_insert_with(|| (counts, Vec::new())).1.push(sample);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (metric, (counts, samples)) in &self.0 {
            let _ = writeln!(text, "# TYPE {metric} {}", if *counts { "counter" } else { "gauge" });
            samples.iter().for_each(|sample| {
                let _ = writeln!(text, "{sample}");
            });
        }
        text
    }
}

/// How the name of a metric ends, and whether it counts.
fn kind(family: &str, leaf: &str) -> (&'static str, bool) {
    match leaf {
        "" if family.starts_with("num_") => ("_total", true),
        "current" | "" => ("", false),
        "allocated" => ("_increases_total", true),
        "freed" => ("_decreases_total", true),
        "total" => ("_microseconds_total", true),
        "count" => ("_calls_total", true),
        "peak" => ("_peak", false),
        "max" => ("_microseconds_max", false),
        "min" => ("_microseconds_min", false),
        _ => ("_microseconds_mean", false),
    }
}
