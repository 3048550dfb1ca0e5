//! The C functions of the simulated driver, and tables of them.
//!
//! Every function is made from its line in `exports`: it takes over the caller's promise for its pointer arguments and
//! goes through the door.
//!
//! # Safety
//! The functions have the duties of the C functions of the same names: pointers null or valid for what is read and
//! written, host memory of queued work valid until that work is done. What a device pointer or a handle names is
//! looked up, so a wrong one is an error and no more.
#![expect(unsafe_code, reason = "the C interface of the driver")]

use std::ffi::c_void;

use cuda_sys::driver::Functions;
use cuda_sys::driver::types::*;
use cuda_sys::{CUresult, CudaVersion, Driver, LoadError};

use crate::calls;
use crate::claim::IntoModel;
use crate::codes;
use crate::export::{Export, Needs, version_of};
use crate::machine::Machine;

macro_rules! define_functions {
    ($($symbol:ident ($($argument:ident : $type:ty),*) $needs:ident [$($code:ident),*] => $area:ident :: $model:ident;)*) => {
        /// Every exported function, sorted by symbol, with every code it can answer with.
        pub const EXPORTS: &[Export] = &[
            $(Export {
                symbol: stringify!($symbol),
                version: version_of(stringify!($symbol)),
                needs: Needs::$needs,
                codes: &[$(codes::$code),*],
            },)*
        ];

        /// Place of each function in [`EXPORTS`].
        #[expect(non_camel_case_types, reason = "named after C functions")]
        #[derive(Clone, Copy)]
        enum Index { $($symbol,)* }

        /// The functions themselves.
        #[expect(non_snake_case, reason = "named after C functions")]
        pub mod functions {
            use super::*;
            $(
                #[doc = concat!("`", stringify!($symbol), "` of the simulated driver.")]
                ///
                /// # Safety
                /// - The duties of the C function.
                #[allow(clippy::too_many_arguments, reason = "the C function has as many")]
                pub unsafe extern "C" fn $symbol($($argument: $type),*) -> CUresult {
                    crate::door::enter(&EXPORTS[Index::$symbol as usize], |call| {
                        calls::$area::$model(
                            call,
                            // SAFETY: the caller keeps the C function's duties for this argument.
                            $(unsafe { $argument.into_model() }),*
                        )
                    })
                }
            )*
        }

        /// All functions as a table, without those that are newer than the driver version of the current machine.
        #[must_use]
        pub fn functions() -> Functions {
            let version = Machine::current().shared().lock().config.driver_version;
            Functions { $($symbol: Some(functions::$symbol),)* ..Functions::default() }.up_to(version)
        }

        /// Address of an exported function.
        fn address(symbol: &str) -> Option<*mut c_void> {
            $(if symbol == stringify!($symbol) {
                let function: unsafe extern "C" fn($($type),*) -> CUresult = functions::$symbol;
                return Some(function as *mut c_void);
            })*
            None
        }
    };
}

crate::for_each_export!(define_functions);

/// The simulated driver, to be used like any other; each call goes to the machine of the thread that makes it.
///
/// Functions newer than the driver version of the current machine are left out, so make one driver for each machine.
///
/// # Errors
/// The current machine was told to fail `cuDriverGetVersion`.
pub fn driver() -> Result<Driver, LoadError> {
    // SAFETY: these functions have the signatures and duties of the C functions they are named after, and live as long
    // as the process.
    unsafe { Driver::from_functions(functions()) }.map(|driver| driver.on_machine(Machine::current().number()))
}

/// What a search for a function by name came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is there.
    Address(*mut c_void),
    /// It exists, but not in a version as old as asked for.
    TooNew,
    /// The driver does not know the name.
    Unknown,
}

/// The newest function of a base name that neither the request nor the driver is too old for.
pub(crate) fn find(base: &str, wanted: CudaVersion, driver: CudaVersion) -> Found {
    let known = |export: &&Export| base_of(export.symbol) == base && export.version <= driver;
    if !EXPORTS.iter().any(|export| known(&export)) {
        return Found::Unknown;
    }
    let newest =
        EXPORTS.iter().filter(known).filter(|export| export.version <= wanted).max_by_key(|export| export.version);
    newest.and_then(|export| address(export.symbol)).map_or(Found::TooNew, Found::Address)
}

/// The name without the suffix of its ABI version.
fn base_of(symbol: &str) -> &str {
    let found = Functions::ALL.binary_search_by_key(&symbol, |info| info.symbol);
    found.map_or(symbol, |index| Functions::ALL[index].base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_sorted_and_unique() {
        let misplaced = EXPORTS.windows(2).find(|pair| pair[0].symbol >= pair[1].symbol);
        assert!(misplaced.is_none(), "{misplaced:?}");
    }

    #[test]
    fn all_versions_of_a_function_are_exported() {
        // With one missing, asking for it by version would find an older one, which takes other arguments.
        let exported = |symbol: &str| EXPORTS.iter().any(|export| export.symbol == symbol);
        let has_base = |base: &str| EXPORTS.iter().any(|export| base_of(export.symbol) == base);
        let missing: Vec<&str> = Functions::ALL
            .iter()
            .filter(|info| has_base(info.base) && !exported(info.symbol))
            .map(|info| info.symbol)
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn the_newest_fitting_version_is_found() {
        let new = CudaVersion(13000);
        let elapsed = |wanted, driver| find("cuEventElapsedTime", CudaVersion(wanted), driver);
        assert_eq!(elapsed(13000, new), Found::Address(address("cuEventElapsedTime_v2").expect("exported")));
        assert_eq!(elapsed(12000, new), Found::Address(address("cuEventElapsedTime").expect("exported")));
        assert_eq!(
            elapsed(13000, CudaVersion(11080)),
            Found::Address(address("cuEventElapsedTime").expect("exported"))
        );
        assert_eq!(find("cuGetProcAddress", CudaVersion(11000), new), Found::TooNew);
        assert_eq!(find("cuStreamGetId", new, CudaVersion(11080)), Found::Unknown);
        assert_eq!(find("cuMemAlloc_v2", new, new), Found::Unknown);
    }
}
