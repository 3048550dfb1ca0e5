//! Which streams memory is served for, and of which device they are.
//!
//! **Invariants:** a stream is known from the first request on it until it is destroyed, so that a handle which the driver
//! gives away again is looked at again. Only streams of a device's primary context are served, because that is where the
//! allocator's memory is.
//!
//! # Safety
//! Handles are those that the program passes to the driver's functions, whose duty it is that they name streams.
#![expect(unsafe_code, reason = "asks the driver about streams")]

use std::collections::HashMap;
use std::ptr;
use std::sync::{PoisonError, RwLock};

use c10_core::{DeviceIndex, Runtime};
use cuda_sys::driver::types::*;
use cuda_sys::{Driver, DriverError};

/// The device of each stream that memory was asked for or given back on; none for streams that are not served.
static SEEN: RwLock<Option<HashMap<usize, Option<DeviceIndex>>>> = RwLock::new(None);

/// `CU_STREAM_LEGACY`, another name of the default stream.
pub(crate) const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`: a stream for each thread and context under one name.
pub(crate) const PER_THREAD: usize = 2;

/// The device of the stream; none if it is not served.
///
/// # Safety
/// The handle names a stream, or a default stream of the context that is current.
pub(crate) unsafe fn device(driver: &Driver, stream: usize) -> Option<DeviceIndex> {
    if stream <= PER_THREAD {
        // SAFETY: null is allowed for "the current one".
        return unsafe { of_context(driver, current(driver)?) };
    }
    let known =
        SEEN.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|seen| seen.get(&stream).copied());
    if let Some(device) = known {
        return device;
    }
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: a stream, and `context` outlives the call.
    unsafe { driver.cuStreamGetCtx(ptr::with_exposed_provenance_mut(stream), &mut context) }.ok()?;
    // SAFETY: the context of a stream.
    let device = unsafe { of_context(driver, context) };
    SEEN.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(stream, device);
    device
}

/// Forgets a stream that ends; whether memory was served for it.
pub(crate) fn forget(stream: usize) -> bool {
    let mut seen = SEEN.write().unwrap_or_else(PoisonError::into_inner);
    seen.as_mut().and_then(|seen| seen.remove(&stream)).flatten().is_some()
}

/// What becomes of calls on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// They run.
    Runs,
    /// They become nodes of a graph.
    Captures,
    /// They are refused until the capture is ended.
    CaptureFailed,
}

/// # Errors
/// There is no such stream, or a default stream may not be used while another one captures.
///
/// # Safety
/// As for [`device`].
pub(crate) unsafe fn asked(driver: &Driver, stream: usize) -> Result<Use, DriverError> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: a stream, and `status` outlives the call.
    unsafe { driver.cuStreamIsCapturing(ptr::with_exposed_provenance_mut(stream), &mut status) }?;
    Ok(match status {
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Use::Runs,
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => Use::Captures,
        _ => Use::CaptureFailed,
    })
}

/// The context that is current on the calling thread.
pub(crate) fn current(driver: &Driver) -> Option<CUcontext> {
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: `context` outlives the call.
    unsafe { driver.cuCtxGetCurrent(&mut context) }.ok()?;
    (!context.is_null()).then_some(context)
}

/// The device of which the context is the primary one.
///
/// # Safety
/// The context is alive.
pub(crate) unsafe fn of_context(driver: &Driver, context: CUcontext) -> Option<DeviceIndex> {
    let runtime = Runtime::default_runtime();
    let count = runtime.init().map_or(0, |()| runtime.device_count());
    (0..i32::try_from(count).ok()?).map(DeviceIndex).find(|&device| primary(driver, device) == Some(context))
}

/// A device's primary context, if there is one.
fn primary(driver: &Driver, index: DeviceIndex) -> Option<CUcontext> {
    let (mut device, mut flags, mut active) = (CUdevice::default(), 0, 0);
    // SAFETY: `device` outlives the call.
    unsafe { driver.cuDeviceGet(&mut device, index) }.ok()?;
    // SAFETY: the numbers outlive the call.
    unsafe { driver.cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) }.ok()?;
    if active == 0 {
        return None;
    }
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: `context` outlives the call.
    unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, device) }.ok()?;
    // SAFETY: retained by the call before; somebody else keeps it active.
    let _ = unsafe { driver.cuDevicePrimaryCtxRelease_v2(device) };
    Some(context)
}
