//! libcublasLt: products of matrices with choice of algorithm and with epilogues.

#[expect(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::allow_attributes_without_reason,
    reason = "generated from the header"
)]
#[rustfmt::skip]
pub mod types;

#[expect(non_camel_case_types, non_snake_case, reason = "named after C functions")]
#[rustfmt::skip]
mod functions;

pub use functions::Functions;
pub use types::cublasStatus_t;

use crate::cublas::CublasError;
use crate::loader::LibraryInfo;
use crate::toolkit::{AskVersion, ToolkitInfo, toolkit_library};

/// How cuBLASLt is searched for.
const INFO: ToolkitInfo = ToolkitInfo {
    library: LibraryInfo {
        name: "libcublasLt (cuBLASLt)",
        override_variable: "CUDA_SYS_LIBCUBLASLT",
        sonames: &["libcublasLt.so.13", "libcublasLt.so.12"],
        folders: &[],
        wheels: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
        landmark: "cublasLtGetProperty",
    },
    oldest: 12,
    ask: AskVersion::Property,
    companion: None,
};

toolkit_library!(CublasLt, CublasError, INFO, "cuBLASLt", "CUDA_SYS_LIBCUBLASLT");
