//! What the driver knows of an address.

use std::fmt;

use crate::base::device::{Device, DeviceIndex};

/// Where memory is.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{PinnedBuffer, PointerInfo, PointerKind, Runtime};
///
/// let pinned = PinnedBuffer::new(100)?;
/// let known = PointerInfo::of(&Runtime::current(), pinned.address())?.expect("the driver pinned it");
/// assert_eq!(known.kind, PointerKind::Pinned);
/// assert_eq!(known.to_string(), "pinned memory of cuda:0");
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum PointerKind {
    /// On the device.
    Device,
    /// In host memory that the driver pinned, or that was registered with it.
    Pinned,
    /// In managed memory, which moves between host and device.
    Managed,
}

/// What the driver knows of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PointerInfo {
    /// The device that the memory was made for.
    pub device: DeviceIndex,
    /// Where the memory is.
    pub kind: PointerKind,
}

impl fmt::Display for PointerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::Pinned => "pinned",
            Self::Managed => "managed",
        })
    }
}

impl fmt::Display for PointerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} memory of {}", self.kind, Device::cuda(self.device))
    }
}
