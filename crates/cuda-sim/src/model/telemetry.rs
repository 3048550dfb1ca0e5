//! What NVML tells of a device: load, heat, clocks, and who uses it.
//!
//! **Invariant:** everything follows from the queued work, the configuration, and what processes that share the machine tell.
//! Asking changes nothing and takes no simulated time, since NVML is not a part of CUDA.

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
        let is_busy = self.works_on(device) || self.memory.others(device).iter().any(|other| other.has_work);
        if is_busy { (100, 50) } else { (0, 0) }
    }

    fn works_on(&self, device: u32) -> bool {
        let mut contexts = self.contexts.iter().filter(|(_, context)| context.device == device);
        contexts.any(|(&key, _)| self.load_of(key) > 0)
    }

    fn has_context_on(&self, device: u32) -> bool {
        self.contexts.values().any(|context| context.device == device)
    }

    /// Tells the processes that share the machine what this one has on each device beside memory.
    pub(crate) fn tell_others(&mut self) {
        if self.memory.file().is_none() {
            return;
        }
        for device in 0..self.config.devices {
            let (has_context, has_work) = (self.has_context_on(device), self.works_on(device));
            if let Some(file) = self.memory.file() {
                file.tell(device, has_context, has_work);
            }
        }
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

    /// Processes with a context on a device: this one, those that share the machine, then the configured ones; with the bytes
    /// that each holds.
    pub(crate) fn processes(&self, device: u32) -> Vec<(u32, u64)> {
        let this = self.has_context_on(device).then(|| (std::process::id(), self.memory.used_bytes(device)));
        let others = self.memory.others(device).into_iter().filter(|other| other.has_context);
        let shared = others.map(|other| (other.pid, other.bytes));
        this.into_iter().chain(shared).chain(self.config.other_processes.iter().copied()).collect()
    }
}
