//! libcuda, the CUDA driver.

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
mod blocks;
mod library;
mod status;
mod texts;

use std::ffi::OsStr;
use std::fmt;

pub use blocks::{BLOCK_TABLE_ID, BlockTable, SIMULATED_TABLE_ID};
pub use functions::Functions;
pub use types::CUresult;

use crate::loader::{self, Library, LoadError, Loaded};
use crate::{CallError, CudaVersion, FunctionInfo, MissingFunction};

/// A call to the driver that did not succeed.
pub type DriverError = CallError<CUresult>;

/// The CUDA driver: its functions, and the version it supports.
///
/// Filled once and never changed; share it between threads as you like. The library behind it is never unloaded.
pub struct Driver {
    functions: Functions,
    version: CudaVersion,
    origin: String,
    machine: usize,
}

impl Driver {
    /// Finds and opens the driver's library.
    ///
    /// Tried in order: the file that the environment variable `CUDA_SYS_LIBCUDA` names (and then nothing else), a
    /// library of that name that is already loaded, the system's search path, WSL's and Jetson's folders. The
    /// toolkit's stub libraries are refused. Does not initialise the driver: that is `cuInit`.
    ///
    /// # Errors
    /// [`LoadError`] lists every attempt and why it failed.
    pub fn load() -> Result<Self, LoadError> {
        Self::from_loaded(loader::search(&library::LIBCUDA, &mut Self::probe)?)
    }

    /// Opens one file as the driver's library.
    ///
    /// # Errors
    /// The file cannot be opened, is a stub, or is no CUDA driver.
    pub fn load_from(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        Self::from_loaded(loader::open(&library::LIBCUDA, path.as_ref(), &mut Self::probe)?)
    }

    /// Makes a driver of functions that come from anywhere, for example from a simulated driver in this process.
    ///
    /// The driver's version is asked for through the table; functions that are newer are dropped.
    ///
    /// # Errors
    /// The table has no `cuDriverGetVersion`, or it failed.
    ///
    /// # Safety
    /// - Each pointer must behave as the C function of its name for as long as the driver or anything made with it
    ///   is used.
    pub unsafe fn from_functions(functions: Functions) -> Result<Self, LoadError> {
        let attempt = |outcome| LoadError::single(&library::LIBCUDA, "function table", outcome);
        let Some(get_version) = functions.cuDriverGetVersion else {
            return Err(attempt(loader::Outcome::MissingSymbol("cuDriverGetVersion")));
        };
        let mut version = 0;
        // SAFETY: the pointer behaves as cuDriverGetVersion, by this function's contract; `version` outlives the call.
        let status = unsafe { get_version(&mut version) };
        if status != CUresult::CUDA_SUCCESS {
            return Err(attempt(loader::Outcome::Refused(status.to_string())));
        }
        let version = CudaVersion(u32::try_from(version).unwrap_or(0));
        Ok(Self { functions: functions.up_to(version), version, origin: "function table".to_owned(), machine: 0 })
    }

    /// Says on which of several machines the functions act, where they are the same for all: a number of the caller's
    /// choice. See [`Self::identity`].
    #[must_use]
    pub fn on_machine(mut self, machine: usize) -> Self {
        self.machine = machine;
        self
    }

    /// Equal for drivers that are the same library on the same machine, so that they share contexts and captures.
    #[must_use]
    pub fn identity(&self) -> (usize, usize) {
        (self.functions.cuInit.map_or(0, |function| function as usize), self.machine)
    }

    /// Version of CUDA that the driver supports.
    #[must_use]
    pub fn version(&self) -> CudaVersion {
        self.version
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

    /// Asks the library for its version, which also tells stubs from drivers.
    fn probe(loaded: &Library) -> Result<CudaVersion, loader::Outcome> {
        library::version(loaded)
    }

    fn from_loaded(loaded: Loaded<CudaVersion>) -> Result<Self, LoadError> {
        let Loaded { library, version, origin } = loaded;
        let find = library::Finder::new(&library, version);
        // SAFETY: the addresses come from a library that passed `probe`, looked up by symbol and ABI version, and the
        // library stays loaded for the life of the process.
        let functions = unsafe { Functions::resolve(|info| find.find(info)) };
        library.keep_loaded();
        Ok(Self { functions, version, origin, machine: 0 })
    }

    #[cold]
    fn missing(&self, function: &'static FunctionInfo) -> DriverError {
        CallError::Missing(MissingFunction { function, found: self.version })
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("origin", &self.origin).field("version", &self.version).finish_non_exhaustive()
    }
}
