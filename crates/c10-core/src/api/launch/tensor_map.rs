//! How a tensor in memory is described to the unit that copies tiles of it (the tensor memory accelerator).
//!
//! **Invariant:** a map covers only bytes of the range that it was made for.

use std::ops::Range;

use crate::api::buffers::DeviceBuffer;
use crate::base::device::DeviceIndex;
use crate::base::error::{MemoryError, Result};
use crate::base::tensor_map::TensorMapLayout;
use crate::driver::check_part;
use crate::runtime::Runtime;

/// A description of a tensor in device memory, of which kernels copy tiles to shared memory and back: a `CUtensorMap`.
/// Kernels take it as a parameter of 128 bytes ([`Self::bytes`], [`crate::Arg::Plain`]). What lies outside the tensor
/// comes as zeros, and is not written.
///
/// Devices of compute capability 9.0 and later copy by such maps; [`Self::is_available`] tells whether driver and device
/// do. A map does not keep its memory alive: a launch that uses it takes the buffer as an argument too.
///
/// ```
/// # testkit::make_default(testkit::Config::default()).unwrap();
/// use c10_core::{DeviceIndex, Runtime, TensorMap};
///
/// // The simulated driver makes no maps.
/// assert!(!TensorMap::is_available(&Runtime::current(), DeviceIndex(0))?);
/// # Ok::<(), c10_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "cuTensorMapEncodeTiled")]
pub struct TensorMap {
    words: [u64; 16],
}

impl TensorMap {
    /// Whether the driver makes such maps and the device copies by them.
    ///
    /// # Errors
    /// The device does not exist, or the driver's error.
    pub fn is_available(runtime: &Runtime, device: DeviceIndex) -> Result<bool> {
        let (major, _) = runtime.devices().capability(device)?;
        Ok(major >= 9 && runtime.ready()?.api.makes_tensor_maps())
    }

    /// Describes a tensor that begins at the start of a range of a buffer, whose address on the device is a multiple of
    /// 16 bytes. A host call: it queues nothing.
    ///
    /// # Errors
    /// The tensor reaches beyond the range, or the range beyond the buffer; the driver refuses the sizes (as
    /// `CUDA_ERROR_INVALID_VALUE`) or makes no such maps.
    pub fn new(buffer: &DeviceBuffer, range: Range<usize>, layout: &TensorMapLayout<'_>) -> Result<Self> {
        let len = check_part(&range, buffer.len())?;
        let bytes = layout.extent().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
        if bytes > len {
            return Err(MemoryError::OutOfRange { offset: 0, bytes, len }.into());
        }
        let address = buffer.address() + range.start as u64;
        Ok(Self { words: buffer.runtime().ready()?.api.tensor_map(buffer.device_index(), address, layout)? })
    }

    /// The bytes, as a kernel's parameter takes them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        bytemuck::bytes_of(&self.words)
    }
}
