//! libcusolver: dense factorisations.

#[expect(
    missing_docs,
    non_camel_case_types,
    reason = "generated from the header"
)]
#[rustfmt::skip]
pub mod types;

#[expect(non_camel_case_types, non_snake_case, reason = "named after C functions")]
#[rustfmt::skip]
mod functions;

#[rustfmt::skip]
mod codes;
mod status;

pub use functions::Functions;
pub use types::cusolverStatus_t;

use crate::CallError;
use crate::loader::LibraryInfo;
use crate::toolkit::{AskVersion, ToolkitInfo, toolkit_library};

/// A call to cuSOLVER that did not succeed.
pub type CusolverError = CallError<cusolverStatus_t>;

/// How cuSOLVER is searched for.
const INFO: ToolkitInfo = ToolkitInfo {
    library: LibraryInfo {
        name: "libcusolver (cuSOLVER)",
        override_variable: "CUDA_SYS_LIBCUSOLVER",
        sonames: &["libcusolver.so.12", "libcusolver.so.11"],
        folders: &[],
        wheels: &["nvidia/cu13/lib", "nvidia/cusolver/lib"],
        landmark: "cusolverGetProperty",
    },
    oldest: 11,
    ask: AskVersion::Property,
    companion: None,
};

toolkit_library!(Cusolver, CusolverError, INFO, "cuSOLVER", "CUDA_SYS_LIBCUSOLVER");
