//! Codes of the CUDA runtime API, as numbers.

use cuda_sys::CUresult;

use crate::base::error::{Error, Result, StartError};

/// Codes of the runtime that programs of torch compare with.
///
/// `ERROR_NOT_READY` is the number that torch has; the runtime itself has answered 600 since CUDA 10.1.
///
/// ```
/// use c10_core::{check_error, cudaStatus};
///
/// assert_eq!(check_error(cudaStatus::SUCCESS), Ok(()));
/// ```
#[derive(Clone, Copy, Debug)]
#[expect(non_camel_case_types, reason = "torch's name")]
pub struct cudaStatus;

impl cudaStatus {
    /// No error.
    pub const SUCCESS: i32 = 0;
    /// Work is not done.
    pub const ERROR_NOT_READY: i32 = 34;
}

/// What the runtime answers where a driver says that a context is current already, which it never lets happen.
const UNKNOWN: i32 = 999;

/// A code of the runtime API that is not success; torch's `CudaError`, which only [`check_error`] raises.
///
/// ```
/// use c10_core::{CudaError, Error, check_error};
///
/// assert_eq!(check_error(2), Err(Error::Cuda(CudaError(2))));
/// assert_eq!(CudaError(98).to_string(), "invalid device function (98)");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} ({})", error_string(.0), .0)]
pub struct CudaError(
    /// The code.
    pub i32,
);

/// Turns a code of the runtime API into an error; torch's `check_error`. Makes no driver call.
///
/// ```
/// use c10_core::check_error;
///
/// assert_eq!(check_error(0), Ok(()));
/// assert_eq!(check_error(2).unwrap_err().to_string(), "out of memory (2)");
/// ```
///
/// # Errors
/// [`CudaError`] for every code but 0.
pub fn check_error(res: i32) -> Result<()> {
    if res == cudaStatus::SUCCESS { Ok(()) } else { Err(CudaError(res).into()) }
}

/// A result as the runtime's code.
pub(crate) fn status(result: Result<()>) -> i32 {
    match result {
        Ok(()) => cudaStatus::SUCCESS,
        Err(Error::Unavailable(_)) => code_of(CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER),
        Err(Error::Start(StartError::BadFork)) => code_of(CUresult::CUDA_ERROR_NOT_INITIALIZED),
        Err(error) => error.error_code().map_or(UNKNOWN, |code| code_of(CUresult(code))),
    }
}

/// The runtime's code for one of the driver's.
fn code_of(code: CUresult) -> i32 {
    match code {
        CUresult::CUDA_ERROR_CONTEXT_ALREADY_CURRENT => UNKNOWN,
        code => i32::try_from(code.0).unwrap_or(UNKNOWN),
    }
}

/// Texts of codes that the driver does not have, sorted by code.
const RUNTIME_ONLY: &[(i32, &str)] = &[
    (9, "invalid configuration argument"),
    (12, "invalid pitch argument"),
    (13, "invalid device symbol"),
    (16, "invalid host pointer"),
    (17, "invalid device pointer"),
    (21, "invalid copy direction for memcpy"),
    (35, "CUDA driver version is insufficient for CUDA runtime version"),
    (49, "incompatible driver context"),
    (52, "__global__ function call is not configured"),
    (53, "unspecified launch failure in prior launch"),
    (98, "invalid device function"),
];

pub(crate) fn error_string(code: &i32) -> &'static str {
    let ours = RUNTIME_ONLY.iter().find(|(known, _)| known == code).map(|&(_, text)| text);
    let drivers = || CUresult(u32::try_from(*code).ok()?).text();
    ours.or_else(drivers).unwrap_or("unrecognized error code")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_words_of_the_runtime() {
        assert_eq!(check_error(0), Ok(()));
        for (code, text) in [
            (2, "out of memory (2)"),
            (98, "invalid device function (98)"),
            (101, "invalid device ordinal (101)"),
            (600, "device not ready (600)"),
            (cudaStatus::ERROR_NOT_READY, "CUDA driver is a stub library (34)"),
            (-1, "unrecognized error code (-1)"),
            (31337, "unrecognized error code (31337)"),
        ] {
            assert_eq!(check_error(code).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn every_code_of_the_driver_has_one_of_the_runtime() {
        for code in CUresult::all() {
            let runtime = code_of(code);
            let text = if code == CUresult::CUDA_ERROR_CONTEXT_ALREADY_CURRENT {
                "unknown error"
            } else {
                code.text().unwrap()
            };
            assert_eq!(error_string(&runtime), text, "{code:?}");
        }
        assert!(RUNTIME_ONLY.iter().all(|&(code, _)| CUresult(u32::try_from(code).unwrap()).name().is_none()));
        assert_eq!(status(Err(Error::Start(StartError::BadFork))), 3);
        assert_eq!(status(Err(Error::Start(StartError::NoDevices))), UNKNOWN);
    }
}
