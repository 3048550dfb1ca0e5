//! What can be wrong with the name of a device.

use crate::base::device::{Device, DeviceIndex};

/// Why a device cannot be used by that name.
///
/// ```
/// use c10_core::{Device, DeviceError, Error};
///
/// let refused = "gpu:0".parse::<Device>().unwrap_err();
/// assert!(matches!(refused, Error::Device(DeviceError::InvalidString { .. })));
/// assert_eq!(refused.to_string(), "Invalid device string: 'gpu:0'");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A device index below zero or not below the number of devices; torch's assertion of that text.
    #[error("Invalid device id")]
    InvalidId,
    /// A second device's index below zero or not below the number of devices; torch's assertion of that text.
    #[error("Invalid peer device id")]
    InvalidPeerId,
    /// A text that names no device.
    #[error("Invalid device string: '{text}'")]
    InvalidString {
        /// The text.
        text: String,
    },
    /// A text that names no architecture of code.
    #[error("Invalid architecture: '{text}'. Expected a kind and a number such as sm_90 or compute_90")]
    InvalidArch {
        /// The text.
        text: String,
    },
    /// A device of another type where a CUDA device is needed.
    #[error("Expected a cuda device, but got: {device}")]
    NotCuda {
        /// What was given, for example `cpu`.
        device: Device,
    },
    /// A device without an index where one is needed.
    #[error("Expected a torch.device with a specified index or an integer, but got:{device}")]
    IndexRequired {
        /// What was given, for example `cuda`.
        device: Device,
    },
    /// A device that `CUDA_VISIBLE_DEVICES` does not name.
    #[error("device {device} is not visible (CUDA_VISIBLE_DEVICES={visible})")]
    NotVisible {
        /// The device.
        device: DeviceIndex,
        /// The devices that are visible, as a list of Python.
        visible: String,
    },
}
