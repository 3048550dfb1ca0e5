//! What the functions do: whom a request goes to, and what comes back.
//!
//! **Invariant:** the driver never frees at an address in the allocator's segments, the first of which it would take for the
//! whole segment.
//!
//! # Safety
//! The functions here have the duties of the C functions that call them.
#![expect(unsafe_code, reason = "passes on what C programs pass")]

use std::ptr;

use c10_core::panics::caught;
use c10_core::{Error, MemoryError, Runtime, SegmentInfo, Stream, get_stream_from_external};
use cuda_sys::driver::types::*;
use cuda_sys::{CUresult, Driver, DriverError};

use crate::real::driver;
use crate::streams::{self, Use};
use crate::threads::{self, StandIn};

/// Why a function of this library has no answer of its own.
enum Other {
    /// The driver serves the request.
    Driver,
    /// The answer is this code.
    Code(CUresult),
}

impl From<Error> for Other {
    fn from(error: Error) -> Self {
        Self::Code(if matches!(error, Error::Memory(MemoryError::InvalidPointer { .. })) {
            CUresult::CUDA_ERROR_INVALID_VALUE
        } else if error.is_out_of_memory() {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY
        } else {
            error.error_code().map_or(CUresult::CUDA_ERROR_UNKNOWN, CUresult)
        })
    }
}

impl From<DriverError> for Other {
    fn from(error: DriverError) -> Self {
        Self::Code(code(Err(error)))
    }
}

