//! NVML of the simulated machine as a shared object, under the names and with the soname of the real one.
//!
//! Programs that open `libnvidia-ml.so.1` can open this file instead, for example through `CUDA_SYS_LIBNVML`.
//!
//! A process that has the simulated driver's shared object loaded is shown that driver's machine: the object has the
//! same functions, and calls are passed on to it from the moment it is there. Before that, and in processes that never
//! load it, a machine made from the same environment answers, which nobody uses.
//!
//! # Safety
//! The functions have the duties of the C functions of the same names. Addresses of functions come from a library that
//! has the soname of the driver and NVML's symbols, which only the simulated one has; it is never closed.
#![expect(unsafe_code, reason = "exports C functions and looks some up")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_sys::nvml::Functions;
use cuda_sys::nvml::types::*;

/// The functions of the simulated driver, once it is loaded.
static DRIVER: OnceLock<Functions> = OnceLock::new();

/// How often this library's own machine was initialised and not shut down.
static USERS: AtomicU32 = AtomicU32::new(0);

/// The functions to pass calls on to; `None` while the simulated driver is not loaded.
fn driver() -> Option<&'static Functions> {
    if let Some(functions) = DRIVER.get() {
        return Some(functions);
    }
    let library = loaded(c"libcuda.so.1")?;
    symbol(library, c"nvmlInit_v2")?;
    let functions = DRIVER.get_or_init(|| {
        // SAFETY: the simulated driver has NVML's functions under their own names, and is never closed.
        let functions = unsafe { Functions::resolve(|info| symbol(library, &c_name(info.symbol)?)) };
        // What the program initialised here counts there as well.
        for _ in 0..USERS.load(Ordering::Relaxed) {
            // SAFETY: takes nothing.
            functions.nvmlInit_v2.map(|init| unsafe { init() });
        }
        functions
    });
    Some(functions)
}

/// A library that the process has loaded already.
fn loaded(soname: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: a C string. Nothing is loaded that is not there already, so no initialisers run.
    NonNull::new(unsafe { libc::dlopen(soname.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) })
}

fn symbol(library: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: an open library and a C string; only the address is taken.
    NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
}

fn c_name(symbol: &str) -> Option<std::ffi::CString> {
    std::ffi::CString::new(symbol).ok()
}

/// Counts how often this library's own machine was initialised.
fn count(symbol: &str, answer: nvmlReturn_t) {
    if answer != nvmlReturn_t::NVML_SUCCESS {
        return;
    }
    match symbol {
        "nvmlInit_v2" => USERS.fetch_add(1, Ordering::Relaxed),
        "nvmlShutdown" => USERS.fetch_sub(1, Ordering::Relaxed),
        _ => 0,
    };
}

macro_rules! export_functions {
    ($($symbol:ident ($($argument:ident : $type:ty),*) => $model:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "` of the simulated machine.")]
            ///
            /// # Safety
            /// - The duties of the C function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "as the C function has it")]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> nvmlReturn_t {
                if let Some(function) = driver().and_then(|functions| functions.$symbol) {
                    // SAFETY: the caller keeps the duties of the C function, which are those of the one called.
                    return unsafe { function($($argument),*) };
                }
                // SAFETY: as above.
                let answer = unsafe { cuda_sim::c::$symbol($($argument),*) };
                count(stringify!($symbol), answer);
                answer
            }
        )*
    };
}

cuda_sim::for_each_nvml_export!(export_functions);

/// `nvmlErrorString` of the simulated machine.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    cuda_sim::c::nvmlErrorString(result)
}
