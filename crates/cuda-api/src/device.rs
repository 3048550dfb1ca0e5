//! Initialisation, devices and their properties.

use c10_core::{DeviceError, Error, Result};

pub use aten_cuda::blas::{clear_cublas_workspaces, current_blas_handle};
pub use c10_core::{
    Cudart, Device, DeviceArg, DeviceGuard, DeviceIndex, DeviceOf, DeviceProperties, DeviceType, Devices, Ipc, Runtime,
    RuntimeGuard, SyncDebug, SyncDebugMode, Telemetry, Uuid, check_error, cudaStatus,
};

pub use crate::arch::{
    check_bf16_tensor_supported, check_capability, check_cubins, code_compatible_with_device, extract_arch_version,
    get_arch_list, get_gencode_flags, is_bf16_supported, is_compiled, is_tf32_supported, module_loading,
    warn_unsupported_code,
};
pub use crate::pointer::get_device_from_ptr;
pub use crate::selection::{CudaDeviceProperties, get_device, get_device_index, lazy_init};
pub use crate::visibility::{
    device_count_nvml, get_nvml_device_index, nvml_based_avail, parse_visible_devices, raw_device_count_nvml,
    raw_device_uuid_nvml, transform_uuid_to_ordinals,
};
pub use c10_core::{
    CheckedDevice, Compat, CompatInterval, CompatSet, CompatTable, ModuleLoading, PointerInfo, PointerKind, PtrArg,
    UnsupportedCode, UnsupportedCubins, VisibleDevices,
};
pub use c10_core::{
    ClockLimits, ClockReadings, ComputeMode, DeviceReadings, EccReadings, LoadReadings, MemoryReadings, NoReading,
    NvLinkReadings, OfMax, PcieReadings, PcieThroughput, PowerReadings, Reading, RemappedRows, TemperatureReadings,
};

/// Starts the runtime, if it was not; torch's `init`. Everything that needs it does so by itself. Creates no context.
///
/// # Errors
/// No driver, a driver that is too old or does not start, no device, a process forked from one that had started, or a
/// call that was queued ([`lazy_call`]) fails.
pub fn init() -> Result<()> {
    Runtime::current().init()
}

/// Makes `runtime` the process-wide one. It must come before the first use of the process-wide runtime.
///
/// # Errors
/// Gives the runtime back when there is a process-wide one already.
pub fn init_with(runtime: Runtime) -> Result<(), Runtime> {
    runtime.make_default()
}

/// Whether the runtime has started, in this process. Calls nothing.
#[must_use]
pub fn is_initialized() -> bool {
    Runtime::current().is_initialized()
}

/// Whether there is a device to use. Never fails and does not start the runtime, but initialises the driver, so that
/// children which are forked later cannot use it. Where the environment variable `PYTORCH_NVML_BASED_CUDA_CHECK` is `1`
/// it asks as [`device_count`] does.
#[must_use]
pub fn is_available() -> bool {
    Runtime::current().is_available()
}

/// Number of devices; 0 without a usable driver. Never fails and does not start the runtime. NVML is asked first, which
/// leaves the driver alone. Before the runtime has started each call asks anew.
#[must_use]
pub fn device_count() -> usize {
    Runtime::current().device_count()
}

/// Number of this thread's current device.
///
/// # Errors
/// The runtime cannot start.
#[inline]
pub fn current_device() -> Result<DeviceIndex> {
    Runtime::with_current(Runtime::current_device)
}

/// Makes a device current on this thread; does nothing for a negative number. Creates no context.
///
/// # Errors
/// The device has no number, is no CUDA device, or does not exist (the driver's "invalid device ordinal").
pub fn set_device(device: impl DeviceArg) -> Result<()> {
    let index = device.index()?.ok_or(DeviceError::IndexRequired { device: Device::CUDA })?;
    Runtime::current().set_device(index)
}

/// A device is current until the guard is dropped; does nothing for a negative number. Creates no context.
///
/// # Errors
/// The device is no CUDA device or does not exist.
#[inline]
pub fn device(device: impl DeviceArg) -> Result<DeviceGuard> {
    Runtime::with_current(|runtime| runtime.device_guard(device.resolve(runtime)?))
}

/// Makes the device of a tensor, a storage, a buffer, a stream or a recorded event current until the guard is dropped;
/// does nothing for values that are not on a CUDA device, such as pinned memory.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// use cuda_api::{device_of, torch};
///
/// let tensor = torch::ones(&[2], torch::float32, "cuda:0")?;
/// let _guard = device_of(&tensor)?;
/// assert_eq!(cuda_api::current_device()?, 0);
/// # Ok::<(), torch::Error>(())
/// ```
///
/// # Errors
/// The runtime cannot start, or the device does not exist.
pub fn device_of(obj: &impl DeviceOf) -> Result<DeviceGuard> {
    device(obj.cuda_device().unwrap_or(-1))
}

/// Calls `body` with a device current. If `body` has another error type, use the guard of [`device()`] instead.
///
/// # Errors
/// As for [`device()`], else what `body` returned.
pub fn with_device<T>(device: impl DeviceArg, body: impl FnOnce() -> aten_cuda::Result<T>) -> aten_cuda::Result<T> {
    let _current = self::device(device)?;
    body()
}

/// Blocks until all work of a device is done.
///
/// # Errors
/// The device does not exist, its work failed, or a capture forbids waiting.
pub fn synchronize(device: impl DeviceArg) -> Result<()> {
    let runtime = Runtime::current();
    runtime.synchronize(device.resolve(&runtime)?)
}

