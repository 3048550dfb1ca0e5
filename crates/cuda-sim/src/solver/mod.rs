//! cuSOLVER of the simulated machine: dense factorisations computed on the host, in the order of the stream.
//!
//! Reading order: `exports` (the functions), `handles`, `calls` (functions of any type), `typed` (those with a type in their
//! name), `work` (what is queued), `dense` (the factorisations).
//!
//! Everything is computed in double precision and rounded at the end, so results of single precision are nearer to the
//! exact ones than a GPU's. Singular vectors and reflectors have LAPACK's signs where LAPACK defines them.
//!
//! # Safety
//! As for `blas`: handles are looked up; pointers are null or valid for what the C function does with them.
#![expect(unsafe_code, reason = "the C interface of the library")]

mod calls;
mod exports;
mod handles;
mod typed;
mod work;

use cuda_sys::cublas::types::*;
use cuda_sys::cusolver::types::*;
use cuda_sys::{Cusolver, LibraryVersion, cusolver as bound};

pub(crate) use self::handles::Solver;

use crate::toolkit::door;

/// What a function answers.
type Answer<T = ()> = Result<T, cusolverStatus_t>;

const NOT_INITIALIZED: cusolverStatus_t = cusolverStatus_t::CUSOLVER_STATUS_NOT_INITIALIZED;
const ALLOC_FAILED: cusolverStatus_t = cusolverStatus_t::CUSOLVER_STATUS_ALLOC_FAILED;
const INVALID_VALUE: cusolverStatus_t = cusolverStatus_t::CUSOLVER_STATUS_INVALID_VALUE;

/// The version that is simulated: that of CUDA 13.0.
pub const CUSOLVER_VERSION: LibraryVersion = LibraryVersion { major: 12, minor: 0, patch: 4 };

macro_rules! define_functions {
    ($($symbol:ident ($($argument:ident : $type:ty),*) => $area:ident :: $model:ident;)*) => {
        /// The functions themselves.
        #[expect(non_snake_case, reason = "named after C functions")]
        pub(crate) mod functions {
            use super::*;
            door::c_functions! { cusolverStatus_t; $($symbol ($($argument: $type),*) => $area::$model;)* }
        }

        /// The functions of cuSOLVER that are simulated, sorted by symbol.
        pub const CUSOLVER_EXPORTS: &[&str] = &[$(stringify!($symbol)),*];

        fn functions_without(missing: &[&str]) -> bound::Functions {
            bound::Functions {
                $($symbol: if missing.contains(&stringify!($symbol)) { None } else { Some(functions::$symbol) },)*
                ..bound::Functions::default()
            }
        }
    };
}

crate::for_each_cusolver_export!(define_functions);

/// The simulated cuSOLVER, to be used like any other; each call goes to the machine of the thread that makes it.
#[must_use]
pub fn cusolver() -> Cusolver {
    cusolver_without(&[])
}

/// As [`cusolver()`], of a library that lacks the functions with these names.
#[must_use]
pub fn cusolver_without(missing: &[&str]) -> Cusolver {
    // SAFETY: these functions have the signatures and duties of the C functions they are named after, and live as long
    // as the process.
    unsafe { Cusolver::from_functions(functions_without(missing), CUSOLVER_VERSION) }
}
