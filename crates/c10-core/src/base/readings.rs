//! What a device tells of its health, by NVML: plain figures, each with the reason where there is none.

use std::fmt;

use crate::base::error::ProcessMemory;

/// A figure of a device, or why there is none.
pub type Reading<T> = Result<T, NoReading>;

/// Why a device does not tell a figure, though NVML works.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{NoReading, Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// assert_eq!(readings.fan_speed, Err(NoReading::NotSupported));
/// assert_eq!(NoReading::NoPermission.to_string(), "no permission");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NoReading {
    /// The device has no such thing, for example no fan.
    #[error("not supported by this device")]
    NotSupported,
    /// Only an administrator may know.
    #[error("no permission")]
    NoPermission,
    /// The installed NVML is older than the figure.
    #[error("not known to the installed NVML")]
    TooOld,
}

/// What a device tells of its health; made by [`crate::Telemetry::readings`].
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{NoReading, Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// assert_eq!(readings.name.as_deref(), Ok("NVIDIA H200"));
/// assert_eq!(readings.fan_speed, Err(NoReading::NotSupported));
/// assert!(readings.power.draw? < readings.power.limit?);
/// assert_eq!(readings.clock_limits?.to_string(), "idle");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceReadings {
    /// NVML's number of the device.
    pub index: u32,
    /// Name of the model.
    pub name: Reading<String>,
    /// The text that identifies the device.
    pub uuid: Reading<String>,
    /// Its memory.
    pub memory: Reading<MemoryReadings>,
    /// Its load.
    pub load: LoadReadings,
    /// Degrees Celsius of the chip, and where it slows down and stops.
    pub temperature: TemperatureReadings,
    /// Percent of the fan's highest speed.
    pub fan_speed: Reading<u32>,
    /// Its power.
    pub power: PowerReadings,
    /// Its clocks.
    pub clocks: ClockReadings,
    /// From 0, the fastest state, to 15.
    pub performance_state: Reading<u32>,
    /// What holds the clocks back now; torch has no name for it, `nvidia-smi` calls it clocks event reasons.
    pub clock_limits: Reading<ClockLimits>,
    /// Errors of memory; not supported where the correction of errors is off.
    pub ecc: Reading<EccReadings>,
    /// Rows of memory that were replaced.
    pub remapped_rows: Reading<RemappedRows>,
    /// The link to the host.
    pub pcie: PcieReadings,
    /// The links to other devices.
    pub nvlink: NvLinkReadings,
    /// Whether the device is split into instances (MIG).
    pub mig: Reading<bool>,
    /// Whether the driver keeps the device ready while nobody uses it.
    pub persistence: Reading<bool>,
    /// Who may use the device.
    pub compute_mode: Reading<ComputeMode>,
    /// Processes that compute on the device.
    pub compute_processes: Reading<Vec<ProcessMemory>>,
    /// Processes that draw on the device.
    pub graphics_processes: Reading<Vec<ProcessMemory>>,
}

/// Memory of a device, in bytes.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// let memory = readings.memory?;
/// assert_eq!(memory.used, memory.total - memory.free);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryReadings {
    /// All of it.
    pub total: u64,
    /// What nobody uses.
    pub free: u64,
    /// What is in use, by all processes and by the driver.
    pub used: u64,
}

/// Load of a device, in percent of the last sample period.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// assert_eq!((readings.load.kernels?, readings.load.memory?), (0, 0), "nothing runs");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadReadings {
    /// How long a kernel ran.
    pub kernels: Reading<u32>,
    /// How long memory was read or written.
    pub memory: Reading<u32>,
    /// Load of the video encoders.
    pub encoder: Reading<u32>,
    /// Load of the video decoders.
    pub decoder: Reading<u32>,
}

/// Heat of a device, in degrees Celsius.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// let heat = readings.temperature;
/// assert!(heat.now? < heat.slowdown? && heat.slowdown? < heat.shutdown?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemperatureReadings {
    /// The chip's.
    pub now: Reading<u32>,
    /// Where clocks are lowered.
    pub slowdown: Reading<u32>,
    /// Where the device stops.
    pub shutdown: Reading<u32>,
}

/// Power of a device.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// assert!(readings.power.draw? < readings.power.limit?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerReadings {
    /// Milliwatts that it draws.
    pub draw: Reading<u32>,
    /// Milliwatts that it may draw.
    pub limit: Reading<u32>,
    /// Millijoules since the driver was loaded.
    pub energy: Reading<u64>,
}

