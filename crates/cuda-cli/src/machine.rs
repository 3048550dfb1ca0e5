//! What a machine does at a moment: devices by NVML, the processes on them, and the pools of those that export theirs.
//!
//! **Invariants:** looking makes no context and starts no CUDA. What cannot be had has a reason in its place.

use cuda_api::{DeviceIndex, Runtime};

use crate::exports::{self, Exporter, Figures};
use crate::readings::Readings;

/// A machine at a moment.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// Versions of the display driver and of NVML.
    pub(crate) versions: Option<(String, String)>,
    pub(crate) devices: Vec<Device>,
    /// Why no device is shown.
    pub(crate) missing: Option<String>,
    pub(crate) exporters: Vec<Exporter>,
    /// Why no process's pools are shown.
    pub(crate) exports_missing: Option<String>,
}

/// A device.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// CUDA's number of it.
    pub(crate) number: DeviceIndex,
    pub(crate) readings: Result<Readings, String>,
    pub(crate) programs: Vec<Program>,
}

/// A process on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) pid: u32,
    /// `C` computes, `G` draws, as `nvidia-smi` says.
    pub(crate) kind: &'static str,
    pub(crate) used: Option<u64>,
    pub(crate) name: String,
}

/// A line of the table of processes.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) device: Option<DeviceIndex>,
    pub(crate) pid: u32,
    pub(crate) kind: &'static str,
    pub(crate) used: Option<u64>,
    pub(crate) name: String,
    pub(crate) pools: Option<Pools>,
    /// Why there are no pools, for a process that exports them.
    pub(crate) note: String,
}

/// What a process's allocator has of a device, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pools {
    pub(crate) allocated: u64,
    pub(crate) reserved: u64,
    pub(crate) peak_reserved: u64,
    pub(crate) pinned: u64,
    pub(crate) ooms: u64,
}

/// Looks at the machine.
pub(crate) fn look(runtime: &Runtime) -> Machine {
    let telemetry = runtime.telemetry();
    let (devices, missing) = match telemetry.raw_device_count() {
        Err(error) => (Vec::new(), Some(one_line(&error.to_string()))),
        Ok(count) => {
            let count = telemetry.device_count().unwrap_or(count);
            let none = (count == 0).then(|| "no device is there, or CUDA_VISIBLE_DEVICES shows none".to_owned());
            ((0..).map(DeviceIndex).take(count).map(|number| device(runtime, number)).collect(), none)
        }
    };
    let (exporters, exports_missing) = match exports::read_all() {
        Ok(exporters) => (exporters, None),
        Err(error) => (Vec::new(), Some(one_line(&error.to_string()))),
    };
    Machine { versions: telemetry.versions().ok(), devices, missing, exporters, exports_missing }
}

fn device(runtime: &Runtime, number: DeviceIndex) -> Device {
    match runtime.telemetry().readings(number) {
        Ok(readings) => {
            let readings = Readings::of(&readings);
            let programs = readings.processes.iter().map(|&(pid, kind, used)| Program {
                pid,
                kind,
                used,
                name: program(runtime, pid),
            });
            Device { number, programs: programs.collect(), readings: Ok(readings) }
        }
        Err(error) => Device { number, readings: Err(one_line(&error.to_string())), programs: Vec::new() },
    }
}

/// The last part of a program's path, as NVML or else the system tells it.
fn program(runtime: &Runtime, pid: u32) -> String {
    let by_nvml = runtime.telemetry().process_name(pid).ok().and_then(Result::ok).filter(|name| !name.is_empty());
    let name = by_nvml.or_else(|| exports::program(pid)).unwrap_or_else(|| "?".to_owned());
    exports::printable(name.rsplit('/').next().unwrap_or(&name))
}

/// Errors of libraries that were looked for have many lines; tables have one for each.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        let needs_mark = line.chars().last().is_some_and(char::is_alphanumeric);
        line.push_str(if line.is_empty() {
            ""
        } else if needs_mark {
            "; "
        } else {
            " "
        });
        line.push_str(part);
    }
    exports::printable_long(&line)
}

impl Machine {
    /// The processes, a line for each and device; those that export pools have them, wherever NVML lists them.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.devices.iter().flat_map(|device| self.rows_of(device)).collect();
        for exporter in &self.exporters {
            match &exporter.figures {
                Err(fault) => rows.push(row(exporter, None, None, fault.to_string())),
                Ok(figures) => {
                    let missing = figures.devices().into_iter().map(|own| (own, self.number_of(figures, own)));
                    let missing: Vec<_> = missing
                        .filter(|(_, number)| !rows.iter().any(|row| row.pid == exporter.pid && row.device == *number))
                        .collect();
                    let unused = |own: u32| pools(figures, own).is_some_and(|pools| pools.peak_reserved == 0);
                    let used = missing.into_iter().filter(|(own, _)| !unused(*own));
                    rows.extend(used.map(|(own, number)| row(exporter, number, pools(figures, own), String::new())));
                    if !rows.iter().any(|row| row.pid == exporter.pid) {
                        rows.push(row(exporter, None, None, "has used no device memory yet".to_owned()));
                    }
                }
            }
        }
        rows
    }

    fn rows_of(&self, device: &Device) -> Vec<Row> {
        let of = |program: &Program| {
            let exporter = self.exporters.iter().find(|exporter| exporter.pid == program.pid);
            let figures = exporter.and_then(|exporter| exporter.figures.as_ref().ok());
            let own = figures.and_then(|figures| {
                let number = |own: &u32| self.number_of(figures, *own) == Some(device.number);
                Some((figures, figures.devices().into_iter().find(number)?))
            });
            Row {
                device: Some(device.number),
                pid: program.pid,
                kind: program.kind,
                used: program.used,
                name: exporter.filter(|_| program.name == "?").map_or(&program.name, |known| &known.program).clone(),
                pools: own.and_then(|(figures, own)| pools(figures, own)),
                note: String::new(),
            }
        };
        device.programs.iter().map(of).collect()
    }

    /// Our number of a device that a process has another number for.
    fn number_of(&self, figures: &Figures, own: u32) -> Option<DeviceIndex> {
        let uuid = figures.uuid(own)?;
        let is_it = |device: &&Device| device.readings.as_ref().is_ok_and(|of| of.uuid.as_deref() == Some(uuid));
        self.devices.iter().find(is_it).map(|device| device.number)
    }
}

fn row(exporter: &Exporter, device: Option<DeviceIndex>, pools: Option<Pools>, note: String) -> Row {
    Row { device, pid: exporter.pid, kind: "", used: None, name: exporter.program.clone(), pools, note }
}

/// What a process says of one of its devices.
pub(crate) fn pools(figures: &Figures, own: u32) -> Option<Pools> {
    let bytes = |value: Option<i64>| u64::try_from(value.unwrap_or(0)).unwrap_or(0);
    let of = |metric: &str| bytes(figures.of_device(metric, own));
    figures.of_device("torch_cuda_reserved_bytes", own)?;
    Some(Pools {
        allocated: of("torch_cuda_allocated_bytes"),
        reserved: of("torch_cuda_reserved_bytes"),
        peak_reserved: of("torch_cuda_reserved_bytes_peak"),
        pinned: bytes(figures.of_host("torch_cuda_host_allocated_bytes")),
        ooms: of("torch_cuda_num_ooms_total"),
    })
}
