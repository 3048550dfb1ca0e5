//! The simulated driver as a shared object, under the names and with the soname of the real one.
//!
//! Programs that open `libcuda.so.1` can open this file instead, for example through `CUDA_SYS_LIBCUDA`. The machine is
//! made from the environment when the first call comes: `CUDA_SIM_DEVICES`, `CUDA_SIM_SEED`, `CUDA_SIM_DRIVER_VERSION`,
//! `CUDA_SIM_MEMORY`, `CUDA_SIM_STRICT`, `CUDA_SIM_LATE_EVENTS`, `CUDA_SIM_FAULTS`, `CUDA_SIM_PROCESSES`,
//! `CUDA_LAUNCH_BLOCKING`. There is no code of its own here: each symbol passes its call on to the function of the same name in `cuda-sim`.
//!
//! The functions of NVML, cuBLAS, cuBLASLt, cuSOLVER, cuFFT and NCCL are exported as well, so that `libnvml-sim`,
//! `libcublas-sim` and `libnccl-sim` can work on
//! the same machine.
//!
//! # Safety
//! The functions have the duties of the C functions of the same names. The names are the driver's, so this library
//! must not be linked into a program together with a real one; it is only ever opened at run time.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::c_char;

use cuda_sys::CUresult;
use cuda_sys::cublas::types::*;
use cuda_sys::cublaslt::types::*;
use cuda_sys::cufft::types::*;
use cuda_sys::cusolver::types::*;
use cuda_sys::driver::types::*;
use cuda_sys::nccl::types::*;
use cuda_sys::nvml::types::*;

macro_rules! export_functions {
    ($($symbol:ident ($($argument:ident : $type:ty),*) $needs:ident [$($code:ident),*] => $area:ident :: $model:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "` of the simulated driver.")]
            ///
            /// # Safety
            /// - The duties of the C function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "as the C function has it")]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> CUresult {
                // SAFETY: the caller keeps the duties of the C function, which are those of the one called.
                unsafe { cuda_sim::c::$symbol($($argument),*) }
            }
        )*
    };
}

cuda_sim::for_each_export!(export_functions);

macro_rules! export_nvml {
    ($($symbol:ident ($($argument:ident : $type:ty),*) => $model:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "` of the simulated machine.")]
            ///
            /// # Safety
            /// - The duties of the C function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "as the C function has it")]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> nvmlReturn_t {
                // SAFETY: the caller keeps the duties of the C function, which are those of the one called.
                unsafe { cuda_sim::c::$symbol($($argument),*) }
            }
        )*
    };
}

cuda_sim::for_each_nvml_export!(export_nvml);

/// `nvmlErrorString` of the simulated machine.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    cuda_sim::c::nvmlErrorString(result)
}

macro_rules! export_library {
    ($status:ty: $($symbol:ident ($($argument:ident : $type:ty),*) => $area:ident :: $model:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($symbol), "` of the simulated machine.")]
            ///
            /// # Safety
            /// - The duties of the C function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "as the C function has it")]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> $status {
                // SAFETY: the caller keeps the duties of the C function, which are those of the one called.
                unsafe { cuda_sim::c::$symbol($($argument),*) }
            }
        )*
    };
}

macro_rules! export_blas {
    ($($functions:tt)*) => { export_library! { cublasStatus_t: $($functions)* } };
}

macro_rules! export_solver {
    ($($functions:tt)*) => { export_library! { cusolverStatus_t: $($functions)* } };
}

macro_rules! export_fft {
    ($($functions:tt)*) => { export_library! { cufftResult: $($functions)* } };
}

cuda_sim::for_each_cublas_export!(export_blas);
cuda_sim::for_each_cublaslt_export!(export_blas);
cuda_sim::for_each_cusolver_export!(export_solver);
cuda_sim::for_each_cufft_export!(export_fft);

macro_rules! export_nccl {
    ($($functions:tt)*) => { export_library! { ncclResult_t: $($functions)* } };
}

cuda_sim::for_each_nccl_export!(export_nccl);

/// `ncclGetLastError` of the simulated machine.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(comm: ncclComm_t) -> *const c_char {
    cuda_sim::c::ncclGetLastError(comm)
}
