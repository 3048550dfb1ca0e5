//! What NVML tells of a device: load, temperature, power, clocks, processes.
//!
//! NVML is loaded and initialised when it is first needed, without starting the runtime. Its numbers of devices are
//! those of the machine; `CUDA_VISIBLE_DEVICES` is read as torch reads it to match CUDA's.
//!
//! **Invariants:** a runtime shows the devices of the machine that its driver is on, or none. A runtime on a driver
//! that the program chose takes an NVML that the program chose, or the one that lies beside that driver. Nothing but
//! telemetry fails where there is no NVML.

use std::sync::Arc;

use cuda_sys::Nvml as Table;

use crate::base::device::DeviceIndex;
use crate::base::error::{DeviceError, Error, ProcessMemory, Result, TelemetryError};
use crate::base::links::PeerPath;
use crate::base::readings::{DeviceReadings, PcieThroughput, Reading};
use crate::base::uuid::Uuid;
use crate::base::visible::VisibleDevices;
use crate::driver::{Api, Nvml};
use crate::runtime::Runtime;
use crate::thread::pending::PuttingOff;

/// What NVML tells of a runtime's devices; made by [`Runtime::telemetry`].
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default().devices(2)).with_nvml().here();
/// use c10_core::Runtime;
///
/// let runtime = Runtime::current();
/// assert_eq!(runtime.telemetry().raw_device_count()?, 2);
/// assert!(runtime.telemetry().temperature(0)? < 100 && runtime.telemetry().utilization(0)? <= 100);
/// assert!(!runtime.is_initialized(), "NVML needs no started runtime");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Telemetry<'a>(&'a Runtime);

impl Runtime {
    /// What NVML tells of the devices: load, temperature, power, clocks, processes.
    #[must_use]
    #[inline]
    pub fn telemetry(&self) -> Telemetry<'_> {
        Telemetry(self)
    }
}