/// The answer of `ours`, or that of the driver's function where it has none. Panics are errors.
fn answer(
    ours: impl FnOnce(&'static Driver) -> Result<(), Other>,
    theirs: impl FnOnce(&'static Driver) -> Result<(), DriverError>,
) -> CUresult {
    let Some(driver) = driver() else { return CUresult::CUDA_ERROR_NOT_INITIALIZED };
    match caught(|| ours(driver)) {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(Other::Code(code))) => code,
        Ok(Err(Other::Driver)) => code(theirs(driver)),
        Err(_) => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// The code of an answer. A function that this driver lacks is not supported.
pub(crate) fn code(answer: Result<(), DriverError>) -> CUresult {
    match answer {
        Ok(()) => CUresult::CUDA_SUCCESS,
        Err(error) => error.status().unwrap_or(CUresult::CUDA_ERROR_NOT_SUPPORTED),
    }
}

/// `cuMemAllocAsync`; `theirs` is the driver's function.
///
/// # Safety
/// The duties of the C function.
pub(crate) unsafe fn allocate(
    place: *mut CUdeviceptr,
    size: usize,
    stream: usize,
    theirs: impl FnOnce(&'static Driver) -> Result<(), DriverError>,
) -> CUresult {
    let ours = |driver: &'static Driver| {
        if place.is_null() || size == 0 {
            return Err(Other::Driver);
        }
        // SAFETY: as for this function.
        let served = unsafe { served(driver, stream) }?.ok_or(Other::Driver)?;
        let runtime = Runtime::default_runtime();
        let address = runtime.keep_context(|| runtime.memory().alloc(size as u64, &served.stream))?;
        if let Some(own) = &served.own {
            if threads::has_work_on_streams()
                && let Err(error) = own.lead(driver)
            {
                runtime.keep_context(|| runtime.memory().free(address))?;
                return Err(error.into());
            }
            threads::note(address, own);
        }
        // SAFETY: a place for an address.
        unsafe { place.write(address) };
        Ok(())
    };
    answer(ours, theirs)
}

/// A stream as the allocator knows it.
struct Served {
    stream: Stream,
    /// Set where it stands for the calling thread's default stream.
    own: Option<StandIn>,
}

/// The stream, if the allocator serves it now.
///
/// # Safety
/// The handle names a stream, or a default stream of the context that is current.
unsafe fn served(driver: &Driver, handle: usize) -> Result<Option<Served>, Other> {
    // A thread's own stream is looked up by the context, and faster than the device is found.
    let device = match handle {
        streams::PER_THREAD => None,
        // SAFETY: as for this function.
        _ => unsafe { streams::device(driver, handle) },
    };
    if device.is_none() && handle != streams::PER_THREAD {
        return Ok(None);
    }
    // SAFETY: as for this function.
    if unsafe { streams::asked(driver, handle) }? != Use::Runs {
        return Ok(None);
    }
    let own = if device.is_none() { threads::own(driver)? } else { None };
    let Some(device) = device.or(own.map(|own| own.device)) else { return Ok(None) };
    let handle = match (handle, own) {
        (_, Some(own)) => own.stream,
        (streams::LEGACY, None) => 0,
        (other, None) => other,
    };
    // SAFETY: a stream of that device, which is waited for before it is destroyed, or never destroyed.
    Ok(Some(Served { stream: unsafe { get_stream_from_external(handle, device) }?, own }))
}

/// `cuMemFreeAsync`; `theirs` is the driver's function.
///
/// # Safety
/// The duties of the C function.
pub(crate) unsafe fn free(
    address: CUdeviceptr,
    stream: usize,
    theirs: impl FnOnce(&'static Driver) -> Result<(), DriverError>,
) -> CUresult {
    let ours = |driver: &'static Driver| {
        let runtime = Runtime::default_runtime();
        if address == 0 || !runtime.is_initialized() {
            return Err(Other::Driver);
        }
        // SAFETY: as for this function.
        let Some(used) = (unsafe { served(driver, stream) })? else {
            // SAFETY: as for this function.
            return unsafe { free_unserved(driver, &runtime, address, stream) };
        };
        runtime.keep_context(|| {
            // Says as well whether the memory is handed out.
            runtime.memory().record_stream(address, &used.stream).map_err(|error| unknown(&runtime, address, error))?;
            let owner = threads::forget(address);
            if let Some(own) = &used.own
                && (owner != Some(own.stream) || threads::has_work_on_streams())
            {
                own.follow(driver)?;
            }
            Ok(runtime.memory().free(address)?)
        })
    };
    answer(ours, theirs)
}

/// Frees memory on a stream that is not served.
///
/// # Safety
/// As for [`served`].
unsafe fn free_unserved(driver: &Driver, runtime: &Runtime, address: CUdeviceptr, stream: usize) -> Result<(), Other> {
    if !is_handed_out(runtime, address)? {
        return Err(Other::Driver);
    }
    // SAFETY: as for this function.
    Err(match unsafe { streams::asked(driver, stream) }? {
        // Of a capture the driver, too, takes only memory back that the same capture has allocated.
        Use::Captures => Other::Code(CUresult::CUDA_ERROR_INVALID_VALUE),
        Use::CaptureFailed => Other::Code(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        Use::Runs if stream == streams::PER_THREAD && threads::is_ending() => {
            // SAFETY: the calling thread's stream.
            unsafe { driver.cuStreamSynchronize(ptr::with_exposed_provenance_mut(stream)) }?;
            threads::forget(address);
            return Ok(runtime.keep_context(|| runtime.memory().free(address))?);
        }
        Use::Runs => Other::Code(CUresult::CUDA_ERROR_INVALID_CONTEXT),
    })
}

/// `cuMemFree_v2`.
///
/// # Safety
/// The duties of the C function.
pub(crate) unsafe fn free_now(address: CUdeviceptr) -> CUresult {
    let ours = |driver: &'static Driver| {
        let runtime = Runtime::default_runtime();
        if address == 0 || !runtime.is_initialized() || !is_handed_out(&runtime, address)? {
            return Err(Other::Driver);
        }
        // SAFETY: waits for the context that is current, as the driver's function does.
        unsafe { driver.cuCtxSynchronize() }?;
        threads::forget(address);
        Ok(runtime.keep_context(|| runtime.memory().free(address))?)
    };
    // SAFETY: as for this function.
    answer(ours, |driver| unsafe { driver.cuMemFree_v2(address) })
}

/// `cuStreamDestroy_v2`.
///
/// # Safety
/// The duties of the C function.
pub(crate) unsafe fn destroy(stream: CUstream) -> CUresult {
    let ours = |driver: &'static Driver| {
        if streams::forget(stream.addr()) {
            // A stream that captures cannot be waited for, and has nothing queued.
            // SAFETY: a stream, which the caller gives up.
            let _ = unsafe { driver.cuStreamSynchronize(stream) };
        }
        Err(Other::Driver)
    };
    // SAFETY: as for this function.
    answer(ours, |driver| unsafe { driver.cuStreamDestroy_v2(stream) })
}

/// `cuMemGetAddressRange_v2`: of the allocator's memory the range that was asked for.
///
/// # Safety
/// The duties of the C function.
pub(crate) unsafe fn range(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr) -> CUresult {
    let ours = |_: &'static Driver| {
        let runtime = Runtime::default_runtime();
        let segment = segment(&runtime, address).ok_or(Other::Driver)?;
        let holds = |start: u64, length: u64| (start..start + length).contains(&address);
        let handed_out = segment.blocks.iter().filter(|block| block.state.name() == "active_allocated");
        let found = handed_out.map(|block| (block.address, block.requested_size));
        let (start, length) = found
            .into_iter()
            .find(|&(start, length)| holds(start, length))
            .ok_or(Other::Code(CUresult::CUDA_ERROR_INVALID_VALUE))?;
        if !base.is_null() {
            // SAFETY: a place for an address.
            unsafe { base.write(start) };
        }
        if !size.is_null() {
            // SAFETY: a place for a number.
            unsafe { size.write(usize::try_from(length).unwrap_or(usize::MAX)) };
        }
        Ok(())
    };
    // SAFETY: as for this function.
    answer(ours, |driver| unsafe { driver.cuMemGetAddressRange_v2(base, size, address) })
}

/// `cuIpcGetMemHandle`, which the driver refuses for memory that was allocated on a stream.
///
/// # Safety
/// The duties of the C function.
pub(crate) unsafe fn handle_of(place: *mut CUipcMemHandle, address: CUdeviceptr) -> CUresult {
    let ours = |_: &'static Driver| match segment(&Runtime::default_runtime(), address) {
        Some(_) => Err(Other::Code(CUresult::CUDA_ERROR_INVALID_VALUE)),
        None => Err(Other::Driver),
    };
    // SAFETY: as for this function.
    answer(ours, |driver| unsafe { driver.cuIpcGetMemHandle(place, address) })
}

