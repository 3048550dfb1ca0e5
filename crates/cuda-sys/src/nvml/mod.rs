//! libnvidia-ml (NVML), which tells what devices do and who uses them, without CUDA.

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

#[rustfmt::skip]
mod codes;
mod status;

pub use functions::Functions;
pub use types::nvmlReturn_t;

use crate::CallError;
use crate::loader::LibraryInfo;
use crate::unversioned::unversioned_library;

/// A call to NVML that did not succeed.
pub type NvmlError = CallError<nvmlReturn_t>;

/// How NVML is searched for.
const LIBNVIDIA_ML: LibraryInfo = LibraryInfo {
    name: "libnvidia-ml (NVML)",
    override_variable: "CUDA_SYS_LIBNVML",
    sonames: &["libnvidia-ml.so.1"],
    folders: &["/usr/lib/wsl/lib", "/usr/lib/aarch64-linux-gnu/nvidia", "/usr/local/nvidia/lib64"],
    wheels: &[],
    landmark: LANDMARK,
};

/// A function that every NVML of the last ten years has, and nothing else.
const LANDMARK: &str = "nvmlInit_v2";

unversioned_library! {
    Nvml,
    NvmlError,
    LIBNVIDIA_ML,
    "NVML",
    "Tried in order: the file that the environment variable `CUDA_SYS_LIBNVML` names (and then nothing else), a \
     library of that name that is already loaded, the system's search path, WSL's and Jetson's folders. Does not \
     initialise it: that is `nvmlInit_v2`."
}
