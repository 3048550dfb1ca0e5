//! What NVML tells of a device, as cells of a table and as JSON.
//!
//! **Invariant:** a figure that is not to be had reads `-` where the device has no such thing and `denied` where this user
//! may not know it.

use cuda_api::{ClockLimits, DeviceReadings, NoReading, OfMax, Reading};
use memory_viz::analysis::human_bytes;
use serde_json::{Value, json};

use crate::exports::printable;

/// A device's figures.
#[derive(Debug, Clone)]
pub(crate) struct Readings {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) uuid: Option<String>,
    /// Used and total bytes.
    pub(crate) memory: Reading<(u64, u64)>,
    pub(crate) load: Reading<u32>,
    pub(crate) memory_load: Reading<u32>,
    pub(crate) temperature: Reading<u32>,
    pub(crate) slowdown: Reading<u32>,
    pub(crate) power: Reading<u32>,
    pub(crate) power_limit: Reading<u32>,
    pub(crate) sm_clock: Reading<OfMax>,
    pub(crate) memory_clock: Reading<OfMax>,
    pub(crate) limits: Reading<ClockLimits>,
    pub(crate) is_split: bool,
    /// Number, kind and bytes of each process.
    pub(crate) processes: Vec<(u32, &'static str, Option<u64>)>,
    /// Why the processes are not known.
    pub(crate) processes_missing: Option<NoReading>,
}

impl Readings {
    pub(crate) fn of(from: &DeviceReadings) -> Self {
        let mut processes = Vec::new();
        for (kind, list) in [("C", &from.compute_processes), ("G", &from.graphics_processes)] {
            for process in list.iter().flatten() {
                match processes.iter_mut().find(|(pid, _, _)| *pid == process.pid) {
                    Some((_, known, _)) => *known = "C+G",
                    None => processes.push((process.pid, kind, process.used_bytes)),
                }
            }
        }
        Self {
            index: from.index,
            name: from.name.as_ref().map_or_else(|_| "?".to_owned(), |name| printable(name)),
            uuid: from.uuid.as_ref().ok().map(|uuid| printable(uuid)),
            memory: from.memory.map(|memory| (memory.used, memory.total)),
            load: from.load.kernels,
            memory_load: from.load.memory,
            temperature: from.temperature.now,
            slowdown: from.temperature.slowdown,
            power: from.power.draw,
            power_limit: from.power.limit,
            sm_clock: from.clocks.sm,
            memory_clock: from.clocks.memory,
            limits: from.clock_limits,
            is_split: from.mig == Ok(true),
            processes,
            processes_missing: from.compute_processes.as_ref().err().copied(),
        }
    }

    pub(crate) fn memory_cell(&self) -> String {
        cell(self.memory, |(used, total)| format!("{} / {}", human_bytes(used), human_bytes(total)))
    }

    pub(crate) fn load_cell(&self) -> String {
        cell(self.load, |percent| format!("{percent} %"))
    }

    pub(crate) fn temperature_cell(&self) -> String {
        cell(self.temperature, |degrees| format!("{degrees} C"))
    }

    pub(crate) fn power_cell(&self) -> String {
        let limit = self.power_limit.map_or_else(|_| String::new(), |limit| format!(" / {}", limit / 1000));
        cell(self.power, |power| format!("{}{limit} W", power / 1000))
    }

    /// What holds the clocks back, and whether the device is split.
    pub(crate) fn state_cell(&self) -> String {
        let limits = cell(self.limits, |limits| limits.to_string());
        if self.is_split { format!("MIG, {limits}") } else { limits }
    }

    /// Whether the device slows down for heat or power, or soon will.
    pub(crate) fn is_strained(&self) -> bool {
        let is_hot = matches!((self.temperature, self.slowdown), (Ok(now), Ok(limit)) if now + 5 >= limit);
        is_hot || self.limits.is_ok_and(ClockLimits::slows)
    }

    /// The figures under plain names; `null` for what is not to be had.
    pub(crate) fn json(&self) -> Value {
        json!({
            "index": self.index,
            "name": self.name,
            "uuid": self.uuid,
            "memory_used_bytes": self.memory.ok().map(|memory| memory.0),
            "memory_total_bytes": self.memory.ok().map(|memory| memory.1),
            "load_percent": self.load.ok(),
            "memory_load_percent": self.memory_load.ok(),
            "temperature_celsius": self.temperature.ok(),
            "power_milliwatts": self.power.ok(),
            "power_limit_milliwatts": self.power_limit.ok(),
            "sm_clock_mhz": self.sm_clock.ok().map(|clock| clock.now),
            "memory_clock_mhz": self.memory_clock.ok().map(|clock| clock.now),
            "clock_limits": self.limits.ok().map(|limits| limits.to_string()),
            "mig": self.is_split,
        })
    }
}

/// A figure as a cell.
pub(crate) fn cell<T>(reading: Reading<T>, write: impl FnOnce(T) -> String) -> String {
    match reading {
        Ok(value) => write(value),
        Err(NoReading::NoPermission) => "denied".to_owned(),
        Err(_) => "-".to_owned(),
    }
}

/// A clock as a cell.
pub(crate) fn clock_cell(clock: Reading<OfMax>) -> String {
    cell(clock, |clock| clock.now.to_string())
}
