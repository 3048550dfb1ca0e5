//! A simulated machine and a runtime on it, both bound to the test's thread.

use testkit::{Config, Machine, SimulatedRuntime, Simulation};

pub(crate) struct Rig {
    pub(crate) machine: Machine,
    _simulated: SimulatedRuntime,
}

#[allow(clippy::allow_attributes, dead_code, reason = "not every test program has a use for it")]
pub(crate) fn rig() -> Rig {
    on(Config::default().seed(2).devices(2))
}

pub(crate) fn on(config: Config) -> Rig {
    of(Simulation::new(config))
}

/// The same, with NVML.
#[allow(clippy::allow_attributes, dead_code, reason = "not every test program looks at NVML")]
pub(crate) fn with_nvml(config: Config) -> Rig {
    of(Simulation::new(config).with_nvml())
}

fn of(simulation: Simulation) -> Rig {
    Rig { machine: simulation.machine().clone(), _simulated: simulation.here() }
}
