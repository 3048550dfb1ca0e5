//! The shape shared by the libraries of the CUDA toolkit: cuBLAS, cuBLASLt, cuSOLVER, cuFFT, NVRTC, nvJitLink; and NCCL.
//!
//! Unlike the driver's, their functions are found by symbol alone, each library has a version of its own, and a machine
//! may have several of them or none. [`toolkit_library!`] makes the struct that holds the functions and its loaders.

use std::ffi::c_int;
use std::path::Path;

use crate::loader::{Library, LibraryInfo, Outcome, open_beside};
use crate::table::Address;
use crate::version::LibraryVersion;

/// A library of the toolkit: how it is searched for, and which versions will do.
#[derive(Debug)]
pub(crate) struct ToolkitInfo {
    pub(crate) library: LibraryInfo,
    /// Oldest major version whose functions have the signatures of these bindings.
    pub(crate) oldest: u32,
    /// How the landmark tells the version.
    pub(crate) ask: AskVersion,
    /// A library that this one opens by name when it is used, without the version at the end of its file's name. It is
    /// opened from the same folder before that, so that it is found wherever the folder is.
    pub(crate) companion: Option<&'static str>,
}

/// The signature of the function that tells a library's version.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AskVersion {
    /// One part of the version, by number: `cublasGetProperty` and its like.
    Property,
    /// Major and minor version at once: `nvrtcVersion` and its like.
    Pair,
    /// One number: `ncclGetVersion`.
    Code,
}

/// `ncclGetVersion`: the version as one number.
type GetCode = unsafe extern "C" fn(*mut c_int) -> u32;

/// `nvrtcVersion` and its like: major and minor version.
type GetPair = unsafe extern "C" fn(*mut c_int, *mut c_int) -> u32;

/// `cublasGetProperty` and its like: a part of the version, by number.
pub(crate) type GetProperty = unsafe extern "C" fn(crate::cublas::types::libraryPropertyType, *mut c_int) -> u32;

/// Asks for a version part by part.
///
/// # Safety
/// - `get` must behave as `cublasGetProperty`.
pub(crate) unsafe fn version(get: GetProperty) -> Result<LibraryVersion, Outcome> {
    use crate::cublas::types::libraryPropertyType_t as Part;
    let part = |part: Part| {
        let mut value = 0;
        // SAFETY: the caller promises what the function is; `value` outlives the call.
        let status = unsafe { get(part, &mut value) };
        let value = u32::try_from(value).ok().filter(|_| status == 0);
        value.ok_or_else(|| Outcome::Refused(format!("status {status} when asked for its version")))
    };
    Ok(LibraryVersion {
        major: part(Part::MAJOR_VERSION)?,
        minor: part(Part::MINOR_VERSION)?,
        patch: part(Part::PATCH_LEVEL)?,
    })
}

/// Asks for major and minor version.
///
/// # Safety
/// - `get` must behave as `nvrtcVersion`.
unsafe fn version_of_pair(get: GetPair) -> Result<LibraryVersion, Outcome> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the caller promises what the function is; both numbers outlive the call.
    let status = unsafe { get(&mut major, &mut minor) };
    let refused = || Outcome::Refused(format!("status {status} when asked for its version"));
    let part = |number: c_int| u32::try_from(number).ok().filter(|_| status == 0).ok_or_else(refused);
    Ok(LibraryVersion { major: part(major)?, minor: part(minor)?, patch: 0 })
}

/// Asks for a version as one number: two decimal digits each for minor version and patch, of versions before 2.9 one for
/// the minor version.
///
/// # Safety
/// - `get` must behave as `ncclGetVersion`.
unsafe fn version_of_code(get: GetCode) -> Result<LibraryVersion, Outcome> {
    let mut code = 0;
    // SAFETY: the caller promises what the function is; the number outlives the call.
    let status = unsafe { get(&mut code) };
    let refused = || Outcome::Refused(format!("status {status} when asked for its version"));
    let code = u32::try_from(code).ok().filter(|_| status == 0).ok_or_else(refused)?;
    let unit = if code < 10_000 { 1_000 } else { 10_000 };
    Ok(LibraryVersion { major: code / unit, minor: code % unit / 100, patch: code % 100 })
}

impl ToolkitInfo {
    /// Accepts or refuses an open library: asks for its version by the function that is its landmark.
    pub(crate) fn probe(&self, library: &Library) -> Result<LibraryVersion, Outcome> {
        let symbol = self.library.landmark;
        let address = library.symbol(symbol).ok_or(Outcome::MissingSymbol(symbol))?;
        let found = match self.ask {
            AskVersion::Property => {
                // SAFETY: the landmark of each of these libraries has this signature: an enum, a pointer, and a status,
                // which is an enum of 32 bits.
                let get = unsafe { std::mem::transmute::<Address, GetProperty>(address) };
                // SAFETY: the landmark behaves as `cublasGetProperty`.
                unsafe { version(get) }?
            }
            AskVersion::Pair => {
                // SAFETY: the landmark of each of these libraries has this signature: two pointers to 32-bit integers, and
                // a status, which is an enum of 32 bits.
                let get = unsafe { std::mem::transmute::<Address, GetPair>(address) };
                // SAFETY: the landmark behaves as `nvrtcVersion`.
                unsafe { version_of_pair(get) }?
            }
            AskVersion::Code => {
                // SAFETY: the landmark has this signature: a pointer to a 32-bit integer, and a status, which is an enum of 32
                // bits.
                let get = unsafe { std::mem::transmute::<Address, GetCode>(address) };
                // SAFETY: the landmark behaves as `ncclGetVersion`.
                unsafe { version_of_code(get) }?
            }
        };
        if found.major < self.oldest {
            return Err(Outcome::TooOld { found, needs: self.oldest });
        }
        Ok(found)
    }

