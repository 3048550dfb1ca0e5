//! libcufile (GPUDirect Storage): files that are read and written by a device's memory.
//!
//! The library is there where it is installed; that requests bypass the host's memory is another matter, which
//! `cuFileDriverGetProperties` and the kernel's modules decide.

#[expect(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
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
mod texts;

pub use functions::Functions;
pub use types::{CUfileError_t, CUfileOpError};

use crate::CallError;
use crate::loader::LibraryInfo;
use crate::unversioned::unversioned_library;

/// A call to cuFile that did not succeed.
pub type CufileError = CallError<CUfileError_t>;

/// How cuFile is searched for.
const LIBCUFILE: LibraryInfo = LibraryInfo {
    name: "libcufile (cuFile)",
    override_variable: "CUDA_SYS_LIBCUFILE",
    sonames: &["libcufile.so.0"],
    folders: &[],
    wheels: &["nvidia/cu13/lib", "nvidia/cufile/lib"],
    landmark: LANDMARK,
};

/// A function that every cuFile has, and nothing else.
const LANDMARK: &str = "cuFileHandleRegister";

unversioned_library! {
    Cufile,
    CufileError,
    LIBCUFILE,
    "cuFile",
    "Tried in order: the file that the environment variable `CUDA_SYS_LIBCUFILE` names (and then nothing else), a \
     library of that name that is already loaded, the system's search path, the folders of toolkits (`CUDA_HOME`, \
     `CUDA_PATH`, `/usr/local/cuda`), and the packages of each Python that is active or on the search path. Does not \
     initialise it: that is `cuFileDriverOpen`."
}
