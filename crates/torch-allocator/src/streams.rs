//! PyTorch's streams and devices as the runtime's.
//!
//! **Invariant:** PyTorch names a stream by its handle alone where it records a use, so that with several devices that of
//! each handle is kept, by which memory was asked for or about which the driver was asked. The handle of a default stream,
//! which is the same on each device, is taken for that of the memory's device.
//!
//! **Invariant:** the device that PyTorch has chosen for a thread stays chosen: CUDA's runtime library takes the context that
//! is current for it.
//!
//! # Safety
//! The callers promise what they were promised by PyTorch: a handle names a stream, which lives long enough.
#![expect(unsafe_code, reason = "streams by the handles of others")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{OnceLock, PoisonError, RwLock};

use c10_core::{DeviceIndex, PointerInfo, Runtime, Stream, get_stream_from_external};
use cuda_sys::Driver;
use cuda_sys::driver::types::CUdevice;

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
    // SAFETY: as for this function.
    let device = unsafe { device_of_use(handle.addr(), address) }?;
    // SAFETY: as for this function.
    Ok(unsafe { get_stream_from_external(handle.addr(), device) }?)
}

/// # Safety
/// As for [`of_use`].
unsafe fn device_of_use(handle: usize, address: u64) -> Result<DeviceIndex, Failure> {
    if devices() <= 1 {
        return Ok(DeviceIndex(0));
    }
    let seen = || SEEN.read().unwrap_or_else(PoisonError::into_inner).get(&handle).copied();
    if !is_default(handle) {
        // SAFETY: as for this function.
        if let Some(device) = seen().or_else(|| unsafe { ask(handle) }) {
            note(handle, device);
            return Ok(device);
        }
    }
    let info = PointerInfo::of(&Runtime::current(), address)?;
    info.map(|info| info.device).ok_or_else(|| Failure::Argument(format!("{address:#x} is no memory of a device")))
}

/// The device of a stream, by the driver; none if it cannot tell.
///
/// # Safety
/// The handle names a stream that is no default stream.
unsafe fn ask(handle: usize) -> Option<DeviceIndex> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| Driver::load().ok()).as_ref()?;
    let (mut context, mut device) = (ptr::null_mut(), CUdevice::default());
    // SAFETY: a stream, and `context` outlives the call.
    unsafe { driver.cuStreamGetCtx(ptr::with_exposed_provenance_mut(handle), &mut context) }.ok()?;
    // SAFETY: the context of a stream.
    unsafe { driver.cuCtxPushCurrent_v2(context) }.ok()?;
    // SAFETY: `device` outlives the call.
    let known = unsafe { driver.cuCtxGetDevice(&mut device) };
    // SAFETY: the context was pushed above.
    unsafe { driver.cuCtxPopCurrent_v2(&mut context) }.ok()?;
    known.ok()?;
    let count = i32::try_from(devices()).ok()?;
    (0..count).map(DeviceIndex).find(|&index| {
        let mut numbered = CUdevice::default();
        // SAFETY: `numbered` outlives the call.
        unsafe { driver.cuDeviceGet(&mut numbered, index) }.is_ok() && numbered == device
    })
}

/// Calls `body`, which may make another device's context current for its own calls.
#[inline]
pub(crate) fn keep_device<R>(body: impl FnOnce() -> R) -> R {
    // Before it has started nothing is asked, so that the process can still fork.
    let runtime = Runtime::current();
    if runtime.is_initialized() && runtime.device_count() > 1 { runtime.keep_context(body) } else { body() }
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
