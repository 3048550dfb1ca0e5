//! The functions that a program finds here in place of the driver's. Those whose name ends in `_ptsz` take a null stream
//! for the default stream of the calling thread.
//!
//! # Safety
//! The functions have the duties of the C functions of the same names.
#![expect(unsafe_code, reason = "exports C functions under their names")]

use std::ffi::{c_char, c_int, c_void};

use cuda_sys::CUresult;
use cuda_sys::driver::types::*;

use crate::{addresses, serve};

/// Allocates memory for use on a stream.
///
/// # Safety
/// The duties of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(place: *mut CUdeviceptr, size: usize, stream: CUstream) -> CUresult {
    // SAFETY: as for this function.
    let theirs = |driver: &cuda_sys::Driver| unsafe { driver.cuMemAllocAsync(place, size, stream) };
    // SAFETY: as for this function.
    unsafe { serve::allocate(place, size, stream.expose_provenance(), theirs) }
}

/// As [`cuMemAllocAsync`].
///
/// # Safety
/// The duties of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync_ptsz(place: *mut CUdeviceptr, size: usize, stream: CUstream) -> CUresult {
    // SAFETY: as for this function.
    unsafe { cuMemAllocAsync(place, size, serve::per_thread(stream)) }
}

/// Gives memory back after what a stream has queued.
///
/// # Safety
/// The duties of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> CUresult {
    // SAFETY: as for this function.
    let theirs = |driver: &cuda_sys::Driver| unsafe { driver.cuMemFreeAsync(address, stream) };
    // SAFETY: as for this function.
    unsafe { serve::free(address, stream.expose_provenance(), theirs) }
}

/// As [`cuMemFreeAsync`].
///
/// # Safety
/// The duties of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) -> CUresult {
    // SAFETY: as for this function.
    unsafe { cuMemFreeAsync(address, serve::per_thread(stream)) }
}

/// Gives memory back after everything that the current context has queued.
///
/// # Safety
/// The duties of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: CUdeviceptr) -> CUresult {
    // SAFETY: as for this function.
    unsafe { serve::free_now(address) }
}

/// The allocation that an address lies in.
///
/// # Safety
/// The duties of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAddressRange_v2(
    base: *mut CUdeviceptr,
    size: *mut usize,
    address: CUdeviceptr,
) -> CUresult {
    // SAFETY: as for this function.
    unsafe { serve::range(base, size, address) }
}

/// A handle by which another process opens memory.
///
/// # Safety
/// The duties of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuIpcGetMemHandle(place: *mut CUipcMemHandle, address: CUdeviceptr) -> CUresult {
    // SAFETY: as for this function.
    unsafe { serve::handle_of(place, address) }
}

/// Destroys a stream.
///
/// # Safety
/// The duties of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    // SAFETY: as for this function.
    unsafe { serve::destroy(stream) }
}

/// Finds a function by its name and the version of CUDA that the program knows.
///
/// # Safety
/// The duties of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
) -> CUresult {
    // SAFETY: as for this function.
    let theirs = |driver: &cuda_sys::Driver| unsafe { driver.cuGetProcAddress(symbol, place, version, flags) };
    // SAFETY: as for this function.
    unsafe { addresses::find(symbol, place, version, flags, theirs) }
}

/// As [`cuGetProcAddress`], and says why there is none.
///
/// # Safety
/// The duties of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: as for this function.
    let theirs =
        |driver: &cuda_sys::Driver| unsafe { driver.cuGetProcAddress_v2(symbol, place, version, flags, status) };
    // SAFETY: as for this function.
    unsafe { addresses::find(symbol, place, version, flags, theirs) }
}
