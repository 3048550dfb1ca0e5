//! A simulated machine and a runtime on it, both bound to the test's thread.
//!
//! # Safety
//! A table is made of functions that behave as the C functions of their names.
#![expect(unsafe_code, reason = "a table of functions is vouched for")]
#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

use cuda_api::{Runtime, RuntimeGuard};
use cuda_sim::{Bound, Config, Machine};

pub(crate) struct Rig {
    _current: RuntimeGuard,
    pub(crate) machine: Machine,
    _bound: Bound,
}

#[allow(clippy::allow_attributes, dead_code, reason = "not every test program has a use for it")]
pub(crate) fn rig() -> Rig {
    on(Config::default().seed(2).devices(2))
}

pub(crate) fn on(config: Config) -> Rig {
    let machine = Machine::new(config);
    let bound = machine.bind();
    // SAFETY: the simulated driver's functions behave as the C functions of their names.
    let driver = unsafe { cuda_sys::Driver::from_functions(cuda_sim::functions()) }.unwrap();
    Rig { _current: Runtime::new(driver).bind(), machine, _bound: bound }
}

/// The same, with NVML.
#[allow(clippy::allow_attributes, dead_code, reason = "not every test program looks at NVML")]
pub(crate) fn with_nvml(config: Config) -> Rig {
    let rig = on(config);
    // SAFETY: the simulated functions behave as the C functions of their names.
    Runtime::current().telemetry().set_nvml(unsafe { cuda_sys::Nvml::from_functions(cuda_sim::nvml_functions()) });
    rig
}
