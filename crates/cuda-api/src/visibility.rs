//! Which of the machine's devices this process sees, by `CUDA_VISIBLE_DEVICES` and NVML. Nothing here starts the runtime.

use c10_core::{DeviceArg, Result, Runtime, VisibleDevices};

pub use c10_core::transform_uuid_to_ordinals;

/// What `CUDA_VISIBLE_DEVICES` says now: numbers of devices, or beginnings of the texts that identify them.
#[must_use]
#[doc(alias = "_parse_visible_devices")]
pub fn parse_visible_devices() -> VisibleDevices {
    VisibleDevices::of_environment()
}

/// Number of devices of the machine, whatever `CUDA_VISIBLE_DEVICES` says.
///
/// # Errors
/// NVML cannot be loaded, finds no driver or fails. Torch answers -1 then.
#[doc(alias = "_raw_device_count_nvml")]
pub fn raw_device_count_nvml() -> Result<usize> {
    Runtime::current().telemetry().raw_device_count()
}

/// The texts that identify the machine's devices, such as `GPU-63756461-2d73-696d-2064-657669636530`, in NVML's order.
///
/// # Errors
/// As for [`raw_device_count_nvml`]. Torch answers `None` then.
#[doc(alias = "_raw_device_uuid_nvml")]
pub fn raw_device_uuid_nvml() -> Result<Vec<String>> {
    Runtime::current().telemetry().raw_device_uuids()
}

/// Number of devices that CUDA will show, as far as NVML and `CUDA_VISIBLE_DEVICES` tell; `None` where they do not, for
/// which torch answers -1.
#[must_use]
#[doc(alias = "_device_count_nvml")]
pub fn device_count_nvml() -> Option<usize> {
    Runtime::current().telemetry().device_count()
}

/// NVML's number of a device of this process.
///
/// # Errors
/// [`crate::DeviceError::NotVisible`]; identities are to be compared and NVML cannot be asked for them; the runtime
/// cannot start, for `None`.
#[doc(alias = "_get_nvml_device_index")]
pub fn get_nvml_device_index(device: impl DeviceArg) -> Result<u32> {
    let runtime = Runtime::current();
    runtime.telemetry().device_index(device.resolve(&runtime)?)
}

/// Whether [`crate::is_available`] asks NVML first: the environment variable `PYTORCH_NVML_BASED_CUDA_CHECK` is `1`.
#[must_use]
#[doc(alias = "_nvml_based_avail")]
pub fn nvml_based_avail() -> bool {
    std::env::var("PYTORCH_NVML_BASED_CUDA_CHECK").as_deref() == Ok("1")
}
