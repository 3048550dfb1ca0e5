//! Code and the devices that run it.
//!
//! Torch checks its own code when it is imported. A program that brings kernels of its own gives their architectures to
//! [`check_capability`] and [`check_cubins`], perhaps by [`crate::lazy_call`].

use aten_cuda::{DType, Tensor};
use c10_core::{
    CompatTable, Device, DeviceArg, DeviceIndex, ModuleLoading, Result, Runtime, UnsupportedCode, UnsupportedCubins,
    gencode_flags,
};

pub use c10_core::extract_arch_version;

/// The architectures of the kernels that this library carries or writes, from the table by which they are built. PTX is
/// compiled by the driver for every device that is not older; programs may well carry kernels of other architectures.
#[must_use]
pub fn get_arch_list() -> &'static [&'static str] {
    aten_cuda::ARCHITECTURES
}

/// The compiler flags that name the architectures of [`get_arch_list`].
#[must_use]
pub fn get_gencode_flags() -> String {
    gencode_flags(get_arch_list()).unwrap_or_default()
}

/// Whether this library works with CUDA devices, which it always does; whether there are any says
/// [`crate::is_available`].
#[must_use]
#[doc(alias = "_is_compiled")]
#[doc(alias = "is_built")]
pub fn is_compiled() -> bool {
    true
}

/// Whether machine code for a compute capability runs on a device of another; 10 * major + minor each. Warns of code that
/// torch's table does not name, and compares the major numbers then. For another table see
/// [`CompatTable::code_compatible_with_device`].
///
/// ```
/// assert!(cuda_api::code_compatible_with_device(89, 80));
/// assert!(!cuda_api::code_compatible_with_device(90, 80));
/// ```
#[must_use]
#[doc(alias = "_code_compatible_with_device")]
pub fn code_compatible_with_device(device_cc: u32, code_cc: u32) -> bool {
    let table = CompatTable::default();
    c10_core::warn_unknown_code(code_cc, &table);
    table.code_compatible_with_device(device_cc, code_cc)
}

/// Warns that a device of the capability `device_cc` runs none of the code for `code_ccs`, with the rules and the CUDA
/// releases of `table`; the warning is also returned.
///
/// # Errors
/// The device does not exist; the runtime cannot start; the driver's error.
#[doc(alias = "_warn_unsupported_code")]
pub fn warn_unsupported_code(
    device_index: impl DeviceArg,
    device_cc: u32,
    code_ccs: &[u32],
    table: &CompatTable,
) -> Result<UnsupportedCode> {
    let runtime = Runtime::current();
    c10_core::warn_unsupported_code(&runtime, device_index.resolve(&runtime)?, device_cc, code_ccs, table)
}

/// Warns of every device that runs none of the code for these architectures, by the rules of `table`; the warnings are
/// also returned. PTX (`compute_90`) serves every device that is not older.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::{CompatTable, check_capability};
/// assert_eq!(check_capability(&["sm_80", "sm_90"], &CompatTable::default())?, []);
/// assert_eq!(check_capability(&["sm_80"], &CompatTable::default())?.len(), 1);
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// A name is no architecture; the runtime cannot start; the driver's error.
#[doc(alias = "_check_capability")]
pub fn check_capability(arch_list: &[impl AsRef<str>], table: &CompatTable) -> Result<Vec<UnsupportedCode>> {
    table.check_devices(&Runtime::current(), arch_list)
}

/// Warns of every device for which there is machine code of no architecture of its major number, and no PTX that could be
/// compiled for it; the warnings are also returned. Does nothing for an empty list.
///
/// # Errors
/// As for [`check_capability`].
#[doc(alias = "_check_cubins")]
pub fn check_cubins(arch_list: &[impl AsRef<str>]) -> Result<Vec<UnsupportedCubins>> {
    UnsupportedCubins::check_devices(&Runtime::current(), arch_list)
}

/// When the driver loads the functions of a module, which the environment variable `CUDA_MODULE_LOADING` decides; see
/// [`ModuleLoading::of`]. Starts the runtime.
///
/// # Errors
/// The runtime cannot start, or the driver's error.
pub fn module_loading() -> Result<ModuleLoading> {
    ModuleLoading::of(&Runtime::current())
}

/// Whether the current device can compute with numbers of the type bfloat16: from compute capability 8.0 on by itself,
/// and with `including_emulation` also where it can only hold them. `false` without a device.
///
/// # Errors
/// There is a device, but the runtime cannot start.
pub fn is_bf16_supported(including_emulation: bool) -> Result<bool> {
    let runtime = Runtime::current();
    if !runtime.is_available() {
        return Ok(false);
    }
    let device = runtime.current_device()?;
    let (major, _) = runtime.devices().capability(device)?;
    Ok(major >= 8 || (including_emulation && holds_bf16(device)))
}

/// Whether the current device can multiply matrices in the precision TF32: from compute capability 8.0 on. `false`
/// without a device.
///
/// # Errors
/// As for [`is_bf16_supported`].
pub fn is_tf32_supported() -> Result<bool> {
    is_bf16_supported(false)
}

/// Whether a device takes a tensor of bfloat16, which is tried; `false` also where it has no memory for one.
#[must_use]
#[doc(alias = "_check_bf16_tensor_supported")]
pub fn check_bf16_tensor_supported(device: impl DeviceArg) -> bool {
    let runtime = Runtime::current();
    device.resolve(&runtime).is_ok_and(holds_bf16)
}

fn holds_bf16(device: DeviceIndex) -> bool {
    let one = Tensor::from_scalar(1.0).and_then(|one| one.to_dtype(DType::BF16));
    one.and_then(|one| one.to_device(Device::cuda(device))).is_ok()
}
