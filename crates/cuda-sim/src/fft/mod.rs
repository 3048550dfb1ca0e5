//! cuFFT of the simulated machine: Fourier transforms computed on the host, in the order of the stream.
//!
//! Reading order: `exports` (the functions), `plans`, `exec` (transforms that are asked for), `work` (what is computed).
//!
//! A plan is a number, as in the library. Sums are made in double precision and rounded at the end. Plans of half precision
//! and of several devices are not simulated.
//!
//! # Safety
//! As for `blas`: plans are looked up; pointers are null or valid for what the C function does with them.
#![expect(unsafe_code, reason = "the C interface of the library")]

mod exec;
mod exports;
mod plans;
mod work;

use cuda_sys::cublas::types::*;
use cuda_sys::cufft::types::*;
use cuda_sys::{Cufft, LibraryVersion, cufft as bound};

pub(crate) use self::plans::Fft;

use crate::toolkit::door;

/// What a function answers.
type Answer<T = ()> = Result<T, cufftResult>;

const INVALID_PLAN: cufftResult = cufftResult_t::CUFFT_INVALID_PLAN;
const INVALID_TYPE: cufftResult = cufftResult_t::CUFFT_INVALID_TYPE;
const INVALID_VALUE: cufftResult = cufftResult_t::CUFFT_INVALID_VALUE;
const INVALID_SIZE: cufftResult = cufftResult_t::CUFFT_INVALID_SIZE;
const ALLOC_FAILED: cufftResult = cufftResult_t::CUFFT_ALLOC_FAILED;
const SETUP_FAILED: cufftResult = cufftResult_t::CUFFT_SETUP_FAILED;
const NO_WORKSPACE: cufftResult = cufftResult_t::CUFFT_NO_WORKSPACE;

/// The version that is simulated: that of CUDA 13.0.
pub const CUFFT_VERSION: LibraryVersion = LibraryVersion { major: 12, minor: 0, patch: 0 };

macro_rules! define_functions {
    ($($symbol:ident ($($argument:ident : $type:ty),*) => $area:ident :: $model:ident;)*) => {
        /// The functions themselves.
        #[expect(non_snake_case, reason = "named after C functions")]
        pub(crate) mod functions {
            use super::*;
            door::c_functions! { cufftResult; $($symbol ($($argument: $type),*) => $area::$model;)* }
        }

        /// The functions of cuFFT that are simulated, sorted by symbol.
        pub const CUFFT_EXPORTS: &[&str] = &[$(stringify!($symbol)),*];

        fn functions_without(missing: &[&str]) -> bound::Functions {
            bound::Functions {
                $($symbol: if missing.contains(&stringify!($symbol)) { None } else { Some(functions::$symbol) },)*
                ..bound::Functions::default()
            }
        }
    };
}

crate::for_each_cufft_export!(define_functions);

/// The simulated cuFFT, to be used like any other; each call goes to the machine of the thread that makes it.
#[must_use]
pub fn cufft() -> Cufft {
    cufft_without(&[])
}

/// As [`cufft()`], of a library that lacks the functions with these names.
#[must_use]
pub fn cufft_without(missing: &[&str]) -> Cufft {
    // SAFETY: these functions have the signatures and duties of the C functions they are named after, and live as long
    // as the process.
    unsafe { Cufft::from_functions(functions_without(missing), CUFFT_VERSION) }
}