    /// Opens the library that this one needs, where it lies beside it. If it cannot be opened, the library that needs it
    /// says so when it is used.
    pub(crate) fn open_companion(&self, origin: &str, version: LibraryVersion) {
        let Some(name) = self.companion else { return };
        let LibraryVersion { major, minor, .. } = version;
        open_beside(Path::new(origin), &format!("{name}.{major}.{minor}"));
    }
}

/// Makes the struct of a library beside the modules `types` and `functions` that the generator wrote:
/// `toolkit_library! { Struct, StatusType, INFO, "documentation" }`.
macro_rules! toolkit_library {
    ($table:ident, $error:ident, $info:ident, $title:literal, $variable:literal) => {
        #[doc = concat!($title, ": its functions, and its version.")]
        ///
        /// Filled once and never changed; share it between threads as you like. The library behind it is never
        /// unloaded.
        pub struct $table {
            functions: Functions,
            version: crate::LibraryVersion,
            origin: String,
        }

        impl $table {
            /// Finds and opens the library.
            ///
            #[doc = concat!("Tried in order: the file that the environment variable `", $variable, "` names (and then")]
            /// nothing else), a library of that name that is already loaded, the system's search path, the folders of
            /// toolkits (`CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`), and the packages of each Python that is active
            /// or on the search path. The newest major version comes first within each.
            ///
            /// # Errors
            /// [`crate::LoadError`] lists every attempt and why it failed: no such file, no such library, or one that
            /// is too old.
            pub fn load() -> Result<Self, crate::LoadError> {
                Ok(Self::from_loaded(crate::loader::search(&$info.library, &mut |library| $info.probe(library))?))
            }

            /// Opens one file as the library.
            ///
            /// # Errors
            /// The file cannot be opened, is another library, or is too old.
            pub fn load_from(path: impl AsRef<std::ffi::OsStr>) -> Result<Self, crate::LoadError> {
                let path = path.as_ref();
                Ok(Self::from_loaded(crate::loader::open(&$info.library, path, &mut |library| $info.probe(library))?))
            }

            /// Makes a library of functions that come from anywhere, for example from a simulated one in this process,
            /// and of the version it is to have.
            ///
            /// # Safety
            /// - Each pointer must behave as the C function of its name for as long as this value or anything made
            ///   with it is used.
            #[must_use]
            pub unsafe fn from_functions(functions: Functions, version: crate::LibraryVersion) -> Self {
                Self { functions, version, origin: "function table".to_owned() }
            }

            /// Version of the library.
            #[must_use]
            pub fn version(&self) -> crate::LibraryVersion {
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

            fn from_loaded(loaded: crate::loader::Loaded<crate::LibraryVersion>) -> Self {
                let crate::loader::Loaded { library, version, origin } = loaded;
                // SAFETY: the addresses come from a library that has this library's landmark and a major version whose
                // functions have these signatures, and it stays loaded for the life of the process.
                let functions = unsafe { Functions::resolve(|info| library.symbol(info.symbol)) };
                library.keep_loaded();
                $info.open_companion(&origin, version);
                Self { functions, version, origin }
            }

            #[cold]
            fn missing(&self, function: &'static crate::FunctionInfo) -> $error {
                crate::CallError::Missing(crate::MissingFunction { function, found: crate::CudaVersion(0) })
            }
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut text = f.debug_struct(stringify!($table));
                text.field("origin", &self.origin).field("version", &self.version).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use toolkit_library;

/// Gives a status type of the toolkit its name, text and trait: the names come from the module's `codes`.
macro_rules! toolkit_status {
    ($status:ident, $success:ident) => {
        impl $status {
            /// The code's C name; `None` for a code newer than this crate.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                let index = NAMES.binary_search_by_key(&self.0, |&(code, _)| code).ok()?;
                Some(NAMES[index].1)
            }
        }

        impl crate::Status for $status {
            fn is_success(self) -> bool {
                self == Self::$success
            }
        }

        impl std::fmt::Display for $status {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} ({})", self.0),
                    None => write!(f, "unrecognized error code {}", self.0),
                }
            }
        }

        impl std::fmt::Debug for $status {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($status), "({})"), self.0),
                }
            }
        }

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn names_are_sorted() {
                assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0), "codes must rise for the binary search");
                assert_eq!($status::$success.name(), Some(stringify!($success)));
                assert_eq!($status(4242).to_string(), "unrecognized error code 4242");
            }
        }
    };
}
pub(crate) use toolkit_status;