impl Telemetry<'_> {
    /// Uses this NVML from now on; for a runtime on a driver that is not the system's.
    pub fn set_nvml(self, nvml: Table) {
        self.0.nvml_slot().set(nvml);
    }

    fn nvml(self) -> Result<Arc<Nvml>> {
        self.0.nvml_slot().get(self.0.source())
    }

    /// Number of devices that CUDA will show, as far as NVML and `CUDA_VISIBLE_DEVICES` tell; torch's
    /// `_device_count_nvml`. Starts nothing but NVML. `None` where they do not tell.
    #[must_use]
    pub fn device_count(self) -> Option<usize> {
        self.0.nvml_slot().visible_count(self.0.source())
    }

    /// Number of devices of the machine, whatever `CUDA_VISIBLE_DEVICES` says; torch's `_raw_device_count_nvml`. Starts
    /// nothing but NVML.
    ///
    /// # Errors
    /// [`crate::TelemetryError::Missing`], [`crate::TelemetryError::DriverNotLoaded`], or NVML's error.
    pub fn raw_device_count(self) -> Result<usize> {
        Ok(self.nvml()?.device_count()? as usize)
    }

    /// The texts that identify the machine's devices, in NVML's order; torch's `_raw_device_uuid_nvml`. Starts nothing
    /// but NVML.
    ///
    /// # Errors
    /// [`crate::TelemetryError::Missing`], [`crate::TelemetryError::DriverNotLoaded`], or NVML's error.
    pub fn raw_device_uuids(self) -> Result<Vec<String>> {
        self.nvml()?.uuids()
    }

    /// NVML's number of a device; torch's `_get_nvml_device_index`.
    ///
    /// # Errors
    /// [`crate::DeviceError::NotVisible`]; `CUDA_VISIBLE_DEVICES` names UUIDs, and NVML does not tell them.
    pub fn device_index(self, device: DeviceIndex) -> Result<u32> {
        let visible = match VisibleDevices::of_environment() {
            visible @ VisibleDevices::Ordinals(_) => visible,
            visible @ (VisibleDevices::Gpus(_) | VisibleDevices::Instances(_)) => {
                visible.with_ordinals(&self.nvml()?.uuids().map_err(|_| Error::Telemetry(TelemetryError::NoUuids))?)
            }
        };
        let ordinal = usize::try_from(device).ok().and_then(|position| visible.ordinal(position));
        ordinal.ok_or_else(|| Error::Device(DeviceError::NotVisible { device, visible: visible.to_string() }))
    }

    /// NVML, and its number of a device.
    fn nvml_of(self, device: DeviceIndex) -> Result<(Arc<Nvml>, u32)> {
        PuttingOff::settle("a device is asked for a reading");
        let nvml = self.nvml()?;
        Ok((nvml, self.device_index(device)?))
    }

    /// The way between two devices: what they share of PCIe (`nvmlDeviceGetTopologyCommonAncestor`), and whether NVLink
    /// connects them (`nvmlDeviceGetP2PStatus`). Starts nothing but NVML.
    ///
    /// # Errors
    /// As for [`Self::memory_used`].
    pub fn peer_path(self, device: DeviceIndex, peer: DeviceIndex) -> Result<PeerPath> {
        let (nvml, index) = self.nvml_of(device)?;
        nvml.peer_path(index, self.device_index(peer)?)
    }

    /// Bytes of a device that are in use, by all processes; torch's `device_memory_used`.
    ///
    /// # Errors
    /// [`crate::TelemetryError::Missing`], [`crate::TelemetryError::DriverNotLoaded`],
    /// [`crate::DeviceError::NotVisible`], or NVML's error.
    pub fn memory_used(self, device: DeviceIndex) -> Result<u64> {
        let (nvml, index) = self.nvml_of(device)?;
        nvml.memory_used(index)
    }

    /// Percent of the last sample period in which memory was read or written; torch's `memory_usage`.
    ///
    /// # Errors
    /// As for [`Self::memory_used`].
    pub fn memory_usage(self, device: DeviceIndex) -> Result<u32> {
        let (nvml, index) = self.nvml_of(device)?;
        Ok(nvml.utilization(index)?.1)
    }

    /// Percent of the last sample period in which a kernel ran; torch's `utilization`.
    ///
    /// # Errors
    /// As for [`Self::memory_used`].
    pub fn utilization(self, device: DeviceIndex) -> Result<u32> {
        let (nvml, index) = self.nvml_of(device)?;
        Ok(nvml.utilization(index)?.0)
    }

    /// Temperature of a device in degrees Celsius; torch's `temperature`.
    ///
    /// # Errors
    /// As for [`Self::memory_used`].
    pub fn temperature(self, device: DeviceIndex) -> Result<u32> {
        let (nvml, index) = self.nvml_of(device)?;
        nvml.temperature(index)
    }

    /// Power that a device draws, in milliwatts; torch's `power_draw`.
    ///
    /// # Errors
    /// As for [`Self::memory_used`].
    pub fn power_draw(self, device: DeviceIndex) -> Result<u32> {
        let (nvml, index) = self.nvml_of(device)?;
        nvml.power_draw(index)
    }

    /// Clock of a device's multiprocessors in MHz; torch's `clock_rate`.
    ///
    /// # Errors
    /// As for [`Self::memory_used`].
    pub fn clock_rate(self, device: DeviceIndex) -> Result<u32> {
        let (nvml, index) = self.nvml_of(device)?;
        nvml.clock_rate(index)
    }

    /// Processes that compute on a device, with the memory each holds.
    ///
    /// # Errors
    /// As for [`Self::memory_used`].
    pub fn processes(self, device: DeviceIndex) -> Result<Vec<ProcessMemory>> {
        let (nvml, index) = self.nvml_of(device)?;
        nvml.processes(index)
    }

    /// All that NVML tells of a device's health: load, heat, power, clocks and what holds them back, errors of memory,
    /// links, processes. A figure that a device does not have, or does not tell this user, says so in its place.
    ///
    /// # Errors
    /// As for [`Self::memory_used`].
    pub fn readings(self, device: DeviceIndex) -> Result<DeviceReadings> {
        let (nvml, index) = self.nvml_of(device)?;
        nvml.readings(index)
    }

    /// Traffic of a device's link to the host. NVML measures for 40 milliseconds, and the call takes as long.
    ///
    /// ```
    /// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
    /// use c10_core::Runtime;
    ///
    /// assert_eq!(Runtime::current().telemetry().pcie_throughput(0)?.sent, Ok(0));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::memory_used`].
    pub fn pcie_throughput(self, device: DeviceIndex) -> Result<PcieThroughput> {
        let (nvml, index) = self.nvml_of(device)?;
        nvml.pcie_throughput(index)
    }

    /// The program of a process that [`readings`](Self::readings) lists.
    ///
    /// ```
    /// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
    /// use c10_core::Runtime;
    ///
    /// let program = Runtime::current().telemetry().process_name(std::process::id())?;
    /// assert!(!program?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// No such process, which is NVML's error; as for [`Self::raw_device_count`].
    pub fn process_name(self, pid: u32) -> Result<Reading<String>> {
        self.nvml()?.process_name(pid)
    }

    /// Versions of the display driver and of NVML.
    ///
    /// ```
    /// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
    /// use c10_core::Runtime;
    ///
    /// let (driver, nvml) = Runtime::current().telemetry().versions()?;
    /// assert!(nvml.ends_with(&driver));
    /// # Ok::<(), c10_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Self::raw_device_count`].
    pub fn versions(self) -> Result<(String, String)> {
        self.nvml()?.versions()
    }

    /// Processes that compute on a device, for messages; empty where NVML cannot tell. The device is found by its UUID,
    /// so that a device of another driver with the same number is never shown.
    pub(crate) fn processes_for_message(self, api: &Api, device: DeviceIndex) -> Vec<ProcessMemory> {
        let ask = || {
            let nvml = self.nvml()?;
            let uuid = Uuid { bytes: api.gpu_uuid(device)? };
            nvml.processes_by_uuid(&format!("GPU-{uuid}"))
        };
        ask().unwrap_or_default()
    }
}
