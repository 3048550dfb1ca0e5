//! How a simulated machine is set up.

use cuda_sys::{CUresult, CudaVersion};

use crate::model::profile;

/// What machine to simulate. Every history follows from this and the calls made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) seed: u64,
    pub(crate) devices: u32,
    pub(crate) driver_version: CudaVersion,
    pub(crate) capacity_bytes: u64,
    pub(crate) strict: bool,
    pub(crate) late_events: bool,
    pub(crate) faults: Vec<Fault>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            devices: 1,
            driver_version: CudaVersion(13000),
            capacity_bytes: profile::TOTAL_MEMORY_BYTES,
            strict: false,
            late_events: false,
            faults: Vec::new(),
        }
    }
}

impl Config {
    /// Seed of all latencies and orders that the model leaves open.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Number of devices, 0 to 16.
    #[must_use]
    pub fn devices(mut self, devices: u32) -> Self {
        self.devices = devices.min(16);
        self
    }

    /// Version of CUDA that the driver claims to support; newer functions are hidden.
    #[must_use]
    pub fn driver_version(mut self, version: CudaVersion) -> Self {
        self.driver_version = version;
        self
    }

    /// Memory of each device in bytes.
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// Whether misuse that hardware would not notice is an error instead of only a report.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Whether the completion of an event becomes visible late.
    #[must_use]
    pub fn late_events(mut self, late: bool) -> Self {
        self.late_events = late;
        self
    }

    /// Adds a call that will fail.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// The configuration that the environment asks for.
    ///
    /// `CUDA_SIM_DEVICES`, `CUDA_SIM_SEED`, `CUDA_SIM_DRIVER_VERSION` (`12.2` or `12020`), `CUDA_SIM_MEMORY` (bytes of
    /// each device), `CUDA_SIM_STRICT`, `CUDA_SIM_LATE_EVENTS` (`1` for yes) and `CUDA_SIM_FAULTS`
    /// (`symbol:occurrence:code`, separated by commas). A value that cannot be read is as good as none.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name| variable(name).and_then(|text| text.trim().parse::<u64>().ok());
        let flag = |name| variable(name).is_some_and(|text| text.trim() == "1");
        let default = Self::default();
        Self {
            seed: number("CUDA_SIM_SEED").unwrap_or(default.seed),
            devices: number("CUDA_SIM_DEVICES")
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(default.devices)
                .min(16),
            driver_version: variable("CUDA_SIM_DRIVER_VERSION")
                .and_then(|text| parse_version(text.trim()))
                .unwrap_or(default.driver_version),
            capacity_bytes: number("CUDA_SIM_MEMORY").unwrap_or(default.capacity_bytes),
            strict: flag("CUDA_SIM_STRICT"),
            late_events: flag("CUDA_SIM_LATE_EVENTS"),
            faults: variable("CUDA_SIM_FAULTS")
                .map(|text| text.split(',').filter_map(|part| Fault::parse(part.trim())).collect())
                .unwrap_or_default(),
        }
    }
}

/// `12.2` or `12020`.
fn parse_version(text: &str) -> Option<CudaVersion> {
    if let Some((major, minor)) = text.split_once('.') {
        let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
        return Some(CudaVersion(major.checked_mul(1000)?.checked_add(minor.checked_mul(10)?)?));
    }
    text.parse().ok().map(CudaVersion)
}

/// One call that is answered with an error instead of being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Symbol of the function, for example `cuMemAlloc_v2`.
    pub call: &'static str,
    /// Which call of that function fails, counted from 1 at the moment the fault is injected.
    pub occurrence: u64,
    /// What it answers.
    pub code: CUresult,
}

impl Fault {
    /// Reads `symbol:occurrence:code`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (symbol, occurrence, code) = (parts.next()?, parts.next()?, parts.next()?);
        let call = crate::EXPORTS.iter().find(|export| export.symbol == symbol)?.symbol;
        Some(Self { call, occurrence: occurrence.parse().ok()?, code: CUresult(code.parse().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_is_read() {
        let config = Config::from_variables(|name| {
            let value = match name {
                "CUDA_SIM_DEVICES" => "2",
                "CUDA_SIM_DRIVER_VERSION" => "12.2",
                "CUDA_SIM_MEMORY" => "1073741824",
                "CUDA_SIM_STRICT" => "1",
                "CUDA_SIM_FAULTS" => "cuMemAlloc_v2:3:2, nonsense, cuInit:1:999",
                _ => return None,
            };
            Some(value.to_owned())
        });
        let expected = Config::default()
            .devices(2)
            .driver_version(CudaVersion(12020))
            .capacity(1 << 30)
            .strict(true)
            .fault(Fault { call: "cuMemAlloc_v2", occurrence: 3, code: CUresult::CUDA_ERROR_OUT_OF_MEMORY })
            .fault(Fault { call: "cuInit", occurrence: 1, code: CUresult::CUDA_ERROR_UNKNOWN });
        assert_eq!(config, expected);
    }

    #[test]
    fn versions_are_read_in_both_forms() {
        assert_eq!(parse_version("11.8"), Some(CudaVersion(11080)));
        assert_eq!(parse_version("13000"), Some(CudaVersion(13000)));
        assert_eq!(parse_version("new"), None);
    }
}