/// Properties of a device.
///
/// # Errors
/// [`DeviceError::InvalidId`] for a device that does not exist, negative numbers included.
pub fn get_device_properties(device: impl DeviceArg) -> Result<DeviceProperties> {
    let runtime = Runtime::current();
    runtime.devices().properties(device.resolve(&runtime)?)
}

/// Name of a device.
///
/// # Errors
/// As for [`get_device_properties`].
pub fn get_device_name(device: impl DeviceArg) -> Result<String> {
    let runtime = Runtime::current();
    runtime.devices().name(device.resolve(&runtime)?)
}

/// Compute capability of a device: major and minor number.
///
/// # Errors
/// As for [`get_device_properties`].
pub fn get_device_capability(device: impl DeviceArg) -> Result<(i32, i32)> {
    let runtime = Runtime::current();
    runtime.devices().capability(device.resolve(&runtime)?)
}

/// Percent of the last sample period, of at most a second, in which a kernel ran on a device. NVML is asked, which
/// starts the runtime only for `None`.
///
/// # Errors
/// NVML cannot be loaded, finds no driver or fails; `CUDA_VISIBLE_DEVICES` does not name the device.
pub fn utilization(device: impl DeviceArg) -> Result<u32> {
    let runtime = Runtime::current();
    runtime.telemetry().utilization(device.resolve(&runtime)?)
}

/// Percent of the last sample period in which memory of a device was read or written; not how much of it is in use.
///
/// # Errors
/// As for [`utilization`].
pub fn memory_usage(device: impl DeviceArg) -> Result<u32> {
    let runtime = Runtime::current();
    runtime.telemetry().memory_usage(device.resolve(&runtime)?)
}

/// Temperature of a device in degrees Celsius.
///
/// # Errors
/// As for [`utilization`].
pub fn temperature(device: impl DeviceArg) -> Result<u32> {
    let runtime = Runtime::current();
    runtime.telemetry().temperature(device.resolve(&runtime)?)
}

/// Power that a device draws, in milliwatts.
///
/// # Errors
/// As for [`utilization`].
pub fn power_draw(device: impl DeviceArg) -> Result<u32> {
    let runtime = Runtime::current();
    runtime.telemetry().power_draw(device.resolve(&runtime)?)
}

/// Clock of a device's multiprocessors in MHz.
///
/// # Errors
/// As for [`utilization`].
pub fn clock_rate(device: impl DeviceArg) -> Result<u32> {
    let runtime = Runtime::current();
    runtime.telemetry().clock_rate(device.resolve(&runtime)?)
}

/// Whether work of `device` can reach memory of `peer_device`, which must have a number; a device reaches its own.
///
/// # Errors
/// [`DeviceError::InvalidId`] or [`DeviceError::InvalidPeerId`] for a device that does not exist; `peer_device` has no
/// number.
pub fn can_device_access_peer(device: impl DeviceArg, peer_device: impl DeviceArg) -> Result<bool> {
    let runtime = Runtime::current();
    let peer = peer_device.index()?.ok_or(DeviceError::IndexRequired { device: Device::CUDA })?;
    runtime.devices().can_access_peer(device.resolve(&runtime)?, peer)
}

/// Makes a device current and answers the one before; for a negative number changes nothing and answers -1. Creates no
/// context.
///
/// # Errors
/// The runtime cannot start, or there is no such device.
#[doc(alias = "_exchange_device")]
pub fn exchange_device(device: DeviceIndex) -> Result<DeviceIndex> {
    Runtime::current().exchange_device(device)
}

/// As [`exchange_device`], of which torch's may create a context where this does not. Here neither does.
///
/// # Errors
/// As for [`exchange_device`].
#[doc(alias = "_maybe_exchange_device")]
pub fn maybe_exchange_device(device: DeviceIndex) -> Result<DeviceIndex> {
    Runtime::current().maybe_exchange_device(device)
}

/// Whether this process was forked from one in which a runtime had started, so that none works here.
#[must_use]
#[doc(alias = "_is_in_bad_fork")]
pub fn is_in_bad_fork() -> bool {
    Runtime::is_in_bad_fork()
}

/// The part of the CUDA runtime API that torch shows. Starts the runtime.
///
/// # Errors
/// The runtime cannot start.
pub fn cudart() -> Result<Cudart> {
    Runtime::current().cudart()
}

/// Says what happens when a copy or a wait for a stream makes the host wait: a mode, 0, 1 or 2, or `"default"`,
/// `"warn"` or `"error"`. For all threads. The first call warns that this is a prototype.
///
/// # Errors
/// The number or the name is not that of a mode, or the runtime cannot start.
pub fn set_sync_debug_mode<M>(debug_mode: M) -> Result<()>
where
    M: TryInto<SyncDebugMode, Error: Into<Error>>,
{
    Runtime::current().sync_debug().set(debug_mode)
}

/// What happens when a copy or a wait for a stream makes the host wait.
///
/// # Errors
/// The runtime cannot start.
pub fn get_sync_debug_mode() -> Result<SyncDebugMode> {
    Runtime::current().sync_debug().mode()
}

/// Lets go of memory that was sent to other processes and that all of them have dropped.
///
/// # Errors
/// The runtime cannot start.
pub fn ipc_collect() -> Result<()> {
    Runtime::current().ipc().collect()
}

/// Calls `call` now, if the runtime has started, and else when it does. A queued call that fails makes what started the
/// runtime fail, and is tried again by [`init`].
///
/// # Errors
/// What `call` answers where it is called now.
#[doc(alias = "_lazy_call")]
#[track_caller]
pub fn lazy_call(call: impl FnMut(&Runtime) -> Result<()> + Send + 'static) -> Result<()> {
    Runtime::current().lazy_call(call)
}
