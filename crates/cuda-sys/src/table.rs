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
    /// CUDA version that introduced this ABI of the function; 0 where the library does not say.
    pub version: CudaVersion,
}

impl fmt::Display for FunctionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.version == CudaVersion(0) {
            return f.write_str(self.symbol);
        }
        write!(f, "{} (CUDA {})", self.symbol, self.version)
    }
}

/// Address of a function, as a loader finds it.
pub(crate) type Address = NonNull<c_void>;

/// Makes a library's table.
///
/// ```text
/// function_table! {
///     Struct, StatusType, SUCCESS_CONSTANT;
///     status { symbol = "base" version (argument: type, ...); ... }
///     values { symbol = "base" version (argument: type, ...) -> type; ... }
/// }
/// ```
///
/// Functions under `status` answer with the status type and become methods that return `Result<(), CallError>`;
/// functions under `values` answer with anything else (a text, a size) and return `Result<type, CallError>`, which
/// fails only when the function is missing. `Struct` lives in `super`, has a field `functions: Functions` and a
/// method `missing(&self, &'static FunctionInfo) -> CallError<StatusType>`.
macro_rules! function_table {
    (
        $table:ident, $status:ident, $success:ident;
        status { $($symbol:ident = $base:literal $version:literal ($($argument:ident : $type:ty),*);)* }
        values { $($v_symbol:ident = $v_base:literal $v_version:literal ($($v_argument:ident : $v_type:ty),*) -> $v_output:ty;)* }
    ) => {
        /// Pointers to the library's functions; `None` where the loaded library lacks one.
        #[derive(Clone, Copy, Debug, Default)]
        #[expect(missing_docs, reason = "the fields are the C functions of the same names")]
        pub struct Functions {
            $(pub $symbol: Option<unsafe extern "C" fn($($argument: $type),*) -> $status>,)*
            $(pub $v_symbol: Option<unsafe extern "C" fn($($v_argument: $v_type),*) -> $v_output>,)*
        }

        /// Index of each function in [`Functions::ALL`].
        #[derive(Clone, Copy)]
        #[allow(clippy::enum_variant_names, reason = "named after C functions")]
        enum Index { $($symbol,)* $($v_symbol,)* }

        impl Functions {
            /// Every function this crate knows.
            pub const ALL: &'static [crate::FunctionInfo] = &[
                $(crate::table::info(stringify!($symbol), $base, $version),)*
                $(crate::table::info(stringify!($v_symbol), $v_base, $v_version),)*
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
                        unsafe { std::mem::transmute::<crate::table::Address, unsafe extern "C" fn($($argument: $type),*) -> $status>(address) }
                    }),)*
                    $($v_symbol: find(&Self::ALL[Index::$v_symbol as usize]).map(|address| {
                        // SAFETY: the caller of `resolve` promises that the address has this signature.
                        unsafe { std::mem::transmute::<crate::table::Address, unsafe extern "C" fn($($v_argument: $v_type),*) -> $v_output>(address) }
                    }),)*
                }
            }

            /// The same table without the functions that came after `version`.
            #[must_use]
            pub fn up_to(self, version: crate::CudaVersion) -> Self {
                let known = |index: Index| Self::ALL[index as usize].version <= version;
                Self {
                    $($symbol: self.$symbol.filter(|_| known(Index::$symbol)),)*
                    $($v_symbol: self.$v_symbol.filter(|_| known(Index::$v_symbol)),)*
                }
            }

            /// Functions that are present, in the order of [`Self::ALL`].
            pub fn available(&self) -> impl Iterator<Item = &'static crate::FunctionInfo> + use<> {
                let present = [$(self.$symbol.is_some(),)* $(self.$v_symbol.is_some(),)*];
                Self::ALL.iter().zip(present).filter_map(|(info, present)| present.then_some(info))
            }
        }

        impl super::$table {
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
                pub unsafe fn $symbol(&self, $($argument: $type),*) -> Result<(), crate::CallError<$status>> {
                    let Some(function) = self.functions.$symbol else {
                        return Err(self.missing(&Functions::ALL[Index::$symbol as usize]));
                    };
                    // SAFETY: the pointer has this signature (`Functions::resolve` or the type of the field), and the
                    // caller keeps the C function's duties.
                    let status = unsafe { function($($argument),*) };
                    if status == $status::$success {
                        return Ok(());
                    }
                    Err(crate::CallError::Failed { call: stringify!($symbol), status })
                }
            )*
            $(
                #[doc = concat!("Calls `", stringify!($v_symbol), "`.")]
                ///
                /// # Errors
                /// The loaded library does not have the function.
                ///
                /// # Safety
                /// - The duties of the C function: pointers valid for what it reads and writes, handles alive.
                #[inline]
                pub unsafe fn $v_symbol(&self, $($v_argument: $v_type),*) -> Result<$v_output, crate::CallError<$status>> {
                    let Some(function) = self.functions.$v_symbol else {
                        return Err(self.missing(&Functions::ALL[Index::$v_symbol as usize]));
                    };
                    // SAFETY: as for the functions that answer with a status.
                    Ok(unsafe { function($($v_argument),*) })
                }
            )*
        }
    };
}
pub(crate) use function_table;

/// One entry of a table's list.
pub(crate) const fn info(symbol: &'static str, base: &'static str, version: u32) -> FunctionInfo {
    FunctionInfo { symbol, base, version: CudaVersion(version) }
}
