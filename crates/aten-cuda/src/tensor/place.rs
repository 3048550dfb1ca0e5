//! What may be given where torch takes `device=`, and what `to` takes.

use c10_core::{Device, DeviceType, Runtime};

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::tensor::Tensor;

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
    impl Sealed for crate::base::dtype::DType {}
    impl<D: super::ToDevice> Sealed for (D, crate::base::dtype::DType) {}
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

impl ToDevice for &Tensor {
    fn to_device(self) -> Result<Device> {
        Ok(self.device())
    }
}

/// Where [`Tensor::to`] takes elements: a device, a dtype, both of them, or those of another tensor.
pub trait Destination: sealed::Sealed {
    /// The device and the dtype, each as far as it is told.
    ///
    /// # Errors
    /// The text names no device, or the runtime cannot start.
    fn destination(self) -> Result<(Option<Device>, Option<DType>)>;
}

impl Destination for Device {
    fn destination(self) -> Result<(Option<Device>, Option<DType>)> {
        Ok((Some(self.to_device()?), None))
    }
}

impl Destination for &str {
    fn destination(self) -> Result<(Option<Device>, Option<DType>)> {
        Ok((Some(self.to_device()?), None))
    }
}

impl Destination for DType {
    fn destination(self) -> Result<(Option<Device>, Option<DType>)> {
        Ok((None, Some(self)))
    }
}

impl<D: ToDevice> Destination for (D, DType) {
    fn destination(self) -> Result<(Option<Device>, Option<DType>)> {
        Ok((Some(self.0.to_device()?), Some(self.1)))
    }
}

impl Destination for &Tensor {
    fn destination(self) -> Result<(Option<Device>, Option<DType>)> {
        Ok((Some(self.device()), Some(self.dtype())))
    }
}
