//! Device names: an index, and what a text or a torch device object says.
//!
//! Pure data. Which device is current, and for how long, is kept in `thread` and by the guards.

use std::fmt;
use std::str::FromStr;

use crate::base::error::{DeviceError, Error, Result};

/// Number of a device, counted from 0 among those the driver shows; a plain integer, as in torch's `c10`.
///
/// So `current_device()? == 0` compares, and `Some(0)`, `None` and an `Option<DeviceIndex>` all name a device where one
/// is asked for ([`crate::DeviceArg`]). Negative numbers can be written, since torch accepts them: a guard of a
/// negative number does nothing, and every other function refuses them.
pub type DeviceIndex = i32;

/// The device of that number. It returns the number itself; it is there for code in which a bare number would not say
/// what it means.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceBuffer, DeviceIndex};
///
/// assert_eq!(DeviceBuffer::new(4, DeviceIndex(0))?.device_index(), 0);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[must_use]
#[inline]
#[expect(non_snake_case, reason = "it stands where a constructor of the type would")]
pub const fn DeviceIndex(index: i32) -> DeviceIndex {
    index
}

/// Kind of a device.
///
/// ```
/// use c10_core::{Device, DeviceType};
///
/// assert_eq!("cuda:1".parse::<Device>()?.kind, DeviceType::Cuda);
/// assert_eq!(DeviceType::Cpu.to_string(), "cpu");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum DeviceType {
    /// The host.
    Cpu,
    /// A CUDA device.
    Cuda,
}

impl fmt::Display for DeviceType {
    /// As torch writes it: `cpu`, `cuda`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        })
    }
}

/// A device by kind and, perhaps, number; torch's `torch.device`.
///
/// Written `cuda:1`, `cuda` (the current one) or `cpu`.
///
/// ```
/// use c10_core::Device;
///
/// let device: Device = "cuda:1".parse()?;
/// assert_eq!((device, device.index), (Device::cuda(1), Some(1)));
/// assert_eq!((device.to_string(), Device::CUDA.to_string()), ("cuda:1".to_owned(), "cuda".to_owned()));
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Device {
    /// Kind of the device.
    pub kind: DeviceType,
    /// Its number; without one it is the current device of that kind.
    pub index: Option<DeviceIndex>,
}

impl Device {
    /// The current CUDA device.
    pub const CUDA: Self = Self { kind: DeviceType::Cuda, index: None };

    /// The CUDA device of that number.
    #[must_use]
    pub const fn cuda(index: i32) -> Self {
        Self { kind: DeviceType::Cuda, index: Some(DeviceIndex(index)) }
    }

    /// The index, where there is one.
    ///
    /// # Errors
    /// [`crate::DeviceError::NotCuda`] for a device of another kind.
    pub fn cuda_index(&self) -> Result<Option<DeviceIndex>> {
        if self.kind == DeviceType::Cuda {
            Ok(self.index)
        } else {
            Err(Error::Device(DeviceError::NotCuda { device: *self }))
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        self.index.map_or(Ok(()), |index| write!(f, ":{index}"))
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Reads `type[:index]`: a known type, and an index of decimal digits without sign or leading zero, at most 127.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Error::Device(DeviceError::InvalidString { text: text.to_owned() });
        let (kind, index) = match text.split_once(':') {
            Some((kind, index)) => (kind, Some(parse_index(index).ok_or_else(invalid)?)),
            None => (text, None),
        };
        let kind = match kind {
            "cpu" => DeviceType::Cpu,
            "cuda" => DeviceType::Cuda,
            _ => return Err(invalid()),
        };
        Ok(Self { kind, index })
    }
}

fn parse_index(text: &str) -> Option<DeviceIndex> {
    let canonical = text == "0" || (text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0'));
    let index = text.parse::<i8>().ok().filter(|_| canonical)?;
    Some(DeviceIndex(i32::from(index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_torchs() {
        for good in ["cuda", "cuda:0", "cuda:1", "cuda:127", "cpu", "cpu:0"] {
            assert_eq!(good.parse::<Device>().unwrap().to_string(), good);
        }
        for bad in ["", "cuda0", "cuda:", "cuda:-1", "cuda:+1", "cuda:01", "cuda:128", "gpu:0", "cuda:1:2", " cuda"] {
            let error = bad.parse::<Device>().unwrap_err();
            assert_eq!(error.to_string(), format!("Invalid device string: '{bad}'"));
        }
    }

    #[test]
    fn only_cuda_devices_have_a_cuda_index() {
        assert_eq!(Device::cuda(3).cuda_index(), Ok(Some(DeviceIndex(3))));
        let error = "cpu".parse::<Device>().unwrap().cuda_index().unwrap_err();
        assert_eq!(error.to_string(), "Expected a cuda device, but got: cpu");
    }
}
