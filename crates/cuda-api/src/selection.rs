//! Starting, and what stands for a device.

use c10_core::{Device, DeviceArg, DeviceError, DeviceIndex, DeviceProperties, Error, Result, Runtime};

/// Properties of a device, by the name torch gives the type.
#[doc(alias = "_CudaDeviceProperties")]
pub type CudaDeviceProperties = DeviceProperties;

/// Starts the runtime, if it was not, and runs the calls that wait for that; [`crate::init`] is its public name. A queued
/// call may call it.
///
/// # Errors
/// As for [`crate::init`].
#[doc(alias = "_lazy_init")]
pub fn lazy_init() -> Result<()> {
    crate::init()
}

/// The device that a number or a text stands for: a CUDA device for a number, and none in particular for -1 and `None`.
///
/// # Errors
/// The text names no device, or the number is below -1.
#[doc(alias = "_get_device")]
pub fn get_device(device: impl DeviceArg) -> Result<Device> {
    let index = match device.index() {
        Err(Error::Device(DeviceError::NotCuda { device })) => return Ok(device),
        index => index?,
    };
    let index = index.filter(|index| *index != DeviceIndex(-1));
    match index {
        Some(..0) => Err(Error::Device(DeviceError::InvalidId)),
        index => Ok(Device { index, ..Device::cuda(0) }),
    }
}

/// The number of a device; any number, negative ones too, stands for itself. A device without a number is the current one
/// with `optional`, which starts the runtime, and an error without. With `allow_cpu` the host's number is -1.
///
/// # Errors
/// The text names no device, or one of another kind; the device has no number and `optional` is not set; the runtime
/// cannot start.
#[doc(alias = "_get_device_index")]
pub fn get_device_index(device: impl DeviceArg, optional: bool, allow_cpu: bool) -> Result<DeviceIndex> {
    match device.index() {
        Ok(Some(index)) => Ok(index),
        Ok(None) if optional => Runtime::current().current_device(),
        Ok(None) => Err(Error::Device(DeviceError::IndexRequired { device: Device::CUDA })),
        Err(Error::Device(DeviceError::NotCuda { .. })) if allow_cpu => Ok(DeviceIndex(-1)),
        Err(error) => Err(error),
    }
}
