//! Addresses of any origin.

use c10_core::{Device, Error, MemoryError, PointerInfo, PointerKind, PtrArg, Result, Runtime};

/// Whether an address is in pinned host memory, whoever has pinned it; torch's `Tensor.is_pinned`. Never starts the
/// runtime: before that nothing is pinned as far as torch knows.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/simulated.rs"));
/// let (pinned, plain) = (cuda_api::PinnedBuffer::new(100)?, [0_u8; 100]);
/// assert!(cuda_api::is_pinned(pinned.address())?);
/// assert!(!cuda_api::is_pinned(plain.as_ptr())?);
/// # Ok::<(), cuda_api::Error>(())
/// ```
///
/// # Errors
/// The driver's error.
pub fn is_pinned(ptr: impl PtrArg) -> Result<bool> {
    let runtime = Runtime::current();
    if !runtime.is_initialized() {
        return Ok(false);
    }
    Ok(PointerInfo::of(&runtime, ptr)?.is_some_and(|known| known.kind == PointerKind::Pinned))
}

/// The device that the memory at an address was made for, which may be pinned host memory; torch's
/// `at::cuda::getDeviceFromPtr`. Starts the runtime.
///
/// # Errors
/// [`crate::MemoryError::PointerOnNoDevice`] for an address that the driver does not know; the runtime cannot start; the driver's
/// error.
#[doc(alias = "getDeviceFromPtr")]
pub fn get_device_from_ptr(ptr: impl PtrArg) -> Result<Device> {
    let address = ptr.address();
    let known = PointerInfo::of(&Runtime::current(), address)?
        .ok_or(Error::Memory(MemoryError::PointerOnNoDevice { address }))?;
    Ok(Device::cuda(known.device))
}
