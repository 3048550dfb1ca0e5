//! What libraries have in common whose functions do not change from version to version: a table of functions that is
//! looked up once.
//!
//! **Invariant:** the library behind a table is never unloaded.

/// Makes the struct of a library beside the modules `types` and `functions` that the generator wrote, with its errors and
/// how it is searched for: `unversioned_library! { Struct, ErrorType, INFO, "name", "search and start" }`.
macro_rules! unversioned_library {
    ($table:ident, $error:ident, $info:ident, $title:literal, $search:literal) => {
        #[doc = concat!($title, ": its functions.")]
        ///
        /// Filled once and never changed; share it between threads as you like. The library behind it is never unloaded.
        pub struct $table {
            functions: Functions,
            origin: String,
        }

        impl $table {
            /// Finds and opens the library.
            ///
            #[doc = $search]
            ///
            /// # Errors
            /// [`LoadError`] lists every attempt and why it failed.
            ///
            /// [`LoadError`]: crate::LoadError
            pub fn load() -> Result<Self, crate::LoadError> {
                Ok(Self::from_loaded(crate::loader::search(&$info, &mut Self::probe)?))
            }

            /// Opens one file as the library.
            ///
            /// # Errors
            #[doc = concat!("The file cannot be opened, or is no ", $title, ".")]
            pub fn load_from(path: impl AsRef<std::ffi::OsStr>) -> Result<Self, crate::LoadError> {
                Ok(Self::from_loaded(crate::loader::open(&$info, path.as_ref(), &mut Self::probe)?))
            }

            /// Makes a table of functions that come from anywhere, for example from simulated ones in this process.
            ///
            /// # Safety
            /// - Each pointer must behave as the C function of its name for as long as this value or anything made with
            ///   it is used.
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

            fn probe(library: &crate::loader::Library) -> Result<crate::CudaVersion, crate::loader::Outcome> {
                let missing = crate::loader::Outcome::MissingSymbol(LANDMARK);
                library.symbol(LANDMARK).map(|_| crate::CudaVersion(0)).ok_or(missing)
            }

            fn from_loaded(loaded: crate::loader::Loaded<crate::CudaVersion>) -> Self {
                let crate::loader::Loaded { library, origin, .. } = loaded;
                // SAFETY: the addresses come from a library that has this library's landmark, looked up by symbols whose
                // signatures never change, and it stays loaded for the life of the process.
                let functions = unsafe { Functions::resolve(|info| library.symbol(info.symbol)) };
                library.keep_loaded();
                Self { functions, origin }
            }

            #[cold]
            fn missing(&self, function: &'static crate::FunctionInfo) -> $error {
                crate::CallError::Missing(crate::MissingFunction { function, found: crate::CudaVersion(0) })
            }
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($table)).field("origin", &self.origin).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use unversioned_library;
