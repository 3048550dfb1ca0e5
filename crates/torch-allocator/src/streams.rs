//! PyTorch's streams and devices as the runtime's.
//!
//! **Invariant:** PyTorch names a stream by its handle alone where it records a use, so that the device of each handle
//! that memory was asked for is kept. A handle that was never seen, and that of a default stream, is taken for one of
//! the memory's device.
//!
//! # Safety
//! The callers promise what they were promised by PyTorch: a handle names a stream, which lives long enough.
#![expect(unsafe_code, reason = "streams by the handles of others")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{PoisonError, RwLock};

use c10_core::{DeviceIndex, PointerInfo, Runtime, Stream, get_stream_from_external};

use crate::last_error::Failure;

static SEEN: RwLock<BTreeMap<usize, DeviceIndex>> = RwLock::new(BTreeMap::new());

/// A device by its number. The runtime says whether it exists; it would take a negative one for the current device.
pub(crate) fn device(device: c_int) -> Result<DeviceIndex, Failure> {
    if device >= 0 { Ok(DeviceIndex(device)) } else { Err(Failure::Argument(format!("there is no device {device}"))) }
}

/// The stream of that handle, which memory is asked for.
///
/// # Safety
/// The handle is 0, 1 or 2, or names a stream of the device that lives as long as memory that was used on it.
pub(crate) unsafe fn of_device(handle: *mut c_void, device: DeviceIndex) -> Result<Stream, Failure> {
    let handle = handle.addr();
    // SAFETY: as for this function.
    let stream = unsafe { get_stream_from_external(handle, device) }?;
    if !is_default(handle) && devices() > 1 {
        note(handle, device);
    }
    Ok(stream)
}

/// The stream of that handle, on which memory at `address` is used.
///
/// # Safety
/// As for [`of_device`], of whichever device.
pub(crate) unsafe fn of_use(handle: *mut c_void, address: u64) -> Result<Stream, Failure> {
    let device = device_of_use(handle.addr(), address)?;
    // SAFETY: as for this function.
    Ok(unsafe { get_stream_from_external(handle.addr(), device) }?)
}

fn device_of_use(handle: usize, address: u64) -> Result<DeviceIndex, Failure> {
    if devices() <= 1 {
        return Ok(DeviceIndex(0));
    }
    let seen = || SEEN.read().unwrap_or_else(PoisonError::into_inner).get(&handle).copied();
    if let Some(device) = Some(handle).filter(|&handle| !is_default(handle)).and_then(|_| seen()) {
        return Ok(device);
    }
    let info = PointerInfo::of(&Runtime::current(), address)?;
    info.map(|info| info.device).ok_or_else(|| Failure::Argument(format!("{address:#x} is no memory of a device")))
}

/// The handles of the default streams are the same on each device.
fn is_default(handle: usize) -> bool {
    handle <= 2
}

fn devices() -> usize {
    Runtime::current().device_count()
}

fn note(handle: usize, device: DeviceIndex) {
    if SEEN.read().unwrap_or_else(PoisonError::into_inner).get(&handle) == Some(&device) {
        return;
    }
    SEEN.write().unwrap_or_else(PoisonError::into_inner).insert(handle, device);
}
