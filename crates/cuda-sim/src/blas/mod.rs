//! cuBLAS and cuBLASLt of the simulated machine: products computed on the host, in the order of the stream.
//!
//! Reading order: `exports` (the functions), `handles`, `gemm` and `vector`
//! (calls of cuBLAS), `descriptors`, `algorithms` and `lt` (calls of cuBLASLt), `product` (what is computed).
//! How a call comes in, and numbers in memory, are in `toolkit`.
//!
//! A product is queued like a launch of a kernel: it runs when its stream comes to it, is captured as a kernel node, and
//! touches memory then. Calls answer as the libraries of CUDA 13.0 do. What they would not notice is written down
//! ([`crate::Machine::reports`]): a destroyed handle, a handle that two threads share, a stream of another device, work
//! that nothing orders with other work on the same memory, a workspace that is gone when the product runs, and a product
//! that is captured without a workspace of the program's. In strict mode most of these are errors as well.
//!
//! What is not simulated answers `CUBLAS_STATUS_NOT_SUPPORTED` and is reported, and other functions are missing: layouts
//! by rows, block-scaled numbers, auxiliary outputs and gradients of epilogues, negative increments of vectors.
//!
//! # Safety
//! The functions have the duties of the C functions of the same names: pointers null or valid for what is read and
//! written. Handles and descriptors are looked up, so a wrong one is an error and no more.
#![expect(unsafe_code, reason = "the C interface of the libraries")]

mod algorithms;
mod descriptors;
mod exports;
mod gemm;
mod handles;
mod lt;
mod product;
mod queue;
mod vector;

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use cuda_sys::cublas::types::*;
use cuda_sys::cublaslt::types::*;
use cuda_sys::{Cublas, CublasLt, LibraryVersion, cublas, cublaslt};

pub(crate) use self::gemm::Named;

use self::descriptors::Descriptor;
use self::handles::Handle;
use crate::toolkit::door;

/// What a function answers.
type Answer<T = ()> = Result<T, cublasStatus_t>;

const NOT_INITIALIZED: cublasStatus_t = cublasStatus_t::CUBLAS_STATUS_NOT_INITIALIZED;
const ALLOC_FAILED: cublasStatus_t = cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED;
const INVALID_VALUE: cublasStatus_t = cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE;
const EXECUTION_FAILED: cublasStatus_t = cublasStatus_t::CUBLAS_STATUS_EXECUTION_FAILED;
const NOT_SUPPORTED: cublasStatus_t = cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED;

/// The version that is simulated: that of CUDA 13.0.
pub const CUBLAS_VERSION: LibraryVersion = LibraryVersion { major: 13, minor: 1, patch: 0 };

/// Handles and descriptors of a machine.
#[derive(Debug, Default)]
pub(crate) struct Blas {
    handles: BTreeMap<u64, Handle>,
    /// Handles of cuBLASLt with their contexts.
    lt_handles: BTreeMap<u64, u64>,
    descriptors: BTreeMap<u64, Descriptor>,
}

impl Blas {
    pub(crate) fn handle_count(&self) -> usize {
        self.handles.len() + self.lt_handles.len()
    }

    /// Stream and workspace of a handle.
    pub(crate) fn set_to(&self, handle: u64) -> Option<(u64, Option<(u64, u64)>)> {
        self.handles.get(&handle).map(|found| (found.stream, found.workspace))
    }
}

macro_rules! define_functions {
    ($($symbol:ident ($($argument:ident : $type:ty),*) => $area:ident :: $model:ident;)*) => {
        door::c_functions! { cublasStatus_t; $($symbol ($($argument: $type),*) => $area::$model;)* }
    };
}

/// The functions themselves.
#[expect(non_snake_case, reason = "named after C functions")]
pub(crate) mod functions {
    use super::*;

    crate::for_each_cublas_export!(define_functions);
    crate::for_each_cublaslt_export!(define_functions);

    /// `cublasGetStatusName` of the simulated machine.
    pub extern "C" fn cublasGetStatusName(status: cublasStatus_t) -> *const c_char {
        status_text(status)
    }

    /// `cublasGetStatusString` of the simulated machine.
    pub extern "C" fn cublasGetStatusString(status: cublasStatus_t) -> *const c_char {
        status_text(status)
    }

    /// `cublasGetCudartVersion` of the simulated machine.
    pub extern "C" fn cublasGetCudartVersion() -> usize {
        CUDART_VERSION
    }

    /// `cublasLtGetStatusName` of the simulated machine.
    pub extern "C" fn cublasLtGetStatusName(status: cublasStatus_t) -> *const c_char {
        status_text(status)
    }

    /// `cublasLtGetStatusString` of the simulated machine.
    pub extern "C" fn cublasLtGetStatusString(status: cublasStatus_t) -> *const c_char {
        status_text(status)
    }

