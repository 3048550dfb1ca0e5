//! The simulated driver with a [`Control`] in front of the calls that a replay decides about.
//!
//! The table is shared by all threads; each thread that replays has a control of its own, and calls of other threads
//! go straight to the simulated machine.
//!
//! # Safety
//! Each function here has the signature and the duties of the driver's function of the same name, and hands its
//! arguments on to the simulator's; the results it reads itself are those the simulator has just written.
#![expect(unsafe_code, reason = "C functions in front of the simulated driver's")]
#![expect(non_snake_case, reason = "named after C functions")]

use std::cell::RefCell;

use cuda_sim::{Machine, c};
use cuda_sys::driver::Functions;
use cuda_sys::driver::types::{CUdeviceptr, CUevent, CUmemAllocationProp, CUmemGenericAllocationHandle, CUstream};
use cuda_sys::{CUresult, Driver, LoadError};

use super::control::Control;

const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;
const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;

thread_local! {
    static CONTROL: RefCell<Option<Control>> = const { RefCell::new(None) };
}

/// Puts a control in front of this thread's calls until dropped.
#[derive(Debug)]
pub(super) struct Controlled(());

impl Controlled {
    pub(super) fn new() -> Self {
        CONTROL.set(Some(Control::default()));
        Self(())
    }

    /// Does something with the control.
    pub(super) fn with<T: Default>(&self, act: impl FnOnce(&mut Control) -> T) -> T {
        with(act).unwrap_or_default()
    }
}

impl Drop for Controlled {
    fn drop(&mut self) {
        CONTROL.set(None);
    }
}

fn with<T>(act: impl FnOnce(&mut Control) -> T) -> Option<T> {
    CONTROL.with_borrow_mut(|control| control.as_mut().map(act))
}

/// The driver of the bound machine, with the control in front.
///
/// # Errors
/// The machine refuses to tell its version.
pub(super) fn driver() -> Result<Driver, LoadError> {
    let functions = Functions {
        cuMemAlloc_v2: Some(cuMemAlloc_v2),
        cuMemFree_v2: Some(cuMemFree_v2),
        cuMemAddressReserve: Some(cuMemAddressReserve),
        cuMemAddressFree: Some(cuMemAddressFree),
        cuMemCreate: Some(cuMemCreate),
        cuMemMap: Some(cuMemMap),
        cuMemUnmap: Some(cuMemUnmap),
        cuEventRecord: Some(cuEventRecord),
        cuEventQuery: Some(cuEventQuery),
        cuEventSynchronize: Some(cuEventSynchronize),
        ..cuda_sim::functions()
    };
    // SAFETY: the simulator's functions and those of this file have the signatures and duties of the driver's, and live
    // as long as the process.
    unsafe { Driver::from_functions(functions) }
}

/// What is behind a pointer that a call has just filled in.
fn filled(pointer: *const CUdeviceptr) -> u64 {
    // SAFETY: the caller answers for the pointer, and the call that succeeded wrote to it.
    unsafe { pointer.read() }
}

fn length(bytes: usize) -> u64 {
    bytes as u64
}

unsafe extern "C" fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult {
    match with(|control| control.alloc(length(bytesize))) {
        Some(None) => return OUT_OF_MEMORY,
        Some(Some(address)) => Machine::current().next_addresses([address]),
        None => {}
    }
    // SAFETY: the caller's duties are those of this function.
    unsafe { c::cuMemAlloc_v2(dptr, bytesize) }
}

unsafe extern "C" fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult {
    // SAFETY: the caller's duties are those of this function.
    let result = unsafe { c::cuMemFree_v2(dptr) };
    if result == SUCCESS {
        with(|control| control.free(dptr));
    }
    result
}

unsafe extern "C" fn cuMemAddressReserve(
    ptr: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    addr: CUdeviceptr,
    flags: std::ffi::c_ulonglong,
) -> CUresult {
    if let Some(Some(address)) = with(|control| control.reserve()) {
        Machine::current().next_addresses([address]);
    }
    // SAFETY: the caller's duties are those of this function.
    let result = unsafe { c::cuMemAddressReserve(ptr, size, alignment, addr, flags) };
    if result == SUCCESS {
        with(|control| control.reserved(filled(ptr), length(size)));
    }
    result
}

unsafe extern "C" fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) -> CUresult {
    // SAFETY: the caller's duties are those of this function.
    let result = unsafe { c::cuMemAddressFree(ptr, size) };
    if result == SUCCESS {
        with(|control| control.unreserved(ptr));
    }
    result
}

unsafe extern "C" fn cuMemCreate(
    handle: *mut CUmemGenericAllocationHandle,
    size: usize,
    prop: *const CUmemAllocationProp,
    flags: std::ffi::c_ulonglong,
) -> CUresult {
    if with(|control| control.create(length(size))) == Some(false) {
        return OUT_OF_MEMORY;
    }
    // SAFETY: the caller's duties are those of this function.
    unsafe { c::cuMemCreate(handle, size, prop, flags) }
}

unsafe extern "C" fn cuMemMap(
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: std::ffi::c_ulonglong,
) -> CUresult {
    // SAFETY: the caller's duties are those of this function.
    let result = unsafe { c::cuMemMap(ptr, size, offset, handle, flags) };
    if result == SUCCESS {
        with(|control| control.map(ptr, length(size)));
    }
    result
}

unsafe extern "C" fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> CUresult {
    // SAFETY: the caller's duties are those of this function.
    let result = unsafe { c::cuMemUnmap(ptr, size) };
    if result == SUCCESS {
        with(|control| control.unmap(ptr, length(size)));
    }
    result
}

unsafe extern "C" fn cuEventRecord(hEvent: CUevent, hStream: CUstream) -> CUresult {
    // SAFETY: the caller's duties are those of this function.
    let result = unsafe { c::cuEventRecord(hEvent, hStream) };
    if result == SUCCESS {
        with(|control| control.record(hEvent.addr(), hStream.addr()));
    }
    result
}

unsafe extern "C" fn cuEventQuery(hEvent: CUevent) -> CUresult {
    match with(|control| control.query(hEvent.addr())) {
        Some(true) => SUCCESS,
        Some(false) => NOT_READY,
        // SAFETY: the caller's duties are those of this function.
        None => unsafe { c::cuEventQuery(hEvent) },
    }
}

unsafe extern "C" fn cuEventSynchronize(hEvent: CUevent) -> CUresult {
    with(|control| control.synchronize(hEvent.addr()));
    // SAFETY: the caller's duties are those of this function.
    unsafe { c::cuEventSynchronize(hEvent) }
}
