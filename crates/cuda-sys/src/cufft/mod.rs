//! libcufft: Fourier transforms.

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
pub use types::cufftResult;

use crate::CallError;
use crate::loader::LibraryInfo;
use crate::toolkit::{AskVersion, ToolkitInfo, toolkit_library};

/// A call to cuFFT that did not succeed.
pub type CufftError = CallError<cufftResult>;

/// How cuFFT is searched for.
const INFO: ToolkitInfo = ToolkitInfo {
    library: LibraryInfo {
        name: "libcufft (cuFFT)",
        override_variable: "CUDA_SYS_LIBCUFFT",
        sonames: &["libcufft.so.12", "libcufft.so.11"],
        folders: &[],
        wheels: &["nvidia/cu13/lib", "nvidia/cufft/lib"],
        landmark: "cufftGetProperty",
    },
    oldest: 11,
    ask: AskVersion::Property,
    companion: None,
};

toolkit_library!(Cufft, CufftError, INFO, "cuFFT", "CUDA_SYS_LIBCUFFT");