/// A figure of now and the highest that it can be.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// let clock = readings.clocks.sm?;
/// assert!(clock.now <= clock.max);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfMax {
    /// The figure of now.
    pub now: u32,
    /// The highest.
    pub max: u32,
}

/// Clocks of a device, in MHz.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// assert!(readings.clocks.sm?.max > 1000 && readings.clocks.memory?.max > 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReadings {
    /// Of the multiprocessors.
    pub sm: Reading<OfMax>,
    /// Of the memory.
    pub memory: Reading<OfMax>,
    /// Of the graphics units.
    pub graphics: Reading<OfMax>,
}

/// What holds clocks back: a set of reasons. It is written as a list of them, or `none`.
///
/// ```
/// use c10_core::ClockLimits;
///
/// let hot = ClockLimits(0x44);
/// assert_eq!(hot.to_string(), "power cap, hardware thermal slowdown");
/// assert!(hot.slows() && !ClockLimits(1).slows());
/// assert_eq!(ClockLimits(0).to_string(), "none");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClockLimits(
    /// NVML's bits.
    pub u64,
);

/// Reasons by their bits, from the lowest.
const REASONS: [&str; 9] = [
    "idle",
    "clocks set by the user",
    "power cap",
    "hardware slowdown",
    "sync boost",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "power brake",
    "display clocks",
];

impl ClockLimits {
    /// Whether anything but having nothing to do, or a setting of the user's, holds the clocks back.
    #[must_use]
    pub fn slows(self) -> bool {
        self.0 & !0x103 != 0
    }
}

impl fmt::Display for ClockLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = (0..64).filter(|bit| self.0 >> bit & 1 == 1).peekable();
        if names.peek().is_none() {
            return f.write_str("none");
        }
        for (position, bit) in names.enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            match REASONS.get(bit) {
                Some(reason) => write!(f, "{comma}{reason}")?,
                None => write!(f, "{comma}reason {bit}")?,
            }
        }
        Ok(())
    }
}

/// Errors of memory that were found, by whether they could be corrected.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// assert_eq!(readings.ecc?.uncorrected_ever, Ok(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EccReadings {
    /// Corrected since the driver was loaded.
    pub corrected: Reading<u64>,
    /// Not corrected since the driver was loaded.
    pub uncorrected: Reading<u64>,
    /// Corrected in the life of the device.
    pub corrected_ever: Reading<u64>,
    /// Not corrected in the life of the device.
    pub uncorrected_ever: Reading<u64>,
}

/// Rows of memory that were replaced by spare ones.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// assert!(!readings.remapped_rows?.failed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemappedRows {
    /// For errors that were corrected.
    pub corrected: u32,
    /// For errors that were not.
    pub uncorrected: u32,
    /// Whether a row is replaced at the next reset.
    pub pending: bool,
    /// Whether replacing a row failed: the device should be taken out.
    pub failed: bool,
}

/// The link between a device and the host.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// assert_eq!((readings.pcie.generation?.now, readings.pcie.lanes?.now), (5, 16));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcieReadings {
    /// Generation of PCIe. An idle link may be slower than it can be.
    pub generation: Reading<OfMax>,
    /// Number of lanes.
    pub lanes: Reading<OfMax>,
    /// Packets that were sent again.
    pub replays: Reading<u32>,
}

/// Traffic of the link to the host, in kilobytes a second.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::Runtime;
///
/// let traffic = Runtime::current().telemetry().pcie_throughput(0)?;
/// assert_eq!((traffic.sent?, traffic.received?), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcieThroughput {
    /// From the device.
    pub sent: Reading<u32>,
    /// To the device.
    pub received: Reading<u32>,
}

/// The links between a device and others.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// assert_eq!(readings.nvlink.links?.now, 0, "the device is alone");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvLinkReadings {
    /// How many links work, and how many there are.
    pub links: Reading<OfMax>,
    /// Kibibytes of data sent over all links since the driver was loaded.
    pub sent: Reading<u64>,
    /// Kibibytes of data received over all links since the driver was loaded.
    pub received: Reading<u64>,
}

/// Who may use a device.
///
/// ```
/// # let simulated = testkit::Simulation::new(testkit::Config::default()).with_nvml().here();
/// use c10_core::{ComputeMode, Runtime};
///
/// let readings = Runtime::current().telemetry().readings(0)?;
/// assert_eq!(readings.compute_mode?, ComputeMode::Default);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ComputeMode {
    /// Every process.
    Default,
    /// One process at a time.
    ExclusiveProcess,
    /// Nobody.
    Prohibited,
    /// A mode with a number that this crate does not know.
    Other(u32),
}