    /// `cublasLtGetVersion` of the simulated machine.
    pub extern "C" fn cublasLtGetVersion() -> usize {
        usize::try_from(version_number()).unwrap_or(0)
    }

    /// `cublasLtGetCudartVersion` of the simulated machine.
    pub extern "C" fn cublasLtGetCudartVersion() -> usize {
        CUDART_VERSION
    }
}

/// Version of the runtime that the libraries are built with.
const CUDART_VERSION: usize = 13000;

/// The version as cuBLAS writes it.
fn version_number() -> i32 {
    let LibraryVersion { major, minor, patch } = CUBLAS_VERSION;
    i32::try_from(major * 10000 + minor * 100 + patch).unwrap_or(0)
}

/// The name of a status, which both libraries give for its text as well.
fn status_text(status: cublasStatus_t) -> *const c_char {
    static TEXTS: OnceLock<BTreeMap<u32, CString>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let known = (0..32).filter_map(|code| Some((code, cublasStatus_t(code).name()?)));
        known.filter_map(|(code, text)| Some((code, CString::new(text).ok()?))).collect()
    });
    texts.get(&status.0).map_or(c"CUBLAS_STATUS_UNKNOWN".as_ptr(), |text| text.as_ptr())
}

macro_rules! fill_cublas {
    ($($symbol:ident ($($argument:ident : $type:ty),*) => $area:ident :: $model:ident;)*) => {
        /// The functions of cuBLAS that answer with a status, sorted by symbol.
        pub const CUBLAS_EXPORTS: &[&str] = &[$(stringify!($symbol)),*];

        fn cublas_functions_without(missing: &[&str]) -> cublas::Functions {
            cublas::Functions {
                $($symbol: if missing.contains(&stringify!($symbol)) { None } else { Some(functions::$symbol) },)*
                cublasGetStatusName: Some(functions::cublasGetStatusName),
                cublasGetStatusString: Some(functions::cublasGetStatusString),
                cublasGetCudartVersion: Some(functions::cublasGetCudartVersion),
                ..cublas::Functions::default()
            }
        }
    };
}

crate::for_each_cublas_export!(fill_cublas);

macro_rules! fill_cublaslt {
    ($($symbol:ident ($($argument:ident : $type:ty),*) => $area:ident :: $model:ident;)*) => {
        /// The functions of cuBLASLt that answer with a status, sorted by symbol.
        pub const CUBLASLT_EXPORTS: &[&str] = &[$(stringify!($symbol)),*];

        fn cublaslt_functions_without(missing: &[&str]) -> cublaslt::Functions {
            cublaslt::Functions {
                $($symbol: if missing.contains(&stringify!($symbol)) { None } else { Some(functions::$symbol) },)*
                cublasLtGetStatusName: Some(functions::cublasLtGetStatusName),
                cublasLtGetStatusString: Some(functions::cublasLtGetStatusString),
                cublasLtGetVersion: Some(functions::cublasLtGetVersion),
                cublasLtGetCudartVersion: Some(functions::cublasLtGetCudartVersion),
                ..cublaslt::Functions::default()
            }
        }
    };
}

crate::for_each_cublaslt_export!(fill_cublaslt);

/// The simulated cuBLAS, to be used like any other; each call goes to the machine of the thread that makes it.
#[must_use]
pub fn cublas() -> Cublas {
    cublas_without(&[])
}

/// As [`cublas()`], of a library that lacks the functions with these names.
#[must_use]
pub fn cublas_without(missing: &[&str]) -> Cublas {
    // SAFETY: these functions have the signatures and duties of the C functions they are named after, and live as long
    // as the process.
    unsafe { Cublas::from_functions(cublas_functions_without(missing), CUBLAS_VERSION) }
}

/// The simulated cuBLASLt, to be used like any other; each call goes to the machine of the thread that makes it.
#[must_use]
pub fn cublaslt() -> CublasLt {
    cublaslt_without(&[])
}

/// As [`cublaslt()`], of a library that lacks the functions with these names.
#[must_use]
pub fn cublaslt_without(missing: &[&str]) -> CublasLt {
    // SAFETY: as for cuBLAS.
    unsafe { CublasLt::from_functions(cublaslt_functions_without(missing), CUBLAS_VERSION) }
}

/// The value of an enum that came as a number of four bytes.
fn word(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_sorted_and_bound() {
        assert!(CUBLAS_EXPORTS.is_sorted() && CUBLASLT_EXPORTS.is_sorted());
        let found: Vec<&str> = cublas().functions().available().map(|info| info.symbol).collect();
        assert!(CUBLAS_EXPORTS.iter().all(|symbol| found.contains(symbol)));
        let lacking = cublas_without(&["cublasGemmEx"]);
        assert!(lacking.functions().cublasGemmEx.is_none() && lacking.functions().cublasCreate_v2.is_some());
    }
}
