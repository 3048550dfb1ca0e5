//! NCCL of the simulated machine as a shared object, under the names of the real one.
//!
//! A process that has the simulated driver's shared object loaded works on that driver's machine: the object has the same
//! functions, and calls are passed on to it. In other processes a machine of this object's own answers, which has no
//! context, so that no communicator can be made.
//!
//! # Safety
//! The functions have the duties of the C functions of the same names. Addresses of functions come from a library that
//! has the soname of the driver and symbols of NCCL, which only the simulated one has; it is never closed.
#![expect(unsafe_code, reason = "exports C functions and looks some up")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use cuda_sys::cublas::types::cudaStream_t;
use cuda_sys::nccl::Functions;
use cuda_sys::nccl::types::*;

/// The functions of the simulated driver, once it is loaded.
static DRIVER: OnceLock<Functions> = OnceLock::new();

/// The functions to pass calls on to; `None` while the simulated driver is not loaded.
fn driver() -> Option<&'static Functions> {
    if let Some(functions) = DRIVER.get() {
        return Some(functions);
    }
    let library = loaded(c"libcuda.so.1")?;
    symbol(library, "ncclGetVersion")?;
    Some(DRIVER.get_or_init(|| {
        // SAFETY: the simulated driver has these functions under their own names, and is never closed.
        unsafe { Functions::resolve(|info| symbol(library, info.symbol)) }
    }))
}

/// A library that the process has loaded already.
fn loaded(soname: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a C string. Nothing is loaded that is not there already, so no initialisers run.
    NonNull::new(unsafe { libc::dlopen(soname.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) })
}

fn symbol(library: NonNull<c_void>, name: &str) -> Option<NonNull<c_void>> {
    let name = CString::new(name).ok()?;
    // SAFETY: an open library and a C string; only the address is taken.
    NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
}

macro_rules! export_functions {
    ($($symbol:ident ($($argument:ident : $type:ty),*) => $area:ident :: $model:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "` of the simulated machine.")]
            ///
            /// # Safety
            /// - The duties of the C function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "as the C function has it")]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> ncclResult_t {
                if let Some(function) = driver().and_then(|functions| functions.$symbol) {
                    // SAFETY: the caller keeps the duties of the C function, which are those of the one called.
                    return unsafe { function($($argument),*) };
                }
                // SAFETY: as above.
                unsafe { cuda_sim::c::$symbol($($argument),*) }
            }
        )*
    };
}

cuda_sim::for_each_nccl_export!(export_functions);

/// `ncclGetErrorString` of the simulated machine.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(result: ncclResult_t) -> *const c_char {
    cuda_sim::c::ncclGetErrorString(result)
}

/// `ncclGetLastError` of the simulated machine.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(comm: ncclComm_t) -> *const c_char {
    match driver().and_then(|functions| functions.ncclGetLastError) {
        // SAFETY: the function reads nothing but its machine; the communicator only stands for one.
        Some(function) => unsafe { function(comm) },
        None => cuda_sim::c::ncclGetLastError(comm),
    }
}

/// `ncclResetDebugInit` of the simulated machine.
#[unsafe(no_mangle)]
pub extern "C" fn ncclResetDebugInit() {
    cuda_sim::c::ncclResetDebugInit();
}
