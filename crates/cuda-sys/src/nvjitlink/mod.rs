//! libnvJitLink: links PTX, machine code and intermediate code, without a driver.

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
pub use types::nvJitLinkResult;

use crate::CallError;
use crate::loader::LibraryInfo;
use crate::toolkit::{AskVersion, ToolkitInfo, toolkit_library};

/// A call to nvJitLink that did not succeed.
pub type NvJitLinkError = CallError<nvJitLinkResult>;

/// How nvJitLink is searched for. The first releases of version 12 do not tell their version, and are not taken.
const INFO: ToolkitInfo = ToolkitInfo {
    library: LibraryInfo {
        name: "libnvJitLink (nvJitLink)",
        override_variable: "CUDA_SYS_LIBNVJITLINK",
        sonames: &["libnvJitLink.so.13", "libnvJitLink.so.12"],
        folders: &[],
        wheels: &["nvidia/cu13/lib", "nvidia/nvjitlink/lib"],
        landmark: "nvJitLinkVersion",
    },
    oldest: 12,
    ask: AskVersion::Pair,
    companion: None,
};

toolkit_library!(NvJitLink, NvJitLinkError, INFO, "nvJitLink", "CUDA_SYS_LIBNVJITLINK");
