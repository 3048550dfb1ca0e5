//! libcublas: products of matrices and vectors.

#[expect(
    missing_docs,
    non_camel_case_types,
    clippy::allow_attributes_without_reason,
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
pub use types::cublasStatus_t;

use crate::CallError;
use crate::loader::LibraryInfo;
use crate::toolkit::{AskVersion, ToolkitInfo, toolkit_library};

/// A call to cuBLAS that did not succeed.
pub type CublasError = CallError<cublasStatus_t>;

/// How cuBLAS is searched for.
const INFO: ToolkitInfo = ToolkitInfo {
    library: LibraryInfo {
        name: "libcublas (cuBLAS)",
        override_variable: "CUDA_SYS_LIBCUBLAS",
        sonames: &["libcublas.so.13", "libcublas.so.12"],
        folders: &[],
        wheels: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
        landmark: "cublasGetProperty",
    },
    oldest: 12,
    ask: AskVersion::Property,
    companion: None,
};

toolkit_library!(Cublas, CublasError, INFO, "cuBLAS", "CUDA_SYS_LIBCUBLAS");
