//! libnvrtc (NVRTC): from CUDA C++ to PTX and machine code, without a driver.
//!
//! The compiler needs a second library, its builtins, which lies beside it. Version 13 does not look there, so loading
//! opens it too: whoever asks for it later is given the one that is open.

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
pub use types::nvrtcResult;

use crate::CallError;
use crate::loader::LibraryInfo;
use crate::toolkit::{AskVersion, ToolkitInfo, toolkit_library};

/// A call to NVRTC that did not succeed.
pub type NvrtcError = CallError<nvrtcResult>;

/// How NVRTC is searched for.
const INFO: ToolkitInfo = ToolkitInfo {
    library: LibraryInfo {
        name: "libnvrtc (NVRTC)",
        override_variable: "CUDA_SYS_LIBNVRTC",
        sonames: &["libnvrtc.so.13", "libnvrtc.so.12"],
        folders: &[],
        wheels: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
        landmark: "nvrtcVersion",
    },
    oldest: 12,
    ask: AskVersion::Pair,
    companion: Some("libnvrtc-builtins.so"),
};

toolkit_library!(Nvrtc, NvrtcError, INFO, "NVRTC", "CUDA_SYS_LIBNVRTC");
