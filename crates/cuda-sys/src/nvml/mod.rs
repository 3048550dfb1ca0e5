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

use std::ffi::OsStr;
use std::fmt;

pub use functions::Functions;
pub use types::nvmlReturn_t;

use crate::loader::{self, Library, LibraryInfo, LoadError, Loaded, Outcome};
use crate::{CallError, CudaVersion, FunctionInfo, MissingFunction};

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

/// NVML's functions have versions in their names, and no other.
const NO_VERSION: CudaVersion = CudaVersion(0);

/// NVML: its functions.
///
/// Filled once and never changed; share it between threads as you like. The library behind it is never unloaded.
pub struct Nvml {
    functions: Functions,
    origin: String,
}

impl Nvml {
    /// Finds and opens the library.
    ///
    /// Tried in order: the file that the environment variable `CUDA_SYS_LIBNVML` names (and then nothing else), a
    /// library of that name that is already loaded, the system's search path, WSL's and Jetson's folders. Does not
    /// initialise it: that is `nvmlInit_v2`.
    ///
    /// # Errors
    /// [`LoadError`] lists every attempt and why it failed.
    pub fn load() -> Result<Self, LoadError> {
        Ok(Self::from_loaded(loader::search(&LIBNVIDIA_ML, &mut Self::probe)?))
    }

    /// Opens one file as the library.
    ///
    /// # Errors
    /// The file cannot be opened, or is no NVML.
    pub fn load_from(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        Ok(Self::from_loaded(loader::open(&LIBNVIDIA_ML, path.as_ref(), &mut Self::probe)?))
    }

    /// Makes an NVML of functions that come from anywhere, for example from a simulated one in this process.
    ///
    /// # Safety
    /// - Each pointer must behave as the C function of its name for as long as this value or anything made with it is
    ///   used.
    #[must_use]
    pub unsafe fn from_functions(functions: Functions) -> Self {
        Self { functions, origin: "function table".to_owned() }
    }

    /// Where the functions came from: a file's path, or `function table`.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The function pointers.
    #[must_use]
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    fn probe(library: &Library) -> Result<CudaVersion, Outcome> {
        library.symbol(LANDMARK).map(|_| NO_VERSION).ok_or(Outcome::MissingSymbol(LANDMARK))
    }

    fn from_loaded(loaded: Loaded<CudaVersion>) -> Self {
        let Loaded { library, origin, .. } = loaded;
        // SAFETY: the addresses come from a library that has NVML's functions, looked up by symbols whose signatures
        // never change, and the library stays loaded for the life of the process.
        let functions = unsafe { Functions::resolve(|info| library.symbol(info.symbol)) };
        library.keep_loaded();
        Self { functions, origin }
    }

    #[cold]
    fn missing(&self, function: &'static FunctionInfo) -> NvmlError {
        CallError::Missing(MissingFunction { function, found: NO_VERSION })
    }
}

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvml").field("origin", &self.origin).finish_non_exhaustive()
    }
}
