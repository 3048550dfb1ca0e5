//! cuBLAS, cuBLASLt, cuSOLVER and cuFFT of the simulated machine as one shared object, under the names of the real ones.
//!
//! A process that has the simulated driver's shared object loaded works on that driver's machine: the object has the same
//! functions, and calls are passed on to it. In other processes a machine of this object's own answers, which has no
//! context, so that no handle can be made.
//!
//! # Safety
//! The functions have the duties of the C functions of the same names. Addresses of functions come from a library that
//! has the soname of the driver and symbols of cuBLAS, which only the simulated one has; it is never closed.
#![expect(unsafe_code, reason = "exports C functions and looks some up")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use cuda_sys::cublas::types::*;
use cuda_sys::cublaslt::types::*;
use cuda_sys::cufft::types::*;
use cuda_sys::cusolver::types::*;
use cuda_sys::{cublas, cublaslt, cufft, cusolver};

/// The functions of the simulated driver, once it is loaded.
static DRIVER: OnceLock<Functions> = OnceLock::new();

struct Functions {
    cublas: cublas::Functions,
    cublaslt: cublaslt::Functions,
    cusolver: cusolver::Functions,
    cufft: cufft::Functions,
}

/// The functions to pass calls on to; `None` while the simulated driver is not loaded.
fn driver() -> Option<&'static Functions> {
    if let Some(functions) = DRIVER.get() {
        return Some(functions);
    }
    let library = loaded(c"libcuda.so.1")?;
    symbol(library, "cublasCreate_v2")?;
    Some(DRIVER.get_or_init(|| {
        // SAFETY: the simulated driver has these functions under their own names, and is never closed.
        let cublas = unsafe { cublas::Functions::resolve(|info| symbol(library, info.symbol)) };
        // SAFETY: as above.
        let cublaslt = unsafe { cublaslt::Functions::resolve(|info| symbol(library, info.symbol)) };
        // SAFETY: as above.
        let cusolver = unsafe { cusolver::Functions::resolve(|info| symbol(library, info.symbol)) };
        // SAFETY: as above.
        let cufft = unsafe { cufft::Functions::resolve(|info| symbol(library, info.symbol)) };
        Functions { cublas, cublaslt, cusolver, cufft }
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
    ($library:ident $status:ident: $($symbol:ident ($($argument:ident : $type:ty),*) => $area:ident :: $model:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "` of the simulated machine.")]
            ///
            /// # Safety
            /// - The duties of the C function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "as the C function has it")]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> $status {
                if let Some(function) = driver().and_then(|functions| functions.$library.$symbol) {
                    // SAFETY: the caller keeps the duties of the C function, which are those of the one called.
                    return unsafe { function($($argument),*) };
                }
                // SAFETY: as above.
                unsafe { cuda_sim::c::$symbol($($argument),*) }
            }
        )*
    };
}

macro_rules! export_cublas {
    ($($functions:tt)*) => { export_functions! { cublas cublasStatus_t: $($functions)* } };
}

macro_rules! export_cublaslt {
    ($($functions:tt)*) => { export_functions! { cublaslt cublasStatus_t: $($functions)* } };
}

macro_rules! export_cusolver {
    ($($functions:tt)*) => { export_functions! { cusolver cusolverStatus_t: $($functions)* } };
}

macro_rules! export_cufft {
    ($($functions:tt)*) => { export_functions! { cufft cufftResult: $($functions)* } };
}

cuda_sim::for_each_cublas_export!(export_cublas);
cuda_sim::for_each_cublaslt_export!(export_cublaslt);
cuda_sim::for_each_cusolver_export!(export_cusolver);
cuda_sim::for_each_cufft_export!(export_cufft);

macro_rules! export_values {
    ($($symbol:ident ($($argument:ident : $type:ty),*) -> $output:ty;)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "` of the simulated machine.")]
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "as the C function has it")]
            pub extern "C" fn $symbol($($argument: $type),*) -> $output {
                cuda_sim::c::$symbol($($argument),*)
            }
        )*
    };
}

export_values! {
    cublasGetStatusName(status: cublasStatus_t) -> *const c_char;
    cublasGetStatusString(status: cublasStatus_t) -> *const c_char;
    cublasGetCudartVersion() -> usize;
    cublasLtGetStatusName(status: cublasStatus_t) -> *const c_char;
    cublasLtGetStatusString(status: cublasStatus_t) -> *const c_char;
    cublasLtGetVersion() -> usize;
    cublasLtGetCudartVersion() -> usize;
}
