//! Functions by their names, for programs that ask the driver instead of the system's loader.
//!
//! # Safety
//! The functions here have the duties of the C functions that call them.
#![expect(unsafe_code, reason = "reads and writes what C programs pass")]

use std::ffi::{CStr, c_char, c_int, c_void};

use cuda_sys::driver::types::*;
use cuda_sys::{CUresult, Driver, DriverError};

use crate::real::driver;
use crate::{exports, serve};

/// The null stream is the default stream of the calling thread (`CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`).
const PER_THREAD: cuuint64_t = 2;

/// The version of CUDA from which `cuGetProcAddress` has five arguments.
const FIVE_ARGUMENTS: c_int = 12000;

/// What the driver finds, or this library's function of that name where the driver has it.
///
/// # Safety
/// The duties of `cuGetProcAddress`.
pub(crate) unsafe fn find(
    symbol: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    theirs: impl FnOnce(&'static Driver) -> Result<(), DriverError>,
) -> CUresult {
    let Some(driver) = driver() else { return CUresult::CUDA_ERROR_NOT_INITIALIZED };
    let code = serve::code(theirs(driver));
    if code != CUresult::CUDA_SUCCESS || symbol.is_null() || place.is_null() {
        return code;
    }
    // SAFETY: a text, which the driver has read too.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    // SAFETY: the driver has written there.
    let found = unsafe { place.read() };
    if let Some(ours) = ours(symbol, version, flags).filter(|_| !found.is_null()) {
        // SAFETY: a place for an address.
        unsafe { place.write(ours.cast_mut()) };
    }
    code
}

fn ours(symbol: &CStr, version: c_int, flags: cuuint64_t) -> Option<*const c_void> {
    let per_thread = flags & PER_THREAD != 0;
    Some(match symbol.to_bytes() {
        b"cuMemAllocAsync" if per_thread => exports::cuMemAllocAsync_ptsz as *const c_void,
        b"cuMemAllocAsync" => exports::cuMemAllocAsync as *const c_void,
        b"cuMemFreeAsync" if per_thread => exports::cuMemFreeAsync_ptsz as *const c_void,
        b"cuMemFreeAsync" => exports::cuMemFreeAsync as *const c_void,
        b"cuMemFree" => exports::cuMemFree_v2 as *const c_void,
        b"cuMemGetAddressRange" => exports::cuMemGetAddressRange_v2 as *const c_void,
        b"cuIpcGetMemHandle" => exports::cuIpcGetMemHandle as *const c_void,
        b"cuStreamDestroy" => exports::cuStreamDestroy_v2 as *const c_void,
        b"cuGetProcAddress" if version >= FIVE_ARGUMENTS => exports::cuGetProcAddress_v2 as *const c_void,
        b"cuGetProcAddress" => exports::cuGetProcAddress as *const c_void,
        _ => return None,
    })
}
