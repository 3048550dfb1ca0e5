//! NCCL of the simulated machine: collectives and messages between its devices, computed on the host, in stream order.
//!
//! Reading order: `exports` (the functions), `general` (versions and texts), `comms` (communicators), `split` (those made from others), `group` (groups of
//! calls), `collectives` (what is asked for), `work` (a batch on a stream), `seat`, `exchange` (where ranks meet),
//! `arithmetic`, `hub` and `message` (ranks in several processes), `memory`.
//!
//! Ranks meet when their work is due on the device, as on hardware. Where NCCL would hang, because ranks call different
//! things, never come or have gone, the communicator fails: the work ends without effect, `ncclCommGetAsyncError` answers,
//! and `ncclGetLastError` names ranks and calls. What is only missing is waited for as long as [`Config::nccl_timeout`]
//! says, in real time.
//!
//! [`Config::nccl_timeout`]: crate::Config::nccl_timeout
//!
//! # Safety
//! As for `blas`: communicators are looked up; pointers are null or valid for what the C function does with them.
#![expect(unsafe_code, reason = "the C interface of the library")]

mod arithmetic;
mod collectives;
mod comms;
mod exchange;
mod exports;
mod general;
mod group;
mod hub;
mod memory;
mod message;
mod seat;
mod split;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use cuda_sys::cublas::types::cudaStream_t;
use cuda_sys::nccl::types::*;
use cuda_sys::{LibraryVersion, Nccl as Bound, nccl as bound, ncclResult_t};

use self::comms::{Comm, Meeting};
use self::group::Group;
pub(crate) use self::work::ASYNC;
use crate::toolkit::door;

/// What a function answers.
type Answer<T = ()> = Result<T, ncclResult_t>;

const UNHANDLED: ncclResult_t = ncclResult_t::ncclUnhandledCudaError;
const SYSTEM: ncclResult_t = ncclResult_t::ncclSystemError;
const INVALID_ARGUMENT: ncclResult_t = ncclResult_t::ncclInvalidArgument;
const INVALID_USAGE: ncclResult_t = ncclResult_t::ncclInvalidUsage;
const IN_PROGRESS: ncclResult_t = ncclResult_t::ncclInProgress;

/// The version that is simulated: that of the header that the bindings are made from.
pub const NCCL_VERSION: LibraryVersion = LibraryVersion { major: NCCL_MAJOR, minor: NCCL_MINOR, patch: NCCL_PATCH };

/// Communicators of a machine, and what its threads are about to do with them.
#[derive(Debug, Default)]
pub(crate) struct Nccl {
    comms: BTreeMap<u64, Comm>,
    meetings: BTreeMap<[u8; 128], Meeting>,
    groups: BTreeMap<u64, Group>,
    /// Unique identities that were given out.
    identities: u64,
    last_error: String,
    /// Where memory of `ncclMemAlloc` begins.
    buffers: BTreeSet<u64>,
}

impl Nccl {
    /// Communicators, and memory of the library.
    pub(crate) fn handle_count(&self) -> usize {
        self.comms.len() + self.buffers.len()
    }
}

macro_rules! define_functions {
    ($($symbol:ident ($($argument:ident : $type:ty),*) => $area:ident :: $model:ident;)*) => {
        /// The functions themselves.
        #[expect(non_snake_case, reason = "named after C functions")]
        pub(crate) mod functions {
            use std::ffi::c_char;

            use super::*;
            door::c_functions! { ncclResult_t; $($symbol ($($argument: $type),*) => $area::$model;)* }

            /// `ncclGetErrorString` of the simulated machine.
            pub extern "C" fn ncclGetErrorString(result: ncclResult_t) -> *const c_char {
                general::error_string(result)
            }

            /// `ncclGetLastError` of the simulated machine: the text stays until the thread asks again.
            pub extern "C" fn ncclGetLastError(_comm: ncclComm_t) -> *const c_char {
                general::last_error()
            }

            /// `ncclResetDebugInit` of the simulated machine, which has nothing to reset.
            pub extern "C" fn ncclResetDebugInit() {}
        }

        /// The functions of NCCL that are simulated and answer with a status, sorted by symbol.
        pub const NCCL_EXPORTS: &[&str] = &[$(stringify!($symbol)),*];

        fn functions_without(missing: &[&str]) -> bound::Functions {
            bound::Functions {
                $($symbol: if missing.contains(&stringify!($symbol)) { None } else { Some(functions::$symbol) },)*
                ncclGetErrorString: Some(functions::ncclGetErrorString),
                ncclGetLastError: Some(functions::ncclGetLastError),
                ncclResetDebugInit: Some(functions::ncclResetDebugInit),
                ..bound::Functions::default()
            }
        }
    };
}

crate::for_each_nccl_export!(define_functions);

/// The simulated NCCL, to be used like any other; each call goes to the machine of the thread that makes it.
#[must_use]
pub fn nccl() -> Bound {
    nccl_without(&[])
}

/// As [`nccl()`], of a library that lacks the functions with these names, as older ones do.
#[must_use]
pub fn nccl_without(missing: &[&str]) -> Bound {
    // SAFETY: these functions have the signatures and duties of the C functions they are named after, and live as long
    // as the process.
    unsafe { Bound::from_functions(functions_without(missing), NCCL_VERSION) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_sorted_and_bound() {
        assert!(NCCL_EXPORTS.is_sorted());
        let found: Vec<&str> = nccl().functions().available().map(|info| info.symbol).collect();
        assert!(NCCL_EXPORTS.iter().all(|symbol| found.contains(symbol)));
        let lacking = nccl_without(&["ncclCommFinalize"]);
        assert!(lacking.functions().ncclCommFinalize.is_none() && lacking.functions().ncclCommAbort.is_some());
    }
}
