//! The shape shared by all function tables.
//!
//! A table is a plain struct with one optional function pointer a symbol, filled once when the library is loaded and
//! never changed, so a call costs one load and one indirect jump. [`function_table!`] makes the struct, the list that
//! says what each entry is, and one checked method for each entry from the generated list of functions.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

use crate::CudaVersion;

/// What is known of one function before any library is loaded.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Exported symbol, for example `cuMemAlloc_v2`.
    pub symbol: &'static str,
    /// Name without version suffix, as `cuGetProcAddress` takes it.
    pub base: &'static str,
    /// CUDA version that introduced this ABI of the function.
    pub version: CudaVersion,
}

impl fmt::Display for FunctionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (CUDA {})", self.symbol, self.version)
    }
}

/// Address of a function, as a loader finds it.
pub(crate) type Address = NonNull<c_void>;

/// Makes a library's table from lines `symbol = "base" version (argument: type, ...);`.
///
/// The calling module provides `CUresult` in `super` as the status type and gives the table struct `Driver` two
/// fields: `functions: Functions` and `version: CudaVersion`.
macro_rules! function_table {
    ($($symbol:ident = $base:literal $version:literal ($($argument:ident : $type:ty),*);)*) => {
        /// Pointers to the library's functions; `None` where the loaded library lacks one.
        #[derive(Clone, Copy, Debug, Default)]
        #[expect(missing_docs, reason = "the fields are the C functions of the same names")]
        pub struct Functions {
            $(pub $symbol: Option<unsafe extern "C" fn($($argument: $type),*) -> CUresult>,)*
        }

        /// Index of each function in [`Functions::ALL`].
        #[derive(Clone, Copy)]
        enum Index { $($symbol,)* }

        impl Functions {
            /// Every function this crate knows, sorted by symbol.
            pub const ALL: &'static [crate::FunctionInfo] = &[
                $(crate::FunctionInfo {
                    symbol: stringify!($symbol),
                    base: $base,
                    version: crate::CudaVersion($version),
                },)*
            ];

            /// Fills a table by asking `find` for each function's address.
            ///
            /// # Safety
            /// - Each address that `find` returns must be a function with the C signature of that symbol, callable
            ///   for as long as the table or a copy of it is used.
            pub unsafe fn resolve(mut find: impl FnMut(&'static crate::FunctionInfo) -> Option<crate::table::Address>) -> Self {
                Self {
                    $($symbol: find(&Self::ALL[Index::$symbol as usize]).map(|address| {
                        // SAFETY: the caller of `resolve` promises that the address has this signature.
                        unsafe { std::mem::transmute::<crate::table::Address, unsafe extern "C" fn($($argument: $type),*) -> CUresult>(address) }
                    }),)*
                }
            }

            /// The same table without the functions that came after `version`.
            #[must_use]
            pub fn up_to(self, version: crate::CudaVersion) -> Self {
                let known = |index: Index| Self::ALL[index as usize].version <= version;
                Self { $($symbol: self.$symbol.filter(|_| known(Index::$symbol)),)* }
            }

            /// Symbols that are present, in order.
            pub fn available(&self) -> impl Iterator<Item = &'static crate::FunctionInfo> + use<> {
                let present = [$(self.$symbol.is_some(),)*];
                Self::ALL.iter().zip(present).filter_map(|(info, present)| present.then_some(info))
            }
        }

        impl super::Driver {
            $(
                #[doc = concat!("Calls `", stringify!($symbol), "`.")]
                ///
                /// # Errors
                /// The status the function answered with, or that the loaded library does not have it.
                ///
                /// # Safety
                /// - The duties of the C function: pointers valid for what it reads and writes, handles alive.
                #[inline]
                #[allow(clippy::too_many_arguments, reason = "the C function has as many")]
                pub unsafe fn $symbol(&self, $($argument: $type),*) -> Result<(), crate::CallError<CUresult>> {
                    let Some(function) = self.functions.$symbol else {
                        return Err(self.missing(&Functions::ALL[Index::$symbol as usize]));
                    };
                    // SAFETY: the pointer has this signature (`Functions::resolve` or the type of the field), and the
                    // caller keeps the C function's duties.
                    let status = unsafe { function($($argument),*) };
                    if status == CUresult::CUDA_SUCCESS {
                        return Ok(());
                    }
                    Err(crate::CallError::Failed { call: stringify!($symbol), status })
                }
            )*
        }
    };
}
pub(crate) use function_table;
