//! What NVML tells of a device: load, heat, clocks, and who uses it.
//!
//! **Invariant:** everything follows from the queued work and the configuration. Asking changes nothing and takes no
//! simulated time, since NVML is not a part of CUDA.

use super::State;

/// Heat of an idle device 0 in degrees Celsius; the others are a degree warmer each.
const IDLE_CELSIUS: u32 = 30;

/// Power of an idle device in milliwatts.
const IDLE_MILLIWATTS: u32 = 75_000;

/// Clocks of a device in MHz: graphics, multiprocessors, memory, video.
const CLOCKS_MHZ: [u32; 4] = [1980, 1980, 3201, 1545];

impl State {
    /// Percent of time that the device works, and that it reads or writes memory: of now, not of a period.
    pub(crate) fn utilization(&self, device: u32) -> (u32, u32) {
        let is_busy = |context: &u64| self.load_of(*context) > 0;
        let contexts = self.contexts.iter().filter(|(_, context)| context.device == device);
        if contexts.map(|(key, _)| key).any(is_busy) { (100, 50) } else { (0, 0) }
    }

    pub(crate) fn temperature_celsius(&self, device: u32) -> u32 {
        IDLE_CELSIUS + device + self.utilization(device).0 / 4
    }

    pub(crate) fn power_milliwatts(&self, device: u32) -> u32 {
        IDLE_MILLIWATTS + self.utilization(device).0 * 5_000
    }

    /// A clock by its number in NVML; `None` for one there is not.
    pub(crate) fn clock_mhz(&self, clock: u32) -> Option<u32> {
        CLOCKS_MHZ.get(usize::try_from(clock).ok()?).copied()
    }

    /// Processes with work on a device: this one if it has a context there, then the configured ones; with the bytes
    /// that each holds.
    pub(crate) fn processes(&self, device: u32) -> Vec<(u32, u64)> {
        let here = self.contexts.values().any(|context| context.device == device);
        let this = here.then(|| (std::process::id(), self.memory.used_bytes(device)));
        this.into_iter().chain(self.config.other_processes.iter().copied()).collect()
    }
}
