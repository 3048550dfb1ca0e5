//! What may be given where torch takes `device=`.

use c10_core::{Device, DeviceType, Runtime};

use crate::base::error::Result;

/// A device: a [`Device`], a text such as `"cpu"`, `"cuda"` or `"cuda:1"`, or the device of a tensor.
pub trait ToDevice: sealed::Sealed {
    /// The device; a CUDA device without a number is the current one.
    ///
    /// # Errors
    /// The text names no device, or the runtime cannot start.
    fn to_device(self) -> Result<Device>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for c10_core::Device {}
    impl Sealed for &str {}
    impl Sealed for &crate::tensor::Tensor {}
}

impl ToDevice for Device {
    fn to_device(self) -> Result<Device> {
        match (self.kind, self.index) {
            (DeviceType::Cuda, None) => {
                let current = Runtime::with_current(Runtime::current_device)?;
                Ok(Self { index: Some(current), ..self })
            }
            (DeviceType::Cuda, Some(_)) => Ok(self),
            _ => Ok(Self { index: None, ..self }),
        }
    }
}

impl ToDevice for &str {
    fn to_device(self) -> Result<Device> {
        self.parse::<Device>()?.to_device()
    }
}

impl ToDevice for &crate::tensor::Tensor {
    fn to_device(self) -> Result<Device> {
        Ok(self.device())
    }
}