/// The allocator's segment in which an address lies.
fn segment(runtime: &Runtime, address: CUdeviceptr) -> Option<SegmentInfo> {
    if !runtime.is_initialized() {
        return None;
    }
    let holds = |segment: &SegmentInfo| (segment.address..segment.address + segment.total_size).contains(&address);
    runtime.memory().snapshot(None).into_iter().find(holds)
}

/// Whether the allocator has handed the address out.
///
/// # Errors
/// It lies in a segment and is not handed out.
fn is_handed_out(runtime: &Runtime, address: CUdeviceptr) -> Result<bool, Other> {
    let Some(segment) = segment(runtime, address) else { return Ok(false) };
    let block = segment.blocks.iter().find(|block| block.address == address);
    match block.map(|block| block.state.name()) {
        Some("active_allocated") => Ok(true),
        _ => Err(Other::Code(CUresult::CUDA_ERROR_INVALID_VALUE)),
    }
}

/// What an address means that the allocator has not handed out.
#[cold]
fn unknown(runtime: &Runtime, address: CUdeviceptr, error: Error) -> Other {
    let is_unknown = matches!(error, Error::Memory(MemoryError::InvalidPointer { .. }));
    if is_unknown && segment(runtime, address).is_none() { Other::Driver } else { error.into() }
}

/// The stream that a function for the default stream of each thread means.
pub(crate) fn per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { ptr::with_exposed_provenance_mut(streams::PER_THREAD) } else { stream }
}
